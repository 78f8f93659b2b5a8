"""Where files go: the user's cache, and files and folders that appear whole or not at all."""

from __future__ import annotations

import math
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillrise.errors import InputError


def cache_dir() -> Path:
    """Where downloads and conversions are kept.

    `$SKILLRISE_CACHE`, else `$XDG_CACHE_HOME/skillrise`, else `~/.cache/skillrise`; it need not exist yet.
    """
    if own := os.environ.get("SKILLRISE_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "skillrise"
    return Path.home() / ".cache" / "skillrise"


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file whole or not at all; folders above it are made.

    Raises:
        OSError: If it cannot be written.
        UnicodeEncodeError: If `text` holds lone surrogates.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target` that becomes `target` when the block ends well, and vanishes when it does not.

    Raises:
        InputError: If `target` exists and is not an empty folder.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target} already exists: remove it or name another folder.")
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def without_nan(value: Any) -> Any:
    """`value` with null for numbers that JSON does not have: nan and the infinities."""
    if isinstance(value, dict):
        return {key: without_nan(v) for key, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
