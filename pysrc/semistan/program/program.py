"""The generated Stan program: it emits what varies, the mathematics is in ``stan/``.

The text depends on the family, the priors' densities, the coefficients' names, and on whether the
network is one or several. Sizes, layers, activation, the subspace and the priors' arguments are
data, so that a new network or new data cost no compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from textwrap import indent
from typing import Literal

from semistan.model.bundle import Bundle
from semistan.model.design import Design
from semistan.model.families.cumulative import intercept_names
from semistan.model.families.family import Family
from semistan.model.model import Model
from semistan.model.orthogonal import RAW, further_names
from semistan.model.parameter import Parameter
from semistan.model.priors.prior import PriorGroup, has_correlations
from semistan.model.priors.weight_scales import GROUPS, SD_W, stan_scale
from semistan.model.sampled import parameters_of
from semistan.model.stan_text import (
    WIDTH,
    call,
    comment,
    declarations,
    heading,
    program_text,
    statement,
)
from semistan.model.temper import Temper
from semistan.program.header import header
from semistan.program.networks import NetworkText
from semistan.program.predictors import (
    centred_columns,
    made_lines,
    other_arguments,
    other_data_lines,
    other_labels,
    other_quantities,
    other_sums,
    parameter_vectors,
    term_arguments,
    term_data_lines,
    term_quantity_lines,
)
from semistan.program.sources import stan_source
from semistan.program.tempered import marginal_data, marginal_functions, marginal_model

Kernel = Literal["stan", "cpp"]

NO_PROGRAM = "// The network {network} is computed by PyTorch alone: it has no Stan program.\n"
SLICE = "[start : end]"
UNITS = ["data real eta_loc", "data real eta_scale"]
NOTHING = "zeros_vector(0)"
LKJ = [("real<lower=0> prior_cor_shape;", "lkj prior on the correlations: shape")]
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
    "cens": (
        "array[N] int<lower=-1, upper=2> cens;",
        "0 observed, 1 above y, -1 below, 2 from y to y2",
    ),
    "y2": ("vector[N] y2;", "end of the interval of a response with one"),
}

GIVEN_IN_ROW = {name: f"{name}[n]" for name in ("trials", "cens", "y2")}


@dataclass(frozen=True, eq=False)
class Parts:
    """What varies between programs: the model, and how the network is computed.

    Attributes
    ----------
    model : Model
        Family, predictors with their terms, priors, temperature.
    kernel : str
        ``stan``, or ``cpp`` if the C++ kernel is declared.
    """

    model: Model
    kernel: Kernel

    @property
    def family(self) -> Family:
        """The response family."""
        return self.model.family

    @property
    def design(self) -> Design:
        """The predictors with their terms."""
        return self.model.design

    @property
    def priors(self) -> tuple[PriorGroup, ...]:
        """The priors that the user can choose."""
        return self.model.priors

    @property
    def holds_theta(self) -> bool:
        """Whether theta moves with phi instead of being a parameter."""
        return self.model.config.subspace.holds_theta

    @property
    def temper(self) -> Temper | None:
        """How the posterior is tempered, if it is."""
        return self.model.temper

    @property
    def orthogonal(self) -> tuple[int, ...]:
        """Positions of the coefficients that are sampled orthogonalised to the network."""
        return self.model.orthogonal if self.model.samples_orthogonal else ()

    @cached_property
    def network(self) -> NetworkText:
        """The networks, at weights that follow from phi."""
        return NetworkText(self.model, self.kernel)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What is sampled, in order."""
        return parameters_of(self.model)

    @property
    def beside_network(self) -> str:
        """Name of the coefficients that multiply X beside the network as it is."""
        return "theta_raw" if self.orthogonal else "theta"

    @property
    def integrates_theta(self) -> bool:
        """Whether theta is integrated out, to temper phi alone."""
        return self.model.integrates_theta

    @property
    def sampled(self) -> tuple[PriorGroup, ...]:
        """The priors of what is sampled."""
        return tuple(item for item in self.priors if not item.density.is_constant)

    @property
    def constant(self) -> tuple[PriorGroup, ...]:
        """The priors that fix a dispersion parameter."""
        return tuple(item for item in self.priors if item.density.is_constant)

    @property
    def joint(self) -> tuple[PriorGroup, ...]:
        """The prior of all coefficients together, if they have one."""
        return tuple(item for item in self.priors if item.density.joint)

    @property
    def y_type(self) -> str:
        """Type of the response as an argument."""
        return "array[] int" if self.family.integer else "vector"

    @property
    def y_declaration(self) -> str:
        """Declaration of the response."""
        return "array[N] int y;" if self.family.integer else "vector[N] y;"


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
        ("data", _data(parts)),
        ("transformed data", _transformed_data(parts)),
        ("parameters", parameters(parts)),
        ("transformed parameters", _transformed_parameters(parts)),
        ("model", _model(parts)),
        ("generated quantities", _generated_quantities(parts)),
    )
    tempered = "\n".join(comment(parts.temper.text)) + "\n" if parts.temper else ""
    return header(model, bundle) + tempered + program_text(blocks)


def bundle_program(bundle: Bundle, kernel: Kernel = "stan", *, include: str = "") -> str:
    """Generate the program of a bundle."""
    return stan_program(bundle.model, bundle, kernel, include=include)


def included_functions(model: Model, kernel: Kernel = "stan") -> str:
    """Return the functions from ``stan/`` that a program needs, for a file that it includes."""
    return "\n".join(stan_source(name) for name in network_functions(parts_of(model, kernel)))


def labels(model: Model) -> dict[str, str]:
    """Map the program's speaking names to the design's columns, for ``labels.json``."""
    design = model.design
    names = intercept_names(model.family.categories, design.intercept)
    of = f"{design.mean_name}: " if design.mean_name else ""
    columns = {
        name: f"{of}{column}"
        for name, column in zip(design.coefficients, design.x.columns, strict=True)
    }
    levels = {name: text for term in design.terms for name, text in term.element_labels().items()}
    intercepts = {name: f"{of}Intercept{name.removeprefix(design.intercept)}" for name in names}
    return {**intercepts, **columns, **levels, **other_labels(design)}


def raw_labels(model: Model) -> dict[str, str]:
    """Map the names of coefficients beside the network as it is, where theta is something else."""
    names = further_names(model.config, model.design) if model.samples_orthogonal else {}
    return {name: f"{model.design.x.columns[j]} (raw)" for name, j in names.items()}


def parts_of(model: Model, kernel: Kernel = "stan") -> Parts:
    """Collect what the text of a model's programs depends on."""
    in_cpp = kernel == "cpp" and has_kernel(model)
    return Parts(model, "cpp" if in_cpp else "stan")


def has_kernel(model: Model) -> bool:
    """Say whether the C++ kernel can compute a model's networks."""
    if model.integrates_theta or not model.network.in_stan:
        return False
    return NetworkText(model).architecture.has_kernel


def has_log_lik(record: Family, design: Design) -> bool:
    """Say whether the C++ kernel has the likelihood too, in one pass with the network."""
    return record.has_log_lik and len(design.networks) == 1 and not design.others


def _functions(parts: Parts, include: str) -> str:
    if parts.integrates_theta:
        likelihood = marginal_functions(parts)
    else:
        in_cpp = parts.kernel == "cpp" and has_log_lik(parts.family, parts.design)
        likelihood = _kernel_likelihood(parts) if in_cpp else _stan_likelihood(parts)
    if include:
        return f"#include {include}\n\n{likelihood}"
    return "\n".join([*(stan_source(name) for name in network_functions(parts)), likelihood])


def network_functions(parts: Parts) -> tuple[str, ...]:
    """Return the files with the functions of the network, of theta and of the density."""
    shear = ("shear.stanfunctions",) if parts.orthogonal else ()
    joint = parts.model.joint.files if parts.model.joint else ()
    return (
        *parts.network.files,
        *shear,
        *joint,
        *parts.family.density_functions,
    )


def known_of_rows(design: Design) -> tuple[str, ...]:
    """Return what is known of each row: ``offsets``, ``weights``, ``trials`` and the like."""
    return (*(("offsets",) if design.mean.offsets else ()), *design.given)


def _signature(parts: Parts) -> list[str]:
    """Return the arguments of the likelihood of rows start to end."""
    term_data, term_sampled = term_arguments(parts.design.mean)
    other_data, other_sampled = other_arguments(parts.design)
    kinds = {"trials": "array[] int", "cens": "array[] int"}
    given = [f"data {kinds.get(name, 'vector')} {name}" for name in known_of_rows(parts.design)]
    known = [*given, *term_data, *other_data]
    subspace = parts.network.subspace.arguments
    sampled = [*_main_parameters(parts), *term_sampled, *other_sampled]
    return [*_row_data(parts), *parts.network.sizes, *subspace, *UNITS, *known, *sampled]


def _row_data(parts: Parts) -> list[str]:
    return ["int start", "int end", f"data {parts.y_type} y", "data matrix Xc", "data matrix H"]


def _main_parameters(parts: Parts) -> list[str]:
    return ["vector phi", "vector theta", *(f"real {name}" for name in parts.model.scalars)]


def _stan_likelihood(parts: Parts) -> str:
    arguments = ["array[] int slice", *_signature(parts)]
    plain = "weights" not in parts.design.given and not parts.design.others
    has_glm = parts.family.glm and plain
    return (
        "// Log-likelihood of rows start to end, the slice that one thread computes.\n"
        + call("real partial_log_lik", arguments, " {", width=WIDTH - 2)
        + indent(_network_of_slice(parts.network), "  ")
        + (_glm(parts) if has_glm else _density(parts))
        + "}\n"
    )


def _network_of_slice(network: NetworkText) -> str:
    """Declare f, the mean's networks, over the slice's rows."""
    if network.by_predictor:
        made = network.outputs(SLICE, "end - start + 1")
        return made + statement(f"vector[end - start + 1] f = {network.output()};", WIDTH - 4)
    computed = call(f"= {network.name}", network.arguments(SLICE), ";", width=WIDTH - 6)
    return "vector[end - start + 1] f\n" + indent(computed, "  ")


def _glm(parts: Parts) -> str:
    tail = ", ".join(["theta", *parts.family.dispersion])
    further = other_sums(parts.design.mean, SLICE)
    alpha = "alpha" if further else "eta_loc + eta_scale * f"
    declared = _sum_of("alpha", "without x' theta", ["eta_loc + eta_scale * f", *further])
    return (
        declared if further else ""
    ) + f"  return {parts.family.glm}(\n    y{SLICE} | Xc{SLICE}, {alpha},\n    {tail});\n"


def _density(parts: Parts) -> str:
    sums = [f"eta_loc + eta_scale * f + Xc{SLICE} * theta", *other_sums(parts.design.mean, SLICE)]
    mean = parts.design.mean_name
    eta = _sum_of("eta", f"linear predictor{f', {mean}' if mean else ''}", sums)
    eta += indent(parameter_vectors(parts.network, SLICE, "end - start + 1"), "  ")
    eta += indent(density_vectors(parts, "end - start + 1"), "  ")
    density, (name, _) = parts.family.density, parts.family.on_default
    design = parts.design
    if "weights" not in design.given and not parts.family.by_row:
        return eta + f"  return {density_of_slice(parts, density, name)};\n"
    by_row = density.format(
        y="y[n]", eta=f"{name}[n - start + 1]", times="*", **GIVEN_IN_ROW,
        **in_row(parts, "n - start + 1"),
    )  # fmt: skip
    weighted = "weights" in parts.design.given
    added = f"    total += weights[n]\n      * {by_row};" if weighted else f"    total += {by_row};"
    return (
        eta + "  real total = 0;\n"
        "  for (n in start : end) {\n"
        + "".join(statement(line, WIDTH - 2) for line in added.splitlines())
        + "  }\n"
        "  return total;\n"
    )


def in_row(parts: Parts, index: str) -> dict[str, str]:
    """Return what stands for each parameter in one row: an element where it has a predictor."""
    varying = {name: f"{name}[{index}]" for name in parts.design.varying}
    return {name: name for name in parts.family.dispersion} | varying


def density_of_slice(parts: Parts, density: str, eta: str) -> str:
    """Write a density of a slice's rows; products with vectors are elementwise."""
    names = {name: name for name in parts.family.dispersion}
    times = ".*" if parts.design.varying else "*"
    return density.format(y=f"y{SLICE}", eta=eta, trials=f"trials{SLICE}", times=times, **names)


def _sum_of(name: str, text: str, sums: list[str]) -> str:
    """Declare a vector over the slice's rows in a function."""
    joined = "\n      + ".join(sums)
    return f"  vector[end - start + 1] {name}  // {text}\n    = {joined};\n"


def density_vectors(parts: Parts, rows: str) -> str:
    """Declare what the density needs besides eta: eta on another scale, thresholds."""
    name, from_eta = parts.family.on_default
    lines = [f"vector[{rows}] {name} = {from_eta};"] if from_eta else []
    lines += [line.format(rows=rows) for line in parts.family.stan_local]
    return "".join(statement(line, WIDTH - 4) for line in lines)


def _kernel_likelihood(parts: Parts) -> str:
    name, arguments = f"{parts.family.name}_log_lik", ["array[] int slice", *_signature(parts)]
    declared, passed = zip(*_kernel_arguments(parts), strict=True)
    extra = other_sums(parts.design.mean, SLICE) if parts.design.mean.terms else []
    body = _sum_of("extra", "what further terms add to eta", extra) if extra else ""
    return (
        "// Log-likelihood of rows start to end with its gradient, in log_lik.hpp.\n"
        + call(f"real {name}", list(declared), ";", width=WIDTH - 2)
        + "\n// The slice that one thread computes.\n"
        + call("real partial_log_lik", arguments, " {", width=WIDTH - 2)
        + body
        + indent(call(f"return {name}", list(passed), ";", width=WIDTH - 4), "  ")
        + "}\n"
    )


def _kernel_arguments(parts: Parts) -> list[tuple[str, str]]:
    """Pair the arguments of the kernel's function with what is passed.

    It takes weights and what further terms add to the linear predictor, or neither.
    """
    given, terms = known_of_rows(parts.design), parts.design.mean.terms
    trials = ["data array[] int trials"] * ("trials" in given)
    plain = [
        *_by_name([*_row_data(parts), *parts.network.sizes]),
        *parts.network.subspace.kernel_arguments,
        *_by_name([*UNITS, *trials]),
    ]
    parameters = _by_name(_main_parameters(parts))
    if "weights" not in given and "offsets" not in given and not terms:
        return [*plain, *parameters]
    weights = "weights" if "weights" in given else NOTHING
    offsets = f"offsets{SLICE}" if "offsets" in given else NOTHING
    return [
        *plain,
        ("data vector weights", weights),
        *parameters,
        ("vector extra", "extra" if terms else offsets),
    ]


def _by_name(declared: list[str]) -> list[tuple[str, str]]:
    """Pair arguments with values of the same names."""
    return [(argument, argument.split()[-1]) for argument in declared]


def _data(parts: Parts) -> str:
    return declarations(
        [
            *data_lines(parts),
            heading("Priors"),
            *scales_lines(parts),
            *(line for item in parts.priors for line in prior_lines(item)),
            *(LKJ if has_correlations(parts.design) else []),
            heading("How to sample"),
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
    known = [GIVEN[name] for name in known_of_rows(parts.design)]
    terms = [*term_data_lines(parts.design.mean), *other_data_lines(parts.design)]
    return [
        heading("Rows"),
        ("int<lower=1> N;", "rows"),
        (parts.y_declaration, "response"),
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
        *parts.network.subspace.declarations,
        *([heading("Known of each row")] if known else []),
        *known,
        *([heading("Other terms and predictors")] if terms else []),
        *terms,
        *(_theta_inside() if parts.holds_theta else []),
        *(_orthogonal_lines() if parts.orthogonal else []),
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
        size = item.size if item.members is None else f"n_{item.stem}"
        kind = f"vector{bound}[{size}]" if item.by_element(argument) else f"real{bound}"
        words = item.density.argument_text(argument)
        text = f"{item.density.name} prior on {item.parameter}: {words}"
        if item.density.is_constant:
            text = f"fixed value of {item.parameter}"
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


def _transformed_data(parts: Parts) -> str:
    if parts.integrates_theta:
        return prepared_inputs(parts) + declarations(marginal_data(parts))
    split = ("array[N] int slice = linspaced_int_array(N, 1, N);", "rows to be split")
    return declarations([split]) + prepared_inputs(parts)


def prepared_inputs(parts: Parts) -> str:
    """Centre X and standardise U; prepare least squares on X."""
    lines, loops = centred_columns(parts.design)
    return (
        declarations(
            [
                ("matrix[N, P] Xc;", "structured design, centred"),
                *lines,
                ("matrix[N, Q] H;", "input of the first Bayesian layer"),
            ]
        )
        + f"for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];\n{loops}{INPUTS}"
        + (LEAST_SQUARES if parts.orthogonal else "")
    )


def parameters(parts: Parts, *, theta: bool = True) -> str:
    """Declare what is sampled, with or without the structured coefficients."""
    lines = [
        (statement(item.declaration, WIDTH - 2).rstrip(), item.text)
        for item in parts.parameters
        if theta or item.name != parts.design.mean.theta
    ]
    return declarations(lines)


def fixed_lines(parts: Parts) -> list[tuple[str, str]]:
    """Declare the parameters that are fixed, and what the terms make of theirs."""
    fixed = [
        (f"real {item.parameter} = {item.data_names[0]};", item.text) for item in parts.constant
    ]
    return fixed + made_lines(parts.design)


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
    lines = [*fixed_lines(parts), ("real lprior = 0;", "log prior density")]
    densities = "".join(_prior_density(parts, item) for item in parts.sampled)
    densities += "".join(
        f"lprior += {item.prior.stan(item.name)};\n"
        for item in parts.parameters
        if item.prior is not None
    )
    return theta_text(parts) + declarations(lines) + densities


def _prior_density(parts: Parts, item: PriorGroup) -> str:
    if item.density.joint:  # its parameters have priors of their own
        return ""
    density, (first, *rest) = item.density, item.data_names
    if item.is_phi and parts.model.weight_scales:
        rest = [*rest[:-1], stan_scale(rest[-1])]
    text = call(
        f"lprior += {density.name}_lpdf",
        [f"{item.target} | {first}", *rest],
        "" if item.is_truncated else ";",
        width=WIDTH - 2,
    )
    if item.is_truncated:
        text += call(f"  - {density.name}_lccdf", [f"0 | {first}", *rest], ";", width=WIDTH - 2)
    return text


def _model(parts: Parts) -> str:
    if parts.integrates_theta:
        return marginal_model(parts) + "target += lprior;\n"
    passed = [argument.split()[-1] for argument in _signature(parts)[2:]]
    passed[passed.index("theta")] = parts.beside_network
    arguments = ["partial_log_lik", "slice", "grainsize", *passed]
    tail = " / temperature;" if parts.temper else ";"
    return (
        "if (!prior_only) {\n"
        + indent(call("target += reduce_sum", arguments, tail, width=WIDTH - 4), "  ")
        + "}\n"
        + "target += lprior;\n"
    )


def _generated_quantities(parts: Parts) -> str:
    mean = f"mean({parts.network.call(13)})"
    beside = parts.design.mean.terms or parts.design.mean.offsets
    eta = parts.design.mean_name or "eta"
    mean_of = "network and x' theta" if beside else f"{eta} over the rows"
    intercept = _intercept(parts, mean, f"mean of {mean_of}, moved to X = 0")
    coefficients = [
        (f"real {name} = theta[{j}];", "" if name == f"b_{column}" else column)
        for j, (name, column) in enumerate(
            zip(parts.design.coefficients, parts.design.x.columns, strict=True), start=1
        )
    ]
    names = parts.design.coefficients
    raw = [(f"real {names[j]}{RAW} = theta_raw[{j + 1}];", "") for j in parts.orthogonal]
    reported = term_quantity_lines(parts.design.mean)
    others = other_quantities(parts.network)
    return intercept + declarations([*coefficients, *raw, *reported]) + others


def _intercept(parts: Parts, mean: str, words: str) -> str:
    """Declare the intercept, given the network's mean, or thresholds less it."""
    name, K = parts.design.intercept, parts.family.categories
    if not K:
        return declarations([(f"real {name}", words)]) + (
            f"  = eta_loc\n    + eta_scale\n      * {mean}\n    - dot_product(x_loc, theta);\n"
        )
    gaps = ", ".join(("0", *parts.family.dispersion))
    return (
        declarations([(f"vector[{K - 1}] {name}", f"thresholds less the {words}")])
        + statement(f"  = cumulative_sum([{gaps}]')", WIDTH - 2)
        + "    - eta_loc\n"
        "    - eta_scale\n"
        f"      * {mean}\n"
        "    + dot_product(x_loc, theta);\n"
    )
