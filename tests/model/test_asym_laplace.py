"""The family asym_laplace, against quantile regression, its limit and quadrature."""

import re

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import integrate, stats

from semistan.errors import InputError
from semistan.model.families.families import family
from semistan.workflow.prepare import prepare
from support.small import small_config, small_frame

FORMULA = "y ~ x + nn(u, v), quantile = 0.9"


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def likeliest(record, X, y, q):
    """Return the coefficients and sigma at which the likelihood is largest."""
    b = tensor(np.zeros(X.shape[1])).requires_grad_()
    log_sigma = tensor(0.0).requires_grad_()
    climb = torch.optim.LBFGS([b, log_sigma], max_iter=2000, line_search_fn="strong_wolfe")

    def loss():
        climb.zero_grad()
        values = {"sigma": log_sigma.exp(), "quantile": tensor(q)}
        total = -record.log_lik(tensor(y), tensor(X) @ b, values).mean()
        total.backward()
        return total

    for _ in range(5):
        climb.step(loss)
    return b.detach().numpy(), log_sigma.exp().item()


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [300, 20_000])
def test_the_likeliest_coefficients_are_those_of_quantile_regression(q, n):
    generator = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), generator.normal(size=n)])
    y = X @ [1.0, 0.5] + (1 + 0.3 * np.abs(X[:, 1])) * generator.normal(size=n)
    record = family("asym_laplace").learn(y, {})
    b, sigma = likeliest(record, X, y, q)
    found = sm.QuantReg(y, X).fit(q)
    assert np.all(np.abs(b - found.params) < found.bse)
    loss = np.maximum(q * found.resid, (q - 1) * found.resid).mean()
    assert sigma == pytest.approx(loss, rel=0.05)  # which is the likeliest sigma without smoothing


def test_its_limit_is_the_asymmetric_laplace_distribution():
    y, values = np.linspace(-9, 9.1, 50), {"sigma": tensor(1.7), "quantile": tensor(0.8)}
    found = family("asym_laplace(0.001)").log_lik(tensor(y), tensor(0.0), values)
    expected = stats.laplace_asymmetric(2, 0, 1.7 / 0.4).logpdf(y)
    assert found.numpy() == pytest.approx(expected, abs=1e-5)


def test_the_density_integrates_to_1_with_the_mean_and_variance_of_the_record():
    record, at = family("asym_laplace(0.3)"), {"sigma": np.array(1.7), "quantile": np.array(0.8)}

    def density(y):
        values = {name: tensor(value) for name, value in at.items()}
        return record.log_lik(tensor(y), tensor(0.4), values).exp().item()

    def moment(of):
        limits = {"limit": 500, "points": [0.4]}
        return integrate.quad(lambda y: of(y) * density(y), -500, 500, **limits)[0]

    mean = moment(lambda y: y)
    assert moment(lambda _: 1.0) == pytest.approx(1, abs=1e-8)
    assert record.mean(np.array(0.4), at) == pytest.approx(mean, rel=1e-7)
    variance = moment(lambda y: (y - mean) ** 2)
    assert record.variance(np.array(0.4), at) == pytest.approx(variance, rel=1e-6)


def test_the_smoothing_follows_from_the_number_of_rows_and_is_kept():
    frame = small_frame()
    found = prepare(small_config(FORMULA, family="asym_laplace"), frame)
    smoothing = min(1, (36 / len(frame)) ** (1 / 3))
    assert found.config.family == f"asym_laplace({smoothing:.3g})"
    (constant,) = found.model.family.constants
    assert constant.value == pytest.approx(smoothing, rel=1e-2)
    assert prepare(found.config, frame.iloc[:-5]).config.family == found.config.family
    chosen = prepare(small_config(FORMULA, family="asym_laplace(0.05)"), frame)
    assert chosen.config.family == "asym_laplace(0.05)"


@pytest.mark.parametrize("options", ["0", "-1", "nan", "1e9", "log", "0.1, 0.2"])
def test_a_smoothing_that_is_none_is_refused(options):
    with pytest.raises(InputError, match=re.escape(f"from 0.0001 to 100, as asym_laplace(0.1), "
                                                   f"got '{options}'")):  # fmt: skip
        family(f"asym_laplace({options})")
