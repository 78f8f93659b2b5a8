"""What a careful reader would write down after watching a solution: one short document a kind of task.

The texts are ours. They name kinds of things and places, never what one variation holds.
"""

from __future__ import annotations

from typing import NamedTuple

from skillrise_envs.scienceworld import tasks


class Notes(NamedTuple):
    """When the advice fits, steps in order, and pitfalls. `{go}` stands for the way to a room."""

    when: str
    workflow: tuple[str, ...]
    pitfalls: tuple[str, ...]


FOCUS = "A wrong focus fails the task at once: focus only on what the task names."

HEAT = (
    "{go} the kitchen, look around; take the thermometer and, from the opened cupboard, a metal pot.",
    "Get the substance (water: put the pot in the sink, activate the sink) and focus on it.",
    "Put it in the pot. To heat: pot on the stove and activate it; to cool: pot in the opened freezer.",
    "Examine the substance and use the thermometer on it; wait and repeat until its state has changed.",
)
CIRCUIT = (
    "Connect source anode to wire A terminal 1 and source cathode to wire B terminal 1.",
    "Connect wire A terminal 2 to the cathode and wire B terminal 2 to the anode in the light bulb.",
)

NOTES: dict[str, Notes] = {
    "find-non-living-thing": Notes(
        "The task asks for a non-living thing to be moved to a box.",
        (
            "{go} the room of the box.",
            "look around.",
            "focus on a piece of furniture there.",
            "move it straight to the box that the task names.",
        ),
        ("Check colour and room of the box in the task.", "Never focus on an animal or a plant here."),
    ),
    "find-plant": Notes(
        "The task asks for a plant, or a living thing, to be moved to a box.",
        (
            "{go} the greenhouse and look around: flower pots hold plants.",
            "focus on a plant that is listed.",
            "pick up the flower pot it grows in.",
            "{go} the room of the box.",
            "move the flower pot to the box that the task names.",
        ),
        ("Carry the pot, not the plant.", "Focus before you pick up.", FOCUS),
    ),
    "find": Notes(
        "The task asks for an animal, or a living thing, to be moved to a box.",
        (
            "{go} outside and look around: animals and their eggs are there.",
            "focus on one that is listed.",
            "pick it up.",
            "{go} the room of the box.",
            "move it to the box that the task names.",
        ),
        ("An egg counts as an animal.", "Check colour and room of the box in the task.", FOCUS),
    ),
    "lifespan": Notes(
        "The task asks for the animal with the longest or the shortest life span, or one after the other.",
        (
            "{go} the place that the task names and look around.",
            "Compare what you know of the animals listed: large ones and turtles live long, insects and mice short.",
            "focus on the one asked for; if two are asked for, focus on them in that order.",
        ),
        ("Use the full name as listed, the stage of life included.", "Nothing needs to be picked up.", FOCUS),
    ),
    "paint": Notes(
        "The task asks for paint of a mixed colour.",
        (
            "{go} the art studio and look around: cups hold the primary colours.",
            "pour the paints that make the colour into one container, naming each cup by what it contains.",
            "mix that container and look around.",
            "If the task asks for an intermediate paint, focus on it now; pour one more primary colour in; mix again.",
            "focus on the final paint.",
        ),
        ("Blue and yellow make green, red and yellow orange, red and blue violet.", FOCUS),
    ),
    "chemistry": Notes(
        "The task asks for a substance that a recipe describes.",
        (
            "{go} the kitchen and look around; pick up the recipe and read it.",
            "Take an empty container, for example from the opened cupboard.",
            "Put every ingredient in it: move solids, pour liquids, fill water at the sink.",
            "Fetch what is missing from other rooms; look around in each.",
            "mix the container, then focus on the product.",
        ),
        ("Open cupboards, jars and drawers to see what is inside.", "Focus only on the final product."),
    ),
    "electricity": Notes(
        "The task asks for something to be switched on by a circuit.",
        (
            "{go} the workshop, look around, focus on what must be switched on.",
            *CIRCUIT,
            "If the source has a switch, activate it; a solar panel or a wind mill works only outside.",
            "wait1 until it is on.",
        ),
        ("Anode and cathode must not be swapped.", "Use the kind of source that the task asks for.", FOCUS),
    ),
    "conductivity": Notes(
        "The task asks whether something conducts electricity and to put it in the box that fits the answer.",
        (
            "{go} the workshop, pick the thing up, focus on it, drop it there.",
            "Connect battery anode to wire A terminal 1 and battery cathode to wire B terminal 1.",
            "Connect wire A terminal 2 to the bulb's cathode and a third wire's terminal 2 to its anode.",
            "Close the circuit with the thing: its terminal 1 to wire B, its terminal 2 to the third wire.",
            "wait1, look around: if the bulb is on, the thing conducts.",
            "move the thing to the box for that answer.",
        ),
        ("Read again which box means what.", "Leave no gap in the circuit, or the bulb stays off.", FOCUS),
    ),
    "matter": Notes(
        "The task asks for a substance to be melted, boiled or frozen.",
        HEAT,
        (
            "If the stove is broken, {go} the foundry and use the blast furnace (open, put in, activate).",
            "To melt or freeze, the substance may first have to be brought into the other state.",
            "A substance that turned has a new name.",
            FOCUS,
        ),
    ),
    "temperature": Notes(
        "The task asks for a temperature or a melting point and to choose a box by it.",
        (
            "{go} the kitchen, pick up the thermometer, focus on it.",
            "{go} the place of the substance, look around, focus on the substance.",
            "For a melting point heat it in a metal pot (stove or blast furnace), measuring until it turns liquid.",
            "use the thermometer on the substance and compare the reading with the limit in the task.",
            "Choose the box for that side, by moving or focusing as the task says.",
        ),
        ("Focus on the thermometer first.", "Measure as soon as you can: things cool down.", FOCUS),
    ),
    "life-stages": Notes(
        "The task asks to focus on the life stages of a living thing, from earliest to latest.",
        (
            "{go} outside and look around.",
            "focus on each stage in turn: egg or seed, young or seedling, adult, reproducing.",
            "If the next stage is missing, wait1 and look around until one has grown into it.",
        ),
        ("Name stage and place, for there are several of a kind.", "Never skip a stage or go back."),
    ),
    "grow": Notes(
        "The task asks to grow a plant, or its fruit, from seed.",
        (
            "{go} the place of the seeds and take their jar; {go} the greenhouse.",
            "move soil and then a seed to a flower pot; focus on the seed.",
            "Fill the jug at the sink and pour it into the pot.",
            "wait until the plants are grown; for fruit leave the doors open so that bees pollinate the flowers.",
            "focus on what the task names once it is there.",
        ),
        ("Look around after each wait.", FOCUS),
    ),
    "incline": Notes(
        "The task asks to compare inclined planes, by friction or by angle.",
        (
            "{go} the place of the planes, look around, pick up the stopwatch.",
            "move the block to a plane and activate the stopwatch.",
            "look at the plane until the block is at the bottom, deactivate the stopwatch and examine it.",
            "Do the same with the other plane.",
            "A faster block means a steeper plane or less friction: focus on the plane asked for.",
        ),
        ("Start the stopwatch right after the block is placed.", "Focus once, at the very end."),
    ),
    "genetics": Notes(
        "The task asks which of two traits is dominant or recessive.",
        (
            "{go} the place of the seeds, take them, and plant them in pots with soil in the greenhouse.",
            "wait until they flower and bees have crossed them; plant the seeds of their fruit.",
            "Count the trait in the offspring: the trait that most of them show is dominant.",
            "focus on the box for the answer.",
        ),
        ("One generation is not enough.", "Focus on a box only when you know the answer."),
    ),
}
"""By task, or by family for tasks without an entry of their own."""


def notes(name: str, teleports: bool) -> str:
    """The document for task `name`, in markdown.

    Args:
        name: Task name.
        teleports: Whether the way to a room is a teleport; otherwise one walks from room to room.
    """
    when, workflow, pitfalls = NOTES.get(name) or NOTES[tasks.FAMILY_OF[name]]
    lines = ["## When to use", when, "", "## Workflow"]
    lines += [f"{number}. {step}" for number, step in enumerate(workflow, 1)]
    lines += ["", "## Pitfalls", *(f"- {pitfall}" for pitfall in pitfalls)]
    return "\n".join(lines).replace("{go}", "teleport to" if teleports else "go to")
