"""Pictures as ``data:`` addresses: vector graphics where they are small, else PNG."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from semistan.posterior.effects.columns import predictors_of
from semistan.posterior.effects.effect import Effect
from semistan.posterior.scoring.folds import KFold
from semistan.show.pictures import alt_text, available, draw
from semistan.show.pictures.effect import draw_effect, effect_alt
from semistan.show.pictures.material import Material
from semistan.show.pictures.style import DPI, look, reserve
from semistan.show.pictures.words import categorised, effect_words
from semistan.show.pictures.write import METADATA
from semistan.show.report.blocks import Gallery, Picture, galleries
from semistan.show.report.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 80_000  # bytes above which a picture becomes a PNG
CSS_DPI = 96  # CSS pixels to an inch


@dataclass(frozen=True, slots=True)
class Shown:
    """When and where the page shows a kind of picture.

    Attributes
    ----------
    place : str
        The gallery that it is in; empty if the page leaves it out.
    reason : str
        Why it is left out.
    hint : str
        What to look for, below the picture.
    of_prior : bool
        Whether it is shown of draws from the prior, which nothing is held against.
    """

    place: str
    reason: str = ""
    hint: str = ""
    of_prior: bool = True


SHOWN: Mapping[str, Shown] = {  # in the order in which a gallery has them
    "coefficients": Shown("coefficients"),
    "densities": Shown("coefficients"),
    "smooths": Shown("smooths"),
    "ppc": Shown(
        "training rows",
        hint="Replicated responses should look like the observed ones.",
        of_prior=False,
    ),
    "calibration": Shown("training rows", of_prior=False),
    "survival": Shown(
        "training rows",
        hint="Survival curves should follow the steps of Kaplan and Meier's estimate.",
        of_prior=False,
    ),
    "images": Shown("training rows", of_prior=False),
    "loo_pit": Shown(
        "leave-one-out",
        hint="Responses are calibrated by predictions without their own row where the line stays "
        "in the band.",
        of_prior=False,
    ),
    "subspace": Shown("subspace"),
    "loss": Shown("subspace"),
    "trace": Shown("chains", hint="The chains should look alike, without trends or jumps."),
    "rank": Shown("chains", hint="Bars of even height say that the chains agree."),
    "energy": Shown("chains"),
    "band": Shown("", "the page has the effects of every column"),
    "pairs": Shown("", "of as many parameters as a model has, only a few fit; they are asked for"),
    "stat": Shown("", "which statistic matters is the reader's question; `ppc` has all responses"),
}


def run_pictures(results: Results) -> dict[str, Picture]:
    """Draw every kind of picture that the page shows of this run."""
    material = material_of(results)
    return {
        kind: embedded(draw(material, kind), SHOWN[kind].hint, alt_text(material, kind))
        for kind in available(material)
        if SHOWN[kind].place and (SHOWN[kind].of_prior or not results.prior_only)
    }


def gallery_at(pictures: Mapping[str, Picture], place: str) -> tuple[Gallery, ...]:
    """Return the gallery of a place with the pictures that there are, if any."""
    return galleries(
        pictures[kind] for kind, how in SHOWN.items() if how.place == place and kind in pictures
    )


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
