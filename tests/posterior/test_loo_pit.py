"""LOO-PIT against ArviZ; its band against ArviZ and uniform samples."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.infer.methods import method_named
from semistan.posterior.arviz import has_release_1
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_predict
from semistan.posterior.scoring.loo import psis_weights
from semistan.posterior.scoring.loo_pit import loo_pit, uniform_band
from support import arviz_oracle
from support.drawn import random_draws
from support.small import category_bundle
from support.untrained import random_bundle


@pytest.fixture(scope="module")
def one():
    bundle, rows = random_bundle("gaussian")
    return SubspacePosterior(bundle, random_draws(bundle, chains=4, iterations=250)), rows


def test_the_transform_is_arvizs(one):
    posterior, rows = one
    found, _ = loo_pit(posterior, rows, np.random.default_rng(2))
    y_rep = posterior_predict(posterior, rows, np.random.default_rng(2))
    density = log_lik(posterior, rows)
    weights, _ = psis_weights(density)
    expected = arviz_oracle.loo_pit(rows.y, y_rep, density, weights)
    assert found == pytest.approx(np.clip(expected, 0, 1), abs=1e-9)


def test_discrete_responses_are_randomised_between_their_steps():
    bundle, rows = random_bundle("poisson")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    found, _ = loo_pit(posterior, rows, np.random.default_rng(2))
    y_rep = posterior_predict(posterior, rows, np.random.default_rng(2))
    weights = np.exp(psis_weights(log_lik(posterior, rows))[0])
    for i, value in enumerate(found):
        below = weights[i][y_rep[:, i] < rows.y[i]].sum()
        at = weights[i][y_rep[:, i] == rows.y[i]].sum()
        assert below - 1e-9 <= value <= below + at + 1e-9


def test_rows_some_at_a_time_have_the_same_pareto_k(one, monkeypatch):
    posterior, rows = one
    _, above = loo_pit(posterior, rows, np.random.default_rng(2))
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 2500)
    values, pieces = loo_pit(posterior, rows, np.random.default_rng(2))
    assert pieces == above
    assert len(values) == len(rows)


@pytest.mark.skipif(has_release_1(), reason="ArviZ 1 simulates its bands")
def test_the_band_is_arvizs():
    n = 200
    band = uniform_band(np.random.default_rng(0).random(n), 0.95, np.random.default_rng(1))
    lower, upper = arviz_oracle.uniform_band(n, band.z, 0.95)
    # both bounds are numbers of rows; simulation moves the level a little
    assert np.abs(n * (band.lower - lower)).max() <= 1.01
    assert np.abs(n * (band.upper - upper)).max() <= 1.01


def test_uniform_samples_stay_inside_as_often_as_it_says():
    generator = np.random.default_rng(5)
    n, size = 50, 2000
    band = uniform_band(generator.random(n), 0.9, generator)
    samples = generator.random((size, n))
    ecdf = (samples[:, :, None] <= band.z).mean(axis=1)
    inside = ((ecdf >= band.lower) & (ecdf <= band.upper)).all(axis=1).mean()
    error = np.sqrt(0.09 * (1 / size + 1 / 2000))  # of these samples, and of the band's own
    assert 0.9 - 5 * error <= inside <= 0.95  # counts are whole: more than 0.9, but not all


def test_too_narrow_predictions_leave_the_band():
    values = stats.norm.cdf(np.random.default_rng(1).normal(0, 2, 300))
    band = uniform_band(values, 0.95, np.random.default_rng(2))
    assert band.outside > 20
    assert band.ecdf == pytest.approx([(values <= z).mean() for z in band.z])


def test_a_mixture_has_it_and_others_do_not(one):
    posterior, rows = one
    values, _ = loo_pit(Mixture((posterior, posterior)), rows, np.random.default_rng(1))
    assert np.isfinite(values).all()
    approximate = replace(posterior.draws, method=method_named("meanfield"))
    with pytest.raises(InputError, match="needs draws from the posterior"):
        loo_pit(replace(posterior, draws=approximate), rows, np.random.default_rng(1))
    bundle, rows = category_bundle()
    with pytest.raises(InputError, match="no distribution function"):
        loo_pit(SubspacePosterior(bundle, random_draws(bundle)), rows, np.random.default_rng(1))
