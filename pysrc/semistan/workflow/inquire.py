"""What a finished run says of hypotheses, of explained variance, and of its own prior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.posterior import hypothesis as judging
from semistan.posterior.posterior import read_posterior
from semistan.posterior.scoring.r2 import R2, r2
from semistan.posterior.sensitivity import sensitivity as power_scaling
from semistan.workflow.runs import RunLike, opened, posterior_run

if TYPE_CHECKING:
    import pandas as pd


def hypothesis(
    run: RunLike,
    hypotheses: str | Sequence[str],
    *,
    interval: float = 0.95,
    rope: tuple[float, float] | None = None,
    seed: int = 1,
) -> judging.Hypotheses:
    """Judge hypotheses about parameters, as ``b_x > 0``, ``b_x / b_z = 1`` or ``exp(b_x) < 2``.

    Parameters
    ----------
    run : Run or path
        A finished run.
    hypotheses : str or sequence of str
        Two expressions of the table's names and one of >, < and = between them.
    interval : float
        Probability p of the interval; that of a one-sided hypothesis has 2 p - 1, as in brms.
    rope : tuple of float, optional
        Range of the difference of both sides that is as good as 0.
    seed : int
        Seed of draws from the prior, for hypotheses with =.

    Returns
    -------
    Hypotheses
        Its ``table`` and ``notes``.

    Raises
    ------
    InputError
        If a hypothesis cannot be read, or a number is out of its range.
    """
    run = opened(run)
    texts = [hypotheses] if isinstance(hypotheses, str) else list(hypotheses)
    return judging.hypotheses(
        read_posterior(run), run.rows(), texts,
        interval=interval, rope=rope, generator=np.random.default_rng(seed),
    )  # fmt: skip


def bayes_r2(run: RunLike, *, interval: float = 0.95, seed: int = 1) -> R2:
    """Compute R2, LOO-R2, and the shares of the structured and the network part.

    Raises
    ------
    InputError
        If the run draws from the prior, its response has categories, or the interval is no
        probability.
    """
    run = posterior_run(run)
    return r2(
        read_posterior(run), run.rows(), interval=interval, generator=np.random.default_rng(seed)
    )


def sensitivity(run: RunLike) -> pd.DataFrame:
    """Say how sensitive each parameter is to the prior and to the likelihood, by power-scaling.

    Returns
    -------
    pandas.DataFrame
        ``variable``, ``prior``, ``likelihood`` and ``diagnosis``.

    Raises
    ------
    InputError
        If the run draws from the prior or an approximation, or p(y | phi) is tempered.
    """
    run = posterior_run(run)
    try:
        return power_scaling(read_posterior(run), run.rows())
    except InputError as error:
        raise InputError(f"'{run.path}': {error}") from None
