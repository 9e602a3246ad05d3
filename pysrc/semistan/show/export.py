"""Draws as one table in the layout of R's posterior (``draws_df``).

One line per draw, chain after chain: ``.chain``, ``.iteration`` and ``.draw``, counted from 1, then
a column for each quantity under its name in the Stan program, what the method reports last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.posterior.draws import draw_index, level_effects
from semistan.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd

WHOLE_NUMBERS = ("tree_depth", "n_steps", "diverging")


def draws_table(posterior: Posterior) -> pd.DataFrame:
    """Return one line per draw.

    Returns
    -------
    pandas.DataFrame
        ``.chain``, ``.iteration``, ``.draw``, the coefficients and dispersion parameters by name,
        the effects of levels as ``r_g[a,Intercept]``, ``phi[1]`` to ``phi[k]``, ``lprior``,
        ``lp__`` and the method's other columns. ``theta`` is left out: it is the coefficients. A
        mixture has no ``phi``, which belongs to a subspace.
    """
    import pandas as pd

    levels = posterior.pooled_by_name(lambda draws: level_effects(posterior.design, draws))
    values = posterior.interpreted | levels | _coordinates(posterior)
    values |= {"lprior": posterior.lprior, **_sampler(posterior)}
    columns = {name: array.ravel() for name, array in values.items()}
    return pd.DataFrame(draw_index(posterior.chains, posterior.lprior.shape[1]) | columns)


def _coordinates(posterior: Posterior) -> dict[str, np.ndarray]:
    first, *others = posterior.members
    phi = first.draws.phi
    return {} if others else {f"phi[{i + 1}]": phi[..., i] for i in range(phi.shape[-1])}


def _sampler(posterior: Posterior) -> dict[str, np.ndarray]:
    columns = posterior.method.columns
    pooled = posterior.pooled_by_name(lambda draws: draws.sampler)
    return {
        columns[name]: values.astype(np.int64) if name in WHOLE_NUMBERS else values
        for name, values in pooled.items()
    }
