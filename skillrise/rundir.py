"""The run folder: what a run leaves behind, in forms that other tools read.

    config.toml                      the resolved run file
    metrics.jsonl                    one object an update
    trials/step-000012.jsonl         every trial of an update, one a line
    evaluations/NAME.json            one evaluation each
    checkpoints/step-000010/         weights.safetensors, optimizer.safetensors, state.json
    model/                           the model, where the run made it itself

Files appear whole or not at all: each is written beside its place and moved there. A checkpoint counts once its folder
has its final name; `state.json` holds the sizes of its files, so that a torn one is noticed.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skillrise.config import RunConfig, dump, load
from skillrise.errors import InputError
from skillrise.files import new_folder, write_text
from skillrise.types import Attempt, Credit, Message, Task, Trial, Turn

FREE = {
    "steps",
    "checkpoint_every",
    "keep_checkpoints",
    "save_trials_every",
    "trackers",
    "rollout.concurrency",
    "pool.workers",
    "pool.timeout",
    "pool.recycle",
    "pool.kind",
    "ray",
    "engine",
    "learner.micro_tokens",
    "learner.gradient_checkpointing",
}
"""Keys and tables that a resume may change: they decide how much is written and how fast, not what is learnt."""


class RunDir:
    """One run folder.

    Args:
        path: The folder; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"

    def start(self, config: RunConfig, resume: bool) -> None:
        """Take the folder for a run.

        Raises:
            InputError: If it holds a run and this is no resume, or a resume finds none or one of another configuration.
        """
        if resume and not self.config.exists():
            raise InputError(f"{self.path} holds no run to resume: leave out --resume, or name the folder of one.")
        begun = self.metrics.exists() or bool(self._steps())
        if self.config.exists() and not resume and not begun:
            shutil.rmtree(self.model, ignore_errors=True)  # of a start that failed
        elif self.config.exists():
            if not resume:
                raise InputError(
                    f"{self.path} already holds a run: add --resume to go on with it, or name another folder."
                )
            self.require_same(config)
        write_text(self.config, dump(config))

    def require_same(self, config: RunConfig) -> None:
        """Go on only if the run in this folder has this configuration, but for what a resume may change.

        Raises:
            InputError: If it has another; the message names a key.
        """
        old = load(self.config)
        wrong = changes(old, config)
        if fixed := [key for key in wrong if not any(f"{key}.".startswith(f"{free}.") for free in FREE)]:
            raise InputError(
                f"{self.config}: the run to resume had another {fixed[0]!r}: leave it as it was, or start a new run."
            )
        if "steps" in wrong and config.learner.lr_end != 1.0:
            raise InputError(
                f"{self.config}: 'steps' shapes the learning rate's fall (learner.lr_end), so that it cannot change: "
                f"leave it at {old.steps}, or start a new run."
            )

    def log(self, metrics: Mapping[str, float]) -> None:
        """Append one update's metrics."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_finite(metrics)) + "\n")

    def history(self) -> list[dict[str, float]]:
        """All metrics so far; a line that a kill tore is left out."""
        if not self.metrics.exists():
            return []
        out = []
        for line in self.metrics.read_text("utf-8").splitlines():
            try:
                out.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return out

    def rewind(self, step: int) -> None:
        """Forget what was logged after `step`, which a resume plays again."""
        kept = [row for row in self.history() if row["step"] <= step]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in kept))
        for path in [*self.path.glob("trials/step-*.jsonl"), *self.path.glob("evaluations/step-*.json")]:
            number = path.stem.removeprefix("step-")
            if number.isdecimal() and int(number) > step:
                path.unlink()

    def save_trials(self, step: int, trials: Iterable[tuple[Trial, Sequence[Credit]]]) -> Path:
        """Write all trials of an update."""
        lines = [
            json.dumps({"step": step, "trial": n, **trial_record(trial, credits)}, ensure_ascii=False)
            for n, (trial, credits) in enumerate(trials)
        ]
        path = self.path / "trials" / f"step-{step:06d}.jsonl"
        write_text(path, "".join(line + "\n" for line in lines))
        return path

    def save_evaluation(self, name: str, result: Mapping[str, Any]) -> Path:
        """Write one evaluation."""
        path = self.path / "evaluations" / f"{name}.json"
        write_text(path, json.dumps(result, indent=1) + "\n")
        return path

    def save_checkpoint(self, step: int, state: Mapping[str, Any], write: Callable[[Path], None], keep: int) -> Path:
        """Write a checkpoint and delete older ones than the `keep` newest.

        Args:
            step: Updates so far.
            state: JSON values that a resume needs.
            write: Writes the tensors into the folder that it is given.
            keep: How many checkpoints stay.
        """
        target = self.checkpoints / f"step-{step:06d}"
        for stale in [target, *self.checkpoints.glob(".step-*.tmp")]:  # the latter: a kill left them half written
            shutil.rmtree(stale, ignore_errors=True)
        with new_folder(target) as folder:
            write(folder)
            files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
            write_text(folder / "state.json", json.dumps({"step": step, "files": files, **state}, indent=1) + "\n")
        for old in self._steps()[:-keep]:
            shutil.rmtree(self.checkpoints / f"step-{old:06d}", ignore_errors=True)
        return target

    def latest(self) -> Path | None:
        """The newest checkpoint, or None.

        Raises:
            InputError: If the newest is damaged; the message names the newest good one.
        """
        damaged: Path | None = None
        for step in reversed(self._steps()):
            path = self.checkpoints / f"step-{step:06d}"
            if _whole(path):
                if damaged is None:
                    return path
                raise InputError(
                    f"{damaged} is damaged: delete it to go on from {path.name}, the newest good checkpoint."
                )
            damaged = damaged or path
        if damaged is not None:
            raise InputError(f"{damaged} is damaged and no other checkpoint is there: delete it to start over.")
        return None

    def _steps(self) -> list[int]:
        names = [path.name for path in self.checkpoints.glob("step-*")] if self.checkpoints.is_dir() else []
        return sorted(int(name[5:]) for name in names if name[5:].isdigit())


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What `save_checkpoint` was given as `state`, and `step`."""
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text("utf-8"))
    return state


def _whole(checkpoint: Path) -> bool:
    try:
        files = read_state(checkpoint)["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def changes(old: RunConfig, new: RunConfig) -> list[str]:
    """The keys that differ, sorted."""
    return sorted(_differences(old.model_dump(mode="json"), new.model_dump(mode="json")))


def _differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [d for key in {*old, *new} for d in _differences(old.get(key), new.get(key), f"{prefix}{key}.")]
    return [] if old == new else [prefix.rstrip(".")]


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    return {key: value if value is not None and math.isfinite(value) else None for key, value in metrics.items()}


def task_record(task: Task) -> dict[str, Any]:
    """A task as JSON."""
    return {"env": task.env, "spec": dict(task.spec), "family": task.family, "difficulty": task.difficulty}


def trial_record(trial: Trial, credits: Sequence[Credit]) -> dict[str, Any]:
    """A trial as JSON: every prompt's new messages, reply, action and credit.

    Args:
        trial: The trial.
        credits: One a turn; empty when it was not credited (an evaluation).
    """
    credit = dict(zip((id(turn) for turn in trial.turns), credits, strict=False))

    def attempt(position: int, tried: Attempt) -> dict[str, Any]:
        carry = trial.carries[position] if position < len(trial.carries) else None
        turns = [*tried.turns, *([carry] if carry else [])]
        records = [
            _turn_record(turn, turns[i - 1] if i else None, credit.get(id(turn))) for i, turn in enumerate(turns)
        ]
        return {
            "document_in": tried.document_in,
            "task": tried.goal,
            "won": tried.won,
            "score": tried.score,
            "stop": tried.stop,
            "final": tried.final,
            "turns": records[: len(tried.turns)],
            "carry": records[-1] if carry else None,
        }

    sequence = trial.sequence
    return {
        "sequence": {
            "id": sequence.id,
            "family": sequence.family,
            "padded": list(sequence.padded),
            "tasks": [task_record(task) for task in sequence.tasks],
        },
        "error": trial.error,
        "attempts": [attempt(position, tried) for position, tried in enumerate(trial.attempts)],
    }


def _turn_record(turn: Turn, before: Turn | None, credit: Credit | None) -> dict[str, Any]:
    reply = turn.completion
    messages: Sequence[Message] = turn.prompt.messages
    if turn.prompt.follows is not None and before is not None:
        messages = messages[len(before.prompt.messages) + 1 :]
    return {
        "role": turn.role,
        "position": turn.position,
        "index": turn.index,
        "messages": [{"role": m.role, "content": m.content} for m in messages],
        "reply": reply.text,
        "observation": turn.observation,
        "action": turn.action,
        "valid": turn.valid,
        "finish_reason": reply.finish_reason,
        "prompt_tokens": len(reply.prompt_ids),
        "tokens": len(reply.token_ids),
        "logprob": sum(reply.logprobs) / len(reply.logprobs) if reply.logprobs else None,
        "weight_version": reply.weight_version,
        "return": credit.return_ if credit else None,
        "advantage": credit.advantage if credit else 0.0,
    }
