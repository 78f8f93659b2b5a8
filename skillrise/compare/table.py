"""The numbers as text: tables of strings, which become Markdown, HTML and CSV.

A table says what its numbers are; whatever comes from the experiment's file is escaped where it is written.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skillrise.compare.numbers import COSTS
from skillrise.measures import HALF_WIDTH, over_positions
from skillrise.report.values import brief, duration, num, to_float, visible

NONE = "\N{EN DASH}"
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of strings.

    Attributes:
        title: What it shows.
        header: The columns' names.
        rows: A cell a column.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def success_grid(evaluation: Json) -> Grid:
    """Success by position and over all, and the differences to the reference."""
    rows, reach = evaluation["rows"], _reach(evaluation)
    header = ["variant", "seeds", *(f"position {p + 1}" for p in range(reach)), "all"]
    compared = any(row["difference"] for row in rows)
    header += ["difference, all", "p (Holm)", "difference, last", "p (Holm)"] if compared else []
    out = []
    for row in rows:
        cells = [row["title"], str(len(row["seeds"]))]
        cells += [_rate(row["positions"][p]) if p < len(row["positions"]) else NONE for p in range(reach)]
        cells.append(_rate(row["pooled"]))
        for where in ("pooled", "last") if compared else ():
            gap = row["difference"] and row["difference"][where]
            cells += [_gap(gap), f"{_p(gap['p'])} ({_p(gap['p_holm'])})"] if gap else [NONE, NONE]
        out.append(cells)
    if best := evaluation["optimum"]:
        known = [num(best[p]) if p < len(best) else NONE for p in range(reach)]
        whole = over_positions(best, [rate["n"] for rate in rows[0]["positions"]])
        out.append(["best possible", "", *known, num(whole), *([""] * 4 if compared else [])])
    return Grid("Success by position", header, out)


def detail_grid(evaluation: Json) -> Grid:
    """What else an evaluation says of each variant."""
    rows = evaluation["rows"]
    passes = list(dict.fromkeys(key for row in rows for key in row["pass"]))
    header = ["variant", "sequences", "score", *passes, "turns a task", "invalid: solve", "invalid: carry", "cut"]
    header += [
        "document, chars",
        "document changed",
        "failed",
        f"sequences for ±{HALF_WIDTH}",
        "for ± half the difference",
    ]
    out = []
    for row in rows:
        chars, change = row["document"]["chars"], row["document"]["change"]
        trials = f" \N{MULTIPLICATION SIGN} {row['trials']}" if row["trials"] > 1 else ""
        out.append(
            [
                row["title"],
                f"{row['sequences']}{trials}",
                num(row["pooled"]["score"]),
                *(num(row["pass"].get(key)) for key in passes),
                num(row["turns"], 1),
                _share(row["invalid"]["solve"]),
                _share(_mean([row["invalid"]["curate"], row["invalid"]["reflect"]])),
                _share(row["cut"]),
                num(chars[-1], 0) if chars else NONE,
                _share(_mean(change)),
                str(row["failed"]),
                _whole(row["needed"]["half_width"]),
                _whole(row["needed"]["half_difference"]),
            ]
        )
    return Grid("Behaviour", header, out)


def family_grid(evaluation: Json) -> Grid | None:
    """Success by family, a variant a column; None where no family has more than one sequence."""
    rows = evaluation["rows"]
    if all(
        rate["n"] <= len(row["seeds"]) * row["trials"] * len(row["positions"])
        for row in rows
        for rate in row["by_family"].values()
    ):
        return None
    families = list(dict.fromkeys(family for row in rows for family in row["by_family"]))
    header = ["family", *(row["title"] for row in rows)]
    return Grid(
        "Success by family",
        header,
        [
            [family, *(_rate(row["by_family"][family]) if family in row["by_family"] else NONE for row in rows)]
            for family in families
        ],
    )


def cost_grid(result: Json) -> Grid:
    """What training and evaluating cost, and how much a task play costs against the reference's."""
    header = ["variant", "of", "updates", "task plays", "tokens sampled", "tokens read", "time"]
    header += ["sampled, ratio", "read, ratio", "time, ratio"]
    out = []
    for variant in result["variants"]:
        if cost := variant["trained"]:
            out.append([variant["title"], "training", num(cost["updates"], 0), *_cost(cost, variant["ratio"])])
    for evaluation in result["evaluations"]:
        for row in evaluation["rows"]:
            out.append([row["title"], evaluation["name"], "", *_cost(row["cost"], row.get("ratio"))])
    return Grid("Cost", header, out)


def grids(result: Json) -> Iterator[tuple[str, list[Grid]]]:
    """All tables under their headings."""
    for evaluation in result["evaluations"]:
        tables = [success_grid(evaluation), detail_grid(evaluation), family_grid(evaluation)]
        name, protocol = evaluation["name"], evaluation["protocol"]
        yield name if name == protocol else f"{name} ({protocol})", [table for table in tables if table]
    yield "Cost", [cost_grid(result)]


def notes(result: Json) -> list[str]:
    """How to read the tables."""
    reference = next(v["title"] for v in result["variants"] if v["name"] == result["reference"])
    return [
        "Parentheses after a rate are 95 % intervals over held-out sequences and, where there are several, training seeds.",
        f"Differences are to {reference!r}, over all positions and at the last, paired by held-out sequence where both "
        "played the same ones. p tests that the two do equally well on other sequences, given these trained policies: it "
        "can be small where the interval, which is about other training seeds too, is wide. After it stands Holm's p over "
        "the variants of the evaluation.",
        "Under repeat, a position counts the tasks solved by then.",
        "Costs are means a seed; ratios compare the cost of a task play with the reference's. Tokens read are those that no "
        "earlier turn had.",
    ]


def markdown(result: Json) -> str:
    """All tables as Markdown."""
    parts = [f"# {_md(result['experiment'])}"]
    parts += [f"**{_md(p['unit'])} could not be run:** {_md(p['what'])}" for p in result["problems"]]
    if result["missing"]:
        parts.append("Not there yet: " + "; ".join(map(_md, result["missing"])) + ".")
    for heading, tables in grids(result):
        parts.append(f"## {_md(heading)}")
        for grid in tables:
            lines = [grid.header, ["---"] * len(grid.header), *grid.rows]
            body = "\n".join("| " + " | ".join(c if c == "---" else _md(c) for c in line) + " |" for line in lines)
            parts.append(f"{grid.title}:\n\n{body}" if len(tables) > 1 else body)
    parts.append("\n".join(f"- {_md(note)}" for note in notes(result)))
    return "\n\n".join(parts) + "\n"


def as_csv(result: Json) -> str:
    """A line for each evaluation, variant and position (0: all), with the differences where they are."""
    out = io.StringIO()
    columns = ["evaluation", "variant", "seeds", "position", "success", "low", "high", "n", "score", "optimum"]
    gaps = ["difference", "difference_low", "difference_high", "p", "p_holm", "paired"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, *gaps, *(f"evaluation_{key}" for key in COSTS), *(f"training_{key}" for key in COSTS)])
    trained = {variant["name"]: variant["trained"] or {} for variant in result["variants"]}
    for evaluation in result["evaluations"]:
        best = evaluation["optimum"] or []
        for row in evaluation["rows"]:
            between = {gap["position"]: gap for gap in (row["difference"] or {}).values()}
            for position, rate in enumerate([row["pooled"], *row["positions"]]):
                gap = between.get(position, {})
                optimum = best[position - 1] if 0 < position <= len(best) else None
                cells = [evaluation["name"], row["variant"], len(row["seeds"]), position]
                cells += [rate[key] for key in ("success", "low", "high", "n", "score")]
                cells += [optimum, *(gap.get(key) for key in ("difference", "low", "high", "p", "p_holm", "paired"))]
                cells += [row["cost"][key] if position == 0 else None for key in COSTS]
                cells += [trained[row["variant"]].get(key) if position == 0 else None for key in COSTS]
                writer.writerow(["" if cell is None else cell for cell in cells])
    return out.getvalue()


def _reach(evaluation: Json) -> int:
    return max(len(row["positions"]) for row in evaluation["rows"])


def _rate(rate: Json) -> str:
    return NONE if rate["success"] is None else f"{num(rate['success'])} ({num(rate['low'])}, {num(rate['high'])})"


def _gap(gap: Json) -> str:
    if gap["difference"] is None:
        return NONE
    apart = "" if gap["paired"] else ", unpaired"
    return f"{num(gap['difference'], plus=True)} ({num(gap['low'], plus=True)}, {num(gap['high'], plus=True)}){apart}"


def _p(p: float | None) -> str:
    return NONE if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"


def _share(value: object) -> str:
    share = to_float(value)
    return f"{share:.1%}" if share == share else NONE


def _whole(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else NONE


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _cost(cost: Json, ratio: Json | None) -> list[str]:
    seconds = cost["seconds"]
    cells = [num(cost[key], 0) for key in COSTS[:3]] + [NONE if seconds is None else duration(seconds)]
    return cells + [
        f"{num(ratio[key])} \N{MULTIPLICATION SIGN}" if ratio and ratio[key] is not None else NONE for key in COSTS[1:]
    ]


def _md(text: object) -> str:
    """Text on one line in which Markdown and HTML find nothing of theirs."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", brief(visible(str(text)), 1000))
