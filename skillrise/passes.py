"""Passes of rows through a policy, shared out over processes: each runs its share, in as many passes as the others.

DDP and FSDP wait in every pass until all processes are there, so a process that has no rows left runs an idle pass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object

from skillrise.policy import Policy
from skillrise.processes import deal, reshard
from skillrise.rows import Row

Logprobs = dict[int, torch.Tensor]
"""Log-probabilities of the trained tokens of each row, by the row's `id`."""
IDLE = Row(ids=[0, 0], trained=[False, True])
"""The least that has a gradient."""


class Passes:
    """Runs rows through `policy`.

    Args:
        policy: What is run. Passes without gradient go through its own module, so that they wait for nobody unless it is
            sharded.
        wrapped: Its module as accelerate prepared it: passes with gradient go through this one.
        accelerator: Who prepared it.
        micro_tokens: Most tokens of a pass.
        temperature: The logits are divided by it.

    Attributes:
        sharded: No process holds all weights (FSDP), so that every forward pass takes all processes.
    """

    def __init__(
        self, policy: Policy, wrapped: torch.nn.Module, accelerator: Accelerator, micro_tokens: int, temperature: float
    ) -> None:
        self.policy, self.wrapped, self.accelerator = policy, wrapped, accelerator
        self.micro_tokens, self.temperature = micro_tokens, temperature
        self.sharded: bool = accelerator.distributed_type == DistributedType.FSDP
        if self.sharded:
            policy.model = wrapped
        self._training = copy.copy(policy)
        self._training.model = wrapped
        wrapped.eval()

    def share(self, rows: Sequence[Row]) -> list[list[Row]]:
        """This process's micro-batches of `rows`, which are the same on all processes.

        Returns:
            As many as any process has; those that this one lacks are empty, and last.
        """
        shares = deal(rows, self.micro_tokens, self.accelerator.num_processes)
        mine = shares[self.accelerator.process_index]
        return mine + [[]] * (max(map(len, shares)) - len(mine))

    def run(self, micro: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies of the trained tokens, row after row.

        An empty micro-batch gives none, and its backward pass gradients of zero.
        """
        rows, policy = micro or [IDLE], self._training if torch.is_grad_enabled() else self.policy
        both = policy.token_logprobs([r.ids for r in rows], [r.trained for r in rows], self.temperature)
        return both if micro else (both[0][:0], both[1][:0])

    @contextmanager
    def gradient(self, last: bool) -> Iterator[None]:
        """Around a forward and backward pass; gradients are averaged over processes.

        Replicas wait for each other in the last pass of a step only. Shards do in every pass: else each process would
        hold the gradients of the whole model.
        """
        self.wrapped.train()
        try:
            if last or self.sharded:
                yield
            else:
                with self.accelerator.no_sync(self.wrapped):
                    yield
        finally:
            self.wrapped.eval()

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Row]) -> Logprobs:
        """Log-probabilities of all rows, on every process: each runs its share and fills in its places."""
        counts = [sum(row.trained) for row in rows]
        whole = torch.zeros(sum(counts), device=self.accelerator.device)
        places = dict(zip(map(id, rows), torch.split(torch.arange(len(whole)), counts), strict=True))
        for micro in self.share(rows):
            new = self.run(micro)[0]
            if micro:
                whole[torch.cat([places[id(row)] for row in micro]).to(whole.device)] = new
        reshard(self.policy.model)
        return dict(zip(map(id, rows), torch.split(self.accelerator.reduce(whole), counts), strict=True))


def joined(logprobs: Logprobs, micro: list[Row]) -> torch.Tensor:
    """Log-probabilities of the trained tokens of a micro-batch, row after row."""
    return torch.cat([logprobs[id(row)] for row in micro]) if micro else torch.empty(0)


class Stats:
    """What is measured in passes: sums over tokens, read as means and spreads at the end, and counts."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.squares: dict[str, float] = {}
        self.tokens: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def add(self, name: str, values: torch.Tensor) -> None:
        """Take in a value a token; none is allowed, and needed from a process that runs an idle pass."""
        self.sums[name] = self.sums.get(name, 0.0) + float(values.detach().sum())
        self.tokens[name] = self.tokens.get(name, 0) + values.numel()

    def add_weights(self, name: str, weights: torch.Tensor) -> None:
        """Take in an importance weight a token, as `add` does; also read as `NAME_std` and `NAME_ess`.

        The latter is the effective sample share, (sum w)^2 / (n sum w^2): 1 where all weigh the same, 1 / n where one
        token has all the weight.
        """
        # On the CPU, as Apple GPUs know no float64; weights close to 1 have a spread that float32 rounds away.
        exact = weights.detach().cpu().double()
        self.add(name, exact)
        self.squares[name] = self.squares.get(name, 0.0) + float(exact.square().sum())

    def count(self, name: str, n: int) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + n

    def everywhere(self) -> dict[str, float]:
        """Means and counts over all processes, the same on each; all call this, with the same names."""
        parts = gather_object([(self.sums, self.squares, self.tokens, self.counts)])
        sums, squares, tokens, counts = (
            {name: sum(p[i][name] for p in parts) for name in mine} for i, mine in enumerate(parts[0])
        )
        out = {name: total / max(tokens[name], 1) for name, total in sums.items()}
        for name, total in squares.items():
            mean, square = out[name], total / max(tokens[name], 1)
            out[f"{name}_std"] = math.sqrt(max(square - mean**2, 0.0))
            out[f"{name}_ess"] = mean**2 / square if square else 1.0
        return out | {name: float(n) for name, n in counts.items()}
