import re

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.model.families import family
from semistan.model.priors import DENSITIES, parse_prior
from semistan.stan.priors import class_priors, prior_data, priors_as_used
from semistan.subspace.problem import units_of
from small import RESPONSES, small_config, small_prepared

scipy_stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("normal(0, 2.5)", "normal", (0, 2.5)),
        (" student_t( 3,0 ,1e-3 ) ", "student_t", (3, 0, 1e-3)),
        ("cauchy(-1, 2)", "cauchy", (-1, 2)),
    ],
)
def test_a_prior_is_read_as_written(text, name, values):
    prior = parse_prior(text, "b")
    assert (prior.density.name, prior.values) == (name, values)
    assert parse_prior(str(prior), "b") == prior


@pytest.mark.parametrize(
    ("text", "parameter", "message"),
    [
        ("normal", "b", "must look like 'normal(0, 2.5)', got 'normal'"),
        ("norml(0, 1)", "b", "unknown density 'norml'. Did you mean 'normal'?"),
        ("normal(1)", "b", "normal takes (location, scale), got 'normal(1)'"),
        ("normal(0, 1, 2)", "b", "normal takes (location, scale)"),
        ("normal(0,, 1)", "b", "prior 'b'"),
        ("normal(0, one)", "b", "must be numbers"),
        ("normal(0, 0)", "b", "the scale of normal must be positive, got 0"),
        ("normal(0, -1)", "b", "the scale of normal must be positive, got -1"),
        ("normal(0, nan)", "b", "must be"),
        ("normal(0, inf)", "b", "finite"),
        ("normal(inf, 1)", "b", "finite"),
        ("student_t(0, 0, 1)", "b", "the df of student_t must be positive"),
        ("exponential(0)", "sigma", "the rate of exponential must be positive"),
        ("exponential(1)", "b", "exponential allows only positive values"),
        ("exponential(1)", "phi", "exponential allows only positive values"),
        ("constant(1)", "b", "constant() is for dispersion parameters"),
        ("constant(0)", "sigma", "a dispersion must be positive"),
        ("normal(0, 1); reject()", "b", "must "),
    ],
)
def test_an_impossible_prior_is_refused_with_its_reason(text, parameter, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_prior(text, parameter)
    assert f"'{parameter}'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "frozen"),
    [
        ("normal(0, 2.5)", lambda s: scipy_stats.norm(0, 2.5 * s)),
        ("student_t(3, 0, 2.5)", lambda s: scipy_stats.t(3, 0, 2.5 * s)),
        ("cauchy(0, 2)", lambda s: scipy_stats.cauchy(0, 2 * s)),
        ("exponential(3)", lambda s: scipy_stats.expon(0, s / 3)),
    ],
)
def test_rescaling_is_a_change_of_units(text, frozen):
    densities = {
        "normal": lambda v: scipy_stats.norm(*v),
        "student_t": lambda v: scipy_stats.t(*v),
        "cauchy": lambda v: scipy_stats.cauchy(*v),
        "exponential": lambda v: scipy_stats.expon(0, 1 / v[0]),
    }
    prior = parse_prior(text, "sigma").rescaled(7.0)
    probabilities = np.linspace(0.55, 0.99, 9)
    used = densities[prior.density.name](prior.values)
    assert np.allclose(used.ppf(probabilities), frozen(7.0).ppf(probabilities), rtol=1e-12)


@pytest.mark.parametrize("density", DENSITIES.values(), ids=str)
def test_every_density_knows_which_argument_carries_the_units(density):
    assert density.scale in density.arguments


def units(config, prepared):
    return units_of(prepared.design, family(config.family), prepared.rows.y)


def test_autoscaled_priors_have_the_units_of_their_parameters():
    prepared = small_prepared("y ~ x + z + nn(u)", priors__sigma="exponential(2)")
    config, y, X = prepared.config, prepared.rows.y, prepared.rows.X
    data = prior_data(config, family("gaussian"), units(config, prepared), np.ones(2))
    expected = 2.5 * y.std(ddof=1) / X.std(axis=0, ddof=1)
    assert np.allclose(data["prior_b_scale"], expected, rtol=1e-12)
    assert np.array_equal(data["prior_b_location"], [0, 0])
    assert data["prior_sigma_rate"] == pytest.approx(2 / y.std(ddof=1), rel=1e-12)
    assert np.array_equal(data["prior_phi_location"], [0, 0])
    assert np.array_equal(data["prior_phi_scale"], [5, 5])


def test_priors_are_used_as_written_without_autoscale():
    prepared = small_prepared("y ~ x + z + nn(u)", priors__autoscale=False)
    config = prepared.config
    data = prior_data(config, family("gaussian"), units(config, prepared), np.ones(2))
    assert np.array_equal(data["prior_b_scale"], [2.5, 2.5])
    assert data["prior_sigma_scale"] == 2.5


def test_a_constant_is_never_rescaled():
    prepared = small_prepared(priors__sigma="constant(3)")
    config = prepared.config
    assert (
        prior_data(config, family("gaussian"), units(config, prepared), np.ones(2))[
            "prior_sigma_value"
        ]
        == 3
    )


@pytest.mark.parametrize("name", RESPONSES)
def test_every_sampled_parameter_has_a_prior(name):
    items = class_priors(small_config(family=name), family(name))
    assert [item.parameter for item in items] == ["phi", "theta", *family(name).dispersion]


def test_priors_are_reported_as_written_and_as_used():
    prepared = small_prepared("y ~ x + nn(u)")
    config = prepared.config
    used = units(config, prepared)
    lines = {
        name: (written, used)
        for name, written, used in priors_as_used(
            config, family("gaussian"), used, np.ones(2), ("b_x",)
        )
    }
    assert lines["phi"] == ("normal(0, 5)", "normal(0, 5)")
    assert lines["b_x"] == ("normal(0, 2.5)", f"normal(0, {2.5 * used.theta_scale[0]:.6g})")


def test_phi_has_a_prior_for_each_scale_even_without_autoscale():
    prepared = small_prepared(priors__phi="normal(1, 2)", priors__autoscale=False)
    config, used = prepared.config, units(prepared.config, prepared)
    scales = np.array([0.5, 3])
    data = prior_data(config, family("gaussian"), used, scales)
    assert np.array_equal(data["prior_phi_scale"], [1, 6])
    assert np.array_equal(data["prior_phi_location"], [1, 1])
    lines = [line for line in priors_as_used(
        config, family("gaussian"), used, scales, prepared.design.coefficients
    ) if line[0].startswith("phi")]  # fmt: skip
    assert lines == [("phi[1]", "normal(1, 2)", "normal(1, 1)"),
                     ("phi[2]", "normal(1, 2)", "normal(1, 6)")]  # fmt: skip
