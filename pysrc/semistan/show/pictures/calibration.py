"""Calibration of the predictive distribution.

The probability integral transform of the responses is uniform under a calibrated model, up to
binomial noise in each bar; responses agree on average with their predicted means
(Gneiting, Balabdaoui and Raftery, 2007, JRSS B 69). Unordered categories have neither transform nor
mean: the share of each is held against its predicted probability. Rows count by their weights.
Training rows flatter the model.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.model.table.rows import Rows
from semistan.posterior.categories import category_names, category_position
from semistan.posterior.scoring.scores import Pointwise, reliability
from semistan.posterior.weighting import weighting
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import MOST_ROWS, Material, which_rows
from semistan.show.pictures.style import FAINT, MUTED, colour, finish, new_figure, panels
from semistan.show.pictures.words import CENSORED, category_words, mean_words, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = 0.99
NARROW = 25  # characters in a line of a label where three panels are side by side


@dataclass(frozen=True, slots=True, eq=False)
class _Of:
    """Rows that were judged, what they are, and in words which."""

    judged: Pointwise
    what: str
    words: str


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """A reliability curve: what is predicted and what observed, in words, and the rows."""

    predicted: str
    observed: str
    judged: Pointwise


def draw_calibration(
    material: Material,
    *,
    rows: Rows | None = None,
    rows_label: str = "new rows",
    category: str | None = None,
    judged: Pointwise | None = None,
) -> Figure:
    """Draw the histogram of the transform and the reliability curve, or that of each category.

    Parameters
    ----------
    material : Material
        The fit.
    rows : Rows, optional
        Rows with a known response; the training rows by default.
    rows_label : str
        What the caption calls them.
    category : str, optional
        Draw the reliability of this category's probability alone.
    judged : Pointwise, optional
        Rows that have been judged already, as those held out in cross-validation, instead.

    Raises
    ------
    InputError
        For an unknown category, or one of a response without.
    """
    of = _of(material, rows, rows_label, judged)
    curves = _curves(material, of.judged, category)
    transform = _has_transform(material)
    n = len(curves) + transform
    figure = new_figure(3.1 if n <= 2 else 2.5 * -(-n // 3))
    axes = panels(figure, n, 3 if n > 2 else 2)
    if transform:
        _histogram(axes[0], of.judged)
    for each, curve in zip(axes[transform:], curves, strict=True):
        _reliability(each, curve, short=n > 2)
    bars = "; bars should end within the shaded 99% band" * transform
    return finish(
        figure,
        f"Calibration on {of.what}",
        caption=f"{of.words} Dashed line: calibrated{bars}. Error bars are two standard errors."
        f"{_weights_words(material)}",
        handles=_handles(transform=transform),
    )


def calibration_alt(
    material: Material,
    *,
    rows: Rows | None = None,
    rows_label: str = "new rows",
    category: str | None = None,
    judged: Pointwise | None = None,
) -> str:
    """Say how many bars leave the band and how many bins are off the diagonal."""
    of = _of(material, rows, rows_label, judged)
    parts = []
    if _has_transform(material):
        heights, (lower, upper) = _bars(of.judged)
        outside = int(((heights < lower) | (heights > upper)).sum())
        parts.append(
            f"{outside} of {len(heights)} bars of the PIT histogram leave the 99% band of a "
            "uniform distribution"
        )
    curves = _curves(material, of.judged, category)
    parts += [_near(curve) for curve in curves]
    predicted = np.concatenate([curve.judged.mean for curve in curves])
    return (
        f"Calibration on {of.what}: {'; '.join(parts)}. "
        f"Predictions range from {number(predicted.min())} to {number(predicted.max())}."
    )


def calibration_refusal(material: Material) -> str:
    """Say why draws from the prior, and responses that may be censored, have no such picture."""
    if material.posterior.family.censored:
        return CENSORED
    if not material.prior_only:
        return ""
    return "it draws from the prior, which was not fitted to the data; draw 'ppc' instead"


def _of(material: Material, rows: Rows | None, label: str, judged: Pointwise | None) -> _Of:
    """Judge the rows unless that is done."""
    if judged is not None:
        return _Of(judged, label, f"{which_rows(len(judged.y), len(judged.y), label)}.")
    if rows is not None:
        shown = which_rows(min(len(rows), MOST_ROWS), len(rows), label)
        return _Of(material.judge(rows), label, f"{shown}.")
    shown = which_rows(len(material.judged.y), len(material.rows))
    return _Of(
        material.judged, "training rows", f"{shown}: rows that the model has seen flatter it."
    )


def _weights_words(material: Material) -> str:
    weights = weighting(material.posterior.config)
    return f" All of it is {weights}." if weights else ""


def _has_transform(material: Material) -> bool:
    return material.posterior.family.mean is not None


def _curves(material: Material, judged: Pointwise, category: str | None) -> list[_Curve]:
    """Return the reliability of the mean, of each category, or of one."""
    family, design = material.posterior.family, material.posterior.design
    response, names = material.response, category_names(family, design)
    if category is None and _has_transform(material):
        observed = f"share of {response} = 1" if family.binary else f"mean of {response}"
        return [_Curve(mean_words(material), observed, judged)]
    one = [] if category is None else [category_position(family, design, category)]
    return [
        _Curve(
            mean_words(material, names[k]), f"share of {category_words(material, names[k])}",
            judged.of_category(k),
        )
        for k in one or range(len(names))
    ]  # fmt: skip


def _near(curve: _Curve) -> str:
    table = reliability(curve.judged)
    near = int((np.abs(table["observed"] - table["predicted"]) <= 2 * table["se"]).sum())
    return (
        f"in {near} of {len(table)} bins the {curve.observed} is within two standard errors of its "
        "prediction"
    )


def _bars(judged: Pointwise) -> tuple[Any, tuple[float, float]]:
    """Return the bars' heights, 1 if calibrated, and the band in which they should be.

    Of weighted rows the band is that of Kish's effective number, (sum w)^2 / sum w^2.
    """
    from scipy.stats import binom

    weight = judged.weight
    n = round(weight.sum() ** 2 / np.square(weight).sum())
    bins = 20 if n >= 400 else 10
    heights = np.histogram(judged.pit, bins, range=(0, 1), weights=weight)[0] * bins / weight.sum()
    lower, upper = binom.ppf(((1 - BAND) / 2, (1 + BAND) / 2), n, 1 / bins) * bins / n
    return heights, (lower, upper)


def _histogram(axes: Axes, judged: Pointwise) -> None:
    heights, (lower, upper) = _bars(judged)
    edges = np.linspace(0, 1, len(heights) + 1)
    axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=FAINT, edgecolor="white")
    axes.axhspan(lower, upper, color=colour(0), alpha=0.18, linewidth=0)
    axes.axhline(1, color=MUTED, linestyle="--", linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(1.15 * upper, 1.05 * heights.max()))
    axes.set_xlabel("probability integral transform")
    axes.set_ylabel("density of rows")


def _reliability(axes: Axes, curve: _Curve, *, short: bool) -> None:
    table = reliability(curve.judged)
    ends = [table["predicted"].min(), table["predicted"].max()]
    axes.axline((ends[0], ends[0]), slope=1, color=MUTED, linestyle="--", linewidth=1)
    axes.errorbar(
        table["predicted"], table["observed"], yerr=2 * table["se"], fmt="o", color=colour(1),
        markersize=4.5, elinewidth=1.4,
    )  # fmt: skip
    words = f"predicted {curve.predicted}"
    if short and len(words) > NARROW:
        words = f"predicted\n{textwrap.fill(curve.predicted, NARROW)}"
    axes.set_xlabel(words)
    axes.set_ylabel("observed share" if short else f"observed {curve.observed}")


def _handles(*, transform: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    bars = [
        Patch(color=FAINT, label="rows"),
        Patch(color=colour(0), alpha=0.18, linewidth=0, label="99% band if uniform"),
    ]
    points = Line2D(
        [], [], color=colour(1), marker="o", markersize=4.5, label="a tenth of the rows"
    )
    return [*(bars if transform else []), points]


CALIBRATION = PictureKind(
    name="calibration",
    title="calibration of predictions",
    draw=draw_calibration,
    alt=calibration_alt,
    refusal=calibration_refusal,
    place="training rows",
    of_prior=False,
)
