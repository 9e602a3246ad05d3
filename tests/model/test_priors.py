import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from semistan.bundle.bundle import write_bundle
from semistan.command import cli
from semistan.data.model_file import read_config, write_config
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.cmdstan.compile import without_comments
from semistan.model.families.families import family
from semistan.model.priors.classes import CLASSES
from semistan.model.priors.densities import DENSITIES, parse_prior
from semistan.model.priors.lines import PriorLine, priors_as_used, priors_before_training
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.workflow.priors import priors as priors_of
from support.programs import evaluate
from support.small import RESPONSES, small_bundle, small_config, small_frame, small_prepared
from support.untrained import random_bundle

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
        ("normal(0, 1); reject()", "b", "must "),
    ],
)
def test_an_impossible_prior_is_refused_with_its_reason(text, parameter, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_prior(text, parameter)
    assert f"'{parameter}'" in str(caught.value)


DISTRIBUTIONS = {
    "normal": lambda m, s: scipy_stats.norm(m, s),
    "student_t": lambda df, m, s: scipy_stats.t(df, m, s),
    "cauchy": lambda m, s: scipy_stats.cauchy(m, s),
    "exponential": lambda rate: scipy_stats.expon(0, 1 / rate),
    "lognormal": lambda m, s: scipy_stats.lognorm(s, scale=np.exp(m)),
    "gamma": lambda a, rate: scipy_stats.gamma(a, scale=1 / rate),
    "inv_gamma": lambda a, scale: scipy_stats.invgamma(a, scale=scale),
    "beta": lambda a, b: scipy_stats.beta(a, b),
}
ARGUMENTS = {
    "normal": (0.3, 1.5), "student_t": (4, -0.2, 2), "cauchy": (0.1, 0.7), "exponential": (0.4,),
    "lognormal": (-0.3, 0.8), "gamma": (2, 0.1), "inv_gamma": (3, 1.7),
    "beta": (0.7, 2.5),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name != "beta"])
def test_rescaling_is_a_change_of_units(name):
    arguments = tuple(
        0 if n == "location" else x
        for n, x in zip(DENSITIES[name].arguments, ARGUMENTS[name], strict=True)
    )
    text = f"{name}({', '.join(map(str, arguments))})"
    used = parse_prior(text, "sigma").rescaled(7.0)
    probabilities = np.linspace(0.05, 0.99, 9)
    expected = 7.0 * DISTRIBUTIONS[name](*arguments).ppf(probabilities)
    assert DISTRIBUTIONS[name](*used.values).ppf(probabilities) == pytest.approx(expected)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_density_is_the_same_in_scipy_and_in_torch(name):
    x, arguments = np.array([0.2, 0.9, 4.0]), ARGUMENTS[name]
    density, expected = DENSITIES[name], DISTRIBUTIONS[name](*arguments)
    x = x[(x > expected.support()[0]) & (x < expected.support()[1])]
    in_torch = density.in_torch(*arguments).log_prob(torch.tensor(x)).numpy()
    assert in_torch == pytest.approx(expected.logpdf(x), rel=1e-12)
    in_scipy = density.in_scipy(*(np.array([a, a]) for a in arguments))
    assert in_scipy.logpdf(0.9) == pytest.approx(np.repeat(expected.logpdf(0.9), 2), rel=1e-14)
    low, high = expected.support()
    kinds = {(-np.inf, np.inf): "real", (0, np.inf): "positive", (0, 1): "unit interval"}
    assert density.support == kinds[float(low), float(high)]


def test_every_density_is_tested_and_knows_which_argument_carries_the_units():
    others = {"constant", "horseshoe", "R2D2", "lkj", "dirichlet"}
    assert set(DENSITIES) == {*DISTRIBUTIONS, *others}
    for density in DENSITIES.values():
        assert set(density.carriers) <= set(density.arguments)


def test_autoscaled_priors_have_the_units_of_their_parameters():
    bundle, rows = small_bundle("y ~ x + z + nn(u)", priors__sigma="exponential(2)")
    data = bundle.prior_data
    expected = 2.5 * rows.y.std(ddof=1) / rows.X.std(axis=0, ddof=1)
    assert np.allclose(data["prior_b_scale"], expected, rtol=1e-12)
    assert np.array_equal(data["prior_b_location"], [0, 0])
    assert data["prior_sigma_rate"] == pytest.approx(2 / rows.y.std(ddof=1), rel=1e-12)
    assert np.array_equal(data["prior_phi_location"], [0, 0])
    assert np.array_equal(data["prior_phi_scale"], [5, 5])


def test_priors_are_used_as_written_without_autoscale():
    bundle, _ = small_bundle(
        "y ~ x + z + nn(u)", priors__autoscale=False, priors__b_z="normal(0, 3)"
    )
    data = bundle.prior_data
    assert np.array_equal(data["prior_b_scale"], [2.5, 3])
    assert data["prior_sigma_scale"] == 2.5


def test_a_constant_is_never_rescaled():
    bundle, _ = small_bundle(priors__sigma="constant(3)")
    assert bundle.prior_data["prior_sigma_value"] == 3


@pytest.mark.parametrize("name", RESPONSES)
def test_every_sampled_parameter_has_a_prior(name):
    prepared = small_prepared(f"{RESPONSES[name]} ~ x + nn(u)", family=name)
    groups = prepared.model.priors
    assert [group.parameter for group in groups] == ["phi", "theta", *family(name).dispersion]


def test_priors_are_listed_as_written_and_as_used():
    bundle, _ = small_bundle(
        "y ~ x + z + nn(u)", priors__b_z="cauchy(0, 1)", priors__phi="normal(0, 2)"
    )
    x, z = bundle.units.theta_scale
    assert priors_as_used(bundle) == (
        PriorLine("phi", "normal(0, 2)", "normal(0, 2)", "class", "phi"),
        PriorLine("b_x", "normal(0, 2.5)", f"normal(0, {2.5 * x:.6g})", "default", "b"),
        PriorLine("b_z", "cauchy(0, 1)", f"cauchy(0, {z:.6g})", "coefficient", "b"),
        PriorLine("sigma", "student_t(3, 0, 2.5)",
                  f"student_t(3, 0, {2.5 * bundle.units.eta_scale:.6g})", "default", "sigma"),
    )  # fmt: skip


def test_phi_has_a_prior_for_each_scale_even_without_autoscale():
    bundle, _ = small_bundle(priors__phi="normal(1, 2)", priors__autoscale=False)
    scales = np.array([0.5, 3])
    scaled = replace(bundle.subspace, phi_scale=scales)
    bundle = replace(bundle, trained=replace(bundle.trained, subspace=scaled))
    data = bundle.prior_data
    assert np.array_equal(data["prior_phi_scale"], [1, 6])
    assert np.array_equal(data["prior_phi_location"], [1, 1])
    lines = [line for line in priors_as_used(bundle) if line.parameter.startswith("phi")]
    assert lines == [
        PriorLine("phi[1]", "normal(1, 2)", "normal(1, 1)", "class", "phi"),
        PriorLine("phi[2]", "normal(1, 2)", "normal(1, 6)", "class", "phi"),
    ]


def test_auto_takes_phis_scales_from_the_control_points():
    bundle, _ = small_bundle(priors__phi="auto")
    points = (bundle.trained.control_points - bundle.subspace.p_bar) @ bundle.subspace.Pi
    data = bundle.prior_data
    expected = 2 * np.sqrt((points**2).sum(axis=0) / (len(points) - 1))
    assert data["prior_phi_scale"] == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(data["prior_phi_location"], [0, 0])
    assert [line.written for line in priors_as_used(bundle)][:2] == ["auto", "auto"]


@pytest.mark.parametrize("construction", ["pca", "naive", "subnetwork", "random", "full"])
def test_auto_is_there_for_every_construction(construction):
    k = 13 if construction == "full" else 2
    bundle, _ = small_bundle(subspace__construction=construction, priors__phi="auto",
                             subspace__k=k, train__epochs=40)  # fmt: skip
    scale, subspace = bundle.prior_data["prior_phi_scale"], bundle.subspace
    assert (scale > 0).all()
    if construction == "naive":
        spread = bundle.trained.singular_values / np.sqrt(len(bundle.trained.control_points) - 1)
        assert scale == pytest.approx(2 * spread, rel=1e-9)
    else:
        assert scale == pytest.approx(2 * subspace.phi_scale, rel=1e-12)


def test_before_training_only_phis_width_is_unknown():
    frame = small_frame()
    table = priors_of("y ~ x + nn(u)", frame, overrides={"priors.phi": "auto"})
    bundle, _ = small_bundle("y ~ x + nn(u)", priors__phi="auto")
    trained = priors_of(bundle)
    assert table["parameter"].tolist() == ["phi", "b_x", "sigma"]
    assert table["used"].tolist()[0] == "known after training"
    assert table.iloc[1:].to_numpy().tolist() == trained.iloc[2:].to_numpy().tolist()
    fixed = priors_of("y ~ x + nn(u)", frame, overrides={"priors.phi": "normal(0, 5)"})
    assert fixed["used"].tolist()[0] == "normal(0, 5)"
    scaled = {"priors.phi": "normal(0, 5)", "subspace.construction": "pca"}
    pca = priors_of("y ~ x + nn(u)", frame, overrides=scaled)
    assert pca["used"].tolist()[0] == "known after training"


def test_the_prior_of_the_weights_is_known_before_training():
    table = priors_of("y ~ x + nn(u)", small_frame())
    assert table["parameter"].tolist() == ["w", "output biases", "b_x", "sigma"]
    used = ["normal(0, 2 / sqrt(inputs of the layer)), normal(0, 2) of biases", "normal(0, 2.5)"]
    assert table["used"].tolist()[:2] == used
    assert set(table["source"]) == {"default"}
    given = priors_of("y ~ x + nn(u)", small_frame(), overrides={"priors.w": "normal(0, 1)"})
    assert given["source"].tolist()[:2] == ["class", "default"]


def test_the_priors_of_a_folder_are_listed(tmp_path):
    bundle, _ = small_bundle()
    write_bundle(bundle, tmp_path / "bundle")
    table = priors_of(tmp_path / "bundle")
    assert table.equals(priors_of(bundle))
    with pytest.raises(InputError, match="is trained"):
        priors_of(tmp_path / "bundle", overrides={"priors.b": "normal(0, 1)"})


def test_coefficients_of_one_density_share_a_statement_and_their_data():
    bundle, _ = small_bundle("y ~ x + z + nn(u)", priors__b_z="normal(1, 4)")
    plain, _ = small_bundle("y ~ x + z + nn(u)")
    assert without_comments(bundle_program(bundle)) == without_comments(bundle_program(plain))
    data, scale = bundle.prior_data, bundle.units.theta_scale
    assert data["prior_b_scale"] == pytest.approx([2.5, 4] * scale, rel=1e-12)
    assert np.array_equal(data["prior_b_location"], [0, 1])


def test_which_coefficient_has_which_density_is_data():
    def programs_of(**priors):
        bundle, _ = small_bundle("y ~ x + z + C(g) + nn(u)", **priors)
        return without_comments(bundle_program(bundle)), bundle.prior_data

    one, data = programs_of(priors__b_x="student_t(3, 0, 1)")
    other, more = programs_of(priors__b_z="student_t(5, 0, 1)", priors__b_gb="student_t(5, 2, 2)")
    assert one == other
    assert data["n_prior_b_student_t"] == 1
    assert data["prior_b_student_t"].tolist() == [1]
    assert data["prior_b_normal"].tolist() == [2, 3, 4]
    assert more["prior_b_student_t"].tolist() == [2, 3]
    assert more["prior_b_student_t_location"].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"b_xx": "normal(0, 1)"}, "prior 'b_xx': the model has no such parameter. "
                                   "Did you mean 'b_x'?"),
        ({"b_Intercept": "normal(0, 1)"}, "the intercept is the mean of the network's output"),
        ({"b_x": "normal(0, -1)"}, "prior 'b_x': the scale of normal must be positive, got -1"),
        ({"b_x": "norml(0, 1)"}, "unknown density 'norml'. Did you mean 'normal'?"),
        ({"b_x": "normal(1)"}, "normal takes (location, scale), got 'normal(1)'"),
        ({"b_x": "exponential(1)"}, "exponential allows only positive values"),
        ({"b_x": "constant(1)"}, "leave the term out of the formula"),
        ({"b_x": "auto"}, "must look like"),
        ({"b": "auto"}, "must look like"),
        ({"b_x": 3}, "priors.b_x"),
        ({"sgma": "normal(0, 1)"}, "unknown key 'sgma'. Did you mean 'sigma'?"),
        ({"x": "normal(0, 1)"}, "The key of a coefficient is its name in the table, as b_age."),
        ({"b_x\n": "normal(0, 1)"}, "unknown key"),
        ({"sigma": "lognormal(0, 0)"}, "the sdlog of lognormal must be positive, got 0"),
        ({"sigma": "gamma(0, 1)"}, "the shape of gamma must be positive, got 0"),
        ({"shape": "gamma(2, 0.1)"}, "prior 'shape': family gaussian has no such parameter."),
        ({"gap": "normal(0, 1)"}, "prior 'gap': family gaussian has no such parameter."),
    ],
)  # fmt: skip
def test_a_wrong_prior_is_refused_before_training(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(priors=settings)


def test_a_prior_of_a_parameter_that_another_family_has_is_refused():
    with pytest.raises(InputError, match="prior 'sigma': family poisson has no such parameter"):
        small_prepared("count ~ x + nn(u, v)", family="poisson", priors={"sigma": "normal(0, 1)"})


def test_a_prior_is_refused_where_the_subspace_holds_the_coefficients():
    with pytest.raises(InputError, match="prior 'b_x': in the construction 'naive'"):
        small_prepared(priors__b_x="normal(0, 1)", subspace__construction="naive")


def test_the_priors_of_coefficients_survive_the_file(tmp_path):
    config = small_config(priors__b_x="student_t(3, 0, 1)", priors__phi="auto")
    write_config(config, tmp_path / "model.toml")
    assert read_config(tmp_path / "model.toml") == config
    assert config.priors.coefficients == {"b_x": "student_t(3, 0, 1)"}


MIXED = {"b": "normal(0, 2)", "b_x2": "student_t(4, -1, 3)"}


def test_a_subspace_is_tempered_under_one_density_only():
    settings = {"sample": {"temper": "subspace", "temperature": 2.0}}
    bundle, _ = small_bundle(priors__b_x="cauchy(0, 1)", **settings)
    with pytest.raises(InputError, match="the same density on all coefficients, got cauchy, norm"):
        bundle_program(bundle)


def printed(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["semistan", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code, capsys.readouterr()


def test_the_command_prints_priors_given_one_by_one(monkeypatch, capsys, tmp_path):
    small_frame().to_csv(tmp_path / "data.csv", index=False)
    arguments = ["priors", "y ~ x + z + nn(u)", "--data", tmp_path / "data.csv", "--json",
                 "--prior", "b_x=student_t(3, 0, 1)", "--prior", "phi = auto",
                 "--prior-b", "cauchy(0, 1)", "--no-autoscale"]  # fmt: skip
    code, shown = printed(monkeypatch, capsys, *arguments)
    assert code == 0
    assert [list(line.values()) for line in json.loads(shown.out)["rows"]] == [
        ["phi", "auto", "known after training", "class"],
        ["b_x", "student_t(3, 0, 1)", "student_t(3, 0, 1)", "coefficient"],
        ["b_z", "cauchy(0, 1)", "cauchy(0, 1)", "class"],
        ["sigma", "student_t(3, 0, 2.5)", "student_t(3, 0, 2.5)", "default"],
    ]


@pytest.mark.parametrize("text", ["normal(0, 1)", "b.x=normal(0, 1)", "=normal(0, 1)"])
def test_a_flag_without_a_parameter_is_refused(text, monkeypatch, capsys):
    code, shown = printed(monkeypatch, capsys, "priors", "y ~ x + nn(u)", "--prior", text)
    assert code == 2
    assert f"--prior takes a parameter and its prior as b_age='normal(0, 1)', got '{text}'" in (
        " ".join(shown.err.split())
    )


@pytest.mark.parametrize(
    ("sigma", "kernel"), [("lognormal(0.2, 0.7)", "stan"), ("gamma(2, 0.1)", "cpp")]
)
def test_the_program_has_the_density_that_numpy_computes(sigma, kernel, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors=MIXED | {"sigma": sigma})
    states = np.random.default_rng(3).normal(0, 0.5, size=(4, 6))
    data = stan_data(bundle, rows, prior_only=True)
    found = evaluate(bundle, data, states, toolchain, tmp_path, kernel)
    phi, scaled, log_sigma = states[:, :3], states[:, 3:5], states[:, 5]
    theta, s = scaled * bundle.units.theta_scale, bundle.units.theta_scale
    prior = parse_prior(sigma, "sigma").rescaled(bundle.units.eta_scale)
    expected = (
        scipy_stats.norm.logpdf(phi, 0, 5).sum(axis=1)
        + scipy_stats.norm.logpdf(theta[:, 0], 0, 2 * s[0])
        + scipy_stats.t.logpdf(theta[:, 1], 4, -1, 3 * s[1])
        + DISTRIBUTIONS[prior.density.name](*prior.values).logpdf(np.exp(log_sigma))
    )
    assert found.written["lprior"] == pytest.approx(expected, rel=1e-12)
    jacobian = np.log(s).sum() + log_sigma
    assert found.lp == pytest.approx(expected + jacobian, rel=1e-12)
    target = make_target(bundle, rows, prior_only=True)
    by_torch = [negative_log_posterior(target, torch.tensor(q)) for q in states]
    assert -np.array(by_torch) == pytest.approx(expected + log_sigma, rel=1e-12)


TERMS = "y ~ x + s(u) + gp(z) + mo(rank) + (1 + x | g) + nn(v)"


def small_terms(**priors):
    frame = small_frame().assign(rank=lambda table: np.arange(len(table)) % 4)
    return small_prepared(TERMS, frame, priors=priors).model


def test_every_class_of_terms_has_its_key_and_every_parameter_its_own():
    classes = {
        "b": "normal(0, 1)", "sd": "normal(0, 2)", "cor": "lkj(2)", "sds": "normal(0, 3)",
        "sdgp": "normal(0, 4)", "lscale": "lognormal(0, 1)", "simo": "dirichlet(2)",
    }  # fmt: skip
    of = {
        "b_x": "b", "bsp_morank": "b", "sd_g__Intercept": "sd", "sd_g__x": "sd", "cor": "cor",
        "sds_su_1": "sds", "sdgp_gpz": "sdgp", "lscale_gpz": "lscale", "simo_morank1": "simo",
    }  # fmt: skip
    found = {line.parameter: line for line in priors_before_training(small_terms(**classes))}
    for name, key in of.items():
        assert (found[name].written, found[name].source) == (classes[key], "class"), name
    single = {name: classes[key] for name, key in of.items() if name != "cor"} | {"cor_g": "lkj(3)"}
    found = {line.parameter: line for line in priors_before_training(small_terms(**single))}
    for name, text in single.items():
        assert (found[name].written, found[name].source) == (text, "coefficient"), name


def test_steps_in_another_predictor_have_the_prior_of_its_coefficients():
    frame = small_frame().assign(rank=lambda table: np.arange(len(table)) % 4)
    formula = "y ~ nn(v), sigma ~ mo(rank)"
    priors = {"b": "normal(0, 9)", "b_sigma": "normal(0, 1)"}
    found = priors_before_training(small_prepared(formula, frame, priors=priors).model)
    (step,) = (line for line in found if line.parameter == "bsp_sigma_morank")
    assert (step.written, step.source) == ("normal(0, 1)", "class")


def test_a_group_may_have_a_prior_of_its_own():
    lines = priors_before_training(small_terms(sd_g="normal(0, 9)", sd_g__x="normal(0, 1)"))
    found = {line.parameter: line.written for line in lines}
    assert (found["sd_g__Intercept"], found["sd_g__x"]) == ("normal(0, 9)", "normal(0, 1)")


def test_a_step_has_the_scale_of_a_coefficient():
    found = {line.parameter: line.used for line in priors_before_training(small_terms())}
    y, rank = small_frame().y, np.arange(len(small_frame())) % 4
    scale = parse_prior(found["bsp_morank"], "b").argument("scale")
    assert scale == pytest.approx(2.5 * y.std() / rank.std(ddof=1), rel=1e-5)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"simo_morank1": "dirichlet(1, 2)"}, "dirichlet takes 1 number, or 3, one for each step"),
        ({"simo": "normal(0, 1)"}, "dirichlet() is for the shares of the steps of mo()"),
        ({"sdgp": "dirichlet(1)"}, "dirichlet() is for the shares of the steps of mo()"),
        ({"simo": "dirichlet(1, 0)"}, "the concentration of dirichlet must be positive, got 0"),
        ({"bsp_morank": "exponential(1)"}, "exponential allows only positive values"),
        ({"sdgp_gpz": "beta(1, 1)"}, "and the parameter can be any positive number"),
        ({"sdgp_gpx": "normal(0, 1)"}, "Did you mean 'sdgp_gpz'?"),
        ({"cor_h": "lkj(1)"}, "Did you mean 'cor_g'?"),
    ],
)
def test_a_prior_that_does_not_fit_its_term_is_refused(priors, message):
    with pytest.raises(InputError, match=re.escape(message)):
        priors_before_training(small_terms(**priors))


@pytest.mark.parametrize(
    ("family", "key", "prior", "values"),
    [
        ("skew_normal", "alpha", "lognormal(0, 1)", "any number"),
        ("acat", "gap", "exponential(1)", "any number"),
        ("gaussian", "sigma", "beta(1, 1)", "any positive number"),
        ("zero_inflated_poisson", "zi", "exponential(1)", None),
        ("skew_normal", "alpha", "constant(-2)", None),
        ("zero_inflated_poisson", "zi", "constant(0.2)", None),
        ("cumulative", "gap", "lognormal(0, 1)", None),
    ],
)
def test_a_prior_reaches_as_far_as_the_parameter_of_its_family(family, key, prior, values):
    frame = small_frame().assign(y=lambda table: np.arange(len(table)) % 4 + 1)
    prepared = small_prepared("y ~ x + nn(v)", frame, family=family, priors={key: prior})
    if values is None:
        assert prior in {line.written for line in priors_before_training(prepared.model)}
        return
    with pytest.raises(InputError, match=f"prior '{key}.*and the parameter can be {values}"):
        priors_before_training(prepared.model)


@pytest.mark.parametrize(
    ("family", "prior", "message"),
    [
        ("gaussian", {"sigma": "constant(0)"}, "sigma.*only positive values.*constant\\(0\\)"),
        ("hurdle_poisson", {"hu": "constant(1.5)"}, "hu.*only values between 0 and 1"),
    ],
)
def test_a_constant_is_one_of_the_values_of_its_parameter(family, prior, message):
    prepared = small_prepared("count ~ x + nn(v)", small_frame(), family=family, priors=prior)
    with pytest.raises(InputError, match=message):
        priors_before_training(prepared.model)


def test_a_prior_reaches_as_far_as_the_scales_of_weights():
    settings = {"priors": {"sd_w": "beta(1, 1)"}, "subspace__construction": "full"}
    prepared = small_prepared("y ~ x + nn(v)", small_frame(), **settings)
    with pytest.raises(InputError, match=r"prior 'sd_w.*can be any positive number"):
        priors_before_training(prepared.model)


def test_a_class_that_the_model_has_not_is_refused():
    with pytest.raises(InputError, match=r"unknown key 'sdpg'. Did you mean 'sdgp'"):
        small_prepared(priors={"sdpg": "normal(0, 1)"})


def test_the_page_lists_the_classes_with_their_defaults():
    page = (Path(__file__).parents[2] / "docs/terms.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+ \| [^|]+) \|", page, re.MULTILINE))
    for key, item in CLASSES.items():
        of, _, default = rows[key].partition(" | ")
        assert of == item.of
        assert item.default == (default.strip("`") if item.default else "")


@pytest.mark.parametrize(
    ("name", "written"),
    [("b_gb:hq", "b_gb_hq"), ("b_gb:c:x", "b_gb_c_x"), ("b_Sepal.Length", "b_Sepal_Length"),
     ("b_g[T.b]", "b_gb"), ("b_sigma_z:x", "b_sigma_z_x")],
)  # fmt: skip
def test_a_name_as_brms_writes_it_is_refused_with_ours(name, written):
    with pytest.raises(InputError, match=f"where brms has ':' or '.': write '{written}'"):
        small_config(**{f"priors__{name}": "normal(0, 1)"})
