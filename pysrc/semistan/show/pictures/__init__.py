"""Pictures of a fit: a new kind is one file with its record, and a line in ``PICTURES``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError, did_you_mean
from semistan.show.pictures.band import BAND
from semistan.show.pictures.calibration import CALIBRATION
from semistan.show.pictures.chains import RANK, TRACE
from semistan.show.pictures.coefficients import COEFFICIENTS
from semistan.show.pictures.decomposition import decomposition_alt, draw_decomposition
from semistan.show.pictures.densities import DENSITIES
from semistan.show.pictures.effect import draw_effect, effect_alt
from semistan.show.pictures.energy import ENERGY
from semistan.show.pictures.images import IMAGES
from semistan.show.pictures.importance import draw_importance, importance_alt
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.loo_pit import LOO_PIT
from semistan.show.pictures.loss import LOSS
from semistan.show.pictures.material import Material, memory_material, run_material
from semistan.show.pictures.pairs import PAIRS
from semistan.show.pictures.ppc import PPC
from semistan.show.pictures.row_comparisons import draw_row_comparisons, row_comparisons_alt
from semistan.show.pictures.smooths import SMOOTHS
from semistan.show.pictures.stat import STAT
from semistan.show.pictures.style import look, reserve
from semistan.show.pictures.subspace import SUBSPACE
from semistan.show.pictures.survival import SURVIVAL
from semistan.show.pictures.write import check_suffix, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PICTURES", "Material", "PictureKind", "alt_text", "available", "check_kind",
    "check_suffix", "decomposition_alt", "draw", "draw_decomposition", "draw_effect",
    "draw_importance", "draw_row_comparisons", "effect_alt", "importance_alt",
    "memory_material", "reserve", "row_comparisons_alt", "run_material", "write_picture",
]  # fmt: skip


PICTURES: dict[str, PictureKind] = {
    record.name: record
    for record in (
        COEFFICIENTS,
        DENSITIES,
        SMOOTHS,
        BAND,
        SUBSPACE,
        LOSS,
        PAIRS,
        PPC,
        STAT,
        LOO_PIT,
        CALIBRATION,
        IMAGES,
        SURVIVAL,
        TRACE,
        RANK,
        ENERGY,
    )
}


def draw(material: Material, kind: str, **options: Any) -> Figure:
    """Draw one kind of picture.

    Parameters
    ----------
    material : Material
        From ``run_material`` or ``memory_material``.
    kind : str
        One of ``PICTURES``.
    **options
        Those of the kind's function.

    Raises
    ------
    InputError
        For an unknown kind or option, or a picture that cannot be drawn of this material.
    """
    picture = _checked(material, kind, options)
    with look():
        return reserve(picture.draw(material, **options), material.reservations)


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
    return tuple(kind for kind, picture in PICTURES.items() if not picture.refusal(material))


def check_kind(kind: str) -> PictureKind:
    """Return the record of a kind.

    Raises
    ------
    InputError
        Naming the nearest kind.
    """
    if kind not in PICTURES:
        raise InputError(f"unknown picture '{kind}'.{did_you_mean(kind, PICTURES)}")
    return PICTURES[kind]


def _checked(material: Material, kind: str, options: dict[str, Any]) -> PictureKind:
    picture = check_kind(kind)
    known = list(inspect.signature(picture.draw).parameters)[1:]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known) if known else " It has none."
            raise InputError(f"picture '{kind}' has no option '{name}'.{hint}")
    reason = picture.refusal(material)
    if reason:
        raise InputError(f"there is no picture '{kind}' of this fit: {reason}")
    return picture
