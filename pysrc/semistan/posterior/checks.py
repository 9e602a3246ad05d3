"""Posterior predictive checks by statistics of the response.

    p = P(T(y_rep) >= T(y) | y)

(Gelman, Meng and Stern, 1996, Statistica Sinica 6): near 0 or 1 where data from the model do not
look like the data in this respect. It is no p-value of a test: the model has seen the data, so that
it is nearer to 1/2 than a uniform variable. Replications have one response for each row.

Rows whose weights are whole numbers stand for so many rows each. Other weights are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.effects.estimates import apart
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import posterior_predict, row_chunks
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

STATISTICS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda y: y.mean(axis=-1),
    "sd": lambda y: y.std(axis=-1, ddof=1),
    "min": lambda y: y.min(axis=-1),
    "max": lambda y: y.max(axis=-1),
    "median": lambda y: np.median(y, axis=-1),
    "zeros": lambda y: (y == 0).mean(axis=-1),
    "skewness": lambda y: _skewness(y),
}
MOST_DRAWS = 1000
MOST_NUMBERS = 50_000_000  # replicated responses that are held
MOST_REPEATED = 100_000  # rows that whole weights may make


def _skewness(y: Array) -> Array:
    centred = y - y.mean(axis=-1, keepdims=True)
    spread = (centred**2).mean(axis=-1)
    return np.asarray(np.divide(
        (centred**3).mean(axis=-1), spread**1.5, out=np.zeros_like(spread), where=spread > 0
    ))  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class StatisticCheck:
    """One statistic in one group of rows.

    Attributes
    ----------
    statistic : str
        Its name.
    group : str or None
        The group's level, if there are groups.
    rows : int
        Number of rows.
    observed : float
        T(y).
    replicated : array, shape (S,)
        T(y_rep).
    """

    statistic: str
    group: Any
    rows: int
    observed: float
    replicated: Array

    @property
    def p(self) -> float:
        """P(T(y_rep) >= T(y)); rounding does not tell equal ones apart."""
        close = np.isclose(self.replicated, self.observed, rtol=1e-12, atol=0)
        return float(((self.replicated >= self.observed) | close).mean())


@dataclass(frozen=True, slots=True, eq=False)
class Checks:
    """What the checks found, and a note on the rows' weights."""

    several: tuple[StatisticCheck, ...]
    by: str | None
    note: str

    def table(self, interval: float = 0.95) -> pd.DataFrame:
        """Return one line per statistic and group.

        Returns
        -------
        pandas.DataFrame
            ``stat``, the groups' column, ``rows``, ``Observed``, mean and interval of the
            replications, and ``p``; one that has the name of the groups' column stands behind a
            dot, as ``.rows``.

        Raises
        ------
        InputError
            If the interval's probability is not between 0 and 1.
        """
        import pandas as pd

        check_interval(interval)
        percent = f"{100 * interval:.4g}% PI"
        lines = []
        for each in self.several:
            bounds = np.quantile(each.replicated, ((1 - interval) / 2, (1 + interval) / 2))
            ours = {
                "rows": each.rows, "Observed": each.observed,
                "Replicated": float(each.replicated.mean()),
                f"l-{percent}": bounds[0], f"u-{percent}": bounds[1], "p": each.p,
            }  # fmt: skip
            group = {self.by: _plain(each.group)} if self.by else {}
            lines.append(
                {apart("stat", group): each.statistic, **group}
                | {apart(name, group): value for name, value in ours.items()}
            )
        return pd.DataFrame(lines)

    def __repr__(self) -> str:
        return f"{table_text(self.table())}\n{self.note}".rstrip()


def predictive_checks(
    posterior: Posterior,
    rows: Rows,
    statistics: str | Sequence[str],
    *,
    groups: np.ndarray | None = None,
    by: str | None = None,
    generator: np.random.Generator,
) -> Checks:
    """Compare statistics of the response with those of replicated ones.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        Rows with their response.
    statistics : str or sequence of str
        Names in ``STATISTICS``, as ``max,sd``.
    groups : array, shape (N,), optional
        Group of each row, in each of which the statistics are taken.
    by : str, optional
        What the groups are called.
    generator : numpy.random.Generator
        Of replicated responses.

    Raises
    ------
    InputError
        For an unknown statistic, or a response of unordered categories or that may be censored.
    """
    if posterior.family.mean is None:
        raise InputError(
            "a response of unordered categories has no statistics of numbers: use 'semistan plot "
            "--kind ppc', which compares how often each occurs"
        )
    if posterior.family.censored:
        raise InputError(
            "the response may be censored, so that its statistics are not those of y_rep: "
            "use 'semistan plot --kind survival'"
        )
    names = statistic_names(statistics)
    _check_statistics(names)
    repeated, note = _repeated(rows)
    rows = rows.take(repeated)
    assert rows.y is not None
    draws = int(np.clip(MOST_NUMBERS // max(1, len(rows)), 1, MOST_DRAWS))
    thinned = posterior.thin(draws)
    chunks = row_chunks(thinned, rows)
    y_rep = np.concatenate([posterior_predict(thinned, c, generator) for c in chunks], axis=1)
    parts = _groups(None if groups is None else groups[repeated], len(rows))
    found = tuple(
        StatisticCheck(name, group, len(inside), float(of(rows.y[inside])), of(y_rep[:, inside]))
        for name, of in ((name, STATISTICS[name]) for name in names)
        for group, inside in parts
    )
    return Checks(found, by, note)


def _plain(group: Any) -> Any:
    """Return a group's label as a table and JSON have it: an interval of numbers as text."""
    return str(group) if hasattr(group, "closed") else group


def statistic_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names that are given as a sequence, or as ``max,sd``."""
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(dict.fromkeys(part.strip() for part in parts))


def _check_statistics(names: Sequence[str]) -> None:
    for name in names:
        if name not in STATISTICS:
            raise InputError(f"unknown statistic '{name}'.{did_you_mean(name, STATISTICS)}")
    if not names:
        raise InputError(f"give at least one statistic: {', '.join(STATISTICS)}")


def _groups(groups: np.ndarray | None, rows: int) -> list[tuple[Any, np.ndarray]]:
    """Return each group's label and its rows' positions, at least two of them."""
    if groups is None:
        return [(None, np.arange(rows))]
    found = [(label, np.flatnonzero(groups == label)) for label in dict.fromkeys(sorted(groups))]
    several = [(label, inside) for label, inside in found if len(inside) > 1]
    if not several:
        raise InputError("each group of --by has one row alone: its statistics need two")
    return several


def _repeated(rows: Rows) -> tuple[np.ndarray, str]:
    """Return positions of rows, as often as their whole weights say, and what to say of it."""
    every, weights = np.arange(len(rows)), rows.given.get("weights")
    if weights is None:
        return every, ""
    if np.array_equal(weights, np.round(weights)) and weights.sum() <= MOST_REPEATED:
        return np.repeat(every, weights.astype(int)), "Each row stands for as many as its weight."
    return every, "Unweighted: each row counts once, because its weight is no small whole number."
