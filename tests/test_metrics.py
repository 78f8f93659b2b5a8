"""What an update's trials say: by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from skillrise.metrics import describe
from skillrise.types import Attempt, Completion, Credit, Group, Message, Prompt, Role, Task, TaskSequence, Trial, Turn

TASKS = tuple(Task("e", {"n": i}, "f") for i in range(2))
SEQUENCE = TaskSequence("s", "f", TASKS, (False, False))


def turn(role: Role, position: int, valid: bool = True, follows: Turn | None = None, **reply: Any) -> Turn:
    completion = Completion("x", **{"prompt_ids": (1,) * 10, "token_ids": (2,) * 3, **reply})
    prompt = Prompt(role, (Message("user", "?"),), "</x>", 9, follows=follows.completion if follows else None)
    return Turn(role, position, 0, prompt, completion, "", "a" if valid else None, valid)


def attempt(position: int, won: bool, *turns: Turn, document: str = "") -> Attempt:
    return Attempt(TASKS[position], document, turns, won, float(won), "done")


def played(first: bool, second: bool, valid: bool = True) -> Trial:
    solve = turn("solve", 0, valid)
    follow = turn("solve", 0, follows=solve, prompt_ids=(1,) * 17)
    curate = turn("curate", 0, follows=follow, prompt_ids=(1,) * 25, finish_reason="length")
    return Trial(
        SEQUENCE, (attempt(0, first, solve, follow), attempt(1, second, turn("solve", 1), document="abcd")), (curate,)
    )


def credits(trial: Trial, value: float | None = 1.0, advantage: float = 0.5) -> list[Credit]:
    return [Credit(value, advantage) for _ in trial.turns]


def test_by_hand() -> None:
    one, two = played(True, False), played(False, False, valid=False)
    found = describe([Group(SEQUENCE, (one, two))], [[credits(one, 2.0, 0.0), credits(two, 0.0, -0.5)]], "cross")
    assert found["success/p1"] == 0.5
    assert found["success/p2"] == 0.0
    assert found["success/all"] == 0.25
    assert found["invalid/solve"] == 1 / 6
    assert found["invalid/curate"] == 0.0
    assert "invalid/reflect" not in found
    assert found["return/solve"] == found["return/curate"] == 1.0
    assert found["cut"] == 0.25
    assert found["turns"] == 1.5
    assert found["failed_trials"] == 0.0
    assert found["document/chars"] == 4.0
    assert found["credit/zero_share"] == 0.5
    assert found["credit/abs_advantage"] == 0.25
    assert found["score"] == 0.25
    assert found["document/change"] == 1.0
    for role in ("solve", "curate"):
        assert found[f"credit/zero_share_{role}"] == 0.5
        assert found[f"advantage/{role}_mean"] == found[f"advantage/{role}_min"] / 2 == -0.25
        assert (found[f"advantage/{role}_std"], found[f"advantage/{role}_max"]) == (0.25, 0.0)
    assert found["credit/flat_groups"] == 0.0
    assert found["tokens/sampled"] == 24.0
    assert found["tokens/prompt"] == 2 * (10 + (17 - 13) + (25 - 20) + 10)  # nothing twice


def test_a_failed_trial_is_counted_as_failed_and_nowhere_else() -> None:
    good, bad = played(True, True), replace(played(False, False, valid=False), error="died")
    alone = describe([Group(SEQUENCE, (good,))], [[credits(good)]], "cross")
    both = describe([Group(SEQUENCE, (good, bad))], [[credits(good), credits(bad, None)]], "cross")
    assert both == {**alone, "failed_trials": 1.0, "plays": 2 * alone["plays"]}


def test_padded_slots_are_not_counted() -> None:
    one, two = played(False, True, valid=False), played(False, True)
    padded = replace(SEQUENCE, padded=(True, False))
    group = Group(padded, (replace(one, sequence=padded), replace(two, sequence=padded)))
    found = describe([group], [[credits(one), credits(two)]], "cross")
    assert "success/p1" not in found
    assert found["success/all"] == 1.0
    assert found["invalid/solve"] == 0.0  # the invalid reply was in the padded slot
    assert found["turns"] == 1.0
    assert found["plays"] == 4.0
    assert found["tokens/prompt"] == 2 * (5 + 10)  # what the curate turn and the second task read


def test_turns_that_are_not_scored_are_in_no_mean() -> None:
    trial = played(True, True)
    found = describe([Group(SEQUENCE, (trial,))], [[[Credit(4.0, 1.0), *credits(trial, None, 0.0)[1:]]]], "cross")
    assert found["return/solve"] == 4.0
    assert math.isnan(found["return/curate"])
    assert found["credit/zero_share"] == 0.0
    assert not [key for key in found if key.startswith("advantage/curate")]


def test_a_group_whose_advantages_are_all_zero_is_flat() -> None:
    one, two = played(True, False), played(False, True)
    groups = [Group(SEQUENCE, (one, two)), Group(SEQUENCE, (two, replace(one, error="died"))), Group(SEQUENCE, ())]
    given = [[credits(one, 1.0, 0.0), credits(two, 1.0, 0.5)], [credits(two, 1.0, 0.0), credits(one, 1.0, 0.5)], []]
    assert describe(groups, given, "cross")["credit/flat_groups"] == 0.5  # a group of which nothing came is none


def test_repeat_counts_a_solved_task_as_solved() -> None:
    trial = Trial(SEQUENCE, (attempt(0, True, turn("solve", 0)),))
    found = describe([Group(SEQUENCE, (trial,))], [[credits(trial)]], "repeat")
    assert (found["success/p1"], found["success/p2"], found["plays"]) == (1.0, 1.0, 1.0)


def test_nothing_but_failures() -> None:
    bad = Trial(SEQUENCE, (), error="died")
    found = describe([Group(SEQUENCE, (bad, bad))], [[[], []]], "cross")
    assert math.isnan(found["success/all"])
    assert found["failed_trials"] == 2.0


def test_credits_must_match_the_turns() -> None:
    trial = played(True, True)
    with pytest.raises(ValueError, match="zip"):
        describe([Group(SEQUENCE, (trial,))], [[credits(trial)[1:]]], "cross")
