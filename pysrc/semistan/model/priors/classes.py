"""The classes of parameters whose priors ``[priors]`` sets, with their defaults: a line each.

The key of a class is the prior of all of its parameters, the name of a parameter that of one. The
parameters of families are further classes, which ``families/`` lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PriorClass:
    """A class of parameters.

    Attributes
    ----------
    of : str
        What they are.
    default : str
        Their prior, empty where it is not the same for all of them.
    takes : str
        Which densities it can be: of ``real`` numbers, of ``positive`` ones, of the shares of a
        ``simplex``, or of ``correlations``.
    prefix : tuple of str
        What the keys of single parameters begin with, without the underscore.
    """

    of: str
    default: str = ""
    takes: Literal["real", "positive", "simplex", "correlations"] = "positive"
    prefix: tuple[str, ...] = ()


SPREAD = "student_t(3, 0, 2.5)"
CLASSES: dict[str, PriorClass] = {
    "b": PriorClass("coefficients, of mi() too, average steps of mo()", "normal(0, 2.5)", "real",
                    ("b", "bsp")),
    "w": PriorClass("weights of networks", "normal(0, 2)", "real", ("w",)),
    "Intercept": PriorClass("output biases of networks", "normal(0, 2.5)", "real"),
    "phi": PriorClass("coordinates of the subspace", "", "real"),
    "sd_w": PriorClass("scales of the weights"),
    "sd": PriorClass("standard deviations of group-level effects", SPREAD, prefix=("sd",)),
    "cor": PriorClass("correlations of group-level effects", "lkj(1)", "correlations", ("cor",)),
    "sds": PriorClass("standard deviations of smooths", SPREAD, prefix=("sds",)),
    "sdgp": PriorClass("standard deviations of Gaussian processes", SPREAD, prefix=("sdgp",)),
    "lscale": PriorClass("length scales of Gaussian processes", prefix=("lscale",)),
    "simo": PriorClass("shares of the steps of mo()", "dirichlet(1)", "simplex", ("simo",)),
}  # fmt: skip


def class_of(key: str) -> PriorClass | None:
    """Return the class that a key of ``[priors]`` is, or is a parameter of; None of a family's."""
    found = CLASSES.get(key)
    if found is None:
        prefix, separator, _ = key.partition("_")
        named = (item for item in CLASSES.values() if separator and prefix in item.prefix)
        found = next(named, None)
    return found
