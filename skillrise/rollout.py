"""Drives many trials at once, each at its own pace, against one engine and one pool of environments.

A trial that waits for the engine does not hold up one that waits for its environment, and a finished trial makes room
for the next at once. This is the one place where a trial's errors are caught: a failed trial is returned with its error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from skillrise.config import PlayConfig
from skillrise.engine import Engine, Sampling
from skillrise.errors import ContextOverflow, TrialError
from skillrise.play import Act, Ask, Reply, Request, Reset, play
from skillrise.pool import Pool
from skillrise.prompts import Reflection
from skillrise.seeds import derive
from skillrise.types import Group, TaskSequence, Trial

Progress = Callable[[int, int], None]
"""Called with the numbers of finished and of all trials."""


@dataclass(frozen=True, slots=True)
class Job:
    """One trial to play.

    Attributes:
        sequence: What to play.
        seed: What is drawn depends on this seed, the sequence's id and `number`, not on the order of events.
        number: Which of the sequence's trials it is; all trials of a sequence share their environments' seeds.
        document: The skill document it starts from.
        reflections: The reflections it starts from.
    """

    sequence: TaskSequence
    seed: int
    number: int = 0
    document: str = ""
    reflections: tuple[Reflection, ...] = ()


@dataclass(eq=False, slots=True)
class _Running:
    index: int
    job: Job
    game: Generator[Request, Reply, Trial]
    asked: int = 0


class Rollout:
    """Plays jobs.

    Args:
        engine: Where replies come from.
        pool: Where environments live.
        how: How sequences are played.
        temperature: Sampling temperature; 0 is greedy.
        top_p: Nucleus truncation.
        concurrency: Most trials alive at a time.
        wait: Seconds to wait for an environment when the engine has nothing to do, before looking again.
    """

    def __init__(
        self,
        engine: Engine,
        pool: Pool,
        how: PlayConfig,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        concurrency: int = 64,
        wait: float = 1.0,
    ) -> None:
        self.engine, self.pool, self.how = engine, pool, how
        self.temperature, self.top_p, self.concurrency, self.wait = temperature, top_p, concurrency, wait

    def groups(
        self, sequences: Sequence[TaskSequence], trials: int, seed: int, progress: Progress | None = None
    ) -> list[Group]:
        """Play every sequence `trials` times and return the groups in the same order."""
        every = range(len(sequences))
        return [group for _, group in sorted(self.stream(sequences, trials, seed, every, progress), key=lambda g: g[0])]

    def stream(
        self,
        sequences: Sequence[TaskSequence],
        trials: int,
        seed: int,
        share: Sequence[int],
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Group]]:
        """Play some of `sequences`, each `trials` times, and yield each group as soon as its last trial is done.

        Args:
            sequences: What an update plays, on all processes together.
            trials: Trials a sequence.
            seed: What is drawn depends on it and a sequence's index, not on who plays what.
            share: The indices to play here.
            progress: Called as trials finish.

        Yields:
            Index and group.
        """
        jobs = [Job(sequences[i], derive(seed, i), n) for i in share for n in range(trials)]
        open_: dict[int, dict[int, Trial]] = {i: {} for i in share}
        for at, trial in self.finished(jobs, progress):
            index = share[at // trials]
            open_[index][at % trials] = trial
            if len(open_[index]) == trials:
                done = open_.pop(index)
                yield index, Group(sequences[index], tuple(done[n] for n in range(trials)))

    def play(self, jobs: Iterable[Job], progress: Progress | None = None) -> list[Trial]:
        """Play all jobs and return their trials in the same order.

        Raises:
            InputError: If a task or an environment does not exist.
        """
        return [trial for _, trial in sorted(self.finished(jobs, progress), key=lambda pair: pair[0])]

    def finished(self, jobs: Iterable[Job], progress: Progress | None = None) -> Iterator[tuple[int, Trial]]:
        """Play all jobs and yield each one's place and trial as soon as it is done.

        Where the engine cannot run all requests at a time, those of earlier jobs go first, so that groups that were begun
        are finished before others.

        Raises:
            InputError: If a task or an environment does not exist.
        """
        waiting = deque(enumerate(jobs))
        total, ended = len(waiting), 0
        alive: dict[int, _Running] = {}
        done: dict[int, Trial] = {}
        try:
            while waiting or alive:
                while waiting and len(alive) < self.concurrency:
                    index, job = waiting.popleft()
                    game = play(job.sequence, self.how, job.document, job.reflections)
                    running = alive[index] = _Running(index, job, game)
                    self._advance(running, None, alive, done)
                for key, outcome in self.engine.step() if self.engine.busy else ():
                    self._advance(alive[_index(key)], outcome, alive, done)
                idle = self.pool.pending and not self.engine.busy
                for key, answer in self.pool.collect(self.wait if idle else 0.0):
                    self._advance(alive[_index(key)], answer, alive, done)
                ended += len(done)
                if progress is not None:
                    progress(ended, total)
                assert done or self.engine.busy or self.pool.pending or not alive, "a trial waits for nothing"
                while done:
                    yield done.popitem()
        finally:
            for index in alive:
                self.engine.cancel(index)
                self.pool.release(index)

    def _advance(
        self,
        running: _Running,
        reply: Reply | TrialError | None,
        alive: dict[int, _Running],
        done: dict[int, Trial],
    ) -> None:
        """Send `reply` into a trial and enter what it asks for next."""
        try:
            while True:
                if isinstance(reply, TrialError):
                    request = running.game.throw(reply)
                else:
                    request = running.game.send(reply) if reply is not None else next(running.game)
                try:
                    self._enter(running, request)
                    return
                except ContextOverflow as err:
                    reply = err
        except StopIteration as stop:
            done[running.index] = stop.value
            del alive[running.index]
            self.engine.cancel(running.index)
            self.pool.release(running.index)

    def _enter(self, running: _Running, request: Request) -> None:
        job = running.job
        match request:
            case Reset(task, position):
                seed = derive(job.seed, "env", job.sequence.id, position)
                self.pool.reset(running.index, task, seed, self.how.admissible)
            case Act(action):
                self.pool.act(running.index, action)
            case Ask(prompt):
                drawn = derive(job.seed, "reply", job.sequence.id, job.number, running.asked)
                running.asked += 1
                self.engine.add(running.index, prompt, Sampling(self.temperature, self.top_p, drawn), running.index)


def _index(key: object) -> int:
    assert isinstance(key, int)
    return key
