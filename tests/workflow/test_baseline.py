"""Lines and smooths in the network's place: the formulas, and the comparison on the same folds."""

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.formula.simpler import linear_formula, smooth_formula
from semistan.posterior.scoring.folds import read_kfold
from semistan.workflow import baseline as module
from semistan.workflow import kfold as folding
from semistan.workflow.baseline import baseline, read_baselines
from semistan.workflow.fit import fit_model
from semistan.workflow.kfold import kfold
from semistan.workflow.outputs import report
from support.pages import Page

SETTINGS = {
    "network.hidden": [3], "subspace.construction": "full", "train.epochs": 60,
    "sample.method": "laplace", "sample.chains": 1, "sample.draws": 200,
}  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "linear"),
    [
        ("y ~ x + nn(u, v)", "y ~ x + nn(u, v)"),
        ("y ~ nn(log(u), `a, b`, hidden=[3, 4])", "y ~ nn(log(u), `a, b`)"),
        ("y ~ nn(u) + z + nn(v, k=3), sigma ~ nn(u, skip=True)",
         "y ~ nn(u) + z + nn(v), sigma ~ nn(u)"),
    ],
)  # fmt: skip
def test_lines_keep_the_inputs_and_leave_the_options_out(formula, linear):
    assert linear_formula(formula) == linear


@pytest.mark.parametrize(
    ("formula", "smooth"),
    [
        ("y ~ x + nn(u, few)", "y ~ x + s(u) + nn(few)"),
        ("y ~ x + nn(u, v)", "y ~ x + s(u) + s(v) + nn(u)"),
        ("y ~ u + nn(u, v)", "y ~ u + s(v) + nn(u)"),
        ("y ~ x + nn(u, few) + nn(u, v)", "y ~ x + s(u) + nn(few) + s(v) + nn(u)"),
        ("y ~ x + nn(u, v), sigma ~ u + nn(u, v), nu ~ nn(v, few)",
         "y ~ x + s(u) + s(v) + nn(u), sigma ~ u + s(v) + nn(u), nu ~ s(v) + nn(few)"),
    ],
)  # fmt: skip
def test_each_input_bends_once_in_each_predictor_and_the_others_are_lines(formula, smooth):
    assert smooth_formula(formula, lambda item: item != "few") == smooth


def test_images_and_modules_are_refused():
    with pytest.raises(InputError, match="a network of images has no linear version"):
        linear_formula("y ~ x + nn(image(path, size=8))")
    with pytest.raises(InputError, match="a module of your own has no linear version"):
        linear_formula("y ~ x + nn(u, module='f')")


def some_frame(n=90):
    """A line of x, and a bend of u: smooths fit it, lines do not."""
    generator = np.random.default_rng(1)
    u, x = generator.uniform(-2, 2, n), generator.normal(size=n)
    y = 0.5 * x + 2 * np.cos(2 * u) + generator.normal(0, 0.3, n)
    return pd.DataFrame({"y": y, "x": x, "u": u, "few": np.arange(n) % 3})


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    run = fit_model(
        "y ~ x + nn(u, few)", some_frame(), out=tmp_path_factory.mktemp("fit") / "run",
        overrides=SETTINGS,
    ).run  # fmt: skip
    kfold(run, folds=2, jobs=1)
    return run, baseline(run, jobs=1)


@pytest.mark.lengthy
def test_smooths_predict_what_bends_better_than_lines(compared):
    _, found = compared
    table = found.table().set_index("model")
    assert set(table.index) == {"network", "GLM", "GAM"}
    gain = table.loc["GAM", "elpd"] - table.loc["GLM", "elpd"]
    assert gain > 20
    assert table.loc["GAM", "RMSE"] < 0.6 < 1 < table.loc["GLM", "RMSE"]
    assert {"coverage", "seconds", "se_diff", "weight"} <= set(table.columns)
    assert (table["seconds"] > 0).all()


@pytest.mark.lengthy
def test_all_models_are_judged_on_the_folds_of_the_run(compared):
    run, found = compared
    expected = read_kfold(run)
    for each in found.folds.values():
        np.testing.assert_array_equal(each.fold, expected.fold)
        np.testing.assert_array_equal(each.rows.y, expected.rows.y)
    assert found.table().set_index("model").loc["network", "elpd"] == pytest.approx(
        expected.rows.lpd.sum()
    )


@pytest.mark.lengthy
def test_the_linear_baseline_is_least_squares(compared):
    """Its prior is weak: predictions of a fold are those of a regression on the other one."""
    run, found = compared
    frame, fold = run.table(), found.folds["GLM"].fold
    design = np.column_stack([np.ones(len(frame)), frame["x"], frame["u"], frame["few"]])
    expected = np.empty(len(frame))
    for k in (1, 2):
        beta, *_ = np.linalg.lstsq(design[fold != k], frame["y"][fold != k], rcond=None)
        expected[fold == k] = design[fold == k] @ beta
    found_mean = found.folds["GLM"].rows.mean
    assert np.abs(found_mean - expected).max() < 0.4
    assert np.corrcoef(found_mean, expected)[0, 1] > 0.98


@pytest.mark.lengthy
def test_folds_are_kept_and_the_report_has_the_table(compared, monkeypatch):
    run, found = compared
    monkeypatch.setattr(folding.FoldTask, "run", lambda *_: pytest.fail("nothing is missing"))
    pd.testing.assert_frame_equal(baseline(run, jobs=1).table(), found.table())
    pd.testing.assert_frame_equal(read_baselines(run).table(), found.table())
    page = Page(report(run).read_text("utf-8"))
    assert module.TITLE in page.texts("h3")
    assert any("GAM" in text for text in page.texts("th"))
