"""Many inputs by one name: ``nn(emb_*)`` takes all columns that begin with ``emb_``.

An embedding from elsewhere is a table of hundreds of columns. The pattern is replaced by their
names when the table is read, in the table's order, so that a trained model holds the names; where
formulas are shown, a long list of numbered names is shortened again, as ``emb_1, ..., emb_512``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from semistan.model.formula.syntax import check_size, formula_error, masked
from semistan.model.spelling import in_formula

_PATTERN = re.compile(r"[^\W\d]\w*\s*\*(?=\s*[,)])")
_NUMBERED = re.compile(r"(`?)([^\W\d][\w .]*?)(\d+)\1(?:,\s*\1\2\d+\1)+")
LONG = 12  # more names in a row are shown by the first and the last


def has_patterns(text: str) -> bool:
    """Say whether a formula has columns to be looked up in the table."""
    return next(_patterns(text), None) is not None


def with_columns(text: str, columns: Sequence[str]) -> str:
    """Replace the patterns in a formula's ``nn()`` by the columns of a table.

    Parameters
    ----------
    text : str
        The formula.
    columns : sequence of str
        Of the table.

    Raises
    ------
    InputError
        If no column begins as a pattern does, with its place in the formula.
    """
    pieces, end = [], 0
    for start, stop in _patterns(text):
        prefix = text[start:stop].rstrip("* ")
        found = [name for name in columns if name.startswith(prefix)]
        if not found:
            shown = ", ".join(columns[:8]) + (", ..." if len(columns) > 8 else "")
            raise formula_error(
                text, f"no column begins with '{prefix}'; the table has {shown}", (start, stop)
            )
        pieces += [text[end:start], ", ".join(map(in_formula, found))]
        end = stop
    return "".join([*pieces, text[end:]])


def with_prefixes(text: str) -> str:
    """Replace the patterns by what the names begin with, where no table says which these are."""
    pieces, end = [], 0
    for start, stop in _patterns(text):
        pieces += [text[end:start], text[start:stop].rstrip("* ")]
        end = stop
    return "".join([*pieces, text[end:]])


def shortened(text: str) -> str:
    """Leave out the middle of long lists of numbered names, for people."""
    return _NUMBERED.sub(_ends, text)


def _patterns(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of patterns, which stand within ``nn()`` and before a comma or its end."""
    check_size(text)
    source = masked(text)
    for match in _PATTERN.finditer(source):
        if inside_network(source[: match.start()]):
            yield match.span()


def inside_network(before: str) -> bool:
    """Say whether the innermost call that is open at the end of a text is ``nn()``."""
    depth = 0
    for position in range(len(before) - 1, -1, -1):
        depth += (before[position] == ")") - (before[position] == "(")
        if depth < 0:
            return re.search(r"(?<![\w.])nn\s*$", before[:position]) is not None
    return False


def _ends(match: re.Match[str]) -> str:
    names = re.split(r",\s*", match[0])
    return match[0] if len(names) <= LONG else f"{names[0]}, ..., {names[-1]}"
