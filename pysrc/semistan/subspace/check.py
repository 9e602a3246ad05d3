"""What several constructions cannot do, refused before anything is trained."""

from __future__ import annotations

from semistan.errors import InputError
from semistan.model.config import SubspaceConfig
from semistan.model.names import MU
from semistan.model.networks.networks import Networks


def check_smaller(config: SubspaceConfig, network: Networks) -> None:
    """Refuse k dimensions that are not fewer than the weights of each network, but for a constant.

    Raises
    ------
    InputError
        If k >= d for one of them.
    """
    if network.dimensions and len(network.sizes) > 1:
        return  # each is smaller than its network
    d, several = min(size for size in network.sizes if size > 1), len(network.sizes) > 1
    if config.dimension >= d:
        raise InputError(
            f"k must be smaller than the number of Bayesian weights d = {d}"
            f"{' of the smallest network' if several else ''}, got k = {config.dimension}; "
            "choose a smaller k or a larger network"
        )


def check_one_predictor(config: SubspaceConfig, network: Networks) -> None:
    """Refuse networks of other predictors, for want of the curvature in those.

    Raises
    ------
    InputError
        Naming the predictors and the construction.
    """
    others = [f"'{name} ~ ...'" for name in dict.fromkeys(network.predictors) if name != MU]
    if others:
        raise InputError(
            f"the construction '{config.construction}' knows the curvature in the mean's predictor "
            f"alone and has no nn() in {', '.join(others)}; use another "
            "construction, as bezier"
        )
