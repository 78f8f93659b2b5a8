"""The engine protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from skillrise.types import Completion, Prompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one reply is drawn.

    Attributes:
        temperature: 0 is greedy; log-probabilities are those of the tempered distribution (of the model's own, if 0).
        top_p: Nucleus truncation; 1 keeps all tokens.
        seed: The reply depends on the prompt, the weights and this seed, not on what else is in the batch.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


class Engine(ABC):
    """Turns prompts into completions; requests enter and leave one by one.

    Attributes:
        weight_version: Stamped on every completion; see `updated`.
        exact: Completions carry token ids and log-probabilities, so that they can be trained on.
    """

    weight_version: int = 0
    exact: bool = False

    @abstractmethod
    def add(self, key: Hashable, prompt: Prompt, sampling: Sampling) -> None:
        """Enter a request under a key of the caller's.

        Raises:
            ContextOverflow: If the prompt and its longest reply do not fit the model's context.
        """

    @abstractmethod
    def step(self) -> list[tuple[Hashable, Completion]]:
        """Work a little (one token for every running request) and return what is finished."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether any request is unfinished."""

    @abstractmethod
    def cancel(self, key: Hashable) -> None:
        """Forget a request, finished or not; unknown keys are ignored."""

    def updated(self, version: int) -> None:
        """The policy's weights have changed: everything computed with the old ones is void."""
        self.weight_version = version

    def generate(self, prompts: Sequence[Prompt], sampling: Sequence[Sampling]) -> list[Completion]:
        """Complete all `prompts`, each with its own sampling, in order; for an engine with no other requests.

        Raises:
            ContextOverflow: If a prompt does not fit.
        """
        keys = [("generate", i) for i in range(len(prompts))]
        done: dict[Hashable, Completion] = {}
        try:
            for key, prompt, how in zip(keys, prompts, sampling, strict=True):
                self.add(key, prompt, how)
            while len(done) < len(keys):
                done.update(self.step())
        finally:
            for key in keys:
                self.cancel(key)
        return [done[key] for key in keys]
