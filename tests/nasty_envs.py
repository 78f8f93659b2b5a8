"""Environments that misbehave on command; an importable module, so that worker processes find them too."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import gymnasium

from skillrise.env import Info, TextEnv
from skillrise.errors import InputError
from skillrise.types import Task, TaskSequence

ID = "nasty_envs:nasty/Nasty-v0"
_made = itertools.count()


class Nasty(TextEnv):
    """Says which process and which instance answers; an action (or the spec's `start`) names what goes wrong."""

    def __init__(self) -> None:
        self.number = next(_made)
        self.listed: list[str] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        spec = (options or {})["task"]
        if "start" not in spec:
            raise InputError("Nasty task: 'start' is needed.")
        self.listed = ["end"] if (options or {}).get("admissible") else None
        return self.step(spec["start"])[0], self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        if action == "hang":
            time.sleep(600)
        if action == "raise":
            raise RuntimeError("broken")
        if action == "exit":
            os._exit(3)
        if action == "quit":
            sys.exit(3)
        if action == "be told to end":
            os.kill(os.getpid(), signal.SIGTERM)
        text = {"flood": "x" * 1_000_000, "surrogate": "half a letter \ud800"}.get(
            action, f"{os.getpid()} {self.number}"
        )
        return text, 0.0, action == "end", False, self._info()

    def _info(self) -> Info:
        return {"task": "misbehave", "admissible": self.listed, "won": False, "score": 0.0}


def task(start: str = "") -> Task:
    """A task that begins with `start`."""
    return Task(ID, {"start": start}, "nasty")


def sequence(name: str, starts: Sequence[str]) -> TaskSequence:
    """Tasks that begin with `starts`."""
    return TaskSequence(name, "nasty", tuple(task(start) for start in starts), (False,) * len(starts))


if "nasty/Nasty-v0" not in gymnasium.registry:
    gymnasium.register(id="nasty/Nasty-v0", entry_point="nasty_envs:Nasty")
