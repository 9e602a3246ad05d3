"""The text of a program that integrates out what eta is linear in (``model/integral.py``).

Its parameters are what is left; phi, theta and lprior, at exact draws of the rest, are generated
quantities, so that the columns of its chains have the same names as those of other programs.
"""

from __future__ import annotations

from textwrap import indent

from semistan.model.integral import PHI_SAMPLED
from semistan.model.parameter import Parameter
from semistan.model.priors.groups import PHI
from semistan.model.priors.weight_scales import stan_scale
from semistan.model.stan_text import WIDTH, call, declarations
from semistan.program.likelihood import NOTHING, UNITS, kernel_sizes
from semistan.program.networks import TIMES
from semistan.program.parts import Parts, has_log_lik
from semistan.program.predictors import other_sums, term_arguments
from semistan.program.sources import stan_source

ROWS = ("data vector y", "data matrix Xc", "data matrix H")
PHI_SCALE, PHI_SD, THETA_SD = "prior_phi_scale", "phi_sd", "prior_b_scale"
# phi with what is integrated out at its prior mean
AT_MEAN = f"vector[k] phi_0 = prior_phi_location;\nphi_0[sampled] = {PHI_SAMPLED};\n"


def sampled_parameters(parts: Parts) -> list[Parameter]:
    """Return the parameters that the program declares; phi without what is integrated out."""
    assert parts.integral
    found = []
    for item in parts.parameters:
        if item.name == PHI:
            found.append(split(item))
        elif not (item.name == parts.design.mean.theta and parts.integral.theta):
            found.append(item)
    return found


def split(phi: Parameter) -> Parameter:
    """Return what of phi is sampled, as the program declares it."""
    return Parameter(
        PHI_SAMPLED, "those subspace coordinates that are sampled", (0,), ("k - n_linear",),
        multiplier="phi_scale[sampled]", kind=phi.kind,
    )  # fmt: skip


def phi_scale(parts: Parts, which: str) -> str:
    """Return the prior standard deviations of some coordinates of phi."""
    return f"{PHI_SD if parts.model.weight_scales else PHI_SCALE}[{which}]"


def _phi_scales(parts: Parts) -> str:
    """Declare the prior standard deviations of all, where they are not data."""
    made = f"vector[k] {PHI_SD} = {stan_scale(PHI_SCALE)};\n"
    return made if parts.model.weight_scales else ""


def integral_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare the data that say which coordinates of phi are integrated out."""
    if not parts.integral:
        return []
    return [
        ("int<lower=0, upper=k> n_linear;", "coordinates of phi that are integrated out"),
        ("array[n_linear] int<lower=1, upper=k> linear;", "which"),
        ("array[k - n_linear] int<lower=1, upper=k> sampled;", "the others"),
        ("int<lower=1> n_inputs;", "inputs of the output layers, with a 1 for each bias"),
        ("array[n_inputs] int<lower=1, upper=d> output;", "the weight of each"),
        ("array[n_linear] int<lower=1, upper=n_inputs> column;", "the input of each of them"),
        *[("array[n_inputs] int<lower=1> of_input;", "the network that each is an input of")]
        * parts.network.multiplies,
    ]


def integral_functions(parts: Parts) -> str:
    """Return the functions of the integral, and of what is linear in these rows."""
    assert parts.integral
    files = [parts.network.architecture.output_inputs, "integral.stanfunctions"]
    texts = [*(stan_source(name) for name in files), _linear_part(parts)]
    return "\n".join([*texts, _declared_in_cpp(parts)] if in_one_pass(parts) else texts)


def in_one_pass(parts: Parts) -> bool:
    """Say whether the C++ kernel has the integral, in one pass with the network."""
    return parts.kernel == "cpp" and has_log_lik(parts.family, parts.design)


def _declared_in_cpp(parts: Parts) -> str:
    declared = [argument for argument, _ in _in_cpp(parts)]
    return (
        "// Log-likelihood with what is linear integrated out, and its gradient, in\n"
        "// log_lik.hpp.\n" + call("real gaussian_integral", declared, ";", WIDTH - 2)
    )


def _in_cpp(parts: Parts) -> list[tuple[str, str]]:
    """Pair the arguments of the kernel's function with what is passed."""
    assert parts.integral
    theta = parts.integral.theta
    further = other_sums(parts.design.mean, "")
    return [
        *((argument, argument.split()[-1]) for argument in ROWS),
        *kernel_sizes(parts.network),
        *parts.network.subspace.kernel_arguments,
        *((argument, argument.split()[-1]) for argument in UNITS),
        ("data array[] int column", "column"),
        (_phi_sd(parts), phi_scale(parts, "linear")),
        ("data vector theta_sd", THETA_SD if theta else NOTHING),
        ("data vector weights", "weights" if "weights" in parts.design.given else NOTHING),
        ("vector phi", "phi_0"),
        ("vector theta", "prior_b_location" if theta else "theta"),
        ("real sigma", "sigma"),
        ("vector extra", " + ".join(further) or NOTHING),
    ]


def _phi_sd(parts: Parts) -> str:
    """Declare the prior standard deviations of what of phi is integrated out."""
    return "vector phi_sd" if parts.model.weight_scales else "data vector phi_sd"


def _arguments(parts: Parts) -> list[tuple[str, str]]:
    """Pair the arguments of ``linear_part`` with what is passed."""
    assert parts.integral
    data, sampled = term_arguments(parts.design.mean)
    offset = ["data vector offsets"] if parts.design.mean.offsets else []
    plain = [*ROWS[1:], *parts.network.sizes, *parts.network.subspace.arguments, *UNITS, *offset,
             *data]  # fmt: skip
    pairs = [(argument, argument.split()[-1]) for argument in plain]
    pairs += [("data array[] int output", "output"), ("data array[] int column", "column"),
              (_phi_sd(parts), phi_scale(parts, "linear"))]  # fmt: skip
    if parts.network.multiplies:
        pairs.append(("data array[] int of_input", "of_input"))
    if parts.integral.theta:
        pairs.append(("data vector theta_sd", THETA_SD))
    pairs.append(("vector phi", "phi_0"))
    pairs.append(("vector theta", "prior_b_location" if parts.integral.theta else "theta"))
    return [*pairs, *((argument, argument.split()[-1]) for argument in sampled)]


def _linear_part(parts: Parts) -> str:
    """Write the function of the linear predictor and the columns of what is integrated out."""
    assert parts.integral
    network, size = parts.network, "rows(H)"
    tail = f"\n  .* {TIMES}[ : , of_input];" if network.multiplies else ";"
    inputs = call("= output_inputs", network.arguments(weights="w"), tail, WIDTH - 8)
    linear = "of_phi"
    made = (
        f"vector[num_elements(p_bar)] w = {network.subspace.weights};\n"
        f"matrix[{size}, size(output)] D\n{indent(inputs, '  ')}"
        f"matrix[{size}, size(column)] of_phi\n"
        "  = eta_scale * diag_post_multiply(D[ : , column], phi_sd);\n"
    )
    if parts.integral.theta:
        made += f"matrix[{size}, cols(Xc)] of_theta = diag_post_multiply(Xc, theta_sd);\n"
        linear = "append_col(of_phi, of_theta)"
    sums = "".join(f"\n    + {item}" for item in other_sums(parts.design.mean, ""))
    body = (
        f"{made}vector[{size}] known  // linear predictor at their prior mean\n"
        f"  = eta_loc\n    + eta_scale\n      * (D * w[output])\n    + Xc * theta{sums};\n"
        f"return append_col(known, {linear});\n"
    )
    return (
        "// The linear predictor with what is integrated out at its prior mean, and\n"
        "// behind it the columns that this multiplies, each in units of its prior sd.\n"
        + call("matrix linear_part", [item for item, _ in _arguments(parts)], " {", WIDTH - 2)
        + indent(body, "  ")
        + "}\n"
    )


def _part(parts: Parts, width: int) -> str:
    """Return the call of ``linear_part``."""
    return call("linear_part", [passed for _, passed in _arguments(parts)], "", width).rstrip()


def _precision(parts: Parts) -> tuple[str, str]:
    """Return the number of rows, and one over the standard deviation of each."""
    if "weights" in parts.design.given:
        return "sum(weights)", "sqrt(weights) / sigma"
    return "N", "rep_vector(inv(sigma), N)"


def integral_model(parts: Parts) -> str:
    """Return the statements that add log p(y | what is sampled)."""
    made = _phi_scales(parts)
    if in_one_pass(parts):
        passed = [value for _, value in _in_cpp(parts)]
        called = call("target += gaussian_integral", passed, ";", WIDTH - 4)
        return made + "if (!prior_only) {\n" + indent(AT_MEAN + called, "  ") + "}\n"
    rows, tau = _precision(parts)
    part = indent(_part(parts, WIDTH - 20), " " * 15).lstrip()
    body = (
        AT_MEAN + f"target += {rows} * normal_lpdf(0 | 0, sigma)\n"
        f"  + log_integral(y,\n               {part},\n               {tau});\n"
    )
    return made + "if (!prior_only) {\n" + indent(body, "  ") + "}\n"


def integral_draws(parts: Parts) -> str:
    """Return the generated quantities that draw what is integrated out."""
    assert parts.integral
    lines, size = [("vector[k] phi;", "subspace coordinates")], "n_linear"
    moved = f"phi = phi_0;\nphi[linear] += {phi_scale(parts, 'linear')} .* z[1 : n_linear];\n"
    if parts.integral.theta:
        lines.append(("vector[P] theta;", "structured coefficients"))
        own = "z[n_linear + 1 : n_linear + P]"
        moved += f"theta = prior_b_location + prior_b_scale .* {own};\n"
        size += " + P"
    _, tau = _precision(parts)
    part = indent(_part(parts, WIDTH - 22), " " * 18).lstrip()
    body = (
        "// What is integrated out, standardised, from its prior or given y\n"
        + _phi_scales(parts)
        + AT_MEAN
        + f"vector[{size}] z\n  = to_vector(normal_rng(rep_vector(0, {size}), 1));\n"
        "if (!prior_only) {\n"
        f"  z = given_y_rng(y,\n                  {part},\n                  {tau});\n"
        "}\n" + moved
    )
    return declarations(lines) + "{\n" + indent(body, "  ") + "}\n"
