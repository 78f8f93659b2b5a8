"""Which tasks are played in which order: each equally often at every position, and the same ones for every length K.

A block is as many different tasks as the longest sequences hold. For sequences of K it is dealt into parts of K tasks, and
each part is rotated: part (a, b, c) gives a b c, b c a and c a b, a Latin square. So no position has easier tasks than
another, and what is better at position p than at position 1 was carried there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from skillrise.config import RunConfig
from skillrise.curriculum import identity, read
from skillrise.errors import InputError
from skillrise.session import pick
from skillrise.types import Task, TaskSequence

Protocol = Literal["cross", "repeat", "both"]
PROTOCOLS: tuple[Protocol, ...] = ("cross", "repeat", "both")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be played.

    Attributes:
        blocks: Each is a sequence of different tasks of one family, none padded, all equally long.
        lengths: The lengths K, rising, 1 among them; each divides the blocks' length.
        rotations: Most rotations of a part; None for all K.
        protocol: `cross`, `repeat` or `both`.
        drawn: The blocks were drawn from the file's families, since its sequences are shorter.
    """

    blocks: tuple[TaskSequence, ...]
    lengths: tuple[int, ...]
    rotations: int | None = None
    protocol: Protocol = "cross"
    drawn: bool = False

    @property
    def cross(self) -> tuple[int, ...]:
        """The lengths that are played under `cross`."""
        return self.lengths if self.protocol != "repeat" else ()

    @property
    def attempts(self) -> int:
        """Most attempts at a task under `repeat`; 0 if that is not played."""
        return self.lengths[-1] if self.protocol != "cross" else 0

    @property
    def tasks(self) -> int:
        """Different tasks."""
        return sum(len(block.tasks) for block in self.blocks)

    def sequences(self, k: int) -> list[TaskSequence]:
        """The sequences of length `k`, block by block."""
        return [sequence for block in self.blocks for sequence in rotated(block, k, self.rotations)]

    def plays(self, k: int) -> int:
        """Task plays at length `k`."""
        return self.tasks * len(offsets(k, self.rotations))

    @property
    def most_plays(self) -> int:
        """Task plays in all; under `repeat` a solved task is not played again, so that they may be fewer."""
        return sum(map(self.plays, self.cross)) + self.tasks * self.attempts

    def lines(self) -> list[str]:
        """What will be played, in words."""
        size = len(self.blocks[0].tasks)
        origin = "drawn from the file's families" if self.drawn else "cut from the file's sequences"
        out = [f"{many(len(self.blocks), 'block')} of {many(size, 'task')}, {origin}: {self.tasks} different in all"]
        for k in self.cross:
            turned = len(offsets(k, self.rotations))
            out.append(
                f"K = {k}: {many(self.plays(k) // k, 'sequence')}, {many(self.plays(k), 'task play')}, "
                f"each task at {turned} of {many(k, 'position')}"
            )
        if self.attempts:
            out.append(
                f"repeat: {many(self.tasks, 'task')}, each up to {many(self.attempts, 'time')}, at most "
                f"{many(self.tasks * self.attempts, 'task play')}"
            )
        return [*out, f"in all {'at most ' if self.attempts else ''}{many(self.most_plays, 'task play')}"]


def make_plan(
    config: RunConfig,
    file: Path,
    lengths: Iterable[int] | None = None,
    *,
    protocol: Protocol = "cross",
    rotations: int | None = None,
    limit: int | None = None,
) -> Plan:
    """Arrange the tasks of a sequence file.

    Args:
        config: The run; `evaluation.seed` draws blocks where the file's sequences are too short, and
            `evaluation.sequences` is the most blocks unless `limit` says otherwise.
        file: Held-out sequences.
        lengths: The lengths K; by default powers of two up to the file's longest sequence. 1 is always played too.
        protocol: What to play.
        rotations: Most rotations of a part.
        limit: Most blocks, drawn over the whole file and always the same.

    Raises:
        InputError: If the file cannot be read, or has too few tasks for such lengths.
    """
    sequences = read(file, config.curriculum.env)
    wanted = set(lengths) if lengths is not None else powers(max(len(s.tasks) - sum(s.padded) for s in sequences))
    if not wanted or min(wanted) < 1:
        raise InputError(
            f"--k {','.join(map(str, sorted(wanted)))}: lengths are whole numbers from 1, such as 1,2,4,8."
        )
    every = tuple(sorted({1, *wanted}))
    found, drawn = blocks(sequences, math.lcm(*every), config.evaluation.seed)
    if not found:
        raise InputError(
            f"{file}: no sequence and no family has the {math.lcm(*every)} different tasks that lengths "
            f"{', '.join(map(str, every))} need, padded ones not counted: lower --k, or build a file with a larger K."
        )
    chosen = pick(found, limit or config.evaluation.sequences)
    return Plan(tuple(chosen), every, rotations, protocol, drawn)


def many(n: int, what: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def powers(most: int) -> set[int]:
    """1, 2, 4 and on, up to `most`."""
    return {2**i for i in range(most.bit_length())} if most else {1}


def blocks(sequences: Sequence[TaskSequence], size: int, seed: int) -> tuple[list[TaskSequence], bool]:
    """Blocks of `size` different tasks, and whether they had to be drawn.

    A sequence that is long enough is cut into blocks from its beginning. If none is, each family's tasks are shuffled by
    the seed and cut, each block from easy to hard. Padded slots, tasks that came before and what is left over are left out.
    """
    seen: set[str] = set()
    fresh = [(sequence.id, sequence.family, list(_new(sequence, seen))) for sequence in sequences]
    if drawn := all(len(tasks) < size for *_, tasks in fresh):
        families: dict[str, list[Task]] = {}
        for _, family, tasks in fresh:
            families.setdefault(family, []).extend(tasks)
        for family, tasks in families.items():
            Random(f"{seed}/{family}").shuffle(tasks)
        fresh = [(family, family, tasks) for family, tasks in families.items()]
    out = []
    for name, family, tasks in fresh:
        for number, start in enumerate(range(0, len(tasks) - size + 1, size), start=1):
            part = sorted(tasks[start : start + size], key=_level) if drawn else tasks[start : start + size]
            out.append(TaskSequence(f"{name}/{number}", family, tuple(part), (False,) * size))
    return out, drawn


def offsets(k: int, rotations: int | None) -> list[int]:
    """By how much a part of `k` tasks is rotated: by 0 to k - 1, or by so many of these, evenly spaced."""
    turned = min(rotations or k, k)
    return [i * k // turned for i in range(turned)]


def rotated(block: TaskSequence, k: int, rotations: int | None = None) -> Iterator[TaskSequence]:
    """The sequences of `k` tasks of a block: its parts, each in all its rotations.

    Every part spans the block's whole range of difficulty.

    Raises:
        ValueError: If `k` does not divide the block's length.
    """
    parts, rest = divmod(len(block.tasks), k)
    if rest:
        raise ValueError(f"a block of {len(block.tasks)} tasks cannot be cut into parts of {k}")
    for number in range(parts):
        part = block.tasks[number::parts]
        for offset in offsets(k, rotations):
            name = f"{block.id}/k{k}-{number + 1}-{offset + 1}"
            yield TaskSequence(name, block.family, part[offset:] + part[:offset], (False,) * k)


def _new(sequence: TaskSequence, seen: set[str]) -> Iterator[Task]:
    """Scored tasks that did not come before."""
    for task, padded in zip(sequence.tasks, sequence.padded, strict=True):
        if not padded and (key := identity(task)) not in seen:
            seen.add(key)
            yield task


def _level(task: Task) -> tuple[bool, float]:
    return task.difficulty is None, task.difficulty or 0.0
