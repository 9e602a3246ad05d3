"""What R writes shorter: ``bf()``, ``factor()``, ``(1 | g/h)``, ``.`` and ``Sepal.Length``.

A formula is written out before it is parsed, and a model keeps it so. The last two need the table:
a name with dots is a column there, and ``.`` is every column that the formula does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from semistan.model.formula.bars import enclosing
from semistan.model.formula.patterns import (
    has_patterns,
    inside_network,
    with_columns,
    with_prefixes,
)
from semistan.model.formula.syntax import CODINGS, Span, closing, formula_error, masked
from semistan.model.spelling import in_formula

_BF = re.compile(r"\s*(\+?)\s*(?:bf|brmsformula)\s*\(")
_RESCOR = re.compile(r"\s*\+\s*set_rescor\s*\(\s*(?:rescor\s*=\s*)?F(?:ALSE|alse)\s*\)\s*")
_FACTOR = re.compile(r"(?<![\w.])(?:__\.)?factor(?=\s*\()")  # a word of Python's is masked
_NAMES = re.compile(
    r"`(?P<quoted>[^`]*)`|'[^'\n]*'|\"[^\"\n]*\"|(?<![\w.])(?P<plain>[^\W\d][\w.]*)(?!\s*\(|\w)"
)
_DOT = re.compile(r"(?<![\w.)])\.(?![\w.])")
_DOT_NAME = re.compile(r"`\s*\.\s*`")
_WITHIN = re.compile(r"`[^`]*`|'[^'\n]*'|\"[^\"\n]*\"|(?P<operator>%in%)")
_NAMELESS = re.compile(r"(Unnamed: \d+)?")  # as pandas calls a column without a name


def written_out(text: str) -> str:
    """Write ``bf(y ~ x, sigma ~ z)``, ``factor(g)``, ``x %in% g`` and ``(1 | g/h)`` out.

    No table is needed. As in R, ``x %in% g`` is ``x:g``. The parts of ``bf(y ~ mi(x)) + bf(x | mi()
    ~ z)`` go behind one another.

    Raises
    ------
    InputError
        For a column called ``.``, with its place.
    """
    text = _without_bf(text)
    if found := _DOT_NAME.search(text):
        message = "a column cannot be called '.', which is all other columns; rename it"
        raise formula_error(text, message, found.span())
    text = _replaced(text, ((span, ":") for span in _within(text)))
    text = _replaced(text, ((match.span(), "C") for match in _FACTOR.finditer(masked(text))))
    return _replaced(text, _nested(text))


def _without_bf(text: str) -> str:
    """Return what stands in ``bf()``, or in several that are added, between commas."""
    source = masked(text)
    if source.count("(") != source.count(")"):
        return text
    start = 0
    parts: list[str] = []
    while (found := _BF.match(source, start)) and bool(found[1]) == bool(parts):
        start = closing(source, found.end())
        parts.append(text[found.end() : start - 1].strip())
    whole = not source[start:].strip() or _RESCOR.fullmatch(source, start)
    return ", ".join(parts) if parts and whole else text


def needs_table(text: str) -> bool:
    """Say whether a formula has names that only the table explains."""
    return has_patterns(text) or any(_dotted(text)) or bool(_DOT.search(masked(text)))


def with_table(text: str, columns: Sequence[str]) -> str:
    """Write a formula out by the columns of a table.

    Raises
    ------
    InputError
        If ``.`` stands in a function, or no column is left for it, or no column's name begins as
        a pattern says, with the place.
    """
    text = _in_backticks(written_out(text))
    others = rest(text, columns)
    return with_columns(_replaced(text, _dots(text, others)), columns)


def without_table(text: str) -> str:
    """Write a formula out so that it can be parsed where there is no table: names stand for it."""
    text = _in_backticks(written_out(text))
    return with_prefixes(_replaced(text, _dots(text, ("_",))))


def rest(text: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return what ``.`` is in a formula: the columns that it does not name, in their order.

    Empty if the formula has no ``.``.
    """
    if not _DOT.search(masked(text)):
        return ()
    matches = _NAMES.finditer(text)
    named = {match["quoted"] or match["plain"] for match in matches if match[0][0] not in "'\""}
    return tuple(c for c in columns if c not in named and not _NAMELESS.fullmatch(c))


def _dots(text: str, columns: Sequence[str]) -> Iterator[tuple[Span, str]]:
    """Yield the places of ``.`` and what stands there."""
    source = masked(text)
    for match in _DOT.finditer(source):
        before = source[: match.start()]
        network = inside_network(before)
        if not network and re.search(r"\w\s*\([^()]*$", before):
            message = "'.' is all other columns, as a term or in nn(); name the column"
            raise formula_error(text, message, match.span())
        if not columns:
            raise formula_error(text, "no column is left for '.'", match.span())
        names = (", " if network else " + ").join(map(in_formula, columns))
        yield match.span(), names if network else f"({names})"


def _within(text: str) -> Iterator[Span]:
    """Yield the places of ``%in%`` outside quotes."""
    for match in _WITHIN.finditer(text):
        if match["operator"]:
            yield match.span()


def _in_backticks(text: str) -> str:
    return _replaced(text, ((span, f"`{text[slice(*span)]}`") for span in _dotted(text)))


def _dotted(text: str) -> Iterator[Span]:
    """Yield the places of names with dots that stand outside quotes."""
    for match in _NAMES.finditer(text):
        if match["plain"] and "." in match["plain"] and match["plain"] not in CODINGS:
            yield match.span()


def _nested(text: str) -> Iterator[tuple[Span, str]]:
    """Yield group-level terms such as ``(1 | g/h)``, and ``(1 | g) + (1 | g:h)``."""
    source = masked(text)
    for bar in re.finditer(r"\|\|?", source):
        if "~" not in source[: bar.start()]:
            continue
        start, end = enclosing(source, bar.span(), source.index("~"))
        right = source[bar.end() : end - 1]
        edges = [-1, *(match.start() for match in re.finditer("/", right)), len(right)]
        spans = ((bar.end() + i + 1, bar.end() + j) for i, j in pairwise(edges))
        names = [text[slice(*span)].strip() for span in spans]
        plain = start >= 0 and not set("(|") & set(right)
        if plain and len(names) > 1 and all(names):
            levels = (":".join(names[: i + 1]) for i in range(len(names)))
            effects = text[start + 1 : bar.start()].strip()
            yield (start, end), " + ".join(f"({effects} {bar[0]} {by})" for by in levels)


def _replaced(text: str, changes: Iterator[tuple[Span, str]]) -> str:
    """Put other text in some places."""
    pieces, last = [], 0
    for (start, end), new in changes:
        pieces += [text[last:start], new]
        last = end
    return "".join([*pieces, text[last:]])
