"""What an update's trials say, as flat numbers. Nothing from a padded slot or a failed trial is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from skillrise.evaluate import wins
from skillrise.types import Credit, Group, Role, Trial, Turn

Credits = Sequence[Sequence[Sequence[Credit]]]


def describe(groups: Sequence[Group], credits: Credits, protocol: str) -> dict[str, float]:
    """Success by position, returns by role, invalid and cut replies, documents, tokens.

    Args:
        groups: What was played.
        credits: The credit of each turn: one list a group, in it one list a trial.
        protocol: `cross` or `repeat`; see `skillrise.evaluate`.
    """
    trials = [trial for group in groups for trial in group.trials]
    live = [trial for trial in trials if trial.error is None]
    positions = wins(trials, protocol)
    out = {f"success/p{p}": fmean(won) for p, won in enumerate(positions, 1) if won}
    pooled = [won for column in positions for won in column]
    out["success/all"] = fmean(pooled) if pooled else float("nan")
    turns = [t for trial in live for t in trial.turns if t.role != "solve" or not trial.sequence.padded[t.position]]
    roles: tuple[Role, ...] = ("solve", "curate", "reflect")
    for role in roles:
        mine = [turn for turn in turns if turn.role == role]
        if mine:
            out[f"invalid/{role}"] = fmean(not turn.valid for turn in mine)
            out[f"return/{role}"] = _mean(c.return_ for t, c in _pairs(groups, credits) if t.role == role)
    out["cut"] = _mean(turn.completion.finish_reason == "length" for turn in turns)
    attempts = [pair for trial in live for pair in zip(trial.attempts, trial.sequence.padded, strict=False)]
    out["turns"] = _mean(len(attempt.turns) for attempt, padded in attempts if not padded)
    out["failed_trials"] = float(len(trials) - len(live))
    out["document/chars"] = _mean(len(a.document_in) for trial in live for a in trial.attempts[1:])
    advantages = [c.advantage for _, c in _pairs(groups, credits) if c.return_ is not None]
    out["credit/zero_share"] = _mean(a == 0.0 for a in advantages)
    out["credit/abs_advantage"] = _mean(abs(a) for a in advantages)
    out["tokens/sampled"] = float(sum(len(turn.completion.token_ids) for turn in turns))
    out["tokens/prompt"] = float(sum(_new_prompt_tokens(trial) for trial in live))
    return out


def _pairs(groups: Sequence[Group], credits: Credits) -> Iterable[tuple[Turn, Credit]]:
    for group, of_group in zip(groups, credits, strict=True):
        for trial, of_trial in zip(group.trials, of_group, strict=True):
            if trial.error is None:
                yield from zip(trial.turns, of_trial, strict=True)


def _new_prompt_tokens(trial: Trial) -> int:
    """Prompt tokens that were not part of the turn before."""
    total = 0
    for turn in trial.turns:
        before = turn.prompt.follows
        known = len(before.prompt_ids) + len(before.token_ids) if before is not None else 0
        total += len(turn.completion.prompt_ids) - known
    return total


def _mean(values: Iterable[float | None]) -> float:
    """The mean of the values that are there; nan when none is."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else float("nan")
