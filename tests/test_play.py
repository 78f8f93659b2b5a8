"""Play, driven by hand with lists: no engine, no environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillrise.config import PlayConfig
from skillrise.errors import ContextOverflow, EnvironmentFailure, TrialError
from skillrise.play import Act, Ask, Reply, Request, Reset, play
from skillrise.prompts import parse
from skillrise.types import Completion, FinishReason, Observation, Prompt, Task, TaskSequence, Trial

TASKS = tuple(Task("env", {"n": n}, "family") for n in range(3))
SEQUENCE = TaskSequence("s", "family", TASKS, (False,) * 3)


def see(text: str, won: bool = False, done: bool = False) -> Observation:
    return Observation(text, "do it", ("a", "b"), won, float(won), done or won, "the rules")


def drive(
    how: PlayConfig,
    policy: Callable[[Prompt], str | Completion | TrialError],
    world: Callable[[Request], Observation | TrialError] = lambda r: (
        see("start") if isinstance(r, Reset) else see("end", True)
    ),
    sequence: TaskSequence = SEQUENCE,
) -> tuple[Trial, list[Request]]:
    game, requests = play(sequence, how), []
    reply: Reply | TrialError | None = None
    try:
        while True:
            request = game.throw(reply) if isinstance(reply, TrialError) else game.send(reply)  # type: ignore[arg-type]
            requests.append(request)
            if isinstance(request, Ask):
                said = policy(request.prompt)
                reply = Completion(said) if isinstance(said, str) else said
            else:
                reply = world(request)
    except StopIteration as stop:
        return stop.value, requests


def good(prompt: Prompt) -> str:
    return {
        "solve": "so: <action>open</action>",
        "curate": "<skill>open it</skill>",
        "reflect": "<reflection>hm</reflection>",
    }[prompt.role]


def test_roles_alternate_and_the_last_task_is_not_curated() -> None:
    trial, requests = drive(PlayConfig(), good)
    assert [type(r).__name__ for r in requests] == ["Reset", "Ask", "Act", "Ask"] * 2 + ["Reset", "Ask", "Act"]
    assert [t.role for t in trial.turns] == ["solve", "curate", "solve", "curate", "solve"]
    assert [a.document_in for a in trial.attempts] == ["", "open it", "open it"]
    assert [a.won for a in trial.attempts] == [True] * 3


def test_the_document_reaches_the_next_prompt_and_only_the_document() -> None:
    _, requests = drive(PlayConfig(), good)
    opening = [r.prompt for r in requests if isinstance(r, Ask) and r.prompt.role == "solve"]
    assert "open it" not in opening[0].messages[0].content
    assert "open it" in opening[1].messages[0].content
    assert len(opening[1].messages) == 1
    assert opening[1].follows is None


@pytest.mark.parametrize("context", ["transcript", "window"])
def test_contexts(context: str) -> None:
    steps = iter(["one", "two", "three"])
    world = lambda r: see("start") if isinstance(r, Reset) else see(t := next(steps), done=t == "three")
    sequence = TaskSequence("s", "family", TASKS[:1], (False,))
    trial, _ = drive(PlayConfig(context=context, history=1, carry_last=True), good, world, sequence)
    prompts = [t.prompt for t in trial.turns]
    if context == "transcript":
        assert [len(p.messages) for p in prompts] == [1, 3, 5, 7]
        for before, after in zip(trial.turns, prompts[1:], strict=False):
            assert after.follows is before.completion
            assert after.messages[: len(before.prompt.messages)] == before.prompt.messages
    else:
        assert [len(p.messages) for p in prompts] == [1, 1, 1, 1]
        assert all(p.follows is None for p in prompts)
        third = prompts[2].messages[0].content
        assert "one" in third
        assert "start" not in third  # only the last step is shown
        assert "two" in third
        assert "start" in prompts[3].messages[0].content  # curation sees more


def test_an_invalid_action_is_not_sent_and_costs_a_turn() -> None:
    replies = iter(["open", "<action></action>", "<action>open</action>"])
    trial, requests = drive(
        PlayConfig(carry="none"), lambda p: next(replies), sequence=TaskSequence("s", "f", TASKS[:1], (False,))
    )
    assert [t.valid for t in trial.turns] == [False, False, True]
    assert sum(isinstance(r, Act) for r in requests) == 1
    assert "no valid action" in trial.turns[1].prompt.messages[-1].content


def test_turn_limit_ends_an_attempt() -> None:
    trial, _ = drive(PlayConfig(turns=2, carry="none"), good, lambda r: see("on"))
    assert [len(a.turns) for a in trial.attempts] == [2, 2, 2]
    assert {a.stop for a in trial.attempts} == {"turns"}


def test_a_cut_reply_is_never_valid() -> None:
    cut = lambda p: Completion(good(p), finish_reason="length")
    trial, requests = drive(PlayConfig(turns=1), cut)
    assert not any(t.valid for t in trial.turns)
    assert not any(isinstance(r, Act) for r in requests)
    assert [a.document_in for a in trial.attempts] == ["", "", ""]


def test_an_unparsed_curate_reply_keeps_the_document() -> None:
    replies = iter(["<skill>first</skill>", "no tags"])
    trial, _ = drive(PlayConfig(), lambda p: good(p) if p.role == "solve" else next(replies))
    assert [a.document_in for a in trial.attempts] == ["", "first", "first"]
    assert [t.valid for t in trial.carries] == [True, False]


def test_documents_are_capped() -> None:
    trial, _ = drive(
        PlayConfig(document_chars=5), lambda p: good(p) if p.role == "solve" else "<skill>123456789</skill>"
    )
    assert trial.attempts[1].document_in == "12345"


def test_reflections_are_listed_and_none_carries_nothing() -> None:
    trial, requests = drive(PlayConfig(carry="reflect"), good)
    last = [r.prompt for r in requests if isinstance(r, Ask) and r.prompt.role == "solve"][-1].messages[0].content
    assert "1. success: hm" in last
    assert "2. success: hm" in last
    assert [t.role for t in trial.carries] == ["reflect", "reflect"]
    trial, _ = drive(PlayConfig(carry="none"), good)
    assert trial.carries == ()


def test_reflections_that_are_given_come_first() -> None:
    game = play(SEQUENCE, PlayConfig(carry="reflect"), reflections=((1, False, "before"),))
    next(game)
    asked = game.send(see("start"))
    assert isinstance(asked, Ask)
    assert "1. failure: before" in asked.prompt.messages[0].content
    game.send(Completion("<action>open</action>"))
    game.send(see("end", True))
    game.send(Completion("<reflection>after</reflection>"))
    asked = game.send(see("start"))
    assert isinstance(asked, Ask)
    assert "1. failure: before\n2. success: after" in asked.prompt.messages[0].content


def test_repeat_stops_at_the_first_success() -> None:
    outcomes = iter([False, True])
    world = lambda r: see("start") if isinstance(r, Reset) else see("end", next(outcomes), done=True)
    trial, _ = drive(PlayConfig(protocol="repeat"), good, world)
    assert [a.won for a in trial.attempts] == [False, True]
    assert len(trial.carries) == 1


def test_overflow_drops_oldest_history_then_fails_the_trial() -> None:
    n = iter(range(100))
    world = lambda r: see("start") if isinstance(r, Reset) else see(f"step {next(n)}.")

    def short(prompt: Prompt) -> str | TrialError:
        size = sum(len(m.content) for m in prompt.messages)
        return ContextOverflow("too long") if size > limit else good(prompt)

    _, requests = drive(PlayConfig(turns=1, carry="none"), good, world, TaskSequence("s", "f", TASKS[:1], (False,)))
    limit = len(requests[1].prompt.messages[0].content) + 70 if isinstance(requests[1], Ask) else 0
    n = iter(range(100))
    trial, _ = drive(PlayConfig(turns=8, carry="none"), short, world, TaskSequence("s", "f", TASKS[:1], (False,)))
    assert trial.error is None
    assert len(trial.turns) == 8
    assert "start" not in trial.turns[-1].prompt.messages[0].content
    assert "step 6." in trial.turns[-1].prompt.messages[0].content
    limit = 10
    trial, _ = drive(PlayConfig(), short)
    assert trial.error == "ContextOverflow: too long"


def test_an_environment_failure_keeps_what_was_played() -> None:
    world = lambda r: (
        EnvironmentFailure("dead")
        if isinstance(r, Reset) and r.position == 1
        else (see("start") if isinstance(r, Reset) else see("end", True))
    )
    trial, _ = drive(PlayConfig(), good, world)
    assert trial.error == "EnvironmentFailure: dead"
    assert len(trial.attempts) == 1


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>go</action>", "go"),
        ("I could use <action>, so <action> go on </action>", "go on"),
        ("<action>a</action>.", "a"),
        ("<action>a</action><action>b</action>", "a"),
        ("<action><action>a</action></action>", "a"),
        ("<ACTION>a</ACTION>", None),
        ("go", None),
        ("<action>go", None),
        ("go</action>", None),
        ("</action><action>go", None),
        ("<action> </action>", None),
        ("<skill>go</skill>", None),
    ],
)
def test_parse(text: str, action: str | None) -> None:
    assert parse("solve", text) == action


def test_an_empty_document_is_a_document() -> None:
    assert parse("curate", "<skill></skill>") == ""


@given(st.text(max_size=300), st.sampled_from(["<action>", "</action>", "a", ""]), st.text(max_size=300))
def test_parse_never_fails_and_never_returns_tags(a: str, tag: str, b: str) -> None:
    found = parse("solve", a + tag + b)
    assert found is None or (found == found.strip() and "<action>" not in found and "</action>" not in found)


REASONS: Sequence[FinishReason] = ("stop", "length", "eos")


@given(
    st.lists(
        st.tuples(st.sampled_from(["<action>a</action>", "<skill>s</skill>", "?", ""]), st.sampled_from(REASONS)),
        min_size=60,
    )
)
def test_any_replies_give_a_whole_trial(replies: list[tuple[str, FinishReason]]) -> None:
    said = iter(replies)
    trial, _ = drive(PlayConfig(turns=5), lambda p: _say(next(said)))
    assert len(trial.attempts) == 3
    assert all(1 <= len(a.turns) <= 5 for a in trial.attempts)


def _say(reply: tuple[str, FinishReason]) -> Completion:
    return Completion(reply[0], finish_reason=reply[1])
