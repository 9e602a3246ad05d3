"""The naive construction: theta lies in the subspace too, as if it were network weights.

A Bézier curve through k + 1 points of the joint space of network weights and coefficients is
trained as in ``bezier``; its control points then span one subspace for both,

    w = p_bar + Pi phi,    theta = theta_bar + theta_Pi phi,

so that the k coordinates phi are all that is sampled. The baseline of Dold et al. (2024),
sections 2.1 and 4.1: with few coordinates, the posterior of theta takes the curve's shape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.problem import Problem
from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_smaller
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Parameters, Progress, descend, initial_parameters
from semistan.subspace.result import trained_result
from semistan.subspace.span import span

if TYPE_CHECKING:
    from torch import Generator


def naive(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train a Bézier curve through weights and coefficients, and span its subspace."""
    d = problem.network.d
    parameters = _points_of_theta(initial_parameters(problem, subspace.dimension + 1, generator))
    best, history = descend(problem, parameters, train, generator, progress)
    theta = best.theta.cpu().numpy()
    points = np.hstack([best.control_points.cpu().numpy(), theta])
    joint, spread = span(points, subspace.dimension, "naive")
    spanned = replace(
        joint,
        p_bar=joint.p_bar[:d],
        Pi=np.ascontiguousarray(joint.Pi[:d]),
        theta_bar=joint.p_bar[d:] * units.theta_scale,
        theta_Pi=joint.Pi[d:] * units.theta_scale[:, None],
    )
    return trained_result(problem, units, best, history, spanned, spread)


def _points_of_theta(parameters: Parameters) -> Parameters:
    """Give each control point a theta of its own, at 0 like the one for all."""
    m, P = len(parameters.control_points), len(parameters.theta)
    zeros = torch.zeros(m, P, dtype=torch.float64, device=parameters.theta.device)
    return replace(parameters, theta=zeros.requires_grad_())


def _check(config: SubspaceConfig, network: Networks) -> None:
    if len(network.parts) > 1:
        raise InputError(
            "the construction 'naive' has one subspace for the coefficients and a network, and "
            f"cannot have {len(network.parts)} networks; write one nn(), or use --construction "
            "bezier"
        )
    check_smaller(config, network)


CONSTRUCTION = Construction(
    name="naive",
    text="the span of a Bézier curve through weights and coefficients, a baseline",
    build=naive,
    check=_check,
    holds_theta=True,
)
