"""The subspace: log posterior density on a slice, control points, trained curve and draws.

The slice goes through the posterior mean, along two columns of Pi; control points, curve and
draws are projected onto it. Compare Figure 2 of Dold et al. (2024) and Figure 1 of Izmailov et
al. (2020), Subspace Inference for Bayesian Deep Learning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistan.errors import InputError, did_you_mean
from semistan.show.pictures.kind import PictureKind
from semistan.show.pictures.material import Material
from semistan.show.pictures.slice import (
    MOST_ROWS,
    Plane,
    Slice,
    evaluate,
    held_words,
    points_words,
    slice_panel,
)
from semistan.show.pictures.style import finish, new_figure
from semistan.show.pictures.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHAT = ("posterior", "likelihood")


def draw_subspace(
    material: Material, *, directions: tuple[int, int] = (1, 2), what: str = "posterior"
) -> Figure:
    """Draw contours of the log density in two directions, or its profile if k = 1.

    Parameters
    ----------
    material : Material
        The fit.
    directions : tuple of int
        Two columns of Pi, counted from 1.
    what : str
        ``posterior`` or ``likelihood``.

    Raises
    ------
    InputError
        For directions that the subspace does not have, an unknown density, or the likelihood of
        a run that draws from the prior.
    """
    plane = _plane(material, _directions(material, directions), what)
    figure = new_figure(3.6 if len(plane.chosen) == 1 else 4.6)
    handles = slice_panel(figure, figure.add_subplot(), plane, evaluate(plane))
    return finish(figure, f"Subspace: {plane.words}", caption=_caption(plane), handles=handles)


def subspace_alt(
    material: Material, *, directions: tuple[int, int] = (1, 2), what: str = "posterior"
) -> str:
    """Say where the draws lie in the directions that are drawn."""
    plane = _plane(material, _directions(material, directions), what)
    k, points = plane.bundle.subspace.k, len(plane.control_points)
    phi = material.posterior.members[0].draws.phi
    parts = [
        f"phi[{i + 1}] has mean {number(phi[..., i].mean())} and standard deviation "
        f"{number(phi[..., i].std())}"
        for i in plane.chosen
    ]
    shown = f"{points} control points" if points > 1 else f"the {points_words(points)}"
    return (
        f"{plane.words.capitalize()} in a slice of the {k}-dimensional subspace, with {shown} and "
        f"draws: {'; '.join(parts)}."
    )


def subspace_refusal(material: Material) -> str:
    """Say why a mixture has no such picture."""
    several = len(material.posterior.members) > 1
    return (
        "a mixture has a subspace for each of its members: plot that of RUN/subspaces/1"
        if several
        else ""
    )


def density_slice(material: Material, chosen: tuple[int, ...], what: str) -> Slice:
    """Evaluate a log density on a grid through the posterior mean.

    Parameters
    ----------
    material : Material
        The fit.
    chosen : tuple of int
        One or two columns of Pi, counted from 0.
    what : str
        ``posterior`` or ``likelihood``.
    """
    return evaluate(_plane(material, chosen, what))


def _plane(material: Material, chosen: tuple[int, ...], what: str) -> Plane:
    if what not in WHAT:
        raise InputError(f"unknown density '{what}'.{did_you_mean(what, WHAT)}")
    if material.prior_only and what == "likelihood":
        raise InputError("a run that draws from the prior has no likelihood to draw")
    member = material.posterior.members[0]
    return Plane(member.bundle, material.rows, member.draws, chosen, what, material.prior_only)


def _directions(material: Material, directions: tuple[int, int]) -> tuple[int, ...]:
    """Return the directions from 0; the only one there is if k = 1."""
    k = material.posterior.members[0].bundle.subspace.k
    if k == 1:
        return (0,)
    if len(set(directions)) != 2 or not all(1 <= i <= k for i in directions):
        raise InputError(f"directions are two different numbers from 1 to {k}, got {directions}")
    return tuple(i - 1 for i in directions)


def _caption(plane: Plane) -> str:
    projected = "; draws, control points and curve are projected onto the plane"
    few = f" {MOST_ROWS:,} of the rows stand for all." if len(plane.rows) > MOST_ROWS else ""
    held = held_words(plane)
    if not held:
        return few.strip()
    return f"{held} at their means{projected if len(plane.chosen) == 2 else ''}.{few}"


SUBSPACE = PictureKind(
    name="subspace",
    title="log density in the subspace",
    draw=draw_subspace,
    alt=subspace_alt,
    refusal=subspace_refusal,
    place="subspace",
)
