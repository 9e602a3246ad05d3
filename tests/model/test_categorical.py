"""The family categorical, against softmax, statsmodels' MNLogit and models written by hand."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats
from scipy.special import log_softmax, softmax
from statsmodels.discrete.discrete_model import MNLogit

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.derivatives import derivatives
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.stan_csv import NUTS_COLUMNS, sampled_columns
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.design import design_from_plain, design_to_plain
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula, with_predictors
from semistan.model.priors.lines import priors_as_used
from semistan.model.subspace import Subspace
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import (
    distribution,
    log_lik,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
)
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.program.quantities import quantities_program
from semistan.subspace.start_values import curve_states
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.sample import sample
from semistan.workflow.train import train
from support.assertions import Z
from support.columns import assert_program
from support.drawn import random_draws
from support.programs import evaluate, stanc_output
from support.small import small_bundle, small_config, small_frame
from support.untrained import CATEGORICAL, random_bundle

RECORD = family("categorical(bus, car, train, walk)")
MU = {"mutrain": 0.7, "muwalk": -1.2}
FORMULA = "o ~ x + nn(u, v)"
LONG = "public_transport_bus"  # whose names make lines too long
PLAIN = (CATEGORICAL, "y ~ x1 + nn(u1, u2, u3)", {})
EXPLICIT = (
    str(RECORD), "y | weights(w) ~ x1 + nn(u1, u2), muwalk ~ z + g",
    {"b": "normal(0.1, 1)", "b_muwalk": "student_t(4, 0.1, 2)",
     "b_muwalk_Intercept": "normal(0.2, 0.7)"},
)  # fmt: skip
TERMS = (
    str(RECORD), "y ~ x1 + s(v, k=4) + nn(u1, u2), muwalk ~ z + (x1 | g) + s(u3, k=4) + offset(v)",
    {"sd": "normal(0, 1)"},
)  # fmt: skip
TWO = ("categorical(bus, car)", "y ~ x1 + nn(u1, u2)", {})
OPTIONS = SampleConfig(chains=2, warmup=150, draws=100, seed=5, kernel="stan")

models = pytest.mark.parametrize("model", [PLAIN, EXPLICIT], ids=["plain", "explicit"])
all_models = pytest.mark.parametrize(
    "model", [PLAIN, EXPLICIT, TERMS], ids=["plain", "explicit", "terms"]
)


def tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def modes(values=("bus", "car", "train", "bus", "car", "bus")):
    """The small frame, with these values in turn as the column o."""
    column = [values[i % len(values)] for i in range(30)]
    return small_frame().assign(o=column)


def prepared(values=("bus", "car", "train"), formula=FORMULA, family="categorical", **settings):
    frame = values if isinstance(values, pd.DataFrame) else modes(values)
    return prepare(small_config(formula, family=family, **settings), frame)


def random_model(model, **settings):
    name, formula, priors = model
    return random_bundle(name, formula=formula, priors=priors, **settings)


def states(bundle, n=3):
    q = curve_states(bundle, n)
    return q + 0.1 * np.random.default_rng(1).normal(size=q.shape)


# ----------------------------------------------------------------------------- the distribution


def by_loop(eta, mutrain, muwalk):
    """The probabilities of one row."""
    odds = [1.0, *(np.exp(mu) for mu in (eta, mutrain, muwalk))]
    return [each / sum(odds) for each in odds]


def test_probabilities_are_those_of_a_naive_loop_and_of_softmax():
    eta, train, walk = np.random.default_rng(1).normal(scale=3, size=(3, 5, 7))
    found = RECORD.probabilities(eta, {"mutrain": train, "muwalk": walk})
    assert found.shape == (5, 7, 4)
    for index in np.ndindex(5, 7):
        assert found[index] == pytest.approx(by_loop(eta[index], train[index], walk[index]))
    expected = softmax(np.stack([0 * eta, eta, train, walk], axis=-1), axis=-1)
    assert found == pytest.approx(expected, rel=1e-12)
    assert RECORD.mean is None


def test_the_likelihood_is_the_logarithm_of_the_probabilities():
    eta, train = np.random.default_rng(1).normal(scale=3, size=(2, 5, 7))
    y = np.arange(7) % 4 + 1.0
    values = {"mutrain": tensor(train), "muwalk": tensor(MU["muwalk"])}
    found = RECORD.log_lik(tensor(y), tensor(eta), values).numpy()
    p = RECORD.probabilities(eta, {"mutrain": train, "muwalk": MU["muwalk"]})
    expected = np.log(np.take_along_axis(p, y.astype(int)[None, :, None] - 1, axis=-1))[..., 0]
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("eta", [-800.0, 800.0])
def test_far_out_values_and_both_derivatives_are_right(eta):
    at = torch.full((4,), eta, dtype=torch.float64, requires_grad=True)
    values = {name: tensor(value) for name, value in MU.items()}
    value = RECORD.log_lik(tensor([1, 2, 3, 4]), at, values)
    expected = log_softmax([0, eta, *MU.values()])
    assert value.detach().numpy() == pytest.approx(expected, rel=1e-12)
    (first,) = torch.autograd.grad(value.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), at)
    assert torch.allclose(first, tensor([0, 1, 0, 0]) - float(eta > 0))
    assert torch.equal(second, torch.zeros(4, dtype=torch.float64))
    assert RECORD.probabilities(np.array([eta]), MU) == pytest.approx(np.exp([expected]))


def test_the_derivatives_are_right():
    y = tensor([1, 2, 3, 4])

    def by_all(eta, mutrain, muwalk):
        return RECORD.log_lik(y, eta, {"mutrain": mutrain, "muwalk": muwalk})

    inputs = tensor([-1.0, 2.0, 0.5, 0.3]), tensor([0.1, 0.4, 0.6, -2]), tensor(-1.2)
    inputs = tuple(value.requires_grad_() for value in inputs)
    assert torch.autograd.gradcheck(by_all, inputs)
    assert torch.autograd.gradgradcheck(by_all, inputs)


def test_random_categories_have_their_probabilities():
    S, eta = 20_000, np.array([-1.0, 0.5, 2.0])
    walk = np.linspace(-2, 1, 3)
    draws = RECORD.rng(np.tile(eta, (S, 1)), MU | {"muwalk": walk}, np.random.default_rng(1))
    assert RECORD.support(draws).all()
    shares = np.stack([(draws == k).mean(axis=0) for k in (1, 2, 3, 4)], axis=1)
    expected = np.array([by_loop(e, MU["mutrain"], w) for e, w in zip(eta, walk, strict=True)])
    assert np.all(np.abs(shares - expected) < Z * np.sqrt(expected * (1 - expected) / S))


def test_where_training_starts_each_category_has_its_share():
    y = np.repeat([1.0, 2, 3, 4], [4, 1, 3, 2])
    eta, scale = RECORD.eta_units(y, {})
    p = RECORD.probabilities(np.array([eta]), RECORD.locations(y))
    assert p == pytest.approx(np.array([[0.4, 0.1, 0.3, 0.2]]))
    assert scale == 1


def test_other_numbers_are_no_categories():
    assert RECORD.support(np.array([0, 1, 2.5, 4, 5])).tolist() == [False, True, False, True, False]


# ----------------------------------------------------------------------------- the categories


def column(values, **options):
    return small_frame().assign(o=pd.Categorical(np.resize(values, 30), **options))


@pytest.mark.parametrize(
    ("frame", "family", "levels"),
    [
        (modes(("car", "train", "bus")), "categorical", ("bus", "car", "train")),
        (modes(("car", "train", "bus")), "categorical(train)", ("train", "bus", "car")),
        (modes(("car", "train", "bus")), "categorical(train, car)", ("train", "car", "bus")),
        (modes(("on foot", "a bike", "car")), "categorical(on foot)", ("on foot", "a bike", "car")),
        (modes(("on foot", "a bike", "car")), "categorical(on_foot)", ("on foot", "a bike", "car")),
        (modes((10, 9, 1)), "categorical", ("1", "9", "10")),
        (modes((10, 9, 1)), "categorical(9)", ("9", "1", "10")),
        (modes((2.0, 11.0, 1.0)), "categorical", ("1", "2", "11")),
        (modes((3, "a", "b")), "categorical", ("3", "a", "b")),
        (modes((True, False)), "categorical", ("False", "True")),
        (column(["lo", "hi", "mid"], categories=["lo", "mid", "none", "hi"]), "categorical",
         ("lo", "mid", "hi")),
        (column(["lo", "hi", "mid"], categories=["lo", "mid", "none", "hi"], ordered=True),
         "categorical(hi)", ("hi", "lo", "mid")),
        (column([2, 10, 9]), "categorical", ("2", "9", "10")),
    ],
)  # fmt: skip
def test_the_reference_comes_first_and_the_others_in_their_order(frame, family, levels):
    found = prepared(frame, family=family)
    assert found.design.categories == levels
    texts = [levels[int(k) - 1] for k in found.rows.y]
    assert texts == [str(int(v)) if isinstance(v, float) else str(v) for v in frame["o"]]


def test_rows_without_a_category_are_left_out():
    frame = modes(("bus", "car", None, "train"))
    found = prepared(frame, drop_missing=True)
    assert found.design.categories == ("bus", "car", "train")
    assert len(found.rows) == frame["o"].notna().sum()


@pytest.mark.parametrize(
    ("values", "formula", "family", "message"),
    [
        ((1.5, 2.0, 3.0), FORMULA, "categorical", "'o' has fractions; choose another family"),
        (("bus",), FORMULA, "categorical", "'o' has 1 different value, expected 2 to 20"),
        (range(21), FORMULA, "categorical", "'o' has 21 different values, expected 2 to 20"),
        (("a b", "a_b", "c"), FORMULA, "categorical", "'a_b' of 'o' would be called 'mua_b' in "
         "Stan, as 'a b'; rename it in the data"),
        ((-1, 0, 1), FORMULA, "categorical", "category '1' of 'o' would be called 'mu1'"),
        (("a", "+", "c"), FORMULA, "categorical", "category '+' of 'o' would be called 'mu' in"),
        (("a", "b", "car", "car_loc"), FORMULA, "categorical", "category 'car_loc' of 'o' would "
         "be called 'mucar_loc' in Stan, as the location of 'car'"),
        (("bus", "train"), FORMULA, "categorical(trian)", "is 'trian'. Did you mean 'train'?"),
        ((1, 2, 3), "log(o) ~ x + nn(u)", "categorical", "must be a column as it is, got 'log(o)'"),
        ((1, 2, 3), "o | trials(tries) ~ nn(u)", "categorical", "trials() is for family binomial"),
        ((1, 2, 3), "o ~ nn(u), mu1 ~ x", "categorical", "'1' is the reference, whose predictor "
         "is 0; leave it out, or name another reference, as in 'categorical(3)'"),
        ((1, 2, 3), "o ~ nn(u), mu2 ~ x", "categorical", "the predictor of '2' is the one in "
         "front of the commas; write its terms there, as 'o ~ ...'"),
        ((1, 2), "o ~ nn(u), mu2 ~ x", "categorical", "the predictor of '2' is the one in front"),
        ((1, 2, 3), "o ~ nn(u), mu33 ~ x", "categorical", "Did you mean 'mu3'?"),
        ((1, 2, 3), "o ~ nn(u), sigma ~ x", "categorical", "no such parameter. Known: mu3"),
        (("a", "c", "c_d"), "o ~ d_x + x + nn(u)", "categorical", "both be called 'b_muc_d_x'"),
        ((1, 2, 3), "o ~ Intercept + nn(u)", "categorical", "column 'Intercept'"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused(values, formula, family, message):
    frame = modes(tuple(values)).assign(d_x=lambda table: table["v"], Intercept=1.0)
    with pytest.raises(InputError, match=re.escape(message)):
        prepared(frame, formula, family)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"priors__b": "horseshoe()"}, "does not know several categories' coefficients"),
        ({"priors__b_mucar_Intercept": "normal(0, 1)"}, "the mean of the network's output"),
        ({"priors__b_mutrain_Intercept": "normal(0, 1)"}, "the mean of a network's output"),
        ({"priors__b_x": "normal(0, 1)"}, "Known: b_mucar_x, b_mutrain, b_mutrain_x"),
        ({"subspace__construction": "naive"}, "the construction 'naive'"),
        ({"subspace__construction": "low_rank_laplace"}, "no nn() in 'mutrain ~ ...'"),
    ],
)
def test_what_knows_one_predictor_alone_is_refused(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        prepared(**settings)


def test_new_rows_have_the_numbers_of_the_training_rows():
    bundle = train(prepared(("walk", "car", "bus"), family="categorical(walk)"))
    frame = modes(("car", "car", "walk")).head(5)
    assert new_rows(bundle, frame, response=True).y.tolist() == [3, 3, 1, 3, 3]
    assert new_rows(bundle, frame.drop(columns="o")).y is None
    numbers = train(prepared((1, 2, 7)))
    assert new_rows(numbers, modes((7.0, 2.0)).head(2), response=True).y.tolist() == [3, 2]


def test_a_category_that_no_training_row_has_is_refused_with_its_row():
    bundle = train(prepared())
    frame = modes(("car", "bus", "tram"))
    named = "response 'o' is 'tram' in row 3, which is none of its categories bus, car, train"
    with pytest.raises(InputError, match=named):
        new_rows(bundle, frame, response=True)


# ----------------------------------------------------------------------------- the formula


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("o ~ x + nn(u)", "o ~ x + nn(u), mub ~ x + nn(u), muc ~ x + nn(u)"),
        ("o ~ x + nn(u), muc ~ z", "o ~ x + nn(u), muc ~ z, mub ~ x + nn(u)"),
        ("o ~ x + nn(u),muc~z , mub ~ 1", "o ~ x + nn(u),muc~z , mub ~ 1"),
        ("o | weights(w) ~ nn(u)", "o | weights(w) ~ nn(u), mub ~ nn(u), muc ~ nn(u)"),
        ("o ~ poly(x, 2) + nn(u, v)", "o ~ poly(x, 2) + nn(u, v), mub ~ poly(x, 2) + nn(u, v), "
         "muc ~ poly(x, 2) + nn(u, v)"),
        ("`a, b ~ c` ~ nn(`u, ~`)", "`a, b ~ c` ~ nn(`u, ~`), mub ~ nn(`u, ~`), muc ~ nn(`u, ~`)"),
    ],
)  # fmt: skip
def test_predictors_that_are_not_written_have_the_terms_of_eta(text, expanded):
    assert with_predictors(text, ["mub", "muc"]) == expanded
    assert with_predictors(expanded, ["mub", "muc"]) == expanded
    assert {item.name for item in parse_formula(expanded).others} == {"mub", "muc"}


def test_a_response_in_backticks_is_its_column():
    frame = modes().rename(columns={"o": "the mode"})
    found = prepared(frame, "`the mode` ~ x + nn(u)")
    assert found.config.formula == "`the mode` ~ x + nn(u), mutrain ~ x + nn(u)"
    assert found.design.categories == ("bus", "car", "train")


@pytest.mark.parametrize("formula", [FORMULA, "o | weights(z) ~ x + nn(u), mutrain ~ C(g)"])
def test_the_configuration_is_the_whole_model(formula):
    found = prepared(("car", "on foot", "train"), formula, "categorical(on foot)")
    assert found.config.family == "categorical(on_foot, car, train)"
    expanded = formula if "mutrain" in formula else f"{FORMULA}, mutrain ~ x + nn(u, v)"
    assert found.config.formula == found.design.formula == expanded
    again = prepare(found.config, modes(("car", "on foot", "train")))
    assert (again.config, again.design) == (found.config, found.design)


def test_coefficients_are_called_after_the_categories():
    found = prepared(formula="o ~ x + C(g) + nn(u), mutrain ~ z")
    assert found.design.intercept == "b_mucar_Intercept"
    assert found.design.coefficients == ("b_mucar_x", "b_mucar_gb", "b_mucar_gc")
    (item,) = found.design.others
    assert item.names == ("b_mutrain_Intercept", "b_mutrain_z")
    bundle = train(found)
    assert list(random_draws(bundle).coefficients) == [
        "b_mucar_Intercept", *found.design.coefficients, *item.names,
    ]  # fmt: skip


def test_all_categories_have_the_prior_of_b_unless_they_have_their_own():
    bundle = train(prepared(priors__b="normal(0, 3)", priors__autoscale=False))
    lines = {line.parameter: line for line in priors_as_used(bundle)}
    for name in ("b_mucar_x", "b_mutrain_x"):
        assert (lines[name].used, lines[name].source) == ("normal(0, 3)", "class")
    own = {"priors__b_mutrain": "cauchy(0, 2)", "priors__autoscale": False}
    lines = {line.parameter: line for line in priors_as_used(train(prepared(**own)))}
    assert lines["b_mutrain_x"].used == "cauchy(0, 2)"
    assert lines["b_mucar_x"].used == "normal(0, 2.5)"


# ----------------------------------------------------------------------------- training


def test_two_categories_are_bernoulli():
    bundle, rows = small_bundle(FORMULA, modes(("no", "yes")), family="categorical")
    other, _ = small_bundle("flag ~ x + nn(u, v)", family="bernoulli")
    assert bundle.design.others == ()
    assert bundle.trained.theta == pytest.approx(other.trained.theta, rel=1e-9)
    assert bundle.trained.control_points == pytest.approx(other.trained.control_points, rel=1e-9)
    draws = random_draws(bundle)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    expected = stats.bernoulli(1 / (1 + np.exp(-eta))).logpmf(rows.y - 1)
    assert log_lik(SubspacePosterior(bundle, draws), rows) == pytest.approx(expected, rel=1e-9)
    q = torch.tensor(states(bundle)[0])
    bernoulli = make_target(other, replace(rows, y=rows.y - 1))
    assert negative_log_posterior(make_target(bundle, rows), q) == pytest.approx(
        negative_log_posterior(bernoulli, q), rel=1e-9
    )


@pytest.mark.lengthy
def test_the_trained_probabilities_are_on_average_the_shares():
    """As the derivatives of the likelihood in the intercepts vanish at its maximum."""
    settings = {"train__epochs": 1500, "train__validation": 0, "subspace__construction": "full"}
    bundle, rows = small_bundle(FORMULA, modes(), family="categorical", **settings)
    draws = random_draws(bundle, chains=1, iterations=2)
    draws = replace(
        draws, phi=0 * draws.phi, theta=0 * draws.theta + bundle.trained.theta,
        coefficients={**draws.coefficients,
                      "b_mutrain_x": np.full((1, 2), bundle.trained.linear["mutrain"][0])},
    )  # fmt: skip
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    p = bundle.family.probabilities(eta, distribution(SubspacePosterior(bundle, draws), rows))
    assert p[0].mean(axis=0) == pytest.approx(np.array([3, 2, 1]) / 6, abs=0.02)


@pytest.mark.parametrize("construction", ["bezier", "curve", "pca", "random", "full", "subnetwork"])
def test_every_other_construction_trains_all_predictors(construction):
    settings = {"subspace__construction": construction, "subspace__select": "magnitude"}
    settings |= {"subspace__snapshots": 4, "train__epochs": 6}
    bundle, rows = small_bundle(
        "o ~ x + nn(u), mutrain ~ z + nn(v)", modes(), family="categorical", **settings
    )
    assert bundle.trained.linear["mutrain"].shape == (1,)
    target, q = make_target(bundle, rows), torch.tensor(states(bundle)[0])
    assert np.isfinite(negative_log_posterior(target, q))


# ----------------------------------------------------------------------------- the density


def by_hand(w, U):
    """A network with four tanh units at weights (d,)."""
    m = 4 * U.shape[1]
    return np.tanh(U @ w[:m].reshape(4, -1).T + w[m : m + 4]) @ w[m + 4 : m + 8] + w[m + 8]


def test_the_density_is_that_of_a_model_written_by_hand():
    bundle, rows = random_model(EXPLICIT)
    assert [item.name for item in bundle.design.others] == ["muwalk", "mutrain"]
    x, z = rows.X, rows.predictors["muwalk"].X
    assert pytest.approx(x) == rows.predictors["mutrain"].X
    sd, sds = x.std(ddof=1), z.std(axis=0, ddof=1)
    x, z = (x - x.mean()) / sd, (z - z.mean(axis=0)) / sds
    U = (rows.U - rows.U.mean(axis=0)) / rows.U.std(axis=0, ddof=1)
    n = np.array([(rows.y == k).sum() for k in (1, 2, 3, 4)])
    odds, half = np.log(n / n[0]), bundle.network.d // 2
    expected = []
    for q in states(bundle):
        w, b, tau, b_walk, b_train = bundle.subspace.lift(q[:6]), q[6], q[7], q[8:12], q[12]
        car = odds[1] + x[:, 0] * b + by_hand(w[:half], U[:, :2])
        train = odds[2] + x[:, 0] * b_train + by_hand(w[half:], U[:, 2:])
        walk = odds[3] + tau + z @ b_walk
        logs = log_softmax(np.column_stack([0 * car, car, train, walk]), axis=1)
        chosen = logs[np.arange(len(x)), rows.y.astype(int) - 1]
        total = (rows.given["weights"] * chosen).sum() + stats.norm(0, 5).logpdf(q[:6]).sum()
        total += stats.norm(0.1, 1 / sd).logpdf(np.array([b, b_train]) / sd).sum()
        total += stats.norm(0.2, 0.7).logpdf(tau)
        expected.append(total + stats.t(4, 0.1, 2 / sds).logpdf(b_walk / sds).sum())
    target = make_target(bundle, rows)
    found = [-negative_log_posterior(target, torch.tensor(q)) for q in states(bundle)]
    assert np.ptp(np.array(found) - expected) < 1e-9 * np.abs(expected).max()


@all_models
def test_the_gradient_is_that_of_differences_and_the_matrix_positive(model):
    bundle, rows = random_model(model)
    target, q, step = make_target(bundle, rows), torch.tensor(states(bundle, 1)[0]), 1e-5
    gradient, matrix = derivatives(target, q)
    moves = step * torch.eye(len(q), dtype=torch.float64)
    ends = [[negative_log_posterior(target, q + s * move) for s in (1, -1)] for move in moves]
    naive = np.array([(one - other) / (2 * step) for one, other in ends])
    assert gradient.numpy() == pytest.approx(naive, abs=1e-6 * np.abs(naive).max())
    assert torch.linalg.eigvalsh(matrix).min() > 0


def constant_model(n=60):
    """A model whose networks are intercepts, which phi moves, under flat priors."""
    priors = {"phi": "normal(0, 1e4)", "b": "normal(0, 1e4)"}
    name, formula, _ = PLAIN
    bundle, rows = random_bundle(name, formula=formula, priors=priors, k=2, n=n)
    d = bundle.network.d
    Pi = np.zeros((d, 2))
    Pi[[d // 2 - 1, d - 1], [0, 1]] = 1  # the networks' output biases
    subspace = Subspace(np.zeros(d), Pi, "biases", np.ones(2), np.zeros(0, dtype=int))
    return replace(bundle, trained=replace(bundle.trained, subspace=subspace)), rows


def test_mode_and_curvature_are_those_of_statsmodels():
    bundle, rows = constant_model()
    target = make_target(bundle, rows)

    def loss(q):
        return negative_log_posterior(target, torch.tensor(q))

    def slope(q):
        return derivatives(target, torch.tensor(q))[0].numpy()

    best = optimize.minimize(loss, np.zeros(4), jac=slope, method="BFGS", options={"gtol": 1e-6})
    z = (rows.X - rows.X.mean(axis=0)) / rows.X.std(axis=0, ddof=1)
    model = MNLogit(rows.y, np.column_stack([np.ones(len(z)), z]))
    oracle = model.fit(method="newton", tol=1e-12, disp=False)
    odds = [bundle.units.eta_loc, bundle.units.locations["mutrain"]]
    car, train, by_x, by_x_train = best.x
    found = [[odds[0] + car, odds[1] + train], [by_x, by_x_train]]
    assert oracle.params == pytest.approx(np.array(found), abs=1e-6)
    H = [slope(best.x + move) - slope(best.x - move) for move in 1e-4 * np.eye(4)]
    order = [0, 2, 1, 3]  # statsmodels has one equation after the other
    covariance = np.linalg.inv(np.array(H) / 2e-4)[np.ix_(order, order)]
    assert covariance == pytest.approx(oracle.cov_params(), rel=1e-4)


# ----------------------------------------------------------------------------- predictions


def test_predictions_are_those_of_each_categorys_own_terms():
    bundle, rows = random_model(EXPLICIT)
    draws = random_draws(bundle)
    flat = {name: draws.flat(x)[:, None] for name, x in draws.coefficients.items()}
    walk, train = bundle.design.others
    expected_walk = flat[walk.intercept] + sum(
        flat[name] * rows.predictors["muwalk"].X[:, j] for j, name in enumerate(walk.coefficients)
    )
    U = (rows.U - rows.U.mean(axis=0)) / rows.U.std(axis=0, ddof=1)
    f = [by_hand(w[w.size // 2 :], U[:, 2:]) for w in bundle.subspace.lift(draws.flat(draws.phi))]
    x = rows.X - rows.X.mean(axis=0)
    odds = np.log((rows.y == 3).sum() / (rows.y == 1).sum())
    expected_train = odds + flat[train.coefficients[0]] * x[:, 0] + np.array(f)
    found = distribution(SubspacePosterior(bundle, draws), rows)
    assert found["muwalk"] == pytest.approx(expected_walk, rel=1e-9)
    assert found["mutrain"] == pytest.approx(expected_train, rel=1e-9)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    logs = log_softmax(np.stack([0 * eta, eta, expected_train, expected_walk], axis=-1), axis=-1)
    chosen = logs[:, np.arange(len(rows)), rows.y.astype(int) - 1]
    assert log_lik(SubspacePosterior(bundle, draws), rows) == pytest.approx(
        rows.given["weights"] * chosen, rel=1e-9
    )
    assert posterior_epred(SubspacePosterior(bundle, draws), rows) == pytest.approx(
        np.exp(logs), rel=1e-9
    )
    y = posterior_predict(SubspacePosterior(bundle, draws), rows, np.random.default_rng(1))
    for k in (1, 2, 3, 4):
        p = np.exp(logs[..., k - 1])
        assert abs(((y == k) - p).sum()) < Z * np.sqrt((p * (1 - p)).sum())


def test_every_category_has_smooths_groups_and_offsets_of_its_own():
    bundle, rows = random_model(TERMS)
    draws, table = random_draws(bundle), rows.frame
    flat = {name: draws.flat(x) for name, x in {**draws.coefficients, **draws.terms}.items()}
    walk = bundle.design.predictor("muwalk")
    level = np.array(["abcd".index(g) for g in table["g"]])
    expected = flat["b_muwalk_Intercept"][:, None] + table["v"].to_numpy()
    for name in ("z", "u3"):
        expected = expected + np.outer(flat[f"b_muwalk_{name}"], table[name])
    r = flat["r_muwalk_1"]
    expected = expected + r[:, level, 0] + r[:, level, 1] * table["x1"].to_numpy()
    smooth = next(term for term in walk.terms if term.text == "s(u3)")
    expected = expected + flat["s_muwalk_1"] @ smooth.basis(table["u3"].to_numpy()).Z.T
    found = distribution(SubspacePosterior(bundle, draws), rows)
    assert found["muwalk"] == pytest.approx(expected, rel=1e-9)
    (smooth,) = bundle.design.predictor("mutrain").terms  # as in front of the commas
    apart = replace(draws, terms={**draws.terms, "s_mutrain_1": 0 * draws.terms["s_mutrain_1"]})
    without = distribution(SubspacePosterior(bundle, apart), rows)["mutrain"]
    added = flat["s_mutrain_1"] @ smooth.basis(table["v"].to_numpy()).Z.T
    assert found["mutrain"] - without == pytest.approx(added, rel=1e-9, abs=1e-9)


def test_the_chains_start_at_the_trained_coefficients():
    bundle, rows = random_model(EXPLICIT)
    (values,) = find_starts(bundle, rows, SampleConfig(chains=1, metric="diag_e")).values
    assert set(values) == {"phi", "theta", "tau_muwalk", "theta_muwalk", "theta_mutrain"}
    assert values["tau_muwalk"] == pytest.approx(np.log(0.8))
    for name in ("muwalk", "mutrain"):
        assert values[f"theta_{name}"] == pytest.approx(bundle.trained.linear[name])


# ----------------------------------------------------------------------------- the bundle


def through_json(bundle):
    return json.loads(json.dumps(design_to_plain(bundle.design)))


@pytest.mark.parametrize("model", [PLAIN, EXPLICIT, TWO], ids=["plain", "explicit", "two"])
def test_a_bundle_is_read_back_and_predicts_the_same(model, tmp_path):
    bundle, rows = random_model(model)
    assert design_from_plain(through_json(bundle)) == bundle.design
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert (again.design, again.config) == (bundle.design, bundle.config)
    assert again.units.locations == bundle.units.locations
    draws = random_draws(bundle)
    same = new_rows(again, rows.frame.assign(y=[bundle.design.categories[int(k) - 1]
                                                for k in rows.y]), response=True)  # fmt: skip
    assert np.array_equal(same.y, rows.y)
    assert log_lik(SubspacePosterior(again, draws), same) == pytest.approx(
        log_lik(SubspacePosterior(bundle, draws), rows), rel=1e-9
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain["categories"].clear(),
        lambda plain: plain["categories"].pop(),
        lambda plain: plain["categories"].append("tram"),
        lambda plain: plain.update(categories=["bus"]),
        lambda plain: plain.update(categories="bus"),
        lambda plain: plain.update(categories=7),
        lambda plain: plain.update(categories=["bus", "car", 3]),
        lambda plain: plain.update(categories=["bus", "car", "tram"]),
        lambda plain: plain.update(categories=["car", "bus", "train"]),
        lambda plain: plain.pop("categories"),
    ],
)
def test_damaged_categories_are_refused(damage, tmp_path):
    write_bundle(random_model(PLAIN)[0], tmp_path / "bundle")
    path = tmp_path / "bundle" / "bundle.json"
    content = json.loads(path.read_text())
    damage(content["design"])
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="damaged"):
        read_bundle(tmp_path / "bundle")


# ----------------------------------------------------------------------------- the program


ODD = {
    "long name": ((LONG, "b", "a"), FORMULA, {}),
    "long second name": (("a", LONG), "o | weights(z) ~ x + C(g) + nn(u, v)", {}),
    "long last name": (("a", "b", LONG), f"o ~ x + nn(u), mu{LONG} ~ x + C(g)",
                       {f"b_mu{LONG}_x": "normal(0, 1)"}),
    "own priors": (("a", "b", "on foot"), "o ~ x + nn(u), muon_foot ~ x + C(g)",
                   {"b_muon_foot_x": "student_t(3, 0, 1)",
                    "b_muon_foot_Intercept": "cauchy(0, 1)"}),
    "signs": (("100 %", "*/ b", 'c; "d"'), "o ~ nn(u), muc_d ~ nn(u, v)", {}),
    "numbers": ((0, 1, 2, 3), "o ~ x + nn(u), mu2 ~ 1", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_stanc_accepts_both_programs_without_a_warning(name, toolchain, tmp_path):
    values, formula, priors = ODD[name]
    bundle = train(prepared(values, formula, priors=priors, train__epochs=1))
    for text in (bundle_program(bundle), quantities_program(bundle)):
        for line in text.splitlines():
            assert len(line) <= 80, line
            assert line == line.rstrip()
        assert stanc_output(text, toolchain, tmp_path) == ""


def test_the_header_numbers_the_categories():
    (line,) = re.findall(r"// categories: .*", bundle_program(random_model(PLAIN)[0]))
    assert line == "// categories: 1 bus, 2 car, 3 train"


@models
def test_density_and_gradient_are_those_of_pytorch(model, toolchain, tmp_path):
    bundle, rows = random_model(model)
    target, q = make_target(bundle, rows), states(bundle)
    program = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path)
    ours = np.array([-negative_log_posterior(target, torch.tensor(row)) for row in q])
    assert np.ptp(program.lp - ours) < 1e-9 * np.max(np.abs(program.lp))
    for row, expected in zip(q, program.gradient, strict=True):
        gradient = -derivatives(target, torch.tensor(row))[0].numpy()
        assert np.max(np.abs(gradient - expected)) < 1e-9 * np.max(np.abs(expected))
    for item in bundle.design.others:
        each = [target.predictors(target.values(torch.tensor(row))) for row in q]
        mean = np.array([float(found[item.name].mean()) for (found,) in each])
        coefficients = np.array([program.written[name] for name in item.coefficients])
        moved = rows.predictors[item.name].X.mean(axis=0) @ coefficients
        assert program.written[item.intercept] == pytest.approx(mean - moved, rel=1e-9)


def test_with_terms_density_gradient_and_columns_are_the_programs(toolchain, tmp_path):
    assert_program(*random_model(TERMS), toolchain, tmp_path)


def test_of_two_categories_every_column_is_the_programs(toolchain, tmp_path):
    bundle, rows = random_model(TWO)
    target, q = make_target(bundle, rows), states(bundle)
    program = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path)
    density = np.array([-negative_log_posterior(target, torch.tensor(row)) for row in q])
    ours = sampled_columns(target, q, density, np.ones(len(q)))
    assert list(ours) == [*NUTS_COLUMNS.values(), *program.written]
    assert list(ours)[-2:] == ["b_mucar_Intercept", "b_mucar_x1"]
    assert ours["lp__"] == pytest.approx(program.lp, rel=1e-10)
    for name, values in program.written.items():
        assert ours[name] == pytest.approx(values, rel=1e-9, abs=1e-12), name


# ----------------------------------------------------------------------------- the posterior


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("categorical") / "run"
    run = new_run(*random_model(PLAIN), folder, OPTIONS, toolchain)
    fit = sample(run, toolchain)
    generate_quantities(fit.run, toolchain)
    return fit


def chain_columns(fit):
    files = sorted((fit.run.path / "chains").glob("*.csv"))
    return pd.concat([pd.read_csv(path, comment="#") for path in files])


def test_every_column_of_the_chains_is_what_the_parameters_make(fit):
    bundle, rows = fit.run.bundle, fit.run.rows()
    target, columns = make_target(bundle, rows), chain_columns(fit)
    vector = {name: columns.filter(regex=rf"^{name}\.\d+$").to_numpy()
              for name in ("phi", "theta", "theta_mutrain")}  # fmt: skip
    sd = rows.X.std(ddof=1)
    q = np.hstack([vector["phi"], sd * vector["theta"], sd * vector["theta_mutrain"]])
    density = [-negative_log_posterior(target, torch.tensor(row)) for row in q]
    lp = columns["lp__"].to_numpy()
    assert np.ptp(lp - density) < 1e-6 * np.abs(lp).max()
    by_name = {"mucar": vector["theta"], "mutrain": vector["theta_mutrain"]}
    U = (rows.U - rows.U.mean(axis=0)) / rows.U.std(axis=0, ddof=1)
    w, half = bundle.subspace.lift(vector["phi"]), bundle.network.d // 2
    halves = {"mucar": (w[:, :half], U[:, :3]), "mutrain": (w[:, half:], U[:, 3:])}
    for k, (name, theta) in enumerate(by_name.items(), start=2):
        assert np.array_equal(columns[f"b_{name}_x1"], theta[:, 0])
        weights, inputs = halves[name]
        f = np.array([by_hand(each, inputs).mean() for each in weights])
        odds = np.log((rows.y == k).sum() / (rows.y == 1).sum())
        expected = odds + f - theta @ rows.X.mean(axis=0)
        assert columns[f"b_{name}_Intercept"].to_numpy() == pytest.approx(expected, abs=1e-6)
    prior = stats.norm(0, 5).logpdf(vector["phi"]).sum(axis=1)
    prior += sum(stats.norm(0, 2.5 / sd).logpdf(theta[:, 0]) for theta in by_name.values())
    assert columns["lprior"].to_numpy() == pytest.approx(prior, rel=1e-6)


def test_log_lik_and_replicates_of_generated_quantities_are_ours(fit):
    bundle, rows, generated = fit.run.bundle, fit.run.rows(), read_generated(fit.run)
    assert generated.log_lik == pytest.approx(log_lik(fit.posterior, rows), rel=1e-6)
    assert set(np.unique(generated.y_rep)) == {1, 2, 3}
    eta = posterior_linpred(fit.posterior, rows)
    p = bundle.family.probabilities(eta, distribution(fit.posterior, rows))
    for k in (1, 2, 3):
        off = (generated.y_rep == k) - p[..., k - 1]
        assert abs(off.sum()) < Z * np.sqrt((p[..., k - 1] * (1 - p[..., k - 1])).sum())


def test_the_table_and_the_labels_name_the_coefficients(fit):
    names = ["b_mucar_Intercept", "b_mucar_x1", "b_mutrain_Intercept", "b_mutrain_x1"]
    assert list(pd.read_csv(fit.run.path / "summary.csv")["variable"]) == names
    labels = json.loads((fit.run.path / "labels.json").read_text())
    assert labels["b_mutrain_x1"] == "mutrain: x1"
    assert (labels["b_mucar_x1"], labels["b_mucar_Intercept"]) == ("mucar: x1", "mucar: Intercept")


@all_models
def test_the_matrix_has_what_bends_in_two_predictors_at_once(model):
    bundle, rows = random_model(model)
    target, q = make_target(bundle, rows), torch.tensor(states(bundle)[0])
    names = bundle.family.dispersion

    def predictors(q):
        (found,) = target.predictors(target.values(q))
        return torch.stack([found[name] for name in ("mu", *names)])

    mu, J = predictors(q).detach().numpy(), torch.func.jacrev(predictors)(q).numpy()
    p = softmax(np.vstack([0 * mu[:1], mu]), axis=0)[1:]
    weights = rows.given.get("weights", np.ones(len(rows)))
    expected = 0
    for a in range(len(p)):
        for b in range(len(p)):
            bend = weights * p[a] * ((a == b) - p[b])
            expected = expected + J[a].T @ (bend[:, None] * J[b])
    prior = derivatives(make_target(bundle, rows, prior_only=True), q)[1].numpy()
    found = derivatives(target, q)[1].numpy() - prior
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * np.abs(expected).max())
