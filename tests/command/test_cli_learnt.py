"""The commands that say what was learnt, as a user runs them."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.model.config import SampleConfig
from semistan.posterior.generated import read_generated
from semistan.posterior.predictive import log_lik, posterior_linpred
from semistan.posterior.run import read_run
from semistan.workflow.fit import fit_model
from semistan.workflow.outputs import plot_effect
from semistan.workflow.sample import read_fitted
from semistan.workflow.watch import Watch
from support.command import command_in
from support.small import PAPERS, category_frame, files, small_config, small_frame

QUICK = {"chains": 2, "warmup": 300, "draws": 250, "kernel": "stan", "seed": 3}


@pytest.fixture(scope="module")
def folder(toolchain, tmp_path_factory):
    """A folder with d.csv and runs of two formulas on it, and one on other data."""
    folder = tmp_path_factory.mktemp("learnt")
    table = small_frame(40)
    table.to_csv(folder / "d.csv", index=False)
    for name, formula, data in (
        ("run", "y ~ x + C(g) + nn(u, v)", table),
        ("other", "y ~ x + nn(u, v)", table),
        ("elsewhere", "y ~ x + nn(u, v)", table.assign(y=table["y"] + 1)),
        ("shorter", "y ~ x + nn(u, v)", table[:-1]),
    ):
        config = small_config(formula, train__epochs=40).model_copy(
            update={"sample": SampleConfig.model_validate(QUICK)}
        )
        fit_model(config, data, out=folder / name)
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    """Run ``semistan`` in the folder; return its exit code, standard output and error."""
    return command_in(folder, monkeypatch, capsys)


def succeeds(command, *arguments):
    code, out, err = command(*arguments)
    assert code == 0, err
    return out, err


def test_predictions_of_the_onnx_graph_are_those_of_torch(command, folder):
    tables = []
    for engine in ("torch", "onnx"):
        succeeds(
            command, "predict", "run", "--newdata", "d.csv", "--engine", engine, "--out",
            f"{engine}.parquet", "--draws", f"{engine}-draws.parquet", "--kind", "predict",
        )  # fmt: skip
        tables.append(pd.read_parquet(folder / f"{engine}-draws.parquet"))
    assert list(tables[0].columns)[-1] == ".prediction"
    assert len(tables[0]) == 40 * 500
    assert tables[0][".prediction"].to_numpy() == pytest.approx(
        tables[1][".prediction"].to_numpy(), rel=1e-9
    )


def test_scores_are_those_of_python(command, folder):
    out, _ = succeeds(command, "score", "run", "--newdata", "d.csv", "--json")
    found = {line["score"]: line["Estimate"] for line in json.loads(out)["rows"]}
    table = semistan.score(folder / "run", pd.read_csv(folder / "d.csv"))
    assert found == pytest.approx(dict(zip(table["score"], table["Estimate"], strict=True)))
    fit = read_fitted(folder / "run")
    density = log_lik(fit.posterior, fit.run.rows())
    assert found["LPPD"] == pytest.approx(np.log(np.exp(density).mean(axis=0)).mean(), rel=1e-6)


def test_loo_says_that_it_is_conditional(command, folder):
    out, err = succeeds(command, "loo", "run", "--pointwise", "loo.csv")
    assert "elpd_loo" in out
    assert "largest" in out
    assert "Pareto k" in err
    assert "optimistic" in err
    points = pd.read_csv(folder / "loo.csv")
    assert points["elpd_loo"].sum() == pytest.approx(semistan.loo(folder / "run").elpd.sum())


def test_runs_on_the_same_data_are_compared(command):
    out, err = succeeds(command, "compare", "run", "other", "--json")
    lines = json.loads(out)["rows"]
    assert {line["model"] for line in lines} == {"run", "other"}
    assert sum(line["weight"] for line in lines) == pytest.approx(1)
    assert "optimistic" in err
    out, err = succeeds(command, "compare", "run", "other", "--newdata", "d.csv")
    assert "optimistic" not in err


def test_an_effect_is_printed_and_drawn(command, folder):
    out, _ = succeeds(
        command, "effect", "run", "u", "--resolution", "4", "--picture", "u.png", "--out", "u.csv"
    )  # fmt: skip
    assert out == ""
    _, err = succeeds(command, "effect", "run", "u", "--rows", "7")
    assert "averaged over 7 of 40 rows" in err
    out = (folder / "u.csv").read_text()
    assert out.splitlines()[0] == "u,Estimate,Est.Error,l-95% CI,u-95% CI"
    assert len(out.splitlines()) == 5
    assert (folder / "u.png").read_bytes().startswith(b"\x89PNG")
    out, _ = succeeds(
        command, "effect", "run", "g", "x", "--kind", "conditional", "--at", "u=3.1",
        "--resolution", "3",
    )  # fmt: skip
    assert len(out.splitlines()) == 1 + 3 * 3


def test_a_part_is_one_of_the_linear_predictor(command):
    out, _ = succeeds(command, "predict", "run", "--newdata", "d.csv", "--part", "structured")
    linpred, _ = succeeds(
        command, "predict", "run", "--newdata", "d.csv", "--part", "structured", "--kind", "linpred"
    )
    assert out == linpred


def test_monte_carlo_errors_are_printed_on_request(command):
    out, _ = succeeds(command, "summary", "run", "--mcse", "--json")
    lines = {line["variable"]: line for line in json.loads(out)["rows"]}
    assert 0 < lines["b_x"]["MCSE_Estimate"] < lines["b_x"]["MCSE_l-95% CI"]
    code, _, error = command("summary", "run", "--mcse", "--by", "subspace")
    assert code == 2
    assert "give one of them" in error


def test_long_names_are_not_cut(command, folder, toolchain):
    table = small_frame(40)
    name = "a_column_with_a_name_so_long_that_tables_are_wider_than_most_terminals"
    config = small_config(f"y ~ {name} + nn(u)").model_copy(
        update={"sample": SampleConfig.model_validate(QUICK)}
    )
    fit_model(config, table.assign(**{name: table["x"]}), out=folder / "long")
    code, out, _ = command("summary", "long")
    assert code in (0, 3)
    assert f"b_{name} " in out


def test_a_model_without_structured_terms_uses_the_kernel(folder, toolchain):
    said = []
    config = small_config("y ~ nn(u, v)", train__epochs=40).model_copy(
        update={"sample": SampleConfig.model_validate(QUICK | {"kernel": "auto"})}
    )
    fit = fit_model(config, small_frame(40), out=folder / "no-terms", watch=Watch(said.append))
    assert fit.run.kernel == "cpp", said
    assert list(fit.posterior.draws.coefficients) == ["b_Intercept"]
    (first,) = (line for line in said if line.startswith("a first answer, by Laplace's"))
    assert [line.split()[0] for line in first.splitlines()[2:]] == ["b_Intercept", "sigma"]
    assert said.index(first) < next(i for i, line in enumerate(said) if "sampling 2 chains" in line)


def test_marginal_effects_and_importance(command, folder):
    out, _ = succeeds(command, "slopes", "run", "x", "g", "--json")
    lines = json.loads(out)["rows"]
    assert [line["contrast"] for line in lines] == ["dY/dX", "b - a", "c - a"]
    table = pd.read_csv(folder / "run" / "summary.csv").set_index("variable")
    assert lines[0]["Estimate"] == pytest.approx(table.loc["b_x", "Estimate"], rel=1e-5)
    out, _ = succeeds(command, "importance", "run", "--repeats", "2", "--json")
    assert {line["term"] for line in json.loads(out)["rows"]} == {"x", "g", "u", "v"}


def test_imputed_tables_are_fitted_and_pooled(command, folder):
    generator, parts = np.random.default_rng(1), []
    for number in (1, 2):
        table = small_frame(40)
        table.loc[:9, "x"] = generator.normal(-20, 3, 10)
        parts.append(table.assign(**{".imp": number}))
    pd.concat(parts).to_csv(folder / "imputed.csv", index=False)
    asked = (
        "fit", "y ~ x + nn(u, v)", "--impute", "imputed.csv", "--out", "imputed", "--json",
        "--hidden", "3", "--k", "2", "--epochs", "40", "--kernel", "stan", "--seed", "3",
        "--chains", "2", "--warmup", "300", "--draws", "250", "--prior", f"phi={PAPERS}",
    )  # fmt: skip
    code, out, said = command(*asked)
    found = json.loads(out)
    assert (code, found["tables"]) == (0 if found["passed"] else 3, 2)
    assert "table 2 of 2, to imputed/2" in said
    assert "semistan predict imputed/1 imputed/2 --weights equal" in said
    _, again, _ = command("pool", "imputed/1", "imputed/2", "--json")
    assert json.loads(again)["rows"] == found["rows"]
    tables = [read_run(folder / "imputed" / name).rows().X[:, 0] for name in "12"]
    for part, column in zip(parts, tables, strict=True):
        assert column == pytest.approx(part["x"].to_numpy())
    code, _, said = command(*asked)
    assert code == 2
    assert "'imputed/1' exists; replace it with --overwrite" in said


def test_the_network_is_decomposed(command, folder):
    small_frame(200).to_csv(folder / "many.csv", index=False)
    asked = ("--newdata", "many.csv", "--below", "0.2", "--picture", "parts.svg", "--json")
    out, said = succeeds(command, "decompose", "run", *asked)
    found = json.loads(out)
    names = [line["component"] for line in found["rows"] if line["table"] == "components"]
    assert set(names) == {"u", "v", "u:v", "rest"}
    shares = [line["Estimate"] for line in found["rows"] if line["table"] == "components"]
    assert sum(shares) == pytest.approx(1)
    assert f"Probability that less than 0.2 is not additive: {found['additive']:.3g}." in said
    assert "<svg" in (folder / "parts.svg").read_text()


def test_effects_of_each_row_are_told_and_drawn(command, folder):
    asked = ("comparisons", "run", "x", "--each")
    out, _ = succeeds(command, *asked, "--json")
    rows = json.loads(out)["rows"]
    assert [line["row"] for line in rows] == list(range(1, 41))
    b = pd.read_csv(folder / "run" / "summary.csv").set_index("variable").loc["b_x", "Estimate"]
    assert [line["Estimate"] for line in rows] == pytest.approx([b] * 40)
    _, said = succeeds(command, *asked, "--picture", "each.svg", "--against", "g")
    assert "each.svg" in said
    assert "<svg" in (folder / "each.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--each", "--by", "g"), "--each compares rows by themselves"),
        (("--picture", "p.svg"), "--picture is of each row: add --each"),
        (("--each", "--against", "g"), "--against is for the picture"),
        (("--each", "--picture", "p.svg", "--against", "z"), "does not use a column 'z'"),
    ],
)
def test_what_cannot_be_asked_of_each_row_is_refused(command, folder, options, message):
    code, _, said = command("comparisons", "run", "x", *options)
    assert code == 2
    assert message in said
    assert not (folder / "p.svg").exists()


@pytest.mark.parametrize("kind", ["coefficients", "densities", "trace", "calibration"])
def test_pictures_are_written(command, folder, kind):
    succeeds(command, "plot", "run", "--kind", kind, "--out", f"{kind}.svg")
    assert "<svg" in (folder / f"{kind}.svg").read_text()


def test_several_runs_are_overlaid(command, folder):
    succeeds(command, "plot", "run", "other", "--kind", "densities", "--out", "both.png")
    assert (folder / "both.png").is_file()


def test_the_report_is_written_into_the_run(command, folder):
    _, err = succeeds(command, "report", "run")
    assert "report.html" in err
    assert "<html" in (folder / "run" / "report.html").read_text("utf-8")
    code, _, err = command("report", "run")
    assert code == 2
    assert "--overwrite" in err


def test_draws_are_written_as_one_table(command, folder):
    succeeds(command, "export", "run", "--to", "draws", "--out", "draws.parquet")
    table = pd.read_parquet(folder / "draws.parquet")
    assert list(table.columns[:4]) == [".chain", ".iteration", ".draw", "b_Intercept"]
    assert len(table) == 500


def test_generated_quantities_are_ours(command, folder):
    _, err = succeeds(command, "export", "other", "--to", "generated")
    assert "chain-2.csv" in err
    fit = read_fitted(folder / "other")
    expected = log_lik(fit.posterior, fit.run.rows())
    assert read_generated(fit.run).log_lik == pytest.approx(expected, rel=1e-9)


def test_the_r_script_is_written_into_the_run(command, folder):
    succeeds(command, "export", "run", "--to", "r")
    assert "coefficient_table" in (folder / "run" / "read.R").read_text()
    code, _, err = command("export", "run", "--to", "r")
    assert code == 2
    assert "--overwrite" in err


def test_a_subspace_is_measured(command, folder):
    out, _ = succeeds(command, "subspace", "run", "--json")
    found = {line["measure"]: line["value"] for line in json.loads(out)["rows"]}
    assert (found["weights d"], found["dimension k"]) == (13, 2)
    assert 0 < found["relative error"] < 1
    assert 0 < found["trace in the subspace"] < found["trace in all weights"]


def test_a_posterior_is_compared_with_another(command, folder):
    out, _ = succeeds(command, "subspace", "run", "--against", "run", "--json")
    found = {line["variable"]: line for line in json.loads(out)["rows"]}
    names = ["b_Intercept", "b_x", "b_gb", "b_gc", "sigma"]
    assert list(found) == [*names, "eta at the rows (median)"]
    assert {line["difference of means"] for line in found.values()} == {0}
    assert {line["ratio of sds"] for line in found.values()} == {1}
    code, _, err = command("subspace", "run", "--against", "run", "--picture", "new.png")
    assert code == 2
    assert "leave --picture and --data out" in err


@pytest.mark.parametrize(
    ("construction", "k"),
    [("curve", 2), ("pca", 3), ("random", 3), ("subnetwork", 3), ("low_rank_laplace", 3),
     ("full", 13), ("naive", 2)],
)  # fmt: skip
def test_every_construction_is_sampled(folder, toolchain, construction, k):
    config = small_config("y ~ x + nn(u, v)", train__epochs=40)
    overrides = {"subspace.construction": construction, "subspace.k": min(k, 3)}
    overrides |= {f"sample.{key}": value for key, value in QUICK.items()}
    overrides["sample.kernel"] = "cpp"
    fit = fit_model(config, small_frame(40), out=folder / construction, overrides=overrides)
    assert fit.run.kernel == "cpp"
    assert fit.run.bundle.subspace.k == k
    assert fit.posterior.draws.phi.shape == (2, 250, k)
    assert semistan.loo(fit.run).elpd.shape == (40,)
    assert semistan.plot(fit.run, "loss").axes


def test_pictures_have_options(command, folder):
    succeeds(
        command, "plot", "run", "--kind", "subspace", "--directions", "2,1", "--density",
        "likelihood", "--out", "likelihood.png",
    )  # fmt: skip
    succeeds(command, "plot", "run", "--standardise", "--out", "standardised.png")
    succeeds(
        command, "plot", "run", "--kind", "calibration", "--newdata", "d.csv", "--out", "new.png"
    )
    assert {"likelihood.png", "standardised.png", "new.png"} <= {p.name for p in folder.iterdir()}


REFUSED = {
    "directions": (
        ["plot", "run", "--kind", "subspace", "--directions", "a,b"],
        "two numbers as 1,2",
    ),
    "draws' suffix": (
        ["export", "run", "--to", "draws", "--out", "draws.rds"],
        "ends in .csv, .parquet or .json",
    ),
    "no response": (["score", "run", "--newdata", "no-y.csv"], "rows have no column 'y'"),
    "no column": (["predict", "run", "--newdata", "no-x.csv"], "names column 'x'"),
    "unseen level": (["predict", "run", "--newdata", "level.csv"], "not trained on: 'z'"),
    "no rows": (["score", "run", "--newdata", "empty.csv"], "has a header but no rows"),
    "nor Parquet": (["predict", "run", "--newdata", "d.parquet"], "no readable Parquet"),
    "suffix": (
        ["predict", "run", "--newdata", "d.csv", "--out", "a.xlsx"],
        "ends in .csv, .parquet or .json",
    ),
    "other data": (["compare", "run", "elsewhere"], "different responses: row 1 is"),
    "other rows": (["compare", "run", "shorter"], "has 40 rows and 'shorter' has 39"),
    "one run": (["compare", "run"], "at least two models"),
    "twice": (["compare", "run", "run"], "named twice"),
    "by": (["compare", "run", "other", "--by", "waic"], "--by is auto, loo or kfold, got 'waic'"),
    "no kfold": (["compare", "run", "other", "--by", "kfold"], "has no cross-validation"),
    "folds": (["kfold", "run", "-K", "1"], "-K must be between 2 and"),
    "effect": (["effect", "run", "uu"], "does not use a column 'uu'"),
    "three": (["effect", "run", "u", "v", "x"], "one or two different columns, got 3"),
    "at": (["effect", "run", "u", "--at", "g"], "as g=b, got 'g'"),
    "at with pd": (["effect", "run", "u", "--at", "g=b"], "--kind conditional"),
    "kind of effect": (["effect", "run", "u", "--kind", "ice"], "unknown kind of effect 'ice'"),
    "scale": (["slopes", "run", "--scale", "log"], "unknown scale 'log'"),
    "picture": (["plot", "run", "--kind", "forest"], "unknown picture 'forest'"),
    "picture's suffix": (["plot", "run", "--out", "a.jpg"], ".png or .svg"),
    "option": (["plot", "run", "--by", "g"], "has no option 'by'"),
    "report's suffix": (["report", "run", "--out", "a.pdf"], "ends in .html"),
    "incomplete": (["predict", "incomplete", "--newdata", "d.csv"], "lacks chains [2]"),
    "changed": (["score", "changed", "--newdata", "d.csv"], "does not match its hash"),
    "no table": (["importance", "no-table"], "it has no training.parquet"),
    "newer": (["loo", "newer"], "has run format 99"),
    "no run": (["report", "d.csv"], "is not a run"),
}


@pytest.fixture(scope="module")
def spoilt(folder):
    table = pd.read_csv(folder / "d.csv")
    table.drop(columns="y").to_csv(folder / "no-y.csv", index=False)
    table.drop(columns="x").to_csv(folder / "no-x.csv", index=False)
    table.assign(g="z").to_csv(folder / "level.csv", index=False)
    table[:0].to_csv(folder / "empty.csv", index=False)
    (folder / "d.parquet").write_text("no parquet")
    for name in ("incomplete", "changed", "no-table", "newer"):
        shutil.copytree(folder / "other", folder / name)
    (folder / "incomplete" / "chains" / "chain-2.csv").unlink()
    with (folder / "changed" / "training.parquet").open("ab") as file:
        file.write(b"x")
    (folder / "no-table" / "training.parquet").unlink()
    manifest = json.loads((folder / "newer" / "manifest.json").read_text())
    (folder / "newer" / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_exits_with_2_and_writes_nothing(
    command, folder, spoilt, arguments, message
):  # fmt: skip
    before = files(folder)
    code, out, err = command(*arguments)
    assert code == 2, err
    assert message in re.sub(r"\s+", " ", err)
    assert out == ""
    assert files(folder) == before


def test_a_run_opens_where_it_was_moved(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "moved")
    table = pd.read_csv(folder / "d.csv")
    assert semistan.score(tmp_path / "moved", table).equals(semistan.score(folder / "run", table))
    assert list(read_run(tmp_path / "moved").table().columns) == ["y", "x", "g", "u", "v"]


@pytest.fixture(scope="module")
def modes(folder):
    """A run with unordered categories, in the same folder."""
    category_frame().to_csv(folder / "modes.csv", index=False)
    config = small_config("mode ~ x + nn(u, v)", family="categorical", train__epochs=40)
    config = config.model_copy(update={"sample": SampleConfig.model_validate(QUICK)})
    return fit_model(config, category_frame(), out=folder / "modes")


def test_categories_on_the_command_line(command, folder, modes):
    names = ["bus", "car", "train trip"]
    rows = ("modes", "--newdata", "modes.csv")
    succeeds(command, "predict", *rows, "--out", "modes-p.csv", "--draws", "modes.parquet")
    table = pd.read_csv(folder / "modes-p.csv")
    assert list(table["category"]) == names * 30
    assert table.groupby("row")["Estimate"].sum().to_numpy() == pytest.approx(1)
    assert list(pd.read_parquet(folder / "modes.parquet")[".category"][:3]) == names
    succeeds(command, "predict", *rows, "--dpar", "mutrain_trip", "--out", "modes-e.csv")
    expected = posterior_linpred(modes.posterior, modes.run.rows(), dpar="mutrain_trip")
    found = pd.read_csv(folder / "modes-e.csv")["Estimate"]
    assert found.to_numpy() == pytest.approx(expected.mean(axis=0), rel=1e-6)
    scored = json.loads(succeeds(command, "score", *rows, "--json")[0])["rows"]
    assert [line["score"] for line in scored] == ["LPPD", "accuracy", "Brier"]
    found = semistan.effect(modes.run, ["u", "v"], resolution=3)
    for category, name in ((None, "car"), ("bus", "bus")):
        figure = plot_effect(modes.run, found, category=category)
        assert f"P(mode = {name}) on u and v" in figure.texts[0].get_text()
    files = ("--picture", "modes-u.png", "--out", "modes-u.csv")
    succeeds(command, "effect", "modes", "u", "--category", "bus", *files)
    assert set(pd.read_csv(folder / "modes-u.csv")["category"]) == {"bus"}
    succeeds(
        command, "plot", "modes", "--kind", "band", "--category", "bus", "--out", "modes-b.png"
    )
    code, _, error = command("effect", "modes", "u", "--category", "buss")
    assert code == 2 and "Did you mean 'bus'" in error
