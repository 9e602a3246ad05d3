"""Tables of the results page, and what stands in their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

ABSENT = "-"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def number(value: float | None, digits: int = 2) -> str:
    """Return a number, or a dash where there is none."""
    if value is None or not np.isfinite(value):
        return ABSENT
    return f"{value:.{digits}f}"


def with_se(value: float | None, se: float | None, digits: int = 2) -> str:
    """Return a number with its standard error in brackets, as far as there are both."""
    if se is None or not np.isfinite(se):
        return number(value, digits)
    return f"{number(value, digits)} ({number(se, digits)})"


def mean_se(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of repetitions and its standard error, nan where it is not known."""
    count = len(values)
    mean = float(np.mean(values)) if count else np.nan
    return mean, float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else np.nan


def verdict(text: str, value: float, met: bool, digits: int = 2) -> str:
    """Return a line that says whether a target is met."""
    if not np.isfinite(value):
        return f"- {text}: not measured."
    return f"- {text}: {number(value, digits)}, {'met' if met else '**missed**'}."
