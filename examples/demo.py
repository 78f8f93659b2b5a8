# make demo
"""One policy learns to write and to use a skill document, from nothing, in minutes on two cores.

KeyDoor hides one fact in each house: which of eight keys opens its doors. A task allows two tries, so that 0.25 is the
best that can be done without memory, and 0.50, 0.75, 1.00 at positions 2, 3, 4 by writing down what was learnt.

    1. a random Llama is warmed up on demonstrations: the reply format, reading a document, copying remarks into one
       at random; never which remark is worth writing
    2. SkillRise trains it: solve turns by their own outcome, curate turns by what follows
    3. both policies are evaluated on houses that neither saw, the trained one also without its document

Writes runs/demo/result.json and runs/demo/report.html, beside everything that any run writes.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from skillrise.config import RunConfig, load
from skillrise.curriculum import build, catalogue, write
from skillrise.display import Live, rates_table
from skillrise.evaluate import evaluate_file
from skillrise.report import write_report
from skillrise.train import train
from skillrise.warmup import warmup

KEYDOOR = "skillrise_envs:skillrise/KeyDoor-v0"
HERE = Path("runs/demo")


def held_out(config: RunConfig, label: str, checkpoint: Path | None, carry: str = "skill") -> dict[str, Any]:
    """Evaluate on the test houses and leave the result where the report looks for it."""
    how = config.play.model_copy(update={"carry": carry})
    out = HERE / "evaluations" / f"{label}.json"
    with Live(1, f"3/3 evaluation, {label}") as watch:
        config = config.model_copy(update={"play": how})
        return evaluate_file(config, HERE / "test.jsonl", out, checkpoint, 1, None, watch)


def main() -> None:
    """Run the whole demonstration."""
    began = time.monotonic()
    shutil.rmtree(HERE, ignore_errors=True)
    write(HERE / "train.jsonl", build(catalogue(KEYDOOR, "train"), 3, seed=0, per_family=1))
    write(HERE / "test.jsonl", build(catalogue(KEYDOOR, "test"), 4, seed=0, per_family=1, limit=200))

    tiny = load(Path("examples/keydoor.toml"), [f"curriculum.train={HERE}/train.jsonl"])
    with Live(tiny.warmup.steps, "1/3 warm-up") as watch:
        warmup(tiny, HERE / "warm", watch)
    config = load(Path("examples/keydoor.toml"), [f"curriculum.train={HERE}/train.jsonl", f"policy.source={HERE}/warm"])
    before = held_out(config, "before", None)
    with Live(config.steps, "2/3 training") as watch:
        train(config, HERE, watch=watch)
    after = held_out(config, "after", HERE)
    no_carry = held_out(config, "no-carry", HERE, carry="none")

    result: dict[str, object] = {"positions": after["positions"], "optimum": after["optimum"]}
    for name, found in (("before", before), ("after", after), ("no_carry", no_carry)):
        for suffix, key in (("", "success"), ("_low", "low"), ("_high", "high")):
            result[name + suffix] = [round(rate, 4) for rate in found[key]]
    result |= {"sequences": after["sequences"], "seconds": round(time.monotonic() - began, 1)}
    (HERE / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    rates_table([before, after, no_carry])
    print(f"{result['seconds']:.0f} s. Look at {write_report(HERE)} and {HERE}/result.json.")


if __name__ == "__main__":
    main()
