"""An exported folder without CmdStan: its density by BridgeStan, its posterior by nutpie.

Both need BridgeStan's sources, which it finds by itself or by ``BRIDGESTAN``; they are skipped
without.
"""

import json

import numpy as np
import pytest
import torch

from semistan.density.derivatives import derivatives
from semistan.density.target import make_target
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.workflow.stan import export_stan
from support.assertions import Z, mcse
from support.chains import columns_of as chain_columns
from support.chains import complete_folder
from support.columns import columns_of, states
from support.untrained import random_bundle

pytestmark = pytest.mark.slow

bridgestan = pytest.importorskip("bridgestan")


@pytest.fixture(autouse=True)
def sources():
    """BridgeStan's sources are there, and are not looked for on the internet."""
    from bridgestan.compile import get_bridgestan_path, verify_bridgestan_path

    try:
        verify_bridgestan_path(get_bridgestan_path(download=False))
    except ValueError:
        pytest.skip("BridgeStan's sources are not there")


@pytest.mark.parametrize("kernel", ["stan", "cpp"])
def test_the_density_and_its_gradient_are_pytorchs(kernel, tmp_path):
    bundle, rows = random_bundle("poisson")
    export_stan(bundle, rows, tmp_path, SampleConfig(chains=1, seed=1, kernel=kernel))
    ours = {
        "stan": {},
        "cpp": {
            "stanc_args": ["--allow-undefined"],
            "make_args": [f"USER_HEADER={tmp_path}/log_lik.hpp", "STAN_THREADS=true"],
        },
    }[kernel]
    library = bridgestan.compile_model(tmp_path / "program.stan", **ours)
    model = bridgestan.StanModel(library, str(tmp_path / "data.json"))
    assert model.param_unc_num() == bundle.layout.size
    q, target = states(bundle), make_target(bundle, rows)
    expected = columns_of(bundle, rows, q)["lp__"]
    for state, lp in zip(q, expected, strict=True):
        found, gradient = model.log_density_gradient(state)
        assert found == pytest.approx(lp, rel=1e-9)
        slope = -derivatives(target, torch.tensor(state))[0].numpy()
        assert np.max(np.abs(gradient - slope)) < 1e-9 * np.max(np.abs(slope))


def test_nutpie_has_the_posterior_of_cmdstan(toolchain, tmp_path):
    nutpie = pytest.importorskip("nutpie")
    bundle, rows = random_bundle("gaussian")
    options = SampleConfig(chains=2, warmup=400, draws=1000, seed=1, kernel="stan")
    export_stan(bundle, rows, tmp_path, options)
    complete_folder(tmp_path, bundle, find_starts(bundle, rows, options).resolve(options))
    compiled = nutpie.compile_stan_model(filename=tmp_path / "program.stan")
    data = json.loads((tmp_path / "data.json").read_text())
    sampled = nutpie.sample(
        compiled.with_data(**data), chains=2, tune=400, draws=1000, seed=1, progress_bar=False
    )
    theirs, ours = sampled.posterior["sigma"].values, chain_columns(tmp_path, 2)["sigma"]
    error = np.hypot(*(mcse(draws, "mean") for draws in (theirs, ours)))
    assert abs(theirs.mean() - ours.mean()) < Z * error
    assert np.std(theirs) == pytest.approx(np.std(ours), rel=0.2)
