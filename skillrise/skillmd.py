"""Skill documents as files: Agent Skills (agentskills.io), a folder with a SKILL.md in it.

    boil-water/SKILL.md        ---
                               name: "boil-water"
                               description: "What it does and when to use it."
                               metadata:
                                 family: "boil"
                               ---

                               the document

The front matter is YAML, of which we write and read the part that everybody reads alike: `key: value` lines, one level of
keys under `metadata`, strings in JSON's quotes. What stands under it is the document, character for character.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillrise.errors import InputError

FILE = "SKILL.md"
"""The file in a skill's folder."""
MAX_NAME = 64
"""Characters of a name."""
MAX_DESCRIPTION = 1024
"""Characters of a description."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LINE = re.compile(r"( *)([A-Za-z_][\w.-]*):(?: +(.*))?")
_PLAIN = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`].*|-\S.*")


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A SKILL.md.

    Attributes:
        name: Lower-case letters, digits and single hyphens between them, at most 64; the folder is called the same.
        description: What the skill does and when to use it: one line, 1 to 1,024 characters.
        document: The Markdown text under the front matter.
        metadata: What else its makers tell of it, one line each.
    """

    name: str
    description: str
    document: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def slug(text: str) -> str:
    """A valid name that is as much like `text` as can be; `skill` where nothing of it is left."""
    ascii_ = unicodedata.normalize("NFKD", text[:1000]).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_).strip("-")[:MAX_NAME].rstrip("-") or "skill"


def one_line(text: str, most: int = MAX_DESCRIPTION) -> str:
    """`text` on one line, without characters that steer, hide or open a tag, cut between words to `most` characters."""
    line = " ".join("".join(c for c in word if c.isprintable() and c not in "<>") for word in text.split())
    line = " ".join(line.split())
    if len(line) <= most:
        return line
    return line[: most - 1].rsplit(" ", 1)[0].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def dump(skill: SkillFile) -> str:
    """The content of a SKILL.md; `parse` gives the same skill back.

    Raises:
        ValueError: If name or description are not as `SkillFile` says, or a key of the metadata is no word.
    """
    if not _NAME.fullmatch(skill.name) or len(skill.name) > MAX_NAME:
        raise ValueError(f"{skill.name!r} is no name of a skill")
    for text in (skill.description, *skill.metadata.values()):
        if text != one_line(text, max(len(text), 1)):
            raise ValueError(f"{text[:80]!r} is not plain text on one line")
    if not 1 <= len(skill.description) <= MAX_DESCRIPTION:
        raise ValueError(f"a description has 1 to {MAX_DESCRIPTION} characters")
    lines = [f"name: {_quoted(skill.name)}", f"description: {_quoted(skill.description)}"]
    if skill.metadata:
        lines.append("metadata:")
    for key, text in skill.metadata.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", key):
            raise ValueError(f"{key!r} is no key")
        lines.append(f"  {key}: {_quoted(text)}")
    return "\n".join(["---", *lines, "---", "", skill.document, ""])


def parse(text: str, source: str) -> SkillFile:
    """Read what stands in a SKILL.md. Keys that we do not know are read and left.

    Args:
        text: The file's content.
        source: What the file is called in errors.

    Raises:
        InputError: At the first line that is not of the form above, or if name or description are missing or not valid.
    """
    lines = text.split("\n")
    end = next((i for i, line in enumerate(lines) if i and line.rstrip() == "---"), None)
    if lines[0].rstrip() != "---" or end is None:
        raise InputError(f"{source}: a SKILL.md begins with front matter between two lines `---`: add the missing one.")
    values, metadata = _front_matter(lines[1:end], source)
    name, description = values.get("name", ""), values.get("description", "")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise InputError(
            f"{source}: `name` must be 1 to {MAX_NAME} lower-case letters, digits and single hyphens, not "
            f"{name[:80]!r}: correct it."
        )
    if not 1 <= len(description) <= MAX_DESCRIPTION:
        raise InputError(
            f"{source}: `description` must have 1 to {MAX_DESCRIPTION} characters, not {len(description)}: correct it."
        )
    return SkillFile(name, description, _body(lines[end + 1 :]), metadata)


def read_document(path: Path, most: int) -> str:
    """The skill document of a Markdown file, a SKILL.md or a folder that holds one; front matter is taken off.

    Args:
        path: The file or folder.
        most: Most characters that a document may have (`play.document_chars`).

    Raises:
        InputError: If there is none, it is not UTF-8, its front matter is faulty or it is too long.
    """
    file = path / FILE if path.is_dir() else path
    try:
        text = file.read_bytes().decode("utf-8").removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(
            f"{file}: cannot be read as a text file ({err}): name a Markdown file, a {FILE} or its folder."
        ) from err
    if file.name == FILE and text.split("\n", 1)[0].rstrip() == "---":
        text = parse(text, str(file)).document
    if len(text) > most:
        raise InputError(
            f"{file}: the document has {len(text)} characters and play.document_chars = {most} is the most: "
            "shorten it or raise that key."
        )
    return text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _front_matter(lines: list[str], source: str) -> tuple[dict[str, str], dict[str, str]]:
    """The values at the top, and those under `metadata`."""
    values: dict[str, str] = {}
    metadata: dict[str, str] = {}
    inside = False
    for number, line in enumerate(lines, start=2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.rstrip())
        indented = found is not None and bool(found[1])
        if found is None or (indented and not inside):
            raise InputError(f"{source}:{number}: not a line `key: value`: write the value behind its key, in quotes.")
        inside = inside and indented
        table = metadata if inside else values
        if found[2] in table:
            raise InputError(f"{source}:{number}: `{found[2]}` is given twice: keep one.")
        if found[2] == "metadata" and not indented:
            if found[3]:
                raise InputError(
                    f"{source}:{number}: `metadata` holds indented lines `key: value`: write them below it."
                )
            inside = True
        table[found[2]] = _value(found[3] or "", f"{source}:{number}")
    return values, metadata


def _value(text: str, place: str) -> str:
    """A quoted or plain value."""
    text = text.strip()
    if re.fullmatch(r"'([^']|'')*'", text):
        return text[1:-1].replace("''", "'")
    if text.startswith('"'):
        try:
            value = json.loads(text)
            value.encode()  # an escaped lone surrogate is no text
            return str(value)
        except ValueError as err:
            raise InputError(
                f"{place}: not a value in quotes ({err}): close the quotes and escape those within."
            ) from err
    if text and (not _PLAIN.fullmatch(text) or ": " in text or " #" in text or text.endswith(":")):
        raise InputError(f"{place}: {text[:40]!r} means something else in YAML: put the value in double quotes.")
    return text


def _body(lines: list[str]) -> str:
    """What stands under the front matter, without the empty line before it and the line end behind it."""
    if lines and not lines[0].strip():
        lines = lines[1:]
    return "\n".join(lines[:-1] if lines and not lines[-1] else lines)
