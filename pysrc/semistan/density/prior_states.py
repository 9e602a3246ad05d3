"""Draws of the unconstrained coordinates q from the prior.

The parameters are independent, but for weights and their scales, and for the standard deviations
that an R2D2 prior is of. A density that is cut off is drawn by inversion of the tail that holds the
values between its limits a and b,

    x = S^-1(S(b) + u (S(a) - S(b))),    u ~ U(0, 1),    S(x) = P(X > x).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.parameter import REAL
from semistan.model.priors.distributions import scipy_priors
from semistan.model.priors.groups import PHI, PriorGroup
from semistan.model.priors.weight_scales import SD_W


def prior_states(bundle: Bundle, size: int, generator: np.random.Generator) -> Array:
    """Return draws (size, n) of q from the prior."""
    layout = bundle.layout
    values = {p.name: np.zeros((size, *p.shape)) for p in layout.parameters}
    for group, prior in scipy_priors(bundle):
        chosen = slice(None) if group.members is None else list(group.members)
        part = values[group.parameter]
        part[..., chosen] = _drawn(group, prior, part[..., chosen].shape, generator)
    if explained := bundle.model.explained:
        fixed = {name: np.full(size, value) for name, value in bundle.model.constants.items()}
        values |= explained.draw(generator, size, fixed | values)
    if scales := bundle.model.weight_scales:
        factor = scales.factor(torch.from_numpy(values[SD_W])).numpy()
        centre = bundle.subspace.phi_location
        values[PHI] = centre + factor * (values[PHI] - centre)
    for p in layout.parameters:
        if p.prior is not None:
            values[p.name] = p.prior.draw(generator, size, p.shape)
    return np.stack([layout.pack({name: x[i] for name, x in values.items()}) for i in range(size)])


def _drawn(
    group: PriorGroup, distribution: Any, shape: tuple[int, ...], generator: np.random.Generator
) -> Array:
    if group.kind is REAL or group.density.support == group.kind.name:
        return np.asarray(distribution.rvs(size=shape, random_state=generator))
    return _drawn_between(distribution, group.kind.limits, generator.random(shape))


def _drawn_between(distribution: Any, limits: tuple[Any, Any], u: Array) -> Array:
    """Map uniform numbers to draws of a density that is cut to limits.

    From the median on, the upper tail is inverted, which has digits where the lower one is 1.
    """
    lower, upper = limits
    low, up = distribution.cdf(lower), distribution.cdf(upper)
    beyond, least = distribution.sf(lower), distribution.sf(upper)
    above = distribution.isf(least + u * (beyond - least))
    below = distribution.ppf(low + u * (up - low))
    drawn = np.where(np.greater_equal(lower, distribution.median()), above, below)
    return np.asarray(np.clip(drawn, lower, upper))
