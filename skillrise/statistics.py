"""Intervals, differences and tests for outcomes that come in clusters. Pure functions of numpy arrays.

Outcomes within one held-out sequence depend on each other: its tasks share a family and a document passes from one to the
next. So what is resampled, flipped and counted here is always the whole cluster, never a slot. Seeds (policies trained
anew) meet the same clusters: the two are crossed, and both are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Ways = TypeVar("Ways")

EXACT = 12
"""Up to so many clusters that differ, all sign flips are counted instead of drawn."""
BLOCK = 2_000_000
"""Most random numbers held at a time."""
ROUNDING = 1e-9
"""Two values of a statistic that are closer than this are one."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate with its interval.

    Attributes:
        success: The rate, in [0, 1]; nan when nothing was scored.
        low: Lower end of the interval.
        high: Upper end.
        n: Scored slots.
    """

    success: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Outcomes of clusters; a cluster is what is drawn as one: a held-out sequence, or a block of rotated ones.

    Attributes:
        total: [seeds, clusters], the sum of each cluster's outcomes (each in [0, 1]).
        count: [seeds, clusters], its scored slots; 0 where nothing is there.

    Raises:
        ValueError: If the two do not have the same two dimensions.
    """

    total: FloatArray
    count: FloatArray

    def __post_init__(self) -> None:
        if self.total.ndim != 2 or self.total.shape != self.count.shape:
            raise ValueError(f"total {self.total.shape} and count {self.count.shape} must be [seeds, clusters] alike")

    @property
    def mean(self) -> float:
        """The rate over all scored slots of all seeds; nan when there is none."""
        slots = self.count.sum()
        return float(self.total.sum() / slots) if slots else math.nan


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one rate is than another.

    Attributes:
        difference: First minus second, in [-1, 1]; nan when either has nothing to compare.
        low: Lower end of the interval.
        high: Upper end.
        p: Two-sided p of "no difference"; see `difference`.
        paired: Whether clusters were compared one by one.
    """

    difference: float
    low: float
    high: float
    p: float
    paired: bool


def wilson(wins: int, n: int, z: float = 1.959964) -> Rate:
    """The rate wins / n with Wilson's score interval; (nan, 0, 1) when n = 0."""
    return Rate(wins / n, *_wilson(wins / n, n, z), n) if n else Rate(math.nan, 0.0, 1.0, 0)


def interval(sample: Sample, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Rate:
    """The rate with a percentile bootstrap interval over clusters, and over seeds too where there are several.

    Each resample draws the same clusters for all seeds. Of n clusters or seeds it draws n - 1, which makes the spread of
    few come out right (Rao and Wu 1988); drawing n gives too small a one. Two or three seeds still make it a little narrow:
    it then holds the true rate some 9 times in 10. Where clusters do not differ (all won, all lost, a single one) nothing
    can be learnt from resampling: Wilson's interval then, with clusters for slots.

    Args:
        sample: What was scored.
        level: How often the interval should hold the true rate.
        resamples: Resamples drawn.
        seed: The same seed gives the same interval.
    """
    sample = _scored(sample, sample.count.sum(axis=0) > 0)
    mean, slots, clusters = sample.mean, int(sample.count.sum()), sample.total.shape[1]
    if not slots:
        return Rate(math.nan, 0.0, 1.0, 0)
    if _alike(sample):
        return Rate(mean, *_wilson(mean, clusters, _z(level)), slots)
    rng = np.random.default_rng(seed)
    drawn = [_rates(sample, part, rng) for part in _cluster_draws(clusters, resamples, rng)]
    low, high = _percentiles(np.concatenate(drawn), level)
    return Rate(mean, min(mean, low), max(mean, high), slots)


def difference(
    a: Sample, b: Sample, *, paired: bool, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Difference:
    """The rate of `a` minus that of `b`, with a bootstrap interval and a permutation test.

    The interval is that of `interval`: paired, both are resampled at the same clusters; the seeds of the two are drawn
    apart. Where that has no spread, or there is one cluster, the two intervals are put together as Newcombe (1998) does.

    p says how unusual the difference is if it makes no difference which of the two played a held-out cluster, given these
    trained policies: it is about other held-out clusters, not about training anew (the interval is about both). Paired,
    the signs of the clusters' differences (seed means) are flipped: in all ways where at most 12 clusters differ, else in
    `resamples` random ways. Unpaired, clusters are dealt out anew. Random ways count the observed one among them.

    Args:
        a: What is compared.
        b: What it is compared with.
        paired: Column c of both is the same cluster; clusters that either lacks are left out.
        level: How often the interval should hold the true difference.
        resamples: Resamples drawn, for the interval and for p.
        seed: The same seed gives the same answer.

    Raises:
        ValueError: If paired samples do not have as many clusters.
    """
    there = a.count.sum(axis=0) > 0, b.count.sum(axis=0) > 0
    if paired:
        if a.total.shape[1] != b.total.shape[1]:
            raise ValueError(f"{a.total.shape[1]} clusters cannot be paired with {b.total.shape[1]}")
        there = there[0] & there[1], there[0] & there[1]
    a, b = _scored(a, there[0]), _scored(b, there[1])
    found = a.mean - b.mean
    if math.isnan(found):
        return Difference(math.nan, -1.0, 1.0, math.nan, paired)
    rng = np.random.default_rng(seed)
    draws = _cluster_draws(a.total.shape[1], resamples, rng)
    if paired:
        drawn = [_rates(a, part, rng) - _rates(b, part, rng) for part in draws]
    else:
        others = _cluster_draws(b.total.shape[1], resamples, rng)
        rates_a, rates_b = ([_rates(s, part, rng) for part in d] for s, d in ((a, draws), (b, others)))
        drawn = [np.concatenate(rates_a) - np.concatenate(rates_b)]
    low, high = _percentiles(np.concatenate(drawn), level)
    if high - low < ROUNDING or min(a.total.shape[1], b.total.shape[1]) < 2:  # one cluster says nothing of others
        low, high = _newcombe(found, interval(a, level, resamples, seed), interval(b, level, resamples, seed))
    p = _flipped(a, b, resamples, rng) if paired else _dealt(a, b, resamples, rng)
    return Difference(found, min(found, low), max(found, high), p, paired)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p values in the order given: comparing each with 0.05 keeps the chance of any false finding below it.

    A nan is no test: it stays and is not counted.
    """
    out = [math.nan] * len(ps)
    tests = sorted((p, i) for i, p in enumerate(ps) if not math.isnan(p))
    highest = 0.0
    for rank, (p, i) in enumerate(tests):
        highest = max(highest, min(1.0, p * (len(tests) - rank)))
        out[i] = highest
    return out


def pass_at_k(n: int, wins: int, k: int) -> float:
    """Chance that some of k trials wins, without bias from `wins` of n: 1 - C(n - wins, k) / C(n, k) (2107.03374).

    Raises:
        ValueError: Unless 1 <= k <= n and 0 <= wins <= n.
    """
    _check_trials(n, wins, k)
    return 1.0 - math.comb(n - wins, k) / math.comb(n, k)


def pass_hat_k(n: int, wins: int, k: int) -> float:
    """Chance that all of k trials win, without bias from `wins` of n: C(wins, k) / C(n, k) (2406.12045).

    Raises:
        ValueError: Unless 1 <= k <= n and 0 <= wins <= n.
    """
    _check_trials(n, wins, k)
    return math.comb(wins, k) / math.comb(n, k)


def clusters_needed(sample: Sample, half_width: float, level: float = 0.95) -> int:
    """How many clusters like these `interval` would need to reach so far to either side, with the seeds that are there.

    The spread between seeds is left out: more clusters do not make it smaller. Clusters that do not differ say nothing of
    their spread: then, what Wilson's interval needs; for an empty sample, what it needs at a rate of one half.

    Args:
        sample: What was scored.
        half_width: Half the width that the interval should have, above 0.
        level: How often the interval should hold the true rate.

    Raises:
        ValueError: If `half_width` is not above 0.
    """
    if half_width <= 0:
        raise ValueError(f"half_width must be above 0, not {half_width}")
    sample, z = _scored(sample, sample.count.sum(axis=0) > 0), _z(level)
    total, count = sample.total.mean(axis=0), sample.count.mean(axis=0)
    clusters = len(total)
    if clusters > 1:
        residuals = (total - sample.mean * count) / count.mean()
        variance = float((residuals**2).sum()) / (clusters - 1)
        if variance > ROUNDING:
            return max(2, math.ceil(variance * (z / half_width) ** 2 - ROUNDING))
    mean = sample.mean if clusters else 0.5
    return next(n for n in _rising() if _half(_wilson(mean, n, z)) <= half_width)


def _wilson(rate: float, n: int, z: float) -> tuple[float, float]:
    """Wilson's interval of a rate over n draws."""
    zz = z * z
    centre = (rate + zz / (2 * n)) / (1 + zz / n)
    half = z * math.sqrt(rate * (1 - rate) / n + zz / (4 * n * n)) / (1 + zz / n)
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))


def _newcombe(found: float, a: Rate, b: Rate) -> tuple[float, float]:
    """The interval of a difference from those of its two rates."""
    low = math.hypot(a.success - a.low, b.high - b.success)
    high = math.hypot(a.high - a.success, b.success - b.low)
    return max(-1.0, found - low), min(1.0, found + high)


def _z(level: float) -> float:
    return NormalDist().inv_cdf(0.5 + level / 2)


def _half(ends: tuple[float, float]) -> float:
    return (ends[1] - ends[0]) / 2


def _rising() -> Iterator[int]:
    """1, 2, 3 and on, in steps of at most a hundredth."""
    n = 1
    while True:
        yield n
        n += max(1, n // 100)


def _scored(sample: Sample, there: NDArray[np.bool_]) -> Sample:
    return Sample(sample.total[:, there].astype(float), sample.count[:, there].astype(float))


def _alike(sample: Sample) -> bool:
    """Whether there are no two clusters, or none that differ, in any seed."""
    there = sample.count > 0
    rates = sample.total[there] / sample.count[there]
    return sample.total.shape[1] < 2 or bool(np.ptp(rates) < ROUNDING)


def _cluster_draws(clusters: int, resamples: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """How often each cluster is drawn: [resamples, clusters], in blocks."""
    for size in _blocks(resamples, clusters):
        yield _draws(clusters, size, rng)


def _draws(n: int, resamples: int, rng: np.random.Generator) -> FloatArray:
    """[resamples, n]: how often each of n is drawn in n - 1 draws."""
    if n == 1:
        return np.ones((resamples, 1))
    picked = rng.integers(0, n, (resamples, n - 1)) + n * np.arange(resamples)[:, None]
    return np.bincount(picked.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


def _rates(sample: Sample, clusters: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The rate in each resample [resamples], its seeds drawn here; nan where it drew nothing that was scored."""
    seeds = _draws(len(sample.total), len(clusters), rng)
    total, count = (((seeds @ part) * clusters).sum(axis=1) for part in (sample.total, sample.count))
    rates: FloatArray = np.divide(total, count, out=np.full(len(clusters), math.nan), where=count > 0)
    return rates


def _percentiles(drawn: FloatArray, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    low, high = np.quantile(drawn[~np.isnan(drawn)], [tail, 1 - tail])
    return float(low), float(high)


def _flipped(a: Sample, b: Sample, resamples: int, rng: np.random.Generator) -> float:
    """The p of a paired difference; see `difference`."""
    weight = (a.count.mean(axis=0) + b.count.mean(axis=0)) / 2
    rate_a, rate_b = (s.total.sum(axis=0) / s.count.sum(axis=0) for s in (a, b))
    differences = weight * (rate_a - rate_b)
    differences = differences[np.abs(differences) > ROUNDING]
    n = len(differences)
    if n <= EXACT:
        ways = (np.arange(2**n)[:, None] >> np.arange(n) & 1) * 2.0 - 1.0
        return float(np.mean(_extreme(ways @ differences, float(differences.sum()))))
    signs = (rng.integers(0, 2, (size, n)) * 2.0 - 1.0 for size in _blocks(resamples, n))
    return _share(signs, lambda way: way @ differences, float(differences.sum()))


def _dealt(a: Sample, b: Sample, resamples: int, rng: np.random.Generator) -> float:
    """The p of an unpaired difference; see `difference`."""
    total, count = (np.concatenate([getattr(s, what).mean(axis=0) for s in (a, b)]) for what in ("total", "count"))
    n, first = len(total), a.total.shape[1]

    def statistic(order: NDArray[np.intp]) -> FloatArray:
        mine, other = order[:, :first], order[:, first:]
        rates: FloatArray = total[mine].sum(1) / count[mine].sum(1) - total[other].sum(1) / count[other].sum(1)
        return rates

    orders = (rng.random((size, n)).argsort(axis=1) for size in _blocks(resamples, n))
    return _share(orders, statistic, float(statistic(np.arange(n)[None])[0]))


def _share(ways: Iterator[Ways], statistic: Callable[[Ways], FloatArray], observed: float) -> float:
    """The share of random ways at least as extreme as the observed one, which is one of them."""
    extreme = np.concatenate([_extreme(statistic(way), observed) for way in ways])
    return float((1 + extreme.sum()) / (1 + len(extreme)))


def _extreme(values: FloatArray, observed: float) -> NDArray[np.bool_]:
    return np.abs(values) >= abs(observed) - ROUNDING


def _blocks(resamples: int, n: int) -> Iterator[int]:
    """`resamples` in parts, so that a part times n numbers are not too many."""
    size = max(1, BLOCK // max(n, 1))
    return chain((size,) * (resamples // size), (resamples % size,) if resamples % size else ())


def _check_trials(n: int, wins: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= wins <= n):
        raise ValueError(f"k = {k} must be within 1..n and wins = {wins} within 0..n, with n = {n}")
