"""What an update costs, variant by variant: `python -m benchmarks.evidence.cost EXPERIMENT.toml FOLDER`.

The variants of an experiment whose warm start is made run a few updates each, in turn, so that what slows the machine down
meets all of them. Times are medians over updates; tokens are means. All play the same number of tasks an update, but for
`repeat`, which does not play a solved task again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.throughput.measure import alternate, machine
from skillrise.compare.experiment import Unit, read_experiment
from skillrise.files import write_text
from skillrise.rundir import RunDir
from skillrise.train import train

FIRST = 2
"""Updates that are not counted: buffers grow in them."""


def updates(unit: Unit, steps: int) -> dict[str, Any]:
    """Run `steps` updates of a variant and say what one took."""
    config = unit.config.model_copy(update={"steps": steps, "save_trials_every": 0, "checkpoint_every": steps})
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run")
        rows = RunDir(Path(folder) / "run").history()[FIRST:]
    plays = config.rollout.sequences * config.rollout.trials
    return {
        "seconds": median(row["time/rollout"] + row["time/learn"] for row in rows),
        "rollout_s": median(row["time/rollout"] for row in rows),
        "learn_s": median(row["time/learn"] for row in rows),
        "sampled_tokens": fmean(row["tokens/sampled"] for row in rows),
        "prompt_tokens": fmean(row["tokens/prompt"] for row in rows),
        "trials": plays,
    }


def main() -> None:
    """Measure and write the answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("folder", type=Path, help="the experiment's folder, with its warm start")
    parser.add_argument("--steps", type=int, default=14, help="updates a run")
    parser.add_argument("--rounds", type=int, default=3, help="runs a variant")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    experiment = read_experiment(asked.experiment, asked.folder)
    units = {unit.variant: unit for unit in experiment.units if unit.folder and unit.seed == experiment.table.seeds[0]}
    runs = alternate({name: lambda unit=unit: updates(unit, asked.steps) for name, unit in units.items()}, asked.rounds)
    medians = {name: {key: median(f[key] for f in facts) for key in facts[0]} for name, facts in runs.items()}
    base = medians[experiment.reference]
    ratios = {
        name: {key: found[key] / base[key] for key in ("seconds", "sampled_tokens", "prompt_tokens")}
        for name, found in medians.items()
    }
    found = {"machine": machine(), "update": medians, "against": experiment.reference, "ratio": ratios}
    write_text(asked.out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
