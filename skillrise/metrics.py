"""What an update's trials say, as flat numbers. Nothing from a padded slot or a failed trial is counted, but for `plays`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev

from skillrise.measures import (
    ROLES,
    by_position,
    changes,
    counted_attempts,
    counted_turns,
    cut,
    invalid,
    mean,
    tokens,
    wins,
)
from skillrise.types import Credit, Group, Role, Turn

Credits = Sequence[Sequence[Sequence[Credit]]]


def describe(groups: Sequence[Group], credits: Credits, protocol: str) -> dict[str, float]:
    """Success by position, returns and advantages by role, invalid and cut replies, documents, tokens.

    Only `plays`, the attempts that were made, counts padded slots and failed trials too.

    `document/change` is the share of the carried text that a curate or reflect turn changed (see `measures.change`);
    `credit/flat_groups` the share of groups in which every advantage is 0, so that nothing is learnt from them.

    Args:
        groups: What was played.
        credits: The credit of each turn: one list a group, in it one list a trial.
        protocol: `cross` or `repeat`; see `skillrise.evaluate`.
    """
    trials = [trial for group in groups for trial in group.trials]
    positions = wins(trials, protocol)
    out = {f"success/p{p}": fmean(won) for p, won in enumerate(positions, 1) if won}
    out["success/all"] = _mean(won for column in positions for won in column)
    scores = by_position(trials, protocol, lambda attempt: attempt.score)
    out["score"] = _mean(score for column in scores for score in column)
    turns, attempts = counted_turns(trials), counted_attempts(trials)
    out |= {f"invalid/{role}": share for role, share in invalid(turns).items()}
    out["cut"] = _mean([cut(turns)])
    out["turns"] = _mean(len(attempt.turns) for _, attempt in attempts)
    out["plays"] = float(sum(len(trial.attempts) for trial in trials))
    out["failed_trials"] = float(sum(trial.error is not None for trial in trials))
    out["document/chars"] = _mean(len(attempt.document_in) for position, attempt in attempts if position)
    out["document/change"] = _mean(share for _, share in changes(trials))
    out |= _credit(groups, credits, [role for role in ROLES if f"invalid/{role}" in out])
    return out | {f"tokens/{kind}": float(n) for kind, n in tokens(turns).items()}


def _credit(groups: Sequence[Group], credits: Credits, roles: Sequence[Role]) -> dict[str, float]:
    """Returns and advantages of the turns that were scored, and how much of them moves nothing."""
    out = {}
    given = [list(_given(group, of_group)) for group, of_group in zip(groups, credits, strict=True)]
    scored = [(turn.role, credit) for group in given for turn, credit in group if credit.return_ is not None]
    for role in roles:
        mine = [credit for spoke, credit in scored if spoke == role]
        out[f"return/{role}"] = _mean(credit.return_ for credit in mine)
        advantages = [credit.advantage for credit in mine]
        if advantages:
            out[f"advantage/{role}_mean"], out[f"advantage/{role}_std"] = fmean(advantages), pstdev(advantages)
            out[f"advantage/{role}_min"], out[f"advantage/{role}_max"] = min(advantages), max(advantages)
            out[f"credit/zero_share_{role}"] = _mean(a == 0.0 for a in advantages)
    out["credit/zero_share"] = _mean(credit.advantage == 0.0 for _, credit in scored)
    out["credit/abs_advantage"] = _mean(abs(credit.advantage) for _, credit in scored)
    out["credit/flat_groups"] = _mean(all(credit.advantage == 0.0 for _, credit in group) for group in given if group)
    return out


def _given(group: Group, credits: Sequence[Sequence[Credit]]) -> Iterable[tuple[Turn, Credit]]:
    for trial, of_trial in zip(group.trials, credits, strict=True):
        if trial.error is None:
            yield from zip(trial.turns, of_trial, strict=True)


def _mean(values: Iterable[float | None]) -> float:
    """The mean of the values that are there; nan when none is."""
    found = mean(values)
    return math.nan if found is None else found
