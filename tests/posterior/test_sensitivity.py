"""Power-scaling against ArviZ, and against the posteriors that it stands for."""

import numpy as np
import pytest
import xarray as xr

from semistan.errors import InputError
from semistan.posterior.arviz import quiet_arviz
from semistan.posterior.posterior import Mixture, One
from semistan.posterior.predictive import log_lik
from semistan.posterior.sensitivity import distance, sensitivity
from support.drawn import random_draws
from support.untrained import random_bundle


def arvizs(one, rows, component):
    density = log_lik(one, rows).reshape(one.draws.chains, -1, len(rows))
    data = quiet_arviz().from_dict(
        posterior=one.interpreted, log_likelihood={"y": density},
    )  # fmt: skip
    data.add_groups(log_prior=xr.Dataset({"lprior": (("chain", "draw"), one.lprior)}))
    return quiet_arviz().psens(data, component=component)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_sensitivities_are_arvizs(name):
    bundle, rows = random_bundle(name)
    one = One(bundle, random_draws(bundle, chains=4, iterations=250))
    found = sensitivity(one, rows).set_index("variable")
    for component in ("prior", "likelihood"):
        expected = arvizs(one, rows, component)
        for variable in found.index:
            assert found.loc[variable, component] == pytest.approx(
                float(expected[variable]), rel=1e-6
            )


def test_the_distance_is_0_of_the_same_and_grows_with_a_shift():
    draws = np.sort(np.random.default_rng(0).normal(size=2000))
    weights = [np.exp(shift * draws) for shift in (0.0, 0.1, 0.2)]
    found = [distance(draws, each) for each in weights]
    assert found[0] == pytest.approx(0, abs=1e-7)
    assert 1.8 < found[2] / found[1] < 2.2  # the distance is a metric


def test_a_constant_has_no_sensitivity():
    assert np.isnan(distance(np.ones(10), np.ones(10)))


def test_weights_of_a_mixture_are_found_within_each_member():
    several = [random_bundle("gaussian", seed=seed) for seed in (0, 1)]
    rows = several[0][1]
    members = [One(bundle, random_draws(bundle, seed=3)) for bundle, _ in several]
    alone = sensitivity(members[0], rows).set_index("variable")
    twice = sensitivity(Mixture((members[0], members[0])), rows).set_index("variable")
    for component in ("prior", "likelihood"):
        # each draw stands there twice: but for that, nothing is different
        assert twice[component].to_numpy() == pytest.approx(alone[component], rel=0.05)
    mixed = sensitivity(Mixture(tuple(members)), rows)
    assert np.isfinite(mixed[["prior", "likelihood"]].to_numpy()).all()


def test_the_diagnosis_tells_prior_and_data_apart():
    bundle, rows = random_bundle("gaussian")
    draws = random_draws(bundle, chains=4, iterations=250)
    found = sensitivity(One(bundle, draws), rows)
    for line in found.itertuples():
        strong = line.prior >= 0.05
        told = {(True, True): "prior and data disagree", (True, False): "strong prior or weak data"}
        assert line.diagnosis == told.get((strong, line.likelihood >= 0.05), "-")


def test_a_tempered_subspace_cannot_be_scaled():
    sample = {"temperature": 2.0, "temper": "subspace"}
    bundle, rows = random_bundle("gaussian", sample=sample)
    with pytest.raises(InputError, match="power-scaling needs the temperature"):
        sensitivity(One(bundle, random_draws(bundle)), rows)
