import json
import re
from dataclasses import replace

import numpy as np
import pytest

from semistan.density.features import at_features
from semistan.errors import InputError
from semistan.infer import stan_json
from semistan.infer.stan_json import write_stan_json
from semistan.model.names import MU
from semistan.model.networks.activations import ACTIVATIONS
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from support.programs import declared
from support.small import RESPONSES, family_bundle, small_bundle
from support.tables import read_back

SETTINGS = [
    {},
    {"predictors": "nn(u)"},
    {"predictors": "x + nn(u)"},
    {"network__frozen": 1, "network__hidden": [4, 3]},
    {"network__hidden": []},
    {"priors__b": "student_t(3, 0, 1)", "priors__phi": "cauchy(0, 1)"},
]


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_data_are_what_the_data_block_declares(name, settings):
    bundle, rows = family_bundle(name, **settings)
    data = stan_data(bundle, rows)
    declarations = declared(bundle_program(bundle))
    assert list(data) == list(declarations)
    for key, (integer, sizes) in declarations.items():
        expected = tuple(eval(size, {}, dict(data)) for size in sizes)
        assert np.shape(data[key]) == expected, key
        assert (np.asarray(data[key]).dtype.kind == "i") == integer, key


@pytest.mark.parametrize("sigma", ["constant(1)", "exponential(1)", "normal(0, 1)"])
def test_every_prior_on_sigma_has_its_arguments(sigma):
    bundle, rows = small_bundle(priors__sigma=sigma)
    assert list(stan_data(bundle, rows)) == list(declared(bundle_program(bundle)))


def test_the_data_are_in_the_users_units():
    bundle, rows = small_bundle()
    data = stan_data(bundle, rows)
    assert np.array_equal(data["X"], rows.X)
    assert np.array_equal(data["U"], rows.U)
    assert np.array_equal(data["y"], rows.y)
    assert np.allclose(data["theta_scale"], rows.y.std(ddof=1) / rows.X.std(axis=0, ddof=1))


def test_behind_constant_layers_the_inputs_are_the_features():
    bundle, rows = small_bundle(network__frozen=1, network__hidden=[4, 3])
    data, w = stan_data(bundle, rows), bundle.trained.w_frozen
    Z = (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    assert np.allclose(data["U"], np.tanh(Z @ w[:8].reshape(4, 2).T + w[8:]), rtol=1e-12)
    assert (data["Q"], data["n_layers"], data["widths"]) == (4, 2, [4, 3, 1])
    assert np.allclose(data["u_loc"], data["U"].mean(axis=0), rtol=1e-12)
    assert np.allclose(data["u_scale"], data["U"].std(axis=0, ddof=1), rtol=1e-12)
    heads, behind = at_features(bundle, rows)
    again = stan_data(heads, behind)
    assert again.keys() == data.keys()
    assert all(np.array_equal(again[key], value) for key, value in data.items())


@pytest.mark.parametrize("frozen", [0, 1])
def test_the_bounds_of_the_declarations_hold(frozen):
    bundle, rows = small_bundle(network__frozen=frozen)
    data = stan_data(bundle, rows)
    assert data["widths"][0] == data["Q"]
    assert data["widths"][-1] == 1
    assert (data["theta_scale"] > 0).all()
    assert (data["u_scale"] > 0).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_have_the_codes_of_the_stan_file(activation):
    bundle, rows = small_bundle(network__activation=activation, train__epochs=1)
    stan = {"tanh": "tanh(Z)", "relu": "fmax(Z, 0)", "softplus": "log1p_exp(Z)",
            "sigmoid": "inv_logit(Z)"}  # fmt: skip
    number = stan_data(bundle, rows)["activation"]
    found = re.search(rf"activation == {number}\) return (.*);", bundle_program(bundle))
    if activation == "identity":
        assert (number, found) == (5, None)
    else:
        assert found[1] == stan[activation]


@pytest.mark.parametrize("prior_only", [False, True])
def test_the_likelihood_can_be_left_out(prior_only):
    assert stan_data(*small_bundle(), prior_only=prior_only)["prior_only"] == int(prior_only)


def test_rows_without_a_response_cannot_be_sampled():
    bundle, rows = small_bundle()
    with pytest.raises(InputError, match="needs the response"):
        stan_data(bundle, replace(rows, y=None))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_json_keeps_every_bit(settings, tmp_path):
    bundle, rows = family_bundle("gaussian", **settings)
    data = stan_data(bundle, rows)
    write_stan_json(tmp_path / "data.json", data)
    read = json.loads((tmp_path / "data.json").read_text())
    assert read.keys() == data.keys()
    for key, value in data.items():
        assert np.array_equal(np.array(read[key]).reshape(np.shape(value)), value), key
    assert len(read["X"]) == len(rows)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_rows_are_read_back_as_they_were(settings, tmp_path):
    bundle, rows = family_bundle("poisson", **settings)
    read = read_back(bundle, rows, tmp_path)
    for name in ("y", "X", "U"):
        got, expected = getattr(read, name), getattr(rows, name)
        assert np.array_equal(got, expected)
        assert got.shape == expected.shape
    assert (read.known, read.predictors.keys()) == ({}, {MU})
    assert read.predictors[MU].blocks == ()


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_rows_are_written_in_pieces_without_a_seam(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(stan_json, "ROWS_AT_A_TIME", 2)
    content = {"a": np.arange(2.0 * rows).reshape(rows, 2), "b": 3, "c": np.zeros((rows, 0))}
    write_stan_json(tmp_path / "a.json", content)
    read = json.loads((tmp_path / "a.json").read_text())
    assert read == {name: np.asarray(value).tolist() for name, value in content.items()}
