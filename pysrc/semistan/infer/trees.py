"""How long the trees of NUTS may grow, and how small its steps are, where ``auto`` leaves it open.

Where the output layer is integrated out of more than 75 dimensions, the step is limited by few
stiff directions, and the way by directions that the prior rules and predictions hardly need: a tree
that is cut early gives a valid draw, and more effective draws of predictions for each gradient than
one that turns by itself. Stiffness grows with the rows, and so does the depth; standard deviations
and scales of coefficients that are integrated out too need one more to move as well as predictions
do. Elsewhere trees turn by themselves, and steps are small, as they must be where standard
deviations of coefficients are sampled, with which the posterior narrows, and smaller yet in the
span of a curve, in which the posterior is bent and may have a second, narrow mode. With many rows
it is narrow enough to be all but normal there: where that was measured, steps may be large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from semistan.model.config import SampleConfig
from semistan.model.model import Model

MOST_GAUSSIAN = 75  # dimensions up to which the metric of a mode is worth more than an adapted one


@dataclass(frozen=True, slots=True)
class Trees:
    """The target acceptance rate, and the depth at which trees are cut."""

    adapt_delta: float
    max_treedepth: int

    def resolve(self, options: SampleConfig) -> SampleConfig:
        """Replace ``auto`` by these."""
        update = {
            name: getattr(self, name)
            for name in ("adapt_delta", "max_treedepth")
            if getattr(options, name) == "auto"
        }
        return options.model_copy(update=update)


WHOLE = Trees(0.95, 10)
BENT, STRAIGHT = Trees(0.98, 10), Trees(0.9, 10)
NEARLY_NORMAL = 0.4  # nats by which a posterior departs from normal, up to which it is not bent
CUT = {500: Trees(0.9, 7), 1500: Trees(0.9, 8), 5000: Trees(0.9, 9)}  # up to so many rows
LEAST_DEPTH = min(trees.max_treedepth for trees in CUT.values())


def trees_of(model: Model, k: int, rows: int, departure: float = inf) -> Trees:
    """Return what ``auto`` means of a model in k dimensions of the weights, with so many rows.

    ``departure`` is by how many nats the posterior departs from normal, where that is known.
    """
    if model.moves in ("directions", "both"):
        return BENT if departure > NEARLY_NORMAL else STRAIGHT
    if not are_cut(model, k):
        return WHOLE
    cut = next((trees for most, trees in CUT.items() if rows <= most), Trees(0.9, 10))
    beside = bool(model.design.terms) or model.joint is not None
    deeper = cut.max_treedepth + beside
    return replace(cut, max_treedepth=min(deeper, WHOLE.max_treedepth))


def are_cut(model: Model, k: int) -> bool:
    """Say whether trees are cut by intention."""
    if model.integral is None or not model.integral.phi:
        return False
    joint = model.joint is not None and model.integral.joint is None
    narrows = model.sampled_terms or joint or model.config.priors.scales_all
    return model.moves == "all" and k > MOST_GAUSSIAN and not narrows
