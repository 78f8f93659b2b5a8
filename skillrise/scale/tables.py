"""A scaling result as tables: for a person, for a paper, for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from skillrise.scale.plan import many

Result = Mapping[str, Any]
Rows = list[list[str]]

SPENT = ("tokens a task", "a solved task", "invalid solve/curate", "failed")
COLUMNS = ("K", "success", "last position", "gain", "optimum", "score", *SPENT)
TRIED = ("K", "success", "score", *SPENT)


def by_length(entries: Sequence[Result], columns: Sequence[str] = COLUMNS) -> Rows:
    """A row a K, the first row the head; `columns` are some of `COLUMNS`."""
    rows = [list(columns)]
    for entry in entries:
        cells = {
            "K": str(entry["k"]),
            "success": rate(entry),
            "last position": rate(entry["positions"][-1]),
            "gain": gain(entry["gain"]),
            "optimum": number(entry["optimum"]),
            "score": number(entry["score"]),
            "tokens a task": number(entry["tokens"]["a_task"], 0),
            "a solved task": number(entry["tokens"]["a_solved"], 0),
            "invalid solve/curate": "/".join(map(number, (entry["invalid"] or {}).values())) or "-",
            "failed": number(entry["failed"], 0),
        }
        rows.append([cells[name] for name in columns])
    return rows


def by_position(entries: Sequence[Result], what: str = "success") -> Rows:
    """A row a K and a column a position: `success`, `gain`, `optimum` or `chars`."""
    most = max(entry["k"] for entry in entries)
    rows = [["K", *(str(position + 1) for position in range(most))]]
    for entry in entries:
        cells = [_cell(row, what) for row in entry["positions"]]
        rows.append([str(entry["k"]), *cells, *[""] * (most - len(cells))])
    return rows


def sections(result: Result) -> list[tuple[str, Rows]]:
    """Each table with its title."""
    cross, repeat = result["cross"], result["repeat"]
    out = []
    if cross:
        out.append(("Sequences of K different tasks", by_length(cross)))
        out.append(("Success by position", by_position(cross)))
        out.append(("Gain over the same tasks at position 1", by_position(cross, "gain")))
        if any(row["optimum"] is not None for entry in cross for row in entry["positions"]):
            out.append(("Optimum by position", by_position(cross, "optimum")))
        out.append(("Characters of the document by position", by_position(cross, "chars")))
    if repeat:
        out.append(("The same task up to K times", by_length(repeat, TRIED)))
    return out


def caption(result: Result) -> str:
    """What was measured, and how to read it."""
    settings = result["settings"]
    source = f"{settings['model']}, " + (
        f"{settings['checkpoint']} at step {settings['step']}" if settings["checkpoint"] else "as it comes"
    )
    turned = "all rotations" if settings["rotations"] is None else f"at most {many(settings['rotations'], 'rotation')}"
    return (
        f"{source}; carry {settings['play']['carry']}; {many(settings['tasks'], 'task')} in {many(settings['blocks'], 'block')}, {turned}; "
        f"seed {settings['seed']}, temperature {settings['temperature']}. Brackets are 95 % intervals over blocks."
    )


def to_markdown(result: Result) -> str:
    """All tables as Markdown."""
    out = [f"# Test-time scaling: {_escaped(result['name'])}", _escaped(caption(result))]
    for title, (head, *rows) in sections(result):
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        out.append(f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(out) + "\n"


def to_csv(result: Result) -> str:
    """Every number by protocol, K and position; position `all` is over all of them."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    rate_keys, gain_keys = ("success", "low", "high", "n", "score"), ("difference", "low", "high", "p")
    token_keys = ("sampled", "read", "a_task", "a_solved")
    head = ("protocol", "k", "position", *rate_keys, *(f"gain_{key}" for key in gain_keys), "optimum", "chars")
    table.writerow([*head, *(f"tokens_{key}" for key in token_keys)])
    for protocol in ("cross", "repeat"):
        for entry in result[protocol]:
            for row in ({**entry, "position": "all"}, *entry["positions"]):
                cells = [row[key] for key in rate_keys] + [(row["gain"] or {}).get(key) for key in gain_keys]
                cells += [row["optimum"], row.get("chars")] + [(row["tokens"] or {}).get(key) for key in token_keys]
                table.writerow([protocol, entry["k"], row["position"], *("" if c is None else c for c in cells)])
    return file.getvalue()


def rate(row: Result) -> str:
    """`0.61 [0.55, 0.67]`, or `-`."""
    return "-" if row["success"] is None else f"{row['success']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def gain(found: Result | None) -> str:
    """`+0.25 [+0.11, +0.39]`, or `-`."""
    if found is None or found["difference"] is None:
        return "-"
    return f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits, or `-`."""
    return "-" if value is None else f"{value:.{digits}f}"


def _cell(row: Result, what: str) -> str:
    if what == "success":
        return rate(row)
    if what == "gain":
        return gain(row["gain"]) if row["position"] > 1 else ""
    return number(row[what], 0 if what == "chars" else 2)


def _escaped(text: str) -> str:
    """One line that Markdown reads as plain text."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return "".join(f"\\{c}" if c in "\\`*[]<>|" else c for c in line)
