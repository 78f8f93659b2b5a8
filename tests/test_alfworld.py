"""ALFWorld on its real engine, with small games made by hand; test_alfworld_real.py plays the real ones."""

from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillrise.config import PoolConfig
from skillrise.env import check_env, make
from skillrise.errors import EnvironmentFailure, InputError
from skillrise.pool import ProcessPool
from skillrise.types import Observation, Task

pytest.importorskip("fast_downward", reason="the extra skillrise[alfworld] is not installed")

import alfworld_games
from alfworld_games import PLACE, SPEC, WALKTHROUGH, game, write
from mementos import core as mementos

from skillrise_envs.alfworld import ALFWorldEnv, downward, games, grammar, translation
from skillrise_envs.alfworld.notes import NOTES, notes

pytestmark = pytest.mark.alfworld

ID = "skillrise_envs:skillrise/ALFWorld-v0"
OTHER = {"task_dir": "pick_and_place_simple-Apple-None-Desk-1", "trial": "trial_1"}
ROAM = [
    "go to desk 1",
    "take knife 1 from desk 1",
    "inventory",
    "slice apple 1 with knife 1",
    "examine knife 1",
    "help",
]
Episode = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two games."""
    folder = tmp_path_factory.mktemp("alfworld")
    write(folder, game())
    write(
        folder, game("put a apple in desk.", PLACE.replace("Desk", "Fridge"), walkthrough=["look"]), "valid_seen", OTHER
    )
    return folder


@pytest.fixture
def env(data: Path) -> Iterator[ALFWorldEnv]:
    made = ALFWorldEnv(str(data))
    yield made
    made.close()


def play(env: ALFWorldEnv, spec: dict[str, str], actions: list[str]) -> Iterator[tuple[Any, ...]]:
    yield env.reset(options={"task": spec})
    for action in actions:
        yield env.step(action)


def python(code: str, **variables: str) -> subprocess.Popen[str]:
    """Start a Python that runs `code`, its output piped."""
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
    )


def output(code: str, **variables: str) -> str:
    process = python(code, **variables)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    return text


def test_keeps_the_contract(env: ALFWorldEnv) -> None:
    check_env(env, SPEC, actions=[*ROAM, *WALKTHROUGH])


def test_importing_the_registry_loads_no_engine() -> None:
    code = """
        import sys, skillrise_envs
        assert not [name for name in sys.modules if name.split(".")[0] in ("textworld", "fast_downward", "alfworld")]
    """
    assert output(code) == ""


@pytest.mark.parametrize("module", ["textworld", "fast_downward"])
def test_a_missing_extra_names_its_remedy(module: str) -> None:
    code = f"""
        import sys
        sys.modules["{module}"] = None
        from skillrise.env import make
        from skillrise.errors import MissingExtra
        try:
            make("{ID}")
        except MissingExtra as err:
            print(err)
    """
    assert output(code).strip() == "ALFWorld is not installed: run `pip install 'skillrise[alfworld]'`."


def test_the_demonstration_wins(env: ALFWorldEnv) -> None:
    demonstration = env.demonstrate(next(env.catalogue("train")), seed=0)
    assert demonstration.actions == tuple(WALKTHROUGH)
    assert demonstration.notes == notes("pick_clean_then_place_in_recep")
    text, info = env.reset(options={"task": demonstration.task.spec})
    assert info["task"] == "put a clean mug in shelf."
    assert f"Your task is to: {info['task']}" in text
    answers = [env.step(action) for action in demonstration.actions]
    told = [
        (reward, terminated, truncated, info["won"], info["score"])
        for _, reward, terminated, truncated, info in answers
    ]
    assert told == [(0, False, False, False, 0)] * (len(told) - 1) + [(1, True, False, True, 1)]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look")


def test_what_is_possible_is_admissible_and_the_rest_costs_a_turn(data: Path) -> None:
    env = ALFWorldEnv(str(data), turn_limit=4)
    _, info = env.reset(options={"task": SPEC})
    assert "open cabinet 1" not in info["admissible"]
    text, reward, terminated, truncated, after = env.step("open cabinet 1")
    assert (text, reward, terminated, truncated, after) == ("Nothing happens.", 0, False, False, info)
    assert "open cabinet 1" in env.step(" go to cabinet 1\n")[4]["admissible"]
    assert env.step("Open cabinet 1")[0] == "Nothing happens."
    text, _, terminated, truncated, _ = env.step("open cabinet 1")
    assert text == "You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 1."
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"task_dir": SPEC["task_dir"]},
        {"task_dir": SPEC["task_dir"], "trial": "trial_2"},
        {"task_dir": SPEC["task_dir"], "trial": ""},
        {"task_dir": SPEC["task_dir"], "trial": 1},
        {"task_dir": f"../train/{SPEC['task_dir']}", "trial": SPEC["trial"]},
        {"task_dir": "..", "trial": "\x00"},
    ],
)
def test_a_wrong_spec_is_refused(env: ALFWorldEnv, spec: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="ALFWorld has no game with task_dir"):
        env.reset(options={"task": spec})


def test_the_authors_form_names_the_game(env: ALFWorldEnv) -> None:
    theirs = {**SPEC, "object": "Mug", "scene": 1, "plan_len": 7, "goal": "Put a washed mug away", "padded": False}
    assert env.reset(options={"task": theirs}) == env.reset(options={"task": SPEC})


def test_wrong_options_are_refused(data: Path, env: ALFWorldEnv) -> None:
    with pytest.raises(InputError, match="needs options"):
        env.reset()
    with pytest.raises(InputError, match="turn_limit"):
        ALFWorldEnv(str(data), turn_limit=0)
    with pytest.raises(InputError, match="split 'valid_seen'"):
        env.catalogue("valid_seen")
    with pytest.raises(InputError, match="family 'heat'"):
        env.catalogue("train", ["heat"])
    with pytest.raises(InputError, match="split test is missing"):
        env.catalogue("test")


def test_data_is_found_and_missing_data_names_the_command(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    cache = tmp_path / ".cache" / "alfworld"
    with pytest.raises(InputError, match=f"not in {cache}: fetch them with `alfworld-download --data-dir {cache}`"):
        make(ID)
    assert not cache.exists()
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    assert games.root() == data / "json_2.1.1"
    assert games.root(str(data / "json_2.1.1")) == data / "json_2.1.1"
    with pytest.raises(InputError, match=r"pool\.options\.data"):
        make(ID, {"data": str(tmp_path)})
    monkeypatch.delenv("ALFWORLD_DATA")
    (cache / "json_2.1.1" / "train").mkdir(parents=True)
    assert games.root() == cache / "json_2.1.1"


def test_the_catalogue_lists_what_can_be_won(tmp_path: Path) -> None:
    one = game()
    write(tmp_path, one)
    shuffled = dict(reversed(one.items()))
    write(tmp_path, shuffled, spec={**OTHER, "task_dir": "pick_two_obj_and_place-Mug-None-Shelf-1"})
    write(tmp_path, {**one, "solvable": False}, spec={**SPEC, "trial": "trial_2"})
    write(tmp_path, {**one, "walkthrough": None}, spec={**SPEC, "trial": "trial_3"})
    write(tmp_path, one, spec={**SPEC, "task_dir": "pick_clean_then_place_in_recep-MugSliced-None-Shelf-1"})
    write(tmp_path, one, spec={**SPEC, "task_dir": "pick_and_place_with_movable_recep-Mug-Bowl-Shelf-1"})
    env = ALFWorldEnv(str(tmp_path))
    about = {"object": "Mug", "scene": 1}
    clean = Task(ID, {**SPEC, **about}, "pick_clean_then_place_in_recep", 7.0)
    other = {**OTHER, "task_dir": "pick_two_obj_and_place-Mug-None-Shelf-1", **about}
    two = Task(ID, other, "pick_two_obj_and_place", 7.0)
    assert list(env.catalogue("train")) == [clean, two]
    assert list(env.catalogue("train", ["pick_two_obj_and_place"])) == [two]
    assert list(env.catalogue("train", [])) == []
    unfit = {"marked unsolvable": 1, "without a walkthrough": 1}
    assert env.left_out("train") == {**unfit, "movable receptacles or slices, which ALFWorld does not support": 1}
    assert env.left_out("train", ["pick_two_obj_and_place"]) == {}
    with pytest.raises(InputError, match="has no solution to show"):
        env.demonstrate(Task(ID, {**SPEC, "trial": "trial_3"}, "f"), 0)


@pytest.mark.parametrize("what", ["", "[]", "{}", '{"solvable": true', '"solvable": 1, "walkthrough": 3}'])
def test_a_catalogue_names_a_file_that_is_no_game(tmp_path: Path, what: str) -> None:
    path = write(tmp_path, what)
    with pytest.raises(InputError, match=f"{path} is no ALFWorld game"):
        list(ALFWorldEnv(str(tmp_path)).catalogue("train"))


BROKEN: dict[str, Callable[[], dict[str, Any] | str]] = {
    "empty": lambda: "",
    "cut": lambda: json.dumps(game())[:-9000],
    "no_problem": lambda: {"grammar": "", "pddl_domain": ""},
    "no_pddl": lambda: game(pddl_problem="(define (problem"),
    "unknown_words": lambda: game(pddl_problem="(define (problem x) (:domain alfred) (:objects) (:sing) (:goal ()))"),
    "unknown_type": lambda: game(pddl_problem=alfworld_games.problem().replace("- agent", "- robot")),
    "no_grammar": lambda: game(grammar="action {"),
    "no_intro": lambda: game(grammar=game()["grammar"].replace('"intro"', '"outro"')),
    "code": lambda: game(grammar=game()["grammar"].replace("{r.name or r.id}", "{open('ran', 'w')}")),
    "deep": lambda: game(pddl_problem="(" * 100_000),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_fails_the_trial(
    tmp_path: Path, env: ALFWorldEnv, kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, BROKEN[kind]())
    broken = ALFWorldEnv(str(tmp_path))
    with pytest.raises(EnvironmentFailure, match=f"{path} is no game that can be played"):
        broken.reset(options={"task": SPEC})
    with pytest.raises(gymnasium.error.ResetNeeded):
        broken.step("look")
    assert not (tmp_path / "ran").exists()
    path.write_text(json.dumps(game()), encoding="utf-8")
    assert broken.reset(options={"task": SPEC}) == env.reset(options={"task": SPEC})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "action", ["", "\n\r\t", "\ud800", "🦉" * 3_000, "\x00look", "look\u2028", "\uff4cook", "{r}", "#look#"]
)
def test_strange_actions_mean_nothing(env: ALFWorldEnv, action: str) -> None:
    _, info = env.reset(options={"task": SPEC})
    assert env.step(action) == ("Nothing happens.", 0.0, False, False, info) or action.strip() == "look"


def test_interleaved_episodes_equal_solo_ones(data: Path) -> None:
    scripts: list[tuple[dict[str, str], list[str]]] = [
        (SPEC, WALKTHROUGH[:-1]),
        (OTHER, ROAM),
        (SPEC, ROAM),
        (OTHER, ROAM[::-1]),
    ]
    alone = ALFWorldEnv(str(data))
    solo = [list(play(alone, spec, actions)) for spec, actions in scripts]
    many = [play(ALFWorldEnv(str(data)), spec, actions) for spec, actions in scripts]
    assert [list(turns) for turns in zip(*zip(*many, strict=True), strict=True)] == solo


def test_libraries_are_used_again(data: Path) -> None:
    gc.collect()
    envs = [ALFWorldEnv(str(data)) for _ in range(3)]
    for env in envs:
        env.reset(options={"task": SPEC})
    envs[0].close()
    envs[0].close()
    del env, envs[1:]
    gc.collect()
    idle = list(downward._idle)
    assert len(idle) >= 3
    assert len({id(library) for library in idle}) == len(idle)
    again = [ALFWorldEnv(str(data)) for _ in range(3)]
    for env in again:
        env.reset(options={"task": SPEC})
    assert {id(env._engine._library) for env in again} <= {id(library) for library in idle}


def test_games_are_translated_once_and_again_when_the_file_changes(tmp_path: Path) -> None:
    path = write(tmp_path, game())
    first = translation.load(path)
    assert translation.load(path) is first
    write(tmp_path, game("put a mug in shelf."))
    assert translation.load(path).task == "put a mug in shelf."


def test_no_proposition_is_kept_for_ever(data: Path) -> None:
    env = ALFWorldEnv(str(data))
    list(play(env, SPEC, ROAM))
    before = len(mementos._memento_cache)
    other = OTHER | {"trial": "renamed"}
    problem = alfworld_games.problem().replace("_bar_", "_bar_7_bar_")
    write(data, game(pddl_problem=problem), "valid_train", other)
    list(play(env, other, ROAM))
    assert len(mementos._memento_cache) == before
    assert not any(issubclass(key[0], translation.Proposition) for key in mementos._memento_cache)


def test_texts_equal_those_of_the_stock_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    more = "(isHot Apple_bar_1) (isClean Apple_bar_1) (opened Cabinet_bar_1) (isReceptacleObject Mug_bar_1)"
    stock = alfworld_games.Stock()
    for number, task in enumerate(
        ["put it, somehow!", "don't - (you) know?", "so: 1/2 of a mug / no. 2", "Wash   the mug"]
    ):
        path = write(tmp_path, game(task, pddl_problem=alfworld_games.problem(more=more if number % 2 else "")))
        env = ALFWorldEnv(str(tmp_path), turn_limit=100)
        text, info = env.reset(options={"task": SPEC})
        theirs = stock.start(path)
        rng = random.Random(number)
        for _ in range(15):
            assert (text, info["admissible"], info["won"]) == theirs
            action = rng.choice([*info["admissible"], "dance"])
            text, _, _, _, info = env.step(action)
            theirs = stock.act(action)
        assert info["task"] == task


class Thing:
    """As much of textworld's entities as expressions ask for."""

    def __init__(self, name: str) -> None:
        self.name, self.id, self.indefinite = name, f"{name}_id", "a"

    def __str__(self) -> str:
        return self.name


@given(st.dictionaries(st.sampled_from(["o", "r"]), st.text(max_size=5), min_size=2), st.data())
def test_expressions_mean_what_python_means(names: dict[str, str], data: st.DataObject) -> None:
    named = {key: Thing(name) for key, name in names.items()}
    words = st.sampled_from(["o.name", "r.id", "r.indefinite", "' '", '"a\'b"', "(o.name or r.name)", "o.id + r.name"])
    text = " + ".join(data.draw(st.lists(words, min_size=1, max_size=4)))
    assert grammar._expression(text)(named) == eval(text, {}, dict(named))
    assert str(grammar._expression(" o ")(named)) == names["o"]


@pytest.mark.parametrize("text", ["o.__class__", "f()", "1", "o.name * 2", "[o]", "o.desc", "o if r else o", "o r", ""])
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not known"):
        grammar._expression(text)


def test_two_processes_play_the_same_episode(data: Path) -> None:
    code = f"""
        from skillrise.env import make
        env = make("{ID}", {{"data": "{data}"}})
        for spec in ({SPEC!r}, {OTHER!r}):
            print(env.reset(options={{"task": spec}}))
            for action in {ROAM!r}:
                print(env.step(action))
        env.close()
    """
    first, second = output(code, PYTHONHASHSEED="1"), output(code, PYTHONHASHSEED="7")
    assert first == second
    assert "You sliced the apple 1 with the knife 1." in first


def test_the_process_around_it_is_left_alone(data: Path, tmp_path: Path) -> None:
    code = f"""
        import os, signal, sys, tempfile
        sys.argv = ["mine", "--option"]
        out, argv, before = sys.stdout, sys.argv, dict(os.environ)
        handlers = [signal.getsignal(number) for number in range(1, 20)]
        from skillrise.env import make
        envs = [make("{ID}", {{"data": "{data}"}}) for _ in range(3)]
        for env in envs:
            for spec in ({SPEC!r}, {OTHER!r}):
                env.reset(options={{"task": spec}})
                env.step("look")
        assert sys.argv is argv and argv == ["mine", "--option"]
        assert sys.stdout is out and dict(os.environ) == before
        assert handlers == [signal.getsignal(number) for number in range(1, 20)]
        assert not os.listdir(tempfile.gettempdir()) and not os.listdir(os.path.expanduser("~"))
        print("end")
    """
    homes = [tmp_path / "home", tmp_path / "tmp"]
    for folder in homes:
        folder.mkdir()
    assert output(code, HOME=str(homes[0]), TMPDIR=str(homes[1])) == "end\n"
    assert not any(list(folder.iterdir()) for folder in homes)


@pytest.mark.parametrize("broken", ["memfd_create", "nothing"])
def test_nothing_is_left_behind_by_a_killed_process(data: Path, tmp_path: Path, broken: str) -> None:
    code = f"""
        import os, time
        def fail(*_): raise OSError("not allowed here")
        setattr(os, "{broken}", fail)
        from skillrise.env import make
        env = make("{ID}", {{"data": "{data}"}})
        env.reset(options={{"task": {SPEC!r}}})
        print(env.step("look")[0], flush=True)
        time.sleep(60)
    """
    process = python(code, TMPDIR=str(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("You are in the middle of a room.")
    process.kill()
    process.communicate(timeout=60)
    assert not list(tmp_path.iterdir())


def test_a_forked_child_plays_on_by_itself(data: Path) -> None:
    code = f"""
        import os
        from skillrise.env import make
        env = make("{ID}", {{"data": "{data}"}})
        env.reset(options={{"task": {SPEC!r}}})
        child = os.fork()
        answers = [env.step(action) for action in {WALKTHROUGH!r}]
        if child == 0:
            os._exit(0 if answers[-1][2] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert answers[-1][2]
    """
    assert output(code) == ""


def test_a_killed_worker_fails_its_trials_and_the_next_ones_are_played(data: Path) -> None:
    config = PoolConfig.model_validate({"workers": 2, "timeout": 60, "options": {"data": str(data)}})
    task = Task(ID, SPEC, "f")
    with ProcessPool(config) as pool:

        def answers(*keys: str) -> dict[Any, Any]:
            found: dict[Any, Any] = {}
            end = time.monotonic() + 120
            while len(found) < len(keys) and time.monotonic() < end:
                found.update(pool.collect(1.0))
            return found

        for key in "abcd":
            pool.reset(key, task, 0, admissible=True)
        assert all(isinstance(answer, Observation) and answer.admissible for answer in answers(*"abcd").values())
        pid = pool.homes["a"].process.pid
        assert pid is not None
        lost = {key for key in "abcd" if pool.homes[key].process.pid == pid}
        os.kill(pid, signal.SIGKILL)
        for key in "abcd":
            pool.act(key, "look")
        after = answers(*"abcd")
        assert {key for key in "abcd" if isinstance(after[key], EnvironmentFailure)} == lost
        assert 0 < len(lost) < 4
        pool.reset("e", task, 0)
        for action in WALKTHROUGH:
            answer = answers("e")["e"]
            assert not answer.done
            pool.act("e", action)
        assert answers("e")["e"].won


def test_a_demonstration_may_search_before_it_knows(data: Path) -> None:
    env = ALFWorldEnv(str(data), detours=2)
    task = next(env.catalogue("train"))
    lengths = set()
    for seed in range(12):
        actions = env.demonstrate(task, seed).actions
        assert actions == env.demonstrate(task, seed).actions
        *looks, end = list(play(env, task.spec, list(actions)))
        searched = len(actions) - len(WALKTHROUGH)
        lengths.add(searched)
        assert actions[searched:] == tuple(WALKTHROUGH)
        assert end[4]["won"]
        for action, (text, *_) in zip(actions[:searched], looks[1:], strict=False):
            assert action.startswith(("go to ", "open "))
            assert text != "Nothing happens."
            assert " mug " not in text
    assert len(lengths) > 1
    assert min(lengths) == 0
    env.close()


def test_what_a_search_has_opened_is_not_opened_again(tmp_path: Path) -> None:
    goal = "(objectType ?o MugType) (receptacleType ?r FridgeType) (inReceptacle ?o ?r)"
    opens = [*WALKTHROUGH[:3], "go to fridge 1", "open fridge 1", "move mug 1 to fridge 1"]
    write(tmp_path, game("put a mug in fridge.", goal, walkthrough=opens))
    env, searched = ALFWorldEnv(str(tmp_path), detours=3), 0
    task = next(env.catalogue("train"))
    for seed in range(12):
        actions = env.demonstrate(task, seed).actions
        *_, end = turns = list(play(env, task.spec, list(actions)))
        assert end[4]["won"]
        assert not any(turn[0] == "Nothing happens." for turn in turns)
        assert actions.count("open fridge 1") == 1
        searched += actions.index("open fridge 1") < actions.index("take mug 1 from cabinet 1")
    assert searched
    env.close()


def test_what_a_demonstration_may_be_given_is_checked(data: Path) -> None:
    for wrong in ({"detours": -1}, {"remarks": 1.5}):
        with pytest.raises(InputError, match="detours and remarks"):
            ALFWorldEnv(str(data), **wrong)


def test_remarks_are_a_random_part_of_the_document(data: Path) -> None:
    env = ALFWorldEnv(str(data), remarks=0.5)
    task = next(env.catalogue("train"))
    whole = set(re.sub(r"\d\. ", "", notes(task.family)).splitlines())
    texts = [env.demonstrate(task, seed).notes or "" for seed in range(20)]
    assert len(set(texts)) > 15
    assert all(set(re.sub(r"\d\. ", "", text).splitlines()) <= whole for text in texts)
    assert ALFWorldEnv(str(data), remarks=0.0).demonstrate(task, 0).notes == ""


def test_each_family_has_a_short_document() -> None:
    assert set(NOTES) == set(games.FAMILIES)
    for family in games.FAMILIES:
        text = notes(family)
        assert [line for line in text.splitlines() if line.startswith("#")] == [
            "## When to use",
            "## Workflow",
            "## Pitfalls",
        ]
        assert len(text) < 1_500
    assert len(ALFWorldEnv.rules) < 900
