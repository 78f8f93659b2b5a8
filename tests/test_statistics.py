"""Intervals, tests and estimates: against brute force, textbook numbers and simulated experiments."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillrise.statistics import (
    Rate,
    Sample,
    clusters_needed,
    difference,
    holm,
    interval,
    pass_at_k,
    pass_hat_k,
    wilson,
)

SIGMA = 1.5
"""Spread of the clusters' log-odds in simulated experiments."""


def sample(*seeds: list[float], slots: float = 1.0) -> Sample:
    """Totals of each cluster, one list a seed."""
    total = np.array(seeds, dtype=float)
    return Sample(total, np.full_like(total, slots))


def experiment(
    rng: np.random.Generator, clusters: int, slots: int = 4, seeds: int = 1, spread: float = 0.0
) -> tuple[Sample, np.ndarray[Any, Any]]:
    """Outcomes whose slots in one cluster depend on each other, and the clusters' log-odds."""
    odds = rng.normal(0.0, SIGMA, clusters)
    return played(rng, odds, slots, seeds, spread), odds


def played(
    rng: np.random.Generator, odds: np.ndarray[Any, Any], slots: int = 4, seeds: int = 1, spread: float = 0.0
) -> Sample:
    logits = odds[None] + rng.normal(0.0, spread, (seeds, 1))
    total = rng.binomial(slots, 1 / (1 + np.exp(-logits))).astype(float)
    return Sample(total, np.full_like(total, float(slots)))


@st.composite
def samples(draw: st.DrawFn, clusters: int | None = None) -> Sample:
    shape = draw(st.integers(1, 3)), clusters or draw(st.integers(1, 6))
    cells = [draw(st.integers(0, 3)) for _ in range(shape[0] * shape[1])]
    wins = [draw(st.integers(0, n)) for n in cells]
    return Sample(np.array(wins, dtype=float).reshape(shape), np.array(cells, dtype=float).reshape(shape))


@pytest.mark.parametrize(
    ("won", "n", "low", "high"),
    [(8, 10, 0.490, 0.943), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (1, 1, 0.207, 1.0), (50, 200, 0.195, 0.314)],
)
def test_wilson_against_known_values(won: int, n: int, low: float, high: float) -> None:
    rate = wilson(won, n)
    assert (rate.success, rate.n) == (won / n, n)
    assert [rate.low, rate.high] == pytest.approx([low, high], abs=6e-4)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@settings(deadline=None)
def test_wilson_holds_its_rate(pair: tuple[int, int]) -> None:
    rate = wilson(*pair)
    assert 0.0 <= rate.low <= rate.success <= rate.high <= 1.0
    mirror = wilson(pair[1] - pair[0], pair[1])
    assert [rate.low, rate.high] == pytest.approx([1 - mirror.high, 1 - mirror.low])


def test_wilson_of_nothing() -> None:
    rate = wilson(0, 0)
    assert math.isnan(rate.success)
    assert (rate.low, rate.high, rate.n) == (0.0, 1.0, 0)


def test_a_sample_is_two_tables_of_one_shape() -> None:
    assert sample([1.0, 0.0], [1.0, 1.0]).mean == 0.75
    assert math.isnan(sample([0.0], slots=0.0).mean)
    with pytest.raises(ValueError, match="alike"):
        Sample(np.zeros((1, 2)), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="alike"):
        Sample(np.zeros(2), np.zeros(2))


@given(samples())
@settings(deadline=None)
def test_an_interval_holds_its_mean(some: Sample) -> None:
    rate = interval(some, resamples=50)
    assert rate.n == some.count.sum()
    if rate.n:
        assert rate.success == pytest.approx(some.mean)
        assert 0.0 <= rate.low <= rate.success <= rate.high <= 1.0
        assert rate.low < rate.high or len(some.total) > 1
    else:
        assert (rate.low, rate.high) == (0.0, 1.0)
        assert math.isnan(rate.success)


def test_the_same_seed_gives_the_same_interval() -> None:
    some, _ = experiment(np.random.default_rng(0), 30)
    assert interval(some, seed=3) == interval(some, seed=3) != interval(some, seed=4)
    wide, narrow = interval(some, level=0.99), interval(some, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_more_clusters_give_a_narrower_interval_and_more_slots_of_a_cluster_do_not() -> None:
    few = sample([0.0, 1.0] * 10)
    assert width(interval(sample([0.0, 1.0] * 40))) == pytest.approx(width(interval(few)) / 2, rel=0.2)
    assert width(interval(sample([0.0, 5.0] * 10, slots=5.0))) == width(interval(few))


def width(rate: Rate) -> float:
    return rate.high - rate.low


def test_clusters_without_slots_change_nothing() -> None:
    there = sample([0.0, 1.0, 1.0])
    holes = Sample(np.array([[0.0, 0.0, 1.0, 1.0, 0.0]]), np.array([[1.0, 0.0, 1.0, 1.0, 0.0]]))
    assert interval(holes) == interval(there)
    assert difference(holes, holes, paired=False) == difference(there, there, paired=False)
    assert clusters_needed(holes, 0.1) == clusters_needed(there, 0.1)


def test_clusters_that_do_not_differ_have_wilsons_interval() -> None:
    for won in (0.0, 1.0):
        rate, known = interval(sample([won * 3] * 10, slots=3.0)), wilson(int(won * 10), 10)
        assert [rate.low, rate.high] == pytest.approx([known.low, known.high])
        assert rate.n == 30
    assert width(interval(sample([2.0], slots=3.0))) > 0.8  # a single one


def test_seeds_that_differ_widen_the_interval() -> None:
    alike = sample(*[[0.0, 1.0] * 20] * 3)
    apart = sample([0.0] * 40, [0.0, 1.0] * 20, [1.0] * 40)
    assert width(interval(apart)) > 2 * width(interval(alike))
    assert width(interval(sample([0.0] * 40, [1.0] * 40))) == 1.0


@pytest.mark.parametrize(("clusters", "seeds", "spread"), [(25, 1, 0.0), (80, 1, 0.0), (40, 4, 0.4)])
def test_intervals_hold_the_truth_as_often_as_they_say(clusters: int, seeds: int, spread: float) -> None:
    """Log-odds are symmetric about 0, so that the true rate is one half."""
    rng = np.random.default_rng(1)
    found = [interval(experiment(rng, clusters, 4, seeds, spread)[0], resamples=500, seed=i) for i in range(400)]
    assert 0.90 <= np.mean([rate.low <= 0.5 <= rate.high for rate in found]) <= 0.99


def test_slots_that_depend_on_each_other_are_not_taken_for_independent_ones() -> None:
    rng = np.random.default_rng(2)
    some, _ = experiment(rng, 60)
    assert width(interval(some)) > 1.2 * width(wilson(int(some.total.sum()), int(some.count.sum())))


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_differences_hold_the_truth(paired: bool) -> None:
    rng = np.random.default_rng(3)
    held = 0
    for i in range(200):
        a, odds = experiment(rng, 40)
        b = played(rng, odds) if paired else experiment(rng, 40)[0]
        found = difference(a, b, paired=paired, resamples=400, seed=i)
        held += found.low <= 0.0 <= found.high
    assert 0.90 <= held / 200 <= 0.99


def test_pairing_takes_the_clusters_own_difficulty_out() -> None:
    rng = np.random.default_rng(4)
    a, odds = experiment(rng, 100, slots=20)
    b = played(rng, odds - 0.5, slots=20)
    together, apart = (difference(a, b, paired=paired) for paired in (True, False))
    assert together.difference == apart.difference == pytest.approx(a.mean - b.mean)
    assert together.high - together.low < 0.5 * (apart.high - apart.low)
    assert together.p < 0.01 < apart.p
    assert (together.paired, apart.paired) == (True, False)


def test_a_cluster_that_one_lacks_is_not_paired() -> None:
    a = Sample(np.array([[1.0, 1.0, 0.0, 1.0]]), np.array([[1.0, 1.0, 1.0, 0.0]]))
    b = sample([0.0, 1.0, 0.0, 1.0])
    assert difference(a, b, paired=True) == difference(sample([1.0, 1.0, 0.0]), sample([0.0, 1.0, 0.0]), paired=True)
    with pytest.raises(ValueError, match="4 clusters cannot be paired with 3"):
        difference(a, sample([0.0, 1.0, 0.0]), paired=True)


@pytest.mark.parametrize("paired", [True, False])
def test_one_cluster_says_nothing_of_others_however_many_seeds_played_it(paired: bool) -> None:
    a, b = sample([9.0], [8.0], [9.0], slots=10.0), sample([2.0], [1.0], [2.0], slots=10.0)
    found = difference(a, b, paired=paired)
    assert found.high - found.low > 0.8
    assert found.low <= found.difference <= found.high


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(samples(clusters=n), samples(clusters=n))))
@settings(deadline=None)
def test_flips_of_few_clusters_are_counted_exactly(pair: tuple[Sample, Sample]) -> None:
    a, b = pair
    found = difference(a, b, paired=True, resamples=20)
    there = (a.count.sum(axis=0) > 0) & (b.count.sum(axis=0) > 0)
    if not there.any():
        assert math.isnan(found.difference)
        assert math.isnan(found.p)
        return
    rates = [s.total[:, there].sum(axis=0) / s.count[:, there].sum(axis=0) for s in (a, b)]
    weights = (a.count[:, there].mean(axis=0) + b.count[:, there].mean(axis=0)) / 2
    moved = weights * (rates[0] - rates[1])
    flips = [abs(sum(s * d for s, d in zip(way, moved, strict=True))) for way in product((1, -1), repeat=len(moved))]
    assert found.p == pytest.approx(np.mean([flip >= abs(moved.sum()) - 1e-9 for flip in flips]))
    assert -1.0 <= found.low <= found.difference <= found.high <= 1.0


def test_a_clear_difference_has_the_smallest_p_there_is() -> None:
    ones, zeros = sample([1.0] * 5), sample([0.0] * 5)
    assert difference(ones, zeros, paired=True).p == 2 / 2**5
    found = difference(sample([1.0] * 40), sample([0.0] * 40), paired=True, resamples=999)
    assert found.p == 1 / 1000
    assert found.low > 0.8  # Newcombe's, as no resample differs
    assert difference(zeros, ones, paired=True).difference == -1.0
    assert difference(ones, ones, paired=True).p == difference(ones, ones, paired=False, resamples=50).p == 1.0


@pytest.mark.parametrize("paired", [True, False])
def test_p_is_even_where_there_is_no_difference(paired: bool) -> None:
    rng = np.random.default_rng(5)
    ps = []
    for i in range(300):
        a, odds = experiment(rng, 30)
        b = played(rng, odds) if paired else experiment(rng, 20)[0]
        ps.append(difference(a, b, paired=paired, resamples=200, seed=i).p)
    for level in (0.05, 0.25, 0.5, 0.75):
        assert np.mean([p <= level for p in ps]) == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / 300))


def test_nothing_to_compare() -> None:
    found = difference(sample([1.0]), sample([0.0], slots=0.0), paired=False)
    assert math.isnan(found.difference)
    assert math.isnan(found.p)
    assert (found.low, found.high) == (-1.0, 1.0)


def test_holm_against_a_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # R: p.adjust(p, "holm")
    assert holm([]) == []
    kept = holm([0.02, math.nan, 0.9, 0.6])
    assert math.isnan(kept[1])
    assert [kept[0], *kept[2:]] == pytest.approx([0.06, 1.0, 1.0])


@given(st.lists(st.floats(0.0, 1.0), max_size=8))
@settings(deadline=None)
def test_holm_never_lowers_a_p_nor_changes_their_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(p <= q <= 1.0 for p, q in zip(ps, adjusted, strict=True))
    assert [q for _, q in sorted(zip(ps, adjusted, strict=True))] == sorted(adjusted)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
@settings(deadline=None)
def test_pass_at_k_and_hat_k_count_subsets(case: tuple[int, int, int]) -> None:
    n, won, k = case
    subsets = list(combinations([True] * won + [False] * (n - won), k))
    assert pass_at_k(n, won, k) == pytest.approx(np.mean([any(subset) for subset in subsets]))
    assert pass_hat_k(n, won, k) == pytest.approx(np.mean([all(subset) for subset in subsets]))


@pytest.mark.parametrize(("n", "won", "k"), [(2, 1, 3), (2, 1, 0), (2, 3, 1), (2, -1, 1)])
def test_pass_needs_as_many_trials(n: int, won: int, k: int) -> None:
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="must be within"):
            estimate(n, won, k)


@pytest.mark.parametrize("slots", [1, 4])
def test_as_many_clusters_as_needed_give_the_width(slots: int) -> None:
    rng = np.random.default_rng(6)
    pilot, _ = experiment(rng, 400, slots)
    needed = clusters_needed(pilot, 0.05)
    found = [width(interval(experiment(rng, needed, slots)[0])) / 2 for _ in range(20)]
    assert np.mean(found) == pytest.approx(0.05, rel=0.1)


def test_clusters_needed_where_nothing_differs() -> None:
    for won in (0.0, 1.0):
        needed = clusters_needed(sample([won] * 10), 0.05)
        assert width(wilson(int(won * needed), needed)) / 2 <= 0.05 < width(wilson(int(won * 30), 30)) / 2
    assert clusters_needed(sample([0.0], slots=0.0), 0.05) == pytest.approx(381, abs=4)  # at a rate of one half
    assert clusters_needed(sample([0.0, 1.0] * 50), 0.05) == pytest.approx(388, abs=1)
    with pytest.raises(ValueError, match="above 0"):
        clusters_needed(sample([0.0, 1.0]), 0.0)
