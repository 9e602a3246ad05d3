"""Where chains, and searches for a mode, start: along the trained curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistan.density.starts import start_state, trained_values
from semistan.density.target import Target
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.names import MU
from semistan.subspace.curve import curve_points


def curve_values(bundle: Bundle, chains: int) -> list[dict[str, Any]]:
    """Return trained parameters by name, for each chain at its own place on the curve.

    The first m of 3 m chains are where m chains would be, so that others can join them.
    """
    t = (np.arange(chains) + 0.5) / chains
    if chains % 3 == 0:
        t = np.concatenate([t[1::3], np.delete(t, np.s_[1::3])])
    phi = bundle.subspace.project(curve_points(bundle.trained.control_points, t))
    trained = trained_values(bundle)
    return [{**trained, "phi": own} for own in phi]


def curve_states(bundle: Bundle, chains: int) -> Array:
    """Return unconstrained states along the curve, one row for each chain."""
    return np.stack([start_state(bundle, values) for values in curve_values(bundle, chains)])


def sides(target: Target, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values with dispersion parameters on each side of where the likelihood is flat."""
    family, bundle = target.bundle.family, target.bundle
    if family.starts is None:
        return [values]
    given = target.values(torch.tensor(start_state(bundle, values)))
    eta = torch.cat([each[MU] for each in target.predictors(given)])
    residuals = (torch.cat([chunk.y for chunk in target.chunks]) - eta).numpy()
    own = {item.name: item for item in bundle.design.others if item.has_tau}
    return [
        values
        | {name: at for name, at in side.items() if name in bundle.model.scalars}
        | {own[name].tau: at - bundle.units.location(family, name)
           for name, at in side.items() if name in own}
        for side in family.starts(residuals)
    ]  # fmt: skip
