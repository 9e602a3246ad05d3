"""The generated Stan program: it emits what varies, the mathematics is in ``stan/``.

The text depends on the family, the priors' densities and the coefficients' names. Sizes,
layers, activation, the subspace and the priors' arguments are data, so that a new network or
new data cost no compilation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import indent
from typing import Literal

from semistan.bundle.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.families import Family, family
from semistan.stan.layout import WIDTH, call, comment, declarations, program_text
from semistan.stan.priors import ClassPrior, class_priors
from semistan.stan.sources import stan_source
from semistan.stan.temper import Temper, temper_of
from semistan.stan.tempered import marginal_data, marginal_functions, marginal_model
from semistan.version import __version__

Kernel = Literal["stan", "cpp"]

GRAINSIZE = ("int<lower=1> grainsize;", "rows per slice of reduce_sum")
DISPERSION_TEXT = {"sigma": "residual standard deviation"}
ARGUMENT_TEXT = {
    "df": "degrees of freedom",
    "location": "location",
    "scale": "scale",
    "rate": "rate",
    "value": "value",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What varies between programs.

    Attributes
    ----------
    family : Family
        The response family.
    design : Design
        Names of the structured coefficients.
    priors : tuple of ClassPrior
        The priors as written.
    kernel : str
        ``stan``, or ``cpp`` if the C++ kernel is declared.
    holds_theta : bool
        Whether theta moves with phi instead of being a parameter.
    temper : Temper, optional
        How the posterior is tempered, if it is.
    """

    family: Family
    design: Design
    priors: tuple[ClassPrior, ...]
    kernel: Kernel
    holds_theta: bool
    temper: Temper | None = None

    @property
    def integrates_theta(self) -> bool:
        """Whether theta is integrated out, to temper phi alone."""
        return self.temper is not None and self.temper.integral is not None

    @property
    def sampled(self) -> tuple[ClassPrior, ...]:
        """The priors of what is sampled."""
        return tuple(item for item in self.priors if not item.prior.density.is_constant)

    @property
    def constant(self) -> tuple[ClassPrior, ...]:
        """The priors that fix a dispersion parameter."""
        return tuple(item for item in self.priors if item.prior.density.is_constant)

    @property
    def y_type(self) -> str:
        """Type of the response as an argument."""
        return "array[] int" if self.family.integer else "vector"

    @property
    def y_declaration(self) -> str:
        """Declaration of the response."""
        return "array[N] int y;" if self.family.integer else "vector[N] y;"


def stan_program(
    config: ModelConfig,
    design: Design,
    bundle_sha256: str | None = None,
    kernel: Kernel = "stan",
) -> str:
    """Generate the program for a model.

    Parameters
    ----------
    config : ModelConfig
        Family, priors and temperature.
    design : Design
        Names of the structured coefficients.
    bundle_sha256 : str, optional
        Hash of the trained bundle, for the header; the program does not depend on it.
    kernel : str
        Whether the likelihood is computed in Stan (``stan``) or by the C++ kernel (``cpp``),
        which the program then declares; always in Stan if theta is integrated out.

    Returns
    -------
    str
        The program's text; its comments name the formula, the family and the bundle.
    """
    parts = parts_of(config, design, kernel)
    blocks = (
        ("functions", _functions(parts)),
        ("data", _data(parts)),
        ("transformed data", _transformed_data(parts)),
        ("parameters", parameters(parts)),
        ("transformed parameters", _transformed_parameters(parts)),
        ("model", _model(parts)),
        ("generated quantities", _generated_quantities(parts)),
    )
    top = header(config, parts.family, bundle_sha256)
    tempered = "\n".join(comment(parts.temper.text)) + "\n" if parts.temper else ""
    return top + tempered + program_text(blocks)


def bundle_program(bundle: Bundle, kernel: Kernel = "stan") -> str:
    """Generate the program of a bundle."""
    return stan_program(bundle.config, bundle.design, bundle.sha256, kernel)


def labels(design: Design) -> dict[str, str]:
    """Map the program's speaking names to the design's columns, for ``labels.json``."""
    columns = dict(zip(design.coefficients, design.x.columns, strict=True))
    return {"b_Intercept": "Intercept", **columns}


def parts_of(config: ModelConfig, design: Design, kernel: Kernel = "stan") -> Parts:
    """Collect what the text of a model's programs depends on."""
    record = family(config.family)
    parts = Parts(
        record, design, class_priors(config, record), kernel, config.subspace.holds_theta,
        temper_of(config, design),
    )  # fmt: skip
    return replace(parts, kernel="stan") if parts.integrates_theta else parts


def header(config: ModelConfig, record: Family, bundle_sha256: str | None) -> str:
    """Return the comments at the top: version, formula, family and bundle."""
    lines = [f"// generated with semistan {__version__}"]
    lines += comment(f"formula: {config.formula}")
    lines += [f"// family: {record.name}, link: {record.link}"]
    lines += [f"// bundle: {bundle_sha256}"] if bundle_sha256 else []
    return "\n".join(lines) + "\n"


def _functions(parts: Parts) -> str:
    if parts.integrates_theta:
        return stan_source("network.stanfunctions") + "\n" + marginal_functions(parts)
    likelihood = _kernel_likelihood(parts) if parts.kernel == "cpp" else _stan_likelihood(parts)
    return stan_source("network.stanfunctions") + "\n" + likelihood


def _signature(parts: Parts) -> list[str]:
    """Return the arguments of the likelihood of rows start to end."""
    return ["int start", "int end", f"data {parts.y_type} y", "data matrix Xc", "data matrix H",
            "data array[] int free_widths", "data int activation", "data vector p_bar",
            "data array[] int axes", "data matrix Pi", "data real eta_loc",
            "data real eta_scale", "vector phi", "vector theta",
            *(f"real {name}" for name in parts.family.dispersion)]  # fmt: skip


def _stan_likelihood(parts: Parts) -> str:
    arguments = ["array[] int slice", *_signature(parts)]
    tail = ", ".join(["theta", *parts.family.dispersion])
    return (
        "// Log-likelihood of rows start to end, the slice that one thread computes.\n"
        + call("real partial_log_lik", arguments, " {", width=WIDTH - 2)
        + "  vector[end - start + 1] f\n"
        + "    = network(H[start : end], lift(phi, p_bar, axes, Pi), free_widths,\n"
        + "              activation);\n"
        + f"  return {parts.family.glm}(\n"
        + "    y[start : end] | Xc[start : end], eta_loc + eta_scale * f,\n"
        + f"    {tail});\n"
        + "}\n"
    )


def _kernel_likelihood(parts: Parts) -> str:
    name, arguments = f"{parts.family.name}_log_lik", _signature(parts)
    values = [argument.split()[-1] for argument in arguments]
    return (
        "// Log-likelihood of rows start to end with its gradient, in log_lik.hpp.\n"
        + call(f"real {name}", arguments, ";", width=WIDTH - 2)
        + "\n// The slice that one thread computes.\n"
        + call("real partial_log_lik", ["array[] int slice", *arguments], " {", width=WIDTH - 2)
        + indent(call(f"return {name}", values, ";", width=WIDTH - 4), "  ")
        + "}\n\n"
        + "// Mean of the network's output, in log_lik.hpp.\n"
        + "real mean_network(data matrix H, vector w, data array[] int widths,\n"
        + "                  data int activation);\n"
    )


def _data(parts: Parts) -> str:
    return declarations(
        [
            *data_lines(parts),
            *(line for item in parts.priors for line in prior_lines(item)),
            ("int<lower=0, upper=1> prior_only;", "leave the likelihood out?"),
            *_temper_lines(parts),
            *([] if parts.integrates_theta else [GRAINSIZE]),
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
    return [
        ("int<lower=1> N;", "rows"),
        (parts.y_declaration, "response"),
        ("int<lower=0> P;", "structured coefficients"),
        ("matrix[N, P] X;", "structured design, without an intercept"),
        ("vector[P] x_loc;", "mean of each column of X"),
        ("vector<lower=0>[P] theta_scale;", "unit of each coefficient"),
        ("int<lower=1> Q;", "network inputs"),
        ("matrix[N, Q] U;", "network inputs"),
        ("vector[Q] u_loc;", "mean of each network input"),
        ("vector<lower=0>[Q] u_scale;", "standard deviation of each input"),
        ("real eta_loc;", "location of the linear predictor"),
        ("real<lower=0> eta_scale;", "unit of the linear predictor"),
        ("int<lower=1> n_layers;", "layers, the output layer included"),
        ("array[n_layers + 1] int<lower=1> widths;", "Q, hidden units, 1"),
        ("int<lower=1, upper=5> activation;", "1 tanh ... 5 identity"),
        ("int<lower=0, upper=n_layers - 1> frozen;", "leading constant layers"),
        ("int<lower=0> d_frozen;", "constant weights"),
        ("vector[d_frozen] w_frozen;", "their values"),
        ("int<lower=1> d;", "Bayesian weights"),
        ("int<lower=1> k;", "dimension of the subspace"),
        ("vector[d] p_bar;", "weights at phi = 0"),
        ("int<lower=0, upper=k> n_axes;", "weights that move by themselves"),
        ("array[n_axes] int<lower=1, upper=d> axes;", "which"),
        ("matrix[d, k - n_axes] Pi;", "directions of the subspace"),
        ("vector<lower=0>[k] phi_scale;", "unit of each coordinate"),
        *(_theta_inside() if parts.holds_theta else []),
    ]


def _theta_inside() -> list[tuple[str, str]]:
    return [
        ("vector[P] theta_bar;", "structured coefficients at phi = 0"),
        ("matrix[P, k] theta_Pi;", "how they move with phi"),
    ]


def prior_lines(item: ClassPrior) -> list[tuple[str, str]]:
    """Declare the arguments of a prior."""
    lines = []
    for argument, name in zip(item.prior.density.arguments, item.data_names, strict=True):
        bound = "" if argument == "location" else "<lower=0>"
        size = {"b": "P", "phi": "k"}.get(item.label)
        kind = f"vector{bound}[{size}]" if size else f"real{bound}"
        text = f"{item.prior.density.name} prior on {item.parameter}: {ARGUMENT_TEXT[argument]}"
        if item.prior.density.is_constant:
            text = f"fixed value of {item.parameter}"
        lines.append((f"{kind} {name};", text))
    return lines


def _transformed_data(parts: Parts) -> str:
    if parts.integrates_theta:
        return prepared_inputs() + declarations(marginal_data(parts))
    split = ("array[N] int slice = linspaced_int_array(N, 1, N);", "rows to be split")
    return declarations([split]) + prepared_inputs()


def prepared_inputs() -> str:
    """Centre X, and take U through the layers that are constant."""
    declared = declarations(
        [
            ("array[n_layers - frozen + 1] int free_widths", "widths of the Bayesian layers"),
            ("  = widths[frozen + 1 : n_layers + 1];", ""),
            ("matrix[N, P] Xc;", "structured design, centred"),
            ("matrix[N, free_widths[1]] H;", "input of the first Bayesian layer"),
        ]
    )
    return declared + (
        "for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];\n"
        "if (frozen == 0) {  // large inputs are not held once more\n"
        "  for (j in 1 : Q) H[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];\n"
        "} else {\n"
        "  matrix[N, Q] Z;  // network inputs, standardised\n"
        "  for (j in 1 : Q) Z[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];\n"
        "  H = hidden_layers(Z, w_frozen, widths[1 : frozen + 1], activation);\n"
        "}\n"
    )


def parameters(parts: Parts, *, theta: bool = True) -> str:
    """Declare what is sampled, with or without the structured coefficients."""
    lines = [("vector<multiplier=phi_scale>[k] phi;", "subspace coordinates: w = lift(phi, ...)")]
    if theta and not parts.holds_theta:
        lines.append(("vector<multiplier=theta_scale>[P] theta;", "structured coefficients"))
    lines += [
        (f"real<lower=0> {item.parameter};", DISPERSION_TEXT[item.parameter])
        for item in parts.sampled
        if item.positive
    ]
    return declarations(lines)


def fixed_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare the dispersion parameters that are fixed."""
    return [
        (f"real {item.parameter} = {item.data_names[0]};", DISPERSION_TEXT[item.parameter])
        for item in parts.constant
    ]


def theta_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare theta where the subspace holds it."""
    line = ("vector[P] theta = theta_bar + theta_Pi * phi;", "structured coefficients")
    return [line] if parts.holds_theta else []


def _transformed_parameters(parts: Parts) -> str:
    lines = [*theta_lines(parts), *fixed_lines(parts), ("real lprior = 0;", "log prior density")]
    return declarations(lines) + "".join(_prior_density(item) for item in parts.sampled)


def _prior_density(item: ClassPrior) -> str:
    density, (first, *rest) = item.prior.density, item.data_names
    truncated = item.positive and not density.positive
    text = call(
        f"lprior += {density.name}_lpdf",
        [f"{item.parameter} | {first}", *rest],
        "" if truncated else ";",
        width=WIDTH - 2,
    )
    if truncated:
        text += call(f"  - {density.name}_lccdf", [f"0 | {first}", *rest], ";", width=WIDTH - 2)
    return text


def _model(parts: Parts) -> str:
    if parts.integrates_theta:
        return marginal_model(parts) + "target += lprior;\n"
    arguments = ["partial_log_lik", "slice", "grainsize", "y", "Xc", "H", "free_widths",
                 "activation", "p_bar", "axes", "Pi", "eta_loc", "eta_scale", "phi", "theta",
                 *parts.family.dispersion]  # fmt: skip
    tail = " / temperature;" if parts.temper else ";"
    return (
        "if (!prior_only) {\n"
        + indent(call("target += reduce_sum", arguments, tail, width=WIDTH - 4), "  ")
        + "}\n"
        + "target += lprior;\n"
    )


def _generated_quantities(parts: Parts) -> str:
    network = "network(H, lift(phi, p_bar, axes, Pi), free_widths, activation)"
    mean = f"mean_{network}" if parts.kernel == "cpp" else f"mean({network})"
    intercept = (
        "real b_Intercept  // mean of eta over the rows, moved to X = 0\n"
        "  = eta_loc\n"
        "    + eta_scale\n"
        f"      * {mean}\n"
        "    - dot_product(x_loc, theta);\n"
    )
    coefficients = [
        (f"real {name} = theta[{j}];", "" if name == f"b_{column}" else column)
        for j, (name, column) in enumerate(
            zip(parts.design.coefficients, parts.design.x.columns, strict=True), start=1
        )
    ]
    return intercept + declarations(coefficients)
