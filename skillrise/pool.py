"""Where environments live: in this process, or in worker processes with time-outs, reuse and recycling.

A trial holds one environment under a key of its own from its first reset until it is released. Requests return at once;
`collect` brings the answers. What an environment does wrong (raise, die, hang) comes back as an `EnvironmentFailure`
answer for the trials concerned; a task that does not exist is the user's mistake and is raised.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

import gymnasium

from skillrise.config import PoolConfig
from skillrise.env import TextEnv, make, observe
from skillrise.errors import EnvironmentFailure, InputError
from skillrise.types import Observation, Task

Answer = Observation | EnvironmentFailure
GRACE = 5.0
"""Seconds a worker whose parent is gone has to close its environments."""


class Pool(ABC):
    """Environments for many trials."""

    @abstractmethod
    def reset(self, key: Hashable, task: Task, seed: int) -> None:
        """Start `task` for the trial `key`; it gets an environment if it has none of that kind yet."""

    @abstractmethod
    def act(self, key: Hashable, action: str) -> None:
        """Do `action` in the environment of `key`."""

    @abstractmethod
    def collect(self, seconds: float) -> list[tuple[Hashable, Answer]]:
        """Answers that have come, waiting up to so long for the first."""

    @abstractmethod
    def release(self, key: Hashable) -> None:
        """The trial is over: its environment may be used by another."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """How many answers are awaited."""

    @abstractmethod
    def close(self) -> None:
        """End all environments and processes."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shelf:
    """Environments of one process: one a key, reused after release."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self.held: dict[Hashable, tuple[str, TextEnv]] = {}
        self.free: dict[str, list[TextEnv]] = defaultdict(list)

    def reset(self, key: Hashable, env_id: str, spec: Mapping[str, Any], seed: int) -> Observation:
        """Start a task under `key`."""
        if key in self.held and self.held[key][0] != env_id:
            self.release(key)
        if key not in self.held:
            free = self.free[env_id]
            self.held[key] = (env_id, free.pop() if free else make(env_id, self.options))
        env = self.held[key][1]
        text, info = env.reset(seed=seed % 2**31, options={"task": dict(spec)})
        return observe(text, info, done=bool(info["won"]), rules=env.rules)

    def act(self, key: Hashable, action: str) -> Observation:
        """Do an action under `key`."""
        text, _, terminated, truncated, info = self.held[key][1].step(action)
        return observe(text, info, done=terminated or truncated)

    def release(self, key: Hashable) -> None:
        """Put the environment of `key` back."""
        if key in self.held:
            env_id, env = self.held.pop(key)
            self.free[env_id].append(env)

    def drop(self, key: Hashable) -> None:
        """Throw the environment of `key` away: it raised, and may be broken."""
        _, env = self.held.pop(key, ("", None))
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()

    def close(self) -> None:
        """Close all environments."""
        envs = [env for _, env in self.held.values()] + [env for shelf in self.free.values() for env in shelf]
        self.held.clear()
        self.free.clear()
        for env in envs:
            with contextlib.suppress(Exception):
                env.close()

    def answer(self, key: Hashable, verb: str, *args: Any) -> Answer:
        """Do `verb`; whatever the environment raises becomes a failure. `InputError` goes through."""
        try:
            return self.reset(key, *args) if verb == "reset" else self.act(key, *args)
        except InputError:
            raise
        except (Exception, SystemExit) as err:  # the one boundary between other people's engines and ours
            self.drop(key)
            return EnvironmentFailure(f"{type(err).__name__}: {err}"[:1000])


class InlinePool(Pool):
    """Environments in this process, for those that answer in microseconds."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.shelf = Shelf(options or {})
        self.answers: list[tuple[Hashable, Answer]] = []

    def reset(self, key: Hashable, task: Task, seed: int) -> None:
        """See `Pool.reset`."""
        self.answers.append((key, self.shelf.answer(key, "reset", task.env, task.spec, seed)))

    def act(self, key: Hashable, action: str) -> None:
        """See `Pool.act`."""
        self.answers.append((key, self.shelf.answer(key, "act", action)))

    def collect(self, seconds: float) -> list[tuple[Hashable, Answer]]:
        """See `Pool.collect`."""
        answers, self.answers = self.answers, []
        return answers

    def release(self, key: Hashable) -> None:
        """See `Pool.release`."""
        self.answers = [answer for answer in self.answers if answer[0] != key]
        self.shelf.release(key)

    @property
    def pending(self) -> int:
        """See `Pool.pending`."""
        return len(self.answers)

    def close(self) -> None:
        """See `Pool.close`."""
        self.shelf.close()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    keys: set[Hashable] = field(default_factory=set)
    queue: deque[Hashable | None] = field(default_factory=deque)  # None: the trial was released meanwhile
    since: float = 0.0
    episodes: int = 0


class ProcessPool(Pool):
    """Worker processes, each with many environments that it steps one after the other.

    A worker that does not answer within `timeout` seconds is killed and replaced, and its trials fail. After `recycle`
    episodes a worker takes no new trials and is replaced as soon as it is idle. Workers end with their parent.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.workers = [self._start() for _ in range(config.workers)]
        self.homes: dict[Hashable, _Worker] = {}
        self.answers: list[tuple[Hashable, Answer]] = []

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, dict(self.config.options)), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def reset(self, key: Hashable, task: Task, seed: int) -> None:
        """See `Pool.reset`."""
        worker = self.homes.get(key)
        if worker is None:
            fresh = [w for w in self.workers if w.episodes < self.config.recycle or not w.keys]
            worker = min(fresh or self.workers, key=lambda w: len(w.keys))
            spent = worker.episodes >= self.config.recycle or not worker.process.is_alive()
            if spent and not worker.keys:
                worker = self._replace(worker)
            worker.keys.add(key)
            self.homes[key] = worker
        worker.episodes += 1
        self._send(worker, key, "reset", task.env, dict(task.spec), seed)

    def act(self, key: Hashable, action: str) -> None:
        """See `Pool.act`."""
        worker = self.homes.get(key)
        if worker is None:
            self.answers.append((key, EnvironmentFailure("the worker of this trial's environment died")))
        else:
            self._send(worker, key, "act", action)

    def _send(self, worker: _Worker, key: Hashable, verb: str, *args: Any) -> None:
        if not worker.queue:
            worker.since = time.monotonic()
        worker.queue.append(key)
        with contextlib.suppress(OSError):  # a dead worker is noticed by `collect`
            worker.pipe.send((key, verb, args))

    def collect(self, seconds: float) -> list[tuple[Hashable, Answer]]:
        """See `Pool.collect`."""
        ready = wait([w.pipe for w in self.workers], 0 if self.answers else seconds)
        for worker in list(self.workers):
            alive = True
            if worker.pipe in ready:
                alive = self._receive(worker)
            late = bool(worker.queue) and time.monotonic() - worker.since > self.config.timeout
            if late or not alive:
                why = f"did not answer within {self.config.timeout:g} s" if late else "died"
                failure = EnvironmentFailure(f"the environment's worker {why}")
                self.answers += [(key, failure) for key in worker.queue if key is not None]
                self._replace(worker)
        answers, self.answers = self.answers, []
        return answers

    def _receive(self, worker: _Worker) -> bool:
        try:
            while worker.pipe.poll():
                answer = worker.pipe.recv()
                worker.since = time.monotonic()
                key = worker.queue.popleft()
                if isinstance(answer, InputError):
                    raise answer
                if key is not None:
                    self.answers.append((key, answer))
        except (EOFError, OSError):
            return False
        return True

    def _replace(self, worker: _Worker) -> _Worker:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        for key in worker.keys:
            del self.homes[key]
        new = self.workers[self.workers.index(worker)] = self._start()
        return new

    def release(self, key: Hashable) -> None:
        """See `Pool.release`."""
        self.answers = [answer for answer in self.answers if answer[0] != key]
        worker = self.homes.pop(key, None)
        if worker is not None:
            worker.keys.discard(key)
            worker.queue = deque(None if waiting == key else waiting for waiting in worker.queue)
            with contextlib.suppress(OSError):
                worker.pipe.send((key, "release", ()))

    @property
    def pending(self) -> int:
        """See `Pool.pending`."""
        return len(self.answers) + sum(key is not None for w in self.workers for key in w.queue)

    def close(self) -> None:
        """See `Pool.close`."""
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.pipe.send((None, "close", ()))
        for worker in self.workers:
            worker.process.join(10)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self.workers = []


def _work(pipe: Connection, options: dict[str, Any]) -> None:
    """A worker's life: answer requests, in their order, until told to close or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    shelf = Shelf(options)
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(pipe, inbox), daemon=True).start()
    try:
        while True:
            key, verb, args = inbox.get()
            if verb == "close":
                break
            if verb == "release":
                shelf.release(key)
                continue
            try:
                pipe.send(shelf.answer(key, verb, *args))
            except InputError as err:
                pipe.send(InputError(str(err)))
    except OSError:
        pass
    finally:
        shelf.close()


def _read(pipe: Connection, inbox: SimpleQueue[Any]) -> None:
    """Take requests off the pipe at once: it never fills up behind a slow environment, and a lost parent is noticed."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(pipe.recv())
    inbox.put((None, "close", ()))
    time.sleep(GRACE)
    os._exit(1)


def pool(config: PoolConfig) -> Pool:
    """The pool that `config` describes."""
    return InlinePool(config.options) if config.kind == "inline" else ProcessPool(config)
