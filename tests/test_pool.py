"""Pools: the same answers everywhere, and other people's faults kept to the trials concerned."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import nasty_envs
import pytest
from conftest import houses

from skillrise import cli
from skillrise.config import PoolConfig
from skillrise.env import MAX_CHARS
from skillrise.errors import EnvironmentFailure, InputError
from skillrise.pool import Answer, InlinePool, Pool, ProcessPool, pool
from skillrise.pool.workers import WorkerPool
from skillrise.types import Observation

Start = Callable[..., AbstractContextManager[WorkerPool[Any]]]


@pytest.fixture(params=["inline", "process"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of pool that every test with this fixture holds for; test_pool_ray.py runs the same tests on Ray."""
    return str(request.param)


@pytest.fixture
def workers() -> Start:
    """How to start workers, for tests that hold for all of them; other files run the same tests with other workers."""
    return processes


@contextmanager
def processes(workers: int = 1, **settings: object) -> Iterator[ProcessPool]:
    """A process pool that ends even where its own `close` would not."""
    made = ProcessPool(PoolConfig.model_validate({"workers": workers, **settings}))
    started = [worker.process for worker in made.workers]
    try:
        yield made
        made.close()
    finally:
        for process in [*started, *(worker.process for worker in made.workers)]:
            process.kill()


def gather(some: Pool, n: int) -> dict[Hashable, Answer]:
    """The next `n` answers by key."""
    answers: dict[Hashable, Answer] = {}
    while len(answers) < n:
        assert some.pending, "fewer answers are coming"
        for key, answer in some.collect(0.2):
            assert key not in answers
            answers[key] = answer
    return answers


def text(answer: Answer) -> str:
    assert isinstance(answer, Observation), answer
    return answer.text


def start(some: Pool, *keys: str) -> dict[Hashable, str]:
    """Reset a nasty environment for each key; what they say."""
    for key in keys:
        some.reset(key, nasty_envs.task(), 0)
    return {key: text(answer) for key, answer in gather(some, len(keys)).items()}


def impatient(some: WorkerPool[Any], timeout: float) -> None:
    """Change the time-out once the workers are up: a start may take longer than a test wants to wait."""
    some.config = some.config.model_copy(update={"timeout": timeout})


def gone(pid: int, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_both_kinds_give_the_same_episodes() -> None:
    sequences = houses("train", 3, 3)
    seen = {}
    for kind in ("inline", "process"):
        with pool(PoolConfig(kind=kind, workers=2)) as some:
            steps: list[dict[Hashable, Answer]] = []
            for position in range(3):
                for key, sequence in enumerate(sequences):
                    some.reset(key, sequence.tasks[position], seed=2**40 + position)
                steps.append(gather(some, 3))
                for action in ("try red", "nonsense \x00 鍵", "try blue"):
                    for key in range(3):
                        some.act(key, action)
                    steps.append(gather(some, 3))
            seen[kind] = steps
    assert seen["inline"] == seen["process"]
    first = seen["inline"][0][0]
    assert isinstance(first, Observation)
    assert "8 keys" in first.rules
    assert any(a.done for step in seen["inline"] for a in step.values() if isinstance(a, Observation))


def test_only_the_trials_of_a_hanging_worker_fail(workers: Start) -> None:
    with workers(2, timeout=60) as some:
        start(some, "a", "b", "c", "d")  # a and c share a worker, as do b and d
        impatient(some, 1.0)
        some.act("a", "hang")
        some.act("c", "waits behind a")
        some.act("b", "works elsewhere")
        answers = gather(some, 3)
        assert isinstance(answers["a"], EnvironmentFailure)
        assert "1 s" in str(answers["a"])
        assert isinstance(answers["c"], EnvironmentFailure)
        text(answers["b"])
        some.act("d", "still there")
        text(gather(some, 1)["d"])
        impatient(some, 60)
        start(some, "a")  # on the new worker


def test_a_trial_that_thought_while_its_worker_died_learns_of_it(workers: Start) -> None:
    with workers(timeout=60) as some:
        start(some, "a", "b")
        some.act("a", "exit")
        assert set(gather(some, 1)) == {"a"}
        some.act("b", "anything")
        assert isinstance(gather(some, 1)["b"], EnvironmentFailure)
        start(some, "b")


def test_a_dead_worker_is_replaced(workers: Start) -> None:
    with workers(timeout=60) as some:
        before = start(some, "a")["a"].split()[0]
        some.act("a", "exit")
        answer = gather(some, 1)["a"]
        assert isinstance(answer, EnvironmentFailure)
        assert "died" in str(answer)
        some.release("a")
        assert gone(int(before))
        assert start(some, "b")["b"].split()[0] != before


def test_a_worker_that_dies_while_idle_is_replaced(workers: Start) -> None:
    with workers(timeout=60) as some:
        before = start(some, "a")["a"].split()[0]
        some.release("a")
        os.kill(int(before), signal.SIGKILL)
        assert gone(int(before))
        some.collect(5.0)  # returns as soon as the pipe closes, which may be a moment after the death
        assert start(some, "a")["a"].split()[0] != before


@pytest.mark.parametrize("when", ["reset", "act"])
def test_an_environment_that_raised_is_not_used_again(kind: str, when: str) -> None:
    with pool(PoolConfig(kind=kind)) as some:
        first = start(some, "a")["a"]
        if when == "reset":
            some.reset("a", nasty_envs.task("raise"), 0)
        else:
            some.act("a", "raise")
        answer = gather(some, 1)["a"]
        assert isinstance(answer, EnvironmentFailure)
        assert str(answer) == "RuntimeError: broken"
        some.release("a")
        second = start(some, "b")["b"]
        assert second != first
        some.release("b")
        assert start(some, "c")["c"] == second  # a sound one is


def test_an_environment_cannot_end_the_process_but_sigterm_can() -> None:
    before = signal.signal(signal.SIGTERM, cli._terminated)
    try:
        with InlinePool() as some:
            start(some, "a", "b")
            some.act("a", "quit")
            assert isinstance(gather(some, 1)["a"], EnvironmentFailure)
            with pytest.raises(SystemExit) as end:
                some.act("b", "be told to end")
        assert end.value.code == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_trials_alive_at_once_have_environments_of_their_own(kind: str) -> None:
    with pool(PoolConfig(kind=kind)) as some:
        assert len(set(start(some, "a", "b", "c").values())) == 3


def test_lists_of_actions_are_asked_for_where_they_are_wanted(kind: str) -> None:
    with pool(PoolConfig(kind=kind)) as some:
        for wanted in (True, False):
            some.reset("a", nasty_envs.task(), 0, admissible=wanted)
            first = gather(some, 1)["a"]
            some.act("a", "")
            for answer in (first, gather(some, 1)["a"]):
                assert isinstance(answer, Observation)
                assert answer.admissible == (("end",) if wanted else None)


def test_a_task_that_does_not_exist_is_the_callers_mistake(kind: str) -> None:
    with pool(PoolConfig(kind=kind)) as some:

        def bad() -> None:
            some.reset("a", nasty_envs.Task(nasty_envs.ID, {}, "nasty"), 0)
            some.collect(30.0)

        with pytest.raises(InputError, match="'start' is needed"):
            bad()
        some.release("a")
        assert some.pending == 0
        start(some, "a")


def test_an_unknown_environment_or_option_is_the_callers_mistake(kind: str) -> None:
    for env, options in (("nasty_envs:nasty/None-v0", {}), (nasty_envs.ID, {"colour": 1})):
        with pool(PoolConfig(kind=kind, options=options)) as some:

            def bad(some: Pool = some, env: str = env) -> None:
                some.reset("a", nasty_envs.Task(env, {"start": ""}, "nasty"), 0)
                some.collect(30.0)

            with pytest.raises(InputError):
                bad()


def test_a_released_trial_gets_no_more_answers(kind: str) -> None:
    with pool(PoolConfig(kind=kind)) as some:
        start(some, "a")
        some.act("a", "the answer to this is not fetched")
        some.release("a")
        assert some.pending == 0
        some.reset("b", nasty_envs.task(), 0)
        while some.pending:
            assert {key for key, _ in some.collect(5.0)} <= {"b"}


def test_what_an_environment_says_is_bounded_and_can_be_written(kind: str) -> None:
    with pool(PoolConfig(kind=kind)) as some:
        start(some, "a")
        some.act("a", "flood")
        assert len(text(gather(some, 1)["a"])) == MAX_CHARS
        some.act("a", "surrogate")
        said = text(gather(some, 1)["a"])
        assert said.startswith("half a letter")
        said.encode()  # logs, reports and tokenizers take UTF-8


def stopped_before_its_start(some: ProcessPool) -> int:
    """Stop the first worker, ask it for an environment all the same, and return its process id."""
    pid = some.workers[0].process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    some.reset("a", nasty_envs.task(), 0)
    return pid


def test_a_start_is_no_part_of_the_time_out() -> None:
    with processes(timeout=3) as some:
        pid = stopped_before_its_start(some)
        assert some.collect(4.0) == []
        os.kill(pid, signal.SIGCONT)
        text(gather(some, 1)["a"])


def test_a_worker_that_does_not_start_fails_its_trials_and_is_replaced() -> None:
    with processes(timeout=60) as some:
        stopped_before_its_start(some)
        some.start_limit = 0.5
        answer = gather(some, 1)["a"]
        some.start_limit = 60
        assert isinstance(answer, EnvironmentFailure)
        assert "did not start within 0.5 s" in str(answer)
        start(some, "b")


def test_a_new_trial_does_not_wait_for_a_start_if_others_are_up() -> None:
    with processes(2, timeout=60) as some:
        busy = start(some, "a", "b")["b"].split()[0]
        some.act("a", "exit")
        gather(some, 1)
        assert start(some, "c")["c"].split()[0] == busy


def test_recycling_replaces_workers_between_trials(workers: Start) -> None:
    with workers(recycle=2, timeout=60) as some:
        pids = []
        for i in range(5):
            pids.append(start(some, f"{i}")[f"{i}"].split()[0])
            some.release(f"{i}")
        assert [pids.index(pid) for pid in pids] == [0, 0, 2, 2, 4]
        assert gone(int(pids[0]))


def test_recycling_leaves_a_trial_its_environment(workers: Start) -> None:
    with workers(recycle=1, timeout=60) as some:
        first = start(some, "a")["a"]
        start(some, "b")
        assert start(some, "a")["a"] == first


def test_no_process_is_left_after_close() -> None:
    before = set(multiprocessing.active_children())
    with processes(2, timeout=60) as some:
        pids = [int(said.split()[0]) for said in start(some, "a", "b").values()]
    assert set(multiprocessing.active_children()) == before
    assert all(gone(pid) for pid in pids)
    some.close()  # once more does no harm


@pytest.mark.timeout(30)
def test_a_hanging_environment_does_not_hang_its_callers(workers: Start) -> None:
    """More is waiting than a pipe holds: the time-out must still come."""
    with workers(timeout=60) as some:
        keys = [f"{i}" for i in range(60)]
        start(some, *keys)
        impatient(some, 1.0)
        some.act("0", "hang")
        for key in keys[1:]:
            some.act(key, "a long action " * 1000)
        assert all(isinstance(answer, EnvironmentFailure) for answer in gather(some, len(keys)).values())


@pytest.mark.timeout(30)
def test_more_answers_than_a_pipe_holds(workers: Start) -> None:
    with workers(timeout=60) as some:
        keys = [f"{i}" for i in range(60)]
        start(some, *keys)
        for _ in range(2):
            for key in keys:
                some.act(key, "flood")
        seen: list[Hashable] = []
        while some.pending:
            seen += [key for key, answer in some.collect(5.0) if len(text(answer)) == MAX_CHARS]
        assert sorted(seen, key=str) == sorted(keys * 2)


SCRIPT = """
    import time
    import nasty_envs
    from skillrise.config import PoolConfig
    from skillrise.pool import ProcessPool

    if __name__ == "__main__":
        pool = ProcessPool(PoolConfig(workers=2))
        for key in "ab":
            pool.reset(key, nasty_envs.task(), 0)
        said = []
        while pool.pending:
            said += [answer.text.split()[0] for _, answer in pool.collect(5.0)]
        for key in "ab":
            pool.act(key, {action!r})
        print(*said, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("action", ["", "hang"])
def test_workers_end_with_a_killed_parent(tmp_path: Path, action: str) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("{action!r}", repr(action)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    try:
        assert len(pids) == 2
        assert all(gone(pid, 10) for pid in pids)
    finally:
        _end(pids)


def _end(pids: list[int]) -> None:
    for pid in pids:
        if not gone(pid, 0.1):
            os.kill(pid, signal.SIGKILL)


def test_an_inline_pool_needs_no_process() -> None:
    make: Callable[[PoolConfig], Pool] = pool
    with make(PoolConfig(kind="inline")) as some:
        assert isinstance(some, InlinePool)
        assert start(some, "a")["a"].split()[0] == str(os.getpid())
