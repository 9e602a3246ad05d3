"""Where chains start: on the curve, at the modes, or at draws from the prior."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from semistan.density.derivatives import derivatives
from semistan.density.target import make_target
from semistan.errors import InputError
from semistan.infer.methods.laplace import LAPLACE
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig, with_overrides
from support.small import small_bundle, small_config, small_frame
from support.untrained import LINEAR, random_bundle

CHAINS = 4


def starts_at(where, bundle, rows, **options):
    return find_starts(bundle, rows, SampleConfig(chains=CHAINS, starts=where, **options))


@pytest.fixture(scope="module")
def linear():
    return random_bundle("gaussian", network=LINEAR, n=60)


@pytest.mark.parametrize("metric", ["auto", "diag_e"])
def test_a_mode_has_no_slope(linear, metric):
    bundle, rows = linear
    found = starts_at("mode", bundle, rows, metric=metric)
    target = make_target(bundle, rows)
    for values in found.values:
        q = torch.tensor(bundle.layout.pack(values))
        gradient, matrix = derivatives(target, q)
        step = torch.linalg.solve(matrix, gradient)
        assert float(gradient @ step) < 1e-3  # far below one sd away
    assert len(found.found) == (CHAINS if metric == "auto" else 0)


def test_chains_of_a_completed_subspace_start_around_its_mode():
    frame = small_frame(60).assign(y=lambda table: np.cos(3 * table["u"]) + table["x"])
    network, subspace = {"hidden": [6]}, {"k": 3}
    bundle, rows = small_bundle(
        "y ~ x + nn(u, v)", frame, priors={}, network=network, subspace=subspace, train__epochs=200
    )
    found = starts_at("curve", bundle, rows)
    assert len(found.found) == CHAINS
    (mode,) = set(found.found)
    k = bundle.subspace.k
    at = bundle.subspace.lift(bundle.subspace.phi_scale * mode.q[:k])
    assert at == pytest.approx(bundle.completion.at, abs=1e-2)
    assert found.one_mode
    assert len({values["phi"].tobytes() for values in found.values}) == CHAINS
    alone = replace(bundle, config=with_overrides(bundle.config, {"subspace.completion": "none"}))
    assert len(set(starts_at("curve", alone, rows).found)) == CHAINS


def test_a_metric_that_is_adapted_stays_adapted(linear):
    found = starts_at("mode", *linear, metric="diag_e")
    resolved = found.resolve(SampleConfig(metric="diag_e"))
    assert resolved.metric == "diag_e"
    assert found.text(resolved, with_metric=True).startswith("each chain starts at a mode; ")


def test_draws_from_the_prior_do_not_know_the_training(linear):
    bundle, rows = linear
    found = starts_at("prior", bundle, rows, metric="diag_e")
    x = np.concatenate(
        [
            find_starts(
                bundle, rows, SampleConfig(chains=250, starts="prior", metric="diag_e", seed=seed)
            ).values
            for seed in (1, 2)
        ]
    )
    scale = np.array([values["theta"] / bundle.units.theta_scale for values in x])
    assert np.abs(scale.mean(axis=0)).max() < 4 * 2.5 / np.sqrt(500)
    assert scale.std(axis=0) == pytest.approx([2.5, 2.5], rel=4 / np.sqrt(1000))
    assert found.modes == ()
    assert "a draw from the prior" in found.text(SampleConfig(), with_metric=False)
    assert found.resolve(SampleConfig()).metric == "dense_e"


def test_the_seed_decides_about_them(linear):
    first, again, other = (
        find_starts(*linear, SampleConfig(chains=2, starts="prior", seed=seed)).values
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first[0]["phi"], again[0]["phi"])
    assert not np.array_equal(first[0]["phi"], other[0]["phi"])
    assert not np.array_equal(first[0]["phi"], first[1]["phi"])


def test_the_default_is_the_curve():
    assert SampleConfig().starts == "curve"


def test_what_has_no_mode_is_refused():
    bundle, rows = random_bundle("gaussian", priors={"b": "horseshoe()"})
    with pytest.raises(InputError, match="starts = 'mode': with a prior of all"):
        starts_at("mode", bundle, rows)
    config = small_config(sample={"method": "laplace", "starts": "prior"})
    with pytest.raises(InputError, match="not starts = 'prior'"):
        LAPLACE.check(config)


def test_long_climbs_are_told_of(linear, monkeypatch):
    said = []
    options = SampleConfig(chains=2, starts="mode")
    find_starts(*linear, options, say=said.append)
    assert not said
    monkeypatch.setattr("semistan.infer.starts.LONG", 0.0)
    find_starts(*linear, options, say=said.append)
    assert [line.partition(" was found")[0] for line in said] == ["start 1 of 2", "start 2 of 2"]
