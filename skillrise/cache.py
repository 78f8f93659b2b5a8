"""The user's cache, and folders that appear complete or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
