"""A run folder as one page: curves, evaluations, and trials to read turn by turn.

The page is self-contained: no script, nothing loaded from elsewhere, a content security policy that says so. Whatever
a model, an environment or a configuration wrote is data here: bounded in size, escaped by jinja2, never an attribute.

From top to bottom: the entry point, reading the folder, choosing trials, text and differences, numbers, charts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from skillrise.errors import InputError

MAX_FIELD = 6_000
"""Characters of one text that are shown."""
MAX_PAGE = 12_000_000
"""Characters of all trials together; trials that would exceed them are left out."""
MAX_STEPS = 5
"""Steps whose trials are shown, spread evenly from the first to the last."""


def write_report(run_dir: Path, max_trials: int = 40) -> Path:
    """Write `run_dir/report.html`, atomically.

    Args:
        run_dir: A folder that `skillrise train` or `evaluate` wrote; any of its files may be missing.
        max_trials: The most trials to show, spread over a few steps.

    Returns:
        The path of the page.

    Raises:
        InputError: If the folder holds nothing of a run.
    """
    if not any((run_dir / part).exists() for part in ("config.toml", "metrics.jsonl", "trials", "evaluations")):
        raise InputError(
            f"{run_dir} holds no run (config.toml, metrics.jsonl, trials/ or evaluations/): "
            "name the folder that `skillrise train` wrote."
        )
    config, metrics, evaluations = run_dir / "config.toml", _metrics(run_dir / "metrics.jsonl"), _evaluations(run_dir)
    text = config.read_text("utf-8", "replace") if config.is_file() else ""
    html = (
        _jinja()
        .get_template("report.html.j2")
        .render(
            name=_name(text, run_dir),
            facts=_facts(metrics, evaluations),
            evaluations=evaluations,
            positions=sorted({p for e in evaluations for p in e["positions"]}),
            optima=_optima(evaluations),
            evaluation_chart=_evaluation_chart(evaluations),
            charts=_training_charts(metrics),
            steps=_sample(run_dir, max_trials),
            config=text,
        )
    )
    path = run_dir / "report.html"
    partial = path.with_name(f".report.{os.getpid()}.tmp")
    try:
        partial.write_text(html, "utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _jinja() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else _visible(value),
    )
    env.filters.update(clip=_clip, brief=_brief, num=_num, csp_hash=_csp_hash)
    env.globals.update(difference=difference)
    return env


# --- reading the folder ---

_MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
"""What reading JSON of another shape than expected raises; such an item is passed over."""


def _objects(path: Path) -> Iterable[dict[str, Any]]:
    """The JSON objects of a JSON Lines file; a torn or damaged line is passed over."""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    item = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(item, dict):
                    yield item


def _metrics(path: Path) -> list[dict[str, float]]:
    """One row a step, in order; a step written again after a resume counts once."""
    rows: dict[float, dict[str, float]] = {}
    for item in _objects(path):
        row = {key: _float(value) for key, value in item.items() if _is_number(value)}
        if math.isfinite(row.get("step", math.nan)):
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def _evaluations(run_dir: Path) -> list[dict[str, Any]]:
    """The evaluations, oldest step first; `bars` holds (success, low, high, n) a position."""
    found = []
    for path in sorted((run_dir / "evaluations").glob("*.json")):
        try:
            item = json.loads(path.read_text("utf-8", "replace"))
            columns = zip(item["positions"], item["success"], item["low"], item["high"], item["n"], strict=True)
            item["bars"] = {int(p): (_float(s), _float(lo), _float(hi), n) for p, s, lo, hi, n in columns}
            item["positions"] = sorted(item["bars"])
            item["label"] = str(item.get("label") or path.stem)
            optimum = dict(zip(item["positions"], map(_float, item.get("optimum") or ()), strict=False))
            item["optimum"] = {p: y for p, y in optimum.items() if math.isfinite(y)}
            item["pooled"] = dict(item.get("pooled") or {})
        except (*_MISSHAPEN, RecursionError):
            continue
        found.append(item)
    return sorted(found, key=lambda item: item["step"] if _is_number(item.get("step")) else -1)


def _name(config: str, run_dir: Path) -> str:
    try:
        name = tomllib.loads(config).get("name")
    except tomllib.TOMLDecodeError:
        name = None
    return name if isinstance(name, str) and name else run_dir.resolve().name


# --- choosing trials ---


def _sample(run_dir: Path, max_trials: int) -> list[dict[str, Any]]:
    """Steps from the first to the last, each with its most telling trials, grouped by sequence."""
    files = sorted((run_dir / "trials").glob("step-*.jsonl"))
    files = _spread(files, min(MAX_STEPS, max_trials))
    steps, room = [], MAX_PAGE
    for path in files:
        groups: dict[str, list[dict[str, Any]]] = {}
        for item in _objects(path):
            try:
                trial = _trial(item)
            except _MISSHAPEN:
                continue
            groups.setdefault(trial["sequence"], []).append(trial)
        chosen = []
        for trial in _informative(list(groups.values()), max_trials // len(files)):
            if (weight := _weight(trial)) <= room:
                chosen.append(trial)
                room -= weight
        shown = {trial["sequence"]: None for trial in chosen}
        if shown:
            step = path.stem.removeprefix("step-").lstrip("0") or "0"
            views = [_group(groups[key], [t for t in chosen if t["sequence"] == key]) for key in shown]
            steps.append({"step": step, "groups": views, "total": sum(map(len, groups.values()))})
    return steps


def _informative(groups: list[list[dict[str, Any]]], count: int) -> list[dict[str, Any]]:
    """The best and the worst trial of the groups whose outcomes differ most, and one failed trial if there is any."""
    ranked = []
    failed = [trial for group in groups for trial in group if trial["error"]][:1]
    for group in groups:
        fine = sorted((t for t in group if not t["error"]), key=lambda t: t["wins"], reverse=True)
        if fine:
            ranked.append((fine[0]["wins"] - fine[-1]["wins"], fine))
    ranked.sort(key=lambda pair: -pair[0])
    pairs = [trial for _, fine in ranked for trial in (fine[0], fine[-1])[: len(fine)]]
    rest = [trial for _, fine in ranked for trial in fine[1:-1]]
    room = max(0, count - len(failed))
    return [*(pairs + rest)[:room], *failed][:count]


def _group(trials: list[dict[str, Any]], chosen: list[dict[str, Any]]) -> dict[str, Any]:
    fine = [trial for trial in trials if not trial["error"]]
    first = trials[0]
    slots = zip(*(trial["slots"] for trial in fine), strict=False)
    tally = [
        (sum(won is True for won, _ in slot), sum(won is not None for won, _ in slot), slot[0][1]) for slot in slots
    ]
    return {"id": first["sequence"], "family": first["family"], "size": len(trials), "tally": tally, "trials": chosen}


def _trial(raw: dict[str, Any]) -> dict[str, Any]:
    """A line of a trials file, checked and shaped for the page."""
    sequence, attempts = raw["sequence"], raw["attempts"]
    padded = [bool(flag) for flag in sequence.get("padded") or ()]
    padded += [False] * (len(sequence["tasks"]) - len(padded))
    documents = [str(attempt.get("document_in") or "") for attempt in attempts]
    tasks = []
    for at, attempt in enumerate(attempts):
        carry = _turn(attempt["carry"]) if attempt.get("carry") else None
        after = documents[at + 1] if at + 1 < len(documents) else carry and (carry["action"] or documents[at])
        view = {key: attempt.get(key) for key in ("task", "stop", "final", "score")}
        view |= {key: sequence["tasks"][at].get(key) for key in ("family", "difficulty")}
        view |= {"won": bool(attempt.get("won")), "padded": padded[at], "document": documents[at], "after": after}
        tasks.append(view | {"turns": [_turn(turn) for turn in attempt.get("turns") or ()], "carry": carry})
    won = [task["won"] for task in tasks] + [None] * (len(padded) - len(tasks))
    return {
        "number": int(raw.get("trial", 0)) + 1,
        "sequence": str(sequence.get("id", "")),
        "family": str(sequence.get("family", "")),
        "error": raw.get("error"),
        "tasks": tasks,
        "slots": list(zip(won, padded, strict=True)),
        "won": won,
        "wins": sum(bool(w) for w, pad in zip(won, padded, strict=True) if not pad),
    }


def _turn(raw: dict[str, Any]) -> dict[str, Any]:
    keys = ("reply", "observation", "action", "finish_reason", "prompt_tokens", "tokens", "logprob", "weight_version")
    turn = {key: raw.get(key) for key in keys}
    role = raw.get("role") if raw.get("role") in ("solve", "curate", "reflect") else "other"
    messages = [(str(m.get("role", "")), str(m.get("content", ""))) for m in raw.get("messages") or ()]
    advantage = _float(raw.get("advantage"))
    sign = "zero" if not abs(advantage) >= 0.005 else "gain" if advantage > 0 else "loss"
    turn |= {"role": role, "number": int(raw.get("index") or 0) + 1, "valid": bool(raw.get("valid"))}
    turn |= {"return": raw.get("return"), "advantage": advantage, "sign": sign, "strong": abs(advantage) >= 0.3}
    return turn | {"cut": raw.get("finish_reason") == "length", "messages": messages}


# --- text and differences ---


class Clipped(NamedTuple):
    """The beginning of a text, and how many characters were dropped and held."""

    shown: str
    dropped: int
    total: int


class Row(NamedTuple):
    """A line of a difference: `kind` is same, old or new; each part is (changed, text)."""

    kind: str
    parts: list[tuple[bool, str]]


def difference(old: str, new: str) -> list[Row]:
    """What changed from `old` to `new`, line by line and, within a changed line, word by word."""
    a, b = old[:MAX_FIELD].splitlines(), new[:MAX_FIELD].splitlines()
    rows: list[Row] = []
    for tag, a0, a1, b0, b1 in _changes(a, b):
        if tag == "equal":
            rows += [Row("same", [(False, line)]) for line in a[a0:a1]]
            continue
        pairs = [_word_difference(x, y) for x, y in zip(a[a0:a1], b[b0:b1], strict=False)]
        rows += [pair[0] for pair in pairs] + [Row("old", [(False, line)]) for line in a[a0 + len(pairs) : a1]]
        rows += [pair[1] for pair in pairs] + [Row("new", [(False, line)]) for line in b[b0 + len(pairs) : b1]]
    if max(len(old), len(new)) > MAX_FIELD:
        rows.append(Row("same", [(False, f"… cut: only the first {MAX_FIELD:,} characters are compared")]))
    return rows


def _word_difference(old: str, new: str) -> tuple[Row, Row]:
    a, b = old.split(" "), new.split(" ")
    changes = _changes(a, b)
    kept = sum(a1 - a0 for tag, a0, a1, _, _ in changes if tag == "equal")
    if 2 * kept < 0.4 * (len(a) + len(b)):  # hardly anything in common: marks would only be confetti
        return Row("old", [(False, old)]), Row("new", [(False, new)])
    before, after = Row("old", []), Row("new", [])
    for tag, a0, a1, b0, b1 in changes:
        for row, words in ((before, a[a0:a1]), (after, b[b0:b1])):
            if words:
                row.parts.extend([(tag != "equal", " ".join(words)), (False, " ")])
    return before, after


def _changes(a: list[str], b: list[str]) -> list[tuple[str, int, int, int, int]]:
    """The opcodes from `a` to `b`; difflib takes cubic time on repetitive input, so that counts as wholly replaced."""
    counts = Counter(b)
    if sum(counts[item] for item in a) > 20_000:
        return [("replace", 0, len(a), 0, len(b))]
    return [*SequenceMatcher(None, a, b, autojunk=False).get_opcodes()]


def _clip(value: object, limit: int = MAX_FIELD) -> Clipped:
    text = "" if value is None else str(value)
    return Clipped(text[:limit], max(0, len(text) - limit), len(text))


def _brief(value: object, limit: int = 160) -> str:
    """One line of at most `limit` characters."""
    text = " ".join(("" if value is None else str(value)[: 4 * limit]).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


# Control characters as their pictures, and lone surrogates, which UTF-8 cannot hold, as the replacement character.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


def _visible(text: str) -> str:
    return text.replace("\r\n", "\n").translate(_PICTURES)


def _weight(value: object) -> int:
    """About how many characters `value` takes on the page."""
    if isinstance(value, str):
        return min(len(value), MAX_FIELD)
    if isinstance(value, dict):
        return 100 + sum(map(_weight, value.values()))
    return sum(map(_weight, value)) if isinstance(value, list | tuple) else 4


def _csp_hash(css: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()


# --- numbers ---


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: object) -> float:
    """`value` if it is a number that can be drawn, else NaN."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e30 else math.nan


def _num(value: object, digits: int = 2, plus: bool = False) -> str:
    """A number for people, an en dash for what is none."""
    number = _float(value)
    if not math.isfinite(number):
        return "\N{EN DASH}"
    if abs(number) >= 1e6:
        text = f"{number / 1e6:.3g} M"
    elif abs(number) >= 1e4:
        text = f"{number / 1e3:.3g} k"
    elif 0 < abs(number) < 10.0**-digits / 2:
        text = f"{number:.2g}"
    else:
        text = f"{number:{'+' if plus and number else ''}.{0 if abs(number) >= 1000 else digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _success(metrics: list[dict[str, float]]) -> list[str]:
    keys = {key for row in metrics for key in row if key.startswith("success/")}
    return sorted(keys, key=lambda key: (len(key), key))


def _mean(values: Iterable[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _facts(metrics: list[dict[str, float]], evaluations: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The headline: (what, figure, remark)."""
    facts = []

    def total(key: str) -> float:
        return math.fsum(row[key] for row in metrics if math.isfinite(row.get(key, math.nan)))

    carried = [item for item in evaluations if item.get("carry") != "none"] or evaluations
    if carried:
        success, low, high = (_num(carried[-1]["pooled"].get(key)) for key in ("success", "low", "high"))
        facts.append((f"held-out success, {_brief(carried[-1]['label'], 40)}", success, f"95 % within {low} to {high}"))
    keys = _success(metrics)
    for key in dict.fromkeys([*keys[:1], *keys[-1:]]):
        span = min(5, len(metrics))
        begin, end = (_mean(row.get(key, math.nan) for row in part) for part in (metrics[:span], metrics[-span:]))
        where = key.removeprefix("success/p")
        facts.append((f"training success, position {where}", _num(end), f"from {_num(begin)}; means of {span} steps"))
    if metrics:
        failed = total("failed_trials")
        remark = f"failed trials: {_num(failed, 0)}" if failed else f"the last is {metrics[-1]['step']:.0f}"
        facts.append(("training steps", f"{len(metrics)}", remark))
    if total("tokens/trained"):
        facts.append(("tokens trained", _num(total("tokens/trained")), f"of {_num(total('tokens/sampled'))} sampled"))
    if total("time/step"):
        each = _num(total("time/step") / len(metrics), 1)
        facts.append(("training time", _duration(total("time/step")), f"{each} s a step"))
    return facts


def _spread(items: Sequence[Path], count: int) -> list[Path]:
    """At most `count` of the items, evenly, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(1, count - 1))] for i in range(count)]


# --- charts: geometry here, markup in the template, colours in its style sheet ---

_TOGETHER = {
    "success": "Success by position",
    "return": "Mean return by role",
    "invalid": "Invalid and cut replies, share",
    "time": "Seconds a step",
    "tokens": "Tokens a step",
}
"""Groups of metrics that share a unit and so a chart; every other metric gets its own."""
_ROLE_COLOURS = {"solve": "c1", "curate": "c2", "reflect": "c3", "cut": "c0"}


@dataclass(frozen=True)
class Line:
    """A series: points (x, y, low, high), NaN where there is none; `css` names its colour."""

    name: str
    points: list[tuple[float, float, float, float]]
    css: str
    dashed: bool = False
    marks: bool = False


def _training_charts(metrics: list[dict[str, float]]) -> list[dict[str, Any]]:
    """One chart a group of metrics, success first."""
    groups: dict[str, list[str]] = {group: [] for group in _TOGETHER} | {"success": _success(metrics)}
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
            title = _TOGETHER.get(group, group[:1].upper() + group[1:].replace("/", ": ").replace("_", " "))
            charts.append(_draw(title, lines, wide=group == "success", unit=group == "success"))
    return charts


def _head(key: str) -> str:
    return "invalid" if key == "cut" else key.split("/")[0]


def _evaluation_chart(evaluations: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Success by position with intervals, one line an evaluation, and the optima dashed."""
    lines = []
    for at, item in enumerate(evaluations):
        shift = 0.03 * (at - (len(evaluations) - 1) / 2) if len(evaluations) < 8 else 0.0  # whiskers side by side
        points = [(p + shift, *item["bars"][p][:3]) for p in item["positions"]]
        lines.append(Line(item["label"], points, f"c{at % 8}", marks=True))
    for optimum in _optima(evaluations):
        points = [(p, y, math.nan, math.nan) for p, y in optimum.items()]
        lines.insert(0, Line("best possible", points, "ink", dashed=True))
    return _draw("Success by position", lines, wide=True, unit=True, whole=True) if evaluations else None


def _optima(evaluations: list[dict[str, Any]]) -> list[dict[int, float]]:
    """The known optima by position, each once."""
    return [dict(pairs) for pairs in dict.fromkeys(tuple(item["optimum"].items()) for item in evaluations) if pairs]


def _draw(title: str, lines: list[Line], wide: bool, unit: bool, whole: bool = False) -> dict[str, Any]:
    """The geometry of a line chart: paths, whiskers, marks and ticks in view box units.

    Args:
        title: What is written above it.
        lines: The series.
        wide: Large, or one of a grid of small ones.
        unit: The heights are shares, and the axis spans at least 0 to 1.
        whole: The x axis counts positions rather than steps.
    """
    width, height, left, right, top, bottom = (640, 310, 52, 16, 14, 34) if wide else (360, 190, 52, 12, 12, 30)
    xs = [x for line in lines for x, y, *_ in line.points if math.isfinite(y)] or [0.0]
    ys = [y for line in lines for _, *heights in line.points for y in heights if math.isfinite(y)] or [0.0]
    x0, x1 = (min(xs) - 0.15, max(xs) + 0.15) if whole else (min(xs), max(xs))
    y0, y1 = (min(0.0, *ys), max(1.0, *ys)) if unit else _room(min(ys), max(ys))
    x1 = x1 if x1 > x0 else x0 + 1

    def across(x: float) -> float:
        return round(left + (x - x0) / (x1 - x0) * (width - left - right), 1)

    def down(y: float) -> float:
        return round(height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom), 1)

    def path(points: list[tuple[float, float]]) -> str:
        return _path([(across(x), down(y)) if math.isfinite(y) else None for x, y in _thin(points)])

    def mark(x: float, y: float, low: float, high: float) -> dict[str, Any]:
        bar = (down(low), down(high)) if math.isfinite(low + high) else None
        return {"cx": across(x), "cy": down(y), "bar": bar, "x": round(x), "y": y, "low": low, "high": high}

    series = []
    for line in lines:
        raw = [(x, y) for x, y, *_ in line.points]
        strong = raw if line.marks or line.dashed else _smooth(raw)
        view = {"name": line.name, "css": line.css, "dashed": line.dashed, "path": path(strong)}
        view["faint"] = path(raw) if strong != raw else ""
        view["last"] = next((y for _, y in reversed(strong) if math.isfinite(y)), math.nan)
        view["marks"] = [mark(*point) for point in line.points if line.marks and math.isfinite(point[1])]
        series.append(view)
    x_ticks = [(across(x), f"{x:.0f}") for x in _ticks(x0, x1, 6 if wide else 4, whole=True)]
    y_ticks = [(down(y), _tick(y)) for y in _ticks(y0, y1, 4)]
    box = {"width": width, "height": height, "left": left, "right": width - right, "base": height - bottom}
    about = {"title": title, "wide": wide, "whole": whole}
    return box | about | {"series": series, "x_ticks": x_ticks, "y_ticks": y_ticks}


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
    return (f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:.3g}").replace("-", "\N{MINUS SIGN}")


def _smooth(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A trailing mean over a twelfth of the points, NaN left out of it."""
    span = max(1, len(points) // 12)
    return [(x, _mean(y for _, y in points[max(0, i - span + 1) : i + 1])) for i, (x, _) in enumerate(points)]


def _thin(points: list[tuple[float, float]], most: int = 400) -> list[tuple[float, float]]:
    return points[:: math.ceil(len(points) / most) or 1] if len(points) > most else points


def _path(points: list[tuple[float, float] | None]) -> str:
    """An SVG path, broken where a point is missing; a lone point becomes a dot."""
    parts = []
    for before, point in pairwise([None, *points]):
        if point:
            parts.append(f"{'L' if before else 'M'}{point[0]} {point[1]}" + ("" if before else "h0"))
    return "".join(parts)
