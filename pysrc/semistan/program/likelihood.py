"""The log-likelihood of a slice of rows, in Stan or by the C++ kernel."""

from __future__ import annotations

from textwrap import indent

from semistan.model.stan_text import TIED, WIDTH, call, statement
from semistan.program.networks import TIMES, NetworkText
from semistan.program.parts import Parts, known_of_rows
from semistan.program.predictors import (
    other_arguments,
    other_sums,
    parameter_vectors,
    term_arguments,
)

SLICE = "[start : end]"
UNITS = ["data real eta_loc", "data real eta_scale"]
NOTHING = "zeros_vector(0)"


def signature(parts: Parts) -> list[str]:
    """Return the arguments of the likelihood of rows start to end."""
    term_data, term_sampled = term_arguments(parts.design.mean)
    other_data, other_sampled = other_arguments(parts.design)
    kinds = {"trials": "array[] int", "cens": "array[] int"}
    given = [f"data {kinds.get(name, 'vector')} {name}" for name in known_of_rows(parts.design)]
    known = [*given, *term_data, *other_data]
    subspace = parts.network.subspace.arguments
    known += [f"data {item.kind.partition('[')[0]} {item.name}" for item in parts.family.constants]
    known += [f"data matrix {curve.matrix}" for curve in parts.family.used_curves]
    sampled = [*_main_parameters(parts), *term_sampled, *other_sampled]
    return [*_row_data(parts), *parts.network.sizes, *subspace, *UNITS, *known, *sampled]


def _row_data(parts: Parts) -> list[str]:
    return ["int start", "int end", f"data {parts.y_type} y", "data matrix Xc", "data matrix H"]


def _main_parameters(parts: Parts) -> list[str]:
    return ["vector phi", "vector theta", *(f"real {name}" for name in parts.model.scalars)]


def stan_likelihood(parts: Parts) -> str:
    """Write the log-likelihood of a slice in Stan."""
    arguments = ["array[] int slice", *signature(parts)]
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
    eta += indent(density_vectors(parts, "end - start + 1", SLICE), "  ")
    density, (name, _) = parts.family.density, parts.family.on_default
    design = parts.design
    if "weights" not in design.given and not parts.family.by_row:
        return eta + f"  return {density_of_slice(parts, density, name)};\n"
    by_row = density.format(
        y="y[n]", eta=f"{name}[n - start + 1]", times="*", **in_row(parts, "n - start + 1")
    )
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
    """Return what stands for each parameter in row n, and for what is given of the row.

    Of a parameter that has a predictor it is the element at ``index``.
    """
    varying = {name: f"{name}[{index}]" for name in parts.design.varying}
    given = {name: f"{name}[n]" for name in parts.family.given}
    curves = {curve.name: f"{curve.vector}[{index}]" for curve in parts.family.used_curves}
    costly = {item.name: f"{item.name}[{index}]" for item in parts.family.costly}
    return {name: name for name in parts.family.dispersion} | varying | given | curves | costly


def density_of_slice(parts: Parts, density: str, eta: str) -> str:
    """Write a density of a slice's rows; products with vectors are elementwise."""
    names = {name: name for name in parts.family.dispersion}
    times = ".*" if parts.design.varying else "*"
    given = {name: f"{name}{SLICE}" for name in parts.family.given}
    return density.format(y=f"y{SLICE}", eta=eta, times=times, **given, **names)


def _sum_of(name: str, text: str, sums: list[str]) -> str:
    """Declare a vector over the slice's rows in a function."""
    joined = "\n      + ".join(sums)
    return f"  vector[end - start + 1] {name}  // {text}\n    = {joined};\n"


def density_vectors(parts: Parts, rows: str, of_rows: str = "") -> str:
    """Declare what the density needs besides eta: eta on another scale, thresholds, curves."""
    name, from_eta = parts.family.on_default
    lines = [f"vector[{rows}] {name} = {from_eta};"] if from_eta else []
    lines += [line.format(rows=rows.replace(" ", TIED)) for line in parts.family.stan_local]
    lines += [
        f"vector[{rows}] {curve.vector} = {curve.times(curve.matrix + of_rows)};"
        for curve in parts.family.used_curves
    ]
    for item in parts.family.costly:
        value = item.over_rows(rows, varies=item.parameter in parts.design.varying)
        lines.append(f"vector[{rows}] {item.name} = {value.replace(' ', TIED)};")
    return "".join(statement(line, WIDTH - 4) for line in lines)


def kernel_likelihood(parts: Parts) -> str:
    """Declare the log-likelihood of the C++ kernel, and call it for a slice."""
    name, arguments = f"{parts.family.name}_log_lik", ["array[] int slice", *signature(parts)]
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

    It takes weights and what further terms add to the linear predictor, or neither; of several
    networks also what multiplies them.
    """
    given, terms = known_of_rows(parts.design), parts.design.mean.terms
    trials = ["data array[] int trials"] if "trials" in given else []
    plain = [
        *_by_name(_row_data(parts)),
        *kernel_sizes(parts.network),
        *parts.network.subspace.kernel_arguments,
        *_by_name([*UNITS, *trials]),
    ]
    parameters = _by_name(_main_parameters(parts))
    single = not parts.network.several
    if single and "weights" not in given and "offsets" not in given and not terms:
        return [*plain, *parameters]
    weights = "weights" if "weights" in given else NOTHING
    offsets = f"offsets{SLICE}" if "offsets" in given else NOTHING
    return [
        *plain,
        ("data vector weights", weights),
        *parameters,
        ("vector extra", "extra" if terms else offsets),
    ]


def kernel_sizes(network: NetworkText) -> list[tuple[str, str]]:
    """Pair the kernel's arguments of how large networks are, and what multiplies several."""
    pairs = _by_name(network.sizes)
    if network.several and not network.multiplies:
        pairs.append((f"data matrix {TIMES}", "rep_matrix(0, 0, 0)"))
    return pairs


def _by_name(declared: list[str]) -> list[tuple[str, str]]:
    """Pair arguments with values of the same names."""
    return [(argument, argument.split()[-1]) for argument in declared]
