"""The Python face: a fit is a value with verbs, in a folder that lives as long as it."""

import gc
import json
import pickle

import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure

import semistan
from semistan.errors import InputError
from semistan.posterior.arviz import has_release_1
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik, posterior_epred
from semistan.workflow.terms import all_terms
from support import arviz_oracle
from support.command import command_in
from support.small import small_frame

pytestmark = pytest.mark.lengthy

FORMULA = "y ~ x + nn(u, v)"
QUICK = {"method": "elliptical-slice", "hidden": (3,), "k": 2, "epochs": 5, "chains": 2,
         "warmup": 50, "draws": 100, "seed": 3}  # fmt: skip


@pytest.fixture(scope="module")
def fit():
    return semistan.fit(FORMULA, small_frame(40), progress=False, **QUICK)


def test_at_most_thirty_names_are_public():
    assert len([name for name in semistan.__all__ if not name.startswith("_")]) <= 30


def test_settings_are_used(fit):
    assert fit.config.network.hidden == (3,)
    assert fit.config.subspace.k == 2
    assert (fit.config.sample.chains, fit.config.sample.draws) == (2, 100)
    assert fit.formula == FORMULA


def test_draws_at_rows_are_those_of_the_posterior(fit):
    rows, posterior = fit.run.rows(), read_posterior(fit.run)
    assert np.array_equal(fit.epred(), posterior_epred(posterior, rows))
    assert np.array_equal(fit.log_lik(), log_lik(posterior, rows))
    new = small_frame(40).iloc[:7]
    assert np.allclose(fit.epred(new), fit.epred()[:, :7], rtol=1e-12)
    assert np.allclose(fit.log_lik(new), fit.log_lik()[:, :7], rtol=1e-12)
    parts = fit.linpred(new, part="structured") + fit.linpred(new, part="nn")
    level = fit.linpred(new) - parts
    assert np.allclose(level, level[:, :1])
    assert fit.replicate(new).shape == (200, 7)
    assert np.array_equal(fit.replicate(new, seed=4), fit.replicate(new, seed=4))


def test_verbs_are_the_functions_of_their_names(fit):
    new = small_frame(40).iloc[:5]
    for one, other in (
        (fit.predict(new, interval=0.5), semistan.predict(fit, new, interval=0.5)),
        (fit.score(new), semistan.score(fit.path, new)),
        (fit.slopes("x"), semistan.slopes(str(fit.path), ["x"])),
        (fit.comparisons("x"), semistan.comparisons(fit.run, "x")),
        (fit.importance(new, variables="u"), semistan.importance(fit, new, variables=["u"])),
        (fit.draws(), semistan.draws(fit)),
        (fit.hypothesis("b_x > 0").table(), semistan.hypothesis(fit, "b_x > 0").table()),
        (fit.effect("u").table(), semistan.effect(fit, "u").table()),
        (fit.pp_check().table(), semistan.pp_check(fit).table()),
        (fit.sensitivity(), semistan.sensitivity(fit)),
        (fit.loo().table(), semistan.loo(fit).table()),
        (fit.bayes_r2().table(), semistan.bayes_r2(fit).table()),
    ):
        assert one.equals(other)
    assert fit.marginal("x").equals(fit.slopes("x"))


def test_rows_without_new_data_are_the_training_rows(fit):
    assert fit.predict().equals(fit.predict(small_frame(40)))


def test_the_summary_is_a_table_with_its_diagnostics(fit):
    assert list(fit.summary().table().index) == ["b_Intercept", "b_x", "sigma"]
    assert fit.passed == fit.summary().passed
    assert FORMULA in repr(fit) and "b_x" in repr(fit)
    assert "<table" in fit._repr_html_() and str(fit.path) in fit._repr_html_()
    assert "target += " in fit.stan_code or "model {" in fit.stan_code


def test_pictures_are_figures(fit, tmp_path):
    assert isinstance(fit.plot("coefficients"), Figure)
    assert isinstance(fit.plot_effect("u", tmp_path / "u.png"), Figure)
    assert (tmp_path / "u.png").is_file()
    assert fit.report(tmp_path / "page.html").is_file()


def test_inference_data_is_arvizs(fit):
    data = fit.to_inference_data()
    assert isinstance(
        data, xarray.DataTree if has_release_1() else arviz_oracle.arviz.InferenceData
    )
    assert {"posterior", "log_likelihood", "observed_data"} <= arviz_oracle.group_names(data)


def test_several_fits_are_compared_and_averaged(fit):
    other = fit.update(progress=False, seed=4, draws=50)
    assert other.config.sample.draws == 50 and other.path != fit.path
    assert len(semistan.compare([fit, other])) == 2
    assert set(semistan.compare({"a": fit, "b": other})["model"]) == {"a", "b"}
    assert len(semistan.predict_average([fit, other], small_frame(40)[:3], weights="equal")) == 3


def test_another_method_finds_its_own_metric():
    every = QUICK | {"hidden": (20,), "construction": "full", "k": 81, "method": "nuts-torch"}
    short = every | {"warmup": 20, "draws": 20}
    made = semistan.fit(FORMULA, small_frame(40), progress=False, **short)
    assert made.config.sample.metric == "diag_e"
    other = made.update(method="laplace", progress=False)
    assert (other.config.sample.method, other.config.sample.metric) == ("laplace", "ggn")
    assert other.config.sample.draws == made.config.sample.draws


def test_terms_of_each_kind_are_tables_of_their_own(monkeypatch, capsys, tmp_path):
    formula = "y ~ x + s(z, k=5) + (1 | g) + nn(u)"
    made = semistan.fit(formula, small_frame(40), out=tmp_path / "run", progress=False, **QUICK)
    assert set(made.terms()["group"]) == {"g"}
    assert made.terms("smooths")["smooth"].tolist() == ["s(z)"]
    level = made.draws()["b_Intercept"].mean()
    both = made.terms("ranef"), made.terms("coef")
    assert (both[1]["Estimate"] - both[0]["Estimate"]).to_numpy() == pytest.approx(level)
    command = command_in(tmp_path, monkeypatch, capsys)
    code, out, _ = command("terms", "run", "--json")
    assert code == 0
    found = [line["table"] for line in json.loads(out)["rows"]]
    assert list(dict.fromkeys(found)) == ["ranef", "coef", "smooths"]
    code, out, err = command("terms", "run", "--kind", "smooths")
    assert (code, "s(z)" in out, "edf:" in err) == (0, True, True)


def test_terms_that_there_are_not_are_refused(fit):
    with pytest.raises(InputError, match="no group-level terms"):
        fit.terms()
    with pytest.raises(InputError, match=r"unknown kind of terms 'raneff'\. Did you mean 'ranef'"):
        fit.terms("raneff")
    with pytest.raises(InputError, match="neither group-level terms"):
        all_terms(fit)


def test_a_folder_that_nobody_named_ends_with_the_fit():
    made = semistan.fit(FORMULA, small_frame(40), progress=False, **QUICK)
    path = made.path
    assert path.is_dir()
    del made
    gc.collect()
    assert not path.exists()


def test_a_failed_fit_leaves_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InputError):
        semistan.fit("y ~ missing + nn(u)", small_frame(40), progress=False, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_fit_is_saved_and_read_again(fit, tmp_path):
    kept = fit.save(tmp_path / "kept")
    assert kept.path == tmp_path / "kept"
    assert semistan.read_fit(tmp_path / "kept").draws().equals(fit.draws())
    with pytest.raises(InputError, match="kept"):
        fit.save(tmp_path / "kept")
    fit.save(tmp_path / "kept", overwrite=True)


def test_a_pickled_fit_answers_alike(fit):
    again = pickle.loads(pickle.dumps(fit))
    assert again.path != fit.path
    assert again.predict().equals(fit.predict())


def test_an_interrupted_run_is_completed(fit, tmp_path):
    fit.save(tmp_path / "kept")
    (tmp_path / "kept" / "chains" / "chain-2.csv").unlink()
    with pytest.raises(InputError, match="chain"):
        semistan.read_fit(tmp_path / "kept")
    whole = semistan.resume(tmp_path / "kept", progress=False)
    assert whole.draws().equals(fit.draws())
    with pytest.raises(InputError, match="continues chains of"):
        whole.resume(more=30, progress=False)


def test_a_finished_fit_goes_on(toolchain):
    del toolchain
    settings = QUICK | {"method": "nuts", "kernel": "stan"}
    made = semistan.fit(FORMULA, small_frame(40), progress=False, **settings)
    longer = made.resume(more=30, progress=False)
    assert (len(made.posterior.draws.phi[0]), len(longer.draws())) == (100, 2 * 130)


def test_progress_is_on_standard_error(capsys, tmp_path):
    semistan.fit(FORMULA, small_frame(40), out=tmp_path / "run", **QUICK)
    out, err = capsys.readouterr()
    assert out == "" and "trained" in err and "sampling" in err


def test_what_is_no_run_is_refused():
    with pytest.raises(InputError, match="a run, a fit or the path"):
        semistan.predict(3, small_frame(3))


def test_models_are_asked_before_they_are_fitted(tmp_path):
    frame = small_frame(30)
    table = semistan.priors(FORMULA, frame, priors={"b_x": "normal(0, 1)"})
    assert table.set_index("parameter").loc["b_x", "written"] == "normal(0, 1)"
    new = semistan.simulate(FORMULA, frame, times=2, seed=5, hidden=(2,))
    assert len(new) == 60
    found = semistan.sbc(
        FORMULA, frame, out=tmp_path / "sbc", replications=2, progress=False,
        **QUICK | {"draws": 40},
    )  # fmt: skip
    assert "b_x" in set(found.table()["quantity"])
