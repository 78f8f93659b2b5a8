"""Token losses: pure functions of tensors [tokens]. Which tokens, and how they are averaged, is the learner's business."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """What `policy_loss` returns.

    Attributes:
        loss: [tokens], to be minimised.
        clipped: [tokens] of bool, where the clip took the gradient away.
        weight: [tokens], the importance weight that was used.
    """

    loss: torch.Tensor
    clipped: torch.Tensor
    weight: torch.Tensor


def policy_loss(
    new: torch.Tensor,
    old: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
    clip_low: float,
    clip_high: float,
    cap: float,
) -> PolicyLoss:
    """Clipped policy gradient (PPO, 1707.06347) with an asymmetric range (DAPO, 2503.14476).

        rho = exp(new - old)
        loss = - w min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A),   w = min(exp(old - behaviour), cap)

    The weight w corrects for the sampler's log-probabilities differing from the learner's (truncated importance
    sampling); it carries no gradient.

    Args:
        new: Log-probabilities under the weights being trained.
        old: Log-probabilities under the weights before this rollout's first step, by the learner; no gradient.
        behaviour: Log-probabilities that the engine sampled with.
        advantages: A of each token.
        clip_low: Lower half-width of the clip range.
        clip_high: Upper half-width.
        cap: Upper bound of w; 0 sets w = 1.
    """
    ratio = torch.exp(new - old)
    weight = torch.exp(old - behaviour).clamp(max=cap) if cap > 0 else torch.ones_like(old)
    plain = ratio * advantages
    bounded = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages
    return PolicyLoss(-weight * torch.minimum(plain, bounded), bounded < plain, weight)


def kl_loss(new: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """KL(policy || reference) by the estimator exp(d) - d - 1 with d = reference - new: unbiased, never negative (k3).

    That holds for tokens that were sampled from the policy.
    """
    difference = reference - new
    return torch.expm1(difference) - difference
