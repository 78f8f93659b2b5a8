"""A line chart's geometry: markup is the template's business, colours are the style sheet's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from skillrise.report.values import mean

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A series: points (x, y, low, high), NaN where there is none; `css` names its colour."""

    name: str
    points: list[tuple[float, float, float, float]]
    css: str
    dashed: bool = False
    marks: bool = False


@dataclass(frozen=True)
class _Frame:
    """A box in view box units, and the ranges of data that fill it."""

    left: int
    right: int
    top: int
    base: int
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, x: float) -> float:
        low, high = self.x
        return round(self.left + (x - low) / (high - low) * (self.right - self.left), 1)

    def down(self, y: float) -> float:
        low, high = self.y
        return round(self.base - (y - low) / (high - low) * (self.base - self.top), 1)

    def path(self, points: list[Point]) -> str:
        """An SVG path, broken where a point is missing; a lone point becomes a dot."""
        places = [(self.across(x), self.down(y)) if math.isfinite(y) else None for x, y in _thin(points)]
        parts = []
        for before, place in pairwise([None, *places]):
            if place:
                parts.append(f"{'L' if before else 'M'}{place[0]} {place[1]}" + ("" if before else "h0"))
        return "".join(parts)

    def mark(self, x: float, y: float, low: float, high: float) -> dict[str, Any]:
        """A dot with its whisker."""
        bar = (self.down(low), self.down(high)) if math.isfinite(low + high) else None
        return {"cx": self.across(x), "cy": self.down(y), "bar": bar, "x": round(x), "y": y, "low": low, "high": high}


def draw(title: str, lines: list[Line], wide: bool, unit: bool, whole: bool = False) -> dict[str, Any]:
    """The geometry of a line chart: paths, whiskers, marks and ticks in view box units.

    Args:
        title: What is written above it.
        lines: The series.
        wide: Large, or one of a grid of small ones.
        unit: The heights are shares, and the axis spans at least 0 to 1.
        whole: The x axis counts positions rather than steps.
    """
    width, height, left, right, top, base = (640, 310, 52, 624, 14, 276) if wide else (360, 190, 52, 348, 12, 160)
    xs = [x for line in lines for x, y, *_ in line.points if math.isfinite(y)] or [0.0]
    ys = [y for line in lines for _, *heights in line.points for y in heights if math.isfinite(y)] or [0.0]
    x0, x1 = (min(xs) - 0.15, max(xs) + 0.15) if whole else (min(xs), max(xs))
    y0, y1 = (min(0.0, *ys), max(1.0, *ys)) if unit else _room(min(ys), max(ys))
    x1 = x1 if x1 > x0 else x0 + 1
    frame = _Frame(left, right, top, base, (x0, x1), (y0, y1))
    return {
        "title": title,
        "wide": wide,
        "whole": whole,
        "width": width,
        "height": height,
        "left": left,
        "right": right,
        "base": base,
        "series": [_series(line, frame) for line in lines],
        "x_ticks": [(frame.across(x), f"{x:.0f}") for x in _ticks(x0, x1, 6 if wide else 4, whole=True)],
        "y_ticks": [(frame.down(y), _tick(y)) for y in _ticks(y0, y1, 4)],
    }


def _series(line: Line, frame: _Frame) -> dict[str, Any]:
    raw = [(x, y) for x, y, *_ in line.points]
    strong = raw if line.marks or line.dashed else _smooth(raw)
    return {
        "name": line.name,
        "css": line.css,
        "dashed": line.dashed,
        "path": frame.path(strong),
        "faint": frame.path(raw) if strong != raw else "",
        "last": next((y for _, y in reversed(strong) if math.isfinite(y)), math.nan),
        "marks": [frame.mark(*point) for point in line.points if line.marks and math.isfinite(point[1])],
    }


def _room(low: float, high: float) -> tuple[float, float]:
    """A range with some air, which begins at zero where zero is near."""
    low = 0.0 if 0 <= low <= 0.5 * high else low
    air = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    return low - (air if low else 0.0), high + air


def _ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """Round numbers within the range, about `count` of them."""
    rough = (high - low) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _tick(value: float) -> str:
    return (f"{value / 1000:g}k" if abs(value) >= 1_000 else f"{value:.4g}").replace("-", "\N{MINUS SIGN}")


def _smooth(points: list[Point]) -> list[Point]:
    """A trailing mean over a twelfth of the points, NaN left out of it."""
    span = max(1, len(points) // 12)
    return [(x, mean(y for _, y in points[max(0, i - span + 1) : i + 1])) for i, (x, _) in enumerate(points)]


def _thin(points: list[Point], most: int = 400) -> list[Point]:
    """At most `most` of the points."""
    return points[:: max(1, math.ceil(len(points) / most))]
