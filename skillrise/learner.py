"""One optimiser step on rows: clipped policy gradient, or likelihood for the warm-up; and the state that a resume needs.

The loss of a step is the sum over its trained tokens divided by their number. Micro-batches only split that sum, so
that the gradient does not depend on them. Rows whose advantages are all zero are counted and, unless the KL term needs
them, not run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from skillrise.config import LearnerConfig
from skillrise.errors import InputError, SkillRiseError
from skillrise.loss import kl_loss, policy_loss
from skillrise.policy import Policy
from skillrise.rows import Row, micro_batches
from skillrise.seeds import derive

Metrics = dict[str, float]
Progress = Callable[[int, int], None]
TokenLoss = Callable[[torch.Tensor, list[Row]], torch.Tensor]


class Learner:
    """Trains `policy` in place.

    Args:
        policy: What is trained; its module is wrapped by accelerate.
        config: The learner table of a run file.
        temperature: What the rows were sampled at; log-probabilities use the same.
        seed: Seed of the order of mini-batches.
        accelerator: Devices and precision; a plain one by default.

    Attributes:
        version: How many updates the policy has had.
    """

    def __init__(
        self,
        policy: Policy,
        config: LearnerConfig,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.policy, self.config, self.temperature, self.seed = policy, config, temperature, seed
        self.accelerator = accelerator or Accelerator(mixed_precision=config.mixed_precision)
        self.version = 0
        if config.gradient_checkpointing:
            policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if hasattr(policy.model, "enable_input_require_grads"):
                policy.model.enable_input_require_grads()
        trainable = [p for p in policy.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trainable, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay)
        policy.model, self.optimizer = self.accelerator.prepare(policy.model, optimizer)
        self._anchor = self._initial_weights() if config.kl > 0 else None

    def update(self, rows: Sequence[Row], lr: float, progress: Progress | None = None) -> Metrics:
        """One rollout's update: `epochs` passes over its mini-batches.

        Args:
            rows: All rows of the rollout.
            lr: Learning rate.
            progress: Called with the numbers of rows run in this pass and of all.

        Returns:
            Loss, gradient norm, entropy, clip share, importance weights, tokens, and how many updates old the oldest row is.

        Raises:
            SkillRiseError: If a loss or gradient is not finite; the weights are then as they were before that step.
        """
        config = self.config
        torch.manual_seed(derive(self.seed, "update", self.version))  # dropout, where a model has some
        batches = self._mini_batches(rows)
        old: dict[int, torch.Tensor] = {}
        if len(batches) * config.epochs > 1:
            old = self._logprobs([row for row in rows if row.moves or config.kl > 0])
        reference = self._reference([row for row in rows if row.turns]) if config.kl > 0 else {}
        stats = _Stats()

        def loss(new: torch.Tensor, micro: list[Row]) -> torch.Tensor:
            behaviour, advantages = (_trained(micro, kind).to(new.device) for kind in ("logprobs", "advantages"))
            before = torch.cat([old[id(row)] for row in micro]).to(new.device) if old else new.detach()
            out = policy_loss(
                new, before, behaviour, advantages, config.clip_low, config.clip_high, config.importance_cap
            )
            stats.add("loss/clip_share", out.clipped.float())
            stats.add("loss/importance", out.weight)
            stats.add("loss/sampler_gap", (before - behaviour).abs())
            total = out.loss
            if config.kl > 0:
                kl = kl_loss(new, torch.cat([reference[id(row)] for row in micro]).to(new.device))
                stats.add("loss/kl", kl.detach())
                total = total + config.kl * kl
            stats.add("loss/policy", total.detach())
            return total

        norms = []
        for epoch in range(config.epochs):
            for batch in batches if epoch == 0 else self._mini_batches(rows, epoch):
                active = [row for row in batch if row.moves or config.kl > 0]
                if active:
                    tokens = sum(sum(row.trained) for row in batch)
                    norms.append(self._step(active, tokens, lr, loss, stats, progress))
        shape = {
            "loss/staleness": float(max((self.version - row.version for row in rows), default=0)),
            "tokens/trained": float(sum(sum(row.trained) for row in rows)),
            "loss/idle_rows": sum(not row.moves for row in rows) / max(len(rows), 1),
            "loss/optimizer_steps": float(len(norms)),
        }
        self.version += 1
        return {**stats.means(), **shape, "loss/grad_norm": sum(norms) / len(norms) if norms else 0.0}

    def fit(self, rows: Sequence[Row], lr: float) -> Metrics:
        """One step of supervised fine-tuning: the trained tokens are made likelier, whatever their advantages.

        Returns:
            Mean negative log-likelihood a token (`loss/nll`) and the gradient norm.

        Raises:
            SkillRiseError: See `update`.
        """
        torch.manual_seed(derive(self.seed, "fit", self.version))
        stats = _Stats()

        def loss(new: torch.Tensor, micro: list[Row]) -> torch.Tensor:
            stats.add("loss/nll", -new.detach())
            return -new

        norm = self._step(list(rows), sum(sum(row.trained) for row in rows), lr, loss, stats)
        self.version += 1
        return {**stats.means(), "loss/grad_norm": norm}

    def _step(
        self,
        rows: list[Row],
        tokens: int,
        lr: float,
        loss: TokenLoss,
        stats: _Stats,
        progress: Progress | None = None,
    ) -> float:
        """Accumulate the gradient of the token mean over `rows` and apply it; returns its norm before clipping."""
        model = self.policy.model
        model.train()
        self.optimizer.zero_grad()
        finite, done = True, 0
        for micro in micro_batches(rows, self.config.micro_tokens):
            new, entropy = self._run(micro)
            total = loss(new, micro).sum() / max(tokens, 1)
            stats.add("loss/entropy", entropy)
            finite = finite and bool(torch.isfinite(total.detach()))
            self.accelerator.backward(total)
            done += len(micro)
            if progress is not None:
                progress(done, len(rows))
        norm = float(self.accelerator.clip_grad_norm_(model.parameters(), self.config.grad_clip))
        if not finite or not math.isfinite(norm):
            self.optimizer.zero_grad()
            raise SkillRiseError(
                f"Update {self.version + 1}: the loss or its gradient is not finite, the weights were left as they were: "
                "lower learner.lr, or use float32."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()
        model.eval()
        return norm

    def _run(self, micro: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.policy.token_logprobs([r.ids for r in micro], [r.trained for r in micro], self.temperature)

    @torch.no_grad()
    def _logprobs(self, rows: Sequence[Row]) -> dict[int, torch.Tensor]:
        """Log-probabilities of the trained tokens of each row, by the row's `id`."""
        self.policy.model.eval()
        out: dict[int, torch.Tensor] = {}
        for micro in micro_batches(rows, self.config.micro_tokens):
            split = torch.split(self._run(micro)[0], [sum(row.trained) for row in micro])
            out.update({id(row): part for row, part in zip(micro, split, strict=True)})
        return out

    def _mini_batches(self, rows: Sequence[Row], epoch: int = 0) -> list[list[Row]]:
        """Rows in random order, cut into batches of at least `minibatch_turns` turns (one batch if that is 0)."""
        if not self.config.minibatch_turns:
            return [list(rows)]
        order = list(rows)
        random.Random(derive(self.seed, "minibatches", self.version, epoch)).shuffle(order)
        batches: list[list[Row]] = [[]]
        for row in order:
            if sum(r.turns for r in batches[-1]) >= self.config.minibatch_turns:
                batches.append([])
            batches[-1].append(row)
        return batches

    def _initial_weights(self) -> dict[str, torch.Tensor]:
        """A copy of the weights that the KL term holds on to."""
        return {n: p.detach().clone() for n, p in self.policy.model.named_parameters() if p.requires_grad}

    def _reference(self, rows: Sequence[Row]) -> dict[int, torch.Tensor]:
        """Log-probabilities under the initial weights, which are put in for as long as it takes."""
        assert self._anchor is not None
        weights = dict(self.policy.model.named_parameters())
        current = {name: weights[name].detach().clone() for name in self._anchor}
        _overwrite(weights, self._anchor)
        try:
            return self._logprobs(rows)
        finally:
            _overwrite(weights, current)

    def save(self, folder: Path) -> None:
        """Write trained weights and optimizer state into `folder` as safetensors, moments by parameter name."""
        tensors = {n: p.detach().cpu().contiguous() for n, p in self._named()}
        save_file(tensors, folder / "weights.safetensors")
        if self._anchor is not None:
            save_file({n: t.cpu().contiguous() for n, t in self._anchor.items()}, folder / "reference.safetensors")
        moments = {}
        for name, parameter in self._named():
            for key, value in self._optimizer_state().get(parameter, {}).items():
                moments[f"{name}|{key}"] = torch.as_tensor(value).cpu().contiguous()
        save_file(moments, folder / "optimizer.safetensors")

    def load(self, folder: Path, version: int) -> None:
        """Read what `save` wrote.

        Raises:
            InputError: If the weights are of another model.
        """
        load_weights(self.policy, folder)
        self.version = version
        if self._anchor is not None:
            self._anchor = load_file(folder / "reference.safetensors", device=str(self.policy.device))
        moments = load_file(folder / "optimizer.safetensors")
        state = self._optimizer_state()
        for name, parameter in self._named():
            keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{name}|{key}" in moments]
            if keys:
                state[parameter] = {
                    k: moments[f"{name}|{k}"].to("cpu" if k == "step" else parameter.device) for k in keys
                }

    def _named(self) -> list[tuple[str, torch.nn.Parameter]]:
        model = self.accelerator.unwrap_model(self.policy.model)
        return [(name, p) for name, p in model.named_parameters() if p.requires_grad]

    def _optimizer_state(self) -> dict[torch.nn.Parameter, dict[str, Any]]:
        inner = getattr(self.optimizer, "optimizer", self.optimizer)
        return cast("dict[torch.nn.Parameter, dict[str, Any]]", inner.state)


def load_weights(policy: Policy, folder: Path) -> None:
    """Put the trained weights of a checkpoint into `policy`.

    Raises:
        InputError: If they are of another model, or there are none.
    """
    path = folder / "weights.safetensors"
    if not path.is_file():
        raise InputError(f"{path}: no such file: name a checkpoint folder that `skillrise train` wrote.")
    tensors = load_file(path, device=str(policy.device))
    weights = {name: p for name, p in policy.model.named_parameters() if p.requires_grad}
    if set(tensors) != set(weights) or any(tensors[n].shape != p.shape for n, p in weights.items()):
        raise InputError(f"{path}: these weights are of another model or adapter shape than the run file's policy.")
    _overwrite(weights, tensors)


@torch.no_grad()
def _overwrite(weights: dict[str, torch.nn.Parameter], values: dict[str, torch.Tensor]) -> None:
    for name, value in values.items():
        weights[name].copy_(value)


def _trained(micro: list[Row], kind: str) -> torch.Tensor:
    """Values of the trained tokens, row after row."""
    return torch.tensor(
        [v for row in micro for v, asked in zip(getattr(row, kind), row.trained, strict=True) if asked],
        dtype=torch.float32,
    )


class _Stats:
    """Sums over tokens, read as means at the end."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, values: torch.Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())
        self.counts[name] = self.counts.get(name, 0) + values.numel()

    def means(self) -> Metrics:
        return {name: total / max(self.counts[name], 1) for name, total in self.sums.items()}
