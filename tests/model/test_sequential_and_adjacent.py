"""Ordered categories reached one by one, or by the odds of neighbours: against direct products."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit, softmax
from statsmodels.discrete.discrete_model import Logit, MNLogit

from semistan.model.families.families import family
from semistan.posterior.generated import read_generated
from semistan.posterior.predictive import log_lik as log_lik_of
from semistan.posterior.predictive import posterior_epred
from semistan.workflow.fit import fit_model
from semistan.workflow.outputs import generate
from support.likelihoods import assert_derivatives, assert_drawn_shares, assert_finite_far_out
from support.small import small_frame

K = 4
GAPS = {"gap_2": -0.6, "gap_3": 1.3}
TAU = np.array([0, -0.6, 0.7])
CDF = {"logit": expit, "probit": stats.norm.cdf}
RECORDS = ("sratio(logit, 4)", "sratio(probit, 4)", "acat(logit, 4)")

each = pytest.mark.parametrize("written", RECORDS)


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def gaps(of=np.float64):
    return {name: of(value) for name, value in GAPS.items()}


def log_lik(written, y, eta):
    return family(written).log_lik(tensor(y), tensor(eta), gaps(tensor)).numpy()


def probabilities(written, eta):
    """P(y = k) at one eta, shape (K,), as the definitions say."""
    if written.startswith("acat"):
        return softmax(np.r_[0, np.cumsum(eta - TAU)])
    stops = CDF[family(written).link](TAU - eta)
    return np.cumprod(np.r_[1, 1 - stops]) * np.r_[stops, 1]


@each
@pytest.mark.parametrize("eta", [-3.0, 0.4, 2.5])
def test_the_likelihood_is_that_of_the_definition(written, eta):
    found = np.exp(log_lik(written, np.arange(1, K + 1), np.full(K, eta)))
    expected = probabilities(written, eta)
    assert found == pytest.approx(expected, rel=1e-12)
    assert expected.sum() == pytest.approx(1)


@each
def test_probabilities_mean_and_variance_go_together(written):
    eta = np.linspace(-4, 6, 9)
    expected = np.stack([probabilities(written, value) for value in eta])
    record = family(written)
    assert record.probabilities(eta, gaps()) == pytest.approx(expected, rel=1e-12)
    assert record.mean(eta, gaps()) == pytest.approx(expected @ np.arange(1, K + 1), rel=1e-12)


@pytest.mark.parametrize("name", ["sratio", "acat"])
def test_two_categories_are_bernoulli(name):
    y, eta = np.meshgrid([0.0, 1.0], np.linspace(-5, 5, 5))
    two = family(f"{name}(logit, 2)").log_lik(tensor(y + 1), tensor(eta), {})
    bernoulli = family("bernoulli").log_lik(tensor(y), tensor(eta), {})
    assert two.numpy() == pytest.approx(bernoulli.numpy(), rel=1e-14)


def test_sequential_categories_are_regressions_on_who_is_left():
    """The likelihood is a sum of logistic ones: of passing each category, of those who reach it."""
    generator = np.random.default_rng(1)
    y, eta = generator.integers(1, K + 1, size=60), generator.normal(size=60)
    expected = np.zeros(60)
    for k, tau in enumerate(TAU, start=1):
        left = y >= k
        model = Logit((y > k)[left].astype(float), eta[left, None] - tau)
        expected[left] += model.loglikeobs(np.ones(1))
    assert log_lik("sratio(logit, 4)", y, eta) == pytest.approx(expected, rel=1e-10)


def test_adjacent_categories_are_a_multinomial_model_with_slopes_in_proportion():
    generator = np.random.default_rng(2)
    y, x = np.r_[1:5, generator.integers(1, K + 1, size=56)], generator.normal(size=60)
    model = MNLogit(y, np.column_stack([np.ones(60), x]))
    steps = np.arange(1, K)
    expected = model.loglikeobs(np.stack([-np.cumsum(TAU), 0.8 * steps])).sum(axis=1)
    assert log_lik("acat(logit, 4)", y, 0.8 * x) == pytest.approx(expected, rel=1e-10)


@each
@pytest.mark.parametrize("eta", [-700.0, -40.0, 40.0, 700.0])
def test_values_and_both_derivatives_are_finite_far_out(written, eta):
    assert_finite_far_out(family(written), GAPS, eta)


@each
def test_the_derivatives_are_right(written):
    assert_derivatives(family(written), GAPS, [-1.0, 2.0, 0.5, 0.3])


@each
def test_random_categories_have_their_probabilities(written):
    eta = np.array([-1.0, 0.5, 2.0])
    expected = np.stack([probabilities(written, value) for value in eta])
    assert_drawn_shares(family(written), GAPS, eta, expected)


@each
def test_the_location_of_eta_gives_the_first_categories_their_shares(written):
    location, scale = family(written).eta_units(np.array([1.0, 2, 4, 3, 1]), {})
    first, second = probabilities(written, location)[:2]
    expected = {"sratio": (first, 2 / 5), "acat": (second / first, 1 / 2)}[written.split("(")[0]]
    assert (expected[0], scale) == (pytest.approx(expected[1]), 1)


def test_the_continuation_ratio_is_the_sequential_one():
    assert str(family("cratio(probit, 4)")) == "sratio(probit, 4)"
    assert str(family("cratio")) == "sratio"


@pytest.mark.parametrize("name", ["sratio", "acat"])
def test_a_run_has_our_log_likelihood_and_categories_of_its_draws(name, toolchain, tmp_path):
    frame = small_frame().assign(o=np.arange(30) % K + 1)
    fit = fit_model(
        "o ~ x + nn(u, v)", frame, out=tmp_path / "run",
        overrides={"family": name, "subspace.k": 2, "network.hidden": [3], "train.epochs": 200,
                   "sample.chains": 1, "sample.draws": 400},
    )  # fmt: skip
    assert fit.run.bundle.config.family == f"{name}(logit, 4)"
    intercepts = [f"b_Intercept[{k}]" for k in (1, 2, 3)]
    assert list(fit.posterior.draws.interpreted) == [*intercepts, "b_x", *GAPS]
    apart = np.diff([fit.posterior.draws.coefficients[one][0] for one in intercepts], axis=0)
    drawn = [fit.posterior.draws.dispersion[gap][0] for gap in GAPS]
    assert apart == pytest.approx(np.array(drawn), abs=1e-5)
    assert (apart < 0).any()
    generate(fit.run)
    generated, rows = read_generated(fit.run), fit.run.rows()
    assert generated.log_lik == pytest.approx(log_lik_of(fit.posterior, rows), rel=1e-9, abs=0)
    expected = posterior_epred(fit.posterior, rows) @ np.arange(1, K + 1)
    assert fit.run.bundle.family.support(generated.y_rep).all()
    error = (generated.y_rep - expected).mean(axis=1)
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(len(error))
