"""Posterior quantities on either scale, and their estimates in brms's columns.

A response of categories has a probability of each on the scale ``response``. On the scale
``linpred`` an unordered one has the log odds of its second category, eta, and is named after it.

Where a table has columns of the user's beside ours, those of the user's keep their names: one of
ours that has the same name stands behind a dot, as ``.Estimate`` beside a column ``Estimate``.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.categories import category_names
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import posterior_epred, posterior_linpred

if TYPE_CHECKING:
    import pandas as pd

SCALES = ("response", "linpred")


def check_scale(scale: str) -> None:
    """Refuse an unknown scale.

    Raises
    ------
    InputError
        Naming the nearest one.
    """
    if scale not in SCALES:
        raise InputError(f"unknown scale '{scale}'.{did_you_mean(scale, SCALES)}")


def on_scale(posterior: Posterior, rows: Rows, scale: str) -> Array:
    """Return draws (S, N) of the mean mu (``response``) or of eta (``linpred``).

    Where ``categories_on`` names categories, they are on a last axis.
    """
    if scale == "response":
        return posterior_epred(posterior, rows)
    eta = posterior_linpred(posterior, rows)
    return eta[..., None] if posterior.design.categories else eta


def categories_on(posterior: Posterior, scale: str) -> tuple[str, ...]:
    """Return the categories of which there is a number each on a scale; none of other responses."""
    family, design = posterior.family, posterior.design
    return category_names(family, design) if scale == "response" else design.categories[1:2]


def estimates_table(
    labels: pd.DataFrame, values: Array, categories: tuple[str, ...], interval: float
) -> pd.DataFrame:
    """Put estimates beside their labels, with a column ``category`` if there are some.

    A column that the labels have already stands behind a dot, as ``.Estimate``.

    Parameters
    ----------
    labels : pandas.DataFrame
        G lines.
    values : array, shape (S, G) or (S, G, K)
        Draws.
    categories : tuple of str
        Names of the K categories, each of which has a block of G lines; none for (S, G).
    interval : float
        Probability of the interval.

    Raises
    ------
    InputError
        If it is not between 0 and 1.
    """
    import pandas as pd

    if not categories:
        found = estimates(values, interval)
        columns = {apart(name, labels): column for name, column in found.items()}
        return pd.concat([labels, pd.DataFrame(columns, index=labels.index)], axis=1)
    column = apart("category", labels)
    blocks = [
        estimates_table(labels.assign(**{column: name}), values[..., j], (), interval)
        for j, name in enumerate(categories)
    ]
    return pd.concat(blocks, ignore_index=True)


def apart(name: str, taken: Container[str]) -> str:
    """Return a name of ours, behind a dot where a column of the user's has it."""
    while name in taken:
        name = f".{name}"
    return name


def estimates(values: Array, interval: float) -> dict[str, Array]:
    """Summarise draws (S, G) as columns (G,): mean, sd, and a central interval.

    Raises
    ------
    InputError
        If the interval's probability is not between 0 and 1.
    """
    check_interval(interval)
    lower, upper = np.quantile(values, ((1 - interval) / 2, (1 + interval) / 2), axis=0)
    percent = f"{100 * interval:.4g}% CI"
    return {
        "Estimate": values.mean(axis=0),
        "Est.Error": values.std(axis=0, ddof=1),
        f"l-{percent}": lower,
        f"u-{percent}": upper,
    }
