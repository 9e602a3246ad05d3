"""Power-scaling against ArviZ, and against the posteriors that it stands for."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import t as student_t

from semistan.errors import InputError
from semistan.infer.methods import method_named
from semistan.model.priors.distributions import torch_priors
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.sensitivity import distance, prior_density, sensitivity
from support import arviz_oracle
from support.drawn import random_draws
from support.untrained import random_bundle


def arvizs(one, rows, component):
    density = log_lik(one, rows).reshape(one.draws.chains, -1, len(rows))
    data = arviz_oracle.collected(
        posterior=one.interpreted, log_likelihood={"y": density}, log_prior={"lprior": one.lprior},
    )  # fmt: skip
    return arviz_oracle.sensitivity(data, component)


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_sensitivities_are_arvizs(name):
    bundle, rows = random_bundle(name)
    one = SubspacePosterior(bundle, random_draws(bundle, chains=4, iterations=250))
    found = sensitivity(one, rows).set_index("variable")
    for component in ("prior", "likelihood"):
        expected = arvizs(one, rows, component)
        for variable in found.index:
            assert found.loc[variable, component] == pytest.approx(
                float(expected[variable]), rel=arviz_oracle.SENSITIVITY_ERROR
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
    members = [SubspacePosterior(bundle, random_draws(bundle, seed=3)) for bundle, _ in several]
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
    found = sensitivity(SubspacePosterior(bundle, draws), rows)
    for line in found.itertuples():
        strong = line.prior >= 0.05
        told = {
            (True, True): "prior and data may disagree",
            (True, False): "strong prior or weak data",
        }
        assert line.diagnosis == told.get((strong, line.likelihood >= 0.05), "-")


@pytest.mark.parametrize("name", ["gaussian", "negbinomial"])
def test_priors_of_some_parameters_are_parts_of_the_whole(name):
    bundle, rows = random_bundle(
        name, formula="y ~ x1 + x2 + (1 + v | g) + nn(u1, u2, u3)",
        priors={"b_x2": "student_t(3, 0, 1)"},
    )  # fmt: skip
    one = SubspacePosterior(bundle, random_draws(bundle))
    keys = {group.key for group in bundle.model.priors}
    total = prior_density(one, sorted(keys))
    each = sum(prior_density(one, [key]) for key in keys)
    assert total == pytest.approx(each, rel=1e-12)
    draws = {**one.draws.interpreted, "theta": one.draws.theta}
    values = {n: torch.from_numpy(one.draws.flat(x)) for n, x in draws.items()}
    values["phi"] = torch.from_numpy(one.draws.flat(one.draws.phi))
    at = [{n: x[i] for n, x in values.items()} for i in range(5)]
    twin = [sum(p.log_density(v) for p in torch_priors(bundle)) for v in at]
    assert total[:5] == pytest.approx(np.array(twin), rel=1e-9)
    alone = prior_density(one, ["b_x2"])
    (group,) = (g for g in bundle.model.priors if g.names == ("b_x2",))
    scale = group.used[0].values[2]
    density = student_t(3, 0, scale).logpdf(one.draws.interpreted["b_x2"].ravel())
    assert alone == pytest.approx(density, rel=1e-9)
    found = sensitivity(one, rows, ["b_x2"]).set_index("variable")
    assert found.loc["b_x2", "prior"] > found.loc["b_x1", "prior"]


def test_the_whole_prior_is_that_of_all_parameters_and_not_of_effects():
    """A group's standard deviation is not scaled by way of its effects' distribution."""
    formula = "y ~ x1 + (1 | g) + s(v, k=5) + nn(u1, u2, u3)"
    bundle, rows = random_bundle("gaussian", formula=formula)
    draws = prior_draws(bundle, rows, (2, 50), np.random.default_rng(1))
    named = {group.key for group in bundle.model.priors}
    total = prior_density(SubspacePosterior(bundle, draws), sorted(named))
    assert np.ptp(total - draws.lprior.ravel()) < 1e-9 * np.abs(total).max()


def test_priors_that_are_not_there_or_joint_are_refused():
    bundle, rows = random_bundle("gaussian")
    one = SubspacePosterior(bundle, random_draws(bundle))
    with pytest.raises(InputError, match=r"names 'b_x3'.*Did you mean 'b_x"):
        sensitivity(one, rows, ["b_x3"])
    bundle, rows = random_bundle("gaussian", priors={"b": "horseshoe()"})
    with pytest.raises(InputError, match="a joint one"):
        sensitivity(SubspacePosterior(bundle, random_draws(bundle)), rows, ["b"])


def test_a_tempered_subspace_cannot_be_scaled():
    sample = {"temperature": 2.0, "temper": "subspace"}
    bundle, rows = random_bundle("gaussian", sample=sample)
    with pytest.raises(InputError, match="power-scaling needs the temperature"):
        sensitivity(SubspacePosterior(bundle, random_draws(bundle)), rows)


def test_an_approximation_is_refused_with_what_to_do():
    bundle, rows = random_bundle("gaussian")
    draws = replace(random_draws(bundle), method=method_named("meanfield"))
    with pytest.raises(InputError, match="sample by --method nuts, or fit the model again with"):
        sensitivity(SubspacePosterior(bundle, draws), rows)
