"""A mixture of the posteriors of two subspaces: pooled draws, and every question answered.

The oracle takes no mixture: it asks each member alone and puts the draws together by hand.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.posterior.diagnostics import convergence
from semistan.posterior.effects.effect import conditional_effect, partial_dependence
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.options import PredictOptions
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.prediction import draws_of, predict_chunks, summarise_prediction
from semistan.posterior.predictive import (
    distribution,
    log_lik,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
)
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import leave_one_out, psis_loo
from semistan.posterior.scoring.scores import pointwise
from semistan.posterior.summary import summarise
from semistan.show.export import draws_table
from semistan.show.inference_data import inference_data
from semistan.show.pictures import PICTURES, alt_text, available, draw
from semistan.show.pictures.material import memory_material
from semistan.show.report import report_html
from semistan.show.report.results import Results
from support.drawn import random_draws
from support.manifests import manifest
from support.pages import Page, calm_sampler
from support.small import category_bundle, small_bundle, small_frame

FORMULA = "y ~ x + C(g) + (1 | day) + nn(u, v)"
CHAINS, ITERATIONS = 2, 100


def table():
    return small_frame().assign(day=np.arange(30) % 4)


def member(seed, formula=FORMULA, **settings):
    """A fit whose network was trained with a seed of its own."""
    bundle, rows = small_bundle(formula, table(), train__seed=seed, train__epochs=5, **settings)
    drawn = random_draws(bundle, chains=CHAINS, iterations=ITERATIONS, seed=seed)
    sampler = calm_sampler(CHAINS, ITERATIONS, seed)
    return SubspacePosterior(bundle, replace(drawn, sampler=sampler)), rows


@pytest.fixture(scope="module")
def members():
    (one, rows), (other, _) = member(1), member(2)
    assert not np.allclose(one.bundle.subspace.p_bar, other.bundle.subspace.p_bar)
    return one, other, rows


@pytest.fixture(scope="module")
def mixed(members):
    one, other, rows = members
    return Mixture((one, other)), rows


def pooled(function, members):
    one, other, rows = members
    return np.concatenate([function(one, rows), function(other, rows)])


@pytest.mark.parametrize("part", ["all", "structured", "nn", "penalised"])
def test_predictors_are_those_of_the_members_one_after_the_other(members, mixed, part):
    expected = pooled(lambda one, rows: posterior_linpred(one, rows, part=part), members)
    found = posterior_linpred(*mixed, part=part)
    assert found.shape == (2 * CHAINS * ITERATIONS, 30)
    assert np.array_equal(found, expected)
    assert not np.array_equal(found[: len(found) // 2], found[len(found) // 2 :])


def test_means_and_log_likelihoods_are_those_of_the_members(members, mixed):
    for function in (posterior_epred, log_lik):
        assert np.array_equal(function(*mixed), pooled(function, members))
    sigma = pooled(lambda one, _: one.draws.flat(one.draws.dispersion["sigma"])[:, None], members)
    assert np.array_equal(distribution(*mixed)["sigma"], sigma)


def test_probabilities_of_categories_are_those_of_the_members():
    found = [category_bundle(train__seed=seed) for seed in (1, 2)]
    members = tuple(SubspacePosterior(bundle, random_draws(bundle, seed=1)) for bundle, _ in found)
    rows = found[0][1]
    expected = np.concatenate([posterior_epred(one, rows) for one in members])
    assert np.array_equal(posterior_epred(Mixture(members), rows), expected)


def test_new_responses_have_the_spread_of_both_members(members, mixed):
    posterior, rows = mixed
    eta = pooled(lambda one, rows: posterior_linpred(one, rows), members)
    sigma = pooled(lambda one, _: one.draws.flat(one.draws.dispersion["sigma"])[:, None], members)
    expected = np.random.default_rng(3).normal(eta, sigma)
    assert np.allclose(posterior_predict(posterior, rows, np.random.default_rng(3)), expected)


def test_predicted_rows_are_summarised_over_all_draws(members, mixed):
    posterior, rows = mixed
    generator = np.random.default_rng(1)
    (chunk,) = predict_chunks(posterior, rows, PredictOptions(interval=0.8), generator)
    mu = pooled(posterior_epred, members)
    found = summarise_prediction(chunk, 0.8)
    assert np.allclose(found["Estimate"], mu.mean(axis=0))
    assert np.allclose(found["Est.Error"], mu.std(axis=0, ddof=1))
    assert np.allclose(found["Q10"], np.quantile(mu, 0.1, axis=0))
    lines = draws_of(chunk)
    assert lines[".chain"].max() == 2 * CHAINS
    assert np.array_equal(lines[lines[".row"] == 3][".epred"], mu[:, 2])


def test_the_density_of_a_row_is_that_of_the_mixture(members, mixed):
    posterior, rows = mixed
    found = pointwise(posterior, rows, generator=np.random.default_rng(1))
    one, other = (log_lik(each, rows) for each in members[:2])
    each = [logsumexp(density, axis=0) - np.log(len(density)) for density in (one, other)]
    assert np.allclose(found.lpd, np.logaddexp(*each) - np.log(2))
    assert np.allclose(found.mean, pooled(posterior_epred, members).mean(axis=0))


def test_leaving_a_row_out_weights_the_pooled_draws(members, mixed):
    found, expected = leave_one_out(*mixed), psis_loo(pooled(log_lik, members))
    assert np.allclose(found.elpd, expected.elpd, rtol=1e-12)
    assert np.allclose(found.pareto_k, expected.pareto_k, rtol=1e-9)
    assert found.size == 2 * CHAINS * ITERATIONS


def dependence(posterior):
    generator = np.random.default_rng(1)
    return partial_dependence(posterior, table(), ["x", "g"], resolution=3, generator=generator)


@pytest.mark.parametrize(
    "effect", [lambda posterior: conditional_effect(posterior, table(), "u"), dependence]
)
def test_effects_are_those_of_the_members_one_after_the_other(members, mixed, effect):
    expected = np.concatenate([effect(one).draws for one in members[:2]])
    assert np.allclose(effect(mixed[0]).draws, expected, rtol=1e-12)


def test_marginal_effects_are_over_all_draws(members, mixed):
    found = average_marginal_effects(mixed[0], table(), variables=["g", "u"])
    designs = [
        apply_design(mixed[0].design, table().assign(g=level), response=False) for level in "ab"
    ]
    at_a, at_b = (
        np.concatenate([posterior_epred(one, rows).mean(axis=1) for one in members[:2]])
        for rows in designs
    )
    line = found.set_index("contrast").loc["b - a"]
    assert line["Estimate"] == pytest.approx((at_b - at_a).mean())
    assert line["Est.Error"] == pytest.approx((at_b - at_a).std(ddof=1))


def test_importance_is_the_mean_of_the_members(members, mixed):
    def losses(posterior):
        generator = np.random.default_rng(1)
        found = permutation_importance(posterior, table(), repeats=2, generator=generator)
        return found.set_index("term")["Estimate"].sort_index()

    one, other = map(losses, members[:2])
    assert np.allclose(losses(mixed[0]), (one + other) / 2)


def mean_rhat(several):
    return np.sqrt(np.mean([item.rhat**2 for item in several]))


def test_the_summary_pools_draws_and_judges_each_member(members, mixed):
    one, other, rows = members
    found = summarise(mixed[0], rows)
    lines = {row.name: row for row in found.rows}
    values = np.stack([each.draws.coefficients["b_x"] for each in (one, other)])
    assert lines["b_x"].estimate == pytest.approx(values.mean())
    assert lines["b_x"].est_error == pytest.approx(values.std(ddof=1))
    assert lines["b_x"].rhat == pytest.approx(mean_rhat([convergence(c) for c in values]))
    assert lines["b_x"].bulk_ess == sum(convergence(chains).bulk_ess for chains in values)
    phi = [summarise(each, rows).phi for each in (one, other)]
    assert found.phi.rhat == max(item.rhat for item in phi)
    assert found.phi.bulk_ess == min(item.bulk_ess for item in phi)
    eta = [posterior_linpred(each, rows).reshape(CHAINS, -1, 30) for each in (one, other)]
    rows_of = [[convergence(draws[..., i]) for draws in eta] for i in range(30)]
    assert found.eta.rhat == pytest.approx(max(mean_rhat(pair) for pair in rows_of))
    assert found.eta.tail_ess == min(sum(item.tail_ess for item in pair) for pair in rows_of)


def test_members_that_differ_are_no_failure_of_the_chains(members):
    one, other, rows = members
    moved = {"b_x": other.draws.coefficients["b_x"] + 1e6}
    apart = replace(other.draws, coefficients=other.draws.coefficients | moved)
    summary = summarise(Mixture((one, replace(other, draws=apart))), rows)
    line = {row.name: row for row in summary.rows}["b_x"]
    assert line.rhat < 1.1
    assert line.est_error > 1e5
    chains = np.concatenate([one.draws.coefficients["b_x"], moved["b_x"]])
    assert convergence(chains).rhat > 1.5


def test_a_member_whose_chains_disagree_is_found(members):
    one, other, rows = members
    moved = other.draws.coefficients["b_x"] + np.array([[0.0], [50.0]])
    apart = replace(other.draws, coefficients=other.draws.coefficients | {"b_x": moved})
    for order in ((one, replace(other, draws=apart)), (replace(other, draws=apart), one)):
        summary = summarise(Mixture(order), rows)
        assert "Rhat of coefficients" in [c.name for c in summary.checks if not c.passed]


def test_divergences_of_all_members_are_counted(members):
    one, other, rows = members
    sampler = {**other.draws.sampler, "diverging": np.ones((CHAINS, ITERATIONS))}
    summary = summarise(
        Mixture((one, replace(other, draws=replace(other.draws, sampler=sampler)))), rows
    )
    check = next(check for check in summary.checks if check.name == "divergences")
    assert check.finding == "200 of 400 transitions diverged"


def test_thinning_keeps_as_many_draws_of_each_member(members, mixed):
    thin, rows = mixed[0].thin(40), mixed[1]
    assert [len(one.draws.flat(one.draws.phi)) for one in thin.members] == [20, 20]
    expected = np.concatenate([posterior_epred(one.thin(20), rows) for one in members[:2]])
    assert np.array_equal(posterior_epred(thin, rows), expected)


def test_a_mixture_of_one_is_that_one(members):
    one, _, rows = members
    assert np.array_equal(posterior_epred(Mixture((one,)), rows), posterior_epred(one, rows))


def test_every_picture_that_is_available_is_drawn(mixed):
    material = memory_material(*mixed)
    shown = available(material)
    assert set(PICTURES) - set(shown) == {"images", "subspace", "loss", "smooths", "survival"}
    for kind in shown:
        assert draw(material, kind).axes
        assert alt_text(material, kind).endswith(".")
    with pytest.raises(InputError, match="a mixture has a subspace for each of its members"):
        draw(material, "subspace")


def test_the_densities_are_those_of_all_draws(members, mixed):
    text = alt_text(memory_material(*mixed), "densities")
    values = np.stack([one.draws.coefficients["b_x"] for one in members[:2]])
    assert f"b_x: mean {values.mean():.3g}" in text


def test_the_ranks_are_those_within_a_member(members):
    """Chains of members that are apart have even ranks among the draws of their own."""
    one, other, rows = members
    moved = {name: x + 1e6 for name, x in other.draws.coefficients.items()}
    apart = replace(other, draws=replace(other.draws, coefficients=moved))
    material = memory_material(Mixture((one, apart)), rows)
    heights = [
        patch.get_data().values
        for axes in draw(material, "rank").axes
        for patch in axes.patches
        if hasattr(patch, "get_data")
    ]
    assert np.mean(np.concatenate(heights) == 0) < 0.05  # among all draws, half of them were 0


@pytest.mark.lengthy
def test_the_report_tells_of_both_subspaces(mixed):
    posterior, rows = mixed
    sample = {"chains": CHAINS, "draws": ITERATIONS, "warmup": 300}
    results = Results(
        posterior=posterior, summary=summarise(posterior, rows), rows=rows, table=rows.frame,
        program="// generated\n", manifest=manifest(sample),
    )  # fmt: skip
    page = Page(report_html(results, np.random.default_rng(1)))
    text = page.all("body")[0].text
    assert "2, whose posteriors are pooled with equal weights" in text
    assert text.count("Directions of the subspace: spread of the trained points") == 2
    assert "4 \N{MULTIPLICATION SIGN} 100 draws" in text
    assert "PSIS-LOO" in text


def test_tables_of_draws_and_inference_data_have_the_chains_of_both(members, mixed, tmp_path):
    posterior, rows = mixed
    table = draws_table(posterior)
    assert list(table[".chain"].unique()) == [1, 2, 3, 4]
    assert not any(name.startswith("phi") for name in table)
    second = table[table[".chain"] > CHAINS]["b_x"]
    assert np.array_equal(second, members[1].draws.coefficients["b_x"].ravel())
    data = inference_data(Run(tmp_path, members[0].bundle, manifest()), posterior, rows)
    expected = pooled(log_lik, members).reshape(2 * CHAINS, ITERATIONS, 30)
    assert np.array_equal(data.log_likelihood["y"], expected)
    for i, member in enumerate(members[:2]):
        one = data.posterior.sel(subspace=i + 1)
        assert np.array_equal(one["b_x"], member.draws.coefficients["b_x"])
        assert np.array_equal(one["phi"], member.draws.phi)
        assert one["phi"].dims == ("chain", "draw", "subspace_dim")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formula": "y ~ x + (1 | day) + nn(u, v)"}, "their formula differ"),
        ({"rows": 29}, "their rows differ: 30 and 29"),
        ({"chains": 3}, r"their chains and draws differ: \(2, 100\) and \(3, 100\)"),
    ],
)
def test_members_of_different_models_or_sizes_are_refused(members, change, message):
    formula, chains = change.get("formula", FORMULA), change.get("chains", CHAINS)
    bundle, _ = small_bundle(formula, table().head(change.get("rows", 30)))
    other = SubspacePosterior(bundle, random_draws(bundle, chains=chains, iterations=ITERATIONS))
    with pytest.raises(InputError, match=message):
        Mixture((members[0], other))


def test_a_mixture_of_nothing_is_refused():
    with pytest.raises(InputError, match="needs at least one posterior"):
        Mixture(())
