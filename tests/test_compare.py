"""Experiments: whole ones on KeyDoor, going on after a stop, the numbers by hand, and what must be refused."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from conftest import run as verb
from conftest import table
from filelock import FileLock
from test_report import HOSTILE, Page

from skillrise.compare import Experiment, Problem, read_experiment, run_experiment, write_comparison
from skillrise.compare.curves import curve, training_curves
from skillrise.compare.numbers import measure
from skillrise.compare.runner import plan
from skillrise.compare.table import as_csv, markdown, notes
from skillrise.config import dump
from skillrise.curriculum import read, write
from skillrise.errors import InputError, SkillRiseError
from skillrise.rundir import RunDir
from skillrise.statistics import holm
from skillrise.train import train

ROOT = Path(__file__).parent.parent
PRINTABLE = "".join(c for c in HOSTILE if c not in "\ud800")[:60]


def write_experiment(folder: Path, files: dict[str, Path], **changes: Any) -> Path:
    """A run file and an experiment on it: two variants, two seeds, two evaluations."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.toml").write_text(tomli_w.dumps(table(files["train"])))
    content: dict[str, Any] = {
        "run": str(folder / "run.toml"),
        "seeds": [0, 1],
        "set": {"steps": 2, "save_trials_every": 0},
        "warmup": {"set": {"warmup.steps": 2}},
        "evaluation": [
            {"name": "cross", "sequences": str(files["test"]), "set": {"evaluation.sequences": 3}, "trials": 2},
            {
                "name": "repeat",
                "sequences": str(files["test"]),
                "set": {"play.protocol": "repeat", "evaluation": {"sequences": 2}},
                "attempts": 2,
                "variants": ["skillrise", "none"],
            },
        ],
        "variant": {
            "skillrise": {"title": "SkillRise"},
            "none": {"set": {"play.carry": "none", "credit.scheme": "grpo"}},
            "as-it-comes": {"train": False},
        },
    } | changes
    if "variant" in changes and "evaluation" not in changes:
        del content["evaluation"][1]
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps({key: value for key, value in content.items() if value is not None}))
    return path


def finished(folder: Path) -> dict[str, int]:
    """When everything that training and evaluating wrote was written."""
    places = [folder / "warm", folder / "runs", folder / "evaluations"]
    return {str(p): p.stat().st_mtime_ns for place in places for p in place.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, keydoor_files: dict[str, Path]) -> Experiment:
    """A finished experiment."""
    folder = tmp_path_factory.mktemp("experiment")
    experiment = read_experiment(write_experiment(folder, keydoor_files), folder / "out")
    assert run_experiment(experiment) == []
    return experiment


@pytest.fixture
def copied(done: Experiment, tmp_path: Path) -> Experiment:
    """A copy of a finished experiment, to spoil."""
    folder = tmp_path / "out"
    shutil.copytree(done.folder, folder)
    for config in folder.rglob("*config.toml"):
        config.write_text(config.read_text().replace(str(done.folder), str(folder)))
    for out in folder.glob("evaluations/*/*/*.json"):
        out.write_text(out.read_text().replace(str(done.folder), str(folder)))
    return read_experiment(done.path, folder)


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    return verb("compare", *words, monkeypatch=monkeypatch, capsys=capsys)


def test_a_whole_experiment_leaves_what_it_promises(done: Experiment) -> None:
    result = write_comparison(done)
    assert (result["problems"], result["missing"], result["reference"]) == ([], [], "skillrise")
    for unit in done.units:
        assert unit.folder is None or RunDir(unit.folder).history()[-1]["step"] == 2
    assert {str(p.relative_to(done.folder)) for p in done.folder.glob("evaluations/*/*/seed-?.json")} == {
        f"evaluations/{e}/{v}/seed-{s}.json" for e in ("cross", "repeat") for v in ("skillrise", "none") for s in (0, 1)
    } | {"evaluations/cross/as-it-comes/seed-0.json"}
    cross, repeat = result["evaluations"]
    assert [row["variant"] for row in cross["rows"]] == ["skillrise", "none", "as-it-comes"]
    assert [row["seeds"] for row in cross["rows"]] == [[0, 1], [0, 1], [0]]
    assert [row["variant"] for row in repeat["rows"]] == ["skillrise", "none"]
    assert cross["optimum"] == [0.25, 0.5, 0.75]
    skillrise, none, untrained = cross["rows"]
    assert skillrise["difference"] is None
    assert none["difference"]["pooled"]["paired"]
    assert [len(row["positions"]) for row in (skillrise, none, repeat["rows"][0])] == [3, 3, 2]
    assert {"pass@1", "pass@2"} <= set(skillrise["pass"])
    assert repeat["rows"][0]["pass"] == {}
    assert skillrise["pooled"]["n"] == 2 * 3 * 3 * 2, "seeds, sequences, positions, trials"
    assert none["document"]["chars"][-1] == 0
    costs = {variant["name"]: variant["trained"] for variant in result["variants"]}
    assert costs["as-it-comes"] is None
    assert costs["skillrise"]["plays"] == 2 * 2 * 3 * 3, "updates, sequences, trials, tasks"
    assert costs["skillrise"]["sampled"] > costs["none"]["sampled"], "documents are written"
    assert none["ratio"]["sampled"] < 1 == skillrise["ratio"]["sampled"]
    assert untrained["cost"]["plays"] == 3 * 3 * 2
    assert json.loads((done.folder / "result.json").read_text()) == result
    for name in ("success-cross", "success-repeat", "training", "cost"):
        assert (done.folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (done.folder / "figures" / f"{name}.svg").read_text()
    page = Page(done.folder / "comparison.html")
    page.assert_harmless()
    assert "SkillRise" in page.text
    assert "best possible" in page.text
    again = read_experiment(done.folder / "experiment.toml", done.folder)
    assert again.units == done.units
    assert not list(done.folder.rglob("*.tmp"))


def test_what_is_done_is_not_done_again(done: Experiment) -> None:
    before = finished(done.folder)
    said: list[str] = []
    assert run_experiment(done, say=said.append) == []
    assert finished(done.folder) == before
    assert plan(done) == []
    assert said == []


def test_the_table_names_every_number_once(done: Experiment) -> None:
    if not (done.folder / "table.csv").exists():
        write_comparison(done)
    rows = list(csv.DictReader((done.folder / "table.csv").read_text().splitlines()))
    assert len(rows) == 3 * 4 + 2 * 3, "variants by positions and all of them"
    last = next(r for r in rows if (r["evaluation"], r["variant"], r["position"]) == ("cross", "none", "3"))
    assert float(last["p_holm"]) >= float(last["p"])
    assert last["training_plays"] == ""
    text = (done.folder / "table.md").read_text()
    for line in text.splitlines():
        assert not line.startswith("|") or line.count("|") > 3
    assert "| SkillRise | 2 | " in text


def test_an_unfinished_run_goes_on_and_finished_ones_stay(
    keydoor_files: dict[str, Path], copied: Experiment, done: Experiment
) -> None:
    unfinished = next(unit for unit in copied.units if unit.name == "none/seed-1")
    assert unfinished.folder is not None
    shutil.rmtree(unfinished.folder)
    train(unfinished.config.model_copy(update={"steps": 1}), unfinished.folder)
    first = RunDir(unfinished.folder).history()
    before = finished(copied.folder)
    assert [(part.name, part.why, part.plays) for part in plan(copied)] == [
        ("none/seed-1", "1 updates", 18),
        ("none/seed-1/cross", "its run is not done", 18),
        ("none/seed-1/repeat", "its run is not done", 12),
    ]
    assert run_experiment(copied) == []
    assert RunDir(unfinished.folder).history()[:1] == first
    assert len(RunDir(unfinished.folder).history()) == 2
    after = finished(copied.folder)
    touched = {path for path in before if after.get(path) != before[path]}
    assert all("none/seed-1" in path for path in touched)
    assert str(copied.folder / "evaluations/cross/none/seed-1.json") in touched, "it was of the training that is gone"


@pytest.mark.slow
def test_a_kill_costs_only_what_was_under_way(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    path = write_experiment(tmp_path, keydoor_files, warmup=None, seeds=[0], set={"steps": 4, "save_trials_every": 0})
    content = path.read_text().replace("[variant.as-it-comes]\ntrain = false\n", "")
    path.write_text(content)
    out = tmp_path / "out"
    first, second = (out / "runs" / name / "seed-0" for name in ("skillrise", "none"))
    process = subprocess.Popen(
        [sys.executable, "-m", "skillrise.cli", "compare", str(path), str(out)],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None and not list(second.glob("checkpoints/step-*")):
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    before = {path: time_ for path, time_ in finished(out).items() if str(first) in path or "/skillrise/" in path}
    reached = RunDir(second).latest()
    assert reached is not None
    assert run_experiment(read_experiment(path, out)) == []
    assert {path: time_ for path, time_ in finished(out).items() if path in before} == before
    assert [row["step"] for row in RunDir(second).history()] == [1, 2, 3, 4]
    assert len(list(out.glob("evaluations/*/*/seed-0.json"))) == 4


def test_runs_and_results_made_by_hand_count(
    done: Experiment, copied: Experiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `train` and `evaluate` leave them, with other keys that change nothing, and by another path to the warm start."""
    for sidecar in copied.folder.rglob("seed-?.config.toml"):
        sidecar.unlink()
    monkeypatch.chdir(copied.folder.parent)
    for config in copied.folder.glob("runs/*/*/config.toml"):
        text = (
            config.read_text()
            .replace(str(copied.folder), "out")
            .replace("checkpoint_every = 1", "checkpoint_every = 7")
        )
        config.write_text(text)
    before = finished(copied.folder)
    assert run_experiment(copied) == []
    assert finished(copied.folder) == before


def test_finished_runs_of_another_configuration_are_refused(copied: Experiment) -> None:
    for unit, old, new in (
        ("none/seed-0", "lr = 0.001", "lr = 0.002"),
        ("none/seed-1", "seed = 1\n", "seed = 5\n"),
        ("skillrise/seed-1", "temperature = 1.0", "temperature = 0.9"),
    ):
        config = copied.folder / "runs" / unit / "config.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new, 1))
    problems = {problem.unit: problem.what for problem in run_experiment(copied)}
    assert list(problems) == ["none/seed-0", "skillrise/seed-1", "none/seed-1"]
    assert "another 'learner.lr'" in problems["none/seed-0"]
    assert "another 'seed'" in problems["none/seed-1"]
    assert "another 'rollout.temperature'" in problems["skillrise/seed-1"]
    result = measure(copied)
    assert {p["unit"]: p["what"] for p in result["problems"]} == problems, "a report alone sees it too"
    assert {row["variant"]: row["seeds"] for row in result["evaluations"][0]["rows"]} == {
        "skillrise": [0],
        "as-it-comes": [0],
    }
    costs = {variant["name"]: variant["trained"] for variant in result["variants"]}
    assert (costs["skillrise"]["seeds"], costs["none"]) == ([0], None)
    assert {c.variant for curves in training_curves(copied).values() for c in curves} == {"skillrise"}


def test_a_longer_run_is_refused(copied: Experiment, keydoor_files: dict[str, Path]) -> None:
    shorter = read_experiment(
        write_experiment(copied.folder.parent, keydoor_files, set={"steps": 1, "save_trials_every": 0}), copied.folder
    )
    problems = run_experiment(shorter, only=["none"])
    assert "has 2 updates, and steps = 1" in problems[0].what


def test_another_warm_start_is_refused(copied: Experiment, keydoor_files: dict[str, Path]) -> None:
    path = write_experiment(copied.folder.parent, keydoor_files, warmup={"set": {"warmup.steps": 3}})
    problems = run_experiment(read_experiment(path, copied.folder))
    assert [problem.unit for problem in problems] == ["warm"]
    assert "warmup.steps" in problems[0].what


def test_what_began_from_a_warm_start_that_is_gone_is_not_mixed_with_a_new_one(copied: Experiment) -> None:
    shutil.rmtree(copied.folder / "warm")
    problems = run_experiment(copied)
    assert [problem.unit for problem in problems] == ["warm"]
    assert "the warm start is gone" in problems[0].what
    assert not (copied.folder / "warm").exists()
    shutil.rmtree(copied.folder / "runs")
    shutil.rmtree(copied.folder / "evaluations")
    assert plan(copied)[0].name == "warm"


def test_other_tasks_under_the_same_names_are_played_again(
    copied: Experiment, keydoor_files: dict[str, Path], tmp_path: Path
) -> None:
    rebuilt = [
        replace(s, tasks=tuple(replace(t, spec={**t.spec, "tries": 3}) for t in s.tasks))
        for s in read(keydoor_files["test"])
    ]
    write(tmp_path / "rebuilt.jsonl", rebuilt)
    evaluation = [
        {
            "name": "cross",
            "sequences": str(tmp_path / "rebuilt.jsonl"),
            "set": {"evaluation.sequences": 3},
            "trials": 2,
        }
    ]
    changed = read_experiment(write_experiment(tmp_path, keydoor_files, evaluation=evaluation), copied.folder)
    assert {part.why for part in plan(changed, ["as-it-comes"])} == {"made on other sequences"}


def test_an_evaluation_that_was_made_otherwise_is_played_again(
    copied: Experiment, keydoor_files: dict[str, Path]
) -> None:
    evaluations = [
        {"name": "cross", "sequences": str(keydoor_files["test"]), "set": {"evaluation.sequences": 2, "play.turns": 4}}
    ]
    before = finished(copied.folder)
    changed = read_experiment(
        write_experiment(copied.folder.parent, keydoor_files, evaluation=evaluations), copied.folder
    )
    assert {(part.name, part.why, part.plays) for part in plan(changed, ["none"])} == {
        ("none/seed-0/cross", "made with another trials", 6),
        ("none/seed-1/cross", "made with another trials", 6),
    }
    assert run_experiment(changed, only=["none"]) == []
    result = measure(changed)
    assert [row["variant"] for row in result["evaluations"][0]["rows"]] == ["none"], (
        "others are no longer of these settings"
    )
    assert result["evaluations"][0]["rows"][0]["difference"] is None
    assert len(result["missing"]) == 3
    touched = {path for path, at in finished(copied.folder).items() if before[path] != at}
    assert touched
    assert all("/evaluations/cross/none/" in path for path in touched)
    evaluations[0]["set"]["play.turns"] = 3  # type: ignore[index]
    again = read_experiment(
        write_experiment(copied.folder.parent, keydoor_files, evaluation=evaluations), copied.folder
    )
    assert [part.why for part in plan(again, ["none"])] == ["made with another play.turns"] * 2


def test_a_variant_that_fails_does_not_stop_the_others(
    keydoor_files: dict[str, Path],
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variants = {
        "broken": {"train": False, "set": {"policy.source": "./nowhere"}},
        "good": {"train": False, "set": {"policy.source": str(tiny_folder)}},
    }
    path = write_experiment(
        tmp_path,
        keydoor_files,
        warmup=None,
        variant=variants,
        evaluation=[{"name": "cross", "sequences": str(keydoor_files["test"])}],
    )
    code, out, err = run(monkeypatch, capsys, path, tmp_path / "out")
    assert code == 1
    assert "broken/seed-0" in err
    assert "policy.source" in err
    assert "Traceback" not in err
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [row["variant"] for row in result["evaluations"][0]["rows"]] == ["good"]
    assert result["evaluations"][0]["rows"][0]["seeds"] == [0]
    assert "could not be run" in (tmp_path / "out" / "table.md").read_text()
    assert "good, cross" in out
    code, out, _ = run(monkeypatch, capsys, path, tmp_path / "out", "--dry-run")
    assert code == 0
    assert "broken/seed-0/cross: not there, 12 task plays" in out
    assert "1 parts to run, at most 12 task plays" in out
    code, _, err = run(monkeypatch, capsys, path, tmp_path / "out", "--only", "god")
    assert code == 2
    assert "take one of broken, good" in err
    assert run(monkeypatch, capsys, path, tmp_path / "out", "--report")[0] == 0
    code, _, err = run(monkeypatch, capsys, path, tmp_path / "empty", "--report")
    assert code == 1
    assert "no evaluation is there to compare" in err


def test_a_second_process_takes_what_is_free_and_then_waits(copied: Experiment) -> None:
    for variant in ("skillrise", "none"):
        (copied.folder / f"evaluations/cross/{variant}/seed-0.json").unlink()
    lock = FileLock(copied.folder / ".locks" / "skillrise-seed-0.lock")
    lock.acquire()
    there: list[bool] = []

    def waited_for(text: str) -> None:
        assert text.startswith("skillrise/seed-0: another process")
        there.append((copied.folder / "evaluations/cross/none/seed-0.json").exists())
        there.append((copied.folder / "evaluations/cross/skillrise/seed-0.json").exists())
        lock.release()

    assert run_experiment(copied, say=waited_for) == []
    assert there == [True, False]
    assert (copied.folder / "evaluations/cross/skillrise/seed-0.json").exists()


Outcome = dict[str, Any]


def outcome(name: str, *trials: Sequence[int | None], family: str = "house") -> Outcome:
    won = [list(trial) for trial in trials]
    return {"id": name, "families": [family] * len(won[0]), "won": won, "score": won}


def crafted(
    folder: Path, files: dict[str, Path], results: dict[str, list[list[Outcome]]], **changes: Any
) -> Experiment:
    """An experiment whose runs are empty and whose results are written by hand: one list of outcomes a seed."""
    changes = {"warmup": None, "variant": {name: {} for name in results}} | changes
    changes["seeds"] = list(range(max(len(seeds) for seeds in results.values())))
    absent = str(folder / "gone.jsonl")
    trials = max(len(o["won"]) for seeds in results.values() for o in seeds[0])
    changes["evaluation"] = [{"name": "cross", "sequences": absent, "trials": trials}]
    experiment = read_experiment(write_experiment(folder, files, **changes), folder / "out")
    for unit in experiment.units:
        outcomes = results[unit.variant]
        if unit.folder is None or unit.seed >= len(outcomes):
            continue
        run = RunDir(unit.folder)
        run.save_checkpoint(2, {}, lambda path: None, 1)
        run.config.write_text(dump(unit.config))
        for step in (1, 2):
            run.log({"step": step, "success/all": 0.5, "time/step": 3.0, "tokens/sampled": 10, "tokens/prompt": 20})
        mine = outcomes[unit.seed]
        slots = [w for o in mine for t in o["won"] for w in t if w is not None]
        result = {
            "label": "x",
            "protocol": "cross",
            "carry": "skill",
            "positions": list(range(1, len(mine[0]["families"]) + 1)),
            "optimum": None,
            "temperature": 0.7,
            "top_p": 1.0,
            "seed": 1_000_003,
            "step": 2,
            "trials": len(mine[0]["won"]),
            "failed": 0,
            "plays": len(slots),
            "seconds": 2.0,
            "turns": 3.0 + unit.seed,
            "tokens": {"sampled": 100, "prompt": 50},
            "invalid": {"solve": 0.5},
            "cut": 0.0,
            "document": {"chars": [0.0, 10.0 + unit.seed], "change": [None, 0.5]},
            "pass": {"pass@1": 0.5, "pass@2": 0.75 + unit.seed / 8},
            "by_family": {family: {} for family in dict.fromkeys(f for o in mine for f in o["families"])},
            "outcomes": mine,
        }
        out = unit.evaluations[0].out
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result))
    return experiment


def test_numbers_against_a_computation_by_hand(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    """Two seeds, four sequences of two tasks; a slot is padded and a trial failed, which count nowhere."""
    a0 = [outcome("s0", [0, 0]), outcome("s1", [0, 1]), outcome("s2", [1, None]), outcome("s3", [0, 0], family="barn")]
    a1 = [
        outcome("s0", [0, 0]),
        outcome("s1", [1, 1]),
        outcome("s2", [None, None]),
        outcome("s3", [0, 1], family="barn"),
    ]
    b = [outcome(f"s{n}", [1, 1], family="barn" if n == 3 else "house") for n in range(4)]
    c = [outcome("s3", [0, 0], family="barn"), *(outcome(f"s{n}", [0, int(n == 1)]) for n in range(3))]
    experiment = crafted(tmp_path, keydoor_files, {"a": [a0, a1], "b": [b, b], "c": [c]})
    result = measure(experiment)
    rows = {row["variant"]: row for row in result["evaluations"][0]["rows"]}
    mine = rows["a"]
    assert (mine["seeds"], mine["sequences"]) == ([0, 1], 4)
    assert [p["n"] for p in mine["positions"]] == [7, 6]
    assert [p["success"] for p in mine["positions"]] == [pytest.approx(2 / 7), pytest.approx(3 / 6)]
    assert mine["pooled"]["success"] == pytest.approx(5 / 13)
    assert mine["pooled"]["by_seed"] == [pytest.approx(2 / 7), pytest.approx(3 / 6)]
    assert mine["pooled"]["low"] < 5 / 13 < mine["pooled"]["high"]
    assert mine["by_family"]["barn"]["success"] == pytest.approx(1 / 4)
    assert mine["by_family"]["house"]["n"] == 9
    assert (mine["turns"], mine["document"]["chars"]) == (3.5, [0.0, 10.5])
    assert mine["document"]["change"] == [None, 0.5]
    assert mine["invalid"] == {"solve": 0.5, "curate": None, "reflect": None}
    assert mine["pass"] == {}, "each was played once"
    gap = rows["b"]["difference"]
    assert gap["pooled"]["difference"] == pytest.approx(1 - 5 / 13)
    assert gap["last"]["difference"] == pytest.approx(1 - 3 / 6)
    # b is ahead in three sequences and level in s2, so that two of 2^3 sign flips are as extreme
    assert gap["pooled"]["p"] == pytest.approx(2 / 8)
    assert gap["pooled"]["paired"]
    for where in ("pooled", "last"):
        ps = [rows[name]["difference"][where]["p"] for name in ("b", "c")]
        assert [rows[name]["difference"][where]["p_holm"] for name in ("b", "c")] == holm(ps)
    assert rows["c"]["difference"]["pooled"]["paired"], "the order of the sequences does not matter"
    assert "c/seed-1: 2 of 2 updates are left" in result["missing"]
    assert rows["b"]["needed"]["half_difference"] <= rows["b"]["needed"]["half_width"]
    trained = {variant["name"]: variant["trained"] for variant in result["variants"]}
    assert trained["a"] == {
        "seeds": [0, 1], "updates": 2.0, "plays": 2 * 2 * 3 * 3, "sampled": 20.0, "prompt": 40.0, "seconds": 6.0,
    }  # fmt: skip
    assert rows["b"]["ratio"]["sampled"] == pytest.approx((100 / 8) / (100 / 6.5))


def test_task_plays_of_training_are_those_that_were_made(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    a = [outcome("s0", [0, 1])]
    experiment = crafted(tmp_path, keydoor_files, {"a": [a], "b": [a]})
    for name, plays in (("a", [7, 8]), ("b", [7, None])):
        run = RunDir(experiment.folder / "runs" / name / "seed-0")
        run.rewind(0)
        for step, n in enumerate(plays, 1):
            run.log({"step": step, "tokens/sampled": 30, **({"plays": n} if n else {})})
    found = {variant["name"]: variant for variant in measure(experiment)["variants"]}
    assert found["a"]["trained"]["plays"] == 15
    assert found["b"]["trained"]["plays"] == 7 + 18, "an older version did not count them"
    assert found["b"]["ratio"]["sampled"] == pytest.approx(15 / 25)


def test_families_that_only_some_seed_has_are_counted(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    seeds = [[outcome("s0", [1])], [outcome("s0", [1]), outcome("s1", [0], family="barn")]]
    row = measure(crafted(tmp_path, keydoor_files, {"a": seeds}))["evaluations"][0]["rows"][0]
    assert {family: rate["n"] for family, rate in row["by_family"].items()} == {"house": 2, "barn": 1}


def test_sequences_of_other_lengths_compare_at_the_last_position_of_both(
    keydoor_files: dict[str, Path], tmp_path: Path
) -> None:
    a, b = ([outcome(f"s{n}", won) for n in range(3)] for won in ([0, 1], [1, 1, 0]))
    result = measure(crafted(tmp_path, keydoor_files, {"a": [a], "b": [b]}))
    gaps = result["evaluations"][0]["rows"][1]["difference"]
    assert (gaps["last"]["position"], gaps["last"]["difference"]) == (2, 0.0)
    rows = [row for row in csv.DictReader(as_csv(result).splitlines()) if row["variant"] == "b"]
    assert [row["difference"] != "" for row in rows] == [True, False, True, False]


def test_notes_are_whole_whatever_the_title(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    a = [outcome("s0", [0, 1])]
    result = measure(crafted(tmp_path, keydoor_files, {"a": [a]}, variant={"a": {"title": "x" * 80}}))
    assert notes(result)[1] in markdown(result)


def test_other_sequences_are_not_paired_and_trials_pool(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    a = [outcome(f"s{n}", [0, 1], [1, n % 2]) for n in range(5)]
    b = [outcome(f"t{n}", [0, 0], [0, n % 2]) for n in range(5)]
    result = measure(crafted(tmp_path, keydoor_files, {"a": [a, a], "b": [b]}, reference="b"))
    mine, reference = result["evaluations"][0]["rows"]
    assert reference["difference"] is None
    assert not mine["difference"]["pooled"]["paired"]
    assert mine["positions"][0]["success"] == 0.5
    assert mine["pooled"]["success"] == pytest.approx((5 + 5 + 2) / 20)
    assert mine["pass"] == {"pass@1": 0.5, "pass@2": 0.8125}


def test_curves_are_means_over_seeds_with_their_range() -> None:
    runs = [
        [{"step": s, "x": float(s)} for s in (1, 2, 3)],
        [{"step": 1, "x": 3.0}, {"step": 2, "x": float("nan")}],
    ]
    points = curve(runs, "x")
    assert points[0] == (1, 2.0, 1.0, 3.0)
    assert points[1] == (2, 2.0, 2.0, 2.0)
    assert points[2] == (3, 3.0, 3.0, 3.0)
    long = [[{"step": s, "x": float(s % 2)} for s in range(24)]]
    assert curve(long, "x", smooth=True)[-1][1] == 0.5


@pytest.mark.parametrize("title", [PRINTABLE, r"_$\frac{$", "| a | b", "漢字"])
def test_hostile_titles_are_only_text(keydoor_files: dict[str, Path], tmp_path: Path, title: str) -> None:
    a = [outcome("s0", [0, 1], family=HOSTILE), outcome("s1", [1, 1], family=HOSTILE)]
    variants = {"a": {"title": title}, "b": {}}
    experiment = crafted(tmp_path, keydoor_files, {"a": [a], "b": [a]}, variant=variants)
    problems = [Problem("b/seed-7", HOSTILE)]
    write_comparison(experiment, problems)
    page = Page(experiment.folder / "comparison.html")
    page.assert_harmless()
    policy = next(value for tag, _, value in page.attributes if tag == "meta" and value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "54439" not in page.source
    assert "\x1b" not in page.source + (experiment.folder / "table.md").read_text()
    assert "<script>" not in (experiment.folder / "table.md").read_text()
    assert "<script>" not in (experiment.folder / "figures" / "success-cross.svg").read_text()
    cells = {line.replace(r"\|", "").count("|") for line in markdown_tables(experiment)[:4]}
    assert len(cells) == 1, "a title makes no new column"


def markdown_tables(experiment: Experiment) -> list[str]:
    return [line for line in (experiment.folder / "table.md").read_text().splitlines() if line.startswith("|")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seds": [1]}, "unknown key 'seds'; known here: run, seeds"),
        ({"variant": {"a": {"sett": {}}}}, "unknown key 'variant.a.sett'; known here: set, train"),
        ({"evaluation": [{"name": "x", "sequences": "y", "trils": 2}]}, "unknown key 'evaluation.0.trils'"),
        ({"evaluation": [{"name": "../x", "sequences": "y"}]}, "evaluation.0.name"),
        ({"variant": {"../a": {}}}, "../a"),
        ({"variant": {"a": {}, "A": {}}}, "differ only in case"),
        ({"variant": {}}, "variant"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1, 1]}, "seed 1 is given twice"),
        ({"run": None}, "'run' is missing: add it; this may be a run file"),
        (
            {"variant": {"a": {"train": False, "warm": False}}},
            "'tiny' is a random model: let it begin from the shared warm start",
        ),
        ({"run": "nowhere.toml"}, "nowhere.toml: no such run file"),
        ({"reference": "x"}, "reference names the variant 'x'"),
        ({"set": {"stepps": 3}}, "unknown key 'stepps'"),
        ({"set": {"steps.x": 3}}, "'steps' is a value"),
        ({"warmup": {"set": {"warmup.stps": 1}}}, "[warmup]: unknown key 'warmup.stps'"),
        ({"variant": {"a": {}, "b": {"set": {"play.carry": "everything"}}}}, "'b': key 'play.carry'"),
        ({"seeds": [0, 1_000_003]}, "1000003, which is among the training seeds"),
        ({"variant": {"a": {}, "b": {"set": {"evaluation.seed": 5}}}}, "would not pair"),
        ({"variant": {"a": {}, "b": {"set": {"learner.mixed_precision": "bf16"}}}}, "mixed_precision"),
        ({"warmup": {"set": {"learner.mixed_precision": "bf16"}}}, "mixed_precision"),
    ],
)
def test_wrong_experiments_are_refused_in_one_sentence(
    keydoor_files: dict[str, Path], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = write_experiment(tmp_path, keydoor_files, **changes)
    with pytest.raises(InputError) as raised:
        read_experiment(path, tmp_path / "out")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


def test_unknown_variants_of_an_evaluation_are_named(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    evaluation = [{"name": "cross", "sequences": "x", "variants": ["skillrize"]}]
    with pytest.raises(
        InputError, match=r"evaluation 'cross' names the variant 'skillrize'.*take one of skillrise, none"
    ):
        read_experiment(write_experiment(tmp_path, keydoor_files, evaluation=evaluation), tmp_path / "out")


def test_evaluations_must_be_held_out_from_every_training_file(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    variants = {"a": {}, "b": {"set": {"curriculum.train": str(keydoor_files["test"])}}}
    evaluation = [{"name": "cross", "sequences": str(keydoor_files["test"]), "variants": ["a"]}]
    path = write_experiment(tmp_path, keydoor_files, variant=variants, evaluation=evaluation)
    experiment = read_experiment(path, tmp_path / "out")
    with pytest.raises(InputError, match=r"test\.jsonl: sequence .* holds a task that .* trains on"):
        run_experiment(experiment)
    assert not experiment.folder.exists()


def test_overrides_apply_in_their_order(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "set": {"play": {"turns": 5, "history": 3}},
        "variant": {"a": {"set": {"play.turns": 6, "seed": 9}}, "b": {"warm": False}},
        "evaluation": [{"name": "cross", "sequences": "x", "set": {"play.turns": 7}}],
    }
    experiment = read_experiment(write_experiment(tmp_path, keydoor_files, **changes), tmp_path / "out")
    a, b = experiment.units[:2]
    assert (a.config.play.turns, a.config.play.history, a.config.play.prompts) == (6, 3, "brief")
    assert (a.config.seed, b.config.play.turns) == (0, 5)
    assert a.evaluations[0].config.play.turns == 7
    assert a.config.policy.source == str(tmp_path / "out" / "warm")
    assert b.config.policy.source == "tiny"
    assert [unit.name for unit in experiment.units] == ["a/seed-0", "b/seed-0", "a/seed-1", "b/seed-1"]


def test_accelerate_launch_is_refused(done: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="accelerate launch"):
        run_experiment(done)


def test_nothing_to_compare_yet_is_said(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    experiment = read_experiment(write_experiment(tmp_path, keydoor_files), tmp_path / "out")
    with pytest.raises(SkillRiseError, match="no evaluation is there to compare: run"):
        write_comparison(experiment)


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "experiments").glob("*.toml")), ids=lambda p: p.name)
def test_example_experiments_are_valid(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    text = path.read_text()
    assert text.startswith("# "), "an example is headed by its commands"
    assert f"skillrise compare {path.relative_to(ROOT)} " in text
    read_experiment(path, tmp_path)
