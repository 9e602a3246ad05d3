"""Rows whose likelihood says nothing, of weight 0 or without trials; scores that are no numbers.

Each answer must be that of the same table without such rows.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.model.families.families import family
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_predict
from semistan.posterior.psis import pareto_smoothed
from semistan.posterior.scoring.compare import compare_elpd, compare_loo
from semistan.posterior.scoring.folds import KFold
from semistan.posterior.scoring.loo import leave_one_out, psis_loo
from semistan.posterior.scoring.loo_pit import loo_pit
from semistan.posterior.scoring.moment_match import match_row
from semistan.posterior.scoring.r2 import r2
from semistan.posterior.scoring.scores import pointwise, scores
from semistan.posterior.scoring.stacking import stack
from semistan.posterior.sensitivity import sensitivity
from semistan.show.report.learnt import pareto_text
from support import arviz_oracle
from support.drawn import random_draws
from support.untrained import random_bundle

UNDERFLOW = 700  # range of log ratios beyond which the smallest are 0, and releases differ
SILENT = np.array([0, 3, 4, 17, 29])


def drawn(name, seed=0):
    bundle, rows = random_bundle(name)
    return SubspacePosterior(
        bundle, random_draws(bundle, chains=4, iterations=100, seed=seed)
    ), rows


def with_silent_rows(rows, name):
    """Return the rows with some of weight 0, or without trials, and the others alone."""
    heard = np.setdiff1d(np.arange(len(rows)), SILENT)
    if name == "binomial":
        y, trials = rows.y.copy(), rows.given["trials"].copy()
        y[SILENT] = trials[SILENT] = 0
        changed = replace(rows, y=y, given={**rows.given, "trials": trials})
    else:
        weights = np.ones(len(rows))
        weights[SILENT] = 0
        changed = replace(rows, given={**rows.given, "weights": weights})
    return changed, changed.take(heard), heard


@pytest.fixture(params=["gaussian", "binomial", "poisson"])
def several(request):
    posterior, rows = drawn(request.param)
    return posterior, *with_silent_rows(rows, request.param)


def test_they_add_their_constant_and_nothing_else(several):
    posterior, rows, others, heard = several
    found, without = leave_one_out(posterior, rows), leave_one_out(posterior, others)
    assert (found.elpd[SILENT] == 0).all()
    assert (found.pareto_k[SILENT] == 0).all()
    assert (found.pointwise()["p_loo"][SILENT] == 0).all()
    assert list(found.constant) == list(SILENT)
    assert found.elpd[heard] == pytest.approx(without.elpd, rel=1e-12)
    table, expected = (item.table().set_index("measure") for item in (found, without))
    assert table["Estimate"].to_numpy() == pytest.approx(expected["Estimate"].to_numpy())
    assert np.isfinite(table["SE"]).all()
    said = "5 of 30 rows have the same likelihood in all draws"
    assert said in found.text()
    assert said in pareto_text(found)
    assert "same likelihood" not in without.text()


def test_totals_and_other_rows_are_arvizs(several):
    posterior, rows, others, heard = several
    density = log_lik(posterior, others)
    data = arviz_oracle.collected(
        posterior={"mu": np.zeros((4, 100))}, log_likelihood={"y": density.reshape(4, 100, -1)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of high Pareto k
        expected = arviz_oracle.loo(data)
    found, within = leave_one_out(posterior, rows), np.ptp(density, axis=0) < UNDERFLOW
    elpd, pareto_k = found.elpd[heard], found.pareto_k[heard]
    assert elpd[within] == pytest.approx(expected.elpd_i[within], rel=1e-9, abs=1e-12)
    assert pareto_k[within] == pytest.approx(expected.pareto_k[within], rel=1e-6)
    assert (pareto_k[~within] > 0.7).all()
    if within.all():
        assert found.table()["Estimate"][0] == pytest.approx(expected.elpd)
        assert found.table()["Estimate"][1] == pytest.approx(expected.p)


def test_comparisons_and_stacking_are_those_of_the_other_rows(several):
    posterior, rows, others, _ = several
    other = SubspacePosterior(
        posterior.bundle, random_draws(posterior.bundle, chains=4, iterations=100, seed=5)
    )
    found, expected = (
        compare_loo({"a": leave_one_out(posterior, each), "b": leave_one_out(other, each)})
        for each in (rows, others)
    )
    for column in ("elpd", "elpd_diff", "weight", "largest_k"):
        assert found[column].to_numpy() == pytest.approx(expected[column].to_numpy(), abs=1e-5)
    assert stack(posterior, rows).weights in ((), (1.0,))


def test_their_transform_is_by_the_posterior_as_it_is(several):
    posterior, rows, *_ = several
    values, _ = loo_pit(posterior, rows, np.random.default_rng(2))
    generator = np.random.default_rng(2)
    replicated = posterior_predict(posterior, rows, generator)[:, SILENT]
    below, at = (
        part.mean(axis=0) for part in (replicated < rows.y[SILENT], replicated == rows.y[SILENT])
    )
    assert values[SILENT] == pytest.approx(below + generator.random(30)[SILENT] * at)
    assert np.isfinite(values).all()


def test_r2_and_scores_leave_them_out(several):
    posterior, rows, others, _ = several
    found, expected = (r2(posterior, x, generator=np.random.default_rng(1)) for x in (rows, others))
    first, wanted = (each.table()["Estimate"][0] for each in (found, expected))
    assert first == pytest.approx(wanted)
    assert found.table()["Estimate"][1] == pytest.approx(expected.table()["Estimate"][1], abs=0.02)
    named = posterior.family
    seen, alone = (
        {item.name: item.value for item in scores(named, pointwise(posterior, each, generator=g))}
        for each, g in ((rows, np.random.default_rng(1)), (others, np.random.default_rng(1)))
    )
    assert seen["LPPD"] == pytest.approx(alone["LPPD"])
    assert seen["RMSE"] == pytest.approx(alone["RMSE"])


def test_rows_that_all_count_nothing_have_no_scores():
    posterior, rows = drawn("binomial")
    none, *_ = with_silent_rows(rows, "binomial")
    judged = pointwise(posterior, none.take(SILENT), generator=np.random.default_rng(1))
    with pytest.raises(InputError, match="no row counts: all have weight 0 or no trials"):
        scores(posterior.family, judged)


def test_powers_of_a_constant_density_weight_all_draws_alike():
    posterior, rows = drawn("gaussian")
    flat = replace(posterior.draws, lprior=np.full_like(posterior.draws.lprior, -3.0))
    table = sensitivity(replace(posterior, draws=flat), rows)
    assert table["prior"].to_numpy() == pytest.approx(0, abs=1e-6)
    assert np.isfinite(table["likelihood"]).all()


def test_a_row_that_says_nothing_needs_no_moved_draws():
    q = np.random.default_rng(1).normal(size=(400, 2))
    found = match_row(
        q, lambda x: stats.norm.logpdf(x).sum(axis=1), lambda x: np.zeros(len(x)), 0.7
    )
    assert (found.elpd, found.pareto_k) == (pytest.approx(0), 0)


SIZE = 400
OF_DRAWS = np.random.default_rng(3)
RATIOS = {
    "all equal": np.full(SIZE, -3.0),
    "equal but for rounding": 1e-13 * OF_DRAWS.normal(size=SIZE),
    "two values": (OF_DRAWS.random(SIZE) < 0.5) * 1.0,
    "a few above": (OF_DRAWS.random(SIZE) < 0.02) * 1e-3,
    "a few below": (OF_DRAWS.random(SIZE) < 0.02) * -1e-3,
    "three values": OF_DRAWS.integers(0, 3, SIZE) * 0.1,
    "denormal": 1e-310 * OF_DRAWS.random(SIZE),
    "none of most": np.where(OF_DRAWS.random(SIZE) < 0.9, -np.inf, 0.0),
    "huge": 1e300 * OF_DRAWS.normal(size=SIZE),
}


@pytest.mark.parametrize("name", RATIOS)
def test_weights_of_any_finite_ratios_sum_to_1(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights, k = pareto_smoothed(RATIOS[name][None])
    assert np.exp(weights).sum() == pytest.approx(1)
    assert not np.isnan(k).any()


def test_a_draw_in_which_a_row_is_impossible_has_all_weight_and_an_infinite_k():
    density = OF_DRAWS.normal(size=(SIZE, 3))
    density[7, 1] = -np.inf
    found = psis_loo(density)
    assert found.elpd[1] == -np.inf
    assert list(found.unreliable) == [1]
    with pytest.raises(InputError, match=r"elpd_loo is -inf in row 2 \(1 of 3 rows\), so that no "):
        found.table()
    with pytest.raises(InputError, match="elpd of 'a' is -inf in row 2"):
        compare_loo({"a": found, "b": psis_loo(density[8:])})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_table_has_a_number_that_is_none(value):
    elpd = np.array([-1.0, value, -2.0])
    with pytest.raises(InputError, match=r"elpd of 'b' is \S+ in row 2"):
        compare_elpd({"a": np.full(3, -1.0), "b": elpd})
    posterior, rows = drawn("gaussian")
    judged = pointwise(posterior, rows.first(3), generator=np.random.default_rng(1))
    with pytest.raises(InputError, match=r"LPPD is \S+ in row 2"):
        scores(family("gaussian"), replace(judged, lpd=elpd))
    with pytest.raises(InputError, match=r"elpd_kfold is \S+ in row 2"):
        KFold(np.ones(3), replace(judged, lpd=elpd), {}).table()


def test_responses_so_far_off_that_numbers_overflow_are_named():
    posterior, rows = drawn("gaussian")
    far = replace(rows, y=np.where(np.arange(len(rows)) == 4, 1e200, rows.y))
    judged = pointwise(posterior, far, generator=np.random.default_rng(1))
    with pytest.raises(InputError, match=r"LPPD is -inf in row 5 .* or so far off that numbers"):
        scores(posterior.family, judged)
    with pytest.raises(InputError, match="the log-likelihood is -inf in row 5"):
        sensitivity(posterior, far)


def test_rows_that_stand_for_several_are_left_out_whole():
    posterior, rows = drawn("gaussian")
    weights = np.where(np.arange(len(rows)) < 7, 3.0, 1.0)
    found = leave_one_out(posterior, replace(rows, given={"weights": weights}))
    assert "A row is left out whole: 7 of 30 rows have a weight above 1" in found.caveat
    judged = pointwise(
        posterior, replace(rows, given={"weights": weights}), generator=np.random.default_rng(1)
    )
    assert "7 of 30 rows" in KFold(np.ones(30), judged, {}).caveat
    fractions = replace(rows, given={"weights": weights / 2})
    assert "left out whole" not in leave_one_out(posterior, fractions).caveat
