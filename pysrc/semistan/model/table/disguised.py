"""Numbers that are written as text: ``1,080``, ``33%``, ``$5``, ``1.5D0``, and ``.`` for none.

A column of them would be a factor with a level for each value, and nobody would have meant it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError
from semistan.model.table.canonical import LEVEL, kind_of

if TYPE_CHECKING:
    import pandas as pd

STRAY = 0.2  # of the rows, up to which words among numbers look like mistakes
MARKS = {"", ".", "..", "-", "--", "?", "*", "#", "na", "n.a.", "n/a", "nan", "nd", "n.d.", "nil",
         "none", "null", "missing", "unknown", "inf", "#n/a", "#value!", "#div/0!"}  # fmt: skip
FEWEST_OF_UNIT = 5  # numbers from which a letter or two behind all of them is a unit
BLANKS = "\u00a0\u2007\u2009\u202f \t"

_DIGITS = r"(?:\d+\.?\d*|\.\d+)"
_PLAIN = re.compile(rf"\s*[+-]?{_DIGITS}(?:[eE][+-]?\d+)?\s*", re.ASCII)
_CURRENCY = r"[$€£¥₹]|USD|EUR|GBP|CHF"


@dataclass(frozen=True, slots=True)
class Disguise:
    """One way in which numbers are written so that they are text.

    Attributes
    ----------
    text : str
        What it is, in words.
    pattern : re.Pattern
        Matches all of such a value.
    without, instead : re.Pattern, str
        What is replaced, and by what, to make it a plain number.
    """

    text: str
    pattern: re.Pattern[str]
    without: re.Pattern[str]
    instead: str = ""

    def advice(self, value: str) -> str:
        """Return what to write for such a value."""
        return f", with {self.text}: write {self.without.sub(self.instead, value).strip(BLANKS)}"


def _disguise(text: str, pattern: str, without: str, instead: str = "") -> Disguise:
    return Disguise(text, re.compile(pattern, re.ASCII), re.compile(without), instead)


_SIGN = "[+-]?"
_BLANK = f"[{BLANKS}]"
DISGUISES = (
    _disguise("commas between thousands", rf"{_SIGN}\d{{1,3}}(?:,\d{{3}})+(?:\.\d*)?", ","),
    _disguise("points between thousands", rf"{_SIGN}\d{{1,3}}(?:\.\d{{3}}){{2,}}", r"\."),
    _disguise("a decimal comma", rf"{_SIGN}\d*,\d+(?:[eE][+-]?\d+)?", ",", "."),
    _disguise(
        "blanks between thousands", rf"{_SIGN}\d{{1,3}}(?:{_BLANK}\d{{3}})+(?:[.,]\d*)?", _BLANK
    ),
    _disguise(
        "marks between thousands", rf"{_SIGN}\d{{1,3}}(?:['’_]\d{{3}})+(?:\.\d*)?", "['’_]"
    ),
    _disguise("a percent sign", rf"{_SIGN}{_DIGITS}{_BLANK}*%", f"{_BLANK}*%"),
    _disguise(
        "a currency", rf"{_SIGN}(?:{_CURRENCY}){_BLANK}*{_SIGN}[\d,]*\.?\d+"
        rf"|{_SIGN}[\d,]*\.?\d+{_BLANK}*(?:{_CURRENCY})", f"(?:{_CURRENCY})|{_BLANK}|,",
    ),
    _disguise("Fortran's exponent", rf"{_SIGN}{_DIGITS}[dD][+-]?\d+", "[dD]", "e"),
    _disguise("another minus sign", rf"[−–]{_DIGITS}(?:[eE][+−-]?\d+)?", "[−–]", "-"),
    _disguise("a minus sign at the end", rf"{_DIGITS}-", r"(.*)-", r"-\1"),
    _disguise("parentheses for a minus sign", rf"\({_DIGITS}\)", r"\((.*)\)", r"-\1"),
    _disguise("quotation marks", rf"['\"]{_SIGN}{_DIGITS}['\"]?", "['\"]"),
    _disguise("blanks", rf"{_BLANK}*{_SIGN}{_DIGITS}(?:[eE][+-]?\d+)?{_BLANK}*", _BLANK),
)  # fmt: skip
_UNIT = re.compile(rf"{_SIGN}{_DIGITS}{_BLANK}*([^\W\d_]{{1,3}}|°[CF]?)")


def check_disguised(table: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse text that is meant as numbers; it would make a level of each.

    That is, if each value is a number or a mark for a missing one, or nearly all of them are.

    Parameters
    ----------
    table : pandas.DataFrame
        The training rows, in canonical types.
    names : iterable of str
        The columns that are numbers or factors by their values.

    Raises
    ------
    InputError
        With the first such value, its row, and what to write.
    """
    for name in names:
        column = table[name]
        if hasattr(column, "cat") or kind_of(column) != LEVEL:
            continue
        counts = column.value_counts(sort=False)
        texts = [str(value) for value in counts.index]
        plain = {text for text in texts if _PLAIN.fullmatch(text)}
        found = {text: disguise for text in texts if (disguise := disguise_of(text))}
        found |= _units(set(texts) - plain - found.keys())
        words = [text for text in texts if text not in plain and text not in found]
        if not found and (not words or len(plain) < 2):
            continue
        rows = int(sum(counts[text] for text in words))
        if rows > STRAY * len(column) and not all(text.strip().lower() in MARKS for text in words):
            continue
        row = int(column.isin([*found] or words).to_numpy().argmax())
        told = found[column.iloc[row]].advice(column.iloc[row]) if found else ""
        raise InputError(_refusal(name, column, row, rows, told))


def disguise_of(text: str) -> Disguise | None:
    """Return the way in which a text is a number in disguise; None of plain numbers and words."""
    if _PLAIN.fullmatch(text) and text.strip(" \t") == text.strip():
        return None
    return next((each for each in DISGUISES if each.pattern.fullmatch(text)), None)


def advice(value: Any) -> str:
    """Return what to do with a value that should be a number, behind its mention."""
    disguise = disguise_of(value) if isinstance(value, str) else None
    if disguise:
        return disguise.advice(value)
    if isinstance(value, str) and value.strip().lower() in MARKS:
        return ", which looks like a missing value: leave the field empty"
    return ""


def _units(texts: set[str]) -> dict[str, Disguise]:
    """Return numbers with one unit behind all of them, if they are many."""
    matches = {text: match for text in texts if (match := _UNIT.fullmatch(text))}
    if len(matches) < FEWEST_OF_UNIT or len({match[1] for match in matches.values()}) > 1:
        return {}
    unit = next(iter(matches.values()))[1]
    disguise = _disguise(f"the unit '{unit}'", ".*", rf"{_BLANK}*{re.escape(unit)}")
    return dict.fromkeys(matches, disguise)


def _refusal(name: str, column: pd.Series, row: int, words: int, told: str) -> str:
    value = column.iloc[row]
    if told:
        what = f"numbers as text, as {value!r} in row {row + 1}{told}"
    else:
        of = f"{words} of {len(column)} rows"
        what = f"numbers but for {of}, as {value!r} in row {row + 1}{advice(value)}; mend these"
    return f"column '{name}' holds {what}, or write C({name}) if each value is a level of a factor"
