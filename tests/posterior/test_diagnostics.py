"""What is judged: the log density as well, and which chains stay apart."""

from dataclasses import replace

import numpy as np
import pytest

from semistan.posterior.diagnostics import chains_apart, convergence, diagnose, worst
from semistan.posterior.posterior import Mixture, SubspacePosterior
from support.drawn import random_draws
from support.untrained import random_bundle


@pytest.fixture(scope="module")
def drawn():
    bundle, _ = random_bundle("gaussian")
    return bundle, random_draws(bundle, chains=4, iterations=1000)


def checks(posterior):
    return {check.name: check for check in diagnose(posterior, worst([]), worst([]))}


def with_lp(drawn, lp):
    bundle, draws = drawn
    return SubspacePosterior(bundle, replace(draws, sampler=draws.sampler | {"lp": lp}))


def test_the_log_density_has_lines_of_its_own(drawn):
    found = checks(SubspacePosterior(*drawn))
    assert found["Rhat of lp__"].passed
    assert found["ESS of lp__"].passed


def test_a_log_density_that_does_not_mix_fails(drawn):
    noise = np.random.default_rng(0).normal(size=(4, 1000))
    found = checks(with_lp(drawn, noise + np.array([[0.0], [0.0], [9.0], [0.0]])))
    check = found["Rhat of lp__"]
    assert not check.passed
    assert check.finding.endswith("; chain 3 stays apart by 9.0 sds of lp__")
    slow = checks(with_lp(drawn, np.cumsum(noise, axis=1)))
    assert not slow["ESS of lp__"].passed
    assert slow["Rhat of coefficients"].passed


def test_a_method_without_a_log_density_is_not_judged_by_it(drawn):
    bundle, draws = drawn
    posterior = SubspacePosterior(bundle, replace(draws, sampler={}))
    assert not any("lp__" in name for name in checks(posterior))


def test_chains_that_do_not_move_are_far_apart_or_tell_nothing():
    assert convergence(np.array([[0.0], [1.0]]).repeat(100, axis=1)).rhat > 1e6
    assert np.isnan(convergence(np.zeros((2, 100))).rhat)


def test_each_chain_apart_is_named_with_what_moved_most():
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(2, 4, 500))
    assert chains_apart({"a": a, "b": b}) == {}
    a[1] += 2
    b[1] -= 5
    b[3] += 3
    found = chains_apart({"a": a, "b": b})
    assert {chain: name for chain, (name, _) in found.items()} == {2: "b", 4: "b"}
    assert found[2][1] == pytest.approx(5, abs=0.3)
    assert chains_apart({"a": a[:1]}) == {}
    assert chains_apart({"constant": np.ones((4, 9))}) == {}


def test_only_the_chains_of_one_subspace_are_compared(drawn):
    one = SubspacePosterior(*drawn)
    far = with_lp(drawn, one.draws.sampler["lp"] + 100)
    assert checks(Mixture((one, far)))["Rhat of lp__"].passed
    lp = one.draws.sampler["lp"] + np.array([[0.0], [4.0], [0.0], [0.0]])
    check = checks(Mixture((one, with_lp(drawn, lp))))["Rhat of lp__"]
    mean = np.sqrt((convergence(lp).rhat ** 2 + convergence(one.draws.sampler["lp"]).rhat ** 2) / 2)
    assert check.finding.startswith(f"largest Rhat {mean:.4f}")
    assert "chain 2 of subspace 2 stays apart" in check.finding


def test_trees_at_their_limit_fail_only_chains_that_do_not_mix(drawn, monkeypatch):
    bundle, draws = drawn
    depth = draws.sampler["tree_depth"].copy()
    depth[0, :160] = draws.max_treedepth
    deep = SubspacePosterior(bundle, replace(draws, sampler=draws.sampler | {"tree_depth": depth}))
    check = checks(deep)["tree depth"]
    assert check.passed
    assert check.costly
    assert check.finding == "160 of 4000 transitions hit the maximum tree depth of 10"
    assert not checks(SubspacePosterior(*drawn))["tree depth"].costly
    depth[0, 40:160] = 0
    few = SubspacePosterior(bundle, replace(draws, sampler=draws.sampler | {"tree_depth": depth}))
    assert not checks(few)["tree depth"].costly
    apart = np.random.default_rng(0).normal(size=(4, 1000)) + np.array([[9.0], [0.0], [0.0], [0.0]])
    lp = replace(deep.draws, sampler=deep.draws.sampler | {"lp": apart})
    unmixed = SubspacePosterior(bundle, lp)
    assert not checks(unmixed)["tree depth"].passed
    monkeypatch.setattr("semistan.posterior.diagnostics.are_cut", lambda *_: True)  # by intention
    assert not checks(deep)["tree depth"].costly
    assert checks(unmixed)["tree depth"].passed
