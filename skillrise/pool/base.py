"""The pool protocol, and the shelf of environments that each of its processes has.

A trial holds one environment under a key of its own from its first reset until it is released. Requests return at once;
`collect` brings the answers. What an environment does wrong (raise, die, hang) comes back as an `EnvironmentFailure`
answer for the trials concerned; a task that does not exist is the user's mistake and is raised.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any, Self

from skillrise.env import TextEnv, clean, make, observe
from skillrise.errors import EnvironmentFailure, InputError, Terminated
from skillrise.types import Observation, Task

Answer = Observation | EnvironmentFailure
"""What an environment answers to a request."""


class Pool(ABC):
    """Environments for many trials."""

    @abstractmethod
    def reset(self, key: Hashable, task: Task, seed: int, admissible: bool = False) -> None:
        """Start `task` for the trial `key`; it gets an environment if it has none of that kind yet.

        Args:
            key: The trial.
            task: What to play.
            seed: The episode's seed.
            admissible: The list of possible actions is wanted; see `TextEnv.reset`.
        """

    @abstractmethod
    def act(self, key: Hashable, action: str) -> None:
        """Do `action` in the environment of `key`."""

    @abstractmethod
    def collect(self, seconds: float) -> list[tuple[Hashable, Answer]]:
        """Answers that have come, waiting up to so long for the first."""

    @abstractmethod
    def release(self, key: Hashable) -> None:
        """The trial is over: its environment may be used by another."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """How many answers are awaited."""

    @abstractmethod
    def close(self) -> None:
        """End all environments and processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shelf:
    """Environments of one process: one a key, reused after release."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self.held: dict[Hashable, tuple[str, TextEnv]] = {}
        self.free: dict[str, list[TextEnv]] = defaultdict(list)

    def reset(self, key: Hashable, env_id: str, spec: Mapping[str, Any], seed: int, admissible: bool) -> Observation:
        """Start a task under `key`."""
        if key in self.held and self.held[key][0] != env_id:
            self.release(key)
        if key not in self.held:
            free = self.free[env_id]
            self.held[key] = (env_id, free.pop() if free else make(env_id, self.options))
        env = self.held[key][1]
        text, info = env.reset(seed=seed % 2**31, options={"task": dict(spec), "admissible": admissible})
        return observe(text, info, done=bool(info["won"]), rules=env.rules)

    def act(self, key: Hashable, action: str) -> Observation:
        """Do an action under `key`."""
        text, _, terminated, truncated, info = self.held[key][1].step(action)
        return observe(text, info, done=terminated or truncated)

    def release(self, key: Hashable) -> None:
        """Put the environment of `key` back."""
        if key in self.held:
            env_id, env = self.held.pop(key)
            self.free[env_id].append(env)

    def drop(self, key: Hashable) -> None:
        """Throw the environment of `key` away: it raised, and may be broken."""
        _, env = self.held.pop(key, ("", None))
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()

    def close(self) -> None:
        """Close all environments."""
        envs = [env for _, env in self.held.values()] + [env for shelf in self.free.values() for env in shelf]
        self.held.clear()
        self.free.clear()
        for env in envs:
            with contextlib.suppress(Exception):
                env.close()

    def answer(self, key: Hashable, verb: str, *args: Any) -> Answer:
        """Do `verb`; whatever the environment raises becomes a failure. `InputError` and `Terminated` go through."""
        try:
            return self.reset(key, *args) if verb == "reset" else self.act(key, *args)
        except (InputError, Terminated):
            raise
        except (Exception, SystemExit) as err:  # the one boundary between other people's engines and ours
            self.drop(key)
            return EnvironmentFailure(clean(f"{type(err).__name__}: {err}", 1000))
