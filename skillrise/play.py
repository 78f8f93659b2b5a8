"""One trial, as a generator that knows no model, no environment object, no thread and no clock.

    game = play(sequence, PlayConfig())
    request = next(game)                  # Reset(task, position)
    request = game.send(observation)      # Ask(prompt)
    request = game.send(completion)       # Act(action) ...

It yields what it needs and receives it: an `Observation` for `Reset` and `Act`, a `Completion` for `Ask`. It returns
the finished `Trial`. Whoever drives it throws a `TrialError` into it when a request cannot be met; a `ContextOverflow`
makes it ask again with less history, anything else ends the trial with what was played so far.

    S_0 = empty;  for i = 1..K:  attempt_i ~ solve(x_i, S_{i-1});  S_i ~ curate(S_{i-1}, attempt_i)  for i < K
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from skillrise.config import PlayConfig
from skillrise.errors import ContextOverflow, TrialError
from skillrise.prompts import STOP, Reflection, Step, parse, style
from skillrise.types import Attempt, Completion, Message, Observation, Prompt, Role, Task, TaskSequence, Trial, Turn


@dataclass(frozen=True, slots=True)
class Reset:
    """Start a task; answered by an `Observation`."""

    task: Task
    position: int


@dataclass(frozen=True, slots=True)
class Act:
    """Do an action; answered by an `Observation`."""

    action: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the policy; answered by a `Completion`."""

    prompt: Prompt


Request = Reset | Act | Ask
Reply = Observation | Completion


def play(
    sequence: TaskSequence, how: PlayConfig, document: str = "", reflections: tuple[Reflection, ...] = ()
) -> Generator[Request, Reply, Trial]:
    """Play `sequence` once, starting from `document` and `reflections`.

    After an attempt that is followed by another (or after every attempt with `how.carry_last`), the policy writes what
    is carried on: the whole document anew (`skill`), a reflection beside the earlier ones (`reflect`), or nothing
    (`none`). A curate reply that does not parse leaves the document as it was; of a reflection that does not parse only
    the attempt's outcome is listed.

    With `how.protocol == "repeat"` the trial ends at the first success.
    """
    carried = _Carried(document[: how.document_chars], reflections)
    attempts: list[Attempt] = []
    carries: list[Turn] = []
    last = len(sequence.tasks) - 1
    try:
        for position, task in enumerate(sequence.tasks):
            chat = _Chat(how, position, carried)
            attempt = yield from _solve(chat, task)
            attempts.append(attempt)
            if how.protocol == "repeat" and attempt.won:
                break
            if how.carry != "none" and (position < last or how.carry_last):
                turn = yield from _carry(chat, attempt.won)
                carries.append(turn)
                carried = carried.after(turn, attempt.won, how.document_chars)
    except TrialError as err:
        return Trial(sequence, tuple(attempts), tuple(carries), error=f"{type(err).__name__}: {err}"[:2000])
    return Trial(sequence, tuple(attempts), tuple(carries))


@dataclass(frozen=True, slots=True)
class _Carried:
    """What passes from a task to the next."""

    document: str
    reflections: tuple[Reflection, ...] = ()

    def after(self, turn: Turn, won: bool, cap: int) -> _Carried:
        if turn.role == "curate":
            return self if turn.action is None else replace(self, document=turn.action[:cap])
        reflection = (len(self.reflections) + 1, won, (turn.action or "")[:cap])
        return replace(self, reflections=(*self.reflections, reflection))

    @property
    def text(self) -> str:
        listed = (f"{number} ({'success' if won else 'failure'}): {text}" for number, won, text in self.reflections)
        return self.document or "\n".join(listed)


@dataclass(slots=True)
class _Chat:
    """The state of one attempt: what was seen and done, and the chat that may be continued."""

    how: PlayConfig
    position: int
    carried: _Carried
    start: Observation = field(init=False)
    seen: Observation = field(init=False)
    history: list[Step] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def ask(self, role: Role, won: bool = False) -> Generator[Request, Reply, tuple[Prompt, Completion]]:
        """Ask in the running chat where it may go on, else in a fresh one with as much history as fits."""
        if self.how.context == "transcript" and self.turns:
            try:
                return (yield from self._put(self._continued(role, won)))
            except ContextOverflow:
                pass
        keep = min(len(self.history), self.how.history if role == "solve" else self.how.carry_history)
        while True:
            try:
                return (yield from self._put(self._fresh(role, won, keep)))
            except ContextOverflow:
                if keep == 0:
                    raise
                keep //= 2

    def _put(self, prompt: Prompt) -> Generator[Request, Reply, tuple[Prompt, Completion]]:
        completion = yield Ask(prompt)
        assert isinstance(completion, Completion)
        return prompt, completion

    def _continued(self, role: Role, won: bool) -> Prompt:
        last = self.turns[-1]
        kind = "step" if role == "solve" else f"{role}_next"
        message = style(self.how.prompts).render(kind, self._values(won, self.history))
        messages = (*last.prompt.messages, Message("assistant", last.completion.text), message)
        return Prompt(role, messages, STOP[role], self.how.reply_tokens(role), follows=last.completion)

    def _fresh(self, role: Role, won: bool, keep: int) -> Prompt:
        history = self.history[len(self.history) - keep :]
        message = style(self.how.prompts).render(role, self._values(won, history))
        return Prompt(role, (message,), STOP[role], self.how.reply_tokens(role))

    def _values(self, won: bool, history: list[Step]) -> dict[str, object]:
        shown = self.how.admissible and self.seen.admissible is not None
        return {
            "rules": self.start.rules,
            "document": self.carried.document,
            "reflections": list(self.carried.reflections),
            "task": self.seen.task,
            "history": history,
            "observation": self.seen.text,
            "admissible": list(self.seen.admissible or ()) if shown else None,
            "invalid": bool(self.turns) and not self.turns[-1].valid,
            "won": won,
        }

    def read(self, role: Role, prompt: Prompt, completion: Completion) -> Turn:
        """The turn that a reply makes; a reply cut by length is never a valid one."""
        text = parse(role, completion.text) if completion.finish_reason != "length" else None
        index = len(self.turns) if role == "solve" else 0
        return Turn(role, self.position, index, prompt, completion, self.seen.text, text, valid=text is not None)


def _solve(chat: _Chat, task: Task) -> Generator[Request, Reply, Attempt]:
    chat.start = chat.seen = yield from _observe(Reset(task, chat.position))
    while not chat.seen.done and len(chat.turns) < chat.how.turns:
        prompt, completion = yield from chat.ask("solve")
        turn = chat.read("solve", prompt, completion)
        chat.turns.append(turn)
        chat.history.append((chat.seen.text, turn.action))
        if turn.action is not None:
            chat.seen = yield from _observe(Act(turn.action))
    return Attempt(
        task=task,
        document_in=chat.carried.text,
        turns=tuple(chat.turns),
        won=chat.seen.won,
        score=chat.seen.score,
        stop="done" if chat.seen.done else "turns",
        goal=chat.start.task,
        final=chat.seen.text,
    )


def _carry(chat: _Chat, won: bool) -> Generator[Request, Reply, Turn]:
    role: Role = "curate" if chat.how.carry == "skill" else "reflect"
    prompt, completion = yield from chat.ask(role, won)
    return chat.read(role, prompt, completion)


def _observe(request: Reset | Act) -> Generator[Request, Reply, Observation]:
    seen = yield request
    assert isinstance(seen, Observation)
    return seen
