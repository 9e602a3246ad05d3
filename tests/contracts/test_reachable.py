"""Every parameter that a chain's file names is reached by some answer, but for coordinates of z."""

from functools import cache

import numpy as np
import pytest

from semistan.infer.methods import method_named
from semistan.infer.stan_csv import NUTS_COLUMNS
from semistan.model.config import SampleConfig
from semistan.model.terms.term import element_labels
from semistan.posterior.draws import draws_of_columns
from semistan.posterior.hypothesis import hypotheses
from semistan.posterior.posterior import SubspacePosterior
from semistan.program.program import labels
from semistan.show.export import draws_table
from semistan.show.r_script import _in_r
from support.columns import columns_of, states
from support.kinds import MODELS
from support.untrained import random_bundle

OPTIONS = SampleConfig(chains=1)
COORDINATES = {"phi", "theta"}  # of the subspace, and the coefficients without their names


@cache
def drawn(name):
    family, formula = MODELS[name]
    bundle, rows = random_bundle(family, formula=formula)
    columns = columns_of(bundle, rows, states(bundle))
    return bundle, rows, columns, draws_of_columns(bundle, [columns], OPTIONS)


def of_coordinates(bundle):
    """What is sampled in units of its own, from which the program makes what has a name."""
    named = {item.name for term in bundle.design.terms for item in term.hyperparameters()}
    named |= set(bundle.model.scalars)
    return COORDINATES | {p.name for p in bundle.layout.parameters if p.name not in named}


@pytest.mark.parametrize("name", MODELS)
def test_every_column_is_among_the_draws(name):
    bundle, _, columns, draws = drawn(name)
    shown = {column: text for term in bundle.design.terms
             for column, text in element_labels(term).items()}  # fmt: skip
    known = {*draws.interpreted, *draws.terms, "lprior", *NUTS_COLUMNS.values()}
    known |= {*method_named("nuts").columns.values()}
    for column in columns:
        base, *index = column.split(".")
        if base in of_coordinates(bundle):
            continue
        text = shown.get(column, f"{base}[{index[0]}]" if len(index) == 1 else base)
        assert {base, column, text} & known, column


@pytest.mark.parametrize("name", MODELS)
def test_every_label_is_of_a_column_and_r_finds_it(name):
    bundle, _, columns, _ = drawn(name)
    in_r = {_in_r(column) for column in columns}
    for label in labels(bundle.model):
        assert _in_r(label) in in_r, label


def test_shares_of_steps_are_reported_as_in_brms():
    bundle, rows, columns, draws = drawn("gaussian")
    for term in (term for term in bundle.design.terms if term.text == "mo(h)"):
        shares = [f"{term.simplex}[{i}]" for i in range(1, term.steps + 1)]
        assert sum(draws.interpreted[name] for name in shares) == pytest.approx(1)
        for i, name in enumerate(shares, start=1):
            assert np.array_equal(draws.interpreted[name][0], columns[f"{term.simplex}.{i}"])
    posterior = SubspacePosterior(bundle, draws)
    names = ["simo_moh1[1]", "simo_sigma_moh1[5]"]
    assert set(names) <= set(draws_table(posterior))
    found = hypotheses(posterior, rows, ["simo_moh1[1] > 0.2"], generator=np.random.default_rng(1))
    assert found.table()["Estimate"].item() == pytest.approx(columns["simo_moh1.1"].mean() - 0.2)
