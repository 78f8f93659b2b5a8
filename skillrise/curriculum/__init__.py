"""Curricula: sequences of related tasks, from easy to hard.

`format` reads and writes sequence files, `tasks` says which tasks are the same, `builder` makes sequences, `checker`
finds their faults, `overview` counts what they hold, and `sampler` draws them for training.
"""

from skillrise.curriculum.builder import build, catalogue
from skillrise.curriculum.checker import Fault, check
from skillrise.curriculum.format import read, write
from skillrise.curriculum.overview import FamilySummary, histogram, summary
from skillrise.curriculum.sampler import Order, Sampler
from skillrise.curriculum.tasks import canonical, identity

__all__ = [
    "FamilySummary",
    "Fault",
    "Order",
    "Sampler",
    "build",
    "canonical",
    "catalogue",
    "check",
    "histogram",
    "identity",
    "read",
    "summary",
    "write",
]
