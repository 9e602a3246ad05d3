"""Rows left out by sampling without them, against PSIS where that is reliable, and each other.

Elliptical slice sampling computes in PyTorch: nothing is compiled.
"""

import json
import shutil

import numpy as np
import pytest

import semistan
from semistan.density.columns import lp_constant
from semistan.density.target import log_posteriors, make_target
from semistan.errors import InputError
from semistan.model.config import SampleConfig
from semistan.posterior.draws import read_chains
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.scoring.loo import leave_one_out
from semistan.posterior.scoring.loo_repairs import read_repairs
from semistan.posterior.scoring.moment_match import match_moments, unconstrained
from semistan.show.report.results import results_of
from semistan.workflow.check import check
from semistan.workflow.fit import fit_model
from semistan.workflow.reloo import without_rows
from support.command import command_in
from support.sealed import rewrite
from support.small import small_config, small_frame

SAMPLE = {"method": "elliptical-slice", "chains": 2, "warmup": 200, "draws": 1000, "seed": 3}
OUTLIER = 4


def fitted(folder, name, *, sampling=SAMPLE, **settings):
    table = small_frame(30)
    table.loc[OUTLIER, ["x", "y"]] = (-40.0, 100.0)
    config = small_config("y ~ x + nn(u, v)", train__epochs=10, **settings)
    sample = SampleConfig.model_validate(sampling)
    return fit_model(config.model_copy(update={"sample": sample}), table, out=folder / name).run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reloo")


@pytest.fixture(scope="module")
def run(folder):
    return fitted(folder, "run")


pytestmark = pytest.mark.slow


def mcse(run, position):
    """The error of elpd of a row, from the spread between quarters of the draws."""
    density = log_lik(read_posterior(run), run.rows().take(np.array([position])))[:, 0]
    parts = [np.log(np.exp(-each).mean()) for each in np.array_split(density, 4)]
    return np.std(parts) / 2


def test_the_coordinates_are_those_of_the_density_that_was_sampled(run):
    target = make_target(run.bundle, run.rows())
    lp = np.concatenate([chain["lp__"] for chain in read_chains(run)])
    found = log_posteriors(target, unconstrained(run)) + lp_constant(target)
    assert found == pytest.approx(lp, abs=1e-5)


def test_rows_that_psis_leaves_out_reliably_have_its_elpd(run):
    rows = run.rows()
    plain = leave_one_out(read_posterior(run), rows)
    chosen = [0, 7]
    assert (plain.pareto_k[chosen] < 0.5).all()
    said = []
    found = without_rows(run, plain, rows, positions=chosen, say=said.append)
    for i in chosen:
        assert found.elpd[i] == pytest.approx(plain.elpd[i], abs=6 * mcse(run, i) + 0.02)
        assert found.elpd[i] != plain.elpd[i]
    others = np.setdiff1d(np.arange(30), chosen)
    assert np.array_equal(found.elpd[others], plain.elpd[others])
    assert said[0] == "sampling without row 1 (1 of 2)"
    assert "in the subspace of all rows: rows 1, 8" in found.text()


def test_moments_and_refits_agree_on_an_outlier(run):
    rows = run.rows()
    plain = leave_one_out(read_posterior(run), rows)
    assert OUTLIER in plain.unreliable
    matched = match_moments(plain, unconstrained(run), run.bundle, rows)
    refitted = without_rows(run, plain, rows, positions=[OUTLIER])
    assert matched.pareto_k[OUTLIER] < plain.pareto_k[OUTLIER]
    assert matched.elpd[OUTLIER] == pytest.approx(refitted.elpd[OUTLIER], rel=0.1)
    assert abs(plain.elpd[OUTLIER] - refitted.elpd[OUTLIER]) > 1


def test_the_command_mends_says_how_and_keeps_it(run, folder, monkeypatch, capsys):
    command = command_in(folder, monkeypatch, capsys)
    code, first, err = command("loo", "run", "--moment-match", "--reloo")
    assert code == 0, err
    assert "Found by moment matching: rows" in err
    assert "All 30 Pareto k are below" in err
    assert "conditional on the subspace" in err
    _, again, said = command("loo", "run")
    assert again == first
    assert "Found by moment matching: rows" in said
    assert check(run.path).passed
    plain = leave_one_out(read_posterior(run), run.rows())
    assert results_of(run, None, None).repaired["by moment matching"].keys() == set(
        plain.unreliable
    )
    kept = json.loads((run.path / "loo" / "manifest.json").read_text())["rows"]
    rewrite(run.path / "loo", lambda content: content | {"rows": [{"row": 0}]})
    with pytest.raises(InputError, match=r"damaged: rows\.0"):
        semistan.loo(run)
    rewrite(run.path / "loo", lambda content: content | {"rows": kept, "draws": "of others"})
    assert read_repairs(run) == {}
    shutil.rmtree(run.path / "loo")


def test_the_moments_of_several_subspaces_are_not_matched(folder):
    fewer = SAMPLE | {"warmup": 100, "draws": 400}
    several = fitted(folder, "several", sampling=fewer, subspace__subspaces=2)
    with pytest.raises(InputError, match=r"densities of 2 subspaces .*subspaces/1"):
        semistan.loo(several, moment_match=True)
    plain = semistan.loo(several)
    found = without_rows(several, plain, several.rows(), positions=[3])
    assert found.elpd[3] == pytest.approx(plain.elpd[3], abs=0.1)
