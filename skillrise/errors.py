"""The error model.

Three kinds of things go wrong, and each has one place where it is handled:

* **The user's input is wrong** (a key, a line, a file, a name): `InputError`, raised as early as possible, in one
  sentence that names the place and the remedy. The command line prints it and exits with status 2.
* **A trial fails** (an environment dies or hangs, a server gives up, a prompt does not fit): `TrialError`. A failed trial is data. The
  rollout catches it, the trial carries its text, leaves its group's statistics and is counted. It never ends a run
  and is never scored as zero.
* **We are wrong**: any other exception. It ends the run with a trace; the last checkpoint stands.
"""

from __future__ import annotations


class Terminated(SystemExit):
    """SIGTERM has come. Whoever keeps an environment from ending the process with `SystemExit` lets this one through."""


class SkillRiseError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(SkillRiseError):
    """Wrong input from the user; the message is one sentence with the place and the remedy."""


class MissingExtra(InputError):
    """An optional dependency is not installed; the message holds the command that installs it."""

    def __init__(self, what: str, *extras: str) -> None:
        command, *others = (f"pip install 'skillrise[{extra}]'" for extra in extras)
        instead = f" (or {' or '.join(others)})" if others else ""
        super().__init__(f"{what} is not installed: run `{command}`{instead}.")


class TrialError(SkillRiseError):
    """One trial cannot go on; its group and the run do."""


class EnvironmentFailure(TrialError):
    """The environment raised, died or did not answer in time."""


class ContextOverflow(TrialError):
    """A prompt does not fit the model's context even after its oldest history was dropped."""


class EngineFailure(TrialError):
    """The engine could not answer: a server refused, failed again and again, or its process died."""
