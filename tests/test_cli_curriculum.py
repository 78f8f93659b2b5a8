"""The curriculum verbs as a user meets them: output, exit codes, no traces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from skillrise import cli
from skillrise.curriculum import read

KEYDOOR = "skillrise_envs:skillrise/KeyDoor-v0"


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["skillrise", *map(str, words)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    out, err = capsys.readouterr()
    return int(exit_.value.code or 0), out, err


@pytest.fixture
def skillrise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    return lambda *words: run(capsys, monkeypatch, *words)


def test_build_check_show(skillrise, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    train, dev = tmp_path / "train.jsonl", tmp_path / "dev.jsonl"
    for split, out in (("train", train), ("dev", dev)):
        code, said, _ = skillrise("curriculum", "build", KEYDOOR, "--split", split, "--limit", 5, "--out", out)
        assert code == 0
        assert "5 sequences of 3" in said
    code, said, err = skillrise("curriculum", "check", train, "--against", dev)
    assert (code, err) == (0, "")
    assert "no fault in 5 sequences" in said
    code, said, _ = skillrise("curriculum", "show", train)
    assert code == 0
    assert "5 in all" in said
    assert read(train)[0].family in said
    assert "█" in said


def test_the_same_seed_gives_the_same_file(skillrise, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        skillrise("curriculum", "build", KEYDOOR, "--seed", seed, "--limit", 20, "--out", tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_exclude_drops_held_out_tasks_and_check_sees_leaks(skillrise, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    held, train = tmp_path / "held.jsonl", tmp_path / "train.jsonl"
    build = ("curriculum", "build", KEYDOOR, "--k", 4, "--families")
    assert skillrise(*build, "house-0", "--limit", 1, "--out", held)[0] == 0
    assert skillrise(*build, "house-0, house-1", "--out", train)[0] == 0
    code, said, _ = skillrise("curriculum", "check", train, "--against", held)
    assert code == 1
    lines = said.splitlines()
    assert lines
    assert all(line.startswith(f"{train}:") and "split leak" in line for line in lines)
    assert skillrise(*build, "house-0,house-1", "--exclude", held, "--out", train)[0] == 0
    assert skillrise("curriculum", "check", train, "--against", held)[0] == 0


def test_faults_are_one_line_each_and_exit_1(skillrise, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "s.jsonl"
    path.write_text('{\n{"id": "a", "family": "f", "env": "no_such:x/Y-v0", "tasks": [{"spec": {}}]}\n')
    code, said, err = skillrise("curriculum", "check", path)
    assert code == 1
    assert said.startswith(f"{path}:1: not JSON")
    assert said.count("\n") == 1
    assert err.startswith("note: ")
    assert skillrise("curriculum", "check", path, "--no-exists")[2] == ""


def test_show_prints_hostile_names_as_text(skillrise, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "s.jsonl"
    line = {"id": "a", "family": "[red]x[/red]\x1b[31m", "env": "e:n/X-v0", "tasks": [{"spec": {}}]}
    path.write_text(json.dumps(line))
    code, said, _ = skillrise("curriculum", "show", path)
    assert code == 0
    assert "[red]x[/red]" in said
    assert "\x1b" not in said
    assert "Difficulty is unknown." in said


@pytest.mark.parametrize(
    "words",
    [
        ("check", "absent.jsonl"),
        ("show", "absent.jsonl"),
        ("build", "no_such:x/Y-v0", "--out", "x.jsonl"),
        ("build", KEYDOOR, "--split", "trial", "--out", "x.jsonl"),
        ("build", KEYDOOR, "--families", "no-such-house", "--out", "x.jsonl"),
        ("build", KEYDOOR, "--exclude", "absent.jsonl", "--out", "x.jsonl"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(skillrise, tmp_path: Path, monkeypatch, words) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    code, said, err = skillrise("curriculum", *words)
    assert (code, said) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [("nonsense",), ("curriculum", "build"), ("curriculum", "build", KEYDOOR, "--k", "0")]
)
def test_usage_errors_exit_2(skillrise, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    assert skillrise(*words)[0] == 2


def test_interrupt_exits_130(skillrise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("skillrise.curriculum.read", interrupted)
    assert skillrise("curriculum", "show", tmp_path)[0] == 130


def test_help_teaches_and_loads_nothing_heavy() -> None:
    code = (
        "import sys, skillrise.cli as c\n"
        "sys.argv = ['skillrise', 'curriculum', 'build', '--help']\n"
        "try: c.main()\n"
        "except SystemExit as e: assert not e.code\n"
        "heavy = {'torch', 'transformers', 'gymnasium', 'numpy', 'vllm'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Example:" in done.stdout
