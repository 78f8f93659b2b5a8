"""Which models are on this machine, and the settings in their folders; without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from skillrise.config import PolicyConfig
from skillrise.errors import InputError
from skillrise.files import cache_dir


def model_folder(source: str) -> Path | None:
    """The folder of `policy.source`; None for a model that is made or fetched when the run starts.

    Raises:
        InputError: If `source` is a path and no model is there, or can be no hub name.
    """
    if source == "tiny":
        return None
    if source == "smollm2":
        from skillrise.models.smollm2 import NAME

        made = cache_dir() / "models" / NAME
        return made if made.is_dir() else None
    local = Path(source).expanduser()
    if local.exists() or source.startswith((".", "/", "~")) or Path(local.parts[0]).is_dir():
        if not (local / "config.json").is_file() or not any(local.glob("*.safetensors")):
            raise InputError(
                f"policy.source = {source!r}: there is no model in safetensors there; `skillrise warmup` can make one."
            )
        return local
    return _cached(source)


def _cached(name: str) -> Path | None:
    """Where Hugging Face's cache keeps a model's settings."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError as err:
        raise InputError(f"policy.source = {name!r} is neither a folder nor a hub name: correct it.") from err
    return Path(found).parent if isinstance(found, str) else None


def settings(folder: Path) -> dict[str, Any]:
    """What `config.json` says.

    Raises:
        InputError: If it is no JSON object.
    """
    file = folder / "config.json"
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as err:
        raise InputError(f"{file} cannot be read ({err}): fetch the model again.") from err
    if not isinstance(found, dict):
        raise InputError(f"{file} is no JSON object: fetch the model again.")
    return found


def tiny_settings(config: PolicyConfig) -> dict[str, Any]:
    """The shape of the model that `tiny` makes, as its `config.json` will say it."""
    shape = config.tiny
    return {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": True,
    }
