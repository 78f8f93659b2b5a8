"""Test-time scaling: the same held-out tasks in sequences of 1, 2, 4, ... tasks, or each tried again and again.

`plan` arranges the tasks so that difficulty does not depend on position, `runner` plays what is not done yet, `numbers`
counts, `tables` and `figures` write that down. Everything lies in one folder:

    settings.json                              what was asked for; other settings are refused
    k-04.json  k-04.trials.jsonl               sequences of 4 tasks, as `skillrise evaluate` writes them
    repeat-08.json  repeat-08.trials.jsonl     each task up to 8 times
    result.json  table.md  table.csv  figures/
"""

from skillrise.scale.plan import Plan, make_plan
from skillrise.scale.runner import scale

__all__ = ["Plan", "make_plan", "scale"]
