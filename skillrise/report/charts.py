"""Which charts the page has, and the lines in each."""

from __future__ import annotations

import math
from typing import Any

from skillrise.report.load import success_keys
from skillrise.report.plot import Line, draw

_TOGETHER = {
    "success": "Success by position",
    "return": "Mean return by role",
    "advantage": "Advantages by role",
    "invalid": "Invalid and cut replies, share",
    "time": "Seconds a step",
    "tokens": "Tokens a step",
}
"""Groups of metrics that share a unit and so a chart; every other metric gets its own."""
_TITLES = {
    "lr": "Learning rate",
    "turns": "Solve turns a task",
    "plays": "Task plays",
    "time/sampled_per_s": "Tokens sampled a second",
    "credit/zero_share": "Share of turns with advantage 0",
    "credit/abs_advantage": "Mean size of an advantage",
    "credit/flat_groups": "Share of groups without contrast (all advantages 0)",
    "document/chars": "Characters of the document carried",
    "document/change": "Share of the document that a turn changed",
    "score": "Mean score",
    "loss/idle_rows": "Share of rows that were not trained (advantage 0)",
    "loss/sampler_gap": "Gap between sampler's and learner's log-probabilities",
    "loss/importance": "Importance weight, sampler to learner",
    "loss/importance_std": "Spread of the importance weight",
    "loss/importance_ess": "Effective sample share",
    "loss/kl_sampler": "KL divergence, sampler to learner",
    "loss/staleness": "Updates since the oldest row was sampled",
}
_ROLE_COLOURS = {"solve": "c1", "curate": "c2", "reflect": "c3", "cut": "c0"}


def training_charts(metrics: list[dict[str, float]]) -> list[dict[str, Any]]:
    """One chart a group of metrics, success first."""
    groups: dict[str, list[str]] = {group: [] for group in _TOGETHER} | {"success": success_keys(metrics)}
    for key in sorted({key for row in metrics for key in row} - {*groups["success"], "step"}):
        groups.setdefault(_head(key) if _head(key) in _TOGETHER else key, []).append(key)
    charts = []
    for group, keys in groups.items():
        lines = []
        for at, key in enumerate(keys):
            name = key.removeprefix(f"{group}/").replace("_", " ")
            css = _ROLE_COLOURS.get(name, f"c{(at + 1) % 8}")
            if group == "success":
                css, name = f"o{round(at * 7 / max(1, len(keys) - 1))}", name.replace("p", "position ", 1)
            points = [(row["step"], row.get(key, math.nan), math.nan, math.nan) for row in metrics]
            lines.append(Line(name if len(keys) > 1 else "", points, css))
        if lines:
            title = _TITLES.get(group) or _TOGETHER.get(
                group, group[:1].upper() + group[1:].replace("/", ": ").replace("_", " ")
            )
            charts.append(draw(title, lines, wide=group == "success", unit=group == "success"))
    return charts


def _head(key: str) -> str:
    if key == "time/sampled_per_s":
        return key
    return "invalid" if key == "cut" else key.split("/")[0]


def evaluation_chart(evaluations: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Success by position with intervals, one line an evaluation, and the optima dashed."""
    lines = []
    for at, item in enumerate(evaluations):
        shift = 0.03 * (at - (len(evaluations) - 1) / 2) if len(evaluations) < 8 else 0.0  # whiskers side by side
        points = [(p + shift, *item["bars"][p][:3]) for p in item["positions"]]
        lines.append(Line(item["label"], points, f"c{(at + 1) % 8}", marks=True))
    for optimum in optima(evaluations):
        points = [(p, y, math.nan, math.nan) for p, y in optimum.items()]
        lines.insert(0, Line("best possible", points, "ink", dashed=True))
    return draw("Success by position", lines, wide=True, unit=True, whole=True) if evaluations else None


def optima(evaluations: list[dict[str, Any]]) -> list[dict[int, float]]:
    """The known optima by position, each once."""
    return [dict(pairs) for pairs in dict.fromkeys(tuple(item["optimum"].items()) for item in evaluations) if pairs]
