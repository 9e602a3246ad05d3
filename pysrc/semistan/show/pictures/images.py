"""Images in the order of what is predicted of them, each with its mean, interval and response.

The examples are evenly spaced in the order of the rows' posterior means, the first and the last
included: quantiles of what is predicted, so that nobody has chosen them.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.formula.images import Image
from semistan.model.table.pictures import pixels
from semistan.model.table.rows import Rows, evenly_spaced
from semistan.posterior.categories import category_names, category_position, named
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import distribution, expected, row_chunks
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import MOST_DRAWS, Material, evenly, which_rows
from semistan.show.pictures.style import MUTED, finish, new_figure
from semistan.show.pictures.words import interval_words, mean_words, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES, COLUMNS = 2, 6
SMALL = 7.5  # size of the text at an image
WIDEST = 17  # characters in a line above or below an image
TEXT_HEIGHT = 0.62  # inches above and below an image
PANEL = 1.05  # width of an image in inches


@dataclass(frozen=True, slots=True, eq=False)
class _Examples:
    """Images by rising mean.

    Attributes
    ----------
    pixels : array, shape (n, height, width, channels)
        Their numbers, as the table has them.
    mean : array, shape (S, n)
        Draws of the mean.
    observed : array, shape (n,)
        The responses; of categories, their names.
    rows : str
        How many rows they were chosen from, in words.
    """

    pixels: Array
    mean: Array
    observed: np.ndarray
    rows: str


def draw_images(
    material: Material,
    *,
    variable: str | None = None,
    category: str | None = None,
    rows: Rows | None = None,
    rows_label: str = "new rows",
) -> Figure:
    """Draw images by their predicted mean, each with its mean, 95% interval and response.

    Parameters
    ----------
    material : Material
        The fit.
    variable : str, optional
        The column of images; the first one of the formula by default.
    category : str, optional
        Order by the probability of this category; of an unordered response that of the second one
        by default.
    rows : Rows, optional
        Rows with a known response and their table; the training rows by default.
    rows_label : str
        What the caption calls them.

    Raises
    ------
    InputError
        For another column than one of images, an unknown category, or one of a response without.
    """
    image, category = _image(material, variable), _category(material, category)
    found = _examples(material, image, category, rows, rows_label)
    n, (_, height, width) = len(found.pixels), image.shape
    figure = new_figure(-(-n // COLUMNS) * (PANEL * height / width + TEXT_HEIGHT))
    for i, values in enumerate(_scaled(found.pixels)):
        axes = figure.add_subplot(-(-n // COLUMNS), COLUMNS, i + 1)
        _panel(axes, values, found.mean[:, i], found.observed[i])
    what = mean_words(material, category)
    return finish(
        figure,
        f"Images by {what}",
        caption=f"{n} images (column {image.column}) of {found.rows}, evenly spaced in the order "
        f"of their {material.source.lower()} means. Above each: mean and 95% interval of {what}. "
        f"Below: {material.response} as observed. Pixels are scaled to the range of these images.",
    )


def images_alt(
    material: Material,
    *,
    variable: str | None = None,
    category: str | None = None,
    rows: Rows | None = None,
    rows_label: str = "new rows",
) -> str:
    """Say what is predicted of the first and of the last image."""
    image, category = _image(material, variable), _category(material, category)
    found = _examples(material, image, category, rows, rows_label)
    first, last = (
        f"{interval_words(found.mean[:, i])}, observed {_response(found.observed[i])}"
        for i in (0, -1)
    )
    return (
        f"{len(found.pixels)} images (column {image.column}) of {found.rows} by "
        f"{mean_words(material, category)}. The first: {first}. The last: {last}."
    )


def images_refusal(material: Material) -> str:
    """Say why a model has no images to draw."""
    if _images(material):
        return ""
    if material.posterior.design.trunks:
        return "a trunk takes its images, of which the table of a fit holds the embeddings alone"
    return "no network of it takes images, as nn(image(path)) does"


def _images(material: Material) -> dict[str, Image]:
    """Return the calls of images whose pixels the table holds, by column."""
    networks = material.posterior.design.networks
    return {item.pixels_of.column: item.pixels_of for item in networks if item.pixels_of}


def _image(material: Material, variable: str | None) -> Image:
    images = _images(material)
    if variable is None:
        return next(iter(images.values()))
    if variable not in images:
        raise InputError(
            f"'{variable}' is no column of images.{did_you_mean(variable, tuple(images))}"
        )
    return images[variable]


def _category(material: Material, category: str | None) -> str | None:
    """Return the category whose probability orders the images, if there is one."""
    family, design = material.posterior.family, material.posterior.design
    if category is None and family.mean is not None:
        return None
    return category_names(family, design)[category_position(family, design, category)]


def _examples(
    material: Material, image: Image, category: str | None, rows: Rows | None, rows_label: str
) -> _Examples:
    """Choose the images by some of the draws, and predict them by all."""
    posterior, given = material.posterior, material.rows if rows is None else rows
    among, few = evenly(given), posterior.thin(MOST_DRAWS)
    means = np.concatenate(
        [_mean(few, chunk, category).mean(axis=0) for chunk in row_chunks(few, among)]
    )
    ranks = evenly_spaced(len(means), LINES * COLUMNS)
    shown = among.take(np.argsort(means, kind="stable")[ranks])
    mean = _mean(posterior, shown, category)
    order = np.argsort(mean.mean(axis=0), kind="stable")
    shown, label = shown.take(order), "training rows" if rows is None else rows_label
    return _Examples(
        _pixels(shown, image), mean[:, order], _observed(posterior, shown),
        which_rows(len(among), len(given), label),
    )  # fmt: skip


def _mean(posterior: Posterior, rows: Rows, category: str | None) -> Array:
    """Return draws (S, N) of the mean, or of the probability of a category."""
    family = posterior.family
    eta, parameters = posterior.predictor(rows), distribution(posterior, rows)
    if category is not None:
        position = category_position(family, posterior.design, category)
        return expected(family, eta, parameters)[..., position]
    assert family.mean is not None
    return family.mean(eta, parameters)


def _observed(posterior: Posterior, rows: Rows) -> np.ndarray:
    """Return the rows' responses, categories by their names, and counts of them in words."""
    assert rows.y is not None
    names = category_names(posterior.family, posterior.design)
    if posterior.family.counted:
        of_row = (zip(row, names, strict=True) for row in rows.y)
        words = [", ".join(f"{n:g} {name}" for n, name in counts) for counts in of_row]
        return np.array(words, dtype=object)
    return named(rows.y, names) if names else rows.y


def _pixels(rows: Rows, image: Image) -> Array:
    """Return the images (n, height, width, channels) of some rows."""
    if rows.frame is None:
        raise InputError("this picture needs the table with the images, but the rows came without")
    numbers = pixels(image, rows.frame).reshape(len(rows), *image.shape)
    return np.moveaxis(numbers, 1, -1)


def _scaled(values: Array) -> Array:
    """Bring values to the range from 0 to 1, all images together."""
    least, most = values.min(), values.max()
    return (values - least) / (most - least) if most > least else np.zeros_like(values)


def _panel(axes: Axes, values: Array, mean: Array, observed: Any) -> None:
    """Show an image (height, width, channels) between what is predicted and what was observed."""
    axes.axis("off")
    axes.imshow(values, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    lower, upper = (number(value) for value in np.quantile(mean, (0.025, 0.975)))
    interval = textwrap.fill(f"{lower} to {upper}", WIDEST)
    axes.set_title(f"{number(mean.mean())}\n{interval}", fontsize=SMALL, pad=3)
    axes.text(
        0.5, -0.04, textwrap.fill(f"observed {_response(observed)}", WIDEST),
        transform=axes.transAxes, ha="center", va="top", fontsize=SMALL, color=MUTED,
    )  # fmt: skip


def _response(value: Any) -> str:
    """Write a category as it is, and a number with three digits."""
    return value if isinstance(value, str) else number(float(value))


IMAGES = PictureKind(
    name="images",
    title="images by what is predicted of them",
    draw=draw_images,
    alt=images_alt,
    refusal=images_refusal,
    place="training rows",
    of_prior=False,
)
