"""A prior density is one record: Gumbel, Weibull and a ridge of unknown scale, defined here."""

import numpy as np
import pytest
import torch
from scipy import stats

from semistan.errors import InputError
from semistan.model.config import parse_config
from semistan.model.parameter import POSITIVE, STANDARD_NORMAL, OwnPrior, Parameter
from semistan.model.priors.densities import DENSITIES
from semistan.model.priors.density import Density, Joint
from semistan.posterior.prior_draws import prior_draws
from support.assertions import assert_mean, assert_sd
from support.columns import assert_columns, assert_program
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
TAU = OwnPrior(  # half normal
    lambda name: f"std_normal_lpdf({name}) + log(2)",
    lambda value: torch.distributions.HalfNormal(1.0).log_prob(value).sum(),
    lambda generator, size, shape: np.abs(generator.normal(size=(size, *shape))),
)
RIDGE = Density(
    "ridge", ("scale",), ("scale",),
    joint=Joint(
        lambda _, P: (
            Parameter("ridge_z", "standardised", (P,), ("P",), prior=STANDARD_NORMAL),
            Parameter("ridge_tau", "scale of all", kind=POSITIVE, prior=TAU),
        ),
        lambda values, data: values["ridge_tau"] * values["ridge_z"]
        * torch.as_tensor(data["prior_b_scale"]),
        lambda theta, data: {"ridge_z": theta / data["prior_b_scale"], "ridge_tau": 1.0},
        "vector[P] theta  // structured coefficients\n"
        "  = ridge_tau * prior_b_scale .* ridge_z;\n",
    ),
)  # fmt: skip
PRIORS = {"b": "gumbel(0.5, 2)", "sigma": "weibull(2, 1.5)"}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as context:
        for density in (GUMBEL, WEIBULL, RIDGE):
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
    draws = prior_draws(bundle, rows, (2, 2000), np.random.default_rng(1))
    exact = stats.gumbel_r(0.5, 2)
    assert_mean(draws.coefficients["b_x1"], exact.mean())
    assert_sd(draws.coefficients["b_x1"], exact.std())
    assert_mean(draws.dispersion["sigma"], stats.weibull_min(2, scale=1.5).mean())


@pytest.mark.cmdstan
def test_its_program_is_pytorchs(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors=PRIORS)
    assert_program(bundle, rows, toolchain, tmp_path)


def test_a_prior_of_all_coefficients_together_is_refused_where_it_cannot_be():
    for priors, message in (
        ({"b_x": "ridge(1)"}, "ridge\\(\\) is for all coefficients together"),
        ({"b": "ridge(1)", "b_x": "normal(0, 1)"}, "none can have another"),
    ):
        with pytest.raises(InputError, match=message):
            small_prepared(priors=priors)
    with pytest.raises(InputError, match="which ridge\\(\\) does not have"):
        small_prepared(priors={"b": "ridge(1)"}, sample={"method": "laplace"})


def test_draws_of_a_joint_prior_have_its_moments():
    bundle, rows = random_bundle("gaussian", priors={"b": "ridge(3)", "autoscale": False})
    draws = prior_draws(bundle, rows, (2, 4000), np.random.default_rng(1))
    x1, x2 = (draws.coefficients[name] for name in ("b_x1", "b_x2"))
    assert_sd(x1, 3.0)
    assert_mean(x1**2 * x2**2, 3 * 3.0**4)  # E tau^4 = 3: they share their scale


@pytest.mark.cmdstan
def test_the_program_of_a_joint_prior_is_pytorchs(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors={"b": "ridge(3)"})
    assert_columns(bundle, rows, toolchain, tmp_path)  # no mode is looked for: no derivatives
