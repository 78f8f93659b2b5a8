"""Evaluation: intervals, protocols, what counts and what does not, and KeyDoor's known optimum."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nasty_envs
import pytest
from conftest import KEYDOOR, houses, remembers, table
from rich.console import Console

from skillrise.config import EvaluationConfig, PlayConfig, PoolConfig, parse
from skillrise.curriculum import build, identity
from skillrise.display import evaluation_notes, rates_table
from skillrise.engine import Sampling, ScriptedEngine
from skillrise.env import make
from skillrise.errors import InputError, SkillRiseError
from skillrise.evaluate import digest, evaluate, evaluate_file, optimum, repeated
from skillrise.pool import InlinePool, pool
from skillrise.session import Silent
from skillrise.types import Completion, Prompt, Task, TaskSequence, Trial

NAMES = ("red", "blue", "green", "black", "white", "pink", "gold", "grey")
HOW = PlayConfig(prompts="brief", turns=6)


def many_houses(k: int, n: int) -> list[TaskSequence]:
    return build(make(KEYDOOR, {"houses": n}).catalogue("test"), k, seed=0, per_family=1)


def evaluated(
    sequences: Sequence[TaskSequence], script: Any = remembers, **settings: Any
) -> tuple[dict[str, Any], list[Trial]]:
    how = settings.pop("how", HOW)
    with pool(PoolConfig(kind="inline")) as some:
        return evaluate(sequences, ScriptedEngine(script), some, how, **settings)


def test_repeated_takes_each_task_once_and_no_padded_slot() -> None:
    one, two, three = (Task("e", {"a": i, "b": 0}, "f") for i in range(3))
    again = Task("e", {"b": 0, "a": 0}, "f")
    out = repeated(
        [TaskSequence("s", "f", (one, two), (False, True)), TaskSequence("t", "f", (again, three), (False,) * 2)], 3
    )
    assert [s.tasks for s in out] == [(one,) * 3, (three,) * 3]
    assert len({s.id for s in out}) == 2
    assert all(not any(s.padded) for s in out)


def test_repeated_knows_a_task_by_what_counts_in_its_spec() -> None:
    """The authors' files describe tasks in keys that do not make them different ones."""
    specs: list[dict[str, Any]] = [{"task_id": 0, "variation": 3}, {"task_id": 0, "variation": 3, "task_type": "boil"}]
    tasks = [Task("skillrise_envs:skillrise/ScienceWorld-v0", spec, "boil") for spec in specs]
    assert identity(tasks[0]) == identity(tasks[1])
    assert len(repeated([TaskSequence(f"{i}", "find", (t,), (False,)) for i, t in enumerate(tasks)], 2)) == 1


def test_a_policy_that_reads_and_writes_reaches_the_optimum() -> None:
    sequences = many_houses(4, 400)
    result, _ = evaluated(sequences)
    assert result["optimum"] == [0.25, 0.5, 0.75, 1.0]
    assert result["n"] == [400] * 4
    for success, low, high, best in zip(*(result[k] for k in ("success", "low", "high", "optimum")), strict=True):
        assert abs(success - best) <= 4 * math.sqrt(best * (1 - best) / 400)
        assert low <= success <= high
    assert result["pooled"]["n"] == 1600
    assert result["score"] == result["success"]
    assert result["failed"] == 0


def test_without_a_document_it_stays_where_it_began() -> None:
    result, trials = evaluated(many_houses(4, 400), how=HOW.model_copy(update={"carry": "none"}))
    assert result["optimum"] is None
    assert len(set(result["success"])) == 1  # this policy always tries the same two keys then
    assert abs(result["success"][0] - 0.25) <= 4 * math.sqrt(0.25 * 0.75 / 400)
    assert not any(trial.carries for trial in trials)


def test_a_document_to_start_from_is_used() -> None:
    sequences = many_houses(2, 40)
    _, trials = evaluated(sequences, document="red fails. blue fails.")
    assert {trial.attempts[0].document_in for trial in trials} == {"red fails. blue fails."}
    assert not any(turn.action in ("try red", "try blue") for trial in trials for turn in trial.turns)


def test_repeat_plays_a_task_until_it_is_solved() -> None:
    sequences = many_houses(2, 30)
    result, trials = evaluated(sequences, how=HOW.model_copy(update={"protocol": "repeat"}), attempts=4)
    assert result["positions"] == [1, 2, 3, 4]
    assert result["n"] == [60] * 4  # both tasks of each sequence
    assert result["success"] == sorted(result["success"])
    assert result["success"][-1] == 1.0
    for played in trials:
        assert [attempt.won for attempt in played.attempts] == [False] * (len(played.attempts) - 1) + [True]
        assert len({attempt.task.spec["door"] for attempt in played.attempts}) == 1


def test_failed_trials_are_left_out_and_counted() -> None:
    bad = nasty_envs.sequence("bad", ["", "raise", ""])
    result, trials = evaluated([*houses("test", 3, 2), bad])
    assert (result["failed"], result["sequences"], len(trials)) == (1, 3, 3)
    assert result["n"] == [2, 2, 2]


def test_padded_slots_are_played_and_not_counted() -> None:
    one, two = houses("test", 3, 2)
    result, trials = evaluated([replace(one, padded=(True, False, False)), two])
    assert result["n"] == [1, 2, 2]
    assert [len(trial.attempts) for trial in trials] == [3, 3]


def test_an_evaluation_in_which_every_trial_fails_says_why() -> None:
    with pytest.raises(SkillRiseError, match="all 1 trials failed, the first with EnvironmentFailure"):
        evaluated([nasty_envs.sequence("bad", ["raise"])])


def test_nothing_to_evaluate_is_refused() -> None:
    with pytest.raises(InputError, match="no sequence"):
        evaluated([])


def test_the_same_seed_gives_the_same_result_and_sampling_is_passed_on() -> None:
    class Recorder(ScriptedEngine):
        asked: list[Sampling]

        def add(self, key: Any, prompt: Prompt, sampling: Sampling, priority: int = 0) -> None:
            self.asked.append(sampling)
            super().add(key, prompt, sampling)

    runs = []
    for seed in (0, 0, 1):
        engine = Recorder(remembers)
        engine.asked = []
        with pool(PoolConfig(kind="inline")) as some:
            evaluate(houses("test", 3, 2), engine, some, HOW, settings=EvaluationConfig(temperature=0.25, seed=seed))
        assert {how.temperature for how in engine.asked} == {0.25}
        runs.append([how.seed for how in engine.asked])
    assert runs[0] == runs[1] != runs[2]


def test_an_optimum_only_where_every_environment_knows_it() -> None:
    good = houses("test", 3, 2)
    assert optimum(good) == [0.25, 0.5, 0.75]
    assert optimum(good, {"keys": 4}) == [0.25, 0.5, 0.75]  # the tasks say for themselves
    assert optimum([*good, nasty_envs.sequence("x", [""])]) is None
    assert optimum([nasty_envs.sequence("x", [""])]) is None
    mixed = TaskSequence("m", "f", (good[0].tasks[0], good[1].tasks[0]), (False, False))
    assert optimum([mixed]) is None
    short = replace(good[0], tasks=good[0].tasks[:1], padded=(False,))
    assert optimum([good[1], short]) == [0.25, 0.5, 0.75]


def test_the_optimum_is_that_of_the_slots_that_count() -> None:
    one, two = houses("test", 3, 2)
    short = replace(two, tasks=two.tasks[1:], padded=(False, True))
    assert optimum([replace(one, padded=(True, False, False)), short]) == [0.25, 0.5, 0.75]
    odd = replace(
        two, tasks=tuple(replace(t, spec={**t.spec, "tries": 4}) for t in two.tasks), padded=(False, True, True)
    )
    assert optimum([one, odd]) == [(0.25 + 0.5) / 2, 0.5, 0.75]
    result, _ = evaluated([replace(s, padded=(False, False, True)) for s in (one, two)])
    assert result["optimum"] == [0.25, 0.5, None]
    out = io.StringIO()
    longer = {**result, "positions": [1, 2, 3, 4], **{key: [*result[key], 0.5] for key in ("success", "low", "high")}}
    rates_table([{**result, "n": [3, 1, 0]}, longer], Console(file=out, width=120))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert [row[-1] for row in rows if row and row[0] in ("1", "3", "all")] == ["0.25", "-", "0.31"]


def test_a_digest_knows_sequences_of_the_same_names_apart() -> None:
    one, two = houses("test", 3, 2)
    renamed = replace(two, id=one.id)
    result, _ = evaluated([one])
    assert result["digest"] == digest([one]) == digest(houses("test", 3, 2)[:1])
    assert len({digest(some) for some in ([one], [renamed], [two], [replace(one, padded=(True, False, False))])}) == 4


class Counting(ScriptedEngine):
    """Tells tokens: ten of each prompt, three of each reply; and what it was asked to draw with."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.seeds: list[int] = []

    def add(self, key: Any, prompt: Prompt, sampling: Sampling, priority: int = 0) -> None:
        self.seeds.append(sampling.seed)
        super().add(key, prompt, sampling)

    def complete(self, prompt: Prompt, text: str) -> Completion:
        before = prompt.follows
        known = len(before.prompt_ids) + len(before.token_ids) if before else 0
        return replace(super().complete(prompt, text), prompt_ids=(1,) * (known + 10), token_ids=(2,) * 3)


def clumsy(prompt: Prompt) -> str:
    """One reply in four has no form."""
    return "hm" if random.random() < 0.25 else remembers(prompt)


def test_each_sequence_may_be_played_several_times() -> None:
    sequences = houses("test", 3, 2)
    seeds: list[tuple[str, int]] = []

    class Watched(InlinePool):
        def reset(self, key: Hashable, task: Task, seed: int, admissible: bool = False) -> None:
            seeds.append((identity(task), seed))
            super().reset(key, task, seed, admissible)

    engines = {n: Counting(remembers) for n in (1, 3)}
    for n, engine in engines.items():
        result, trials = evaluate(sequences, engine, Watched(), HOW, trials=n)
        assert [t.sequence.id for t in trials] == [s.id for s in sequences for _ in range(n)]
        assert (result["trials"], result["sequences"], result["n"]) == (n, 2, [2 * n] * 3)
    assert len(set(seeds)) == 6, "every trial of a sequence meets the same environments"
    drawn, again = (set(engines[n].seeds) for n in (1, 3))
    assert drawn < again
    assert len(engines[3].seeds) == len(again), "their replies are drawn apart"
    assert list(result["pass"]) == ["pass@1", "pass@2", "pass@3", "pass^2", "pass^3"]
    assert result["pass"]["pass@1"] == pytest.approx(result["pooled"]["success"])


def test_the_result_says_how_the_policy_went_about_it() -> None:
    random.seed(0)
    engine, sequences = Counting(clumsy), houses("test", 3, 30)
    with pool(PoolConfig(kind="inline")) as some:
        result, trials = evaluate(sequences, engine, some, HOW, trials=2)
    turns = [turn for trial in trials for turn in trial.turns]
    assert result["turns"] == sum(turn.role == "solve" for turn in turns) / 180
    assert result["tokens"] == {"sampled": 3 * len(turns), "prompt": 10 * len(turns)}
    for role in ("solve", "curate"):
        mine = [turn.valid for turn in turns if turn.role == role]
        assert result["invalid"][role] == pytest.approx(1 - sum(mine) / len(mine))
        assert 0.1 < result["invalid"][role] < 0.4
    assert result["cut"] == 0.0
    assert result["plays"] == 180
    assert result["seconds"] > 0
    document = result["document"]
    assert document["chars"][0] == 0
    assert 0 < document["chars"][1] < document["chars"][2]
    assert document["change"][0] is None
    assert 0 < document["change"][2] < document["change"][1] < 1
    assert result["needed"]["sequences"] > 1
    family = {task.family for task in sequences[0].tasks}.pop()
    assert result["by_family"][family]["n"] == 6
    json.dumps(result, allow_nan=False)


def test_outcomes_are_those_that_were_counted() -> None:
    one, two = houses("test", 3, 2)
    bad = nasty_envs.sequence("bad", ["", "raise", ""])
    result, trials = evaluated([replace(one, padded=(True, False, False)), two, bad], trials=2)
    outcomes = result["outcomes"]
    assert [item["id"] for item in outcomes] == [one.id, two.id, "bad"]
    assert outcomes[0]["won"] == [[None, *(int(a.won) for a in trial.attempts[1:])] for trial in trials[:2]]
    assert outcomes[2]["won"] == outcomes[2]["score"] == [[None] * 3] * 2
    assert outcomes[1]["families"] == [task.family for task in two.tasks]
    assert result["failed"] == 2
    assert result["plays"] == 4 * 3 + 2  # the first task of the bad one was played, and counts nowhere else
    assert result["n"] == [2, 4, 4]
    assert sum(v is not None for item in outcomes for values in item["won"] for v in values) == result["pooled"]["n"]
    json.dumps(result, allow_nan=False)


def test_files_say_which_trial_of_its_sequence_each_is(
    keydoor_files: dict[str, Path], tiny_folder: Path, tmp_path: Path
) -> None:
    config = parse(
        table(keydoor_files["train"], policy={"source": str(tiny_folder)}, evaluation={"sequences": 2}), "test"
    )
    out = tmp_path / "result.json"
    result = evaluate_file(config, keydoor_files["test"], out, None, 1, None, Silent(), trials=2)
    records = [json.loads(line) for line in (tmp_path / "result.trials.jsonl").read_text().splitlines()]
    assert [record["trial"] for record in records] == [0, 1, 0, 1]
    assert [r["sequence"]["id"] for r in records] == [i["id"] for i in result["outcomes"] for _ in range(2)]
    assert json.loads(out.read_text()) == result
    assert list(result)[-1] == "outcomes"
    notes = evaluation_notes(result)
    assert "replies invalid" in notes[0]
    assert "tokens sampled" in notes[0]
    assert notes[1].startswith("pass@k")
    assert "k=2" in notes[1]
    assert notes[-1].startswith("an interval of +-0.05")


def test_notes_of_an_evaluation_that_says_little() -> None:
    result, _ = evaluated(houses("test", 3, 2))
    assert len(evaluation_notes(result)) == 2
    assert "0 tokens sampled" in evaluation_notes({**result, "cut": None, "invalid": {}})[0]
