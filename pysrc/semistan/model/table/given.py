"""What is known of each row: offsets, weights, numbers of trials."""

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


def given_values(formula: Formula, table: pd.DataFrame, *, response: bool) -> dict[str, Array]:
    """Evaluate ``weights()`` and ``trials()``.

    Parameters
    ----------
    formula : Formula
        The parsed formula.
    table : pandas.DataFrame
        The rows.
    response : bool
        Whether the response is needed, and with it the weights.

    Returns
    -------
    dict of arrays, shape (N,)
        ``weights`` and ``trials``, those that the formula has.

    Raises
    ------
    InputError
        For negative weights and trials.
    """
    found: dict[str, Array] = {}
    if formula.weights and response:
        found["weights"] = _at_least_0("weights", formula.weights, table)
        if not found["weights"].any():
            raise InputError(f"weights({formula.weights}) are all 0: there is nothing to fit")
    if formula.trials:
        found["trials"] = _at_least_0("trials", formula.trials, table)
    return found


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


def check_trials(record: Family, formula: Formula, y: Array, given: dict[str, Array]) -> None:
    """Refuse successes beyond the trials, and trials where the family has none.

    Raises
    ------
    InputError
        Naming the first row.
    """
    if "trials" not in record.given:
        if formula.trials:
            raise InputError(
                "trials() is for family binomial and beta_binomial, the family is "
                f"{record.name}; leave it out"
            )
        return
    if not formula.trials:
        raise InputError(
            f"family {record.name} needs the number of trials, as "
            f"{formula.response} | trials(n) ~ ...; if it is 1 in each row, use family bernoulli"
        )
    trials = given["trials"]
    check_count(f"trials({formula.trials})", trials)
    _refuse(trials != np.floor(trials), trials, f"trials({formula.trials})", "whole numbers")
    _refuse(
        trials < y, trials, f"trials({formula.trials})",
        f"at least as many as the successes '{formula.response}'",
    )  # fmt: skip


def _offset(expression: str, table: pd.DataFrame) -> Array:
    values = evaluate(expression, table, finite=False)
    hint = ": a logarithm of 0?" if expression.startswith("log") else ""
    _refuse(~np.isfinite(values), values, f"offset({expression})", f"finite numbers{hint}")
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
