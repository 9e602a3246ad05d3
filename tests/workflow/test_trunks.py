"""Pretrained trunks, end to end: images of a table through ONNX, training, runs, new rows.

The oracles are NumPy on the pixels that were written, and fits to the same numbers as columns.
"""

import hashlib
import json
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import helper
from PIL import Image

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.data import images as reading
from semistan.data import pixels
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.posterior.engine import onnx_engine
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.run import read_run
from semistan.program.program import stan_program
from semistan.subspace.construction import training_epochs
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows, prepare, training_rows
from semistan.workflow.train import train
from semistan.workflow.train_subspaces import begin_run
from semistan.workflow.watch import Watch
from support.command import command_in
from support.drawn import random_draws
from support.images import quick_config, written
from support.trunks import linear, mean_pooling, model_of

pytestmark = pytest.mark.usefixtures("here")
MEAN, SD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CALL = f"image(path, mean={MEAN}, sd={SD})"
SIZED = f"image(path, size=[4, 5], channels=3, mean={MEAN}, sd={SD})"
FORMULA = f"y ~ age + nn({CALL}, trunk='trunk.onnx', output='embedding')"
EXPLICIT = FORMULA.replace(CALL, SIZED)
MATRIX = np.random.default_rng(1).normal(size=(60, 4))
ELLIPTICAL = {"chains": 2, "warmup": 10, "draws": 20, "seed": 3, "method": "elliptical-slice"}


def embedded(images, matrix=MATRIX):
    """The embeddings (N, 4) of images (N, 4, 5, 3)."""
    unit = images.astype(np.float32) / 255
    normal = (unit - np.float32(MEAN)) / np.float32(SD)
    return np.moveaxis(normal, -1, 1).reshape(len(images), -1).astype(float) @ matrix


def image_table(folder, n=30, seed=0):
    """Write a table beside images and a trunk; return the table and the pixels (N, 4, 5, 3)."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (n, 4, 5, 3), dtype=np.uint8)
    E = embedded(images)
    y = np.tanh(E[:, 0] / E[:, 0].std()) + generator.normal(0, 0.2, n)
    frame = written(folder, images, generator, y=y)
    linear(folder / "trunk.onnx", MATRIX, (3, 4, 5))
    return frame, images


@pytest.fixture(scope="module")
def trained(data):
    prepared = prepare(config_of(data[0]))
    return train(prepared), prepared


def config_of(folder, formula=FORMULA, **settings):
    return quick_config(folder, formula, **settings)


def copy_of(data, folder):
    """Copy a table with all that stands beside it, to be changed."""
    return shutil.copytree(data[0], folder / "copy")


# ----------------------------------------------------------------------------- tables


def test_the_program_says_that_the_network_takes_an_embedding(trained):
    text = " ".join(stan_program(trained[1].model).replace("//", "").split())
    assert f"eta_scale f(embedding of {SIZED}; w)" in text


def test_the_networks_inputs_are_the_embeddings(data, tmp_path, monkeypatch):
    folder, _, images = data
    monkeypatch.chdir(tmp_path)
    prepared = prepare(config_of(folder))
    assert prepared.config.formula == EXPLICIT
    E = embedded(images)
    assert np.allclose(prepared.rows.U, E, rtol=1e-12)
    assert np.allclose(prepared.model.units.u_loc, E.mean(axis=0), rtol=1e-10)
    assert np.allclose(prepared.model.units.u_scale, E.std(axis=0, ddof=1), rtol=1e-10)
    assert prepared.model.leading.text == "4-4-1, tanh"
    (file,) = prepared.design.trunks.values()
    assert (file.output, file.size) == ("embedding", 4)
    assert file.sha256 == hashlib.sha256((folder / "trunk.onnx").read_bytes()).hexdigest()
    assert np.array_equal(prepare(prepared.config).rows.U, prepared.rows.U)
    assert prepare(prepared.config).config.formula == EXPLICIT


def test_only_output_size_and_numbers_of_any_images(data, tmp_path):
    """A trunk that leaves the size open takes images as they are, or of the size that is said."""
    folder, images = copy_of(data, tmp_path), data[2]
    mean_pooling(folder / "pool.onnx")
    prepared = prepare(config_of(folder, "y ~ nn(image(path), trunk='pool.onnx')"))
    assert prepared.config.formula == (
        "y ~ nn(image(path, size=[4, 5], channels=3), trunk='pool.onnx', output='means')"
    )
    assert np.allclose(prepared.rows.U, images.mean(axis=(1, 2)), rtol=1e-5)  # 0 to 255
    formula = "y ~ nn(image(path, size=2), trunk='pool.onnx')"
    small = [Image.fromarray(image).resize((2, 2), Image.Resampling.BILINEAR) for image in images]
    expected = np.stack([np.asarray(image) for image in small]).mean(axis=(1, 2))
    assert np.allclose(prepare(config_of(folder, formula)).rows.U, expected, rtol=1e-5)


def test_images_are_read_in_pieces_and_pixels_are_not_kept(data, monkeypatch):
    folder = data[0]
    whole = prepare(config_of(folder)).rows.U
    monkeypatch.setattr(pixels, "PIECE_BYTES", 4 * 60 * 4)
    steps, shapes, stack = [], [], np.stack
    monkeypatch.setattr(pixels.np, "stack", lambda x: shapes.append(len(x)) or stack(x))
    table = read_table(folder / "table.csv")
    formula = semistan.model.formula.formula.parse_formula(FORMULA)
    _, found = reading.with_pictures(formula, table, progress=lambda *step: steps.append(step))
    assert np.allclose(np.stack(list(found["path"])), whole, rtol=1e-12)
    assert max(shapes[:-1]) == 4
    assert steps == [*((4 * i, 30) for i in range(1, 8)), (30, 30)]


def test_an_image_of_several_rows_is_embedded_once(data, monkeypatch):
    folder, frame, images = data
    monkeypatch.chdir(folder)
    order = [3, 1, 3, 0, 1, 2]
    seen, embed = [], pixels.embed_pictures
    monkeypatch.setattr(
        "semistan.data.embeddings.embed_pictures",
        lambda values, wanted, folder, run, **more: embed(
            values, wanted, folder, lambda x: seen.append(len(x)) or run(x), **more
        ),
    )
    rows = prepare(config_of(None), frame.iloc[order]).rows
    assert np.allclose(rows.U, embedded(images[order]), rtol=1e-12)
    assert seen == [4]


def test_rows_of_an_array_file_have_a_trunk_too(data, tmp_path):
    folder, (frame, images) = copy_of(data, tmp_path), data[1:]
    np.save(folder / "all.npy", images)
    rows = np.random.default_rng(0).permutation(30)
    frame.assign(path=rows).to_csv(folder / "table.csv", index=False)
    formula = FORMULA.replace("image(path", "image(path, array='all.npy'")
    assert np.allclose(prepare(config_of(folder, formula)).rows.U, embedded(images[rows]))


def test_a_trunk_serves_two_predictors_and_runs_once(data, monkeypatch):
    nn, run, runs = FORMULA.partition("+ ")[2], reading.run_trunk, []
    monkeypatch.setattr(reading, "run_trunk", lambda *x, **more: runs.append(x) or run(*x, **more))
    prepared = prepare(config_of(data[0], f"y ~ age + {nn}, sigma ~ {nn}"))
    E = embedded(data[2])
    assert np.allclose(prepared.rows.U, np.hstack([E, E]), rtol=1e-12)
    assert prepared.config.formula.count("output='embedding'") == 2
    assert len(runs) == 1


def test_numbers_that_are_constant_for_all_training_images(data, tmp_path):
    """As units that are off for all of them: they are no reason to refuse a trunk."""
    folder = copy_of(data, tmp_path)
    linear(folder / "trunk.onnx", MATRIX * [1, 0, 1, 1], (3, 4, 5), bias=[0, 7, 0, 0])
    prepared = prepare(config_of(folder))
    assert np.array_equal(prepared.rows.U[:, 1], np.full(30, 7.0))
    assert prepared.model.units.u_scale[1] == 1
    assert np.isfinite(train(prepared).trained.history["loss"]).all()


def test_epochs_of_convolutional_layers_are_not_counted(data):
    plain = config_of(data[0], "y ~ nn(age)")
    assert training_epochs(config_of(data[0])) == training_epochs(plain)
    in_images = config_of(data[0], f"{FORMULA}, sigma ~ nn(image(other))")
    assert training_epochs(in_images) > training_epochs(plain)


# ----------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("call", "trunk", "message"),
    [
        (
            "image(path, size=8)",
            "trunk.onnx",
            "takes images of height 4, but image.* says 8; leave",
        ),
        ("image(path, channels=1)", "trunk.onnx", "takes images of channels 3, but .* says 1"),
        ("image(path, mean=[1, 2])", "trunk.onnx", "takes images of channels 3, but .* says 2"),
        ("image(path)", "none.onnx", "trunk 'none.onnx' does not exist"),
        ("image(path)", "n" * 5000, "trunk 'nnn.*' does not exist"),
        ("image(path)", "images/0.png", "cannot be read|no ONNX file"),
        ("image(other)", "trunk.onnx", "other"),
    ],
)
def test_what_contradicts_the_trunk_is_refused_before_training(data, call, trunk, message):
    with pytest.raises(InputError, match=message):
        prepare(config_of(data[0], f"y ~ nn({call}, trunk='{trunk}', output='embedding')"))


def test_missing_images_are_named_as_without_a_trunk(data, tmp_path):
    folder = copy_of(data, tmp_path)
    (folder / "images" / "4.png").write_bytes(b"\x89PNG nothing")
    with pytest.raises(InputError, match=r"1 image .* cannot be read: row 5 \(images/4.png"):
        prepare(config_of(folder))


def test_embeddings_that_are_not_finite_are_named(data, tmp_path):
    """Numbers of 16 bits overflow for the brightest image."""
    folder = copy_of(data, tmp_path)
    linear(folder / "trunk.onnx", np.full((60, 2), 5.0), (3, 4, 5), dtype=np.float16)
    for i in range(30):
        level = 255 if i in (6, 11) else 100
        Image.fromarray(np.full((4, 5, 3), level, np.uint8)).save(folder / "images" / f"{i}.png")
    formula = FORMULA.replace(CALL, "image(path)")
    message = r"2 images of column 'path' have embeddings .*row 7 \(images/6.png\), row 12 \(images"
    with pytest.raises(InputError, match=message):
        prepare(config_of(folder, formula))


def test_an_embedding_whose_size_differs_between_pieces(data, tmp_path, monkeypatch):
    """One number of each image in a batch, where the last piece has fewer images."""
    monkeypatch.setattr(pixels, "PIECE_BYTES", 4 * 60 * 4)
    folder = copy_of(data, tmp_path)
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["flat", "t"], ["embedding"]),
    ]
    shapes = {"images": ["N", 3, 4, 5]}, {"embedding": ["N", "M"]}
    onnx.save(model_of(nodes, *shapes), folder / "trunk.onnx")
    with pytest.raises(InputError, match=r"size of output 'embedding' differs .*\(2, 4\)"):
        prepare(config_of(folder))


def test_mean_and_sd_are_of_numbers_from_0_to_1(data, tmp_path):
    folder, images = copy_of(data, tmp_path), data[2]
    unit = (images / 255).astype(np.float32)
    formula = FORMULA.replace("image(path", "image(row, array='all.npy'")
    frame = data[1].assign(row=range(30))
    frame.to_csv(folder / "table.csv", index=False)
    np.save(folder / "all.npy", unit)
    assert np.allclose(prepare(config_of(folder, formula)).rows.U, embedded(images), rtol=1e-5)
    unit[8, 0, 0, 0] = 1.5
    np.save(folder / "all.npy", unit)
    message = r"1 image .* has not 8 bits, and values beyond 0 to 1.*row 9 \(8: .* to 1.5\)"
    with pytest.raises(InputError, match=message):
        prepare(config_of(folder, formula))


def test_embeddings_need_memory(data, monkeypatch):
    monkeypatch.setattr("semistan.data.embeddings.MOST_BYTES", 8 * 30 * 4 - 1)
    with pytest.raises(InputError, match=r"30 embeddings of 4 numbers .* need"):
        prepare(config_of(data[0]))


# ----------------------------------------------------------------------------- given embeddings


def test_a_table_may_hold_the_embeddings(data, trained, tmp_path, monkeypatch):
    _, frame, images = data
    monkeypatch.chdir(tmp_path)  # where there is no trunk
    E = list(embedded(images))
    for change in (np.asarray, list):
        table = frame.assign(path=[change(e) for e in E])
        prepared = prepare(config_of(None), table)
        assert prepared.config.formula == FORMULA
        assert np.array_equal(prepared.rows.U, E)
    assert prepared.design.trunks["path"].sha256 == ""
    table.to_parquet(tmp_path / "table.parquet")
    stored = prepare(config_of(None, data=str(tmp_path / "table.parquet")))
    assert np.array_equal(stored.rows.U, E)
    bundle = train(stored)
    assert "new images cannot be embedded" in repr(bundle)
    assert np.array_equal(new_rows(bundle, table[:3]).U, E[:3])
    monkeypatch.chdir(data[0])
    with pytest.raises(InputError, match="embeddings that its table had in column 'path', and tr"):
        new_rows(bundle, frame[:3])


def test_given_embeddings_are_compared_with_a_trunk_that_is_there(data, monkeypatch):
    folder, frame, images = data
    monkeypatch.chdir(folder)
    E = embedded(images)
    prepared = prepare(config_of(None), frame.assign(path=list(E)))
    assert prepared.config.formula == EXPLICIT
    assert prepared.design.trunks == prepare(config_of(folder)).design.trunks
    with pytest.raises(InputError, match=r"arrays of 3 numbers, but an embedding by .* has 4"):
        prepare(config_of(None), frame.assign(path=list(E[:, :3])))
    with pytest.raises(InputError, match=r"arrays of shape \(4, 5, 3\), and an embedding is flat"):
        prepare(config_of(None), frame.assign(path=list(images)))


# ----------------------------------------------------------------------------- bundles, new rows


def test_the_bundle_knows_the_trunk(trained, tmp_path):
    bundle, prepared = trained
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    assert again.design == bundle.design == prepared.design
    sha256 = bundle.design.trunks["path"].sha256
    assert sha256 in (tmp_path / "bundle" / "bundle.json").read_text()
    assert f"Trunk: trunk.onnx (sha256 {sha256[:12]}...), 4 numbers of output" in repr(again)
    assert "not part of the fit, and new images need it" in repr(again)
    assert not list((tmp_path / "bundle").glob("trunk*"))
    assert np.array_equal(training_rows(again).U, prepared.rows.U)


def test_a_trunk_trains_what_columns_of_the_same_numbers_do(data, trained):
    bundle, prepared = trained
    E = pd.DataFrame(prepared.rows.U, columns=["e1", "e2", "e3", "e4"])
    frame = pd.concat([data[1], E], axis=1)
    other = train(prepare(config_of(None, "y ~ age + nn(e1, e2, e3, e4)"), frame))
    assert np.allclose(other.subspace.p_bar, bundle.subspace.p_bar, rtol=1e-9)
    assert np.allclose(other.subspace.Pi, bundle.subspace.Pi, rtol=1e-7, atol=1e-9)


def test_both_engines_predict_new_images(new, trained, tmp_path):
    bundle, _ = trained
    write_bundle(bundle, tmp_path / "bundle")
    folder, _, images = new
    rows = new_rows(bundle, read_table(folder / "table.csv"))
    assert np.allclose(rows.U, embedded(images), rtol=1e-12)
    draws = random_draws(bundle)
    eta = SubspacePosterior(bundle, draws).predictor(rows)
    engine = onnx_engine(tmp_path / "bundle" / "predictor.onnx")
    assert np.allclose(SubspacePosterior(bundle, draws, engine).predictor(rows), eta, rtol=1e-9)
    given = new[1].assign(path=list(embedded(images)))
    assert np.allclose(new_rows(bundle, given).U, rows.U, rtol=1e-12)
    with pytest.raises(InputError, match="embeddings of 4 numbers, got 3 in row 1"):
        new_rows(bundle, given.assign(path=list(embedded(images)[:, :3])))


def test_another_trunk_is_refused_and_both_hashes_are_named(new, trained, tmp_path):
    bundle, _ = trained
    folder = copy_of(new, tmp_path)
    linear(folder / "trunk.onnx", 2 * MATRIX, (3, 4, 5))
    other = hashlib.sha256((folder / "trunk.onnx").read_bytes()).hexdigest()[:12]
    own = bundle.design.trunks["path"].sha256[:12]
    message = f"is not the file .* begins with {other}, expected {own}; put that file there, or"
    with pytest.raises(InputError, match=message):
        new_rows(bundle, read_table(folder / "table.csv"))
    (folder / "trunk.onnx").unlink()
    with pytest.raises(InputError, match=r"trunk 'trunk.onnx' does not exist"):
        new_rows(bundle, read_table(folder / "table.csv"))


def test_embeddings_that_another_trunk_made_are_refused(data, trained, tmp_path):
    bundle, prepared = trained
    assert np.array_equal(new_rows(bundle, prepared.rows.frame[:3]).U, prepared.rows.U[:3])
    folder = copy_of(data, tmp_path)
    linear(folder / "trunk.onnx", 2 * MATRIX, (3, 4, 5))
    other = prepare(config_of(folder))
    ours, theirs = (item.design.trunks["path"].sha256[:12] for item in (bundle, other))
    message = f"another trunk made .* 'path': .* begins with {theirs}, expected {ours}"
    with pytest.raises(InputError, match=message):
        new_rows(bundle, other.rows.frame[:3])


# ----------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return fit_model(config_of(data[0], sample=ELLIPTICAL), out=folder / "run")


def test_a_run_keeps_embeddings_and_no_pixels(data, fitted):
    run = read_run(fitted.run.path)
    assert np.allclose(np.stack(list(run.table()["path"])), embedded(data[2]), rtol=1e-12)
    assert np.allclose(run.rows().U, embedded(data[2]), rtol=1e-12)
    assert "Trunk: trunk.onnx" in repr(fitted)


@pytest.mark.lengthy
def test_new_rows_are_predicted_scored_and_explained(new, fitted, tmp_path, monkeypatch, capsys):
    folder, frame, images = new
    table = read_table(folder / "table.csv")
    predicted = semistan.predict(fitted.run, table)
    given = frame.assign(path=list(embedded(images)))
    by_arrays = semistan.predict(fitted.run, given)
    assert np.allclose(predicted.to_numpy(float), by_arrays.to_numpy(float), rtol=1e-9)
    by_graph = semistan.predict(fitted.run, table, engine="onnx")
    assert np.allclose(predicted.to_numpy(float), by_graph.to_numpy(float), rtol=1e-9)
    assert np.isfinite(semistan.score(fitted.run, table)["Estimate"]).all()
    importance = semistan.importance(fitted.run, table)
    assert set(importance["term"]) == {"age", "path"}
    command = command_in(folder, monkeypatch, capsys)
    code, out, err = command("predict", fitted.run.path, "--newdata", "table.csv")
    assert code == 0, err
    code, out, _ = command("summary", fitted.run.path)
    assert "Trunk: trunk.onnx" in out
    semistan.report(fitted.run, tmp_path / "report.html")
    assert "the file is not part of the fit" in (tmp_path / "report.html").read_text()


@pytest.mark.lengthy
def test_whoever_waits_sees_how_many_images_are_read(data, new, fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "PIECE", 20)
    table, steps = read_table(new[0] / "table.csv"), []

    def reading(*step):
        steps.append(step)

    semistan.predict(fitted.run, table, watch=Watch(reading=reading))
    semistan.score(fitted.run, table, watch=Watch(reading=reading))
    assert steps == [(7, 7), (7, 7)]
    bundle = fitted.run.bundle
    training_rows(bundle, reading=reading)
    fit_model(
        config_of(data[0], sample=ELLIPTICAL), out=tmp_path / "run", watch=Watch(reading=reading)
    )
    assert steps[2:] == [(20, 30), (30, 30)] * 2


@pytest.mark.lengthy
def test_the_onnx_engine_needs_no_pytorch(new, fitted):
    code = (
        "import sys; sys.modules['torch'] = None; import semistan; "
        "from semistan.data.tables import read_table; "
        f"table = read_table({str(new[0] / 'table.csv')!r}); "
        f"print(len(semistan.predict({str(fitted.run.path)!r}, table, engine='onnx')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "7\n", found.stderr


@pytest.mark.lengthy
def test_folds_know_the_trunk(data, new, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there is none
    path = shutil.copytree(fitted.run.path, tmp_path / "run")
    semistan.kfold(path, folds=2, seed=5, save_fits=True)
    fold = read_run(path / "kfold" / "fold-1" / "run").bundle
    assert fold.design.trunks == fitted.run.bundle.design.trunks
    rows = new_rows(fold, read_table(new[0] / "table.csv"))
    assert np.allclose(rows.U, embedded(new[2]), rtol=1e-12)


def test_a_run_of_several_subspaces_is_resumed_with_its_trunk(data, tmp_path, monkeypatch):
    prepared = prepare(config_of(data[0], sample=ELLIPTICAL, subspace__subspaces=2))
    begin_run(prepared, tmp_path / "run", None)
    monkeypatch.chdir(tmp_path)  # where there is none
    run = semistan.workflow.train_subspaces.resume(tmp_path / "run")
    for member in run.members:
        assert member.bundle.design.trunks == prepared.design.trunks


@pytest.mark.cmdstan
def test_stan_samples_behind_a_trunk(data, new, tmp_path, toolchain):
    sample = {"chains": 2, "warmup": 100, "draws": 50, "seed": 3}
    fit = fit_model(config_of(data[0], sample=sample), out=tmp_path / "run")
    E = embedded(data[2])
    given = json.loads((tmp_path / "run" / "data.json").read_text())
    assert np.allclose(given["U"], E, rtol=1e-12)
    assert np.allclose(given["u_scale"], E.std(axis=0, ddof=1), rtol=1e-9)
    table = read_table(new[0] / "table.csv")
    by_torch, by_graph = (
        semistan.predict(fit.run, table, engine=engine).to_numpy(float)
        for engine in ("torch", "onnx")
    )
    assert np.allclose(by_torch, by_graph, rtol=1e-9)
