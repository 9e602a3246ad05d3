"""Which share of the response's variance a fit explains, and which of its parts does.

In each draw s, with means mu_s over rows i and the variance v_s that the response has beside them,

    R2_s = V_i mu_is / (V_i mu_is + v_s),        v_s = mean_i Var(y_i | draw s)

(Gelman, Goodrich, Gabry and Vehtari, 2019, The American Statistician 73). Of a family whose record
has no variance, v_s is V_i (y_i - mu_is), the variance of the residuals. LOO-R2 has each row
predicted by the draws of a fit without it, by PSIS,

    LOO-R2 = 1 - V_i (y_i - E[mu_i | y_-i]) / V_i y_i,

and its uncertainty by the Bayesian bootstrap of the rows, as R's rstanarm. The linear predictor
is the sum of its parts, so that the shares of part j

    share_j = Cov_i(eta_ij, eta_i) / V_i eta_i,

add up to 1; that of a part that works against the others is negative. ``alone`` is
V_i eta_ij / V_i eta_i. All means over rows have the rows' weights; rows without trials, whose
response is 0 whatever the model says, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.left_out import left_out
from semistan.model.table.rows import Rows
from semistan.posterior.effects.estimates import estimates_table
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import (
    distribution,
    expected,
    log_lik,
    posterior_linpred,
    row_chunks,
)
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.scoring.loo import CONDITIONAL, loo_obstacle, psis_weights
from semistan.posterior.weighting import counting
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

BOOTSTRAPS = 4000
PARTS = {"structured": "structured", "network": "nn", "smooths and groups": "penalised"}


@dataclass(frozen=True, slots=True, eq=False)
class R2:
    """Explained variance.

    Attributes
    ----------
    measures : pandas.DataFrame
        ``measure`` (``R2`` and ``LOO-R2``), estimate, error and interval.
    parts : pandas.DataFrame
        ``part`` of the linear predictor, its share with error and interval, and ``alone``.
    notes : tuple of str
        How the residual variance was found, and what is left out.
    """

    measures: pd.DataFrame
    parts: pd.DataFrame
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        tables = (table_text(self.measures), table_text(self.parts))
        return "\n\n".join([*tables, "\n".join(self.notes)])

    def table(self) -> pd.DataFrame:
        """Return the measures."""
        return self.measures


def r2(
    posterior: Posterior, rows: Rows, *, interval: float = 0.95, generator: np.random.Generator
) -> R2:
    """Compute R2, LOO-R2 and the shares of the parts.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows.
    interval : float
        Probability of the intervals.
    generator : numpy.random.Generator
        Of the bootstrap.

    Raises
    ------
    InputError
        If the response has categories or may be censored, so that its variance is not known, or
        the interval is no probability.
    """
    import pandas as pd

    family = posterior.family
    if family.mean is None or family.categories:
        raise InputError(
            f"a response of family {family.name} has categories and so no variance to be "
            "explained; 'semistan score --newdata' has the scores of such a response"
        )
    if family.censored:
        raise InputError(
            "the response may be censored, so that its variance is not known; 'semistan score' has "
            "the log predictive density"
        )
    explained, parts, loo_mean = _moments(posterior, rows)
    values = {"R2": explained}
    obstacle = loo_obstacle(posterior)
    if loo_mean is not None:
        values["LOO-R2"] = loo_r2(_y(rows), loo_mean, counting(rows), generator)
    tables = [
        estimates_table(pd.DataFrame({"measure": [name]}), draws[:, None], (), interval)
        for name, draws in values.items()
    ]
    return R2(
        pd.concat(tables, ignore_index=True),
        parts.table(interval),
        _notes(posterior, rows, f"No LOO-R2: {obstacle}." if obstacle else ""),
    )


def loo_r2(y: Array, mean: Array, weight: Array, generator: np.random.Generator) -> Array:
    """Return bootstrapped LOO-R2 (B,), given responses, their left-out means and weights (N,)."""
    keep = weight > 0
    y, error = y[keep], (y - mean)[keep]
    found = []
    for _ in range(BOOTSTRAPS):
        shares = generator.standard_exponential(len(y)) * weight[keep]
        shares /= shares.sum()
        found.append(1 - _variance(error[None], shares)[0] / _variance(y[None], shares)[0])
    return np.array(found)


def _y(rows: Rows) -> Array:
    assert rows.y is not None
    return rows.y


def _variance(values: Array, shares: Array) -> Array:
    """Return the variance (S,) of values (S, N) over rows of these shares (N,)."""
    means = values @ shares
    return np.asarray(np.square(values - means[:, None]) @ shares)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Shares (S,) by part, and the variance of each alone."""

    share: dict[str, Array]
    alone: dict[str, Array]

    def table(self, interval: float) -> pd.DataFrame:
        import pandas as pd

        labels = pd.DataFrame({"part": list(self.share)})
        draws = np.column_stack(list(self.share.values()))
        table = estimates_table(labels, draws, (), interval)
        return table.assign(alone=[float(values.mean()) for values in self.alone.values()])


def _moments(posterior: Posterior, rows: Rows) -> tuple[Array, _Parts, Array | None]:
    """Return R2 (S,), the shares of the parts, and the means of rows left out (N,) if known."""
    reweighted, temperature = loo_obstacle(posterior) is None, posterior.config.sample.temperature
    weight, start = counting(rows) / counting(rows).sum(), 0
    left_out_means, sums = [], _Sums()
    base: dict[str, Array] = {}
    for chunk in row_chunks(posterior, rows):
        shares = weight[start : start + len(chunk)]
        start += len(chunk)
        eta, parameters = posterior.predictor(chunk), distribution(posterior, chunk)
        mu = expected(posterior.family, eta, parameters)
        varying = {
            "mu": mu,
            "residual": _y(chunk) - mu,
            "eta": eta,
            **_parts(posterior, chunk, eta),
        }
        base = base or {name: values[:, :1] for name, values in varying.items()}
        sums.add({name: values - base[name] for name, values in varying.items()}, shares)
        if variance := posterior.family.variance:
            sums.plus("beside", np.broadcast_to(variance(eta, parameters), mu.shape) @ shares)
        if reweighted:
            log_weights, _ = psis_weights(log_lik(posterior, chunk), temperature)
            left_out_means.append((np.exp(log_weights) * mu.T).sum(axis=1))
    beside = sums.values.get("beside", sums.variance("residual"))
    fitted = sums.variance("mu")
    return (
        fitted / (fitted + beside),
        _shares(sums),
        _finite_means(left_out_means) if left_out_means else None,
    )


def _finite_means(of_chunks: list[Array]) -> Array:
    means = np.concatenate(of_chunks)
    check_finite("the mean without a row", means)
    return means


class _Sums:
    """Weighted sums over rows (S,) of quantities, their squares, and their products with eta."""

    def __init__(self) -> None:
        self.values: dict[str, Array] = {}

    def plus(self, name: str, values: Array) -> None:
        """Add to a sum."""
        self.values[name] = self.values.get(name, np.zeros_like(values)) + values

    def add(self, quantities: dict[str, Array], shares: Array) -> None:
        """Add some rows of quantities (S, n) of these shares (n,)."""
        for name, values in quantities.items():
            self.plus(name, values @ shares)
            self.plus(f"{name} squared", values**2 @ shares)
            self.plus(f"{name} eta", (values * quantities["eta"]) @ shares)

    def variance(self, name: str) -> Array:
        """Return a variance (S,) over rows."""
        return self.values[f"{name} squared"] - self.values[name] ** 2

    def with_eta(self, name: str) -> Array:
        """Return a covariance (S,) with eta over rows."""
        return self.values[f"{name} eta"] - self.values[name] * self.values["eta"]


def _parts(posterior: Posterior, rows: Rows, eta: Array) -> dict[str, Array]:
    """Return the parts of eta (S, N), what is left of it called ``offset``."""
    found = {name: posterior_linpred(posterior, rows, part=part) for name, part in PARTS.items()}
    return found | {"offset": eta - np.sum(list(found.values()), axis=0)}


def _shares(sums: _Sums) -> _Parts:
    """Return the shares of the parts that vary."""
    total = sums.variance("eta")
    alone = {name: sums.variance(name) / total for name in (*PARTS, "offset")}
    alone = {name: values for name, values in alone.items() if values.max() > 1e-9}
    return _Parts({name: sums.with_eta(name) / total for name in alone}, alone)


def _notes(posterior: Posterior, rows: Rows, missing: str) -> tuple[str, ...]:
    family, bundle = posterior.family, posterior.members[0].bundle
    said = {
        "Means over rows have the rows' weights.": "weights" in rows.given,
        "Rows without trials are left out.": bool(
            (rows.given.get("trials", np.ones(1)) == 0).any()
        ),
        f"The residual variance is that of the residuals: family {family.name} does not say its "
        "own.": family.variance is None,
        "The structured part has what the network says along orthogonalised columns.": (
            posterior.members[0].draws.orthogonal is not None
        ),
        missing: bool(missing),
        CONDITIONAL: bundle.model.moves != "all" and not missing,
        left_out(bundle, len(posterior.members)): True,
    }
    reservations = [f"Not the posterior: {text}." for text in posterior.reservations]
    return (*reservations, *(text for text, true in said.items() if text and true))
