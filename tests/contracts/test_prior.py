"""A prior density is one record: Gumbel and Weibull, defined here."""

import numpy as np
import pytest
import torch
from scipy import stats

import semistan
from semistan.errors import InputError
from semistan.model.config import parse_config
from semistan.model.priors.density import DENSITIES, Density
from support.assertions import assert_mean, assert_sd
from support.columns import assert_program
from support.small import small_frame, small_prepared
from support.untrained import random_bundle

GUMBEL = Density(
    "gumbel", ("location", "scale"), ("scale",), "Gumbel",
    lambda stats, location, scale: stats.gumbel_r(location, scale),
)  # fmt: skip
WEIBULL = Density(
    "weibull", ("shape", "scale"), ("scale",),
    lambda shape, scale, **options: torch.distributions.Weibull(scale, shape, **options),
    lambda stats, shape, scale: stats.weibull_min(shape, scale=scale), support="positive",
)  # fmt: skip
PRIORS = {"b": "gumbel(0.5, 2)", "sigma": "weibull(2, 1.5)"}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as context:
        for density in (GUMBEL, WEIBULL):
            context.setitem(DENSITIES, density.name, density)
        yield


def test_it_is_read_in_the_units_of_its_parameter():
    priors = {item.label: item for item in small_prepared(priors=PRIORS).model.priors}
    (used,) = priors["sigma"].used
    assert used.density is WEIBULL
    assert used.argument("scale") == pytest.approx(1.5 * small_frame().y.std())


def test_impossible_arguments_are_refused():
    with pytest.raises(InputError, match="the scale of gumbel must be positive, got -1"):
        parse_config({"formula": "y ~ x + nn(u)", "priors": {"b": "gumbel(0, -1)"}}, "test")


def test_its_prior_draws_have_its_moments():
    bundle, rows = random_bundle("gaussian", priors={**PRIORS, "autoscale": False})
    draws = semistan.prior_draws(bundle, rows, (2, 2000), np.random.default_rng(1))
    exact = stats.gumbel_r(0.5, 2)
    assert_mean(draws.coefficients["b_x1"], exact.mean())
    assert_sd(draws.coefficients["b_x1"], exact.std())
    assert_mean(draws.dispersion["sigma"], stats.weibull_min(2, scale=1.5).mean())


@pytest.mark.cmdstan
def test_its_program_is_pytorchs(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors=PRIORS)
    assert_program(bundle, rows, toolchain, tmp_path)
