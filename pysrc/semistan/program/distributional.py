"""Predictors of dispersion parameters in the program: data, parameters, and what they make.

A parameter such as sigma is then a vector over the rows,

    sigma = exp(sigma_loc + tau_sigma + Xc_sigma theta_sigma + f_sigma),

where ``sigma_loc`` is the log of its unit. ``tau_sigma``, log sigma at the means of the columns, is
there without a network, whose output bias it would be. A parameter on the whole line is its
predictor, without exp. In the unconstrained coordinates q, tau and theta_sigma / theta_scale_sigma
of each parameter stand together.
"""

from __future__ import annotations

import re
from typing import Any

from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.predictor import ParameterDesign
from semistan.model.table.rows import Rows
from semistan.model.varying import predictor_start
from semistan.model.stan_text import WIDTH, declarations, statement
from semistan.program.networks import network_call, shared_weights

Lines = list[tuple[str, str]]


def parameter_data_lines(design: Design) -> Lines:
    """Declare units and columns of each predictor."""
    lines: Lines = []
    for item in design.parameters:
        name = item.name
        located = f"log of the unit of {name}" if item.link == "log" else f"location of {name}"
        lines.append((f"real {name}_loc;", located))
        if item.coefficients:
            lines += [
                (f"int<lower=1> P_{name};", f"structured coefficients of {item.words}"),
                (f"matrix[N, P_{name}] X_{name};", "their design, without an intercept"),
                (f"vector[P_{name}] x_loc_{name};", f"mean of each column of X_{name}"),
                (f"vector<lower=0>[P_{name}] theta_scale_{name};", "unit of each coefficient"),
            ]
    return lines


def parameter_data(bundle: Bundle, rows: Rows) -> dict[str, Any]:
    """Return the values of ``parameter_data_lines`` for the rows."""
    data: dict[str, Any] = {}
    for item in bundle.design.parameters:
        name, (loc, scale) = item.name, bundle.units.further[item.name]
        data[f"{name}_loc"] = predictor_start(bundle.family, bundle.units, name)
        if item.coefficients:
            data |= {
                f"P_{name}": len(loc),
                f"X_{name}": rows.further[name],
                f"x_loc_{name}": loc,
                f"theta_scale_{name}": 1 / scale,
            }
    return data


def centred_columns(design: Design) -> tuple[Lines, str]:
    """Declare the centred columns in the transformed data, and compute them."""
    items = [item for item in design.parameters if item.coefficients]
    lines = [
        (f"matrix[N, P_{item.name}] Xc_{item.name};", f"structured design of {item.words}, centred")
        for item in items
    ]
    loops = (
        f"for (j in 1 : P_{n}) {{\n  Xc_{n}[ : , j] = X_{n}[ : , j] - x_loc_{n}[j];\n}}\n"
        for n in (item.name for item in items)
    )
    return lines, "".join(loops)


def parameter_parameters(design: Design) -> Lines:
    """Declare what is sampled."""
    lines: Lines = []
    for item in design.parameters:
        name = item.name
        if item.has_tau:
            over = "over its unit" if item.link == "log" else "over its location"
            lines.append((f"real tau_{name};", f"{item.words} at average columns, {over}"))
        if item.coefficients:
            declared = f"vector<multiplier=theta_scale_{name}>[P_{name}] theta_{name};"
            declared = statement(declared, WIDTH - 2).rstrip()
            lines.append((declared, f"structured coefficients of {item.words}"))
    return lines


def parameter_arguments(design: Design) -> tuple[list[str], list[str]]:
    """Return the likelihood's arguments with their types: data, and parameters."""
    data, parameters = [], []
    for item in design.parameters:
        data.append(f"data real {item.name}_loc")
        data += [f"data matrix Xc_{item.name}"] if item.coefficients else []
        parameters += [f"real tau_{item.name}"] if item.has_tau else []
        parameters += [f"vector theta_{item.name}"] if item.coefficients else []
    return data, parameters


def parameter_vectors(design: Design, rows: str, size: str) -> str:
    """Declare each dispersion parameter over some rows, as ``[start : end]``.

    It stands behind ``weights_lines``.
    """
    text = ""
    for item in design.parameters:
        level, *others = _sums(design, item, rows)
        if not others:
            level = f"exp({level})" if item.link == "log" else level
            made = f"rep_vector({level}, {size})"
        elif item.link == "log":
            made = "exp(" + "\n        + ".join([level, *others]) + ")"
        else:
            made = "\n    + ".join([level, *others])
        words = "of each row" if item.link == "log" else "linear predictor"
        text += f"vector[{size}] {item.name}  // {words}\n  = {made};\n"
    return text


def _level(item: ParameterDesign) -> str:
    """Return what of a predictor does not vary by row."""
    return f"{item.name}_loc" + (f" + tau_{item.name}" if item.has_tau else "")


def _sums(design: Design, item: ParameterDesign, rows: str) -> list[str]:
    sums = [_level(item)]
    sums += [f"Xc_{item.name}{rows} * theta_{item.name}"] if item.coefficients else []
    if not item.networks:
        return sums
    column = 10 if item.link == "log" else 6
    w = shared_weights(design)
    return [*sums, network_call(design, column, rows=rows, predictor=item.name, weights=w)]


def of_row(text: str, design: Design, index: str) -> str:
    """Let a density or random generation take the parameters of one row."""
    for name in design.varying:
        text = re.sub(rf"\b{name}\b", f"{name}[{index}]", text)
    return text


def of_vectors(text: str, design: Design) -> str:
    """Let a density take vectors of the parameters, whose products are elementwise."""
    for name in design.varying:
        text = re.sub(rf"\b{name} \* ", f"{name} .* ", text)
    return text


def parameter_quantities(design: Design) -> str:
    """Declare intercepts and coefficients by their names, in generated quantities."""
    text = ""
    for item in design.parameters:
        sums = [_level(item)]
        if item.networks:
            sums.append(f"mean({network_call(design, 11, predictor=item.name)})")
        value = "\n    + ".join(sums)
        if item.coefficients:
            value += f"\n    - dot_product(x_loc_{item.name}, theta_{item.name})"
        mean = f"mean of {item.words}" if item.networks else item.words
        moved = f", moved to X_{item.name} = 0" if item.coefficients else ""
        text += declarations([(f"real {item.intercept}", f"{mean}{moved}")])
        text += f"  = {value};\n"
        columns = zip(item.coefficients, item.x.columns, strict=True)
        text += declarations(
            [
                (f"real {name} = theta_{item.name}[{j}];", column)
                for j, (name, column) in enumerate(columns, start=1)
            ]
        )
    return text


def parameter_labels(design: Design) -> dict[str, str]:
    """Map the names of intercepts and coefficients to the design's columns."""
    return {
        name: f"{item.name}: {column}"
        for item in design.parameters
        for name, column in zip(item.names, ("Intercept", *item.x.columns), strict=True)
    }
