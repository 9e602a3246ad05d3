"""What every contender of the studies is given, and what it gives back.

    contender(problem) -> Found

A contender fits g(E[y]) = x' theta + f(u) to the training rows and draws the linear predictor eta
at new rows. It may read the new rows' columns; their response is for the score alone:

    lpd_i = log (1/S) sum_s p(y_i | draw s),    LPPD = mean of lpd_i over the new rows
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit, logsumexp

from semistan.model.arrays import Array
from semistan.posterior.diagnostics import ETA_ROWS, convergence, together, worst

HIDDEN, QUICK_HIDDEN = (16, 16), (8,)  # units of each hidden layer, of all networks
FAMILIES = ("gaussian", "poisson", "bernoulli")  # with their default links


@dataclass(frozen=True, slots=True)
class Facts:
    """The model that all contenders are told.

    Attributes
    ----------
    family : str
        One of ``FAMILIES``.
    response : str
        Column of y.
    structured, inputs : tuple of str
        Columns of x, (P), and of u, (Q).
    """

    family: str
    response: str
    structured: tuple[str, ...]
    inputs: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """All columns but the response, structured ones first."""
        return [*self.structured, *self.inputs]

    @property
    def formula(self) -> str:
        """The model in semistan's words."""
        return self._mean(f"nn({', '.join(self.inputs)})")

    @property
    def formula_with_sigma(self) -> str:
        """The model with a second output of the network, for log sigma."""
        network = f"nn({', '.join(self.inputs)}, shared='f')"
        return f"{self._mean(network)}, sigma ~ {network}"

    def _mean(self, network: str) -> str:
        return f"{self.response} ~ {' + '.join([*self.structured, network])}"


@dataclass(frozen=True, eq=False)
class Problem:
    """What a contender is given.

    Attributes
    ----------
    training, new : pandas.DataFrame
        Rows to fit and rows to predict, both with all columns.
    facts : Facts
        The model.
    seed : int
        Of whatever the contender draws.
    quick : bool
        Whether to train and sample briefly, with a small network: figures mean nothing then.
    layers : tuple of int, optional
        Units of each hidden layer, whether quick or not; by default ``HIDDEN``.
    activation : str
        ``tanh`` or ``relu``, of all networks but those of bde.
    """

    training: pd.DataFrame
    new: pd.DataFrame
    facts: Facts
    seed: int
    quick: bool
    layers: tuple[int, ...] | None = None
    activation: str = "tanh"

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        if self.layers is not None:
            return self.layers
        return QUICK_HIDDEN if self.quick else HIDDEN

    @property
    def new_y(self) -> Array:
        """The new rows' response, which only scores may read."""
        return self.new[self.facts.response].to_numpy(dtype=float)

    @cached_property
    def standard(self) -> Standard:
        """The rows in units of the training rows' standard deviations."""
        return standardise(self)


@dataclass(frozen=True, slots=True, eq=False)
class Standard:
    """A problem's rows for libraries that do not standardise them.

    Attributes
    ----------
    inputs, new_inputs : array, shape (N, P + Q)
        Structured columns first; mean 0 and standard deviation 1 in the training rows.
    y : array, shape (N,)
        The training rows' response, standardised if it is gaussian.
    x_scale : array, shape (P,)
        Standard deviations of the structured columns.
    y_loc, y_scale : float
        Mean and standard deviation of a gaussian response, 0 and 1 of others.
    """

    inputs: Array
    new_inputs: Array
    y: Array
    x_scale: Array
    y_loc: float
    y_scale: float

    def eta(self, eta: Array) -> Array:
        """Return a linear predictor in the response's units."""
        return self.y_loc + self.y_scale * eta

    def theta(self, theta: Array) -> Array:
        """Return coefficients (S, P) in the units of response and columns."""
        return theta * self.y_scale / self.x_scale


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a contender gives back.

    Attributes
    ----------
    eta : array, shape (S, N)
        Draws of the linear predictor at the new rows.
    lpd : array, shape (N,)
        Log predictive density of the new rows' response.
    seconds : float
        From the table to the predictions; compiling semistan's program is left out.
    theta : array, shape (S, P), optional
        Draws of the structured coefficients; None where the contender has none.
    rhat, ess : float
        The largest rank-normalised Rhat and the least bulk-ESS of eta over new rows; nan where
        there are no chains.
    sigma : array, shape (S, 1), optional
        Draws of a gaussian response's residual standard deviation, where it is one number.
    notes : mapping
        What else is worth a record, JSON values by name.
    """

    eta: Array
    lpd: Array
    seconds: float
    theta: Array | None = None
    rhat: float = np.nan
    ess: float = np.nan
    sigma: Array | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


def standardise(problem: Problem) -> Standard:
    """Standardise a problem's columns, and its response if it is gaussian."""
    facts, training = problem.facts, problem.training
    columns = training[facts.columns].to_numpy(dtype=float)
    loc, scale = columns.mean(axis=0), columns.std(axis=0)
    new = problem.new[facts.columns].to_numpy(dtype=float)
    y = training[facts.response].to_numpy(dtype=float)
    gaussian = facts.family == "gaussian"
    y_loc, y_scale = (float(y.mean()), float(y.std())) if gaussian else (0.0, 1.0)
    return Standard(
        inputs=(columns - loc) / scale,
        new_inputs=(new - loc) / scale,
        y=(y - y_loc) / y_scale,
        x_scale=scale[: len(facts.structured)],
        y_loc=y_loc,
        y_scale=y_scale,
    )


def log_density(family: str, y: Array, eta: Array, sigma: Array | float = 1.0) -> Array:
    """Return the log density of responses (N,) under draws, shape (S, N).

    Parameters
    ----------
    family : str
        One of ``FAMILIES``.
    y : array, shape (N,)
        Responses.
    eta : array, shape (S, N)
        Linear predictors.
    sigma : array or float
        Residual standard deviation of gaussian ones, of a shape that broadcasts to (S, N).
    """
    if family == "gaussian":
        return np.asarray(stats.norm.logpdf(y, eta, sigma))
    if family == "poisson":
        return np.asarray(stats.poisson.logpmf(y, np.exp(eta)))
    return np.asarray(stats.bernoulli.logpmf(y, expit(eta)))


def predictive_density(family: str, y: Array, eta: Array, sigma: Array | float = 1.0) -> Array:
    """Return the log density (N,) of the mixture of all draws; arguments as ``log_density``."""
    return mixed(log_density(family, y, eta, sigma))


def mixed(log_lik: Array) -> Array:
    """Return log mean exp over draws: (S, N) to (N,)."""
    return np.asarray(logsumexp(log_lik, axis=0) - np.log(len(log_lik)))


def agreement(eta: Array, groups: int, chains: int) -> tuple[float, float]:
    """Return the largest Rhat and the least bulk-ESS of eta over evenly spaced rows.

    Parameters
    ----------
    eta : array, shape (S, N)
        Draws, chain after chain.
    groups : int
        Sets of chains of which each has a posterior of its own, as several subspaces: the Rhat
        is the largest within a set, the ESS the sum over them.
    chains : int
        Chains of each set.
    """
    draws = eta.reshape(groups, chains, -1, eta.shape[1])
    rows = np.linspace(0, eta.shape[1] - 1, min(ETA_ROWS, eta.shape[1])).astype(int)
    figures = worst(
        [
            together([convergence(group[..., row]) for group in draws], [1.0] * groups)
            for row in rows
        ]
    )
    return figures.rhat, figures.bulk_ess
