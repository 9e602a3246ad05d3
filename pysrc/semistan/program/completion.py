"""The completion in the program: what the weights outside the subspace add.

The sampling program draws psi, and completes coefficients and intercepts with it. The program of
``generate`` reads psi, and has the change of the weights too, along which it differentiates the
networks.
"""

from __future__ import annotations

from textwrap import indent
from typing import Any

import numpy as np

from semistan.errors import InputError
from semistan.model.bundle import Bundle
from semistan.model.completion import PSI, completed_name
from semistan.model.parameter import Parameter
from semistan.model.predictor import Predictor
from semistan.model.stan_text import WIDTH, call, declarations, heading
from semistan.program.networks import TIMES
from semistan.program.parts import Parts

MOVE = f"append_row(1, {PSI})"  # what a step and directions are multiplied by
ALONG = "F_along"
DRAWN = (f"vector[n_psi] {PSI}", "outside the subspace, standard normal")


def shift(name: str) -> str:
    """Return the name of the data that say how a quantity moves."""
    return f"shift_{name}"


def psi_parameter() -> Parameter:
    """Return psi, as a program that reads the chains declares it."""
    return Parameter(PSI, DRAWN[1], (0,), ("n_psi",))


def completion_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare how coefficients and intercepts move; nothing where the subspace is all."""
    if not parts.model.completes:
        return []
    lines = [
        heading("Completion: a step, and the change with each element of psi"),
        ("int<lower=1> n_psi;", "directions outside the subspace"),
    ]
    for item in parts.design.predictors:
        if item.coefficients:
            lines.append(
                (f"matrix[P{item.suffix}, 1 + n_psi] {shift(item.theta)};", f"of {item.theta}")
            )
        names = (item.intercept, *(slope.name for slope in item.slopes))
        lines += [(f"row_vector[1 + n_psi] {shift(name)};", f"of {name}") for name in names]
    return lines


def drawn_lines(parts: Parts) -> str:
    """Draw psi, and complete the coefficients of each predictor, in the generated quantities."""
    if not parts.model.completes:
        return ""
    text = declarations([DRAWN]) + "  = to_vector(normal_rng(rep_vector(0, n_psi), 1));\n"
    for item in parts.design.predictors:
        if item.coefficients:
            name = item.theta
            text += declarations([(f"vector[P{item.suffix}] {completed_name(name)}", "")])
            text += f"  = {name} + {shift(name)} * {MOVE};\n"
    return text


def reported_theta(parts: Parts, item: Predictor) -> str:
    """Return the name of the coefficients that are reported."""
    return completed_name(item.theta) if parts.model.completes else item.theta


def moved_by(parts: Parts, name: str, sign: str = "+") -> str:
    """Return what completes an intercept or another quantity, on a line of its own."""
    return f"\n    {sign} {shift(name)} * {MOVE}" if parts.model.completes else ""


def row_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare how weights, other intercepts and terms move, for the rows' predictors."""
    if not parts.model.completes:
        return []
    taus = [item for item in parts.design.predictors if item.has_tau]
    terms = [
        ("int<lower=1> n_made;", "coefficients of the other terms"),
        ("matrix[n_made, 1 + n_psi] shift_made;", "of these"),
    ]
    return [
        ("vector[d] w_mode;", "weights around which the network is linear"),
        ("matrix[d, 1 + n_psi] shift_w;", "of the weights"),
        *((f"row_vector[1 + n_psi] {shift(item.tau)};", f"of {item.tau}") for item in taus),
        *(terms if parts.design.terms else []),
    ]


def made_statements(parts: Parts) -> str:
    """Move what the other terms make, in the transformed parameters."""
    if not (parts.model.completes and parts.design.terms):
        return ""
    text, before = "{\n  vector[n_made] moved = shift_made * append_row(1, psi);\n", "1"
    made = [pair for term in parts.design.terms for pair in term.made_shapes.items()]
    for name, shape in made:
        part = f"segment(moved, {before}, num_elements({name}))"
        matrix = f"to_matrix({part}, rows({name}), cols({name}))"
        text += f"  {name} += {part if len(shape) == 1 else matrix};\n"
        before += f" + num_elements({name})"
    return text + "}\n"


def networks_along(parts: Parts) -> str:
    """Declare how the outputs of all networks change, over all rows."""
    if not parts.model.completes:
        return ""
    network = parts.network
    rows, weights, *sizes = network.arguments(weights="w_mode")
    name = "outputs_along" if network.several else "network_outputs_along"
    return f"matrix[N, {network.number}] {ALONG}  // of the networks, by the completion\n" + indent(
        call(f"= {name}", [rows, weights, f"shift_w * {MOVE}", *sizes],
             f"\n  .* {TIMES};" if network.multiplies else ";", WIDTH - 6), "  "
    )  # fmt: skip


def predictor_shifts(parts: Parts, item: Predictor) -> tuple[str, list[str]]:
    """Return what completes a predictor, but for the mean's networks: a number, and vectors."""
    if not parts.model.completes:
        return "", []
    found = [f"Xc{item.suffix} * ({shift(item.theta)} * {MOVE})"] if item.coefficients else []
    of_networks = item.networks and not item.is_mean
    found += [parts.network.output(item.name, ALONG)] if of_networks else []
    return f"{shift(item.tau)} * {MOVE}" if item.has_tau else "", found


def completion_data(bundle: Bundle, *, prior_only: bool) -> dict[str, Any]:
    """Return the values of what the programs declare; without a likelihood, nothing moves."""
    if not bundle.model.completes:
        return {}
    found = bundle.trained.completion
    if found is None:
        raise InputError(
            "the bundle was trained without a completion of its subspace; train the model anew, "
            "or use --completion none"
        )
    named, design = found.others, bundle.design
    data: dict[str, Any] = {"w_mode": found.at, "shift_w": found.weights}
    for item in design.predictors:
        if item.coefficients:
            data[shift(item.theta)] = named[item.theta]
        for name in (item.intercept, *(slope.name for slope in item.slopes)):
            data[shift(name)] = named[name][0]
        if item.has_tau:
            data[shift(item.tau)] = named[item.tau][0]
    made = [name for term in design.terms for name in term.made_shapes]
    if made:
        data["shift_made"] = np.concatenate([named[name] for name in made])
    if prior_only:
        data = {name: np.zeros_like(value) for name, value in data.items()} | {"w_mode": found.at}
    if made:
        data["n_made"] = len(data["shift_made"])
    return {"n_psi": found.K, **data}
