"""What played trials say: pure functions that training metrics and evaluations share.

Nothing from a padded slot or a failed trial is in any of them. Outcomes are JSON values, one a sequence:

    {"id": ..., "families": [one a position], "won": [one list a trial, in it one value a position], "score": the same}

with null where a slot is padded, was not played or its trial failed. Under the protocol `repeat` a value is the best so
far, so that it stays at 1 after the success that ended the trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np

from skillrise.statistics import Rate, Sample, clusters_needed, interval, pass_at_k, pass_hat_k, wilson
from skillrise.types import Attempt, Role, Trial, Turn

Outcome = dict[str, Any]

ROLES: tuple[Role, ...] = ("solve", "curate", "reflect")
DOCUMENT_CHARS, DOCUMENT_WORDS = 4000, 800
"""As much of a document is compared with the next: comparing takes the square of its length."""
HALF_WIDTH = 0.05
"""The precision for which an evaluation says how many sequences it would take."""
FAMILIES = 50
"""Most families that are listed."""


def scored(trial: Trial, protocol: str, value: Callable[[Attempt], float]) -> list[float | None]:
    """`value` at each position of the trial, None where nothing counts; under `repeat` the best so far."""
    out: list[float | None] = [None] * len(trial.sequence.tasks)
    if trial.error is not None:
        return out
    best = 0.0
    for position in range(len(out) if protocol == "repeat" else len(trial.attempts)):
        if position < len(trial.attempts):
            reached = value(trial.attempts[position])
            best = max(best, reached) if protocol == "repeat" else reached
        if not trial.sequence.padded[position]:
            out[position] = best
    return out


def by_position(trials: Sequence[Trial], protocol: str, value: Callable[[Attempt], float]) -> list[list[float]]:
    """`value` at each position over all trials in which it counts."""
    k = max((len(trial.sequence.tasks) for trial in trials), default=0)
    out: list[list[float]] = [[] for _ in range(k)]
    for trial in trials:
        for column, found in zip(out, scored(trial, protocol, value), strict=False):
            if found is not None:
                column.append(found)
    return out


def wins(trials: Sequence[Trial], protocol: str) -> list[list[float]]:
    """Scored outcomes (1 won, 0 not) at each position over all live trials."""
    return by_position(trials, protocol, lambda attempt: float(attempt.won))


def outcome(trials: Sequence[Trial], protocol: str) -> Outcome:
    """The outcomes of all trials of one sequence; see the module."""
    sequence = trials[0].sequence
    won = [scored(trial, protocol, lambda attempt: float(attempt.won)) for trial in trials]
    return {
        "id": sequence.id,
        "families": [task.family for task in sequence.tasks],
        "won": [[None if value is None else int(value) for value in values] for values in won],
        "score": [scored(trial, protocol, lambda attempt: attempt.score) for trial in trials],
    }


def sample(
    outcomes: Sequence[Outcome], *, what: str = "won", position: int | None = None, family: str | None = None
) -> Sample:
    """Outcomes as a sample [1 seed, sequences]: a sequence with all its trials and positions is one cluster.

    Args:
        outcomes: One a sequence.
        what: `won` or `score`.
        position: Only this position, from 0.
        family: Only slots whose task is of this family.
    """
    kept = [list(_values(item, what, position, family)) for item in outcomes]
    return Sample(np.array([[sum(v) for v in kept]], dtype=float), np.array([[len(v) for v in kept]], dtype=float))


def _values(item: Outcome, what: str, position: int | None, family: str | None) -> Iterator[float]:
    for values in item[what]:
        for at, value in enumerate(values):
            here = position in (None, at) and family in (None, item["families"][at])
            if here and value is not None:
                yield value


def rates(outcomes: Sequence[Outcome], once: bool) -> dict[str, Any]:
    """Success by position and over all with intervals, mean score, and how many sequences +- `HALF_WIDTH` would take.

    Args:
        outcomes: One a sequence.
        once: Each was played once: a position's slots are then as many draws, and its interval Wilson's.
    """
    k = max(len(item["families"]) for item in outcomes)
    at = [sample(outcomes, position=position) for position in range(k)]
    found = [_wilson(s) if once else interval(s) for s in at]
    pooled = sample(outcomes)
    whole = interval(pooled)
    return {
        "positions": list(range(1, k + 1)),
        "success": [rate.success for rate in found],
        "low": [rate.low for rate in found],
        "high": [rate.high for rate in found],
        "n": [rate.n for rate in found],
        "pooled": {"success": whole.success, "low": whole.low, "high": whole.high, "n": whole.n},
        "needed": {"half_width": HALF_WIDTH, "sequences": clusters_needed(pooled, HALF_WIDTH)},
        "score": [sample(outcomes, what="score", position=position).mean for position in range(k)],
    }


def _wilson(slots: Sample) -> Rate:
    return wilson(int(slots.total.sum()), int(slots.count.sum()))


def passes(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """`pass@k` (some of k trials wins) and, from k = 2, `pass^k` (all of them do), for every k up to the trials played.

    Each is a mean over the slots in which all trials of the sequence count; None where there is no such slot.
    """
    n = max((len(item["won"]) for item in outcomes), default=0)
    slots = [slot for item in outcomes for slot in zip(*item["won"], strict=True) if None not in slot]
    counts = [(len(slot), sum(slot)) for slot in slots]
    found = {f"pass@{k}": mean(pass_at_k(m, won, k) for m, won in counts) for k in range(1, n + 1)}
    return found | {f"pass^{k}": mean(pass_hat_k(m, won, k) for m, won in counts) for k in range(2, n + 1)}


def by_family(outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Success with its interval and mean score of each family, of at most 50, those with most scored slots first."""
    slots = Counter(
        item["families"][at]
        for item in outcomes
        for values in item["won"]
        for at, value in enumerate(values)
        if value is not None
    )
    out = {}
    for family, _ in slots.most_common(FAMILIES):
        rate = interval(sample(outcomes, family=family))
        score = sample(outcomes, what="score", family=family).mean
        out[family] = {"success": rate.success, "low": rate.low, "high": rate.high, "n": rate.n, "score": score}
    return out


def behaviour(trials: Sequence[Trial]) -> dict[str, Any]:
    """How the policy went about it: turns, tokens, replies that failed, and what its document became."""
    turns, attempts, changed = counted_turns(trials), counted_attempts(trials), changes(trials)
    positions = range(max(len(trial.sequence.tasks) for trial in trials))
    return {
        "turns": mean(len(attempt.turns) for _, attempt in attempts),
        "tokens": tokens(turns),
        "invalid": invalid(turns),
        "cut": cut(turns),
        "document": {
            "chars": [mean(len(a.document_in) for at, a in attempts if at == p) for p in positions],
            "change": [mean(share for at, share in changed if at == p) for p in positions],
        },
    }


def counted_turns(trials: Iterable[Trial]) -> list[Turn]:
    """All turns of live trials, without those that solved in a padded slot."""
    live = (trial for trial in trials if trial.error is None)
    return [t for trial in live for t in trial.turns if t.role != "solve" or not trial.sequence.padded[t.position]]


def counted_attempts(trials: Iterable[Trial]) -> list[tuple[int, Attempt]]:
    """Position and attempt of everything that was played in slots that count."""
    live = (trial for trial in trials if trial.error is None)
    return [(p, a) for trial in live for p, a in enumerate(trial.attempts) if not trial.sequence.padded[p]]


def invalid(turns: Sequence[Turn]) -> dict[Role, float]:
    """The share of replies that could not be used, for each role that spoke."""
    mine = {role: [not turn.valid for turn in turns if turn.role == role] for role in ROLES}
    return {role: fmean(values) for role, values in mine.items() if values}


def cut(turns: Iterable[Turn]) -> float | None:
    """The share of replies that were cut at their token limit."""
    return mean(turn.completion.finish_reason == "length" for turn in turns)


def tokens(turns: Sequence[Turn]) -> dict[str, int]:
    """Tokens `sampled`, and those of a `prompt` that the turn before it in its chat had not read; 0 if the engine tells none."""
    return {
        "sampled": sum(len(turn.completion.token_ids) for turn in turns),
        "prompt": sum(_new_prompt_tokens(turn) for turn in turns),
    }


def _new_prompt_tokens(turn: Turn) -> int:
    before = turn.prompt.follows
    known = len(before.prompt_ids) + len(before.token_ids) if before is not None else 0
    return len(turn.completion.prompt_ids) - known


def changes(trials: Iterable[Trial]) -> list[tuple[int, float]]:
    """Position, from 1, and share of the carried text that the turn before it changed, wherever there was such a turn."""
    return [
        (p, change(trial.attempts[p - 1].document_in, trial.attempts[p].document_in))
        for trial in trials
        if trial.error is None
        for p in range(1, len(trial.attempts))
        if p <= len(trial.carries) and not trial.sequence.padded[p]
    ]


@lru_cache(maxsize=256)
def change(before: str, after: str) -> float:
    """How much of a document is new: 1 minus the share of words that both have in the same order, in [0, 1].

    Only the first 800 words within the first 4,000 characters are compared.
    """
    if before == after:
        return 0.0
    old, new = (text[:DOCUMENT_CHARS].split()[:DOCUMENT_WORDS] for text in (before, after))
    return 1.0 - SequenceMatcher(None, old, new, autojunk=False).ratio()


def over_positions(rates: Sequence[float | None], counts: Sequence[int]) -> float | None:
    """The mean of rates by position, each with the weight of its scored slots; None where nothing counts."""
    there = [(rate, n) for rate, n in zip(rates, counts, strict=False) if rate is not None]
    slots = sum(n for _, n in there)
    return sum(rate * n for rate, n in there) / slots if slots else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there; None when none is."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None
