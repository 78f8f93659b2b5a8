"""Values as the page shows them: texts bounded in size, numbers for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

MAX_FIELD = 6_000
"""Characters of one text that are shown."""

# Control characters as their pictures, and lone surrogates, which UTF-8 cannot hold, as the replacement character.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


class Clipped(NamedTuple):
    """The beginning of a text, and how many characters were dropped and held."""

    shown: str
    dropped: int
    total: int


def clip(value: object, limit: int = MAX_FIELD) -> Clipped:
    """At most `limit` characters."""
    text = "" if value is None else str(value)
    return Clipped(text[:limit], max(0, len(text) - limit), len(text))


def brief(value: object, limit: int = 160) -> str:
    """One line of at most `limit` characters."""
    text = " ".join(("" if value is None else str(value)[: 4 * limit]).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: str) -> str:
    """`text` with its control characters as pictures and without what UTF-8 cannot hold."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def is_number(value: object) -> bool:
    """Whether `value` is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_float(value: object) -> float:
    """`value` if it is a number that can be drawn, else NaN."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e30 else math.nan


def num(value: object, digits: int = 2, plus: bool = False) -> str:
    """A number for people, an en dash for what is none."""
    number = to_float(value)
    if not math.isfinite(number):
        return "\N{EN DASH}"
    if abs(number) >= 1e6:
        text = f"{number / 1e6:.3g} M"
    elif abs(number) >= 1e4:
        text = f"{number / 1e3:.3g} k"
    elif 0 < abs(number) < 10.0**-digits / 2:
        text = f"{number:.2g}"
    else:
        text = f"{number:{'+' if plus and number else ''}.{0 if abs(number) >= 1000 else digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")


def duration(seconds: float) -> str:
    """A time for people, in seconds, minutes or hours."""
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def mean(values: Iterable[float]) -> float:
    """The mean of the finite values, NaN if there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
