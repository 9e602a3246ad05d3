"""How formulaic is given what R reads and Python does not: ``^``, and columns called ``class``.

formulaic evaluates Python. A power is written ``**`` there, which binds as ``^`` does in R, and a
column whose name is one of Python's words has a mark at its end.
"""

from __future__ import annotations

import re
from keyword import iskeyword

MARK = "\N{MODIFIER LETTER LOW MACRON}"  # may stand in a name of Python's, and hardly does in data
CONSTANTS = ("True", "False", "None")  # words that have a meaning in a formula, outside backticks

_TOKENS = re.compile(r"`[^`]+`|'[^'\n]*'|\"[^\"\n]*\"|%in%|[^\W\d]\w*|\^")
_MARKED = re.compile(rf"(?<!\w)([A-Za-z]+){MARK}(?!\w)")


def is_word(token: str) -> bool:
    """Say whether a name outside backticks is a word of Python's that can only be a column."""
    return iskeyword(token) and token not in CONSTANTS


def spelled(text: str) -> str:
    """Write a formula or a part of it for formulaic."""
    return _TOKENS.sub(lambda match: _spelled(match[0]), text)


def marked(column: str) -> str:
    """Return the name of a column of the table by which formulaic finds it."""
    return f"{column}{MARK}" if iskeyword(column) else column


def unmarked(text: str, quote: str = "") -> str:
    """Return a text of formulaic's with the true names of columns, in quotes if need be."""
    return _MARKED.sub(
        lambda match: f"{quote}{match[1]}{quote}" if iskeyword(match[1]) else match[0], text
    )


def _spelled(token: str) -> str:
    if token == "^":
        return "**"
    quoted = token[0] == "`" and iskeyword(token[1:-1])
    return marked(token.strip("`")) if quoted or is_word(token) else token
