"""How formulaic is given what R reads and Python does not: ``^``, and columns called ``class``.

formulaic evaluates Python. A power is written ``**`` there, which binds as ``^`` does in R. A
column whose name is one of Python's words has a mark at its end, and what Python refuses or
replaces in a name, as the square of ``m²``, is written as its number between marks.
"""

from __future__ import annotations

import re
import unicodedata
from keyword import iskeyword

MARK = "\N{MODIFIER LETTER LOW MACRON}"  # may stand in a name of Python's, and hardly does in data
CONSTANTS = ("True", "False", "None")  # words that have a meaning in a formula, outside backticks

_TOKENS = re.compile(r"`[^`]+`|'[^'\n]*'|\"[^\"\n]*\"|%in%|[^\W\d]\w*|\^")
_MARKED = re.compile(rf"\w*{MARK}\w*")


def is_word(token: str) -> bool:
    """Say whether a name outside backticks is a word of Python's that can only be a column."""
    return iskeyword(token) and token not in CONSTANTS


def in_formula(column: str) -> str:
    """Write a column in a formula: in backticks, unless it is a plain name."""
    return column if column.isidentifier() and not iskeyword(column) else f"`{column}`"


def spelled(text: str) -> str:
    """Write a formula or a part of it for formulaic."""
    return _TOKENS.sub(lambda match: _spelled(match[0]), text)


def marked(column: str) -> str:
    """Return the name of a column of the table by which formulaic finds it."""
    if iskeyword(column):
        return f"{column}{MARK}"
    return "".join(f"{MARK}{ord(c):x}{MARK}" if _is_odd(c) else c for c in column)


def unmarked(text: str, quote: str = "") -> str:
    """Return a text of formulaic's with the true names of columns, in quotes if need be."""
    return _MARKED.sub(lambda match: f"{quote}{_true(match[0])}{quote}", text)


def _true(name: str) -> str:
    numbers = re.sub(f"{MARK}([0-9a-f]+){MARK}", lambda match: chr(int(match[1], 16)), name)
    return numbers.removesuffix(MARK)


def _is_odd(character: str) -> bool:
    """Say whether a letter or digit is none in Python, or another one."""
    if character.isascii() or not re.match(r"\w", character):
        return False
    same = unicodedata.normalize("NFKC", character) == character
    return not (same and f"x{character}".isidentifier())


def _spelled(token: str) -> str:
    if token == "^":
        return "**"
    if token[0] != "`":
        is_name = is_word(token) or not (iskeyword(token) or token[0] in "'\"%")
        return marked(token) if is_name else token
    name = marked(token[1:-1])
    return name if name != token[1:-1] and name.isidentifier() else f"`{name}`"
