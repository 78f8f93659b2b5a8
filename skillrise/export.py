"""Skill documents out of played trials, as Agent Skills that other agents can load.

Which document is worth keeping? The one whose readers did best: all attempts that started from the same text, wherever in a
file, are its readers, and the lower end of their success rate's interval ranks it. So a text that one lucky attempt read
does not beat one that many read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skillrise import skillmd
from skillrise.env import clean
from skillrise.errors import InputError
from skillrise.files import write_text
from skillrise.skillmd import SkillFile, one_line, slug
from skillrise.statistics import wilson

_WHEN = re.compile(r"\W*when to use\b.{0,40}?\W*", re.IGNORECASE)
_NEXT = re.compile(r"\s*(#|(\*\*|__)[^*_]+(:(\*\*|__)|(\*\*|__)\s*(:|$))|(-{3,}|\*{3,}|_{3,})\s*$)")
"""A line that ends a section: a heading, a line that begins with bold words for one, a rule."""


@dataclass(slots=True)
class Written:
    """A document that some trial wrote, and how its readers did.

    Attributes:
        family: The family of the sequences it was written in.
        env: Their environment.
        text: The document.
        step: Updates of the policy that wrote it; None if the trials do not say.
        position: The last position, from 1, that a reader started from it; 0 if it was never read.
        wins: Readers that solved their task.
        readers: Scored attempts that started from it.
    """

    family: str
    env: str
    text: str
    step: int | None
    position: int = 0
    wins: int = 0
    readers: int = 0

    @property
    def rank(self) -> tuple[float, int, int]:
        """Higher is better: the lower end of its readers' success, then a later position, then a shorter text."""
        return wilson(self.wins, self.readers).low, self.position, -len(self.text)


@dataclass(slots=True)
class _Trials:
    """What a trials file holds.

    Attributes:
        documents: By family and text, in the file's order.
        last: By sequence, the document its best trial ended with, and how many tasks that trial solved.
        reflects: Whether what was carried were reflections.
    """

    documents: dict[tuple[str, str], Written] = field(default_factory=dict)
    last: dict[str, tuple[int, Written]] = field(default_factory=dict)
    reflects: bool = False


def export(
    source: Path, folder: Path, *, families: Iterable[str] | None = None, every: bool = False
) -> list[tuple[Path, Written]]:
    """Write documents that trials wrote as `folder/<name>/SKILL.md`.

    Args:
        source: A trials file (JSON Lines), or a run or scaling folder, whose newest one is taken.
        folder: Where the skills go; other skills may be there.
        families: Only documents of these; None for all.
        every: One a sequence, the last that its best trial wrote, instead of the best one a family.

    Returns:
        Each file written, with its document.

    Raises:
        InputError: If `source` holds no trials or no document, or a skill of that name is there already.
    """
    file = trials_file(source)
    found = _read(file)
    if found.reflects:
        raise InputError(
            f"{file}: these trials carry reflections, which are about single attempts and no skill documents: name trials "
            "of play.carry = 'skill'."
        )
    chosen = {name: w for name, (_, w) in found.last.items()} if every else best(found.documents.values())
    wanted = None if families is None else set(families)
    if wanted is not None and (unknown := sorted(wanted - {w.family for w in chosen.values()})):
        known = ", ".join(sorted({w.family for w in chosen.values()})[:8])
        raise InputError(f"{file}: no document of family {unknown[0]!r}: there are some of {known or 'no family'}.")
    chosen = {name: w for name, w in chosen.items() if wanted is None or w.family in wanted}
    if not chosen:
        raise InputError(
            f"{file}: no document was written in these trials: name trials of sequences with more than one task."
        )
    skills = [(_skill(name, w, file), w) for name, w in _named(chosen)]
    paths = [folder / skill.name / skillmd.FILE for skill, _ in skills]
    if there := [path.parent for path in paths if path.parent.exists() or path.parent.is_symlink()]:
        raise InputError(f"{there[0]} already exists: remove it or name another folder.")
    try:
        for path, (skill, _) in zip(paths, skills, strict=True):
            write_text(path, skillmd.dump(skill))
    except OSError as err:
        raise InputError(f"{folder} cannot be written ({err.strerror}): choose another place.") from err
    return [(path, w) for path, (_, w) in zip(paths, skills, strict=True)]


def trials_file(source: Path) -> Path:
    """The trials file that `source` is, or the newest of the run, or that of the longest sequences of a scaling folder.

    Raises:
        InputError: If there is none.
    """
    if source.is_file():
        return source
    numbered = [
        (int(number[1]), path)
        for pattern in ("trials/step-*.jsonl", "k-*.trials.jsonl")
        for path in source.glob(pattern)
        if (number := re.match(r"(?:step|k)-(\d{1,9})\.", path.name))
    ]
    if not numbered:
        raise InputError(
            f"{source}: no trials are there: name a file *.trials.jsonl (beside an evaluation's result), or a run folder "
            "with trials/ (save_trials_every writes them)."
        )
    return max(numbered)[1]


def best(documents: Iterable[Written]) -> dict[str, Written]:
    """The document of each family whose readers did best, of those that were read."""
    out: dict[str, Written] = {}
    for written in documents:
        if written.readers and (written.family not in out or written.rank > out[written.family].rank):
            out[written.family] = written
    return out


def description(written: Written) -> str:
    """When to use it: what the document says under a heading of that name, else where it was learnt."""
    lines = written.text.splitlines()
    for at, line in enumerate(lines):
        title, colon, rest = line.partition(":")
        if not _WHEN.fullmatch(title) or not (colon or re.match(r"\s*[#*_]", line)):
            continue
        said = [rest.strip(" *_")]
        for below in lines[at + 1 :]:
            if _NEXT.match(below):
                break
            said.append(re.sub(r"^\s*([-*+]|\d+[.)])\s+", "", below))
        if text := one_line(" ".join(said)):
            return text
    return one_line(f"Learnt on {written.family} tasks of {written.env}.")


def _named(chosen: dict[str, Written]) -> Iterator[tuple[str, Written]]:
    """Names for folders: as much like the given ones as can be, each once."""
    taken: set[str] = set()
    for wanted, written in chosen.items():
        name, number = slug(wanted), 1
        while name in taken:
            number += 1
            tail = f"-{number}"
            name = slug(wanted)[: skillmd.MAX_NAME - len(tail)].rstrip("-") + tail
        taken.add(name)
        yield name, written


def _skill(name: str, written: Written, source: Path) -> SkillFile:
    told = {
        "family": written.family,
        "environment": written.env,
        "source": source.name if source.is_absolute() else str(source),
        "step": "" if written.step is None else str(written.step),
        "success": f"{written.wins / written.readers:.3f}" if written.readers else "",
        "readers": str(written.readers),
    }
    metadata = {key: one_line(text, 200) for key, text in told.items()}
    return SkillFile(
        name, description(written), written.text, {f"skillrise-{key}": text for key, text in metadata.items() if text}
    )


def _read(file: Path) -> _Trials:
    found = _Trials()
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        _add(found, json.loads(line))
                    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as err:
                        raise InputError(
                            f"{file}:{number}: not a trial as `skillrise` writes them ({type(err).__name__}: {err}): "
                            "name a trials file."
                        ) from err
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{file}: cannot be read as a text file ({err}): name a trials file.") from err
    return found


def _add(found: _Trials, trial: dict[str, Any]) -> None:
    sequence, attempts = trial["sequence"], trial["attempts"]
    found.reflects |= any((attempt["carry"] or {}).get("role") == "reflect" for attempt in attempts)
    if trial["error"] is not None or not attempts:
        return
    family, env = str(sequence["family"]), str(sequence["tasks"][0]["env"])
    step = _step(trial)

    def document(text: str) -> Written:
        return found.documents.setdefault((family, text), Written(family, env, text, step))

    texts = [clean(str(attempt["document_in"]), len(attempt["document_in"])) for attempt in attempts]
    not_written = {"", texts[0]}  # the first starts from what was given, and it may be carried on as it is
    for position, (attempt, text, padded) in enumerate(zip(attempts, texts, sequence["padded"], strict=False)):
        if text not in not_written and not padded:
            written = document(text)
            written.position = max(written.position, position + 1)
            written.readers += 1
            written.wins += bool(attempt["won"])
    carry = attempts[-1]["carry"]
    last = texts[-1] if not carry or carry["action"] is None else clean(str(carry["action"]), len(carry["action"]))
    solved = sum(attempt["won"] and not padded for attempt, padded in zip(attempts, sequence["padded"], strict=False))
    if last not in not_written and solved > found.last.get(str(sequence["id"]), (-1,))[0]:
        found.last[str(sequence["id"])] = solved, document(last)


def _step(trial: dict[str, Any]) -> int | None:
    """Updates of the policy that played."""
    turns = [turn for attempt in trial["attempts"] for turn in attempt["turns"]]
    step = trial.get("step", turns[0]["weight_version"] if turns else None)
    return step if isinstance(step, int) else None
