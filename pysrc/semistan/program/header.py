"""The comments at the top of a program: the model in mathematics, and the priors as used.

They are not part of what is hashed, so that a binary is found again whatever they say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from semistan.model.bundle import Bundle
from semistan.model.families.categorical import predictor_name
from semistan.model.families.family import Family
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import Network, parse_formula
from semistan.model.formula.patterns import shortened
from semistan.model.formula.right import PredictorFormula
from semistan.model.formula.syntax import SHARED
from semistan.model.model import Model
from semistan.model.names import MU
from semistan.model.predictor import NetworkSlope, Predictor
from semistan.model.priors.lines import priors_as_used, priors_before_training
from semistan.model.stan_text import TIED, comment
from semistan.model.terms.term import Modelled
from semistan.program.subspace import TEXTS
from semistan.version import __version__

INTEGRAL = (
    "Integrated out, and drawn given y in the generated quantities, is beta:",
    "y ~ normal(known + A beta, sigma), beta ~ normal(m, S), so that what is sampled has",
    "y ~ multi_normal(known + A m, sigma^2 I + A S^2 A')",
)
COMPLETION = (
    "Completed, in the generated quantities, by the weights outside the subspace, which have their "
    "normal approximation at a mode inside it, to first order:",
    "f(u; w) + (d f / d w) delta, delta = shift_w (1, psi), psi ~ normal(0, 1)",
    "and coefficients and intercepts move with it, by their shift (1, psi)",
)
SHORT = 60  # characters of a summand that is kept on one line
MOST = 12  # names, or priors of one kind, that are listed


def header(model: Model, bundle: Bundle | None = None) -> str:
    """Return the comments of a model's program, with the bundle's hash if it is trained."""
    record = model.family
    lines = [f"// generated with semistan {__version__}"]
    lines += comment(f"formula: {shortened(model.config.formula)}")
    lines += [f"// family: {record.name}, link: {record.link}"]
    numbered = [f"{k} {level}" for k, level in enumerate(record.levels, start=1)]
    lines += comment(f"categories: {', '.join(numbered)}") if numbered else []
    lines += [f"// bundle: {bundle.sha256}"] if bundle else []
    lines += ["//", "// The model of each row:"]
    lines += [part for line in _model_lines(model) for part in _indented(line)]
    lines += ["// Priors as used, in the units of the data:"]
    lines += [part for line in _priors(model, bundle) for part in _indented(line)]
    return "\n".join(lines) + "\n"


def _indented(text: str) -> list[str]:
    return [line.replace("//", "//  ", 1).replace(TIED, " ") for line in comment(text)]


def _model_lines(model: Model) -> Iterator[str]:
    """Yield the likelihood, the predictors, and what the subspace makes."""
    formula, design = parse_formula(model.design.formula), model.design
    power = " to the power of its weight" if "weights" in design.given else ""
    yield f"{_likelihood(model.family)}{power}"
    name, from_eta = model.family.on_default
    if from_eta:
        yield f"{name} = {from_eta}"
    for curve in model.family.used_curves:
        yield f"{curve.vector} = {curve.times(curve.columns)}"
    for item in model.family.costly:
        yield f"{item.name} = {item.function}({item.parameter})"
    if model.family.curves:
        local = (line.format(rows="N") for line in model.family.stan_local)
        yield from (line.partition("] ")[2].rstrip(";") for line in local)
    if design.categories:
        of = (design.mean_name, *(item.name for item in design.of_categories))
        by_category = sorted(of, key=[predictor_name(x) for x in design.categories].index)
        yield f"{name} = ({_listed(('0', *by_category))})"
    several = len(formula.networks) > 1
    for predictor, own in zip(design.predictors, formula.predictors, strict=True):
        numbers = [f"_{place + 1}" if several else "" for place in formula.places(own)]
        yield _predictor_line(model, predictor, own, numbers)
        if predictor.coefficients:
            yield f"x{predictor.suffix} = ({_listed(predictor.x.columns)})"
    for slope in design.slopes:
        unit = "eta_scale " if slope in design.mean.slopes else ""
        f = f"f_{slope.network + 1}(...; w_{slope.network + 1})"
        yield f"{slope.name} = {unit}mean({f}) / {slope.scale:.4g}, over the rows"
    for term in design.terms:
        if isinstance(term, Modelled):
            yield from term.model_lines
    for network in formula.networks:
        if len(network.of) > 1:
            outputs = tuple(_output(model, name) for name in network.of)
            yield f"{_listed(outputs)}: outputs of one network"
    if model.leading.any:
        yield f"U: {_network_inputs(formula.networks, model.leading.frozen)}"
    if several:
        yield f"w = ({_listed(tuple(f'w_{place + 1}' for place in range(len(formula.networks))))})"
    yield TEXTS[model.moves].model
    if model.config.subspace.holds_theta:
        yield "theta = theta_bar + theta_Pi phi"
    if model.integral:
        yield from INTEGRAL
        yield f"beta = {model.integral.text}"
    if model.completes:
        yield from COMPLETION


def _network_inputs(networks: tuple[Network, ...], frozen: tuple[int, ...]) -> str:
    """Write ``what the constant layers make of u, v; and z, standardised``."""
    parts = list(zip(networks, frozen, strict=True))
    behind, plain = (
        tuple(name for network, layers in parts if bool(layers) == constant
              for name in network.arguments)
        for constant in (True, False)
    )  # fmt: skip
    others = f"; and {_listed(plain)}, standardised" if plain else ""
    return f"what the constant layers make of {_listed(behind)}{others}"


def _likelihood(family: Family) -> str:
    """Write ``y ~ normal(eta, sigma)``, or the density where that is no single one of Stan's."""
    names = {name: name for name in family.dispersion}
    given = {name: name for name in family.given}
    given |= {"y": "y", "eta": family.on_default[0], "times": "*"}
    given |= {curve.name: curve.vector for curve in family.used_curves}
    given |= {item.name: item.name for item in family.costly}
    density = family.density.replace(", {y})", ")")  # y2 where no row ends an interval
    single = re.fullmatch(r"(\w+)_lp[dm]f\(\{y\} \| (.*)\)", density)
    if single and single[2].count("(") == single[2].count(")"):
        return f"y ~ {single[1]}({single[2].format(**given, **names)})"
    return f"log p(y) = {density.format(**given, **names)}"


def _predictor_line(
    model: Model, predictor: Predictor, formula: PredictorFormula, numbers: Sequence[str]
) -> str:
    """Write ``log(sigma) = sigma_loc + tau_sigma + (x_sigma - x_loc_sigma)' theta_sigma``."""
    own = _output(model, predictor.name)
    columns = iter(predictor.slopes)
    networks = [
        f"{_multiplied(next(columns)) if times else ''}"
        + (
            f"{own if SHARED in options else f'f{number}'}({_taken(arguments, options)}; w{number})"
            if any(map(variables, arguments))
            else f"w{number}"
        )
        for number, (arguments, options), times in zip(
            numbers, formula.calls_of_nn, formula.times, strict=True
        )
    ]
    further = [*(term.text for term in predictor.terms),
               *(f"offset({expression})" for expression in predictor.offsets)]  # fmt: skip
    of, theta = predictor.suffix, predictor.theta
    if predictor.is_mean:
        name, sums = model.design.mean_name or "eta", ["eta_loc"]
        f = " + ".join(networks)
        sums += [f"eta_scale ({f})" if len(networks) > 1 else f"eta_scale {f}"]
        theta = "theta_raw" if model.samples_orthogonal else theta
    else:
        name = predictor.name if predictor.link == "identity" else f"{predictor.words}"
        sums = [f"{predictor.name}_loc", *([predictor.tau] if predictor.has_tau else []), *networks]
    sums += [f"(x{of} - x_loc{of})' {theta}"] if predictor.coefficients else []
    tied = [text.replace(" ", TIED) if len(text) < SHORT else text for text in (*sums, *further)]
    return f"{name} = {' + '.join(tied)}"


def _multiplied(slope: NetworkSlope) -> str:
    """Write what a network multiplies."""
    return f"({slope.column} / {slope.scale:.4g}) "


def _taken(arguments: tuple[str, ...], options: Mapping[str, Any]) -> str:
    """Write what a network takes: its arguments, or a trunk's embedding of them."""
    return f"{'embedding of ' if 'trunk' in options else ''}{_listed(arguments)}"


def _output(model: Model, predictor: str) -> str:
    """Name a predictor's output of a network that it shares."""
    name = model.design.mean_name if predictor == MU else ""
    return f"f_{name or predictor}"


def _priors(model: Model, bundle: Bundle | None) -> Iterator[str]:
    """Yield ``b_x ~ normal(0, 5)``, the first of very many of a kind."""
    lines = priors_as_used(bundle) if bundle else priors_before_training(model)
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(line.key, []).append(f"{line.parameter} ~ {line.used}")
    for texts in kinds.values():
        yield from texts[:MOST]
        if len(texts) > MOST:
            yield f"... and {len(texts) - MOST} more of this kind"
    if model.explained:
        yield model.explained.text


def _listed(names: tuple[str, ...]) -> str:
    if len(names) <= MOST:
        return ", ".join(names)
    return f"{', '.join(names[: MOST - 1])}, ..., {names[-1]}"
