"""semistan's contenders: the defaults, and what departs from them in a few keys."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from semistan.posterior.predictive import log_lik, posterior_linpred
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows
from semistan.workflow.sample import Fitted
from studies.problem import Found, Problem, agreement, mixed

Configuration = Mapping[str, Any]

SETTINGS: Mapping[str, Configuration] = {
    "defaults": {},
    "paper": {"subspace.k": 8, "priors.phi": "normal(0, 5)"},
    "widened": {"subspace.curve": 8, "subspace.k": 40, "subspace.completion": "none"},
    "all-weights": {"subspace.construction": "full"},
    "sampled-scales": {"priors.sd_w": "lognormal(0, 0.7)"},
    "subspaces-3": {"subspace.subspaces": 3},
    "mclmc": {"sample.method": "mclmc-torch"},
    "laplace": {"sample.method": "laplace"},
}
QUICK: Configuration = {
    "train.epochs": 200,
    "sample.chains": 2,
    "sample.draws": 100,
    "sample.warmup": 100,
    "sample.max_treedepth": 6,
}


def own(settings: Configuration, problem: Problem, sigma: bool = False) -> Found:
    """Fit with some keys set, with ``sigma`` given a head of the network too, and predict."""
    overrides = {
        "family": problem.facts.family,
        "train.seed": problem.seed,
        "sample.seed": problem.seed,
        "network.hidden": problem.hidden,
        "network.activation": problem.activation,
        **settings,
        **(QUICK if problem.quick else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        formula = problem.facts.formula_with_sigma if sigma else problem.facts.formula
        fit = fit_model(formula, problem.training, out=Path(folder) / "run", overrides=overrides)
        return _found(fit, problem)


def _found(fit: Fitted, problem: Problem) -> Found:
    posterior, structured = fit.posterior, problem.facts.structured
    first = posterior.members[0]
    rows = new_rows(first.bundle, problem.new, response=True)
    eta = posterior_linpred(posterior, rows)
    rhat, ess = agreement(eta, len(posterior.members), first.chains)
    theta = [posterior.coefficients[f"b_{name}"].ravel() for name in structured]
    sigma = posterior.parameters(rows).get("sigma")
    return Found(
        eta=eta,
        lpd=mixed(log_lik(posterior, rows)),
        seconds=sum(fit.run.manifest.seconds.values()),
        theta=np.stack(theta, axis=1) if theta else None,
        rhat=rhat,
        ess=ess,
        sigma=sigma,
        notes={
            "k": first.bundle.subspace.k,
            "d": first.bundle.network.d,
            "passed": fit.summary.passed,
            "verdict": fit.summary.verdict(),
        },
    )


def own_contenders() -> dict[str, Callable[[Problem], Found]]:
    """Return semistan's contenders by name."""
    return {name: partial(own, settings) for name, settings in SETTINGS.items()}
