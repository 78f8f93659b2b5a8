"""ALFWorld behind the text environment contract."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from skillrise.env import Info, TextEnv, spec_of
from skillrise.errors import InputError
from skillrise.types import Demonstration, Task
from skillrise_envs.alfworld import games
from skillrise_envs.alfworld.engine import Engine, Turn
from skillrise_envs.alfworld.notes import notes

ENV_ID = "skillrise_envs:skillrise/ALFWorld-v0"


class ALFWorldEnv(TextEnv):
    """Household tasks of six types in text: find things, carry, heat, cool, clean or light them.

    Nothing is random: the `seed` of `reset` changes nothing. `score` is 1 when the task is done and 0 before. A command
    that means nothing here is answered with "Nothing happens." and counts as a turn.

    The list of possible commands costs next to nothing and is always there.

    Args:
        data: ALFWorld's data folder; by default the one that ALFWORLD_DATA names, else ~/.cache/alfworld.
        turn_limit: Steps after which an episode is truncated, whatever they did.
        detours: A demonstration looks into 0 to this many other receptacles first (drawn evenly), since the stored
            solution knows where the object is and its imitator has to search.
        remarks: Each line of a demonstration's notes is kept with this probability; below 1 the imitator's documents
            differ, which is what reinforcement learning needs to tell good ones from bad.

    Raises:
        InputError: If there are no games, or a number is out of its range.
        EnvironmentFailure: From `reset` and `step`, if the game's file is broken.
    """

    rules = (
        "ALFWorld is a home with receptacles and objects; you do a household task in it. Commands: look; inventory; "
        "go to RECEPTACLE; open RECEPTACLE; close RECEPTACLE; take OBJECT from RECEPTACLE; "
        "move OBJECT to RECEPTACLE (put it in or on); examine OBJECT or RECEPTACLE; use OBJECT (switch a lamp); "
        "heat OBJECT with RECEPTACLE; cool OBJECT with RECEPTACLE; clean OBJECT with RECEPTACLE; "
        "slice OBJECT with OBJECT; help. Names have a number and small letters: go to cabinet 2. "
        "You must be at a receptacle to use it, and you carry one object at a time. "
        "A command that is not possible gets 'Nothing happens.' and costs a turn."
    )

    def __init__(self, data: str | None = None, turn_limit: int = 50, detours: int = 0, remarks: float = 1.0) -> None:
        if turn_limit < 1:
            raise InputError(f"ALFWorld's turn_limit is {turn_limit}: give at least 1.")
        if detours < 0 or not 0 <= remarks <= 1:
            raise InputError(
                f"ALFWorld's detours and remarks are {detours} and {remarks}: give at least 0, and a share from 0 to 1."
            )
        self.turn_limit, self.detours, self.remarks = turn_limit, detours, remarks
        self._games = games.root(data)
        self._engine = Engine()
        self._turns = 0
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start `options["task"]`; see `TextEnv.reset`. The first time a process plays a game takes 0.1 to 0.3 s more."""
        spec = spec_of("ALFWorld", options, '{"task_dir": NAME, "trial": NAME}')
        path = games.find(self._games, spec)
        self._over = True
        turn = self._engine.start(path)
        self._turns, self._over = 0, False
        return turn.text, self._info(turn)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Do `action`; see `TextEnv.step`.

        Raises:
            gymnasium.error.ResetNeeded: If the episode is over or has not begun.
            EnvironmentFailure: If the game's file is broken.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("The ALFWorld episode is over: reset before the next step.")
        self._over = True
        turn = self._engine.act(action)
        self._turns += 1
        truncated = not turn.won and self._turns >= self.turn_limit
        self._over = turn.won or truncated
        return turn.text, float(turn.won), turn.won, truncated, self._info(turn)

    def close(self) -> None:
        """Leave the engine. May be called twice."""
        self._engine.close()
        self._over = True

    def catalogue(self, split: str, families: Sequence[str] | None = None) -> Iterator[Task]:
        """All games of a split that can be won; difficulty is the number of commands of the stored solution.

        Args:
            split: `train`, `dev` (ALFWorld's valid_seen) or `test` (valid_unseen).
            families: Types of task to list; all by default.

        Raises:
            InputError: If the split or a family is unknown, or a file is not a game.
        """
        return (
            Task(ENV_ID, _spec(game), game.family, float(len(game.walkthrough)))
            for game in games.listed(self._games, split, families)
            if not game.unfit
        )

    def left_out(self, split: str, families: Sequence[str] | None = None) -> Mapping[str, int]:
        """How many games `catalogue` does not list, by reason; see `TextEnv.left_out`."""
        return Counter(game.unfit for game in games.listed(self._games, split, families) if game.unfit)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """The solution that is stored with the game, after `detours`, with `remarks` on its type of task.

        Raises:
            InputError: If there is no such game, or no solution of it.
            EnvironmentFailure: With `detours`, if the game's file is broken.
        """
        path = games.find(self._games, task.spec)
        game = games.look(path)
        if game.unfit:
            raise InputError(f"{path} has no solution to show ({game.unfit}): leave it out.")
        rng = random.Random(f"demonstrate/{seed}")
        written = notes(game.family, lambda: rng.random() < self.remarks)
        looks = self._search(path, _thing(game.task_dir), rng)
        actions = _possible(path, (*looks, *game.walkthrough)) if looks else game.walkthrough
        return Demonstration(task, None, actions, written)

    def _search(self, path: Path, wanted: str, rng: random.Random) -> list[str]:
        """Looks into up to `detours` receptacles that do not hold the object; those of a kind in their numbers' order."""
        looks = rng.randint(0, self.detours)
        if not looks:
            return []
        engine, actions = Engine(), []
        try:
            turn = engine.start(path)
            places = sorted((c for c in turn.commands if c.startswith("go to ")), key=_number)
            kinds = sorted({place.rpartition(" ")[0] for place in places})
            for kind in rng.choices(kinds, k=4 * looks):
                place = next((p for p in places if p.rpartition(" ")[0] == kind), None)
                if place not in turn.commands or not looks:  # none is left, or it is where one stands
                    continue
                places.remove(place)
                look = [place]
                turn = engine.act(place)
                if (opening := place.replace("go to", "open")) in turn.commands:
                    look.append(opening)
                    turn = engine.act(opening)
                if f" {wanted.lower()} " not in turn.text:
                    actions += look
                    looks -= 1
        finally:
            engine.close()
        return actions

    def _info(self, turn: Turn) -> Info:
        return {
            "task": self._engine.task,
            "admissible": list(turn.commands),
            "won": turn.won,
            "score": float(turn.won),
        }


def _possible(path: Path, actions: Sequence[str]) -> tuple[str, ...]:
    """`actions` without those that do nothing: to open what a look has opened, to go to another receptacle of the same place."""
    engine, kept = Engine(), []
    try:
        turn = engine.start(path)
        for action in actions:
            if action in turn.commands:
                kept.append(action)
                turn = engine.act(action)
    finally:
        engine.close()
    return tuple(kept)


def _number(command: str) -> int:
    """The number that a receptacle's name ends with."""
    return int(command.rpartition(" ")[2])


def _spec(game: games.Found) -> dict[str, Any]:
    """What names a game, and what it is about, as the SkillRise authors' files have it."""
    scene = int(game.task_dir.rpartition("-")[2])
    return {"task_dir": game.task_dir, "trial": game.trial, "object": _thing(game.task_dir), "scene": scene}


def _thing(task_dir: str) -> str:
    """The object that a task is about."""
    return task_dir.rsplit("-", 4)[1]
