"""Chains in different modes: what is pooled, how much lies between them, and what is not sound."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest

from semistan.posterior.diagnostics import diagnose, eta_convergence, named_convergence, worst
from semistan.posterior.modes import pooled_modes
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.summary import summarise
from semistan.show.report.sampling import verdict_notice
from semistan.terminal import screen
from semistan.workflow.pool import not_passed
from support.drawn import random_draws
from support.pages import calm_sampler
from support.untrained import random_bundle

CHAINS, ITERATIONS = 4, 600
APART = np.array([[0.0], [0.0], [1.0], [1.0]])  # the last two chains are in another mode


@pytest.fixture(scope="module")
def drawn():
    """Chains that agree, with standard normal draws of b_x1 and b_x2 and what they have of eta."""
    bundle, rows = random_bundle("gaussian")
    draws = random_draws(bundle, chains=CHAINS, iterations=ITERATIONS, seed=3)
    sampler = draws.sampler | calm_sampler(CHAINS, ITERATIONS, 3)
    return bundle, rows, replace(draws, sampler=sampler)


def moved(drawn, by, name="b_x1", lp=0.0, **sampler):
    """A posterior whose chains' coefficient is moved by so many sds."""
    bundle, _, draws = drawn
    j = bundle.design.coefficients.index(name)
    theta = draws.theta.copy()
    theta[..., j] += by * theta[..., j].std()
    coefficients = {**draws.coefficients, name: theta[..., j]}
    lp = {"lp": draws.sampler["lp"] + lp}
    return SubspacePosterior(
        bundle,
        replace(
            draws, theta=theta, coefficients=coefficients, sampler=draws.sampler | lp | sampler
        ),
    )


def found_in(posterior, rows):
    judged = [named_convergence(posterior, name) for name in posterior.identified]
    checks = diagnose(posterior, worst(judged), eta_convergence(posterior, rows))
    return pooled_modes(posterior, rows, checks)


def share(by):
    """The share of the variance between two equal groups that are so many sds apart."""
    return (by / 2) ** 2 / (1 + (by / 2) ** 2)


def test_chains_that_agree_are_no_modes(drawn):
    assert found_in(moved(drawn, 0), drawn[1]) is None


@pytest.mark.parametrize("by", [1.0, 5.0])
def test_the_share_between_modes_is_that_of_two_normals(drawn, by):
    modes = found_in(moved(drawn, by * APART), drawn[1])
    assert modes.name == "b_x1"
    assert modes.largest == pytest.approx(share(by), abs=0.03)
    assert modes.rhat < 1.05
    assert modes.ess == pytest.approx(CHAINS * ITERATIONS, rel=0.2)
    assert "b_x2" in modes.agreed
    assert "sigma" in modes.agreed
    assert "b_x1" not in modes.agreed
    assert "b_Intercept" in modes.agreed or by == 5


def test_of_several_subspaces_only_what_lies_between_a_subspaces_chains_counts(drawn):
    one, other = moved(drawn, 4 * APART), moved(drawn, 4 * APART + 40)
    modes = found_in(Mixture((one, other)), drawn[1])
    # variances 1 within a chain, 4 between chains of a subspace, 400 between subspaces
    assert modes.largest == pytest.approx(4 / 405, rel=0.1)
    assert modes.ess == pytest.approx(2 * CHAINS * ITERATIONS, rel=0.2)


def drifting(drawn):
    return moved(drawn, 3 * APART + np.linspace(-2, 2, ITERATIONS))


def slow(drawn):
    walk = np.random.default_rng(0).normal(size=(CHAINS, ITERATIONS)).cumsum(axis=1)
    return moved(drawn, walk / 2)


def low(drawn):
    return moved(drawn, 3 * APART, lp=np.array([[0.0], [0.0], [0.0], [-8.0]]))


def diverging(drawn):
    found = np.zeros((CHAINS, ITERATIONS))
    found[0, 5] = 1
    return moved(drawn, 3 * APART, diverging=found)


def hopping(drawn):
    """The first chain goes over to the other mode once."""
    by = np.broadcast_to(3 * APART, (CHAINS, ITERATIONS)).copy()
    by[0, ITERATIONS // 2 :] = 3
    return moved(drawn, by)


def stuck(drawn):
    """The last chain has not moved."""
    found = moved(drawn, 3 * APART)
    theta = found.draws.theta.copy()
    theta[-1] = theta[-1, :1]
    names = found.design.coefficients
    moves = {name: theta[..., j] for j, name in enumerate(names)}
    draws = replace(found.draws, theta=theta, coefficients=found.draws.coefficients | moves)
    return SubspacePosterior(found.bundle, draws)


@pytest.mark.parametrize("posterior", [drifting, slow, low, diverging, hopping, stuck])
def test_what_is_not_sound_within_itself_has_failed(drawn, posterior):
    summary = summarise(posterior(drawn), drawn[1])
    assert summary.modes is None
    assert summary.failed
    assert summary.verdict().startswith("FAILED: ")


def test_a_single_chain_and_few_draws_are_not_pooled(drawn):
    bundle, rows, _ = drawn
    alone = SubspacePosterior(bundle, random_draws(bundle, chains=1, iterations=500))
    assert found_in(alone, rows) is None
    few = random_draws(bundle, chains=4, iterations=60, seed=3)
    few = replace(few, sampler=few.sampler | calm_sampler(4, 60, 3))
    assert found_in(moved((bundle, rows, few), 5 * APART), rows) is None
    without = replace(moved(drawn, 5 * APART).draws, sampler={})
    assert found_in(SubspacePosterior(bundle, without), rows) is None


def test_trees_at_their_limit_do_not_fail_modes(drawn):
    depth = np.full((CHAINS, ITERATIONS), float(drawn[2].max_treedepth))
    summary = summarise(moved(drawn, 3 * APART, tree_depth=depth), drawn[1])
    assert summary.modes
    assert not summary.failed
    assert "the sampler is slow" in summary.verdict()


def test_the_verdict_is_said_everywhere_and_is_neither_passed_nor_failed(drawn, capsys):
    summary = summarise(moved(drawn, 3 * APART), drawn[1])
    assert not summary.passed
    assert summary.failed == ()
    text = summary.verdict()
    assert text.startswith("POOLED MODES: Chains stay in modes of their own")
    assert f"{100 * share(3):.0f}% of b_x1's at most" in text
    (rhat,) = (check for check in summary.checks if check.name == "Rhat of coefficients")
    assert "within a chain at most 1.0" in rhat.finding
    screen.show_diagnostics(summary)
    printed = capsys.readouterr().out
    assert printed.split().count("Pooled") == 1
    assert "Warning" not in printed
    assert "All diagnostics passed" not in printed
    json.dumps(asdict(summary.modes), allow_nan=False)


def test_a_report_and_a_pool_of_runs_say_it_too(drawn):
    pooled, sound, bad = (
        summarise(found, drawn[1])
        for found in (moved(drawn, 3 * APART), moved(drawn, 0), drifting(drawn))
    )
    (notice,) = verdict_notice(pooled)
    assert (notice.level, notice.title) == ("note", "Pooled modes")
    assert notice.items[0][1] == pooled.modes.text()
    assert "are pooled with equal weights" in pooled.modes.text()
    (warning,) = verdict_notice(bad)
    assert warning.level == "warning"
    assert verdict_notice(sound) == ()
    runs = [
        SimpleNamespace(summary=summary, run=SimpleNamespace(path=path))
        for path, summary in (("runs/1", sound), ("runs/2", pooled), ("runs/3", bad))
    ]
    of_pooled, of_bad = not_passed(runs)
    assert of_pooled == f"runs/2: {pooled.verdict()}"
    assert of_bad.startswith("runs/3: FAILED: ")
