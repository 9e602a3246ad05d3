"""Which parameters of the response have a predictor, and what is sampled of it."""

from __future__ import annotations

from semistan.model.design import Design
from semistan.model.families.families import Dispersion, Family
from semistan.model.units import Units


def scalar_parameters(family: Family, design: Design) -> tuple[Dispersion, ...]:
    """Return the dispersion parameters without a predictor."""
    return tuple(item for item in family.parameters if item.name not in design.varying)


def scalar_dispersion(family: Family, design: Design) -> tuple[str, ...]:
    """Return their names."""
    return tuple(item.name for item in scalar_parameters(family, design))


def predictor_start(family: Family, units: Units, name: str) -> float:
    """Return where training starts a predictor: the log of the unit of a positive parameter."""
    item = family.parameter(name)
    return item.predictor(units.start(item))


def sampled_shapes(design: Design) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what is sampled by name, in the program's order."""
    shapes: dict[str, tuple[int, ...]] = {}
    for item in design.parameters:
        shapes |= {f"tau_{item.name}": ()} if item.has_tau else {}
        number = len(item.coefficients)
        shapes |= {f"theta_{item.name}": (number,)} if number else {}
    return shapes


def parameters_text(design: Design) -> str:
    """Name the predictors of dispersion parameters, or return an empty text without any."""
    return ", ".join(f"'{item.name} ~ ...'" for item in design.parameters)
