"""How large a run is: what an update plays and learns, what a model weighs, which devices are asked for. Arithmetic only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from skillrise.config import LoraConfig, RunConfig

UNCREDITED = ("grpo", "rloo", "gigpo")
"""Schemes in which carry turns get no credit."""


@dataclass(frozen=True, slots=True)
class Update:
    """What an update is at most.

    Attributes:
        trials: Trials, each a sequence played once.
        plays: Tasks played.
        solve_turns: Replies that act.
        carry_turns: Replies that curate or reflect.
        sampled: Tokens sampled.
        rows: Training rows.
        trained_turns: Replies that are credited.
        optimiser_steps: Optimiser steps.
    """

    trials: int
    plays: int
    solve_turns: int
    carry_turns: int
    sampled: int
    rows: int
    trained_turns: int
    optimiser_steps: int


def update(config: RunConfig, k: int) -> Update:
    """What an update of sequences of `k` tasks is at most, if every task takes all its turns."""
    how, learner = config.play, config.learner
    trials = config.rollout.sequences * config.rollout.trials
    solve = trials * k * how.turns
    carry = 0 if how.carry == "none" else trials * (k if how.carry_last else k - 1)
    credited = config.credit.scheme not in UNCREDITED and config.credit.curate_weight > 0
    credits_last = config.credit.scheme == "coupled"  # elsewhere nothing comes after the last carry turn to credit it
    trained = solve + (carry if credits_last else min(carry, trials * (k - 1))) * credited
    batches = ceil(trained / learner.minibatch_turns) if learner.minibatch_turns else 1
    return Update(
        trials=trials,
        plays=trials * k,
        solve_turns=solve,
        carry_turns=carry,
        sampled=solve * how.action_tokens + carry * how.document_tokens,
        rows=trials * k if how.context == "transcript" else trained,
        trained_turns=trained,
        optimiser_steps=learner.epochs * batches,
    )


@dataclass(frozen=True, slots=True)
class Model:
    """What a causal transformer weighs.

    Attributes:
        parameters: Its weights.
        adapters: Weights of low-rank adapters beside them.
        cache: Numbers in the KV cache for a token.
    """

    parameters: int
    adapters: int
    cache: int


def model(settings: Mapping[str, Any], lora: LoraConfig | None = None) -> Model | None:
    """What a model with this `config.json` weighs, as a Llama of that shape would; None where the shape is not told."""
    shape = settings.get("text_config") or settings
    try:
        layers, hidden, heads = (shape[key] for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
        vocab = shape["vocab_size"]
    except KeyError:
        return None
    width = shape.get("head_dim") or hidden // heads
    keys = (shape.get("num_key_value_heads") or heads) * width
    inner = shape.get("intermediate_size") or 4 * hidden
    query = heads * width
    linear = [(hidden, query), (query, hidden), *[(hidden, keys)] * 2, *[(hidden, inner)] * 2, (inner, hidden)]
    embeddings = vocab * hidden * (1 if settings.get("tie_word_embeddings", False) else 2)
    blocks = layers * (sum(a * b for a, b in linear) + 2 * hidden)
    adapters = layers * sum(lora.rank * (a + b) for a, b in linear) if lora else 0
    return Model(embeddings + blocks + hidden, adapters, 2 * layers * keys)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, over all processes that share the weights.

    Attributes:
        learner: Weights, gradients, Adam's moments, and the reference of the KL term; no activations.
        engine: The weights of an engine that has its own; 0 where it samples from the learner's.
        cache: The KV cache if all trials that may be alive fill their context.
        checkpoint: Trained weights and moments on disk.
    """

    learner: int
    engine: int
    cache: int
    checkpoint: int


def memory(config: RunConfig, size: Model) -> Memory:
    """The memory of a run's weights and of what goes with them, in one learner process and its engine."""
    held = 2 if config.policy.dtype == "bfloat16" else 4
    engine = config.engine.vllm.dtype
    sampled = held if config.engine.kind == "hf" or engine == "policy" else 4 if engine == "float32" else 2
    trained = size.adapters if config.policy.lora else size.parameters
    own = config.engine.kind == "vllm" or config.engine.copy_weights or config.rollout.overlap
    rows = config.engine.rows or config.rollout.concurrency
    reference = 4 * trained if config.learner.kl > 0 else 0
    return Memory(
        learner=held * size.parameters + (4 * size.adapters) + 12 * trained + reference,
        engine=sampled * size.parameters if own else 0,
        cache=sampled * size.cache * rows * config.policy.context_tokens,
        checkpoint=12 * trained + reference,
    )


def gpus(config: RunConfig, processes: int) -> int:
    """GPUs of one machine that the run file asks for under so many learner processes; 0 where it can do without."""
    engine = config.engine
    if engine.replicas:
        here = ceil(engine.replicas * config.ray.engine_gpus) if config.ray.address == "local" else 0
        return here + 1 if engine.kind == "vllm" or here else 0
    if engine.kind != "vllm":
        return 0
    named = [name.strip() for name in (engine.vllm.devices or "").split(",") if name.strip()]
    if named and all(name.isdigit() for name in named):
        return max(processes, *(int(name) + 1 for name in named))
    return processes + len(named) if named else max(processes, engine.vllm.tensor_parallel)
