"""The training loop.

for each update:
    draw sequences;  play each N times with the current policy
    credit every turn of every group;  turn trials into rows
    one clipped policy-gradient update on all turns of both roles;  void the engine's cache
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from skillrise import credit
from skillrise.config import LearnerConfig, RunConfig
from skillrise.curriculum import make_sampler, mixed
from skillrise.errors import InputError
from skillrise.evaluate import evaluate, require_alive
from skillrise.metrics import describe
from skillrise.pool import pool
from skillrise.rollout import Rollout
from skillrise.rows import rows
from skillrise.rundir import RunDir, read_state
from skillrise.seeds import derive
from skillrise.session import Silent, Watcher, make_engine, make_policy, read_sequences
from skillrise.share import Share
from skillrise.types import Credit, Group, TaskSequence, Trial

Metrics = dict[str, Any]
Credited = list[tuple[Trial, list[Credit]]]


def train(config: RunConfig, folder: Path, *, resume: bool = False, watch: Watcher | None = None) -> None:
    """Run `config` in `folder`; with `resume`, go on from its newest checkpoint.

    Under `accelerate launch` every process calls it: each plays its share of an update, and all learn from everything.

    Raises:
        InputError: If the configuration, a sequence file, the model or the folder cannot be used.
        SkillRiseError: If all trials of an update failed, or its loss is not finite; the last checkpoint stands.
    """
    scheme = credit.scheme(config.credit)
    with Training(config, folder, resume, watch or Silent()) as run:
        for step, groups, played in run.rollouts():
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

        from skillrise.learner import Learner
        from skillrise.processes import end

        if config.engine.kind == "openai":
            raise InputError(
                "engine.kind = 'openai': a server's weights cannot be trained from here: evaluate with it, train with hf or "
                "vllm."
            )
        with ExitStack() as ends:
            self.accelerator = _accelerator(config, folder)
            ends.callback(end, self.accelerator)
            self.share = Share(self.accelerator)
            self.main = self.accelerator.is_main_process
            self.config, self.watch = config, watch if self.main else Silent()
            self.watch.phase("load")
            sequences, self.held_out = read_sequences(config)
            self.run = RunDir(folder)
            torch.manual_seed(config.seed)
            with self.accelerator.main_process_first():
                if self.main:
                    self.run.start(config, resume)
                policy = make_policy(config, self.run.model, lambda: _texts(config, sequences, self.watch))
            self.sampler = make_sampler(sequences, config.seed, config.curriculum)
            how = config.rollout
            self.learner = Learner(
                policy, config.learner, temperature=how.temperature, seed=config.seed, accelerator=self.accelerator
            )
            self._check_engine()
            self.start = self._resume() if resume else 0
            if self.main:
                self.run.rewind(self.start)
            self.engine = ends.enter_context(closing(make_engine(config, policy)))
            self.pool = ends.enter_context(pool(config.pool, config.ray))
            self.rollout = Rollout(
                self.engine, self.pool, config.play, temperature=how.temperature, concurrency=how.concurrency
            )
            self.player = ends.enter_context(ThreadPoolExecutor(1, "rollout"))
            ends.callback(self._stop)
            self.ends = ends.pop_all()
        self.sampled = self.sampler.state_dict()
        self.coming: Future[tuple[dict[int, Group], Metrics]] | None = None
        self.stopping = False
        self.clock = time.monotonic()

    def _stop(self) -> None:
        self.stopping = True

    def _check_engine(self) -> None:
        """Refuse engines that would wait for other processes where those do not come."""
        table = self.config.engine
        if self.learner.sharded and table.kind == "hf":
            raise InputError("engine.kind = 'hf' cannot sample from sharded weights (FSDP): set engine.kind = 'vllm'.")
        if self.share.size > 1 and table.replicas:
            raise InputError("engine.replicas serve one learner process: leave them out under accelerate launch.")
        if self.share.size > 1 and table.kind == "vllm" and not table.vllm.process:
            raise InputError(
                "engine.vllm.process = true is needed under accelerate launch: vLLM has its own processes."
            )

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.close()

    def _resume(self) -> int:
        checkpoint = self.run.latest()
        if checkpoint is None:
            return 0
        state = read_state(checkpoint)
        self.learner.load(checkpoint, state["version"])
        self.sampler.load_state_dict(state["sampler"])
        return int(state["step"])

    def rollouts(self) -> Iterator[tuple[int, list[Group], Metrics]]:
        """Every update's groups, played with the newest weights, or with `rollout.overlap` while the update before is learnt.

        Yields:
            The update's number, its groups, and what playing them took.
        """
        for step in range(self.start + 1, self.config.steps + 1):
            self.watch.phase("play")
            coming, self.coming = self.coming or self._begin(step), None
            played, took = coming.result()
            groups, took = self.share.gather(played), self._together(took)
            require_alive([trial for group in groups for trial in group.trials], f"update {step}")
            watched = {"curriculum/mixed": mixed(groups), **self.sampler.observe(groups)}
            self.sampled = self.sampler.state_dict()  # before the next update is drawn, which a resume draws again
            ahead = self.config.rollout.overlap and step < self.config.steps
            self.coming = self._begin(step + 1) if ahead else None
            yield step, groups, {**took, **watched}

    def _together(self, took: Metrics) -> Metrics:
        """Of all processes: counts are added, of times the longest counts."""
        every = self.share.gather({self.share.rank: took})
        return {name: (max if name.startswith("time/") else sum)(each[name] for each in every) for name in took}

    def _begin(self, step: int) -> Future[tuple[dict[int, Group], Metrics]]:
        """Hand the newest weights to the engine and start to play an update."""
        synced = self._sync()
        if self.config.rollout.overlap:
            return self.player.submit(self._play, step, synced)
        played: Future[tuple[dict[int, Group], Metrics]] = Future()
        played.set_result(self._play(step, synced))
        return played

    def _sync(self) -> float:
        began = time.monotonic()
        self.engine.updated(self.learner.version)
        return time.monotonic() - began

    def _play(self, step: int, synced: float) -> tuple[dict[int, Group], Metrics]:
        """Draw an update's sequences and play this process's share of them, each N times."""
        began, before = time.monotonic(), self.engine.totals()
        how = self.config.rollout
        drawn = play_as(self.sampler.draw(how.sequences), self.config.play.protocol)
        share = self.share.of(len(drawn))
        groups = dict(self.rollout.stream(drawn, how.trials, derive(self.config.seed, "step", step), share, self._seen))
        spent = {name: total - before.get(name, 0.0) for name, total in self.engine.totals().items()}
        return groups, {**spent, "time/rollout": time.monotonic() - began, "time/sync": synced}

    def _seen(self, done: int, total: int) -> None:
        """Progress of a rollout: shown unless an update is being learnt, and the place to end one that nobody waits for."""
        if self.stopping:
            raise InterruptedError("the run is ending")
        if self.coming is None:
            self.watch.progress(done, total)

    def learn(self, step: int, credited: Credited) -> Metrics:
        """Update the policy on everything that was credited."""
        self.watch.phase("learn")
        began = time.monotonic()
        if self.coming is None:
            self.engine.rest()
        batch = [row for trial, credits in credited if trial.error is None for row in rows(trial, credits)]
        lr = learning_rate(self.config.learner, step, self.config.steps)
        metrics = self.learner.update(batch, lr, self.watch.progress)
        return {**metrics, "lr": lr, "time/learn": time.monotonic() - began}

    def evaluate(self, step: int) -> Metrics:
        """Play the held-out sequences, if this update is one after which they are played."""
        every = self.config.evaluation.every
        if not self.held_out or not every or step % every:
            return {}
        self.watch.phase("evaluate")
        if self.coming is not None:
            self.coming.exception()  # waits; what it raised is raised where its groups are asked for
        began = time.monotonic()
        self._sync()
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
            share=self.share,
        )
        del result["seconds"]  # a repeated run writes the same file; metrics have the time
        if self.main:
            self.run.save_evaluation(f"step-{step:06d}", {**result, "step": step})
        rates = {f"evaluation/p{p}": r for p, r in zip(result["positions"], result["success"], strict=True)}
        found = {"evaluation/all": result["pooled"]["success"], **rates, "time/evaluate": time.monotonic() - began}
        return {name: value for name, value in found.items() if value is not None}

    def keep(self, step: int, metrics: Metrics, credited: Credited) -> None:
        """Write what this update leaves behind."""
        metrics["processes"] = self.share.size
        metrics["time/step"] = time.monotonic() - self.clock - metrics.get("time/evaluate", 0.0)
        self.clock = time.monotonic()
        metrics["time/sampled_per_s"] = metrics["tokens/sampled"] / max(metrics["time/rollout"], 1e-9)
        every = self.config.save_trials_every
        if self.main:
            if every and step % every == 0:
                self.run.save_trials(step, credited)
            self.run.log(metrics)
        self.accelerator.log({key: value for key, value in metrics.items() if key != "step"}, step=step)
        if step % self.config.checkpoint_every == 0 or step == self.config.steps:
            self._save(step, {"version": self.learner.version, "sampler": self.sampled})
        self.watch.step(metrics)

    def _save(self, step: int, state: Metrics) -> None:
        if self.main:
            self.run.save_checkpoint(step, state, self.learner.save, self.config.keep_checkpoints)
        else:
            self.learner.save(Path())  # gives its shards; the main process writes


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
    with pool(config.pool, config.ray) as environments:
        return texts(play_demonstrations(list(demonstrations(sequences, config)), environments, config, watch.progress))


def learning_rate(config: LearnerConfig, step: int, steps: int) -> float:
    """The rate of update `step` (from 1): a linear rise over `lr_warmup`, then a linear fall to `lr_end` of the peak."""
    if step <= config.lr_warmup:
        return config.lr * step / (config.lr_warmup + 1)
    done = (step - 1 - config.lr_warmup) / max(steps - 1 - config.lr_warmup, 1)
    return config.lr * (1 - (1 - config.lr_end) * done)


def _accelerator(config: RunConfig, folder: Path) -> Any:
    from accelerate.tracking import _available_trackers

    from skillrise.processes import launched

    installed = {tracker.value for tracker in _available_trackers}
    if missing := [name for name in config.trackers if name not in installed]:
        raise InputError(f"trackers: {missing[0]!r} is not installed here: install it, or leave it out.")
    accelerator = launched(
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
