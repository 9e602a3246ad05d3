"""Pictures of a fit: a table of kinds, each one function from its material to a figure."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError, did_you_mean
from semistan.show.pictures.band import band_alt, draw_band
from semistan.show.pictures.calibration import (
    calibration_alt,
    calibration_refusal,
    draw_calibration,
)
from semistan.show.pictures.chains import (
    draw_rank,
    draw_trace,
    rank_alt,
    rank_refusal,
    trace_alt,
)
from semistan.show.pictures.coefficients import coefficients_alt, draw_coefficients
from semistan.show.pictures.decomposition import decomposition_alt, draw_decomposition
from semistan.show.pictures.densities import densities_alt, draw_densities
from semistan.show.pictures.effect import draw_effect, effect_alt
from semistan.show.pictures.energy import draw_energy, energy_alt, energy_refusal
from semistan.show.pictures.images import draw_images, images_alt, images_refusal
from semistan.show.pictures.importance import draw_importance, importance_alt
from semistan.show.pictures.loo_pit import draw_loo_pit, loo_pit_alt, loo_pit_refusal
from semistan.show.pictures.loss import draw_loss, loss_alt, loss_refusal
from semistan.show.pictures.material import Material, memory_material, run_material
from semistan.show.pictures.pairs import draw_pairs, pairs_alt, pairs_refusal
from semistan.show.pictures.ppc import draw_ppc, ppc_alt, ppc_refusal
from semistan.show.pictures.row_comparisons import draw_row_comparisons, row_comparisons_alt
from semistan.show.pictures.smooths import draw_smooths, smooths_alt, smooths_refusal
from semistan.show.pictures.stat import draw_stat, stat_alt, stat_refusal
from semistan.show.pictures.style import look, reserve
from semistan.show.pictures.subspace import draw_subspace, subspace_alt, subspace_refusal
from semistan.show.pictures.survival import draw_survival, survival_alt, survival_refusal
from semistan.show.pictures.write import check_suffix, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "KINDS", "PICTURES", "Material", "PictureKind", "alt_text", "available", "check_kind",
    "check_suffix", "decomposition_alt", "draw", "draw_decomposition", "draw_effect",
    "draw_importance", "draw_row_comparisons", "effect_alt", "importance_alt",
    "memory_material", "reserve", "row_comparisons_alt", "run_material", "write_picture",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PictureKind:
    """One kind of picture.

    Attributes
    ----------
    name : str
        By which users ask for it.
    title : str
        What it shows, in a few words.
    function : callable
        Maps a Material, and options by keyword, to a figure.
    alt : callable
        Maps the same to one sentence for readers who do not see the figure.
    refusal : callable
        Says why some material has no such picture; nothing if it has.
    """

    name: str
    title: str
    function: Callable[..., Figure]
    alt: Callable[..., str]
    refusal: Callable[[Material], str] = lambda _: ""


PICTURES: tuple[PictureKind, ...] = (
    PictureKind("coefficients", "coefficients with intervals", draw_coefficients, coefficients_alt),
    PictureKind("densities", "densities of the coefficients", draw_densities, densities_alt),
    PictureKind(
        "smooths",
        "smooths with intervals",
        draw_smooths,
        smooths_alt,
        refusal=smooths_refusal,
    ),
    PictureKind("band", "predictive band over one input", draw_band, band_alt),
    PictureKind(
        "subspace",
        "log density in the subspace",
        draw_subspace,
        subspace_alt,
        refusal=subspace_refusal,
    ),
    PictureKind(
        "loss",
        "loss during training and along the curve",
        draw_loss,
        loss_alt,
        refusal=loss_refusal,
    ),
    PictureKind("pairs", "pairs of parameters", draw_pairs, pairs_alt, refusal=pairs_refusal),
    PictureKind("ppc", "predictive check", draw_ppc, ppc_alt, refusal=ppc_refusal),
    PictureKind(
        "stat", "predictive check by statistics", draw_stat, stat_alt, refusal=stat_refusal
    ),
    PictureKind(
        "loo_pit",
        "calibration of predictions of rows left out",
        draw_loo_pit,
        loo_pit_alt,
        refusal=loo_pit_refusal,
    ),
    PictureKind(
        "calibration",
        "calibration of predictions",
        draw_calibration,
        calibration_alt,
        refusal=calibration_refusal,
    ),
    PictureKind(
        "images",
        "images by what is predicted of them",
        draw_images,
        images_alt,
        refusal=images_refusal,
    ),
    PictureKind(
        "survival", "survival curves", draw_survival, survival_alt, refusal=survival_refusal
    ),
    PictureKind("trace", "traces by chain", draw_trace, trace_alt),
    PictureKind("rank", "ranks by chain", draw_rank, rank_alt, refusal=rank_refusal),
    PictureKind(
        "energy",
        "energy of the sampler by chain",
        draw_energy,
        energy_alt,
        refusal=energy_refusal,
    ),
)

KINDS = tuple(picture.name for picture in PICTURES)


def draw(material: Material, kind: str, **options: Any) -> Figure:
    """Draw one kind of picture.

    Parameters
    ----------
    material : Material
        From ``run_material`` or ``memory_material``.
    kind : str
        One of ``KINDS``.
    **options
        Those of the kind's function.

    Raises
    ------
    InputError
        For an unknown kind or option, or a picture that cannot be drawn of this material.
    """
    picture = _checked(material, kind, options)
    with look():
        return reserve(picture.function(material, **options), material.reservations)


def alt_text(material: Material, kind: str, **options: Any) -> str:
    """Describe one kind of picture in a sentence with its main numbers.

    Raises
    ------
    InputError
        As ``draw`` does.
    """
    picture = _checked(material, kind, options)
    return picture.alt(material, **options)


def available(material: Material) -> tuple[str, ...]:
    """Return the kinds that can be drawn of some material without options."""
    return tuple(picture.name for picture in PICTURES if not picture.refusal(material))


def check_kind(kind: str) -> PictureKind:
    """Return the record of a kind.

    Raises
    ------
    InputError
        Naming the nearest kind.
    """
    for picture in PICTURES:
        if picture.name == kind:
            return picture
    raise InputError(f"unknown picture '{kind}'.{did_you_mean(kind, KINDS)}")


def _checked(material: Material, kind: str, options: dict[str, Any]) -> PictureKind:
    picture = check_kind(kind)
    known = list(inspect.signature(picture.function).parameters)[1:]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) if known else " It has none."
            raise InputError(f"picture '{kind}' has no option '{name}'.{hint}")
    reason = picture.refusal(material)
    if reason:
        raise InputError(f"there is no picture '{kind}' of this fit: {reason}")
    return picture
