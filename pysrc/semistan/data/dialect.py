"""How the fields of a text file are separated and written: given, or guessed from its first lines.

A table that R's write.csv2() or a spreadsheet of many countries writes has semicolons and decimal
commas, and older programs write other encodings than UTF-8. Each is guessed by itself, and said.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from semistan.errors import InputError, did_you_mean

AUTO = "auto"
BLANKS = r"\s+"  # one or more, to pandas
WORDS = {"tab": "\t", r"\t": "\t", "blank": BLANKS, "blanks": BLANKS, " ": BLANKS}
SHOWN = {"\t": "tabs", BLANKS: "blanks"}
SEPARATORS = (",", ";", "\t", "|")  # of as many fields, the first is taken
UTF8, OLD = "utf-8", "cp1252"
LINES = 50  # that a guess looks at
SAMPLE = 1 << 16  # bytes of them

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_COMMA, _POINT = (re.compile(rf"[+-]?\d*\{mark}\d+([eE][+-]?\d+)?") for mark in ",.")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text file is written; ``auto`` is guessed.

    Attributes
    ----------
    sep : str
        What stands between two fields: one character, or ``tab`` or ``blank``.
    decimal : str
        The decimal point, or comma.
    encoding : str
        As Python calls it: ``utf-8``, ``cp1252``.
    row_names : bool
        Whether each line begins with a name in quotes that the header does not have, as R's
        write.table() writes it.
    words : frozenset of str
        Columns that are text, whatever their values look like: ``001`` is then no number.
    """

    sep: str = AUTO
    decimal: str = AUTO
    encoding: str = AUTO
    row_names: bool = False
    words: frozenset[str] = frozenset()

    @property
    def text(self) -> str | None:
        """What is unusual, in words; None where nothing is."""
        unusual = (
            self.sep != "," and f"separated by {SHOWN.get(self.sep, repr(self.sep))}",
            self.decimal != "." and "with decimal commas",
            self.encoding not in (UTF8, "utf-8-sig") and f"encoded as {self.encoding}",
            self.row_names and "with row names, which are left out",
        )
        return ", ".join(part for part in unusual if part) or None


def given_dialect(sep: str = AUTO, decimal: str = AUTO, encoding: str = AUTO) -> Dialect:
    """Return what a user says of a file.

    Raises
    ------
    InputError
        If a separator has several characters, a decimal sign is neither a point nor a comma, or
        Python does not know the encoding.
    """
    sep = WORDS.get(sep, sep)
    if len(sep) != 1 and sep not in (AUTO, BLANKS):
        raise InputError(f"--sep takes one character, 'tab', 'blank' or 'auto', got '{sep}'")
    if decimal not in (".", ",", AUTO):
        raise InputError(f"--decimal takes '.', ',' or 'auto', got '{decimal}'")
    if sep == decimal != AUTO:
        raise InputError(f"'{sep}' cannot be between two fields and within a number")
    if encoding != AUTO:
        try:
            "".encode(encoding)
        except (LookupError, ValueError):
            known = (UTF8, "utf-16", OLD, "latin-1")
            raise InputError(
                f"encoding '{encoding}' is unknown; as examples, {', '.join(known)} are known."
                f"{did_you_mean(encoding, known)}"
            ) from None
    return Dialect(sep, decimal, encoding)


def guessed(given: Dialect, sample: bytes) -> Dialect:
    """Complete what is given of a file by what its first bytes, at most SAMPLE, look like."""
    encoding = _encoding(sample) if given.encoding == AUTO else given.encoding
    lines = sample.decode(encoding, "replace").lstrip("\ufeff").splitlines()
    if len(sample) >= SAMPLE:
        lines = lines[:-1]  # which may be cut off
    lines = [line for line in lines if line.strip()][:LINES]
    try:
        sep = _separator(lines) if given.sep == AUTO else given.sep
        commas = sep != "," and _has_commas(_fields(lines[1:], sep))
        row_names = _has_row_names(lines, sep)
    except csv.Error:  # which pandas will explain
        sep, commas, row_names = ",", False, False
    decimal = given.decimal if given.decimal != AUTO else ",."[not commas]
    return replace(given, sep=sep, decimal=decimal, encoding=encoding, row_names=row_names)


def _encoding(sample: bytes) -> str:
    """Return the encoding by the mark at the start, or by how many zeros there are."""
    for mark, name in _MARKS.items():
        if sample.startswith(mark):
            return name
    if sample.count(0) > len(sample) // 4:  # ASCII in two bytes each, the high one first or second
        return "utf-16-be" if sample[:1] == b"\0" else "utf-16-le"
    return UTF8


def _separator(lines: list[str]) -> str:
    """Return what separates most names in the header, or blanks if nothing else does."""
    if not lines:
        return ","
    numbers = [len(fields) for sep in SEPARATORS for fields in _fields(lines[:1], sep)]
    if max(numbers) > 1:
        return SEPARATORS[numbers.index(max(numbers))]
    names, *rows = (len(fields) for fields in _fields(lines, BLANKS))
    return BLANKS if names > 1 and rows and set(rows) <= {names, names + 1} else ","


def _has_commas(rows: Iterable[list[str]]) -> bool:
    """Say whether numbers have decimal commas and none has a point."""
    fields = [field.strip() for row in rows for field in row]
    return any(map(_COMMA.fullmatch, fields)) and not any(map(_POINT.fullmatch, fields))


def _has_row_names(lines: list[str], sep: str) -> bool:
    """Say whether lines between blanks or tabs have a quoted name before the header's fields."""
    if sep not in (BLANKS, "\t") or len(lines) < 2:
        return False
    names, *rows = (len(fields) for fields in _fields(lines, sep))
    quoted = all(line.lstrip().startswith('"') for line in lines[1:])
    return quoted and set(rows) == {names + 1}


def _fields(lines: Iterable[str], sep: str) -> Iterator[list[str]]:
    if sep == BLANKS:
        stripped = (re.sub(r"\s+", " ", line.strip()) for line in lines)
        return csv.reader(stripped, delimiter=" ")
    return csv.reader(lines, delimiter=sep)
