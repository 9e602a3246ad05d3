"""Which parts of the mean's predictor share an R2D2 prior, and the units of their spreads.

What a group-level effect of a column adds has the standard deviation sd_g__x times that of the
column, and a smooth's or process's is the one that is sampled. A network's is relative to what it
adds under its prior, as the root of the mean variance over standard normal inputs, its bias apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, forward, output_layers
from semistan.model.priors.groups import PriorGroup
from semistan.model.priors.r2d2 import SDB, Explained
from semistan.model.priors.weight_scales import SD_W

SEED = 1  # of the weights and inputs at which a network's spread is looked at
DRAWS, ROWS = 400, 100
FEW_DRAWS, FEW_ROWS = 50, 10  # of convolutional networks, which take longer


def explained_by(
    priors: Sequence[PriorGroup], design: Design, parameters: Collection[str], of_networks: Array
) -> Explained | None:
    """Return the parts that share an R2D2 prior, or None without one.

    Parameters
    ----------
    priors : sequence of PriorGroup
        Of all parameters.
    design : Design
        The predictors.
    parameters : collection of str
        Those of the response's distribution.
    of_networks : array, shape (n,)
        What the network of each scale of weights adds, in units of the predictor.
    """
    groups = [item for item in priors if item.density.explains]
    if not groups:
        return None
    scalars = {item.name: item.unit for term in design.terms for item in term.hyperparameters()}
    sizes, units = {}, list[Array]()
    for item in groups:
        if item.parameter == design.mean.theta:
            sizes[SDB] = item.size
            units.append(np.ones(len(item.names)))
        elif item.parameter == SD_W:
            sizes[SD_W] = item.size
            units.append(1 / of_networks)
        else:
            sizes[item.parameter] = ""
            units.append(np.array([scalars[item.parameter]]))
    first, residual = groups[0], "sigma" if "sigma" in parameters else "1"
    return Explained(sizes, np.concatenate(units), first.arguments(first.used), residual)


def spreads(spec: Networks, scale: Array) -> Array:
    """Return what each of the mean's networks adds under its prior, (n,), its bias apart.

    Parameters
    ----------
    spec : Networks
        The networks.
    scale : array, shape (d,)
        Standard deviations of their weights.
    """
    draws, rows = (DRAWS, ROWS) if spec.in_stan else (FEW_DRAWS, FEW_ROWS)
    generator, ends = np.random.default_rng(SEED), output_layers(spec)
    w = scale * generator.normal(size=(draws, spec.d))
    u = torch.from_numpy(generator.normal(size=(rows, spec.n_inputs)))
    found = []
    for end in output_layers(spec, MU):
        alone = w.copy()
        alone[:, np.concatenate(ends)] = 0
        alone[:, end[:-1]] = w[:, end[:-1]]
        with torch.no_grad():
            f = forward(spec, torch.from_numpy(alone), u).numpy()
        found.append(np.sqrt(f.var(axis=1).mean()))
    return np.array(found)
