"""The verbs `skillrise scale` and `skillrise export`, and what they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skillrise.cli_curriculum import RunFile, Set, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skillrise.scale.plan import Protocol

SHOWN = 40
"""Skills listed one by one; a file can hold thousands."""

Folder = Annotated[Path, typer.Argument(help="The folder to write, or to go on with.")]


def scale(
    run_file: RunFile,
    sequences: Annotated[Path, typer.Argument(help="Held-out sequences.")],
    folder: Folder,
    set_: Set = None,
    checkpoint: Annotated[Path | None, typer.Option(help="A run folder, or one of its checkpoints.")] = None,
    k: Annotated[
        str | None, typer.Option(help="Lengths, such as 1,2,4,8; by default powers of two up to the file's K.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="cross: K different tasks. repeat: each task up to K times. Or both.")
    ] = "cross",
    rotations: Annotated[
        int | None, typer.Option(help="At most so many rotations of K tasks; by default all K.", min=1)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many blocks of tasks; by default evaluation.sequences.", min=1)
    ] = None,
    carry: Annotated[str | None, typer.Option(help="What passes between tasks: skill, reflect or none.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 is greedy.", min=0.0)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of blocks, tasks and sampling.")] = None,
    document: Annotated[
        Path | None, typer.Option(help="Start from this skill document: a Markdown file, a SKILL.md or its folder.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be played, and stop.")] = False,
) -> None:
    """Play the same held-out tasks in sequences of 1, 2, 4, ... tasks: success by position and by K.

    Tasks are rotated so that each stands at every position equally often; so no position has the easier tasks, and the gain
    at a position is over the same tasks played first. Works with every engine, trained or not. Interrupted, the same
    command goes on: what is done of a length K is written once all of it is played.

    Example: `skillrise scale examples/keydoor.toml test.jsonl runs/scaling --checkpoint runs/keydoor --k 1,2,4 --protocol both`
    """
    from skillrise.config import load
    from skillrise.display import Live
    from skillrise.scale import make_plan
    from skillrise.scale import scale as run

    given = {"play.carry": carry, "evaluation.temperature": temperature, "evaluation.seed": seed}
    config = load(run_file, [*(set_ or ()), *(f"{key}={value}" for key, value in given.items() if value is not None)])
    plan = make_plan(config, sequences, _lengths(k), protocol=_protocol(protocol), rotations=rotations, limit=limit)
    for line in plan.lines():
        typer.echo(line)
    if dry_run:
        return
    with Live(1, folder.name) as watch:
        result = run(config, plan, folder, watch, checkpoint=checkpoint, document=document)
    _show(result)
    typer.echo(f"Done: {folder}. Tables and figures are there too.")


def export(
    source: Annotated[Path, typer.Argument(help="A trials file (JSON Lines), a run folder or a scaling folder.")],
    folder: Annotated[Path, typer.Argument(help="Where the skills go, each in a folder of its own.")],
    family: Annotated[list[str] | None, typer.Option(help="Only documents of this family; repeatable.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="One a sequence, the last that it wrote, instead of the best one a family.")
    ] = False,
) -> None:
    """Write skill documents as Agent Skills: FOLDER/NAME/SKILL.md, which other agents and --document can read.

    Of each family it takes the document whose readers did best: the highest lower end of the 95 % interval of the success of
    all attempts that started from it. Of a run it takes the newest trials. A document is a model's text: read it before
    an agent with tools does.

    Example: `skillrise export runs/keydoor/test.trials.jsonl skills`
    """
    from skillrise.export import export as run

    written = run(source, folder, families=family, every=every)
    for path, document in written[:SHOWN]:
        did = (
            f"{document.wins} of {document.readers} readers solved their task" if document.readers else "nobody read it"
        )
        typer.echo(f"{path}: {plain(document.family)}, {len(document.text)} characters, {did}")
    if len(written) > SHOWN:
        typer.echo(f"and {len(written) - SHOWN} more")


def _lengths(text: str | None) -> list[int] | None:
    from skillrise.errors import InputError

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as err:
        raise InputError(f"--k {text!r}: write lengths separated by commas, such as 1,2,4,8.") from err


def _protocol(text: str) -> Protocol:
    from skillrise.errors import InputError
    from skillrise.scale.plan import PROTOCOLS

    for protocol in PROTOCOLS:
        if text == protocol:
            return protocol
    raise InputError(f"--protocol {text!r}: use {', '.join(PROTOCOLS)}.")


def _show(result: Mapping[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from skillrise.scale.tables import caption, sections

    console = Console()
    for title, (head, *rows) in sections(result):
        table = Table(title=title, box=box.SIMPLE_HEAD)
        for name in head:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    console.print(Text(plain(caption(result))))
