"""Networks that saturate: hidden units that no longer answer to their inputs.

Where tanh or sigmoid is at one of its ends, its slope is close to 0, and where the units of a relu
layer are 0 in every row, nothing behind them depends on the inputs. Neither training nor sampling
finds its way out then, and the network's part consists of nearly constant pieces. What is looked at
are the trained weights in the middle of the subspace, at the training rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from semistan.density.features import at_features
from semistan.density.predictor import network_inputs
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import layer_inputs
from semistan.model.table.rows import Rows
from semistan.workflow.watch import Say

ROWS = 2000  # that are looked at, evenly among all
SLOPE = 0.01  # of the steepest one, below which a unit is saturated at a row
MOST = 0.75  # of a layer's units and rows


@dataclass(frozen=True, slots=True)
class Saturated:
    """A hidden layer, by its number from 1, that is saturated.

    ``share`` is the share of its units' values, over all rows, where the activation is flat.
    """

    layer: int
    activation: str
    share: float

    def text(self) -> str:
        """Say it in one line, with what to do."""
        advice = (
            "look for outliers among the inputs of nn() (take their logarithm, say), or try a "
            "stronger prior of the weights (--prior-w 'normal(0, 1)') or a lower --learning-rate"
        )
        if ACTIVATIONS[self.activation].dead_at_zero:
            layer = f"hidden layer {self.layer} ({self.activation})"
            what = f"every unit of {layer} is 0 at every row: it is dead"
        else:
            what = (
                f"hidden layer {self.layer} is saturated: {self.share:.0%} of the values of its "
                f"units at the rows are at an end of {self.activation}, where it is flat"
            )
        return f"warning: {what}; {advice}"


def saturated(bundle: Bundle, rows: Rows) -> Saturated | None:
    """Return the hidden layer that is saturated most, or None if there is none.

    Parameters
    ----------
    bundle : Bundle
        The trained model; only its fully connected networks are looked at, behind constant layers.
    rows : Rows
        The training rows.
    """
    heads, some = at_features(bundle, rows.evenly(ROWS))
    u, w = network_inputs(heads.units, some.U), torch.tensor(heads.subspace.p_bar)
    network, found = heads.network, []
    with torch.no_grad():
        for part, inputs in zip(network.own, layer_inputs(network, w, u), strict=True):
            if type(part) is FullyConnected:
                for number, h in enumerate(inputs[1:], start=1):
                    share = _share(h.numpy(), part.activation)
                    found.append(Saturated(number, part.activation, share))
    worst = max(found, key=lambda layer: layer.share, default=None)
    return worst if worst is not None and worst.share > MOST else None


def warn_of_saturation(bundles: Iterable[Bundle], rows: Rows, say: Say) -> None:
    """Warn once if a network is saturated, with the layer of several that is so most."""
    several = [found for found in (saturated(bundle, rows) for bundle in bundles) if found]
    if several:
        say(max(several, key=lambda layer: layer.share).text())


def _share(h: Array, name: str) -> float:
    """Return the share of values (N, units) at a flat end; of dead units, all or none."""
    activation = ACTIVATIONS[name]
    if activation.dead_at_zero:
        return float(not np.any(h > 0))
    return 0.0 if activation.ends is None else float(np.mean(activation.ends(h) < SLOPE))
