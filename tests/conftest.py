"""Shared pieces: small sequences, a scripted player, a tiny policy."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

from skillrise import cli
from skillrise.curriculum import build, catalogue, write
from skillrise.types import Prompt, TaskSequence
from skillrise_envs.keydoor import THEMES

settings.register_profile("loaded machine", deadline=None)  # a busy processor is no fault of the code
settings.load_profile("loaded machine")

KEYDOOR = "skillrise_envs:skillrise/KeyDoor-v0"


def run(
    *arguments: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Exit code, output and errors of one verb, in this process."""
    monkeypatch.setattr(sys, "argv", ["skillrise", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def remembers(prompt: Prompt) -> str:
    """Plays KeyDoor at its optimum: writes down which keys fail or fit; tries what fits, else what is not known to fail."""
    said = " ".join(message.content for message in prompt.messages if message.role == "user")
    known = dict(re.findall(r"(\w+) (fits|fails)\.", said))
    if prompt.role == "curate":
        return f"<skill>{' '.join(f'{name} {what}.' for name, what in known.items())}</skill>"
    fits = [name for name, what in known.items() if what == "fits"]
    return f"<action>try {[*fits, *(name for name in THEMES['colour'][:8] if name not in known)][0]}</action>"


def houses(split: str, k: int, n: int) -> list[TaskSequence]:
    """Some KeyDoor sequences."""
    return build(catalogue(KEYDOOR, split), k, seed=0, per_family=1, limit=n)


@pytest.fixture(scope="session")
def keydoor_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sequence files of KeyDoor: train and test."""
    folder = tmp_path_factory.mktemp("sequences")
    for split, n in (("train", 8), ("test", 4)):
        write(folder / f"{split}.jsonl", houses(split, 3, n))
    return {split: folder / f"{split}.jsonl" for split in ("train", "test")}


def table(train: Path, **changes: object) -> dict[str, object]:
    """A run file's content for a very small KeyDoor run."""
    out: dict[str, object] = {
        "steps": 3,
        "checkpoint_every": 1,
        "policy": {"source": "tiny", "context_tokens": 512, "tiny": {"hidden": 32, "heads": 2}},
        "curriculum": {"train": str(train)},
        "play": {"prompts": "brief", "turns": 4, "action_tokens": 8, "document_tokens": 12},
        "rollout": {"sequences": 2, "trials": 3},
        "pool": {"kind": "inline"},
        "credit": {"reward": 1.0},
        "learner": {"lr": 1e-3},
        "warmup": {"demonstrations": 24, "steps": 3, "batch": 8},
    }
    for key, value in changes.items():
        old = out.get(key)
        out[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return out


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokenizer knows KeyDoor's words."""
    from skillrise.config import parse
    from skillrise.curriculum import write as write_
    from skillrise.models import tiny
    from skillrise.session import Silent
    from skillrise.train import _texts

    folder = tmp_path_factory.mktemp("tiny")
    write_(folder / "train.jsonl", houses("train", 3, 8))
    config = parse(table(folder / "train.jsonl"), "test")
    texts: Iterable[str] = _texts(config, houses("train", 3, 8), Silent())
    return tiny.build(texts, folder / "model", hidden=32, heads=2, max_tokens=512)
