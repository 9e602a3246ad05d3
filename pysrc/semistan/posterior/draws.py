"""Posterior draws, read from the CSV files of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from semistan.posterior.run import Run
from semistan.stan.methods import METHODS, Method, reservations

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Draws of one run; the first two axes are chains C and iterations S.

    Attributes
    ----------
    phi : array, shape (C, S, k)
        Subspace coordinates.
    theta : array, shape (C, S, P)
        Structured coefficients, in the user's units.
    coefficients : dict of arrays, shape (C, S)
        ``b_Intercept`` and the structured coefficients by name.
    dispersion : dict of arrays, shape (C, S)
        Dispersion parameters by name.
    lprior : array, shape (C, S)
        Log prior density.
    sampler : dict of arrays, shape (C, S)
        What the method reports, under ArviZ's names; see ``Method.columns``.
    max_treedepth : int
        The limit on NUTS's tree depth.
    method : Method
        How the draws were made.
    reservations : tuple of str
        What keeps them from being draws of the posterior.
    """

    phi: Array
    theta: Array
    coefficients: dict[str, Array]
    dispersion: dict[str, Array]
    lprior: Array
    sampler: dict[str, Array]
    max_treedepth: int
    method: Method = METHODS["nuts"]
    reservations: tuple[str, ...] = ()

    @property
    def chains(self) -> int:
        """Number of chains C."""
        return len(self.phi)

    @property
    def size(self) -> int:
        """Number of draws over all chains."""
        return len(self.flat(self.phi))

    @property
    def interpreted(self) -> dict[str, Array]:
        """The coefficients and dispersion parameters by name, in the table's order."""
        return {**self.coefficients, **self.dispersion}

    def __repr__(self) -> str:
        names = ", ".join(self.interpreted)
        return (
            f"Draws: {self.chains} chains x {self.phi.shape[1]} of {names}, "
            f"phi ({self.phi.shape[-1]})"
        )

    def flat(self, values: Array) -> Array:
        """Merge the first two axes, chain after chain."""
        return values.reshape(values.shape[0] * values.shape[1], *values.shape[2:])

    def thin(self, size: int) -> Draws:
        """Keep about ``size`` draws in all, at even distances in every chain."""
        iterations = self.phi.shape[1]
        kept = np.linspace(0, iterations - 1, min(iterations, max(1, size // self.chains)))
        index = kept.round().astype(int)

        def some(values: dict[str, Array]) -> dict[str, Array]:
            return {name: array[:, index] for name, array in values.items()}

        return replace(
            self, phi=self.phi[:, index], theta=self.theta[:, index],
            coefficients=some(self.coefficients), dispersion=some(self.dispersion),
            lprior=self.lprior[:, index], sampler=some(self.sampler),
        )  # fmt: skip


def read_draws(run: Run) -> Draws:
    """Read a run's draws.

    Raises
    ------
    InputError
        If a chain is missing.
    """
    method = METHODS[run.options.method]
    chains = [_read_chain(path, method) for path in run.csv_files]
    design, bundle = run.bundle.design, run.bundle

    def scalar(name: str) -> Array:
        return np.stack([chain[name] for chain in chains])

    def vector(name: str, size: int) -> Array:
        parts = [scalar(f"{name}.{i}") for i in range(1, size + 1)]
        return np.stack(parts, axis=-1) if parts else np.zeros((*scalar("lprior").shape, 0))

    return Draws(
        phi=vector("phi", bundle.subspace.k),
        theta=vector("theta", len(design.coefficients)),
        coefficients={name: scalar(name) for name in ("b_Intercept", *design.coefficients)},
        dispersion={name: scalar(name) for name in bundle.family.dispersion},
        lprior=scalar("lprior"),
        sampler={name: scalar(column) for name, column in method.columns.items()},
        max_treedepth=run.options.max_treedepth,
        method=method,
        reservations=reservations(run.options),
    )


def _read_chain(path: Path, method: Method) -> dict[str, Array]:
    """Read the columns of one CSV; ADVI's first line is the approximation's mean, no draw."""
    import pandas as pd

    table = pd.read_csv(path, comment="#", dtype=float)
    kept = table.iloc[1:] if method.name in ("meanfield", "fullrank") else table
    return {str(name): kept[name].to_numpy() for name in kept.columns}
