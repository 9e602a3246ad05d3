"""Effects of the levels of groups: by themselves, and with the coefficients of all levels added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from semistan.model.arrays import Array
from semistan.model.families.ordinal import intercept_names
from semistan.model.predictor import INTERCEPT, Predictor
from semistan.model.terms.group import Group
from semistan.posterior.effects.estimates import estimates
from semistan.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd


def group_effects(posterior: Posterior, interval: float = 0.95) -> pd.DataFrame:
    """Return the effects of each level of each group, as brms's ``ranef``.

    Returns
    -------
    pandas.DataFrame
        ``group``, ``level``, ``effect``, ``Estimate``, ``Est.Error`` and an interval; ``predictor``
        if several have groups. Empty without groups.
    """
    found = ((item, group, effect, r) for item, group, effect, r in _effects(posterior))
    return _table(found, interval)


def group_coefficients(posterior: Posterior, interval: float = 0.95) -> pd.DataFrame:
    """Return the coefficients of each level, as brms's ``coef``: those of all plus its effect.

    The columns are those of ``group_effects``. What only varies, without a coefficient of its own,
    is its effect. The thresholds of ordered categories are less the effect of the intercept.
    """
    return _table(_with_coefficients(posterior), interval)


Effects = Iterator[tuple[Predictor, Group, str, Array]]


def _effects(posterior: Posterior) -> Effects:
    """Yield each effect's draws (S, levels)."""
    for item in posterior.design.predictors:
        for group in item.terms:
            if isinstance(group, Group):
                name = group.names[2]
                r = posterior.pooled_by_name(lambda draws: draws.terms)[name]
                for j, effect in enumerate(group.effect_labels):
                    yield item, group, effect, r.reshape(-1, *r.shape[2:])[:, :, j]


def _with_coefficients(posterior: Posterior) -> Effects:
    for item, group, effect, r in _effects(posterior):
        flat = {name: x.reshape(-1, 1) for name, x in posterior.coefficients.items()}
        names = dict(zip(item.columns_named, item.names, strict=True))
        if names.get(effect) in flat:
            yield item, group, effect, flat[names[effect]] + r
        elif effect == INTERCEPT and item.is_mean and posterior.family.reported_categories:
            for name in intercept_names(posterior.family.reported_categories, item.intercept):
                yield item, group, name.removeprefix("b_"), flat[name] - r
        else:
            yield item, group, effect, r


def _table(found: Effects, interval: float) -> pd.DataFrame:
    import pandas as pd

    blocks: list[pd.DataFrame] = []
    predictors: set[str] = set()
    for item, group, effect, r in found:
        predictors.add(item.name)
        labels = {"predictor": item.name, "group": group.label, "level": group.levels}
        table = pd.DataFrame(labels | {"effect": effect})
        values = pd.DataFrame(estimates(np.asarray(r), interval))
        blocks.append(pd.concat([table, values], axis=1))
    if not blocks:
        return pd.DataFrame(
            columns=["group", "level", "effect", *estimates(np.zeros((2, 0)), interval)]
        )
    table = pd.concat(blocks, ignore_index=True)
    return table if len(predictors) > 1 else table.drop(columns="predictor")
