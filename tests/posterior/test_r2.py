"""R2 against the definition written out in loops, LOO-R2 against exact left-out means."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.model.families.families import family
from semistan.posterior.posterior import Mixture, Posterior, SubspacePosterior
from semistan.posterior.predictive import distribution, posterior_epred, posterior_linpred
from semistan.posterior.scoring.r2 import PARTS, loo_r2, r2
from support.drawn import random_draws
from support.small import category_bundle, further_bundle
from support.untrained import random_bundle

SETTINGS = {
    "gaussian": {"sigma": 1.7}, "poisson": {}, "bernoulli": {}, "binomial": {"trials": 7},
    "negbinomial": {"shape": 2.0}, "gamma": {"shape": 3.0}, "beta": {"precision": 5.0},
    "lognormal": {"sigma": 0.6}, "student": {"sigma": 1.3, "nu": 5.0},
    "bernoulli(probit)": {}, "gaussian(log)": {"sigma": 1.7}, "beta(cloglog)": {"precision": 5.0},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_familys_variance_is_that_of_its_random_numbers(name):
    record, parameters = family(name), {k: np.array(v) for k, v in SETTINGS[name].items()}
    eta = np.broadcast_to(np.array([-0.4, 0.1, 0.7]), (200_000, 3))
    drawn = record.rng(eta, parameters, np.random.default_rng(1))
    error = np.square(drawn - drawn.mean(axis=0)).std(axis=0) / np.sqrt(len(eta))
    exact = np.broadcast_to(record.variance(eta[:1], parameters), (1, 3))[0]
    assert np.all(np.abs(drawn.var(axis=0) - exact) < 5 * error)


def test_a_student_of_two_degrees_of_freedom_has_no_variance():
    found = family("student").variance(np.zeros(2), {"nu": np.array([2.0, 1.5]), "sigma": 1.0})
    assert np.isinf(found).all()


def judged(posterior, rows, **options):
    return r2(posterior, rows, generator=np.random.default_rng(1), **options)


@pytest.mark.parametrize("name", ["gaussian", "negbinomial"])
def test_r2_and_shares_are_their_definition(name):
    bundle, rows = further_bundle(name)
    one = SubspacePosterior(bundle, random_draws(bundle, chains=2, iterations=20))
    weight = rows.given["weights"]
    found = judged(one, rows)
    mu, eta = posterior_epred(one, rows), posterior_linpred(one, rows)
    variance = one.family.variance(eta, distribution(one, rows))
    variance = np.broadcast_to(variance, mu.shape)

    def var(values):
        return np.cov(values, aweights=weight, ddof=0)

    expected = [
        var(mu[s]) / (var(mu[s]) + np.average(variance[s], weights=weight)) for s in range(40)
    ]
    line = found.table().set_index("measure").loc["R2"]
    assert line["Estimate"] == pytest.approx(np.mean(expected), rel=1e-9)
    assert line["u-95% CI"] == pytest.approx(np.quantile(expected, 0.975), rel=1e-9)
    parts = found.parts.set_index("part")
    for part, asked in PARTS.items():
        own = posterior_linpred(one, rows, part=asked)
        pairs = [np.cov(own[s], eta[s], aweights=weight, ddof=0) for s in range(40)]
        assert parts.loc[part, "Estimate"] == pytest.approx(
            np.mean([pair[0, 1] / pair[1, 1] for pair in pairs]), rel=1e-8
        )
        assert parts.loc[part, "alone"] == pytest.approx(
            np.mean([pair[0, 0] / pair[1, 1] for pair in pairs]), rel=1e-8
        )
    assert list(parts.index) == [*PARTS, "offset"]
    assert parts["Estimate"].sum() == pytest.approx(1)
    assert "Means over rows have the rows' weights." in found.notes


def test_chunks_of_rows_change_nothing(monkeypatch):
    bundle, rows = further_bundle("gaussian")
    one = SubspacePosterior(bundle, random_draws(bundle))
    whole = judged(one, rows)
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 500)
    pieces = judged(one, rows)
    for name in ("measures", "parts"):
        found, expected = (getattr(each, name).iloc[:, 1:].to_numpy() for each in (pieces, whole))
        assert found == pytest.approx(expected, rel=1e-8)


def test_a_family_without_a_variance_has_that_of_the_residuals(monkeypatch):
    bundle, rows = random_bundle("gaussian")
    one = SubspacePosterior(bundle, random_draws(bundle))
    mu = posterior_epred(one, rows)
    expected = mu.var(axis=1) / (mu.var(axis=1) + (rows.y - mu).var(axis=1))

    without = replace(bundle.family, variance=None)
    monkeypatch.setattr(Posterior, "family", property(lambda _: without))
    found = judged(one, rows)
    assert found.table().loc[0, "Estimate"] == pytest.approx(expected.mean(), rel=1e-9)
    assert "that of the residuals" in found.notes[0]


def test_loo_r2_of_a_linear_model_is_the_one_of_its_left_out_residuals():
    generator = np.random.default_rng(4)
    n, x = 400, np.random.default_rng(5).normal(size=400)
    y = 1 + 2 * x + generator.normal(size=n)
    X = np.column_stack([np.ones(n), x])
    hat = np.einsum("ij,ji->i", X, np.linalg.pinv(X))
    fitted = X @ np.linalg.pinv(X) @ y
    left_out = y - (y - fitted) / (1 - hat)
    found = loo_r2(y, left_out, np.ones(n), generator)
    exact = 1 - np.var(y - left_out) / np.var(y)
    assert found.mean() == pytest.approx(exact, abs=0.005)
    # the standard error of a squared correlation r2 is about 2 r (1 - r2) / sqrt(n)
    assert found.std() == pytest.approx(2 * np.sqrt(exact) * (1 - exact) / np.sqrt(n), rel=0.15)


def test_a_row_of_weight_2_counts_as_two_rows():
    y, mean = np.array([1.0, 2.0, 4.0, 3.0]), np.array([1.5, 1.0, 3.0, 3.0])
    weight = np.array([2.0, 1.0, 1.0, 0.0])
    found = loo_r2(y, mean, weight * 1e6, np.random.default_rng(1))
    shares = stats.dirichlet(np.ones(3)).rvs(4000, random_state=1) * weight[:3]
    shares /= shares.sum(axis=1, keepdims=True)

    def var(values):
        return shares @ values**2 - (shares @ values) ** 2

    expected = 1 - var(y[:3] - mean[:3]) / var(y[:3])
    assert np.median(found) == pytest.approx(np.median(expected), abs=0.1)


def test_of_a_mixture_draws_are_pooled_and_an_approximation_has_no_loo():
    one, other = random_bundle("poisson"), random_bundle("poisson", seed=1)
    members = [SubspacePosterior(bundle, random_draws(bundle)) for bundle, _ in (one, other)]
    rows = one[1]
    pooled = np.mean([judged(each, rows).table().loc[0, "Estimate"] for each in members])
    found = judged(Mixture(tuple(members)), rows).table()
    assert found.loc[0, "Estimate"] == pytest.approx(pooled)
    assert list(found["measure"]) == ["R2", "LOO-R2"]


@pytest.mark.parametrize("name", ["categorical", "cumulative"])
def test_categories_have_no_r2(name):
    bundle, rows = category_bundle(name)
    with pytest.raises(InputError, match="has categories and so no variance"):
        judged(SubspacePosterior(bundle, random_draws(bundle)), rows)
