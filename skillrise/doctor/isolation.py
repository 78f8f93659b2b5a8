"""Probes run so that nothing they meet can hurt the doctor.

Whatever imports or starts something foreign runs in a process of its own, as a broken library may crash or hang; what
is left of it is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from skillrise.errors import InputError, MissingExtra


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one probe.

    Attributes:
        name: What was looked at.
        ok: It works.
        detail: What was found, one line.
        fix: What to do about it; empty if it works.
        optional: SkillRise can do without it.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    optional: bool = False


def guarded(name: str, probe: Callable[[], str], fix: str = "", optional: bool = False) -> Check:
    """Run `probe`, which returns what it found or raises; a missing extra is optional and brings its own fix."""
    try:
        return Check(name, True, _line(probe()), "", optional)
    except MissingExtra as err:
        command = re.search("`(.+)`", str(err))
        return Check(name, False, _line(str(err).split(": run")[0]), command[1] if command else fix, True)
    except InputError as err:
        return Check(name, False, _line(err), fix, optional)
    except Exception as err:
        return Check(name, False, _line(f"{type(err).__name__}: {err}"), fix, optional)


def isolated(name: str, probe: str, arguments: Sequence[str], deadline: float, fix: str = "") -> Check:
    """Run the probe of that name (a function of `probes`) in another process, until `deadline` at most."""
    try:
        return _isolated(name, probe, arguments, deadline, fix)
    except OSError as err:
        return Check(name, False, _line(f"no process could be started ({err})"), "free memory and disk, and try again")


def _isolated(name: str, probe: str, arguments: Sequence[str], deadline: float, fix: str) -> Check:
    code = (
        f"import sys; from skillrise.doctor import isolation, probes; isolation._answer(probes.{probe}, sys.argv[1:])"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=here,
            start_new_session=True,
        )
        try:
            status = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return Check(name, False, "no answer in time", fix or "run it again when the machine is less busy")
        finally:
            _end(process)
        out.seek(0)
        said = out.read().decode("utf-8", "replace").strip().splitlines() or [""]
    try:
        check = Check(**json.loads(said[-1]))
    except (ValueError, TypeError):
        return Check(name, False, _line(f"its process died (status {status}) {said[-1]}"), fix or "reinstall it")
    return replace(check, name=name, fix="" if check.ok else check.fix or fix)


def _answer(probe: Callable[..., str], arguments: Sequence[str]) -> None:
    """What the other process does: one line of JSON, the last thing that it prints."""
    check = guarded("", lambda: probe(*arguments))
    sys.stdout.flush()
    print("\n" + json.dumps(asdict(check)), flush=True)
    os._exit(0)  # no clean-up of foreign libraries may add to the output


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _line(text: object, limit: int = 300) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
