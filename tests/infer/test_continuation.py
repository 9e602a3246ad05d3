"""Chains that go on: their file, their draws, and what interrupts a continuation."""

import json
import shutil
from dataclasses import replace

import cmdstanpy
import numpy as np
import pytest

from semistan.errors import InputError
from semistan.infer.chain_store import chain_file
from semistan.infer.continuation import joined, parsed
from semistan.model.config import SampleConfig
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import read_run
from semistan.workflow import extend as module
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import read_fitted, sample
from semistan.workflow.watch import Watch
from support.untrained import random_bundle

OPTIONS = SampleConfig(chains=2, warmup=200, draws=150, seed=5)
NUMBERS = "lp__,stepsize__,x\n"


def chain(draws, seconds):
    return (
        f"# num_samples = {len(draws)} (Default)\n{NUMBERS}# Step size = 0.5\n"
        + "".join(f"-1,0.5,{x}\n" for x in draws)
        + f"# \n#  Elapsed Time: 1 seconds (Warm-up)\n#    {seconds} seconds (Sampling)\n"
    ).encode()


def test_two_files_become_one_as_if_drawn_at_once():
    assert joined(chain([1, 2], 0.25), chain([3, 4, 5], 0.5)).replace(b" (Default)", b"") == (
        chain([1, 2, 3, 4, 5], 0.75).replace(b" (Default)", b"").replace(b": 1 s", b": 2 s")
    )


@pytest.fixture(scope="module")
def run(toolchain, tmp_path_factory):
    bundle, rows = random_bundle("gaussian")
    folder = tmp_path_factory.mktemp("more") / "run"
    return sample(new_run(bundle, rows, folder, OPTIONS, toolchain), toolchain).run


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def longer(run, tmp_path_factory):
    """The run with 250 more draws of each chain, and what was said."""
    folder, said = tmp_path_factory.mktemp("longer") / "run", []
    shutil.copytree(run.path, folder)
    return sample(read_run(folder), more=250, watch=Watch(said.append)), said


def test_all_draws_are_used_and_the_first_are_those_before(run, longer):
    fit, said = longer
    draws = fit.posterior.draws
    assert draws.phi.shape[:2] == (2, 400)
    before = read_posterior(run).draws
    assert np.array_equal(draws.phi[:, :150], before.phi)
    assert not np.array_equal(draws.phi[:, 150:300], before.phi)
    assert any("by which each chain was continued" in line for line in said)
    assert "the last 250 by --more" in fit.run.facts()["Draws"]
    assert not list(fit.run.path.rglob("more")) + list(fit.run.path.rglob("joined"))
    assert read_fitted(fit.run.path).summary.rows == fit.summary.rows


def test_a_continuation_has_the_step_size_and_begins_at_the_last_draw(run, longer):
    fit, _ = longer
    for old, new in zip(run.csv_files(), fit.run.csv_files(), strict=True):
        before, after = parsed(old.read_bytes()), parsed(new.read_bytes())
        assert after.rows[:150] == before.rows
        place = before.columns.index("stepsize__")
        sizes = {float(row.split(",")[place]) for row in after.rows}
        assert max(sizes) == pytest.approx(min(sizes), rel=1e-8)
        assert "num_samples = 400" in "\n".join(after.head)


def test_cmdstanpy_reads_the_longer_chains(longer):
    fit, _ = longer
    again = cmdstanpy.from_csv([str(path) for path in fit.run.csv_files()], method="sample")
    assert again.num_draws_sampling == 400


def test_the_same_continuation_gives_the_same_draws_and_another_goes_on(longer, copy):
    fit, _ = longer
    sample(read_run(copy), more=250)
    again = read_posterior(copy).draws
    assert np.array_equal(again.phi, fit.posterior.draws.phi)
    twice = sample(read_run(copy), more=10).posterior.draws
    assert np.array_equal(twice.phi[:, :400], again.phi)
    assert twice.phi.shape[1] == 410


@pytest.mark.parametrize("where", ["first chain", "staged", "recorded"])
def test_an_interrupted_continuation_is_completed(where, longer, copy, monkeypatch):
    """It stops after one continuation, before the manifest knows all, or before the files move."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    if where == "first chain":
        complete = module.complete_all
        monkeypatch.setattr(
            module, "complete_all",
            lambda filed, *a, **k: (complete(filed[:1], *a, **k), stop()),
        )  # fmt: skip
    elif where == "staged":
        monkeypatch.setattr(module, "_taken", stop)
    else:
        monkeypatch.setattr(module, "settle", stop)
    with pytest.raises(KeyboardInterrupt):
        sample(read_run(copy), more=250)
    monkeypatch.undo()
    fit = sample(read_run(copy))
    assert np.array_equal(fit.posterior.draws.phi, longer[0].posterior.draws.phi)
    assert read_fitted(copy).summary.rows == longer[0].summary.rows


def test_old_and_new_draws_that_differ_are_said(longer):
    fit, _ = longer
    draws = fit.posterior.draws
    assert "warning" not in module.agreement_text(fit.run, [draws]).replace("warning: they", "")
    moved = {name: x.copy() for name, x in draws.coefficients.items()}
    for x in moved.values():
        x[:, 150:] += 10 * x.std()
    text = module.agreement_text(fit.run, [draws, replace(draws, coefficients=moved)])
    assert text.startswith("warning: they do not agree")


@pytest.mark.parametrize(("draws", "words"), [(0, "at least 1"), (-5, "at least 1")])
def test_a_number_that_is_none_is_refused(draws, words, run):
    with pytest.raises(InputError, match=words):
        module.ask_for_more(run, draws)


def test_a_run_that_lacks_a_chain_is_completed_first(copy):
    chain_file(copy / "chains", 2).unlink()
    with pytest.raises(InputError, match="lacks chains"):
        module.ask_for_more(read_run(copy), 10)
    assert "more" not in json.loads((copy / "manifest.json").read_text())
