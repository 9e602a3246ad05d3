"""Laplace's approximation: a normal at the mode, of a network that is linear around it.

At the mode q* that the chain's start climbed to, with gradient g and Gauss-Newton matrix H of the
negative log posterior, draws are

    q ~ normal(q* - H^-1 g, H^-1),

the exact posterior if the response is Gaussian, sigma is known and the predictors are linear in q;
g vanishes at a mode, but for what the search left out. H is the curvature of the model whose
network is linear in phi, and these draws belong to that model:

    f(u; phi) = f(u; phi*) + d f(u; phi*) / d phi (phi - phi*).

Put through the network as it is, they are far too wide once weights of several layers move. So
b_Intercept, and all predictions, are of the linear network of each chain; the file's first line has
phi*. The densities in log_p__ and lp__ are of the network as it is: Pareto k-hat tells how far the
draws are from the posterior.

Daxberger et al. (2021), Laplace redux, NeurIPS; Immer, Korzepa and Bauer (2021), Improving
predictions of Bayesian neural nets via local linearization, AISTATS; Faller and Martin (2025).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from semistan.density.mode import Mode, normal_mean
from semistan.density.target import Target, log_posteriors
from semistan.errors import InputError
from semistan.infer.backends.backend import Report
from semistan.infer.method import Method
from semistan.infer.stan_csv import Origin, sampled_columns, stan_csv
from semistan.infer.task import ChainTask
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.priors.groups import PHI, joint_prior

ABOUT = (
    "drawn from a normal approximation at a mode, which comes first; predictions are linear in phi"
)
MOST_DIMENSIONS = 75  # with 385, the posterior mean was up to three times as far from the truth
OTHERS = "use method = 'nuts', 'flow' or 'mclmc'"


def laplace_chain(task: ChainTask, _: Report) -> bytes:
    """Draw from the normal at the chain's mode, which is the first line of its CSV file.

    Each "chain" is an approximation of its own, at the mode to which its start climbed.

    Raises
    ------
    InputError
        If no mode was found.
    """
    target, options = task.target(), task.options
    mode = task.begin(target)[1]
    if mode is None:
        raise InputError(
            f"Laplace's approximation needs a mode in the subspace, and none was found; {OTHERS}"
        )
    columns = approximation_columns(
        target, mode, options.per_chain, np.random.default_rng(task.seed)
    )
    return stan_csv(columns, Origin("laplace", ABOUT, task.number, options.seed, 0))


def approximation_columns(
    target: Target, mode: Mode, draws: int, generator: np.random.Generator
) -> dict[str, Array]:
    """Return the file's columns (1 + S,): the mode, then draws around it."""
    q, log_g = laplace_draws(target, mode, draws, generator)
    log_p = log_posteriors(target, q)
    psi = target.outside(len(q), generator)
    columns = sampled_columns(linear_target(target, mode), q, log_p, np.ones(len(q)), psi)
    return columns | {"log_p__": columns["lp__"], "log_g__": log_g}


def laplace_draws(
    target: Target, mode: Mode, draws: int, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Return the mode and draws around it, q (1 + S, n), and the log of their normal density."""
    mean, n = normal_mean(target, mode), len(mode.q)
    factor = np.linalg.cholesky(mode.inv_metric)
    deviations = np.linalg.solve(factor, mode.q - mean)[None], generator.normal(size=(draws, n))
    z = np.concatenate(deviations)
    log_det = np.log(factor.diagonal()).sum()
    log_g = -np.square(z).sum(axis=1) / 2 - log_det - n * math.log(2 * math.pi) / 2
    return mean + z @ factor.T, log_g


def linear_target(target: Target, mode: Mode) -> Target:
    """Return the posterior of the model whose network is linear in phi around a mode."""
    phi = target.layout.unpack(torch.tensor(mode.q))[PHI].numpy()
    return replace(target, bundle=target.bundle.linearised(phi))


def _has_mode(config: ModelConfig) -> None:
    """Refuse models and options with which no mode is looked for.

    Raises
    ------
    InputError
        Naming what to do.
    """
    if joint := joint_prior(config):
        raise InputError(
            f"method = 'laplace' is a normal at a mode, which {joint}() does not have; {OTHERS}"
        )
    if config.priors.scales_all:
        raise InputError(
            "method = 'laplace' is a normal at a mode, which the weights have none of while their "
            f"scales are sampled; leave prior sd_w out, or {OTHERS}"
        )
    if config.sample.starts == "prior":
        raise InputError(
            "method = 'laplace' needs the mode that chains climb to, not starts = 'prior'; leave "
            "starts out"
        )
    if config.sample.metric not in ("auto", "ggn"):
        raise InputError(
            f"method = 'laplace' needs the mode that metric = 'ggn' looks for, got metric = "
            f"'{config.sample.metric}'; leave metric out"
        )


LAPLACE = Method(
    "laplace", "linearised Laplace approximation", laplace_chain, approximate=True, by_stan=False,
    has_warmup=False, columns={"log_p": "log_p__", "log_g": "log_g__"}, check=_has_mode,
    lines_before=1, linearised=True, dimensions=MOST_DIMENSIONS,
)  # fmt: skip
