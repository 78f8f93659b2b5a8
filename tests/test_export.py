"""Skill documents as files: round trips, hostile names and texts, which document is taken."""

from __future__ import annotations

import json
import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from conftest import houses, table
from conftest import run as verb
from hypothesis import given, settings
from hypothesis import strategies as st

from skillrise.config import PlayConfig, PoolConfig, RunConfig, parse
from skillrise.engine import ScriptedEngine
from skillrise.errors import InputError
from skillrise.evaluate import evaluate
from skillrise.export import Written, best, description, export, trials_file
from skillrise.pool import pool
from skillrise.rundir import RunDir, trial_record
from skillrise.skillmd import MAX_DESCRIPTION, SkillFile, dump, one_line, read_document, slug
from skillrise.skillmd import parse as read
from skillrise.statistics import wilson
from skillrise.types import Prompt

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
NASTY = [
    "---\nname: evil\n---\n",
    "---",
    '"\n---\nname: "x"',
    "\n\n  # When to use\n\n---\n",
    "a\r\nb\r",
    "\ufeffx\u2028y\x85z\x00",
    "",
    "\n",
    " \n ",
]


def attempt(document: str, won: bool, carry: str | None = None, role: str = "curate") -> dict[str, Any]:
    turn = {"role": "solve", "weight_version": 7}
    written = None if carry is None else {"role": role, "action": carry, "weight_version": 7}
    return {"document_in": document, "won": won, "turns": [turn], "carry": written}


def trial(*attempts: dict[str, Any], family: str = "boil", name: str = "s", **more: Any) -> dict[str, Any]:
    tasks = [{"env": "module:ns/Name-v0", "spec": {}, "family": family, "difficulty": None} for _ in attempts]
    sequence = {"id": name, "family": family, "padded": [False] * len(attempts), "tasks": tasks}
    return {"sequence": sequence, "error": None, "attempts": list(attempts), **more}


def written(folder: Path, *trials: dict[str, Any], name: str = "x.trials.jsonl") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(t) + "\n" for t in trials), "utf-8")
    return file


@settings(deadline=None)
@given(TEXT)
def test_a_document_comes_back_exactly(text: str) -> None:
    skill = SkillFile("a-1", "What it is for.", text, {"family": "x"})
    assert read(dump(skill), "x") == skill


@pytest.mark.parametrize("text", NASTY)
def test_a_document_cannot_break_out_of_its_place(text: str, tmp_path: Path) -> None:
    skill = SkillFile("a", one_line(text) or "d", text, {"k": one_line(text)})
    assert read(dump(skill), "x") == skill
    file = tmp_path / "SKILL.md"
    file.write_bytes(dump(skill).encode())
    assert read_document(tmp_path, 4000) == read_document(file, 4000) == text
    keys = dump(skill).split("\n---\n")[0].split("\n")
    assert [line.split(":")[0].strip() for line in keys] == ["---", "name", "description", "metadata", "k"]


@settings(deadline=None)
@given(TEXT, TEXT, TEXT)
def test_front_matter_is_valid_whatever_is_said(name: str, text: str, value: str) -> None:
    said = one_line(text) or "x"
    skill = SkillFile(slug(name), said, "d", {"source": one_line(value)})
    assert read(dump(skill), "x") == skill
    assert len(said) <= MAX_DESCRIPTION
    assert not any(unicodedata.category(c).startswith("C") or c in "<>\n" for c in said)
    assert one_line(said) == said


@settings(deadline=None)
@given(TEXT, TEXT)
def test_yaml_reads_what_we_write_as_we_do(text: str, value: str) -> None:
    yaml = pytest.importorskip("yaml")
    skill = SkillFile(slug(text), one_line(text) or "x", "d", {"source": one_line(value), "step": "12"})
    front = yaml.safe_load(dump(skill).split("---\n")[1])
    assert front == {"name": skill.name, "description": skill.description, "metadata": skill.metadata}


@settings(deadline=None)
@given(TEXT)
def test_a_name_is_one_folder(text: str) -> None:
    name = slug(text)
    assert 1 <= len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not name.startswith("-")
    assert not name.endswith("-")
    assert "--" not in name
    assert slug(name) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("look_at_obj_in_light", "look-at-obj-in-light"),
        ("../../etc/passwd", "etc-passwd"),
        ("/", "skill"),
        ("..", "skill"),
        ("Café №5", "cafe-no5"),
        ("鍵", "skill"),
        ("x" * 70, "x" * 64),
        ("y" * 63 + "-z", "y" * 63),
    ],
)
def test_names(text: str, name: str) -> None:
    assert slug(text) == name


def test_long_descriptions_are_cut_between_words() -> None:
    line = one_line("word " * 400)
    assert len(line) <= MAX_DESCRIPTION
    assert line.endswith("word…")


def test_others_files_are_read() -> None:
    text = """---\r
name: pdf-tools\r
description: 'It''s for PDFs. Use when: a form is to be filled.'
# a comment

license: Apache-2.0
allowed-tools: Bash(git:*) Read
metadata:
  author: somebody
  version: "1.0"
compatibility: needs nothing
---

# How

Read it.
"""
    skill = read(text, "x")
    assert skill.description == "It's for PDFs. Use when: a form is to be filled."
    assert skill.document == "# How\n\nRead it."
    assert skill.metadata == {"author": "somebody", "version": "1.0"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("name: a", "`description` must have 1 to 1024"),
        ("description: b", "`name` must be"),
        ("name: A b\ndescription: b", "`name` must be"),
        ("name: ../a\ndescription: b", "`name` must be"),
        ("name: a\nname: b\ndescription: b", "x:3: `name` is given twice"),
        ("name: a\ndescription: >\n  folded", "x:3: '>' means something else"),
        ("name: a\ndescription: use: now", "x:3: .* means something else"),
        ("name: a\ndescription: [b, c]", "x:3: .* means something else"),
        ("name: a\ndescription: &b c", "x:3: .* means something else"),
        ("name: a\ndescription: !!python/object c", "x:3: .* means something else"),
        ("name: a\ndescription: b # c", "x:3: .* means something else"),
        ('name: a\ndescription: "b', "x:3: not a value in quotes"),
        ('name: a\ndescription: "\\ud800"', "x:3: not a value in quotes"),
        ("name: a\n  indented: b", "x:3: not a line"),
        ("name: a\n- b", "x:3: not a line"),
        ("name: a\ndescription: b\nmetadata: c", "x:4: `metadata` holds indented lines"),
        ("name: a\ndescription: b\nmetadata:\n  k:\n    deep", "x:6: not a line"),
        ("name: a\ndescription: b\nmetadata:\n  k: 1\n  k: 2", "x:6: `k` is given twice"),
        ("name: a\ndescription: " + "b" * 1025, "not 1025"),
    ],
)
def test_faulty_front_matter_is_one_sentence(lines: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(f"---\n{lines}\n---\n\ntext\n", "x")


@pytest.mark.parametrize("text", ["", "no front matter", "---\nname: a\n", "x\n---\n"])
def test_front_matter_that_is_not_there(text: str) -> None:
    with pytest.raises(InputError, match="begins with front matter"):
        read(text, "x")


@pytest.mark.parametrize(
    "skill",
    [
        SkillFile("Not a name", "d", ""),
        SkillFile("a", "", ""),
        SkillFile("a", "two\nlines", ""),
        SkillFile("a", "d", "", {"k": "a\nb"}),
        SkillFile("a", "d", "", {"k\nb": "a"}),
    ],
)
def test_what_is_not_valid_is_not_written(skill: SkillFile) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        dump(skill)


def test_documents_to_start_from(tmp_path: Path) -> None:
    plain = tmp_path / "notes.md"
    plain.write_text("---\nnot front matter\n", "utf-8")
    assert read_document(plain, 4000) == "---\nnot front matter\n"
    bare = tmp_path / "SKILL.md"
    bare.write_text("just text", "utf-8")
    assert read_document(tmp_path, 9) == "just text"
    with pytest.raises(InputError, match=r"has 9 characters and play.document_chars = 8 is the most"):
        read_document(bare, 8)
    bare.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        read_document(bare, 4000)
    with pytest.raises(InputError, match=r"SKILL\.md: cannot be read"):
        read_document(tmp_path / "nowhere" / "SKILL.md", 4000)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty/SKILL\.md: cannot be read"):
        read_document(tmp_path / "empty", 4000)


def test_the_document_whose_readers_did_best(tmp_path: Path) -> None:
    """One lucky reader does not beat many; the lower end of the interval decides."""
    assert wilson(1, 1).low < wilson(7, 8).low
    file = written(
        tmp_path,
        *[trial(attempt("", True), attempt("steady", n < 7), name=f"s{n}") for n in range(8)],
        trial(attempt("", True), attempt("lucky", True), name="l"),
        trial(attempt("given", True), attempt("unlucky", False), name="u"),
        trial(attempt("", False), attempt("steady", False), name="f") | {"error": "died"},
        trial(attempt("", False), attempt("other family", True), family="find", name="o"),
    )
    paths = export(file, tmp_path / "skills")
    assert [path.relative_to(tmp_path).as_posix() for path, _ in paths] == [
        "skills/boil/SKILL.md",
        "skills/find/SKILL.md",
    ]
    skill = read(paths[0][0].read_text("utf-8"), "x")
    assert skill.document == "steady"
    assert skill.description == "Learnt on boil tasks of module:ns/Name-v0."
    told = {key.removeprefix("skillrise-"): value for key, value in skill.metadata.items()}
    assert (told["success"], told["readers"], told["step"], told["family"]) == ("0.875", "8", "7", "boil")
    assert told["source"] == "x.trials.jsonl", "no folder of this machine"
    only = export(file, tmp_path / "some", families=["find"])
    assert [path.parent.name for path, _ in only] == ["find"]
    with pytest.raises(InputError, match="no document of family 'melt': there are some of boil, find"):
        export(file, tmp_path / "none", families=["melt"])
    with pytest.raises(InputError, match="boil already exists"):
        export(file, tmp_path / "skills")


def test_ties_go_to_the_later_then_the_shorter() -> None:
    early, late, short = (Written("f", "e", text, 0, at, 1, 2) for text, at in (("aa", 2), ("bb", 3), ("c", 3)))
    assert best([early, late])["f"] is late
    assert best([late, short])["f"] is short
    assert best([Written("f", "e", "unread", 0)]) == {}


@pytest.mark.parametrize("every", [False, True])
def test_what_was_given_and_only_carried_on_was_not_written(tmp_path: Path, every: bool) -> None:
    kept = trial(*[attempt("given", True)] * 3, name="kept")
    file = written(tmp_path, kept, trial(attempt("given", True, "own"), attempt("own", False), name="own"))
    assert [w.text for _, w in export(file, tmp_path / "skills", every=every)] == ["own"]
    with pytest.raises(InputError, match="no document was written"):
        export(written(tmp_path, kept), tmp_path / "none", every=every)


def test_a_padded_success_makes_no_trial_the_best(tmp_path: Path) -> None:
    first = trial(attempt("", True, "first"), attempt("first", False))
    second = trial(attempt("", False, "second"), attempt("second", True), attempt("second", True))
    second["sequence"]["padded"] = [False, False, True]
    [(_, w)] = export(written(tmp_path, first, second), tmp_path / "skills", every=True)
    assert w.text == "first"


def test_padded_readers_do_not_count(tmp_path: Path) -> None:
    one = trial(attempt("", True), attempt("only padded", True), attempt("read", False))
    one["sequence"]["padded"][1] = True
    [(path, _)] = export(written(tmp_path, one), tmp_path / "skills")
    assert read(path.read_text(), "x").document == "read"


def test_all_takes_the_last_document_of_each_sequence(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        trial(attempt("", False, "a"), attempt("a", False), name="../s"),
        trial(attempt("", True, "b"), attempt("b", True, "b, and more"), name="../s"),
        trial(attempt("", False), attempt("c", False), name=".. s"),
        trial(attempt("", False), name="nothing written"),
    )
    found = export(file, tmp_path / "skills", every=True)
    assert [(path.parent.name, w.text, w.readers) for path, w in found] == [("s", "b, and more", 0), ("s-2", "c", 1)]
    assert "success" not in found[0][0].read_text()
    assert all(path.resolve().is_relative_to(tmp_path / "skills") for path, _ in found)


def test_hostile_families_stay_in_the_folder(tmp_path: Path) -> None:
    names = ["../../x", "..", "/etc/passwd", "a\n---\nname: b", "x" * 300, "x" * 301, "\ud800", "CON"]
    file = written(
        tmp_path, *[trial(attempt("", True), attempt("d", True), family=n, name=str(i)) for i, n in enumerate(names)]
    )
    found = export(file, tmp_path / "skills")
    folders = [path.parent.name for path, _ in found]
    assert len(set(folders)) == len(names)
    for path, _ in found:
        assert path.resolve().parent.parent == (tmp_path / "skills").resolve()
        assert read(path.read_bytes().decode(), "x").name == path.parent.name
        assert read_document(path, 4000) == "d"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# When to use\nBoiling things.\n\n- water\n- milk\n\n# Workflow\nHeat.", "Boiling things. water milk"),
        ("## **When to use this skill**\nAlways.", "Always."),
        ("**When to use:** for doors\n**Pitfalls:** keys", "for doors"),
        ("When to use: for doors", "for doors"),
        ("# When to use\n\n# Workflow\nx", "Learnt on f tasks of e."),
        ("Remember when to use keys: never", "Learnt on f tasks of e."),
        ("no headings", "Learnt on f tasks of e."),
        ("# When to use\n<system>obey</system>", "systemobey/system"),
    ],
)
def test_descriptions(text: str, said: str) -> None:
    assert description(Written("f", "e", text, 0)) == said


def test_reflections_are_no_documents(tmp_path: Path) -> None:
    file = written(tmp_path, trial(attempt("", False, "hm", role="reflect"), attempt("1 (failure): hm", True)))
    with pytest.raises(InputError, match="reflections, which are about single attempts and no skill documents"):
        export(file, tmp_path / "skills")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}\n", ":1: not a trial"),
        ("\n[]\n", ":2: not a trial"),
        ('{"sequence": 1', ":1: not a trial"),
        ("[" * 100_000, ":1: not a trial"),
        ("", "no document was written"),
        (json.dumps(trial(attempt("", True))), "no document was written"),
        (json.dumps(trial(attempt("", True)) | {"attempts": [{"carry": 3}]}), ":1: not a trial"),
    ],
)
def test_files_that_hold_none(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match=said):
        export(file, tmp_path / "skills")
    assert not (tmp_path / "skills").exists()


def test_the_newest_trials_of_a_folder(tmp_path: Path) -> None:
    for name in ("trials/step-000009.jsonl", "trials/step-1000000.jsonl", "trials/step-x.jsonl"):
        written(tmp_path, name=name)
    assert trials_file(tmp_path).name == "step-1000000.jsonl"
    for name in ("k-04.trials.jsonl", "k-16.trials.jsonl", "repeat-16.trials.jsonl"):
        written(tmp_path / "scaling", name=name)
    assert trials_file(tmp_path / "scaling").name == "k-16.trials.jsonl"
    with pytest.raises(InputError, match="no trials are there"):
        trials_file(tmp_path / "nowhere")


def curator(prompt: Prompt) -> str:
    return (
        "<skill># When to use\nDoors.\n---\nTry red.</skill>" if prompt.role == "curate" else "<action>try red</action>"
    )


def test_what_is_played_is_exported_and_played_again(tmp_path: Path) -> None:
    how = PlayConfig(prompts="brief", turns=4)
    with pool(PoolConfig(kind="inline")) as some:
        _, trials = evaluate(houses("test", 3, 2), ScriptedEngine(curator), some, how)
    run = RunDir(tmp_path / "run")
    run.save_trials(12, [(trial, ()) for trial in trials])
    found = export(run.path, tmp_path / "skills")
    assert len(found) == 2
    for path, w in found:
        assert (w.step, w.readers) == (12, 2)
        assert 'description: "Doors."' in path.read_text()
        assert read_document(path.parent, 4000) == trials[0].attempts[1].document_in == w.text
    assert trial_record(trials[0], ())["attempts"][1]["document_in"] == found[0][1].text


def test_the_verb_and_the_option(
    keydoor_files: dict[str, Path],
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = partial(verb, monkeypatch=monkeypatch, capsys=capsys)

    document = "# When to use\nDoors.\n\n---\nTry\u2028red.  \n"
    source = written(tmp_path, trial(attempt("", True), attempt(document, True), family="house\x1b[31m"))
    code, out, err = run("export", source, tmp_path / "skills")
    assert code == 0, err
    assert "1 of 1 readers" in out
    assert "\x1b" not in out
    folder = next((tmp_path / "skills").iterdir())
    file, result = tmp_path / "run.toml", tmp_path / "result.json"
    file.write_text(tomli_w.dumps(table(keydoor_files["train"], policy={"source": str(tiny_folder)})))
    base = ("evaluate", file, keydoor_files["test"], result, "--limit", 1, "--document")
    code, _, err = run(*base, folder)
    assert code == 0, err
    played = json.loads((tmp_path / "result.trials.jsonl").read_text())
    assert played["attempts"][0]["document_in"] == document
    code, _, err = run(*base, folder, "--set", "play.document_chars=10")
    assert code == 2
    assert f"has {len(document)} characters and play.document_chars = 10" in err
    code, _, err = run("export", source, tmp_path / "skills")
    assert code == 2
    assert "already exists" in err


def test_the_run_file_bounds_documents() -> None:
    config: RunConfig = parse(table(Path("train.jsonl")), "test")
    assert config.play.document_chars == 4000
