"""Names in Stan and in tables for what has a name in the data.

A name in Stan has letters from a to z, digits and underscores. Other letters are written in
these, by their sound where that is simple, by their Unicode name, or by their number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import count

NAMELESS = "column"  # of what has neither a letter nor a digit

_CYRILLIC = "а б в г ґ д е ж з и й к л м н о п р с т у ф х ц ч ш щ ъ ы ь э ю я"
_AS_CYRILLIC = "a b v g g d e zh z i y k l m n o p r s t u f kh ts ch sh shch - y - e yu ya"
_GREEK = "α β γ δ ε ζ η θ ι κ λ μ ν ξ ο π ρ σ ς τ υ φ χ ψ ω"
_AS_GREEK = "a v g d e z i th i k l m n x o p r s s t y f ch ps o"
_LATIN = "ß þ ð"
_AS_LATIN = "ss th d"
SOUNDS = {
    letter: sound.strip("-")
    for letter, sound in zip(
        f"{_CYRILLIC} {_GREEK} {_LATIN}".split(),
        f"{_AS_CYRILLIC} {_AS_GREEK} {_AS_LATIN}".split(),
        strict=True,
    )
}
_SYMBOL = re.compile("(?<![\u0370-\u03ff])[\u00b5\u0370-\u03ff](?![\u0370-\u03ff])")


def stan_name(column: str) -> str:
    """Turn a design column into a part of a Stan name: ``C(g)[T.b]`` becomes ``gb``."""
    name = re.sub(r"\bC\(([^(),]*)(?:[^()]|\([^()]*\))*\)", r"\1", column)
    name = re.sub(r"\bI\(((?:[^()]|\([^()]*\))*)\)", r"\1", name)
    name = re.sub(r"\[(?:T\.|S\.|H\.|D\.)?([^\]]*)\]", r"\1", name)
    name = re.sub(r"[^A-Za-z0-9]+", "_", latin(name.replace("(", "").replace(")", "")))
    return name.strip("_")


def unique_names(columns: Iterable[str], taken: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return a part of a Stan name for each column, all different.

    Parameters
    ----------
    columns : iterable of str
        Design columns. Of several with one name, the first has it and others have numbers.
    taken : tuple of str
        Names that none may have.
    """
    wanted = [stan_name(column) or NAMELESS for column in columns]
    found: list[str] = []
    for name in wanted:
        numbered = (f"{name}_{i}" for i in count(2))
        free = (own for own in numbered if own not in (*wanted, *found, *taken))
        found.append(next(free) if name in found or name in taken else name)
    return tuple(found)


def tells(name: str, column: str) -> bool:
    """Say whether a reader of a name in Stan can tell the column."""
    plain = stan_name(column)
    return bool(plain) and column.isascii() and name.endswith(plain)


def latin(text: str) -> str:
    """Write letters and digits in ASCII; a Greek letter by itself is a symbol, as ``sigma``."""
    return "".join(map(_latin, _SYMBOL.sub(lambda match: _letter(match[0]), text)))


def _latin(character: str) -> str:
    if character.isascii():
        return character
    if (sound := SOUNDS.get(character.lower())) is not None:
        return sound.capitalize() if character.isupper() else sound
    parts = [part for part in unicodedata.normalize("NFKD", character) if _kind(part) != "M"]
    if parts != [character] and all(part.isascii() or part.lower() in SOUNDS for part in parts):
        return "".join(map(_latin, parts))
    if unicodedata.decimal(character, None) is not None:
        return str(unicodedata.decimal(character))
    return _letter(character) if _kind(character) == "L" else character


def _letter(character: str) -> str:
    """Return a letter's name, as ``ka`` of the Japanese one, or its number."""
    character = unicodedata.normalize("NFKC", character)[0]
    name = unicodedata.name(character, "")
    if not re.search(r"\b(LETTER|SYLLABLE|LIGATURE)\b", name):
        return f"u{ord(character):x}"
    word = re.sub("[^A-Z0-9]", "", name.partition(" WITH ")[0].split()[-1])
    word = {"LAMDA": "LAMBDA"}.get(word, word)
    return word.capitalize() if character.isupper() else word.lower()


def _kind(character: str) -> str:
    return unicodedata.category(character)[0]
