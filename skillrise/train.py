"""The training loop.

for each update:
draw sequences;  play each N times with the current policy
credit every turn of every group;  turn trials into rows
one clipped policy-gradient update on all turns of both roles;  void the engine's cache
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from skillrise import credit
from skillrise.config import LearnerConfig, RunConfig
from skillrise.curriculum import Sampler
from skillrise.errors import InputError
from skillrise.evaluate import evaluate
from skillrise.metrics import describe
from skillrise.pool import Pool, pool
from skillrise.rollout import Rollout
from skillrise.rows import rows
from skillrise.rundir import RunDir, read_state
from skillrise.seeds import derive
from skillrise.session import Silent, Watcher, make_policy, read_sequences
from skillrise.types import TaskSequence


def train(config: RunConfig, folder: Path, *, resume: bool = False, watch: Watcher | None = None) -> None:
    """Run `config` in `folder`; with `resume`, go on from its newest checkpoint.

    Raises:
        InputError: If the configuration, a sequence file, the model or the folder cannot be used.
    """
    import torch

    from skillrise.engine.hf import HFEngine
    from skillrise.learner import Learner

    watch = watch or Silent()
    watch.phase("load")
    sequences, held_out = read_sequences(config)
    run = RunDir(folder)
    run.start(config, resume)
    torch.manual_seed(config.seed)
    policy = make_policy(config, run.model, lambda: _texts(config, sequences, watch))
    accelerator = _accelerator(config, folder)
    learner = Learner(
        policy,
        config.learner,
        temperature=config.rollout.temperature,
        seed=config.seed,
        accelerator=accelerator,
    )
    sampler = Sampler(sequences, config.seed, config.curriculum.order)
    start = 0
    checkpoint = run.latest() if resume else None
    if checkpoint is not None:
        state = read_state(checkpoint)
        learner.load(checkpoint, state["version"])
        sampler.load_state_dict(state["sampler"])
        start = int(state["step"])
    run.rewind(start)

    engine = HFEngine(policy, config.rollout.concurrency, config.policy.context_tokens)
    engine.updated(learner.version)
    scheme = credit.scheme(config.credit)
    how = config.play
    with pool(config.pool) as environments:
        rollout = Rollout(
            engine,
            environments,
            how,
            temperature=config.rollout.temperature,
            concurrency=config.rollout.concurrency,
        )
        for step in range(start + 1, config.steps + 1):
            began = time.monotonic()
            drawn = play_as(sampler.draw(config.rollout.sequences), how.protocol)
            watch.phase("play")
            groups = rollout.groups(drawn, config.rollout.trials, derive(config.seed, "step", step), watch.progress)
            played = time.monotonic()

            watch.phase("learn")
            credits = [scheme.assign(group) for group in groups]
            pairs = [p for g, cs in zip(groups, credits, strict=True) for p in zip(g.trials, cs, strict=True)]
            batch = [row for trial, cs in pairs if trial.error is None for row in rows(trial, cs)]
            rate = learning_rate(config.learner, step, config.steps)
            learnt = learner.update(batch, rate, watch.progress)
            engine.updated(learner.version)

            metrics = {"step": step, **describe(groups, credits, how.protocol), **learnt, "lr": rate}
            if held_out and config.evaluation.every and step % config.evaluation.every == 0:
                watch.phase("evaluate")
                metrics |= _evaluation(config, held_out, engine, environments, run, step, watch)
            now = time.monotonic()
            sampled = metrics["tokens/sampled"] / max(played - began, 1e-9)
            metrics |= {"time/rollout": played - began, "time/step": now - began, "time/sampled_per_s": sampled}
            if config.save_trials_every and step % config.save_trials_every == 0:
                run.save_trials(step, pairs)
            run.log(metrics)
            accelerator.log({k: v for k, v in metrics.items() if k != "step"}, step=step)
            if step % config.checkpoint_every == 0 or step == config.steps:
                state = {"version": learner.version, "sampler": sampler.state_dict()}
                run.save_checkpoint(step, state, learner.save, config.keep_checkpoints)
            watch.step(metrics)
    accelerator.end_training()


def play_as(sequences: Sequence[TaskSequence], protocol: str) -> list[TaskSequence]:
    """Sequences as the protocol plays them: `repeat` makes each one's first task K times itself."""
    if protocol == "cross":
        return list(sequences)
    return [
        TaskSequence(s.id, s.family, (s.tasks[0],) * len(s.tasks), (s.padded[0],) * len(s.tasks)) for s in sequences
    ]


def _texts(config: RunConfig, sequences: Sequence[TaskSequence], watch: Watcher) -> Iterator[str]:
    """The environment's own words, from its expert's demonstrations."""
    from skillrise.warmup import demonstrations, play_demonstrations, texts

    watch.phase("demonstrate")
    with pool(config.pool) as environments:
        return texts(play_demonstrations(list(demonstrations(sequences, config)), environments, config, watch.progress))


def learning_rate(config: LearnerConfig, step: int, steps: int) -> float:
    """The rate of update `step` (from 1): a linear rise over `lr_warmup`, then a linear fall to `lr_end` of the peak."""
    if step <= config.lr_warmup:
        return config.lr * step / (config.lr_warmup + 1)
    done = (step - 1 - config.lr_warmup) / max(steps - 1 - config.lr_warmup, 1)
    return config.lr * (1 - (1 - config.lr_end) * done)


def _accelerator(config: RunConfig, folder: Path) -> Any:
    from accelerate import Accelerator
    from accelerate.tracking import _available_trackers

    installed = {tracker.value for tracker in _available_trackers}
    if missing := [name for name in config.trackers if name not in installed]:
        raise InputError(f"trackers: {missing[0]!r} is not installed here: install it, or leave it out.")
    accelerator = Accelerator(
        mixed_precision=config.learner.mixed_precision,
        log_with=list(config.trackers) or None,
        project_dir=str(folder),
    )
    if config.trackers:
        flat = {key: value for key, value in _flat(config.model_dump(mode="json")).items() if value is not None}
        accelerator.init_trackers("skillrise", config=flat)
    return accelerator


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{prefix}{key}.").items()}
    return {prefix.rstrip("."): value if isinstance(value, (int, float, str, bool)) or value is None else str(value)}


def _evaluation(
    config: RunConfig,
    held_out: Sequence[TaskSequence],
    engine: Any,
    environments: Pool,
    run: RunDir,
    step: int,
    watch: Watcher,
) -> dict[str, float]:
    result, _ = evaluate(
        held_out,
        engine,
        environments,
        config.play,
        settings=config.evaluation,
        concurrency=config.rollout.concurrency,
        attempts=max(len(sequence.tasks) for sequence in held_out),
        label=f"update {step}",
        options=config.pool.options,
        progress=watch.progress,
    )
    run.save_evaluation(f"step-{step:06d}", {**result, "step": step})
    rates = zip(result["positions"], result["success"], strict=True)
    return {
        "evaluation/all": result["pooled"]["success"],
        **{f"evaluation/p{p}": rate for p, rate in rates if rate is not None},
    }
