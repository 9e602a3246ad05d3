"""What a program declares: its data, what is made of them once, and its parameters."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from semistan.model.bounded import bounds_of_each, in_stan
from semistan.model.parameter import Parameter
from semistan.model.priors.groups import PriorGroup, choices
from semistan.model.priors.weight_scales import GROUPS, SD_W
from semistan.model.stan_text import WIDTH, declarations, heading, statement
from semistan.program.completion import completion_lines
from semistan.program.integral import columns, integral_lines, sampled_parameters
from semistan.program.parts import Parts, known_of_rows
from semistan.program.predictors import (
    centred_columns,
    other_data_lines,
    term_data_lines,
)
from semistan.program.tempered import marginal_data

GRAINSIZE = ("int<lower=1> grainsize;", "rows per slice of reduce_sum")
LEAST_SQUARES = """\
matrix[n_orth, N] along  // eta_scale (X'X)^-1 X' of the columns at orth
  = eta_scale * (qr_thin_R(Xc[ : , orth]) \\ qr_thin_Q(Xc[ : , orth])');
"""
INPUTS = "for (j in 1 : Q) H[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];\n"
GIVEN = {
    "offsets": ("vector[N] offsets;", "part of the predictor that is known"),
    "weights": ("vector<lower=0>[N] weights;", "of each row's log-likelihood"),
    "trials": ("array[N] int<lower=0> trials;", "number of trials"),
    "se": ("vector<lower=0>[N] se;", "standard error of each response"),
    "cens": (
        "array[N] int<lower=-1, upper=2> cens;",
        "0 observed, 1 above y, -1 below, 2 from y to y2",
    ),
    "y2": ("vector[N] y2;", "end of the interval of a response with one"),
    "lb": ("vector[N] lb;", "least value that a response could have"),
    "ub": ("vector[N] ub;", "largest value that a response could have"),
}


def data_block(parts: Parts) -> str:
    """Declare what the program reads."""
    integral = integral_lines(parts)
    return declarations(
        [
            *data_lines(parts),
            *([heading("Integrated out"), *integral] if integral else []),
            *completion_lines(parts),
            heading("Priors"),
            *scales_lines(parts),
            *dict.fromkeys(line for item in parts.priors for line in prior_lines(item)),
            *(parts.model.explained.data_lines if parts.model.explained else []),
            *(
                line
                for item in choices(parts.model.config.priors, parts.design)
                for line in item.lines
            ),
            heading("How to sample"),
            ("int<lower=0, upper=1> prior_only;", "leave the likelihood out?"),
            *_temper_lines(parts),
            *([] if parts.integral or parts.integrates_theta else [GRAINSIZE]),
        ]
    )


def _temper_lines(parts: Parts) -> list[tuple[str, str]]:
    if parts.temper is None:
        return []
    lines = [("real<lower=0> temperature;", "T: the likelihood to the power 1 / T")]
    if parts.temper.integral == "laplace":
        lines.append(("vector[P] theta_hat;", "where theta's mode given phi is looked for"))
    return lines


def data_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare the rows, their units, the network and the subspace."""
    known = [GIVEN[name] for name in known_of_rows(parts.design)]
    terms = [*term_data_lines(parts.design.mean), *other_data_lines(parts.design)]
    return [
        heading("Rows"),
        ("int<lower=1> N;", "rows"),
        (parts.y_declaration, "response"),
        *((f"{item.kind} {item.name};", item.text) for item in parts.family.constants),
        ("int<lower=0> P;", "structured coefficients"),
        ("matrix[N, P] X;", "structured design, without an intercept"),
        ("vector[P] x_loc;", "mean of each column of X"),
        ("vector<lower=0>[P] theta_scale;", "unit of each coefficient"),
        heading("Network inputs"),
        ("int<lower=1> Q;", "network inputs"),
        ("matrix[N, Q] U;", "network inputs"),
        ("vector[Q] u_loc;", "mean of each network input"),
        ("vector<lower=0>[Q] u_scale;", "standard deviation of each input"),
        heading("Units of the linear predictor"),
        ("real eta_loc;", "location of the linear predictor"),
        ("real<lower=0> eta_scale;", "unit of the linear predictor"),
        heading("Network"),
        *parts.network.architecture.data,
        *parts.network.multiplier_data,
        *parts.network.subspace.declarations,
        *([heading("Known of each row")] if known else []),
        *known,
        *([heading("Other terms and predictors")] if terms else []),
        *terms,
        *_information_lines(parts),
        *(_theta_inside() if parts.holds_theta else []),
        *(_orthogonal_lines() if parts.orthogonal else []),
    ]


def _information_lines(parts: Parts) -> list[tuple[str, str]]:
    return [
        (f"{item.centring.declared} {item.centring.data};", item.centring.text)
        for item in parts.parameters
        if item.centring
    ]


def _theta_inside() -> list[tuple[str, str]]:
    return [
        ("vector[P] theta_bar;", "structured coefficients at phi = 0"),
        ("matrix[P, k] theta_Pi;", "how they move with phi"),
    ]


def _orthogonal_lines() -> list[tuple[str, str]]:
    return [
        ("int<lower=1> n_orth;", "coefficients orthogonalised to the network"),
        ("array[n_orth] int<lower=1, upper=P> orth;", "which"),
    ]


def scales_lines(parts: Parts, *, groups: bool = True) -> list[tuple[str, str]]:
    """Declare how many scales of weights are sampled, and which weights share one."""
    if parts.model.weight_scales is None:
        return []
    number = (f"int<lower=1> n_{SD_W};", "groups of weights that share a scale")
    of = (f"array[k] int<lower=1, upper=n_{SD_W} + 1> {GROUPS};", "1 + group, 1 of those in none")
    return [number, of] if groups else [number]


def prior_lines(item: PriorGroup) -> list[tuple[str, str]]:
    """Declare the arguments of priors, after the members of their group if it has not all."""
    lines = _member_lines(item)
    for argument, name in zip(item.density.arguments, item.data_names, strict=True):
        bound = "<lower=0>" if argument in item.density.bounded else ""
        words = item.density.argument_text(argument)
        of = "" if item.density.explains else f" on {item.parameter}"
        text = f"{item.density.name} prior{of}: {words}"
        if item.density.is_constant:
            bound, text = item.kind.bounds, f"fixed value of {item.parameter}"
        size = item.size if item.members is None else f"n_{item.stem}"
        kind = f"vector{bound}[{size}]" if item.by_element(argument) else f"real{bound}"
        lines.append((f"{kind} {name};", text))
    return lines


def _member_lines(item: PriorGroup) -> list[tuple[str, str]]:
    if item.members is None:
        return []
    number = f"n_{item.stem}"
    return [
        (
            f"int<lower=1, upper={item.size}> {number};",
            f"coefficients with a {item.density.name} prior",
        ),
        (f"array[{number}] int<lower=1, upper={item.size}> {item.stem};", "which"),
    ]


def transformed_data(parts: Parts) -> str:
    """Declare what is made of the data once."""
    if parts.integral:
        return prepared_inputs(parts) + columns(parts).prepared
    if parts.integrates_theta:
        return prepared_inputs(parts) + declarations(marginal_data(parts))
    split = ("array[N] int slice = linspaced_int_array(N, 1, N);", "rows to be split")
    return declarations([split]) + prepared_inputs(parts)


def _bounds(parts: Parts) -> str:
    """Declare the bounds of coefficients, where they have different ones."""
    found = ""
    names = {item.theta: item.coefficients for item in parts.design.predictors}
    for item in parts.parameters:
        for name, values in bounds_of_each(item).items():
            far = "positive_infinity()" if name.endswith("upper") else "negative_infinity()"
            line = f"vector[{item.sizes[0]}] {name} = rep_vector({far}, {item.sizes[0]});"
            found += declarations([(line, "bounds of coefficients")])
            for j, value in enumerate(values):
                if np.isfinite(value):
                    line = f"{name}[{j + 1}] = {in_stan(value)};"
                    found += declarations([(line, names[item.name][j])])
    return found


def prepared_inputs(parts: Parts) -> str:
    """Centre X and standardise U; prepare least squares on X."""
    lines, loops = centred_columns(parts.design)
    times, filled = parts.network.multiplier_matrix
    curves = [
        statement(f"matrix[N, {curve.size}] {curve.matrix} = {curve.columns};", WIDTH - 2)
        for curve in parts.family.used_curves
    ]
    return (
        _bounds(parts)
        + declarations(
            [
                ("matrix[N, P] Xc;", "structured design, centred"),
                *lines,
                ("matrix[N, Q] H;", "input of the first Bayesian layer"),
                *times,
            ]
        )
        + "".join(curves)
        + f"for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];\n{loops}{INPUTS}{filled}"
        + (LEAST_SQUARES if parts.orthogonal else "")
    )


def parameters(parts: Parts) -> str:
    """Declare what is sampled."""
    return declared_parameters(sampled_parameters(parts) if parts.integral else parts.parameters)


def declared_parameters(items: Iterable[Parameter]) -> str:
    """Declare parameters."""
    lines = [(statement(item.declaration, WIDTH - 2).rstrip(), item.text) for item in items]
    return declarations(lines)


def constant_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare the parameters that are fixed."""
    return [
        (f"real {item.parameter} = {item.data_names[0]};", item.text) for item in parts.constant
    ]
