"""Whole runs on KeyDoor with a tiny policy, through the command line where a user would."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from conftest import KEYDOOR, houses, table
from rich.console import Console

from skillrise.config import LearnerConfig, parse
from skillrise.curriculum import build, catalogue, write
from skillrise.display import Live
from skillrise.errors import InputError, SkillRiseError
from skillrise.learner import Learner
from skillrise.pool import InlinePool
from skillrise.report import write_report
from skillrise.rundir import RunDir
from skillrise.session import Silent, load_trained, pick, read_sequences
from skillrise.train import Training, learning_rate, play_as, train
from skillrise.types import TaskSequence
from skillrise.warmup import demonstrations, play_demonstrations, warmup, warmup_rows

TIMING = ("time/",)
ELSEWHERE = {"processes": 0.0, "tokens/run": 0.0}
"""What depends on the number of processes: rows that begin alike may lie on two of them."""


def metrics(folder: Path) -> list[dict[str, float]]:
    """What must not depend on when a run was interrupted."""
    return [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in RunDir(folder).history()]


def run_file(folder: Path, content: dict[str, object]) -> Path:
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(content))
    return path


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, keydoor_files: dict[str, Path]) -> Path:
    """A finished run with an evaluation at its second update."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    train(parse(content(keydoor_files), "test"), folder)
    return folder


def content(files: dict[str, Path], **changes: object) -> dict[str, object]:
    out = table(files["train"], evaluation={"every": 2}, steps=4, learner={"minibatch_turns": 8}, **changes)
    out["curriculum"] = {"train": str(files["train"]), "dev": str(files["test"])}
    return out


def test_a_run_leaves_what_it_promises(unbroken: Path) -> None:
    rows = metrics(unbroken)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert {"success/p1", "success/p3", "return/solve", "return/curate", "invalid/curate", "cut", "lr"} <= set(rows[0])
    assert "evaluation/all" in rows[1]
    assert "evaluation/all" not in rows[0]
    assert len(list((unbroken / "trials").iterdir())) == 4
    trial = json.loads((unbroken / "trials" / "step-000001.jsonl").read_text().splitlines()[0])
    assert trial["attempts"][0]["turns"][0]["return"] is not None
    assert [p.name for p in sorted((unbroken / "checkpoints").iterdir())] == ["step-000003", "step-000004"]
    assert not list(unbroken.rglob("*.tmp"))
    assert {p.suffix for p in unbroken.rglob("*") if p.is_file()} <= {
        ".toml",
        ".json",
        ".jsonl",
        ".safetensors",
        ".jinja",
    }


def test_the_same_seed_gives_the_same_run(unbroken: Path, keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    train(parse(content(keydoor_files), "test"), tmp_path / "again")
    assert metrics(tmp_path / "again") == metrics(unbroken)


def test_overlap_plays_the_next_update_with_the_weights_before_and_says_so(
    unbroken: Path, keydoor_files: dict[str, Path], tmp_path: Path
) -> None:
    changed = content(keydoor_files)
    changed["rollout"] = {**changed["rollout"], "overlap": True}  # type: ignore[dict-item]
    train(parse(changed, "test"), tmp_path / "run")
    ours, theirs = metrics(tmp_path / "run"), metrics(unbroken)
    assert [row["loss/staleness"] for row in ours] == [0, 1, 1, 1]
    assert [row["loss/staleness"] for row in theirs] == [0, 0, 0, 0]
    sampled = ("success/all", "tokens/sampled", "credit/abs_advantage", "return/solve")
    assert [ours[0][name] for name in sampled] == [theirs[0][name] for name in sampled]
    assert ours[1]["loss/sampler_gap"] > 100 * max(row["loss/sampler_gap"] for row in theirs)
    assert "evaluation/all" in ours[1]
    states = [json.loads((f / "checkpoints/step-000003/state.json").read_text()) for f in (tmp_path / "run", unbroken)]
    assert states[0]["sampler"] == states[1]["sampler"], "what was drawn ahead is drawn again by a resume"
    versions = {
        turn["weight_version"]
        for line in (tmp_path / "run" / "trials" / "step-000003.jsonl").read_text().splitlines()
        for attempt in json.loads(line)["attempts"]
        for turn in attempt["turns"]
    }
    assert versions == {1}


def test_the_learner_works_while_the_next_update_is_played(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = {step: threading.Event() for step in range(1, 4)}
    play, update = Training._play, Learner.update

    def play_and_tell(self: Training, step: int, synced: float) -> Any:
        begun[step].set()
        return play(self, step, synced)

    def update_once_the_next_is_played(self: Learner, *given: Any) -> Any:
        assert self.version == 2 or begun[self.version + 2].wait(60)
        return update(self, *given)

    monkeypatch.setattr(Training, "_play", play_and_tell)
    monkeypatch.setattr(Learner, "update", update_once_the_next_is_played)
    changed = table(keydoor_files["train"], rollout={"overlap": True})
    train(parse(changed, "test"), tmp_path / "run")
    assert len(metrics(tmp_path / "run")) == 3


def test_what_goes_wrong_in_an_overlapped_rollout_ends_the_run_and_closes_everything(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, closed = Training._play, []

    def fail(self: Training, step: int, synced: float) -> Any:
        if step == 2:
            raise OSError("the disk is gone")
        return play(self, step, synced)

    monkeypatch.setattr(Training, "_play", fail)
    monkeypatch.setattr(InlinePool, "close", lambda self: closed.append("pool"))
    monkeypatch.setattr("skillrise.engine.hf.HFEngine.close", lambda self: closed.append("engine"))
    with pytest.raises(OSError, match="the disk is gone"):
        train(parse(table(keydoor_files["train"], rollout={"overlap": True}), "test"), tmp_path / "run")
    assert closed[-2:] == ["pool", "engine"]
    assert len(metrics(tmp_path / "run")) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rollout")]


def test_what_fails_on_the_way_to_a_start_leaves_no_engine_open(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr("skillrise.engine.hf.HFEngine.close", lambda self: closed.append("engine"))
    monkeypatch.setattr("skillrise.train.Rollout", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(parse(table(keydoor_files["train"]), "test"), tmp_path / "run")
    assert closed == ["engine"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": {"kind": "openai"}}, "evaluate with it"),
        ({"engine": {"kind": "openai", "replicas": 2}}, "replicas"),
        ({"engine": {"kind": "vllm", "copy_weights": True}}, "copy_weights"),
        ({"engine": {"replicas": 2, "vllm": {"sleep": True}}}, "sleep"),
        ({"engine": {"vllm": {"sleep": True}}, "rollout": {"overlap": True}}, "overlap"),
        ({"engine": {"vllm": {"transfer": "nccl"}}}, "process"),
    ],
)
def test_engines_that_do_not_fit_are_refused(
    keydoor_files: dict[str, Path], tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        train(parse(table(keydoor_files["train"], **changes), "test"), tmp_path / "run")


def test_updates_in_which_nothing_moves_are_runs_too(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    """A group of one has no contrast: no row is run, so that metrics lack what is measured in passes."""
    content = table(
        keydoor_files["train"],
        steps=2,
        rollout={"trials": 1},
        credit={"scheme": "grpo", "invalid_penalty": 0.0},
        play={"carry": "none"},
        trackers=["tensorboard"],
    )
    shown = io.StringIO()
    with Live(2, "flat", Console(file=shown)) as watch:
        train(parse(content, "test"), tmp_path / "run", watch=watch)
    rows = RunDir(tmp_path / "run").history()
    assert [(row["loss/idle_rows"], row["loss/grad_norm"], row["plays"]) for row in rows] == [(1.0, 0.0, 6.0)] * 2
    assert not [key for key in rows[0] if key in ("loss/policy", "loss/entropy")]
    assert "step 2" in shown.getvalue()
    RunDir(tmp_path / "run").log({**rows[1], "step": 3, "loss/entropy": 0.5})  # after which something moved
    assert "entropy" in write_report(tmp_path / "run").read_text("utf-8")


def test_sigterm_ends_a_run_with_its_workers(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    path = run_file(tmp_path, table(keydoor_files["train"], steps=10_000, pool={"kind": "process"}))
    command = [sys.executable, "-m", "skillrise.cli", "train", str(path), str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not RunDir(tmp_path / "run").history() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):  # noqa: PT012  multiprocessing's own tracker takes a moment
        while time.monotonic() < deadline + 60:
            os.killpg(process.pid, 0)
            time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["shuffled", "samplers:Watching"])
def test_two_processes_give_the_same_run_as_one(
    unbroken: Path, keydoor_files: dict[str, Path], tmp_path: Path, order: str
) -> None:
    """What a user types; each process plays half of the sequences and runs half of the rows."""
    changed = content(keydoor_files)
    changed["curriculum"] = {**changed["curriculum"], "order": order}  # type: ignore[dict-item]
    path = run_file(tmp_path, changed)
    if order != "shuffled":
        unbroken = tmp_path / "alone"
        train(parse(changed, "test"), unbroken)
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes=2",
        "--num_machines=1",
    ]
    launch += ["--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]
    on_cpu = {**os.environ, "ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(Path(__file__).parent)}
    command = [*launch, "-m", "skillrise.cli", "train", str(path), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=on_cpu)
    assert done.returncode == 0, done.stderr
    assert {row.pop("processes") for row in metrics(tmp_path / "run")} == {2}
    for ours, theirs in zip(metrics(tmp_path / "run"), metrics(unbroken), strict=True):
        assert ours | ELSEWHERE == pytest.approx(theirs | ELSEWHERE, rel=1e-4, abs=1e-5)
    assert (tmp_path / "run" / "checkpoints" / "step-000004" / "state.json").exists()


@pytest.mark.parametrize("killed_after", [0, 1, 2])
def test_a_killed_run_resumes_to_the_same_metrics(
    unbroken: Path, keydoor_files: dict[str, Path], tmp_path: Path, killed_after: int
) -> None:
    """SIGKILL as soon as so many updates are logged; what is half done then is played again."""
    path = run_file(tmp_path, content(keydoor_files))
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "skillrise.cli", "train", str(path), str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        started = (folder / "model" / "config.json").exists() if killed_after == 0 else True
        if started and len(RunDir(folder).history()) >= killed_after:
            break
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(RunDir(folder).history()) < 4
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    assert metrics(folder) == metrics(unbroken)
    ours = (folder / "evaluations" / "step-000004.json").read_text()
    assert ours == (unbroken / "evaluations" / "step-000004.json").read_text()


def test_a_finished_run_is_not_overwritten(unbroken: Path, keydoor_files: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="already holds a run"):
        train(parse(content(keydoor_files), "test"), unbroken)


def test_more_steps_can_be_added(unbroken: Path, keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    train(parse({**content(keydoor_files), "steps": 2}, "test"), tmp_path / "run")
    train(parse(content(keydoor_files), "test"), tmp_path / "run", resume=True)
    assert metrics(tmp_path / "run") == metrics(unbroken)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_resumed_sampler_has_seen_what_an_unbroken_one_saw(
    keydoor_files: dict[str, Path], tmp_path: Path, overlap: bool
) -> None:
    changed = table(keydoor_files["train"], steps=4, rollout={"overlap": overlap})
    changed["curriculum"] = {"train": str(keydoor_files["train"]), "order": "samplers:Watching"}
    train(parse(changed, "test"), tmp_path / "whole")
    for steps in (2, 4):
        train(parse({**changed, "steps": steps}, "test"), tmp_path / "parts", resume=steps > 2)
        resumed = RunDir(tmp_path / "parts").latest()
        assert resumed is not None
        state = json.loads((resumed / "state.json").read_text())["sampler"]["state"]
        digests = [row["curriculum/digest"] for row in metrics(tmp_path / "parts")]
        assert digests[-1] == int(state["seen"][:8], 16), "a checkpoint holds its own update's outcomes"
    if not overlap:  # there a resume begins with newer weights
        assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")

    def drawn(run: str, step: int) -> set[str]:
        lines = (tmp_path / run / "trials" / f"step-{step:06d}.jsonl").read_text().splitlines()
        return {json.loads(line)["sequence"]["id"] for line in lines}

    assert drawn("parts", 3) == drawn("whole", 3)
    assert len({frozenset(drawn("whole", step)) for step in range(1, 5)}) > 1


@pytest.mark.parametrize("order", ["frontier", "staged"])
def test_samplers_that_watch_success_say_what_they_see(tmp_path: Path, order: str) -> None:
    files = tmp_path / "train.jsonl"
    doors = catalogue(KEYDOOR, "train", options={"levels": 4, "houses": 4})
    write(files, build(doors, 2, seed=0, stages=2))
    changed = {**table(files, steps=2), "curriculum": {"train": str(files), "order": order}}
    train(parse(changed, "test"), tmp_path / "run")
    rows = metrics(tmp_path / "run")
    assert all(0 <= row["curriculum/mixed"] <= 1 for row in rows)
    assert {"frontier": "curriculum/signal", "staged": "curriculum/stage"}[order] in rows[0]


def test_a_held_out_task_is_not_trained_on(keydoor_files: dict[str, Path]) -> None:
    changed = content(keydoor_files)
    changed["curriculum"] = {"train": str(keydoor_files["train"]), "dev": str(keydoor_files["train"])}
    with pytest.raises(InputError, match="trains on"):
        read_sequences(parse(changed, "test"))


def test_evaluation_loads_what_was_trained(unbroken: Path, keydoor_files: dict[str, Path]) -> None:
    config = parse(content(keydoor_files), "test")
    trained, step = load_trained(config, unbroken)
    assert step == 4
    earlier, _ = load_trained(config, unbroken / "checkpoints" / "step-000003")
    a, b = (dict(p.model.named_parameters())["model.norm.weight"] for p in (trained, earlier))
    assert not (a == b).all()
    with pytest.raises(InputError, match="no checkpoint"):
        load_trained(config, unbroken / "trials")


def test_repeat_plays_the_first_task_of_each_sequence() -> None:
    [sequence] = houses("train", 3, 1)
    [repeated] = play_as([sequence], "repeat")
    assert repeated.tasks == (sequence.tasks[0],) * 3


@pytest.mark.parametrize(("carry", "scheme", "protocol"), [("reflect", "lamer", "repeat"), ("none", "gigpo", "cross")])
def test_baselines_run_through_the_same_loop(
    keydoor_files: dict[str, Path], tmp_path: Path, carry: str, scheme: str, protocol: str
) -> None:
    changes = {"play": {"carry": carry, "protocol": protocol}, "credit": {"scheme": scheme}}
    train(parse(table(keydoor_files["train"], steps=1, **changes), "test"), tmp_path / "run")
    [row] = metrics(tmp_path / "run")
    assert ("invalid/reflect" in row) == (carry == "reflect")


def test_learning_rate_schedule() -> None:
    config = LearnerConfig(lr=1.0, lr_end=0.1, lr_warmup=1)
    rates = [learning_rate(config, step, 11) for step in range(1, 12)]
    assert rates[0] == 0.5
    assert rates[1] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_a_tracker_that_is_not_there_is_named(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    changed = {**table(keydoor_files["train"]), "trackers": ["clearml"]}
    with pytest.raises(InputError, match="clearml"):
        train(parse(changed, "test"), tmp_path / "run")


def test_warmup_teaches_what_is_shown(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    files = tmp_path / "train.jsonl"
    write(files, houses("train", 3, 8))
    config = parse(table(files, warmup={"demonstrations": 64, "steps": 30, "batch": 16, "lr": 3e-3}), "test")
    warmup(config, tmp_path / "warm", Silent())
    rows = RunDir(tmp_path / "warm").history()
    assert rows[-1]["loss/nll"] < 0.5 * rows[0]["loss/nll"]
    warm = parse({**table(files), "policy": {"source": str(tmp_path / "warm"), "context_tokens": 512}}, "test")
    policy, _ = load_trained(warm, None)
    shown = list(demonstrations(houses("train", 3, 8), config))[:16]
    examples = [r for t in play_demonstrations(shown, InlinePool(), config) for r in warmup_rows(t, policy.chat)]
    nll = Learner(policy, LearnerConfig()).fit(examples, lr=0.0)["loss/nll"]
    assert nll == pytest.approx(rows[-1]["loss/nll"], rel=0.5)
    with pytest.raises(InputError, match="already exists"):
        warmup(config, tmp_path / "warm", Silent())


def test_demonstrations_are_rows_of_the_same_play(keydoor_files: dict[str, Path], tiny_folder: Path) -> None:
    from skillrise import policy as policies
    from skillrise.config import PolicyConfig

    config = parse(table(keydoor_files["train"]), "test")
    chat = policies.load(PolicyConfig(context_tokens=512), tiny_folder).chat
    shown = list(demonstrations(read_sequences(config)[0], config))
    trials = play_demonstrations(shown, InlinePool(), config)
    assert len(trials) == len(shown)
    for demonstration, trial in zip(shown, trials, strict=True):
        [row] = warmup_rows(trial, chat)
        said = chat.decode([i for i, on in zip(row.ids, row.trained, strict=True) if on])
        assert said.count("<action>") == len(demonstration.actions)
        assert tuple(t.action for t in trial.attempts[0].turns) == demonstration.actions
        assert trial.carries[0].action == demonstration.notes
        assert demonstration.document in chat.decode(row.ids)


def test_a_share_of_the_demonstrations_reads_and_writes_reflections(keydoor_files: dict[str, Path]) -> None:
    config = parse(table(keydoor_files["train"], warmup={"demonstrations": 40, "reflections": 0.4}), "test")
    shown = list(demonstrations(read_sequences(config)[0], config))
    told: list[tuple[int, int]] = []
    trials = play_demonstrations(shown, InlinePool(), config, lambda *counts: told.append(counts))
    assert told[-1] == (40, 40)
    assert told == sorted(told)
    roles = [trial.carries[0].role if trial.carries else "reflect" for trial in trials]
    assert 0.2 < roles.count("reflect") / 40 < 0.6
    assert set(roles) == {"curate", "reflect"}
    silent = 0
    for demonstration, trial, role in zip(shown, trials, roles, strict=True):
        attempt = trial.attempts[0]
        assert tuple(turn.action for turn in attempt.turns) == demonstration.actions
        wordless = role == "reflect" and not demonstration.notes  # an empty reflection is invalid, and not taught
        assert [carry.action for carry in trial.carries] == ([] if wordless else [demonstration.notes])
        silent += wordless
        if demonstration.document:
            opening = attempt.turns[0].prompt.messages[0].content
            assert opening.startswith("note lost " if role == "reflect" else "skill ")
            assert demonstration.document in opening
    assert silent


def test_documents_are_put_before_experts_that_do_not_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "examples"))
    from skillrise.env import make

    tasks = [task for task in make("own_env:own/Lamp-v0").catalogue("train") if task.spec["house"] < 2]
    lamps = [TaskSequence("s", "lamps", tuple(replace(t, family="lamps") for t in tasks), (False,) * len(tasks))]

    def documents(share: float) -> list[str | None]:
        changes = {"warmup": {"documents": share, "demonstrations": 40}}
        return [d.document for d in demonstrations(lamps, parse(table(tmp_path / "none", **changes), "test"))]

    assert set(documents(0.0)) == {""}
    assert "" not in documents(1.0)[1:]
    assert 0.2 < sum(d == "" for d in documents(0.5)) / 40 < 0.8


def test_a_checkpoint_is_not_put_on_another_model(unbroken: Path, keydoor_files: dict[str, Path]) -> None:
    other = content(keydoor_files)
    other["policy"] = {**other["policy"], "source": "smollm2"}  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"trained from policy\.source = 'tiny'"):
        load_trained(parse(other, "test"), unbroken)


def test_a_run_in_which_every_trial_fails_stops_and_says_why(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    changed = table(keydoor_files["train"], play={"action_tokens": 505})
    with pytest.raises(SkillRiseError, match="all 6 trials failed, the first with ContextOverflow"):
        train(parse(changed, "test"), tmp_path / "run")


def test_dropout_does_not_depend_on_where_a_run_was_resumed(
    keydoor_files: dict[str, Path], tiny_folder: Path, tmp_path: Path
) -> None:
    policy = {"source": str(tiny_folder), "lora": {"rank": 2, "dropout": 0.5}}
    whole = table(keydoor_files["train"], policy=policy)
    train(parse(whole, "test"), tmp_path / "whole")
    train(parse({**whole, "steps": 1}, "test"), tmp_path / "parts")
    train(parse(whole, "test"), tmp_path / "parts", resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


def test_what_a_resume_may_change(unbroken: Path, keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    before = parse(content(keydoor_files), "test")
    run.start(before, resume=False)
    faster = parse({**content(keydoor_files), "learner": {"minibatch_turns": 8, "micro_tokens": 64}}, "test")
    with pytest.raises(InputError, match=r"learner\.lr"):
        run.start(faster, resume=True)  # lr is missing there, so that it differs
    run.start(before.model_copy(update={"steps": 9}), resume=True)
    falling = before.model_copy(update={"learner": before.learner.model_copy(update={"lr_end": 0.1})})
    RunDir(tmp_path / "falling").start(falling, resume=False)
    with pytest.raises(InputError, match="'steps' shapes the learning rate"):
        RunDir(tmp_path / "falling").start(falling.model_copy(update={"steps": 9}), resume=True)


def test_held_out_sequences_are_drawn_over_the_whole_file() -> None:
    sequences = houses("test", 3, 40)
    few = pick(sequences, 8)
    assert few == pick(sequences, 8)
    assert few != sequences[:8]
    assert [sequences.index(s) for s in few] == sorted(sequences.index(s) for s in few)


def test_a_start_that_failed_does_not_take_the_folder(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    wrong = table(keydoor_files["train"], policy={"source": "./nowhere"})
    with pytest.raises(InputError, match="no such folder"):
        train(parse(wrong, "test"), tmp_path / "run")
    train(parse(table(keydoor_files["train"], steps=1), "test"), tmp_path / "run")
