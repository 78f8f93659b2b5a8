"""Reading a run folder, of which anything may be missing, torn or of another shape."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillrise.report.values import is_number, to_float

MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What reading JSON of another shape than expected raises; such an item is passed over."""


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a JSON Lines file; a torn or damaged line is passed over."""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    item = json.loads(line)
                except MISSHAPEN:
                    continue
                if isinstance(item, dict):
                    yield item


def read_metrics(run_dir: Path) -> list[dict[str, float]]:
    """One row a step, in order; a step written again after a resume counts once."""
    rows: dict[float, dict[str, float]] = {}
    for item in objects(run_dir / "metrics.jsonl"):
        row = {key: to_float(value) for key, value in item.items() if is_number(value)}
        if math.isfinite(row.get("step", math.nan)):
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def read_evaluations(run_dir: Path) -> list[dict[str, Any]]:
    """The evaluations, oldest step first; `bars` holds (success, low, high, n) a position."""
    found = []
    for path in sorted((run_dir / "evaluations").glob("*.json")):
        try:
            item = json.loads(path.read_text("utf-8", "replace"))
            columns = zip(item["positions"], item["success"], item["low"], item["high"], item["n"], strict=True)
            item["bars"] = {int(p): (to_float(s), to_float(lo), to_float(hi), n) for p, s, lo, hi, n in columns}
            item["positions"] = sorted(item["bars"])
            item["label"] = str(item.get("label") or path.stem)
            optimum = dict(zip(item["positions"], map(to_float, item.get("optimum") or ()), strict=False))
            item["optimum"] = {p: y for p, y in optimum.items() if math.isfinite(y)}
            item["pooled"] = dict(item.get("pooled") or {})
        except MISSHAPEN:
            continue
        found.append(item)
    return sorted(found, key=lambda item: item["step"] if is_number(item.get("step")) else -1)


def run_name(config: str, run_dir: Path) -> str:
    """The name that the configuration (TOML) gives, else the folder's."""
    try:
        name = tomllib.loads(config).get("name")
    except tomllib.TOMLDecodeError:
        name = None
    return name if isinstance(name, str) and name else run_dir.resolve().name


def success_keys(metrics: list[dict[str, float]]) -> list[str]:
    """The metrics of success by position, by rising position."""
    keys = {key for row in metrics for key in row if key.startswith("success/")}
    return sorted(keys, key=lambda key: (len(key), key))
