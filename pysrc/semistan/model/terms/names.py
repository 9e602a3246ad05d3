"""Names in the program of what the terms with penalised coefficients bring."""

from __future__ import annotations

from semistan.model.design import Design
from semistan.model.terms.group import Group
from semistan.model.terms.smooth import Smooth


def coefficient_columns(design: Design) -> list[list[str]]:
    """Return the names in Stan's CSV of each term's coefficients, levels fastest."""
    smooths = [
        [f"s_{i}.{j}" for j in range(1, smooth.size + 1)]
        for i, smooth in enumerate(design.smooths, start=1)
    ]
    groups = [
        [
            f"r_{i}.{level}.{j}"
            for j in range(1, group.size + 1)
            for level in range(1, len(group.levels) + 1)
        ]
        for i, group in enumerate(design.groups, start=1)
    ]
    return smooths + groups


def spread_names(term: Smooth | Group) -> tuple[str, ...]:
    """Return the names of a term's standard deviations and correlations."""
    return (*term.spread, *(term.correlations if isinstance(term, Group) else ()))
