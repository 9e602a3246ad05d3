"""The constructions of a subspace by name, and what the model has to know of each.

A construction is one file of the room ``subspace``, which comes after the model and is named here
as text alone: its record is read from there when it is first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from semistan.errors import InputError, did_you_mean

Moves = Literal["directions", "axes", "both", "all"]  # what phi moves: along Pi, single weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructionFacts:
    """What is known of a construction before anything is trained.

    Attributes
    ----------
    name : str
        As in ``[subspace] construction``.
    text : str
        What the subspace is, in a few words.
    holds_theta : bool
        Whether the structured coefficients lie in the subspace, without a prior of their own.
    scales_phi : bool
        Whether training gives each coordinate a prior scale of its own.
    moves : str
        What phi moves: weights along the ``directions`` of Pi, single weights (``axes``), or
        ``all`` weights, in their order.
    widens : bool
        Whether the subspace can be widened beyond what spans it, up to all weights.
    """

    name: str
    text: str
    holds_theta: bool = False
    scales_phi: bool = False
    moves: Moves = "directions"
    widens: bool = False


# A module whose CONSTRUCTION is the record, or the record itself.
CONSTRUCTIONS: dict[str, str | ConstructionFacts] = {
    "bezier": "semistan.subspace.bezier",
    "curve": "semistan.subspace.connecting_curve",
    "pca": "semistan.subspace.pca",
    "random": "semistan.subspace.random_directions",
    "subnetwork": "semistan.subspace.subnetwork",
    "low_rank_laplace": "semistan.subspace.low_rank_laplace",
    "full": "semistan.subspace.full",
    "naive": "semistan.subspace.naive",
}


NARROW = 8  # dimensions of a Bézier curve, and of what cannot be widened, where k is "auto"


def known_construction(name: str) -> str:
    """Return the name of a construction that there is.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    if name not in CONSTRUCTIONS:
        raise InputError(f"unknown construction '{name}'.{did_you_mean(name, CONSTRUCTIONS)}")
    return name


def construction_facts(name: str) -> ConstructionFacts:
    """Look up a construction's record.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    found = CONSTRUCTIONS[known_construction(name)]
    record = import_module(found).CONSTRUCTION if isinstance(found, str) else found
    assert isinstance(record, ConstructionFacts)
    return record
