"""Links besides the default ones: SciPy's distributions of the means that statsmodels computes."""

import re

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.genmod.families import links as sm_links

from semistan.density.derivatives import derivatives
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.model.families.families import FAMILIES, family
from semistan.model.families.links import LINKS
from semistan.model.temper import temper_of
from semistan.program.data import stan_data
from semistan.program.parts import has_log_lik
from semistan.program.program import stan_program
from semistan.subspace.start_values import curve_states
from support.programs import evaluate
from support.small import small_bundle, small_config, small_frame, small_prepared
from support.untrained import random_bundle

ETA = np.linspace(-3, 2, 11)
LINKED = [f"{record.name}({link})" for record in FAMILIES for link in record.links]
GIVEN = {
    "bernoulli": {},
    "binomial": {"trials": 7.0},
    "beta": {"precision": 6.0},
    "gaussian": {"sigma": 1.7},
    "student": {"sigma": 1.7, "nu": 7.0},
}
INVERSE = {
    "probit": sm_links.Probit(), "cloglog": sm_links.CLogLog(), "cauchit": sm_links.Cauchy(),
    "log": sm_links.Log(),
}  # fmt: skip
DISTRIBUTION = {
    "bernoulli": stats.bernoulli,
    "binomial": lambda mu: stats.binom(7, mu),
    "beta": lambda mu: stats.beta(6 * mu, 6 * (1 - mu)),
    "gaussian": lambda mu: stats.norm(mu, 1.7),
    "student": lambda mu: stats.t(7, mu, 1.7),
}
RESPONSES = {
    "bernoulli": np.array([0.0, 1]),
    "binomial": np.array([0.0, 3, 7]),
    "beta": np.array([1e-6, 0.2, 0.5, 0.97]),
    "gaussian": np.array([-9.0, 0, 4]),
    "student": np.array([-9.0, 0, 4]),
}
TAILS = {"probit": stats.norm, "cloglog": stats.gumbel_l, "cauchit": stats.cauchy}
PROBABILITY = [text for text in LINKED if not text.endswith("(log)")]

each = pytest.mark.parametrize("text", LINKED)


def known(text, of=np.float64):
    return {name: of(value) for name, value in GIVEN[text.partition("(")[0]].items()}


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def oracle(text, eta):
    record = family(text)
    return DISTRIBUTION[record.name](INVERSE[record.link].inverse(eta))


def log_lik(text, y, eta):
    return family(text).log_lik(tensor(y), tensor(eta), known(text, tensor)).numpy()


def test_every_link_belongs_to_a_family():
    assert {link.name for link in LINKS} == {family(text).link for text in LINKED}


@each
def test_the_likelihood_is_scipys_of_statsmodels_mean(text):
    record = family(text)
    y, eta = np.meshgrid(RESPONSES[record.name], ETA)
    found, expected = log_lik(text, y, eta), oracle(text, eta)
    expected = expected.logpmf(y) if record.integer else expected.logpdf(y)
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9)


@each
def test_the_mean_is_scipys(text):
    assert np.allclose(family(text).mean(ETA, known(text)), oracle(text, ETA).mean(), rtol=1e-12)


@pytest.mark.parametrize("text", [text for text in PROBABILITY if "bernoulli" in text])
@pytest.mark.parametrize("eta", [-40.0, -9.0, 9.0, 40.0])
def test_both_tails_are_exact(text, eta):
    tails = TAILS[family(text).link]
    expected = [tails.logsf(eta), tails.logcdf(eta)]
    assert log_lik(text, [0, 1], [eta, eta]) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@each
@pytest.mark.parametrize("eta", [-800.0, -40.0, 40.0, 700.0])
def test_values_and_both_derivatives_are_finite_far_out(text, eta):
    if (text, eta) in (("gaussian(log)", 700), ("student(log)", 700)):
        eta = 300.0  # the square of the mean must be a number
    y = RESPONSES[family(text).name]
    at = torch.full((len(y),), eta, dtype=torch.float64, requires_grad=True)
    value = family(text).log_lik(tensor(y), at, known(text, tensor))
    (first,) = torch.autograd.grad(value.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), at)
    assert all(torch.isfinite(part).all() for part in (value, first, second))


@each
def test_the_derivatives_are_right(text):
    y = tensor(RESPONSES[family(text).name])
    eta = torch.linspace(-2, 1.5, len(y), dtype=torch.float64, requires_grad=True)
    arguments = (lambda e: family(text).log_lik(y, e, known(text, tensor)), (eta,))
    assert torch.autograd.gradcheck(*arguments, rtol=1e-5)
    assert torch.autograd.gradgradcheck(*arguments, rtol=1e-4)


@each
def test_random_responses_have_the_moments_of_the_distribution(text):
    eta, S = np.array([-1.0, 0.3, 1.0]), 20_000
    given = {name: np.full((S, 1), value) for name, value in GIVEN[family(text).name].items()}
    draws = family(text).rng(np.tile(eta, (S, 1)), given, np.random.default_rng(1))
    mean, variance, kurtosis = oracle(text, eta).stats("mvk")
    assert family(text).support(draws).all()
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / S))
    error = variance * np.sqrt((kurtosis + 2) / S)
    assert np.all(np.abs(draws.var(axis=0) - variance) < 5 * error + variance * 10 / S)


@each
@pytest.mark.parametrize("offset", [0.0, 0.7])
def test_the_location_of_eta_is_the_link_of_the_mean(text, offset):
    y = np.array([0.2, 0.9, 0.7, 0.4, 0.8]) if "beta" in text else np.array([0.0, 1, 1, 0, 1])
    n = np.full(5, 7.0 if "binomial" in text else 1.0)
    location, scale = family(text).eta_units(y, {"trials": n, "offsets": np.full(5, offset)})
    mean = family(text).mean(np.array(location + offset), known(text))
    assert mean == pytest.approx(y.mean(), rel=1e-12)
    coefficient_of_variation = y.std(ddof=1) / y.mean()
    assert scale == (min(1, coefficient_of_variation) if text.endswith("(log)") else 1)


def test_a_log_link_needs_a_positive_mean():
    with pytest.raises(InputError, match=r"positive mean, got -1; use the link identity"):
        family("gaussian(log)").eta_units(np.array([-3.0, 1]), {})


def test_the_unit_of_a_log_mean_is_at_most_1():
    assert family("student(log)").eta_units(np.array([-3.0, 4]), {})[1] == 1


def test_sigma_is_in_units_of_y_under_a_log_link():
    bundle, rows = small_bundle(family="gaussian(log)", train__epochs=1)
    sd = rows.y.std(ddof=1)
    assert bundle.units.y_scale == pytest.approx(sd)
    assert bundle.units.eta_scale == pytest.approx(sd / rows.y.mean())
    assert stan_data(bundle, rows)["prior_sigma_scale"] == pytest.approx(2.5 * sd)
    assert bundle.trained.dispersion["sigma"] == pytest.approx(sd, rel=0.1)


def test_a_fit_under_a_log_link_does_not_depend_on_the_units_of_y():
    frame = small_frame()
    first, second = (
        small_bundle(frame=frame.assign(y=factor * frame["y"]), family="gaussian(log)")[0].trained
        for factor in (1, 1000)
    )
    assert second.dispersion["sigma"] == pytest.approx(1000 * first.dispersion["sigma"])
    assert second.theta == pytest.approx(first.theta)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("bernoulli(log)", "family bernoulli has no link 'log'; it has logit, probit, cloglog, ca"),
        ("poisson(sqrt)", "family poisson has no link 'sqrt'; it has log"),
        ("beta(cauchit)", "family beta has no link 'cauchit'; it has logit, probit, cloglog"),
        ("bernouli(probit)", "unknown family 'bernouli'. Did you mean 'bernoulli'?"),
        ("bernoulli(probit", "a family is a name, or a name(link), got 'bernoulli(probit'"),
        ("bernoulli(probit, 3)", "family bernoulli takes a link alone"),
        ("cumulativ", "Did you mean 'cumulative'?"),
    ],
)
def test_an_unknown_link_is_refused_with_the_known_ones(text, named):
    with pytest.raises(InputError, match=re.escape(named)):
        family(text)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("bernoulli(logit)", "bernoulli"), (" normal( log )", "gaussian(log)"), ("beta()", "beta"),
        ("student_t(log)", "student(log)"), ("binomial(probit)", "binomial(probit)"),
    ],
)  # fmt: skip
def test_the_configuration_has_one_text_for_a_family(written, text):
    assert small_config(family=written).family == text
    assert str(family(text)) == text


def test_the_default_link_is_the_record_itself():
    assert all(family(f"{record.name}({record.link})") is record for record in FAMILIES)


def test_a_link_has_no_likelihood_in_cpp_no_glm_and_no_laplace():
    prepared = small_prepared("flag ~ x + nn(u)", family="bernoulli(probit)")
    assert not has_log_lik(family(prepared.config.family), prepared.design)
    assert "glm" not in stan_program(prepared.model)
    tempered = small_config(
        "flag ~ x + nn(u)", family="bernoulli(probit)",
        sample={"temperature": 2.0, "temper": "subspace"},
    )  # fmt: skip
    with pytest.raises(InputError, match=r"gaussian, poisson, bernoulli, got bernoulli\(probit\)"):
        temper_of(tempered, prepared.design)


def test_the_program_names_the_link_and_keeps_eta():
    prepared = small_prepared("flag ~ x + nn(u)", family="bernoulli(cloglog)")
    text = stan_program(prepared.model)
    assert "// family: bernoulli, link: cloglog\n" in text
    assert "vector[end - start + 1] logit_p = cloglog_to_logit(eta);" in text
    assert "bernoulli_logit_lpmf(y[start : end] | logit_p);" in text
    assert "probit" not in text


@pytest.mark.parametrize("text", [*LINKED, "cumulative(logit, 4)", "cumulative(probit, 4)"])
@pytest.mark.parametrize("weights", ["", " | weights(z)"])
def test_no_line_of_a_program_is_too_long(text, weights):
    response = {"be": "I(z / 3)", "cu": "o"}.get(text[:2], "flag")
    response = "flag" if text.startswith("bern") else response
    given = " | trials(n)" if text.startswith("bin") else ""
    given = f"{given} + weights(z)" if given and weights else given or weights
    frame = small_frame().assign(o=np.arange(30) % 4 + 1, n=7)
    prepared = small_prepared(f"{response}{given} ~ x + nn(u)", frame, family=text)
    program = stan_program(prepared.model)
    assert max(map(len, program.splitlines())) <= 80


@pytest.mark.parametrize(
    "text",
    ["bernoulli(probit)", "gaussian(log)", "cumulative(logit, 4)"],
)
def test_density_and_gradient_are_those_of_the_program(text, toolchain, tmp_path):
    bundle, rows = random_bundle(text)
    target = make_target(bundle, rows)
    # The last states are far out, where one of the two tails of each row is tiny.
    q = curve_states(bundle, 6) + 0.1 * np.random.default_rng(1).normal(size=(6, 1))
    q[4:, : bundle.subspace.k] *= 6
    program = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path)
    ours = np.array([-negative_log_posterior(target, torch.tensor(state)) for state in q])
    assert np.ptp(program.lp - ours) < 1e-9 * np.max(np.abs(program.lp))
    for state, expected in zip(q, program.gradient, strict=True):
        gradient = -derivatives(target, torch.tensor(state))[0].numpy()
        assert np.max(np.abs(gradient - expected)) < 1e-9 * np.max(np.abs(expected))
