"""The priors of a trained model as the program's data has them.

``phi = "auto"`` is normal(0, 2 s_j) for coordinate j, where s_j is the standard deviation of the
control points along direction j: the subspace's own extent decides how far phi may move, and the
control points lie within one to two standard deviations. The subspace around a single network has
no control points to be spread; its own scale of each coordinate is s_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from semistan.model.arrays import Array
from semistan.model.model import Model
from semistan.model.priors.densities import AUTO
from semistan.model.priors.density import Prior
from semistan.model.priors.groups import PriorGroup, choices
from semistan.model.priors.r2d2 import UNIT
from semistan.model.priors.weight_scales import GROUPS, SD_W
from semistan.model.trained import Trained

AUTO_FACTOR = 2.0  # standard deviations of the control points in one of the prior's


def prior_data(model: Model, trained: Trained) -> dict[str, Any]:
    """Return the arguments of every prior as used, under their names in the data block."""
    scales = model.weight_scales
    data: dict[str, Any] = {f"n_{SD_W}": len(scales.names), GROUPS: scales.of + 1} if scales else {}
    for group in model.priors:
        if group.members is not None:
            data[f"n_{group.stem}"] = len(group.members)
            data[group.stem] = np.array(group.members) + 1
        data |= group.arguments(priors_of(group, model, trained))
    if model.explained:
        data[UNIT] = model.explained.unit
    if model.joint:
        data |= {"theta_scale": model.units.theta_scale, "eta_scale": model.units.eta_scale}
    for choice in choices(model.config.priors, model.design):
        data |= choice.data
    return data


def priors_of(group: PriorGroup, model: Model, trained: Trained) -> Sequence[Prior]:
    """Return the prior of each member as used; phi's scales are the subspace's."""
    if not group.is_phi:
        return group.used
    subspace, normal = trained.subspace, group.density
    if model.config.priors.on_weights:
        moments = zip(subspace.phi_location, subspace.phi_scale, strict=True)
        return [Prior(normal, (float(location), float(scale))) for location, scale in moments]
    return [group.written[0].rescaled(float(scale)) for scale in phi_units(model, trained)]


def phi_units(model: Model, trained: Trained) -> Array:
    """Return what the scale of phi's prior is multiplied by, shape (k,)."""
    scale, phi = trained.subspace.phi_scale, model.config.priors.phi
    if phi is None or phi.strip() != AUTO:
        return scale
    points = trained.control_points.reshape(-1, trained.subspace.d)
    if len(points) == 1:
        return AUTO_FACTOR * scale
    return np.asarray(AUTO_FACTOR * trained.subspace.project(points).std(axis=0, ddof=1))
