"""A random small Llama whose tokenizer is trained on given texts: the policy of tests and of the demo.

Words of a closed vocabulary become one token each, so two layers are enough to learn something within a minute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from skillrise.errors import InputError
from skillrise.files import new_folder

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

END = "<|end|>"
SPECIAL = ("<|system|>", "<|user|>", "<|assistant|>", END)
TAGS = ("<action>", "</action>", "<skill>", "</skill>", "<reflection>", "</reflection>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
BYTES = 256


def build(
    texts: Iterable[str],
    folder: Path,
    *,
    layers: int = 2,
    hidden: int = 128,
    heads: int = 4,
    vocab: int = 512,
    max_tokens: int = 1024,
    seed: int = 0,
) -> Path:
    """Write a Hugging Face folder with a random model and its tokenizer; the same arguments give the same bytes.

    Args:
        texts: What the tokenizer is trained on; any other string can be encoded too, in more tokens.
        folder: The new folder; it appears when it is complete.
        layers: Transformer blocks.
        hidden: Width; a multiple of `2 * heads`.
        heads: Attention heads.
        vocab: Most tokens in the vocabulary: 256 bytes, 10 markers, the rest for words and their parts.
        max_tokens: The context length in tokens.
        seed: Seed of the weights.

    Returns:
        `folder`.

    Raises:
        InputError: If the sizes do not fit each other or `folder` exists already.
    """
    if vocab < (least := BYTES + len(SPECIAL) + len(TAGS)):
        raise InputError(f"A tiny model needs a vocabulary of at least {least} tokens, not {vocab}: raise `vocab`.")
    if hidden % (2 * heads):
        raise InputError(f"A tiny model's width {hidden} is no multiple of twice its {heads} heads: change `hidden`.")
    with new_folder(folder) as partial:
        tokenizer = _tokenizer(texts, vocab)
        tokenizer.save_pretrained(partial)
        save_model(_model(tokenizer, layers, hidden, heads, max_tokens, seed), partial)
    return folder


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write configuration and weights, tied ones once: `save_pretrained` without its progress bar."""
    from safetensors.torch import save_file

    model.config.architectures = [type(model).__name__]
    model.config.dtype = model.dtype
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tied = model.all_tied_weights_keys
    weights = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _tokenizer(texts: Iterable[str], vocab: int) -> PreTrainedTokenizerFast:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    markup = re.compile("|".join(map(re.escape, SPECIAL + TAGS)))
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIAL) - len(TAGS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator((part for text in texts for part in markup.split(text) if part), trainer)
    raw.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    raw.add_tokens([AddedToken(token, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw,
        eos_token=END,
        pad_token=END,
        extra_special_tokens=[token for token in SPECIAL if token != END],
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE,
    )


def _model(
    tokenizer: PreTrainedTokenizerFast, layers: int, hidden: int, heads: int, max_tokens: int, seed: int
) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=max_tokens,
        initializer_range=hidden**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
