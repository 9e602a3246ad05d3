"""What rows say of coefficients, and the coordinates that follow from it."""

from dataclasses import replace

import numpy as np
import pytest

from semistan.density.derivatives import LEAST_CURVATURE, derivatives
from semistan.density.information import information
from semistan.density.mode import find_mode
from semistan.density.starts import start_state, trained_phi, trained_values
from semistan.density.target import log_posteriors, log_prior, make_target, negative_log_posterior
from semistan.lazy import torch
from semistan.model.names import MU
from semistan.model.parameter import CORRELATION
from semistan.model.priors.groups import PHI
from support.untrained import random_bundle

FORMULA = "y ~ x1 + s(v, k=6) + (1 + x1 | g) + nn(u1)"
EVERY = (
    "y ~ x1 + s(v, k=5) + s(u1, by=g, k=4) + t2(v, u2, k=4) + gp(u2, k=5) + (1 | g) + nn(u1),"
    " sigma ~ s(v, k=4)"
)


def at_start(bundle, rows):
    target = make_target(bundle, rows)
    return target, start_state(bundle, trained_values(bundle) | {PHI: trained_phi(bundle)})


def with_information(bundle, found):
    return replace(bundle, trained=replace(bundle.trained, information=found))


def test_of_a_gaussian_response_it_is_the_sum_of_squares_over_the_variance():
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    smooth, group = rows.predictors[MU].blocks
    found, variance = information(bundle, rows), bundle.trained.dispersion["sigma"] ** 2
    assert found["zs_1"] == pytest.approx((smooth.Z**2).sum(axis=0) / variance)
    each = [group.Z[group.level == j] for j in range(4)]  # of which effects are correlated
    assert found["z_1"] == pytest.approx(np.array([Z.T @ Z for Z in each]) / variance)


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson", "gamma"])
def test_it_is_minus_the_second_derivative_by_each_coefficient(name):
    bundle, rows = random_bundle(name, formula=FORMULA)
    bundle = with_information(bundle, {})  # z itself is moved, in its prior's units
    target, q = at_start(bundle, rows)
    found = information(bundle, rows)
    values = target.values(torch.tensor(q))
    sd = torch.stack([values["sd_g__Intercept"], values["sd_g__x1"]])
    root = (sd[:, None] * values["L_1"])[:, 0].numpy()
    of_level = root @ found["z_1"][3] @ root
    of_smooth = found["zs_1"][2] * float(values["sds_sv_1"]) ** 2
    for z, expected in (("zs_1", of_smooth), ("z_1", of_level)):
        at = target.layout.slices[z].start + (2 if z == "zs_1" else 3)
        step = 1e-3 * np.eye(len(q))[at]
        low, middle, high = (
            negative_log_posterior(target, torch.tensor(q + x * step)) for x in (-1, 0, 1)
        )
        second = (low - 2 * middle + high) / 1e-6 - 1  # less that of the standard normal
        assert second == pytest.approx(expected, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("formula", [FORMULA, EVERY])
def test_the_density_of_coefficients_does_not_depend_on_it(formula):
    bundle, rows = random_bundle("gaussian", formula=formula)
    plain = with_information(bundle, {})
    (target, _), (other, start) = at_start(bundle, rows), at_start(plain, rows)
    generator = np.random.default_rng(0)
    points = start + 0.3 * generator.normal(size=(5, len(start)))
    values = [other.layout.unpack(torch.tensor(point)) for point in points]
    moved = np.stack([target.layout.pack({n: v.numpy() for n, v in x.items()}) for x in values])
    assert np.abs(moved - points).max() > 0.1
    slopes = [float(target.layout.log_jacobian(torch.tensor(point))) for point in moved]
    plain_slopes = [float(other.layout.log_jacobian(torch.tensor(point))) for point in points]
    density = log_posteriors(target, moved) - slopes
    assert density == pytest.approx(log_posteriors(other, points) - plain_slopes, rel=1e-10)
    determinant = [
        np.linalg.slogdet(torch.func.jacrev(lambda q: flat(target, q))(torch.tensor(point)))[1]
        + float(correlations(target.layout, torch.tensor(point)))
        for point in moved
    ]
    constant = np.array(slopes) - determinant  # of the constant units
    assert np.ptp(constant) < 1e-8


def flat(target, q):
    """The parameters one after the other; of correlations the coordinates, which are fewer."""
    layout = target.layout
    values = {name: value.reshape(-1) for name, value in layout.unpack(q).items()}
    own = {p.name: q[layout.slices[p.name]] for p in layout.parameters if p.kind is CORRELATION}
    return torch.cat([own.get(name, value) for name, value in values.items()])


def correlations(layout, q):
    """The log Jacobian of the correlations alone."""
    kinds = [p for p in layout.parameters if p.kind is CORRELATION]
    return sum(p.kind.log_jacobian(q[layout.slices[p.name]], p.shape) for p in kinds)


def test_the_curvature_of_the_prior_is_that_of_each_coordinate():
    bundle, rows = random_bundle("gaussian", formula="y ~ x1 + s(v, k=5) + (1 | g) + nn(u1)")
    target, q = at_start(bundle, rows)
    target = replace(target, prior_only=True)
    _, matrix = derivatives(target, torch.tensor(q))

    expected = torch.autograd.functional.hessian(
        lambda x: -log_prior(target, x), torch.tensor(q)
    ).diagonal()
    assert matrix.diagonal().numpy() == pytest.approx(
        expected.clamp(min=LEAST_CURVATURE).numpy(), rel=1e-8
    )


def test_a_mode_has_the_same_coefficients_whatever_it_is():
    bundle, rows = random_bundle("gaussian", formula="y ~ x1 + s(v, k=5) + (1 | g) + nn(u1)")
    made = []
    for one in (bundle, with_information(bundle, {})):
        target, q = at_start(one, rows)
        mode = find_mode(target, q)
        values = target.layout.unpack(torch.tensor(mode.q))
        made.append(
            np.concatenate(
                [
                    (values["sds_sv_1"] * values["zs_1"]).numpy(),
                    (values["sd_g__Intercept"] * values["z_1"][:, 0]).numpy(),
                ]
            )
        )
    assert made[0] == pytest.approx(made[1], abs=2e-3 * np.abs(made[1]).max())


def test_a_constant_standard_deviation_leaves_z_as_it_is():
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ x1 + (1 | g) + nn(u1)",
        priors={"sd_g": "constant(0.5)"},
    )  # fmt: skip
    assert bundle.layout.centred == ()
    assert information(bundle, rows) == {}
