"""Data sets whose truth is known: functions x rows x noise x families.

    eta = level + scale (f(u) + x' theta)
    u: 5 inputs, uniform with standard deviation 1, correlation of their normal scores 0.3
    x: x1 = 0.5 u1 + normal, x2 = 1[u2 + normal > 0] - 1/2; theta = (0.5, -0.5)

f has mean 0 and standard deviation 1 over the inputs' distribution. Structured columns vary with
the inputs but are none of them, so that theta is identified. High noise is a residual standard
deviation as large as f's of gaussian responses, and a small ``scale`` of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy import stats

from semistan.model.arrays import Array
from studies.problem import Facts

NEW_ROWS = 500
THETA = (0.5, -0.5)
STRUCTURED = ("x1", "x2")
INPUTS = ("u1", "u2", "u3", "u4", "u5")
SIGMA = {"low": 0.3, "high": 1.0}  # of a gaussian response; scale 1
SCALE = {
    "gaussian": {"low": 1.0, "high": 1.0},
    "poisson": {"low": 0.8, "high": 0.3},
    "bernoulli": {"low": 1.5, "high": 0.6},
}
LEVEL = {"gaussian": 0.0, "poisson": 1.0, "bernoulli": 0.0}

FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "linear": lambda u: u[:, 0] - 0.5 * u[:, 1] + 0.25 * u[:, 2],
    "additive": lambda u: np.sin(1.5 * u[:, 0]) + 0.5 * u[:, 1] ** 2 + np.tanh(2 * u[:, 2]),
    "interactions": lambda u: (
        np.sin(u[:, 0] * u[:, 1]) + 0.5 * (u[:, 2] - 0.3) ** 2 + 0.5 * u[:, 3] + 0.25 * u[:, 4]
    ),
    "step": lambda u: np.tanh(4 * (u[:, 0] + u[:, 1] - u[:, 2])),
    "periodic": lambda u: np.sin(2 * np.pi * u[:, 0] / np.sqrt(3)) + 0.3 * u[:, 1],
    "product": lambda u: u[:, 0] * u[:, 1],
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a data set is drawn from.

    Attributes
    ----------
    function, family, noise : str
        A key of ``FUNCTIONS``, of ``SCALE``, and ``low`` or ``high``.
    rows : int
        Training rows N.
    """

    function: str
    rows: int
    noise: str
    family: str

    @property
    def scale(self) -> float:
        """Standard deviation of f's part of eta."""
        return SCALE[self.family][self.noise]


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """One table and its truth.

    Attributes
    ----------
    training, new : pandas.DataFrame
        The training rows, and the new ones, with their response.
    facts : Facts
        The model.
    eta : array, shape (N,)
        The new rows' linear predictor.
    theta : array, shape (P,)
        The structured coefficients.
    sigma : float
        Residual standard deviation of a gaussian response.
    """

    training: pd.DataFrame
    new: pd.DataFrame
    facts: Facts
    eta: Array
    theta: Array
    sigma: float


def simulate(setting: Setting, number: int, new_rows: int = NEW_ROWS) -> DataSet:
    """Draw a setting's data set of some number; the same number has the same columns."""
    generator = np.random.default_rng(
        [number, setting.rows, list(FUNCTIONS).index(setting.function)]
    )
    total = setting.rows + new_rows
    u, x = _columns(total, generator)
    theta, sigma = setting.scale * np.array(THETA), SIGMA[setting.noise]
    eta = LEVEL[setting.family] + setting.scale * _unit(setting.function, u) + x @ theta
    y = _response(setting.family, eta, sigma, generator)
    frame = pd.DataFrame(u, columns=list(INPUTS)).assign(
        **dict(zip(STRUCTURED, x.T, strict=True)), y=y
    )
    training, new = frame[: setting.rows], frame[setting.rows :].reset_index(drop=True)
    facts = Facts(setting.family, "y", STRUCTURED, INPUTS)
    return DataSet(training, new, facts, eta[setting.rows :], theta, sigma)


def _columns(rows: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """Draw inputs (N, Q) and structured columns (N, P)."""
    Q = len(INPUTS)
    correlation = np.full((Q, Q), 0.3) + 0.7 * np.eye(Q)
    scores = generator.multivariate_normal(
        np.zeros(Q),
        correlation,
        size=rows,
        method="cholesky",  # the same on every processor
    )
    u = np.sqrt(12) * (stats.norm.cdf(scores) - 0.5)
    noise = generator.normal(size=(rows, 2))
    return u, np.column_stack([0.5 * u[:, 0] + noise[:, 0], (u[:, 1] + noise[:, 1] > 0) - 0.5])


def _unit(function: str, u: Array) -> Array:
    mean, sd = _moments(function)
    return (FUNCTIONS[function](u) - mean) / sd


@lru_cache
def _moments(function: str) -> tuple[float, float]:
    """Return a function's mean and standard deviation over the inputs' distribution."""
    values = FUNCTIONS[function](_columns(200_000, np.random.default_rng(0))[0])
    return float(values.mean()), float(values.std())


def _response(family: str, eta: Array, sigma: float, generator: np.random.Generator) -> Array:
    if family == "gaussian":
        return eta + sigma * generator.normal(size=eta.shape)
    if family == "poisson":
        return generator.poisson(np.exp(eta))
    return generator.binomial(1, 1 / (1 + np.exp(-eta)))
