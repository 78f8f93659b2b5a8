from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillrise.errors import InputError
from skillrise.files import cache_dir
from skillrise.models import smollm2, tiny
from skillrise.models.chat import Chat
from skillrise.types import Message

TEXTS = [
    "You see a red door and a blue key. Which key opens the door?",
    "<action>open the door</action> user system",
] * 3
PIECES = [
    "<|end|>",
    "<|user|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|",
    "|>",
    "end",
    "<action>",
    " door",
    "\n",
    " ",
    "é",
    "鍵",
    "\ue000",
]
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join)
MARKUP = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|im_end|>", "<|im_start|>", "<|endoftext|>")
HARMLESS = HOSTILE.filter(lambda text: not any(token in text for token in MARKUP))

LLAMA3 = (
    "{{ '<|system|>' }}{% for m in messages %}{{ '<|' + m.role + '|>\n\n' + m.content | trim + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n\n' }}{% endif %}"
)
THINKING = (  # earlier reasoning is dropped, replies are trimmed, a default system prompt is put first
    "{% if messages[0].role != 'system' %}{{ '<|system|>Be kind.<|end|>\n' }}{% endif %}"
    "{% for m in messages %}{% set reply = m.role == 'assistant' %}"
    "{% set content = m.content.split('</think>')[-1].strip() if reply else m.content %}"
    "{{ '<|' + m.role + '|>\n' + content + '\n<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ m.content + '<|end|>' }}{% endfor %}"
)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build(TEXTS, tmp_path_factory.mktemp("models") / "tiny")


def load(folder: Path, template: str | None = None) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if template is not None:
        tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def tokenizer(request: pytest.FixtureRequest, tiny_folder: Path) -> Any:
    if request.param == "tiny":
        return load(tiny_folder)
    folder = cache_dir() / "models" / smollm2.NAME
    if not folder.is_dir():
        pytest.skip("SmolLM2 is not in the cache: skillrise.models.smollm2.folder() puts it there")
    return load(folder)


@pytest.fixture(scope="module")
def chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def whole(tokenizer: Any, messages: list[Message]) -> tuple[int, ...]:
    chat = [{"role": m.role, "content": m.content} for m in messages]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def special_ids(tokenizer: Any, ids: tuple[int, ...]) -> list[int]:
    known = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return [i for i in ids if i in known]


@given(system=HARMLESS, question=HARMLESS)
def test_start_is_the_template_encoded_at_once(tokenizer: Any, chat: Chat, system: str, question: str) -> None:
    for messages in ([Message("user", question)], [Message("system", system), Message("user", question)]):
        assert chat.start(messages) == whole(tokenizer, messages)


@given(question=HARMLESS, reply=HARMLESS, answer=HARMLESS, ended=st.booleans())
def test_extend_is_the_template_encoded_at_once(
    tokenizer: Any, chat: Chat, question: str, reply: str, answer: str, ended: bool
) -> None:
    first = [Message("user", question)]
    start = chat.start(first)
    reply_ids = tuple(tokenizer.encode(reply, add_special_tokens=False))
    sampled = (*reply_ids, tokenizer.eos_token_id) if ended else reply_ids
    full = whole(tokenizer, [*first, Message("assistant", reply), Message("user", answer)])
    extended = chat.extend(start, sampled, Message("user", answer))
    if full[: len(start) + len(reply_ids)] == start + reply_ids:  # the reply's encoding is canonical in its place
        assert extended == full
    assert tokenizer.decode(extended[len(start) :]) == tokenizer.decode(full)[len(tokenizer.decode(start)) :]


@given(reply=st.lists(st.integers(0, 255), max_size=6), answer=HOSTILE, role=st.sampled_from(["user", "system"]))
def test_extend_keeps_every_sampled_token(chat: Chat, reply: list[int], answer: str, role: Any) -> None:
    start = chat.start([Message("user", "a door")])
    extended = chat.extend(start, reply, Message(role, answer))
    assert extended[: len(start) + len(reply)] == (*start, *reply)
    again = chat.extend(extended, reply, Message(role, answer))
    assert again[: len(extended)] == extended
    assert len(again) > len(extended)


@given(question=HOSTILE, answer=HOSTILE)
def test_markup_in_messages_is_text(tokenizer: Any, chat: Chat, question: str, answer: str) -> None:
    start, plain = chat.start([Message("user", question)]), chat.start([Message("user", "a door")])
    assert special_ids(tokenizer, start) == special_ids(tokenizer, plain)
    long, short = (chat.extend(plain, (), Message("user", text)) for text in (answer, "a key"))
    assert special_ids(tokenizer, long) == special_ids(tokenizer, short)


@pytest.mark.parametrize("text", [f"say {token} now" for token in MARKUP] + ["<|<|end|>end|>", "<|user|><|user|>"])
def test_markup_in_messages_stays_readable(chat: Chat, text: str) -> None:
    start = chat.start([Message("user", "a door")])
    assert text in chat.decode(start + chat.start([Message("user", text)]))
    assert text in chat.decode(chat.extend(start, (), Message("user", text)))


def test_the_end_of_turn_is_not_repeated(tokenizer: Any, chat: Chat) -> None:
    start = chat.start([Message("user", "a door")])
    reply = tuple(tokenizer.encode("open", add_special_tokens=False))
    end = tokenizer.eos_token_id
    assert end in chat.eos_ids
    cut = chat.extend(start, reply, Message("user", "a key"))
    assert chat.extend(start, (*reply, end), Message("user", "a key")) == cut
    assert chat.extend(start, (), Message("user", "a key")) == chat.extend(start, (end,), Message("user", "a key"))


def test_decode_hides_one_end_of_turn_only(tokenizer: Any, chat: Chat) -> None:
    end, ids = tokenizer.eos_token_id, tokenizer.encode("open , the door .", add_special_tokens=False)
    assert chat.decode([*ids, end]) == chat.decode(ids) == "open , the door ."
    assert chat.decode([end, *ids]).endswith("open , the door .")
    assert chat.decode([end, *ids]) != "open , the door ."
    assert chat.decode([]) == chat.decode([end]) == ""


@given(text=st.text() | HOSTILE)
def test_any_text_round_trips(tiny_folder: Path, text: str) -> None:
    tokenizer, chat = loaded(tiny_folder)
    assert chat.decode([*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]) == text


def test_lone_surrogates_do_not_end_a_run(chat: Chat) -> None:
    start = chat.start([Message("user", "a \ud800 door")])
    assert start == chat.start([Message("user", "a ? door")])
    assert chat.extend(start, (), Message("user", "\udfff")) == chat.extend(start, (), Message("user", "?"))


@pytest.mark.parametrize("length", [3, 64])
def test_padding_and_truncation_of_others_do_not_reach_chats(tiny_folder: Path, length: int) -> None:
    tokenizer = load(tiny_folder)
    tokenizer(["a", "b"], padding="max_length", truncation=True, max_length=length)
    chat = Chat(tokenizer)
    assert chat.start([Message("user", "a door")]) == Chat(load(tiny_folder)).start([Message("user", "a door")])


@pytest.mark.parametrize("template", [LLAMA3, THINKING], ids=["llama3", "thinking"])
@settings(max_examples=50)
@given(question=HARMLESS, answer=HARMLESS)
def test_templates_that_trim_or_drop(tiny_folder: Path, template: str, question: str, answer: str) -> None:
    tokenizer, chat = loaded(tiny_folder, template)
    messages = [Message("user", question)]
    start = chat.start(messages)
    assert start == whole(tokenizer, messages)
    reply = "open the door"
    ids = tuple(tokenizer.encode(reply))
    full = whole(tokenizer, [*messages, Message("assistant", reply), Message("user", answer)])
    end = tokenizer.eos_token_id
    behind = full[full.index(end, len(start)) :]
    extended = chat.extend(start, ids, Message("user", answer))
    assert tokenizer.decode(extended) == tokenizer.decode(full)
    assert extended[-len(behind) :] == behind
    assert chat.extend(start, (*ids, end), Message("user", answer)) == (*start, *ids, *behind)


def test_reasoning_of_earlier_replies_is_kept_as_sampled(tiny_folder: Path) -> None:
    tokenizer, chat = loaded(tiny_folder, THINKING)
    start = chat.start([Message("user", "a door")])
    reply = tuple(tokenizer.encode("<think>key</think>open"))
    assert chat.extend(start, reply, Message("user", "a key"))[: len(start) + len(reply)] == start + reply


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "each message once"),
        ("{% for m in messages %}{{ m.content + m.content }}{% endfor %}", "each message once"),
        ("{{ raise_exception('never') }}", "refuses the roles user, assistant, user (never)"),
        ("", "no chat template"),
    ],
)
def test_templates_that_cannot_grow_are_refused(tiny_folder: Path, template: str, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        Chat(load(tiny_folder, template))
    assert fault in str(caught.value)
    assert str(tiny_folder) in str(caught.value)


def test_a_role_that_the_template_refuses_is_named(tiny_folder: Path) -> None:
    _, chat = loaded(tiny_folder, NO_SYSTEM)
    with pytest.raises(InputError, match="no system role"):
        chat.start([Message("system", "a"), Message("user", "b")])
    with pytest.raises(InputError, match="no system role"):
        chat.extend((1,), (2,), Message("system", "a"))


_loaded: dict[tuple[Path, str | None], tuple[Any, Chat]] = {}


def loaded(folder: Path, template: str | None = None) -> tuple[Any, Chat]:
    if (folder, template) not in _loaded:
        tokenizer = load(folder, template)
        _loaded[folder, template] = tokenizer, Chat(tokenizer)
    return _loaded[folder, template]
