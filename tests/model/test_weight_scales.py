"""Scales of the weights that are sampled: their groups, their prior, and where they are refused."""

import numpy as np
import pytest
import torch
from scipy import stats

from semistan.density.target import log_prior_density, make_target
from semistan.errors import InputError
from semistan.infer.stan_csv import sampled_columns
from semistan.model.config import SampleConfig
from semistan.model.integral import output_coordinates
from semistan.model.networks.leading import Leading
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks, layers
from semistan.model.priors.lines import priors_as_used
from semistan.model.priors.weight_scales import SD_W, weight_scales
from semistan.posterior.draws import draws_of_columns
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.run import Run
from semistan.show.inference_data import inference_data
from semistan.workflow.dimension import with_dimension
from semistan.workflow.priors import priors
from support.assertions import Z
from support.catalogue import SCALES
from support.manifests import manifest
from support.small import small_frame, small_prepared
from support.untrained import random_bundle

FULL = {"construction": "full"}


def scaled(**settings):
    scales = {"priors__phi": None, "priors__sd_w": "lognormal(0, 0.7)"}
    given = {"subspace__k": "auto"} | scales | settings
    return small_prepared("y ~ x + nn(u, v)", **given)


def test_each_input_the_first_biases_and_each_further_layer_share_a_scale():
    scales = weight_scales(Networks((FullyConnected(2, (3, 2), "tanh"),)), [["a", "b"]], [0])
    assert scales.names == ("a", "b", "biases", "layer 2", "layer 3")
    by_unit = [1, 2] * 3  # the weights of each of three units
    assert scales.of.tolist() == [*by_unit, 3, 3, 3, *[4] * 8, 5, 5, 0]


def test_networks_have_scales_of_their_own_and_constant_layers_none():
    parts = (FullyConnected(1, (2, 2, 2)), FullyConnected(2, (2, 2)), FullyConnected(1, (2,)))
    leading = Leading(Networks(parts), (2, 1, 0))
    scales = weight_scales(leading.heads, [["a"], ["b", "c"], ["d"]], leading.frozen)
    assert scales.names == (
        "layer 3 of network 1", "layer 4 of network 1", "layer 2 of network 2",
        "layer 3 of network 2", "d of network 3", "biases of network 3", "layer 2 of network 3",
    )  # fmt: skip
    both = [1] * 6 + [2, 2, 0] + [3] * 6 + [4, 4, 0]
    assert scales.of.tolist() == [*both, 5, 5, 6, 6, 7, 7, 0]


def test_a_network_without_hidden_layers_has_the_scales_of_its_inputs():
    scales = weight_scales(Networks((FullyConnected(2, (), "identity"),)), [["a", "b"]], [0])
    assert (scales.names, scales.of.tolist()) == (("a", "b"), [1, 2, 0])


EFFECTS = "y ~ x1 + nn(u1, u2) + z:nn(v, hidden=[2]) + t:nn(u3, hidden=[])"


def of_effects(family="gaussian", formula=EFFECTS, subspace=FULL, **priors):
    bundle, _ = random_bundle(
        family, formula=formula, subspace=subspace, priors={"phi": None, **priors}
    )
    return bundle


def test_by_default_only_output_weights_of_networks_that_multiply_a_column_have_scales():
    model = of_effects().model
    scales, parts = model.weight_scales, layers(model.network)
    assert scales.names == ("z", "tb")
    expected = np.zeros(model.network.d)
    expected[parts[1][-1].weights], expected[parts[2][-1].weights] = 1, 2
    assert np.array_equal(scales.of, expected)
    # all of which are integrated out, beside one scale each
    assert {*np.flatnonzero(scales.of)} <= {
        *output_coordinates(model.network, of_effects().subspace)
    }


def test_one_that_has_a_prior_of_its_own_has_none():
    assert of_effects(w_z="normal(0, 1)").model.weight_scales.names == ("tb",)
    assert of_effects(w_z="normal(0, 1)", w_tb="normal(0, 1)").model.weight_scales is None


@pytest.mark.parametrize(
    "given",
    [
        {"sd_w": "none"}, {"sd_w": None}, {"family": "poisson"}, {"phi": "normal(0, 1)"},
        {"formula": "y ~ x1 + nn(u1, u2)"}, {"formula": "y ~ z:nn(v) + nn(u1), sigma ~ x1"},
        {"subspace": {"construction": "subnetwork", "k": 3}},
        {"subspace": {"free": "output", "k": 3}},
    ],
    ids=str,
)  # fmt: skip
def test_no_scales_are_sampled_by_default_where_a_chain_would_move_in_a_funnel(given):
    assert of_effects(**given).model.weight_scales is None


def test_the_priors_say_which_weights_have_a_scale_that_is_sampled():
    lines = {line.parameter: line for line in priors_as_used(of_effects(w_tb="normal(0, 3)"))}
    assert (lines["sd_w[z]"].written, lines["sd_w[z]"].source) == ("normal(0, 1)", "default")
    outputs = "sqrt(inputs of the layer)) of output weights"
    assert lines["w_z"].used == f"normal(0, sd_w[z] 2 / {outputs}"
    assert lines["w_tb"].used == f"normal(0, 3 / {outputs}"
    assert "sd_w" not in lines["w"].used
    every = of_effects(w_tb="normal(0, 3)", sd_w="lognormal(0, 1)")
    lines = {line.parameter: line for line in priors_as_used(every)}
    assert lines["w_tb"].used == f"normal(0, sd_w 3 / {outputs}" and "w_z" not in lines


def test_the_prior_of_a_weight_given_its_scale_is_numpys():
    bundle, rows = random_bundle("gaussian", subspace=FULL, priors=SCALES)
    target, generator = make_target(bundle, rows, prior_only=True), np.random.default_rng(1)
    values = target.layout.unpack(torch.tensor(0.3 * generator.normal(size=target.layout.size)))
    phi, sd_w = values["phi"].numpy(), values[SD_W].numpy()
    of = bundle.model.weight_scales.of
    sd = bundle.subspace.phi_scale * np.append(1, sd_w)[of]
    other = values | {"phi": values["phi"] * 0, SD_W: values[SD_W] * 0 + 1}
    expected = stats.norm.logpdf(phi, 0, sd).sum() + stats.t.logpdf(sd_w, 4, 0, 1.5).sum()
    at_zero = stats.norm.logpdf(0, 0, bundle.subspace.phi_scale).sum()
    at_zero += len(sd_w) * stats.t.logpdf(1, 4, 0, 1.5)
    difference = log_prior_density(target, values) - log_prior_density(target, other)
    assert float(difference) == pytest.approx(expected - at_zero, rel=1e-12)


def test_prior_draws_of_weights_have_the_second_moment_of_both_together():
    priors = {"phi": None, "sd_w": "lognormal(-0.5, 0.4)"}
    bundle, rows = random_bundle("gaussian", subspace=FULL, priors=priors)
    draws = prior_draws(bundle, rows, (1, 4000), np.random.default_rng(1))
    squares = np.square(draws.phi[0] / bundle.subspace.phi_scale)
    expected = np.where(bundle.model.weight_scales.of > 0, np.exp(2 * (-0.5 + 0.4**2)), 1.0)
    error = squares.std(axis=0) / np.sqrt(len(squares))
    assert np.all(np.abs(squares.mean(axis=0) - expected) < Z * error)


def test_all_weights_are_sampled_with_their_scales_where_there_is_time():
    prepared = with_dimension(scaled(), lambda _: 1e-6).prepared
    assert prepared.model.weight_scales.names == ("u", "v", "biases", "layer 2")


def test_a_subspace_that_the_budget_asks_for_leaves_the_scales_out_and_says_so():
    found = with_dimension(scaled(network__hidden=[40]), lambda _: 10.0)
    assert found.prepared.config.priors.sd_w == "none"
    assert "prior sd_w is left out" in found.reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subspace__k": 2}, "k = 2 of 13 weights move in a subspace"),
        ({"priors__phi": "normal(0, 1)"}, "leave one of the two out"),
        ({"priors__sd_w": "beta(1)"}, "prior 'sd_w': beta takes"),
        ({"priors__sd_w": "horseshoe()"}, "as prior 'b'"),
    ],
)
def test_what_cannot_have_scales_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        with_dimension(scaled(**settings), lambda _: 1e-6)


@pytest.mark.parametrize("method", ["laplace", "elliptical-slice"])
def test_methods_that_need_a_mode_or_a_normal_prior_refuse_them(method):
    with pytest.raises(InputError, match="leave prior sd_w out"):
        scaled(sample__method=method)


def test_draws_and_posterior_nc_have_the_scales_by_group(tmp_path):
    bundle, rows = random_bundle("gaussian", subspace=FULL, priors=SCALES)
    target, options = make_target(bundle, rows), SampleConfig(chains=1)
    q = 0.3 * np.random.default_rng(1).normal(size=(5, target.layout.size))
    columns = sampled_columns(target, q, np.zeros(5), np.ones(5))
    draws = draws_of_columns(bundle, [columns], options)
    expected = target.layout.unpack(torch.tensor(q[2]))[SD_W].numpy()
    assert draws.sd_w.shape == (1, 5, 5)
    assert draws.sd_w[0, 2] == pytest.approx(expected)
    assert np.array_equal(draws.thin(2).sd_w, draws.sd_w[:, [0, 4]])
    data = inference_data(Run(tmp_path, bundle, manifest()), SubspacePosterior(bundle, draws), rows)
    assert data.posterior[SD_W].dims == ("chain", "draw", "weights_of")
    inputs = data.posterior[SD_W].sel(weights_of=["u1", "u2", "u3", "biases", "layer 2"])
    assert np.array_equal(inputs.values, draws.sd_w)


@pytest.mark.parametrize(("rows", "sampled"), [(40, True), (20_000, False)])
def test_before_training_the_priors_are_those_of_the_weights_that_will_move(rows, sampled):
    frame = small_frame(rows).assign(t=np.arange(rows) % 2)
    found = priors("y ~ x + t:nn(u) + nn(v)", frame)
    assert ("sd_w[t]" in set(found["parameter"])) == sampled
