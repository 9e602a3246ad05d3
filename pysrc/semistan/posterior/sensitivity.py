"""How sensitive the posterior is to the prior and to the likelihood, by power-scaling.

    p(q)^a p(y | q)   and   p(q) p(y | q)^a,    a = 1 / 1.01 and 1.01,

of each of which the draws are reweighted, without sampling again. The sensitivity of a quantity is
the distance between its distributions, by the cumulative Jensen-Shannon divergence, per
doubling of a (Kallioinen, Paananen, Bürkner and Vehtari, 2023, Statistics and Computing 34). Above
0.05 it is not negligible. The weights of a mixture's draws are found within each subspace, whose
weight stays. ``p(q)`` may be the prior of some parameters alone, as of priorsense's
``prior_selection``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.priors.distributions import scipy_priors
from semistan.model.priors.groups import PHI, WEIGHTS, PriorGroup
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior, SubspacePosterior
from semistan.posterior.predictive import log_lik, row_chunks
from semistan.posterior.psis import pareto_smoothed
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.scoring.loo import loo_obstacle

if TYPE_CHECKING:
    import pandas as pd

STEP = 0.01  # a is 1 + STEP and 1 / (1 + STEP)
LIMIT = 0.05


def sensitivity(posterior: Posterior, rows: Rows, prior: Sequence[str] = ()) -> pd.DataFrame:
    """Power-scale prior and likelihood.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows.
    prior : sequence of str, optional
        Keys of ``[priors]``, as ``b`` or ``sd``, or names of the table, as ``b_age``, whose priors
        are scaled; the whole prior by default.

    Returns
    -------
    pandas.DataFrame
        ``variable``, ``prior`` and ``likelihood`` (sensitivities), and a ``diagnosis``: "prior and
        data disagree" where both are above 0.05, "strong prior or weak data" where that of the
        prior alone is.

    Raises
    ------
    InputError
        If the draws are not such that powers of the densities can be had by weighting them, or
        the model has no such prior.
    """
    import pandas as pd

    if posterior.method.approximate:
        raise InputError(
            "power-scaling weights draws from the posterior, but these are from an approximation "
            f"({posterior.method.text}), whose error the weights would magnify; sample by --method "
            "nuts, or fit the model again with another prior and compare the tables"
        )
    if obstacle := loo_obstacle(posterior):
        raise InputError(obstacle.replace("PSIS-LOO", "power-scaling").partition(";")[0])
    weights = [_scaled(member, rows, prior) for member in posterior.counted]
    lines = []
    for name, pooled in posterior.pooled_by_name(lambda draws: draws.interpreted).items():
        found = [
            _sensitivity(pooled.ravel(), [np.concatenate(each) for each in both])
            for both in ([_of(weights, part, side) for side in (0, 1)] for part in (0, 1))
        ]
        lines.append((name, *found, _diagnosis(*found)))
    return pd.DataFrame(lines, columns=["variable", "prior", "likelihood", "diagnosis"])


Scaled = tuple[tuple[Array, Array], tuple[Array, Array]]  # by part, then by a below or above 1


def _of(weights: list[Scaled], part: int, side: int) -> list[Array]:
    return [each[part][side] for each in weights]


def _scaled(member: SubspacePosterior, rows: Rows, prior: Sequence[str]) -> Scaled:
    """Return weights (S,) of a member's draws, which sum to their number."""
    by_row, by_draw = [], np.zeros(member.size)
    for chunk in row_chunks(member, rows):
        found = log_lik(member, chunk)
        by_row.append(found.sum(axis=0))
        by_draw += found.sum(axis=1)
    check_finite("the log-likelihood", np.concatenate(by_row))
    likelihood = by_draw / member.config.sample.temperature
    chosen = prior_density(member, prior) if prior else member.draws.lprior.ravel()
    return _both(chosen), _both(likelihood)


def prior_density(member: SubspacePosterior, names: Sequence[str]) -> Array:
    """Return the log prior density (S,) of some parameters alone, up to a constant.

    Raises
    ------
    InputError
        For names that no prior has, and priors that cannot be told apart.
    """
    known = {each for group in member.bundle.model.priors for each in _names(group)}
    for name in names:
        if name not in known:
            raise InputError(
                f"--prior names '{name}', which no parameter's prior is called."
                f"{did_you_mean(name, known)}"
            )
    densities = {group.stem: found for group, found in scipy_priors(member.bundle)}
    total = np.zeros(member.size)
    for group in member.bundle.model.priors:
        whole = bool({group.key, *_names_of_phi(group)} & {*names})
        positions = [j for j, name in enumerate(group.names) if whole or name in names]
        if positions:
            _check_separable(member, group)
            values = densities[group.stem].logpdf(_values(member, group))
            total = total + (values if group.is_phi else values[:, positions]).sum(axis=1)
    return total


def _names(group: PriorGroup) -> set[str]:
    return {group.key, *group.names, *_names_of_phi(group)}


def _names_of_phi(group: PriorGroup) -> tuple[str, ...]:
    return (PHI, WEIGHTS) if group.is_phi else ()


def _values(member: SubspacePosterior, group: PriorGroup) -> Array:
    """Return the draws (S, n) of a group's parameters, in the order of its names."""
    draws = member.draws
    if group.is_phi:
        return draws.flat(draws.phi)
    return np.stack([draws.interpreted[name].ravel() for name in group.names], axis=1)


def _check_separable(member: SubspacePosterior, group: PriorGroup) -> None:
    """Refuse priors whose density is not one of the table's columns, or of phi."""
    model, table = member.bundle.model, member.draws.interpreted
    what = ", ".join(group.names)
    if not group.density.is_of_each:
        raise InputError(
            f"the prior of {what} is a joint one with parameters of its own: leave --prior out"
        )
    scaled = group.is_phi and model.weight_scales is not None
    orthogonal = model.samples_orthogonal and group.key == "b"
    if scaled or orthogonal or not (group.is_phi or {*group.names} <= table.keys()):
        raise InputError(
            f"the prior of {what} is one of other coordinates than the table's: leave --prior out"
        )


def _both(log_density: Array) -> tuple[Array, Array]:
    lower, upper = (_weights((a - 1) * log_density) for a in (1 / (1 + STEP), 1 + STEP))
    return lower, upper


def _weights(log_ratios: Array) -> Array:
    smoothed, _ = pareto_smoothed(log_ratios[None])
    weights = np.exp(smoothed[0])
    return np.asarray(weights / weights.mean())


def _sensitivity(draws: Array, weights: list[Array]) -> float:
    """Return the second difference of the distance in log2 a, from weights (S,) below and above."""
    distances = [max(distance(draws, each), distance(-draws, each)) for each in weights]
    return float(sum(distances) / (2 * np.log2(1 + STEP)))


def distance(draws: Array, weights: Array) -> float:
    """Return the cumulative Jensen-Shannon distance between draws (S,) and weighted ones.

    With the distribution functions P and Q of both, it is the root of the sum of

        int P log2(2 P / (P + Q)) + (Q - P) / (2 log 2) dx

    and the same with P and Q exchanged, over the sum of the integrals of P and Q, which bounds it.
    """
    order = np.argsort(draws, kind="stable")
    x, width = draws[order], np.diff(draws[order])
    if not width.any():
        return float("nan")
    P = np.arange(1, len(x)) / len(x)
    Q = np.cumsum(weights[order] / weights.sum())[:-1]
    apart = _divergence(P, Q, width) + _divergence(Q, P, width)
    return float(np.sqrt(apart / ((P + Q) @ width)))


def _divergence(P: Array, Q: Array, width: Array) -> float:
    ratio = np.log2(2 * P / (P + Q))
    return max(0.0, float((P * ratio) @ width + (Q - P) @ width / (2 * np.log(2))))


def _diagnosis(prior: float, likelihood: float) -> str:
    if not prior >= LIMIT:
        return "-"
    return "prior and data may disagree" if likelihood >= LIMIT else "strong prior or weak data"
