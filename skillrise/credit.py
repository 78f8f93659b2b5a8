r"""Returns and advantages: pure functions of a group's outcomes and its turns' roles and positions.

Notation: N trials of one sequence form a group; r_i is the reward of the task at position i (`CreditConfig.reward` if
won, else 0). A trial that failed has no outcome: its turns are not scored and it enters no mean. A group of which fewer
than two trials can be compared gives advantage 0, never the raw reward.

All schemes share three rules. Each trial counts once in a group's mean, however many turns it took. A turn whose reply
was invalid or cut loses `invalid_penalty` from its advantage, after normalising. Padded slots are masked (default): a
solve turn on one is not scored and its outcome credits nobody; a curate turn behind one is credited like any other, since
the document passes through. With `curate_weight = 0` no carry turn is scored: documents are written by an untrained writer.

A scheme is one class: most say only what a role at a position is worth (`value`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TypeVar

from skillrise.config import CreditConfig
from skillrise.types import Credit, Group, Role, Trial, Turn

EPSILON = 1e-6
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    """Credit by comparing the trials of a group at each (position, role)."""

    config: CreditConfig

    @abstractmethod
    def value(self, trial: Trial, role: Role, position: int) -> float | None:
        """G of a role at a position of one trial; None where no scored outcome belongs to it."""

    def compare(self, members: Mapping[Key, float]) -> dict[Key, float]:
        """Advantages of values that are comparable: minus their mean; 0 for a singleton."""
        return _relative(members, self.config.normalise)

    def assign(self, group: Group) -> list[list[Credit]]:
        """The credit of each turn: one list a trial, aligned with `Trial.turns`."""
        members: dict[tuple[int, Role], dict[int, float]] = defaultdict(dict)
        for n, trial in enumerate(group.trials):
            for position, role in {(turn.position, turn.role) for turn in trial.turns if trial.error is None}:
                g = self.value(trial, role, position) if role == "solve" or self.config.curate_weight else None
                if g is not None:
                    members[position, role][n] = g
        advantages = {key: self.compare(values) for key, values in members.items()}

        def credit(n: int, turn: Turn) -> Credit:
            values = members.get((turn.position, turn.role), {})
            if n not in values:
                return Credit(None)
            if len(values) < 2:
                return Credit(values[n])
            advantage = advantages[turn.position, turn.role][n]
            if turn.role != "solve":
                advantage *= self.config.curate_weight
            return Credit(values[n], advantage - (0.0 if turn.valid else self.config.invalid_penalty))

        return [[credit(n, turn) for turn in trial.turns] for n, trial in enumerate(group.trials)]


class SkillRise(Scheme):
    """Decoupled by role (arXiv 2607.26784).

        solve at position i :  G = r_i
        curate at position i:  G = sum over j > i of gamma^(j-i) r_j,  times curate_weight once it is an advantage

    The group of a turn is all live trials of the sequence at the same position and role. A reflect turn is credited
    like a curate turn.
    """

    def value(self, trial: Trial, role: Role, position: int) -> float | None:
        """See `Scheme.value`."""
        outcomes = _outcomes(trial, self.config)
        if role == "solve":
            return outcomes[position]
        return _discounted(outcomes, position + 1, self.config.gamma, first=self.config.gamma)


class Coupled(Scheme):
    """SkillRise without the decoupling: what is written is credited by the task it was written after, not by those it serves.

    solve at position i :  G = r_i
    curate at position i:  G = r_i,  times curate_weight once it is an advantage; nothing behind a masked slot
    """

    def value(self, trial: Trial, role: Role, position: int) -> float | None:
        """See `Scheme.value`."""
        return _outcomes(trial, self.config)[position]


class Lamer(Scheme):
    """LaMer (arXiv 2512.16848): attempts at one task, each credited with those after it.

        solve in attempt n  :  G = r_n + sum over m > n of gamma^(m-n) r_m
        reflect after n     :  G = G of attempt n + 1

    An attempt that an earlier success made unnecessary adds nothing.
    """

    def value(self, trial: Trial, role: Role, position: int) -> float | None:
        """See `Scheme.value`."""
        start = position if role == "solve" else position + 1
        return _discounted(_outcomes(trial, self.config), start, self.config.gamma)


class Grpo(Scheme):
    """GRPO: every turn of a task gets that task's outcome, relative to the group; carry turns get nothing."""

    def value(self, trial: Trial, role: Role, position: int) -> float | None:
        """See `Scheme.value`."""
        return _outcomes(trial, self.config)[position] if role == "solve" else None


class Rloo(Grpo):
    """RLOO: the baseline of a trial is the mean of the others, A = (G - mean) N / (N - 1)."""

    def compare(self, members: Mapping[Key, float]) -> dict[Key, float]:
        """See `Scheme.compare`."""
        n = len(members)
        return {key: value * n / max(n - 1, 1) for key, value in _relative(members, self.config.normalise).items()}


class Gigpo(Grpo):
    """GiGPO (arXiv 2505.10978): A = A_episode + step_weight * A_step.

    A_episode is GRPO's. For A_step, turns of one group at the same position that saw the identical observation (the
    anchor) are compared by their step returns step_gamma^(T-t) r, T being the attempt's last turn.
    """

    def assign(self, group: Group) -> list[list[Credit]]:
        """See `Scheme.assign`."""
        episode = Grpo.assign(self, group)
        anchors: dict[tuple[int, str], dict[tuple[int, int], float]] = defaultdict(dict)
        compared: dict[int, set[int]] = defaultdict(set)
        for n, trial in enumerate(group.trials):
            for t, turn in enumerate(trial.turns):
                value = episode[n][t].return_
                if turn.role == "solve" and value is not None:
                    compared[turn.position].add(n)
                    left = len(trial.attempts[turn.position].turns) - 1 - turn.index
                    anchors[turn.position, turn.observation][n, t] = self.config.step_gamma**left * value
        step: dict[tuple[int, int], float] = {}
        for (position, _), members in anchors.items():
            if len(compared[position]) > 1:
                step.update(self.compare(members))
        weight = self.config.step_weight
        return [
            [Credit(c.return_, c.advantage + weight * step.get((n, t), 0.0)) for t, c in enumerate(credits)]
            for n, credits in enumerate(episode)
        ]


SCHEMES: dict[str, type[Scheme]] = {
    "skillrise": SkillRise,
    "coupled": Coupled,
    "grpo": Grpo,
    "rloo": Rloo,
    "gigpo": Gigpo,
    "lamer": Lamer,
}


def scheme(config: CreditConfig) -> Scheme:
    """The scheme that `config.scheme` names."""
    return SCHEMES[config.scheme](config)


def _outcomes(trial: Trial, config: CreditConfig) -> Sequence[float | None]:
    """Reward at each attempted position; None where a padded slot is masked."""
    return [
        None if config.padded == "mask" and trial.sequence.padded[i] else config.reward * attempt.won
        for i, attempt in enumerate(trial.attempts)
    ]


def _discounted(outcomes: Sequence[float | None], start: int, gamma: float, first: float = 1.0) -> float | None:
    """The scored outcomes from `start` on, the first weighted `first` and each later one gamma times less."""
    scored = [first * gamma ** (j - start) * r for j, r in enumerate(outcomes) if j >= start and r is not None]
    return sum(scored) if scored else None


def _relative(members: Mapping[Key, float], normalise: str) -> dict[Key, float]:
    """Each value minus the mean of all; 0 for a singleton; divided by their deviation if asked."""
    if len(members) < 2:
        return dict.fromkeys(members, 0.0)
    mean = fmean(members.values())
    scale = pstdev(members.values()) + EPSILON if normalise == "mean_std" else 1.0
    return {key: (value - mean) / scale for key, value in members.items()}
