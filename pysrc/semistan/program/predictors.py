"""The predictors in the program: data, what is sampled, and what they make of each row.

The mean is computed where the likelihood is. A parameter behind a comma, such as sigma, is a vector
over the rows,

    sigma = exp(sigma_loc + tau_sigma + Xc_sigma theta_sigma + other terms + f_sigma),

where ``sigma_loc`` is the log of its unit. ``tau_sigma``, log sigma at the means of the columns, is
there without a network, whose output bias it would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.predictor import Predictor
from semistan.model.stan_text import declarations
from semistan.model.table.rows import Rows
from semistan.model.terms.term import Lines, Term
from semistan.program.networks import NetworkText

# What else is in a predictor: a number, which may be empty, and vectors.
Further = Callable[[Predictor], tuple[str, list[str]]]

FUNCTIONS = {"log": "exp", "logit": "inv_logit"}  # Stan's inverse of each link
LOCATED = {
    "log": "log of the unit of {}", "logit": "where logit {} starts", "identity": "location of {}",
}  # fmt: skip


def offset_name(predictor: Predictor) -> str:
    """Return the name of what is known of a predictor."""
    return f"offsets{predictor.suffix}"


def term_data_lines(predictor: Predictor) -> Lines:
    """Declare what the other terms of a predictor need."""
    return [line for term in predictor.terms for line in term.data_lines()]


def other_data_lines(design: Design) -> Lines:
    """Declare units, columns and terms of each predictor behind a comma."""
    lines: Lines = []
    for item in design.others:
        name = item.name
        lines.append((f"real {name}_loc;", LOCATED[item.link].format(name)))
        if item.coefficients:
            lines += [
                (f"int<lower=1> P_{name};", f"structured coefficients of {item.words}"),
                (f"matrix[N, P_{name}] X_{name};", "their design, without an intercept"),
                (f"vector[P_{name}] x_loc_{name};", f"mean of each column of X_{name}"),
                (f"vector<lower=0>[P_{name}] theta_scale_{name};", "unit of each coefficient"),
            ]
        if item.offsets:
            lines.append((f"vector[N] {offset_name(item)};", f"part of {item.words} that is known"))
        lines += term_data_lines(item)
    return lines


def predictor_data(bundle: Bundle, rows: Rows) -> dict[str, Any]:
    """Return what the predictors need of the rows, but for the mean's own columns and offset."""
    data: dict[str, Any] = {}
    for item in bundle.design.predictors:
        columns, (loc, _) = rows.predictors[item.name], bundle.units.columns[item.name]
        if not item.is_mean:
            data[f"{item.name}_loc"] = bundle.units.location(bundle.family, item.name)
        if not item.is_mean and item.coefficients:
            data |= {
                f"P_{item.name}": len(loc),
                f"X_{item.name}": columns.X,
                f"x_loc_{item.name}": loc,
                f"theta_scale_{item.name}": bundle.units.coefficient_scale(item.name),
            }
        if not item.is_mean and columns.offset is not None:
            data[offset_name(item)] = columns.offset
        for term, block in zip(item.terms, columns.blocks, strict=True):
            data |= term.data(block)
    return data


def centred_columns(design: Design) -> tuple[Lines, str]:
    """Declare the centred columns in the transformed data, and compute them."""
    items = [item for item in design.others if item.coefficients]
    lines = [
        (f"matrix[N, P_{item.name}] Xc_{item.name};", f"structured design of {item.words}, centred")
        for item in items
    ]
    loops = (
        f"for (j in 1 : P_{n}) {{\n  Xc_{n}[ : , j] = X_{n}[ : , j] - x_loc_{n}[j];\n}}\n"
        for n in (item.name for item in items)
    )
    return lines, "".join(loops)


def term_arguments(predictor: Predictor) -> tuple[list[str], list[str]]:
    """Return the likelihood's arguments of a predictor's terms: data, and what is sampled."""
    data, sampled = [], []
    for term in predictor.terms:
        more_data, more_sampled = term.arguments()
        data += more_data
        sampled += more_sampled
    return data, sampled


def other_arguments(design: Design) -> tuple[list[str], list[str]]:
    """Return those of the predictors behind commas."""
    data, sampled = [], []
    for item in design.others:
        term_data, term_sampled = term_arguments(item)
        data.append(f"data real {item.name}_loc")
        data += [f"data matrix Xc_{item.name}"] if item.coefficients else []
        data += [f"data vector {offset_name(item)}"] if item.offsets else []
        data += term_data
        sampled += [f"real {item.tau}"] if item.has_tau else []
        sampled += [f"vector {item.theta}"] if item.coefficients else []
        sampled += term_sampled
    return data, sampled


def other_sums(predictor: Predictor, rows: str) -> list[str]:
    """Return what stands in a predictor of some rows beside the network and theta."""
    offset = [f"{offset_name(predictor)}{rows}"] if predictor.offsets else []
    return [*offset, *(term.summand(rows) for term in predictor.terms)]


def parameter_vectors(
    network: NetworkText, rows: str, size: str, further: Further = lambda _: ("", [])
) -> str:
    """Declare each parameter with a predictor over some rows, as ``[start : end]``.

    It stands behind the networks' ``outputs``; ``further`` says what else is in a predictor.
    """
    return "".join(_vector(network, item, rows, size, further) for item in network.design.others)


def _vector(network: NetworkText, item: Predictor, rows: str, size: str, further: Further) -> str:
    function = FUNCTIONS.get(item.link, "")
    number, vectors = further(item)
    level, *others = [*_sums(network, item, rows), *vectors]
    level += f" + {number}" if number else ""
    if not others:
        made = (
            f"rep_vector({function}({level}), {size})"
            if function
            else f"rep_vector({level}, {size})"
        )
    elif function:
        made = f"{function}(" + "\n        + ".join([level, *others]) + ")"
    else:
        made = "\n    + ".join([level, *others])
    words = "of each row" if function else "linear predictor"
    return f"vector[{size}] {item.name}  // {words}\n  = {made};\n"


def _level(item: Predictor) -> str:
    """Return what of a predictor does not vary by row."""
    return f"{item.name}_loc" + (f" + {item.tau}" if item.has_tau else "")


def _sums(network: NetworkText, item: Predictor, rows: str) -> list[str]:
    sums = [_level(item)]
    sums += [f"Xc_{item.name}{rows} * {item.theta}"] if item.coefficients else []
    if item.networks:
        sums.append(network.output(item.name))
    return [*sums, *other_sums(item, rows)]


def other_quantities(
    network: NetworkText, theta: Callable[[Predictor], str], completed: Callable[[str], str]
) -> str:
    """Declare intercepts, coefficients and correlations of the predictors behind commas.

    ``theta`` names the coefficients that are reported, and ``completed`` says what else is in a
    quantity of a name.
    """
    text = ""
    for item in network.design.others:
        sums = [_level(item)]
        if not item.has_tau:
            sums.append(network.mean_call(11, item.name))
        value = "\n    + ".join(sums)
        if item.coefficients:
            value += f"\n    - dot_product(x_loc_{item.name}, {item.theta})"
        value += completed(item.intercept)
        mean = item.words if item.has_tau else f"mean of {item.words}"
        moved = f", moved to X_{item.name} = 0" if item.coefficients else ""
        text += declarations([(f"real {item.intercept}", f"{mean}{moved}")])
        text += f"  = {value};\n"
        columns = zip(item.coefficients, item.x.columns, strict=True)
        coefficients = [
            (f"real {name} = {theta(item)}[{j}];", column)
            for j, (name, column) in enumerate(columns, start=1)
        ]
        text += declarations(coefficients) + slope_quantities(network, item, completed)
        text += declarations(term_quantity_lines(item))
    return text


def slope_quantities(
    network: NetworkText, predictor: Predictor, completed: Callable[[str], str]
) -> str:
    """Declare the coefficients of a predictor that are networks: their means over the rows."""
    text, unit = "", "eta_scale" if predictor.is_mean else "1"
    for slope in predictor.slopes:
        position = network.design.slopes.index(slope) + 1
        text += declarations([(f"real {slope.name}", f"mean coefficient of {slope.column}")])
        text += (
            f"  = {unit} / by_scale[{position}]\n"
            f"    * {network.slope(slope, 11)}{completed(slope.name)};\n"
        )
    return text


def term_quantity_lines(predictor: Predictor) -> Lines:
    """Declare what the terms of a predictor report."""
    return [line for term in predictor.terms for line in term.quantity_lines()]


def made_lines(terms: Iterable[Term]) -> Lines:
    """Declare what the parameters of terms make."""
    return [line for term in terms for line in term.made_lines()]


def other_labels(design: Design) -> dict[str, str]:
    """Map the names of intercepts and coefficients to the design's columns."""
    return {
        name: f"{item.name}: {column}"
        for item in design.others
        for name, column in zip(item.names, item.columns_named, strict=True)
    }
