"""Which parameters of the response have a predictor, and which are numbers."""

from __future__ import annotations

from semistan.model.design import Design
from semistan.model.families.family import Dispersion, Family


def scalar_parameters(family: Family, design: Design) -> tuple[Dispersion, ...]:
    """Return the dispersion parameters without a predictor."""
    return tuple(item for item in family.parameters if item.name not in design.varying)


def parameters_text(design: Design) -> str:
    """Name the predictors behind commas, or return an empty text without any."""
    return ", ".join(f"'{item.name} ~ ...'" for item in design.others)


def terms_text(design: Design) -> str:
    """Name the smooths and group-level terms, or return an empty text if there are none."""
    return ", ".join(term.text for term in design.terms)
