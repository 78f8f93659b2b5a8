"""Supervised fine-tuning on an environment's expert: the warm start that gives a policy the format and the reading.

Demonstrations are played, not pasted: a scripted teacher takes the policy's place in the same play, against the real
environment, with the same prompts. What comes out are trials like any other, and the learner's rows are made of them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from skillrise.config import RunConfig, WarmupConfig, dump
from skillrise.engine import Outcome, ScriptedEngine
from skillrise.env import make
from skillrise.errors import InputError
from skillrise.files import new_folder, write_text
from skillrise.learner import Learner, Metrics
from skillrise.models.chat import Chat
from skillrise.pool import Pool, pool
from skillrise.rollout import Job, Progress, Rollout
from skillrise.rows import Row, rows
from skillrise.rundir import RunDir, trial_record
from skillrise.seeds import derive
from skillrise.session import Watcher, make_policy, read_sequences
from skillrise.types import Completion, Credit, Demonstration, Prompt, TaskSequence, Trial, Turn


def demonstrations(sequences: Sequence[TaskSequence], config: RunConfig) -> Iterator[Demonstration]:
    """The expert's solutions of training tasks, drawn at random without repetition until all were used.

    Raises:
        InputError: If an environment has no expert.
    """
    tasks = [task for s in sequences for task, padded in zip(s.tasks, s.padded, strict=True) if not padded]
    experts = {env_id: make(env_id, config.pool.options) for env_id in {task.env for task in tasks}}
    try:
        order: list[int] = []
        notes: dict[str, str] = {}
        for n in range(config.warmup.demonstrations):
            if not order:
                order = list(range(len(tasks)))
                random.Random(derive(config.seed, "demonstrations", n)).shuffle(order)
            task = tasks[order.pop()]
            shown = experts[task.env].demonstrate(task, derive(config.seed, "demonstration", n))
            if shown.document is None:
                given = random.Random(derive(config.seed, "document", n)).random() < config.warmup.documents
                shown = replace(shown, document=notes.get(task.family, "") if given else "")
            if shown.notes is not None:
                notes[task.family] = shown.notes
            yield shown
    finally:
        for env in experts.values():
            env.close()


def play_demonstrations(
    shown: Sequence[Demonstration], pool: Pool, config: RunConfig, progress: Progress | None = None
) -> list[Trial]:
    """Play each demonstration as a trial of one task, with its notes as the reply of the role that carries.

    Trials that the environment failed, or that did not come to an end with the expert's actions, are left out; so is a
    carry turn without notes, and one whose empty notes are no valid reflection.

    Raises:
        InputError: If none is left.
    """
    longest = max(len(demonstration.actions) for demonstration in shown)
    changes = {"carry_last": True, "protocol": "cross", "turns": max(longest, 1), "document_chars": 10**6}
    carries = [_carry(n, config) for n in range(len(shown))]
    played: dict[int, Trial] = {}
    for carry in sorted(set(carries)):
        mine = [n for n in range(len(shown)) if carries[n] == carry]
        rollout = Rollout(
            _Teacher([shown[n] for n in mine]),
            pool,
            config.play.model_copy(update={**changes, "carry": carry}),
            concurrency=config.rollout.concurrency,
        )
        jobs = [_job(n, shown[n], carry, config.seed) for n in mine]
        played |= zip(mine, rollout.play(jobs, _further(progress, len(played), len(shown))), strict=True)
    trials = [
        replace(trial, carries=tuple(turn for turn in trial.carries if turn.valid))
        for trial in (played[n] for n in range(len(shown)))
        if trial.error is None and all(turn.valid for turn in trial.attempts[0].turns)
    ]
    if not trials:
        raise InputError("No demonstration could be played to its end: see `skillrise doctor` for the environment.")
    return trials


def _carry(n: int, config: RunConfig) -> str:
    """What the n-th demonstration shows the writing of."""
    share = config.warmup.reflections
    if share is None:
        return config.play.carry
    reflects = random.Random(derive(config.seed, "carry", n)).random() < share
    return "reflect" if reflects else "skill"


def _job(n: int, shown: Demonstration, carry: str, seed: int) -> Job:
    """The n-th demonstration as a trial of one task; its document is the one earlier reflection where it reflects."""
    sequence = TaskSequence(f"demonstration-{n}", shown.task.family, (shown.task,), (False,))
    given = shown.document or ""
    reflections = ((1, False, given),) if given and carry == "reflect" else ()
    return Job(
        sequence, derive(seed, "demonstration", n), document="" if reflections else given, reflections=reflections
    )


def _further(progress: Progress | None, before: int, total: int) -> Progress | None:
    return progress and (lambda done, _: progress(before + done, total))


class _Teacher(ScriptedEngine):
    """Answers the n-th job with the lines of the n-th demonstration."""

    def __init__(self, shown: Sequence[Demonstration]) -> None:
        super().__init__(lambda _: "")
        self.notes = [demonstration.notes for demonstration in shown]
        self.actions = [deque(demonstration.actions) for demonstration in shown]

    def step(self) -> list[tuple[Hashable, Outcome]]:
        """See `Engine.step`."""
        waiting, self.waiting = self.waiting, []
        return [(key, self.complete(prompt, self._line(key, prompt))) for key, prompt in waiting]

    def _line(self, key: Hashable, prompt: Prompt) -> str:
        assert isinstance(key, int)
        left = self.actions[key]
        line = self.notes[key] if prompt.role != "solve" else left.popleft() if left else None
        return "" if line is None else f"{prompt.stop.replace('/', '')} {line} {prompt.stop}"


def texts(trials: Sequence[Trial]) -> Iterator[str]:
    """Everything that is said in `trials`, for a tokenizer to be trained on."""
    for trial in trials:
        for turn in trial.turns:
            yield turn.prompt.messages[-1].content
            yield turn.completion.text


def warmup_rows(trial: Trial, chat: Chat) -> list[Row]:
    """Rows of a played demonstration, as `chat`'s model would have had it; the teacher's replies are trained."""
    encoded: dict[int, Completion] = {}

    def encode(turn: Turn) -> Turn:
        said, prompt = turn.completion, turn.prompt
        if prompt.follows is not None:
            before = encoded[id(prompt.follows)]
            prompt_ids = chat.extend(before.prompt_ids, before.token_ids, prompt.messages[-1])
        else:
            prompt_ids = chat.start(prompt.messages)
        token_ids = chat.encode(said.text)
        encoded[id(said)] = replace(said, prompt_ids=prompt_ids, token_ids=token_ids, logprobs=(0.0,) * len(token_ids))
        return replace(turn, completion=encoded[id(said)])

    attempts = tuple(replace(a, turns=tuple(encode(t) for t in a.turns)) for a in trial.attempts)
    whole = replace(trial, attempts=attempts, carries=tuple(encode(t) for t in trial.carries))
    return rows(whole, [Credit(1.0, 1.0)] * len(whole.turns))


def fit(learner: Learner, examples: Sequence[Row], config: WarmupConfig, seed: int) -> Iterator[Metrics]:
    """Train on `examples`, one step at a time: shuffled passes, a rate that falls linearly to a tenth."""
    order: list[int] = []
    for step in range(config.steps):
        while len(order) < config.batch:
            fresh = list(range(len(examples)))
            random.Random(derive(seed, "warmup", step, len(order))).shuffle(fresh)
            order = fresh + order
        batch = [examples[order.pop()] for _ in range(config.batch)]
        lr = config.lr * (1 - 0.9 * step / config.steps) * min(1.0, (step + 1) / max(1, config.steps // 20))
        yield {"step": step + 1, "lr": lr, **learner.fit(batch, lr)}


def warmup(config: RunConfig, folder: Path, watch: Watcher) -> None:
    """Make demonstrations, train the policy on them, and write a complete model folder.

    Beside the model lie `demonstrations.jsonl` (every trial), `metrics.jsonl` and `config.toml`.

    Raises:
        InputError: If the folder exists, or there is no expert, model or sequence file.
    """
    import torch

    if folder.exists():
        raise InputError(f"{folder} already exists: name another folder, or remove it.")
    sequences = read_sequences(config)[0]
    watch.phase("demonstrate")
    shown = list(demonstrations(sequences, config))
    with pool(config.pool, config.ray) as environments:
        trials = play_demonstrations(shown, environments, config, watch.progress)
    with new_folder(folder) as partial:
        watch.phase("load")
        run = RunDir(partial)
        torch.manual_seed(config.seed)
        policy = make_policy(config, run.model, lambda: texts(trials))
        examples = [row for trial in trials for row in warmup_rows(trial, policy.chat)]
        learner = Learner(policy, config.learner)
        write_text(run.config, dump(config))
        watch.phase("learn")
        for metrics in fit(learner, examples, config.warmup, config.seed):
            run.log(metrics)
            watch.step(metrics)
        policy.model = learner.accelerator.unwrap_model(policy.model)
        policy.save(partial)
        shutil.rmtree(run.model, ignore_errors=True)
        records = (json.dumps(trial_record(trial, ()), ensure_ascii=False) + "\n" for trial in trials)
        write_text(partial / "demonstrations.jsonl", "".join(records))
