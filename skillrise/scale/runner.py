"""Plays what a plan asks for and writes it down, length by length, so that an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from skillrise.config import RunConfig
from skillrise.curriculum import canonical, identity
from skillrise.engine import Engine
from skillrise.errors import InputError
from skillrise.evaluate import evaluate, evaluated_policy
from skillrise.files import write_text
from skillrise.pool import Pool, pool
from skillrise.rundir import trial_record
from skillrise.scale.figures import write_figures
from skillrise.scale.numbers import TOLD, spent, summary
from skillrise.scale.plan import Plan
from skillrise.scale.tables import to_csv, to_markdown
from skillrise.session import Watcher, make_engine
from skillrise.skillmd import read_document
from skillrise.types import TaskSequence, Trial

Players = tuple[Engine, Pool]
"""Who plays: an engine and a pool of environments."""
REPEAT = 0
"""Stands for the protocol `repeat` where a length K is meant otherwise."""

NEEDED = ("protocol", "positions", "optimum", "document", "outcomes", "spent", *TOLD)
"""What is read of a result."""


def scale(
    config: RunConfig,
    plan: Plan,
    folder: Path,
    watch: Watcher,
    *,
    checkpoint: Path | None = None,
    document: Path | None = None,
) -> dict[str, Any]:
    """Play what `folder` does not hold yet and write everything anew that follows from it.

    Args:
        config: The run; its `play` and `evaluation` tables say how sequences are played.
        plan: What to play.
        folder: Where results go, or those of an earlier call with the same settings lie.
        watch: Told what goes on.
        checkpoint: A run folder or one of its checkpoints; None for the run file's policy as it comes.
        document: A skill document that every sequence starts from.

    Returns:
        What is in `folder/result.json`; see `skillrise.scale.numbers.summary`.

    Raises:
        InputError: If a file, the model or the checkpoint cannot be used, or `folder` holds results of other settings.
        SkillRiseError: If every trial of a length failed.
    """
    watch.phase("load")
    start = read_document(document, config.play.document_chars) if document else ""
    policy, step = evaluated_policy(config, checkpoint)

    @contextmanager
    def players() -> Iterator[Players]:
        with closing(make_engine(config, policy)) as engine, pool(config.pool, config.ray) as environments:
            engine.updated(step)
            yield engine, environments

    about = {
        "model": config.engine.openai.model if config.engine.kind == "openai" else config.policy.source,
        "checkpoint": str(checkpoint) if checkpoint else None,
        "step": step,
    }
    return play_plan(config, plan, folder, watch, players, about=about, document=start)


def play_plan(
    config: RunConfig,
    plan: Plan,
    folder: Path,
    watch: Watcher,
    players: Callable[[], AbstractContextManager[Players]],
    *,
    about: Mapping[str, Any],
    document: str = "",
) -> dict[str, Any]:
    """`scale`, for an engine and a pool that the caller makes.

    Args:
        config: See `scale`.
        plan: See `scale`.
        folder: See `scale`.
        watch: See `scale`.
        players: Gives them; entered once, and only if there is something left to play.
        about: `model`, `checkpoint` and `step`: whose results these are.
        document: What every sequence starts from.
    """
    settings = {**about, **_settings(config, plan, document)}
    _begin(folder, settings)
    jobs = {k: folder / f"k-{k:02d}.json" for k in plan.cross}
    if plan.attempts:
        jobs[REPEAT] = folder / f"repeat-{plan.attempts:02d}.json"
    if left := {k: path for k, path in jobs.items() if not path.exists()}:
        with players() as (engine, environments):
            for k, path in left.items():
                watch.phase(f"K = {k}" if k else "repeat")
                result, trials = _played(config, plan, k, engine, environments, document, watch)
                _write(path, {**result, **about}, trials)
    return _conclude(folder, settings, plan, {k: _read(path, NEEDED) for k, path in jobs.items()})


def _played(
    config: RunConfig, plan: Plan, k: int, engine: Engine, environments: Pool, document: str, watch: Watcher
) -> tuple[dict[str, Any], list[Trial]]:
    """Sequences of `k` tasks, or every task again and again if `k` is `REPEAT`."""
    sequences: Sequence[TaskSequence] = plan.sequences(k) if k else plan.blocks
    before = engine.totals()
    result, trials = evaluate(
        sequences,
        engine,
        environments,
        config.play.model_copy(update={"protocol": "cross" if k else "repeat"}),
        settings=config.evaluation,
        concurrency=config.rollout.concurrency,
        attempts=plan.attempts or 1,
        document=document,
        label=f"K = {k}" if k else "repeat",
        options=config.pool.options,
        progress=watch.progress,
    )
    took = {key: total - before.get(key, 0.0) for key, total in engine.totals().items()}
    return result | {"spent": spent(trials), "engine": took}, trials


def _settings(config: RunConfig, plan: Plan, document: str) -> dict[str, Any]:
    """What must be the same for results to stand in one folder."""
    tasks = [[block.id, *map(identity, block.tasks)] for block in plan.blocks]
    return {
        "k": list(plan.lengths),
        "protocol": plan.protocol,
        "rotations": plan.rotations,
        "blocks": len(plan.blocks),
        "tasks": plan.tasks,
        "tasks_sha256": _digest(canonical(tasks)),
        "document_sha256": _digest(document) if document else None,
        "temperature": config.evaluation.temperature,
        "top_p": config.evaluation.top_p,
        "seed": config.evaluation.seed,
        "play": config.play.model_dump(mode="json", exclude={"protocol"}),
        "options": json.loads(json.dumps(config.pool.options, default=str)),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _begin(folder: Path, settings: Mapping[str, Any]) -> None:
    """Take the folder, or go on in it."""
    file = folder / "settings.json"
    try:
        if not file.exists():
            if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
                raise InputError(f"{folder} already exists and holds no scaling run: remove it or name another folder.")
            write_text(file, json.dumps(settings, indent=1) + "\n")
            return
    except OSError as err:
        raise InputError(f"{folder} cannot be written ({err.strerror}): choose another place.") from err
    before, played = _read(file), any(folder.glob("k-*.json")) or any(folder.glob("repeat-*.json"))
    if not played:  # of a start that failed
        write_text(file, json.dumps(settings, indent=1) + "\n")
    elif other := [key for key, value in settings.items() if before.get(key) != value]:
        raise InputError(f"{folder} holds a scaling run with another {other[0]!r}: name another folder, or delete it.")


def _read(path: Path, keys: Iterable[str] = ()) -> dict[str, Any]:
    """A JSON file that holds these keys."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as err:
        raise InputError(f"{path} cannot be read as JSON ({err}): delete it to have it made again.") from err
    if not isinstance(found, dict) or not found.keys() >= set(keys):
        raise InputError(f"{path} is not what `skillrise scale` wrote: delete it to have it made again.")
    return found


def _write(path: Path, result: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    """The trials first: a result that is there is whole."""
    lines = (json.dumps(trial_record(trial, ()), ensure_ascii=False) + "\n" for trial in trials)
    write_text(path.with_suffix(".trials.jsonl"), "".join(lines))
    write_text(path, json.dumps(result, indent=1) + "\n")


def _conclude(
    folder: Path, settings: dict[str, Any], plan: Plan, results: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Count, and write tables and figures."""
    numbers = summary(plan, {k: result for k, result in results.items() if k}, results.get(REPEAT))
    out = {
        "name": folder.resolve().name,
        "settings": settings,
        **numbers,
        "seconds": sum(result["seconds"] for result in results.values()),
    }
    write_text(folder / "result.json", json.dumps(out, indent=1) + "\n")
    write_text(folder / "table.md", to_markdown(out))
    write_text(folder / "table.csv", to_csv(out))
    write_figures(out, folder / "figures")
    return out
