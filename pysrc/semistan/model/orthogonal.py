"""Which coefficients are orthogonalised to the network.

Where nn() sees all that a structured term uses, the network can imitate the term, and only
eta = x' theta + f is identified. Several networks are added, so that an interaction is imitated
only by one of them that sees all of it. With the columns s of such terms, centred over the training
rows,

    gamma = (X_s' X_s)^-1 X_s' f,    theta_s + gamma,    f - X_s gamma

gives them all that the network says along them, also by way of inputs that vary with them, and
leaves eta as it is. ``orthogonalise`` chooses the columns: none (``off``), those of terms whose
variables are all in nn() (``auto``), or all. A term with a variable that no nn() sees is
beyond the networks, so that its coefficient is identified. ``orthogonalise_in`` chooses where: in
each draw afterwards (``posterior``), or in the program, which then samples theta_s + gamma as its
``theta``, with the prior on it (``model``).

Rügamer (2023), A New PHO-rmula for Improved Performance of Semi-Structured Networks, ICML.
"""

from __future__ import annotations

import re

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.formula.formula import factors, parse_formula, variables

ORTHOGONAL, RAW = "_orth", "_raw"
INTERCEPT = f"b_Intercept{ORTHOGONAL}"


def orthogonal_columns(config: ModelConfig, design: Design) -> tuple[int, ...]:
    """Return the positions, from 0, of the structured columns that are orthogonalised."""
    everything = tuple(range(len(design.x.columns)))
    if config.orthogonalise != "auto":
        return everything if config.orthogonalise == "all" else ()
    networks = [
        {name for term in network for name in variables(term)}
        for network in parse_formula(design.formula).mean_networks
    ]
    shared = {term for term in design.x.terms if _imitated(term, networks)}
    return tuple(j for j in everything if _term_of(design.x.columns[j], design.x.terms) in shared)


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


def _imitated(term: str, networks: list[set[str]]) -> bool:
    """Say whether networks of these variables can add up to a term."""
    used = set(variables(term))
    product = len(factors(term)) > 1
    return any(seen >= used for seen in (networks if product else [set().union(*networks)]))


def _term_of(column: str, terms: tuple[str, ...]) -> str:
    """Return the term that made a column: each of its factors may add ``[level]``."""
    return next(term for term in terms if re.fullmatch(_pattern(term), column, re.DOTALL))


def _pattern(term: str) -> str:
    names = (re.sub("^`([^`]*)`$", r"\1", factor) for factor in factors(term))
    return ":".join(rf"{re.escape(name)}(\[.*\])?" for name in names)
