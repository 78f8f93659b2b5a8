"""The run file: what goes in comes out, and a wrong one is refused in one sentence that names file and key."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillrise.config import RunConfig, dump, load, parse
from skillrise.errors import InputError

BASE: dict[str, Any] = {"curriculum": {"train": "train.jsonl"}}

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
fractions = st.floats(0, 1)
positive = st.floats(0, exclude_min=True, allow_nan=False)
counts = st.integers(1, 10**9)
values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


lora = some(rank=counts, alpha=positive, dropout=st.floats(0, 0.9))
tables = st.fixed_dictionaries(
    {"curriculum": st.fixed_dictionaries({"train": words}, optional={"dev": words, "env": words})},
    optional={
        "seed": st.integers(-(2**60), 2**60),
        "steps": st.integers(0, 1_000_000),
        "trackers": st.lists(st.sampled_from(["tensorboard", "wandb"]), max_size=2),
        "policy": some(source=words, lora=lora, context_tokens=counts, tiny=some(layers=counts)),
        "play": some(
            protocol=st.just("repeat"), carry=st.sampled_from(["none", "reflect"]), prompts=words, turns=counts
        ),
        "rollout": some(temperature=positive, concurrency=counts),
        "evaluation": some(temperature=fractions, top_p=st.floats(0.01, 1)),
        "pool": some(timeout=positive, options=st.dictionaries(words, values, max_size=3)),
        "credit": some(gamma=fractions, padded=st.just("train"), reward=positive),
        "learner": some(lr=positive, betas=st.tuples(fractions, fractions).map(list), kl=st.floats(0, 9)),
    },
)


@given(tables)
def test_what_is_written_reads_back_the_same(table: dict[str, Any]) -> None:
    config = parse(table, "a table")
    text = dump(config)
    assert parse(tomllib.loads(text), "its dump") == config
    assert dump(parse(tomllib.loads(text), "its dump")) == text


def test_every_key_is_written_so_that_a_run_folder_says_everything(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(dump(parse(BASE, "")))
    assert load(path) == parse(BASE, "")
    written = tomllib.loads(path.read_text())
    for name, field in RunConfig.model_fields.items():
        assert name in written, field


def test_every_key_says_what_it_is() -> None:
    def lacking(model: Any, prefix: str = "") -> list[str]:
        out = []
        for name, field in model.model_fields.items():
            out += [prefix + name] if not field.description else []
            out += lacking(field.annotation, f"{prefix}{name}.") if hasattr(field.annotation, "model_fields") else []
        return out

    tables = {name for name, field in RunConfig.model_fields.items() if hasattr(field.annotation, "model_fields")}
    assert [key for key in lacking(RunConfig) if key not in tables | {"policy.tiny"}] == []


def test_a_configuration_cannot_be_changed() -> None:
    config = parse(BASE, "")
    with pytest.raises(ValidationError):
        config.seed = 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope = 3", ["unknown key 'nope'", "known here: seed"]),
        ("[learner]\nlearning_rate = 3", ["unknown key 'learner.learning_rate'", "lr"]),
        ("[policy.lora]\nr = 3", ["unknown key 'policy.lora.r'", "known here: rank, alpha, dropout"]),
        ("steps = -1", ["'steps'", "greater than or equal to 0", "-1"]),
        ("steps = 'many'", ["'steps'", "integer", "many"]),
        ("[credit]\ngamma = 1.5", ["'credit.gamma'", "1.5"]),
        ("[credit]\ngamma = nan", ["'credit.gamma'", "nan"]),
        ("[credit]\nscheme = 'ppo'", ["'credit.scheme'", "gigpo", "ppo"]),
        ("[rollout]\ntemperature = 0", ["'rollout.temperature'", "greater than 0"]),
        ("policy = 3", ["'policy'", "3"]),
        ("trackers = ['excel']", ["'trackers.0'", "tensorboard", "excel"]),
        ("[learner]\nbetas = [0.9]", ["'learner.betas.1' is missing", "--set"]),
        ("[pool]\nkind = 'thread'", ["'pool.kind'", "inline", "thread"]),
        ("[curriculum]\ndev = 'dev.jsonl'", ["'curriculum.train' is missing", "--set curriculum.train="]),
        ("seed = ", ["not valid TOML", "line 1"]),
        ("seed = 1\nseed = 2", ["not valid TOML", "line 2"]),
        ("seed = " + "9" * 5000, ["not valid TOML", "digits"]),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence_with_file_and_key(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text if "[curriculum]" in text else f"{text}\n[curriculum]\ntrain = 't.jsonl'\n")
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    assert [word for word in words if word not in message] == []


def test_a_missing_table_is_named() -> None:
    with pytest.raises(InputError, match=r"run\.toml: key 'curriculum' is missing"):
        parse({}, "run.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: no such run file"):
        load(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"seed = '\xe9'")
    with pytest.raises(InputError, match=r"latin\.toml: cannot be read"):
        load(tmp_path / "latin.toml")


def test_set_overrides_keys(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("seed = 1\n[curriculum]\ntrain = 't.jsonl'\n[play]\nturns = 3\n")
    config = load(
        path,
        [
            "seed=5",
            "play.prompts=brief",  # no TOML: a plain string
            "play.carry='none'",
            "learner.lr = 1e-3",
            "policy.lora.rank=4",  # makes the table
            "pool.options={ theme = 'metal', keys = 3 }",
            "trackers=['tensorboard']",
            "curriculum.train=/a=b.jsonl",
        ],
    )
    assert (config.seed, config.play.prompts, config.play.carry, config.learner.lr) == (5, "brief", "none", 1e-3)
    assert config.play.turns == 3
    assert config.policy.lora is not None
    assert config.policy.lora.rank == 4
    assert config.pool.options == {"theme": "metal", "keys": 3}
    assert config.trackers == ("tensorboard",)
    assert config.curriculum.train == Path("/a=b.jsonl")


@pytest.mark.parametrize("override", ["seed", "=3", ".seed=3", "play..turns=3", "seed.x=3", "curriculum.train.x=3"])
def test_a_malformed_override_is_refused(tmp_path: Path, override: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text("seed = 1\n[curriculum]\ntrain = 't.jsonl'\n")
    with pytest.raises(InputError, match="--set") as caught:
        load(path, [override])
    assert repr(override) in str(caught.value)


def test_an_override_with_a_wrong_value_names_its_key(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[curriculum]\ntrain = 't.jsonl'\n")
    with pytest.raises(InputError, match=r"'play.turns'.*not 'lots'"):
        load(path, ["play.turns=lots"])
    with pytest.raises(InputError, match=r"unknown key 'play.turn'.*turns"):
        load(path, ["play.turn=3"])


@given(words, st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_override_is_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, key: str, value: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text("[curriculum]\ntrain = 't.jsonl'\n")
    for override in (f"{key}={value}", f"play.{key}={value}", f"pool.options.{key}={value}", f"seed={value}"):
        with contextlib.suppress(InputError):
            config = load(path, [override])
            assert parse(tomllib.loads(dump(config)), "") == config


def test_options_that_toml_knows_and_json_does_not_survive() -> None:
    table = {**BASE, **tomllib.loads("[pool.options]\nlimit = inf\nday = 2024-05-01\n")}
    config = parse(table, "")
    assert parse(tomllib.loads(dump(config)), "") == config


def test_roles_have_their_token_limits() -> None:
    play = parse({**BASE, "play": {"action_tokens": 7, "document_tokens": 9}}, "").play
    assert (play.reply_tokens("solve"), play.reply_tokens("curate"), play.reply_tokens("reflect")) == (7, 9, 9)


def test_bfloat16_weights_are_not_trained_whole() -> None:
    table = {"curriculum": {"train": "t.jsonl"}, "policy": {"dtype": "bfloat16"}}
    with pytest.raises(InputError, match="rounds small updates"):
        parse(table, "run.toml")
    parse({**table, "policy": {"dtype": "bfloat16", "lora": {}}}, "run.toml")
