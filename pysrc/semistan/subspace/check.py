"""What a construction cannot do, refused before anything is trained."""

from __future__ import annotations

from semistan.errors import InputError
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.varying import parameters_text


def check_curvature(config: ModelConfig, design: Design) -> None:
    """Refuse constructions that know the curvature in the mean's predictor alone.

    Raises
    ------
    InputError
        Naming the predictors and the construction.
    """
    name = config.subspace.construction
    by_curvature = name == "low_rank_laplace" or (
        name == "subnetwork" and config.subspace.select == "variance"
    )
    if design.network_predictors and by_curvature:
        raise InputError(
            f"the construction '{name}' knows the curvature in the mean's predictor alone and has "
            f"no nn() in {parameters_text(design)}; use another construction, as bezier"
        )
