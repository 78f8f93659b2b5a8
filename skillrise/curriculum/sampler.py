"""Drawing sequences for training, epoch by epoch, in an order that a resume continues."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Literal

from skillrise.curriculum.tasks import canonical
from skillrise.errors import InputError
from skillrise.types import TaskSequence

Order = Literal["shuffled", "file"]


class Sampler:
    """Draws training sequences, each once an epoch; its state is small, JSON, and resumes exactly.

    Args:
        sequences: What to draw from.
        seed: Of the shuffles.
        order: `shuffled` shuffles every epoch anew; `file` keeps the given order.

    Raises:
        InputError: If there is no sequence or the order is unknown.
    """

    def __init__(self, sequences: Sequence[TaskSequence], seed: int, order: Order = "shuffled") -> None:
        if not sequences:
            raise InputError("There is no sequence to draw from: name a file that holds some.")
        if order not in ("shuffled", "file"):
            raise InputError(f"Unknown curriculum order {order!r}: use 'shuffled' or 'file'.")
        self._sequences = tuple(sequences)
        self._key = {"seed": seed, "order": order, "sequences": _fingerprint(sequences)}
        self._drawn = 0

    def draw(self, n: int) -> list[TaskSequence]:
        """The next `n` sequences; a new epoch begins where one runs out, within a draw too."""
        epochs: dict[int, list[int]] = {}
        out = []
        for index in range(self._drawn, self._drawn + n):
            epoch, place = divmod(index, len(self._sequences))
            if epoch not in epochs:
                epochs[epoch] = self._permutation(epoch)
            out.append(self._sequences[epochs[epoch][place]])
        self._drawn += n
        return out

    def _permutation(self, epoch: int) -> list[int]:
        order = list(range(len(self._sequences)))
        if self._key["order"] == "shuffled":
            Random(f"{self._key['seed']}/{epoch}").shuffle(order)
        return order

    def state_dict(self) -> dict[str, Any]:
        """How far it is, and a fingerprint of what it draws from."""
        return {**self._key, "drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            InputError: If seed, order or sequences are not those of `state`.
        """
        changed = [key for key, value in self._key.items() if state.get(key) != value]
        drawn = state.get("drawn")
        if changed or not isinstance(drawn, int) or drawn < 0:
            what = " and ".join(changed) or "position"
            raise InputError(f"The curriculum's {what} differ from the checkpoint's: restore them or start a new run.")
        self._drawn = drawn


def _fingerprint(sequences: Sequence[TaskSequence]) -> str:
    digest = hashlib.sha256()
    for s in sequences:
        digest.update(canonical([s.id, [[t.env, dict(t.spec)] for t in s.tasks], list(s.padded)]).encode())
    return digest.hexdigest()[:16]
