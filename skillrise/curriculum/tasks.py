"""Which task is which: what the environments' plugins know about tasks, whatever file they come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from skillrise.env import plugins
from skillrise.errors import InputError
from skillrise.types import Task


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


def claimed(specs: Sequence[Mapping[str, Any]]) -> str:
    """The environment of tasks that name none, by plugin modules that define `claims(spec) -> environment id or None`.

    Raises:
        InputError: If they are nobody's, or not all of one environment.
    """
    claims = {next((env for hook in _hooks("claims") if (env := hook(spec))), None) for spec in specs}
    env = claims.pop() if len(claims) == 1 else None
    if env is None:
        raise InputError("no installed environment claims all these tasks: name theirs with `--env`.")
    return str(env)
