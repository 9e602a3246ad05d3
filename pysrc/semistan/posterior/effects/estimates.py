"""Posterior quantities on either scale, and their estimates in brms's columns."""

from __future__ import annotations

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.errors import InputError, did_you_mean
from semistan.model.rows import Rows
from semistan.posterior.draws import Array, Draws
from semistan.posterior.predict import posterior_epred, posterior_linpred
from semistan.posterior.scoring.scores import check_interval

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


def on_scale(bundle: Bundle, draws: Draws, rows: Rows, scale: str) -> Array:
    """Return draws (S, N) of the mean mu (``response``) or of eta (``linpred``)."""
    compute = posterior_epred if scale == "response" else posterior_linpred
    return compute(bundle, draws, rows)


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
