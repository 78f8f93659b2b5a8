"""Which trials are worth reading, and their shape for the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillrise.report.load import MISSHAPEN, objects
from skillrise.report.values import MAX_FIELD, to_float

MAX_PAGE = 12_000_000
"""Characters of all trials together; trials that would exceed them are left out."""
MAX_STEPS = 5
"""Steps whose trials are shown, spread evenly from the first to the last."""

View = dict[str, Any]
"""What the template shows of a trial, a group or a turn."""


def sample(run_dir: Path, max_trials: int) -> list[View]:
    """Steps from the first to the last, each with its most telling trials, grouped by sequence."""
    files = _spread(sorted((run_dir / "trials").glob("step-*.jsonl")), min(MAX_STEPS, max_trials))
    steps, room = [], MAX_PAGE
    for path in files:
        groups = _groups(path)
        chosen: dict[str, list[View]] = {}
        for trial in _informative(list(groups.values()), max_trials // len(files)):
            if (weight := _weight(trial)) <= room:
                chosen.setdefault(trial["sequence"], []).append(trial)
                room -= weight
        if chosen:
            step = path.stem.removeprefix("step-").lstrip("0") or "0"
            views = [_group(groups[key], trials) for key, trials in chosen.items()]
            steps.append({"step": step, "groups": views, "total": sum(map(len, groups.values()))})
    return steps


def _groups(path: Path) -> dict[str, list[View]]:
    """The trials of a file by sequence."""
    groups: dict[str, list[View]] = {}
    for item in objects(path):
        try:
            trial = _trial(item)
        except MISSHAPEN:
            continue
        groups.setdefault(trial["sequence"], []).append(trial)
    return groups


def _informative(groups: list[list[View]], count: int) -> list[View]:
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


def _group(trials: list[View], chosen: list[View]) -> View:
    """A group of which only the `chosen` trials are shown; failed ones are in no count."""
    fine = [trial for trial in trials if not trial["error"]]
    first = trials[0]
    slots = zip(*(trial["slots"] for trial in fine), strict=False)
    tally = [
        (sum(won is True for won, _ in slot), sum(won is not None for won, _ in slot), slot[0][1]) for slot in slots
    ]
    return {"id": first["sequence"], "family": first["family"], "size": len(trials), "tally": tally, "trials": chosen}


def _trial(raw: dict[str, Any]) -> View:
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
        "wins": sum(bool(w) for w, pad in zip(won, padded, strict=True) if not pad),
    }


def _turn(raw: dict[str, Any]) -> View:
    keys = ("reply", "observation", "action", "finish_reason", "prompt_tokens", "tokens", "logprob", "weight_version")
    turn = {key: raw.get(key) for key in keys}
    role = raw.get("role") if raw.get("role") in ("solve", "curate", "reflect") else "other"
    messages = [(str(m.get("role", "")), str(m.get("content", ""))) for m in raw.get("messages") or ()]
    advantage = to_float(raw.get("advantage"))
    sign = "zero" if not abs(advantage) >= 0.005 else "gain" if advantage > 0 else "loss"
    turn |= {"role": role, "number": int(raw.get("index") or 0) + 1, "valid": bool(raw.get("valid"))}
    turn |= {"return": raw.get("return"), "advantage": advantage, "sign": sign, "strong": abs(advantage) >= 0.3}
    return turn | {"cut": raw.get("finish_reason") == "length", "messages": messages}


def _spread(items: Sequence[Path], count: int) -> list[Path]:
    """At most `count` of the items, evenly, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(1, count - 1))] for i in range(count)]


def _weight(value: object) -> int:
    """About how many characters `value` takes on the page."""
    if isinstance(value, str):
        return min(len(value), MAX_FIELD)
    if isinstance(value, dict):
        return 100 + sum(map(_weight, value.values()))
    return sum(map(_weight, value)) if isinstance(value, list | tuple) else 4
