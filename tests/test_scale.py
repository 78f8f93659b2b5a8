"""Test-time scaling: balanced rotations, KeyDoor's known optimum at every position and K, going on, tables and figures."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from conftest import KEYDOOR, houses, remembers, run, table
from hypothesis import given, settings
from hypothesis import strategies as st

from skillrise.config import PoolConfig, RunConfig, parse
from skillrise.curriculum import build, identity, write
from skillrise.engine import ScriptedEngine
from skillrise.env import make
from skillrise.errors import InputError, SkillRiseError
from skillrise.pool import pool
from skillrise.scale.numbers import spent
from skillrise.scale.plan import Plan, blocks, make_plan, offsets, powers, rotated
from skillrise.scale.runner import Players, play_plan
from skillrise.session import Silent
from skillrise.types import Completion, Prompt, Task, TaskSequence
from skillrise_envs.keydoor import THEMES, secret

NAMES = THEMES["colour"][:8]
ABOUT = {"model": "scripted", "checkpoint": None, "step": 0}


def forgets(prompt: Prompt) -> str:
    """The same, but it writes nothing down."""
    return "<skill></skill>" if prompt.role == "curate" else remembers(prompt)


def file_of(folder: Path, k: int, each: int = 1) -> Path:
    """Sequences in which each key is the right one of equally many houses, so that rates are exact."""
    found: dict[str, list[TaskSequence]] = {name: [] for name in NAMES}
    for sequence in build(make(KEYDOOR, {"houses": 100}).catalogue("test"), k, seed=0, per_family=1):
        key = secret(sequence.tasks[0].spec)
        if len(found[key]) < each:
            found[key].append(sequence)
    out = folder / "test.jsonl"
    write(out, [sequence for some in found.values() for sequence in some])
    return out


def config(**changes: object) -> RunConfig:
    return parse(table(Path("train.jsonl"), play={"prompts": "brief", "turns": 6}, **changes), "test")


class Counted:
    """Gives a scripted engine and a pool, and counts how often it was asked to."""

    def __init__(self, script: Callable[[Prompt], str] = remembers, fail: str = "") -> None:
        self.script, self.fail, self.entered = script, fail, 0

    @contextmanager
    def __call__(self) -> Iterator[Players]:
        self.entered += 1
        with pool(PoolConfig(kind="inline")) as environments:
            yield ScriptedEngine(self.script), environments


def scaled(plan: Plan, folder: Path, players: Counted | None = None, **more: Any) -> dict[str, Any]:
    how = more.pop("config", config())
    return play_plan(how, plan, folder, Silent(), players or Counted(), about=ABOUT, **more)


def block_of(size: int, name: str = "b") -> TaskSequence:
    tasks = tuple(Task("e", {"block": name, "n": i}, "f", float(i)) for i in range(size))
    return TaskSequence(name, "f", tasks, (False,) * size)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_every_task_stands_at_every_position_equally_often(k: int, parts: int, n: int) -> None:
    some = [block_of(k * parts, f"b{i}") for i in range(n)]
    plan = Plan(tuple(some), (1, k))
    sequences = plan.sequences(k)
    seen = Counter((identity(task), at) for sequence in sequences for at, task in enumerate(sequence.tasks))
    every = {identity(task) for block in some for task in block.tasks}
    assert seen == {(task, at): 1 for task in every for at in range(k)}
    assert len({sequence.id for sequence in sequences}) == len(sequences)
    assert plan.plays(k) == sum(len(sequence.tasks) for sequence in sequences)
    assert all(len({identity(task) for task in sequence.tasks}) == k for sequence in sequences)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 14))
def test_fewer_rotations_play_the_same_tasks_evenly_spaced(k: int, rotations: int) -> None:
    block = block_of(2 * k)
    some = list(rotated(block, k, rotations))
    assert len(some) == 2 * min(k, rotations) == 2 * len(offsets(k, rotations))
    often = Counter(identity(task) for sequence in some for task in sequence.tasks)
    assert often == {identity(task): min(k, rotations) for task in block.tasks}
    turned = offsets(k, rotations)
    gaps = [b - a for a, b in zip(turned, [*turned[1:], k], strict=True)]
    assert max(gaps) - min(gaps) <= 1


def test_parts_span_the_difficulty_of_their_block() -> None:
    first, second = (s for s in rotated(block_of(8), 4) if s.id.endswith("-1"))
    assert [task.spec["n"] for task in first.tasks] == [0, 2, 4, 6]
    assert [task.spec["n"] for task in second.tasks] == [1, 3, 5, 7]
    with pytest.raises(ValueError, match="parts of 3"):
        list(rotated(block_of(8), 3))


def test_blocks_leave_out_padded_slots_and_tasks_that_came_before() -> None:
    whole = block_of(4)
    padded = replace(block_of(4, "p"), padded=(True, False, False, False))
    again = replace(whole, id="again")
    found, drawn = blocks([whole, padded, again], 4, seed=0)
    assert not drawn
    assert [block.tasks for block in found] == [whole.tasks]
    halves, _ = blocks([whole], 2, seed=0)
    assert [block.tasks for block in halves] == [whole.tasks[:2], whole.tasks[2:]]


def test_short_sequences_are_drawn_together_by_family() -> None:
    short = [block_of(3, f"s{i}") for i in range(5)]
    other = replace(block_of(3, "o"), family="g")
    found, drawn = blocks([*short, other], 4, seed=1)
    assert drawn
    assert [block.family for block in found] == ["f"] * 3
    used = [identity(task) for block in found for task in block.tasks]
    assert len(set(used)) == 12
    assert all([t.difficulty for t in b.tasks] == sorted(t.difficulty or 0 for t in b.tasks) for b in found)
    assert found == blocks([*short, other], 4, seed=1)[0] != blocks([*short, other], 4, seed=2)[0]


@pytest.mark.parametrize(("most", "found"), [(0, {1}), (1, {1}), (3, {1, 2}), (8, {1, 2, 4, 8}), (9, {1, 2, 4, 8})])
def test_default_lengths(most: int, found: set[int]) -> None:
    assert powers(most) == found


def test_a_plan_says_what_it_will_be(tmp_path: Path) -> None:
    plan = make_plan(config(), file_of(tmp_path, 4), protocol="both")
    assert plan.lengths == (1, 2, 4)
    assert plan.most_plays == 32 * (1 + 2 + 4) + 32 * 4
    said = "\n".join(plan.lines())
    assert "8 blocks of 4 tasks, cut from" in said
    assert "K = 4: 32 sequences, 128 task plays" in said
    assert "at most 352 task plays" in said
    fewer = make_plan(config(), tmp_path / "test.jsonl", [4], rotations=2, limit=3)
    assert (fewer.lengths, len(fewer.blocks), fewer.plays(4)) == ((1, 4), 3, 24)


def test_lengths_that_no_block_can_hold_are_refused(tmp_path: Path) -> None:
    file = file_of(tmp_path, 3)
    with pytest.raises(InputError, match="the 12 different tasks that lengths 1, 3, 4 need"):
        make_plan(config(), file, [3, 4])
    with pytest.raises(InputError, match="whole numbers from 1"):
        make_plan(config(), file, [0, 2])


def test_a_policy_that_remembers_reaches_the_optimum_exactly(tmp_path: Path) -> None:
    plan = make_plan(config(), file_of(tmp_path, 4), protocol="both")
    result = scaled(plan, tmp_path / "out")
    for entry in result["cross"]:
        rates = [row["success"] for row in entry["positions"]]
        assert rates == [row["optimum"] for row in entry["positions"]] == [0.25, 0.5, 0.75, 1.0][: entry["k"]]
        assert entry["success"] == entry["optimum"] == pytest.approx(sum(rates) / len(rates))
        assert entry["n"] == entry["plays"] == 32 * entry["k"]
        gains = [row["gain"] for row in entry["positions"]]
        assert gains[0] is None
        assert [gain["difference"] for gain in gains[1:]] == [0.25, 0.5, 0.75][: entry["k"] - 1]
    longest = result["cross"][-1]
    assert longest["gain"]["difference"] == pytest.approx(0.5)
    assert longest["gain"]["low"] > 0
    assert longest["gain"]["p"] < 0.05
    assert longest["positions"][0]["chars"] == 0
    assert longest["positions"][2]["chars"] > longest["positions"][1]["chars"] > 0
    assert [entry["success"] for entry in result["repeat"]] == [0.25, 0.5, 1.0]
    assert [row["success"] for row in result["repeat"][-1]["positions"]] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("how", ["it writes nothing", "nothing is carried"])
def test_a_policy_without_memory_is_flat(tmp_path: Path, how: str) -> None:
    plan = make_plan(config(), file_of(tmp_path, 4))
    silent = how == "it writes nothing"
    result = scaled(
        plan,
        tmp_path / "out",
        Counted(forgets if silent else remembers),
        config=config().model_copy(
            update={"play": config().play.model_copy(update={"carry": "skill" if silent else "none"})}
        ),
    )
    for entry in result["cross"]:
        assert {row["success"] for row in entry["positions"]} == {0.25}
        for row in entry["positions"][1:]:
            assert (row["gain"]["difference"], row["gain"]["p"]) == (0, 1)
        assert entry["optimum"] == (pytest.approx((entry["k"] + 1) / 8) if silent else None)


def test_intervals_are_over_blocks(tmp_path: Path) -> None:
    """32 plays at each position are of 8 blocks, in each of which all end alike."""
    result = scaled(make_plan(config(), file_of(tmp_path, 4)), tmp_path / "out")
    first = result["cross"][-1]["positions"][0]
    assert (first["success"], first["n"]) == (0.25, 32)
    assert first["high"] - first["low"] > 0.5  # Wilson's over 32 plays would be 0.29


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    plan = make_plan(config(), file_of(tmp_path, 4), protocol="both")
    whole, out = scaled(plan, tmp_path / "whole"), tmp_path / "out"

    class Stop(Exception):
        pass

    class Until(Silent):
        def phase(self, name: str) -> None:
            if name == "K = 4":
                raise Stop

    with pytest.raises(Stop):
        play_plan(config(), plan, out, Until(), Counted(), about=ABOUT)
    assert sorted(path.name for path in out.iterdir()) == [
        "k-01.json", "k-01.trials.jsonl", "k-02.json", "k-02.trials.jsonl", "settings.json",
    ]  # fmt: skip
    written = (out / "k-02.json").stat().st_mtime_ns
    rest = Counted()
    result = scaled(plan, out, rest)
    assert rest.entered == 1
    assert (out / "k-02.json").stat().st_mtime_ns == written
    for protocol in ("cross", "repeat"):
        for entry, other in zip(result[protocol], whole[protocol], strict=True):
            assert {**entry, "seconds": 0} == {**other, "seconds": 0}
    scaled(plan, out, rest)
    assert rest.entered == 1, "nothing is left to play"


def test_other_settings_are_refused_in_one_sentence(tmp_path: Path) -> None:
    file, out = file_of(tmp_path, 4), tmp_path / "out"
    scaled(make_plan(config(), file, limit=2), out)
    for plan, changed, key in (
        (make_plan(config(), file, limit=2, rotations=1), {}, "rotations"),
        (make_plan(config(), file, [2], limit=2), {}, "k"),
        (make_plan(config(), file, limit=2), {"document": "red fits."}, "document_sha256"),
        (make_plan(config(), file, limit=2), {"config": config(evaluation={"seed": 5})}, "seed"),
    ):
        with pytest.raises(InputError, match=f"another '{key}': name another folder"):
            scaled(plan, out, **changed)
    other = tmp_path / "other"
    (other / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match="no scaling run"):
        scaled(make_plan(config(), file, limit=2), other)


def test_a_start_that_failed_binds_nothing(tmp_path: Path) -> None:
    file = file_of(tmp_path, 4)

    def breaks(prompt: Prompt) -> str:
        raise SkillRiseError("no")

    with pytest.raises(SkillRiseError):
        scaled(make_plan(config(), file, limit=2), tmp_path / "out", Counted(breaks))
    assert scaled(make_plan(config(), file, [2], limit=2), tmp_path / "out")["settings"]["k"] == [1, 2]


def test_files_that_others_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = scaled(make_plan(config(), file_of(tmp_path, 4), protocol="both"), out)
    assert json.loads((out / "result.json").read_text()) == result
    assert len((out / "k-04.trials.jsonl").read_text().splitlines()) == 32
    rows = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert len(rows) == 2 * (1 + 2 + 4 + 3)
    last = next(row for row in rows if (row["protocol"], row["k"], row["position"]) == ("cross", "4", "4"))
    assert (last["success"], last["gain_difference"], last["optimum"]) == ("1.0", "0.75", "1.0")
    text = (out / "table.md").read_text()
    assert "| 4 | 0.25 [" in text
    assert "+0.75 [" in text
    names = {path.name for path in (out / "figures").iterdir()}
    assert names == {f"success-by-{what}.{kind}" for what in ("position", "k") for kind in ("png", "svg")}
    assert (out / "figures" / "success-by-k.png").read_bytes().startswith(b"\x89PNG")
    svg = (out / "figures" / "success-by-position.svg").read_bytes()
    scaled(make_plan(config(), tmp_path / "test.jsonl", protocol="both"), out)
    assert (out / "figures" / "success-by-position.svg").read_bytes() == svg


class Telling(ScriptedEngine):
    """Tells tokens: a prompt of 10, a reply of 3."""

    def complete(self, prompt: Prompt, text: str) -> Completion:
        return replace(super().complete(prompt, text), prompt_ids=(0,) * 10, token_ids=(1,) * 3)


def test_tokens_are_counted_where_they_are_spent(tmp_path: Path) -> None:
    plan = make_plan(config(), file_of(tmp_path, 2), [2], protocol="both")
    how = config().model_copy(update={"play": config().play.model_copy(update={"context": "window"})})

    @contextmanager
    def players() -> Iterator[Players]:
        with pool(PoolConfig(kind="inline")) as environments:
            yield Telling(remembers), environments

    result = play_plan(how, plan, tmp_path / "out", Silent(), players, about=ABOUT)
    one, two = result["cross"]
    lines = (tmp_path / "out" / "k-02.trials.jsonl").read_text().splitlines()
    turns = [turn for line in lines for a in json.loads(line)["attempts"] for turn in [*a["turns"], a["carry"]] if turn]
    assert (two["tokens"]["sampled"], two["tokens"]["read"]) == (3 * len(turns), 10 * len(turns))
    assert two["tokens"]["a_task"] == 13 * len(turns) / 32
    assert two["tokens"]["a_solved"] == 13 * len(turns) / (32 * two["success"])
    assert one["tokens"]["a_task"] < two["tokens"]["a_task"], "writing the document is paid for"
    again = result["repeat"]
    assert again[0]["tokens"]["a_task"] == one["tokens"]["a_task"]
    assert again[1]["tokens"]["sampled"] > again[0]["tokens"]["sampled"]
    assert (tmp_path / "out" / "figures" / "success-by-tokens.svg").exists()
    assert spent([]) == []


def test_a_server_that_tells_no_token_ids_counts_them_itself(tmp_path: Path) -> None:
    class Server(ScriptedEngine):
        asked = 0

        def complete(self, prompt: Prompt, text: str) -> Completion:
            self.asked += 1
            return super().complete(prompt, text)

        def totals(self) -> dict[str, float]:
            counts = {"prompt_tokens": 10.0, "cached_tokens": 4.0, "reply_tokens": 3.0, "cost": 0.5}
            return {f"engine/{name}": each * self.asked for name, each in counts.items()}

    @contextmanager
    def players() -> Iterator[Players]:
        with pool(PoolConfig(kind="inline")) as environments:
            yield Server(remembers), environments

    plan = make_plan(config(), file_of(tmp_path, 2), [2], protocol="both")
    result = play_plan(config(), plan, tmp_path / "out", Silent(), players, about=ABOUT)
    for entry in (*result["cross"], result["repeat"][-1]):
        replies = entry["engine"]["engine/cost"] / 0.5
        assert (entry["tokens"]["sampled"], entry["tokens"]["read"]) == (3 * replies, 6 * replies)
    assert result["repeat"][0]["tokens"]["a_task"] is None, "what the first attempts alone took is not known"


def test_a_damaged_result_is_one_sentence(tmp_path: Path) -> None:
    plan, out = make_plan(config(), file_of(tmp_path, 2), [1], limit=2), tmp_path / "out"
    scaled(plan, out)
    for content in ("{", "[]", "{}"):
        (out / "k-01.json").write_text(content)
        with pytest.raises(InputError, match=r"k-01\.json .* delete it to have it made again"):
            scaled(plan, out)


def test_failed_trials_count_nowhere_and_are_told(tmp_path: Path) -> None:
    import nasty_envs

    bad = nasty_envs.sequence("bad", ["raise", "raise"])
    good = build(make(KEYDOOR, {"houses": 3}).catalogue("test"), 2, seed=0, per_family=1)
    plan = Plan((*good, bad), (1, 2))
    result = scaled(plan, tmp_path / "out")
    for entry in result["cross"]:
        assert entry["n"] == 6 * entry["k"]
        assert entry["failed"] > 0
        assert entry["optimum"] is None


def test_the_verbs(
    keydoor_files: dict[str, Path],
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A real model: scaled, exported if it wrote anything, and scaled again from a document."""
    file, out = tmp_path / "run.toml", tmp_path / "scaling"
    file.write_text(tomli_w.dumps(table(keydoor_files["train"], policy={"source": str(tiny_folder)})))
    arguments = ("scale", file, keydoor_files["test"], out, "--k", "1,3", "--limit", 1, "--protocol", "both")
    code, said, err = run(*arguments, "--dry-run", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    assert "in all at most 21 task plays" in said
    assert not out.exists()
    code, said, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    assert "Success by position" in said
    result = json.loads((out / "result.json").read_text())
    assert result["settings"]["model"] == str(tiny_folder)
    assert result["cross"][1]["tokens"]["sampled"] > 0
    assert (out / "figures" / "success-by-tokens.png").exists()
    code, _, err = run(*arguments, "--seed", 7, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert "another 'seed'" in err
    document = tmp_path / "notes.md"
    document.write_text("x" * 5000)
    code, _, err = run(*arguments[:3], tmp_path / "b", "--document", document, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert "5000" in err
    assert "4000" in err
    for wrong, about in ((("--k", "1,x"), "--k"), (("--protocol", "both ways"), "--protocol")):
        code, _, err = run(*arguments[:4], *wrong, monkeypatch=monkeypatch, capsys=capsys)
        assert code == 2
        assert about in err


def test_help_teaches_and_loads_nothing_heavy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("scale", "export"):
        code, said, _ = run(verb, "--help", monkeypatch=monkeypatch, capsys=capsys)
        assert code == 0
        assert "Example" in said


def test_a_sequence_that_is_mixed_stays_together() -> None:
    mixed = replace(houses("test", 2, 1)[0], family="mixed")
    found, _ = blocks([mixed], 2, seed=0)
    assert found[0].family == "mixed"
