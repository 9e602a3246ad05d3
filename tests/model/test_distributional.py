"""Predictors of dispersion parameters: ``y ~ x + nn(u), sigma ~ z + nn(u)``."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.derivatives import derivatives, expansion
from semistan.density.predictor import network_output
from semistan.density.problem import Weights, make_problem
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.design import design_from_plain, design_to_plain
from semistan.model.families.families import FAMILIES
from semistan.model.families.families import family as family_record
from semistan.model.formula.calls import TermCall
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.right import GroupTerm, PredictorFormula
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks, forward, output_and_jacobian, outputs
from semistan.model.priors.lines import priors_as_used
from semistan.posterior.diagnostics import convergence, eta_convergence
from semistan.posterior.engine import onnx_engine
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import (
    distribution,
    log_lik,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
)
from semistan.posterior.prior_draws import prior_draws
from semistan.program.data import stan_data
from semistan.program.parts import has_log_lik
from semistan.program.program import bundle_program
from semistan.program.quantities import quantities_program
from semistan.show.pictures.slice import Plane
from semistan.subspace.start_values import curve_states
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.sample import sample
from support.assertions import Z
from support.columns import assert_columns, assert_program
from support.drawn import random_draws
from support.programs import evaluate, stanc_output
from support.small import small_bundle, small_config, small_frame, small_prepared
from support.tables import read_back
from support.untrained import random_bundle

FORMULA = "y ~ x1 + nn(u1, u2), sigma ~ z + g + nn(u2, u3)"
TERMS = (
    "y ~ x1 + s(v, k=4) + (x1 | g) + nn(u1, u2), "
    "sigma ~ z + s(v, k=4) + (x1 | g) + offset(0.1 * x2) + nn(u2, u3)"
)
PARTS = {"terms": "z + g", "network": "nn(v)", "both": "z + nn(u3)", "intercept": "1",
         "more": "s(v, k=4) + (x2 | g) + offset(0.1 * z)"}  # fmt: skip
VARIED = [(record.name, parameter.name) for record in FAMILIES for parameter in record.parameters]
OPTIONS = SampleConfig(chains=2, warmup=150, draws=100, seed=5, kernel="stan")


def arguments(formula):
    return tuple(network.arguments for network in formula.networks)


def varied_bundle(family, parameter, part="both", left="y", **settings):
    if "trials" in family_record(family).given:
        left = f"{left} + trials(tries)" if "|" in left else f"{left} | trials(tries)"
    formula = f"{left} ~ x1 + nn(u1, u2), {parameter} ~ {PARTS[part]}"
    return random_bundle(family, formula=formula, **settings)


# ----------------------------------------------------------------------------- the formula


def test_every_part_is_found():
    formula = parse_formula(
        "y | weights(w) ~ x + s(v) + nn(u, t), sigma ~ C(g, contr.sum) + x:z + nn(u), nu ~ nn(a)"
    )
    assert formula.others == (
        PredictorFormula("sigma", ("C(g, contr.sum)", "x:z"), (("u",),), layers=({},), times=("",)),
        PredictorFormula("nu", (), (("a",),), layers=({},), times=("",)),
    )
    assert arguments(formula) == (("u", "t"), ("u",), ("a",))
    assert formula.mean.networks == (("u", "t"),)
    assert (formula.mean.structured, formula.weights) == (("x", "v"), "w")
    assert set(formula.columns) == {"x", "v", "u", "t", "g", "z", "a"}


def test_a_predictor_behind_a_comma_has_every_kind_of_term():
    formula = parse_formula("y ~ nn(u), sigma ~ z + s(v, k=5) + (x | g) + offset(log(t)) + nn(a)")
    (sigma,) = formula.others
    assert (sigma.structured, sigma.networks, sigma.offsets) == (
        ("z", "v"), (("a",),), ("log(t)",),
    )  # fmt: skip
    assert sigma.calls == (TermCall("s", "v", (("k", 5),)),)
    assert sigma.groups == (GroupTerm("(x | g)", True, ("x",), ("g",), True),)
    assert set(formula.columns) == {"u", "z", "v", "x", "g", "t", "a"}


def test_a_comma_in_brackets_or_in_a_name_separates_nothing():
    formula = parse_formula("y ~ poly(x, 2) + nn(`a, b`, u)")
    assert (formula.others, arguments(formula)) == ((), (("`a, b`", "u"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ nn(u)«, z»", "expected a parameter's predictor"),
        ("y ~ nn(u)«,»", "expected a parameter's predictor"),
        ("y ~ nn(u), sigma ~ z, «sigma ~ x»", "has a predictor already"),
        ("y ~ nn(u), «sigma | weights(w)» ~ z", "stand beside the response alone"),
        ("y ~ nn(u), sigma ~ z + «s(x):v»", r"s\(\) cannot take part in an interaction"),
        ("y ~ nn(u), sigma ~ («0» | g)", "expected 1 or a column before the bar"),
        ("y ~ nn(u), «log(sigma)» ~ z", "expected the name of a parameter"),
        ("y ~ nn(u), «sigma» ~ ", "expected terms right of '~'"),
        ("y ~ nn(u), sigma ~ «0» + z", "removes the intercept"),
        ("y ~ nn(u), sigma ~ z «- 1»", "removes the intercept"),
        ("y ~ nn(u), sigma ~ «lgo»(z)", "function 'lgo' is not available"),
        ("y ~ nn(u), sigma ~ nn(z) + «nn(z)»", "networks are added"),
        ("y ~ nn(u), sigma ~ z «~» x", "with one '~'"),
        ("y ~ «x», sigma ~ nn(u)", r"needs an nn\(\) term"),
        ("y ~ x + «lgo»(u) + nn(u), sigma ~ z", "function 'lgo' is not available"),
    ],
)
def test_a_mistake_is_marked_in_the_whole_formula(text, message):
    plain = text.replace("«", "").replace("»", "")
    with pytest.raises(InputError, match=message) as caught:
        parse_formula(plain)
    _, shown, carets, *_ = str(caught.value).splitlines()
    assert shown == f"  {plain}"
    assert carets == f"  {' ' * text.index('«')}{'^' * (text.index('»') - text.index('«') - 1)}"


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("y ~ nn(u), sgima ~ z", "gaussian", "Did you mean 'sigma'"),
        ("y ~ nn(u), shape ~ z", "gaussian", "Known: sigma"),
        ("count ~ nn(u), sigma ~ z", "poisson", "has no dispersion parameter"),
        ("y ~ sigma_z + nn(u), sigma ~ z", "gaussian", "both be called 'b_sigma_z'"),
        ("y ~ sigma_Intercept + nn(u), sigma ~ z", "gaussian", "'b_sigma_Intercept'"),
        ("y ~ nn(u), sigma ~ one", "gaussian", "column 'one' is constant"),
        ("y ~ nn(u), sigma ~ z + I(2 * z)", "gaussian", "collinear with z"),
        ("y ~ nn(u), sigma ~ absent", "gaussian", "'absent'"),
    ],
)
def test_what_the_family_or_the_table_does_not_have_is_refused(formula, family, message):
    frame = small_frame().assign(
        one=1.0, sigma_z=lambda t: t["v"], sigma_Intercept=lambda t: t["u"]
    )
    with pytest.raises(InputError, match=re.escape(message)):
        prepare(small_config(formula, family=family), frame)


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        ("z", {"subspace__construction": "naive"}, "has no 'sigma ~ ...'"),
        ("nn(v)", {"subspace__construction": "low_rank_laplace"}, "no nn() in 'sigma ~ ...'"),
        ("nn(v)", {"subspace__construction": "subnetwork"}, "no nn() in 'sigma ~ ...'"),
        ("z", {"priors__sigma": "exponential(1)"}, "sigma has a predictor"),
        ("nn(v)", {"priors__b_sigma_Intercept": "normal(0, 1)"}, "the mean of a network's output"),
        ("z", {"priors__b_sigma_x": "normal(0, 1)"}, "Did you mean 'b_sigma_z'"),
        ("nn(v)", {"priors__b_sigma": "normal(0, 1)"}, "no such parameter. Known: b_x"),
        ("z", {"priors__b_sigma": "constant(1)"}, "constant() is for dispersion parameters"),
        ("z", {"priors__b_sigma": "horseshoe()"}, "for all coefficients together"),
    ],
)
def test_what_knows_the_mean_alone_is_refused(part, settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(f"y ~ x + nn(u, v), sigma ~ {part}", **settings)


def test_the_subspace_is_not_tempered_beside_a_predictor():
    settings = {"sample__temperature": 2.0, "sample__temper": "subspace"}
    bundle, _ = small_bundle("y ~ x + nn(u), sigma ~ z", **settings)
    with pytest.raises(InputError, match="temper = 'subspace' has no 'sigma ~"):
        bundle_program(bundle)


@pytest.mark.lengthy
def test_draws_from_the_prior_have_its_standard_deviations():
    priors = {"b_sigma": "normal(0, 0.3)", "b_sigma_Intercept": "normal(0.5, 0.2)",
              "b_sigma_x": "student_t(7, 0, 0.1)"}  # fmt: skip
    bundle, rows = small_bundle("y ~ x + nn(u), sigma ~ x + z", priors=priors)
    n, (loc, scale) = 4000, bundle.units.columns["sigma"]
    draws = prior_draws(bundle, rows, (1, n), np.random.default_rng(1))
    b_x, b_z = (draws.coefficients[name][0] for name in ("b_sigma_x", "b_sigma_z"))
    start = np.log(bundle.units.start(bundle.family.parameter("sigma")))
    tau = draws.coefficients["b_sigma_Intercept"][0] + loc[0] * b_x + loc[1] * b_z - start
    for values, mean, sd in (
        (b_x, 0, 0.1 / scale[0] * np.sqrt(7 / 5)), (b_z, 0, 0.3 / scale[1]), (tau, 0.5, 0.2),
    ):  # fmt: skip
        assert abs(values.mean() - mean) < Z * sd / np.sqrt(n)
        assert abs(values.std() / sd - 1) < 2 * Z / np.sqrt(2 * n)
    sigma = distribution(SubspacePosterior(bundle, draws), rows)["sigma"]
    expected = np.exp(
        start + tau[:, None] + np.stack([b_x, b_z], 1) @ (rows.predictors["sigma"].X - loc).T
    )
    assert sigma == pytest.approx(expected, rel=1e-9)


def test_every_column_is_the_programs(toolchain, tmp_path):
    formula = "y ~ x1 + nn(u1, u2) + nn(v), sigma ~ nn(u3) + nn(z), nu ~ x2"
    bundle, rows = random_bundle("student", formula=formula)
    assert_columns(bundle, rows, toolchain, tmp_path)


@pytest.mark.parametrize("left", ["y", "y | weights(w)"])
def test_with_terms_density_gradient_and_columns_are_the_programs(left, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", formula=TERMS.replace("y", left, 1))
    assert_program(bundle, rows, toolchain, tmp_path)


def test_without_such_a_part_nothing_of_it_is_there():
    prepared = small_prepared()
    assert "parameters" not in design_to_plain(prepared.design)
    assert (list(prepared.rows.predictors), prepared.design.network_predictors) == (["mu"], ())


# ----------------------------------------------------------------------------- the networks


def test_outputs_and_derivatives_are_those_of_the_predictors_own_networks():
    sizes, of = (2, 1, 3), ("mu", "sigma", "mu")
    spec = Networks(tuple(FullyConnected(m, (4,)) for m in sizes), of)
    generator = torch.Generator().manual_seed(1)
    w, h = (torch.randn(shape, generator=generator, dtype=torch.float64)
            for shape in ((spec.d,), (5, 6)))  # fmt: skip
    first, second, third = outputs(spec, w, h)
    assert torch.equal(forward(spec, w, h), first + third)
    assert torch.equal(forward(spec, w, h, "sigma"), second)
    assert torch.equal(forward(spec, w[None], h, "nu"), torch.zeros(1, 5, dtype=torch.float64))
    for predictor in ("mu", "sigma", "nu"):
        f, J = output_and_jacobian(spec, w, h, predictor)
        naive = torch.func.jacrev(lambda w, of=predictor: forward(spec, w, h, of))(w)
        assert torch.equal(f, forward(spec, w, h, predictor))
        assert torch.allclose(J, naive, rtol=1e-12, atol=1e-12)


def test_a_coefficient_is_imitated_by_networks_of_its_own_predictor_alone():
    own = small_bundle("y ~ u + nn(u, v), sigma ~ nn(x)")[0]
    other = small_bundle("y ~ x + nn(u, v), sigma ~ nn(x)")[0]
    columns = semistan.model.orthogonal.orthogonal_columns
    assert columns(own.config, own.design) == (0,)
    assert columns(other.config, other.design) == ()


# ----------------------------------------------------------------------------- training


def test_the_loss_is_the_mean_negative_log_likelihood_of_normals_of_many_widths():
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    problem = make_problem(bundle.model, rows, "cpu")
    generator, d = np.random.default_rng(1), bundle.network.d
    w, theta = generator.normal(size=(2, d)), generator.normal(size=problem.all_coefficients)
    state = Weights(*map(torch.tensor, (w, theta, [-0.3])))
    both = (rows.predictors[name].X for name in ("mu", "sigma"))
    X, Zs = ((x - x.mean(axis=0)) / x.std(axis=0, ddof=1) for x in both)
    U = (rows.U - rows.U.mean(axis=0)) / rows.U.std(axis=0, ddof=1)
    sd = rows.y.std(ddof=1)
    half = d // 2
    for loss, one in zip(problem.loss(state), w, strict=True):
        f, g = by_hand(one[:half], U[:, :2]), by_hand(one[half:], U[:, 2:])
        mean = rows.y.mean() + sd * (X @ theta[:1] + f)
        sigma = sd * np.exp(Zs @ theta[1:] + g)
        assert float(loss) == pytest.approx(-stats.norm(mean, sigma).logpdf(rows.y).mean())


def by_hand(w, U):
    """A network with four tanh units at weights (d,)."""
    q = U.shape[1]
    hidden = np.tanh(U @ w[: 4 * q].reshape(4, q).T + w[4 * q : 4 * q + 4])
    return hidden @ w[4 * q + 4 : 4 * q + 8] + w[4 * q + 8]


@pytest.mark.parametrize("construction", ["bezier", "curve", "pca", "random", "full", "subnetwork"])
def test_every_other_construction_trains_both_predictors(construction):
    settings = {"subspace__construction": construction, "subspace__select": "magnitude"}
    settings |= {"subspace__snapshots": 4, "train__epochs": 6}
    bundle, rows = small_bundle("y ~ x + nn(u), sigma ~ z + nn(v)", **settings)
    assert set(bundle.trained.linear) == {"mu", "sigma"}
    assert bundle.trained.linear["sigma"].shape == (1,)
    assert np.isfinite(curve_states(bundle, 2)).all()
    assert np.isfinite(negative_log_posterior(make_target(bundle, rows), states(bundle)[0]))


def test_training_does_not_depend_on_units():
    formula, frame = "y ~ x + nn(u), sigma ~ z + nn(v)", small_frame()
    one = small_bundle(formula, frame)[0].trained
    moved = frame.assign(y=1000 * frame["y"], z=5 - 10 * frame["z"])
    other = small_bundle(formula, moved)[0].trained
    assert other.dispersion["sigma"] == pytest.approx(1000 * one.dispersion["sigma"], rel=1e-9)
    assert other.linear["sigma"] == pytest.approx(-one.linear["sigma"] / 10, rel=1e-6)
    assert other.control_points == pytest.approx(one.control_points, abs=1e-7)


def test_with_a_network_its_bias_is_the_intercept():
    assert small_bundle("y ~ x + nn(u), sigma ~ nn(v)")[0].trained.dispersion["sigma"] == (
        pytest.approx(small_frame()["y"].std(), rel=1e-12)
    )


# ----------------------------------------------------------------------------- the density


def states(bundle, n=3):
    q = curve_states(bundle, n)
    return torch.tensor(q + 0.1 * np.random.default_rng(1).normal(size=q.shape))


def test_the_density_is_scipys():
    priors = {"b_sigma": "student_t(4, 0.1, 2)", "b_sigma_Intercept": "normal(0.2, 0.7)",
              "b_sigma_gb": "cauchy(0, 1)"}  # fmt: skip
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ x1 + nn(u1, u2), sigma ~ z + g", priors=priors
    )
    q, units = states(bundle).numpy(), bundle.units
    found = [-negative_log_posterior(make_target(bundle, rows), torch.tensor(row)) for row in q]
    x_scale, z_scale = rows.X.std(axis=0, ddof=1), rows.predictors["sigma"].X.std(axis=0, ddof=1)
    expected = []
    for row in q:
        phi, theta, tau = row[:3], row[3] * units.eta_scale / x_scale, row[4]
        by_z = row[5:] / z_scale
        f = by_hand(bundle.subspace.lift(phi), (rows.U - units.u_loc) / units.u_scale)
        sd = rows.y.std(ddof=1)
        eta = rows.y.mean() + sd * f + (rows.X - rows.X.mean(axis=0)) @ theta
        Zs = rows.predictors["sigma"].X
        sigma = np.exp(np.log(sd) + tau + (Zs - Zs.mean(axis=0)) @ by_z)
        total = stats.norm(eta, sigma).logpdf(rows.y).sum() + stats.norm(0.2, 0.7).logpdf(tau)
        total += stats.norm(0, 5).logpdf(phi).sum()
        total += stats.norm(0, 2.5 * sd / x_scale).logpdf(theta).sum()
        gb = bundle.design.others[0].coefficients.index("b_sigma_gb")
        others = np.arange(len(by_z)) != gb
        total += stats.t(4, 0.1, 2 / z_scale[others]).logpdf(by_z[others]).sum()
        expected.append(total + stats.cauchy(0, 1 / z_scale[gb]).logpdf(by_z[gb]))
    assert np.ptp(np.array(found) - expected) < 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("family", "parameter"), VARIED, ids=map(" ".join, VARIED))
def test_the_gradient_is_that_of_differences_and_the_matrix_gauss_newtons(family, parameter, part):
    bundle, rows = varied_bundle(family, parameter, part)
    target = make_target(bundle, rows)
    q, step = states(bundle, 1)[0], 1e-5
    gradient, matrix = derivatives(target, q)
    moves = step * torch.eye(len(q), dtype=torch.float64)
    ends = [[negative_log_posterior(target, q + s * move) for s in (1, -1)] for move in moves]
    naive = np.array([(one - other) / (2 * step) for one, other in ends])
    assert gradient.numpy() == pytest.approx(naive, abs=1e-6 * np.abs(naive).max())
    values = torch.linalg.eigvalsh(matrix)
    # random effects of sigma make it tiny in single rows, beside whose curvature others round off;
    # so do single rows of a Weibull response, whose curvature is the exponential of a product
    rounded = part == "more" or family == "weibull"
    assert values.min() > (-1e-15 * values.max() if rounded else 0)


def test_the_matrix_adds_that_of_each_pair_of_predictors():
    """Gaussian responses have -2 residual / sigma^2 in common to eta and log sigma, by hand."""
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    target, q = make_target(bundle, rows), states(bundle)[0]

    def predictors(q):
        (found,) = target.predictors(target.values(q))
        return torch.stack([found["mu"], found["sigma"]])

    (eta, log_sigma), (J, K) = predictors(q), torch.func.jacrev(predictors)(q)
    precision, residual = log_sigma.exp() ** -2, torch.tensor(rows.y) - eta
    common = J.T @ ((2 * precision * residual)[:, None] * K)
    own = J.T @ (precision[:, None] * J) + K.T @ ((2 * precision * residual**2)[:, None] * K)
    prior = expansion(make_target(bundle, rows, prior_only=True), q)
    found = expansion(target, q)
    for matrix, expected in (
        (found.exact - prior.exact, own + common + common.T), (found.safe - prior.safe, own)
    ):  # fmt: skip
        assert torch.allclose(matrix, expected, rtol=1e-9, atol=1e-9 * float(own.abs().max()))


def test_the_gradient_vanishes_at_scipys_maximum_of_the_likelihood():
    """With phi held at 0 and flat priors, ``sigma ~ z`` is a linear model of both moments."""
    priors = {"b": "normal(0, 1e6)", "b_sigma": "normal(0, 1e6)",
              "b_sigma_Intercept": "normal(0, 1e6)"}  # fmt: skip
    formula = "y ~ x1 + x2 + nn(u1, u2), sigma ~ z"
    bundle, rows = random_bundle("gaussian", formula=formula, priors=priors, n=80)
    units, z = bundle.units, rows.predictors["sigma"].X[:, 0]
    f = network_output(bundle.network, units, bundle.subspace.p_bar, rows.U)
    rest = (rows.y - units.eta_loc - units.eta_scale * f) / units.eta_scale
    X, z = ((x - x.mean(axis=0)) / x.std(axis=0, ddof=1) for x in (rows.X, z))

    def loss(p):
        return -stats.norm(X @ p[:2], np.exp(p[2] + p[3] * z)).logpdf(rest).sum()

    best = optimize.minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-6})
    q = torch.tensor(np.concatenate([np.zeros(bundle.subspace.k), best.x]))
    gradient, matrix = derivatives(make_target(bundle, rows), q)
    slope = gradient[bundle.subspace.k :]
    sd = matrix.diagonal()[bundle.subspace.k :].rsqrt()
    assert (slope * sd).abs().max() < 1e-4


def test_the_chains_start_at_the_trained_coefficients():
    bundle, rows = random_bundle("student", formula="y ~ x1 + nn(u1), sigma ~ z, nu ~ g + nn(u2)")
    options = SampleConfig(chains=1, metric="diag_e")
    (values,) = find_starts(bundle, rows, options).values
    assert set(values) == {"phi", "theta", "tau_sigma", "theta_sigma", "theta_nu"}
    assert values["tau_sigma"] == pytest.approx(np.log(0.8))
    for name in ("sigma", "nu"):
        assert values[f"theta_{name}"] == pytest.approx(bundle.trained.linear[name])


def test_priors_are_in_units_of_the_columns_and_single_ones_win():
    priors = {"b_sigma": "normal(0, 1)", "b_sigma_z": "student_t(5, 0, 2)"}
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ x1 + nn(u1), sigma ~ z + x2", priors=priors
    )
    data, scale = (
        bundle.prior_data,
        rows.predictors["sigma"].X.std(axis=0, ddof=1),
    )
    assert data["prior_b_sigma_student_t_scale"] == pytest.approx([2 / scale[0]])
    assert data["prior_b_sigma_normal_scale"] == pytest.approx([1 / scale[1]])
    assert data["prior_b_sigma_Intercept_scale"] == 2.5
    lines = {line.parameter: line for line in priors_as_used(bundle)}
    assert lines["b_sigma_z"].source == "coefficient"
    assert lines["b_sigma_x2"].used == f"normal(0, {1 / scale[1]:.6g})"
    assert (lines["tau_sigma"].used, "sigma" in lines) == ("student_t(3, 0, 2.5)", False)


# ----------------------------------------------------------------------------- the program


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("left", ["y", "y | weights(w)"])
@pytest.mark.parametrize(("family", "parameter"), VARIED, ids=map(" ".join, VARIED))
def test_lines_fit_and_are_clean(family, parameter, part, left):
    bundle, _ = varied_bundle(family, parameter, part, left)
    assert not has_log_lik(bundle.family, bundle.design)
    for text in (bundle_program(bundle), quantities_program(bundle)):
        for line in text.splitlines():
            assert len(line) <= 80, line
            assert line == line.rstrip()


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("left", ["y", "y | weights(w)"])
@pytest.mark.parametrize(("family", "parameter"), VARIED, ids=map(" ".join, VARIED))
def test_stanc_accepts_both_programs_without_a_warning(
    family, parameter, part, left, toolchain, tmp_path
):
    bundle, _ = varied_bundle(family, parameter, part, left)
    for text in (bundle_program(bundle), quantities_program(bundle)):
        assert stanc_output(text, toolchain, tmp_path) == ""


@pytest.mark.parametrize(
    ("family", "formula"),
    [
        ("student", "y ~ x1 + nn(u1, u2) + nn(v), sigma ~ nn(u3) + nn(z), nu ~ x2"),
        ("negbinomial", "y | weights(w) ~ x1 + nn(u1, u2), shape ~ 1"),
    ],
)
def test_density_and_gradient_are_those_of_pytorch(family, formula, toolchain, tmp_path):
    bundle, rows = random_bundle(family, formula=formula)
    target, q = make_target(bundle, rows), states(bundle)
    program = evaluate_density(bundle, rows, q.numpy(), toolchain, tmp_path)
    ours = np.array([-negative_log_posterior(target, state) for state in q])
    assert np.ptp(program.lp - ours) < 1e-9 * np.max(np.abs(program.lp))
    for state, expected in zip(q, program.gradient, strict=True):
        gradient = -derivatives(target, state)[0].numpy()
        assert np.max(np.abs(gradient - expected)) < 1e-9 * np.max(np.abs(expected))
    for item in bundle.design.others:
        written = program.written[item.intercept]
        logs = [target.predictors(target.values(state)) for state in q]
        mean = np.array([np.mean([float(c[item.name].mean()) for c in chunks]) for chunks in logs])
        coefficients = np.array([program.written[name] for name in item.coefficients])
        moved = rows.predictors[item.name].X.mean(axis=0) @ coefficients if len(coefficients) else 0
        assert written == pytest.approx(mean - moved, rel=1e-9)


def evaluate_density(bundle, rows, q, toolchain, folder):
    return evaluate(bundle, stan_data(bundle, rows), q, toolchain, folder)


def test_the_rows_are_read_back_as_they_were(tmp_path):
    bundle, rows = random_bundle("student", formula="y ~ nn(u1), sigma ~ z + g, nu ~ nn(u2)")
    read = read_back(bundle, rows, tmp_path)
    assert np.array_equal(read.predictors["sigma"].X, rows.predictors["sigma"].X)
    assert read.predictors["nu"].X.shape == rows.predictors["nu"].X.shape == (30, 0)
    assert np.array_equal(rows.take(np.array([4, 1])).predictors["sigma"].X,
                          rows.predictors["sigma"].X[[4, 1]])  # fmt: skip


# ----------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("part", [part for part in PARTS if part != "more"])
def test_the_distribution_of_each_row_is_that_of_its_own_sigma(part):
    bundle, rows = varied_bundle("gaussian", "sigma", part)
    draws = random_draws(bundle)
    columns = {name: draws.flat(x)[:, None] for name, x in draws.coefficients.items()}
    Zs, names = rows.predictors["sigma"].X, bundle.design.others[0].coefficients
    moved = Zs - Zs.mean(axis=0) if bundle.design.others[0].networks else Zs
    log = sum((columns[name] * moved[:, j] for j, name in enumerate(names)), np.zeros((100, 30)))
    if bundle.design.others[0].networks:
        w = bundle.subspace.lift(draws.flat(draws.phi))
        U = (rows.U - bundle.units.u_loc) / bundle.units.u_scale
        own = bundle.network.sizes[0]
        log = log + np.log(rows.y.std(ddof=1)) + [by_hand(one[own:], U[:, 2:]) for one in w]
    else:
        log = log + columns["b_sigma_Intercept"]
    sigma = distribution(SubspacePosterior(bundle, draws), rows)["sigma"]
    assert sigma == pytest.approx(np.exp(log), rel=1e-9)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    expected = stats.norm(eta, np.exp(log)).logpdf(rows.y)
    assert log_lik(SubspacePosterior(bundle, draws), rows) == pytest.approx(expected, rel=1e-9)
    y = posterior_predict(SubspacePosterior(bundle, draws), rows, np.random.default_rng(1))
    z = (y - eta) / sigma
    assert abs(z.mean()) < Z / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < Z * np.sqrt(2 / z.size)


def log_sigma_by_hand(bundle, draws, rows, level):
    """Draws of log sigma in the model ``TERMS``, given each row's level of g, or -1."""
    flat = {name: draws.flat(x) for name, x in {**draws.coefficients, **draws.terms}.items()}
    w, units = bundle.subspace.lift(draws.flat(draws.phi)), bundle.units
    U = (rows.U - units.u_loc) / units.u_scale
    table, (z_loc, v_loc) = rows.frame, units.columns["sigma"][0]
    log = np.log(units.eta_scale) + np.array([by_hand(one[-17:], U[:, 2:]) for one in w])
    log = log + flat["b_sigma_z"][:, None] * (table["z"].to_numpy() - z_loc)
    log = log + flat["b_sigma_v"][:, None] * (table["v"].to_numpy() - v_loc)
    smooth = next(term for term in bundle.design.predictor("sigma").terms if term.text == "s(v)")
    log = log + flat["s_sigma_1"] @ smooth.basis(table["v"].to_numpy()).Z.T
    r = flat["r_sigma_1"][:, level] * (level >= 0)[:, None]
    return log + r[..., 0] + r[..., 1] * table["x1"].to_numpy() + 0.1 * table["x2"].to_numpy()


def test_sigma_has_smooths_groups_and_offsets_of_its_own():
    bundle, rows = random_bundle("gaussian", formula=TERMS)
    draws = random_draws(bundle)
    level = np.array(["abcd".index(g) for g in rows.frame["g"]])
    found = distribution(SubspacePosterior(bundle, draws), rows)["sigma"]
    expected = log_sigma_by_hand(bundle, draws, rows, level)
    assert found == pytest.approx(np.exp(expected), rel=1e-9)
    spread = {"sds_sv_1", "sds_sigma_sv_1", "sd_g__Intercept", "sd_g__x1", "cor_g__Intercept__x1",
              "sd_g__sigma_Intercept", "sd_g__sigma_x1",
              "cor_g__sigma_Intercept__sigma_x1"}  # fmt: skip
    assert set(draws.spread) == spread
    table = rows.frame.iloc[[0] * 400].assign(g=[f"new {i}" for i in range(400)])
    with pytest.raises(InputError, match="'g' has levels that the model was not trained on"):
        new_rows(bundle, table, response=False)
    new = new_rows(bundle, table, response=False, allow_new_levels=True)
    without = log_sigma_by_hand(bundle, draws, new, np.full(400, -1))
    added = posterior_linpred(SubspacePosterior(bundle, draws), new, dpar="sigma") - without
    sd, x1 = {name: draws.flat(x) for name, x in draws.spread.items()}, new.frame["x1"].iloc[0]
    one, two = sd["sd_g__sigma_Intercept"], x1 * sd["sd_g__sigma_x1"]
    expected = one**2 + two**2 + 2 * one * two * sd["cor_g__sigma_Intercept__sigma_x1"]
    z = added / np.sqrt(expected)[:, None]
    assert abs(z.mean()) < Z / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < Z * np.sqrt(2 / z.size)


def test_terms_of_sigma_are_trained_and_read_back(tmp_path):
    formula = "y ~ x + nn(u), sigma ~ s(z, k=4) + (1 + x | g) + offset(v / 100) + nn(v)"
    bundle, rows = small_bundle(formula)
    assert len(bundle.trained.terms["sigma"]) == 2 + 3 * 2
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert np.array_equal(again.trained.terms["sigma"], bundle.trained.terms["sigma"])
    read = read_back(again, rows, tmp_path)
    draws = random_draws(bundle)
    expected = log_lik(SubspacePosterior(bundle, draws), rows)
    assert log_lik(SubspacePosterior(again, draws), read) == pytest.approx(expected, rel=1e-12)
    same = new_rows(again, small_frame().iloc[[7, 2]], response=True)
    assert log_lik(SubspacePosterior(again, draws), same) == pytest.approx(
        expected[:, [7, 2]], rel=1e-9
    )


def test_a_network_of_sigma_that_differs_between_chains_fails_the_diagnostics():
    bundle, rows = varied_bundle("gaussian", "sigma", "both")
    draws = random_draws(bundle, chains=2, iterations=200)
    phi = draws.phi.copy()
    phi[1, :, bundle.subspace.k // 2 :] += 3  # the mean has the first
    apart = replace(draws, phi=phi)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    assert posterior_linpred(SubspacePosterior(bundle, apart), rows) == pytest.approx(
        eta, rel=1e-12
    )
    assert eta_convergence(SubspacePosterior(bundle, draws), rows).rhat < 1.1
    log_sigma = posterior_linpred(SubspacePosterior(bundle, apart), rows, dpar="sigma").reshape(
        2, -1, len(rows)
    )
    expected = max(convergence(log_sigma[..., i]).rhat for i in range(len(rows)))
    assert expected > 1.5
    assert eta_convergence(SubspacePosterior(bundle, apart), rows).rhat == pytest.approx(expected)


def test_a_lognormal_mean_has_each_rows_sigma():
    bundle, rows = varied_bundle("lognormal", "sigma", "terms")
    draws = random_draws(bundle)
    small = {name: 0.1 * values for name, values in draws.coefficients.items()}
    draws = replace(draws, coefficients=small)
    eta, sigma = (posterior_linpred(SubspacePosterior(bundle, draws), rows),
                  distribution(SubspacePosterior(bundle, draws), rows)["sigma"])  # fmt: skip
    assert posterior_epred(SubspacePosterior(bundle, draws), rows) == pytest.approx(
        np.exp(eta + sigma**2 / 2)
    )


def test_the_bundle_is_read_back_and_its_graph_has_the_means_networks_alone(tmp_path):
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert again.design == bundle.design
    assert np.array_equal(again.trained.linear["sigma"], bundle.trained.linear["sigma"])
    for got, expected in zip(again.units.columns["sigma"], bundle.units.columns["sigma"],
                             strict=True):  # fmt: skip
        assert np.array_equal(got, expected)
    draws = random_draws(bundle)
    engine = onnx_engine(tmp_path / "bundle" / "predictor.onnx")
    expected = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    assert posterior_linpred(SubspacePosterior(bundle, draws, engine), rows) == pytest.approx(
        expected
    )
    same = new_rows(again, rows.frame.assign(y=rows.y))
    assert np.allclose(same.predictors["sigma"].X, rows.predictors["sigma"].X, rtol=1e-12)


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain.pop("parameters"),
        lambda plain: plain["parameters"].clear(),
        lambda plain: plain["parameters"][0].update(name="nu"),
        lambda plain: plain["parameters"][0]["x"].update(terms=["__import__('os')"]),
    ],
)
def test_a_damaged_design_is_refused(damage):
    plain = json.loads(json.dumps(design_to_plain(small_prepared(
        "y ~ x + nn(u), sigma ~ z").design)))  # fmt: skip
    damage(plain)
    with pytest.raises(InputError):
        design_from_plain(plain)


def test_a_slice_goes_through_the_means_of_the_draws():
    bundle, rows = random_bundle("gaussian", formula="y ~ x1 + nn(u1, u2), sigma ~ z + g")
    draws = random_draws(bundle)
    plane = Plane(bundle, rows, draws, (0,))
    mean = {name: float(values.mean()) for name, values in draws.coefficients.items()}
    Zs = rows.predictors["sigma"].X
    theta = np.array([mean[name] for name in bundle.design.others[0].coefficients])
    log = mean["b_sigma_Intercept"] + Zs @ theta
    target = make_target(bundle, rows)
    (found,) = target.predictors(target.values(torch.tensor(plane.centre)))
    assert found["sigma"].numpy() == pytest.approx(log, rel=1e-9)


# ----------------------------------------------------------------------------- the posterior


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    bundle, rows = random_bundle("gaussian", formula=FORMULA)
    folder = tmp_path_factory.mktemp("distributional") / "run"
    fit = sample(new_run(bundle, rows, folder, OPTIONS, toolchain), toolchain)
    generate_quantities(fit.run, toolchain)
    return fit


def test_log_lik_and_replicates_of_generated_quantities_are_ours(fit):
    rows, generated = fit.run.rows(), read_generated(fit.run)
    assert generated.log_lik == pytest.approx(log_lik(fit.posterior, rows), rel=1e-8)
    eta, sigma = (posterior_linpred(fit.posterior, rows),
                  distribution(fit.posterior, rows)["sigma"])  # fmt: skip
    z = (generated.y_rep - eta) / sigma
    assert abs(z.mean()) < Z / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < Z * np.sqrt(2 / z.size)


def test_the_table_and_the_labels_name_the_coefficients(fit):
    names = ["b_Intercept", "b_x1", "b_sigma_Intercept", "b_sigma_z", "b_sigma_gb", "b_sigma_gc",
             "b_sigma_gd"]  # fmt: skip
    assert list(pd.read_csv(fit.run.path / "summary.csv")["variable"]) == names
    labels = json.loads((fit.run.path / "labels.json").read_text())
    assert labels["b_sigma_gb"] == "sigma: g[T.b]"


def heteroscedastic(n, seed):
    generator = np.random.default_rng(seed)
    x, z = generator.normal(size=(2, n))
    u = generator.uniform(-2, 2, n)
    sigma = np.exp(-0.5 + 0.8 * np.cos(1.5 * u) + 0.4 * z)
    y = 1.5 * x + np.sin(2 * u) + sigma * generator.normal(size=n)
    return pd.DataFrame({"y": y, "x": x, "z": z, "u": u})


@pytest.mark.slow
def test_a_varying_sigma_predicts_better_and_its_coefficients_are_recovered(toolchain, tmp_path):
    train, new = heteroscedastic(400, 3), heteroscedastic(500, 4)
    overrides = {"subspace.k": 4, "network.hidden": [8], "train.epochs": 1500, "sample.chains": 2,
                 "sample.draws": 300, "sample.kernel": "stan"}  # fmt: skip
    density, fits = {}, {}
    for name, further in {"varying": ", sigma ~ z + nn(u)", "constant": ""}.items():
        fit = fit_model(f"y ~ x + nn(u){further}", train, out=tmp_path / name, overrides=overrides)
        rows = new_rows(fit.run.bundle, new, response=True)
        log_density = log_lik(fit.posterior, rows)
        density[name] = np.logaddexp.reduce(log_density, axis=0) - np.log(len(log_density))
        fits[name] = fit
    gain = density["varying"] - density["constant"]
    assert gain.mean() > Z * gain.std() / np.sqrt(len(gain))
    fit = fits["varying"]
    for name, truth in {"b_x": 1.5, "b_sigma_z": 0.4}.items():
        values = fit.posterior.draws.coefficients[name]
        assert abs(values.mean() - truth) < 4 * values.std()
