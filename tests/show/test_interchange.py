"""Files that other programs read: posterior.nc in both generations of ArviZ, draws as a table."""

import csv
import dataclasses

import numpy as np
import pandas as pd
import pytest
import xarray

from semistan.errors import InputError
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.posterior.run import Run
from semistan.show.export import draws_table
from semistan.show.inference_data import inference_data, write_inference_data
from semistan.show.tables import write_table
from semistan.workflow.fit import fit_model
from support import arviz_oracle
from support.arviz_oracle import group_names
from support.drawn import random_draws
from support.manifests import manifest
from support.small import category_bundle, category_frame, small_config
from support.untrained import FORMULA, random_bundle

GROUPS = {
    "posterior", "sample_stats", "observed_data", "posterior_predictive", "log_likelihood",
    "log_prior",
}  # fmt: skip
PRIOR_GROUPS = {"prior", "sample_stats_prior", "observed_data", "prior_predictive"}
SAMPLER = ["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__",
           "energy__"]  # fmt: skip


@pytest.fixture
def drawn():
    bundle, rows = random_bundle("gaussian")
    return bundle, rows, random_draws(bundle, chains=3, iterations=20)


def written(drawn, path, *, prior_only=False, temperature=1.0):
    bundle, rows, draws = drawn
    sample = {"seed": 5, "temperature": temperature}
    run = Run(path.parent, bundle, manifest(sample, prior_only=prior_only))
    write_inference_data(inference_data(run, SubspacePosterior(bundle, draws), rows), path)
    return path


def by_xarray(path):
    return xarray.open_datatree(path)


def by_arviz_base(path):
    return pytest.importorskip("arviz_base").convert_to_datatree(str(path))


def by_arviz(path):
    return arviz_oracle.read(path)


readers = pytest.mark.parametrize("read", [by_xarray, by_arviz_base, by_arviz])


@readers
def test_posterior_nc_has_its_groups_dims_and_values(drawn, tmp_path, read):
    _, rows, draws = drawn
    data = read(written(drawn, tmp_path / "posterior.nc"))
    assert group_names(data) == GROUPS
    posterior = data["posterior"]
    for name, values in {**draws.interpreted, "lprior": draws.lprior}.items():
        assert posterior[name].dims == ("chain", "draw")
        assert np.array_equal(posterior[name].values, values)
    assert posterior["theta"].dims == ("chain", "draw", "coef")
    assert np.array_equal(posterior["theta"].sel(coef="b_x2").values, draws.theta[..., 1])
    assert np.array_equal(posterior["phi"].sel(subspace_dim=3).values, draws.phi[..., 2])
    assert data["sample_stats"]["diverging"].dtype == bool
    assert data["sample_stats"]["tree_depth"].dtype == np.int64
    assert np.array_equal(data["observed_data"]["y"].values, rows.y)
    assert data["log_likelihood"]["y"].sizes == {"chain": 3, "draw": 20, "__obs__": 30}
    attrs = data.attrs
    assert (attrs["formula"], attrs["family"], attrs["seed"]) == (FORMULA, "gaussian", 5)
    data.close()


def test_categories_are_numbers_with_names_beside_them(tmp_path):
    bundle, rows = category_bundle()
    drawn = bundle, rows, random_draws(bundle, chains=2, iterations=20)
    data = by_arviz(written(drawn, tmp_path / "posterior.nc"))
    names = data.attrs["categories"]
    assert list(names) == ["bus", "car", "train trip"]
    assert [names[int(k) - 1] for k in data.observed_data["mode"]] == list(category_frame()["mode"])
    assert set(data.posterior_predictive["mode"].values.ravel()) == {1, 2, 3}
    assert data.log_likelihood["mode"].shape == (2, 20, 30)


@readers
def test_draws_from_the_prior_are_in_the_groups_of_the_prior(drawn, tmp_path, read):
    data = read(written(drawn, tmp_path / "posterior.nc", prior_only=True))
    assert group_names(data) == PRIOR_GROUPS
    assert np.array_equal(data["prior"]["b_x1"].values, drawn[2].theta[..., 0])
    data.close()


def test_arviz_finds_no_log_likelihood_of_a_tempered_run(drawn, tmp_path):
    data = by_arviz(written(drawn, tmp_path / "posterior.nc", temperature=4.0))
    assert group_names(data) == GROUPS - {"log_likelihood"}
    assert "log_likelihood is left out" in data.attrs["note"]
    with pytest.raises(TypeError, match="log likelihood not found"):
        arviz_oracle.loo(data)


def test_the_table_has_a_line_for_each_draw_and_posteriors_names(drawn):
    bundle, _, draws = drawn
    table = draws_table(SubspacePosterior(bundle, draws))
    assert list(table.columns) == [
        ".chain", ".iteration", ".draw", "b_Intercept", "b_x1", "b_x2", "sigma",
        "phi[1]", "phi[2]", "phi[3]", "lprior", *SAMPLER,
    ]  # fmt: skip
    assert len(table) == 60
    for line in table.to_dict("records"):
        chain, iteration = line[".chain"] - 1, line[".iteration"] - 1
        assert line[".draw"] == 20 * chain + iteration + 1
        assert line["b_x2"] == draws.theta[chain, iteration, 1]
        assert line["phi[2]"] == draws.phi[chain, iteration, 1]
        assert line["energy__"] == draws.sampler["energy"][chain, iteration]
    assert table[[".chain", ".iteration", ".draw", "treedepth__"]].dtypes.eq(np.int64).all()


def test_a_parquet_of_the_draws_reads_back_the_same(drawn, tmp_path):
    write_table(draws_table(SubspacePosterior(drawn[0], drawn[2])), tmp_path / "draws.parquet")
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "draws.parquet"),
        draws_table(SubspacePosterior(drawn[0], drawn[2])),
    )


def test_a_csv_of_ten_digit_draws_reads_back_the_same(drawn, tmp_path):
    ten_digits = np.vectorize(lambda value: float(f"{value:.10g}"))
    phi = ten_digits(1e-7 * drawn[2].phi)
    table = draws_table(SubspacePosterior(drawn[0], dataclasses.replace(drawn[2], phi=phi)))
    write_table(table, tmp_path / "draws.csv")
    with (tmp_path / "draws.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    again = pd.DataFrame(lines, columns=header).map(float)
    assert header == list(table.columns)
    assert np.array_equal(again[["phi[1]", "phi[2]", "phi[3]"]], phi.reshape(-1, 3))
    assert np.asarray(again) == pytest.approx(np.asarray(table), rel=1e-9)


def test_another_format_is_refused_before_anything_is_written(drawn, tmp_path):
    with pytest.raises(InputError, match=r"ends in \.csv, \.parquet or \.json, got .*draws\.rds'"):
        write_table(draws_table(SubspacePosterior(drawn[0], drawn[2])), tmp_path / "draws.rds")
    assert not list(tmp_path.iterdir())


@pytest.mark.lengthy
@pytest.mark.parametrize(("scale", "sensitive"), [(0.05, True), (50, False)])
def test_arviz_finds_how_sensitive_a_run_is_to_its_prior_and_its_data(tmp_path, scale, sensitive):
    generator = np.random.default_rng(3)
    frame = pd.DataFrame(generator.normal(size=(60, 2)), columns=["x", "u"])
    frame["y"] = frame.x + generator.normal(size=60)
    config = small_config(
        "y ~ x + nn(u)", priors={"b": f"normal(0, {scale})", "phi": "normal(0, 1)"},
        sample={"method": "elliptical-slice", "chains": 2, "draws": 400},
    )  # fmt: skip
    fit = fit_model(config, frame, out=tmp_path / "run")
    data = by_arviz(fit.run.path / "posterior.nc")
    lprior = fit.posterior.draws.lprior
    assert np.array_equal(data["log_prior"]["lprior"].values, lprior)
    by_prior, by_data = (
        float(arviz_oracle.sensitivity(data, component)["b_x"])
        for component in ("prior", "likelihood")
    )
    assert (by_prior > 0.05) == sensitive  # ArviZ's limit of an informative prior
    assert by_data > 0.05


def test_draws_of_several_subspaces_have_no_prior_weights(drawn, tmp_path):
    bundle, rows, draws = drawn
    run = Run(tmp_path, bundle, manifest())
    both = Mixture(
        (
            SubspacePosterior(bundle, draws),
            SubspacePosterior(bundle, random_draws(bundle, chains=3, iterations=20)),
        )
    )
    assert "log_prior" not in group_names(inference_data(run, both, rows))
