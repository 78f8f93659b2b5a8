"""KeyDoor, the diagnostic: transfer measured against a known optimum.

A house has n keys, and one of them opens all its doors; which one is the house's secret. A task is one door, with t
tries. Nothing in a task tells the key but trying, so that an agent without memory succeeds with probability t/n
everywhere, and an agent that writes down what it learnt (the key that fits, or those that do not) succeeds at position p
of a sequence with probability min(1, p t / n): with n = 8 and t = 2 that is 0.25, 0.50, 0.75, 1.00.

A task's level is the length of the way to its door: `go on` takes no try, only a turn. Each hall also has something to
notice that means nothing, so that a document has room for what is not worth writing.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, SupportsFloat

from skillrise.env import Info, Spec, TextEnv, spec_of
from skillrise.errors import InputError
from skillrise.types import Demonstration, Task

ID = "skillrise_envs:skillrise/KeyDoor-v0"
THEMES = {
    "colour": ("red", "blue", "green", "black", "white", "pink", "gold", "grey", "brown", "lime", "teal", "plum"),
    "metal": (
        "iron",
        "tin",
        "zinc",
        "brass",
        "lead",
        "steel",
        "copper",
        "silver",
        "nickel",
        "bronze",
        "cobalt",
        "chrome",
    ),
}
DETAILS = ("smoke", "roses", "rain", "bread", "dust", "wax", "apples", "paint")
FIRST_HOUSE = {"train": 0, "dev": 1_000_000, "test": 2_000_000}
SPARE_STEPS = 8
"""Actions that are no try and no step forward before the environment ends the episode."""


class KeyDoorEnv(TextEnv):
    """See the module. A spec is `{"house", "door", "keys", "tries", "level", "theme"}`; all but house and door default.

    Args:
        keys: n, 2 to 12: keys in a house of the catalogue.
        tries: t, 1 to n: tries a door allows.
        houses: Houses in each split of the catalogue; a house is a family.
        doors: Doors in each house.
        levels: Doors of a house are spread evenly over levels 1 to this.
        theme: Names of the keys: `colour` or `metal`.
        thrift: Above 0: a demonstration's notes keep a share u^thrift of the remarks, u drawn evenly from 0 to 1.
    """

    def __init__(
        self,
        keys: int = 8,
        tries: int = 2,
        houses: int = 256,
        doors: int = 8,
        levels: int = 1,
        theme: str = "colour",
        thrift: float = 2.0,
        render_mode: str | None = None,
    ) -> None:
        self.defaults: dict[str, Any] = {"keys": keys, "tries": tries, "level": 1, "theme": theme}
        self.houses, self.doors, self.levels, self.thrift = houses, doors, levels, thrift
        _checked({"house": 0, "door": 0, **self.defaults})
        for key, value, high in (("houses", houses, 10**6), ("doors", doors, 10**6), ("levels", levels, 50)):
            if not isinstance(value, int) or not 1 <= value <= high:
                raise InputError(f"KeyDoor option {key} must be a whole number from 1 to {high}, not {value!r}.")
        if not isinstance(thrift, int | float) or not 0 < thrift < float("inf"):
            raise InputError(f"KeyDoor option thrift must be a number above 0, not {thrift!r}.")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start at the beginning of the way to a door; the seed decides only what there is to notice."""
        super(TextEnv, self).reset(seed=seed)
        spec = self.spec_ = _checked({**self.defaults, **spec_of("KeyDoor", options, '{"house": N, "door": N}')})
        self.names = THEMES[spec["theme"]][: spec["keys"]]
        self.rules = (
            f"You are in a house with locked doors. You carry {spec['keys']} keys: {', '.join(self.names)}. The same key "
            "opens all doors of the house. You see how many tries are left. Actions: `try NAME` puts a key into the door; `go on` "
            "walks on to the door."
        )
        self.key = secret(spec)
        self.way, self.left, self.spare, self.open = spec["level"] - 1, spec["tries"], SPARE_STEPS, False
        detail = random.Random(f"{seed}/{spec['house']}/{spec['door']}").choice(DETAILS)
        return f"Smell of {detail}. {self._where()}", self._info()

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, Info]:
        """Try a key or go on; anything else changes nothing and is not tried often."""
        tried = re.fullmatch(r"(?:try|use) (?:the )?(\w+)(?: key)?", action.strip().lower())
        name = tried[1] if tried else None
        if name in self.names and self.way == 0 and self.left > 0 and not self.open:
            self.left -= 1
            self.open = name == self.key
            text = f"{name} {'fits' if self.open else 'fails'}. {self._where()}"
        elif action.strip().lower() == "go on" and self.way > 0:
            self.way -= 1
            text = self._where()
        else:
            self.spare -= 1
            text = f"That does nothing. {self._where()}"
        ended = self.open or self.left == 0
        return text, float(self.open), ended, self.spare == 0 and not ended, self._info()

    def catalogue(self, split: str, families: Sequence[str] | None = None) -> Iterator[Task]:
        """Doors of the split's houses; a family is a house, difficulty is the level."""
        if split not in FIRST_HOUSE:
            raise InputError(f"KeyDoor has no split {split!r}: use {', '.join(FIRST_HOUSE)}.")
        houses = {f"house-{n}": n for n in range(FIRST_HOUSE[split], FIRST_HOUSE[split] + self.houses)}
        if unknown := [family for family in families or () if family not in houses]:
            raise InputError(
                f"KeyDoor's split {split!r} has no family {unknown[0]!r}: use one of {', '.join([*houses][:2])}, ..."
            )
        for family, house in houses.items():
            if families is None or family in families:
                for door in range(self.doors):
                    level = 1 + door * self.levels // self.doors
                    spec = {**self.defaults, "house": house, "door": door, "level": level}
                    yield Task(ID, spec, family, float(level))

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Shows how to read a document and how to write one, never what is worth writing.

        The document given holds some true remarks about keys of the house and some that mean nothing. The expert tries
        the key that is said to fit, else any that is not known to fail. Its notes keep a random part of what the
        document and the attempt said, each remark as likely as any other.
        """
        rng = random.Random(f"demonstrate/{seed}")
        spec = _checked({**self.defaults, **task.spec})
        names = list(THEMES[spec["theme"]][: spec["keys"]])
        key = secret(spec)
        wrong = [name for name in names if name != key]
        known = rng.sample(wrong, rng.randrange(len(wrong))) if rng.random() < 0.7 else []
        told = rng.random() < 0.4
        remarks = [f"{name} fails." for name in known] + ([f"{key} fits."] if told else [])
        remarks += [f"Smell of {rng.choice(DETAILS)}." for _ in range(rng.randrange(3))]
        rng.shuffle(remarks)

        options = {"task": dict(spec)}
        text, _ = self.reset(seed=seed, options=options)
        seen, actions = [text], ["go on"] * (spec["level"] - 1)
        hopeful = [key] if told else rng.sample([n for n in names if n not in known], len(names) - len(known))
        for name in hopeful[: spec["tries"]]:
            actions.append(f"try {name}")
        done = False
        for i, action in enumerate(actions):
            text, _, done, _, _ = self.step(action)
            seen.append(text)
            if done:
                actions = actions[: i + 1]
                break
        noticed = [s for s in re.findall(r"[^.]+\.", " ".join(seen)) if re.search(r"fits|fails|Smell", s)]
        pool = list(dict.fromkeys([*remarks, *(s.strip() for s in noticed)]))
        share = rng.random() ** self.thrift
        notes = " ".join(remark for remark in pool if rng.random() < share)
        return Demonstration(task, " ".join(remarks), tuple(actions), notes)

    def optimum(self, specs: Sequence[Spec]) -> list[float] | None:
        """Expected tries up to and including position p over n, as long as all tasks are of one house."""
        tasks = [_checked({**self.defaults, **spec}) for spec in specs]
        if len({(t["house"], t["keys"], t["theme"]) for t in tasks}) != 1 or len({t["door"] for t in tasks}) < len(
            tasks
        ):
            return None
        spent, rates = 0, []
        for task in tasks:
            spent += task["tries"]
            rates.append(min(1.0, spent / task["keys"]))
        return rates

    def _where(self) -> str:
        if self.open:
            return "The door is open."
        if self.way:
            return "The way goes on."
        return f"The door is locked, {self.left} left."

    def _info(self) -> Info:
        actions = ["go on"] if self.way else [f"try {name}" for name in self.names]
        return {
            "task": "Open the door.",
            "admissible": [] if self.open or self.left == 0 else actions,
            "won": self.open,
            "score": float(self.open),
        }


def secret(spec: Spec) -> str:
    """The key of a house: a fixed function of the house, which no text shows."""
    digest = hashlib.sha256(f"keydoor/{spec['house']}/{spec['keys']}/{spec['theme']}".encode()).digest()
    return THEMES[spec["theme"]][int.from_bytes(digest[:8], "big") % spec["keys"]]


def _checked(spec: dict[str, Any]) -> dict[str, Any]:
    unknown = set(spec) - {"house", "door", "keys", "tries", "level", "theme"}
    if unknown:
        raise InputError(
            f"KeyDoor task: unknown key {sorted(unknown)[0]!r}: a task has house, door, keys, tries, level, theme."
        )
    if "house" not in spec or "door" not in spec:
        raise InputError("KeyDoor task: 'house' and 'door' are needed, for example {'house': 3, 'door': 0}.")
    if spec["theme"] not in tuple(THEMES):  # a tuple, since JSON's lists cannot be looked up in a dict
        raise InputError(f"KeyDoor task: theme {spec['theme']!r} is unknown: use {', '.join(THEMES)}.")
    for key, low, high in (
        ("house", 0, 10**9),
        ("door", 0, 10**6),
        ("keys", 2, 12),
        ("tries", 1, 12),
        ("level", 1, 50),
    ):
        value = spec[key]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InputError(f"KeyDoor task: {key} must be a whole number from {low} to {high}, not {value!r}.")
    if spec["tries"] > spec["keys"]:
        raise InputError("KeyDoor task: more tries than keys leave nothing to learn: lower tries.")
    return spec
