"""What a person sees while a run goes on, and the tables at its end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Column, Table
from rich.text import Text

from skillrise.measures import over_positions

ROWS = 12
"""Updates shown at a time."""
PACE = 5.0
"""Seconds between lines on updates where there is no terminal to draw on."""
QUIET = 30.0
"""Seconds between progress lines where there is no terminal to draw on."""


class Live:
    """A live table of the last updates and one line on what is going on; plain lines where output is no terminal.

    Columns: success by position (`won p`), mean return by role (`G`), the share of replies that did not parse by role
    (`invalid`) and that were cut at their token limit (`cut`), sampled tokens a second, seconds.

    Args:
        steps: Updates in all.
        name: The run's name.
        console: Where to draw.
    """

    def __init__(self, steps: int, name: str, console: Console | None = None) -> None:
        self.steps, self.name = steps, name
        self.console = console or Console(stderr=True)
        self.rows: deque[dict[str, float]] = deque(maxlen=ROWS)
        self.doing, self.done, self.total = "start", 0, 0
        self.began = self.said = time.monotonic()
        self.first: tuple[float, float] | None = None
        self.live = RichLive(get_renderable=self._draw, console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Live:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()
            self.console.print(self._table())

    def phase(self, name: str) -> None:
        """See `skillrise.session.Watcher.phase`."""
        self.doing, self.done, self.total = name, 0, 0
        self._say()

    def progress(self, done: int, total: int) -> None:
        """See `skillrise.session.Watcher.progress`."""
        self.done, self.total = done, total
        self._say()

    def step(self, metrics: dict[str, float]) -> None:
        """See `skillrise.session.Watcher.step`."""
        self.rows.append(metrics)
        self.first = self.first or (time.monotonic(), metrics["step"])
        quiet = time.monotonic() - self.said < PACE and 1 < metrics["step"] < self.steps
        if not self.console.is_terminal and not quiet:
            cells = ", ".join(f"{name} {value}" for name, value in _cells(metrics).items())
            self.console.print(f"{self.name}: {cells}, {self._left()}", highlight=False, markup=False, soft_wrap=True)
            self.said = time.monotonic()

    def _say(self) -> None:
        """Without a terminal, a line every half minute, so that a long phase is not mistaken for a hang."""
        if not self.console.is_terminal and time.monotonic() - self.said > QUIET:
            self.said = time.monotonic()
            self.console.print(f"{self.name}: {self._status()}", highlight=False, markup=False, soft_wrap=True)

    def _status(self) -> str:
        count = f" {self.done}/{self.total}" if self.total else ""
        return f"{self.doing}{count}, {_clock(time.monotonic() - self.began)} so far, {self._left()}"

    def _left(self) -> str:
        if self.first is None or not self.rows or self.rows[-1]["step"] <= self.first[1]:
            return "time left unknown"
        pace = (time.monotonic() - self.first[0]) / (self.rows[-1]["step"] - self.first[1])
        return f"{_clock(pace * (self.steps - self.rows[-1]['step']))} left"

    def _draw(self) -> Group:
        return Group(self._table(), Text(f"{self.name}: {self._status()}"))

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        rows = [_cells(metrics) for metrics in self.rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        for name in names:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*(row.get(name, "") for name in names))
        return table


def _cells(metrics: Mapping[str, float]) -> dict[str, str]:
    """The numbers worth a column."""
    out = {"step": f"{metrics['step']:.0f}"}
    shown = {"return/solve": "G solve", "return/curate": "G curate", "return/reflect": "G reflect", "loss/nll": "nll"}
    out |= {f"won {k[9:]}": f"{v:.2f}" for k, v in metrics.items() if k.startswith("success/p")}
    out |= {name: f"{metrics[key]:.2f}" for key, name in shown.items() if key in metrics}
    invalid = [metrics[k] for k in ("invalid/solve", "invalid/curate", "invalid/reflect") if k in metrics]
    if invalid:
        out |= {"invalid": "/".join(f"{v:.0%}" for v in invalid), "cut": f"{metrics['cut']:.0%}"}
    if metrics.get("failed_trials"):
        out["failed"] = f"{metrics['failed_trials']:.0f}"
    if "time/sampled_per_s" in metrics:
        out |= {"tok/s": f"{metrics['time/sampled_per_s']:.0f}", "s": f"{metrics['time/step']:.1f}"}
    if "evaluation/all" in metrics:
        out |= {"held out": f"{metrics['evaluation/all']:.2f}"}
    return out


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def rates_table(results: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print success by position of some evaluations, with 95 % intervals, and the optimum where it is known."""
    failed = sum(result["failed"] for result in results)
    caption = "success by position, 95 % intervals" + (f"; {failed} trials failed" if failed else "")
    positions = [str(position) for position in max((result["positions"] for result in results), key=len)]
    columns: list[list[str]] = [["position", *positions, "all"]]
    for result in results:
        cells = [_rate(*cell) for cell in zip(result["success"], result["low"], result["high"], strict=True)]
        cells += [""] * (len(positions) - len(cells))
        pooled = result["pooled"]
        columns.append([str(result["label"]), *cells, _rate(pooled["success"], pooled["low"], pooled["high"])])
    known = next((result for result in results if result.get("optimum")), None)
    if known:
        best, whole = known["optimum"], over_positions(known["optimum"], known["n"])
        cells = ["-" if rate is None else f"{rate:.2f}" for rate in (*best, whole)]
        columns.append(["optimum", *cells[:-1], *[""] * (len(positions) - len(best)), cells[-1]])
    names, *rows = zip(*columns, strict=True)
    table = Table(*(Column(Text(name), justify="right") for name in names), box=box.SIMPLE_HEAD, caption=caption)
    for row in rows:
        table.add_row(*map(Text, row))
    (console or Console()).print(table)


def evaluation_notes(result: Mapping[str, Any]) -> list[str]:
    """What the table leaves out of an evaluation, one line each: replies and tokens, several trials, the precision."""
    replies = [f"{share:.1%} of {role} replies invalid" for role, share in result["invalid"].items()]
    replies += [f"{result['cut']:.1%} cut at their limit"] if result["cut"] is not None else []
    sampled, read = (result["tokens"][kind] for kind in ("sampled", "prompt"))
    lines = [", ".join([*replies, f"{sampled:,} tokens sampled, {read:,} prompt tokens read"])]
    n = result["trials"]
    if n > 1:
        sizes = sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k <= n} | {n})
        for sign, what in (("@", f"at least one of k trials solves the task (of {n} played)"), ("^", "all k solve it")):
            found = {k: result["pass"].get(f"pass{sign}{k}") for k in sizes}
            rates = ", ".join(f"k={k} {rate:.2f}" for k, rate in found.items() if rate is not None)
            lines += [f"pass{sign}k, {what}: {rates}"] if rates else []
    width, needed = result["needed"]["half_width"], result["needed"]["sequences"]
    lines.append(
        f"an interval of +-{width:g} around the rate over all takes about {needed:,} sequences like these "
        f"({result['sequences']:,} were played)"
    )
    return lines


def _rate(rate: float | None, low: float, high: float) -> str:
    return "-" if rate is None else f"{rate:.2f} [{low:.2f}, {high:.2f}]"
