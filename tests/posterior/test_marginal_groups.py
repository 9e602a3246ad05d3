"""Effects of groups: of known levels, of new ones, left out, or integrated out of the mean."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from semistan.errors import InputError
from semistan.posterior.effects.averages import Change, averages
from semistan.posterior.marginal_groups import nodes
from semistan.posterior.options import EffectOptions, PredictOptions
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.prediction import check_prediction
from semistan.posterior.predictive import posterior_epred
from semistan.workflow.prepare import new_rows
from support.assertions import Z
from support.drawn import random_draws
from support.untrained import random_bundle

LEVELS = 20_000  # drawn by the oracle, for each draw
NETWORK = "nn(u1, u2, u3)"


def drawn(family="gaussian", formula=f"y ~ x1 + (1 + x1 | g) + {NETWORK}", iterations=3):
    bundle, rows = random_bundle(family, formula=formula)
    draws = random_draws(bundle, iterations=iterations)
    spread = {
        name: x / (10 if "x1" in name else 1) / x.max() if name.startswith("sd") else x
        for name, x in draws.spread.items()
    }  # up to 1 in all, and 0.1 for each x1 of about 5
    return SubspacePosterior(bundle, replace(draws, spread=spread)), rows


def deviations(posterior, rows, name="mu"):
    """The standard deviation of a row's group effects by the names of the table, one by one."""
    spread = posterior.draws.spread
    of = "" if name == "mu" else f"{name}_"
    sd = [posterior.draws.flat(spread[f"sd_g__{of}{effect}"]) for effect in ("Intercept", "x1")]
    r = posterior.draws.flat(spread[f"cor_g__{of}Intercept__{of}x1"])
    x = rows.frame["x1"].to_numpy()
    found = np.empty((len(r), len(x)))
    for s in range(len(r)):
        cross = r[s] * sd[0][s] * sd[1][s]
        matrix = np.array([[sd[0][s] ** 2, cross], [cross, sd[1][s] ** 2]])
        for i in range(len(x)):
            z = np.array([1.0, x[i]])
            found[s, i] = np.sqrt(z @ matrix @ z)
    return found


@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_nodes_have_the_moments_of_independent_standard_normal_numbers(dimensions):
    places, weights = map(np.array, zip(*nodes(dimensions), strict=True))
    assert weights.sum() == pytest.approx(1)
    assert weights @ places == pytest.approx(np.zeros(dimensions), abs=1e-12)
    assert (places.T * weights) @ places == pytest.approx(np.eye(dimensions), abs=1e-12)
    growth = np.exp(1.5 * places.sum(axis=1))
    assert weights @ growth == pytest.approx(np.exp(1.5**2 * dimensions / 2), rel=1e-8)


def test_points_in_more_dimensions_are_symmetric_and_as_wide():
    places, weights = map(np.array, zip(*nodes(4), strict=True))
    assert weights.sum() == pytest.approx(1)
    assert weights @ places == pytest.approx(np.zeros(4), abs=1e-12)
    assert (places.T * weights) @ places == pytest.approx(np.eye(4), abs=0.02)


def test_a_gaussian_mean_is_that_of_a_level_at_the_centre():
    posterior, rows = drawn()
    centre = posterior.with_groups("none")
    assert posterior_epred(posterior.with_groups("marginal"), rows) == pytest.approx(
        posterior_epred(centre, rows), rel=1e-12
    )
    effects = posterior.predictor(rows, part="penalised")
    assert posterior.predictor(rows) - effects == pytest.approx(centre.predictor(rows))
    assert np.ptp(effects) > 0


def test_a_poisson_mean_has_the_closed_form_of_the_lognormal_distribution():
    posterior, rows = drawn("poisson")
    eta, s = posterior.with_groups("none").predictor(rows), deviations(posterior, rows)
    assert s.min() > 0.05
    assert posterior_epred(posterior.with_groups("marginal"), rows) == pytest.approx(
        np.exp(eta + s**2 / 2), rel=1e-9
    )


def test_a_probit_mean_has_the_closed_form_of_two_normal_distributions():
    posterior, rows = drawn("bernoulli(probit)")
    eta, s = posterior.with_groups("none").predictor(rows), deviations(posterior, rows)
    found = posterior_epred(posterior.with_groups("marginal"), rows)
    assert found == pytest.approx(norm.cdf(eta / np.sqrt(1 + s**2)), abs=1e-5)


def test_sigma_with_groups_has_the_mean_of_a_lognormal_distribution():
    formula = f"y ~ x1 + {NETWORK}, sigma ~ x1 + (1 + x1 | g)"
    posterior, rows = drawn(formula=formula)
    log_sigma = posterior.with_groups("none").predictor(rows, "sigma")
    s = deviations(posterior, rows, "sigma")
    found = posterior_epred(posterior.with_groups("marginal"), rows, dpar="sigma")
    assert found == pytest.approx(np.exp(log_sigma + s**2 / 2), rel=1e-9)


SEVERAL = {
    "two predictors": ("zero_inflated_poisson", f"y ~ x1 + (1 | g) + {NETWORK}, zi ~ (1 | g)"),
    "categories": ("categorical(bus, car, train)", f"y ~ x1 + (1 | g) + {NETWORK}"),
    "ordered categories": ("cumulative", f"y ~ x1 + (1 | g) + (0 + x1 | h) + {NETWORK}"),
    "by": ("bernoulli", f"y ~ x1 + (1 | gr(h, by=t)) + {NETWORK}"),
    "a smooth of levels": ("poisson", f"y ~ x1 + s(g, bs='re') + {NETWORK}"),
}


@pytest.mark.lengthy
@pytest.mark.parametrize(("family", "formula"), SEVERAL.values(), ids=SEVERAL.keys())
def test_the_mean_is_the_average_over_many_new_levels(family, formula):
    posterior, rows = drawn(family, formula, iterations=1)
    row = 0
    table = rows.frame.iloc[[row] * LEVELS]
    names = [f"new {i}" for i in range(LEVELS)]
    many = new_rows(posterior.bundle, table.assign(g=names, h=names), allow_new_levels=True)
    each = posterior_epred(posterior, many)
    found = posterior_epred(posterior.with_groups("marginal"), rows)[:, row]
    error = each.std(axis=1) / np.sqrt(LEVELS)
    assert error.min() > 0
    assert (np.abs(found - each.mean(axis=1)) < Z * error + 1e-6).all()
    centre = posterior_epred(posterior.with_groups("none"), rows)[:, row]
    assert (np.abs(found - centre) > 10 * error).any()


def test_new_levels_replace_those_of_the_rows_which_stay_together():
    posterior, rows = drawn(formula=f"y ~ x1 + (1 | g) + {NETWORK}", iterations=2000)
    new = posterior.with_groups("new").predictor(rows, part="penalised")
    known = posterior.predictor(rows, part="penalised")
    sd = posterior.draws.flat(posterior.draws.spread["sd_g__Intercept"])
    levels = rows.frame["g"].to_numpy()
    firsts = np.unique(levels, return_index=True)[1]
    for level, first in zip(np.unique(levels), firsts, strict=True):
        rest = new[:, levels == level]
        assert np.array_equal(rest, np.repeat(new[:, [first]], rest.shape[1], axis=1))
    z = new[:, firsts] / sd[:, None]
    assert z.std(axis=0) == pytest.approx(1, abs=Z / np.sqrt(2 * len(z)))
    corr = np.corrcoef(z.T) - np.eye(len(firsts))
    assert np.abs(corr).max() < Z / np.sqrt(len(z))
    assert abs(np.corrcoef(z[:, 0], known[:, firsts[0]] / sd)[0, 1]) < Z / np.sqrt(len(z))


@pytest.mark.parametrize("groups", ["new", "none", "marginal"])
def test_rows_need_no_levels_where_these_are_not_known(groups):
    posterior, rows = drawn("poisson", f"y ~ x1 + (1 | g) + {NETWORK}")
    other, without = posterior.with_groups(groups), rows.frame.drop(columns="g")
    lacking = new_rows(posterior.bundle, without, groups=groups)
    unheard = new_rows(posterior.bundle, rows.frame.assign(g="unheard of"), groups=groups)
    found = posterior_epred(other, lacking)
    if groups == "new":
        effect = other.predictor(lacking, part="penalised")
        assert np.array_equal(effect, effect[:, [0] * len(rows)])  # all of one new level
        assert effect.std() > 0
    else:
        assert np.array_equal(found, posterior_epred(other, unheard))
        assert np.array_equal(found, posterior_epred(other, rows))
    with pytest.raises(InputError, match="column 'g'"):
        new_rows(posterior.bundle, without)
    with pytest.raises(InputError, match="unheard of"):
        new_rows(posterior.bundle, rows.frame.assign(g="unheard of"))


def test_a_standard_deviation_by_another_column_needs_that_column():
    posterior, rows = drawn(formula=f"y ~ x1 + (1 | gr(h, by=t)) + {NETWORK}")
    with pytest.raises(InputError, match="column 't'"):
        new_rows(posterior.bundle, rows.frame.drop(columns=["h", "t"]), groups="marginal")
    lacking = new_rows(posterior.bundle, rows.frame.drop(columns="h"), groups="marginal")
    with pytest.raises(InputError, match="'t' either, on which the standard deviation depends"):
        posterior.with_groups("marginal").group_roots(lacking, ["mu"])


def test_what_is_averaged_over_rows_is_integrated_too():
    posterior, rows = drawn("poisson", f"y ~ x1 + (1 | g) + {NETWORK}")
    change = Change("x1", "+1", rows.frame["x1"].to_numpy(), rows.frame["x1"].to_numpy() + 1)
    share = np.full((len(rows), 1), 1 / len(rows))
    (both,) = averages(posterior.with_groups("marginal"), rows.frame, [change], [share], "response")
    centre = posterior.with_groups("none")
    (at_centre,) = averages(centre, rows.frame, [change], [share], "response")
    growth = np.exp(np.square(posterior.draws.flat(posterior.draws.spread["sd_g__Intercept"])) / 2)
    for found, expected in zip(both, at_centre, strict=True):
        assert found[:, 0] == pytest.approx(growth * expected[:, 0], rel=1e-9)


def test_several_subspaces_have_what_each_has():
    posterior, rows = drawn("poisson")
    mixture = Mixture((posterior, posterior)).with_groups("marginal")
    assert mixture.groups == "marginal"
    one = posterior_epred(posterior.with_groups("marginal"), rows)
    assert np.array_equal(posterior_epred(mixture, rows), np.concatenate([one, one]))
    (one,) = posterior.group_roots(rows, ["mu"]).values()
    (both,) = mixture.group_roots(rows, ["mu"]).values()
    assert np.array_equal(both, np.concatenate([one] * 2))


def test_a_new_response_is_of_some_level_and_no_other_answer_is_known():
    posterior, _ = drawn()
    marginal = PredictOptions(kind="predict", groups="marginal")
    with pytest.raises(InputError, match="--groups new"):
        check_prediction(posterior.family, posterior.design, marginal)
    check_prediction(posterior.family, posterior.design, replace(marginal, groups="new"))
    for options in (PredictOptions, EffectOptions):
        with pytest.raises(InputError, match=r"got 'marginl'\. Did you mean 'marginal'"):
            options(groups="marginl")
    with pytest.raises(InputError, match="known, new, none or marginal"):
        posterior.with_groups("all")
