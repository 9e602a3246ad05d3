"""A linear and an additive model, by statsmodels.

    GLM    all columns linear
    GAM    structured columns linear, a penalised cubic B-spline of each input; the penalties
           minimise the generalised cross-validation criterion of gaussian responses, and AIC
           of others, whose scale is known

Of the libraries with GAMs, statsmodels is a dependency of the benchmarks already, and chooses a
penalty for each smooth; pyGAM, which is kept up too, looks on a grid that by default has
one penalty for all.

Draws of the coefficients are from N(estimate, covariance), with sigma of gaussian responses from
its scaled inverse chi distribution: the posterior of a linear model under a flat prior.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from semistan.model.arrays import Array
from studies.problem import Found, Problem, predictive_density

DRAWS = 4000
BASIS = 10  # functions of each spline, one less after centring
DEGREE = 3
CRITERION = {"gaussian": "gcv", "poisson": "aic", "bernoulli": "aic"}


def glm(problem: Problem) -> Found:
    """Fit a generalised linear model of all columns."""
    import statsmodels.api as sm

    started, standard = time.perf_counter(), problem.standard
    design, new = (_with_one(rows) for rows in (standard.inputs, standard.new_inputs))
    fitted = sm.GLM(standard.y, design, family=_family(problem)).fit()
    return _found(problem, fitted, new, started)


def gam(problem: Problem) -> Found:
    """Fit a generalised additive model."""
    from statsmodels.gam.api import BSplines, GLMGam

    started, standard = time.perf_counter(), problem.standard
    P = len(problem.facts.structured)
    u, new_u = standard.inputs[:, P:], standard.new_inputs[:, P:]
    both = np.concatenate([u, new_u])  # a B-spline is not defined beyond its outer knots
    bounds = [
        {"lower_bound": low, "upper_bound": high}
        for low, high in zip(both.min(axis=0), both.max(axis=0), strict=True)
    ]
    Q = u.shape[1]
    splines = BSplines(
        u, df=[BASIS] * Q, degree=[DEGREE] * Q, constraints="center", knot_kwds=bounds
    )
    x, new_x = (_with_one(rows[:, :P]) for rows in (standard.inputs, standard.new_inputs))

    def model(penalties: Array) -> Any:
        return GLMGam(
            standard.y, exog=x, smoother=splines, alpha=penalties, family=_family(problem)
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of penalties without an end: the line is straight
        start = model(np.ones(Q))
        start.fit()  # select_penweight reads what the fit leaves in the model
        penalties = start.select_penweight(
            criterion=CRITERION[problem.facts.family], method="minimize"
        )[0]
        fitted = model(penalties).fit()
    return _found(problem, fitted, np.hstack([new_x, splines.transform(new_u)]), started)


def _with_one(columns: Array) -> Array:
    return np.column_stack([np.ones(len(columns)), columns])


def _family(problem: Problem) -> Any:
    import statsmodels.api as sm

    families = {
        "gaussian": sm.families.Gaussian,
        "poisson": sm.families.Poisson,
        "bernoulli": sm.families.Binomial,
    }
    return families[problem.facts.family]()


def drawn(
    problem: Problem, estimate: Array, unscaled: Array, scale: float, df: float
) -> tuple[Array, Array]:
    """Draw coefficients (S, P), and sigma (S) of gaussian responses, 1 of others.

    Parameters
    ----------
    problem : Problem
        Of which family and seed are used.
    estimate : array, shape (P,)
        The estimate.
    unscaled : array, shape (P, P)
        Its covariance matrix over the variance of a gaussian response.
    scale, df : float
        The estimate of that variance, and its degrees of freedom.
    """
    generator, sigma = np.random.default_rng(problem.seed), np.ones(DRAWS)
    if problem.facts.family == "gaussian":
        sigma = np.sqrt(scale * df / generator.chisquare(df, size=DRAWS))
    centred = generator.multivariate_normal(
        np.zeros(len(estimate)), unscaled, size=DRAWS, method="svd"
    )
    return estimate + sigma[:, None] * centred, sigma


def _found(problem: Problem, fitted: Any, new: Array, started: float) -> Found:
    """Draw coefficients, those of x behind the intercept, and predict."""
    standard, facts = problem.standard, problem.facts
    coefficients, sigma = drawn(
        problem, fitted.params, fitted.normalized_cov_params, fitted.scale, fitted.df_resid
    )
    eta = standard.eta(coefficients @ new.T)
    return Found(
        eta=eta,
        lpd=predictive_density(facts.family, problem.new_y, eta, standard.y_scale * sigma[:, None]),
        seconds=time.perf_counter() - started,
        theta=standard.theta(coefficients[:, 1 : 1 + len(facts.structured)]),
    )
