"""Section 1: what was fitted, on what, and how."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from semistan.model.facts import trunks_text
from semistan.model.formula.right import PredictorFormula
from semistan.model.predictor import Predictor
from semistan.model.priors.lines import priors_as_used
from semistan.posterior.implied import implied, implied_text
from semistan.show.report.blocks import (
    Cell,
    Column,
    Equation,
    Fact,
    Facts,
    Heading,
    Section,
    Table,
)
from semistan.show.report.numbers import number, significant
from semistan.show.report.results import Results
from semistan.words import count

LIBRARIES = {"torch": "PyTorch", "python": "Python", "numpy": "NumPy"}


def fitted_section(results: Results) -> Section:
    """Describe the model, the data, the subspace, the priors and the sampler."""
    return Section(
        "model",
        "What was fitted",
        (
            _equation(results),
            Facts(tuple(_model_facts(results))),
            Heading("Subspace and training"),
            Facts(tuple(_subspace_facts(results))),
            Heading("Priors"),
            priors_table(results),
            Facts((_implied(results),)),
            Heading("Sampling"),
            Facts(tuple(_sampling_facts(results))),
        ),
    )


def priors_table(results: Results) -> Table:
    """Show every prior as written and as used."""
    return Table(
        "Scales as used are in the units of the data",
        (Column("Parameter", "code"), Column("As written", "code"), Column("As used", "code")),
        tuple(
            (Cell(line.parameter), Cell(line.written), Cell(line.used))
            for line in priors_as_used(results.bundle)
        ),
        sortable=False,
    )


def _implied(results: Results) -> Fact:
    """Say how far the network varies under its prior: of several subspaces, in the first."""
    generator = np.random.default_rng(results.bundle.config.train.seed)
    text = implied_text(implied(results.bundle, results.rows, generator))
    return Fact("Implied", f"{text[0].upper()}{text[1:]}")


def _equation(results: Results) -> Equation:
    family, categories = results.posterior.family, results.posterior.design.categories
    link = "" if family.link == "identity" else family.link
    left = family.predicted.equation.format(link=link)
    if categories:
        left = (
            f"log E[y_k] / E[y_{categories[0]}]"
            if family.composed
            else f"log P[y = k] / P[y = {categories[0]}]"
        )
    every = results.bundle.model.moves == "all"
    return Equation(left, bool(categories), family.ordered, every)


def _model_facts(results: Results) -> Iterator[Fact]:
    bundle, formula = results.bundle, results.formula
    family = bundle.family
    yield Fact("Family", family.words)
    yield Fact("Response", formula.response, code=True)
    yield from _mean_facts(results)
    for item, learnt in zip(formula.others, bundle.design.others, strict=True):
        yield Fact(f"Predictor of {learnt.words}", _predictor(item))
        yield from _term_facts(item, learnt, f" of {learnt.words}")
    yield Fact("Network", bundle.model.leading.text)
    if trunks := trunks_text(bundle.design):
        yield Fact("Trunk", trunks)
    yield Fact("Data", results.data_name or "a table in memory", code=bool(results.data_name))
    yield Fact("Rows", _rows_text(results))


def _predictor(formula: PredictorFormula) -> str:
    networks = [formula.networks_text] if formula.networks else []
    return " + ".join(["1", *formula.structured, *networks])


def _mean_facts(results: Results) -> Iterator[Fact]:
    """Say what the linear predictor has; it is that of the second of unordered categories."""
    design, formula = results.posterior.design, results.formula.mean
    if design.categories:
        yield Fact("Categories", f"{', '.join(design.categories)}; the first is the reference")
        yield Fact(f"Predictor of {design.mean_name}", _predictor(formula))
        yield from _further_facts(results)
        return
    if formula.structured:
        columns = count(len(design.coefficients), "coefficient")
        yield Fact("Structured terms", f"{', '.join(formula.structured)} ({columns})")
    else:
        yield Fact("Structured terms", "none: the network alone explains the response")
    yield from _further_facts(results)
    yield Fact("Networks", formula.networks_text)


def _further_facts(results: Results) -> Iterator[Fact]:
    """Say what else stands in the linear predictor, and what is known of each row."""
    formula = results.formula
    yield from _term_facts(formula.mean, results.posterior.design.mean)
    known = {
        "Weights": formula.weights, "Trials": formula.trials,
        "Standard errors": formula.se, "Censored": ", ".join(formula.cens),
        "Lower bound": formula.lb, "Upper bound": formula.ub,
    }  # fmt: skip
    yield from (Fact(name, text, code=True) for name, text in known.items() if text)


def _term_facts(formula: PredictorFormula, learnt: Predictor, of: str = "") -> Iterator[Fact]:
    """Say which terms a predictor has beside its columns and networks."""
    for term in learnt.terms:
        kind, text = term.described
        yield Fact(f"{kind}{of}", text)
    if formula.offsets:
        yield Fact(f"Offset{of}", ", ".join(formula.offsets), code=True)


def _rows_text(results: Results) -> str:
    source = results.bundle.source
    dropped = (
        f"; {count(source.dropped, 'row')} with missing values dropped" if source.dropped else ""
    )
    return f"{source.rows:,}{dropped}"


def _subspace_facts(results: Results) -> Iterator[Fact]:
    bundles = [member.bundle for member in results.posterior.members]
    subspace, train = bundles[0].subspace, bundles[0].config.train
    if len(bundles) > 1:
        weights = results.manifest.weights
        listed = ", ".join(number(weight, 2) for weight in weights)
        how = f"the weights {listed}, by stacking" if weights else "equal weights"
        yield Fact("Subspaces", f"{len(bundles)}, whose posteriors are pooled with {how}")
    if bundles[0].model.moves == "all":
        yield Fact("Subspace", f"none: all d = {subspace.d:,} Bayesian weights are sampled")
    else:
        yield Fact(
            "Subspace", f"d = {subspace.d:,} Bayesian weights in k = {subspace.k} dimensions"
        )
    yield Fact("Construction", subspace.origin)
    if completions := [bundle.completion for bundle in bundles if bundle.completion]:
        several = "; ".join(completion.text for completion in completions)
        yield Fact("Outside the subspace", f"normal approximation: {several}")
    for trained in (bundle.trained for bundle in bundles):
        if math.isfinite(trained.arc_length):
            points = count(len(trained.control_points), "control point")
            yield Fact("Curve", f"length {significant(trained.arc_length)} through {points}")
    yield Fact(
        "Training",
        f"{count(train.epochs, 'epoch')}, learning rate {train.rate:g}, "
        f"{100 * train.validation:g}% of the rows for validation",
    )
    seeds = ", ".join(str(bundle.config.train.seed) for bundle in bundles)
    yield Fact("Training seed", seeds)
    if "train" in (seconds := results.manifest.seconds):
        yield Fact("Time", f"{significant(seconds['train'])} s")


def _sampling_facts(results: Results) -> Iterator[Fact]:
    options, manifest = results.options, results.manifest
    method = results.posterior.method
    cmdstan = f"CmdStan {manifest.cmdstan}"
    compiled = f"over the program compiled by {cmdstan}" if method.main else f"in {cmdstan}"
    where = compiled if method.by_stan else "in PyTorch"
    yield Fact("Method", f"{method.text} {where}")
    number = count(options.chain_count, "chain" if method.has_warmup else "approximation")
    if len(results.posterior.members) > 1:
        number += " in each subspace"
    after = f" after {manifest.warmup_text} of warm-up" if method.has_warmup else ""
    yield Fact("Draws", f"{number}, {count(options.per_chain, 'draw')} each{after}")
    if options.temperature != 1:
        yield Fact("Temperature", f"{options.temperature:g} ({options.temper})")
    if method.hamiltonian:
        yield from _nuts_facts(results)
    yield Fact("Gradients", "C++ kernel" if manifest.kernel == "cpp" else "pure Stan")
    yield Fact("Sampling seed", str(options.seed))
    if "sample" in (seconds := manifest.seconds):
        yield Fact("Time", f"{significant(seconds['sample'])} s")
    yield Fact("Versions", ", ".join(_versions(results)))


def _nuts_facts(results: Results) -> Iterator[Fact]:
    options = results.options
    targets = [*map(str, results.manifest.targets)] or [str(options.adapt_delta)]
    yield Fact("Target acceptance", " or ".join(targets))
    yield Fact("Maximum tree depth", str(options.max_treedepth))
    kept = "kept" if results.manifest.keep_metric else "adapted during warm-up"
    start = "Gauss-Newton, at a mode in the subspace" if options.metric == "ggn" else options.metric
    yield Fact("Metric", f"{start}; {kept}")


def _versions(results: Results) -> Iterator[str]:
    yield f"semistan {results.manifest.semistan}"
    for name, shown in LIBRARIES.items():
        if name in results.bundle.versions:
            yield f"{shown} {results.bundle.versions[name]}"
