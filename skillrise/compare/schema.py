"""The experiment file's tables; unknown keys and names are errors.

Overrides (`set`) are dotted keys with TOML values; a table among them adds to what the run file says. They apply in this
order: the run file, `[set]`, the shared warm start, the variant's `set`, the seed, and for an evaluation its own `set`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from skillrise.config import Positive, Seed, Table
from skillrise.errors import InputError

VariantName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class WarmTable(Table):
    """One warm start for all variants."""

    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides on top of the run file and `[set]`."""


class EvaluationTable(Table):
    """Held-out sequences that the variants are compared on."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    """Its name, and the folder of its results."""
    sequences: Path
    """The sequence file."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides while evaluating; they win over the variant's."""
    trials: Positive = 1
    """How often each sequence is played."""
    attempts: Positive = 3
    """Most attempts at a task under `play.protocol = "repeat"`."""
    variants: tuple[str, ...] | None = None
    """Only these; by default all."""


class VariantTable(Table):
    """One way to train, or to prompt."""

    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides that make it what it is."""
    train: bool = True
    """Train it; otherwise its policy is evaluated as it comes, once."""
    warm: bool = True
    """Begin from the shared warm start, if there is one."""
    title: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    """Its name in tables; by default its key."""


class ExperimentTable(Table):
    """The whole file."""

    run: Path
    """The run file that all variants share; its paths are seen from the working folder."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    """Each variant is trained once with each."""
    reference: str | None = None
    """The variant that the others are compared with; by default the first."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides for all variants."""
    warmup: WarmTable | None = None
    """Make one warm start that the variants share."""
    evaluation: Annotated[tuple[EvaluationTable, ...], Field(min_length=1)]
    """What the variants are compared on."""
    variant: Annotated[dict[VariantName, VariantTable], Field(min_length=1)]
    """The variants, in the order of the tables."""


def parse_experiment(raw: dict[str, Any], path: Path) -> ExperimentTable:
    """Validate a table that came from `path`.

    Raises:
        InputError: Naming the first key or name at fault.
    """
    table = _validated(raw, path)
    _check_names(table, path)
    return table


def _validated(raw: dict[str, Any], path: Path) -> ExperimentTable:
    try:
        return ExperimentTable.model_validate(raw)
    except ValidationError as err:
        first = err.errors()[0]
        where = [part for part in first["loc"] if part != "[key]"]
        key = ".".join(str(part) for part in where)
        if first["type"] == "extra_forbidden":
            tables: dict[str, type[Table]] = {
                "warmup": WarmTable,
                "evaluation": EvaluationTable,
                "variant": VariantTable,
            }
            known = ", ".join((tables[str(where[0])] if len(where) > 1 else ExperimentTable).model_fields)
            raise InputError(f"{path}: unknown key {key!r}; known here: {known}.") from err
        if first["type"] == "missing":
            what = (
                "; this may be a run file, which an experiment file names"
                if key in ("run", "evaluation", "variant")
                else ""
            )
            raise InputError(f"{path}: key {key!r} is missing: add it{what}.") from err
        raise InputError(f"{path}: key {key!r}: {first['msg']}, not {str(first['input'])[:80]!r}.") from err


def _check_names(table: ExperimentTable, path: Path) -> None:
    known = ", ".join(table.variant)
    named = [("reference", table.reference)] if table.reference else []
    named += [(f"evaluation {e.name!r}", name) for e in table.evaluation for name in e.variants or ()]
    for where, name in named:
        if name not in table.variant:
            raise InputError(f"{path}: {where} names the variant {name!r}, which is not there: take one of {known}.")
    for what, values in (("seed", table.seeds), ("evaluation", [e.name for e in table.evaluation])):
        if twice := [value for n, value in enumerate(values) if value in values[:n]]:
            raise InputError(f"{path}: the {what} {twice[0]!r} is given twice: drop one.")
    if alike := [name for name in table.variant if sum(n.lower() == name.lower() for n in table.variant) > 1]:
        raise InputError(f"{path}: variants {alike[0]!r} and {alike[1]!r} differ only in case: rename one.")
