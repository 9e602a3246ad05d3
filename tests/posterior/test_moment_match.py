"""Moment matching against exact leave-one-out densities of a linear model with an outlier."""

import numpy as np
import pytest
from scipy import stats

from semistan.posterior.scoring.loo import Loo, Matched, psis_loo
from semistan.posterior.scoring.moment_match import Affine, match_row


class LinearModel:
    """y ~ N(X beta, 1)^(1 / T), beta ~ N(0, 25 I); the first row is far from the others."""

    def __init__(self, power=1.0, size=4000):
        generator = np.random.default_rng(3)
        self.X = np.column_stack([np.ones(12), generator.normal(size=12)])
        self.y = self.X @ [1.0, -1.0] + generator.normal(size=12)
        self.X[0], self.y[0], self.power = (1.0, 3.0), 9.0, power
        self.q = generator.multivariate_normal(*self.posterior(np.arange(12)), size)

    def posterior(self, rows):
        X, y = self.X[rows], self.y[rows]
        covariance = np.linalg.inv(self.power * X.T @ X + np.eye(2) / 25)
        return covariance @ X.T @ y * self.power, covariance

    def log_density(self, q):
        likelihood = stats.norm.logpdf(self.y, q @ self.X.T).sum(axis=1)
        return self.power * likelihood + stats.norm.logpdf(q, 0, 5).sum(axis=1)

    def log_lik(self, i):
        return lambda q: stats.norm.logpdf(self.y[i], q @ self.X[i])

    def exact(self, i):
        mean, covariance = self.posterior(np.delete(np.arange(12), i))
        x = self.X[i]
        return stats.norm.logpdf(self.y[i], x @ mean, np.sqrt(1 + x @ covariance @ x))


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_an_outlier_has_its_exact_left_out_density(power):
    model = LinearModel(power)
    plain = psis_loo(model.log_lik(0)(model.q)[:, None], 1 / power)
    found = match_row(model.q, model.log_density, model.log_lik(0), plain.limit, power)
    assert plain.pareto_k[0] > plain.limit
    assert found.pareto_k < plain.limit
    assert found.elpd == pytest.approx(model.exact(0), abs=0.1)
    assert abs(found.elpd - model.exact(0)) < abs(plain.elpd[0] - model.exact(0))


def test_a_row_that_needs_no_move_has_the_elpd_of_psis():
    model = LinearModel()
    plain = psis_loo(model.log_lik(5)(model.q)[:, None])
    found = match_row(model.q, model.log_density, model.log_lik(5), 0.7)
    assert found.pareto_k == pytest.approx(plain.pareto_k[0], abs=1e-6)
    assert found.elpd == pytest.approx(plain.elpd[0], abs=1e-3)


def test_maps_are_composed_and_inverted():
    generator = np.random.default_rng(0)
    q, M = generator.normal(size=(20, 3)), generator.normal(size=(3, 3))
    first = Affine(generator.normal(size=(3, 3)), generator.normal(size=3))
    centre, target = generator.normal(size=(2, 3))
    both = first.then(M, centre, target)
    expected = np.array([M @ (first.A @ x + first.b - centre) + target for x in q])
    assert both(q) == pytest.approx(expected)
    assert both.inverse(both(q)) == pytest.approx(q)
    assert both.log_det == pytest.approx(np.log(abs(np.linalg.det(M) * np.linalg.det(first.A))))


def test_rows_that_are_mended_are_told():
    found = Loo(np.array([-1.0, -9.0]), np.array([-0.9, -2.0]), np.array([0.1, 1.2]), 1000)
    assert list(found.unreliable) == [1]
    mended = found.with_rows({1: Matched(-7.5, 0.3)}, "by moment matching")
    assert list(mended.elpd) == [-1.0, -7.5]
    assert list(found.elpd) == [-1.0, -9.0]
    assert mended.unreliable.size == 0
    assert mended.text().endswith("reliable. Found by moment matching: rows 2.")
    assert "Found" not in found.with_rows({}, "by moment matching").text()
