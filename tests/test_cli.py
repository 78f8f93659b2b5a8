"""The command line as a user meets it: every verb once, and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from conftest import run, table

ROOT = Path(__file__).parent.parent


def test_warm_up_train_evaluate_report(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps(table(keydoor_files["train"], trackers=["tensorboard"])))
    warm, folder = tmp_path / "warm", tmp_path / "run"
    assert run("warmup", file, warm, monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    source = ("--set", f"policy.source={warm}")
    code, out, err = run("train", file, folder, *source, "--set", "steps=2", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    assert "step 2" in err
    assert list(folder.rglob("events.out.tfevents*"))
    result = folder / "evaluations" / "after.json"
    arguments = ("evaluate", file, keydoor_files["test"], result, *source, "--checkpoint", folder, "--limit", 3)
    code, out, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    assert "optimum" in out
    found = json.loads(result.read_text())
    assert (found["sequences"], found["positions"], found["optimum"]) == (3, [1, 2, 3], [0.25, 0.5, 0.75])
    assert len((folder / "evaluations" / "after.trials.jsonl").read_text().splitlines()) == 3
    again = (*arguments, "--protocol", "repeat", "--carry", "reflect", "--attempts", 2)
    assert run(*again, monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    assert json.loads(result.read_text())["positions"] == [1, 2]
    code, out, _ = run("report", folder, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "house-" in (folder / "report.html").read_text()


def test_a_starting_document_reaches_the_prompt(
    keydoor_files: dict[str, Path],
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, document = tmp_path / "run.toml", tmp_path / "SKILL.md"
    file.write_text(tomli_w.dumps(table(keydoor_files["train"], policy={"source": str(tiny_folder)})))
    document.write_text("try them all")
    out = tmp_path / "result.json"
    code, _, err = run(
        "evaluate", file, keydoor_files["test"], out, "--document", document, "--limit", 1,
        monkeypatch=monkeypatch, capsys=capsys,
    )  # fmt: skip
    assert code == 0, err
    trial = json.loads((tmp_path / "result.trials.jsonl").read_text())
    assert "try them all" in trial["attempts"][0]["turns"][0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stepps": 3}, "stepps"),
        ({"play": {"turns": 0}}, "play.turns"),
        ({"play": {"prompts": "fancy"}}, "fancy"),
        ({"curriculum": {"train": "nowhere.jsonl"}}, "nowhere.jsonl"),
        ({"policy": {"source": "./no-such-model"}}, "policy.source"),
        ({"rollout": {"top_p": 0.9}}, "rollout.top_p"),
        ({"trackers": ["clearml"]}, "clearml"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(
    keydoor_files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    said: str,
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps(table(keydoor_files["train"], **change)))
    code, _, err = run("train", file, tmp_path / "run", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert said in err
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "Traceback" not in err


def test_help_teaches() -> None:
    for verb in ("train", "warmup", "evaluate", "report", "doctor", "curriculum build"):
        done = subprocess.run(
            [sys.executable, "-m", "skillrise.cli", *verb.split(), "--help"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0
        assert verb in ("doctor",) or "Example" in done.stdout


def test_the_readme_shows_the_example_environment_and_it_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (ROOT / "examples" / "own_env.py").read_text()
    assert source.strip() in (ROOT / "README.md").read_text()
    assert len(source.splitlines()) <= 40
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from skillrise.env import check_env, make

    env = make("own_env:own/Lamp-v0")
    task = next(env.catalogue("test"))
    check_env(env, task.spec, actions=env.demonstrate(task, 0).actions)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda p: p.name)
def test_example_run_files_are_valid(path: Path) -> None:
    from skillrise.config import load
    from skillrise.prompts import style

    text = path.read_text()
    assert text.startswith("# "), "an example is headed by its command"
    if "curriculum" in text:
        train = ROOT / load(path).curriculum.train
        assert train.exists() or train.relative_to(ROOT).parts[0] == "runs", "it ships, or a command above makes it"
    else:
        style(str(path))
