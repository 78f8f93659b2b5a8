"""How many tokens a chat is, read off a model's folder without the model: for a look ahead, not for training.

What is trained gets its tokens from `chat`. This counts without PyTorch, from `tokenizer.json` and the chat template, and
estimates where they are not at hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillrise.errors import InputError
from skillrise.types import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARS = 4
"""Characters a token, where there is no tokenizer; usual for English."""


class Counter:
    """Counts the tokens of texts and chats.

    Args:
        folder: A Hugging Face folder; None, or one without a tokenizer and template, counts a token for each `CHARS` characters.

    Attributes:
        exact: Whether a tokenizer counts.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._tokenizer = _tokenizer(folder) if folder else None
        self._settings = _settings(folder) if folder else {}
        self.exact = self._tokenizer is not None and isinstance(self._settings.get("chat_template"), str)

    def text(self, text: str) -> int:
        """The tokens of a text alone."""
        if not self.exact or self._tokenizer is None:
            return -(-len(text) // CHARS)
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def chat(self, messages: Sequence[Message]) -> int:
        """The tokens of a chat up to where the next reply begins; an estimate leaves the template's markup out."""
        if not self.exact:
            return sum(self.text(message.content) for message in messages)
        return self.text(_render(self._settings, messages))

    def filler(self, tokens: int) -> str:
        """A text of about so many tokens."""
        text = " abc" * max(tokens, 0)
        counted = self.text(text)
        return text[: len(text) * tokens // counted] if counted > tokens else text


def _tokenizer(folder: Path) -> Tokenizer | None:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        made = Tokenizer.from_file(str(file))
    except Exception as err:  # the library raises nothing finer
        raise InputError(f"{file} cannot be read ({str(err)[:200]}): fetch the model again.") from err
    made.no_padding()
    made.no_truncation()
    return made


def _settings(folder: Path) -> dict[str, Any]:
    """The tokenizer's settings; its chat template may lie in a file of its own."""
    file, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    try:
        settings: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        if isinstance(named := settings.get("chat_template"), list):
            settings["chat_template"] = next((each["template"] for each in named if each["name"] == "default"), None)
        return {**settings, "chat_template": template.read_text("utf-8")} if template.is_file() else settings
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise InputError(f"{file} or {template.name} cannot be read ({err}): fetch the model again.") from err


def _render(settings: dict[str, Any], messages: Sequence[Message]) -> str:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Markup around what is trained, which some templates have; it is no text."""

        tags = {"generation"}  # noqa: RUF012  as the library has it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(reason: str) -> None:
        raise ValueError(reason)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    markup = {name: _content(settings.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    try:
        return environment.from_string(settings["chat_template"]).render(
            messages=[{"role": message.role, "content": message.content} for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            raise_exception=refuse,
            strftime_now=lambda form: "2026-01-01",
            **markup,
        )
    except (TemplateError, ValueError, TypeError) as err:
        raise InputError(f"The model's chat template does not render ({str(err)[:200]}): use another model.") from err


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token or "")
