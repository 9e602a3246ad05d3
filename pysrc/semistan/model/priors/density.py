"""Priors in Stan's words: a table of densities, and what the user's text means.

``autoscale`` multiplies a prior's scale by the units of its parameter, in the manner of
rstanarm: ``normal(0, 2.5)`` on a coefficient becomes ``normal(0, 2.5 * s_eta / s_x)``, and
``lognormal(0, 1)`` on a residual standard deviation ``lognormal(log(s_eta), 1)``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.lazy import torch

if TYPE_CHECKING:
    from collections.abc import Callable


ARGUMENT_TEXT = {  # of those whose names do not say it
    "df": "degrees of freedom",
    "meanlog": "mean of its logarithm",
    "sdlog": "standard deviation of its logarithm",
    "scale_global": "scale of tau",
    "df_global": "degrees of freedom of tau",
    "scale_slab": "scale of c",
    "df_slab": "degrees of freedom of c",
}
AUTO = "auto"  # of phi: normal, as wide as what spans the subspace


@dataclass(frozen=True, slots=True)
class Density:
    """A prior density.

    Attributes
    ----------
    name : str
        In Stan.
    arguments : tuple of str
        In Stan's order.
    carriers : tuple of str
        The arguments that carry the units.
    distribution : str or callable, optional
        Its class in ``torch.distributions``, or what makes one of the same arguments and
        ``validate_args``.
    scipy : callable, optional
        Maps ``scipy.stats`` and the arguments to the distribution there.
    units : str
        How the carriers follow the units: they are multiplied or divided by them, or their
        logarithm is added to them.
    support : str
        The kind of values that it is a density of: ``real``, ``positive`` or ``unit interval``.
    defaults : tuple of float
        Of the last arguments.
    """

    name: str
    arguments: tuple[str, ...]
    carriers: tuple[str, ...]
    distribution: str | Callable[..., Any] | None = None
    scipy: Callable[..., Any] | None = None
    units: Literal["times", "over", "plus log"] = "times"
    support: str = "real"
    defaults: tuple[float, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def bounded(self) -> tuple[str, ...]:
        """The arguments that must be positive."""
        return tuple(name for name in self.arguments if name not in ("location", "meanlog"))

    @property
    def is_constant(self) -> bool:
        """Whether the prior fixes its parameter at one value."""
        return self.name == "constant"

    @property
    def is_horseshoe(self) -> bool:
        """Whether it is for all coefficients together, with parameters of its own."""
        return self.name == "horseshoe"

    def in_scipy(self, *arguments: Any) -> Any:
        """Return the distribution with these arguments, numbers or arrays, frozen."""
        from scipy import stats

        assert self.scipy is not None
        return self.scipy(stats, *arguments)

    def in_torch(self, *arguments: Any) -> Any:
        """Return the distribution with these arguments as a torch distribution."""
        assert self.distribution is not None
        values = [torch.as_tensor(argument, dtype=torch.float64) for argument in arguments]
        made = self.distribution
        make = getattr(torch.distributions, made) if isinstance(made, str) else made
        return make(*values, validate_args=False)


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
        Density("horseshoe", ("df", "scale_global", "df_global", "scale_slab", "df_slab"),
                ("scale_global", "scale_slab"), defaults=(1, 1, 1, 2, 4)),
        Density("constant", ("value",), ("value",)),
        Density("lkj", ("shape",), ()),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prior:
    """A density with its arguments, as the user wrote them."""

    density: Density
    values: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.density.name}({', '.join(f'{value:.6g}' for value in self.values)})"

    def argument(self, name: str) -> float:
        """Return one argument's value."""
        return self.values[self.density.arguments.index(name)]

    def rescaled(self, units: float) -> Prior:
        """Return the prior of the parameter times ``units``, its location left where it is."""
        density = self.density
        values = dict(zip(density.arguments, self.values, strict=True))
        for carrier in density.carriers:
            if density.units == "plus log":
                values[carrier] += math.log(units)
            else:
                values[carrier] *= units if density.units == "times" else 1 / units
        return Prior(density, tuple(values.values()))


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
    match = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text)
    if match is None:
        raise InputError(f"prior '{parameter}' must look like 'normal(0, 2.5)', got '{text}'")
    density = DENSITIES.get(match[1])
    if density is None:
        hint = did_you_mean(match[1], DENSITIES)
        raise InputError(f"prior '{parameter}' names the unknown density '{match[1]}'.{hint}")
    prior = Prior(density, _numbers(match[2], text, parameter, density))
    _check_prior(prior, parameter)
    return prior


def _numbers(inner: str, text: str, parameter: str, density: Density) -> tuple[float, ...]:
    names = density.arguments
    default = dict(zip(reversed(names), reversed(density.defaults), strict=False))
    parts = [part.strip() for part in inner.split(",")] if inner.strip() else []
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


def _values(density: Density) -> str:
    return "positive values" if density.support == "positive" else "values between 0 and 1"


def _check_prior(prior: Prior, parameter: str) -> None:
    density = prior.density
    if not all(math.isfinite(value) for value in prior.values):
        raise InputError(f"prior '{parameter}': the arguments must be finite, got '{prior}'")
    for argument in () if density.is_constant else density.bounded:
        if not prior.argument(argument) > 0:
            raise InputError(
                f"prior '{parameter}': the {argument} of {density.name} must be positive, "
                f"got {prior.argument(argument):g}"
            )
    coefficients = parameter in ("b", "phi", "w", "Intercept") or parameter.startswith("b_")
    is_dispersion = not coefficients
    if density.is_constant and not is_dispersion:
        raise InputError(
            f"prior '{parameter}': constant() is for dispersion parameters; "
            f"leave the term out of the formula instead"
        )
    if density.is_constant and not prior.argument("value") > 0:
        raise InputError(f"prior '{parameter}': a dispersion must be positive, got '{prior}'")
    if density.is_horseshoe and parameter != "b":
        raise InputError(
            f"prior '{parameter}': horseshoe() is for all coefficients together, as prior 'b'"
        )
    if (density.name == "lkj") != (parameter == "cor"):
        raise InputError(
            f"prior '{parameter}': lkj() is for the correlations of group-level effects, as "
            'cor = "lkj(1)", and they have no other'
        )
    if density.support != "real" and not is_dispersion:
        raise InputError(
            f"prior '{parameter}': {density.name} allows only {_values(density)}; use normal(), "
            f"student_t() or cauchy()"
        )
