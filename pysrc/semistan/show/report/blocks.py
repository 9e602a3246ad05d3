"""What a page is made of: frozen values without any markup.

In authored texts, words between backticks are code; nothing else is markup, and everything is
escaped when the page is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from semistan.show.report.numbers import number


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of authored text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of authored sentences."""

    kind: ClassVar[str] = "bullets"
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A term and what is known of it; names, formulas and hashes are code."""

    term: str
    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """A list of terms with their descriptions."""

    kind: ClassVar[str] = "facts"
    items: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, and the number by which it is sorted."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name, and whether its cells are numbers, code or words."""

    name: str
    style: str = "number"


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names its rows."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = True


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as a ``data:`` address, with its size in pixels and its alternative text."""

    source: str
    caption: str
    alt: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Gallery:
    """Pictures that belong together."""

    kind: ClassVar[str] = "gallery"
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A text to be copied; a folded one is opened by its label."""

    kind: ClassVar[str] = "code"
    label: str
    text: str
    language: str = "text"
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """A box at the top of the page: what is wrong, and what to do."""

    kind: ClassVar[str] = "notice"
    level: str
    title: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Equation:
    """The model's equations.

    Attributes
    ----------
    left : str
        What the linear predictor is, as ``log E[y]``.
    by_category : bool
        Whether each category has its own.
    ordered : bool
        Whether thresholds are subtracted.
    every : bool
        Whether all weights are sampled, which have no directions.
    """

    kind: ClassVar[str] = "equation"
    left: str
    by_category: bool
    ordered: bool
    every: bool


Block = Paragraph | Bullets | Heading | Facts | Table | Gallery | Code | Equation


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with its entry in the table of contents."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the page shows.

    Attributes
    ----------
    title : str
        The page's title.
    formula : str
        The model's formula.
    glance : tuple of str
        The shortest facts, below the title.
    notices : tuple of Notice
        What must be known before anything is read.
    sections : tuple of Section
        In the page's order.
    colophon : str
        The last line.
    """

    title: str
    formula: str
    glance: tuple[str, ...]
    notices: tuple[Notice, ...]
    sections: tuple[Section, ...]
    colophon: str


def galleries(pictures: Iterable[Picture]) -> tuple[Gallery, ...]:
    """Return one gallery, or none without pictures."""
    shown = tuple(pictures)
    return (Gallery(shown),) if shown else ()


def number_cell(value: float, digits: int) -> Cell:
    """Return a number rounded to some digits, sorted by its exact value."""
    return Cell(number(value, digits), value)
