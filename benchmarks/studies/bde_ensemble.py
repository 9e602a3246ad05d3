"""Microcanonical Langevin ensembles by sklearn-contrib-bde (Sommer et al., 2025), in JAX.

All columns are inputs of its networks, so that there is no theta; with a gaussian response, a
second output is that of sigma. Settings are those of the regression example in its documentation,
with the hidden layers of all other networks here. It does not have their tanh; silu is smooth too.
Its chains, one for each member, are not adjusted.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from contextlib import redirect_stderr
from typing import Any

import numpy as np

from semistan.infer.processors import usable_processors
from studies.problem import Found, Problem, agreement, predictive_density

EXAMPLE = {
    "n_members": 8, "epochs": 200, "validation_split": 0.15, "lr": 1e-3, "weight_decay": 1e-4,
    "warmup_steps": 5000, "n_samples": 2000, "n_thinning": 2, "patience": 10,
}  # fmt: skip
QUICK = {"n_members": 2, "epochs": 50, "warmup_steps": 200, "n_samples": 100}


def bde(problem: Problem) -> Found:
    """Sample an ensemble with its default prior, N(0, 1) on every weight."""
    _use_all_cores()
    started, standard, facts = time.perf_counter(), problem.standard, problem.facts
    gaussian = facts.family == "gaussian"
    estimator = _estimator(problem, gaussian)
    y = standard.y[:, None] if gaussian else standard.y.astype(int)
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # a bar of progress
        warnings.simplefilter("ignore")  # of a column y, which its examples have too
        estimator.fit(standard.inputs, y)
    raw = np.asarray(estimator.predict(standard.new_inputs, raw=True), dtype=float)
    members, pairs = len(raw), raw.reshape(-1, *raw.shape[2:])
    if gaussian:
        eta = standard.eta(pairs[..., 0])
        sigma = standard.y_scale * np.logaddexp(0, pairs[..., 1])  # its softplus
    else:
        eta, sigma = pairs[..., 1] - pairs[..., 0], np.ones(1)
    lpd = predictive_density(facts.family, problem.new_y, eta, sigma)
    seconds = time.perf_counter() - started
    rhat, ess = agreement(eta, 1, members)
    return Found(eta=eta, lpd=lpd, seconds=seconds, rhat=rhat, ess=ess)


def _use_all_cores() -> None:
    """Give JAX a device for each core, which it reads when it is first imported."""
    count = len(usable_processors())
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={count}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _estimator(problem: Problem, gaussian: bool) -> Any:
    from bde import BdeClassifier, BdeRegressor
    from bde.loss import CategoricalCrossEntropy, GaussianNLL

    settings = EXAMPLE | (QUICK if problem.quick else {})
    kind, loss = (
        (BdeRegressor, GaussianNLL()) if gaussian else (BdeClassifier, CategoricalCrossEntropy())
    )
    return kind(
        hidden_layers=list(problem.hidden), activation="silu", seed=problem.seed, loss=loss,
        **settings,
    )  # fmt: skip
