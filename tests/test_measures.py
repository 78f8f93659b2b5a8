"""What played trials say: by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillrise.measures import (
    FAMILIES,
    by_family,
    change,
    changes,
    outcome,
    over_positions,
    passes,
    rates,
    sample,
    wins,
)
from skillrise.statistics import interval, wilson
from skillrise.types import Attempt, Completion, Prompt, Task, TaskSequence, Trial, Turn

CURATE = Turn("curate", 0, 0, Prompt("curate", (), "", 9), Completion(""), "", "", True)


def trial(
    *won: bool,
    k: int | None = None,
    padded: Sequence[int] = (),
    error: str | None = None,
    families: Sequence[str] = (),
    documents: Sequence[str] = (),
) -> Trial:
    k = k or len(won)
    tasks = tuple(Task("e", {"n": i}, families[i] if families else "f") for i in range(k))
    texts = documents or ("",) * k
    attempts = tuple(Attempt(t, d, (), w, w / 2, "done") for t, d, w in zip(tasks, texts, won, strict=False))
    sequence = TaskSequence("s", "f", tasks, tuple(i in padded for i in range(k)))
    return Trial(sequence, attempts, (CURATE,) * (len(documents) - 1), error)


def test_cross_counts_what_was_played_and_is_not_padded() -> None:
    trials = [
        trial(True, False, True),
        trial(True, True, False, padded=[0]),
        trial(False, True, True, error="died"),  # counts nowhere
        trial(False, True),  # a shorter sequence
    ]
    assert wins(trials, "cross") == [[1, 0], [0, 1, 1], [1, 0]]
    assert wins([], "cross") == []
    assert wins([trial(True, error="x", k=2)], "cross") == [[], []]


def test_repeat_keeps_solved_tasks_solved() -> None:
    trials = [trial(False, True, k=4), trial(True, k=4), trial(False, False, False, False), trial(True, k=4, error="x")]
    assert wins(trials, "repeat") == [[0, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]]


def test_an_outcome_has_a_hole_wherever_nothing_counts() -> None:
    tries = [trial(True, False, padded=[1]), trial(True, True, error="died")]
    assert outcome(tries, "cross") == {
        "id": "s",
        "families": ["f", "f"],
        "won": [[1, None], [None, None]],
        "score": [[0.5, None], [None, None]],
    }
    assert outcome([trial(False, True, k=3)], "repeat")["won"] == [[0, 1, 1]]
    assert outcome([trial(False, True, k=3)], "cross")["won"] == [[0, 1, None]]


def test_a_sequence_is_one_cluster_of_a_sample() -> None:
    two = [trial(True, False, families="ab"), trial(True, True, families="ab")]
    items = [outcome(two, "cross"), outcome([trial(False, k=2, families="aa")], "cross")]
    assert sample(items).total.tolist() == [[3, 0]]
    assert sample(items).count.tolist() == [[4, 1]]
    assert sample(items, position=1).total.tolist() == [[1, 0]]
    assert sample(items, position=1).count.tolist() == [[2, 0]]
    assert sample(items, family="a").count.tolist() == [[2, 1]]
    assert sample(items, what="score").total.tolist() == [[1.5, 0]]
    assert sample(items, position=9).count.sum() == 0


def test_rates_have_wilsons_intervals_only_where_slots_are_independent() -> None:
    once = [outcome([trial(won, True)], "cross") for won in (True, False, True, False)]
    found = rates(once, once=True)
    assert (found["low"][0], found["high"][0]) == (wilson(2, 4).low, wilson(2, 4).high)
    assert found["success"] == [0.5, 1.0]
    assert found["score"] == [0.25, 0.5]
    assert found["pooled"] == {"success": 0.75, "low": 0.5, "high": 1.0, "n": 8}
    several = [outcome([trial(won, True)] * 3, "cross") for won in (True, False, True, False)]
    again = rates(several, once=False)
    assert again["n"] == [12, 12]
    assert again["low"][0] == interval(sample(several, position=0)).low < wilson(6, 12).low
    assert again["pooled"]["high"] == found["pooled"]["high"], "playing a sequence again makes no new sequence"


def test_pass_at_k_is_over_slots_in_which_all_trials_count() -> None:
    solved = outcome([trial(True, False), trial(True, True), trial(False, False)], "cross")
    torn = outcome([trial(True, True), trial(True, True), trial(True, True, error="died")], "cross")
    found = passes([solved, torn])
    assert found == {
        "pass@1": pytest.approx((2 / 3 + 1 / 3) / 2),
        "pass@2": pytest.approx((1 + 2 / 3) / 2),
        "pass@3": pytest.approx(1.0),
        "pass^2": pytest.approx((1 / 3 + 0) / 2),
        "pass^3": pytest.approx(0.0),
    }
    assert passes([torn])["pass@1"] is None
    assert passes([outcome([trial(True, False)], "cross")]) == {"pass@1": 0.5}


def test_families_are_listed_by_their_slots() -> None:
    items = [outcome([trial(True, False, False, families="aab")], "cross"), outcome([trial(True)], "cross")]
    found = by_family(items)
    assert list(found) == ["a", "b", "f"]
    assert (found["a"]["success"], found["a"]["n"], found["a"]["score"]) == (0.5, 2, 0.25)
    many = [outcome([trial(True, families=[f"family {i}"])], "cross") for i in range(FAMILIES + 9)]
    assert len(by_family(many)) == FAMILIES


def test_changes_are_those_that_a_turn_made_to_what_is_scored() -> None:
    texts = ("", "try red", "try red", "try blue")
    wrote = trial(True, True, True, True, documents=texts)
    assert changes([wrote]) == [(1, 1.0), (2, 0.0), (3, 0.5)]
    assert changes([replace(wrote, error="died"), trial(True, True)]) == []
    hidden = replace(wrote, sequence=replace(wrote.sequence, padded=(False, True, False, False)))
    assert changes([hidden]) == [(2, 0.0), (3, 0.5)]


def test_a_rate_over_positions_weighs_them_by_their_slots() -> None:
    assert over_positions([0.25, 0.5, None], [3, 1, 0]) == 1.25 / 4
    assert over_positions([None], [0]) is None
    assert over_positions([0.5, 0.5], [0, 0]) is None


WORDS = st.lists(st.sampled_from(["key", "red", "the"]), max_size=12).map(" ".join)


@given(WORDS, WORDS)
@settings(deadline=None)
def test_a_change_is_a_share(before: str, after: str) -> None:
    assert 0.0 <= change(before, after) <= 1.0
    assert change(before, before) == 0.0
    assert (change(before, after) == 0.0) == (before.split() == after.split())


def test_long_documents_are_compared_in_part() -> None:
    noise: Any = "x " * 10**6
    assert change(noise, noise + "y") == 0.0
    assert math.isclose(change("a b c d", "a b c e"), 0.25)
