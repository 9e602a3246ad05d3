"""What a prior implies: how far the network's part of a predictor varies before the data are seen.

The weights are drawn from their prior, within the subspace if there is one, and the network is
evaluated at the training rows. In each draw its mean over the rows is taken off, because that is
the intercept's. The figure is the standard deviation at a row, over the draws; of the rows, the
median.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.density.features import at_features
from semistan.density.pieces import pieces_of
from semistan.density.predictor import network_output
from semistan.density.prior_states import prior_states
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import with_overrides
from semistan.model.model import Model
from semistan.model.priors.groups import PHI
from semistan.model.table.rows import Rows

DRAWS, ROWS = 1000, 200
FEW_DRAWS, FEW_ROWS = 100, 20  # of convolutional networks, which take longer
ACTIVATIONS = 4_000_000  # that are held at a time
LATER = "how far the network varies under its prior is known after training"


@dataclass(frozen=True, slots=True)
class Implied:
    """How far the network's part of one predictor varies under the prior.

    Attributes
    ----------
    predictor : str
        In words: ``eta``, ``log sigma``.
    sd : float
        Its standard deviation at a row, in the predictor's units: of the mean, ``eta_scale``.
    text : str
        The figure with its unit in words: ``1.3 sd(y)``.
    """

    predictor: str
    sd: float
    text: str


def implied(
    source: Bundle | Model, rows: Rows, generator: np.random.Generator
) -> tuple[Implied, ...]:
    """Draw from the prior of the network.

    Parameters
    ----------
    source : Bundle or Model
        What is trained; or a model before training, all of whose weights are, or may be, sampled.
    rows : Rows
        The training rows, of which some are looked at.
    generator : numpy.random.Generator
        The source of all randomness.

    Returns
    -------
    tuple of Implied
        One for each predictor that has a network; none where that is known after training.
    """
    model = source if isinstance(source, Model) else source.model
    w = _of_model(source, generator) if isinstance(source, Model) else _of_bundle(source, generator)
    if w is None:
        return ()
    few = not model.network.in_stan
    w, some = (w[:FEW_DRAWS], rows.evenly(FEW_ROWS)) if few else (w, rows.evenly(ROWS))
    if isinstance(source, Bundle):
        source, some = at_features(source, some)
        model = source.model
    found = []
    for item in (predictor for predictor in model.design.predictors if predictor.networks):
        sd = _sd(model, w, some, item.name)
        if item.is_mean:
            found.append(Implied(model.design.mean_name or "eta", sd, _of_eta(model, rows, sd)))
        else:
            found.append(Implied(item.words, sd, f"{sd:.2g} in {item.words}"))
    return tuple(found)


def implied_text(found: tuple[Implied, ...]) -> str:
    """Say it in one line."""
    if not found:
        return LATER
    figures = ", and ".join(item.text for item in found)
    return f"under its prior the network's part has an sd of {figures} at a row (median)"


def _of_bundle(bundle: Bundle, generator: np.random.Generator) -> Array:
    """Draw weights (S, d) from the prior of phi."""
    drawn = prior_states(bundle, DRAWS, generator)[:, bundle.layout.slices[PHI]]
    return bundle.subspace.lift(bundle.subspace.phi_scale * drawn)


def _of_model(model: Model, generator: np.random.Generator) -> Array | None:
    """Draw weights (S, d) of all networks, unless more is to be known, as a subspace."""
    subspace = model.config.subspace
    every = model.moves == "all" or (subspace.k == "auto" and subspace.widens)
    if model.weight_scale is None or not every or model.leading.any:
        return None
    whole = with_overrides(model.config, {"subspace.k": model.network.d})
    if model.replace(config=whole).weight_scales:
        return None
    return np.asarray(model.weight_scale * generator.normal(size=(DRAWS, model.network.d)))


def _sd(model: Model, w: Array, rows: Rows, predictor: str) -> float:
    network = model.network
    pieces = pieces_of(len(w), len(rows) * network.widest, ACTIVATIONS)
    f = np.concatenate(
        [network_output(network, model.units, w[i], rows.U, predictor) for i in pieces]
    )
    centred = f - f.mean(axis=1, keepdims=True)
    return float(np.median(centred.std(axis=0, ddof=1)))


def _of_eta(model: Model, rows: Rows, sd: float) -> str:
    """Give the figure its unit: the data's where eta is the mean of y, else that of the link."""
    link, scale = model.family.link, model.units.eta_scale
    if link != "identity":
        return f"{scale * sd:.2g} on the {link} scale"
    assert rows.y is not None
    if np.isclose(scale, rows.y.std(ddof=1)):
        return f"{sd:.2g} sd(y)"
    return f"{sd:.2g} x {scale:.3g}, the data's scale of eta,"
