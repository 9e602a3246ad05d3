"""Posterior draws, read from CmdStan's CSV files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistan.posterior.run import Run
from semistan.stan.cmdstan import quiet_cmdstanpy

Array = npt.NDArray[np.float64]

SAMPLER = {
    "lp": "lp__",
    "acceptance_rate": "accept_stat__",
    "step_size": "stepsize__",
    "tree_depth": "treedepth__",
    "n_steps": "n_leapfrog__",
    "diverging": "divergent__",
    "energy": "energy__",
}


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
        What NUTS reports, under ArviZ's names.
    max_treedepth : int
        The limit on the tree depth.
    """

    phi: Array
    theta: Array
    coefficients: dict[str, Array]
    dispersion: dict[str, Array]
    lprior: Array
    sampler: dict[str, Array]
    max_treedepth: int

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

        return Draws(
            self.phi[:, index], self.theta[:, index], some(self.coefficients),
            some(self.dispersion), self.lprior[:, index], some(self.sampler), self.max_treedepth,
        )  # fmt: skip


def read_draws(run: Run) -> Draws:
    """Read a run's draws.

    Raises
    ------
    InputError
        If a chain is missing.
    """
    cmdstanpy = quiet_cmdstanpy()
    fit = cmdstanpy.from_csv([str(path) for path in run.csv_files], method="sample")
    # CmdStanPy's axes are (draw, chain, column).
    values = fit.draws().transpose(1, 0, 2)
    columns: dict[str, int] = {name: i for i, name in enumerate(fit.column_names)}

    def vector(name: str, size: int) -> Array:
        index = [columns[f"{name}[{i}]"] for i in range(1, size + 1)]
        return np.ascontiguousarray(values[..., index])

    def scalar(name: str) -> Array:
        return np.ascontiguousarray(values[..., columns[name]])

    design, bundle = run.bundle.design, run.bundle
    return Draws(
        phi=vector("phi", bundle.subspace.k),
        theta=vector("theta", len(design.coefficients)),
        coefficients={name: scalar(name) for name in ("b_Intercept", *design.coefficients)},
        dispersion={name: scalar(name) for name in bundle.family.dispersion},
        lprior=scalar("lprior"),
        sampler={name: scalar(column) for name, column in SAMPLER.items()},
        max_treedepth=run.options.max_treedepth,
    )
