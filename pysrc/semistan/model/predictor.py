"""A predictor: a linear predictor of the response's distribution, with its terms.

The first is that of the mean; behind commas stand those of dispersion parameters and of unordered
categories. All have the same terms,

    predictor_n = loc + scale (tau + (x_n - mean of x)' theta + f(u_n; w)) + other terms + offset,

and a parameter is the inverse link of its predictor, sigma = exp(predictor), as in
``bf(y ~ ..., sigma ~ ...)`` of brms. With a network, its output bias is the intercept and there is
no tau. The coefficients are called ``b_sigma_z``, and ``b_sigma_Intercept`` is the predictor at
z = 0, with a network on average over the training rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.families.family import SIGMA, Family
from semistan.model.formula.calls import TermCall
from semistan.model.formula.formula import Formula, parse_formula, with_each
from semistan.model.formula.group_terms import GroupTerm
from semistan.model.formula.right import PredictorFormula
from semistan.model.names import MU, unique_names
from semistan.model.table.columns import (
    Terms,
    apply_structured,
    check_varies,
    learn_structured,
    terms_from_plain,
    to_plain,
)
from semistan.model.table.given import offset_values
from semistan.model.table.multiplied import Multiplier
from semistan.model.table.rows import Columns
from semistan.model.terms.group import Group, group_from_plain, learn_group
from semistan.model.terms.group_by import group_by_from_plain, learn_group_by
from semistan.model.terms.group_cov import group_cov_from_plain, learn_group_cov
from semistan.model.terms.group_members import group_members_from_plain, learn_group_members
from semistan.model.terms.kinds import term_kind

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.terms.term import Term

INTERCEPT = "Intercept"


@dataclass(frozen=True, slots=True)
class NetworkSlope:
    """A coefficient that is a network, ``b_z`` of ``z:nn(u)``: on average over the training rows.

    Attributes
    ----------
    name : str
        Valid in Stan: ``b_z``.
    column : str
        What it multiplies.
    scale : float
        The standard deviation of that column.
    network : int
        Which network it is, from 0, among those of all predictors.
    """

    name: str
    column: str
    scale: float
    network: int

    @property
    def weights(self) -> str:
        """The key of the prior of its output weights: ``w_z``."""
        return f"w_{self.effect}"

    @property
    def effect(self) -> str:
        """What the scale of its output weights is called after: ``z``."""
        return self.name.removeprefix("b_")


@dataclass(frozen=True, slots=True)
class Predictor:
    """The learnt predictor of the mean, of a dispersion parameter or of a category.

    Attributes
    ----------
    name : str
        ``mu``, or the parameter.
    x : Terms
        The learnt state of its structured terms.
    coefficients : tuple of str
        Their names, valid in Stan: ``b_age``, ``b_sigma_z``.
    intercept : str
        The intercept's name.
    networks : int
        How many networks it has.
    slopes : tuple of NetworkSlope
        The coefficients that some of these are.
    terms : tuple of Term
        Its other terms.
    offsets : tuple of str
        What is added as it is.
    link : str
        What the predictor is of: the ``log`` of a positive parameter, the ``logit`` of one
        between 0 and 1, or the parameter itself (``identity``).
    """

    name: str
    x: Terms
    coefficients: tuple[str, ...]
    intercept: str
    networks: int
    terms: tuple[Term, ...] = ()
    offsets: tuple[str, ...] = ()
    link: str = "identity"
    slopes: tuple[NetworkSlope, ...] = ()

    @property
    def is_mean(self) -> bool:
        """Whether it is the first one."""
        return self.name == MU

    @property
    def suffix(self) -> str:
        """What its names in the program end in: nothing for the mean, ``_sigma``."""
        return "" if self.is_mean else f"_{self.name}"

    @property
    def words(self) -> str:
        """What the predictor is of: ``log sigma``."""
        return self.name if self.link == "identity" else f"{self.link} {self.name}"

    @property
    def has_tau(self) -> bool:
        """Whether the intercept is a parameter of its own: no network has it."""
        return self.networks == len(self.slopes)

    @property
    def tau(self) -> str:
        """The name in the program of the intercept at average columns."""
        return f"tau{self.suffix}"

    @property
    def theta(self) -> str:
        """The name in the program of the coefficients."""
        return f"theta{self.suffix}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of intercept and coefficients, those that are networks last."""
        return (self.intercept, *self.coefficients, *(slope.name for slope in self.slopes))

    @property
    def columns_named(self) -> tuple[str, ...]:
        """What each of ``names`` multiplies."""
        return (INTERCEPT, *self.x.columns, *(slope.column for slope in self.slopes))

    def columns(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Columns:
        """Return what the predictor needs of the rows of a table, dates in days.

        Raises
        ------
        InputError
            For values that are not finite, or levels that the model was not trained on.
        """
        X = apply_structured(self.x, table)
        return self.rest(X, table, allow_new_levels=allow_new_levels)

    def rest(self, X: Array, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Columns:
        """Return the same, given the structured design X (N, P)."""
        blocks = tuple(term.block(table, allow_new_levels=allow_new_levels) for term in self.terms)
        return Columns(X, blocks, offset_values(self.offsets, table))


def learn_predictor(
    formula: PredictorFormula,
    table: pd.DataFrame,
    prefix: str,
    link: str = "identity",
    multiplied: Sequence[Multiplier | None] = (),
    related: Mapping[str, pd.DataFrame] | None = None,
) -> tuple[Predictor, Columns]:
    """Learn a predictor from the training rows; return it and what it needs of them.

    Parameters
    ----------
    formula : PredictorFormula
        Its terms.
    table : pandas.DataFrame
        The training rows, dates in days.
    prefix : str
        What the names of its coefficients start with: ``b_``.
    link : str
        What the predictor is of.
    multiplied : sequence of Multiplier, optional
        What its networks multiply.
    related : mapping of DataFrames, optional
        The covariances of levels, by the names of their files.

    Raises
    ------
    InputError
        For unusable values, or constant or collinear columns.
    """
    also = (item for call in formula.calls for item in term_kind(call.kind).also(call, table))
    x, X = learn_structured(tuple(dict.fromkeys((*formula.structured, *also))), table)
    of = "" if formula.name == MU else formula.name
    terms: tuple[Term, ...] = (
        *_learn_calls(formula.calls, table, of),
        *_learn_groups(formula.groups, table, of, related or {}),
    )
    check_varies(x)
    predictor = _named(formula, x, terms, prefix, link, multiplied)
    return predictor, predictor.rest(X, table)


def predictor_to_plain(predictor: Predictor) -> dict[str, Any]:
    """Return the learnt state as JSON-ready data."""
    return {
        "name": predictor.name,
        "link": predictor.link,
        "x": to_plain(asdict(predictor.x)),
        **_terms_to_plain(predictor.terms),
    }


def _terms_to_plain(terms: tuple[Term, ...]) -> dict[str, Any]:
    """Return the terms' states by their kind; the keys of ``s()`` and bars are always there."""
    found: dict[str, Any] = {"smooths": [], "groups": []}
    for term in terms:
        found.setdefault(term.stored, []).append(term.to_plain())
    return found


def predictor_from_plain(
    plain: Mapping[str, Any],
    part: PredictorFormula,
    formula: Formula,
    prefix: str,
    link: str,
    multiplied: Sequence[Multiplier | None] = (),
) -> Predictor:
    """Rebuild a predictor from plain data.

    Raises
    ------
    ValueError
        If the data are not those of the formula's predictor.
    """
    of = "" if part.name == MU else part.name
    calls = [
        term_kind(call.kind).from_plain(item, _key(of, number))
        for call, (number, item) in _with_stored(part.calls, plain)
    ]
    groups = [
        _group_from_plain(item, formula, _key(of, number), of)
        for number, item in enumerate(plain.get("groups", ()), 1)
    ]
    same = [term.text for term in calls] == [call.text for call in part.calls]
    levels = [group.behind_bar for group in groups]
    if not same or levels != [term.behind_bar for term in part.groups]:
        raise ValueError("the smooths and groups are not the formula's")
    x = terms_from_plain(plain["x"], formula)
    terms: tuple[Term, ...] = (*calls, *groups)
    return _named(part, x, terms, prefix, str(plain.get("link", link)), multiplied)


def check_parameters(formula: Formula, family: Family) -> None:
    """Refuse predictors of parameters that the family does not have, as soon as they are known.

    How many an ordinal family and a baseline hazard have, training rows say.

    Raises
    ------
    InputError
        Naming the nearest parameter.
    """
    if family.is_open:
        return
    free = [item.name for item in family.parameters]
    for predictor in formula.others:
        if predictor.name in free:
            continue
        if formula.se and predictor.name == SIGMA.name:
            raise InputError(
                f"'sigma ~ ...': with se({formula.se}) alone there is no sigma; write "
                f"se({formula.se}, sigma=TRUE) for a residual standard deviation besides"
            )
        if not free:
            raise InputError(
                f"'{predictor.name} ~ ...': family {family.name} has no dispersion parameter that "
                "could have a predictor"
            )
        raise InputError(
            f"'{predictor.name} ~ ...': family {family.name} has no such parameter."
            f"{did_you_mean(predictor.name, free)}"
        )


def for_each(formula: Formula, family: Family) -> Formula:
    """Write ``gap ~ g`` out as ``gap_2 ~ g, gap_3 ~ g``, of as many as the family has."""
    several, names = family.several, family.dispersion
    if not (several and names and several.name in [item.name for item in formula.others]):
        return formula
    return parse_formula(with_each(formula.text, several.name, names))


def _named(
    formula: PredictorFormula,
    x: Terms,
    terms: tuple[Term, ...],
    prefix: str,
    link: str,
    multiplied: Sequence[Multiplier | None],
) -> Predictor:
    held = [item for item in multiplied if item]
    every = (*x.columns, *(item.column for item in held))
    names = tuple(f"{prefix}{name}" for name in unique_names(every, (INTERCEPT,)))
    P = len(x.columns)
    slopes = tuple(
        NetworkSlope(name, item.column, item.scale, item.network)
        for name, item in zip(names[P:], held, strict=True)
    )
    return Predictor(
        formula.name, x, names[:P], f"{prefix}{INTERCEPT}", len(formula.networks), terms,
        formula.offsets, link, slopes,
    )  # fmt: skip


def _learn_calls(calls: tuple[TermCall, ...], table: pd.DataFrame, of: str) -> tuple[Term, ...]:
    naming = {call.text: call.naming for call in calls}
    names = dict(zip(naming, unique_names(naming.values()), strict=True))
    return tuple(
        term_kind(call.kind).learn(
            call,
            table,
            f"{of}_{names[call.text]}" if of else names[call.text],
            _key(of, number),
        )
        for call, number in _numbered(calls)
    )


def _numbered(calls: tuple[TermCall, ...]) -> Iterator[tuple[TermCall, int]]:
    """Count the calls of each kind from 1."""
    counts: Counter[str] = Counter()
    for call in calls:
        counts[call.kind] += 1
        yield call, counts[call.kind]


def _with_stored(
    calls: tuple[TermCall, ...], plain: Mapping[str, Any]
) -> Iterator[tuple[TermCall, tuple[int, Mapping[str, Any]]]]:
    """Yield each call with its number and what is stored of it."""
    for kind in {call.kind for call in calls} | {"s"}:
        stored, own = plain.get(term_kind(kind).stored, ()), [c for c in calls if c.kind == kind]
        if len(stored) != len(own):
            raise ValueError(f"{len(stored)} terms {kind}() are stored, and {len(own)} are written")
    for call, number in _numbered(calls):
        yield call, (number, plain[term_kind(call.kind).stored][number - 1])


def _learn_groups(
    terms: tuple[GroupTerm, ...], table: pd.DataFrame, of: str, related: Mapping[str, pd.DataFrame]
) -> tuple[Group, ...]:
    return tuple(
        GROUPS[term.kind][0](
            term, table, _key(of, number), of, *([related[term.cov]] if term.cov else [])
        )
        for number, term in enumerate(terms, start=1)
    )


# How group-level terms are learnt and rebuilt, by what they have beside columns.
GROUPS: dict[str, tuple[Callable[..., Group], Callable[..., Group]]] = {
    "": (learn_group, group_from_plain),
    "per": (learn_group_by, group_by_from_plain),
    "cov": (learn_group_cov, group_cov_from_plain),
    "members": (learn_group_members, group_members_from_plain),
}


def _group_from_plain(item: Mapping[str, Any], formula: Formula, key: str, of: str) -> Group:
    kind = next((kind for kind in GROUPS if kind in item), "")
    return GROUPS[kind][1](item, formula, key, of)


def _key(of: str, number: int) -> str:
    """Return what the names in the program of a predictor's term end in."""
    return f"{of}_{number}" if of else str(number)
