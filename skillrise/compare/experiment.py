"""An experiment: what its file comes to, as the configuration of every run and every evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from skillrise.compare.schema import ExperimentTable, parse_experiment
from skillrise.config import RunConfig, parse, read_toml
from skillrise.curriculum import identity, read
from skillrise.errors import InputError
from skillrise.session import pick


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One policy's evaluation on one file.

    Attributes:
        name: The evaluation's name.
        config: The run's configuration with the evaluation's overrides.
        sequences: The sequence file.
        trials: How often each sequence is played.
        attempts: Most attempts at a task under `repeat`.
        out: Where the result goes.
    """

    name: str
    config: RunConfig
    sequences: Path
    trials: int
    attempts: int
    out: Path


@dataclass(frozen=True, slots=True)
class Unit:
    """One variant with one seed: what is run as one.

    Attributes:
        variant: The variant's name.
        seed: The training seed.
        config: The run's configuration.
        folder: The run folder; None where nothing is trained.
        evaluations: What follows.
    """

    variant: str
    seed: int
    config: RunConfig
    folder: Path | None
    evaluations: tuple[Evaluation, ...]

    @property
    def name(self) -> str:
        """Variant and seed, for people."""
        return f"{self.variant}/seed-{self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A checked experiment.

    Attributes:
        path: Its file.
        folder: Where everything is written.
        table: What the file says.
        warm: The configuration of the shared warm start, if there is one.
        units: What is run, seed by seed, so that a part of it already compares.
    """

    path: Path
    folder: Path
    table: ExperimentTable
    warm: RunConfig | None
    units: tuple[Unit, ...]

    @property
    def reference(self) -> str:
        """The variant that the others are compared with."""
        return self.table.reference or next(iter(self.table.variant))

    @property
    def warm_folder(self) -> Path:
        """Where the shared warm start lies."""
        return self.folder / "warm"

    def title(self, variant: str) -> str:
        """What tables call a variant."""
        return self.table.variant[variant].title or variant

    def of(self, variant: str) -> list[Unit]:
        """A variant's units, in the order of the seeds."""
        return [unit for unit in self.units if unit.variant == variant]

    def needs_warm(self, units: Sequence[Unit]) -> bool:
        """Whether any of `units` begins from the shared warm start."""
        return self.warm is not None and any(self.table.variant[unit.variant].warm for unit in units)

    def dump(self) -> str:
        """The resolved file as TOML."""
        table = self.table.model_copy(update={"reference": self.reference})
        return tomli_w.dumps(table.model_dump(mode="json", exclude_none=True))

    def require_held_out(self) -> None:
        """Read all sequence files and see that no evaluation holds a task that is trained on.

        Raises:
            InputError: If a file cannot be read, or one does.
        """
        trained = [unit.config for unit in self.units if unit.folder is not None]
        trained += [self.warm] if self.warm else []
        files = dict.fromkeys((config.curriculum.train, config.curriculum.env) for config in trained)
        tasks = {path: {identity(t) for s in read(path, env) for t in s.tasks} for path, env in files}
        played = dict.fromkeys(
            (e.sequences, e.config.curriculum.env, e.config.evaluation.sequences)
            for unit in self.units
            for e in unit.evaluations
        )
        for held_out, env, most in played:
            for sequence in pick(read(held_out, env), most):
                for train, seen in tasks.items():
                    if any(identity(task) in seen for task in sequence.tasks):
                        raise InputError(
                            f"{held_out}: sequence {sequence.id!r} holds a task that {train} trains on: rebuild one of "
                            "them, with --exclude of the other."
                        )


def read_experiment(path: Path, folder: Path) -> Experiment:
    """Read and check an experiment file.

    Args:
        path: The file.
        folder: Where the experiment is to be written; it need not exist.

    Raises:
        InputError: Naming the file and the key at fault.
    """
    table = parse_experiment(read_toml(path, "experiment file"), path)
    shared = read_toml(table.run, "run file")
    _put(shared, table.set, f"{path}: [set]")
    parse(shared, f"{table.run} with [set] of {path}")
    warm = None
    if table.warmup is not None:
        raw = deepcopy(shared)
        _put(raw, table.warmup.set, f"{path}: [warmup]")
        warm = parse(raw, f"{path}: [warmup]")
    units = tuple(_units(table, shared, path, folder))
    _check_units(units, warm, path)
    return Experiment(path, folder, table, warm, units)


def _units(table: ExperimentTable, shared: dict[str, Any], path: Path, folder: Path) -> Iterator[Unit]:
    for seed in table.seeds:
        for name, variant in table.variant.items():
            where = f"{path}: variant {name!r}"
            raw = deepcopy(shared)
            if table.warmup is not None and variant.warm:
                _put(raw, {"policy.source": str(folder / "warm")}, where)
            _put(raw, variant.set, where)
            raw["seed"] = seed
            config = parse(raw, where)
            trained = variant.train and config.steps > 0
            if not trained and seed != table.seeds[0]:
                continue
            evaluations = []
            for e in table.evaluation:
                if e.variants is not None and name not in e.variants:
                    continue
                own = deepcopy(raw)
                _put(own, e.set, f"{path}: evaluation {e.name!r}")
                out = folder / "evaluations" / e.name / name / f"seed-{seed}.json"
                how = parse(own, f"{path}: evaluation {e.name!r} of variant {name!r}")
                evaluations.append(Evaluation(e.name, how, e.sequences, e.trials, e.attempts, out))
            run = folder / "runs" / name / f"seed-{seed}" if trained else None
            yield Unit(name, seed, config, run, tuple(evaluations))


def _check_units(units: Sequence[Unit], warm: RunConfig | None, path: Path) -> None:
    trained = [unit for unit in units if unit.folder is not None]
    for unit in units:
        for e in unit.evaluations:
            if any(e.config.evaluation.seed == other.seed for other in trained):
                raise InputError(
                    f"{path}: evaluation {e.name!r} has the seed {e.config.evaluation.seed}, which is among the training "
                    "seeds: set another evaluation.seed."
                )
            first = next(o for u in units for o in u.evaluations if o.name == e.name)
            if e.config.evaluation.seed != first.config.evaluation.seed:
                raise InputError(
                    f"{path}: evaluation {e.name!r} has another evaluation.seed for variant {unit.variant!r} than for the "
                    "first, so that held-out sequences would not pair: leave it out there."
                )
        if unit.folder is None and unit.config.policy.source == "tiny":
            raise InputError(
                f"{path}: variant {unit.variant!r} is not trained, and policy.source = 'tiny' is a random model: let it begin "
                "from the shared warm start, or give it another policy.source."
            )
    learners = [unit.config.learner for unit in trained] + ([warm.learner] if warm else [])
    if len({learner.mixed_precision for learner in learners}) > 1:
        raise InputError(
            f"{path}: learner.mixed_precision cannot differ between variants and the warm start, which are trained in one "
            "process: make two experiments."
        )


def _put(table: dict[str, Any], overrides: Mapping[str, Any], where: str) -> None:
    """Write dotted keys into `table`; a value that is a table adds to the one that is there."""
    for key, value in overrides.items():
        parts = key.split(".")
        if not all(parts):
            raise InputError(f"{where}: key {key!r} cannot be read: write table.key.")
        here = table
        for part in parts[:-1]:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                raise InputError(f"{where}: key {key!r}: {part!r} is a value, not a table.")
        if isinstance(value, dict) and isinstance(here.get(parts[-1]), dict):
            _put(here[parts[-1]], value, where)
        else:
            here[parts[-1]] = deepcopy(value)
