"""Curricula: sequences of related tasks, from easy to hard.

A sequence file is JSON Lines, one `TaskSequence` a line, in one of two forms:

    {"id": "boil-k3-0", "family": "boil", "env": "module:ns/Name-v0",
     "tasks": [{"spec": {...}, "difficulty": 5, "padded": false}, ...]}
    {"group_id": "boil_K3_0", "task_type": "boil", "K": 3,
     "tasks": [{"task_id": 0, "variation": 3, "padded": false}, ...]}

The first is ours. The second is the SkillRise authors': its tasks are flat and name no environment, so a plugin module
that defines `claims(task) -> environment id or None` is asked for it. All keys of such a task but `padded` and
`difficulty` are its spec; its difficulty is `difficulty`, else `plan_len`, else unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import from_json

from skillrise.env import SPLITS, TextEnv, make, plugins
from skillrise.errors import InputError
from skillrise.types import Task, TaskSequence

Difficulty = Annotated[int | float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)] | None
Text = Annotated[str, Field(min_length=1)]
Order = Literal["shuffled", "file"]


# -- the file format ---------------------------------------------------------------------------------------------------


class _OurTask(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    spec: dict[str, JsonValue]
    family: Text | None = None
    difficulty: Difficulty = None
    padded: bool = False


class _OurLine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    id: Text
    family: Text
    env: Text
    tasks: list[_OurTask] = Field(min_length=1)

    def sequence(self) -> TaskSequence:
        tasks = tuple(Task(self.env, t.spec, t.family or self.family, t.difficulty) for t in self.tasks)
        return TaskSequence(self.id, self.family, tasks, tuple(t.padded for t in self.tasks))


class _PublishedTask(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    difficulty: Difficulty = None
    plan_len: Difficulty = None
    padded: bool = False


class _PublishedLine(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    group_id: Text
    task_type: Text
    K: int
    tasks: list[_PublishedTask] = Field(min_length=1)

    def sequence(self, env: str | None) -> TaskSequence:
        if len(self.tasks) != self.K:
            raise InputError(f"`K` is {self.K} but there are {len(self.tasks)} tasks: make them agree.")
        specs = [t.model_dump(exclude={"padded", "difficulty"}, exclude_unset=True) for t in self.tasks]
        env = env or _claimed(specs)
        levels = [t.plan_len if t.difficulty is None else t.difficulty for t in self.tasks]
        tasks = tuple(Task(env, spec, self.task_type, level) for spec, level in zip(specs, levels, strict=True))
        return TaskSequence(self.group_id, self.task_type, tasks, tuple(t.padded for t in self.tasks))


def read(path: str | Path, env: str | None = None) -> list[TaskSequence]:
    """The sequences of a file in either form, in the file's order.

    Args:
        path: A JSON Lines file; blank lines are passed over.
        env: The environment of lines that name none; by default the installed plugins are asked.

    Raises:
        InputError: At the first fault, naming file and line.
    """
    ids: dict[str, int] = {}
    out = []
    for line, sequence in _lines(Path(path), env):
        if isinstance(sequence, InputError):
            raise InputError(f"{path}:{line}: {sequence}") from sequence
        if ids.setdefault(sequence.id, line) != line:
            raise InputError(f"{path}:{line}: {_duplicate(sequence.id, ids[sequence.id])}")
        out.append(sequence)
    if not out:
        raise InputError(f"{path}:1: the file holds no sequence: make one with `skillrise curriculum build`.")
    return out


def write(path: str | Path, sequences: Iterable[TaskSequence]) -> None:
    """Write `sequences` in our form; the file appears whole or not at all.

    Raises:
        InputError: If a sequence has no such form (several environments, a spec that is not JSON, an id given twice) or
            the file cannot be written.
    """
    path, lines, ids = Path(path), [], set()
    for sequence in sequences:
        if sequence.id in ids:
            raise InputError(f"Two sequences have the id {sequence.id!r}: give each its own.")
        ids.add(sequence.id)
        lines.append(_dump(sequence) + b"\n")
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(b"".join(lines))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as err:
        raise InputError(f"{path} cannot be written ({err.strerror}): choose another place.") from err


def _dump(sequence: TaskSequence) -> bytes:
    envs = {task.env for task in sequence.tasks}
    if len(envs) > 1:
        raise InputError(f"Sequence {sequence.id!r} mixes environments {sorted(envs)}: write one sequence for each.")
    try:
        tasks = []
        for task, padded in zip(sequence.tasks, sequence.padded, strict=True):
            own = {} if task.family == sequence.family else {"family": task.family}
            tasks.append({"spec": dict(task.spec), **own, "difficulty": task.difficulty, "padded": padded})
        data = {"id": sequence.id, "family": sequence.family, "env": "".join(envs), "tasks": tasks}
        _OurLine.model_validate(data)
        return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except ValidationError as err:
        raise InputError(f"Sequence {sequence.id!r} cannot be written: {_first_fault(err)}") from err
    except (ValueError, TypeError, RecursionError) as err:
        raise InputError(f"Sequence {sequence.id!r} cannot be written: {err}.") from err


def _lines(path: Path, env: str | None) -> Iterator[tuple[int, TaskSequence | InputError]]:
    """Each line's number, from 1, with its sequence or what is wrong with it."""
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except (OSError, ValueError) as err:
        raise InputError(f"{path} cannot be read ({getattr(err, 'strerror', err)}): check the path.") from err
    for line, raw in enumerate(content.split(b"\n"), start=1):
        if raw.strip():
            try:
                yield line, _parse(raw, env)
            except InputError as err:
                yield line, err


def _parse(raw: bytes, env: str | None) -> TaskSequence:
    try:
        data = from_json(raw, allow_inf_nan=False)
        canonical(data)
    except ValueError as err:
        raise InputError(f"not JSON ({err}): write one JSON object a line.") from err
    if not isinstance(data, dict):
        raise InputError("not a JSON object: a line starts with `{` and holds one sequence.")
    try:
        if "group_id" in data:
            return _PublishedLine.model_validate(data).sequence(env)
        return _OurLine.model_validate(data).sequence()
    except ValidationError as err:
        raise InputError(_first_fault(err)) from err


def _first_fault(err: ValidationError) -> str:
    fault = err.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    remedy = {"missing": "add it", "extra_forbidden": "remove or rename it"}.get(fault["type"], "correct it")
    return f"`{ascii(place)[1:-1]}`: {fault['msg'].lower()}: {remedy}."


def _duplicate(name: str, line: int) -> str:
    return f"the id {name!a} is also on line {line}: give each sequence its own."


# -- which task is which -----------------------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """`value` as JSON that is the same for equal values: sorted keys, no spaces, ASCII.

    Raises:
        ValueError: If it holds a number that JSON has not.
        TypeError: If it is not made of JSON values.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def identity(task: Task) -> str:
    """What makes two tasks the same: the canonical JSON of environment and spec.

    Specs may hold keys that only describe (the authors' files: a goal text, a plan length). A plugin module that
    defines `identity(task) -> mapping or None` says what counts in place of the spec; without one all of it does.
    """
    parts = (hook(task) for hook in _hooks("identity"))
    spec = next((part for part in parts if part is not None), task.spec)
    return canonical([task.env, dict(spec)])


@cache
def _hooks(name: str) -> tuple[Callable[[Any], Any], ...]:
    found = (getattr(module, name, None) for module in plugins())
    return tuple(hook for hook in found if callable(hook))


def _claimed(specs: Sequence[Mapping[str, Any]]) -> str:
    claims = {next((env for hook in _hooks("claims") if (env := hook(spec))), None) for spec in specs}
    env = claims.pop() if len(claims) == 1 else None
    if env is None:
        raise InputError("no installed environment claims all these tasks: name theirs with `--env`.")
    return str(env)


# -- making sequences --------------------------------------------------------------------------------------------------


def catalogue(
    env_id: str, split: str, families: Sequence[str] | None = None, exclude: Sequence[str | Path] = ()
) -> list[Task]:
    """The tasks of an environment's split, without those that occur in the files `exclude`.

    Raises:
        InputError: If the environment, split or a family is unknown, a file is wrong, or no task is left.
    """
    env = make(env_id)
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


Mix = tuple[tuple[Task, ...], tuple[bool, ...]]


def _mixes(tasks: list[Task], k: int, rng: Random, pad: bool) -> list[Mix]:
    """One pass over a family: the tasks of each sequence and which of them are padded."""
    size, rest = divmod(len(tasks), k)
    if rest and not pad:
        tasks = [tasks[i] for i in sorted(rng.sample(range(len(tasks)), size * k))]
        rest = 0
    keys = [
        (t.difficulty is None, i if t.difficulty is None else t.difficulty, rng.random()) for i, t in enumerate(tasks)
    ]
    ordered = [tasks[i] for i in sorted(range(len(tasks)), key=keys.__getitem__)]
    if tasks and not size:
        return [((*ordered, *ordered[-1:] * (k - rest)), (False,) * rest + (True,) * (k - rest))]
    columns = []
    for i in range(k):
        full = rest == 0 or i >= k - rest
        width = size + (rest > 0 and full)
        band, ordered = ordered[:width], ordered[width:]
        rng.shuffle(band)
        columns.append([(task, False) for task in band] + [(task, True) for task in band[:1] if not full])
    return [tuple(zip(*row, strict=True)) for row in zip(*columns, strict=True)]  # type: ignore[misc]


def _level(place: int, task: Task) -> tuple[bool, float]:
    return (True, place) if task.difficulty is None else (False, task.difficulty)


# -- checking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong on a line, from 1; `note` marks what could not be checked, on line 0, which is no fault."""

    line: int
    message: str
    note: bool = False


Numbered = tuple[int, TaskSequence]


def check(
    source: str | Path | Sequence[TaskSequence],
    *,
    against: Sequence[str | Path] = (),
    env: str | None = None,
    exists: bool = True,
) -> list[Fault]:
    """All faults of a sequence file, in the order of its lines; none means that it can be trained or evaluated on.

    Looks at: the format; duplicate ids; a task twice in one sequence, padded slots apart; falling difficulty; a set of
    tasks that an earlier line has; tasks that occur in the files `against` (a split leak); tasks that do not exist.

    Args:
        source: A file in either form, or sequences, which count as lines 1, 2, ...
        against: Files of other splits.
        env: As in `read`.
        exists: Make the environments and look for each task in their catalogues; a task that no catalogue lists is
            tried with `reset`. An environment that cannot be made here gives a note.

    Raises:
        InputError: If `source` is absent, or a file of `against` is absent or wrong.
    """
    lines = _lines(Path(source), env) if isinstance(source, str | Path) else enumerate(source, start=1)
    faults, good = [], []
    for line, item in lines:
        if isinstance(item, InputError):
            faults.append(Fault(line, str(item)))
        else:
            good.append((line, item))
    if not faults and not good:
        faults.append(Fault(1, "the file holds no sequence: make one with `skillrise curriculum build`."))
    faults += [Fault(line, message) for line, sequence in good for message in _inside(sequence)]
    faults += [*_repeats(good), *_leaks(good, against, env)]
    if exists:
        for env_id in dict.fromkeys(task.env for _, sequence in good for task in sequence.tasks):
            faults += _missing(env_id, good)
    return sorted(faults, key=lambda fault: fault.line)


def _inside(sequence: TaskSequence) -> Iterator[str]:
    seen: dict[str, int] = {}
    for position, (task, padded) in enumerate(zip(sequence.tasks, sequence.padded, strict=True), start=1):
        if not padded and seen.setdefault(identity(task), position) != position:
            yield f"tasks {seen[identity(task)]} and {position} are the same: replace one or mark it padded."
    known = [(p, t.difficulty) for p, t in enumerate(sequence.tasks, start=1) if t.difficulty is not None]
    for (before, easy), (after, hard) in pairwise(known):
        if hard < easy:
            yield f"difficulty falls from {easy:g} (task {before}) to {hard:g} (task {after}): order the tasks by it."


def _repeats(good: list[Numbered]) -> Iterator[Fault]:
    ids: dict[str, int] = {}
    sets: dict[frozenset[str], int] = {}
    for line, sequence in good:
        if ids.setdefault(sequence.id, line) != line:
            yield Fault(line, _duplicate(sequence.id, ids[sequence.id]))
        tasks = frozenset(map(identity, sequence.tasks))
        if sets.setdefault(tasks, line) != line:
            yield Fault(line, f"the same tasks are also on line {sets[tasks]}: remove one of the sequences.")


def _leaks(good: list[Numbered], against: Sequence[str | Path], env: str | None) -> Iterator[Fault]:
    for path in against:
        held = {identity(task): other.id for other in read(path, env) for task in other.tasks}
        for line, sequence in good:
            for position, task in enumerate(sequence.tasks, start=1):
                if other_id := held.get(identity(task)):
                    where = f"{path}, sequence {other_id!a}"
                    yield Fault(line, f"split leak: task {position} is also in {where}: remove one of them.")


def _missing(env_id: str, good: list[Numbered]) -> Iterator[Fault]:
    mine = [(n, p, t) for n, s in good for p, t in enumerate(s.tasks, start=1) if t.env == env_id]
    try:
        env = make(env_id)
    except InputError as err:
        yield Fault(0, f"whether its tasks exist was not checked: {err}", note=True)
        return
    try:
        listed = _listed(env, sorted({task.family for _, _, task in mine}))
        refused: dict[str, str | None] = dict.fromkeys(listed)
        for line, position, task in mine:
            name = identity(task)
            if name not in refused:
                refused[name] = _refusal(env, task)
            if reason := refused[name]:
                yield Fault(line, f"task {position} does not exist in {env_id}: {reason}")
    finally:
        env.close()


def _listed(env: TextEnv, families: list[str]) -> set[str]:
    listed = set()
    for split in SPLITS:
        try:
            listed |= {identity(task) for task in env.catalogue(split, families)}
        except InputError:
            continue  # no such split, family or catalogue: `reset` has the last word
    return listed


def _refusal(env: TextEnv, task: Task) -> str | None:
    try:
        env.reset(seed=0, options={"task": dict(task.spec)})
    except Exception as err:  # environments are others' code: whatever they raise, the task cannot be played
        return str(err) if isinstance(err, InputError) else ascii(err)
    return None


# -- looking at sequences ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FamilySummary:
    """A family's part of a file.

    Attributes:
        family: Its name.
        sequences: How many it has.
        lengths: The different K among them, rising.
        slots: Task slots in all, padded ones included.
        tasks: Different tasks.
        padded: Padded slots.
        difficulties: The known difficulty of each different task, rising.
    """

    family: str
    sequences: int
    lengths: tuple[int, ...]
    slots: int
    tasks: int
    padded: int
    difficulties: tuple[float, ...]


def summary(sequences: Sequence[TaskSequence]) -> list[FamilySummary]:
    """What `sequences` hold, by family, in order of first appearance."""
    families: dict[str, list[TaskSequence]] = {}
    for sequence in sequences:
        families.setdefault(sequence.family, []).append(sequence)
    out = []
    for family, members in families.items():
        different = {identity(task): task.difficulty for sequence in members for task in sequence.tasks}
        out.append(
            FamilySummary(
                family=family,
                sequences=len(members),
                lengths=tuple(sorted({len(s.tasks) for s in members})),
                slots=sum(len(s.tasks) for s in members),
                tasks=len(different),
                padded=sum(sum(s.padded) for s in members),
                difficulties=tuple(sorted(d for d in different.values() if d is not None)),
            )
        )
    return out


def histogram(values: Sequence[float], bins: int = 10) -> list[tuple[float, float, int]]:
    """At most `bins` equal bins over the range of `values`: lowest, highest, count.

    Whole numbers get whole bins, both ends inclusive; of other bins only the last includes its upper end.
    """
    if not values:
        return []
    low, high = min(values), max(values)
    step = int(all(value == int(value) for value in values))
    width = ceil((high - low + 1) / bins) if step else (high - low) / bins
    if not width:
        return [(low, high, len(values))]
    count = Counter(min(int((value - low) / width), bins - 1) for value in values)
    filled = max(count) + 1
    return [(low + i * width, low + (i + 1) * width - step, count[i]) for i in range(filled)]


# -- drawing for training ----------------------------------------------------------------------------------------------


class Sampler:
    """Draws training sequences, each once an epoch; its state is small, JSON, and resumes exactly.

    Args:
        sequences: What to draw from.
        seed: Of the shuffles.
        order: `shuffled` shuffles every epoch anew; `file` keeps the given order.

    Raises:
        InputError: If there is no sequence or the order is unknown.
    """

    def __init__(self, sequences: Sequence[TaskSequence], seed: int, order: Order = "shuffled") -> None:
        if not sequences:
            raise InputError("There is no sequence to draw from: name a file that holds some.")
        if order not in ("shuffled", "file"):
            raise InputError(f"Unknown curriculum order {order!r}: use 'shuffled' or 'file'.")
        self._sequences = tuple(sequences)
        self._key = {"seed": seed, "order": order, "sequences": _fingerprint(sequences)}
        self._drawn = 0

    def draw(self, n: int) -> list[TaskSequence]:
        """The next `n` sequences; a new epoch begins where one runs out, within a draw too."""
        epochs: dict[int, list[int]] = {}
        out = []
        for index in range(self._drawn, self._drawn + n):
            epoch, place = divmod(index, len(self._sequences))
            if epoch not in epochs:
                epochs[epoch] = self._permutation(epoch)
            out.append(self._sequences[epochs[epoch][place]])
        self._drawn += n
        return out

    def _permutation(self, epoch: int) -> list[int]:
        order = list(range(len(self._sequences)))
        if self._key["order"] == "shuffled":
            Random(f"{self._key['seed']}/{epoch}").shuffle(order)
        return order

    def state_dict(self) -> dict[str, Any]:
        """How far it is, and a fingerprint of what it draws from."""
        return {**self._key, "drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            InputError: If seed, order or sequences are not those of `state`.
        """
        changed = [key for key, value in self._key.items() if state.get(key) != value]
        drawn = state.get("drawn")
        if changed or not isinstance(drawn, int) or drawn < 0:
            what = " and ".join(changed) or "position"
            raise InputError(f"The curriculum's {what} differ from the checkpoint's: restore them or start a new run.")
        self._drawn = drawn


def _fingerprint(sequences: Sequence[TaskSequence]) -> str:
    digest = hashlib.sha256()
    for s in sequences:
        digest.update(canonical([s.id, [[t.env, dict(t.spec)] for t in s.tasks], list(s.padded)]).encode())
    return digest.hexdigest()[:16]
