"""Several variants, several seeds, the same held-out sequences: one experiment, one table.

`schema` and `experiment` read the file that names them, `state` says what is done, `runner` runs the rest, `numbers`
counts, `table`, `curves` and `figures` show that, and `page` puts it together. All of it lies in one folder:

    experiment.toml                                  the resolved experiment
    warm/                                            the warm start that the variants share
    runs/VARIANT/seed-N/                             ordinary run folders
    evaluations/EVALUATION/VARIANT/seed-N.json       results, with their trials beside them
    result.json  table.md  table.csv  figures/  comparison.html
"""

from skillrise.compare.experiment import Experiment, read_experiment
from skillrise.compare.page import write_comparison
from skillrise.compare.runner import Problem, run_experiment

__all__ = ["Experiment", "Problem", "read_experiment", "run_experiment", "write_comparison"]
