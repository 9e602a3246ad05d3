"""K-fold cross-validation against a hand-made split, its folds, and its continuation."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.errors import InputError, SemistanError, sentence
from semistan.infer.backends.local import LOCAL
from semistan.posterior.run import read_run
from semistan.posterior.scoring.folds import assign_folds, read_folds, read_kfold
from semistan.posterior.scoring.scores import pointwise
from semistan.workflow import kfold as module
from semistan.workflow.fit import fit_model
from semistan.workflow.kfold import kfold
from semistan.workflow.prepare import new_rows
from support.sealed import rewrite
from support.small import small_config, small_frame

QUICK = {"chains": 2, "warmup": 200, "draws": 200, "kernel": "stan", "seed": 3}


@pytest.fixture(scope="module")
def original(toolchain, tmp_path_factory):
    config = small_config("y ~ x + nn(u, v)", train__epochs=40).model_dump()
    config["sample"] = QUICK
    out = tmp_path_factory.mktemp("kfold") / "run"
    return fit_model(module.ModelConfig.model_validate(config), small_frame(24), out=out).run


@pytest.fixture(scope="module")
def validated(original):
    said = []
    return kfold(original, folds=3, seed=5, say=said.append), said


@pytest.fixture
def copy(original, validated, tmp_path):
    shutil.copytree(original.path, tmp_path / "run")
    return tmp_path / "run"


def test_a_fold_is_a_fit_by_hand_on_the_other_rows(original, validated, tmp_path):
    found, _ = validated
    inside = found.fold == 2
    table = original.table()
    by_hand = fit_model(original.bundle.config, table[~inside], out=tmp_path / "by-hand")
    rows = new_rows(by_hand.run.bundle, table[inside], response=True)
    expected = pointwise(by_hand.posterior, rows, generator=np.random.default_rng((5, 2)))
    for name in ("y", "lpd", "mean", "crps", "lower", "upper", "pit"):
        values = getattr(found.rows, name)[inside]
        assert values == pytest.approx(getattr(expected, name), rel=1e-8), name


def test_every_row_is_judged_once_in_its_place(original, validated):
    found, said = validated
    assert found.rows.y == pytest.approx(original.rows().y)
    assert np.isfinite(found.rows.lpd).all()
    assert len(said) == 3
    total = found.table().set_index("measure").loc["elpd_kfold", "Estimate"]
    assert total == pytest.approx(found.rows.lpd.sum())


def test_each_fold_keeps_its_coefficients_and_no_run(original, validated):
    for fold in (1, 2, 3):
        folder = original.path / "kfold" / f"fold-{fold}"
        assert {path.name for path in folder.iterdir()} == {
            "pointwise.parquet", "summary.csv", "checks.json", "seconds.json",
        }  # fmt: skip
        assert "b_x" in list(pd.read_csv(folder / "summary.csv")["variable"])


def test_finished_folds_are_not_fitted_again(copy, monkeypatch):
    shutil.rmtree(copy / "kfold" / "fold-2")
    with pytest.raises(InputError, match=r"lacks folds \[2\]: continue with"):
        read_kfold(copy)
    wanted = []
    monkeypatch.setattr(
        module, "complete_folds", lambda *given: wanted.extend(task.number for task in given[1])
    )
    monkeypatch.setattr(module, "read_kfold", lambda _: None)
    kfold(copy, folds=3, seed=5)
    assert wanted == [2]


def test_other_options_need_overwrite(copy):
    with pytest.raises(InputError, match=r"other options \(seed was 5\).*--overwrite"):
        kfold(copy, folds=3, seed=6)
    assert (copy / "kfold" / "fold-1").is_dir()


def test_a_failing_fold_is_named_and_the_others_stay(copy):
    shutil.rmtree(copy / "kfold" / "fold-3")
    options = json.loads((copy / "kfold" / "manifest.json").read_text())
    (task,) = module.fold_tasks(read_run(copy), [3], options)
    worse = replace(task, table=task.table.drop(columns="u"))
    for tasks in ([worse], [worse, worse]):
        with pytest.raises(SemistanError, match=r"(?s)fold 3 failed: .*'u'.* Run it again"):
            module.complete_folds(copy / "kfold", tasks, LOCAL, 2, print)
    assert (copy / "kfold" / "fold-1").is_dir()


def test_a_run_without_cross_validation_says_how_to_get_it(copy):
    shutil.rmtree(copy / "kfold")
    with pytest.raises(InputError, match="run 'semistan kfold"):
        read_kfold(copy)


def test_a_level_that_only_one_fold_has_is_found_before_training(copy, monkeypatch):
    table = small_frame(24).assign(g=["rare"] + ["a", "b"] * 11 + ["a"])
    out = copy.parent / "levels"
    monkeypatch.setattr(module, "complete_folds", None)
    config = small_config("y ~ g + nn(u, v)").model_dump() | {"sample": QUICK}
    run = fit_model(module.ModelConfig.model_validate(config), table, out=out).run
    with pytest.raises(InputError, match=r"fold \d cannot be left out: column 'g' has levels"):
        kfold(run, folds=3)
    assert not (out / "kfold").exists()


def test_comparison_by_kfold_needs_the_same_folds(copy, original, validated):
    with pytest.raises(InputError, match="a run is named twice"):
        semistan.compare([original.path, original.path])
    table = semistan.compare([original.path, copy], by="kfold")
    assert table["elpd"].to_numpy() == pytest.approx(validated[0].rows.lpd.sum())
    folds = pd.read_csv(copy / "kfold" / "folds.csv")
    folds["fold"] = folds["fold"].to_numpy()[::-1]
    folds.to_csv(copy / "kfold" / "folds.csv", index=False)
    rewrite(copy / "kfold")
    with pytest.raises(InputError, match="cross-validated on different folds"):
        semistan.compare([original.path, copy], by="kfold")


def test_folds_are_of_equal_size_and_depend_on_the_seed():
    first, again, other = (
        assign_folds(23, 5, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )  # fmt: skip
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert sorted(np.bincount(first)[1:]) == [4, 4, 5, 5, 5]


def test_groups_stay_together():
    groups = np.array(list("aaaabbbcccdde"))
    folds = assign_folds(13, 3, np.random.default_rng(0), groups)
    assert all(len(set(folds[groups == group])) == 1 for group in "abcde")
    assert set(folds) == {1, 2, 3}
    assert np.bincount(folds)[1:].max() <= 6


@pytest.mark.parametrize("folds", [1, 0, 25])
def test_impossible_numbers_of_folds_are_refused(folds):
    with pytest.raises(InputError, match=r"between 2 and the number of rows \(24\)"):
        assign_folds(24, folds, np.random.default_rng(0))


def test_an_unknown_group_is_refused(copy):
    table = small_frame(24).assign(clinic=np.arange(24) // 4)
    table.to_csv(copy.parent / "d.csv", index=False)
    with pytest.raises(InputError, match="names column 'w', which the data do not have"):
        kfold(copy, folds=3, group="w", data=copy.parent / "d.csv", overwrite=True)
    with pytest.raises(InputError, match="fitted to a table in memory"):
        kfold(copy, folds=3, group="w", overwrite=True)
    table[::-1].to_csv(copy.parent / "d.csv", index=False)
    with pytest.raises(InputError, match="does not hold the 24 rows"):
        kfold(copy, folds=3, group="clinic", data=copy.parent / "d.csv", overwrite=True)
    assert json.loads((copy / "kfold" / "manifest.json").read_text())["seed"] == 5


def test_groups_may_be_a_column_outside_the_formula(copy, monkeypatch):
    table = small_frame(24).assign(clinic=np.arange(24) // 4)
    table.to_csv(copy.parent / "d.csv", index=False)
    monkeypatch.setattr(module, "complete_folds", lambda *_: None)
    monkeypatch.setattr(module, "read_kfold", lambda _: None)
    kfold(copy, folds=3, group="clinic", data=copy.parent / "d.csv", overwrite=True)
    folds = read_folds(copy / "kfold")
    assert all(len(set(folds[table["clinic"] == c])) == 1 for c in range(6))
    assert list(np.bincount(folds)) == [0, 8, 8, 8]


def test_the_folds_of_the_file_are_those_of_the_values(original, validated):
    assert np.array_equal(read_folds(original.path / "kfold"), validated[0].fold)


@pytest.mark.parametrize("text", ["y is constant", "y is constant.", "is it?"])
def test_what_follows_an_error_is_a_sentence_of_its_own(text):
    found = sentence(InputError(text))
    assert found.startswith(text) and found[-1] in ".?" and not found.endswith("..")
