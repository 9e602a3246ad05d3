"""Networks that multiply a column: a coefficient that is a network of other columns."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.onnx_graphs import run_graph
from semistan.errors import InputError
from semistan.model.design import design_from_plain, design_to_plain
from semistan.model.formula.formula import parse_formula
from semistan.model.names import MU
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.multiplied import Multiplied
from semistan.model.networks.networks import (
    Networks,
    forward,
    layers,
    output_and_jacobian,
    output_inputs,
    output_layers,
    prior_scales,
    with_multipliers,
)
from semistan.model.priors.lines import priors_as_used
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.program.data import stan_data
from semistan.program.program import bundle_program, labels
from semistan.workflow.explain import slopes
from semistan.workflow.fit import fit_model
from support.assertions import assert_mean
from support.by_hand import naive_network, weights
from support.drawn import random_draws
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import completed_bundle

SMALL = "y ~ x + nn(u) + z:nn(v)"
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def networks(activation="tanh"):
    """Two networks by themselves, of two predictors, and one that multiplies a column."""
    parts = (
        FullyConnected(2, (4,), activation),
        Multiplied(FullyConnected(3, (5, 2), activation)),
        FullyConnected(1, (), activation),
    )
    return Networks(parts, (MU, MU, "sigma"))


def case(spec, n=6):
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(spec.d, generator=generator, dtype=torch.float64),
        torch.randn(n, spec.n_inputs, generator=generator, dtype=torch.float64),
    )


# ------------------------------------------------------------------------------- the networks


@pytest.mark.parametrize("activation", ["tanh", "relu", "softplus"])
def test_the_output_is_multiplied(activation):
    spec = networks(activation)
    w, u = case(spec)
    first, second, _ = np.split(w.numpy(), np.cumsum(spec.sizes)[:-1])
    expected = [
        naive_network((2, 4, 1), first, row[:2], activation)
        + row[5] * naive_network((3, 5, 2, 1), second, row[2:5], activation)
        for row in u.tolist()
    ]
    assert np.allclose(forward(spec, w, u), expected, **EXACT)


def test_the_derivatives_are_autograds():
    spec = networks()
    w, u = case(spec)
    f, J = output_and_jacobian(spec, w, u)
    assert torch.equal(f, forward(spec, w, u))
    expected = torch.func.jacrev(lambda at: forward(spec, at, u))(w)
    assert torch.allclose(J, expected, **EXACT)


def test_the_output_layer_is_linear_in_what_it_takes():
    spec = networks()
    w, u = case(spec)
    ends = np.concatenate(output_layers(spec, MU))
    assert torch.allclose(output_inputs(spec, w, u) @ w[ends], forward(spec, w, u), **EXACT)


def test_the_coefficient_is_the_difference_that_one_more_makes():
    spec = networks()
    w, u = case(spec)
    none, one = (forward(spec, w, with_multipliers(spec, u, which)) for which in (None, 1))
    more = u.clone()
    more[:, 5] += 1
    assert torch.allclose(forward(spec, w, more) - forward(spec, w, u), one - none, **EXACT)


# ------------------------------------------------------------------------------- the formula


@pytest.mark.parametrize(
    ("text", "expected", "structured"),
    [
        ("y ~ x + nn(u) + z:nn(v)", [(("u",), ""), (("v",), "z")], ("x",)),
        ("y ~ x + nn(u) + nn(v):z", [(("u",), ""), (("v",), "z")], ("x",)),
        ("y ~ x + z + nn(u) + z:nn(v)", [(("u",), ""), (("v",), "z")], ("x",)),
        ("y ~ x + z*nn(u, v)", [(("u", "v"), ""), (("u", "v"), "z")], ("x",)),
        ("y ~ x*z + nn(u) + z:nn(v)", [(("u",), ""), (("v",), "z")], ("x", "x:z")),
        ("y ~ x:z + nn(u) + z:x:nn(v)", [(("u",), ""), (("v",), "z:x")], ()),
        ("y ~ nn(u) + log(z):nn(v) + x:nn(v)",
         [(("u",), ""), (("v",), "log(z)"), (("v",), "x")], ()),
        ("y ~ x + z:nn(v)", [(("1",), ""), (("v",), "z")], ("x",)),
    ],
)  # fmt: skip
def test_the_term_is_no_structured_one(text, expected, structured):
    formula = parse_formula(text)
    assert [(network.arguments, network.times) for network in formula.networks] == expected
    assert formula.mean.structured == structured
    assert {"y", "u", "v", "z", "x"} >= {*formula.columns} >= {"v"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ nn(u) + z:nn(v) + z:nn(w)", "two networks multiply 'z'"),
        ("y ~ nn(u):nn(v)", "two networks cannot be multiplied"),
        ("y ~ nn(u) + 2:nn(v)", "multiplies a column"),
        ("y ~ nn(u) + offset(z):nn(v)", r"a column, not offset\(\)"),
        ("y ~ nn(u) + z:nn(z, v)", r"is a network of it: write nn\(z, v\)"),
        ("y ~ z:nn(v, shared='f'), sigma ~ nn(v, shared='f')", "cannot be shared"),
    ],
)
def test_what_cannot_be_multiplied_is_said(text, message):
    with pytest.raises(InputError, match=message):
        parse_formula(text)


def frame():
    return small_frame().assign(t=np.array(["no", "yes"])[np.arange(30) % 2], one=1.0)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("one:nn(v)", "'one' is constant"),
        ("g:nn(v)", "'g' has 2 .* factor of two levels"),
        ("g*t + t:nn(v)", "collinear"),
        ("I(2 * z) + z:nn(v)", "collinear"),
        ("missing:nn(v)", "'missing', which the data do not have"),
    ],
)
def test_columns_without_an_effect_of_their_own_are_refused(terms, message):
    with pytest.raises(InputError, match=message):
        small_prepared(f"y ~ x + nn(u) + {terms}", frame())


# --------------------------------------------------------------------------------- the model


def test_the_design_names_the_coefficient_and_goes_through_json():
    design = small_prepared("y ~ x + nn(u) + t:nn(v), sigma ~ z:nn(v)", frame()).design
    assert design.mean.names == ("b_Intercept", "b_x", "b_tyes")
    assert design.mean.columns_named == ("Intercept", "x", "t[T.yes]")
    assert design.predictor("sigma").names == ("b_sigma_Intercept", "b_sigma_z")
    assert [slope.network for slope in design.slopes] == [1, 2]
    assert design_from_plain(design_to_plain(design)) == design


def test_what_is_multiplied_has_a_scale_and_no_location():
    prepared = small_prepared(SMALL)
    z = small_frame()["z"]
    (_, multiplied) = prepared.design.networks
    assert (multiplied.loc[-1], multiplied.scale[-1]) == (0, pytest.approx(z.std()))
    assert np.array_equal(prepared.rows.U[:, 2], z)


def test_the_program_has_the_column_apart_from_the_inputs():
    bundle, rows = small_bundle(SMALL)
    data = stan_data(bundle, rows)
    assert (data["Q"], data["n_by"], data["of_by"]) == (2, 1, [2])
    assert np.array_equal(data["by"][:, 0], small_frame()["z"])
    text = bundle_program(bundle)
    assert "eta_scale (f_1(u; w_1) + (z / " in text
    assert "real b_z  // mean coefficient of z" in text
    assert labels(bundle.model)["b_z"] == "z"


@pytest.mark.parametrize("formula", [SMALL, "y ~ x + z:nn(v)"])
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_bundle_and_its_graphs_compute_the_product(formula, frozen, tmp_path):
    bundle, rows = small_bundle(formula, network__frozen=frozen, network__hidden=[3, 2])
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert (again.sha256, again.network) == (bundle.sha256, bundle.network)
    draws = random_draws(bundle)
    inputs = {"u": rows.U, "x": rows.X, "phi": draws.flat(draws.phi),
              "theta": draws.flat(draws.theta)}  # fmt: skip
    (eta,) = run_graph(tmp_path / "bundle" / "predictor.onnx", inputs)
    expected = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    assert np.allclose(eta, expected, rtol=1e-10, atol=1e-10)


def test_its_output_weights_may_have_a_prior_of_their_own():
    bundle, _ = small_bundle(SMALL, priors={"w_z": "normal(0, 3)", "w": "normal(0, 1)"})
    last, found = layers(bundle.network)[1][-1], bundle.model.weight_scale
    assert found[last.weights] == pytest.approx(3 / np.sqrt(last.m))
    plain = prior_scales(bundle.network, 1.0, 2.5)
    others = np.delete(np.arange(len(plain)), last.weights)
    assert np.array_equal(found[others], plain[others])  # the output bias too
    lines = {line.parameter: line for line in priors_as_used(bundle)}
    assert (lines["w_z"].written, lines["w_z"].source) == ("normal(0, 3)", "coefficient")
    used = "normal(0, 3 / sqrt(inputs of the layer)) of output weights"
    assert lines["w_z"].used == used
    assert f"//   w_z ~ {used}\n" in bundle_program(bundle)
    default, _ = small_bundle(SMALL, priors={})
    assert np.array_equal(default.model.weight_scale, prior_scales(default.network, 2.0, 2.5))
    assert "w_z" not in {line.parameter for line in priors_as_used(default)}


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"w_z": "student_t(3, 0, 1)"}, "prior 'w_z' must be normal around 0"),
        ({"w_z": "normal(1, 1)"}, "prior 'w_z' must be normal around 0"),
        ({"w_zz": "normal(0, 1)"}, "no such parameter. Did you mean 'w_z'"),
        ({"w_z": "normal(0, 1)", "phi": "normal(0, 1)"}, "prior 'w_z' is of weights, and prior"),
    ],
)
def test_another_prior_of_its_weights_is_refused(priors, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(SMALL, priors=priors)


def test_predictions_are_those_by_hand():
    bundle, rows = small_bundle(SMALL, network__hidden=[], subspace__k=1)
    draws, units, table = random_draws(bundle), bundle.units, small_frame()
    u, v = ((table[name] - table[name].mean()) / table[name].std() for name in "uv")
    by = table["z"] / table["z"].std()
    lines = []
    for w, theta in zip(weights(bundle, draws), draws.flat(draws.theta), strict=True):
        f = w[0] * u + w[1] + by * (w[2] * v + w[3])
        lines.append(units.eta_loc + units.eta_scale * f + theta[0] * (table["x"] - units.x_loc))
    found = SubspacePosterior(bundle, draws)
    assert np.allclose(posterior_linpred(found, rows), lines, rtol=1e-10)


def test_the_structured_part_has_the_mean_coefficient():
    bundle, rows = small_bundle(SMALL)
    draws, table = random_draws(bundle), small_frame()
    found = SubspacePosterior(bundle, draws).predictor(rows, part="structured")
    theta, slope = draws.flat(draws.theta), draws.flat(draws.coefficients["b_z"])
    assert np.allclose(found, np.outer(theta[:, 0], table["x"]) + np.outer(slope, table["z"]))


def test_what_completes_the_coefficient_has_a_name():
    bundle, _ = completed_bundle("gaussian", formula="y ~ x1 + nn(u1, u2) + z:nn(v)")
    assert "+ shift_b_z * append_row(1, psi)" in bundle_program(bundle)


# ----------------------------------------------------------------------------------- the fits


def crossed(n=200):
    """Rows of a model with a linear effect that varies linearly."""
    generator = np.random.default_rng(4)
    table = pd.DataFrame(generator.normal(size=(n, 3)), columns=["x", "u", "v"])
    table["z"] = generator.binomial(1, 1 / (1 + np.exp(-table["u"]))).astype(float)
    effect = 1 + 0.8 * table["v"]
    y = 2 + 0.5 * table["x"] - table["u"] + table["z"] * effect + generator.normal(size=n)
    return table.assign(y=y)


@pytest.mark.parametrize("integrate", ["auto", "none"])
def test_linear_networks_are_least_squares_with_an_interaction(integrate, toolchain, tmp_path):
    """Under priors that say next to nothing."""
    table = crossed()
    fit = fit_model(
        "y ~ x + nn(u) + z:nn(v)", table, out=tmp_path / "run",
        overrides={"network.hidden": [], "subspace.construction": "full", "sample.seed": 1,
                   "sample.chains": 2, "sample.warmup": 300, "sample.draws": 500,
                   "sample.integrate": integrate, "priors.w": "normal(0, 30)",
                   "priors.Intercept": "normal(0, 30)", "priors.b": "normal(0, 30)"},
    )  # fmt: skip
    X = np.column_stack([table["x"], table["z"], table["z"] * (table["v"] - table["v"].mean())])
    X = np.column_stack([np.ones(len(table)), X, table["u"] - table["u"].mean()])
    b, (squares,), *_ = np.linalg.lstsq(X, table["y"], rcond=None)
    expected = {"b_Intercept": b[0], "b_x": b[1], "b_z": b[2]}
    found = fit.posterior.interpreted
    for name, value in expected.items():
        assert_mean(found[name], value, name)
    covariance = np.linalg.inv(X.T @ X) * squares / (len(table) - 5)
    sd = np.sqrt(np.diag(covariance))[:3]
    assert [found[name].std() for name in expected] == pytest.approx(sd, rel=0.12)


def test_a_fit_reports_the_average_effect(toolchain, tmp_path):
    fit = fit_model(
        "y ~ x + nn(u) + z:nn(v)", crossed(), out=tmp_path / "run",
        overrides={"network.hidden": [4], "sample.chains": 2, "sample.warmup": 200,
                   "sample.draws": 100, "subspace.k": 3, "subspace.subspaces": 2,
                   "train.epochs": 200},
    )  # fmt: skip
    average = slopes(fit, "z", scale="linpred").set_index("term").loc["z"]
    row = next(row for row in fit.summary.rows if row.name == "b_z")
    assert average["Estimate"] == pytest.approx(row.estimate, rel=1e-6)
    assert average["Est.Error"] == pytest.approx(row.est_error, rel=1e-6)
