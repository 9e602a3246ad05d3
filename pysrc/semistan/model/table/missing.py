"""Rows with missing or infinite values: refused, or left out with a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.formula.formula import Formula
from semistan.model.table.canonical import canonical, canonical_names
from semistan.model.table.kinds import check_columns

if TYPE_CHECKING:
    import pandas as pd

ROWS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Missing:
    """The rows of a table that lack a value that the formula uses.

    Attributes
    ----------
    rows : tuple of int
        Their numbers, the first row being 1.
    total : int
        Number of all rows.
    counts : dict
        Number of missing or infinite values by column.
    """

    rows: tuple[int, ...]
    total: int
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def kept(self) -> tuple[int, ...]:
        """The positions of the other rows, the first row's being 0."""
        dropped = {row - 1 for row in self.rows}
        return tuple(i for i in range(self.total) if i not in dropped)

    @property
    def by_column(self) -> str:
        """The columns with their counts: ``x (2), u (1)``."""
        return ", ".join(f"{name} ({n})" for name, n in self.counts.items())

    @property
    def text(self) -> str:
        """One line that says what was dropped and why."""
        named = ", ".join(str(row) for row in self.rows[:ROWS_NAMED])
        more = ", ..." if len(self.rows) > ROWS_NAMED else ""
        return (
            f"dropped {len(self)} of {self.total} rows, with missing or infinite values in "
            f"{self.by_column}: {'rows' if len(self) > 1 else 'row'} {named}{more}"
        )


def complete_rows(
    formula: Formula,
    frame: pd.DataFrame,
    *,
    response: bool,
    drop_missing: bool,
    kinds: Mapping[str, str] | None = None,
    optional: Collection[str] = (),
) -> tuple[pd.DataFrame, Missing]:
    """Return the rows without missing or infinite values, and a report of the others.

    Their columns are in canonical types.

    Parameters
    ----------
    formula : Formula
        Says which columns matter.
    frame : pandas.DataFrame
        All rows.
    response : bool
        Whether the response matters too.
    drop_missing : bool
        Whether such rows may be left out.
    kinds : mapping, optional
        What the columns were in training, as of ``canonical``.
    optional : collection of str
        Columns that rows may lack; where the table has none of the name, all of its rows do.

    Raises
    ------
    InputError
        If there are such rows and they may not be left out, naming columns and counts; or if
        no row is left.
    """
    used = _used(formula, optional, response=response)
    check_columns(frame, used, formula.text)
    table = canonical(_with(optional, frame), canonical_names(formula), kinds)
    bad, report = _missing_rows(used, table, formula.imputed)
    if not report:
        return table, report
    if not drop_missing:
        raise InputError(
            f"{len(report)} of {len(table)} rows have missing or infinite values: "
            f"{report.by_column}. Mend them, or drop these rows with --drop-missing."
        )
    check_left(report)
    return canonical(table[~bad], canonical_names(formula), kinds), report


def missing_of(
    formula: Formula, frame: pd.DataFrame, *, response: bool, optional: Collection[str] = ()
) -> Missing:
    """Report the rows with missing or infinite values; arguments as of ``complete_rows``."""
    used = _used(formula, optional, response=response)
    check_columns(frame, used, formula.text)
    return _missing_rows(used, canonical(frame, canonical_names(formula)), formula.imputed)[1]


def check_left(report: Missing) -> None:
    """Refuse a table of which no row is left.

    Raises
    ------
    InputError
        With the columns that lack values.
    """
    if report and len(report) == report.total:
        raise InputError(
            f"no row is left after dropping those with missing values: {report.by_column}"
        )


def joined(reports: Sequence[Missing]) -> Missing:
    """Join the reports of consecutive pieces of a table."""
    starts = accumulate((each.total for each in reports), initial=0)
    rows = tuple(
        start + row for start, each in zip(starts, reports, strict=False) for row in each.rows
    )
    counts = sum((Counter(each.counts) for each in reports), Counter())
    return Missing(rows, sum(each.total for each in reports), dict(counts))


def _missing_rows(
    used: list[str], frame: pd.DataFrame, imputed: Collection[str]
) -> tuple[np.ndarray, Missing]:
    """Say of each row whether it lacks a value in the columns that are used, and report that.

    Those that are imputed may lack some, but not be infinite.
    """
    missing = frame[used].apply(_missing)
    for name in imputed:
        missing[name] &= ~frame[name].isna()
    bad = np.asarray(missing.any(axis=1), dtype=bool)
    counts = {str(name): int(n) for name, n in missing.sum().items() if n}
    return bad, Missing(tuple(int(i) + 1 for i in np.flatnonzero(bad)), len(frame), counts)


def _used(formula: Formula, optional: Collection[str], *, response: bool) -> list[str]:
    needed = (name for name in formula.columns if name not in optional)
    return list(dict.fromkeys((*(formula.outcome if response else ()), *needed)))


def _with(optional: Collection[str], frame: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that the table lacks, without values."""
    absent = (name for name in optional if name not in frame.columns)
    return frame.assign(**dict.fromkeys(absent))


def _missing(column: pd.Series) -> Any:
    values = column.isna()
    if column.dtype.kind != "f":
        return values
    return values | np.isinf(column.to_numpy(dtype=float, na_value=np.nan))
