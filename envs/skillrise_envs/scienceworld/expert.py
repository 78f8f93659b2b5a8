"""The engine's own solutions: how long they are, and shorter ones to learn from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from skillrise.errors import InputError
from skillrise.types import Demonstration, Task
from skillrise_envs.scienceworld import tasks
from skillrise_envs.scienceworld.notes import notes
from skillrise_envs.scienceworld.world import HEAP_MB, World


class Expert:
    """Solves tasks in a world of its own; close it after use."""

    def __init__(self, simplification: str = "easy", heap_mb: int = HEAP_MB) -> None:
        self.simplification, self.heap_mb = simplification, heap_mb
        self._world: World | None = None

    def solve(self, name: str, variation: int) -> list[str]:
        """The engine's solution as it is, or nothing if it does not win. Takes 0.2 to 40 s."""
        self._load(name, variation, gold=True)
        assert self._world is not None
        actions = self._world.gold()
        return actions if self.win(name, variation, actions) else []

    def win(self, name: str, variation: int, actions: Iterable[str]) -> list[str]:
        """The actions up to the one that wins; nothing if none does."""
        self._load(name, variation)
        assert self._world is not None
        done: list[str] = []
        self._world.step("look around")
        for action in actions:
            # The engine's solutions answer every question with 0, also those that a world does not ask.
            if action == "0" and not self._world.asked:
                continue
            done.append(action)
            answer = self._world.step(action)
            if answer.completed or answer.points < 0:
                return done if answer.points == 100 else []
        return []

    def shorten(self, name: str, variation: int, actions: Sequence[str]) -> list[str]:
        """A shorter rewriting of the solution `actions` that still wins, or `actions` up to the win.

        A walk becomes one teleport and a look at what is there, and what is carried goes by the name under which it
        was picked up. Haste can change the outcome (things cool on the way), so every rewriting is tried out.
        """
        best = self.win(name, variation, actions)
        if "teleportAction" in tasks.simplifications(self.simplification, name):
            rewritten = carry(teleport(best))
            return self.win(name, variation, rewritten) or self.win(name, variation, teleport(best)) or best
        return best

    def demonstrate(self, task: Task) -> Demonstration:
        """A short solution of `task`, with notes on its kind.

        Raises:
            InputError: If the engine has no solution that wins.
        """
        name, variation = tasks.read(task.spec)
        actions = self.solve(name, variation)
        if not actions:
            raise InputError(f"ScienceWorld's own solution of {name} variation {variation} does not win: leave it out.")
        actions = self.shorten(name, variation, actions)
        teleports = any(action.startswith("teleport") for action in actions)
        return Demonstration(task=task, actions=tuple(actions), notes=notes(name, teleports))

    def close(self) -> None:
        """Leave the engine. May be called twice."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def _load(self, name: str, variation: int, gold: bool = False) -> None:
        if self._world is None or not self._world.alive:
            self._world = World(self.heap_mb)
        self._world.load(name, variation, tasks.simplifications(self.simplification, name), gold)


def teleport(actions: Sequence[str]) -> list[str]:
    """Replace each run of walking and door opening by one teleport to where it ends, followed by a look."""
    short: list[str] = []
    place = ""
    for action in [*actions, ""]:
        if action.startswith("open door to "):
            continue
        if action.startswith("go to "):
            place = action.removeprefix("go to ")
            continue
        if place:
            short.append(f"teleport to {place}")
            short += ["look around"] * (action != "look around" and not action.startswith("move "))
            place = ""
        short.append(action)
    return short[:-1]


def carry(actions: Sequence[str]) -> list[str]:
    """Name a thing that is put down as it was named when it was picked up."""
    short = []
    held = ""
    for action in actions:
        if action.startswith("pick up "):
            held = action.removeprefix("pick up ")
        put = re.fullmatch(r"move .+ in inventory to (.+)", action)
        short.append(f"move {held} to {put[1]}" if put and held else action)
    return short
