"""What works on this machine, and the fix for what does not.

Whatever imports or starts something foreign runs in a process of its own, as a broken library may crash or hang; what
is left of it is killed. All probes share one time limit.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from skillrise.errors import InputError, MissingExtra

PACKAGE = "skillrise"
MIN_FREE = 2.0
"""Gigabytes of disk and of memory below which a run is likely to fail."""


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


def examine(seconds: float = 60.0) -> list[Check]:
    """Look at everything that a run needs; never raises.

    Args:
        seconds: A probe that has not answered by then has failed.
    """
    deadline = time.monotonic() + seconds
    first = [guarded("python", python), guarded("package", package)]
    with ThreadPoolExecutor(max_workers=min(4, (os.cpu_count() or 1) + 1)) as threads:
        jobs = [threads.submit(_requirement, line, deadline) for line in _requirements()]
        jobs += [threads.submit(isolated, "devices", "devices", (), deadline)]
        jobs += [
            threads.submit(isolated, f"engine {name}", "module", (f"skillrise.engine.{name}",), deadline)
            for name in ("scripted", "hf")
        ]
        found, environments = _registered(deadline)
        jobs += [threads.submit(isolated, f"environment {i}", "environment", (i,), deadline) for i in environments]
        checks = [*first, *(job.result() for job in jobs), *found]
    checks.append(guarded("engine vllm", vllm, optional=True))
    checks.append(guarded("cache folder", cache, "set SKILLRISE_CACHE to a folder that you may write to"))
    checks.append(guarded("SmolLM2", smollm2, 'nothing: it is made when `source = "smollm2"` is first used', True))
    checks.append(guarded("disk", disk, "free some, or set SKILLRISE_CACHE to a folder on a larger disk", True))
    checks.append(guarded("memory", memory, "close other programs, or take a smaller model or batch", True))
    return checks


def print_checks(checks: Iterable[Check]) -> None:
    """Print a table; whatever does not work has its fix below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for check in checks:
        mark, style = ("✓", "green") if check.ok else ("–", "yellow") if check.optional else ("✗", "bold red")  # noqa: RUF001
        detail = Text(check.detail)
        if not check.ok and check.fix:
            detail.append(f"\nfix: {check.fix}", "cyan")
        table.add_row(Text(mark, style), Text(check.name), detail)
    Console().print(table)


# --- running probes ---


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
    """Run the probe of that name (a function of this module) in another process, until `deadline` at most."""
    try:
        return _isolated(name, probe, arguments, deadline, fix)
    except OSError as err:
        return Check(name, False, _line(f"no process could be started ({err})"), "free memory and disk, and try again")


def _isolated(name: str, probe: str, arguments: Sequence[str], deadline: float, fix: str) -> Check:
    code = f"import sys; from skillrise import doctor; doctor._answer(doctor.{probe}, sys.argv[1:])"
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


# --- the probes: each returns what it found, or raises ---


def python() -> str:
    """The interpreter against the package's declared range."""
    running = ".".join(map(str, sys.version_info[:3]))
    try:
        wanted = importlib.metadata.metadata(PACKAGE)["Requires-Python"] or ""
    except importlib.metadata.PackageNotFoundError:
        wanted = ">=3.11"
    if not satisfies(running, wanted):
        raise InputError(f"Python {running} is not {wanted}: make a new environment with another Python.")
    return f"{running} ({sys.executable})"


def package() -> str:
    """Whether the package's own metadata can be read."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise InputError("skillrise is not installed: run `pip install -e .` in its folder.") from None


def _requirements() -> list[str]:
    try:
        lines = importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [line for line in lines if "extra ==" not in line]


def _requirement(line: str, deadline: float) -> Check:
    name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
    return isolated(name, "requirement", (line,), deadline, f"pip install '{line.split(';')[0].strip()}'")


def requirement(line: str) -> str:
    """Import what a requirement such as `torch>=2.9` names, and compare its version."""
    name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
    wanted = line[len(name) :].split(";")[0].strip().strip("()")
    found = importlib.metadata.version(name)
    if not satisfies(found, wanted):
        raise InputError(f"{name} {found} is not {wanted}.")
    importlib.import_module(name.replace("-", "_"))
    return found


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is within a range such as `>=1.2,<2`; only the numbers of a version count."""
    have = _numbers(version)
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        found = re.fullmatch(r"(>=|<=|==|!=|~=|>|<)\s*([\w.+!-]+?)(\.\*)?", part)
        if found is None:
            continue  # a form that we do not know forbids nothing
        sign, limit = found[1], _numbers(found[2])
        near = have[: len(limit)] if found[3] else have
        size = max(len(near), len(limit))
        a, b = (numbers + (0,) * (size - len(numbers)) for numbers in (near, limit))
        fits = {">=": a >= b, "<=": a <= b, "==": a == b, "!=": a != b, ">": a > b, "<": a < b}
        if not fits.get(sign, a >= b and have[: len(limit) - 1] == limit[:-1]):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def module(name: str) -> str:
    """Import a module."""
    importlib.import_module(name)
    return "can be imported"


def devices() -> str:
    """PyTorch's threads and accelerators."""
    torch = importlib.import_module("torch")
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    names = cuda + (["Apple GPU"] if torch.backends.mps.is_available() else [])
    return f"{', '.join(names) or 'no GPU'}; {torch.get_num_threads()} CPU threads"


def _registered(deadline: float) -> tuple[list[Check], list[str]]:
    """Ids of all environments; a plugin that cannot be imported is a finding."""
    check = isolated("environments", "environments", (), deadline, "reinstall the package that announces it")
    ids = check.detail.split(", ") if check.ok and check.detail else []
    if check.ok and not ids:
        check = replace(check, ok=False, detail="none is registered", fix="pip install -e . in skillrise's folder")
    return ([] if check.ok else [check]), ids


def environments() -> str:
    """Ids of all registered environments."""
    from skillrise.env import registered

    return ", ".join(registered())


def environment(env_id: str) -> str:
    """Make an environment and reset it on the first task of its catalogue."""
    from skillrise.env import SPLITS, make

    env = make(env_id)
    try:
        for split in SPLITS:
            try:
                task = next(iter(env.catalogue(split)), None)
            except MissingExtra:
                raise
            except InputError:
                continue
            if task is not None:
                text, _ = env.reset(seed=0, options={"task": dict(task.spec)})
                return f"plays {task.family}: {text[:60]!r}"
        return "can be made; it has no catalogue, so nothing was played"
    finally:
        env.close()


def vllm() -> str:
    """Whether vLLM is there; it is not imported, as that takes long and claims the GPU."""
    if importlib.util.find_spec("skillrise.engine.vllm") is None:
        raise InputError("this version of SkillRise has no vLLM engine; the hf engine does without.")
    if importlib.util.find_spec("vllm") is None:
        raise InputError("vLLM is not installed; the hf engine does without.")
    return importlib.metadata.version("vllm")


def cache() -> str:
    """Whether the cache folder can be written to."""
    from skillrise.cache import cache_dir

    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=cache_dir()):
        return f"{cache_dir()} is writable"


def smollm2() -> str:
    """Whether SmolLM2 is converted."""
    from skillrise.cache import cache_dir
    from skillrise.models.smollm2 import NAME

    if not (cache_dir() / "models" / NAME / "config.json").is_file():
        raise InputError(f"{NAME} has not been converted yet.")
    return f"{NAME} is in the cache"


def disk() -> str:
    """Free disk under the cache folder, in gigabytes."""
    from skillrise.cache import cache_dir

    folder = next(path for path in (cache_dir(), *cache_dir().absolute().parents, Path.cwd()) if path.exists())
    return _enough(shutil.disk_usage(folder).free / 1e9)


def memory() -> str:
    """Memory that is available, in gigabytes; what Linux says, else all there is."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return _enough(int(found[1]) / 1e6 if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)


def _enough(gigabytes: float) -> str:
    if gigabytes < MIN_FREE:
        raise InputError(f"only {gigabytes:.1f} GB free")
    return f"{gigabytes:.0f} GB free"
