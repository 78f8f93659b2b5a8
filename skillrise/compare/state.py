"""What of an experiment is done: runs at their last update, results that were made with these settings from there.

Who made them does not matter: a run that `skillrise train` wrote by hand counts, if its configuration is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from skillrise.compare.experiment import Evaluation, Experiment, Unit
from skillrise.config import RunConfig, load
from skillrise.curriculum import read
from skillrise.errors import InputError
from skillrise.evaluate import digest, repeated
from skillrise.rundir import FREE, RunDir, changes, read_state
from skillrise.session import pick
from skillrise.types import TaskSequence

WARM = ("seed", "policy", "curriculum", "play", "pool.options", "learner", "warmup")
"""What decides what a warm start is."""
PLAYED = ("policy", "play", "pool.options", "engine.kind", "engine.openai.model", "evaluation")
"""What decides what the evaluation of an untrained policy gives; of a trained one all does that decides what is learnt."""
SEEN = ("evaluation.every", "evaluation.sequences", "policy.source")
"""What is seen from the result itself, or makes no difference."""


def as_begun(unit: Unit) -> Unit:
    """The unit with its model's folder written as its run folder has it, where that is the same folder."""
    config = unit.folder / "config.toml" if unit.folder is not None else None
    if config is None or not config.exists():
        return unit
    source = load(config).policy.source
    if not _same_source(unit.config.policy.source, source):
        return unit

    def spelled(config: RunConfig) -> RunConfig:
        return config.model_copy(update={"policy": config.policy.model_copy(update={"source": source})})

    evaluations = tuple(replace(e, config=spelled(e.config)) for e in unit.evaluations)
    return replace(unit, config=spelled(unit.config), evaluations=evaluations)


def _same_source(a: str, b: str) -> bool:
    """Whether two values of `policy.source` are the same, or paths of the same folder."""
    return a == b or (Path(a).is_dir() and Path(b).is_dir() and Path(a).samefile(b))


def require_same_warm(experiment: Experiment) -> bool:
    """Whether the shared warm start is there.

    Raises:
        InputError: If it was made otherwise, or is gone though something began from it.
    """
    config = experiment.warm_folder / "config.toml"
    if experiment.warm is None:
        return False
    if not experiment.warm_folder.exists():
        if begun := next(_from_warm(experiment), None):
            raise InputError(
                f"{experiment.warm_folder}: the warm start is gone, and {begun} began from it: put it back, or delete what "
                "began from it too."
            )
        return False
    if wrong := _changed(config, experiment.warm, WARM):
        raise InputError(f"{config}: the warm start had another {wrong!r}: leave it as it was, or name another folder.")
    return True


def _from_warm(experiment: Experiment) -> Iterator[Path]:
    """The run folders and results that the shared warm start has led to."""
    for unit in experiment.units:
        if experiment.needs_warm([unit]):
            if unit.folder is not None and RunDir(unit.folder).metrics.exists():
                yield unit.folder
            yield from (e.out for e in unit.evaluations if e.out.exists())


def left(unit: Unit) -> int:
    """Updates that a unit has still to be trained for.

    Raises:
        InputError: If its folder holds another run, a longer one or a damaged one.
    """
    if unit.folder is None:
        return 0
    run = RunDir(unit.folder)
    newest = run.latest()
    if run.config.exists() and (newest is not None or run.metrics.exists()):
        run.require_same(unit.config)
    done = int(read_state(newest)["step"]) if newest is not None else 0
    if done > unit.config.steps:
        raise InputError(
            f"{unit.folder}: this run has {done} updates, and steps = {unit.config.steps}: raise it, or name another folder."
        )
    return unit.config.steps - done


def sound(unit: Unit) -> bool:
    """Whether its run folder holds nothing, or a part of its training."""
    try:
        left(as_begun(unit))
    except InputError:
        return False
    return True


def outdated(unit: Unit, evaluation: Evaluation) -> str | None:
    """Why an evaluation has to be played; None if its result is there and was made with these settings."""
    result = read_result(evaluation.out)
    if result is None:
        return "not there"
    if result.get("outcomes") is None:
        return "an older version wrote it"
    config = evaluation.config
    settings = {
        "step": unit.config.steps if unit.folder is not None else 0,
        "protocol": config.play.protocol,
        "carry": config.play.carry,
        "temperature": config.evaluation.temperature,
        "top_p": config.evaluation.top_p,
        "seed": config.evaluation.seed,
        "trials": evaluation.trials,
    }
    for name, value in settings.items():
        if result.get(name) != value:
            return f"made with another {name}"
    model = config.engine.openai.model if config.engine.kind == "openai" else config.policy.source
    if unit.folder is None and not _same_source(str(result.get("model")), str(model)):
        return "made with another model"
    what, but = (PLAYED, SEEN) if unit.folder is None else (tuple(RunConfig.model_fields), (*SEEN, *FREE))
    if wrong := _changed(made_with(evaluation.out), config, what, but):
        return f"made with another {wrong}"
    return _other_sequences(result, evaluation)


def _other_sequences(result: dict[str, Any], evaluation: Evaluation) -> str | None:
    """Whether a result is on other sequences or attempts; a file that is gone cannot tell."""
    if not evaluation.sequences.exists():
        return None
    if evaluation.config.play.protocol == "repeat" and len(result["positions"]) != evaluation.attempts:
        return "made with other attempts"
    sequences = held_out(evaluation)
    same = {sequence.id for sequence in sequences} == {outcome["id"] for outcome in result["outcomes"]}
    same = same and result.get("digest", digest(sequences)) == digest(sequences)  # an older version wrote none
    return None if same else "made on other sequences"


def read_result(path: Path) -> dict[str, Any] | None:
    """A result of `skillrise evaluate`; None if there is none.

    Raises:
        InputError: If the file holds something else.
    """
    try:
        result = json.loads(path.read_text("utf-8"))
        if not isinstance(result, dict) or "positions" not in result:
            raise ValueError("no result")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as err:
        raise InputError(f"{path}: not a result of `skillrise evaluate`: delete it, and it is played again.") from err
    return result


def made_with(out: Path) -> Path:
    """Where the configuration lies that a result was made with."""
    return out.with_suffix(".config.toml")


def _changed(path: Path, config: RunConfig, what: Sequence[str], but: Sequence[str] = ()) -> str | None:
    """The first of these keys and tables that the configuration in `path` has otherwise; None too if there is no file."""
    if not path.exists():
        return None

    def within(key: str, names: Sequence[str]) -> bool:
        return any(f"{key}.".startswith(f"{name}.") for name in names)

    return next((k for k in changes(load(path), config) if within(k, what) and not within(k, but)), None)


def plays_an_update(config: RunConfig) -> float:
    """Attempts at a task that an update is to take on average; under `repeat` the most that it can take."""
    sequences = read(config.curriculum.train, config.curriculum.env)
    length = sum(len(sequence.tasks) for sequence in sequences) / len(sequences)
    return config.rollout.sequences * config.rollout.trials * length


def held_out(evaluation: Evaluation) -> list[TaskSequence]:
    """The sequences that an evaluation plays."""
    config = evaluation.config
    sequences = pick(read(evaluation.sequences, config.curriculum.env), config.evaluation.sequences)
    return repeated(sequences, evaluation.attempts) if config.play.protocol == "repeat" else sequences
