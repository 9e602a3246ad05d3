"""Predictors of dispersion parameters: ``sigma ~ z + nn(u)`` beside that of the mean.

A dispersion parameter that has a predictor varies from row to row,

    log sigma_n = log(unit of sigma) + tau + (z_n - mean of z)' theta_sigma + f_sigma(u_n; w),

as in ``bf(y ~ ..., sigma ~ ...)`` of brms. With a network, its output bias is the intercept and
there is no tau. The coefficients are called ``b_sigma_z``, and ``b_sigma_Intercept`` is log sigma
at z = 0, with a network on average over the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError, did_you_mean
from semistan.model.families.families import Family
from semistan.model.formula.formula import Formula, ParameterFormula
from semistan.model.names import unique_names
from semistan.model.networks.mlp import Array
from semistan.model.table.columns import (
    Terms,
    check_collinear,
    check_varies,
    learn_structured,
    terms_from_plain,
    to_plain,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ParameterDesign:
    """The learnt predictor of one dispersion parameter.

    Attributes
    ----------
    name : str
        The parameter.
    x : Terms
        The learnt state of its structured terms.
    coefficients : tuple of str
        Their names: ``b_sigma_z``.
    networks : int
        How many networks it has.
    link : str
        ``log``, or ``identity`` of a parameter on the whole line.
    """

    name: str
    x: Terms
    coefficients: tuple[str, ...]
    networks: int
    link: str = "log"

    @property
    def words(self) -> str:
        """What the predictor is of: ``log sigma``."""
        return f"log {self.name}" if self.link == "log" else self.name

    @property
    def intercept(self) -> str:
        """The intercept's name."""
        return f"b_{self.name}_Intercept"

    @property
    def has_tau(self) -> bool:
        """Whether the intercept is a parameter of its own: no network has it."""
        return not self.networks

    @property
    def size(self) -> int:
        """Number of parameters besides the networks' weights."""
        return len(self.coefficients) + self.has_tau

    @property
    def names(self) -> tuple[str, ...]:
        """The names of intercept and coefficients."""
        return (self.intercept, *self.coefficients)


def learn_parameter(
    formula: ParameterFormula, table: pd.DataFrame, link: str
) -> tuple[ParameterDesign, Array]:
    """Learn a predictor from the training rows; return it and its columns (N, P).

    Raises
    ------
    InputError
        For unusable values, or constant or collinear columns.
    """
    x, X = learn_structured(formula.structured, table)
    check_varies(x)
    check_collinear(x, X)
    return _named(formula, x, link), X


def parameter_to_plain(design: ParameterDesign) -> dict[str, Any]:
    """Return the learnt state as JSON-ready data."""
    return {"name": design.name, "x": to_plain(asdict(design.x))}


def parameters_from_plain(
    plain: list[Mapping[str, Any]], formula: Formula, link: str
) -> tuple[ParameterDesign, ...]:
    """Rebuild the predictors of a formula from their plain data.

    Raises
    ------
    ValueError
        If they are not the formula's.
    """
    if [item["name"] for item in plain] != [parameter.name for parameter in formula.parameters]:
        raise ValueError("the predictors are not the formula's")
    return tuple(
        _named(parameter, terms_from_plain(item["x"], formula), link)
        for parameter, item in zip(formula.parameters, plain, strict=True)
    )


def check_parameters(formula: Formula, family: Family) -> None:
    """Refuse predictors of parameters that the family does not have.

    Raises
    ------
    InputError
        Naming the nearest parameter.
    """
    free = [item.name for item in family.parameters if not item.of_class]
    for parameter in formula.parameters:
        if parameter.name in free:
            continue
        if not free:
            raise InputError(
                f"'{parameter.name} ~ ...': family {family.name} has no dispersion parameter that "
                "could have a predictor"
            )
        raise InputError(
            f"'{parameter.name} ~ ...': family {family.name} has no such parameter."
            f"{did_you_mean(parameter.name, free)}"
        )


def _named(formula: ParameterFormula, x: Terms, link: str) -> ParameterDesign:
    columns = unique_names(x.columns, ("Intercept",))
    names = tuple(f"b_{formula.name}_{column}" for column in columns)
    return ParameterDesign(formula.name, x, names, len(formula.networks), link)
