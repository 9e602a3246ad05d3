"""The prior of the weights in the subspace: a restricted density, whatever spans it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from semistan.density.target import log_prior, make_target
from semistan.model.config import parse_config
from semistan.model.networks.networks import prior_scales
from semistan.model.subspace import Subspace
from semistan.subspace.weight_prior import in_units_of_the_prior
from support.small import small_bundle
from support.untrained import random_bundle

W, INTERCEPT = 1.5, 3.0
PRIORS = {"w": f"normal(0, {W})", "Intercept": f"normal(0, {INTERCEPT})", "phi": None}
SUBSPACES = [
    {"k": 3},
    {"k": 3, "free": "output"},
    {"construction": "full"},
    {"construction": "subnetwork", "k": 4},
    {"construction": "low_rank_laplace", "k": 3},
    {"construction": "pca", "k": 2},
    {"construction": "naive", "k": 2},
]


def trained(subspace):
    settings = {f"subspace__{key}": value for key, value in subspace.items()}
    priors = {f"priors__{key}": value for key, value in PRIORS.items()}
    return small_bundle("y ~ x + nn(u, v)", **settings, **priors)


def log_normal(w, scale):
    return -0.5 * np.sum((w / scale) ** 2, axis=-1)


@pytest.mark.parametrize("subspace", SUBSPACES, ids=str)
def test_the_prior_of_phi_is_the_weights_prior_restricted_to_the_subspace(subspace):
    bundle, rows = trained(subspace)
    k, scale = bundle.subspace.k, bundle.model.weight_scale
    target, q = make_target(bundle, rows, prior_only=True), np.zeros((5, bundle.layout.size))
    q[:, :k] = 2 * np.random.default_rng(1).normal(size=(5, k))
    found = [float(log_prior(target, torch.tensor(row))) for row in q]
    w = bundle.subspace.lift(q[:, :k] * bundle.subspace.phi_scale)
    expected = log_normal(w, scale)
    if "holds_theta" not in subspace:
        assert np.diff(found) == pytest.approx(np.diff(expected), rel=1e-9, abs=1e-10)


def test_scales_are_those_of_the_layers_inputs():
    bundle, _ = random_bundle("gaussian", hidden=(4, 2))
    scale = prior_scales(bundle.network, W, INTERCEPT)
    by_hand = [W / np.sqrt(3)] * 12 + [W] * 4 + [W / 2] * 8 + [W] * 2 + [W / np.sqrt(2)] * 2
    assert scale == pytest.approx([*by_hand, INTERCEPT])


@pytest.mark.parametrize("axes", [[], [0, 7]])
def test_the_span_its_order_and_theta_stay_as_they_were(axes):
    generator = np.random.default_rng(2)
    bundle, _ = random_bundle("gaussian")
    d, axes = bundle.subspace.d, np.array(axes, dtype=int)
    Pi = np.linalg.qr(generator.normal(size=(d, 3)))[0]
    Pi[axes] = 0
    k = 3 + len(axes)
    before = Subspace(
        generator.normal(size=d), Pi, "test", np.ones(k), axes,
        theta_bar=generator.normal(size=2), theta_Pi=generator.normal(size=(2, k)),
    )  # fmt: skip
    scale = generator.uniform(0.1, 2, size=d)
    trained = replace(bundle.trained, subspace=before, singular_values=np.ones(k))
    after = in_units_of_the_prior(trained, scale).subspace
    for j in range(1, 4):  # nested spans
        basis = np.linalg.qr(Pi[:, :j])[0]
        assert basis @ (basis.T @ after.Pi[:, :j]) == pytest.approx(after.Pi[:, :j], abs=1e-12)
    whitened = after.Pi / scale[:, None]
    assert whitened.T @ whitened == pytest.approx(np.eye(3), abs=1e-12)
    phi = generator.normal(size=k)
    moved = after.project(before.lift(phi))
    assert after.theta_Pi @ moved == pytest.approx(before.theta_Pi @ phi, abs=1e-10)


def test_all_weights_have_the_prior_of_the_weights():
    bundle, _ = trained({"construction": "full"})
    assert bundle.subspace.phi_scale == pytest.approx(bundle.model.weight_scale)
    assert not bundle.subspace.phi_location.any()


@pytest.mark.lengthy
def test_training_has_the_prior_too():
    """A strong prior holds the weights near 0, where none of the likelihood's does."""
    settings = {"train__epochs": 400, "train__learning_rate": 0.02, "train__validation": 0.0}
    norms = []
    for w in (0.01, 1.0):
        priors = {**PRIORS, "w": f"normal(0, {w})"}
        priors = {f"priors__{key}": value for key, value in priors.items()}
        bundle, _ = small_bundle("y ~ x + nn(u, v)", **settings, **priors)
        norms.append(np.abs(bundle.trained.control_points[:, :-1]).mean())
    assert 5 * norms[0] < 0.05 < norms[1]


@pytest.mark.parametrize("key", ["w", "Intercept"])
@pytest.mark.parametrize("text", ["student_t(3, 0, 1)", "normal(1, 1)"])
def test_other_priors_of_weights_are_refused(key, text):
    with pytest.raises(
        ValueError, match=rf"prior '{key}' must be normal around 0.*got '{text[:6]}"
    ):
        parse_config({"formula": "y ~ nn(u)", "priors": {key: text}}, "test")
