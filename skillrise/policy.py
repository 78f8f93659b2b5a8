"""The language model that plays both roles: weights, tokenizer, chat, and the two forward passes that are needed.

Sampling and training share one module and one attention function, so that what the learner computes for a token is what
the sampler computed for it, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from accelerate import PartialState
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from skillrise.config import PolicyConfig
from skillrise.errors import InputError
from skillrise.models.chat import Chat

ATTENTION = "skillrise"


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Grouped-query attention that never copies keys or values once a query group.

    With a mask (sampling from a cache) the queries of a group are folded into one longer query; without one (training
    whole right-padded rows) the causal kernel is used, where a row's padding cannot reach its tokens.

    Args:
        module: The layer; unused.
        query: [rows, heads, new tokens, width].
        key: [rows, key heads, tokens, width].
        value: Like `key`.
        attention_mask: [rows, 1, new tokens, tokens], True where a token may be seen, or None.
        scaling: Factor on the scores.
        dropout: Share of dropped weights.
        **others: What else a model gives its attention function; caps and sinks are refused.

    Returns:
        [rows, new tokens, heads, width] and None.
    """
    if others.get("softcap") is not None or others.get("s_aux") is not None:
        raise InputError(
            "This model caps its attention scores or has sinks, which the hf engine does not know: use another."
        )
    rows, heads, new, width = query.shape
    groups = heads // key.shape[1]
    if attention_mask is None:
        out = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=dropout, scale=scaling, enable_gqa=groups > 1
        )
    else:
        folded = query.reshape(rows, key.shape[1], groups * new, width)
        mask = attention_mask.expand(-1, -1, new, -1).repeat(1, 1, groups, 1)
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
        out = out.reshape(rows, heads, new, width)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attention)


class Policy:
    """A causal language model with its tokenizer.

    Attributes:
        model: The module, adapters included; the learner may wrap it.
        tokenizer: Its tokenizer.
        chat: Exact tokens of growing chats.
        source: Where it came from.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> None:
        self.model: Any = model
        self.tokenizer = tokenizer
        self.chat = Chat(tokenizer)
        self.source = source

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return cast(torch.device, next(self.model.parameters()).device)

    def last_logits(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Any, last: torch.Tensor
    ) -> torch.Tensor:
        """Logits behind each row's last new token, from a cache.

        Args:
            ids: [rows, new tokens], right-padded.
            positions: Their places in their rows, same shape.
            mask: [rows, 1, new tokens, tokens] of bool.
            cache: Object with transformers' `update(key, value, layer)`.
            last: [rows], index of the last token that is no padding.

        Returns:
            [rows, vocabulary].
        """
        keep, where = torch.unique(last, return_inverse=True)
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        return cast(torch.Tensor, out.logits[torch.arange(len(ids), device=ids.device), where])

    def token_logprobs(
        self, rows: Sequence[Sequence[int]], trained: Sequence[Sequence[bool]], temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability of each trained token given those before it, and the entropy there.

        Args:
            rows: Token ids, one list a row, of any lengths.
            trained: True for the tokens that are asked for; same lengths. The first token of a row cannot be.
            temperature: The logits are divided by it.

        Returns:
            Two tensors [trained tokens], row after row; the entropy carries no gradient.
        """
        width = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        asked = torch.zeros(len(rows), width, dtype=torch.bool)
        for i, (row, mask) in enumerate(zip(rows, trained, strict=True)):
            ids[i, : len(row)] = torch.tensor(row)
            asked[i, : len(row)] = torch.tensor(mask)
        assert not asked[:, 0].any(), "nothing comes before a row's first token"
        ids, asked = ids.to(self.device), asked.to(self.device)
        which, column = asked.nonzero(as_tuple=True)
        keep, where = torch.unique(column - 1, return_inverse=True)
        logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        logprobs = torch.log_softmax(logits[which, where].float() / temperature, dim=-1)
        with torch.no_grad():
            entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, ids[which, column][:, None]).squeeze(-1), entropy

    def save(self, folder: Path) -> None:
        """Write a complete Hugging Face folder with adapters merged in; `folder` must not exist, or be empty."""
        from skillrise.models.tiny import save_model

        model = self.model
        if hasattr(model, "merge_and_unload"):
            import copy

            model = copy.deepcopy(model).merge_and_unload()
        folder.mkdir(parents=True, exist_ok=True)
        save_model(model, folder)
        self.tokenizer.save_pretrained(folder)


def load(config: PolicyConfig, folder: Path | None = None) -> Policy:
    """Load the model that `config.source` names onto this process's device, with adapters if `config.lora` asks for them.

    Args:
        config: The policy table of a run file.
        folder: The model's folder where it is not a name to look up (a checkpoint, a tiny model that was just made).

    Raises:
        InputError: If there is no such model, or it is of a kind that cannot be sampled here.
    """
    source = str(folder or config.source)
    if source == "smollm2":
        from skillrise.models import smollm2

        source = str(smollm2.folder())
    local = Path(source).expanduser()
    if not local.exists() and (source.startswith((".", "/", "~")) or Path(local.parts[0]).is_dir()):
        raise InputError(f"policy.source = {source!r}: there is no such folder; `skillrise warmup` can make one.")
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        settings = AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        _check(settings, config, source)
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, config.dtype),
            attn_implementation=ATTENTION,
            use_safetensors=True,
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError, KeyError) as err:
        reason = (str(err).strip() or type(err).__name__).splitlines()[0]
        raise InputError(
            f"policy.source = {source!r} cannot be loaded ({reason}): name a Hugging Face folder, a hub name, "
            "smollm2 or tiny."
        ) from err
    if config.lora is not None:
        model = _adapted(model, config)
    return Policy(model.to(PartialState().device), tokenizer, source)


def _check(settings: Any, config: PolicyConfig, source: str) -> None:
    """Refuse what the hf engine would compute wrongly: other attention than full, prompts beyond the last position."""
    text = settings.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
    window = getattr(text, "sliding_window", None)
    if window and not getattr(text, "layer_types", None) and window < config.context_tokens:
        kinds = {f"sliding_window of {window} tokens"}
    if kinds != {"full_attention"}:
        raise InputError(
            f"policy.source = {source!r} has layers of the kinds {', '.join(sorted(kinds))}: the hf engine samples full "
            "attention only; choose another model, or a context_tokens within its window."
        )
    longest = getattr(text, "max_position_embeddings", None)
    if longest and config.context_tokens > longest:
        raise InputError(
            f"policy.context_tokens = {config.context_tokens}: {source!r} knows {longest} positions; lower it."
        )


def _adapted(model: Any, config: PolicyConfig) -> Any:
    from peft import LoraConfig, get_peft_model

    assert config.lora is not None
    shape = LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,  # type: ignore[arg-type]  # peft divides it by the rank
        lora_dropout=config.lora.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, shape, autocast_adapter_dtype=True)
