"""The numbers of an experiment, as JSON values: what `table`, `figures` and `page` show.

Success and its differences are taken over (seed, held-out sequence) as `skillrise.statistics` does; under `repeat` a
held-out sequence is one task. Other figures are means over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from skillrise.compare.experiment import Experiment, Unit
from skillrise.compare.runner import Problem
from skillrise.compare.state import as_begun, left, outdated, plays_an_update, read_result, sound
from skillrise.errors import InputError, SkillRiseError
from skillrise.files import without_nan
from skillrise.measures import HALF_WIDTH, ROLES, sample
from skillrise.report.load import read_metrics
from skillrise.report.values import is_number, mean, to_float
from skillrise.statistics import Sample, clusters_needed, difference, holm, interval

Result = Mapping[str, Any]

COSTS = ("plays", "sampled", "prompt", "seconds")


def measure(experiment: Experiment, problems: Sequence[Problem] = ()) -> dict[str, Any]:
    """All numbers of what is there.

    Args:
        experiment: The experiment; what is not there or was made otherwise is named under `missing`.
        problems: What could not be run.

    Raises:
        SkillRiseError: If nothing is there to compare.
    """
    missing: list[str] = []
    failed = {problem.unit: problem.what for problem in problems}
    found: dict[tuple[str, str], list[tuple[int, Result]]] = {}
    for unit in experiment.units:
        for evaluation, result in _results(unit, missing, failed):
            found.setdefault((evaluation, unit.variant), []).append((unit.seed, result))
    if not found:
        why = next((f"{unit}: {what}" for unit, what in failed.items()), "run the experiment without --report.")
        raise SkillRiseError(f"{experiment.folder}: no evaluation is there to compare: {why}")
    names = list(experiment.table.variant)
    training = {name: _training(experiment.of(name)) for name in names}
    numbers: dict[str, Any] = without_nan(
        {
            "experiment": experiment.path.stem,
            "reference": experiment.reference,
            "seeds": list(experiment.table.seeds),
            "variants": [
                {
                    "name": name,
                    "title": experiment.title(name),
                    "trained": training[name],
                    "ratio": _ratio(training[name], training[experiment.reference]),
                }
                for name in names
            ],
            "evaluations": [
                _evaluation(
                    experiment, e.name, {name: found[e.name, name] for name in names if (e.name, name) in found}
                )
                for e in experiment.table.evaluation
                if any((e.name, name) in found for name in names)
            ],
            "problems": [{"unit": unit, "what": what} for unit, what in failed.items()],
            "missing": missing,
        }
    )
    return numbers


def _results(unit: Unit, missing: list[str], failed: dict[str, str]) -> list[tuple[str, Result]]:
    """A unit's results that are valid; what is not there goes to `missing`, what is wrong to `failed`."""
    out: list[tuple[str, Result]] = []
    try:
        unit = as_begun(unit)
        if updates := left(unit):
            missing.append(f"{unit.name}: {updates} of {unit.config.steps} updates are left")
        for evaluation in unit.evaluations:
            if why := outdated(unit, evaluation):
                missing.append(f"{unit.name}/{evaluation.name}: {why}")
            elif result := read_result(evaluation.out):
                out.append((evaluation.name, result))
    except InputError as err:
        failed.setdefault(unit.name, str(err))
    return out


def ids(results: Sequence[Result]) -> list[str]:
    """The sequences that were played."""
    return list(dict.fromkeys(outcome["id"] for result in results for outcome in result["outcomes"]))


def stacked(results: Sequence[Result], order: Sequence[str], **which: Any) -> Sample:
    """Outcomes of several seeds as a sample [seeds, sequences].

    Args:
        results: One evaluation a seed.
        order: The sequences, in the order of the columns.
        **which: Which slots count, and what of them; see `skillrise.measures.sample`.
    """
    nothing: dict[str, Any] = {"families": [], "won": [], "score": []}
    found = []
    for result in results:
        played = {outcome["id"]: outcome for outcome in result["outcomes"]}
        found.append(sample([played.get(name, nothing) for name in order], **which))
    return Sample(np.concatenate([s.total for s in found]), np.concatenate([s.count for s in found]))


def _rate(results: Sequence[Result], **which: Any) -> dict[str, Any]:
    """Success with its interval, the mean score, and success by seed."""
    order = ids(results)
    won, scores = (stacked(results, order, what=what, **which) for what in ("won", "score"))
    by_seed = [Sample(t[None], c[None]).mean for t, c in zip(won.total, won.count, strict=True)]
    return {**asdict(interval(won)), "score": scores.mean, "by_seed": by_seed}


def _evaluation(experiment: Experiment, name: str, found: dict[str, list[tuple[int, Result]]]) -> dict[str, Any]:
    results = {variant: [result for _, result in seeded] for variant, seeded in found.items()}
    reference = results.get(experiment.reference)
    rows = []
    for variant, mine in results.items():
        compared = reference is not None and variant != experiment.reference
        gaps = _difference(mine, reference) if compared and reference is not None else None
        half = abs(gaps["pooled"]["difference"]) / 2 if gaps else math.nan
        whole = stacked(mine, ids(mine))
        rows.append(
            {
                "variant": variant,
                "title": experiment.title(variant),
                "seeds": [seed for seed, _ in found[variant]],
                "sequences": len(ids(mine)),
                "trials": mine[0]["trials"],
                "failed": sum(result["failed"] for result in mine),
                "positions": [_rate(mine, position=position) for position in range(_reach(mine))],
                "pooled": _rate(mine),
                "by_family": {family: _rate(mine, family=family) for family in _families(mine)},
                "difference": gaps,
                "needed": {
                    "half_width": clusters_needed(whole, HALF_WIDTH),
                    "half_difference": clusters_needed(whole, half) if half > 0 else None,
                },
                **_means(mine),
            }
        )
    _adjust(rows)
    costs = next((row["cost"] for row in rows if row["variant"] == experiment.reference), None)
    for row in rows:
        row["ratio"] = _ratio(row["cost"], costs)
    every = [result for mine in results.values() for result in mine]
    best = next((result["optimum"] for result in every if result.get("optimum")), None)
    return {"name": name, "protocol": every[0]["protocol"], "optimum": best, "rows": rows}


def _reach(results: Sequence[Result]) -> int:
    return max(len(result["positions"]) for result in results)


def _families(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(family for result in results for family in result["by_family"]))


def _difference(mine: Sequence[Result], reference: Sequence[Result]) -> dict[str, Any]:
    """To the reference, over all positions (0) and at the last that both have; paired where the sequences are the same."""
    paired = set(ids(mine)) == set(ids(reference))
    last = min(_reach(mine), _reach(reference)) - 1
    out = {}
    for name, position in (("pooled", None), ("last", last)):
        ours = stacked(mine, ids(mine), position=position)
        theirs = stacked(reference, ids(mine if paired else reference), position=position)
        found = asdict(difference(ours, theirs, paired=paired))
        out[name] = {**found, "p_holm": math.nan, "position": 0 if position is None else position + 1}
    return out


def _adjust(rows: Sequence[dict[str, Any]]) -> None:
    """Write Holm's p over the variants of an evaluation, for each of the two differences."""
    compared = [row["difference"] for row in rows if row["difference"]]
    for where in ("pooled", "last"):
        for item, p in zip(compared, holm([item[where]["p"] for item in compared]), strict=True):
            item[where]["p_holm"] = p


def _means(results: Sequence[Result]) -> dict[str, Any]:
    """Means over seeds of what evaluations say of themselves."""
    passes = list(dict.fromkeys(key for result in results for key in result.get("pass") or {}))
    return {
        "pass": {key: _over(results, "pass", key) for key in passes} if results[0]["trials"] > 1 else {},
        "turns": _over(results, "turns"),
        "invalid": {role: _over(results, "invalid", role) for role in ROLES},
        "cut": _over(results, "cut"),
        "document": {
            "chars": _column(results, "document", "chars"),
            "change": _column(results, "document", "change"),
        },
        "cost": {
            "plays": _over(results, "plays"),
            "sampled": _over(results, "tokens", "sampled"),
            "prompt": _over(results, "tokens", "prompt"),
            "seconds": _over(results, "seconds"),
        },
    }


def _at(result: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        result = result.get(key) if isinstance(result, Mapping) else None
    return result


def _over(results: Sequence[Result], *keys: str) -> float:
    """The mean over seeds of a number, or of all numbers of a list; nan where nobody says it."""
    values = [_at(result, keys) for result in results]
    return mean(mean(map(to_float, value)) if isinstance(value, list) else to_float(value) for value in values)


def _column(results: Sequence[Result], *keys: str) -> list[float]:
    """Means over seeds of a list, place by place."""
    lists = [value for result in results if isinstance(value := _at(result, keys), list)]
    return [mean(to_float(v[at]) for v in lists if at < len(v)) for at in range(max(map(len, lists), default=0))]


def _training(units: Sequence[Unit]) -> dict[str, Any] | None:
    """What the training of a variant cost, as means over the seeds that have begun; None if there is none."""
    runs = []
    for unit in units:
        metrics = read_metrics(unit.folder) if unit.folder is not None and sound(unit) else []
        if metrics:
            runs.append((unit, metrics))
    if not runs:
        return None

    def total(key: str) -> float:
        return mean(sum(row[key] for row in rows if is_number(row.get(key))) for _, rows in runs)

    return {
        "seeds": [unit.seed for unit, _ in runs],
        "updates": mean(len(rows) for _, rows in runs),
        "plays": mean(_plays(unit, rows) for unit, rows in runs),
        "sampled": total("tokens/sampled"),
        "prompt": total("tokens/prompt"),
        "seconds": total("time/step"),
    }


def _plays(unit: Unit, rows: Sequence[Mapping[str, float]]) -> float:
    """Task plays of a run; of updates of an older version, which did not count them, the most that there can be."""
    counted = [row["plays"] for row in rows if is_number(row.get("plays"))]
    if len(counted) == len(rows):
        return sum(counted)
    try:
        return sum(counted) + (len(rows) - len(counted)) * plays_an_update(unit.config)
    except InputError:  # the file is gone
        return math.nan


def _ratio(costs: Mapping[str, Any] | None, reference: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Costs a task play, over those of the reference."""
    if not costs or not reference:
        return None
    out = {}
    for key in COSTS[1:]:
        mine, theirs = (to_float(c[key]) / c["plays"] if c["plays"] else math.nan for c in (costs, reference))
        out[key] = mine / theirs if theirs else math.nan
    return out
