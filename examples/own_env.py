# PYTHONPATH=examples skillrise curriculum build own_env:own/Lamp-v0 --k 3 --per-family 1 --out runs/lamps.jsonl
"""An environment of one's own: each house has three switches, and the same one lights the lamp in all its rooms."""

import gymnasium

from skillrise.env import TextEnv
from skillrise.types import Demonstration, Task


class LampEnv(TextEnv):
    """One press a room; `options["task"]` is what a sequence file holds: {"house": 4, "room": 1}."""

    rules = "You are in a dark house. The actions are: press 1, press 2, press 3."

    def reset(self, *, seed=None, options=None):
        self.switch, self.lit = options["task"]["house"] % 3 + 1, False
        return "It is dark.", self.info()

    def step(self, action):
        self.lit = action == f"press {self.switch}"
        return "Light!" if self.lit else "Still dark.", float(self.lit), True, False, self.info()

    def info(self):
        return {"task": "Light the lamp.", "admissible": None, "won": self.lit, "score": float(self.lit)}

    def catalogue(self, split, families=None):
        """Optional: lets `skillrise curriculum build` make sequences."""
        first = {"train": 0, "dev": 1000, "test": 2000}[split]
        specs = ({"house": house, "room": room} for house in range(first, first + 100) for room in range(3))
        return (Task("own_env:own/Lamp-v0", spec, f"house-{spec['house']}", 1.0) for spec in specs)

    def demonstrate(self, task, seed):
        """Optional: lets `skillrise warmup` teach the format."""
        press = f"press {task.spec['house'] % 3 + 1}"
        return Demonstration(task, None, (press,), f"In this house {press}.")


gymnasium.register("own/Lamp-v0", LampEnv)
