"""What ScienceWorld has to offer: 30 tasks, 7,207 variations, their families and splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillrise.errors import InputError

VARIATIONS: dict[str, int] = {
    "boil": 30,
    "change-the-state-of-matter-of": 30,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "find-animal": 300,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "freeze": 30,
    "grow-fruit": 126,
    "grow-plant": 126,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "lifespan-longest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "lifespan-shortest-lived": 125,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "melt": 30,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "use-thermometer": 540,
}
"""Variations of each task of version 1.2.3, in the engine's order: the place of a task is its `task_id`."""

NAMES = tuple(VARIATIONS)

FAMILIES: dict[str, tuple[str, ...]] = {
    "find": ("find-non-living-thing", "find-plant", "find-living-thing", "find-animal"),
    "lifespan": (
        "lifespan-longest-lived",
        "lifespan-shortest-lived",
        "lifespan-longest-lived-then-shortest-lived",
    ),
    "paint": ("chemistry-mix-paint-secondary-color", "chemistry-mix-paint-tertiary-color"),
    "chemistry": ("chemistry-mix",),
    "electricity": ("power-component", "power-component-renewable-vs-nonrenewable-energy"),
    "conductivity": ("test-conductivity", "test-conductivity-of-unknown-substances"),
    "matter": ("melt", "boil", "freeze", "change-the-state-of-matter-of"),
    "temperature": (
        "use-thermometer",
        "measure-melting-point-known-substance",
        "measure-melting-point-unknown-substance",
    ),
    "life-stages": ("identify-life-stages-1", "identify-life-stages-2"),
    "grow": ("grow-plant", "grow-fruit"),
    "incline": (
        "inclined-plane-determine-angle",
        "inclined-plane-friction-named-surfaces",
        "inclined-plane-friction-unnamed-surfaces",
    ),
    "genetics": ("mendelian-genetics-known-plant", "mendelian-genetics-unknown-plant"),
}
"""Tasks that share a method; within a family later tasks tend to be harder."""

LABELS = ("teleportAction", "openDoors", "selfWateringFlowerPots", "noElectricalAction", "openContainers")

FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


def variations(name: str, split: str) -> range:
    """The variations of task `name` in `split`: the engine's half, quarter and quarter.

    Raises:
        InputError: If there is no such split.
    """
    total, quarter = VARIATIONS[name], VARIATIONS[name] // 4
    parts = {
        "train": range(2 * quarter),
        "dev": range(2 * quarter, 3 * quarter),
        "test": range(3 * quarter, total),
    }
    if split not in parts:
        raise InputError(f"ScienceWorld has no split {split!r}: use one of {', '.join(parts)}.")
    return parts[split]


def select(families: Any = None) -> tuple[str, ...]:
    """Task names of the given families, or of all; a task's own name stands for itself.

    Raises:
        InputError: If a name is neither a family nor a task.
    """
    if families is None:
        return tuple(name for names in FAMILIES.values() for name in names)
    chosen: dict[str, None] = {}
    for name in families:
        if name not in FAMILIES and name not in VARIATIONS:
            raise InputError(
                f"ScienceWorld has no family {name!r}: use one of {', '.join(FAMILIES)}, or a task's name."
            )
        chosen.update(dict.fromkeys(FAMILIES.get(name, (name,))))
    return tuple(chosen)


def read(spec: Mapping[str, Any]) -> tuple[str, int]:
    """Task name and variation of a spec; keys that are not needed are ignored.

    Args:
        spec: `{"task": name, "variation": i}`, or `{"task_id": place in NAMES, "variation": i}` as the SkillRise
            authors' files have it.

    Raises:
        InputError: If the task is unknown or has no such variation.
    """
    name, place, variation = spec.get("task"), spec.get("task_id"), spec.get("variation")
    if name is None and isinstance(place, int) and 0 <= place < len(NAMES):
        name = NAMES[place]
    if not isinstance(name, str) or name not in VARIATIONS:
        raise InputError(
            f"ScienceWorld task {place if name is None else name!r} is unknown: "
            f"give `task` (one of {', '.join(NAMES)}) or `task_id` (0 to {len(NAMES) - 1})."
        )
    if isinstance(variation, bool) or not isinstance(variation, int) or not 0 <= variation < VARIATIONS[name]:
        raise InputError(f"ScienceWorld task {name} has no variation {variation!r}: use 0 to {VARIATIONS[name] - 1}.")
    return name, variation


def simplifications(wanted: str, name: str) -> str:
    """The engine's labels for `wanted` in task `name`, joined by commas.

    Raises:
        InputError: If a label is unknown, or hides the electrical actions that the task is about.
    """
    electrical = name.startswith(("power-component", "test-conductivity"))
    if wanted == "easy":
        return ",".join(LABELS[: 3 if electrical else 4])
    labels = [label.strip() for label in wanted.split(",") if label.strip()]
    for label in labels:
        if label not in LABELS:
            raise InputError(f"ScienceWorld has no simplification {label!r}: use `easy` or {', '.join(LABELS)}.")
    if electrical and "noElectricalAction" in labels:
        raise InputError(f"ScienceWorld task {name} needs electrical actions: leave noElectricalAction out.")
    return ",".join(labels)
