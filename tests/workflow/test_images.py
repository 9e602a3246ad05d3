"""Images in tables, end to end: files beside a CSV, training, runs, predictions, and refusals.

The oracles are the pixels that were written, PyTorch's own modules with the trained weights, and
fits made by hand. Draws are made by PyTorch; one fit goes through CmdStan.
"""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.data.tables import read_table
from semistan.density.features import at_features
from semistan.errors import InputError
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.model.construction import CONSTRUCTIONS
from semistan.model.networks.conv import Convolutional
from semistan.posterior.engine import onnx_engine
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_epred, posterior_linpred
from semistan.posterior.run import read_run
from semistan.program.data import stan_data
from semistan.program.program import bundle_program, stan_program
from semistan.workflow import train as training
from semistan.workflow.explain import slopes
from semistan.workflow.fit import fit_model
from semistan.workflow.outputs import plot_subspace
from semistan.workflow.prepare import new_rows, prepare, training_rows
from semistan.workflow.sample import read_fitted
from semistan.workflow.subspace import subspace_measures
from semistan.workflow.train import train
from support.command import command_in
from support.drawn import random_draws
from support.images import quick_config, written

pytestmark = pytest.mark.usefixtures("here")
FORMULA = "y ~ age + nn(image(path))"
SIZED = "y ~ age + nn(image(path, size=[8, 8], channels=1))"
QUICK = {"chains": 2, "warmup": 10, "draws": 20, "seed": 3}
ELLIPTICAL = QUICK | {"method": "elliptical-slice"}
LAPLACE = QUICK | {"method": "laplace"}


def pixels(n, seed=0, shape=(8, 8)):
    """Images whose brightness is that of their left half, and noise."""
    generator = np.random.default_rng(seed)
    bright = generator.uniform(60, 190, n)
    values = np.full((n, *shape), 120.0)
    values[:, :, : shape[1] // 2] = bright[:, None, None]
    noisy = values + generator.normal(0, 15, (n, *shape))
    return np.clip(noisy, 0, 255).astype(np.uint8), bright


def image_table(folder, n=40, seed=0, shape=(8, 8)):
    """Write a table beside a folder of images; return it and the pixels (N, height, width)."""
    images, bright = pixels(n, seed, shape)
    generator = np.random.default_rng(seed + 1)
    y = 5 + bright / 20 + generator.normal(0, 0.5, n)
    flag = (bright + generator.normal(0, 20, n) > 125).astype(int)
    frame = written(folder, images, generator, y=y, flag=flag)
    return frame, images


def config_of(folder, formula=FORMULA, **settings):
    return quick_config(folder, formula, **({"network__channels": [3]} | settings))


def prepared_of(folder, formula=FORMULA, **settings):
    return prepare(config_of(folder, formula, **settings))


def standardised(images, like=None):
    """Images (N, C, H, W) by the mean and standard deviation of each channel, of others or own."""
    images = images.astype(float).reshape(len(images), -1, *images.shape[-2:])
    like = images if like is None else like.astype(float).reshape(-1, *images.shape[1:])
    mean, sd = like.mean(axis=(0, 2, 3)), like.std(axis=(0, 2, 3), ddof=1)
    return torch.tensor((images - mean[:, None, None]) / sd[:, None, None])


def convolutions(shape, channels, w, *, kernel=3, pooling=2):
    """PyTorch's own convolutional layers with their flat weights."""
    steps = []
    for m, n in pairwise((shape[0], *channels)):
        steps += [torch.nn.Conv2d(m, n, kernel), torch.nn.Tanh(), torch.nn.MaxPool2d(pooling)]
    module = torch.nn.Sequential(*steps, torch.nn.Flatten()).double()
    assert sum(p.numel() for p in module.parameters()) == len(w)
    torch.nn.utils.vector_to_parameters(torch.tensor(w), module.parameters())
    return lambda images: module(images).detach().numpy()


def head_by_hand(w, h, hidden):
    """A fully connected network's output (S, N) at weights (S, d) for inputs (N, m)."""
    f = []
    for one in w:
        a, start = h, 0
        for n in (*hidden, 1):
            m = a.shape[1]
            matrix, bias = one[start : start + m * n].reshape(n, m), one[start + m * n :][:n]
            a, start = a @ matrix.T + bias, start + (m + 1) * n
            a = np.tanh(a) if start < len(one) else a
        f.append(a[:, 0])
    return np.array(f)


# ----------------------------------------------------------------------------- tables


def test_images_are_read_from_beside_their_table(data, tmp_path, monkeypatch):
    folder, frame, images = data
    monkeypatch.chdir(tmp_path)
    prepared = prepared_of(folder)
    assert prepared.config.formula == SIZED
    assert np.array_equal(prepared.rows.U, images.reshape(40, 64))
    assert np.array_equal(prepared.rows.y, frame["y"])
    mean, sd = images.mean(), images.std(ddof=1)
    assert prepared.model.units.u_loc == pytest.approx(np.full(64, mean), rel=1e-12)
    assert prepared.model.units.u_scale == pytest.approx(np.full(64, sd), rel=1e-12)
    again = prepare(prepared.config)
    assert again.config.formula == SIZED
    assert np.array_equal(again.rows.U, prepared.rows.U)


def test_a_table_in_memory_has_paths_from_the_working_directory(data, tmp_path, monkeypatch):
    folder, frame, images = data
    config = config_of(None)
    monkeypatch.chdir(folder)
    assert np.array_equal(prepare(config, frame).rows.U, images.reshape(40, 64))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"images/0\.png"):
        prepare(config, frame)
    absolute = frame.assign(path=[str(folder / path) for path in frame["path"]])
    assert np.array_equal(prepare(config, absolute).rows.U, images.reshape(40, 64))
    assert np.array_equal(
        prepare(config, read_table(folder / "table.csv")).rows.U, images.reshape(40, 64)
    )


def test_parquet_has_paths_too(data, tmp_path, monkeypatch):
    folder, frame, images = data
    shutil.copytree(folder / "images", tmp_path / "images")
    frame.to_parquet(tmp_path / "table.parquet")
    prepared = prepared_of(None, data=str(tmp_path / "table.parquet"))
    assert np.array_equal(prepared.rows.U, images.reshape(40, 64))


def test_images_are_resized_and_coloured_as_the_call_says(data):
    folder, _, images = data
    formula = "y ~ nn(image(path, size=[4, 6], channels=3))"
    prepared = prepared_of(folder, formula, network__kernel=2)
    bilinear = Image.Resampling.BILINEAR
    small = [np.asarray(Image.fromarray(image).resize((6, 4), bilinear)) for image in images]
    assert prepared.config.formula == formula
    expected = np.repeat(np.stack(small)[:, None], 3, axis=1)
    assert np.array_equal(prepared.rows.U, expected.reshape(40, 72))
    assert prepared.model.leading.text == "3x4x6-conv3-4-1, tanh, 1 frozen"


def test_rows_of_an_array_file_are_images(data, tmp_path):
    _, frame, images = data
    np.save(tmp_path / "all.npy", images)
    rows = np.random.default_rng(0).permutation(40)
    frame.assign(row=rows).to_csv(tmp_path / "table.csv", index=False)
    prepared = prepared_of(tmp_path, "y ~ nn(image(row, array='all.npy'))")
    assert prepared.config.formula == (
        "y ~ nn(image(row, size=[8, 8], channels=1, array='all.npy'))"
    )
    assert np.array_equal(prepared.rows.U, images[rows].reshape(40, 64))


def test_missing_images_are_named_before_training(data, tmp_path, monkeypatch):
    folder, frame, _ = data
    shutil.copytree(folder / "images", tmp_path / "images")
    for number in (4, 11):
        (tmp_path / "images" / f"{number}.png").unlink()
    frame.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.setattr(training, "train", None)
    message = r"2 images.*do not exist.*row 5 \(images/4.png\), row 12 \(images/11.png\)"
    with pytest.raises(InputError, match=message):
        fit_model(config_of(tmp_path), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rows_without_a_path_are_refused_or_dropped(data, tmp_path):
    folder, frame, images = data
    shutil.copytree(folder / "images", tmp_path / "images")
    paths = [None if i in (0, 7) else path for i, path in enumerate(frame["path"])]
    frame.assign(path=paths).to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(InputError, match=r"2 of 40 rows have missing .*path \(2\)"):
        prepared_of(tmp_path)
    prepared = prepared_of(tmp_path, drop_missing=True)
    kept = np.delete(images, [0, 7], axis=0)
    assert np.array_equal(prepared.rows.U, kept.reshape(38, 64))
    assert prepared.source.dropped == 2
    assert "path (2): rows 1, 8" in prepared.notes[0]


@pytest.mark.lengthy
def test_rows_are_named_as_in_the_users_table(data, tmp_path):
    """Whatever was dropped before them, and whatever the index of a DataFrame."""
    folder, frame, _ = data
    shutil.copytree(folder / "images", tmp_path / "images")
    (tmp_path / "images" / "11.png").unlink()
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(tmp_path / "images" / "13.png")
    frame = frame.assign(path=[str(tmp_path / path) for path in frame["path"]])
    frame.loc[[0, 7], "age"] = np.nan
    frame.index = range(100, 140)
    config = config_of(None, drop_missing=True)
    with pytest.raises(InputError, match=r"does not exist or is no file: row 12 \("):
        prepare(config, frame)
    rest = frame.drop(index=111)
    with pytest.raises(InputError, match=r"is not 8 x 8 pixels .*, as that of row 2 is: row 13 \("):
        prepare(config, rest)
    bundle = train(prepare(config, rest.drop(index=113)))
    with pytest.raises(InputError, match=r"does not exist or is no file: row 12 \("):
        new_rows(bundle, frame, drop_missing=True)


def test_the_channels_are_told_of_those_that_are_left_out(data, tmp_path):
    _, frame, images = data
    (tmp_path / "images").mkdir()
    for i, image in enumerate(images):
        with_alpha = np.stack([image, image, image, 0 * image + 255], axis=-1)
        Image.fromarray(with_alpha).save(tmp_path / "images" / f"{i}.png")
    frame.to_csv(tmp_path / "table.csv", index=False)
    prepared = prepared_of(tmp_path)
    assert prepared.config.formula.endswith("channels=3))")
    assert any("alpha" in note for note in prepared.notes)


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ nn(image(path, size=8)), sigma ~ nn(image(path, size=4))",
        "y ~ nn(image(path, size=8)) + nn(image(path, size=4))",
        "y ~ nn(image(path)), sigma ~ nn(image(path, channels=3))",
    ],
)
def test_a_column_at_two_sizes_is_refused_or_both_are_taken(data, formula):
    """Neither call may silently get the other one's size."""
    try:
        prepared = prepared_of(data[0], formula, network__kernel=2)
    except InputError as error:
        assert "image(path" in str(error) or "'path'" in str(error)
        assert "same arguments" not in str(error)
        return
    sizes = [terms.image.shape for terms in prepared.design.networks]
    assert len(set(sizes)) == 2


# ----------------------------------------------------------------------------- columns of arrays


def with_arrays(frame, images, change=lambda image: image):
    return frame.assign(path=[change(image) for image in images])


def prepared_arrays(data, change, formula=FORMULA, **settings):
    _, frame, images = data
    return prepare(config_of(None, formula, **settings), with_arrays(frame, images, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image,
        lambda image: image[None],
        lambda image: image[..., None],
        lambda image: image.ravel(),
        lambda image: image.tolist(),
        lambda image: image.astype(float),
    ],
    ids=["H x W", "1 x H x W", "H x W x 1", "flat square", "lists", "floats"],
)
@pytest.mark.parametrize("call", ["image(path)", "image(path, size=8)", "image(path, channels=1)"])
def test_a_column_of_arrays_is_the_images_themselves(data, change, call):
    prepared = prepared_arrays(data, change, f"y ~ age + nn({call})")
    assert prepared.config.formula == SIZED
    assert np.array_equal(prepared.rows.U, data[2].reshape(40, 64))


def coloured(image):
    """An image (3, H, W) whose channels differ."""
    return np.stack([image, 255 - image, image // 2])


@pytest.mark.parametrize(
    "change",
    [coloured, lambda image: np.moveaxis(coloured(image), 0, -1), lambda i: coloured(i).ravel()],
    ids=["C x H x W", "H x W x C", "flat"],
)
@pytest.mark.parametrize("options", ["", ", size=8", ", channels=3", ", size=8, channels=3"])
def test_channels_may_come_first_or_last(data, change, options):
    prepared = prepared_arrays(data, change, f"y ~ nn(image(path{options}))")
    assert prepared.config.formula == "y ~ nn(image(path, size=[8, 8], channels=3))"
    expected = [coloured(image).ravel() for image in data[2]]
    assert np.array_equal(prepared.rows.U, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_flat_arrays_of_no_square_need_a_size(data, channels):
    def flat(image):
        return np.tile(image[:, :5].ravel(), channels)

    with pytest.raises(InputError, match="from which the images' size cannot be told; say it, as"):
        prepared_arrays(data, flat, "y ~ nn(image(path))")
    prepared = prepared_arrays(data, flat, "y ~ nn(image(path, size=[8, 5]))")
    assert prepared.config.formula == f"y ~ nn(image(path, size=[8, 5], channels={channels}))"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda image: image, "size=4"),
        (lambda image: image, "channels=3"),
        (coloured, "channels=1"),
        (coloured, "size=4"),
    ],
    ids=["smaller", "in colour", "in grey", "smaller in colour"],
)
def test_what_a_call_says_of_arrays_is_done_or_refused(data, change, said):
    try:
        prepared = prepared_arrays(data, change, f"y ~ nn(image(path, {said}))", network__kernel=2)
    except InputError as error:
        assert "'path'" in str(error)
        assert "cannot be told" not in str(error)  # it can
    else:
        assert said.replace("=4", "=[4, 4]") in prepared.config.formula


@pytest.mark.parametrize("channels", [2, 5])
def test_arrays_may_have_any_number_of_channels(data, channels):
    prepared = prepared_arrays(
        data, lambda image: np.stack([image] * channels), "y ~ nn(image(path))"
    )
    assert prepared.model.leading.whole.parts[0].shape == (channels, 8, 8)


def test_arrays_of_several_shapes_are_refused(data):
    def some_smaller(image):
        return image[:7] if image[0, 0] % 2 else image

    with pytest.raises(InputError, match=r"arrays of 1 x 7 x 8, 1 x 8 x 8 numbers"):
        prepared_arrays(data, some_smaller)


def test_arrays_and_paths_mixed_are_refused(data):
    _, frame, images = data
    for mixed in ([*images[:39], "images/39.png"], ["images/0.png", *images[1:]]):
        with pytest.raises(InputError, match="'path'"):
            prepare(config_of(None), frame.assign(path=mixed))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_arrays_that_are_not_finite_are_refused(data, value):
    _, frame, images = data
    broken = images.astype(float)
    broken[3, 2, 1] = value
    with pytest.raises(InputError, match=r"finite|missing"):
        prepare(config_of(None), with_arrays(frame, broken))


def test_the_users_table_stays_as_it_is(data, monkeypatch):
    folder, frame, _ = data
    monkeypatch.chdir(folder)
    table = read_table(folder / "table.csv")
    before, attrs = table.copy(), dict(table.attrs)
    prepare(config_of(None), table)
    assert table.equals(before)
    assert table.attrs == attrs
    assert frame["path"][0] == "images/0.png"


# ----------------------------------------------------------------------------- the trained bundle


@pytest.fixture(scope="module")
def trained(data):
    prepared = prepared_of(data[0])
    return train(prepared), prepared


def test_constant_layers_make_the_features_of_pytorchs_modules(data, trained):
    bundle, prepared = trained
    images, w = data[2], bundle.trained.w_frozen
    expected = convolutions((1, 8, 8), [3], w)(standardised(images))
    heads, rows = at_features(bundle, prepared.rows)
    assert rows.U.shape == (40, 27)
    assert np.allclose(rows.U, expected, rtol=1e-11, atol=1e-12)
    assert np.allclose(bundle.trained.h_loc, expected.mean(axis=0), rtol=1e-11)
    assert np.allclose(bundle.trained.h_scale, expected.std(axis=0, ddof=1), rtol=1e-9)
    assert heads.network.text == "27-4-1"
    assert heads.subspace.d == 27 * 4 + 4 + 5
    assert len(w) == 3 * 9 + 3


def test_the_bundle_is_written_and_read_again(trained, tmp_path):
    bundle, prepared = trained
    write_bundle(bundle, tmp_path / "bundle")  # checks both graphs against PyTorch
    again = read_bundle(tmp_path / "bundle")
    assert again.sha256 == bundle.sha256
    assert again.design == bundle.design
    assert again.config == bundle.config
    assert again.model.leading == bundle.model.leading
    for name in ("w_frozen", "h_loc", "h_scale"):
        assert np.array_equal(getattr(again.trained, name), getattr(bundle.trained, name))
    rows = training_rows(again)
    assert np.array_equal(rows.U, prepared.rows.U)
    assert (tmp_path / "bundle" / "bundle.json").stat().st_size < 20_000


def test_stan_gets_the_features(data, trained):
    bundle, prepared = trained
    content = stan_data(bundle, prepared.rows)
    H = convolutions((1, 8, 8), [3], bundle.trained.w_frozen)(standardised(data[2]))
    assert content["Q"] == 27
    assert np.allclose(content["U"], H, rtol=1e-11, atol=1e-12)
    assert np.allclose(content["u_loc"], H.mean(axis=0), rtol=1e-11)
    assert content["widths"] == [27, 4, 1]
    assert "w_frozen" not in content


def test_the_program_is_that_of_a_fully_connected_network(data, trained):
    """So that its compilation is shared."""
    _, prepared = trained
    frame = data[1].assign(**{f"u{i}": np.random.default_rng(i).normal(size=40) for i in range(27)})
    formula = f"y ~ age + nn({', '.join(f'u{i}' for i in range(27))})"
    other = prepare(config_of(None, formula), frame).model
    for kernel in ("stan", "cpp"):
        ours, theirs = (
            [line for line in stan_program(model, kernel=kernel).splitlines()
             if not line.startswith("//")]
            for model in (prepared.model, other)
        )  # fmt: skip
        assert ours == theirs


def test_both_engines_predict_new_images_as_pytorchs_modules_do(data, new, trained, tmp_path):
    bundle, _ = trained
    write_bundle(bundle, tmp_path / "bundle")
    folder, frame, images = new
    rows = new_rows(bundle, read_table(folder / "table.csv"))
    assert np.array_equal(rows.U, images.reshape(7, 64))
    draws, units = random_draws(bundle), bundle.units
    eta = SubspacePosterior(bundle, draws).predictor(rows)
    engine = onnx_engine(tmp_path / "bundle" / "predictor.onnx")
    assert np.allclose(SubspacePosterior(bundle, draws, engine).predictor(rows), eta, rtol=1e-10)
    H = convolutions((1, 8, 8), [3], bundle.trained.w_frozen)(standardised(images, data[2]))
    h = (H - bundle.trained.h_loc) / bundle.trained.h_scale
    f = head_by_hand(bundle.subspace.lift(draws.flat(draws.phi)), h, [4])
    age = frame["age"].to_numpy() - data[1]["age"].mean()
    by_hand = units.eta_loc + units.eta_scale * f + draws.flat(draws.theta) * age
    assert np.allclose(eta, by_hand, rtol=1e-10)


def test_new_images_are_made_what_the_model_was_trained_on(data, trained, tmp_path):
    """Of another size, or in colour, and an array of another size is refused."""
    bundle, _ = trained
    _, frame, images = data
    large = Image.fromarray(images[3]).resize((20, 30)).convert("RGB")
    large.save(tmp_path / "large.png")
    rows = new_rows(bundle, frame[3:4].assign(path=str(tmp_path / "large.png")))
    grey = np.asarray(large.convert("L"))
    expected = np.asarray(Image.fromarray(grey).resize((8, 8), Image.Resampling.BILINEAR))
    assert np.array_equal(rows.U, expected.reshape(1, 64))
    table = with_arrays(frame[:2], images[:2])
    assert np.array_equal(new_rows(bundle, table).U, images[:2].reshape(2, 64))
    with pytest.raises(InputError, match="'path' holds arrays of 1 x 7 x 8 numbers"):
        new_rows(bundle, with_arrays(frame[:2], images[:2, :7]))


def test_new_arrays_with_channels_last_are_not_scrambled(data):
    _, frame, images = data
    table = with_arrays(frame, images, coloured)
    bundle = train(prepare(config_of(None, train__epochs=1), table))
    last = with_arrays(frame, images, lambda image: np.moveaxis(coloured(image), 0, -1))
    try:
        rows = new_rows(bundle, last)
    except InputError as error:
        assert "'path'" in str(error)
    else:
        assert np.array_equal(rows.U, new_rows(bundle, table).U)


def test_paths_and_arrays_train_the_same_network(data, trained):
    bundle, prepared = trained
    _, frame, images = data
    again = prepare(config_of(None), with_arrays(frame, images))
    assert again.config.formula == prepared.config.formula
    assert train(again).sha256 == bundle.sha256


@pytest.mark.parametrize("activation", ["relu", "softplus", "sigmoid", "identity"])
def test_every_activation_is_trained_and_written(data, activation, tmp_path):
    prepared = prepared_of(data[0], network__activation=activation, train__epochs=2)
    bundle = train(prepared)
    write_bundle(bundle, tmp_path / "bundle")
    assert read_bundle(tmp_path / "bundle").sha256 == bundle.sha256


def test_several_layers_of_colour_are_trained_and_written(data, tmp_path):
    _, frame, images = data
    larger = [coloured(np.kron(image, np.ones((2, 2), dtype=np.uint8))) for image in images]
    settings = {
        "network__channels": [3, 4], "network__hidden": [5, 4], "network__frozen": 3,
        "train__epochs": 3,
    }  # fmt: skip
    prepared = prepare(config_of(None, **settings), frame.assign(path=larger))
    bundle = train(prepared)
    write_bundle(bundle, tmp_path / "bundle")
    assert bundle.model.leading.text == "3x16x16-conv3-conv4-5-4-1, tanh, 3 frozen"
    w = bundle.trained.w_frozen
    of_images = len(w) - (16 * 5 + 5)
    h = convolutions((3, 16, 16), [3, 4], w[:of_images])(standardised(np.stack(larger)))
    expected = np.tanh(h @ w[of_images:-5].reshape(5, 16).T + w[-5:])
    assert np.allclose(at_features(bundle, prepared.rows)[1].U, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "cumulative", "categorical"])
def test_other_responses_have_images(data, family, tmp_path):
    _, frame, images = data
    levels = np.digitize(frame["y"], frame["y"].quantile([1 / 3, 2 / 3])) + 1
    response = {"bernoulli": frame["flag"], "categorical": np.array(["a", "b", "c"])[levels - 1]}
    table = with_arrays(frame, images).assign(z=response.get(family, levels))
    formula = FORMULA.replace("y ~", "z ~")
    bundle = train(prepare(config_of(None, formula, family=family, train__epochs=2), table))
    write_bundle(bundle, tmp_path / "bundle")
    assert np.isfinite(bundle.trained.history["loss"]).all()


@pytest.mark.lengthy
def test_training_finds_what_the_images_say(data):
    prepared = prepared_of(data[0], train__epochs=300, train__learning_rate=0.02)
    bundle = train(prepared)
    stage = bundle.trained.history["stage"]
    first = bundle.trained.history["validation_loss"][stage == 1]
    assert first.min() < first[0] - 0.3
    H = at_features(bundle, prepared.rows)[1].U
    A = np.column_stack(
        [np.ones(40), (H - H.mean(axis=0)) @ np.linalg.svd(H - H.mean(axis=0))[2][:3].T]
    )
    y = prepared.rows.y
    residual = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    assert residual.var() < 0.3 * y.var()


# ----------------------------------------------------------------------------- several networks


SEVERAL = (
    "y ~ age + nn(image(path)) + nn(age, flag, hidden=[2]), sigma ~ nn(image(path), channels=[2])"
)


@pytest.fixture(scope="module")
def several(data):
    prepared = prepared_of(data[0], SEVERAL)
    return train(prepared), prepared


def test_images_stand_beside_other_networks_and_in_sigma(data, several, tmp_path):
    bundle, prepared = several
    images, trained = data[2], bundle.trained
    assert bundle.model.leading.text == (
        "1x8x8-conv3-4-1 + 2-2-1 + 1x8x8-conv2-4-1, tanh, 1 + 0 + 1 frozen"
    )
    others = prepared.rows.U[:, 64:66]
    assert np.array_equal(others, data[1][["age", "flag"]])
    Z = (others - others.mean(axis=0)) / others.std(axis=0, ddof=1)
    mean, sigma = np.split(trained.w_frozen, [30])
    z = standardised(images)
    H = [convolutions((1, 8, 8), [3], mean)(z), Z, convolutions((1, 8, 8), [2], sigma)(z)]
    _, rows = at_features(bundle, prepared.rows)
    assert np.allclose(rows.U, np.column_stack(H), rtol=1e-11, atol=1e-12)
    write_bundle(bundle, tmp_path / "bundle")
    assert read_bundle(tmp_path / "bundle").sha256 == bundle.sha256


def test_several_networks_predict_as_pytorchs_modules_do(data, new, several, tmp_path):
    bundle, _ = several
    write_bundle(bundle, tmp_path / "bundle")
    folder, frame, images = new
    rows = new_rows(bundle, read_table(folder / "table.csv"))
    draws, units, trained = random_draws(bundle), bundle.units, bundle.trained
    z, others = standardised(images, data[2]), data[1][["age", "flag"]]
    w_mean, w_sigma = np.split(trained.w_frozen, [30])
    Z = (frame[["age", "flag"]] - others.mean()) / others.std()
    raw = [convolutions((1, 8, 8), [3], w_mean)(z), Z.to_numpy(),
           convolutions((1, 8, 8), [2], w_sigma)(z)]  # fmt: skip
    H = (np.column_stack(raw) - trained.h_loc) / trained.h_scale
    w = bundle.subspace.lift(draws.flat(draws.phi))
    ends = np.cumsum([27 * 4 + 4 + 5, 2 * 2 + 2 + 3])
    first, second, third = np.split(w, ends, axis=1)
    f = head_by_hand(first, H[:, :27], [4]) + head_by_hand(second, H[:, 27:29], [2])
    age = frame["age"].to_numpy() - data[1]["age"].mean()
    eta = units.eta_loc + units.eta_scale * f + draws.flat(draws.theta) * age
    log_sigma = units.location(bundle.family, "sigma") + head_by_hand(third, H[:, 29:], [4])
    posterior = SubspacePosterior(bundle, draws)
    assert np.allclose(posterior.predictor(rows), eta, rtol=1e-10)
    assert np.allclose(posterior.predictor(rows, "sigma"), log_sigma, rtol=1e-10, atol=1e-12)
    assert np.allclose(posterior.parameters(rows)["sigma"], np.exp(log_sigma), rtol=1e-10)
    graph = SubspacePosterior(bundle, draws, onnx_engine(tmp_path / "bundle" / "predictor.onnx"))
    assert np.allclose(graph.predictor(rows), eta, rtol=1e-10)
    assert np.allclose(graph.predictor(rows, "sigma"), log_sigma, rtol=1e-10, atol=1e-12)


# ----------------------------------------------------------------------------- runs in PyTorch


@pytest.fixture(scope="module")
def free(data, tmp_path_factory):
    """A run whose convolutional layers are Bayesian, with its table, images and bundle."""
    folder = tmp_path_factory.mktemp("free")
    shutil.copytree(data[0], folder / "data")
    config = config_of(folder / "data", network__frozen=0, sample=ELLIPTICAL)
    return fit_model(config, out=folder / "run")


@pytest.fixture(scope="module")
def laplace(data, tmp_path_factory):
    """A run behind constant convolutional layers."""
    folder = tmp_path_factory.mktemp("laplace")
    return fit_model(config_of(data[0], sample=LAPLACE), out=folder / "run")


def whole_by_hand(bundle, draws, z):
    """Draws of a convolutional network's output for standardised images, by PyTorch's modules."""
    w = bundle.subspace.lift(draws.flat(draws.phi))
    each = [
        head_by_hand(one[None, 30:], convolutions((1, 8, 8), [3], one[:30])(z), [4]) for one in w
    ]
    return np.concatenate(each)


@pytest.mark.lengthy
def test_bayesian_convolutional_layers_have_no_program(free):
    path = free.run.path
    program = (path / "program.stan").read_text()
    assert program == (
        "// The network 1x8x8-conv3-4-1 is computed by PyTorch alone: it has no Stan program.\n"
    )
    assert json.loads((path / "data.json").read_text()) == {}
    assert free.run.bundle.network.parts == (Convolutional((1, 8, 8), (3,), (4,)),)
    assert free.run.bundle.subspace.d == 30 + 27 * 4 + 4 + 5
    assert len(free.run.bundle.trained.w_frozen) == 0


@pytest.mark.lengthy
def test_its_draws_are_of_the_density_of_pytorchs_modules(data, free):
    """The log prior and log-likelihood of each draw, but for single precision."""
    bundle, draws, frame = free.run.bundle, free.posterior.members[0].draws, data[1]
    units = bundle.units
    f = whole_by_hand(bundle, draws, standardised(data[2]))
    age = frame["age"].to_numpy() - frame["age"].mean()
    eta = units.eta_loc + units.eta_scale * f + draws.flat(draws.theta) * age
    found = posterior_linpred(free.posterior, free.run.rows())
    assert np.allclose(found, eta, rtol=1e-5)
    sigma = draws.flat(draws.dispersion["sigma"])[:, None]
    normal = torch.distributions.Normal(torch.tensor(eta), torch.tensor(sigma))
    expected = normal.log_prob(torch.tensor(frame["y"].to_numpy())).numpy()
    assert np.allclose(log_lik(free.posterior, free.run.rows()), expected, rtol=1e-5)


@pytest.mark.lengthy
def test_a_run_needs_no_images(data, new, free, tmp_path, monkeypatch):
    table = semistan.predict(free.run, read_table(new[0] / "table.csv"))
    moved = shutil.move(shutil.copytree(free.run.path.parent, tmp_path / "copy"), tmp_path / "m")
    shutil.rmtree(moved / "data")
    monkeypatch.chdir(tmp_path)
    run = read_run(moved / "run")
    again = read_fitted(moved / "run")
    assert again.summary.table().equals(free.summary.table())
    assert np.array_equal(run.rows().U, data[2].reshape(40, 64))
    assert run.table()["path"][0].dtype == np.uint8  # no more than a file has
    assert "1x8x8-conv3-4-1, tanh" in repr(run)
    frame = read_table(new[0] / "table.csv")
    assert semistan.predict(run, frame).equals(table)
    by_graph = semistan.predict(run, frame, engine="onnx")
    assert np.allclose(by_graph.to_numpy(float), table.to_numpy(float), rtol=1e-6)
    assert len(semistan.predict(run, run.table()[:3])) == 3


@pytest.mark.lengthy
@pytest.mark.parametrize("which", ["free", "laplace"])
def test_the_command_line_predicts_new_images(which, new, request, monkeypatch, capsys):
    fit = request.getfixturevalue(which)
    command = command_in(new[0].parent, monkeypatch, capsys)
    code, _, err = command(
        "predict", fit.run.path, "--newdata", new[0] / "table.csv", "--out", new[0] / f"{which}.csv"
    )
    assert code == 0, err
    expected = semistan.predict(fit.run, read_table(new[0] / "table.csv"))
    written = pd.read_csv(new[0] / f"{which}.csv")
    assert np.allclose(written.to_numpy(float), expected.to_numpy(float), rtol=1e-6)


@pytest.mark.lengthy
@pytest.mark.parametrize("which", ["free", "laplace"])
def test_a_run_is_reported_scored_and_explained(which, request, tmp_path):
    fit = request.getfixturevalue(which)
    semistan.report(fit.run, tmp_path / "report.html")
    assert "conv3" in (tmp_path / "report.html").read_text()
    assert np.isfinite(semistan.score(fit.run, fit.run.table())["Estimate"]).all()
    assert subspace_measures(fit.run.bundle, fit.run.rows())["value"].notna().all()
    marginal = slopes(fit.run)
    assert list(marginal["term"]) == ["age"]  # an image has no slope
    plot_subspace(fit.run)


@pytest.mark.lengthy
@pytest.mark.parametrize("which", ["free", "laplace"])
def test_images_are_permuted_for_their_importance(which, data, request):
    fit = request.getfixturevalue(which)
    table = semistan.importance(fit.run, repeats=2, seed=5).set_index("term")
    assert set(table.index) == {"age", "path"}
    rows, generator = fit.run.rows(), np.random.default_rng(5)
    intact = log_lik(fit.posterior, rows).mean(axis=1)
    losses = []
    for _ in range(2):
        shuffled = replace(rows, U=rows.U[generator.permutation(40)])
        losses.append(intact - log_lik(fit.posterior, shuffled).mean(axis=1))
    assert table.loc["path", "Estimate"] == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.lengthy
def test_importance_reads_new_images(new, laplace):
    folder, frame, images = new
    by_paths = semistan.importance(laplace.run, read_table(folder / "table.csv"))
    assert by_paths.equals(semistan.importance(laplace.run, with_arrays(frame, images)))


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "asked",
    [
        lambda run: slopes(run, ["path"]),
        lambda run: semistan.effect(run, "path"),
        lambda run: semistan.effect(run, "path", kind="conditional"),
        lambda run: semistan.effect(run, ["age", "path"]),
        lambda run: semistan.effect(run, "age", kind="conditional", at={"path": "3"}),
    ],
    ids=["marginal", "dependence", "conditional", "of two", "at"],
)
def test_an_image_has_no_effect_of_its_own(laplace, asked):
    with pytest.raises(InputError, match=r"'path'.*image"):
        asked(laplace.run)


@pytest.mark.lengthy
def test_other_columns_have_effects_beside_images(data, laplace):
    posterior, table = laplace.posterior, laplace.run.table()
    found = semistan.effect(laplace.run, "age", rows=40, resolution=2)
    ends = found.grid["age"].to_numpy()
    for g, value in enumerate(ends):
        rows = new_rows(laplace.run.bundle, table.assign(age=value))
        expected = posterior_epred(posterior, rows).mean(axis=1)
        assert np.allclose(found.draws[:, g], expected, rtol=1e-9)
    images = data[2].astype(float)
    distances = [np.linalg.norm(image - images.mean(axis=0)) for image in images]
    typical = images[np.argmin(distances)]
    found = semistan.effect(laplace.run, "age", kind="conditional", resolution=2)
    table = pd.DataFrame({"age": ends, "path": [typical, typical]})
    rows = new_rows(laplace.run.bundle, table)
    assert np.allclose(found.draws, posterior_epred(posterior, rows), rtol=1e-9)


@pytest.mark.lengthy
def test_constant_layers_leave_a_program_and_its_data(laplace):
    program = (laplace.run.path / "program.stan").read_text()
    assert "matrix[N, Q] H;" in program
    assert json.loads((laplace.run.path / "data.json").read_text())["Q"] == 27
    assert "1x8x8-conv3-4-1, tanh, 1 frozen" in repr(laplace.run)


@pytest.mark.lengthy
def test_nothing_is_exported_that_stan_cannot_compute(free, monkeypatch, capsys, tmp_path):
    command = command_in(tmp_path, monkeypatch, capsys)
    write_bundle(free.run.bundle, tmp_path / "bundle")
    data = free.run.path.parent / "data" / "table.csv"
    code, _, err = command("stan", tmp_path / "bundle", "--data", data, "--out", tmp_path / "out")
    assert code != 0
    assert "Stan cannot compute the convolutional layers" in err


@pytest.mark.parametrize("method", ["meanfield", "pathfinder"])
def test_a_method_of_stan_is_refused_before_training(data, method, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train", None)
    config = config_of(data[0], network__frozen=0, sample=QUICK | {"method": method})
    message = f"convolutional layers of the network 1x8x8-conv3-4-1, as method '{method}' needs"
    with pytest.raises(InputError, match=message):
        fit_model(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.lengthy
@pytest.mark.parametrize("method", ["laplace", "mclmc", "elliptical-slice", "nuts"])
def test_methods_of_pytorch_sample_convolutional_layers(data, method, tmp_path):
    config = config_of(
        data[0], network__frozen=0, train__epochs=3, sample=QUICK | {"method": method}
    )
    fit = fit_model(config, out=tmp_path / "run")
    assert fit.run.options.method == {"nuts": "nuts-torch", "mclmc": "mclmc-torch"}.get(
        method, method
    )
    rows = fit.run.rows()
    assert np.isfinite(log_lik(fit.posterior, rows)).all()
    assert read_run(tmp_path / "run").bundle.sha256 == fit.run.bundle.sha256


@pytest.mark.lengthy
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_every_construction_spans_a_subspace_of_convolutional_layers(data, construction):
    settings = {
        "subspace__construction": construction, "subspace__snapshots": 4, "subspace__k": 2,
        "network__frozen": 0, "sample": ELLIPTICAL,
    }  # fmt: skip
    bundle = train(prepared_of(data[0], **settings))
    d = 30 + 27 * 4 + 4 + 5
    assert bundle.subspace.d == bundle.network.d == d
    assert np.isfinite(bundle.trained.history["loss"]).all()
    assert np.isfinite(bundle.subspace.lift(np.zeros((1, bundle.subspace.k)))).all()


@pytest.mark.lengthy
@pytest.mark.parametrize("frozen", [0, 1])
def test_the_dimension_may_follow_from_a_budget(data, frozen, tmp_path):
    settings = {"subspace__k": "auto", "network__frozen": frozen, "sample": ELLIPTICAL}
    fit = fit_model(config_of(data[0], **settings), out=tmp_path / "run")
    subspace = fit.run.bundle.subspace
    assert subspace.d == 27 * 4 + 4 + 5 + (0 if frozen else 30)
    assert 3 < subspace.k <= subspace.d
    assert np.isfinite(log_lik(fit.posterior, fit.run.rows())).all()


def test_convolutional_layers_have_a_scale_each(data):
    settings = {
        "priors": {"sd_w": "lognormal(0, 0.7)"}, "subspace__construction": "full",
        "network__frozen": 0, "sample": {"method": "mclmc"},
    }  # fmt: skip
    scales = prepared_of(data[0], **settings).model.weight_scales
    assert scales.names == ("layer 1", "layer 2", "layer 3")
    assert scales.of.tolist() == [1] * 30 + [2] * (27 * 4 + 4) + [3] * 4 + [0]


@pytest.mark.lengthy
def test_several_subspaces_have_constant_layers_of_their_own(data, new, tmp_path):
    config = config_of(data[0], subspace__subspaces=2, train__seed=5, sample=LAPLACE)
    fit = fit_model(config, out=tmp_path / "run")
    first, second = (member.bundle for member in fit.run.members)
    assert not np.array_equal(first.trained.w_frozen, second.trained.w_frozen)
    alone = config_of(data[0], train__seed=6, sample=LAPLACE)
    assert train(prepare(alone)).sha256 == second.sha256
    rows = new_rows(fit.run.bundle, read_table(new[0] / "table.csv"))
    mixture = posterior_linpred(fit.posterior, rows)
    members = [posterior_linpred(member, rows) for member in fit.posterior.members]
    assert np.array_equal(mixture, np.concatenate(members))
    again = read_run(tmp_path / "run")
    assert semistan.predict(again, read_table(new[0] / "table.csv")).shape[0] == 7


@pytest.mark.lengthy
def test_each_fold_trains_its_own_constant_layers(data, tmp_path):
    fit = fit_model(config_of(data[0], sample=LAPLACE), out=tmp_path / "run")
    found = semistan.kfold(fit.run, folds=2, seed=5, save_fits=True)
    assert np.isfinite(found.rows.lpd).all()
    one, two = (read_run(tmp_path / "run" / "kfold" / f"fold-{i}" / "run") for i in (1, 2))
    images = data[2]
    for fold, run in ((1, one), (2, two)):
        seen = images[found.fold != fold]
        assert run.bundle.design.networks[0].means == pytest.approx([seen.mean()], rel=1e-12)
        by_hand = prepare(config_of(None), with_arrays(data[1], images)[found.fold != fold])
        assert np.array_equal(train(by_hand).trained.w_frozen, run.bundle.trained.w_frozen)
    assert not np.array_equal(one.bundle.trained.w_frozen, two.bundle.trained.w_frozen)


@pytest.mark.lengthy
def test_folds_may_follow_a_column_that_stands_beside_the_paths(data, tmp_path):
    fit = fit_model(config_of(data[0], sample=LAPLACE), out=tmp_path / "run")
    found = semistan.kfold(fit.run, folds=2, group="flag")
    assert len(set(zip(found.fold, data[1]["flag"], strict=True))) == 2


@pytest.mark.lengthy
def test_a_bernoulli_run_classifies_new_images(data, new, tmp_path):
    formula = FORMULA.replace("y ~", "flag ~")
    settings = {"family": "bernoulli", "train__epochs": 200, "sample": LAPLACE}
    fit = fit_model(config_of(data[0], formula, **settings), out=tmp_path / "run")
    table = semistan.predict(fit.run, read_table(new[0] / "table.csv"))
    assert table["Estimate"].between(0, 1).all()
    _, bright = pixels(7, seed=9)
    assert np.corrcoef(table["Estimate"], bright)[0, 1] > 0.7


# ----------------------------------------------------------------------------- CmdStan


@pytest.mark.lengthy
def test_nuts_draws_behind_constant_layers(data, new, toolchain, tmp_path):
    config = config_of(
        data[0], train__epochs=100,
        sample={"chains": 2, "warmup": 100, "draws": 100, "seed": 3},
    )  # fmt: skip
    fit = fit_model(config, out=tmp_path / "run")
    bundle, rows = fit.run.bundle, fit.run.rows()
    for kernel in ("stan", "cpp"):
        compiled = compile_program(bundle_program(bundle, kernel), toolchain, kernel)
        assert kernel_failure(bundle, rows, compiled.executable) is None
    H = convolutions((1, 8, 8), [3], bundle.trained.w_frozen)(standardised(data[2]))
    content = json.loads((fit.run.path / "data.json").read_text())
    assert np.allclose(content["U"], H, rtol=1e-11, atol=1e-12)
    draws, units, frame = fit.posterior.members[0].draws, bundle.units, data[1]
    h = (H - bundle.trained.h_loc) / bundle.trained.h_scale
    f = head_by_hand(bundle.subspace.lift(draws.flat(draws.phi)), h, [4])
    age = frame["age"].to_numpy() - frame["age"].mean()
    eta = units.eta_loc + units.eta_scale * f + draws.flat(draws.theta) * age
    assert np.allclose(posterior_linpred(fit.posterior, rows), eta, rtol=1e-9)
    table = semistan.predict(fit.run, read_table(new[0] / "table.csv"))
    by_graph = semistan.predict(fit.run, read_table(new[0] / "table.csv"), engine="onnx")
    assert np.allclose(by_graph.to_numpy(float), table.to_numpy(float), rtol=1e-9)
    assert np.abs(table["Estimate"] - new[1]["y"]).mean() < 0.7 * np.abs(
        new[1]["y"] - frame["y"].mean()
    ).mean()  # fmt: skip
