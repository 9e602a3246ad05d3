"""Draw synthetic skin lesions whose probability of melanoma is known.

    python models/lesions/draw.py --out DIR [--images 1000] [--size 32] [--seed 1] [--overwrite]

writes DIR/images/0001.png and so on (RGB) and DIR/data.csv, one row a lesion: the picture's path
relative to DIR (`image`), what a clinic would know (`age` in years, `melanoma` 0 or 1), and the
truth (`eta`, `picture`, `asymmetry`, `border`, `colour`).

The response. The traits asymmetry a, border b and colour c are independent and uniform on (0, 1);
age is 20 + 70 Beta(2, 2) in whole years, independent of the traits, with mean 55 and standard
deviation 15.7. Then

    picture  = 1.98 [(a^2 - 1/3) + tanh(3 (c - 1/2)) / 2 + 3/2 (b c - 1/4)]
    eta      = -0.84 + 0.04 (age - 55) + picture
    melanoma ~ Bernoulli(1 / (1 + exp(-eta)))

so the border matters only as far as the lesion has colours. The mean of `picture` is exactly 0 and
its standard deviation 1.30; the prevalence is 0.35.

The picture. It is a function on the unit square, sampled on a grid four times as fine as the
pixels and averaged down. The outline around the lesion's centre is the closed curve

    log r(t) = log R + (0.02 + 0.3 a) L(t) + (0.01 + 0.1 b) H(t),

rescaled to the area pi R^2, where L and H are random trigonometric polynomials of mean square 1,
of the orders 1 to 4 and 6 to 24. The lesion is brown, with blotches of dark brown, black, red and
blue-grey, which appear one after the other and grow stronger as c grows. Position, size, tone of
brown and of the skin, shading, hairs and noise are random and do not matter for the response.

What is random depends neither on the traits nor on the size in pixels: the same seed shows the same
lesions at each size, and lesion i is the same however many lesions are drawn.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

Array = npt.NDArray[np.float64]

AGE_EFFECT = 0.04  # true coefficient of age on the logit, per year
AGE_CENTRE = 55.0  # age in years without effect on the logit: the mean of the ages
YOUNGEST, OLDEST = 20.0, 90.0  # range of the ages in years
INTERCEPT = -0.84  # true logit at AGE_CENTRE where picture is 0: makes the prevalence 0.35
PICTURE_SCALE = 1.98  # brings the standard deviation of picture to 1.3

OVERSAMPLING = 4  # points drawn per pixel, along each side
GRAIN = 128  # cells of the noise along each side, whatever the size in pixels
SLOPE = 0.08  # largest slope of the light, relative to its mean, along each side
VIGNETTE = 0.2  # loss of relative light per squared distance from the picture's centre
TEXTURE = 0.012  # standard deviation of the skin's relative brightness, coarse and fine each
NOISE = 0.012  # standard deviation of the noise in a cell, where brightness is from 0 to 1

# Lengths are fractions of the picture's side, unless in units of the lesion's radius R.
RADIUS = (0.25, 0.32)  # range of R, the radius of the disc that has the lesion's area
OFF_CENTRE = 0.06  # largest shift of the lesion from the picture's centre, along each side
EDGE = 0.02  # width over which skin passes into lesion
LOW_ORDERS = {1: 0.9, 2: 0.9, 3: 1.0, 4: 0.3}  # orders that make lopsided, with their weights
HIGH_ORDERS = {order: 1 / order for order in range(6, 25)}  # and those that make ragged
LOW_AMPLITUDE = (0.02, 0.3)  # of the low orders in log r: without asymmetry, and what 1 adds
HIGH_AMPLITUDE = (0.01, 0.1)  # of the high orders: with a smooth border, and what 1 adds
AWAY = (0.35, 0.6)  # range of a blotch's distance from the lesion's centre, in units of R
SPREAD = (0.34, 0.44)  # range of the standard deviation of a blotch's bump, in units of R
WAVINESS = 0.16  # standard deviation of the waves added to a bump, whose height is 1
SHORE = (0.25, 0.7)  # heights of bump and waves where a blotch begins and where it is complete
FADE_IN = 0.5  # increase of the trait colour that takes a blotch from absent to full strength
THINNING = 0.3  # share of the skin's colour that shines through at the edge
NET = 0.05  # standard deviation of the relative brightness of the lesion's fine net of pigment
HAIRS = 4  # the largest number of hairs; each is there with probability one half
HAIR_WIDTH = 0.007  # half the width of a hair

# Colours are red, green and blue from 0 to 1.
PALE, TAN = np.array([0.93, 0.76, 0.67]), np.array([0.84, 0.65, 0.53])  # ends of the skin's tone
LIGHT_BROWN, BROWN = np.array([0.64, 0.44, 0.30]), np.array([0.54, 0.35, 0.23])  # of the lesion's
HAIR_COLOUR = np.array([0.22, 0.15, 0.11])
BLOTCHES = (  # with the value of the trait colour from which each appears
    (np.array([0.34, 0.19, 0.12]), 0.0),  # dark brown
    (np.array([0.12, 0.09, 0.09]), 0.2),  # black
    (np.array([0.60, 0.28, 0.24]), 0.35),  # red
    (np.array([0.42, 0.44, 0.51]), 0.5),  # blue-grey
)


def picture_effect(traits: Array) -> Array:
    """Give the true effect of the picture on the logit.

    Parameters
    ----------
    traits
        Asymmetry, border and colour in the last axis, each from 0 to 1; shape (..., 3).

    Returns
    -------
    Array
        Effect in units of the logit; shape (...). Over uniform traits, mean 0 and sd 1.3.
    """
    asymmetry, border, colour = np.moveaxis(traits, -1, 0)
    shape = asymmetry**2 - 1 / 3
    colours = np.tanh(3 * (colour - 0.5)) / 2
    together = 1.5 * (border * colour - 0.25)
    return np.asarray(PICTURE_SCALE * (shape + colours + together))


def draw_table(images: int, generator: np.random.Generator) -> pd.DataFrame:
    """Draw age, traits and response of independent lesions.

    Parameters
    ----------
    images
        Number of lesions.
    generator
        Source of the random numbers: seven for each lesion, one lesion after the other.

    Returns
    -------
    pandas.DataFrame
        One row a lesion: age (years), melanoma (0 or 1), eta and picture (units of the logit),
        asymmetry, border and colour (0 to 1).
    """
    uniform = generator.random((images, 7))
    # The middle one of three uniform numbers is Beta(2, 2).
    age = np.round(YOUNGEST + (OLDEST - YOUNGEST) * np.median(uniform[:, :3], axis=1))
    traits = np.round(uniform[:, 3:6], 6)
    picture = picture_effect(traits)
    eta = INTERCEPT + AGE_EFFECT * (age - AGE_CENTRE) + picture
    melanoma = uniform[:, 6] < 1 / (1 + np.exp(-eta))
    truth = dict(zip(("asymmetry", "border", "colour"), traits.T, strict=True))
    columns = {"age": age.astype(int), "melanoma": melanoma.astype(int), "eta": eta}
    return pd.DataFrame({**columns, "picture": picture, **truth})


def _rise(value: Array | float) -> Array:
    """Go smoothly from 0 at and below 0 to 1 at and above 1."""
    inside: Array = np.clip(value, 0, 1)
    return inside * inside * (3 - 2 * inside)


def _waves(axis: Array, cycles: tuple[float, float], generator: np.random.Generator) -> Array:
    """Draw a smooth random field of mean 0 and variance 1 with so many cycles a side."""
    terms = 12
    frequency = 2 * np.pi * generator.uniform(*cycles, terms)
    direction = generator.uniform(0, 2 * np.pi, terms)
    phase = generator.uniform(0, 2 * np.pi, terms)
    x = np.outer(axis, frequency * np.cos(direction)) + phase
    y = np.outer(axis, frequency * np.sin(direction))
    # A sum of cos(x + y) over the terms.
    return np.asarray(np.sqrt(2 / terms) * (np.cos(y) @ np.cos(x).T - np.sin(y) @ np.sin(x).T))


def _polynomial(angle: Array, weights: dict[int, float], generator: np.random.Generator) -> Array:
    """Draw a trigonometric polynomial of mean square 1 from its orders and their weights."""
    orders = np.array(list(weights))
    cosine, sine = generator.normal(size=(2, len(orders))) * np.array(list(weights.values()))
    turns = np.outer(angle, orders)
    curve = np.cos(turns) @ cosine + np.sin(turns) @ sine
    return np.asarray(curve / np.sqrt((cosine**2 + sine**2).sum() / 2))


def _outline(asymmetry: float, border: float, generator: np.random.Generator) -> Array:
    """Draw the outline of area pi: 721 radii at equal steps of the angle from -pi to pi."""
    angle = np.linspace(-np.pi, np.pi, 721)
    low = LOW_AMPLITUDE[0] + LOW_AMPLITUDE[1] * asymmetry
    high = HIGH_AMPLITUDE[0] + HIGH_AMPLITUDE[1] * border
    radius = np.exp(
        low * _polynomial(angle, LOW_ORDERS, generator)
        + high * _polynomial(angle, HIGH_ORDERS, generator)
    )
    return np.asarray(radius / np.sqrt(np.mean(radius[:-1] ** 2)))


def _paint(canvas: Array, weight: Array, colour: Array) -> None:
    """Mix a colour into the canvas, shape (3, points, points), with a weight at each point."""
    for channel, level in zip(canvas, colour, strict=True):
        channel += weight * (level - channel)


def _skin(axis: Array, generator: np.random.Generator) -> Array:
    """Draw the skin without lesion and hairs; shape (3, points, points)."""
    tone = PALE + generator.random() * (TAN - PALE)
    slope_x, slope_y = generator.uniform(-SLOPE, SLOPE, 2)
    from_centre = axis - 0.5
    shading = 1 + np.add.outer(slope_y * from_centre, slope_x * from_centre)
    shading -= VIGNETTE * np.add.outer(from_centre**2, from_centre**2)
    for cycles in ((3, 8), (14, 30)):
        shading += TEXTURE * _waves(axis, cycles, generator)
    return np.asarray(np.multiply.outer(tone, shading))


def _add_lesion(canvas: Array, axis: Array, traits: Array, generator: np.random.Generator) -> None:
    """Draw a lesion with these traits over the canvas."""
    asymmetry, border, colour = traits
    size = generator.uniform(*RADIUS)
    centre_x, centre_y = 0.5 + generator.uniform(-OFF_CENTRE, OFF_CENTRE, 2)
    x, y = (axis - centre_x) / size, (axis - centre_y) / size
    outline = _outline(asymmetry, border, generator)
    distance = np.sqrt(np.add.outer(y**2, x**2))
    step = (np.arctan2(y[:, np.newaxis], x) + np.pi) / (2 * np.pi) * (len(outline) - 1)
    radius = np.interp(step, np.arange(len(outline)), outline)
    outwards = distance / radius
    # A sharp edge, inside which some skin shines through the thinner pigment.
    cover = _rise((radius - distance) * size / EDGE + 0.5)
    cover *= 1 - THINNING * _rise(2 * outwards - 1)

    brown = LIGHT_BROWN + generator.random() * (BROWN - LIGHT_BROWN)
    pigment = np.multiply.outer(brown, np.ones_like(distance))
    rotation = generator.uniform(0, 2 * np.pi)
    for place, (blotch, start) in enumerate(BLOTCHES):
        angle = rotation + 2 * np.pi * place / len(BLOTCHES) + generator.uniform(-0.5, 0.5)
        away, width = generator.uniform(*AWAY), generator.uniform(*SPREAD)
        bump_x = np.exp(-(((x - away * np.cos(angle)) / width) ** 2) / 2)
        bump_y = np.exp(-(((y - away * np.sin(angle)) / width) ** 2) / 2)
        height = np.outer(bump_y, bump_x) + WAVINESS * _waves(axis, (2, 7), generator)
        strength = _rise((colour - start) / FADE_IN)
        weight = strength * _rise((height - SHORE[0]) / (SHORE[1] - SHORE[0]))
        _paint(pigment, weight, blotch)
    # A net of pigment that only large pictures resolve.
    pigment *= 1 + NET * _waves(axis, (16, 36), generator)
    canvas += cover * (pigment - canvas)


def _add_hairs(canvas: Array, axis: Array, generator: np.random.Generator) -> None:
    """Draw a few fine bent hairs over the canvas."""
    for _ in range(HAIRS):
        there = generator.random() < 0.5
        direction = generator.uniform(0, 2 * np.pi)
        middle_x, middle_y = generator.uniform(0.1, 0.9, 2)
        half_length, bend = generator.uniform(0.12, 0.35), generator.uniform(-1.2, 1.2)
        if not there:
            continue
        x, y = axis - middle_x, axis - middle_y
        along = np.add.outer(np.sin(direction) * y, np.cos(direction) * x)
        beside = np.add.outer(np.cos(direction) * y, -np.sin(direction) * x) - bend * along**2
        ends = _rise((half_length - np.abs(along)) / 0.1)
        weight = 0.7 * ends * np.clip(1 - np.abs(beside) / HAIR_WIDTH, 0, 1)
        _paint(canvas, weight, HAIR_COLOUR)


def draw_lesion(
    traits: npt.ArrayLike, size: int, generator: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Draw one lesion.

    Parameters
    ----------
    traits
        Asymmetry, border and colour, each from 0 to 1; shape (3,).
    size
        Pixels along each side.
    generator
        Source of the random numbers. What is drawn from it depends neither on the traits nor on
        the size: equal generators give the same lesion at each size, and variants of one lesion
        for different traits.

    Returns
    -------
    numpy.ndarray
        Red, green and blue, 0 to 255; shape (size, size, 3), rows from the top.
    """
    points = OVERSAMPLING * size
    axis = (np.arange(points) + 0.5) / points
    canvas = _skin(axis, generator)
    _add_lesion(canvas, axis, np.asarray(traits, dtype=float), generator)
    _add_hairs(canvas, axis, generator)
    noise = NOISE * generator.standard_normal((GRAIN, GRAIN))
    cell = (axis * GRAIN).astype(int)
    canvas += noise[np.ix_(cell, cell)]
    pixels = canvas.reshape(3, size, OVERSAMPLING, size, OVERSAMPLING).mean(axis=(2, 4))
    levels: Array = np.round(255 * np.clip(np.moveaxis(pixels, 0, -1), 0, 1))
    return levels.astype(np.uint8)


def lesions(images: int, size: int, seed: int) -> tuple[pd.DataFrame, npt.NDArray[np.uint8]]:
    """Draw lesions with their table.

    Parameters
    ----------
    images
        Number of lesions.
    size
        Pixels along each side; the table does not depend on it.
    seed
        Seed, at least 0, that determines table and pictures.

    Returns
    -------
    pandas.DataFrame
        One row a lesion, with the columns of `draw_table`.
    numpy.ndarray
        Red, green and blue, 0 to 255; shape (images, size, size, 3).
    """
    for_table, *for_pictures = np.random.SeedSequence(seed).spawn(1 + images)
    table = draw_table(images, np.random.default_rng(for_table))
    traits = table[["asymmetry", "border", "colour"]].to_numpy()
    pictures = np.empty((images, size, size, 3), dtype=np.uint8)
    for picture, row, sequence in zip(pictures, traits, for_pictures, strict=True):
        picture[:] = draw_lesion(row, size, np.random.default_rng(sequence))
    return table, pictures


def _write(folder: Path, table: pd.DataFrame, pictures: npt.NDArray[np.uint8]) -> None:
    """Write the pictures, and the table with their paths, into the folder."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    paths = [f"images/{number:04d}.png" for number in range(1, len(pictures) + 1)]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(folder / path)
    table.assign(image=paths)[["image", *table.columns]].to_csv(folder / "data.csv", index=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process when None.
    """
    parser = argparse.ArgumentParser(description="Draw synthetic skin lesions with a known truth.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--images", type=int, default=1000, help="number of lesions")
    parser.add_argument("--size", type=int, default=32, help="pixels along each side")
    parser.add_argument("--seed", type=int, default=1, help="seed of table and pictures")
    parser.add_argument("--overwrite", action="store_true", help="replace a data.csv in DIR")
    chosen = parser.parse_args(arguments)
    if min(chosen.images, chosen.size) < 1 or chosen.seed < 0:
        parser.error("--images and --size must be at least 1, --seed at least 0")
    if (chosen.out / "data.csv").exists() and not chosen.overwrite:
        parser.error(f"{chosen.out / 'data.csv'} exists; give --overwrite to replace it")
    table, pictures = lesions(chosen.images, chosen.size, chosen.seed)
    _write(chosen.out, table, pictures)
    print(
        f"{chosen.out}: {chosen.images} lesions of {chosen.size} x {chosen.size} pixels, "
        f"prevalence {table['melanoma'].mean():.3f}"
    )


if __name__ == "__main__":
    main()
