"""How long the engine's solutions are: the measure of difficulty, computed once and kept."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from skillrise.files import cache_dir, write_text
from skillrise.types import Task
from skillrise_envs.scienceworld import tasks
from skillrise_envs.scienceworld.expert import Expert

ENV_ID = "skillrise_envs:skillrise/ScienceWorld-v0"
TABLE = "scienceworld_lengths.json"
SHIPPED = files("skillrise_envs") / "data" / TABLE
QUIET = 20.0
"""Seconds between two lines on what is being computed."""
SAVE_EVERY = 25
"""Computed entries between two savings: at most so many are lost when a run is killed."""


def catalogue(split: str, families: Sequence[str] | None = None) -> Iterator[Task]:
    """See `ScienceWorldEnv.catalogue`; names are checked at once, lengths are computed as tasks are drawn."""
    wanted = [(name, i) for name in tasks.select(families) for i in tasks.variations(name, split)]
    return _list(wanted)


def _list(wanted: Sequence[tuple[str, int]]) -> Iterator[Task]:
    with contextlib.closing(Table()) as table:
        for name, variation in wanted:
            if length := table.length(name, variation):
                spec = {"task": name, "variation": variation}
                yield Task(env=ENV_ID, spec=spec, family=tasks.FAMILY_OF[name], difficulty=float(length))


class Table:
    """Actions of the winning solution of each variation, under `easy`; 0 where the engine's solution does not win.

    Known are those of the table in the package and of the user's cache; others are computed and cached.

    Args:
        cache: File of the cache; by default in the user's cache folder.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache or cache_dir() / TABLE
        self.lengths: dict[str, list[int | None]] = {name: [None] * n for name, n in tasks.VARIATIONS.items()}
        self._fill(SHIPPED.read_text(encoding="utf-8"))
        self._fill_from_cache()
        self._unsaved = 0
        self._said = -QUIET
        self._expert = Expert()

    def length(self, name: str, variation: int) -> int:
        """Number of actions, or 0; takes 0.3 to 40 s if it is not known yet."""
        known = self.lengths[name][variation]
        if known is None:
            self._say(name)
            known = len(self._expert.solve(name, variation))
            self.lengths[name][variation] = known
            self._unsaved += 1
            if self._unsaved >= SAVE_EVERY:
                self.save()
        return known

    def _say(self, name: str) -> None:
        """A line now and then, since many lengths take hours."""
        if time.monotonic() - self._said > QUIET:
            self._said = time.monotonic()
            missing = sum(length is None for length in self.lengths[name])
            print(
                f"ScienceWorld: computing expert path lengths of {name}, {missing} to go; they are cached, stopping is safe.",
                file=sys.stderr,
            )

    def save(self) -> None:
        """Write the cache at one stroke, with what other processes have added to it meanwhile."""
        self._fill_from_cache()
        known = {name: row for name, row in self.lengths.items() if any(length is not None for length in row)}
        write_text(self.cache, json.dumps(known, separators=(",", ":")).replace('],"', '],\n"') + "\n")
        self._unsaved = 0

    def close(self) -> None:
        """Save what is new and leave the engine."""
        if self._unsaved:
            self.save()
        self._expert.close()

    def _fill_from_cache(self) -> None:
        if self.cache.exists():
            self._fill(self.cache.read_text(encoding="utf-8"))

    def _fill(self, text: str) -> None:
        """Fill gaps from a table as text; a part that does not fit is passed over and computed again."""
        try:
            other: Any = json.loads(text)
        except ValueError:
            return
        for name, row in self.lengths.items():
            more = other.get(name) if isinstance(other, dict) else None
            if isinstance(more, list) and len(more) == len(row) and all(x is None or type(x) is int for x in more):
                self.lengths[name] = [new if old is None else old for old, new in zip(row, more, strict=True)]
