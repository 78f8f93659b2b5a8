"""Held-out sequences, played without training: success by position, with intervals.

Protocols: `cross` plays K different tasks a sequence, each once; a position's rate counts its slots that are not padded.
`repeat` plays one task up to K times; its rate at position p is the share of tasks solved within p attempts (pass@p with
curation in between). A trial that failed is left out and counted. A sequence may be played several times; its trials share
their tasks' seeds and differ in their replies.

Intervals are over sequences, not over slots: what happens in one sequence hangs together. Only where each sequence has
one slot, at a position played once, is it Wilson's interval.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillrise.config import EvaluationConfig, PlayConfig, RunConfig
from skillrise.curriculum import identity, read
from skillrise.engine import Engine
from skillrise.env import make
from skillrise.errors import InputError, SkillRiseError
from skillrise.files import without_nan, write_text
from skillrise.measures import behaviour, by_family, outcome, passes, rates
from skillrise.pool import Pool, pool
from skillrise.rollout import Job, Progress, Rollout
from skillrise.rundir import trial_record
from skillrise.seeds import derive
from skillrise.session import Watcher, load_trained, make_engine, pick
from skillrise.share import Share
from skillrise.skillmd import read_document
from skillrise.types import TaskSequence, Trial

if TYPE_CHECKING:
    from skillrise.policy import Policy


def repeated(sequences: Sequence[TaskSequence], attempts: int) -> list[TaskSequence]:
    """Each different task of `sequences` as a sequence of `attempts` times itself, padded slots left out."""
    out: dict[str, TaskSequence] = {}
    for sequence in sequences:
        for i, task in enumerate(sequence.tasks):
            key = identity(task)
            if not sequence.padded[i] and key not in out:
                out[key] = TaskSequence(f"{sequence.id}-{i + 1}", task.family, (task,) * attempts, (False,) * attempts)
    return list(out.values())


def digest(sequences: Sequence[TaskSequence]) -> str:
    """What tells these sequences from others, even from others of the same names."""
    said = [[s.id, list(s.padded), [identity(task) for task in s.tasks]] for s in sequences]
    return sha256(json.dumps(said).encode()).hexdigest()[:16]


def optimum(sequences: Sequence[TaskSequence], options: dict[str, Any] | None = None) -> list[float] | None:
    """Best possible success at each position where every sequence's environment knows it, else None.

    A position's mean is over the slots that count, as its success is: nan where all are padded.
    """
    rates: list[list[float]] = []
    env = make(sequences[0].tasks[0].env, options)
    try:
        for sequence in sequences:
            if len({task.env for task in sequence.tasks} | {sequences[0].tasks[0].env}) != 1:
                return None
            best = env.optimum([task.spec for task in sequence.tasks])
            if best is None:
                return None
            rates.append(best)
    finally:
        env.close()
    columns: list[list[float]] = [[] for _ in range(max(len(best) for best in rates))]
    for sequence, best in zip(sequences, rates, strict=True):
        for column, rate, padded in zip(columns, best, sequence.padded, strict=False):
            column += [] if padded else [rate]
    return [sum(column) / len(column) if column else math.nan for column in columns]


def evaluate(
    sequences: Sequence[TaskSequence],
    engine: Engine,
    pool: Pool,
    how: PlayConfig,
    *,
    settings: EvaluationConfig = EvaluationConfig(),  # noqa: B008  it is frozen
    concurrency: int = 64,
    attempts: int = 3,
    document: str = "",
    label: str = "evaluation",
    options: dict[str, Any] | None = None,
    progress: Progress | None = None,
    share: Share = Share(),  # noqa: B008  it is never changed
    trials: int = 1,
) -> tuple[dict[str, Any], list[Trial]]:
    """Play each sequence and return the result (JSON values) and the trials, those of a sequence one after another.

    The result counts nothing from padded slots and failed trials, but for `plays`, `seconds` and `failed`.

    Args:
        sequences: Held-out sequences.
        engine: Where replies come from.
        pool: Where environments live.
        how: How to play; `how.protocol` and `how.carry` are what is evaluated.
        settings: Temperature, nucleus and seed; the same seed makes evaluations comparable sequence by sequence.
        concurrency: Most trials alive at a time.
        attempts: Most attempts at a task under `repeat`.
        document: The skill document that every sequence starts from.
        label: The result's name.
        options: Options of the environments' constructors.
        progress: Called as trials finish.
        share: What this process plays, where several evaluate together.
        trials: How often each sequence is played.

    Raises:
        InputError: If there is nothing to play.
        SkillRiseError: If every trial failed.
    """
    if not sequences:
        raise InputError("There is no sequence to evaluate on: give a file that holds some.")
    played = repeated(sequences, attempts) if how.protocol == "repeat" else list(sequences)
    rollout = Rollout(
        engine, pool, how, temperature=settings.temperature, top_p=settings.top_p, concurrency=concurrency
    )
    jobs = [
        Job(s, derive(settings.seed, "evaluation", i), number=n, document=document)
        for i, s in enumerate(played)
        for n in range(trials)
    ]
    mine, began = share.of(len(jobs)), time.monotonic()
    done = share.gather(dict(zip(mine, rollout.play([jobs[i] for i in mine], progress), strict=True)))
    seconds = time.monotonic() - began
    require_alive(done, label)
    best = optimum(played, options) if how.protocol == "cross" and how.carry != "none" else None
    outcomes = [outcome(done[i : i + trials], how.protocol) for i in range(0, len(done), trials)]
    result = {
        "label": label,
        "protocol": how.protocol,
        "carry": how.carry,
        **rates(outcomes, once=trials == 1),
        "optimum": best,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "sequences": len(played),
        "digest": digest(played),
        "trials": trials,
        "failed": sum(trial.error is not None for trial in done),
        "plays": sum(len(trial.attempts) for trial in done),
        "seconds": round(seconds, 3),
        **behaviour(done),
        "pass": passes(outcomes),
        "by_family": by_family(outcomes),
        "outcomes": outcomes,
    }
    return without_nan(result), done


def require_alive(trials: Sequence[Trial], what: str) -> None:
    """Go on only if some trial was finished.

    Raises:
        SkillRiseError: If every trial failed; it says why the first did.
    """
    if trials and all(trial.error is not None for trial in trials):
        raise SkillRiseError(f"{what}: all {len(trials)} trials failed, the first with {trials[0].error}")


def evaluate_file(
    config: RunConfig,
    sequences: Path,
    out: Path,
    checkpoint: Path | None,
    attempts: int,
    document: Path | None,
    watch: Watcher,
    trials: int = 1,
) -> dict[str, Any]:
    """Evaluate a run's policy on a sequence file; write the result to `out` and the trials beside it.

    Each trial's record says which of its sequence's trials it is (`trial`, from 0).

    Raises:
        InputError: If a file, the model or the checkpoint cannot be used.
    """
    watch.phase("load")
    held_out = pick(read(sequences, config.curriculum.env), config.evaluation.sequences)
    start = read_document(document, config.play.document_chars) if document else ""
    policy, step = evaluated_policy(config, checkpoint)
    with closing(make_engine(config, policy)) as engine, pool(config.pool, config.ray) as environments:
        engine.updated(step)
        watch.phase("evaluate")
        result, played = evaluate(
            held_out,
            engine,
            environments,
            config.play,
            settings=config.evaluation,
            concurrency=config.rollout.concurrency,
            attempts=attempts,
            document=start,
            label=out.stem,
            options=config.pool.options,
            progress=watch.progress,
            trials=trials,
        )
    where = str(checkpoint) if checkpoint else None
    model = config.policy.source if policy is not None else config.engine.openai.model
    outcomes = result.pop("outcomes")  # goes last, as it is long
    result |= {"model": model, "checkpoint": where, "step": step, **engine.totals(), "outcomes": outcomes}
    records = ({"trial": i % trials, **trial_record(trial, ())} for i, trial in enumerate(played))
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    write_text(out.with_suffix(".trials.jsonl"), "".join(lines))
    write_text(out, json.dumps(result, indent=1) + "\n")
    return result


def evaluated_policy(config: RunConfig, checkpoint: Path | None) -> tuple[Policy | None, int]:
    """The policy to evaluate and its updates; None where a server has it.

    Raises:
        InputError: If there is no such checkpoint or model, or a checkpoint is given for a server.
    """
    if config.engine.kind != "openai":
        return load_trained(config, checkpoint)
    if checkpoint is not None:
        raise InputError(
            "--checkpoint holds weights for this machine, but engine.kind = 'openai' asks a server: drop one."
        )
    return None, 0
