"""The text of a program that integrates out what eta is linear in (``model/integral.py``).

Its parameters are what is left; phi, theta and lprior, at exact draws of the rest, are generated
quantities, so that the columns of its chains have the same names as those of other programs.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import indent

from semistan.model.integral import PHI_SAMPLED
from semistan.model.parameter import Parameter
from semistan.model.predictor import Predictor
from semistan.model.priors.groups import PHI
from semistan.model.priors.weight_scales import stan_scale
from semistan.model.stan_text import WIDTH, call, declarations, statement
from semistan.program.columns import Columns, number
from semistan.program.likelihood import NOTHING, UNITS, kernel_sizes
from semistan.program.networks import TIMES
from semistan.program.parts import Parts, has_log_lik
from semistan.program.predictors import made_lines, other_sums, term_arguments
from semistan.program.sources import stan_source

ROWS = ("data vector y", "data matrix Xc", "data matrix H")
PHI_SCALE, PHI_SD = "prior_phi_scale", "phi_sd"
# phi with what is integrated out at its prior mean
AT_MEAN = f"vector[k] phi_0 = prior_phi_location;\nphi_0[sampled] = {PHI_SAMPLED};\n"


def columns(parts: Parts) -> Columns:
    """Return the columns of what is integrated out that are data."""
    assert parts.integral
    return Columns(parts.integral, weighted="weights" in parts.design.given)


def sampled_parameters(parts: Parts) -> list[Parameter]:
    """Return the parameters that the program declares; phi without what is integrated out."""
    assert parts.integral
    return [
        split(item) if item.name == PHI and parts.integral.phi else item
        for item in parts.parameters
        if item.name not in parts.model.drawn
    ]


def split(phi: Parameter) -> Parameter:
    """Return what of phi is sampled, as the program declares it."""
    return Parameter(
        PHI_SAMPLED, "those subspace coordinates that are sampled", (0,), ("k - n_linear",),
        multiplier="phi_scale[sampled]", kind=phi.kind,
    )  # fmt: skip


def sampled_mean(parts: Parts) -> Predictor:
    """Return the mean's predictor without the terms that are integrated out."""
    mean, kept = parts.design.mean, parts.model.sampled_terms
    return replace(mean, terms=tuple(term for term in mean.terms if term in kept))


def phi_scale(parts: Parts, which: str) -> str:
    """Return the prior standard deviations of some coordinates of phi."""
    return f"{PHI_SD if parts.model.weight_scales else PHI_SCALE}[{which}]"


def _phi_scales(parts: Parts) -> str:
    """Declare the prior standard deviations of all, where they are not data."""
    made = f"vector[k] {PHI_SD} = {stan_scale(PHI_SCALE)};\n"
    return made if parts.model.weight_scales else ""


def integral_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare the data that say which coordinates of phi are integrated out."""
    if not (parts.integral and parts.integral.phi):
        return []
    of_input = [("array[n_inputs] int<lower=1> of_input;", "the network that each is an input of")]
    return [
        ("int<lower=0, upper=k> n_linear;", "coordinates of phi that are integrated out"),
        ("array[n_linear] int<lower=1, upper=k> linear;", "which"),
        ("array[k - n_linear] int<lower=1, upper=k> sampled;", "the others"),
        ("int<lower=1> n_inputs;", "inputs of the output layers, with a 1 for each bias"),
        ("array[n_inputs] int<lower=1, upper=d> output;", "the weight of each"),
        ("array[n_linear] int<lower=1, upper=n_inputs> column;", "the input of each of them"),
        *(of_input if parts.network.multiplies else []),
    ]


def integral_functions(parts: Parts) -> str:
    """Return the functions of the integral, and of what is linear in these rows."""
    assert parts.integral
    of_phi = [parts.network.architecture.output_inputs] if parts.integral.phi else []
    by_level = any(len(term.z_sizes) > 1 for term in parts.integral.terms)
    of_terms = ["columns_by_level.stanfunctions"] if by_level else []
    correlated = "_correlated" if columns(parts).correlated else ""
    files = [*of_phi, *of_terms, "integral.stanfunctions", f"in_units{correlated}.stanfunctions"]
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
    phi, of_data = parts.integral.phi, columns(parts)
    further = other_sums(sampled_mean(parts), "")
    below = [("data array[,] int below", "below_XZ"), ("vector off", "off_XZ")]
    return [
        *((argument, argument.split()[-1]) for argument in ROWS),
        *kernel_sizes(parts.network),
        *parts.network.subspace.kernel_arguments,
        *((argument, argument.split()[-1]) for argument in UNITS),
        ("data array[] int column", "column" if phi else "zeros_int_array(0)"),
        (_phi_sd(parts), phi_scale(parts, "linear") if phi else NOTHING),
        ("data matrix XZ", of_data.name),
        ("data matrix gram", of_data.gram),
        (f"{'' if of_data.sampled_sd else 'data '}vector sd", of_data.sd),
        *(below if of_data.correlated else []),
        ("data vector weights", "weights" if "weights" in parts.design.given else NOTHING),
        ("vector phi", "phi_0" if phi else PHI),
        ("vector theta", _mean_of_theta(parts)),
        ("real sigma", "sigma"),
        ("vector extra", " + ".join(further) or NOTHING),
    ]


def _phi_sd(parts: Parts) -> str:
    """Declare the prior standard deviations of what of phi is integrated out."""
    return "vector phi_sd" if parts.model.weight_scales else "data vector phi_sd"


def _arguments(parts: Parts) -> list[tuple[str, str]]:
    """Pair the arguments of ``linear_part`` with what is passed."""
    assert parts.integral
    data, sampled = term_arguments(sampled_mean(parts))
    offset = ["data vector offsets"] if parts.design.mean.offsets else []
    plain = [*ROWS[1:], *parts.network.sizes, *parts.network.subspace.arguments, *UNITS, *offset,
             *data]  # fmt: skip
    pairs = [(argument, argument.split()[-1]) for argument in plain]
    if parts.integral.phi:
        pairs += [("data array[] int output", "output"), ("data array[] int column", "column"),
                  (_phi_sd(parts), phi_scale(parts, "linear"))]  # fmt: skip
    if parts.integral.phi and parts.network.multiplies:
        pairs.append(("data array[] int of_input", "of_input"))
    pairs.append(("vector phi", "phi_0" if parts.integral.phi else PHI))
    pairs.append(("vector theta", _mean_of_theta(parts)))
    return [*pairs, *((argument, argument.split()[-1]) for argument in sampled)]


def _linear_part(parts: Parts) -> str:
    """Write the function of the linear predictor and the columns of what is integrated out."""
    assert parts.integral
    sums = "".join(f"\n    + {item}" for item in other_sums(sampled_mean(parts), ""))
    if parts.integral.phi:
        body = _columns_of_phi(parts, sums)
        text = (
            "// The linear predictor with what is integrated out at its prior mean, and\n"
            "// behind it the columns that coordinates of phi multiply, each in units of\n"
            "// its prior sd.\n"
        )
    else:
        network = parts.network
        f = f"({network.output()})" if network.by_predictor else network.call(6)
        body = network.outputs("", "rows(H)") + (
            "return to_matrix(\n"
            f"  eta_loc\n    + eta_scale\n      * {f}\n    + Xc * theta{sums}\n);\n"
        )
        text = "// The linear predictor with what is integrated out at its prior mean.\n"
    return (
        text
        + call("matrix linear_part", [item for item, _ in _arguments(parts)], " {", WIDTH - 2)
        + indent(body, "  ")
        + "}\n"
    )


def _columns_of_phi(parts: Parts, sums: str) -> str:
    """Write the statements of ``linear_part`` where weights of output layers are integrated out."""
    network, size = parts.network, "rows(H)"
    tail = f"\n  .* {TIMES}[ : , of_input];" if network.multiplies else ";"
    inputs = call("= output_inputs", network.arguments(weights="w"), tail, WIDTH - 8)
    return (
        f"vector[num_elements(p_bar)] w = {network.subspace.weights};\n"
        f"matrix[{size}, size(output)] D\n{indent(inputs, '  ')}"
        f"matrix[{size}, size(column)] of_phi\n"
        "  = eta_scale * diag_post_multiply(D[ : , column], phi_sd);\n"
        f"vector[{size}] known\n"
        f"  = eta_loc\n    + eta_scale\n      * (D * w[output])\n    + Xc * theta{sums};\n"
        "return append_col(known, of_phi);\n"
    )


def _part(parts: Parts, width: int) -> str:
    """Return the call of ``linear_part``."""
    return call("linear_part", [passed for _, passed in _arguments(parts)], "", width).rstrip()


def _precision(parts: Parts) -> tuple[str, str]:
    """Return the number of rows, and one over the standard deviation of each."""
    if "weights" in parts.design.given:
        return "sum(weights)", "sqrt(weights) / sigma"
    return "N", "rep_vector(inv(sigma), N)"


def _mean_of_theta(parts: Parts) -> str:
    """Return theta where it is sampled, else its prior mean."""
    assert parts.integral
    if parts.integral.joint:
        return "zeros_vector(P)"
    return "prior_b_location" if parts.integral.theta else "theta"


def _products(parts: Parts, width: int) -> str:
    """Return the products of the columns of what is integrated out, in units of its priors."""
    of_data, (_, tau) = columns(parts), _precision(parts)
    space = " " * len("integral_products(")
    lines = [
        "y", indent(_part(parts, width - len(space)), space).lstrip(),
        f"{of_data.name}, {of_data.gram}", f"{tau}, inv_square(sigma)",
    ]  # fmt: skip
    passed, root = f",\n{space}".join(lines), ", ".join(of_data.root)
    return f"integral_products({passed}),\n{root}"


def _of_products(parts: Parts, function: str, width: int) -> str:
    """Call a function of these products."""
    passed = indent(_products(parts, width - 2), "  ")
    return f"{function}(in_units(\n{passed}));\n"


def integral_model(parts: Parts) -> str:
    """Return the statements that add log p(y | what is sampled)."""
    assert parts.integral
    made = _phi_scales(parts)
    at_mean = (AT_MEAN if parts.integral.phi else "") + columns(parts).declared_sd
    if in_one_pass(parts):
        passed = [value for _, value in _in_cpp(parts)]
        called = call("target += gaussian_integral", passed, ";", WIDTH - 4)
        return made + "if (!prior_only) {\n" + indent(at_mean + called, "  ") + "}\n"
    rows, _ = _precision(parts)
    body = (
        at_mean
        + f"target += {rows} * normal_lpdf(0 | 0, sigma)\n"
        + indent("+ " + _of_products(parts, "log_integral", WIDTH - 8), "  ")
    )
    return made + "if (!prior_only) {\n" + indent(body, "  ") + "}\n"


def integral_draws(parts: Parts) -> str:
    """Return the generated quantities that draw what is integrated out."""
    assert parts.integral
    integral, declared, moved = parts.integral, list[tuple[str, str]](), ""
    made = _phi_scales(parts) + AT_MEAN if integral.phi else ""
    sizes = ["n_linear"] if integral.phi else []
    if integral.phi:
        declared.append(("vector[k] phi;", "subspace coordinates"))
        change = f"{phi_scale(parts, 'linear')} .* segment(z, 1, n_linear)"
        moved += f"phi = phi_0;\nphi[linear] += {change};\n"
    for item in parts.parameters:
        if item.name not in integral.parameters:
            continue
        own = f"segment(z, {' + '.join(['1', *sizes])}, {number(item.sizes)})"
        sizes.append(number(item.sizes))
        if len(item.sizes) > 1:
            own = f"to_matrix({', '.join([own, *item.sizes])})"
        if item.prior is None:  # theta, which is not standardised
            own = f"prior_b_location + prior_b_scale .* {own}"
        declared.append((replace(item, multiplier="").declaration, item.text))
        moved += f"{item.name} = {own};\n"
    size = " + ".join(sizes)
    body = (
        made
        + columns(parts).declared_sd
        + "// What is integrated out, standardised, from its prior or given y\n"
        + f"vector[{size}] z\n  = to_vector(normal_rng(rep_vector(0, {size}), 1));\n"
        "if (!prior_only) {\n"
        + indent("z = " + _of_products(parts, "given_y_rng", WIDTH - 8), "  ")
        + "}\n"
        + "".join(statement(line, WIDTH - 4) for line in moved.splitlines())
    )
    drawn = declarations(declared) + "{\n" + indent(body, "  ") + "}\n"
    made_of_joint = integral.joint.stan if integral.joint else ""
    return drawn + made_of_joint + declarations(made_lines(integral.terms))
