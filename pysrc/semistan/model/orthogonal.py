"""Which coefficients are orthogonalised to the network.

Where nn() sees all that a structured term uses, the network can imitate the term, and only
eta = x' theta + f is identified. Several networks are added, so that an interaction is imitated
only by one of them that sees all of it. With the columns s of such terms, centred over the training
rows,

    gamma = (X_s' X_s)^-1 X_s' f,    theta_s + gamma,    f - X_s gamma

gives them all that the network says along them, also by way of inputs that vary with them, and
leaves eta as it is. ``orthogonalise`` chooses the columns: none (``off``), those whose variables
are all in nn() (``auto``), or all. A column with a variable that no nn() sees is beyond the
networks, so that its coefficient is identified. ``orthogonalise_in`` chooses where: in each draw
afterwards (``posterior``), or in the program, which then samples theta_s + gamma as its ``theta``,
with the prior on it (``model``).

Rügamer (2023), A New PHO-rmula for Improved Performance of Semi-Structured Networks, ICML.
"""

from __future__ import annotations

import re

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.formula.expression import factors, variables
from semistan.model.formula.formula import parse_formula

ORTHOGONAL, RAW = "_orth", "_raw"
INTERCEPT = f"b_Intercept{ORTHOGONAL}"


def orthogonal_columns(config: ModelConfig, design: Design) -> tuple[int, ...]:
    """Return the positions, from 0, of the structured columns that are orthogonalised."""
    columns = design.x.columns
    everything = tuple(range(len(columns)))
    if config.orthogonalise != "auto":
        return everything if config.orthogonalise == "all" else ()
    mean = parse_formula(design.formula).mean
    networks = [
        ({*variables(times)} if times else set(), {v for term in network for v in variables(term)})
        for network, times in zip(mean.networks, mean.times, strict=True)
    ]
    used = _factors_by_column(columns, design.x.terms)
    return tuple(j for j in everything if _imitated(used[columns[j]], networks))


def least_squares(X: Array) -> Array:
    """Return (X'X)^-1 X' of columns X (N, p), shape (p, N), by a QR decomposition."""
    Q, R = np.linalg.qr(X)
    return np.ascontiguousarray(np.linalg.solve(R, Q.T))


def in_model(config: ModelConfig, design: Design) -> bool:
    """Say whether the program samples orthogonalised coefficients.

    Raises
    ------
    InputError
        If theta lies in the subspace, so that it has no prior of its own.
    """
    if config.orthogonalise_in != "model" or not orthogonal_columns(config, design):
        return False
    if config.subspace.holds_theta:
        raise InputError(
            "orthogonalise_in = 'model' puts the prior on the orthogonalised coefficients, but in "
            f"the construction '{config.subspace.construction}' theta moves with phi and has no "
            "prior; use orthogonalise_in = 'posterior'"
        )
    return True


def further_names(config: ModelConfig, design: Design) -> dict[str, int]:
    """Return the names that are reported besides ``b_x``, with the positions of their columns.

    ``b_x_orth`` is orthogonalised beside the program's ``b_x``; where the program's is
    orthogonalised itself, ``b_x_raw`` is what multiplies x beside the network as it is.
    """
    suffix = RAW if in_model(config, design) else ORTHOGONAL
    names = design.coefficients
    return {f"{names[j]}{suffix}": j for j in orthogonal_columns(config, design)}


def slope_columns(config: ModelConfig, design: Design) -> dict[str, int]:
    """Return the names of all reported slopes with the positions of their columns."""
    positions = {name: j for j, name in enumerate(design.coefficients)}
    return positions | further_names(config, design)


def raw_columns(config: ModelConfig, design: Design) -> dict[str, int]:
    """Return the names of what multiplies x beside the network as it is, and their columns."""
    further = further_names(config, design) if in_model(config, design) else {}
    held = further.values()
    plain = {name: j for j, name in enumerate(design.coefficients) if j not in held}
    return plain | further


def check_orthogonal(config: ModelConfig, design: Design) -> None:
    """Refuse names that clash with those of coefficients, and what has no such program.

    Raises
    ------
    InputError
        Naming the column to be renamed, or the construction.
    """
    further = further_names(config, design)
    if further and design.mean.slopes:
        raise InputError(
            f"orthogonalise = '{config.orthogonalise}' does not know networks that multiply a "
            "term; use --orthogonalise off, and leave columns that stand in nn() out of the "
            "other terms"
        )
    if further and design.categories:
        raise InputError(
            f"orthogonalise = '{config.orthogonalise}' knows one predictor, and the response has "
            "one for each category; use --orthogonalise off"
        )
    names = dict(zip(design.coefficients, design.x.columns, strict=True))
    for name in [*further, *([INTERCEPT] if further else [])]:
        if name in names:
            raise InputError(
                f"column '{names[name]}' would be called '{name}', as an orthogonalised "
                "coefficient is; rename it in the data, or use --orthogonalise off"
            )


def shared_names(config: ModelConfig, design: Design) -> tuple[str, ...]:
    """Return the coefficients that the network can imitate, whatever is done about it."""
    shared = orthogonal_columns(config.model_copy(update={"orthogonalise": "auto"}), design)
    return tuple(design.coefficients[j] for j in shared)


def announcement(config: ModelConfig, design: Design) -> str | None:
    """Say what is done about coefficients that the network can imitate, or None if there is none.

    Returns
    -------
    str or None
        One line, a warning if nothing is done.
    """
    shared, columns = shared_names(config, design), orthogonal_columns(config, design)
    imitated = f"nn() sees all that the terms of {', '.join(shared)} use and can imitate them"
    if shared and not columns:
        return (
            f"warning: {imitated}, so that only the priors tell these coefficients apart; "
            "use --orthogonalise auto"
        )
    if not columns:
        return None
    if in_model(config, design):
        names = ", ".join(design.coefficients[j] for j in columns)
        done = f"the program samples orthogonalised coefficients: {names}"
    else:
        names = ", ".join(further_names(config, design))
        done = f"orthogonalised coefficients are reported besides: {names}"
    return f"{imitated}; {done}" if shared else done


def _imitated(used: tuple[str, ...], networks: list[tuple[set[str], set[str]]]) -> bool:
    """Say whether networks can add up to a product of factors.

    Each network is given by the variables of what it multiplies, and by those that it sees.
    """
    names = {name for factor in used for name in variables(factor)}
    if len(used) > 1:
        return any(times <= names <= times | seen for times, seen in networks)
    return names <= set().union(*(seen for times, seen in networks if not times))


def _factors_by_column(
    columns: tuple[str, ...], terms: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return the factors that each column is the product of.

    They can be fewer than those of its term: ``g:h`` without ``g`` and ``h`` has columns of the
    margin ``h``, too, and then those of ``g`` within each level of ``h``.
    """
    split = [factors(term) for term in terms]
    patterns = [(parts, re.compile(_pattern(parts), re.DOTALL)) for parts in split]
    return {
        column: max(
            (_present(parts, pattern.fullmatch(column)) for parts, pattern in patterns), key=len
        )
        for column in columns
    }


def _present(parts: tuple[str, ...], found: re.Match[str] | None) -> tuple[str, ...]:
    here = found.groups() if found else ()
    return tuple(part for part, group in zip(parts, here, strict=False) if group is not None)


def _pattern(parts: tuple[str, ...]) -> str:
    """Return a pattern of the columns of a term, each of whose factors may add ``[level]``.

    A level is as short as can be, so that all factors that are there are found.
    """
    names = (re.sub("^`([^`]*)`$", r"\1", part) for part in parts)
    return "".join(rf"(?:({re.escape(name)})(?:\[.*?\])?(?::|$))?" for name in names)
