"""The Bézier construction: k + 1 free control points trained in one stage.

Algorithm 1 of Dold et al. (2024) minimises over the control points and theta

    L(theta, Lambda) = int_0^1 loss(b(t), theta) dt

by stochastic gradients at one t ~ U(0, 1) a step. The control points then span the subspace, or the
first directions of a wider one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.density.problem import Problem
from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks
from semistan.model.subspace import along_axes
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_one_predictor, check_smaller
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.curve import bernstein
from semistan.subspace.descent import Progress, descend, initial_parameters
from semistan.subspace.result import trained_result
from semistan.subspace.span import span
from semistan.subspace.widen import widened

if TYPE_CHECKING:
    from torch import Generator


def bezier(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train a Bézier curve and span its subspace.

    Notes
    -----
    Dold, Rügamer, Sick and Dürr (2024), Bayesian Semi-structured Subspace Inference,
    AISTATS, section 3.1. With all
    weights, phi are the weights themselves, and the chains start along the curve.
    """
    k, d = subspace.dimension, problem.network.d
    curve = subspace.curve or k
    parameters = initial_parameters(problem, curve + 1, generator)
    best, history = descend(problem, parameters, train, generator, progress)
    best = settle(problem, best)
    if k == d:
        whole = along_axes(np.zeros(d), np.arange(d), "bezier")
        return trained_result(problem, units, best, history, whole, np.ones(d))
    spanned, spread = span(best.control_points.cpu().numpy(), curve, "bezier")
    if k > curve:
        middle = best.at(torch.as_tensor(bernstein(np.array(0.5), curve)).to(problem.y.device))
        spanned, spread = widened(spanned, spread, k, problem, middle, subspace, generator)
    return trained_result(problem, units, best, history, spanned, spread)


def _check(config: SubspaceConfig, network: Networks) -> None:
    """Refuse more dimensions than there are, and such as the curvature does not give."""
    if config.k == "auto":
        return
    curve = config.curve or config.k
    if curve > config.k:
        raise InputError(
            f"curve must not be more than k = {config.k}, got curve = {curve}; choose curve <= k"
        )
    check_smaller(config.model_copy(update={"k": curve}), network)
    if config.k != network.d and curve < config.k:
        check_smaller(config, network)
        check_one_predictor(config, network)


CONSTRUCTION = Construction(
    name="bezier",
    text="the span of a Bézier curve's control points",
    build=bezier,
    check=_check,
    widens=True,
)
