"""After the first part of a fit: longer chains where they agree, more where they do not."""

import json

import numpy as np
import pytest

from semistan.infer.folder import start_file
from semistan.model.config import SampleConfig
from semistan.posterior.run import read_run
from semistan.subspace.start_values import curve_values
from semistan.workflow import modes as module
from semistan.workflow import sample as workflow
from semistan.workflow.fit import fit_model
from semistan.workflow.modes import FIRST, has_first_part
from semistan.workflow.reproduce import reproduce
from semistan.workflow.sample import sample
from semistan.workflow.watch import Watch
from support.small import small_config, small_frame
from support.untrained import random_bundle

ALL = {"construction": "full"}


def fitted(folder, disagree, **options):
    """Return a fit of all weights, and what was said, where chains are (not) taken to agree."""
    said = []
    config = small_config("y ~ x + nn(u, v)", sample=options, subspace=ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DISAGREE", disagree)
        fit = fit_model(config, small_frame(), out=folder, watch=Watch(said.append))
    return fit, [line for line in said if "Rhat of the linear predictor" in line]


@pytest.fixture(scope="module")
def longer(toolchain, tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("modes") / "longer", np.inf)


@pytest.fixture(scope="module")
def more(toolchain, tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("modes") / "more", 0)


@pytest.mark.cmdstan
def test_chains_that_agree_go_on(longer):
    fit, said = longer
    assert fit.posterior.draws.phi.shape[:2] == (4, 1000)
    assert len(said) == 1 and said[0].endswith(f"after {FIRST} draws; each chain goes on to 1000")
    assert fit.run.facts()["Draws"].startswith("4 chains x 1000 after")
    assert "--more" not in fit.run.facts()["Draws"]
    assert fit.run.manifest.planned is None


@pytest.mark.cmdstan
def test_chains_that_do_not_are_joined_by_others(longer, more):
    fit, said = more
    assert fit.posterior.draws.phi.shape[:2] == (12, FIRST)
    assert len(said) == 1 and "8 more follow" in said[0]
    before = longer[0].posterior.draws.phi[:, :FIRST]
    assert np.array_equal(fit.posterior.draws.phi[:4], before)
    starts = {start_file(fit.run.path, chain).read_bytes() for chain in range(1, 13)}
    assert len(starts) == 12
    assert read_run(fit.run.path).csv_files()[11].name == "chain-12.csv"
    assert json.loads((fit.run.path / "manifest.json").read_text())["first"] == 4


@pytest.mark.cmdstan
@pytest.mark.lengthy
@pytest.mark.parametrize("which", [pytest.param("longer", marks=pytest.mark.slow), "more"])
def test_both_are_reproduced_part_by_part(which, request):
    found = reproduce(request.getfixturevalue(which)[0].run)
    assert found["same"].all(), found


@pytest.mark.cmdstan
def test_without_time_for_more_chains_there_are_those_that_are_there(toolchain, tmp_path):
    fit, said = fitted(tmp_path / "run", 0, budget=1e-6)
    assert fit.posterior.draws.phi.shape[:2] == (4, 1000)
    assert said[0].endswith("each chain goes on to 1000")


@pytest.mark.cmdstan
def test_what_is_interrupted_after_the_decision_is_completed(more, tmp_path, monkeypatch):
    copy, draw = tmp_path / "run", workflow.draw_missing

    def first_only(run, *args, **options):
        if run.manifest.planned is None:
            raise KeyboardInterrupt
        draw(run, *args, **options)

    monkeypatch.setattr(workflow, "draw_missing", first_only)
    with pytest.raises(KeyboardInterrupt):
        fitted(copy, 0)
    monkeypatch.undo()
    assert read_run(copy).missing == list(range(5, 13))
    fit = sample(read_run(copy))
    assert np.array_equal(fit.posterior.draws.phi, more[0].posterior.draws.phi)


@pytest.mark.parametrize(
    ("options", "subspace", "compared"),
    [
        ({}, ALL, True),
        ({"chains": 4}, ALL, False),
        ({"draws": 1000}, ALL, False),
        ({"method": "laplace"}, ALL, False),
        ({}, {"k": 3}, False),
    ],
    ids=["defaults", "chains", "draws", "an approximation", "a subspace"],
)
def test_chains_are_compared_where_nothing_else_was_asked_for(options, subspace, compared):
    bundle, _ = random_bundle("gaussian")
    config = small_config("y ~ x + nn(u, v)", sample=options, subspace=subspace)
    model = bundle.model.replace(config=config)
    assert has_first_part(model, config.sample) is compared


def test_a_third_of_the_chains_start_where_they_would_alone():
    bundle, _ = random_bundle("gaussian")
    few, many = (np.array([v["phi"] for v in curve_values(bundle, c)]) for c in (4, 12))
    np.testing.assert_allclose(many[:4], few)
    assert len(np.unique(many.round(9), axis=0)) == 12


def test_auto_is_four_chains():
    assert SampleConfig().chain_count == 4
    assert SampleConfig(chains=7).chain_count == 7
