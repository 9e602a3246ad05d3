"""Chains whose transitions diverge are drawn anew with smaller steps, if that is left open."""

import numpy as np
import pytest

from semistan.infer import trees
from semistan.infer.trees import Trees
from semistan.posterior.draws import read_draws
from semistan.posterior.run import read_run
from semistan.workflow import smaller_steps as module
from semistan.workflow.fit import fit_model
from semistan.workflow.sample import sample
from semistan.workflow.smaller_steps import smaller
from semistan.workflow.watch import Watch
from support.small import small_config, small_frame

pytestmark = pytest.mark.lengthy

COARSE = 0.2  # a target acceptance rate with which transitions diverge
SMALLER = smaller(COARSE)


def fitted(folder, subspaces=1, **options):
    """Return a fit by steps that are too large where that is left open, and what was said of it."""
    said = []
    sample = {"method": "nuts-torch", "chains": 2, "warmup": 20, "draws": 20, "seed": 3} | options
    subspace = {"k": 2, "subspaces": subspaces}
    config = small_config(subspace=subspace, sample=sample, train={"epochs": 50})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "BENT", Trees(COARSE, 6))
        fit = fit_model(config, small_frame(), out=folder, watch=Watch(said.append))
    return fit, [line for line in said if "diverged" in line]


def phi(fit):
    return [member.draws.phi for member in fit.posterior.members]


@pytest.fixture(scope="module")
def finer(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("steps") / "run")


def test_the_draws_are_as_if_smaller_steps_had_been_asked_for(finer, tmp_path):
    fit, said = finer
    assert len(said) == 1
    assert f"(adapt_delta {SMALLER:g} instead of {COARSE:g})" in said[0]
    assert fit.run.options.adapt_delta == SMALLER
    asked, nothing = fitted(tmp_path / "asked", adapt_delta=SMALLER, max_treedepth=6)
    assert nothing == []
    assert np.array_equal(phi(fit), phi(asked))
    assert read_run(fit.run.path).missing == []


@pytest.mark.parametrize("options", [{"adapt_delta": COARSE}, {"budget": 1e-9}])
def test_steps_stay_where_they_were_given_or_time_is_short(options, finer, tmp_path):
    fit, said = fitted(tmp_path / "run", max_treedepth=6, **options)
    assert fit.posterior.sampler["diverging"].any()
    assert (said, fit.run.options.adapt_delta) == ([], COARSE)
    again = sample(read_run(fit.run.path))
    assert np.array_equal(phi(fit), phi(again))
    assert not np.array_equal(phi(fit), phi(finer[0]))


def test_what_is_interrupted_before_the_chains_are_drawn_anew_is_completed(
    finer, tmp_path, monkeypatch
):
    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "recorded", killed)
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "run")
    monkeypatch.undo()
    run = read_run(tmp_path / "run")
    assert (run.missing, run.options.adapt_delta) == ([1, 2], COARSE)
    assert np.array_equal(phi(sample(run)), phi(finer[0]))


def test_of_several_subspaces_those_that_diverged_are_drawn_anew(tmp_path, monkeypatch):
    before = {}

    def diverged(member):
        before[member.path.name] = read_draws(member).phi
        return 3 * (member.path.name == "2")

    monkeypatch.setattr(module, "diverged", diverged)
    fit, said = fitted(tmp_path / "run", subspaces=2)
    assert len(said) == 1 and said[0].startswith("3 transitions of subspace 2 diverged")
    targets = [member.options.adapt_delta for member in fit.run.members]
    assert targets == [0.98, 0.99] == read_run(fit.run.path).manifest.targets
    same = [np.array_equal(a, b) for a, b in zip(phi(fit), before.values(), strict=True)]
    assert same == [True, False]


def test_approximations_stay(tmp_path):
    _, said = fitted(tmp_path / "run", method="laplace")
    assert said == []
