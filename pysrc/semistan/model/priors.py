"""Priors in Stan's words: a table of densities, and what the user's text means.

``autoscale`` multiplies a prior's scale by the units of its parameter, in the manner of
rstanarm: ``normal(0, 2.5)`` on a coefficient becomes ``normal(0, 2.5 * s_eta / s_x)``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from semistan.errors import InputError, did_you_mean


@dataclass(frozen=True, slots=True)
class Density:
    """A prior density: its Stan name, its arguments, and which of them carries the units."""

    name: str
    arguments: tuple[str, ...]
    scale: str | None
    distribution: str | None  # its class in torch.distributions, with the same arguments
    inverse_scale: bool = False
    positive: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether the prior fixes its parameter at one value."""
        return self.name == "constant"


DENSITIES: dict[str, Density] = {
    density.name: density
    for density in (
        Density("normal", ("location", "scale"), "scale", "Normal"),
        Density("student_t", ("df", "location", "scale"), "scale", "StudentT"),
        Density("cauchy", ("location", "scale"), "scale", "Cauchy"),
        Density("exponential", ("rate",), "rate", "Exponential", inverse_scale=True, positive=True),
        Density("constant", ("value",), "value", None),
    )
}


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
        """Return the prior with its scale multiplied by ``units``."""
        density = self.density
        factor = 1 / units if density.inverse_scale else units
        values = tuple(
            value * factor if argument == density.scale else value
            for argument, value in zip(density.arguments, self.values, strict=True)
        )
        return Prior(density, values)


def parse_prior(text: str, parameter: str) -> Prior:
    """Read a prior such as ``"student_t(3, 0, 2.5)"`` for one parameter class.

    Raises
    ------
    InputError
        For an unknown density, a wrong number of arguments or an impossible value.
    """
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
    parts = [part.strip() for part in inner.split(",")]
    if len(parts) != len(density.arguments) or not all(parts):
        expected = ", ".join(density.arguments)
        raise InputError(f"prior '{parameter}': {density.name} takes ({expected}), got '{text}'")
    try:
        return tuple(float(part) for part in parts)
    except ValueError:
        raise InputError(
            f"prior '{parameter}': the arguments of {density.name} must be numbers, got '{text}'"
        ) from None


def _check_prior(prior: Prior, parameter: str) -> None:
    density = prior.density
    if not all(math.isfinite(value) for value in prior.values):
        raise InputError(f"prior '{parameter}': the arguments must be finite, got '{prior}'")
    for argument in ("scale", "df", "rate"):
        if argument in density.arguments and not prior.argument(argument) > 0:
            raise InputError(
                f"prior '{parameter}': the {argument} of {density.name} must be positive, "
                f"got {prior.argument(argument):g}"
            )
    if density.is_constant and parameter != "sigma":
        raise InputError(
            f"prior '{parameter}': constant() is for dispersion parameters; "
            f"leave the term out of the formula instead"
        )
    if density.is_constant and not prior.argument("value") > 0:
        raise InputError(f"prior '{parameter}': a dispersion must be positive, got '{prior}'")
    if density.positive and parameter in ("b", "phi"):
        raise InputError(
            f"prior '{parameter}': {density.name} allows only positive values; use normal(), "
            f"student_t() or cauchy()"
        )
