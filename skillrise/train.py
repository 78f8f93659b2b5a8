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
from skillrise.evaluate import evaluate, require_alive
from skillrise.metrics import describe
from skillrise.pool import pool
from skillrise.rollout import Rollout
from skillrise.rows import rows
from skillrise.rundir import RunDir, read_state
from skillrise.seeds import derive
from skillrise.session import Silent, Watcher, make_policy, read_sequences
from skillrise.types import Credit, Group, TaskSequence, Trial

Metrics = dict[str, Any]
Credited = list[tuple[Trial, list[Credit]]]


def train(config: RunConfig, folder: Path, *, resume: bool = False, watch: Watcher | None = None) -> None:
    """Run `config` in `folder`; with `resume`, go on from its newest checkpoint.

    Raises:
        InputError: If the configuration, a sequence file, the model or the folder cannot be used.
        SkillRiseError: If all trials of an update failed, or its loss is not finite; the last checkpoint stands.
    """
    scheme = credit.scheme(config.credit)
    with Training(config, folder, resume, watch or Silent()) as run:
        for step in range(run.start + 1, config.steps + 1):
            groups, played = run.play(step)
            credits = [scheme.assign(group) for group in groups]
            credited = [pair for g, cs in zip(groups, credits, strict=True) for pair in zip(g.trials, cs, strict=True)]
            learnt = run.learn(step, credited)
            said = describe(groups, credits, config.play.protocol)
            run.keep(step, {"step": step, **said, **learnt, **played, **run.evaluate(step)}, credited)


class Training:
    """What a run holds on to: the policy in its learner and its engine, the environments, the sampler, the folder.

    Args:
        config: The run.
        folder: Its folder.
        resume: Go on from the newest checkpoint.
        watch: Told of every phase.

    Attributes:
        start: Updates that are done already.
    """

    def __init__(self, config: RunConfig, folder: Path, resume: bool, watch: Watcher) -> None:
        import torch

        from skillrise.engine.hf import HFEngine
        from skillrise.learner import Learner

        watch.phase("load")
        self.config, self.watch = config, watch
        sequences, self.held_out = read_sequences(config)
        self.run = RunDir(folder)
        self.run.start(config, resume)
        torch.manual_seed(config.seed)
        policy = make_policy(config, self.run.model, lambda: _texts(config, sequences, watch))
        self.accelerator = _accelerator(config, folder)
        self.sampler = Sampler(sequences, config.seed, config.curriculum.order)
        how = config.rollout
        self.learner = Learner(
            policy, config.learner, temperature=how.temperature, seed=config.seed, accelerator=self.accelerator
        )
        self.start = self._resume() if resume else 0
        self.run.rewind(self.start)
        self.engine = HFEngine(policy, how.concurrency, config.policy.context_tokens)
        self.pool = pool(config.pool)
        self.rollout = Rollout(
            self.engine, self.pool, config.play, temperature=how.temperature, concurrency=how.concurrency
        )

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()
        self.accelerator.end_training()

    def _resume(self) -> int:
        checkpoint = self.run.latest()
        if checkpoint is None:
            return 0
        state = read_state(checkpoint)
        self.learner.load(checkpoint, state["version"])
        self.sampler.load_state_dict(state["sampler"])
        return int(state["step"])

    def play(self, step: int) -> tuple[list[Group], Metrics]:
        """Draw sequences and play each N times."""
        self.watch.phase("play")
        began = time.monotonic()
        how = self.config.rollout
        drawn = play_as(self.sampler.draw(how.sequences), self.config.play.protocol)
        self.engine.updated(self.learner.version)
        groups = self.rollout.groups(drawn, how.trials, derive(self.config.seed, "step", step), self.watch.progress)
        require_alive([trial for group in groups for trial in group.trials], f"update {step}")
        return groups, {"time/rollout": time.monotonic() - began}

    def learn(self, step: int, credited: Credited) -> Metrics:
        """Update the policy on everything that was credited."""
        self.watch.phase("learn")
        began = time.monotonic()
        batch = [row for trial, credits in credited if trial.error is None for row in rows(trial, credits)]
        lr = learning_rate(self.config.learner, step, self.config.steps)
        metrics = self.learner.update(batch, lr, self.watch.progress)
        self.engine.updated(self.learner.version)
        return {**metrics, "lr": lr, "time/learn": time.monotonic() - began}

    def evaluate(self, step: int) -> Metrics:
        """Play the held-out sequences, if this update is one after which they are played."""
        every = self.config.evaluation.every
        if not self.held_out or not every or step % every:
            return {}
        self.watch.phase("evaluate")
        result, _ = evaluate(
            self.held_out,
            self.engine,
            self.pool,
            self.config.play,
            settings=self.config.evaluation,
            concurrency=self.config.rollout.concurrency,
            attempts=max(len(sequence.tasks) for sequence in self.held_out),
            label=f"update {step}",
            options=self.config.pool.options,
            progress=self.watch.progress,
        )
        self.run.save_evaluation(f"step-{step:06d}", {**result, "step": step})
        rates = {f"evaluation/p{p}": r for p, r in zip(result["positions"], result["success"], strict=True)}
        return {k: r for k, r in {"evaluation/all": result["pooled"]["success"], **rates}.items() if r is not None}

    def keep(self, step: int, metrics: Metrics, credited: Credited) -> None:
        """Write what this update leaves behind."""
        metrics["time/step"] = metrics["time/rollout"] + metrics["time/learn"]
        metrics["time/sampled_per_s"] = metrics["tokens/sampled"] / max(metrics["time/rollout"], 1e-9)
        every = self.config.save_trials_every
        if every and step % every == 0:
            self.run.save_trials(step, credited)
        self.run.log(metrics)
        self.accelerator.log({key: value for key, value in metrics.items() if key != "step"}, step=step)
        if step % self.config.checkpoint_every == 0 or step == self.config.steps:
            state = {"version": self.learner.version, "sampler": self.sampler.state_dict()}
            self.run.save_checkpoint(step, state, self.learner.save, self.config.keep_checkpoints)
        self.watch.step(metrics)


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
    if accelerator.num_processes > 1:
        raise InputError("More than one process is not supported yet: start the run without accelerate launch.")
    if config.trackers:
        flat = {key: value for key, value in _flat(config.model_dump(mode="json")).items() if value is not None}
        accelerator.init_trackers("skillrise", config=flat)
    return accelerator


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{prefix}{key}.").items()}
    return {prefix.rstrip("."): value if isinstance(value, (int, float, str, bool)) or value is None else str(value)}
