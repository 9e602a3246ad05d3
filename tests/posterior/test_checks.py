"""Statistics against SciPy, predictive p-values against a binomial law, groups against loops."""

import numpy as np
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.posterior.checks import STATISTICS, predictive_checks
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import posterior_predict
from support.drawn import random_draws
from support.small import category_bundle, small_bundle, small_frame


def test_statistics_are_scipys():
    y = np.random.default_rng(0).poisson(1.5, (4, 50)).astype(float)
    for name, expected in {
        "mean": np.mean(y, axis=1), "sd": stats.tstd(y, axis=1), "max": y.max(1), "min": y.min(1),
        "median": np.median(y, axis=1), "skewness": stats.skew(y, axis=1),
        "zeros": [np.count_nonzero(row == 0) / 50 for row in y],
    }.items():  # fmt: skip
        assert STATISTICS[name](y) == pytest.approx(np.asarray(expected)), name
    assert STATISTICS["skewness"](np.ones((2, 5))) == pytest.approx(0)


def checks(posterior, rows, statistics, **options):
    return predictive_checks(
        posterior, rows, statistics, generator=np.random.default_rng(1), **options
    )


@pytest.fixture(scope="module")
def poisson():
    bundle, rows = small_bundle("count ~ x + C(g) + nn(u, v)", family="poisson")
    return SubspacePosterior(bundle, random_draws(bundle, iterations=200)), rows


def test_p_is_the_share_of_replications_that_are_as_large(poisson):
    one, rows = poisson
    found = checks(one, rows, "mean,max,zeros")
    y_rep = posterior_predict(one, rows, np.random.default_rng(1))
    for each, of in zip(found.several, (np.mean, np.max, lambda y: np.mean(y == 0)), strict=True):
        replicated = np.array([of(row) for row in y_rep])
        assert each.observed == pytest.approx(of(rows.y))
        assert each.replicated == pytest.approx(replicated)
        assert each.p == pytest.approx(np.mean(replicated >= of(rows.y) - 1e-12))
    table = found.table(0.5).set_index("stat")
    assert table.loc["mean", "l-50% PI"] == pytest.approx(np.quantile(y_rep.mean(axis=1), 0.25))
    assert list(table["rows"]) == [30, 30, 30]


def test_groups_have_statistics_of_their_own(poisson):
    one, rows = poisson
    groups = small_frame()["g"].to_numpy()
    found = checks(one, rows, ("mean",), groups=groups, by="g")
    assert [each.group for each in found.several] == ["a", "b", "c"]
    for each in found.several:
        assert each.observed == pytest.approx(rows.y[groups == each.group].mean())
        assert each.rows == 10
    assert list(found.table()["g"]) == ["a", "b", "c"]


def test_groups_of_one_row_each_are_refused(poisson):
    one, rows = poisson
    with pytest.raises(InputError, match="each group of --by has one row alone"):
        checks(one, rows, ("mean",), groups=np.arange(30), by="row")


def test_a_row_of_weight_3_is_three_rows():
    formula = "count | weights(tries) ~ x + nn(u, v)"
    bundle, rows = small_bundle(formula, family="poisson")
    one = SubspacePosterior(bundle, random_draws(bundle, iterations=200))
    found = checks(one, rows, "mean")
    repeated = np.repeat(rows.y, rows.given["weights"].astype(int))
    (each,) = found.several
    assert each.rows == len(repeated)
    assert each.observed == pytest.approx(repeated.mean())
    assert "stands for as many" in found.note
    # replications vary as the mean of independent responses does, not as one of each row
    eta = one.predictor(rows)
    means = np.exp(eta) @ rows.given["weights"] / len(repeated)
    noise = (np.exp(eta) @ rows.given["weights"]).mean() / len(repeated) ** 2
    expected = means.var() + noise
    assert each.replicated.var() == pytest.approx(expected, rel=6 * np.sqrt(2 / 400))


def test_other_weights_are_left_out_and_that_is_said():
    bundle, rows = small_bundle("count | weights(z) ~ x + nn(u, v)", family="poisson")
    found = checks(SubspacePosterior(bundle, random_draws(bundle)), rows, "sd")
    assert found.several[0].observed == pytest.approx(rows.y.std(ddof=1))
    assert found.note.startswith("Unweighted")


def test_a_mixture_is_checked(poisson):
    one, rows = poisson
    found = checks(Mixture((one, one)), rows, "min")
    assert len(found.several[0].replicated) == 800


def test_what_cannot_be_checked_is_refused(poisson):
    one, rows = poisson
    with pytest.raises(InputError, match=r"unknown statistic 'zeroes'\. Did you mean 'zeros'"):
        checks(one, rows, "zeroes")
    bundle, rows = category_bundle()
    with pytest.raises(InputError, match="unordered categories"):
        checks(SubspacePosterior(bundle, random_draws(bundle)), rows, "mean")
    bundle, rows = category_bundle("cumulative")
    assert (
        checks(SubspacePosterior(bundle, random_draws(bundle)), rows, "mean").several[0].observed
        > 1
    )
