"""The program that computes each row's log-likelihood and replicated response from draws.

It has the functions, data and parameters of the sampling program, whose CSV files it reads, but
neither priors nor a model: CmdStan's ``generate_quantities`` runs it. Its text depends on the
family, on whether there are coefficients and on which dispersion is fixed, so that it is compiled
once for nearly all models of a family.
"""

from __future__ import annotations

from textwrap import indent

from semistan.model.bundle import Bundle
from semistan.model.parameter import Parameter
from semistan.model.stan_text import WIDTH, comment, declarations, program_text, statement
from semistan.program.completion import (
    ALONG,
    completion_lines,
    made_statements,
    networks_along,
    predictor_shifts,
    psi_parameter,
    row_lines,
)
from semistan.program.declared import (
    constant_lines,
    data_lines,
    declared_parameters,
    prepared_inputs,
    prior_lines,
    scales_lines,
)
from semistan.program.header import header
from semistan.program.likelihood import density_vectors, in_row
from semistan.program.parts import Parts, parts_of
from semistan.program.predictors import made_lines, other_sums, parameter_vectors
from semistan.program.program import network_functions, theta_text
from semistan.program.sources import stan_source

PURPOSE = (
    "Run by CmdStan's generate_quantities on the chains of the sampling program, whose parameters "
    "these are: log_lik and y_rep of each row."
)


def quantities_program(bundle: Bundle) -> str:
    """Generate the program of a bundle's standalone generated quantities.

    Returns
    -------
    str
        The program's text; it reads the sampling program's ``data.json`` and CSV files.
    """
    parts = parts_of(bundle.model)
    blocks = (
        ("functions", _functions(parts)),
        ("data", _data(parts)),
        ("transformed data", prepared_inputs(parts)),
        ("parameters", declared_parameters(_parameters(parts))),
        (
            "transformed parameters",
            declarations(constant_lines(parts))
            + theta_text(parts)
            + declarations(made_lines(parts.design.terms))
            + made_statements(parts),
        ),
        ("generated quantities", _generated_quantities(parts)),
    )
    top = header(bundle.model, bundle) + "\n".join(comment(PURPOSE)) + "\n"
    return top + program_text(block for block in blocks if block[1])


def _parameters(parts: Parts) -> list[Parameter]:
    """Return all parameters, whether a chain samples or draws them, that have columns."""
    theta = parts.design.mean.theta
    found = [item for item in parts.parameters if item.name != theta or _has_theta(parts)]
    return [*found, psi_parameter()] if parts.model.completes else found


def _has_theta(parts: Parts) -> bool:
    """Say whether there are coefficients; CmdStan 2.27 misreads what follows an empty vector."""
    return bool(parts.design.coefficients)


def _functions(parts: Parts) -> str:
    along = parts.network.architecture.along if parts.model.completes else ()
    files = (*network_functions(parts), *along, *parts.family.stan_functions)
    return "\n".join(stan_source(name) for name in files)


def _data(parts: Parts) -> str:
    needed = (*parts.constant, *parts.joint)
    own = [line for item in needed for line in prior_lines(item)]
    completion = [*completion_lines(parts), *row_lines(parts)]
    return declarations([*data_lines(parts), *completion, *scales_lines(parts, groups=False), *own])


def _generated_quantities(parts: Parts) -> str:
    eta = f"{parts.family.on_default[0]}[n]"
    of_row = {"eta": eta, "times": "*", **in_row(parts, "n")}
    density = parts.family.density.format(y="y[n]", **of_row)
    if "weights" in parts.design.given:
        density = f"weights[n]\n    * {density}"
    replicate = parts.family.stan_rng.format(**of_row)
    structured = [f"Xc * {parts.beside_network}"] if _has_theta(parts) else []
    _, moved = predictor_shifts(parts, parts.design.mean)
    sums = [*structured, *moved, *other_sums(parts.design.mean, "")]
    network = parts.network
    f = f"({network.output()})" if network.by_predictor else network.call(8)
    if parts.model.completes:
        f = f"({f} + {network.output(of=ALONG)})"
    local = (
        network.outputs("", "N") + networks_along(parts) + "vector[N] eta  // linear predictor\n"
        "  = eta_loc\n"
        "    + eta_scale\n"
        f"      * {f}"
        + "".join(f"\n    + {part}" for part in sums)
        + ";\n"
        + parameter_vectors(network, "", "N", lambda item: predictor_shifts(parts, item))
        + density_vectors(parts, "N")
        + "for (n in 1 : N) {\n"
        f"  log_lik[n] = {density};\n" + statement(f"  y_rep[n] = {replicate};", WIDTH - 4) + "}\n"
    )
    declared = declarations(
        [
            ("vector[N] log_lik;", "log-likelihood of each row"),
            (parts.y_rep_declaration, "replicated response of each row"),
        ]
    )
    return declared + "{\n" + indent(local, "  ") + "}\n"
