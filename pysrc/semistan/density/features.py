"""The features: what constant leading layers make of the networks' inputs.

Behind them, everything works with the heads of the networks, whose inputs the features are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.inputs import Inputs
from semistan.density.pieces import pieces_of
from semistan.density.problem import Problem
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.networks.leading import Leading
from semistan.model.table.rows import Rows
from semistan.model.trained import Trained

if TYPE_CHECKING:
    from torch import Tensor

NUMBERS = 500_000  # of the widest layer that are held at a time, as fits a processor's caches
CONSTANT = 1e-12  # standard deviation of a feature that is the same for all rows


def at_features(bundle: Bundle, rows: Rows) -> tuple[Bundle, Rows]:
    """Return a bundle of the heads and the rows with their inputs; both as they are without.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        Rows whose U (N, Q) are inputs of its whole networks, in the user's units.

    Returns
    -------
    Bundle
        Without constant weights; its networks' inputs have the features' locations and scales.
    Rows
        With the features (N, m) as U.
    """
    heads, H = inputs_at_features(bundle, rows.U)
    return heads, rows if heads is bundle else replace(rows, U=H)


def inputs_at_features(bundle: Bundle, U: Array) -> tuple[Bundle, Array]:
    """Return a bundle of the heads and their inputs, as ``at_features``."""
    if not len(bundle.trained.w_frozen):
        return bundle, U
    H = features(bundle, U)
    trained = bundle.trained
    loc, scale = trained.feature_units(H.shape[1])
    units = replace(bundle.units, u_loc=loc, u_scale=scale)
    trained = replace(trained, w_frozen=np.zeros(0))
    return replace(bundle, units=units, trained=trained), H


def features(bundle: Bundle, U: Array) -> Array:
    """Return the features (N, m) of inputs (N, Q) in the user's units."""
    leading, units = bundle.model.leading, bundle.units
    w_frozen = torch.tensor(bundle.trained.w_frozen)

    def of_rows(piece: slice) -> Tensor:
        standardised = torch.tensor((U[piece] - units.u_loc) / units.u_scale)
        return leading.features(w_frozen, standardised)

    return np.asarray(in_pieces(len(U), leading.whole.widest, of_rows).numpy())


@dataclass(frozen=True, slots=True, eq=False)
class HeadProblem:
    """What is behind constant layers: the problem of the heads, and the features' units."""

    problem: Problem
    w_frozen: Array
    h_loc: Array
    h_scale: Array

    def completed(self, trained: Trained) -> Trained:
        """Return what was trained behind the layers, with these."""
        return replace(trained, w_frozen=self.w_frozen, h_loc=self.h_loc, h_scale=self.h_scale)


def head_problem(problem: Problem, leading: Leading, w_frozen: Tensor) -> HeadProblem:
    """Take a problem of whole networks through their constant layers.

    Parameters
    ----------
    problem : Problem
        The training rows, with the standardised inputs of the whole networks.
    leading : Leading
        The networks; at least one has constant layers.
    w_frozen : torch.Tensor, shape (d_frozen,)
        Their weights.
    """

    def of_rows(piece: slice) -> Tensor:
        return leading.features(w_frozen, problem.inputs.rows(piece).values)

    H = in_pieces(len(problem), leading.whole.widest, of_rows)
    loc, scale = H.mean(dim=0), H.std(dim=0)
    scale = torch.where(scale > CONSTANT, scale, 1.0)
    # What a network multiplies is no feature of its own, and has its scale already.
    columns = list(leading.heads.multipliers.values())
    loc[columns], scale[columns] = 0.0, 1.0
    heads = replace(problem, network=leading.heads, inputs=Inputs((H - loc) / scale))
    return HeadProblem(heads, *(tensor.cpu().numpy() for tensor in (w_frozen, loc, scale)))


def in_pieces(N: int, widest: int, of_rows: Callable[[slice], Tensor]) -> Tensor:
    """Return what networks make of all rows (N, m), of which some are computed at a time.

    They are written into one array: kept as pieces, they would lie between the large arrays of the
    layers, whose memory could not be used again.
    """
    H: Tensor | None = None
    with torch.no_grad():
        for piece in pieces_of(N, widest, NUMBERS):
            found = of_rows(piece)
            H = found.new_empty(N, found.shape[1]) if H is None else H
            H[piece] = found
    assert H is not None
    return H
