"""What is known of a kind of picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistan.show.pictures.material import Material

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureKind:
    """One kind of picture, and where a report has it.

    Attributes
    ----------
    name : str
        By which users ask for it.
    title : str
        What it shows, in a few words.
    draw : callable
        Maps a Material, and options by keyword, to a figure.
    alt : callable
        Maps the same to one sentence for readers who do not see the figure.
    refusal : callable
        Says why some material has no such picture; nothing if it has.
    place : str
        The gallery of the report that it is in; empty if the report leaves it out.
    reason : str
        Why it is left out.
    hint : str
        What to look for, below the picture in the report.
    of_prior : bool
        Whether it is shown of draws from the prior, which nothing is held against.
    """

    name: str
    title: str
    draw: Callable[..., Figure]
    alt: Callable[..., str]
    refusal: Callable[[Material], str] = lambda _: ""
    place: str = ""
    reason: str = ""
    hint: str = ""
    of_prior: bool = True
