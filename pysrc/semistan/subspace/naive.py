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
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.descent import Parameters, Progress, descend, initial_parameters
from semistan.subspace.hand_over import hand_over
from semistan.subspace.span import check_dimension, span

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
    """Train a Bézier curve through weights and coefficients, and span its subspace.

    Parameters
    ----------
    problem : Problem
        The training rows, standardised.
    units : Units
        The user's units, in which theta and dispersion are returned.
    subspace : SubspaceConfig
        Its ``k``, smaller than d.
    train : TrainConfig
        Epochs, learning rate, batch size, validation share.
    generator : torch.Generator
        On the CPU; the source of all randomness.
    progress : callable, optional
        Called with the epoch, the training loss and the validation loss.

    Raises
    ------
    InputError
        If k >= d, or there are several networks.
    SemistanError
        If training diverges, or the control points span fewer than k dimensions.
    """
    d = problem.network.d
    check_dimension(subspace, *problem.network.sizes)
    parameters = _points_of_theta(initial_parameters(problem, subspace.k + 1, generator))
    best, history = descend(problem, parameters, train, generator, progress)
    theta = best.theta.cpu().numpy()
    points = np.hstack([best.control_points.cpu().numpy(), theta])
    joint, spread = span(points, subspace.k, "naive")
    spanned = replace(
        joint,
        p_bar=joint.p_bar[:d],
        Pi=np.ascontiguousarray(joint.Pi[:d]),
        theta_bar=joint.p_bar[d:] * units.theta_scale,
        theta_Pi=joint.Pi[d:] * units.theta_scale[:, None],
    )
    return hand_over(problem, units, best, history, spanned, spread)


def _points_of_theta(parameters: Parameters) -> Parameters:
    """Give each control point a theta of its own, at 0 like the one for all."""
    import torch

    m, P = len(parameters.control_points), len(parameters.theta)
    zeros = torch.zeros(m, P, dtype=torch.float64, device=parameters.theta.device)
    return replace(parameters, theta=zeros.requires_grad_())
