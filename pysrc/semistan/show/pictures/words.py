"""Words for axes and text alternatives: the response, the linear predictor, numbers, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.posterior.effects.effect import Effect
from semistan.show.pictures.material import Material

if TYPE_CHECKING:
    import pandas as pd

CENSORED = (
    "the response may be censored, so that it cannot be compared with what is predicted; draw "
    "'survival' instead"
)


def categorised(material: Material) -> str:
    """Name the response whose categories are named, empty if each is a column of its own."""
    return "" if material.posterior.family.counted else material.response


def category_words(material: Material, category: str) -> str:
    """Name a category: ``vote = yes``, or ``yes`` of a response that counts it in a column."""
    return of_category(categorised(material), category)


def of_category(response: str, category: str) -> str:
    """Name a category of a response, which is empty if it is a column of its own."""
    return f"{response} = {category}" if response else category


def mean_words(material: Material, category: str | None = None) -> str:
    """Name the mean of the response, ``mean of target``, or a probability, ``P(vote = 1)``."""
    if material.posterior.family.composed:
        return f"mean share of {category}" if category else "mean share"
    if category is not None:
        return f"P({category_words(material, category)})"
    if material.posterior.family.binary:
        return f"P({material.response} = {material.success})"
    if material.posterior.family.mean is None:
        return f"P({material.response})"
    return f"mean of {material.response}"


def effect_words(material: Material, effect: Effect) -> str:
    """Name what an effect is on; ``P(species)`` is that of each category."""
    if effect.scale == "linpred":
        return eta_words(material)
    if len(effect.categories) > 1:
        composed = material.posterior.family.composed
        return mean_words(material) if composed else f"P({categorised(material) or 'category'})"
    return mean_words(material, *effect.categories)


def eta_words(material: Material) -> str:
    """Name the linear predictor: ``log-odds of vote = 1`` or ``log mean of children``."""
    family, response = material.posterior.family, material.response
    categories, link = material.posterior.design.categories, family.link
    predicted = family.predicted.words.format(y=response)
    if family.ordered:
        return predicted
    if categories:
        reference, second, *_ = categories
        if family.composed:
            return f"log of {second} / {reference}"
        return f"log-odds of {category_words(material, second)} against {reference}"
    if family.binary:
        what = "log-odds of" if link == "logit" else f"{link} of the probability of"
        return f"{what} {response} = {material.success}"
    return f"{'' if link == 'identity' else f'{link} '}{predicted}"


def coefficient_words(material: Material) -> str:
    """Name what coefficients change; three unordered categories have two predictors."""
    categories = material.posterior.design.categories
    if len(categories) > 2 and material.posterior.family.composed:
        return f"log of the ratio to {categories[0]}"
    if len(categories) > 2:
        return f"log-odds against {category_words(material, categories[0])}"
    return eta_words(material)


def number(value: float) -> str:
    """Write a number with three digits."""
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e" in text and abs(value) < 1e7 and abs(value) > 1 else text


def interval_words(values: Array) -> str:
    """Say ``mean -0.0748, 95% interval -0.501 to 0.339``."""
    lower, upper = np.quantile(values, (0.025, 0.975))
    return f"mean {number(values.mean())}, 95% interval {number(lower)} to {number(upper)}"


def interval_columns(table: pd.DataFrame) -> tuple[str, str]:
    """Return the names of the columns with an interval's bounds, as ``l-95% CI``.

    Raises
    ------
    InputError
        If the table has none.
    """
    found = [
        next((str(name) for name in table if str(name).startswith(start)), "")
        for start in ("l-", "u-")
    ]
    if not all(found):
        raise InputError("a table of estimates needs columns 'l-95% CI' and 'u-95% CI'")
    return found[0], found[1]


def value_words(value: Any) -> str:
    """Write a number with three digits, and a level as it is."""
    if isinstance(value, np.ndarray):
        return "the image nearest to the mean"
    return number(value) if isinstance(value, float) else str(value)


def held_words(held: Mapping[str, Any], most: int = 14) -> str:
    """Say at which values other columns are held; an equation is never broken into lines."""
    if not held:
        return ""
    parts = [
        f"{name}\xa0=\xa0{value_words(value)}" for name, value in held.items() if value is not None
    ]
    left = len(parts) - most
    more = f" and {left} more" if left > 0 else ""
    said = f"Other columns at {', '.join(parts[:most])}{more}." if parts else ""
    groups = [name for name, value in held.items() if value is None]
    without = f"Without the effects of {' and '.join(groups)}." if groups else ""
    return f"{said} {without}".strip()


def listed(parts: Sequence[str], most: int = 8) -> str:
    """Join parts by semicolons, the first ones if there are many."""
    left = len(parts) - most
    return "; ".join([*parts[:most], *([f"and {left} more"] if left > 0 else [])])
