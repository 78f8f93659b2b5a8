"""Credit against an oracle that is written differently: loops over positions, no shared code."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillrise.config import CreditConfig
from skillrise.credit import SCHEMES, scheme
from skillrise.types import Attempt, Completion, Credit, Group, Prompt, Role, Task, TaskSequence, Trial, Turn

TASK = Task("env", {}, "family")


def turn(role: Role, position: int, index: int = 0, valid: bool = True, seen: str = "") -> Turn:
    return Turn(role, position, index, Prompt(role, (), "", 1), Completion(""), seen, None, valid)


def trial(
    wins: list[bool],
    turns: list[int],
    padded: list[bool] | None = None,
    error: str | None = None,
    carry: bool = True,
    valid: bool = True,
) -> Trial:
    """A trial with so many solve turns at each position, curated after all but the last position."""
    k = len(padded or wins)
    sequence = TaskSequence("s", "family", (TASK,) * k, tuple(padded or [False] * k))
    attempts = [
        Attempt(TASK, "", tuple(turn("solve", p, i, valid) for i in range(n)), won, float(won), "done")
        for p, (won, n) in enumerate(zip(wins, turns, strict=True))
    ]
    carries = [turn("curate", p, 0, valid) for p in range(len(wins) - 1)] if carry else []
    return Trial(sequence, tuple(attempts), tuple(carries), error)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    k = draw(st.integers(1, 4))
    padded = draw(st.lists(st.booleans(), min_size=k, max_size=k))
    trials = [
        trial(
            draw(st.lists(st.booleans(), min_size=k, max_size=k)),
            draw(st.lists(st.integers(1, 3), min_size=k, max_size=k)),
            padded,
            draw(st.sampled_from([None, None, None, "died"])),
            valid=draw(st.sampled_from([True, True, True, False])),
        )
        for _ in range(draw(st.integers(1, 5)))
    ]
    return Group(trials[0].sequence, tuple(trials))


@given(groups(), st.floats(0, 1), st.floats(0, 2), st.booleans())
def test_skillrise_equals_brute_force(group: Group, gamma: float, weight: float, divide: bool) -> None:
    config = CreditConfig(
        gamma=gamma, curate_weight=weight, normalise="mean_std" if divide else "mean", reward=10, invalid_penalty=0.5
    )
    got = scheme(config).assign(group)
    padded = group.sequence.padded
    k = len(padded)

    def ret(t: Trial, role: str, i: int) -> float | None:
        if role == "solve":
            return None if padded[i] else (10.0 if t.attempts[i].won else 0.0)
        total, any_later = 0.0, False
        for j in range(i + 1, k):
            if not padded[j]:
                any_later = True
                total += gamma ** (j - i) * (10.0 if t.attempts[j].won else 0.0)
        return total if any_later else None

    live = [t for t in group.trials if t.error is None]
    for n, t in enumerate(group.trials):
        for credit, tn in zip(got[n], t.turns, strict=True):
            g = ret(t, tn.role, tn.position) if tn.role == "solve" or weight > 0 else None
            if t.error is not None or g is None:
                assert credit.return_ is None
                assert credit.advantage == 0.0
                continue
            values = [v for other in live if (v := ret(other, tn.role, tn.position)) is not None]
            mean = sum(values) / len(values)
            expected = 0.0 if len(values) < 2 else g - mean
            if divide and len(values) >= 2:
                expected /= math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) + 1e-6
            if tn.role == "curate":
                expected *= weight
            if not tn.valid and len(values) >= 2:
                expected -= 0.5
            assert credit.return_ == pytest.approx(g)
            assert credit.advantage == pytest.approx(expected, abs=1e-6)


@given(groups(), st.floats(0.1, 2), st.booleans(), st.floats(0, 1))
def test_coupled_credits_what_is_written_with_the_task_before_it(
    group: Group, weight: float, divide: bool, penalty: float
) -> None:
    config = CreditConfig(
        scheme="coupled", curate_weight=weight, normalise="mean_std" if divide else "mean", invalid_penalty=penalty
    )
    got = scheme(config).assign(group)
    for position, is_padded in enumerate(group.sequence.padded):
        rewards = [10.0 if t.attempts[position].won else 0.0 for t in group.trials if t.error is None]
        mean = sum(rewards) / len(rewards) if rewards else 0.0
        spread = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards)) + 1e-6 if rewards and divide else 1.0
        for n, t in enumerate(group.trials):
            for credit, tn in zip(got[n], t.turns, strict=True):
                if tn.position != position:
                    continue
                if t.error is not None or is_padded:
                    assert credit == Credit(None)
                    continue
                won = 10.0 if t.attempts[position].won else 0.0
                expected = (won - mean) / spread * (weight if tn.role == "curate" else 1.0)
                if len(rewards) < 2:
                    expected = 0.0
                elif not tn.valid:
                    expected -= penalty
                assert credit.return_ == won
                assert credit.advantage == pytest.approx(expected, abs=1e-6)


@given(groups(), st.floats(0, 1))
def test_coupled_and_skillrise_differ_in_carry_turns_only(group: Group, gamma: float) -> None:
    ours = scheme(CreditConfig(gamma=gamma)).assign(group)
    coupled = scheme(CreditConfig(gamma=gamma, scheme="coupled")).assign(group)
    for t, ours_of, coupled_of in zip(group.trials, ours, coupled, strict=True):
        for tn, a, b in zip(t.turns, ours_of, coupled_of, strict=True):
            assert tn.role != "solve" or a == b


@given(groups(), st.sampled_from(sorted(SCHEMES)), st.sampled_from(["curate", "reflect"]))
def test_a_curate_weight_of_0_leaves_carry_turns_untrained_and_solving_as_it_was(
    group: Group, name: str, role: Role
) -> None:
    trials = tuple(replace(t, carries=tuple(replace(c, role=role) for c in t.carries)) for t in group.trials)
    group = replace(group, trials=trials)
    trained = scheme(CreditConfig(scheme=name)).assign(group)
    untrained = scheme(CreditConfig(scheme=name, curate_weight=0.0)).assign(group)
    for t, before, after in zip(trials, trained, untrained, strict=True):
        for tn, a, b in zip(t.turns, before, after, strict=True):
            assert b == (a if tn.role == "solve" else Credit(None))


@given(groups(), st.sampled_from(sorted(SCHEMES)))
def test_every_scheme_credits_every_turn_and_centres(group: Group, name: str) -> None:
    got = scheme(CreditConfig(scheme=name, invalid_penalty=0.0)).assign(group)
    assert [len(cs) for cs in got] == [len(t.turns) for t in group.trials]
    sums: dict[tuple[int, str], dict[int, float]] = {}
    for n, t in enumerate(group.trials):
        for credit, tn in zip(got[n], t.turns, strict=True):
            if t.error is not None:
                assert credit.return_ is None
            elif credit.return_ is not None and name != "gigpo":
                sums.setdefault((tn.position, tn.role), {})[n] = credit.advantage
    for by_trial in sums.values():
        assert sum(by_trial.values()) == pytest.approx(0.0, abs=1e-6)
        if len(by_trial) == 1:
            assert list(by_trial.values()) == [0.0]


def test_published_example() -> None:
    """K = 3, gamma 0.6: the first curate turn sees 0.6 r_2 + 0.36 r_3, the solve turns only their own outcome."""
    a, b = trial([False, True, True], [1, 2, 1]), trial([False, False, True], [1, 1, 1])
    got = scheme(CreditConfig(reward=1.0)).assign(Group(a.sequence, (a, b)))
    returns = [c.return_ for c in got[0]]
    assert returns == pytest.approx([0.0, 0.6 + 0.36, 1.0, 1.0, 0.6, 1.0])
    assert [c.advantage for c in got[0]] == pytest.approx([0.0, 0.3, 0.5, 0.5, 0.0, 0.0])


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_a_singleton_learns_nothing_even_when_invalid(name: str) -> None:
    t = trial([True, False], [2, 2], valid=False)
    assert all(c.advantage == 0.0 for c in scheme(CreditConfig(scheme=name)).assign(Group(t.sequence, (t,)))[0])


def test_a_failed_trial_leaves_the_group() -> None:
    good, bad = trial([True], [1]), trial([False], [1])
    dead = trial([False], [1], error="died")
    with_dead = scheme(CreditConfig()).assign(Group(good.sequence, (good, bad, dead)))
    without = scheme(CreditConfig()).assign(Group(good.sequence, (good, bad)))
    assert with_dead[:2] == without
    assert with_dead[2][0].return_ is None


def test_an_invalid_turn_pays_and_its_neighbours_do_not() -> None:
    a, b = trial([True], [2]), trial([False], [1])
    broken = Attempt(TASK, "", (turn("solve", 0, 0, valid=False), turn("solve", 0, 1)), True, 1.0, "done")
    a = Trial(a.sequence, (broken,))
    first, second = scheme(CreditConfig(reward=10, invalid_penalty=0.5)).assign(Group(a.sequence, (a, b)))[0]
    assert (first.advantage, second.advantage) == (4.5, 5.0)


def test_padded_slots_train_like_the_released_code_when_asked() -> None:
    padded = [False, True]
    a, b = trial([False, True], [1, 1], padded), trial([False, False], [1, 1], padded)
    masked = scheme(CreditConfig()).assign(Group(a.sequence, (a, b)))
    trained = scheme(CreditConfig(padded="train")).assign(Group(a.sequence, (a, b)))
    assert [c.return_ for c in masked[0]] == [0.0, None, None]
    assert [c.return_ for c in trained[0]] == pytest.approx([0.0, 6.0, 10.0])


def test_grpo_leaves_carry_turns_alone_and_rloo_leaves_one_out() -> None:
    a, b, c = (trial([w, True], [1, 1]) for w in (True, False, False))
    group = Group(a.sequence, (a, b, c))
    grpo = scheme(CreditConfig(scheme="grpo", reward=3)).assign(group)
    assert [x.return_ for x in grpo[0]] == [3.0, None, 3.0]
    rloo = scheme(CreditConfig(scheme="rloo", reward=3)).assign(group)
    assert [x[0].advantage for x in rloo] == pytest.approx([3.0, -1.5, -1.5])


def test_gigpo_compares_turns_with_the_same_anchor() -> None:
    def one(won: bool, seen: list[str]) -> Trial:
        turns = tuple(turn("solve", 0, i, seen=s) for i, s in enumerate(seen))
        return Trial(TaskSequence("s", "f", (TASK,), (False,)), (Attempt(TASK, "", turns, won, float(won), "done"),))

    a, b = one(True, ["start", "hall"]), one(False, ["start", "cave"])
    got = scheme(CreditConfig(scheme="gigpo", reward=1, step_gamma=0.5)).assign(Group(a.sequence, (a, b)))
    # start: step returns 0.5 and 0, mean 0.25; hall and cave are alone
    assert [c.advantage for c in got[0]] == pytest.approx([0.5 + 0.25, 0.5])
    assert [c.advantage for c in got[1]] == pytest.approx([-0.5 - 0.25, -0.5])


def test_lamer_credits_an_attempt_with_those_behind_it() -> None:
    a, b = trial([False, True], [1, 1]), trial([False, False, False], [1, 1, 1])
    k3 = b.sequence
    a = Trial(k3, a.attempts, a.carries)
    got = scheme(CreditConfig(scheme="lamer", gamma=0.5, reward=1)).assign(Group(k3, (a, b)))
    assert [c.return_ for c in got[0]] == pytest.approx([0.5, 1.0, 1.0])
    assert [c.return_ for c in got[1]] == pytest.approx([0.0] * 5)
