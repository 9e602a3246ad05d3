"""Pictures as ``data:`` addresses: vector graphics where they are small, else PNG."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from semistan.posterior.effects.columns import predictors_of
from semistan.posterior.effects.decomposition import Decomposition
from semistan.posterior.effects.effect import Effect
from semistan.posterior.scoring.folds import KFold
from semistan.show.pictures import PICTURES, alt_text, available, draw
from semistan.show.pictures.decomposition import decomposition_alt, draw_decomposition
from semistan.show.pictures.effect import draw_effect, effect_alt
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import DPI, look, reserve
from semistan.show.pictures.words import categorised, effect_words, eta_words
from semistan.show.pictures.write import METADATA
from semistan.show.report.blocks import Gallery, Picture, galleries
from semistan.show.report.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 80_000  # bytes above which a picture becomes a PNG
CSS_DPI = 96  # CSS pixels to an inch


def run_pictures(results: Results) -> dict[str, Picture]:
    """Draw every kind of picture that the page shows of this run."""
    material = material_of(results)
    return {
        kind: embedded(draw(material, kind), PICTURES[kind].hint, alt_text(material, kind))
        for kind in available(material)
        if PICTURES[kind].place and (PICTURES[kind].of_prior or not results.prior_only)
    }


def gallery_at(pictures: Mapping[str, Picture], place: str) -> tuple[Gallery, ...]:
    """Return the gallery of a place with the pictures that there are, if any."""
    return galleries(picture for kind, picture in pictures.items() if PICTURES[kind].place == place)


def held_out_picture(results: Results, found: KFold) -> Picture:
    """Draw the calibration of rows that the fits of a cross-validation did not see."""
    material = material_of(results)
    options: dict[str, Any] = {"judged": found.rows, "rows_label": "rows held out"}
    return embedded(
        draw(material, "calibration", **options),
        "Each row is predicted by the fit that did not see it: no row flatters this picture.",
        alt_text(material, "calibration", **options),
    )


def effect_pictures(results: Results, effects: list[Effect]) -> tuple[Picture, ...]:
    """Draw effects on the mean response, or on the probability of each category."""
    material = material_of(results)
    words = [
        {"label": effect_words(material, effect), "response": categorised(material)}
        for effect in effects
    ]
    predictors = predictors_of(results.posterior, results.table)
    factors = tuple(predictors.levels)
    return tuple(
        embedded(
            reserve(
                draw_effect(effect, table=predictors.frame, factors=factors, **named),
                results.posterior.reservations,
            ),
            "",
            effect_alt(effect, **named),
        )
        for effect, named in zip(effects, words, strict=True)
    )


def components_picture(results: Results, found: Decomposition) -> Picture:
    """Draw the main effects and the largest interactions of the mean's networks."""
    material = material_of(results)
    label = eta_words(material)
    figure = reserve(draw_decomposition(found, label=label), material.reservations)
    return embedded(figure, "", decomposition_alt(found, label=label))


def material_of(results: Results) -> Material:
    """Hand a run's parts to the pictures."""
    return Material(
        results.posterior, lambda: results.rows, lambda: results.table,
        prior_only=results.prior_only, seed=results.options.seed,
    )  # fmt: skip


def embedded(figure: Figure, caption: str, alt: str) -> Picture:
    """Encode a figure into a page."""
    content, kind = _encoded(figure, "svg"), "svg+xml"
    if len(content) > LARGEST_SVG:
        content, kind = _encoded(figure, "png"), "png"
    width, height = (round(CSS_DPI * inches) for inches in figure.get_size_inches())
    source = f"data:image/{kind};base64,{b64encode(content).decode()}"
    return Picture(source, caption, alt, width, height)


def _encoded(figure: Figure, suffix: str) -> bytes:
    stream = BytesIO()
    metadata: dict[str, Any] = METADATA[f".{suffix}"]
    with look():
        figure.savefig(stream, format=suffix, dpi=DPI, metadata=metadata)
    return stream.getvalue()
