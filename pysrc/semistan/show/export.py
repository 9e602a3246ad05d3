"""Draws as one table in the layout of R's posterior (``draws_df``).

One line per draw, chain after chain: ``.chain``, ``.iteration`` and ``.draw``, counted from 1, then
a column for each quantity under its name in the Stan program, what the method reports last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.posterior.draws import Draws, draw_index

if TYPE_CHECKING:
    import pandas as pd

WHOLE_NUMBERS = ("tree_depth", "n_steps", "diverging")


def draws_table(draws: Draws) -> pd.DataFrame:
    """Return one line per draw.

    Returns
    -------
    pandas.DataFrame
        ``.chain``, ``.iteration``, ``.draw``, the coefficients and dispersion parameters by name,
        ``phi[1]`` to ``phi[k]``, ``lprior``, ``lp__`` and the method's other columns.
        ``theta`` is left out: it is the coefficients.
    """
    import pandas as pd

    phi = {f"phi[{i + 1}]": draws.phi[..., i] for i in range(draws.phi.shape[-1])}
    values = {**draws.interpreted, **phi, "lprior": draws.lprior, **_sampler(draws)}
    columns = {name: array.ravel() for name, array in values.items()}
    return pd.DataFrame(draw_index(draws.chains, draws.lprior.shape[1]) | columns)


def _sampler(draws: Draws) -> dict[str, np.ndarray]:
    columns = draws.method.columns
    return {
        columns[name]: values.astype(np.int64) if name in WHOLE_NUMBERS else values
        for name, values in draws.sampler.items()
    }
