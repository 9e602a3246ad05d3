"""More draws for a run of several subspaces: each goes on as the run that it is."""

import shutil

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import read_run
from semistan.workflow import extend as module
from semistan.workflow.fit import fit_model
from semistan.workflow.sample import read_fitted, sample
from semistan.workflow.watch import Watch
from support.small import small_config, small_frame

DRAWS, MORE = 80, 50
SAMPLE = {"chains": 2, "warmup": 150, "draws": DRAWS, "seed": 3}

pytestmark = pytest.mark.cmdstan


@pytest.fixture(scope="module")
def run(toolchain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("subspaces") / "run"
    several = small_config("y ~ x + nn(u, v)", sample=SAMPLE, subspace__subspaces=2)
    return fit_model(several, small_frame(), out=folder).run


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def longer(run, tmp_path_factory):
    """The run with more draws of each chain, and what was said."""
    folder, said = tmp_path_factory.mktemp("longer") / "run", []
    shutil.copytree(run.path, folder)
    return sample(read_run(folder), more=MORE, watch=Watch(said.append)), said


def test_all_subspaces_have_more_draws_after_those_before(run, longer):
    fit, said = longer
    for before, member in zip(read_posterior(run).members, fit.posterior.members, strict=True):
        assert member.draws.phi.shape[:2] == (2, DRAWS + MORE)
        assert np.array_equal(member.draws.phi[:, :DRAWS], before.draws.phi)
    assert fit.posterior.size == 2 * 2 * (DRAWS + MORE)
    assert any(f"the {MORE} draws by which each chain was continued" in line for line in said)
    assert fit.run.config.sample.draws == DRAWS + MORE
    assert run.config.sample.draws == DRAWS
    assert f"the last {MORE} by --more" in fit.run.facts()["Draws"]
    assert read_fitted(fit.run.path).summary.rows == fit.summary.rows


def test_a_subspace_goes_on_as_it_would_alone(run, longer, tmp_path):
    for number, member in enumerate(longer[0].posterior.members, start=1):
        alone = tmp_path / str(number)
        shutil.copytree(run.path / "subspaces" / str(number), alone)
        again = sample(read_run(alone), more=MORE).posterior
        assert np.array_equal(again.draws.phi, member.draws.phi)
    one, other = (member.draws.phi[:, DRAWS:] for member in longer[0].posterior.members)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("where", ["second subspace", "recorded"])
def test_an_interrupted_continuation_is_completed(where, longer, copy, monkeypatch):
    """It stops between the subspaces, or before the manifest of the whole knows of their draws."""
    name = {"second subspace": "_part_with_more", "recorded": "_recorded"}[where]
    whole = getattr(module, name)

    def stops(run, *arguments):
        if run.parts if where == "recorded" else run.path.name == "2":
            raise KeyboardInterrupt
        return whole(run, *arguments)

    monkeypatch.setattr(module, name, stops)
    with pytest.raises(KeyboardInterrupt):
        sample(read_run(copy), more=MORE)
    monkeypatch.undo()
    if where == "second subspace":
        with pytest.raises(InputError, match=rf"have \[{DRAWS + MORE}, {DRAWS}\] draws"):
            read_posterior(copy)
    with pytest.raises(InputError, match="is being continued by 50 draws"):
        sample(read_run(copy), more=MORE + 1)
    fit = sample(read_run(copy))
    assert read_fitted(copy).summary.rows == longer[0].summary.rows
    assert fit.run.options.per_chain == DRAWS + MORE
    assert fit.run.manifest.more is None
