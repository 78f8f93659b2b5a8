"""The verbs of the command line, and the one place where errors become exit codes.

0 done, 1 checked and found faulty or could not go on, 2 wrong input, 130 interrupted. Verbs import what they need when they run, so that
`skillrise --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skillrise.cli_compare import compare
from skillrise.cli_curriculum import RunFile, Set, curriculum, plain
from skillrise.cli_scale import export, scale

if TYPE_CHECKING:
    from skillrise.config import RunConfig

app = typer.Typer(
    name="skillrise",
    help="Train one policy that gets better from task to task: it solves, then rewrites its skill document.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its traces print local variables, tokens and keys among them
    rich_markup_mode="markdown",
)
app.add_typer(curriculum, name="curriculum")


def main() -> None:
    """The entry point: runs a verb and turns its errors into one line and an exit code."""
    from skillrise.errors import InputError, SkillRiseError

    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except SkillRiseError as err:
        print("error:", plain(str(err)), file=sys.stderr)
        sys.exit(2 if isinstance(err, InputError) else 1)
    except KeyboardInterrupt:
        print("interrupted; a run goes on from its newest checkpoint with --resume", file=sys.stderr)
        sys.exit(130)


def _terminated(*_: object) -> None:
    """SIGTERM ends a run as an exception does, so that engines and workers end with it."""
    from skillrise.errors import Terminated

    raise Terminated(128 + signal.SIGTERM)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("skillrise"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def train(
    run_file: RunFile,
    folder: Annotated[Path, typer.Argument(help="The run folder to write.")],
    set_: Set = None,
    resume: Annotated[bool, typer.Option(help="Go on from the folder's newest checkpoint.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything but the model's weights and say what the run takes.")
    ] = False,
) -> None:
    """Train a policy on sequences of tasks.

    Plays, credits and learns `steps` times. Everything is written to the run folder: the resolved configuration,
    metrics.jsonl, every trial as JSON, checkpoints. A run that was interrupted goes on with --resume. Several processes:
    `accelerate launch ... -m skillrise.cli train ...`; see docs/scaling.md.

    --dry-run reads the files, plays a few steps in each environment, counts the prompts' tokens, says how large the run is,
    writes nothing, and exits 1 if something would end the run.

    Example: `skillrise train examples/keydoor.toml runs/keydoor --set policy.source=runs/keydoor-warm`
    """
    from skillrise.config import load
    from skillrise.display import Live
    from skillrise.rundir import RunDir
    from skillrise.session import Silent
    from skillrise.train import train as run

    config = load(run_file, set_ or ())
    first = os.environ.get("RANK", "0") == "0"
    if dry_run:
        raise typer.Exit(_look_ahead(config, folder, resume) if first else 0)
    if resume and first:
        newest = RunDir(folder).latest()
        typer.echo(f"Going on from {newest}." if newest else f"{folder} has no checkpoint yet: from the start.")
    with Live(config.steps, folder.name) if first else nullcontext(Silent()) as watch:
        run(config, folder, resume=resume, watch=watch)
    if first:
        typer.echo(f"Done: {folder}. Look at it with `skillrise report {folder}`.")


def _look_ahead(config: RunConfig, folder: Path, resume: bool) -> int:
    """Print what a dry run finds; 1 if there is a fault."""
    from skillrise.dryrun import dry_run

    found, topic = [], ""
    for finding in dry_run(config, folder, resume):
        found.append(finding.kind)
        mark = "" if finding.kind == "fact" else f"{finding.kind}: "
        typer.echo(f"{finding.topic if finding.topic != topic else '':<12} {mark}{plain(finding.text)}")
        topic = finding.topic
    faults, warnings = found.count("fault"), found.count("warning")
    counts = (f"{n} {what}{'s' * (n != 1)}" for n, what in ((faults, "fault"), (warnings, "warning")))
    typer.echo(f"Dry run: {', '.join(counts)}; nothing was written.")
    return 1 if faults else 0


@app.command()
def warmup(
    run_file: RunFile,
    out: Annotated[Path, typer.Argument(help="The folder to write: a Hugging Face model, and how it was made.")],
    set_: Set = None,
) -> None:
    """Fine-tune the policy on demonstrations of the environment's expert, as a start for training.

    The tasks are those of the run file's training sequences. The result is a complete model folder.

    Example: `skillrise warmup examples/scienceworld.toml runs/warm`, then
    `skillrise train examples/scienceworld.toml runs/sw --set policy.source=runs/warm`
    """
    from skillrise.config import load
    from skillrise.display import Live
    from skillrise.warmup import warmup as run

    config = load(run_file, set_ or ())
    with Live(config.warmup.steps, out.name) as watch:
        run(config, out, watch)
    typer.echo(f"Done: {out}. Train from it with --set policy.source={out}.")


@app.command()
def evaluate(
    run_file: RunFile,
    sequences: Annotated[Path, typer.Argument(help="Held-out sequences.")],
    out: Annotated[Path, typer.Argument(help="The result to write (JSON); the trials go beside it (JSON Lines).")],
    set_: Set = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A run folder, or one of its checkpoints.")] = None,
    protocol: Annotated[str | None, typer.Option(help="cross: K tasks, each once. repeat: one task K times.")] = None,
    carry: Annotated[str | None, typer.Option(help="What passes between tasks: skill, reflect or none.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 is greedy.", min=0.0)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of tasks and sampling.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many sequences.", min=1)] = None,
    attempts: Annotated[int, typer.Option(help="Most attempts at a task under `repeat`.", min=1)] = 3,
    trials: Annotated[int, typer.Option(help="How often each sequence is played, for pass@k.", min=1)] = 1,
    document: Annotated[
        Path | None, typer.Option(help="Start from this skill document: a Markdown file, a SKILL.md or its folder.")
    ] = None,
) -> None:
    """Play held-out sequences without training and report success by position with 95 % intervals.

    Without --checkpoint it is the run file's policy as it comes. No position counts a padded slot or a failed trial. With
    --trials N each sequence is played N times: the result then holds pass@k (one of k trials solves a task) and pass^k (all do).

    Example: `skillrise evaluate examples/keydoor.toml test.jsonl result.json --checkpoint runs/keydoor --carry none`
    """
    from skillrise.config import load
    from skillrise.display import Live, evaluation_notes, rates_table
    from skillrise.evaluate import evaluate_file

    overrides = [*(set_ or ())]
    for key, value in (("play.protocol", protocol), ("play.carry", carry)):
        overrides += [f"{key}={value}"] if value is not None else []
    for key, number in (("temperature", temperature), ("seed", seed), ("sequences", limit)):
        overrides += [f"evaluation.{key}={number}"] if number is not None else []
    config = load(run_file, overrides)
    with Live(1, out.name) as watch:
        result = evaluate_file(config, sequences, out, checkpoint, attempts, document, watch, trials)
    rates_table([result])
    for note in evaluation_notes(result):
        typer.echo(note)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    trials: Annotated[int, typer.Option(help="At most so many trials are shown.", min=0)] = 40,
) -> None:
    """Write a run folder's report.html: curves, success by position, trials with their credit, the document's changes.

    Example: `skillrise report runs/keydoor`
    """
    from skillrise.report import write_report

    typer.echo(str(write_report(folder, trials)))


@app.command()
def doctor() -> None:
    """Say what is installed and which engines and environments work here, with the fix for what does not.

    Exits 1 if something that is needed does not work.

    Example: `skillrise doctor`
    """
    from skillrise.doctor import examine, print_checks

    checks = examine()
    print_checks(checks)
    if any(not (check.ok or check.optional) for check in checks):
        raise typer.Exit(1)


app.command()(compare)
app.command()(scale)
app.command()(export)


if __name__ == "__main__":
    main()
