"""Scales of the weights that are sampled: ``sd_w = "lognormal(0, 0.7)"``.

The prior of the weights, normal(0, s_j), is as wide for all inputs and layers. A function that
depends on few inputs, or is smoother or rougher than this prior expects, is estimated better if the
posterior says how wide it is,

    w_j ~ normal(0, sd_w[g] s_j),    g the group of weight j,

one sd_w for the weights from each input, one for the first layer's biases, and one for each further
layer. The first are known as automatic relevance determination (MacKay, 1994; Neal, 1996). Output
biases belong to no group.

By default, ``sd_w = "auto"``, only output weights of networks that multiply a column have one: how
much an effect varies is seldom known, and most vary little. That is where they are integrated out,
since a chain that samples them beside their scale moves in a funnel. With ``sd_w = "R2D2()"``
the output weights of each of the mean's networks have one, so that what a network adds has its
share in the variance that the R2D2 prior is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.lazy import torch
from semistan.model.names import MU
from semistan.model.networks.networks import Networks, layers, output_layers

if TYPE_CHECKING:
    from torch import Tensor

SD_W = "sd_w"
NO_SCALES, AUTO_SCALE = "none", "normal(0, 1)"  # the latter is the prior of what "auto" samples
GROUPS = f"{SD_W}_of"  # its name in the data block


@dataclass(frozen=True, slots=True, eq=False)
class WeightScales:
    """Which weights share a scale.

    Attributes
    ----------
    of : array of int, shape (d,)
        The group of each weight, from 1, or 0 of output biases.
    names : tuple of str
        The groups, as ``bmi`` or ``layer 2``.
    """

    of: np.ndarray
    names: tuple[str, ...]

    def factor(self, sd_w: Tensor) -> Tensor:
        """Return what the standard deviation of each weight is multiplied by, shape (..., d)."""
        none = torch.ones_like(sd_w[..., :1])
        return torch.cat([none, sd_w], dim=-1)[..., torch.from_numpy(self.of)]


def stan_scale(scale: str) -> str:
    """Return the expression for the standard deviations of all weights in a program."""
    return f"{scale} .* append_row(1, {SD_W})[{GROUPS}]"


def effect_scales(spec: Networks, effects: Mapping[int, str]) -> WeightScales:
    """Give the output weights of some networks a scale each.

    Parameters
    ----------
    spec : Networks
        All networks.
    effects : mapping of int to str
        The groups' names, by the number of the network.
    """
    of = np.zeros(spec.d, dtype=int)
    every = layers(spec)
    for group, number in enumerate(effects, start=1):
        of[every[number][-1].weights] = group
    return WeightScales(of, tuple(effects.values()))


def output_scales(spec: Networks) -> WeightScales:
    """Give the output weights of each of the mean's networks a scale."""
    of, ends = np.zeros(spec.d, dtype=int), output_layers(spec, MU)
    for group, end in enumerate(ends, start=1):
        of[end[:-1]] = group
    several = len(ends) > 1
    return WeightScales(
        of, tuple(f"network {i}" if several else "network" for i in range(1, len(ends) + 1))
    )


def weight_scales(
    spec: Networks, inputs: Sequence[Sequence[str]], constant: Sequence[int]
) -> WeightScales:
    """Group the weights of networks.

    Parameters
    ----------
    spec : Networks
        One network or several, all of whose weights are sampled.
    inputs : sequence of sequences of str
        Names of the inputs of each.
    constant : sequence of int
        How many leading layers of each are constants, behind which inputs have no names.
    """
    of, names = np.zeros(spec.d, dtype=int), []

    def group(name: str, *weights: slice | np.ndarray) -> None:
        names.append(name)
        for where in weights:
            of[where] = len(names)

    parts = zip(layers(spec), inputs, constant, strict=True)
    for number, (part, columns, before) in enumerate(parts, start=1):
        suffix = f" of network {number}" if len(spec.parts) > 1 else ""
        for depth, layer in enumerate(part, start=before + 1):
            biases = [] if layer is part[-1] else [layer.biases]
            if depth > 1 or layer.m != len(columns):
                group(f"layer {depth}{suffix}", layer.weights, *biases)
                continue
            by_input = np.arange(spec.d)[layer.weights].reshape(layer.n, layer.m).T
            for name, weights in zip(columns, by_input, strict=True):
                group(f"{name}{suffix}", weights)
            if biases:
                group(f"biases{suffix}", *biases)
    return WeightScales(of, tuple(names))
