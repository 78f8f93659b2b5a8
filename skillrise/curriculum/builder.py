"""Making sequences: an environment's tasks, cut into groups of K that rise in difficulty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from skillrise.curriculum.format import read
from skillrise.curriculum.tasks import identity
from skillrise.env import make
from skillrise.errors import InputError
from skillrise.types import Task, TaskSequence

Mix = tuple[tuple[Task, ...], tuple[bool, ...]]
"""The tasks of a sequence, and which of them are padded."""


def catalogue(
    env_id: str, split: str, families: Sequence[str] | None = None, exclude: Sequence[str | Path] = ()
) -> list[Task]:
    """The tasks of an environment's split, without those that occur in the files `exclude`.

    Raises:
        InputError: If the environment, split or a family is unknown, a file is wrong, or no task is left.
    """
    env = make(env_id)
    if not hasattr(env, "catalogue"):
        raise InputError(
            f"Environment {env_id!r} has no catalogue of tasks: add one, or write the sequence file yourself."
        )
    try:
        tasks = list(env.catalogue(split, families))
    finally:
        env.close()
    held = {identity(task) for path in exclude for sequence in read(path, env_id) for task in sequence.tasks}
    left = [task for task in tasks if identity(task) not in held]
    if not left:
        raise InputError(f"No task of {env_id}, split {split!r}, is left: choose other families or exclude less.")
    return left


def build(
    tasks: Iterable[Task],
    k: int,
    *,
    seed: int,
    limit: int | None = None,
    pad: bool = True,
    per_family: int | None = None,
    passes: int = 1,
) -> list[TaskSequence]:
    """Cut tasks into sequences of K, family by family, each from easy to hard.

    A family is ordered by difficulty (ties by the seed; unknown difficulty last, in catalogue order) and divided into K
    bands of equal size. Position i draws from band i, without replacement: every sequence spans the family's
    whole range, difficulty never falls, no task occurs twice in a sequence, each is used once a pass.

    When K does not divide the family, one last sequence is filled up: its padded slots repeat tasks of the family that
    other sequences hold, at its first positions, so that the document still meets tasks before those that count.
    Only a family of fewer than K tasks must repeat one within the sequence; there the hardest fills the end.

    Args:
        tasks: The catalogue, in any order; a task given twice counts once.
        k: Tasks a sequence.
        seed: The same seed and tasks give the same sequences, whatever other families there are.
        limit: At most so many sequences, spread evenly over the families.
        pad: False leaves out tasks that do not fill a sequence, other ones in each pass.
        per_family: At most so many sequences of each family.
        passes: How often each family is drawn; a mix of tasks that came before is left out.

    Raises:
        InputError: If `k` or `passes` is below 1, or no sequence comes out.
    """
    if k < 1 or passes < 1:
        raise InputError("`k` and `passes` must be at least 1: a sequence holds one task or more.")
    families: dict[tuple[str, str], dict[str, Task]] = {}
    for task in tasks:
        families.setdefault((task.env, task.family), {}).setdefault(identity(task), task)
    named: Counter[str] = Counter()
    ranked = []
    for (env, family), members in families.items():
        mixes: dict[frozenset[str], Mix] = {}
        for turn in range(passes):
            for mix in _mixes(list(members.values()), k, Random(f"{seed}/{turn}/{env}/{family}"), pad):
                mixes.setdefault(frozenset(map(identity, mix[0])), mix)
        for rank, (chosen, padded) in enumerate(list(mixes.values())[:per_family]):
            ranked.append((rank, TaskSequence(f"{family}-k{k}-{named[family]}", family, chosen, padded)))
            named[family] += 1
    if not ranked:
        raise InputError(f"No family has the {k} tasks of a sequence: choose a smaller `k` or allow padding.")
    kept = sorted(range(len(ranked)), key=lambda i: ranked[i][0])[:limit]
    return [ranked[i][1] for i in sorted(kept)]


def _mixes(tasks: list[Task], k: int, rng: Random, pad: bool) -> list[Mix]:
    """One pass over a family."""
    size, rest = divmod(len(tasks), k)
    if rest and not pad:
        tasks = [tasks[i] for i in sorted(rng.sample(range(len(tasks)), size * k))]
        rest = 0
    levels = [(True, i) if t.difficulty is None else (False, t.difficulty) for i, t in enumerate(tasks)]
    ordered = [tasks[i] for *_, i in sorted((level, rng.random(), i) for i, level in enumerate(levels))]
    if tasks and not size:
        return [((*ordered, *ordered[-1:] * (k - rest)), (False,) * rest + (True,) * (k - rest))]
    short = (
        k - rest if rest else 0
    )  # bands of the first positions are one task short: the last sequence repeats one there
    columns = []
    for i in range(k):
        width = size + (rest > 0 and i >= short)
        band, ordered = ordered[:width], ordered[width:]
        rng.shuffle(band)
        columns.append([(task, False) for task in band] + [(task, True) for task in band[:1] if i < short])
    rows = zip(*columns, strict=True)
    return [(tuple(task for task, _ in row), tuple(padded for _, padded in row)) for row in rows]
