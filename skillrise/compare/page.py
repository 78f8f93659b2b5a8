"""The experiment as one page, and all files that show its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from skillrise.compare.curves import Curve, training_curves
from skillrise.compare.experiment import Experiment
from skillrise.compare.figures import write_figures
from skillrise.compare.numbers import measure
from skillrise.compare.runner import Problem
from skillrise.compare.table import as_csv, grids, markdown, notes
from skillrise.files import write_text
from skillrise.report.page import jinja
from skillrise.report.plot import Line, draw
from skillrise.report.values import num, to_float

Json = Mapping[str, Any]


def write_comparison(experiment: Experiment, problems: Sequence[Problem] = ()) -> dict[str, Any]:
    """Write result.json, table.md, table.csv, the figures and comparison.html of what is there.

    Args:
        experiment: The experiment.
        problems: What could not be run.

    Returns:
        The numbers, as in result.json.

    Raises:
        SkillRiseError: If there is nothing to compare yet.
    """
    result = measure(experiment, problems)
    folder = experiment.folder
    curves = training_curves(experiment)
    write_text(folder / "result.json", json.dumps(result, indent=1) + "\n")
    write_text(folder / "table.md", markdown(result))
    write_text(folder / "table.csv", as_csv(result))
    write_figures(result, curves, folder / "figures")
    write_text(folder / "comparison.html", page(experiment, result, curves))
    return result


def page(experiment: Experiment, result: Json, curves: Mapping[str, Sequence[Curve]]) -> str:
    """The page's HTML."""
    return (
        jinja()
        .get_template("compare.html.j2")
        .render(
            name=result["experiment"],
            facts=_facts(result),
            problems=result["problems"],
            missing=result["missing"],
            sections=list(zip(map(_chart, result["evaluations"]), grids(result), strict=False)),
            curves=_training(result, curves),
            cost=list(grids(result))[-1][1][0],
            notes=notes(result),
            source=experiment.dump(),
        )
    )


def _facts(result: Json) -> list[tuple[str, str, str]]:
    """The headline: (what, figure, remark)."""
    first = result["evaluations"][0]
    facts = [("variants", str(len(result["variants"])), f"{len(result['seeds'])} training seeds")]
    rows = {row["variant"]: row for row in first["rows"]}
    reference = next(v["title"] for v in result["variants"] if v["name"] == result["reference"])
    if row := rows.get(result["reference"]):
        rate = row["pooled"]
        remark = f"95 % within {num(rate['low'])} to {num(rate['high'])}"
        facts.append((f"held-out success, {row['title']}, {first['name']}", num(rate["success"]), remark))
    others = [row for row in first["rows"] if row["difference"]]
    for row in others[:3]:
        gap = row["difference"]["pooled"]
        remark = f"95 % within {num(gap['low'], plus=True)} to {num(gap['high'], plus=True)}"
        facts.append((f"{row['title']} against {reference}", num(gap["difference"], plus=True), remark))
    return facts


def _chart(evaluation: Json) -> dict[str, Any]:
    """Success by position as the report draws it."""
    rows, lines = evaluation["rows"], []
    for at, row in enumerate(rows):
        shift = 0.03 * (at - (len(rows) - 1) / 2) if len(rows) < 8 else 0.0
        points = [
            (p + shift, to_float(rate["success"]), to_float(rate["low"]), to_float(rate["high"]))
            for p, rate in enumerate(row["positions"], 1)
        ]
        lines.append(Line(row["title"], points, f"c{(at + 1) % 8}", marks=True))
    if best := evaluation["optimum"]:
        points = [(float(p), to_float(y), math.nan, math.nan) for p, y in enumerate(best, 1)]
        lines.insert(0, Line("best possible", points, "ink", dashed=True))
    return draw("Success by position", lines, wide=True, unit=True, whole=True)


def _training(result: Json, curves: Mapping[str, Sequence[Curve]]) -> list[dict[str, Any]]:
    looks = {variant["name"]: (f"c{(at + 1) % 8}", variant["title"]) for at, variant in enumerate(result["variants"])}
    charts = []
    for key, some in curves.items():
        title = "All positions" if key == "success/all" else f"Position {key.removeprefix('success/p')}"
        lines = [Line(looks[c.variant][1], c.raw, looks[c.variant][0]) for c in some]
        charts.append(draw(title, lines, wide=False, unit=True))
    return charts
