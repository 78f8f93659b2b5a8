"""Trying environments out before a run: a few tasks opened, a few steps taken, and the prompts that would be made of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from skillrise.config import PlayConfig, RunConfig
from skillrise.env import TextEnv, make, observe, prepare
from skillrise.models.counting import Counter
from skillrise.play import Ask, Reply, Reset, play
from skillrise.prompts import Reflection
from skillrise.types import Completion, Observation, Prompt, Role, Task, TaskSequence

STEPS = 5
"""Steps taken in each task."""


@dataclass(frozen=True, slots=True)
class Tried:
    """An environment that was made and played for a few steps.

    Attributes:
        task: The task that opens with the longest text.
        start: What it opens with.
        longest: The longest observation after an action, of all tasks tried.
        action: An action that was taken.
        tasks: How many tasks were tried.
        seconds: What it took to make it, to reset it first, and a step on average.
    """

    task: Task
    start: Observation
    longest: Observation
    action: str
    tasks: int
    seconds: tuple[float, float, float]


def try_environment(env_id: str, tasks: Sequence[Task], config: RunConfig) -> Tried:
    """Make an environment and take a few steps in each of `tasks`.

    Raises:
        InputError: If the environment, its data or a task is missing.
    """
    began = time.monotonic()
    prepare(env_id, config.pool.options)
    rng = random.Random(0)
    with closing(make(env_id, config.pool.options)) as env:
        made = time.monotonic() - began
        starts, after, resets, steps = [], [], [], []
        action = ""
        for task in tasks:
            start, seconds = _timed(lambda task=task: _reset(env, task, config.play.admissible))  # type: ignore[misc]
            starts.append((task, start))
            resets.append(seconds)
            seen = start
            for n in range(STEPS):
                action = rng.choice(seen.admissible) if n and seen.admissible else "look around"
                seen, seconds = _timed(lambda action=action: _step(env, action))  # type: ignore[misc]
                after.append(seen)
                steps.append(seconds)
                if seen.done:
                    break
    task, start = max(starts, key=lambda pair: sum(map(len, (pair[1].text, pair[1].task, *(pair[1].admissible or ())))))
    longest = max(after, key=lambda seen: len(seen.text))
    return Tried(task, start, longest, action, len(tasks), (made, resets[0], sum(steps) / len(steps)))


def _timed(do: Callable[[], Observation]) -> tuple[Observation, float]:
    began = time.monotonic()
    return do(), time.monotonic() - began


def _reset(env: TextEnv, task: Task, admissible: bool) -> Observation:
    text, info = env.reset(seed=0, options={"task": dict(task.spec), "admissible": admissible})
    return observe(text, info, done=bool(info["won"]), rules=env.rules)


def _step(env: TextEnv, action: str) -> Observation:
    text, _, terminated, truncated, info = env.step(action)
    return observe(text, info, done=terminated or truncated)


def _asked(
    how: PlayConfig,
    tried: Tried,
    say: Callable[[Prompt], str],
    document: str = "",
    reflections: tuple[Reflection, ...] = (),
) -> Iterator[Prompt]:
    """All prompts of one attempt and of what is written after it; the environment says `tried.longest` again and again."""
    pair = TaskSequence("dry-run", tried.task.family, (tried.task,) * 2, (False,) * 2)
    game = play(pair, how, document, reflections)
    request = next(game)
    start = replace(tried.start, won=False, done=False)  # a task may open solved
    seen = replace(tried.longest, task=start.task, won=False, done=False)
    while not (isinstance(request, Reset) and request.position):
        reply: Reply = start if isinstance(request, Reset) else seen
        if isinstance(request, Ask):
            yield request.prompt
            reply = Completion(say(request.prompt))
        request = game.send(reply)


def opening(how: PlayConfig, tried: Tried, counter: Counter) -> dict[Role, int]:
    """Tokens of the first solve prompt, without a document, and of the first curate or reflect prompt, after one action."""
    prompts = _asked(
        how.model_copy(update={"turns": 1}), tried, lambda prompt: f"<action>{tried.action or '-'}</action>"
    )
    return {prompt.role: counter.chat(prompt.messages) for prompt in prompts}


def most_context(how: PlayConfig, tried: Tried, counter: Counter, k: int) -> dict[Role, int]:
    """Most tokens of prompt and reply by role.

    All turns are taken, replies and documents are at their limits, observations as long as the longest that was seen.
    """
    document = counter.filler(how.document_tokens)[: how.document_chars] if how.carry == "skill" else ""
    written = counter.filler(how.document_tokens)[: how.document_chars] if how.carry == "reflect" else ""
    reflections = tuple((i, False, written) for i in range(1, k)) if written else ()
    act = f"<action>{tried.action or '-'}</action>"
    thought = counter.filler(how.action_tokens - counter.text(act))
    most: dict[Role, int] = {}
    for prompt in _asked(how, tried, lambda prompt: thought + act, document, reflections):
        tokens = counter.chat(prompt.messages) + prompt.max_tokens
        most[prompt.role] = max(most.get(prompt.role, 0), tokens)
    return most
