"""What each role is asked, and how its reply is read.

A `Style` is a set of jinja2 templates. Four ship: `full`, the paper's content for language models; `brief`, the same in a
few words, for policies of a few hundred thousand parameters; `zero`, which asks for the action alone; `react`, which asks
for a thought and an action in turn (arXiv 2210.03629). A user's own style is a TOML file with the same keys; `base` names
the built-in style that those it leaves out are taken from. Templates see environment and model text as data only: it is
substituted once and never rendered again.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from skillrise.errors import InputError
from skillrise.types import Message, Role

STOP: dict[Role, str] = {"solve": "</action>", "curate": "</skill>", "reflect": "</reflection>"}
"""The tag that ends a role's reply."""

BUILT_IN = ("full", "brief", "zero", "react")
"""The styles that ship."""

Step = tuple[str, str | None]
"""One step of a history: what was seen, and the action that followed (None if the reply held none)."""


Reflection = tuple[int, bool, str]
"""An earlier task's number, whether it was won, and what was said about it."""


@dataclass(frozen=True, slots=True)
class Style:
    """Templates, one a kind of message.

    Attributes:
        solve: Opens an attempt, or one window of it.
        step: The next observation in a growing chat.
        curate: Asks for the rewritten document in a chat of its own.
        curate_next: Asks for it at the end of the attempt's own chat.
        reflect: Asks for a reflection in a chat of its own.
        reflect_next: Asks for it at the end of the attempt's own chat.

    Every template may use `rules`, `document`, `reflections` (list of `Reflection`), `task`, `history` (list of `Step`, oldest first),
    `observation` (the latest), `admissible` (list or None), `invalid` (the last reply held no action) and `won`.
    """

    solve: str
    step: str
    curate: str
    curate_next: str
    reflect: str
    reflect_next: str

    def render(self, kind: str, values: Mapping[str, object]) -> Message:
        """The user message made from the template `kind`."""
        return Message("user", _template(getattr(self, kind)).render(values).strip())


_SAMPLE: dict[str, object] = {
    "rules": "",
    "document": "",
    "reflections": [(1, False, "")],
    "task": "",
    "history": [("", None)],
    "observation": "",
    "admissible": None,
    "invalid": False,
    "won": False,
}


@cache
def _template(source: str) -> jinja2.Template:
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False
    )
    return environment.from_string(source)


@cache
def style(name: str) -> Style:
    """The built-in style `name`, or the one in the TOML file of that path.

    Raises:
        InputError: If there is no such style, or the file lacks a template or has an unknown or broken one.
    """
    path, named = Path(name), ", ".join(BUILT_IN)
    if re.fullmatch(r"[a-z]+", name):
        source = files("skillrise") / "templates" / f"{name}.toml"
        if not source.is_file():
            raise InputError(f"play.prompts = {name!r} is no built-in style: use {named} or a path to a TOML file.")
        text = source.read_text("utf-8")
    elif path.is_file():
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise InputError(f"{name}: cannot be read as a text file ({err}).") from err
    else:
        raise InputError(f"play.prompts: no file {name!r}: name a TOML file or one of the styles {named}.")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise InputError(f"{name}: not valid TOML ({err}): mend that line.") from err
    if (base := table.pop("base", None)) is not None:
        if base not in BUILT_IN:
            raise InputError(f"{name}: base = {base!r} is no built-in style: use one of {named}.")
        table = asdict(style(base)) | table
    wanted = {f.name for f in fields(Style)}
    if set(table) != wanted or not all(isinstance(template, str) for template in table.values()):
        raise InputError(
            f"{name}: a prompt style needs the keys {', '.join(sorted(wanted))}, each a string, and no others."
        )
    made = Style(**table)
    for key in sorted(wanted):
        try:
            made.render(key, _SAMPLE)
        except Exception as err:  # templates are programs, and the user's: they may raise anything
            raise InputError(f"{name}: template {key!r} does not render: {err}.") from err
    return made


def parse(role: Role, text: str) -> str | None:
    """What a reply says between its tags, or None if it is not in the asked form.

    The reply counts up to its first closing tag, and within that what stands behind the last opening tag: reasoning
    may mention the tag before, and the token that completes the closing tag may hold a character more. An empty action
    is no action; an empty document is a document.
    """
    body, closed, _ = text.partition(STOP[role])
    _, opened, inner = body.rpartition(STOP[role].replace("/", ""))
    if not closed or not opened:
        return None
    inner = inner.strip()
    return inner if inner or role == "curate" else None
