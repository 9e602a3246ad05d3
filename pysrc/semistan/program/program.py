"""The generated Stan program: it emits what varies, the mathematics is in ``stan/``.

The text depends on the family, the priors' densities, the coefficients' names, and on whether the
network is one or several. Sizes, layers, activation, the subspace and the priors' arguments are
data, so that a new network or new data cost no compilation.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from textwrap import indent

from semistan.model.bundle import Bundle
from semistan.model.families.ordinal import intercept_names
from semistan.model.integral import PHI_SAMPLED, Integral
from semistan.model.model import Model
from semistan.model.orthogonal import RAW, further_names
from semistan.model.priors.groups import PriorGroup
from semistan.model.priors.r2d2 import FILE as R2D2
from semistan.model.priors.weight_scales import stan_scale
from semistan.model.stan_text import (
    WIDTH,
    call,
    comment,
    declarations,
    program_text,
    statement,
)
from semistan.model.terms.term import element_labels
from semistan.program.completion import drawn_lines, moved_by, reported_theta
from semistan.program.declared import (
    constant_lines,
    data_block,
    parameters,
    transformed_data,
)
from semistan.program.header import header
from semistan.program.integral import (
    integral_draws,
    integral_functions,
    integral_model,
    phi_scale,
)
from semistan.program.likelihood import kernel_likelihood, signature, stan_likelihood
from semistan.program.parts import Kernel, Parts, has_log_lik, parts_of
from semistan.program.predictors import (
    made_lines,
    other_labels,
    other_quantities,
    slope_quantities,
    term_quantity_lines,
)
from semistan.program.sources import stan_source
from semistan.program.tempered import marginal_functions, marginal_model

LPRIOR = ("real lprior = 0;", "log prior density")
NO_PROGRAM = "// The network {network} is computed by PyTorch alone: it has no Stan program.\n"


def stan_program(
    model: Model, bundle: Bundle | None = None, kernel: Kernel = "stan", *, include: str = ""
) -> str:
    """Generate the program for a model.

    Parameters
    ----------
    model : Model
        Family, predictors, priors and temperature.
    bundle : Bundle, optional
        The trained model, for the comments at the top; the program does not depend on it.
    kernel : str
        Whether the network is computed in Stan (``stan``) or by the C++ kernel (``cpp``), which
        the program then declares, with the whole likelihood if the kernel has it; always in Stan
        if theta is integrated out.
    include : str
        Name of the file that the program includes in place of the functions from ``stan/``.

    Returns
    -------
    str
        The program's text; its comments name the formula, the family and the bundle. A comment
        alone if Stan cannot compute the network.
    """
    if not model.network.in_stan:
        return NO_PROGRAM.format(network=model.network.text)
    parts = parts_of(model, kernel)
    blocks = (
        ("functions", _functions(parts, include)),
        ("data", data_block(parts)),
        ("transformed data", transformed_data(parts)),
        ("parameters", parameters(parts)),
        ("transformed parameters", _transformed_parameters(parts)),
        ("model", _model(parts)),
        ("generated quantities", _generated_quantities(parts)),
    )
    tempered = "\n".join(comment(parts.temper.text)) + "\n" if parts.temper else ""
    return header(model, bundle) + tempered + program_text(block for block in blocks if block[1])


def bundle_program(bundle: Bundle, kernel: Kernel = "stan", *, include: str = "") -> str:
    """Generate the program of a bundle."""
    return stan_program(bundle.model, bundle, kernel, include=include)


def included_functions(model: Model, kernel: Kernel = "stan") -> str:
    """Return the functions from ``stan/`` that a program needs, for a file that it includes."""
    return "\n".join(stan_source(name) for name in network_functions(parts_of(model, kernel)))


def labels(model: Model) -> dict[str, str]:
    """Map the program's speaking names to the design's columns, for ``labels.json``."""
    design = model.design
    names = intercept_names(model.family.reported_categories, design.intercept)
    of = f"{design.mean_name}: " if design.mean_name else ""
    columns = {
        name: f"{of}{column}"
        for name, column in zip(design.mean.names[1:], design.mean.columns_named[1:], strict=True)
    }
    levels = {name: text for term in design.terms for name, text in element_labels(term).items()}
    intercepts = {name: f"{of}Intercept{name.removeprefix(design.intercept)}" for name in names}
    return {**intercepts, **columns, **levels, **other_labels(design)}


def raw_labels(model: Model) -> dict[str, str]:
    """Map the names of coefficients beside the network as it is, where theta is something else."""
    names = further_names(model.config, model.design) if model.samples_orthogonal else {}
    return {name: f"{model.design.x.columns[j]} (raw)" for name, j in names.items()}


def _functions(parts: Parts, include: str) -> str:
    if parts.integral:
        likelihood = integral_functions(parts)
    elif parts.integrates_theta:
        likelihood = marginal_functions(parts)
    else:
        in_cpp = parts.kernel == "cpp" and has_log_lik(parts.family, parts.design)
        likelihood = kernel_likelihood(parts) if in_cpp else stan_likelihood(parts)
    if include:
        return f"#include {include}\n\n{likelihood}"
    return "\n".join([*(stan_source(name) for name in network_functions(parts)), likelihood])


def network_functions(parts: Parts) -> tuple[str, ...]:
    """Return the files with the functions of the network, of theta and of the density."""
    shear = ("shear.stanfunctions",) if parts.orthogonal else ()
    joint = parts.model.joint.files if parts.model.joint else ()
    explained = (R2D2,) if parts.model.explained else ()
    centred = {item.centring.function for item in parts.parameters if item.centring}
    return (
        *parts.network.files,
        *shear,
        *joint,
        *explained,
        *(f"{name}.stanfunctions" for name in sorted(centred)),
        *parts.family.density_functions,
    )


def theta_text(parts: Parts) -> str:
    """Declare theta where the subspace holds it, or what of it stands beside the network."""
    if parts.holds_theta:
        line = ("vector[P] theta = theta_bar + theta_Pi * phi;", "structured coefficients")
        return declarations([line])
    made = parts.model.joint.stan if parts.model.joint else ""
    return made + (_theta_raw(parts) if parts.orthogonal else "")


def _theta_raw(parts: Parts) -> str:
    return (
        "// Structured coefficients beside the network as it is: theta holds what the\n"
        "//   network says along the columns at orth.\n"
        "vector[P] theta_raw\n"
        "  = shear(theta, orth,\n"
        "          along\n"
        f"          * {parts.network.call(12)});\n"
    )


def _transformed_parameters(parts: Parts) -> str:
    if parts.integral:
        made = "" if parts.integral.joint else theta_text(parts)
        of_terms = declarations(made_lines(parts.model.sampled_terms))
        return declarations(constant_lines(parts)) + made + _explained(parts) + of_terms
    made = _explained(parts) + declarations([*made_lines(parts.design.terms), LPRIOR])
    return declarations(constant_lines(parts)) + theta_text(parts) + made + _lprior(parts)


def _explained(parts: Parts) -> str:
    """Declare the parts that an R2D2 prior is of."""
    return parts.model.explained.declared if parts.model.explained else ""


def _lprior(parts: Parts) -> str:
    """Add up the log prior densities of all parameters, but not the densities of effects."""
    return (
        "".join(_prior_density(parts, item, "lprior", None) for item in parts.sampled)
        + _own_densities(parts, "lprior")
        + _density_of_explained(parts, "lprior")
    )


def _sampled_densities(parts: Parts) -> str:
    """Add all densities of what is not integrated out to the target."""
    drawn = parts.model.drawn
    return (
        "".join(
            _prior_density(parts, item, "target", parts.integral)
            for item in parts.sampled
            if item.parameter not in drawn
        )
        + _own_densities(parts, "target", drawn)
        + _own_densities(parts, "target", drawn, effects=True)
        + _density_of_explained(parts, "target")
    )


def _density_of_explained(parts: Parts, to: str) -> str:
    return parts.model.explained.density(to) if parts.model.explained else ""


def _own_densities(
    parts: Parts, to: str, drawn: Collection[str] = (), *, effects: bool = False
) -> str:
    return "".join(
        f"{to} += {item.prior.stan(item.name)};\n"
        for item in parts.parameters
        if item.prior and item.prior.in_lprior != effects and item.name not in drawn
    )


def _prior_density(parts: Parts, item: PriorGroup, to: str, integral: Integral | None) -> str:
    if item.density.joint:  # whose parameters have priors of their own
        return ""
    density, (first, *rest), target = item.density, item.data_names, item.target
    if item.is_phi and integral and integral.phi:
        target, first, rest = PHI_SAMPLED, f"{first}[sampled]", [phi_scale(parts, "sampled")]
    elif item.is_phi and parts.model.weight_scales:
        rest = [*rest[:-1], stan_scale(rest[-1])]
    text = call(
        f"{to} += {density.name}_lpdf",
        [f"{target} | {first}", *rest],
        "" if item.is_truncated else ";",
        width=WIDTH - 2,
    )
    if item.is_truncated:
        text += call(f"  - {density.name}_lccdf", [f"0 | {first}", *rest], ";", width=WIDTH - 2)
    return text


def _model(parts: Parts) -> str:
    if parts.integral:
        return integral_model(parts) + _sampled_densities(parts)
    densities = _own_densities(parts, "target", effects=True) + "target += lprior;\n"
    if parts.integrates_theta:
        return marginal_model(parts) + densities
    passed = [argument.split()[-1] for argument in signature(parts)[2:]]
    passed[passed.index("theta")] = parts.beside_network
    arguments = ["partial_log_lik", "slice", "grainsize", *passed]
    tail = " / temperature;" if parts.temper else ";"
    return (
        "if (!prior_only) {\n"
        + indent(call("target += reduce_sum", arguments, tail, width=WIDTH - 4), "  ")
        + "}\n"
        + densities
    )


def _generated_quantities(parts: Parts) -> str:
    drawn = ""
    if parts.integral:
        drawn = integral_draws(parts) + declarations([LPRIOR]) + _lprior(parts)
    drawn += drawn_lines(parts)
    mean = parts.network.mean_call(13)
    beside = parts.design.mean.terms or parts.design.mean.offsets or parts.design.mean.slopes
    eta = parts.design.mean_name or "eta"
    of = "networks" if parts.network.several else "network"
    mean_of = f"{of} and x' theta" if beside else f"{eta} over the rows"
    theta = reported_theta(parts, parts.design.mean)
    intercept = _intercept(parts, mean, f"mean of {mean_of}, moved to X = 0")
    coefficients = [
        (f"real {name} = {theta}[{j}];", "" if name == f"b_{column}" else column)
        for j, (name, column) in enumerate(
            zip(parts.design.coefficients, parts.design.x.columns, strict=True), start=1
        )
    ]
    names = parts.design.coefficients
    raw = [(f"real {names[j]}{RAW} = theta_raw[{j + 1}];", "") for j in parts.orthogonal]
    reported = term_quantity_lines(parts.design.mean)
    others = other_quantities(
        parts.network, partial(reported_theta, parts), partial(moved_by, parts)
    )
    slopes = slope_quantities(parts.network, parts.design.mean, partial(moved_by, parts))
    structured = declarations([*coefficients, *raw]) + slopes
    explained = parts.model.explained.quantity_lines if parts.model.explained else []
    return (
        drawn + intercept + structured + declarations(reported) + others + declarations(explained)
    )


def _intercept(parts: Parts, mean: str, words: str) -> str:
    """Declare the intercept, given the network's mean, or thresholds less it."""
    name, K = parts.design.intercept, parts.family.reported_categories
    if not K:
        return declarations([(f"real {name}", words)]) + (
            f"  = eta_loc\n    + eta_scale\n      * {mean}\n    - dot_product(x_loc, theta)"
            f"{moved_by(parts, name)};\n"
        )
    gaps = ", ".join(("0", *parts.family.dispersion))
    return (
        declarations([(f"vector[{K - 1}] {name}", f"thresholds less the {words}")])
        + statement(f"  = cumulative_sum([{gaps}]')", WIDTH - 2)
        + "    - eta_loc\n"
        "    - eta_scale\n"
        f"      * {mean}\n"
        "    + dot_product(x_loc, theta)"
        f"{moved_by(parts, name, '-')};\n"
    )
