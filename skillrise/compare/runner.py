"""What of an experiment is still to be run, and its running: one unit after the other, each under a lock.

Whatever was done before, by this or by hand, stays: a run whose newest checkpoint is at `steps`, a result that was made
with these settings from that checkpoint. A second process that is started on the same folder takes the units that nobody
works on, and waits for the others at the end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from filelock import FileLock, Timeout

from skillrise.compare.experiment import Evaluation, Experiment, Unit
from skillrise.compare.state import (
    as_begun,
    held_out,
    left,
    made_with,
    outdated,
    plays_an_update,
    require_same_warm,
)
from skillrise.config import dump
from skillrise.errors import InputError, SkillRiseError
from skillrise.files import write_text
from skillrise.rundir import RunDir
from skillrise.session import Silent, Watcher

Live = Callable[[int, str], AbstractContextManager[Watcher]]
"""Opens a display for so many steps of what has this name."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be run.

    Attributes:
        unit: Variant and seed, or the warm start.
        what: Why, in a sentence.
    """

    unit: str
    what: str


def run_experiment(
    experiment: Experiment,
    only: Sequence[str] = (),
    live: Live = lambda steps, name: nullcontext(Silent()),
    say: Callable[[str], None] = lambda text: None,
) -> list[Problem]:
    """Run what is not done yet.

    Args:
        experiment: What to run.
        only: Only these variants; by default all.
        live: Opens the display of each part.
        say: Told what is skipped and what is waited for.

    Returns:
        What could not be run; the rest was.

    Raises:
        InputError: If a variant is unknown, or an evaluation is not held out.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError(
            "compare trains in one process each: start it without accelerate launch, as often as you like."
        )
    units = chosen(experiment, only)
    experiment.require_held_out()
    write_text(experiment.folder / "experiment.toml", experiment.dump())
    problems = []
    if experiment.needs_warm(units):
        try:
            _warm(experiment, live)
        except SkillRiseError as err:
            problems.append(Problem("warm", str(err)))
            units = [unit for unit in units if not experiment.needs_warm([unit])]
    for unit in _in_turn(experiment, units, say):
        try:
            _run(unit, live)
        except SkillRiseError as err:
            problems.append(Problem(unit.name, str(err)))
            say(f"{unit.name}: {err}")
    return problems


def chosen(experiment: Experiment, only: Sequence[str]) -> list[Unit]:
    """The units of these variants; of all if there are none.

    Raises:
        InputError: If a variant is unknown.
    """
    known = experiment.table.variant
    for name in only:
        if name not in known:
            raise InputError(f"--only {name}: {experiment.path} has no such variant: take one of {', '.join(known)}.")
    return [unit for unit in experiment.units if not only or unit.variant in only]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the plan: a training or an evaluation that is still to be run.

    Attributes:
        name: Variant, seed and, of an evaluation, its name.
        why: What is left of it, or why it has to be played.
        plays: Most attempts at a task that it takes.
    """

    name: str
    why: str
    plays: int


def plan(experiment: Experiment, only: Sequence[str] = ()) -> list[Part]:
    """What `run_experiment` would run.

    Raises:
        InputError: If a variant is unknown, an evaluation is not held out, or a folder holds another run.
    """
    units = chosen(experiment, only)
    experiment.require_held_out()
    parts = []
    if experiment.warm is not None and experiment.needs_warm(units) and not require_same_warm(experiment):
        parts.append(Part("warm", f"{experiment.warm.warmup.steps} steps", experiment.warm.warmup.demonstrations))
    for unit in map(as_begun, units):
        updates = left(unit)
        if updates:
            parts.append(Part(unit.name, f"{updates} updates", round(updates * plays_an_update(unit.config))))
        for evaluation in unit.evaluations:
            if why := outdated(unit, evaluation) or ("its run is not done" if updates else None):
                slots = sum(len(sequence.tasks) for sequence in held_out(evaluation))
                parts.append(Part(f"{unit.name}/{evaluation.name}", why, slots * evaluation.trials))
    return parts


def _in_turn(experiment: Experiment, units: Sequence[Unit], say: Callable[[str], None]) -> Iterator[Unit]:
    """Each unit while its lock is held: first those that nobody holds, then the others."""
    others = []
    for unit in units:
        try:
            with _locked(experiment, unit.name, wait=False):
                yield unit
        except Timeout:
            others.append(unit)
    for unit in others:
        say(f"{unit.name}: another process is at it; waiting for what it leaves.")
        with _locked(experiment, unit.name, wait=True):
            yield unit


@contextmanager
def _locked(experiment: Experiment, name: str, wait: bool) -> Iterator[None]:
    folder = experiment.folder / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name.replace('/', '-')}.lock", timeout=-1 if wait else 0)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _warm(experiment: Experiment, live: Live) -> None:
    from skillrise.warmup import warmup

    assert experiment.warm is not None
    folder, config = experiment.warm_folder, experiment.warm
    with _locked(experiment, "warm", wait=True):
        if require_same_warm(experiment):
            return
        for stale in folder.parent.glob(f".{folder.name}.*.tmp"):  # a kill left it half written
            shutil.rmtree(stale, ignore_errors=True)
        with live(config.warmup.steps, "warm") as watch:
            warmup(config, folder, watch)


def _run(unit: Unit, live: Live) -> None:
    """Train a unit to its end and evaluate it, as far as that is not done."""
    unit = as_begun(unit)
    if unit.folder is not None and left(unit):
        from skillrise.train import train

        for evaluation in unit.evaluations:
            evaluation.out.unlink(missing_ok=True)  # of another training
        begun = RunDir(unit.folder).metrics.exists() or RunDir(unit.folder).latest() is not None
        with live(unit.config.steps, unit.name) as watch:
            train(unit.config, unit.folder, resume=begun, watch=watch)
    for evaluation in unit.evaluations:
        if outdated(unit, evaluation) is not None:
            _evaluate(unit, evaluation, live)


def _evaluate(unit: Unit, evaluation: Evaluation, live: Live) -> None:
    from skillrise.evaluate import evaluate_file

    evaluation.out.unlink(missing_ok=True)
    write_text(made_with(evaluation.out), dump(evaluation.config))
    with live(1, f"{unit.name}/{evaluation.name}") as watch:
        evaluate_file(
            evaluation.config,
            evaluation.sequences,
            evaluation.out,
            unit.folder,
            evaluation.attempts,
            None,
            watch,
            trials=evaluation.trials,
        )
