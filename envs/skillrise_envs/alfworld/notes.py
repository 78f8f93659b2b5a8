"""What a careful reader would write down after watching a solution: one short document a type of task.

The texts are ours. They name kinds of things and places, never where one game holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Notes(NamedTuple):
    """When the advice fits, steps in order, and pitfalls beside the common ones."""

    when: str
    workflow: tuple[str, ...]
    pitfalls: tuple[str, ...] = ()


FIND = "go to the likely receptacles one after the other, open closed ones, until the object is seen."
TAKE = "take OBJECT from RECEPTACLE, both with their numbers."
PLACE = "go to the target, open it if it is closed, then move OBJECT to TARGET."

PITFALLS = (
    "Only `move OBJECT to RECEPTACLE` puts things down: no `put`.",
    "'Nothing happens.' means a wrong name, number or place: go there first, copy names as shown.",
    "You carry one object at a time.",
    "Do not look twice into the same receptacle.",
)


def _treated(verb: str, state: str, place: str) -> Notes:
    return Notes(
        f"The task asks for a {state} object, or to {verb} an object, and to put it somewhere.",
        (FIND, TAKE, f"go to the {place}; {verb} OBJECT with {place.upper()}; it stays in your hand.", PLACE),
        (
            f"An object only counts after `{verb}`, even if it was found in the {place}.",
            f"The {place} need not be opened and the object not put into it.",
        ),
    )


NOTES = {
    "pick_and_place_simple": Notes(
        "The task asks to put one object in or on a receptacle.",
        (FIND, TAKE, PLACE),
        ("The kind must match to the word: a cup is no mug, a pencil no pen.",),
    ),
    "look_at_obj_in_light": Notes(
        "The task asks to look at or examine an object under a lamp.",
        (
            FIND,
            TAKE,
            "go to where the desklamp or floorlamp stands, mostly a desk, a dresser or a side table.",
            "use LAMP while you hold the object.",
        ),
        ("Carry the object to the lamp; the lamp cannot be taken.", "No `examine` is needed."),
    ),
    "pick_clean_then_place_in_recep": _treated("clean", "clean", "sinkbasin"),
    "pick_heat_then_place_in_recep": _treated("heat", "hot", "microwave"),
    "pick_cool_then_place_in_recep": _treated("cool", "cool", "fridge"),
    "pick_two_obj_and_place": Notes(
        "The task asks to put two objects of a kind in or on one receptacle.",
        (FIND, TAKE, PLACE, "Find a second object of the kind: often where the first one was, else further on.", PLACE),
        ("Two different numbers of the same kind; never take the first one away again.",),
    ),
}
"""By type of task."""


def notes(family: str, keep: Callable[[], bool] = lambda: True) -> str:
    """The document for a type of task, in markdown.

    Args:
        family: The type of task.
        keep: Asked for each line of advice whether to write it down; a heading without lines is left out.
    """
    when, workflow, pitfalls = NOTES[family]
    steps = [step for step in workflow if keep()]
    parts = (
        ("When to use", [when] if keep() else []),
        ("Workflow", [f"{number}. {step}" for number, step in enumerate(steps, 1)]),
        ("Pitfalls", [f"- {pitfall}" for pitfall in (*pitfalls, *PITFALLS) if keep()]),
    )
    return "\n\n".join("\n".join([f"## {heading}", *lines]) for heading, lines in parts if lines)
