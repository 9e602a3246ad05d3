"""Effects, marginal effects and importance compute a network once where its inputs stay."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from semistan.model.design import apply_design
from semistan.posterior import predictors
from semistan.posterior.draws import completed as completed_draws
from semistan.posterior.effects.columns import spared
from semistan.posterior.effects.effect import partial_dependence
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from support.drawn import random_draws
from support.small import small_bundle, small_frame
from support.untrained import completed_bundle

FORMULA = "y ~ x + C(g) + nn(log(z)) + nn(u), sigma ~ x + nn(v)"
SHARED = "y ~ x + nn(u, shared='f'), sigma ~ nn(u, shared='f') + nn(C(g))"
GRID = 4


@cache
def one(formula=FORMULA, seed=0):
    bundle, _ = small_bundle(formula)
    return SubspacePosterior(bundle, random_draws(bundle, iterations=4, seed=seed))


def linearised():
    plain = one()
    return SubspacePosterior(plain.bundle, replace(plain.draws, around=plain.draws.phi[:, 0]))


POSTERIORS = {
    "one": one,
    "shared": lambda: one(SHARED),
    "mixture": lambda: Mixture((one(), one(seed=1)), (1.0, 0.4)),
    "linearised": linearised,
    "multiplied": lambda: one("y ~ x + C(g) + nn(u) + z:nn(v)"),
    "residual": lambda: one(
        "y ~ x + C(g) + nn(u, v, hidden=[3, 3], skip=True, norm=True), sigma ~ nn(u)"
    ),
}


def dependence(posterior, names, scale="response"):
    generator = np.random.default_rng(1)
    return partial_dependence(
        posterior, small_frame(), names, scale=scale, resolution=GRID, curves=5, generator=generator
    )


def learnt(posterior):
    """All that is asked of the columns, as arrays."""
    frame, generator = small_frame(), np.random.default_rng(1)
    effects = [dependence(posterior, name) for name in ("x", "u")]
    yield from (part for effect in effects for part in (effect.draws, effect.curves))
    asked = {"variables": ["x", "u", "g"], "generator": generator}
    slopes = average_marginal_effects(posterior, frame, **asked)
    importance = permutation_importance(posterior, frame, repeats=1, **asked)
    for table in (slopes, importance.drop(columns="Relative")):
        yield table.select_dtypes("number").to_numpy()


@pytest.fixture
def computed(monkeypatch):
    """Count how often the networks of a predictor are computed."""
    counts, plain = Counter(), predictors.network_output

    def counting(spec, units, w, U, predictor, **options):
        counts[predictor] += 1
        return plain(spec, units, w, U, predictor, **options)

    monkeypatch.setattr(predictors, "network_output", counting)
    return counts


@pytest.mark.parametrize("kind", POSTERIORS)
def test_answers_are_those_of_networks_computed_each_time(kind, monkeypatch):
    posterior = POSTERIORS[kind]()
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 20 * posterior.size)
    once = list(learnt(posterior))
    for own in (SubspacePosterior, Mixture):
        monkeypatch.setattr(own, "knowing", lambda self, *_: self)
    for found, expected in zip(once, learnt(posterior), strict=True):
        assert np.array_equal(found, expected)


def completed():
    """With the rows of its bundle."""
    bundle, rows = completed_bundle("poisson", formula="y ~ x1 + nn(u1, u2)")
    draws = random_draws(bundle, iterations=4)
    psi = np.random.default_rng(1).normal(size=(2, 4, bundle.completion.K))
    return SubspacePosterior(bundle, completed_draws(bundle, draws, psi)), rows.frame


@pytest.mark.parametrize("kind", [*POSTERIORS, "completed"])
def test_slopes_are_those_of_networks_computed_at_both_ends(kind, monkeypatch):
    posterior, frame = completed() if kind == "completed" else (POSTERIORS[kind](), small_frame())
    found = average_marginal_effects(posterior, frame).select_dtypes("number")
    for own in (SubspacePosterior, Mixture):
        monkeypatch.setattr(own, "near", lambda self, *_: self)
    expected = average_marginal_effects(posterior, frame).select_dtypes("number")
    assert found.to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "mu", "sigma"), [("x", 1, 1), ("g", 1, 1), ("u", GRID, 1), ("z", GRID, 1)]
)
def test_an_effect_computes_the_networks_of_other_columns_once(computed, name, mu, sigma):
    dependence(one(), name, "linpred")
    assert computed == {"mu": mu, "sigma": sigma}


def test_marginal_effects_and_importance_compute_networks_for_their_own_columns(computed):
    posterior, frame, names = one(), small_frame(), ["x", "g", "u"]
    average_marginal_effects(posterior, frame, variables=names, scale="linpred")
    assert computed == {"mu": 1, "sigma": 1}, "and once with derivatives"
    computed.clear()
    permutation_importance(
        posterior, frame, variables=names, repeats=5, generator=np.random.default_rng(1)
    )
    assert computed == {"mu": 1 + 5, "sigma": 1}


def test_networks_at_other_inputs_are_computed_and_at_some_of_the_rows_are_not(computed):
    posterior, frame = one(), small_frame()
    rows, others = (
        apply_design(posterior.design, some, response=False)
        for some in (frame, frame.assign(u=frame["u"] + 0.1))
    )
    known = posterior.knowing(rows, ["mu", "sigma"])
    for some in (others, rows.first(7), rows.take(np.array([9, 3, 3])), rows):
        for name in (None, "sigma"):
            found = posterior_linpred(known, some, dpar=name)
            assert np.array_equal(found, posterior_linpred(posterior, some, dpar=name))
    assert computed == {"mu": 1 + 1 + 4, "sigma": 1 + 4}


def test_an_engine_of_the_users_computes_eta_each_time(computed):
    calls = []

    def engine(X, U, phi, theta):
        calls.append(U)
        return np.zeros((len(phi), len(X)))

    dependence(replace(one(), engine=engine), "x", "linpred")
    assert len(calls) == GRID
    assert computed == {"sigma": 1}


def test_which_predictors_are_spared():
    design = one().design
    assert spared(design, ["x", "g"]) == ("mu", "sigma")
    assert spared(design, ["z"]) == spared(design, ["u", "x"]) == ("sigma",)
    assert spared(design, ["v"]) == ("mu",)
    assert spared(one(SHARED).design, ["u"]) == ()
    assert spared(one(SHARED).design, ["g"]) == ("mu",)
