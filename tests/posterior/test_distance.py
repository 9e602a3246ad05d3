"""How far one posterior is from another: against NumPy, and against a shift that is known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from semistan.posterior.distance import COLUMNS, distance
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from support.drawn import random_draws
from support.untrained import random_bundle


@pytest.fixture(scope="module")
def pair():
    bundle, rows = random_bundle("gaussian")
    return (
        SubspacePosterior(bundle, random_draws(bundle)),
        SubspacePosterior(bundle, random_draws(bundle, seed=1)),
        rows,
    )


def table(one, other, rows):
    return distance(one, other, rows, rows).set_index("variable")


def test_figures_are_numpys(pair):
    one, other, rows = pair
    found = table(one, other, rows)
    assert list(found.index[:-1]) == list(one.interpreted)
    a, b = one.draws.interpreted["b_x1"].ravel(), other.draws.interpreted["b_x1"].ravel()
    line = found.loc["b_x1"]
    assert line[COLUMNS[0]] == pytest.approx((a.mean() - b.mean()) / b.std())
    assert line[COLUMNS[2]] == pytest.approx(a.std() / b.std())
    p, q = posterior_linpred(one, rows), posterior_linpred(other, rows)
    eta = found.iloc[-1]
    apart = np.abs(p.mean(axis=0) - q.mean(axis=0)) / q.std(axis=0)
    assert eta[COLUMNS[0]] == pytest.approx(np.median(apart))
    assert eta[COLUMNS[2]] == pytest.approx(np.median(p.std(axis=0) / q.std(axis=0)))


def test_a_shift_by_two_sds_is_two(pair):
    one, _, rows = pair
    x = one.draws.coefficients["b_x2"]
    moved = replace(one.draws, coefficients=one.draws.coefficients | {"b_x2": x + 2 * x.std()})
    line = table(SubspacePosterior(one.bundle, moved), one, rows).loc["b_x2"]
    assert line[COLUMNS[0]] == pytest.approx(2)
    assert line[COLUMNS[2]] == pytest.approx(1)


def test_the_error_is_that_of_two_means_of_independent_draws(pair):
    one, _, rows = pair
    generator = np.random.default_rng(0)
    a, b = (
        replace(one.draws, coefficients=one.draws.coefficients | {"b_x1": x})
        for x in generator.normal(size=(2, *one.draws.lprior.shape))
    )
    line = table(SubspacePosterior(one.bundle, a), SubspacePosterior(one.bundle, b), rows).loc[
        "b_x1"
    ]
    n = one.draws.lprior.size
    assert line["MCSE"] == pytest.approx(np.sqrt(2 / n), rel=0.35)
    assert abs(line[COLUMNS[0]]) < 5 * line["MCSE"]


def test_mixtures_are_pooled_and_constants_left_out(pair):
    one, other, rows = pair
    found = table(Mixture((one, other)), other, rows)
    assert np.isfinite(found[COLUMNS[2]]).all()
    constant = {"sigma": np.ones_like(other.draws.lprior)}
    fixed = SubspacePosterior(other.bundle, replace(other.draws, dispersion=constant))
    assert "sigma" not in table(one, fixed, rows).index
    assert isinstance(distance(one, other, rows, rows), pd.DataFrame)
