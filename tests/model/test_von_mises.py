"""Angles: closed forms at concentrations of any size, and units of the tangent of half of them."""

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import ive

from semistan.errors import InputError
from semistan.model.families.families import family
from semistan.model.families.family import check_response

RECORD = family("von_mises")
KAPPAS = [1e-9, 0.01, 1.0, 30.0, 900.0, 1e6, 1e12]


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("eta", [-3.0, 0.0, 0.4, 1e8])
def test_the_density_keeps_its_digits(kappa, eta):
    for y in (-3.0, 0.0, 0.7610127542247298):  # the last is 2 atan(0.4)
        found = RECORD.log_lik(tensor(y), tensor(eta), {"kappa": tensor(kappa)}).item()
        with mpmath.workdps(40):
            apart = mpmath.cos(mpmath.mpf(y) - 2 * mpmath.atan(mpmath.mpf(eta))) - 1
            scaled = mpmath.besseli(0, kappa) * mpmath.exp(-mpmath.mpf(kappa))
            expected = kappa * apart - mpmath.log(2 * mpmath.pi * scaled)
        assert found == pytest.approx(float(expected), rel=1e-12, abs=1e-12 + 1e-16 * kappa)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_variance_is_its_fourier_series(kappa):
    n = np.arange(1, 400)
    expected = np.pi**2 / 3 + 4 * ((-1.0) ** n / n**2 * ive(n, kappa) / ive(0, kappa)).sum()
    if kappa > 1e3:
        expected = (1 + 1 / (2 * kappa)) / kappa  # asymptotic, to order 1 / kappa^3
    found = RECORD.variance(np.zeros(3), {"kappa": np.array(kappa)})
    assert found == pytest.approx(np.full(3, expected), rel=1e-9 if kappa != 900 else 1e-8)


def test_random_angles_are_on_the_circle_and_those_of_scipy():
    kappa = np.full((20_000, 1), 1.3)
    drawn = RECORD.rng(
        np.full((20_000, 2), [2.0, -9.0]), {"kappa": kappa}, np.random.default_rng(1)
    )
    assert RECORD.support(drawn).all()
    for column, eta in zip(drawn.T, (2.0, -9.0), strict=True):
        distance = np.angle(np.exp(1j * (column - 2 * np.arctan(eta))))
        assert stats.kstest(distance, stats.vonmises(1.3).cdf).pvalue > 1e-3


def test_predictor_has_the_units_of_the_angles():
    generator = np.random.default_rng(2)
    for direction, kappa in ((0.0, 50.0), (2.0, 50.0), (-2.5, 400.0)):
        y = np.angle(np.exp(1j * (direction + generator.vonmises(0, kappa, 4000))))
        location, scale = RECORD.eta_units(y, {})
        assert location == pytest.approx(np.tan(direction / 2), rel=0.03, abs=0.01)
        assert scale == pytest.approx(np.tan(y / 2).std(), rel=0.15)
    location, scale = RECORD.eta_units(y, {"offsets": np.full(4000, 0.25)})
    assert location == pytest.approx(RECORD.eta_units(y, {})[0] - 0.25)


@pytest.mark.parametrize("n", [20, 300, 100_000])
def test_uniform_angles_have_units(n):
    for seed in range(30):
        y = np.random.default_rng(seed).uniform(-np.pi, np.pi, n)
        location, scale = RECORD.eta_units(y, {})
        assert abs(location) < 4
        assert 0.3 < scale < 20


def test_angles_around_pi_are_refused_with_what_to_do():
    y = np.angle(np.exp(1j * np.random.default_rng(3).normal(3.1, 0.2, 200)))
    with pytest.raises(InputError, match=r"their mean direction is -?3\.\d+\. Turn them"):
        RECORD.eta_units(y, {})
    RECORD.eta_units(np.angle(np.exp(1j * (y - 3.1))), {})


def test_degrees_are_refused():
    with pytest.raises(
        InputError, match=r"expects angles in radians, from -pi to pi, but .* is 10 in row"
    ):
        check_response(RECORD, np.array([10.0, 270.0]), "wind")
    check_response(RECORD, np.float32([-np.pi, np.pi]).astype(float), "wind")


def test_the_normaliser_has_its_slope_in_kappa():
    kappa = torch.tensor(KAPPAS[1:], dtype=torch.float64, requires_grad=True)
    RECORD.log_lik(tensor(0.0), tensor(0.0), {"kappa": kappa}).sum().backward()
    inside = [float(1 - mpmath.besseli(1, k) / mpmath.besseli(0, k)) for k in KAPPAS[1:]]
    assert kappa.grad.numpy() == pytest.approx(np.array(inside), rel=1e-6, abs=1e-12)
