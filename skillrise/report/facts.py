"""The headline: a few figures of a run."""

from __future__ import annotations

import math
from typing import Any

from skillrise.report.load import success_keys
from skillrise.report.values import brief, duration, mean, num


def headline(metrics: list[dict[str, float]], evaluations: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The headline: (what, figure, remark)."""
    facts = []

    def total(key: str) -> float:
        return math.fsum(row[key] for row in metrics if math.isfinite(row.get(key, math.nan)))

    carried = [item for item in evaluations if item.get("carry") != "none"] or evaluations
    if carried:
        latest = max(carried, key=lambda item: item.get("step") or 0)
        success, low, high = (num(latest["pooled"].get(key)) for key in ("success", "low", "high"))
        facts.append((f"held-out success, {brief(latest['label'], 40)}", success, f"95 % within {low} to {high}"))
    keys = success_keys(metrics)
    for key in dict.fromkeys([*keys[:1], *keys[-1:]]):
        span = min(5, len(metrics))
        begin, end = (mean(row.get(key, math.nan) for row in part) for part in (metrics[:span], metrics[-span:]))
        where = key.replace("success/p", "position ").replace("success/all", "all positions")
        facts.append((f"training success, {where}", num(end), f"from {num(begin)}; means of {span} steps"))
    if metrics:
        failed = total("failed_trials")
        remark = f"failed trials: {num(failed, 0)}" if failed else f"the last is {metrics[-1]['step']:.0f}"
        facts.append(("training steps", f"{len(metrics)}", remark))
    if total("tokens/trained"):
        facts.append(("tokens trained", num(total("tokens/trained")), f"of {num(total('tokens/sampled'))} sampled"))
    if total("time/step"):
        each = num(total("time/step") / len(metrics), 1)
        facts.append(("training time", duration(total("time/step")), f"{each} s a step"))
    return facts
