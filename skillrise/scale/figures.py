"""A scaling result as figures, PNG and SVG: success by position, by K, and by tokens spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Result = Mapping[str, Any]
COLOURS = {"cross": "#1f6feb", "repeat": "#bf5b04"}
NAMES = {"cross": "K different tasks", "repeat": "the same task, K times"}


def write_figures(result: Result, folder: Path) -> list[Path]:
    """Write `success-by-position` (where sequences were played), `success-by-k` and `success-by-tokens` (where tokens are known)."""
    drawn = []
    if result["cross"]:
        drawn.append(_save(folder / "success-by-position", lambda axes: _positions(axes, result["cross"])))
    drawn.append(_save(folder / "success-by-k", lambda axes: _lengths(axes, result)))
    if any(entry["tokens"]["a_task"] for protocol in NAMES for entry in result[protocol]):
        drawn.append(_save(folder / "success-by-tokens", lambda axes: _tokens(axes, result)))
    return [path for paths in drawn for path in paths]


def _save(stem: Path, draw: Callable[[Axes], None]) -> list[Path]:
    """Draw one figure and write it as PNG and SVG, the same bytes for the same numbers."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "skillrise", "svg.fonttype": "path", "text.parse_math": False}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.set_ylabel("success")
        axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
        paths = []
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            path = stem.with_suffix(f".{kind}")
            partial = path.with_name(f".{path.name}.tmp")
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(partial, format=kind, dpi=160, metadata=metadata)
            paths.append(partial.replace(path))
    return paths


def _positions(axes: Axes, entries: Sequence[Result]) -> None:
    """A line a K over positions, a little apart, and the optimum of the longest."""
    import matplotlib

    shades = matplotlib.colormaps["viridis"]
    for at, entry in enumerate(entries):
        colour = shades(0.85 * (1 - at / max(1, len(entries) - 1)))
        rows = [{**row, "across": row["position"] + 0.05 * (at - (len(entries) - 1) / 2)} for row in entry["positions"]]
        _rates(axes, rows, f"K = {entry['k']}", colour)
    _best(axes, [(row["position"], row["optimum"]) for row in entries[-1]["positions"]])
    axes.set_xlabel("position in the sequence")
    axes.set_xticks([row["position"] for row in entries[-1]["positions"]])


def _lengths(axes: Axes, result: Result) -> None:
    """Success over K under each protocol."""
    ticks = set()
    for at, (protocol, name) in enumerate(NAMES.items()):
        rows = [{**entry, "across": entry["k"] * 1.02 ** (2 * at - 1)} for entry in result[protocol]]
        _rates(axes, rows, name, COLOURS[protocol])
        ticks |= {entry["k"] for entry in result[protocol]}
    _best(axes, [(entry["k"], entry["optimum"]) for entry in result["cross"]])
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [str(k) for k in sorted(ticks)])
    axes.set_xlabel("K")


def _tokens(axes: Axes, result: Result) -> None:
    """Success over what a task costs, each point with its K."""
    for protocol, name in NAMES.items():
        entries = [entry for entry in result[protocol] if entry["tokens"]["a_task"] and entry["success"] is not None]
        _rates(axes, [{**entry, "across": entry["tokens"]["a_task"]} for entry in entries], name, COLOURS[protocol])
        for entry in entries:
            place = (entry["tokens"]["a_task"], entry["success"])
            axes.annotate(f"K = {entry['k']}", place, (5, 5), textcoords="offset points", fontsize="x-small")
    axes.set_xlabel("tokens a task, sampled and newly read")


def _rates(axes: Axes, rows: Sequence[Result], name: str, colour: Any) -> None:
    """Rates at their place `across`, with their intervals."""
    there = [row for row in rows if row["success"] is not None]
    if there:
        rates = [row["success"] for row in there]
        below, above = ([abs(row["success"] - row[end]) for row in there] for end in ("low", "high"))
        line: dict[str, Any] = {"linewidth": 1.5, "elinewidth": 0.8, "capsize": 2, "marker": "o", "markersize": 4}
        axes.errorbar([row["across"] for row in there], rates, [below, above], label=name, color=colour, **line)


def _best(axes: Axes, points: Sequence[tuple[int, float | None]]) -> None:
    """The optimum, where it is known."""
    known = [(x, y) for x, y in points if y is not None]
    if known:
        axes.plot(*zip(*known, strict=True), color="#555", linestyle="--", linewidth=1, label="optimum", zorder=3)
