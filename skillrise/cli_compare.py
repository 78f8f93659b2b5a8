"""The verb `skillrise compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillrise.cli_curriculum import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from skillrise.compare.runner import Part


def compare(
    experiment_file: Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="The experiment file (TOML).")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; what is done there already stays.")],
    only: Annotated[list[str] | None, typer.Option(help="Run only this variant; repeatable.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; write the tables of what is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
) -> None:
    """Train and evaluate several variants with several seeds, and compare them.

    Writes result.json, table.md, table.csv, figures/ and comparison.html to the folder: means over seeds and held-out
    sequences with 95 % intervals, differences to the reference with p values, training curves, and costs. After a stop the
    same command goes on; started twice, two processes share the work. Exits 1 if some variant could not be run.

    Example: `skillrise compare examples/experiments/keydoor.toml runs/keydoor-comparison`
    """
    from skillrise.compare import read_experiment, run_experiment, write_comparison
    from skillrise.compare.runner import plan
    from skillrise.display import Live, rates_table

    experiment = read_experiment(experiment_file, folder)
    if dry_run:
        _show(plan(experiment, only or ()))
        return
    problems = [] if report else run_experiment(experiment, only or (), Live, lambda text: typer.echo(plain(text)))
    result = write_comparison(experiment, problems)
    for evaluation in result["evaluations"]:
        rates_table([_rates(row, evaluation) for row in evaluation["rows"]])
    for problem in result["problems"]:
        typer.echo(f"{plain(problem['unit'])}: {plain(problem['what'])}", err=True)
    if result["missing"]:
        typer.echo(f"Not there yet: {len(result['missing'])} of the experiment's parts.")
    typer.echo(f"Done: {folder / 'comparison.html'}, with {folder / 'table.md'} and {folder / 'result.json'}.")
    if result["problems"]:
        raise typer.Exit(1)


def _show(parts: Sequence[Part]) -> None:
    for part in parts:
        typer.echo(f"{part.name}: {plain(part.why)}, {part.plays:,} task plays")
    typer.echo(f"{len(parts)} parts to run, at most {sum(part.plays for part in parts):,} task plays in all.")


def _rates(row: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the display takes an evaluation's result."""
    positions: list[Mapping[str, Any]] = row["positions"]
    return {
        "label": plain(f"{row['title']}, {evaluation['name']}"),
        "positions": list(range(1, len(positions) + 1)),
        **{key: [rate[key] for rate in positions] for key in ("success", "low", "high", "n")},
        "pooled": row["pooled"],
        "optimum": evaluation["optimum"],
        "failed": row["failed"],
    }
