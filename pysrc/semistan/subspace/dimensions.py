"""Dimensions that the formula gives single networks: ``nn(u, k=12) + nn(v, k=3)``.

A construction is trained with the largest of them, and each network keeps its own number of its
leading directions (``blocks.py``).
"""

from __future__ import annotations

from semistan.errors import InputError
from semistan.model.config import SubspaceConfig
from semistan.model.construction import construction_facts
from semistan.model.networks.networks import Networks


def as_trained(config: SubspaceConfig, network: Networks) -> SubspaceConfig:
    """Return the section with the k that a construction is trained with."""
    if not network.dimensions:
        return config
    return config.model_copy(update={"k": max(network.dimensions)})


def check_dimensions(config: SubspaceConfig, network: Networks) -> None:
    """Refuse a k in ``nn()`` where networks have no dimensions of their own, or fewer weights.

    Raises
    ------
    InputError
        Saying why.
    """
    if not network.dimensions:
        return
    facts, several = construction_facts(config.construction), len(network.parts) > 1
    if facts.moves == "all" or (facts.moves == "axes" and several):
        among = "lets all weights move" if facts.moves == "all" else "chooses k weights among all"
        raise InputError(
            f"the construction '{config.construction}' {among}, so that no network has a k of its "
            "own; leave k out of nn(), or use another construction, as bezier"
        )
    if not several:
        return
    for number, (k, d) in enumerate(zip(network.dimensions, network.sizes, strict=True), start=1):
        if k >= d:
            raise InputError(
                f"k must be smaller than the number of Bayesian weights d = {d} of network "
                f"{number} of the formula, got k = {k}; choose a smaller k or a larger network"
            )
