"""The text of a program in which theta is integrated out to temper phi alone (equation 8)."""

from __future__ import annotations

from textwrap import indent

from semistan.model.stan_text import WIDTH, call
from semistan.program.parts import Parts
from semistan.program.sources import stan_source

TAILS = {  # inverse degrees of freedom of each coefficient's prior, as a Student t
    "normal": "rep_vector(0, P)",
    "student_t": "inv(prior_b_df)",
    "cauchy": "rep_vector(1, P)",
}


def marginal_functions(parts: Parts) -> str:
    """Return the functions that integrate theta out."""
    assert parts.temper is not None
    if parts.temper.integral == "exact":
        return stan_source("marginal_normal.stanfunctions")
    files = (parts.family.cumulant, "marginal_laplace.stanfunctions")
    return "\n".join([*(stan_source(name) for name in files), _laplace_density(parts)])


def marginal_data(parts: Parts) -> list[tuple[str, str]]:
    """Prepare, in the transformed data, what the integral over theta needs of the rows."""
    assert parts.temper is not None
    if parts.temper.integral == "exact":
        return [("matrix[P, P] gram = crossprod(Xc);", "")]
    tail = TAILS[_prior(parts)[0]]
    y = "to_vector(y)" if parts.family.integer else "y"
    return [
        (f"vector[N] y_real = {y};", "response, as a vector"),
        (f"vector[P] prior_tail = {tail};", "inverse df of each prior"),
    ]


def marginal_model(parts: Parts) -> str:
    """Return the statements that add the likelihood and temper p(y | phi)."""
    assert parts.temper is not None
    marginal = _exact_call(parts) if parts.temper.integral == "exact" else _laplace_call(parts)
    arguments = ["y | Xc", "known", "theta", *parts.family.dispersion]
    glm = call(f"target += {parts.family.glm}", arguments, ";", width=WIDTH - 4)
    body = (
        "vector[N] known  // linear predictor without the structured terms\n"
        "  = eta_loc\n"
        "    + eta_scale\n"
        f"      * {parts.network.call()}"
        + ("\n    + Xc * (theta_raw - theta);\n" if parts.orthogonal else ";\n")
        + glm
        + "// p(y | phi), theta integrated out, to the power 1 / T instead of 1\n"
        + "target += (1 / temperature - 1)\n"
        + indent(marginal, "          ")
    )
    return "if (!prior_only) {\n" + indent(body, "  ") + "}\n"


def _exact_call(parts: Parts) -> str:
    arguments = ["y | Xc", "gram", "known", "prior_b_location", "prior_b_scale",
                 *parts.family.dispersion]  # fmt: skip
    return call("* normal_marginal_lpdf", arguments, ";", width=WIDTH - 14)


def _laplace_call(parts: Parts) -> str:
    arguments = ["y", "y_real", "Xc", "known", *_prior(parts)[1], "prior_tail", "theta_hat",
                 *parts.family.dispersion]  # fmt: skip
    return call("* log_marginal", arguments, ";", width=WIDTH - 14)


def _laplace_density(parts: Parts) -> str:
    """Return the function that puts the family's and the prior's densities together."""
    name, names = _prior(parts)
    sigma = parts.family.dispersion
    arguments = [f"data {parts.y_type} y", "data vector y_real", "data matrix X", "vector known",
                 *(f"data vector {argument}" for argument in names), "data vector prior_tail",
                 "data vector theta_hat", *(f"real {value}" for value in sigma)]  # fmt: skip
    dispersion = "square(sigma)" if sigma else "1"
    about = ["X", "known", dispersion, "prior_b_location", "prior_b_scale", "prior_tail"]
    mode = call("= conditional_mode", ["y_real", *about, "theta_hat"], ";", width=WIDTH - 6)
    density = ", ".join(["y | X", "known", "mode", *sigma])
    prior = call(f"+ {name}_lpdf", [f"mode | {names[0]}", *names[1:]], "", width=WIDTH - 11)
    volume = call("+ laplace_volume", ["mode", *about], ";", width=WIDTH - 11)
    return (
        "// Log of p(y | phi), theta integrated out by Laplace's method.\n"
        + call("real log_marginal", arguments, " {", width=WIDTH - 2)
        + "  vector[cols(X)] mode\n"
        + indent(mode, "    ")
        + f"  return {parts.family.glm}({density})\n"
        + indent(prior + volume, " " * 9)
        + "}\n"
    )


def _prior(parts: Parts) -> tuple[str, tuple[str, ...]]:
    """Return the density of the coefficients' prior and its arguments' names."""
    (item,) = (item for item in parts.priors if item.label == "b")
    return item.density.name, item.data_names
