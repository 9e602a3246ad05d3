"""The plane of a curve of low loss between two independently trained networks.

Three stages: the two ends p_0 and p_2 are trained alone; then the bend p_1 and theta, with the
ends where they are, on

    b(t) = (1 - t)^2 p_0 + 2 t (1 - t) p_1 + t^2 p_2,    t ~ U(0, 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.density.problem import Problem
from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import SubspaceConfig, TrainConfig
from semistan.model.networks.networks import Networks
from semistan.model.trained import Trained
from semistan.model.units import Units
from semistan.subspace.check import check_smaller
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Construction
from semistan.subspace.descent import Parameters, Progress, descend, initial_parameters
from semistan.subspace.result import trained_result
from semistan.subspace.span import span
from semistan.subspace.trajectory import after, joined, replica

if TYPE_CHECKING:
    from torch import Generator


def curve(
    problem: Problem,
    units: Units,
    subspace: SubspaceConfig,
    train: TrainConfig,
    generator: Generator,
    progress: Progress | None = None,
) -> Trained:
    """Train two networks and the curve between them, and span its plane.

    Notes
    -----
    Izmailov, Maddox, Kirichenko, Garipov, Vetrov and Wilson (2019), Subspace Inference for
    Bayesian Deep Learning, UAI, section 4.3, and Garipov et al. (2018), Loss Surfaces, Mode
    Connectivity, and Fast Ensembling of DNNs, NeurIPS. The plane is theirs; ``p_bar`` is the
    mean of the three points, which is the mean of b(t), and not the midpoint of the ends,
    where the loss may be high.
    """
    starts = [initial_parameters(problem, 1, generator) for _ in range(2)]

    def stage(
        number: int, start: Parameters, fixed: tuple[int, ...] = ()
    ) -> tuple[Parameters, dict[str, Array]]:
        shown = after(progress, number * train.epochs)
        return descend(problem, start, train, replica(generator), shown, fixed=fixed)

    one, first = stage(0, starts[0])
    two, second = stage(1, starts[1])
    best, third = stage(2, _straight(one, two), fixed=(0, 2))
    best = settle(problem, best)
    spanned, spread = span(best.control_points.cpu().numpy(), subspace.dimension, "curve")
    return trained_result(problem, units, best, joined(first, second, third), spanned, spread)


def _straight(one: Parameters, two: Parameters) -> Parameters:
    """Return the line between two networks, its bend in the middle; theta is their mean."""
    ends = one.control_points[0], two.control_points[0]
    points = torch.stack([ends[0], (ends[0] + ends[1]) / 2, ends[1]])
    return Parameters(
        points.requires_grad_(),
        ((one.theta + two.theta) / 2).requires_grad_(),
        ((one.log_dispersion + two.log_dispersion) / 2).requires_grad_(),
    )


def _check(config: SubspaceConfig, network: Networks) -> None:
    if config.dimension != 2:
        raise InputError(
            f"a curve between two networks has k = 2, got k = {config.dimension}; use --k 2"
        )
    check_smaller(config, network)


CONSTRUCTION = Construction(
    name="curve",
    text="the plane of a curve of low loss between two trained networks",
    build=curve,
    check=_check,
    epochs=lambda _, train: 3 * train.epochs,
)
