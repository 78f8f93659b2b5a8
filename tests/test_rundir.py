"""The run folder: whole files only, damage is noticed, a resume forgets what it plays again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nasty_envs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillrise.config import PlayConfig, parse
from skillrise.errors import EnvironmentFailure, InputError
from skillrise.files import write_text
from skillrise.play import Act, Ask, Reset, play
from skillrise.rundir import RunDir, read_state, trial_record
from skillrise.types import Completion, Credit, Observation, Trial


def tensors(content: bytes = b"x" * 100) -> Callable[[Path], None]:
    return lambda folder: [None, (folder / "weights.safetensors").write_bytes(content)][0]


def run(folder: Path, *steps: int, keep: int = 10) -> RunDir:
    made = RunDir(folder)
    for step in steps:
        made.save_checkpoint(step, {"version": step * 2, "sampler": {"drawn": 3}}, tensors(), keep)
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    made = run(tmp_path, 9, 10)
    newest = made.latest()
    assert newest == tmp_path / "checkpoints" / "step-000010"
    assert (newest / "weights.safetensors").read_bytes() == b"x" * 100
    state = read_state(newest)
    assert (state["step"], state["version"], state["sampler"]) == (10, 20, {"drawn": 3})


def test_a_checkpoint_that_could_not_be_written_is_not_there(tmp_path: Path) -> None:
    made = run(tmp_path, 1)

    def torn(folder: Path) -> None:
        (folder / "weights.safetensors").write_bytes(b"half")
        assert made.latest() == made.checkpoints / "step-000001"  # nothing to be seen of it meanwhile
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        made.save_checkpoint(2, {}, torn, keep=1)
    assert names(made.checkpoints) == ["step-000001"]
    assert made.latest() == made.checkpoints / "step-000001"


def test_a_checkpoint_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    made = run(tmp_path, 1)
    made.save_checkpoint(1, {"version": 7}, tensors(b"new"), keep=1)
    newest = made.latest()
    assert newest is not None
    assert read_state(newest)["version"] == 7
    assert (newest / "weights.safetensors").read_bytes() == b"new"


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    made = run(tmp_path, 1, 2, 30, 4, keep=2)
    assert names(made.checkpoints) == ["step-000004", "step-000030"]


def test_what_a_kill_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    made = run(tmp_path, 1)
    (made.checkpoints / ".step-000002.0badcafe.tmp").mkdir()
    made.save_checkpoint(3, {}, tensors(), keep=1)
    assert names(made.checkpoints) == ["step-000003"]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: _cut(folder / "weights.safetensors"),
        lambda folder: (folder / "weights.safetensors").unlink(),
        lambda folder: (folder / "state.json").unlink(),
        lambda folder: _cut(folder / "state.json") or _cut(folder / "state.json"),
        lambda folder: (folder / "state.json").write_bytes(b"\0" * 80),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: (folder / "state.json").write_text('{"files": 3}'),
        lambda folder: (folder / "state.json").write_text("{}"),
    ],
)
def test_a_damaged_newest_checkpoint_is_refused_and_the_newest_good_one_named(
    tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    made = run(tmp_path, 1, 2, 3)
    damage(made.checkpoints / "step-000003")
    with pytest.raises(InputError, match=r"step-000003 is damaged.*step-000002"):
        made.latest()
    damage(made.checkpoints / "step-000002")
    with pytest.raises(InputError, match=r"step-000003 is damaged.*step-000001"):
        made.latest()
    damage(made.checkpoints / "step-000001")
    with pytest.raises(InputError, match="no other checkpoint"):
        made.latest()


def test_an_older_damaged_checkpoint_does_no_harm(tmp_path: Path) -> None:
    made = run(tmp_path, 1, 2)
    _cut(made.checkpoints / "step-000001" / "weights.safetensors")
    assert made.latest() == made.checkpoints / "step-000002"


def test_no_checkpoint(tmp_path: Path) -> None:
    assert RunDir(tmp_path / "none").latest() is None


def test_rewind_forgets_what_is_played_again(tmp_path: Path) -> None:
    made = RunDir(tmp_path)
    for step in range(1, 5):
        made.log({"step": step, "loss": step / 3})
        made.save_trials(step, [])
        made.save_evaluation(f"step-{step:06d}", {"step": step})
    made.save_evaluation("final", {})
    made.save_evaluation("step-best", {})
    made.rewind(2)
    assert made.history() == [{"step": 1, "loss": 1 / 3}, {"step": 2, "loss": 2 / 3}]
    assert names(tmp_path / "trials") == ["step-000001.jsonl", "step-000002.jsonl"]
    assert names(tmp_path / "evaluations") == ["final.json", "step-000001.json", "step-000002.json", "step-best.json"]
    made.rewind(0)
    assert made.history() == []


def test_a_torn_last_line_is_left_out_and_gone_after_a_rewind(tmp_path: Path) -> None:
    made = RunDir(tmp_path)
    made.log({"step": 1, "loss": 0.5})
    made.log({"step": 2, "loss": 0.25})
    whole = made.metrics.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        made.metrics.write_bytes(whole[:-cut])
        assert [row["step"] for row in made.history()] in ([1], [1, 2])
    made.rewind(2)
    made.log({"step": 2, "loss": 1})
    assert [row["step"] for row in made.history()] == [1, 2]


def test_metrics_that_are_no_numbers_are_null(tmp_path: Path) -> None:
    made = RunDir(tmp_path)
    made.log({"step": 1, "success/all": math.nan, "loss": math.inf})
    line = made.metrics.read_text()
    assert json.loads(line, parse_constant=pytest.fail) == {"step": 1, "success/all": None, "loss": None}


def config(**keys: Any) -> Any:
    return parse({"curriculum": {"train": "t.jsonl"}, **keys}, "test")


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    made = RunDir(tmp_path / "run")
    made.start(config(), resume=False)
    made.start(config(seed=1), resume=False)  # the first start got no further: the folder is free
    made.start(config(), resume=False)
    made.log({"step": 1})
    with pytest.raises(InputError, match="already holds a run: add --resume"):
        made.start(config(), resume=False)
    made.start(config(), resume=True)


def test_a_resume_with_another_configuration_is_refused_by_key(tmp_path: Path) -> None:
    made = RunDir(tmp_path)
    with pytest.raises(InputError, match="no run to resume"):
        made.start(config(), resume=True)
    made.start(config(), resume=False)
    before = made.config.read_bytes()
    for keys, key in (
        ({"seed": 1}, "seed"),
        ({"play": {"turns": 3}}, "play.turns"),
        ({"policy": {"lora": {"rank": 4}}}, "policy.lora"),
        ({"pool": {"options": {"keys": 3}}}, "pool.options.keys"),
    ):
        with pytest.raises(InputError, match=rf"config.toml: .*another '{key}"):
            made.start(config(**keys), resume=True)
        assert made.config.read_bytes() == before
    made.start(config(steps=9, keep_checkpoints=5), resume=True)
    assert b"steps = 9" in made.config.read_bytes()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert names(path.parent) == ["file.json"]


def played(documents: list[str], replies: list[str], error: bool = False, context: str = "transcript") -> Trial:
    """A trial of a scripted game in which each reply and document is the next of its list."""
    how = PlayConfig.model_validate({"turns": 2, "context": context})
    game = play(nasty_envs.sequence("s", [""] * 3), how)
    said, written, asked = iter(replies * 20), iter(documents * 20), 0
    request = next(game)
    try:
        while True:
            if isinstance(request, Ask):
                asked += 1
                role = request.prompt.role
                text = f"{next(said)}<action>go</action>" if role == "solve" else f"<skill>{next(written)}</skill>"
                request = game.send(Completion(text, (1,) * asked, (2, 3), (-0.5, -1.5), "stop", 4))
            else:
                assert isinstance(request, Reset | Act)
                if error and asked > 4:
                    request = game.throw(EnvironmentFailure("gone"))
                else:
                    request = game.send(Observation(f"seen {asked} \u2028é", "the task", None, False, 0.0, False))
    except StopIteration as stop:
        trial: Trial = stop.value
        return trial


texts = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda t: "<" not in t)


@given(st.lists(texts, min_size=1, max_size=3), st.lists(texts, min_size=1, max_size=3), st.booleans())
def test_a_record_is_json_and_loses_no_document_and_no_reply(
    documents: list[str], replies: list[str], error: bool
) -> None:
    trial = played(documents, replies, error)
    credits = [Credit(float(i), -float(i)) for i in range(len(trial.turns))]
    record = json.loads(json.dumps(trial_record(trial, credits), allow_nan=False))
    assert record["error"] == trial.error
    assert (record["error"] is not None) == error
    assert [a["document_in"] for a in record["attempts"]] == [a.document_in for a in trial.attempts]
    turns = [t for a in record["attempts"] for t in [*a["turns"], *([a["carry"]] if a["carry"] else [])]]
    assert [t["reply"] for t in turns] == [t.completion.text for t in trial.turns]
    assert [t["action"] for t in turns] == [t.action for t in trial.turns]
    assert [(t["return"], t["advantage"]) for t in turns] == [(c.return_, c.advantage) for c in credits]
    assert {t["logprob"] for t in turns} == {-1.0}


def test_a_record_shows_every_message_once() -> None:
    trial = played(["doc"], ["so"])
    for attempt, record in zip(trial.attempts, trial_record(trial, ())["attempts"], strict=True):
        position = attempt.turns[0].position
        turns = [*record["turns"], *([record["carry"]] if record["carry"] else [])]
        chat: list[tuple[str, str]] = []
        for turn in turns:
            chat += [(m["role"], m["content"]) for m in turn["messages"]] + [("assistant", turn["reply"])]
        last = trial.carries[position] if position < 2 else attempt.turns[-1]
        assert chat[:-1] == [(m.role, m.content) for m in last.prompt.messages]
    windows = trial_record(played(["doc"], ["so"], context="window"), ())
    assert all(len(t["messages"]) == 1 for a in windows["attempts"] for t in a["turns"])


def test_trials_are_written_one_a_line(tmp_path: Path) -> None:
    trial = played(["line\u2028separator"], ["é"])
    path = RunDir(tmp_path).save_trials(12, [(trial, ()), (trial, [Credit(1.0)] * len(trial.turns))])
    assert path == tmp_path / "trials" / "step-000012.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert [(line["step"], line["trial"]) for line in lines] == [(12, 0), (12, 1)]
    assert lines[0]["attempts"][0]["turns"][0]["return"] is None
    assert lines[1]["attempts"][0]["turns"][0]["return"] == 1.0
    assert lines[0]["sequence"]["tasks"][0]["env"] == nasty_envs.ID
