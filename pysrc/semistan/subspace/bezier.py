"""The Bézier construction: k + 1 free control points trained in one stage.

Algorithm 1 of Dold et al. (2024) minimises over the control points and theta

    L(theta, Lambda) = int_0^1 loss(b(t), theta) dt

by stochastic gradients at one t ~ U(0, 1) a step. The control points then span the subspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.density.problem import Problem
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_smaller
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Progress, descend, initial_parameters
from semistan.subspace.hand_over import hand_over
from semistan.subspace.span import span

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
    AISTATS, section 3.1.
    """
    parameters = initial_parameters(problem, subspace.k + 1, generator)
    best, history = descend(problem, parameters, train, generator, progress)
    best = settle(problem, best)
    spanned, spread = span(best.control_points.cpu().numpy(), subspace.k, "bezier")
    return hand_over(problem, units, best, history, spanned, spread)


CONSTRUCTION = Construction(
    name="bezier",
    text="the span of a Bézier curve's control points",
    build=bezier,
    check=check_smaller,
)
