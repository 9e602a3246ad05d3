"""Survival curves against SciPy, and Kaplan and Meier's estimate against statsmodels."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Text
from scipy import stats
from scipy.special import gamma
from statsmodels.duration.survfunc import SurvfuncRight

from semistan.errors import InputError
from semistan.posterior.checks import predictive_checks
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.posterior.scoring.r2 import r2
from semistan.posterior.survival import kaplan_meier, survival, survival_at_risk
from semistan.show.pictures import alt_text, available, draw, memory_material
from semistan.workflow.simulate import check_simulated
from support.drawn import random_draws
from support.untrained import random_bundle

TIMES = np.array([0.5, 3.0, 11.0])


@pytest.fixture(scope="module")
def fitted():
    bundle, rows = random_bundle("weibull", formula="y | cens(h) ~ x1 + g + nn(u1)", n=10)
    rows.given["weights"] = np.linspace(1, 2, 10)
    return SubspacePosterior(bundle, random_draws(bundle)), rows


def test_curves_are_weighted_means_of_scipys(fitted):
    posterior, rows = fitted
    found = survival(posterior, rows, TIMES)
    eta, shape = posterior_linpred(posterior, rows), posterior.parameters(rows)["shape"]
    scale = np.exp(eta) / gamma(1 + 1 / shape)
    each = np.stack([stats.weibull_min.sf(t, shape, scale=scale) for t in TIMES], axis=-1)
    weights = rows.given["weights"]
    expected = np.average(each, axis=1, weights=weights)
    assert found == pytest.approx(expected, rel=1e-10)


def test_the_estimate_is_statsmodels():
    generator = np.random.default_rng(2)
    y, ended = generator.integers(1, 12, 60).astype(float), generator.random(60) < 0.6
    times, share = kaplan_meier(y, ended, np.ones(60))
    oracle = SurvfuncRight(y, ended.astype(int))
    assert np.array_equal(times, oracle.surv_times)
    assert share == pytest.approx(oracle.surv_prob, rel=1e-12)
    twice = kaplan_meier(y, ended, np.full(60, 2.0))[1]
    assert twice == pytest.approx(share, rel=1e-12)


def test_rows_are_at_risk_from_their_entry_on():
    generator = np.random.default_rng(2)
    y, ended = generator.integers(3, 12, 60).astype(float), generator.random(60) < 0.6
    entry = generator.integers(0, 3, 60).astype(float)
    times, share = kaplan_meier(y, ended, np.ones(60), entry)
    oracle = SurvfuncRight(y, ended.astype(int), entry=entry)
    assert np.array_equal(times, oracle.surv_times)
    assert share == pytest.approx(oracle.surv_prob, rel=1e-12)


LATE = "y | trunc(lb=least) ~ x1 + g + nn(u1)"


@pytest.fixture(scope="module")
def late():
    """Rows of which some entered late, the hardier ones: x1 lengthens life, and entry is after."""
    bundle, rows = random_bundle("exponential", formula=LATE, n=200)
    generator = np.random.default_rng(3)
    posterior = SubspacePosterior(bundle, random_draws(bundle, iterations=2))
    eta = posterior_linpred(posterior, rows).mean(axis=0)
    entry = np.where(eta > np.median(eta), np.exp(eta) * generator.random(200), 0.0)
    rows.given["lb"] = entry
    return posterior, rows


def test_rows_that_are_split_in_time_have_the_same_curve(late):
    posterior, rows = late
    entry, y = rows.given["lb"], rows.given["lb"] + np.abs(rows.y) + 0.1
    cut = entry + 0.3 * (y - entry)
    whole = replace(rows, y=y)
    halves = rows.take(np.r_[np.arange(200), np.arange(200)])
    halves = replace(halves, y=np.r_[cut, y], given={"lb": np.r_[entry, cut]})
    times = np.linspace(0, 10, 41)[1:]
    expected = survival_at_risk(posterior, whole, times)
    assert survival_at_risk(posterior, halves, times) == pytest.approx(expected, rel=1e-12)
    assert not np.allclose(expected, survival(posterior, whole, times), atol=0.05)


def test_a_constant_hazard_is_that_whenever_rows_enter(late):
    posterior, rows = late
    alike = replace(rows.take(np.zeros(200, dtype=int)), y=np.linspace(5, 9, 200))
    alike.given["lb"] = np.r_[0.0, np.random.default_rng(1).uniform(0, 5, 199)]
    times = np.linspace(0, 8, 161)[1:]
    found = survival_at_risk(posterior, alike, times)
    rate = 1 / np.exp(posterior_linpred(posterior, alike)[:, :1])
    assert found == pytest.approx(np.exp(-rate * times), rel=1e-9)


@pytest.mark.lengthy
def test_the_curve_of_those_at_risk_is_what_kaplan_and_meiers_estimate_tends_to(late):
    posterior, rows = late
    one = replace(posterior, draws=random_draws(posterior.bundle, chains=1, iterations=1))
    n, generator = 40_000, np.random.default_rng(5)
    many = rows.take(np.tile(np.arange(200), n // 200))
    mean, start = np.exp(posterior_linpred(one, many)[0]), many.given["lb"]
    time = start + generator.exponential(mean)  # an exponential time has no memory
    last = start + generator.exponential(np.median(mean), n)  # when a row would be censored
    y, died = np.minimum(time, last), time <= last
    at, share = kaplan_meier(y.round(3) + 1e-3, died, np.ones(n), start)
    times = np.quantile(y, np.linspace(0.02, 0.9, 60))
    expected = share[np.searchsorted(at, times, side="right") - 1]
    found = survival_at_risk(one, replace(many, y=y), times)[0]
    assert np.abs(found - expected).max() < 0.015
    plain = survival(one, rows, times)[0]
    assert np.abs(plain - expected).max() > 0.03, "the plain mean is of another population"


def test_the_picture_of_rows_that_entered_late_says_so(late):
    figure = draw(memory_material(*late), "survival")
    words = " ".join(text.get_text() for text in figure.findobj(Text)).split()
    assert "Rows are at risk between entry and exit" in " ".join(words)


def test_the_picture_has_a_curve_with_steps_for_each_group(fitted):
    material = memory_material(*fitted)
    assert "survival" in available(material)
    (axes,) = draw(material, "survival", by="g").axes
    assert len(axes.collections) == 4
    assert len(axes.lines) == 8
    assert axes.get_ylabel() == "P(y > t)"
    assert "half of g = c survive until 6.4" in alt_text(material, "survival", by="g")
    for option, message in (("x1", "has 10 values"), ("gg", "Did you mean 'g'")):
        with pytest.raises(InputError, match=message):
            draw(material, "survival", by=option)


def test_rows_in_intervals_have_no_steps():
    bundle, rows = random_bundle("gaussian", formula="y | cens(c, y2) ~ x1 + nn(u1)")
    material = memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows)
    figure = draw(material, "survival")
    assert len(figure.axes[0].lines) == 1
    words = " ".join(text.get_text() for text in figure.findobj(Text)).split()
    assert "no estimate of Kaplan and Meier" in " ".join(words)


@pytest.mark.parametrize("kind", ["ppc", "calibration", "stat", "loo_pit"])
def test_a_censored_response_is_compared_with_no_prediction(fitted, kind):
    material = memory_material(*fitted)
    assert kind not in available(material)
    with pytest.raises(InputError, match="may be censored"):
        draw(material, kind)
    with pytest.raises(InputError, match="may be censored"):
        r2(*fitted, generator=np.random.default_rng(1))
    with pytest.raises(InputError, match="may be censored"):
        predictive_checks(*fitted, "max", generator=np.random.default_rng(1))
    with pytest.raises(InputError, match="leave cens"):
        check_simulated(fitted[0].family)


@pytest.mark.parametrize("name", ["poisson", "gaussian"])
def test_other_responses_have_no_survival_curves(name):
    bundle, rows = random_bundle(name)
    with pytest.raises(InputError, match=r"not known|no times"):
        draw(memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows), "survival")
