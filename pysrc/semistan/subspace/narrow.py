"""A trained bundle whose weights move in the span of its curve alone, however far they may move."""

from __future__ import annotations

from dataclasses import replace

from semistan.density.problem import make_problem
from semistan.model.bundle import Bundle
from semistan.model.config import with_overrides
from semistan.model.priors.weight_scales import NO_SCALES
from semistan.model.table.rows import Rows
from semistan.subspace.blocks import by_network
from semistan.subspace.span import span
from semistan.subspace.weight_prior import in_units_of_the_prior


def along_its_curve(bundle: Bundle, rows: Rows) -> Bundle:
    """Return the bundle of the subspace that the control points of its curve span.

    Parameters
    ----------
    bundle : Bundle
        With a curve, ``bundle.trained.curve``.
    rows : Rows
        Of training.
    """
    points = bundle.trained.control_points
    k = len(points) - 1
    narrow = {
        "subspace.k": k, "subspace.curve": None, "subspace.free": "none", "priors.sd_w": NO_SCALES
    }  # fmt: skip
    config = with_overrides(bundle.config, narrow)
    spanned, spread = by_network(bundle.network, *span(points, k, bundle.subspace.origin))
    trained = replace(bundle.trained, subspace=spanned, singular_values=spread)
    narrowed = replace(bundle, config=config, trained=trained)
    scale = make_problem(narrowed.model, rows, "cpu").prior_scale
    return (
        narrowed
        if scale is None
        else replace(narrowed, trained=in_units_of_the_prior(trained, scale.numpy()))
    )
