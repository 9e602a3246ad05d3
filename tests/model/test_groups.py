"""Group-level terms: levels, columns and names, predictions by a loop, new levels, training."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.problem import Weights, make_problem
from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.networks.networks import forward
from semistan.model.terms.group import level_labels
from semistan.model.terms.smooth import Smooth
from semistan.posterior import predictive
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.program.program import labels
from semistan.subspace.coefficients import theta_at
from semistan.workflow.prepare import new_rows
from support.assertions import Z
from support.drawn import random_draws
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import random_bundle

NESTED = "y ~ x1 + (1 + x1 + x2 | g) + (v || h) + s(v, k=5) + (1 | g:h) + nn(u1, u2, u3)"


def learn(term, frame=None):
    return learn_design(
        parse_formula(f"y ~ {term} + nn(u)"), small_frame() if frame is None else frame
    )


def blocks(rows):
    """What the mean's terms need of the rows."""
    return rows.predictors["mu"].blocks


def with_blocks(rows, blocks):
    return replace(rows, predictors={"mu": replace(rows.predictors["mu"], blocks=blocks)})


def of_terms(bundle, draws, rows):
    """What the mean's terms add, (S, N)."""
    return posterior_linpred(SubspacePosterior(bundle, draws), rows, part="penalised")


def refusal(term, frame=None):
    with pytest.raises(InputError) as caught:
        learn(term, frame)
    return str(caught.value)


@pytest.mark.parametrize(
    ("column", "levels"),
    [
        (["b", "a", "b", "c"], ("a", "b", "c")),
        ([2, 10, 2, 3], ("10", "2", "3")),
        ([1.0, 2.0, 1.5, 1.0], ("1", "1.5", "2")),
        ([True, False, True, True], ("False", "True")),
        (pd.Categorical(["b", "a", "b", "b"], ["a", "unused", "b"]), ("a", "b")),
        (["1", "1.0", "01", "1"], ("01", "1", "1.0")),
        (["", "a", "", "a"], ("", "a")),
    ],
    ids=["text", "whole", "decimal", "truth", "categorical", "numbers as text", "empty"],
)
def test_levels_are_labels_in_order(column, levels):
    frame = small_frame(4).assign(g=column)
    design, rows = learn("(1 | g)", frame)
    (group,), (block,) = design.terms, blocks(rows)
    assert group.levels == levels
    assert [levels[i] for i in block.level] == level_labels(frame, ("g",))
    assert np.array_equal(block.Z, np.ones((4, 1)))


def test_whole_numbers_are_the_same_level_as_decimals_without_a_fraction():
    frame = small_frame(6).assign(g=[1, 2, 1, 3, 2, 3])
    design, rows = learn("(1 | g)", frame)
    again = apply_design(design, frame.assign(g=frame["g"].astype(float)), response=False)
    assert np.array_equal(blocks(again)[0].level, blocks(rows)[0].level)


def test_the_levels_of_two_columns_are_their_combinations():
    frame = small_frame(6).assign(g=list("aabbab"), h=[1, 2, 1, 1, 1, 2])
    design, rows = learn("(1 | g:h)", frame)
    assert design.terms[0].levels == ("a_1", "a_2", "b_1", "b_2")
    assert list(blocks(rows)[0].level) == [0, 1, 2, 2, 0, 3]
    assert design.terms[0].name == "g_h"


@pytest.mark.parametrize(
    ("term", "effects", "columns"),
    [
        ("(1 | g)", ("Intercept",), []),
        ("(x | g)", ("Intercept", "x"), ["x"]),
        ("(0 + x | g)", ("x",), ["x"]),
        ("(x + z:v || g)", ("Intercept", "x", "z_v"), ["x", "z*v"]),
        ("(log(z) | g)", ("Intercept", "logz"), ["log(z)"]),
    ],
)
def test_effects_are_named_and_their_columns_are_in_the_users_units(term, effects, columns):
    frame = small_frame()
    design, rows = learn(term, frame)
    (group,), (block,) = design.terms, blocks(rows)
    assert group.effect_names == effects
    numbers = {"x": frame["x"], "z*v": frame["z"] * frame["v"], "log(z)": np.log(frame["z"])}
    ones = [np.ones(30)] if "Intercept" in effects else []
    expected = np.column_stack([*ones, *(numbers[column] for column in columns)])
    assert np.allclose(block.Z, expected, rtol=1e-14)
    scales = [1.0] * len(ones) + [numbers[column].std(ddof=1) for column in columns]
    assert group.units == pytest.approx(scales, rel=1e-12)


def test_a_factor_varies_by_level_of_the_group():
    frame = small_frame().assign(h=np.arange(30) % 4)
    design, rows = learn("(C(g) | h)", frame)
    assert design.terms[0].effect_names == ("Intercept", "gb", "gc")
    assert np.array_equal(blocks(rows)[0].Z[:, 1], frame["g"] == "b")


def crossed():
    i = np.arange(60)
    table = small_frame(60).assign(h=np.array(["p", "q"])[i // 3 % 2], id=i % 7, site=i % 7 % 2)
    return table.assign(k=i % 3 + 1)


def cells(table, *columns):
    """An indicator of each combination of levels, the first column's changing fastest."""
    labels = table[list(columns[::-1])].astype(str).agg("_".join, axis=1)
    return np.column_stack([labels == label for label in sorted(set(labels))]).astype(float)


@pytest.mark.parametrize(
    ("term", "names", "columns"),
    [
        ("(0 + C(g) | id)", "ga gb gc", ["g"]),
        ("(0 + g | id)", "ga gb gc", ["g"]),
        ("(g - 1 | id)", "ga gb gc", ["g"]),
        ("(0 + C(g) || id)", "ga gb gc", ["g"]),
        ("(0 + C(k) | id)", "k1 k2 k3", ["k"]),
        ("(0 + g:h | id)", "ga_hp gb_hp gc_hp ga_hq gb_hq gc_hq", ["g", "h"]),
        ("(0 + g || gr(id, by=site))", "ga gb gc", ["g"]),
    ],
)
def test_without_an_intercept_each_level_of_a_factor_has_an_effect(term, names, columns):
    design, rows = learn(term, crossed())
    (group,), (block,) = design.terms, blocks(rows)
    assert group.effect_names == tuple(names.split())
    assert np.array_equal(block.Z, cells(crossed(), *columns))
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    some = crossed().iloc[[4]]  # which has one of the levels
    assert np.array_equal(blocks(apply_design(again, some, response=False))[0].Z, block.Z[[4]])


def test_without_an_intercept_a_second_factor_has_contrasts_as_in_r():
    design, rows = learn("(0 + x + g + h | id)", crossed())
    assert design.terms[0].effect_names == ("x", "ga", "gb", "gc", "hq")
    table = crossed()
    expected = np.column_stack([table["x"], cells(table, "g"), table["h"] == "q"])
    assert np.array_equal(blocks(rows)[0].Z, expected)


def test_effects_of_all_levels_have_brmss_names():
    model = small_prepared("y ~ (0 + g | id) + nn(u)", crossed()).model
    (group,) = model.design.terms
    assert group.spread == ("sd_id__ga", "sd_id__gb", "sd_id__gc")
    assert group.correlations == ("cor_id__ga__gb", "cor_id__ga__gc", "cor_id__gb__gc")
    names = labels(model)
    assert [names[f"r_1.2.{j}"] for j in (1, 2, 3)] == ["r_id[1,ga]", "r_id[1,gb]", "r_id[1,gc]"]


def test_a_run_that_left_the_first_level_out_keeps_its_columns():
    formula = parse_formula("y ~ (0 + g | id) + nn(u)")
    whole, _ = learn_design(formula, crossed())
    with_intercept, rows = learn_design(parse_formula("y ~ (1 + g | id) + nn(u)"), crossed())
    plain, reference = design_to_plain(whole), design_to_plain(with_intercept)
    (group,), (other,) = plain["groups"], reference["groups"]
    group |= {"terms": other["terms"], "effects": other["effects"][1:]}
    del group["terms"]["intercept"]  # as in a state that does not say
    again = design_from_plain(json.loads(json.dumps(plain)))
    (block,) = blocks(apply_design(again, crossed(), response=False))
    assert np.array_equal(block.Z, blocks(rows)[0].Z[:, 1:])


def test_standard_deviations_and_correlations_have_brmss_names():
    frame = small_frame().assign(h=np.arange(30) % 4)
    term = "(1 + x + z | g) + (x || h) + (1 | g:h)"
    design, _ = learn(term, frame)
    first, second, third = design.terms
    assert first.spread == ("sd_g__Intercept", "sd_g__x", "sd_g__z")
    assert first.correlations == (
        "cor_g__Intercept__x", "cor_g__Intercept__z", "cor_g__x__z",
    )  # fmt: skip
    assert (second.spread, second.correlations) == (("sd_h__Intercept", "sd_h__x"), ())
    assert (third.spread, third.correlations) == (("sd_g_h__Intercept",), ())
    names = labels(small_prepared(f"y ~ {term} + nn(u)", frame).model)
    assert names["r_1.2.3"] == "r_g[b,z]"
    assert names["r_2.4.1"] == "r_h[3,Intercept]"
    assert sum(name.startswith("r_") for name in names) == 3 * 3 + 4 * 2 + 12


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("(1 | g)", small_frame().assign(g="a"),
         "(1 | g): 'g' has one level; a group-level term needs several"),
        ("(1 | g:h)", small_frame(4).assign(g=["a_b", "a", "a", "c"], h=["c", "b_c", "c", "c"]),
         "(1 | g:h): two levels of 'g:h' look alike; rename one"),
        ("(1 | absent)", None, "absent"),
        ("(lgx | g)", None, "lgx"),
        ("(log(x) | g)", None, "'log(x)' is nan in row 1"),
        ("(1 | g) + (x | g)", None, "two terms would both have a standard deviation 'sd_g__Inter"),
        ("(1 | `a b`) + (1 | `a.b`)", small_frame().assign(**{"a b": list("ab") * 15,
         "a.b": list("ab") * 15}), "standard deviation 'sd_a_b__Intercept'"),
        ("(1 | g:flag) + (1 | g_flag)", small_frame().assign(g_flag=list("ab") * 15),
         "standard deviation 'sd_g_flag__Intercept'"),
    ],
)  # fmt: skip
def test_what_cannot_be_grouped_is_refused(term, frame, message):
    assert message in refusal(term, frame)


def test_levels_that_were_not_trained_on_are_refused_unless_they_are_allowed():
    frame = small_frame()
    bundle, _ = small_bundle("y ~ x + (1 + x | g) + nn(u)")
    new = frame.assign(g=frame["g"].replace({"b": "zz", "c": "new"}))
    with pytest.raises(InputError, match=r"'g' has levels that .*: 'new', 'zz'\. Predict them"):
        new_rows(bundle, new, response=False)
    (block,) = new_rows(bundle, new, response=False, allow_new_levels=True).predictors["mu"].blocks
    assert block.new == ("new", "zz")
    assert list(block.level[:6]) == [0, 4, 3, 0, 4, 3]


def test_at_most_five_unseen_levels_are_named():
    design, _ = learn("(1 | g)")
    new = small_frame().assign(g=[f"n{i % 7}" for i in range(30)])
    with pytest.raises(InputError, match=r"'n3', 'n4', \.\.\.\."):
        apply_design(design, new, response=False)


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_a_row_of_no_level_has_no_effect(nothing):
    bundle, rows = random_bundle("gaussian", formula=NESTED)
    draws, terms = random_draws(bundle), bundle.design.terms
    table = rows.frame.astype({"g": object, "h": object})
    table.loc[:, ["g", "h"]] = nothing
    at = [isinstance(term, Smooth) for term in terms].index(True)
    smooth = blocks(rows)[at]
    none = [term.block(table) for term in terms]
    assert all((block.level == -1).all() for i, block in enumerate(none) if i != at)
    alone = of_terms(bundle, draws, with_blocks(rows, tuple(none)))
    assert alone == pytest.approx(draws.flat(draws.terms["s_1"]) @ smooth.Z.T, rel=1e-12)


def test_a_row_of_two_columns_has_no_level_if_either_is_missing():
    frame = small_frame(4).assign(g=["a", None, "a", "b"], h=[1, 1, None, 2])
    assert level_labels(frame, ("g", "h")) == ["a_1", None, None, "b_2"]


def test_missing_levels_are_refused_in_training():
    frame = small_frame()
    frame.loc[3, "g"] = None
    with pytest.raises(InputError, match=r"missing or infinite values: g \(1\)"):
        small_prepared("y ~ (1 | g) + nn(u)", frame)
    assert len(small_prepared("y ~ (1 | g) + nn(u)", frame, drop_missing=True).rows) == 29


def test_the_state_survives_json_and_the_bundle(tmp_path):
    frame = small_frame().assign(h=np.arange(30) % 4)
    formula = "y ~ x + (1 + x + log(z) | g) + (0 + x | g:h) + (C(h) || flag) + nn(u)"
    bundle, rows = small_bundle(formula, frame)
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    for one, other in zip(again.design.terms, bundle.design.terms, strict=True):
        assert (one.by, one.levels) == (other.by, other.levels)
        assert one.effect_names == other.effect_names
        assert (one.correlated, one.terms) == (other.correlated, other.terms)
    assert np.array_equal(again.trained.terms["mu"], bundle.trained.terms["mu"])
    assert len(bundle.trained.terms["mu"]) == 3 * 3 + 12 + 2 * 4
    applied = new_rows(again, frame.iloc[[9, 4]], response=False)
    for block, trained in zip(blocks(applied), blocks(rows), strict=True):
        assert np.array_equal(block.Z, trained.Z[[9, 4]])
        assert np.array_equal(block.level, trained.level[[9, 4]])


@pytest.mark.parametrize(
    "damage",
    [
        {"effects": ["Intercept"]},
        {"by": ["other"]},
        {"levels": None},
        {"terms": None},
        {"intercept": False},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(damage):
    plain = json.loads(json.dumps(design_to_plain(learn("(1 + x | g)")[0])))
    plain["groups"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)


def test_a_state_cannot_smuggle_code():
    plain = json.loads(json.dumps(design_to_plain(learn("(1 + x | g)")[0])))
    plain["groups"][0]["terms"]["terms"] = ["I(__import__('os').getcwd())"]
    with pytest.raises(InputError):
        design_from_plain(plain)


def naive_predictor(bundle, draws, rows):
    """Each draw and row by a loop over the terms' columns."""
    total = np.zeros((draws.size, len(rows)))
    for term, block in zip(bundle.design.terms, blocks(rows), strict=True):
        (name,) = term.made_shapes
        flat = draws.terms[name].reshape(draws.size, term.n_levels, term.size)
        for s, n in np.ndindex(total.shape):
            for j in range(block.Z.shape[1]):
                total[s, n] += flat[s, block.level[n], j] * block.Z[n, j]
    return total


def test_the_predictor_is_that_of_a_loop():
    bundle, rows = random_bundle("gaussian", formula=NESTED)
    draws = random_draws(bundle, chains=2, iterations=7)
    expected = naive_predictor(bundle, draws, rows)
    assert of_terms(bundle, draws, rows) == pytest.approx(expected, rel=1e-12)
    structured, nn, everything = (
        posterior_linpred(SubspacePosterior(bundle, draws), rows, part=part)
        for part in ("structured", "nn", "all")
    )
    intercept = draws.flat(draws.coefficients["b_Intercept"])[:, None]
    assert everything == pytest.approx(intercept + structured + nn + expected)


def unseen(bundle, rows, levels=("q1", "q2")):
    """The rows at new levels of g in turn, all of one row's columns."""
    table = rows.frame.iloc[[0] * 6].assign(g=[levels[i % len(levels)] for i in range(6)])
    return new_rows(bundle, table, response=False, allow_new_levels=True)


def effects_of(bundle, draws, new, m):
    """The effects (S, m) of the first row's level."""
    block = replace(blocks(new)[0].take(np.zeros(m, int)), Z=np.eye(m))
    some = with_blocks(new.take(np.arange(m)), (block,))
    return of_terms(bundle, draws, some)


@pytest.mark.lengthy
def test_new_levels_have_the_covariance_of_each_draw():
    bundle, rows = random_bundle("gaussian", formula="y ~ (1 + x1 + x2 | g) + nn(u1, u2, u3)")
    draws = random_draws(bundle, chains=2, iterations=10_000)
    new = unseen(bundle, rows)
    r = effects_of(bundle, draws, new, 3)
    sd = np.stack([draws.spread[f"sd_g__{name}"].ravel() for name in ("Intercept", "x1", "x2")], 1)
    z = r / sd
    for a in range(3):
        assert abs(z[:, a].mean()) < Z / np.sqrt(len(z))
        assert abs((z[:, a] ** 2).mean() - 1) < Z * np.sqrt(2 / len(z))
    names = {
        "cor_g__Intercept__x1": (0, 1),
        "cor_g__Intercept__x2": (0, 2),
        "cor_g__x1__x2": (1, 2),
    }
    for name, (a, b) in names.items():
        off = z[:, a] * z[:, b] - draws.spread[name].ravel()
        assert abs(off.mean()) < Z * off.std() / np.sqrt(len(z)), name
        # and draw by draw: where the correlation is high, so is the product
        slope = np.polyfit(draws.spread[name].ravel(), z[:, a] * z[:, b], 1)[0]
        assert abs(slope - 1) < Z * off.std() / draws.spread[name].std() / np.sqrt(len(z)), name


@pytest.mark.lengthy
def test_new_levels_are_independent_and_the_same_for_all_their_rows():
    bundle, rows = random_bundle("gaussian", formula="y ~ (1 | g) + nn(u1, u2, u3)")
    draws = random_draws(bundle, chains=2, iterations=5000)
    eta = of_terms(bundle, draws, unseen(bundle, rows))
    assert np.array_equal(eta[:, 0], eta[:, 2])
    assert np.array_equal(eta[:, 1], eta[:, 5])
    z = eta[:, :2] / draws.spread["sd_g__Intercept"].ravel()[:, None]
    assert abs(z.prod(axis=1).mean()) < Z / np.sqrt(len(z))


def test_a_new_level_is_the_same_beside_other_rows_and_in_any_chunk(monkeypatch):
    bundle, rows = random_bundle("gaussian", formula="y ~ (1 + x1 | g) + nn(u1, u2, u3)")
    draws, new = random_draws(bundle), unseen(bundle, rows)
    whole = posterior_linpred(SubspacePosterior(bundle, draws), new)
    alone = unseen(bundle, rows, ("q2",))
    assert posterior_linpred(SubspacePosterior(bundle, draws), alone)[:, 1] == pytest.approx(
        whole[:, 1], rel=1e-14
    )
    posterior = SubspacePosterior(bundle, draws)
    monkeypatch.setattr(predictive, "CHUNK_PREDICTIONS", 2 * draws.size)
    chunks = [posterior_linpred(posterior, part) for part in predictive.row_chunks(posterior, new)]
    assert len(chunks) == 3
    assert np.concatenate(chunks, axis=1) == pytest.approx(whole, rel=1e-14)


@pytest.mark.lengthy
def test_uncorrelated_effects_of_a_new_level_are_independent():
    bundle, rows = random_bundle("gaussian", formula="y ~ (x1 || g) + nn(u1, u2, u3)")
    draws = random_draws(bundle, chains=2, iterations=5000)
    r = effects_of(bundle, draws, unseen(bundle, rows), 2)
    sd = np.stack([draws.spread[f"sd_g__{name}"].ravel() for name in ("Intercept", "x1")], 1)
    assert abs((r / sd).prod(axis=1).mean()) < Z / np.sqrt(len(r))


def trained_problem(formula=NESTED, name="gaussian"):
    bundle, rows = random_bundle(name, formula=formula)
    problem = make_problem(bundle.model, rows, "cpu")
    generator = np.random.default_rng(4)
    sizes = (bundle.network.d, problem.coefficients, len(bundle.family.dispersion))
    state = Weights(*(torch.tensor(generator.normal(0, 0.5, size=size)) for size in sizes))
    return bundle, rows, problem, state


def test_the_loss_is_that_of_a_loop_with_a_standard_normal_penalty():
    bundle, rows, problem, state = trained_problem()
    P = len(bundle.design.coefficients)
    units = bundle.units
    f = np.zeros(len(rows))
    eta = problem.eta(state.theta, torch.tensor(f)).numpy()
    r = np.concatenate([term.training_units(units.eta_scale) for term in bundle.design.terms])
    r = r * state.theta[P:].numpy()
    expected = units.eta_loc + (rows.X - units.x_loc) @ (
        units.theta_scale * state.theta[:P].numpy()
    )
    start = 0
    for term, block in zip(bundle.design.terms, blocks(rows), strict=True):
        coefficients = r[start : start + term.n_levels * term.size]
        start += len(coefficients)
        by_level = coefficients.reshape(term.n_levels, term.size)
        for n in range(len(rows)):
            expected[n] += block.Z[n] @ by_level[block.level[n]]
    assert start == len(r)
    assert eta == pytest.approx(expected, rel=1e-12)
    silent = replace(state, theta=torch.cat([state.theta[:P], torch.zeros(len(r))]))
    likelihood = [float(-problem.log_lik(problem.eta(s.theta, network(problem, s)),
                                         problem.dispersion(s.log_dispersion)).mean())
                  for s in (state, silent)]  # fmt: skip
    penalty = 0.5 * float(state.theta[P:].square().sum()) / len(rows)
    assert float(problem.loss(state)) == pytest.approx(likelihood[0] + penalty, rel=1e-12)
    assert float(problem.loss(silent)) == pytest.approx(likelihood[1], rel=1e-12)


def network(problem, state):
    return forward(problem.network, state.w, problem.U)


def test_the_penalty_of_some_rows_is_their_share():
    *_, problem, state = trained_problem()
    index = torch.arange(len(problem))
    halves = [problem.rows(index[:15]), problem.rows(index[15:])]
    mean = sum(float(half.loss(state)) for half in halves) / 2
    assert mean == pytest.approx(float(problem.loss(state)), rel=1e-12)


def test_columns_are_what_the_coefficients_multiply():
    *_, problem, state = trained_problem()
    zero = torch.zeros(len(problem), dtype=torch.float64)
    eta = problem.eta(state.theta, zero)
    by_columns = problem.eta_loc + problem.eta_scale * (problem.mean_columns() @ state.theta)
    assert eta.numpy() == pytest.approx(by_columns.numpy(), rel=1e-12)


def test_coefficients_given_the_network_are_ridge_regression():
    *_, problem, state = trained_problem()
    found = theta_at(problem, state).numpy()
    h = np.tanh(problem.U.numpy() @ state.w[:12].numpy().reshape(4, 3).T + state.w[12:16].numpy())
    A = np.column_stack([problem.mean_columns().numpy(), h, np.ones(len(h))])
    sigma, P = float(state.log_dispersion.exp()), problem.coefficients
    centre = np.concatenate([np.zeros(P), state.w[-5:].numpy()])
    ridge = np.diag([2.5**-2] * problem.Z.shape[1] + [1.0] * (P - problem.Z.shape[1] + 5))
    y = (problem.y.numpy() - problem.eta_loc) / problem.eta_scale
    expected = np.linalg.solve(A.T @ A / sigma**2 + ridge, A.T @ y / sigma**2 + ridge @ centre)
    assert found == pytest.approx(expected[:P], rel=1e-6, abs=1e-8)
