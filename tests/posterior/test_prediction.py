"""Predictions: parts, engines, pieces, and their tables in CSV and Parquet."""

import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax

from semistan.bundle.bundle import write_bundle
from semistan.errors import InputError
from semistan.posterior import predictive
from semistan.posterior.diagnostics import eta_convergence
from semistan.posterior.engine import engine_named, onnx_engine
from semistan.posterior.options import PredictOptions
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.prediction import (
    check_prediction,
    draws_of,
    predict_chunks,
    summarise_prediction,
)
from semistan.posterior.predictive import (
    log_lik,
    posterior_epred,
    posterior_linpred,
    posterior_predict,
)
from semistan.show.tables import table_writer, write_table
from support.drawn import random_draws
from support.small import category_bundle, family_bundle, small_bundle
from support.untrained import random_bundle

NAMES = ("gaussian", "poisson", "bernoulli")


def chunks_of(bundle, draws, rows, kind="epred", part="all", seed=1):
    generator = np.random.default_rng(seed)
    return list(
        predict_chunks(
            SubspacePosterior(bundle, draws), rows, PredictOptions(kind, part), generator
        )
    )


@pytest.mark.parametrize("name", NAMES)
def test_intercept_and_parts_add_up_to_the_linear_predictor(name):
    bundle, rows = random_bundle(name, frozen=1, hidden=(3, 4))
    draws = random_draws(bundle)
    structured, nn, everything = (
        posterior_linpred(SubspacePosterior(bundle, draws), rows, part=part)
        for part in ("structured", "nn", "all")
    )
    assert structured == pytest.approx(draws.flat(draws.theta) @ rows.X.T)
    intercept = draws.flat(draws.coefficients["b_Intercept"])[:, None]
    assert intercept + structured + nn == pytest.approx(everything)


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_onnx_predicts_what_torch_predicts(name, frozen, tmp_path):
    bundle, rows = family_bundle(name, network__frozen=frozen)
    draws = random_draws(bundle)
    write_bundle(bundle, tmp_path / "bundle")
    onnx = onnx_engine(tmp_path / "bundle" / "predictor.onnx")
    for function in (posterior_linpred, posterior_epred):
        assert function(SubspacePosterior(bundle, draws, onnx), rows) == pytest.approx(
            function(SubspacePosterior(bundle, draws), rows), rel=1e-9
        )


@pytest.mark.lengthy
def test_onnx_needs_no_torch(tmp_path):
    bundle, _ = random_bundle("gaussian")
    write_bundle(bundle, tmp_path / "bundle")
    code = f"""
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from semistan.bundle.bundle import read_bundle
from semistan.posterior.diagnostics import eta_convergence
from semistan.posterior.engine import engine_named
from semistan.posterior.posterior import SubspacePosterior
bundle = read_bundle({str(tmp_path / "bundle")!r})
engine = engine_named("onnx", bundle, Path({str(tmp_path / "bundle")!r}))
engine(np.zeros((2, 2)), np.zeros((2, 3)), np.zeros((5, 3)), np.zeros((5, 2)))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", ["epred", "linpred"])
def test_pieces_make_the_whole(kind, monkeypatch):
    bundle, rows = random_bundle("poisson")
    draws = random_draws(bundle)
    (whole,) = chunks_of(bundle, draws, rows, kind)
    monkeypatch.setattr(predictive, "CHUNK_PREDICTIONS", 7 * draws.size)
    pieces = chunks_of(bundle, draws, rows, kind)
    assert [piece.values.shape[1] for piece in pieces] == [7, 7, 7, 7, 2]
    values = np.concatenate([piece.values for piece in pieces], axis=1)
    assert values == pytest.approx(whole.values, rel=1e-12)
    assert np.concatenate([piece.rows for piece in pieces]) == pytest.approx(np.arange(1, 31))


def test_replicated_responses_depend_on_the_seed_alone():
    bundle, rows = random_bundle("poisson")
    draws = random_draws(bundle)
    (one,), (same,), (other,) = (
        chunks_of(bundle, draws, rows, "predict", seed=seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.values, same.values)
    assert not np.array_equal(one.values, other.values)
    expected = posterior_predict(SubspacePosterior(bundle, draws), rows, np.random.default_rng(1))
    assert np.array_equal(one.values, expected)


def test_draws_are_in_long_form():
    bundle, rows = random_bundle("gaussian")
    draws = random_draws(bundle, chains=2, iterations=3)
    (prediction,) = chunks_of(bundle, draws, rows.first(2))
    table = draws_of(prediction)
    assert list(table.columns) == [".row", ".chain", ".iteration", ".draw", ".epred"]
    assert list(table[".row"]) == [1] * 6 + [2] * 6
    assert list(table[".chain"]) == [1, 1, 1, 2, 2, 2] * 2
    assert list(table[".iteration"]) == [1, 2, 3, 1, 2, 3] * 2
    assert list(table[".draw"]) == [1, 2, 3, 4, 5, 6] * 2
    assert table[".epred"].to_numpy() == pytest.approx(
        np.concatenate([prediction.values[:, 0], prediction.values[:, 1]])
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_written_in_pieces_is_read_as_one(tmp_path, suffix):
    table = pd.DataFrame({"row": [1, 2, 3], "Estimate": [0.25, np.pi, -1e-9]})
    with table_writer(tmp_path / f"t{suffix}") as append:
        append(table[:2])
        append(table[2:])
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    found = read(tmp_path / f"t{suffix}")
    assert list(found["row"]) == [1, 2, 3]
    assert found["Estimate"].to_numpy() == pytest.approx(table["Estimate"].to_numpy(), rel=1e-9)


def test_nothing_is_left_when_writing_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), table_writer(tmp_path / "t.parquet") as append:
        append(pd.DataFrame({"a": [1.0]}))
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_a_stream_gets_csv():
    stream = io.StringIO()
    write_table(pd.DataFrame({"a": [1 / 3]}), stream)
    assert stream.getvalue() == "a\n0.333333\n"


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.csv, \.parquet or \.json, got"):
        write_table(pd.DataFrame(), tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    ("kind", "part", "message"),
    [
        ("linprd", "all", "unknown kind of prediction 'linprd'. Did you mean 'linpred'"),
        ("linpred", "nnn", "unknown part of the predictor 'nnn'. Did you mean 'nn'"),
        ("epred", "nn", "use --kind linpred with --part nn"),
    ],
)
def test_unknown_kinds_and_parts_are_refused(kind, part, message):
    bundle, _ = random_bundle("gaussian")
    with pytest.raises(InputError, match=message):
        check_prediction(bundle.family, bundle.design, PredictOptions(kind, part))


@pytest.mark.parametrize(
    ("family", "kind", "part", "dpar", "message"),
    [
        ("gaussian", "epred", "all", "sigm", "family gaussian has no parameter 'sigm'. Did you"),
        ("poisson", "linpred", "all", "sigma", "has no parameter 'sigma' beside its mean"),
        ("gaussian", "linpred", "nn", "sigma", "part 'nn' without a parameter, or for 'sigma'"),
        ("gaussian", "predict", "all", "sigma", "--kind epred or linpred with --dpar sigma"),
    ],
)
def test_unknown_parameters_are_refused(family, kind, part, dpar, message):
    bundle, _ = random_bundle(family)
    with pytest.raises(InputError, match=message):
        check_prediction(bundle.family, bundle.design, PredictOptions(kind, part, dpar))


def test_a_parameter_is_predicted_with_a_predictor_and_without():
    bundle, rows = small_bundle("y ~ x + nn(u, v), sigma ~ z", family="student")
    draws = random_draws(bundle)
    b = {name: draws.flat(values)[:, None] for name, values in draws.coefficients.items()}
    log_sigma = b["b_sigma_Intercept"] + b["b_sigma_z"] * rows.predictors["sigma"].X.T
    log_nu = np.log(draws.flat(draws.dispersion["nu"]))[:, None] + np.zeros(30)
    for name, expected in (("sigma", log_sigma), ("nu", log_nu)):
        found = posterior_linpred(SubspacePosterior(bundle, draws), rows, dpar=name)
        assert found == pytest.approx(expected, rel=1e-12)
        value = posterior_epred(SubspacePosterior(bundle, draws), rows, dpar=name)
        assert value == pytest.approx(np.exp(expected), rel=1e-12)
    with pytest.raises(InputError, match="only the linear predictor eta is a sum of parts"):
        posterior_linpred(SubspacePosterior(bundle, draws), rows, part="nn", dpar="nu")


def odds_by_hand(bundle, draws, rows):
    """Log odds (S, N, 3) of a linear network's categories against the first."""
    units, b = bundle.units, draws.coefficients
    w = bundle.subspace.p_bar + draws.flat(draws.phi) @ bundle.subspace.Pi.T
    Z = (rows.U - units.u_loc) / units.u_scale
    first, second = (w[:, 3 * i : 3 * i + 2] @ Z[:, :2].T + w[:, [3 * i + 2]] for i in (0, 1))
    loc, _ = units.columns["mutrain_trip"]
    names = [f"b_mutrain_trip_{column}" for column in ("x", "gb", "gc")]
    further = np.column_stack([draws.flat(b[name]) for name in names])
    eta = units.eta_loc + first + draws.flat(draws.theta) @ (rows.X - units.x_loc).T
    last = units.locations["mutrain_trip"] + second + further @ (rows.X - loc).T
    return np.stack([np.zeros_like(eta), eta, last], axis=-1)


def test_categories_have_probabilities_whose_log_odds_are_linear():
    bundle, rows = category_bundle(network__hidden=[])
    draws = random_draws(bundle)
    odds = odds_by_hand(bundle, draws, rows)
    assert posterior_epred(SubspacePosterior(bundle, draws), rows) == pytest.approx(
        softmax(odds, axis=-1), rel=1e-9
    )
    for name, k in (("mucar", 1), ("mutrain_trip", 2)):
        for function in (posterior_linpred, posterior_epred):
            found = function(SubspacePosterior(bundle, draws), rows, dpar=name)
            assert found == pytest.approx(odds[..., k], rel=1e-9)


def test_ordered_categories_are_between_thresholds():
    bundle, rows = category_bundle("cumulative")
    draws = random_draws(bundle)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    gaps = [draws.flat(draws.dispersion[f"gap_{k}"])[:, None] for k in (2, 3)]
    below = [expit(tau - eta) for tau in (0, gaps[0], gaps[0] + gaps[1])]
    expected = np.diff([np.zeros_like(eta), *below, np.ones_like(eta)], axis=0)
    found = posterior_epred(SubspacePosterior(bundle, draws), rows)
    assert found == pytest.approx(np.moveaxis(expected, 0, -1), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("family", "names"), [("categorical", ["bus", "car", "train trip"]), ("cumulative", "1234")]
)
def test_probabilities_have_a_line_for_each_row_and_category(family, names, monkeypatch):
    bundle, rows = category_bundle(family)
    draws, K = random_draws(bundle, chains=2, iterations=20), len(names)
    p = posterior_epred(SubspacePosterior(bundle, draws), rows)
    monkeypatch.setattr(predictive, "CHUNK_PREDICTIONS", 7 * 40 * K)
    chunks = chunks_of(bundle, draws, rows)
    assert [len(chunk.rows) for chunk in chunks] == [7, 7, 7, 7, 2]
    table = pd.concat([summarise_prediction(chunk, 0.8) for chunk in chunks])
    assert list(table.columns) == ["row", "category", "Estimate", "Est.Error", "Q10", "Q90"]
    assert list(table["category"]) == list(names) * 30
    assert list(table["row"]) == [i for i in range(1, 31) for _ in names]
    assert table["Estimate"].to_numpy() == pytest.approx(p.mean(axis=0).ravel(), rel=1e-9)
    assert table["Q90"].to_numpy() == pytest.approx(np.quantile(p, 0.9, axis=0).ravel(), rel=1e-9)
    long = pd.concat([draws_of(chunk) for chunk in chunks])
    assert len(long) == 40 * 30 * K
    line = long[(long[".row"] == 9) & (long[".chain"] == 2) & (long[".iteration"] == 4)]
    assert list(line[".category"]) == list(names) and set(line[".draw"]) == {24}
    assert line[".epred"].to_numpy() == pytest.approx(p[23, 8], rel=1e-9)


def test_new_unordered_responses_have_names_and_shares():
    bundle, rows = category_bundle()
    draws = random_draws(bundle)
    y = posterior_predict(SubspacePosterior(bundle, draws), rows, np.random.default_rng(1))
    (chunk,) = chunks_of(bundle, draws, rows, kind="predict")
    names = np.array(["bus", "car", "train trip"])
    table = summarise_prediction(chunk, 0.95)
    assert list(table.columns) == ["row", "category", "Estimate"]
    expected = [(y[:, i] == k).mean() for i in range(30) for k in (1, 2, 3)]
    assert table["Estimate"].to_numpy() == pytest.approx(expected)
    long = draws_of(chunk)
    assert list(long.columns) == [".row", ".chain", ".iteration", ".draw", ".prediction"]
    assert list(long[".prediction"]) == list(names[y.T.ravel().astype(int) - 1])


def test_new_ordered_responses_are_numbers():
    bundle, rows = category_bundle("cumulative")
    (chunk,) = chunks_of(bundle, random_draws(bundle), rows, kind="predict")
    assert list(summarise_prediction(chunk, 0.95).columns)[:3] == ["row", "Estimate", "Est.Error"]
    assert set(draws_of(chunk)[".prediction"]) <= {1, 2, 3, 4}


def test_unknown_engines_and_missing_graphs_are_refused(tmp_path):
    bundle, _ = random_bundle("gaussian")
    with pytest.raises(InputError, match=r"unknown engine 'onx'. Did you mean 'onnx'"):
        engine_named("onx", bundle, tmp_path)
    with pytest.raises(InputError, match=r"does not exist; use --engine torch"):
        engine_named("onnx", bundle, tmp_path)


def test_the_table_has_brms_columns():
    bundle, rows = random_bundle("gaussian")
    (prediction,) = chunks_of(bundle, random_draws(bundle), rows)
    table = summarise_prediction(prediction, 0.8)
    assert list(table.columns) == ["row", "Estimate", "Est.Error", "Q10", "Q90"]
    assert table["Q10"].to_numpy() == pytest.approx(np.quantile(prediction.values, 0.1, axis=0))
    assert table["Est.Error"].to_numpy() == pytest.approx(prediction.values.std(axis=0, ddof=1))


def test_a_model_without_structured_terms_is_predicted():
    bundle, rows = family_bundle("gaussian", "nn(u, v)")
    draws = random_draws(bundle, chains=2, iterations=5)
    assert posterior_linpred(SubspacePosterior(bundle, draws), rows).shape == (10, 30)
    assert np.all(posterior_linpred(SubspacePosterior(bundle, draws), rows, part="structured") == 0)


def test_the_predictors_of_all_categories_are_judged():
    bundle, rows = category_bundle()
    draws = random_draws(bundle, chains=2, iterations=100)
    moved = draws.coefficients["b_mutrain_trip_x"] + 50 * np.array([[0], [1]])
    apart = replace(draws, coefficients=draws.coefficients | {"b_mutrain_trip_x": moved})
    assert eta_convergence(SubspacePosterior(bundle, draws), rows).rhat < 1.2
    assert eta_convergence(SubspacePosterior(bundle, apart), rows).rhat > 1.5


def test_a_log_density_needs_the_response():
    bundle, rows = random_bundle("poisson")
    with pytest.raises(InputError, match=r"needs the rows' response: .*response=True"):
        log_lik(SubspacePosterior(bundle, random_draws(bundle)), replace(rows, y=None))
