"""Training curves over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from skillrise.compare.experiment import Experiment
from skillrise.compare.state import sound
from skillrise.report.load import read_metrics
from skillrise.report.values import mean

Rows = Sequence[dict[str, float]]
Point = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric against the update.

    Attributes:
        variant: Whose.
        raw: Update, mean over seeds, lowest and highest seed.
        smooth: The same of each seed's trailing mean over a twelfth of its updates.
    """

    variant: str
    raw: list[Point]
    smooth: list[Point]


def training_curves(experiment: Experiment) -> dict[str, list[Curve]]:
    """Curves of success over all positions and at each, by metric; only what some run has."""
    runs = {
        name: [
            rows
            for unit in experiment.of(name)
            if unit.folder is not None and sound(unit) and (rows := read_metrics(unit.folder))
        ]
        for name in experiment.table.variant
    }
    keys = {key for seeds in runs.values() for rows in seeds for row in rows for key in row if _shown(key)}
    return {
        key: [
            Curve(name, curve(seeds, key), curve(seeds, key, smooth=True))
            for name, seeds in runs.items()
            if any(key in row for rows in seeds for row in rows)
        ]
        for key in sorted(keys, key=lambda key: (key != "success/all", len(key), key))
    }


def curve(runs: Sequence[Rows], key: str, smooth: bool = False) -> list[Point]:
    """See `Curve`; at an update that only some seeds have reached, of those."""
    at: dict[float, list[float]] = {}
    for rows in runs:
        values = [row.get(key, math.nan) for row in rows]
        span = max(1, len(values) // 12) if smooth else 1
        for i, row in enumerate(rows):
            at.setdefault(row["step"], []).append(mean(values[max(0, i - span + 1) : i + 1]))
    out = []
    for step in sorted(at):
        there = [value for value in at[step] if math.isfinite(value)]
        out.append((step, mean(there), min(there, default=math.nan), max(there, default=math.nan)))
    return out


def _shown(key: str) -> bool:
    return key == "success/all" or (key.startswith("success/p") and key[9:].isdecimal())
