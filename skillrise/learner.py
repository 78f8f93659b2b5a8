"""One optimiser step on rows: clipped policy gradient, or likelihood for the warm-up; and the state that a resume needs.

The loss of a step is the sum over its trained tokens divided by their number. Micro-batches only split that sum, and
processes only share them out, so that the gradient depends on neither. Rows whose advantages are all zero are counted
and, unless the KL term needs them, not run.

With several processes, all are given the same rows and call the same methods; see `passes` for who runs what.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from accelerate import Accelerator

from skillrise.checkpoint import load_into, load_moments, load_weights, moments, save
from skillrise.config import LearnerConfig
from skillrise.errors import SkillRiseError
from skillrise.loss import kl_loss, policy_loss
from skillrise.passes import Logprobs, Passes, Stats, joined
from skillrise.policy import Policy
from skillrise.processes import copies, exchanged, full, launched, trained
from skillrise.rows import Row, packed_tokens
from skillrise.seeds import derive

Metrics = dict[str, float]
Progress = Callable[[int, int], None]
TokenLoss = Callable[[torch.Tensor, list[Row]], torch.Tensor]


class Learner:
    """Trains `policy` in place.

    Args:
        policy: What is trained.
        config: The learner table of a run file.
        temperature: What the rows were sampled at; log-probabilities use the same.
        seed: Seed of the order of mini-batches.
        accelerator: Processes, devices and precision, from `processes.launched`.

    Attributes:
        version: How many updates the policy has had.
        passes: How rows are run.
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
        self.policy, self.config, self.seed = policy, config, seed
        self.accelerator = accelerator or launched(config.mixed_precision)
        self.version = 0
        if config.gradient_checkpointing:
            policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            if hasattr(policy.model, "enable_input_require_grads"):
                policy.model.enable_input_require_grads()
        optimizer = torch.optim.AdamW(
            trained(policy.model).values(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )
        wrapped, self.optimizer = self.accelerator.prepare(policy.model, optimizer)
        self.passes = Passes(policy, wrapped, self.accelerator, config.micro_tokens, temperature)
        self._anchor = copies(trained(policy.model)) if config.kl > 0 else None

    @property
    def sharded(self) -> bool:
        """Whether no process holds all weights, so that every forward pass takes all processes."""
        return self.passes.sharded

    def update(self, rows: Sequence[Row], lr: float, progress: Progress | None = None) -> Metrics:
        """One rollout's update: `epochs` passes over its mini-batches.

        Args:
            rows: All rows of the rollout, the same on all processes.
            lr: Learning rate.
            progress: Called with the numbers of rows run in this pass and of all, as far as this process runs them.

        Returns:
            Loss, gradient norm, entropy, clip share, importance weights (mean, spread, effective sample share), the
            divergence KL(sampler || weights before the first step), tokens, and how many updates old the oldest row is;
            the same on all processes.

        Raises:
            SkillRiseError: If a loss or gradient is not finite on any process; the weights are then as they were before
                that step, on all.
        """
        config = self.config
        self._seed("update")
        batches = self._mini_batches(rows)
        old, reference = Logprobs(), Logprobs()
        if len(batches) * config.epochs > 1:
            old = self.passes.logprobs([row for row in rows if row.moves or config.kl > 0])
        if self._anchor is not None:
            with exchanged(trained(self.policy.model), self._anchor):
                reference = self.passes.logprobs(rows)
        stats = Stats()
        loss = self._policy_loss(old, reference, stats)
        norms = []
        for epoch in range(config.epochs):
            for batch in batches if epoch == 0 else self._mini_batches(rows, epoch):
                active = [row for row in batch if row.moves or config.kl > 0]
                if active:
                    norms.append(self._step(active, _trained_tokens(batch), lr, loss, stats, progress))
        shape = {
            "loss/staleness": float(max((self.version - row.version for row in rows), default=0)),
            "tokens/trained": float(_trained_tokens(rows)),
            "loss/idle_rows": sum(not row.moves for row in rows) / max(len(rows), 1),
            "loss/optimizer_steps": float(len(norms)),
        }
        self.version += 1
        return {**stats.everywhere(), **shape, "loss/grad_norm": sum(norms) / len(norms) if norms else 0.0}

    def fit(self, rows: Sequence[Row], lr: float) -> Metrics:
        """One step of supervised fine-tuning: the trained tokens are made likelier, whatever their advantages.

        Returns:
            Mean negative log-likelihood a token (`loss/nll`), tokens run, and the gradient norm.

        Raises:
            SkillRiseError: See `update`.
        """
        self._seed("fit")
        stats = Stats()

        def loss(new: torch.Tensor, micro: list[Row]) -> torch.Tensor:
            stats.add("loss/nll", -new.detach())
            return -new

        norm = self._step(list(rows), _trained_tokens(rows), lr, loss, stats)
        self.version += 1
        return {**stats.everywhere(), "loss/grad_norm": norm}

    def _seed(self, what: str) -> None:
        """Dropout, where a model has some, differs from process to process, as their rows do."""
        torch.manual_seed(derive(self.seed, what, self.version, self.accelerator.process_index))

    def _policy_loss(self, old: Logprobs, reference: Logprobs, stats: Stats) -> TokenLoss:
        config = self.config

        def loss(new: torch.Tensor, micro: list[Row]) -> torch.Tensor:
            behaviour, advantages = (_values(micro, kind).to(new.device) for kind in ("logprobs", "advantages"))
            before = joined(old, micro).to(new.device) if old else new.detach()
            out = policy_loss(
                new, before, behaviour, advantages, config.clip_low, config.clip_high, config.importance_cap
            )
            stats.add("loss/clip_share", out.clipped.float())
            stats.add_weights("loss/importance", out.weight)
            stats.add("loss/sampler_gap", (before - behaviour).abs())
            stats.add("loss/kl_sampler", kl_loss(behaviour, before))
            total = out.loss
            if config.kl > 0:
                kl = kl_loss(new, joined(reference, micro).to(new.device))
                stats.add("loss/kl", kl.detach())
                total = total + config.kl * kl
            stats.add("loss/policy", total.detach())
            return total

        return loss

    def _step(
        self,
        rows: list[Row],
        tokens: int,
        lr: float,
        loss: TokenLoss,
        stats: Stats,
        progress: Progress | None = None,
    ) -> float:
        """Accumulate the gradient of the token mean over `rows` and apply it; returns its norm before clipping."""
        self.optimizer.zero_grad()
        passes, processes = self.passes.share(rows), self.accelerator.num_processes
        done, finite = 0, True
        for i, micro in enumerate(passes):
            with self.passes.gradient(last=i == len(passes) - 1):
                new, entropy = self.passes.run(micro)
                total = loss(new, micro).sum() * processes / max(tokens, 1)  # gradients are averaged over processes
                self.accelerator.backward(total)
            finite = finite and bool(torch.isfinite(total.detach()))
            stats.add("loss/entropy", entropy)
            stats.count("tokens/run", packed_tokens(micro))
            done += len(micro)
            if progress is not None:
                progress(done, sum(map(len, passes)))
        weights = self.passes.wrapped.parameters()
        norm = float(full(self.accelerator.clip_grad_norm_(weights, self.config.grad_clip)))
        if not finite or not math.isfinite(norm):
            self.accelerator.set_trigger()
        if self.accelerator.check_trigger():  # on any process
            self.optimizer.zero_grad()
            raise SkillRiseError(
                f"Update {self.version + 1}: the loss or its gradient is not finite, the weights were left as they were: "
                "lower learner.lr, or use float32."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

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

    def save(self, folder: Path) -> None:
        """Write trained weights and optimiser state into `folder`. All processes call this; the main one writes."""
        weights, main = trained(self.policy.model), self.accelerator.is_main_process
        save(folder / "weights.safetensors", weights.items(), main)
        save(folder / "optimizer.safetensors", moments(weights, self.optimizer.state), main)
        if self._anchor is not None:
            save(folder / "reference.safetensors", self._anchor.items(), main)

    def load(self, folder: Path, version: int) -> None:
        """Read what `save` wrote, whatever the number of processes was then. All processes call this.

        Raises:
            InputError: If the weights are of another model.
        """
        load_weights(self.policy, folder)
        load_moments(folder / "optimizer.safetensors", trained(self.policy.model), self.optimizer.state)
        if self._anchor is not None:
            load_into(folder / "reference.safetensors", self._anchor)
        self.version = version


def _trained_tokens(rows: Sequence[Row]) -> int:
    return sum(sum(row.trained) for row in rows)


def _values(micro: list[Row], kind: str) -> torch.Tensor:
    """Values of the trained tokens, row after row."""
    return torch.tensor(
        [v for row in micro for v, asked in zip(getattr(row, kind), row.trained, strict=True) if asked],
        dtype=torch.float32,
    )
