"""What the plays of a plan say: success by K and position, what was carried over, tokens.

Clusters of every interval are blocks: their tasks share a family, and the same tasks are played in many sequences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from skillrise.curriculum import identity
from skillrise.files import without_nan
from skillrise.measures import counted_turns, tokens
from skillrise.scale.plan import Plan
from skillrise.statistics import Sample, difference, interval
from skillrise.types import TaskSequence, Trial, Turn

Result = Mapping[str, Any]
"""An evaluation's result, with `spent` beside it."""


TOLD = ("sequences", "plays", "failed", "invalid", "turns", "seconds", "engine")
"""What an entry takes over from the evaluation; null where that played further, to the largest K under `repeat`."""


@dataclass(frozen=True, slots=True)
class Play:
    """A scored task play: the block's number, the task, its position from 0 and how it ended."""

    block: int
    task: str
    position: int
    won: float
    score: float


def spent(trials: Sequence[Trial]) -> list[dict[str, int]]:
    """Tokens at each position of the trials that did not fail: `sampled`, and `prompt` for those newly read.

    Writing what is carried on counts to the position that it is for.
    """
    k = max((len(trial.sequence.tasks) for trial in trials), default=0)
    turns: list[list[Turn]] = [[] for _ in range(k)]
    for turn in counted_turns(trials):
        turns[min(turn.position + (turn.role != "solve"), k - 1)].append(turn)
    return [tokens(here) for here in turns]


def summary(plan: Plan, crossed: Mapping[int, Result], repeated: Result | None) -> dict[str, Any]:
    """The numbers of all tables and figures, as JSON values; null where nothing can be said.

    Args:
        plan: What was played.
        crossed: The result of each length K that is done.
        repeated: The result under `repeat`, if that is done.

    Returns:
        `cross` and `repeat`: one entry a K with `success` (interval over blocks), `gain` (success behind the first position
        minus the success of the same tasks at the first, paired), the `optimum`, `tokens`, and all of it by position. Under
        `repeat`, position p tells of the first p attempts together.
    """
    plays = {k: list(_plays(plan.sequences(k), result, len(plan.blocks))) for k, result in crossed.items()}
    alone = _alone(play for of_k in plays.values() for play in of_k)
    cross = [_entry(plan, k, plays[k], result, alone) for k, result in sorted(crossed.items())]
    repeat = []
    if repeated is not None:
        tried = list(_plays(_one_each(plan), repeated, len(plan.blocks)))
        repeat = [_entry(plan, k, [p for p in tried if p.position < k], repeated, {}) for k in plan.lengths]
    out: dict[str, Any] = without_nan({"cross": cross, "repeat": repeat})
    return out


def _entry(plan: Plan, k: int, plays: list[Play], result: Result, alone: Mapping[str, float]) -> dict[str, Any]:
    """All that is told of sequences of `k` tasks, or of up to `k` attempts."""
    cumulative = result["protocol"] == "repeat"
    rows = []
    for position in range(k):
        here = [play for play in plays if play.position == position]
        rows.append(
            {
                "position": position + 1,
                **_rates(plan, here),
                "gain": _gain(plan, here, alone) if position and not cumulative else None,
                "optimum": _at(result["optimum"], position),
                "chars": _at(result["document"]["chars"], position),
                "tokens": _tokens(result, here, position + 1, cumulative) if cumulative else None,
            }
        )
    ends = [play for play in plays if play.position == k - 1] if cumulative else plays
    optimum = [row["optimum"] for row in rows]
    return {
        "k": k,
        **_rates(plan, ends),
        "gain": None if cumulative else _gain(plan, [play for play in plays if play.position], alone),
        "optimum": None if None in optimum else fmean(optimum),
        "tokens": _tokens(result, ends, k, cumulative),
        "positions": rows,
        **{name: result[name] if k == len(result["positions"]) else None for name in TOLD},
    }


def _rates(plan: Plan, plays: list[Play]) -> dict[str, Any]:
    """Success with its interval over blocks, and the mean score."""
    rate = asdict(interval(_sample(plan, plays, lambda play: play.won)))
    return {**rate, "score": fmean(play.score for play in plays) if plays else math.nan}


def _gain(plan: Plan, plays: list[Play], alone: Mapping[str, float]) -> dict[str, Any] | None:
    """Success of these plays minus that of the same tasks at the first position, paired by task within a block."""
    known = [play for play in plays if play.task in alone]
    if not known:
        return None
    here = _sample(plan, known, lambda play: play.won)
    first = _sample(plan, known, lambda play: alone[play.task])
    return {**asdict(difference(here, first, paired=True)), "n": len(known)}


def _alone(plays: Iterable[Play]) -> dict[str, float]:
    """The success of each task at the first position, over sequences of all lengths: nothing was carried there."""
    won: dict[str, list[float]] = {}
    for play in plays:
        if play.position == 0:
            won.setdefault(play.task, []).append(play.won)
    return {task: fmean(outcomes) for task, outcomes in won.items()}


def _tokens(result: Result, plays: list[Play], k: int, cumulative: bool) -> dict[str, float | None]:
    """Tokens up to position `k`: sampled, newly read, and both together a task (a play, under `cross`) and a solved one."""
    sampled, read = (sum(row[name] for row in result["spent"][:k]) for name in ("sampled", "prompt"))
    if not sampled and (not cumulative or k == len(result["spent"])):  # a server that tells no token ids counts them
        counts = result["engine"]
        sampled = counts.get("engine/reply_tokens", 0)
        read = counts.get("engine/prompt_tokens", 0) - counts.get("engine/cached_tokens", 0)
    both, solved = sampled + read, sum(play.won for play in plays)
    return {
        "sampled": sampled or None,
        "read": read or None,
        "a_task": both / len(plays) if both and plays else None,
        "a_solved": both / solved if both and solved else None,
    }


def _plays(sequences: Sequence[TaskSequence], result: Result, blocks: int) -> Iterator[Play]:
    """The scored plays; every block has as many sequences, and results keep the sequences' order."""
    each = len(sequences) // blocks
    for number, (sequence, outcome) in enumerate(zip(sequences, result["outcomes"], strict=True)):
        names = [identity(task) for task in sequence.tasks]
        for won, score in zip(outcome["won"], outcome["score"], strict=True):
            for position, solved in enumerate(won):
                if solved is not None:
                    name = names[position % len(names)]
                    yield Play(number // each, name, position, float(solved), float(score[position]))


def _one_each(plan: Plan) -> list[TaskSequence]:
    """What `repeat` plays: each task by itself."""
    return [
        TaskSequence(f"{block.id}-{i}", block.family, (task,), (False,))
        for block in plan.blocks
        for i, task in enumerate(block.tasks, start=1)
    ]


def _sample(plan: Plan, plays: Iterable[Play], value: Callable[[Play], float]) -> Sample:
    total, count = np.zeros((2, 1, len(plan.blocks)))
    for play in plays:
        total[0, play.block] += value(play)
        count[0, play.block] += 1
    return Sample(total, count)


def _at(values: Sequence[float | None] | None, position: int) -> float | None:
    return values[position] if values and position < len(values) else None
