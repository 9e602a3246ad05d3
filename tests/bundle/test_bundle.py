import json
import zipfile
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

from semistan.bundle import bundle as module
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.onnx_graphs import run_graph
from semistan.errors import InputError, SemistanError
from semistan.model.bundle import arrays_hash, bundle_arrays
from semistan.model.names import MU
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.networks import forward
from semistan.workflow.prepare import new_rows
from support.agreement import behind_constant_layers
from support.sealed import rewrite
from support.small import RESPONSES, family_bundle, small_bundle, small_frame

FILES = {"bundle.json", "arrays.npz", "network.onnx", "predictor.onnx"}
STATEFUL = "y ~ poly(x, 2) + C(g) + nn(u, scale(v))"


@pytest.fixture
def written(tmp_path):
    bundle, _ = small_bundle(STATEFUL)
    write_bundle(bundle, tmp_path / "bundle")
    return bundle, tmp_path / "bundle"


def numbers(bundle):
    return bundle_arrays(bundle)


def edit(path, **changes):
    rewrite(path, lambda content: content | changes)


def edit_array(path, name, change):
    with np.load(path / "arrays.npz") as file:
        arrays = dict(file)
    arrays[name] = change(arrays[name])
    np.savez(path / "arrays.npz", **arrays)


def test_a_bundle_is_one_folder_of_four_files(written):
    assert {path.name for path in written[1].iterdir()} == FILES
    assert {path.name for path in written[1].parent.iterdir()} == {"bundle"}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_bundle_is_read_back_bit_by_bit(name, tmp_path):
    bundle, rows = family_bundle(name, "poly(x, 2) + C(g) + nn(u, scale(v))", network__frozen=1)
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    first, second = numbers(bundle), numbers(again)
    assert first.keys() == second.keys()
    for key, array in first.items():
        assert array.tobytes() == second[key].tobytes(), key
        assert array.shape == second[key].shape, key
    assert (again.config, again.versions) == (bundle.config, bundle.versions)
    assert again.trained.dispersion == bundle.trained.dispersion
    assert again.trained.arc_length == bundle.trained.arc_length
    assert (again.units.eta_loc, again.units.eta_scale) == (
        bundle.units.eta_loc,
        bundle.units.eta_scale,
    )
    assert vars_of(again.source) == vars_of(bundle.source)
    assert again.sha256 == bundle.sha256
    applied = new_rows(again, small_frame(), response=True)
    assert np.array_equal(applied.X, rows.X)
    assert np.array_equal(applied.U, rows.U)


def vars_of(source):
    return source.path, source.rows, source.dropped


def test_writing_twice_gives_the_same_hash_and_the_same_json(written, tmp_path):
    write_bundle(read_bundle(written[1]), tmp_path / "again")
    assert (tmp_path / "again/bundle.json").read_bytes() == (
        written[1] / "bundle.json"
    ).read_bytes()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("p_bar", lambda a: np.nextafter(a, np.inf)),
        ("Pi", lambda a: -a),
        ("Pi", lambda a: a.reshape(a.shape[::-1])),
        ("theta", lambda a: a[::-1]),
        ("u_scale", lambda a: a * 2),
        ("history_loss", lambda a: a + 1),
    ],
)
def test_a_changed_array_is_detected(written, name, change):
    edit_array(written[1], name, change)
    with pytest.raises(InputError, match="does not match its hash"):
        read_bundle(written[1])


def test_a_newer_format_is_refused(written):
    edit(written[1], format_version=module.FORMAT_VERSION + 1)
    with pytest.raises(InputError, match="upgrade semistan"):
        read_bundle(written[1])


def test_a_design_of_another_version_is_called_so(written):
    content = json.loads((written[1] / "bundle.json").read_text())
    del content["design"]["networks"]
    edit(written[1], design=content["design"])
    with pytest.raises(InputError, match="lacks 'networks': another version"):
        read_bundle(written[1])


@pytest.mark.parametrize("make", [lambda _: None, lambda p: p.mkdir(), lambda p: p.write_text("")])
def test_what_is_no_bundle_is_refused(make, tmp_path):
    make(tmp_path / "x")
    with pytest.raises(InputError, match="is not a bundle"):
        read_bundle(tmp_path / "x")


def truncate(path, name):
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: truncate(path, "arrays.npz"),
        lambda path: truncate(path, "bundle.json"),
        lambda path: (path / "arrays.npz").write_bytes(b""),
        lambda path: (path / "arrays.npz").unlink(),
        lambda path: (path / "bundle.json").write_text("[]"),
        lambda path: (path / "bundle.json").write_text("{}"),
    ],
    ids=["half arrays", "half json", "empty arrays", "no arrays", "a list", "an empty object"],
)
def test_a_damaged_bundle_is_an_error_in_words(written, damage):
    damage(written[1])
    with pytest.raises(InputError):
        read_bundle(written[1])


def test_pickled_arrays_are_never_loaded(written):
    content = {"p_bar": np.array([{"a": 1}], dtype=object)}
    np.savez(written[1] / "arrays.npz", allow_pickle=True, **content)
    rewrite(written[1])
    with pytest.raises(InputError, match="holds object, expected numbers"):
        read_bundle(written[1])


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("step", ["_write_graphs", "write_record", "network_graph"])
def test_nothing_half_written_remains_when_writing_fails(old, step, tmp_path, monkeypatch):
    bundle, _ = small_bundle()
    if old:
        write_bundle(small_bundle(train__seed=5)[0], tmp_path / "bundle")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(module, step, fail)
    with pytest.raises(SemistanError, match="disk full"):
        write_bundle(bundle, tmp_path / "bundle", overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == (["bundle"] if old else [])


def test_an_older_bundle_is_replaced(written):
    other, _ = small_bundle("y ~ nn(u, v)")
    write_bundle(other, written[1], overwrite=True)
    assert read_bundle(written[1]).config.formula == "y ~ nn(u, v)"


def test_a_foreign_folder_is_never_replaced(tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    with pytest.raises(InputError, match="not written by semistan"):
        write_bundle(small_bundle()[0], folder, overwrite=True)
    assert (folder / "chapter.tex").read_text() == "years of work"


def test_a_graph_that_does_not_reproduce_the_network_is_not_written(tmp_path, monkeypatch):
    bundle, _ = small_bundle()
    output = module.network_output
    monkeypatch.setattr(module, "network_output", lambda *a: output(*a) * (1 + 1e-8))
    with pytest.raises(SemistanError, match=r"network\.onnx does not reproduce"):
        write_bundle(bundle, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def torch_network(bundle, w, U):
    units = bundle.units
    inputs = torch.tensor((U - units.u_loc) / units.u_scale)
    h = behind_constant_layers(bundle, inputs)
    return forward(bundle.network, torch.tensor(w), h).numpy()


def check_graphs(bundle, folder):
    """Both graphs against torch: sizes, shapes and values, for inputs of the test's own."""
    write_bundle(bundle, folder)
    generator, units, N, S = np.random.default_rng(5), bundle.units, 7, 4
    P, k = len(units.x_loc), bundle.subspace.k
    U = units.u_loc + 2 * units.u_scale * generator.normal(size=(N, len(units.u_loc)))
    X = units.x_loc + units.x_scale * generator.normal(size=(N, P))
    phi, theta = generator.normal(size=(S, k)), generator.normal(size=(S, P))
    w = bundle.subspace.p_bar + phi @ bundle.subspace.Pi.T
    (f,) = run_graph(folder / "network.onnx", {"u": U, "w": w[0]})
    (eta,) = run_graph(folder / "predictor.onnx", {"u": U, "x": X, "phi": phi, "theta": theta})
    expected = torch_network(bundle, w, U)
    scale = np.abs(expected).max()
    assert (f.shape, eta.shape) == ((N,), (S, N))
    assert np.abs(f - expected[0]).max() < 1e-9 * scale
    predictor = units.eta_loc + units.eta_scale * expected
    predictor += np.einsum("sp,np->sn", theta, X - units.x_loc)
    assert np.abs(eta - predictor).max() < 1e-9 * np.abs(predictor).max()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("hidden", "frozen"), [([], 0), ([3], 0), ([3], 1), ([3, 2], 1), ([3, 2, 4, 2], 0),
                           ([3, 2, 4, 2], 2), ([3, 2, 4, 2], 4)],
)  # fmt: skip
def test_both_graphs_are_torchs_network(activation, hidden, frozen, tmp_path):
    settings = {
        "network__activation": activation,
        "network__hidden": hidden,
        "network__frozen": frozen,
        "train__epochs": 1,
    }
    check_graphs(small_bundle(**settings)[0], tmp_path / "bundle")


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("predictors", ["nn(u, v)", "nn(u)", "x + nn(u)", "C(g) + nn(poly(u, 3))"])
@pytest.mark.parametrize("frozen", [0, 1])
def test_both_graphs_hold_for_any_number_of_columns(name, predictors, frozen, tmp_path):
    bundle, rows = family_bundle(name, predictors, network__frozen=frozen)
    check_graphs(bundle, tmp_path / "bundle")
    assert read_bundle(tmp_path / "bundle").trained.theta.shape == rows.X.shape[1:]


def test_the_graphs_declare_their_inputs_and_outputs(written):
    sessions = {
        name: onnxruntime.InferenceSession(str(written[1] / f"{name}.onnx"))
        for name in ("network", "predictor")
    }
    inputs = {name: [(i.name, i.type) for i in s.get_inputs()] for name, s in sessions.items()}
    outputs = {name: [o.name for o in s.get_outputs()] for name, s in sessions.items()}
    double = "tensor(double)"
    assert inputs == {
        "network": [("u", double), ("w", double)],
        "predictor": [("u", double), ("x", double), ("phi", double), ("theta", double)],
    }
    assert outputs == {"network": ["f"], "predictor": ["eta"]}


def test_the_hash_depends_on_every_array():
    bundle, _ = small_bundle()
    trained = bundle.trained
    changed = [
        replace(trained, linear={MU: trained.theta + 1}),
        replace(trained, w_frozen=np.ones(1)),
        replace(trained, h_loc=np.ones(1), h_scale=np.ones(1)),
        replace(trained, h_loc=np.ones(1), h_scale=2 * np.ones(1)),
        replace(trained, control_points=2 * trained.control_points),
    ]
    hashes = {bundle.sha256, *(replace(bundle, trained=item).sha256 for item in changed)}
    assert len(hashes) == 6


def test_the_arrays_are_plain_numpy(written):
    with zipfile.ZipFile(written[1] / "arrays.npz") as file:
        assert {"p_bar.npy", "Pi.npy", "control_points.npy", "theta.npy"} <= set(file.namelist())


@pytest.mark.parametrize("lost", ["phi_scale", "p_bar", "u_loc"])
def test_a_bundle_of_another_version_is_refused(tmp_path, lost):
    bundle, _ = small_bundle()
    write_bundle(bundle, tmp_path / "bundle")
    with np.load(tmp_path / "bundle" / "arrays.npz") as file:
        arrays = {name: file[name] for name in file.files if name != lost}
    np.savez(tmp_path / "bundle" / "arrays.npz", **arrays)
    edit(tmp_path / "bundle", sha256=arrays_hash(arrays))
    with pytest.raises(InputError, match=f"lacks '{lost}'.*train the model anew"):
        read_bundle(tmp_path / "bundle")
