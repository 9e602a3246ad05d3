"""Runs that are fitted once more, and runs whose predictions are averaged.

They are sampled by PyTorch, so that nothing is compiled.
"""

import json

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.errors import InputError
from semistan.model.config import SampleConfig
from semistan.posterior.averaging import averaged, normalised
from semistan.posterior.posterior import read_posterior
from semistan.posterior.prediction import Prediction
from semistan.posterior.predictive import posterior_epred
from semistan.posterior.run import read_run
from semistan.terminal import screen
from semistan.workflow.average import weights_of
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows
from semistan.workflow.update import update
from support.command import command_in
from support.small import small_config, small_frame

pytestmark = pytest.mark.lengthy

FORMULA = "y ~ x + nn(u, v)"
SAMPLE = {"method": "elliptical-slice", "chains": 2, "warmup": 50, "draws": 100, "seed": 3}


def config(formula=FORMULA):
    sample = SampleConfig.model_validate(SAMPLE)
    return small_config(formula, train__epochs=10).model_copy(update={"sample": sample})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("after")
    table = small_frame(40)
    table.to_csv(folder / "d.csv", index=False)
    table.head(30).to_csv(folder / "fewer.csv", index=False)
    for name, formula in (("run", FORMULA), ("other", "y ~ x + z + nn(u, v)")):
        fit_model(config(formula), folder / "d.csv", out=folder / name)
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    return command_in(folder, monkeypatch, capsys)


def drawn(run):
    return read_posterior(run).interpreted


def test_an_update_without_a_change_has_the_same_draws(folder, tmp_path):
    again = update(folder / "run", out=tmp_path / "again")
    for name, values in drawn(folder / "run").items():
        assert np.array_equal(values, drawn(again.run)[name]), name


def test_another_formula_takes_its_columns_from_the_file(folder, command):
    code, _, err = command("update", "run", "--formula", "y ~ x + z + nn(u, v)", "--out", "more")
    assert code in (0, 3), err
    other = drawn(folder / "other")
    for name, values in drawn(folder / "more").items():
        assert np.array_equal(values, other[name]), name


def test_other_data_and_settings(folder, command):
    code, out, err = command(
        "update", "run", "--data", "fewer.csv", "--draws", "60", "--out", "fewer", "--json"
    )
    assert code in (0, 3), err
    assert json.loads(out)["formula"] == FORMULA
    run = read_run(folder / "fewer")
    assert run.bundle.source.rows == 30
    assert drawn(run)["b_x"].shape == (2, 60)
    assert run.options.seed == SAMPLE["seed"]


def test_a_run_is_not_replaced_by_its_update(folder):
    with pytest.raises(InputError, match="is the run to be updated"):
        update(folder / "run", out=folder / "run", overwrite=True)


def test_weights_are_shares():
    assert normalised([1, 3], 2) == (0.25, 0.75)
    for wrong in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.inf], [np.nan, 1.0]):
        with pytest.raises(InputError, match="2 runs have a weight each"):
            normalised(wrong, 2)


def test_draws_are_taken_in_proportion_to_the_weights():
    def prediction(value, size):
        return Prediction(np.full((size, 2), value), np.array([1, 2]), 4, "epred")

    found = averaged([prediction(0.0, 400), prediction(1.0, 400)], (0.25, 0.75))
    assert found.values.mean() == pytest.approx(0.75, abs=0.002)
    assert len(found.values) == 533  # all 400 of the second, and a third as many of the first
    assert found.chains == 1
    unequal = averaged([prediction(0.0, 100), prediction(1.0, 400)], (0.5, 0.5))
    assert unequal.values.mean() == pytest.approx(0.5)
    alone = averaged([prediction(0.0, 100), prediction(1.0, 400)], (0.0, 1.0))
    assert len(alone.values) == 400


def test_the_average_is_that_of_the_means(folder):
    table, runs = small_frame(40).head(5), [folder / "run", folder / "other"]
    means = [
        posterior_epred(
            read_posterior(run),
            new_rows(read_run(run).bundle, table),
        ).mean(axis=0)
        for run in runs
    ]
    found = semistan.predict_average(runs, table, weights="equal")
    assert found["Estimate"].to_numpy() == pytest.approx((means[0] + means[1]) / 2, rel=1e-9)
    one = semistan.predict_average(runs, table, weights=[1, 0])
    assert one["Estimate"].to_numpy() == pytest.approx(means[0], rel=1e-12)


def test_stacking_weights_are_those_of_compare(folder):
    runs = [folder / "run", folder / "other"]
    found = weights_of(runs)
    table = semistan.compare(runs, by="loo").set_index("model")
    assert found.weights == pytest.approx(tuple(table.loc[["run", "other"], "weight"]))
    assert "weights of the runs by stacking" in found.notes[0]


def test_the_command_averages_and_says_by_which_weights(command, folder):
    code, out, err = command("predict", "run", "other", "--newdata", "d.csv")
    assert code == 0, err
    assert "weights of the runs by stacking" in err
    assert out.startswith("row,Estimate,Est.Error,Q2.5,Q97.5")
    code, _, err = command(
        "predict", "run", "other", "--newdata", "d.csv", "--weights", "0.3,0.7", "--kind",
        "predict", "--out", "average.csv", "--draws", "average.parquet",
    )  # fmt: skip
    assert code == 0, err
    assert len(pd.read_csv(folder / "average.csv")) == 40
    assert len(pd.read_parquet(folder / "average.parquet")) == 40 * (200 + round(200 / 7 * 3))


def test_new_rows_are_read_as_the_training_table_is(command, folder):
    table = pd.read_csv(folder / "d.csv")
    table.to_csv(folder / "commas.csv", sep=";", decimal=",", index=False)
    code, plain, _ = command("predict", "run", "--newdata", "d.csv")
    assert code == 0
    code, found, err = command("predict", "run", "--newdata", "commas.csv", "--sep", ";")
    assert code == 0, err
    assert found == plain
    assert "with decimal commas" in err
    code, _, err = command("score", "run", "--newdata", "d.csv", "--sep", "tabs and blanks")
    assert code == 2
    assert "--sep takes one character" in err


def test_caveats_of_several_runs_are_each_said(folder, capsys, monkeypatch):
    run, other = (read_run(folder / name) for name in ("run", "other"))
    screen.say_caveats_of([run, other])
    assert capsys.readouterr().err.count("are within the subspace") == 1
    said = {run.path: "of this", other.path: ""}
    monkeypatch.setattr(screen, "_caveat", lambda each: said[each.path])
    screen.say_caveats_of([run, other])
    assert " ".join(capsys.readouterr().err.split()).endswith("run: of this")


def test_groups_of_checks_may_be_columns_outside_the_formula(folder):
    table = pd.read_csv(folder / "d.csv")
    found = semistan.pp_check(folder / "run", "mean", by="g").table()
    assert list(found["Observed"]) == pytest.approx(list(table.groupby("g")["y"].mean()))
    with pytest.raises(InputError, match="--by names column 'nowhere'"):
        semistan.pp_check(folder / "run", by="nowhere")


def test_checks_by_a_number_are_of_quarters_of_the_rows(folder):
    table = pd.read_csv(folder / "d.csv")
    found = semistan.pp_check(folder / "run", "mean", by="u").table()
    assert len(found) == 4
    assert found["rows"].sum() == len(table)
    assert np.ptp(found["rows"]) <= 1
    quarter = pd.qcut(table["u"], 4, precision=4)
    expected = table.groupby(quarter, observed=True)["y"].mean()
    assert list(found["Observed"]) == pytest.approx(list(expected))
    assert list(found["u"]) == [str(interval) for interval in expected.index]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--weights", "equal"), "--weights is for several runs"),
        (("run", "other", "--weights", "1,2,3"), "2 runs have a weight each"),
        (("run", "other", "--weights", "half"), "--weights is stacking, equal, or a number"),
        (("run", "other", "--prior"), "--part and --prior are of one run"),
    ],
)
def test_what_cannot_be_averaged_is_refused(command, arguments, message):
    code, _, err = command("predict", *arguments, "--newdata", "d.csv")
    assert code == 2
    assert message in err.replace("\n", " ")
