"""What changed between two documents."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

from skillrise.report.values import MAX_FIELD


class Row(NamedTuple):
    """A line of a difference: `kind` is same, old or new; each part is (changed, text)."""

    kind: str
    parts: list[tuple[bool, str]]


def difference(old: str, new: str) -> list[Row]:
    """What changed from `old` to `new`, line by line and, within a changed line, word by word."""
    a, b = old[:MAX_FIELD].splitlines(), new[:MAX_FIELD].splitlines()
    rows: list[Row] = []
    for tag, a0, a1, b0, b1 in _changes(a, b):
        if tag == "equal":
            rows += [Row("same", [(False, line)]) for line in a[a0:a1]]
            continue
        pairs = [_word_difference(x, y) for x, y in zip(a[a0:a1], b[b0:b1], strict=False)]
        rows += [pair[0] for pair in pairs] + [Row("old", [(False, line)]) for line in a[a0 + len(pairs) : a1]]
        rows += [pair[1] for pair in pairs] + [Row("new", [(False, line)]) for line in b[b0 + len(pairs) : b1]]
    if max(len(old), len(new)) > MAX_FIELD:
        rows.append(Row("same", [(False, f"… cut: only the first {MAX_FIELD:,} characters are compared")]))
    return rows


def _word_difference(old: str, new: str) -> tuple[Row, Row]:
    a, b = old.split(" "), new.split(" ")
    changes = _changes(a, b)
    kept = sum(a1 - a0 for tag, a0, a1, _, _ in changes if tag == "equal")
    if 2 * kept < 0.4 * (len(a) + len(b)):  # hardly anything in common: marks would only be confetti
        return Row("old", [(False, old)]), Row("new", [(False, new)])
    before, after = Row("old", []), Row("new", [])
    for tag, a0, a1, b0, b1 in changes:
        for row, words in ((before, a[a0:a1]), (after, b[b0:b1])):
            if words:
                row.parts.extend([(tag != "equal", " ".join(words)), (False, " ")])
    return before, after


def _changes(a: list[str], b: list[str]) -> list[tuple[str, int, int, int, int]]:
    """The opcodes from `a` to `b`; difflib takes cubic time on repetitive input, so that counts as wholly replaced."""
    counts = Counter(b)
    if sum(counts[item] for item in a) > 20_000:
        return [("replace", 0, len(a), 0, len(b))]
    return [*SequenceMatcher(None, a, b, autojunk=False).get_opcodes()]
