"""What is known of each row: offsets, weights, trials, standard errors, censoring, bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families.family import Family
from semistan.model.formula.formula import Formula
from semistan.model.table.columns import evaluate
from semistan.model.table.scale import check_count

if TYPE_CHECKING:
    import pandas as pd

CODES = {"left": -1.0, "none": 0.0, "right": 1.0, "interval": 2.0}  # brms's
WRITTEN = CODES | {f"{code:g}": code for code in CODES.values()} | {"true": 1.0, "false": 0.0}
WITHOUT_DERIVATIVE = ("student", "gamma", "beta", "negbinomial")


def given_values(formula: Formula, table: pd.DataFrame, *, response: bool) -> dict[str, Array]:
    """Evaluate ``weights()``, ``trials()``, ``se()``, ``cens()`` and ``trunc()``.

    Parameters
    ----------
    formula : Formula
        The parsed formula.
    table : pandas.DataFrame
        The rows.
    response : bool
        Whether the response is needed, and with it the weights and the censoring.

    Returns
    -------
    dict of arrays, shape (N,)
        ``weights``, ``trials``, ``se``, ``cens``, ``y2``, ``lb`` and ``ub``, those that the formula
        has.

    Raises
    ------
    InputError
        For negative weights and standard errors, trials that are no whole numbers or too many,
        and unknown kinds of censoring.
    """
    found: dict[str, Array] = {}
    if formula.weights and response:
        found["weights"] = _at_least_0("weights", formula.weights, table)
    if formula.trials:
        found["trials"] = _trials(formula.trials, table)
    if formula.se:
        found["se"] = _at_least_0("se", formula.se, table)
    if formula.cens and response:
        found["cens"] = _kinds_of_censoring(formula.cens[0], table)
        if formula.cens[1:]:
            found["y2"] = evaluate(formula.cens[1], table)
    bounds = {"lb": formula.lb, "ub": formula.ub}
    return found | {name: evaluate(text, table) for name, text in bounds.items() if text}


def check_given(record: Family, formula: Formula, y: Array | None, given: dict[str, Array]) -> None:
    """Refuse what is given of rows where the family or their responses, if known, do not allow it.

    Raises
    ------
    InputError
        Naming the first row.
    """
    if y is not None:
        _check_trials(record, formula, y, given)
        _check_errors(formula, given)
        _check_censoring(record, formula, y, given)
    _check_truncation(record, formula, y, given)


def check_weights(formula: Formula, given: dict[str, Array]) -> None:
    """Refuse weights of rows to be fitted that are all 0.

    Raises
    ------
    InputError
        Naming their expression.
    """
    if formula.weights and not given["weights"].any():
        raise InputError(f"weights({formula.weights}) are all 0: there is nothing to fit")


def _check_errors(formula: Formula, given: dict[str, Array]) -> None:
    """Refuse rows that are known exactly where there is no residual standard deviation.

    Raises
    ------
    InputError
        Naming the first row.
    """
    if formula.se and not formula.se_and_sigma:
        hint = f", or with a residual standard deviation too, se({formula.se}, sigma=TRUE)"
        _refuse(given["se"] == 0, given["se"], f"se({formula.se})", f"above 0{hint}")


def _check_censoring(record: Family, formula: Formula, y: Array, given: dict[str, Array]) -> None:
    """Refuse censoring that the family does not know, and intervals without an end.

    Raises
    ------
    InputError
        Naming the families, or the first row.
    """
    if not formula.cens:
        return
    if record.tails is None:
        raise _of_others(record, "cens")
    name, within = f"cens({', '.join(formula.cens)})", given["cens"] == CODES["interval"]
    if not formula.cens[1:] and within.any():
        raise InputError(
            f"{name} has intervals, as in row {int(np.flatnonzero(within)[0]) + 1}, but not where "
            f"they end: name the column, as cens({formula.cens[0]}, y2)"
        )
    if formula.cens[1:]:
        ends = f"the end of an interval, '{formula.cens[1]}',"
        _refuse(within & ~(given["y2"] > y), given["y2"], ends, f"above '{formula.response}'")
        parts = within & (given["y2"] != np.floor(given["y2"]))
        _refuse(parts & record.integer, given["y2"], ends, "a whole number, as the counts are")


def _of_others(record: Family, name: str) -> InputError:
    """Return the error that the family has no tails, with the reason if it is PyTorch's."""
    reason = ""
    if record.name in WITHOUT_DERIVATIVE:
        reason = ": PyTorch has no derivative of its distribution function in the parameters"
    return InputError(
        f"{name}() is for families gaussian, lognormal, weibull, exponential, cox and poisson, the "
        f"family is {record.name}{reason}; choose another family"
    )


def _check_truncation(
    record: Family, formula: Formula, y: Array | None, given: dict[str, Array]
) -> None:
    """Refuse bounds that the family does not know, and responses outside them.

    Raises
    ------
    InputError
        Naming the families, or the first row.
    """
    if not (formula.lb or formula.ub):
        return
    if record.tails is None:
        raise _of_others(record, "trunc")
    for name, text in (("lb", formula.lb), ("ub", formula.ub)):
        if text and record.integer:
            bad = given[name] != np.floor(given[name])
            _refuse(bad, given[name], f"trunc({name}={text})", "whole numbers, as the counts are")
    if formula.lb and formula.ub:
        order = "at least" if record.integer else "above"
        bad = given["ub"] < given["lb"] if record.integer else given["ub"] <= given["lb"]
        _refuse(bad, given["ub"], f"trunc(ub={formula.ub})", f"{order} trunc(lb={formula.lb})")
    if y is not None:
        _check_within(formula, y, given)


def _check_within(formula: Formula, y: Array, given: dict[str, Array]) -> None:
    """Refuse responses outside their bounds, and censored ones that may be outside."""
    response, code = f"response '{formula.response}'", given.get("cens", np.zeros(len(y)))
    for name, text, side in (("lb", formula.lb, "left"), ("ub", formula.ub, "right")):
        if not text:
            continue
        words, bound = f"trunc({name}={text})", given[name]
        outside = y < bound if name == "lb" else y > bound
        _refuse(
            outside, y, response,
            f"at {'least' if name == 'lb' else 'most'} {words}, which says that other rows could "
            "not be in the table",
        )  # fmt: skip
        _refuse(
            code == CODES[side], y, response,
            f"censored in an interval that {'begins' if name == 'lb' else 'ends'} at the bound, "
            f"where it is censored to the {side} and there is {words}",
        )  # fmt: skip
    if "y2" in given and formula.ub:
        beyond = (code == CODES["interval"]) & (given["y2"] > given["ub"])
        _refuse(beyond, given["y2"], "the end of an interval", f"at most trunc(ub={formula.ub})")


def offset_values(expressions: tuple[str, ...], table: pd.DataFrame) -> Array | None:
    """Return the sum (N,) of ``offset()`` terms, None if there are none.

    Raises
    ------
    InputError
        For values that are not finite.
    """
    if not expressions:
        return None
    return np.asarray(np.sum([_offset(text, table) for text in expressions], axis=0))


def _check_trials(record: Family, formula: Formula, y: Array, given: dict[str, Array]) -> None:
    """Refuse successes beyond the trials, counts of other sums, and trials of other families.

    Raises
    ------
    InputError
        Naming the first row.
    """
    if "trials" not in record.given:
        if formula.trials:
            raise InputError(
                "trials() is for family binomial, beta_binomial and multinomial, the family is "
                f"{record.name}; leave it out"
            )
        return
    one = "categorical with a column that names the category" if record.counted else "bernoulli"
    if not formula.trials:
        raise InputError(
            f"family {record.name} needs the number of trials, as "
            f"{formula.response} | trials(n) ~ ...; if it is 1 in each row, use family {one}"
        )
    trials = given["trials"]
    if record.counted:
        _refuse(
            (trials != y.sum(axis=1)) | (trials < 1), trials, f"trials({formula.trials})",
            f"the sum of '{formula.response}', at least 1",
        )  # fmt: skip
        return
    _refuse(
        trials < y, trials, f"trials({formula.trials})",
        f"at least as many as the successes '{formula.response}'",
    )  # fmt: skip


def _offset(expression: str, table: pd.DataFrame) -> Array:
    values = evaluate(expression, table, finite=False)
    hint = ": a logarithm of 0?" if expression.startswith("log") else ""
    _refuse(~np.isfinite(values), values, f"offset({expression})", f"finite numbers{hint}")
    return values


def _kinds_of_censoring(expression: str, table: pd.DataFrame) -> Array:
    """Return the code of each row: brms's words or numbers, or true of a right-censored row.

    Numbers and truth values may stand as text.
    """
    column = table.get(expression.strip("`"))
    if column is not None and not _is_number(column):
        values = [WRITTEN.get(str(value).strip().lower(), np.nan) for value in column]
        codes = np.array(values)
        unknown = np.flatnonzero(np.isnan(codes))
        if unknown.size:
            raise InputError(
                f"cens({expression}) must be left (-1), none (0), right (1) or interval (2), or "
                f"true of a right-censored row, got '{column.iloc[unknown[0]]}' in row "
                f"{unknown[0] + 1}"
            )
        return codes
    codes = evaluate(expression, table)
    expected = "-1 (left), 0 (none), 1 (right) or 2 (interval)"
    _refuse(~np.isin(codes, list(CODES.values())), codes, f"cens({expression})", expected)
    return codes


def _is_number(column: pd.Series) -> bool:
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(column))


def _trials(expression: str, table: pd.DataFrame) -> Array:
    name, values = f"trials({expression})", _at_least_0("trials", expression, table)
    check_count(name, values)
    _refuse(values != np.floor(values), values, name, "whole numbers")
    return values


def _at_least_0(name: str, expression: str, table: pd.DataFrame) -> Array:
    values = evaluate(expression, table)
    _refuse(values < 0, values, f"{name}({expression})", "0 or more")
    return values


def _refuse(bad: np.ndarray, values: Array, name: str, expected: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"{name} must be {expected}, got {values[row]:g} in row {row + 1} "
            f"({int(bad.sum())} of {len(values)} rows)"
        )
