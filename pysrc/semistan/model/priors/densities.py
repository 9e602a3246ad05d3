"""The table of prior densities, and what the user's text means."""

from __future__ import annotations

import math
import re

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.priors.classes import CLASSES, class_of
from semistan.model.priors.density import Density, Prior
from semistan.model.priors.horseshoe import HORSESHOE
from semistan.model.priors.r2d2 import R2D2

AUTO = "auto"  # of phi: normal, as wide as what spans the subspace
DENSITIES: dict[str, Density] = {
    density.name: density
    for density in (
        Density("normal", ("location", "scale"), ("scale",), "Normal",
                lambda stats, location, scale: stats.norm(location, scale)),
        Density("student_t", ("df", "location", "scale"), ("scale",), "StudentT",
                lambda stats, df, location, scale: stats.t(df, location, scale)),
        Density("cauchy", ("location", "scale"), ("scale",), "Cauchy",
                lambda stats, location, scale: stats.cauchy(location, scale)),
        Density("exponential", ("rate",), ("rate",), "Exponential",
                lambda stats, rate: stats.expon(scale=1 / rate), "over", "positive"),
        Density("lognormal", ("meanlog", "sdlog"), ("meanlog",), "LogNormal",
                lambda stats, meanlog, sdlog: stats.lognorm(sdlog, scale=np.exp(meanlog)),
                "plus log", "positive"),
        Density("gamma", ("shape", "rate"), ("rate",), "Gamma",
                lambda stats, shape, rate: stats.gamma(shape, scale=1 / rate), "over",
                "positive"),
        Density("inv_gamma", ("shape", "scale"), ("scale",), "InverseGamma",
                lambda stats, shape, scale: stats.invgamma(shape, scale=scale),
                support="positive"),
        Density("beta", ("alpha", "beta"), (), "Beta",
                lambda stats, alpha, beta: stats.beta(alpha, beta), support="unit interval"),
        HORSESHOE,
        R2D2,
        Density("constant", ("value",), ("value",)),
        Density("lkj", ("shape",), ()),
        Density("dirichlet", ("concentration",), (), repeats=True),
    )
}  # fmt: skip


def parse_prior(text: str, parameter: str) -> Prior:
    """Read a prior such as ``"student_t(3, 0, 2.5)"`` of one parameter or class of parameters.

    ``"auto"``, which only phi can have, is read as a standard normal, in the units that the
    subspace gives.

    Raises
    ------
    InputError
        For an unknown density, a wrong number of arguments or an impossible value.
    """
    if parameter == "phi" and text.strip() == AUTO:
        return Prior(DENSITIES["normal"], (0.0, 1.0))
    match = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*(?:,(.*))?", text)
    if match is None:
        raise InputError(f"prior '{parameter}' must look like 'normal(0, 2.5)', got '{text}'")
    density = DENSITIES.get(match[1])
    if density is None:
        hint = did_you_mean(match[1], DENSITIES)
        raise InputError(f"prior '{parameter}' names the unknown density '{match[1]}'.{hint}")
    bounds = _bounds(match[3], text, parameter) if match[3] is not None else {}
    prior = Prior(density, _numbers(match[2], text, parameter, density), **bounds)
    _check_prior(prior, parameter)
    return prior


def _bounds(inner: str, text: str, parameter: str) -> dict[str, float]:
    """Read ``lb=0, ub=1``."""
    found: dict[str, float] = {}
    for part in inner.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        twice = name in found
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        if twice or name not in ("lb", "ub") or math.isnan(found[name]):
            raise InputError(
                f"prior '{parameter}': behind the density only bounds are known, as in "
                f"'normal(0, 2.5), lb=0, ub=1', got '{text}'"
            )
    if not found.get("lb", -math.inf) < found.get("ub", math.inf):
        raise InputError(f"prior '{parameter}': lb must be below ub, got '{text}'")
    return found


def _numbers(inner: str, text: str, parameter: str, density: Density) -> tuple[float, ...]:
    names = density.arguments
    default = dict(zip(reversed(names), reversed(density.defaults), strict=False))
    parts = [part.strip() for part in inner.split(",")] if inner.strip() else []
    if density.repeats:
        names = tuple(f"{names[0]}[{i}]" for i in range(1, len(parts) + 1)) or names
    named = [(name, part) for name, part in zip(names, parts, strict=False) if "=" not in part]
    named += [
        (name.strip(), value) for name, _, value in (p.partition("=") for p in parts if "=" in p)
    ]
    given = dict(named)
    known = set(given) <= set(names) <= {*given, *default}
    if not known or len(given) != len(parts) or not all(parts):
        expected = ", ".join(f"{x}={default[x]:g}" if x in default else x for x in names)
        raise InputError(f"prior '{parameter}': {density.name} takes ({expected}), got '{text}'")
    try:
        return tuple(float(given.get(name, default.get(name, math.nan))) for name in names)
    except ValueError:
        raise InputError(
            f"prior '{parameter}': the arguments of {density.name} must be numbers, got '{text}'"
        ) from None


SPREADS = [CLASSES[name] for name in ("sd", "sds", "sdgp", "sd_w")]
SUPPORT = {"real": (-math.inf, math.inf), "positive": (0.0, math.inf), "unit interval": (0.0, 1.0)}
VALUES = {"positive": "positive values", "unit interval": "values between 0 and 1"}
OF_ONE_CLASS = (
    ("lkj", "correlations", "the correlations of group-level effects, as cor = 'lkj(1)'"),
    ("dirichlet", "simplex", "the shares of the steps of mo(), as simo = 'dirichlet(1)'"),
)


def _check_prior(prior: Prior, parameter: str) -> None:
    density = prior.density
    if not all(math.isfinite(value) for value in prior.values):
        raise InputError(f"prior '{parameter}': the arguments must be finite, got '{prior}'")
    names = density.arguments * (len(prior.values) if density.repeats else 1)
    for argument, value in zip(names, prior.values, strict=True):
        if argument in density.bounded and not density.is_constant and not value > 0:
            raise InputError(
                f"prior '{parameter}': the {argument} of {density.name} must be positive, "
                f"got {value:g}"
            )
        if argument in density.shares and not value < 1:
            raise InputError(
                f"prior '{parameter}': the {argument} of {density.name} must be between 0 and 1, "
                f"got {value:g}"
            )
    kind = class_of(parameter)
    takes = kind.takes if kind else "positive"
    is_dispersion = takes != "real"
    if density.is_constant and not is_dispersion:
        raise InputError(
            f"prior '{parameter}': constant() is for dispersion parameters; "
            f"leave the term out of the formula instead"
        )
    if density.joint and parameter != "b" and not (density.explains and kind in SPREADS):
        also = ", and for standard deviations of terms and 'sd_w'" if density.explains else ""
        raise InputError(
            f"prior '{parameter}': {density}() is for all coefficients together, as prior 'b'{also}"
        )
    for name, owner, text in OF_ONE_CLASS:
        if (density.name == name) != (takes == owner):
            raise InputError(f"prior '{parameter}': {name}() is for {text}, and they have no other")
    _check_bounds(prior, parameter)
    low, up = SUPPORT[density.support]
    if not (is_dispersion or low <= prior.lb <= prior.ub <= up):
        raise InputError(
            f"prior '{parameter}': {density.name} allows only {VALUES[density.support]}; "
            "use normal(), student_t() or cauchy()"
            + (
                ", or give a coefficient bounds, as "
                f"'{prior}, {'lb=0' if density.support == 'positive' else 'lb=0, ub=1'}'"
                if kind is CLASSES["b"]
                else ""
            )
        )


def _check_bounds(prior: Prior, parameter: str) -> None:
    """Refuse bounds of what is not a coefficient, or of all coefficients together."""
    kind = class_of(parameter)
    if not prior.is_bounded:
        return
    if kind is not CLASSES["b"] or parameter.endswith("_Intercept"):
        raise InputError(
            f"prior '{parameter}': only coefficients may have bounds, as b_x = 'normal(0, 1), "
            f"lb=0', got '{prior}'"
        )
    if prior.density.joint:
        raise InputError(
            f"prior '{parameter}': {prior.density}() of all coefficients together has no bounds"
        )
