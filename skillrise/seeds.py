"""Seeds derived from names, so that no hidden random state has to be saved: the same names give the same seed."""

from __future__ import annotations

import hashlib


def derive(*names: str | int) -> int:
    """A seed in [0, 2^63) for this combination of names, the same in every process."""
    digest = hashlib.blake2b(repr(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
