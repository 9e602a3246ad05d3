"""How long the trees of NUTS may grow, and how small its steps are, where ``auto`` leaves it open.

Where the output layer is integrated out of more than 75 dimensions, the step is limited by few
stiff directions, and the way by directions that the prior rules and predictions hardly need: a tree
that is cut early gives a valid draw, and more effective draws of predictions for each gradient than
one that turns by itself. Elsewhere trees turn by themselves, and steps are small, as they must be
where standard deviations of coefficients are sampled, with which the posterior narrows, and
smaller yet in the span of a curve, in which the posterior is bent.
"""

from __future__ import annotations

from dataclasses import dataclass

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
BENT = Trees(0.98, 10)
CUT = Trees(0.8, 6)


def trees_of(model: Model, k: int) -> Trees:
    """Return what ``auto`` means of a model in k dimensions of the weights."""
    if model.moves in ("directions", "both"):
        return BENT
    narrows = model.design.terms or model.joint or model.weight_scales
    integrated = model.integral is not None and model.integral.phi
    return CUT if integrated and k > MOST_GAUSSIAN and not narrows else WHOLE
