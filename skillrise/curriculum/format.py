"""The file format: JSON Lines, one `TaskSequence` a line, in one of two forms.

    {"id": "boil-k3-0", "family": "boil", "env": "module:ns/Name-v0",
     "tasks": [{"spec": {...}, "difficulty": 5, "padded": false}, ...]}
    {"group_id": "boil_K3_0", "task_type": "boil", "K": 3,
     "tasks": [{"task_id": 0, "variation": 3, "padded": false}, ...]}

The first is ours. The second is the SkillRise authors': its tasks are flat and name no environment, so the plugins are
asked for it (`tasks.claimed`). All keys of such a task but `padded` and `difficulty` are its spec; its difficulty is
`difficulty`, else `plan_len`, else unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import from_json

from skillrise.curriculum.tasks import canonical, claimed
from skillrise.errors import InputError
from skillrise.files import write_text
from skillrise.types import Task, TaskSequence

Difficulty = Annotated[int | float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)] | None
Text = Annotated[str, Field(min_length=1)]

EMPTY = "the file holds no sequence: make one with `skillrise curriculum build`."


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
        env = env or claimed(specs)
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
    for line, sequence in numbered(Path(path), env):
        if isinstance(sequence, InputError):
            raise InputError(f"{path}:{line}: {sequence}") from sequence
        if ids.setdefault(sequence.id, line) != line:
            raise InputError(f"{path}:{line}: {repeated(sequence.id, ids[sequence.id])}")
        out.append(sequence)
    if not out:
        raise InputError(f"{path}:1: {EMPTY}")
    return out


def write(path: str | Path, sequences: Iterable[TaskSequence]) -> None:
    """Write `sequences` in our form; the file appears whole or not at all.

    Raises:
        InputError: If a sequence has no such form (several environments, a spec that is not JSON, an id given twice) or
            the file cannot be written.
    """
    lines, ids = [], set()
    for sequence in sequences:
        if sequence.id in ids:
            raise InputError(f"Two sequences have the id {sequence.id!r}: give each its own.")
        ids.add(sequence.id)
        lines.append(_dump(sequence) + "\n")
    try:
        write_text(Path(path), "".join(lines))
    except OSError as err:
        raise InputError(f"{path} cannot be written ({err.strerror}): choose another place.") from err


def _dump(sequence: TaskSequence) -> str:
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
        line = json.dumps(data, ensure_ascii=False, allow_nan=False)
        line.encode()  # raises for a lone surrogate, which pydantic lets pass
        return line
    except ValidationError as err:
        raise InputError(f"Sequence {sequence.id!r} cannot be written: {_first_fault(err)}") from err
    except (ValueError, TypeError, RecursionError) as err:
        raise InputError(f"Sequence {sequence.id!r} cannot be written: {err}.") from err


def numbered(path: Path, env: str | None) -> Iterator[tuple[int, TaskSequence | InputError]]:
    """Each line's number, from 1, with its sequence or what is wrong with it."""
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except (OSError, ValueError) as err:
        raise InputError(
            f"{path} cannot be read ({getattr(err, 'strerror', err)}): check the path, or make it with `skillrise curriculum build`."
        ) from err
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


def repeated(name: str, line: int) -> str:
    """What is said of a sequence whose id stands on an earlier `line` too."""
    return f"the id {name!a} is also on line {line}: give each sequence its own."
