"""What the arrays of a bundle must be: shapes that go with the network and the design, numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from semistan.errors import InputError
from semistan.model.bundle import Bundle, bundle_arrays

Shape = tuple[int | None, ...]
UNJUDGED = ("history_", "curve_")  # of training, where a loss may be NaN
SCALES = ("phi_scale", "x_scale", "u_scale", "h_scale")


def check_arrays(bundle: Bundle, path: Path) -> None:
    """Refuse arrays with which the network or the design cannot be computed.

    Parameters
    ----------
    bundle : Bundle
        As it was read.
    path : Path
        Of its arrays, for the error message.

    Raises
    ------
    InputError
        Naming the array, what was expected and what was got.
    """
    arrays, expected = bundle_arrays(bundle), _shapes(bundle)
    for name, array in arrays.items():
        shape = expected.get(name)
        if shape is not None and not _fits(array.shape, shape):
            raise InputError(
                f"'{path}' is damaged: expected {name} {_text(shape)}, got {_text(array.shape)}"
            )
        if not name.startswith(UNJUDGED) and not np.isfinite(array).all():
            raise InputError(f"'{path}' is damaged: expected finite numbers in {name}, got others")
        if name in SCALES and not (array > 0).all():
            raise InputError(
                f"'{path}' is damaged: expected positive numbers in {name}, got {array.min():g}"
            )
    for problem in _problems(bundle):
        raise InputError(f"'{path.parent}' is damaged: {problem}")


def _shapes(bundle: Bundle) -> dict[str, Shape]:
    """Return what the shapes must be; None is any size."""
    subspace, design, leading = bundle.subspace, bundle.design, bundle.model.leading
    d, k, P, Q = bundle.network.d, subspace.k, len(design.x.loc), len(design.u.loc)
    moves = (P,) if subspace.holds_theta else ()
    return {
        "p_bar": (d,), "Pi": (d, None), "phi_scale": (k,), "phi_location": (k,),
        "axes": (None,), "control_points": (None, d), "w_frozen": (sum(leading.sizes),),
        "theta": (P,), "x_loc": (P,), "x_scale": (P,), "u_loc": (Q,), "u_scale": (Q,),
        "h_loc": (leading.heads.n_inputs,), "h_scale": (leading.heads.n_inputs,),
        **({"theta_bar": moves, "theta_Pi": (*moves, k)} if moves else {}),
        **{f"further_{p.name}": (len(p.x.loc),) for p in design.others},
        **_completion_shapes(bundle),
        **{f"information_{p.name}": p.centring.shape for p in bundle.layout.centred if p.centring},
    }  # fmt: skip


def _completion_shapes(bundle: Bundle) -> dict[str, Shape]:
    """Return those of the completion, whose number of directions its shares say."""
    found = bundle.trained.completion
    if found is None:
        return {}
    columns, design = 1 + len(found.information), bundle.design
    sizes = {p.theta: len(p.coefficients) for p in design.predictors if p.coefficients}
    sizes |= {name: 1 for p in design.predictors for name in (p.intercept, p.tau)}
    sizes |= {slope.name: 1 for slope in design.slopes}
    sizes |= {
        name: prod(shape) for term in design.terms for name, shape in term.made_shapes.items()
    }
    of = {f"completion_of_{name}": (size, columns) for name, size in sizes.items()}
    d = bundle.network.d
    return {"completion_at": (d,), "completion_weights": (d, columns), **of}


def _problems(bundle: Bundle) -> Iterator[str]:
    """Yield what else cannot be."""
    units, axes = bundle.units, bundle.subspace.axes
    if len(axes) and not (axes.min() >= 0 and axes.max() < bundle.subspace.d):
        yield f"its axes are positions among {bundle.subspace.d} weights, got {axes.max()}"
    if len(set(axes.tolist())) < len(axes):
        yield "the same weight is an axis twice"
    numbers = {"eta_units.loc": units.eta_loc, "eta_units.scale": units.eta_scale}
    numbers |= {"eta_units.y": 1.0 if units.y_scale is None else units.y_scale}
    numbers |= {f"eta_units.locations.{name}": at for name, at in units.locations.items()}
    numbers |= {f"dispersion.{name}": value for name, value in bundle.trained.dispersion.items()}
    for name, value in numbers.items():
        if type(value) not in (int, float) or not np.isfinite(value):
            yield f"expected a number in {name}, got {value!r}"
    if min(units.eta_scale, numbers["eta_units.y"]) <= 0:
        yield "expected positive units of eta and y"


def _fits(shape: tuple[int, ...], expected: Shape) -> bool:
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(size in (None, own) for own, size in pairs)


def _text(shape: Shape) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"
