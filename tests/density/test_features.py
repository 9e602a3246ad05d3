"""Behind constant layers everything works with the heads, and answers as the whole networks do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from semistan.density import features as module
from semistan.density.features import at_features, features, head_problem
from semistan.density.predictor import linear_predictor, network_output
from semistan.density.problem import make_problem
from semistan.density.target import make_target, negative_log_posterior
from semistan.posterior.implied import implied
from semistan.posterior.orthogonal import network_along
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.posterior.predictors import parameter_draws, predictor_draws
from semistan.workflow.subspace import subspace_measures
from support.by_hand import naive_features, naive_networks
from support.drawn import random_draws
from support.untrained import random_bundle, states

OWN = "nn(v, hidden=[3, 2, 2], activation='sigmoid')"
SEVERAL = f"y ~ x1 + nn(u1, u2) + {OWN}, sigma ~ z + nn(u3)"


def frozen_bundle(name="gaussian", *, formula=None, frozen=1, **settings):
    return random_bundle(name, formula=formula, hidden=(4, 3), frozen=frozen, **settings)


@pytest.mark.parametrize("formula", [None, SEVERAL])
def test_without_constant_layers_nothing_changes(formula):
    bundle, rows = frozen_bundle(formula=formula, frozen=0)
    heads, same = at_features(bundle, rows)
    assert heads is bundle
    assert same is rows


@pytest.mark.parametrize("formula", [None, SEVERAL])
def test_twice_is_once(formula):
    heads, behind_them = at_features(*frozen_bundle(formula=formula))
    again, same = at_features(heads, behind_them)
    assert again is heads
    assert same is behind_them


@pytest.mark.parametrize("frozen", [1, 2])
@pytest.mark.parametrize("formula", [None, SEVERAL])
def test_the_heads_take_the_features_as_they_are(formula, frozen):
    bundle, rows = frozen_bundle(formula=formula, frozen=frozen)
    heads, behind_them = at_features(bundle, rows)
    m = heads.network.n_inputs
    assert behind_them.U.shape == (len(rows), m)
    assert np.array_equal(behind_them.U, features(bundle, rows.U))
    leading, Z = bundle.model.leading, (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    expected = [naive_features(leading, bundle.trained.w_frozen, row) for row in Z]
    assert np.allclose(behind_them.U, expected, rtol=1e-12, atol=1e-13)
    assert heads.units.u_loc is bundle.trained.h_loc
    assert heads.units.u_scale is bundle.trained.h_scale
    assert len(heads.trained.w_frozen) == 0
    assert heads.network == bundle.network
    assert behind_them.predictors is rows.predictors
    assert behind_them.y is rows.y
    w = np.random.default_rng(1).normal(size=(3, bundle.network.d))
    for predictor in dict.fromkeys(bundle.network.predictors):
        of = [name == predictor for name in bundle.network.predictors]
        expected = [naive_networks(bundle, rows.U, one)[:, of].sum(axis=1) for one in w]
        found = network_output(heads.network, heads.units, w, behind_them.U, predictor)
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_rows_are_taken_a_few_at_a_time(monkeypatch):
    bundle, rows = frozen_bundle(formula=SEVERAL)
    problem = make_problem(bundle.model, rows, "cpu")
    leading, w_frozen = bundle.model.leading, torch.tensor(bundle.trained.w_frozen)
    whole = features(bundle, rows.U)
    found = head_problem(problem, leading, w_frozen)
    monkeypatch.setattr(module, "NUMBERS", 7 * leading.whole.widest)
    assert [
        p.stop - p.start for p in module.pieces_of(30, leading.whole.widest, module.NUMBERS)
    ] == [7, 7, 7, 7, 2]
    assert np.allclose(features(bundle, rows.U), whole, rtol=1e-14)
    again = head_problem(problem, leading, w_frozen)
    assert torch.allclose(again.problem.U, found.problem.U, rtol=1e-12, atol=1e-13)
    assert list(module.pieces_of(3, 10**9, module.NUMBERS)) == [
        slice(0, 1),
        slice(1, 2),
        slice(2, 3),
    ]


@pytest.mark.parametrize("formula", [None, SEVERAL])
def test_a_problem_behind_constant_layers_has_standardised_features(formula):
    bundle, rows = frozen_bundle(formula=formula)
    problem = make_problem(bundle.model, rows, "cpu")
    found = head_problem(problem, bundle.model.leading, torch.tensor(bundle.trained.w_frozen))
    H = features(bundle, rows.U)
    assert np.array_equal(found.w_frozen, bundle.trained.w_frozen)
    assert np.allclose(found.h_loc, H.mean(axis=0), rtol=1e-12)
    assert np.allclose(found.h_scale, H.std(axis=0, ddof=1), rtol=1e-12)
    assert np.allclose(found.problem.U, (H - found.h_loc) / found.h_scale, rtol=1e-12)
    assert found.problem.network == bundle.network
    assert found.problem.y is problem.y
    completed = found.completed(bundle.trained)
    moved, behind_them = at_features(replace(bundle, trained=completed), rows)
    again = make_problem(moved.model, behind_them, "cpu")
    assert torch.allclose(again.U, found.problem.U, rtol=1e-12)


def test_a_feature_that_is_the_same_for_all_rows_keeps_its_unit():
    bundle, rows = frozen_bundle(activation="relu")
    w_frozen = bundle.trained.w_frozen.copy()
    w_frozen[12:14] = -1e3, 1e3  # biases: the first unit is never active, the second always
    w_frozen[3:6] = 0.0
    problem = make_problem(bundle.model, rows, "cpu")
    found = head_problem(problem, bundle.model.leading, torch.tensor(w_frozen))
    assert found.h_loc[:2].tolist() == [0.0, 1e3]
    assert found.h_scale[:2].tolist() == [1.0, 1.0]
    assert not found.problem.U[:, :2].any()
    assert (found.h_scale[2:] != 1).all()


@pytest.mark.parametrize("name", ["gaussian", "poisson", "bernoulli"])
def test_the_density_is_that_of_the_heads(name):
    bundle, rows = frozen_bundle(name)
    target, of_heads = make_target(bundle, rows), make_target(*at_features(bundle, rows))
    for q in torch.tensor(states(bundle)):
        assert negative_log_posterior(target, q) == negative_log_posterior(of_heads, q)


def test_predictions_are_those_of_the_whole_networks():
    bundle, rows = frozen_bundle(formula=SEVERAL)
    draws, units = random_draws(bundle, iterations=5), bundle.units
    w = bundle.subspace.lift(draws.flat(draws.phi))
    f = np.array([naive_networks(bundle, rows.U, one) for one in w])
    eta = units.eta_loc + units.eta_scale * (f[..., 0] + f[..., 1])
    eta += draws.flat(draws.theta) @ (rows.X - units.x_loc).T
    assert np.allclose(posterior_linpred(SubspacePosterior(bundle, draws), rows), eta, rtol=1e-11)
    loc = units.columns["sigma"][0]
    b = draws.flat(draws.coefficients["b_sigma_z"])[:, None]
    sigma = units.location(bundle.family, "sigma") + f[..., 2]
    sigma += b @ (rows.predictors["sigma"].X - loc).T
    found = predictor_draws(bundle, draws, rows, "sigma", "all", None)
    assert np.allclose(found, sigma, rtol=1e-11)
    assert np.allclose(parameter_draws(bundle, draws, rows)["sigma"], np.exp(sigma), rtol=1e-11)


def test_with_another_engine_too():
    bundle, rows = frozen_bundle(formula=SEVERAL)
    draws = random_draws(bundle, iterations=5)

    def engine(X, U, phi, theta):
        assert U is rows.U, "an engine takes the networks' inputs"
        heads, behind_them = at_features(bundle, rows)
        arguments = (heads.network, heads.units, heads.trained, X, behind_them.U)
        return linear_predictor(*arguments, phi, theta)

    for name in (None, "sigma"):
        plain = predictor_draws(bundle, draws, rows, name, "all", None)
        assert np.allclose(predictor_draws(bundle, draws, rows, name, "all", engine), plain)


@pytest.mark.parametrize("formula", [None, SEVERAL])
def test_measures_and_figures_are_those_of_the_heads(formula):
    bundle, rows = frozen_bundle(formula=formula)
    heads, behind_them = at_features(bundle, rows)
    phi = random_draws(bundle, iterations=5).phi
    along = network_along(bundle, rows, phi, (0,))
    assert np.array_equal(along, network_along(heads, behind_them, phi, (0,)))
    figures, expected = (
        implied(b, r, np.random.default_rng(1)) for b, r in ((bundle, rows), (heads, behind_them))
    )
    assert [item.text for item in figures] == [item.text for item in expected]
    assert [item.sd for item in figures] == [item.sd for item in expected]
    if formula is None:
        tables = [subspace_measures(b, r) for b, r in ((bundle, rows), (heads, behind_them))]
        assert tables[0].equals(tables[1])
