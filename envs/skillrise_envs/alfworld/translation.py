"""A game file, translated for the planner; what all episodes of a game share."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fast_downward.translate.pddl.conditions import Atom
from textworld.envs.pddl.logic import GameLogic
from textworld.generator.game import EntityInfo
from textworld.logic import Placeholder, Proposition, State, Type, TypeHierarchy, Variable

from skillrise.errors import EnvironmentFailure, Terminated
from skillrise_envs.alfworld import downward, grammar

KEPT = 32
"""Translated games that a process keeps, 1 to 3 MB each; those in play are kept anyway."""

TASK = re.compile(r'"Your task is to: [^;|"<>\[\]#{}\\\n]+"')
"""The one part of the grammar that differs from game to game."""

UNNAMED = {"_bar_": "|", "_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}


class Facts(State):  # type: ignore[misc]
    """What holds in a game at a time."""

    def __init__(self, types: TypeHierarchy) -> None:
        self._logic = SimpleNamespace(types=types)
        self._facts: defaultdict[Any, set[Proposition]] = defaultdict(set)
        self._vars_by_name: dict[str, Variable] = {}
        self._vars_by_type: defaultdict[str, set[Variable]] = defaultdict(set)
        self._var_counts: Counter[str] = Counter()

    def copy(self) -> Facts:
        """The same facts, to be changed."""
        copy = Facts(self._logic.types)
        copy._facts.update((signature, facts.copy()) for signature, facts in self._facts.items())
        copy._vars_by_name.update(self._vars_by_name)
        copy._vars_by_type.update((kind, variables.copy()) for kind, variables in self._vars_by_type.items())
        copy._var_counts.update(self._var_counts)
        return copy


@dataclass(slots=True)
class Action:
    """A ground action.

    Attributes:
        template: The command in the grammar's words.
        feedback: The symbol for what is said when it is done.
        mapping: Its arguments by placeholder.
        named: What is told of its arguments, by the placeholder's name.
        command: The command, where it reads the same all the game; filled in when it is first needed.
    """

    template: str
    feedback: str
    mapping: Mapping[Any, Any]
    named: Mapping[str, Any]
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Logic:
    """What a game's file says of the actions (by name) and texts of all games alike."""

    actions: Mapping[str, Any]
    rules: grammar.Rules


class Game:
    """A game, ready to be played many times and by many at once.

    Args:
        data: What the file holds.

    Attributes:
        sas: The game as the planner reads it.
        facts: What holds at the start; to be copied.
        entities: What is told of each thing, by its id.
        rules: Its grammar.
        task: The task in words.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        task, self.sas = downward.translate(data["pddl_domain"], data["pddl_problem"])
        logic = _logic(data["grammar"])
        self.rules = logic.rules
        self._logic = logic
        self._parameters = {action.name: action.parameters for action in task.actions}
        self._things = {thing.name: Variable(thing.name, thing.type_name) for thing in task.objects}
        self._changing = frozenset(
            [effect.literal.predicate for action in task.actions for effect in action.effects]
            + [axiom.name for axiom in task.axioms]
        )
        self._known: dict[str, tuple[Proposition, Proposition]] = {}
        self._actions: dict[str, Action] = {}
        self.facts = self._start(task)
        self.entities = _entities(self.facts)
        self.task = self.derive("#task#", self.facts).removeprefix("Your task is to: ").strip()

    def fact(self, atom: str) -> tuple[Proposition, Proposition]:
        """What the planner calls `atom`, and its opposite."""
        if atom not in self._known:
            kind, rest = atom.split(" ", 1)
            name, names = rest.split("(", 1)
            arguments = [self._things[thing] for thing in names[:-1].split(", ") if thing]
            pair = _proposition(name, arguments), _proposition(f"not_{name}", arguments)
            self._known[atom] = pair if kind == "Atom" else pair[::-1]
        return self._known[atom]

    def action(self, name: str) -> Action:
        """The ground action that the planner calls `name`."""
        if name not in self._actions:
            kind, *arguments = name.split()
            mapping = {
                Placeholder(p.name.strip("?"), p.type_name): Variable(argument, p.type_name)
                for p, argument in zip(self._parameters[kind], arguments, strict=False)
            }
            named = {placeholder.name: self.entities[variable.name] for placeholder, variable in mapping.items()}
            told = self._logic.actions[kind]
            self._actions[name] = Action(told.template, told.feedback_rule, mapping, named)
        return self._actions[name]

    def command(self, name: str, facts: Facts) -> str:
        """How a player says the ground action that the planner calls `name`."""
        action = self.action(name)
        if action.command is not None:
            return action.command
        command = self.derive(action.template, facts, action)
        if grammar.fixed(action.template, self._changing):
            action.command = command
        return command

    def derive(self, text: str, facts: Facts, action: Action | None = None) -> str:
        """`text` in the grammar's words as it reads to a player, after `action` if there was one."""
        scene = grammar.Scene(facts, self.entities, action.mapping if action else {}, action.named if action else {})
        return grammar.derive(self.rules, text, scene)

    def _start(self, task: Any) -> Facts:
        types = TypeHierarchy()
        for kind in {kind.name: kind for kind in reversed(task.types)}.values():  # the first of a name counts
            types.add(Type(kind.name, kind.supertype_names))
        facts = Facts(types)
        for atom in task.init:
            if isinstance(atom, Atom) and atom.predicate != "=":
                facts.add_fact(_proposition(atom.predicate, [self._things[thing] for thing in atom.args]))
        library, give_back = downward.borrow(self)
        library.load(self.sas)
        facts.add_facts(fact for fact, _ in map(self.fact, library.atoms()) if not fact.is_negation)
        give_back()
        return facts


def load(path: Path) -> Game:
    """The game in a file; the last ones are kept. A new one takes 0.1 to 0.3 s.

    Raises:
        EnvironmentFailure: If the file is not a game.
    """
    try:
        state = path.stat()
        return _load(path, state.st_mtime_ns, state.st_size)
    except Terminated:
        raise
    except (Exception, SystemExit) as err:  # what the parsers raise has no common kind
        raise EnvironmentFailure(f"{path} is no game that can be played ({type(err).__name__}: {err}).") from err


@lru_cache(KEPT)
def _load(path: Path, changed: int, size: int) -> Game:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Game({key: str(data[key]) for key in ("pddl_domain", "pddl_problem", "grammar")})


def _logic(text: str) -> Logic:
    """The logic of a grammar, parsed once for all grammars that only differ in the task."""
    tasks = TASK.findall(text)
    if len(tasks) != 1:
        return _parse(text)
    logic = _parse(TASK.sub('"#own task#"', text))
    rule = grammar.rule(tasks[0][1:-1])
    return Logic(logic.actions, {**logic.rules, "own task": [rule]})


@lru_cache(8)
def _parse(text: str) -> Logic:
    logic = GameLogic(domain="", grammar=text)
    return Logic(logic.actions, dict(logic.grammar._rules))


def _proposition(name: str, arguments: Iterable[Variable]) -> Proposition:
    # The class itself keeps every proposition for ever; this way a game's are freed with the game.
    return type.__call__(Proposition, name, arguments)


def _entities(facts: Facts) -> dict[str, EntityInfo]:
    """What is told of each thing: ALFWorld's names are its kind and a number."""
    kinds = {v.name: v.type for fact in facts.facts for v in fact.arguments}
    left = Counter(_kind(name) for name in kinds if "_bar_" in name)
    entities = {}
    for name in sorted(kinds):
        info = entities[name] = EntityInfo(name, kinds[name])
        info.definite, info.indefinite = "the", "a"
        kind = _kind(name)
        info.name = f"{kind} {left[kind]}" if "_bar_" in name else f"{kind} "
        left[kind] -= "_bar_" in name
    return entities


def _kind(name: str) -> str:
    kind = name
    for escape, character in UNNAMED.items():
        kind = kind.replace(escape, character)
    return kind.split("|", 1)[0] + "basin" * ("_bar_" in name and "basin" in name)
