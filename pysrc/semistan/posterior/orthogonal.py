"""Draws of coefficients that are orthogonalised to the network, and what of it they hold.

In each draw, gamma is the least-squares fit of the network's part on some structured columns over
the training rows. It belongs to the draw: new rows are split with the same gamma,

    x' theta + f = x' (theta + gamma) + (f - x_s' gamma).

``orthogonal.npz`` in a run's folder keeps it, because it needs the network at all training rows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from semistan.bundle.files import atomic_file
from semistan.bundle.foreign import TEXTS, read_arrays
from semistan.density.features import at_features
from semistan.density.predictor import (
    MOST_ACTIVATIONS,
    completion_sums,
    network_inputs,
    network_sums,
)
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.orthogonal import least_squares
from semistan.model.table.rows import Rows

STORED = "orthogonal.npz"


@dataclass(frozen=True, slots=True, eq=False)
class Orthogonal:
    """What of the network some coefficients hold.

    Attributes
    ----------
    columns : tuple of int
        Positions of the structured columns.
    gamma : array, shape (C, S, p)
        What the network says along them, in the user's units.
    in_model : bool
        Whether the program samples the orthogonalised coefficients, with their prior.
    unidentified : tuple of str
        Coefficients that are reported but stand beside the network as it is.
    """

    columns: tuple[int, ...]
    gamma: Array
    in_model: bool
    unidentified: tuple[str, ...]

    def added(self, theta: Array) -> Array:
        """Return theta (C, S, P) with gamma added at its columns."""
        total = theta.copy()
        total[..., list(self.columns)] += self.gamma
        return total

    def part(self, where: tuple[slice | np.ndarray, ...]) -> Orthogonal:
        """Keep some draws, by their positions on the first axes."""
        return replace(self, gamma=self.gamma[where])


def network_along(
    bundle: Bundle, rows: Rows, phi: Array, columns: tuple[int, ...], psi: Array | None = None
) -> Array:
    """Regress the network's part on some structured columns in each draw.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        The training rows.
    phi : array, shape (..., k)
        Subspace coordinates.
    columns : tuple of int
        Positions of the columns.
    psi : array, shape (..., K), optional
        Coordinates outside the subspace, if it is completed.

    Returns
    -------
    array, shape (..., p)
        gamma, in the user's units.
    """
    bundle, rows = at_features(bundle, rows)
    units, chosen = bundle.units, list(columns)
    A = least_squares((rows.X[:, chosen] - units.x_loc[chosen]) / units.x_scale[chosen])
    draws = phi.reshape(-1, phi.shape[-1])
    size = max(1, MOST_ACTIVATIONS // bundle.network.widest)
    parts = (
        (network_inputs(units, rows.U[piece]), A[:, piece])
        for piece in (slice(start, start + size) for start in range(0, len(rows), size))
    )
    total = network_sums(bundle.network, bundle.subspace, draws, parts)
    if psi is not None and bundle.completion:
        flat = psi.reshape(-1, psi.shape[-1])
        total = total + completion_sums(bundle.network, units, bundle.completion, rows.U, flat, A)
    gamma = total * units.theta_scale[chosen]
    return np.asarray(gamma.reshape(*phi.shape[:-1], len(chosen)))


def write_gamma(path: Path, phi: Array, orthogonal: Orthogonal) -> None:
    """Keep gamma (C, S, p) of draws phi (C, S, k) in a file."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            key=_key(phi), columns=np.array(orthogonal.columns), gamma=orthogonal.gamma,
        )  # fmt: skip


def read_gamma(path: Path, phi: Array, columns: tuple[int, ...]) -> Array | None:
    """Read gamma (C, S, p), or None if there is none of these draws and columns."""
    if not path.is_file():
        return None
    kept = read_arrays(path, TEXTS)
    same = str(kept["key"]) == _key(phi) and tuple(kept["columns"].tolist()) == columns
    return np.asarray(kept["gamma"]) if same else None


def _key(phi: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(phi, dtype="<f8").tobytes()).hexdigest()
