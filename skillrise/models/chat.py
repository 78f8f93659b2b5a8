"""The exact tokens of a growing chat.

A prompt that follows a reply is the old prompt's tokens, the reply's tokens as they were sampled, and the tokens that
the chat template puts between a reply and the next generation prompt. Nothing sampled is decoded and encoded again.

Strings such as `<|im_end|>` in a message are text, never markup: a message is cut inside each of them, and the pieces
are encoded one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skillrise.errors import InputError
from skillrise.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLY, CONTENT, PAD = "SkillRiseReplyMark", "SkillRiseContentMark", " \t \t "


@dataclass(frozen=True, slots=True)
class _Bridge:
    """What stands between a reply and the next reply, as text: `head`, the new message, `tail`.

    Attributes:
        head: Begins where the reply ends.
        tail: Ends with the generation prompt.
        trims: The template takes white space off the message.
    """

    head: str
    tail: str
    trims: bool


class Chat:
    """Encodes chats for one tokenizer.

    Attributes:
        eos_ids: The tokens that end a reply: the tokenizer's own and the template's end of turn, ascending.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Read the markup off the tokenizer and its template.

        Raises:
            InputError: If there is no chat template or no `tokenizer.json`, or the template does not render replies
                verbatim.
        """
        from tokenizers import Tokenizer

        self._tokenizer = tokenizer
        self._name = tokenizer.name_or_path or type(tokenizer).__name__
        if not getattr(tokenizer, "chat_template", None):
            raise InputError(f"The tokenizer of {self._name} has no chat template: use an instruction-tuned model.")
        if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
            raise InputError(f"The tokenizer of {self._name} has no tokenizer.json: use a model that has one.")
        self._raw = Tokenizer.from_str(backend.to_str())  # a copy, as others switch padding and truncation on in theirs
        self._raw.no_padding()
        self._raw.no_truncation()
        self._bridges: dict[str, _Bridge] = {}
        bridge = self._bridge(Message("user", ""))
        added = self._raw.get_added_tokens_decoder()
        used = bridge.head + bridge.tail
        markup = {t.content: i for i, t in added.items() if t.special or t.content in used}
        longest_first = sorted((token for token in markup if len(token) > 1), key=len, reverse=True)
        self._markup = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        end = self._markup.match(bridge.head.lstrip())
        ends = {markup[end[0]]} if end else set()
        own = tokenizer.eos_token_id
        self.eos_ids: tuple[int, ...] = tuple(sorted(ends | ({own} if isinstance(own, int) else set())))
        self._eos_text = {i: added[i].content for i in self.eos_ids if i in added}

    def start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids of a whole chat, up to where the next reply begins.

        Raises:
            InputError: If the template refuses the messages.
        """
        mark = _unused("".join(m.content for m in messages))
        return tuple(self._encode(self._render([Message(m.role, self._cut(m.content, mark)) for m in messages]), mark))

    def extend(self, prompt_ids: Sequence[int], reply_ids: Sequence[int], message: Message) -> tuple[int, ...]:
        """The token ids of a chat after `message`, up to where the next reply begins.

        Args:
            prompt_ids: What the last reply was sampled after.
            reply_ids: The last reply as sampled, with or without its end-of-turn token.
            message: What is said to it.

        Returns:
            `prompt_ids` and `reply_ids` unchanged, then the tokens in between and of `message`.

        Raises:
            InputError: If the template refuses a message of this role here.
        """
        bridge = self._bridge(message)
        mark = _unused(message.content)
        content = self._cut(message.content, mark)
        text = (content.strip() if bridge.trims else content) + bridge.tail
        end = self._eos_text.get(reply_ids[-1]) if reply_ids else None
        if end is None or (at := bridge.head.find(end)) < 0:
            return (*prompt_ids, *reply_ids, *self._encode(bridge.head + text, mark))
        return (*prompt_ids, *reply_ids, *self._encode(bridge.head[at:] + text, mark)[1:])

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of a reply that is given as text (a demonstration's)."""
        return tuple(self._raw.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a reply, without the end-of-turn token that it may end with."""
        shown = ids[:-1] if ids and ids[-1] in self.eos_ids else ids
        return str(self._raw.decode(list(shown), skip_special_tokens=False))

    def _bridge(self, message: Message) -> _Bridge:
        """What a message of this role stands between, read off a short chat; rendered once a role."""
        if message.role not in self._bridges:
            content = PAD + CONTENT + PAD
            chat = [Message("user", "Hello"), Message("assistant", REPLY), replace(message, content=content)]
            _, *behind = self._render(chat).split(REPLY)
            if len(behind) != 1 or behind[0].count(CONTENT) != 1:
                raise InputError(f"The chat template of {self._name} does not show each message once: use another.")
            trims = content not in behind[0]
            head, tail = behind[0].split(CONTENT if trims else content)
            self._bridges[message.role] = _Bridge(head, tail, trims)
        return self._bridges[message.role]

    def _render(self, messages: Sequence[Message]) -> str:
        from jinja2 import TemplateError

        chat = [{"role": m.role, "content": m.content} for m in messages]
        try:
            return str(self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        except TemplateError as err:
            roles = ", ".join(m.role for m in messages)
            raise InputError(f"The chat template of {self._name} refuses the roles {roles} ({err}).") from err

    def _cut(self, content: str, mark: str) -> str:
        """`content` with `mark` after the first character of each markup string, and no lone surrogates."""
        content = content.encode("utf-8", "replace").decode()
        at = 0
        while found := self._markup.search(content, at):
            at = found.start() + 1
            content = content[:at] + mark + content[at:]
        return content

    def _encode(self, text: str, mark: str) -> list[int]:
        pieces = text.split(mark) if mark in text else [text]
        return [i for piece in pieces for i in self._raw.encode(piece, add_special_tokens=False).ids]


def _unused(text: str) -> str:
    """A character of the private use area that `text` does not contain."""
    return next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)
