"""The figures, each as PNG and SVG: success by position, training, cost.

Colours are those of Okabe and Ito, which people who see few colours can tell apart; markers differ too.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillrise.compare.curves import Curve
from skillrise.report.values import brief, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "skillrise",
    "text.parse_math": False,
}
Json = Mapping[str, Any]


def write_figures(result: Json, curves: Mapping[str, Sequence[Curve]], folder: Path) -> list[Path]:
    """Draw everything that there is.

    Args:
        result: The numbers.
        curves: Training curves by metric.
        folder: Where the files go.

    Returns:
        The PNG files; an SVG lies beside each.
    """
    import matplotlib

    names = [variant["name"] for variant in result["variants"]]
    looks = {name: at for at, name in enumerate(names)}
    titles = {variant["name"]: brief(visible(variant["title"]), 40) for variant in result["variants"]}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")  # a title may be in any script
        out = [
            _save(_success(evaluation, looks, titles), folder / f"success-{evaluation['name']}")
            for evaluation in result["evaluations"]
        ]
        if curves:
            out.append(_save(_training(curves, looks, titles), folder / "training"))
        if sum(variant["ratio"] is not None for variant in result["variants"]) > 1:
            out.append(_save(_cost(result, looks, titles), folder / "cost"))
    return out


def _success(evaluation: Json, looks: Mapping[str, int], titles: Mapping[str, str]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 4.5), layout="constrained")
    axes = figure.subplots()
    rows = evaluation["rows"]
    handles: list[tuple[Any, str]] = []
    if best := evaluation["optimum"]:
        handles.append((axes.plot(range(1, len(best) + 1), best, "--", color="0.4")[0], "best possible"))
    for at, row in enumerate(rows):
        shift = 0.05 * (at - (len(rows) - 1) / 2) if len(rows) < 8 else 0.0
        points = [(p, rate) for p, rate in enumerate(row["positions"], 1) if rate["success"] is not None]
        xs, ys = [p + shift for p, _ in points], [rate["success"] for _, rate in points]
        reach = [
            [rate["success"] - rate["low"] for _, rate in points],
            [rate["high"] - rate["success"] for _, rate in points],
        ]
        look = looks[row["variant"]]
        bars = axes.errorbar(xs, ys, yerr=reach, capsize=3, color=_colour(look), marker=MARKERS[look % len(MARKERS)])
        handles.append((bars, titles[row["variant"]]))
    axes.set(xlabel="position in the sequence", ylabel="success", ylim=(-0.02, 1.02))
    axes.set_xticks(range(1, max(len(row["positions"]) for row in rows) + 1))
    axes.set_title(f"{evaluation['name']}: 95 % intervals")
    _legend(figure, handles)
    return figure


def _training(curves: Mapping[str, Sequence[Curve]], looks: Mapping[str, int], titles: Mapping[str, str]) -> Figure:
    from matplotlib.figure import Figure

    columns = 2 if len(curves) == 4 else min(3, len(curves))
    lines = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(1.8 + max(5.0, 3.6 * columns), 3.2 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for panel in panels[len(curves) :]:
        panel.set_visible(False)
    handles: dict[str, Any] = {}
    for axes, (key, some) in zip(panels, curves.items(), strict=False):
        for each in some:
            steps, means, low, high = zip(*each.smooth, strict=True)
            colour = _colour(looks[each.variant])
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
            handles[each.variant] = axes.plot(steps, means, color=colour)[0]
        where = key.removeprefix("success/")
        axes.set(ylim=(-0.02, 1.02), title="all positions" if where == "all" else f"position {where[1:]}")
    _legend(figure, [(handles[name], titles[name]) for name in looks if name in handles])
    figure.supxlabel("update")
    figure.supylabel("success: mean, range of seeds")
    return figure


def _cost(result: Json, looks: Mapping[str, int], titles: Mapping[str, str]) -> Figure:
    from matplotlib.figure import Figure

    shown = [variant for variant in result["variants"] if variant["ratio"]]
    kinds = {"sampled": "tokens sampled", "prompt": "tokens read", "seconds": "time"}
    figure = Figure(figsize=(8.5, 1.2 + 0.3 * len(kinds) * len(shown)), layout="constrained")
    axes = figure.subplots()
    handles = []
    for at, variant in enumerate(shown):
        heights = [variant["ratio"][key] or 0.0 for key in kinds]
        places = [n + 0.8 * ((at + 0.5) / len(shown) - 0.5) for n in range(len(kinds))]
        bars = axes.barh(places, heights, 0.8 / len(shown), color=_colour(looks[variant["name"]]))
        handles.append((bars, titles[variant["name"]]))
    axes.set_yticks(range(len(kinds)), list(kinds.values()))
    axes.invert_yaxis()
    axes.set(xlabel="training, a task play, over the reference's")
    _legend(figure, handles)
    return figure


def _colour(look: int) -> str:
    return COLOURS[look % len(COLOURS)]


def _legend(figure: Figure, handles: Sequence[tuple[Any, str]]) -> None:
    """Names as they are: matplotlib leaves out those that begin with an underscore."""
    shown = [handle for handle, _ in handles]
    legend = figure.legend(shown, [str(n) for n in range(len(handles))], loc="outside right upper", fontsize=9)
    for text, (_, name) in zip(legend.get_texts(), handles, strict=True):
        text.set_text(name)


def _save(figure: Figure, stem: Path) -> Path:
    """Write `stem`.png and `stem`.svg, each whole or not at all."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
        partial = stem.with_name(f".{stem.name}.{kind}.{os.getpid()}.tmp")
        partial.write_bytes(buffer.getvalue())
        partial.replace(stem.with_name(f"{stem.name}.{kind}"))
    return stem.with_name(f"{stem.name}.png")
