"""Bundles that somebody has changed and sealed again: read, or refused by an error of ours."""

import copy
import json
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistan.bundle.bundle import MARKER, read_bundle, write_bundle
from semistan.bundle.seal import FILES, SEAL, stamps_of, write_record
from semistan.errors import InputError, SemistanError
from semistan.model.bundle import arrays_hash
from semistan.posterior.engine import onnx_engine
from semistan.posterior.run import read_run
from semistan.program.program import bundle_program
from semistan.workflow.prepare import training_rows
from support.small import small_bundle, small_frame

CALM = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
FEW, MANY = settings(CALM, max_examples=10), settings(CALM, max_examples=200)
VALUES = st.sampled_from(
    [None, True, 0, 1, -1, 2.5, 10**30, "", "x", "../../etc/passwd", "I(open('a', 'w'))", "a\0b",
     [], {}, ["x"], [1, 2], {"x": 1}, [[]], "normal(0, 1)", "</script>", "http://127.0.0.1:9/a.csv"]
)  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    small_frame().to_csv(folder / "data.csv", index=False)
    bundle, _ = small_bundle("y ~ x + C(g) + s(v, k=4) + (1 | g) + nn(u), sigma ~ x")
    write_bundle(bundle, folder / "bundle")
    return folder / "bundle"


@pytest.fixture
def bundle_folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "bundle")


def places(value, path=()):
    """Return the path of every value in a tree of JSON."""
    listed = dict(enumerate(value)) if isinstance(value, list) else value
    inner = listed.items() if isinstance(listed, dict) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def changed(content, place, value, *, remove):
    content = copy.deepcopy(content)
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    if remove:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return content


def sealed(folder, content):
    """Write a record as its author would have, with the hashes of what is there."""
    write_record(folder / MARKER, content, stamps_of(folder))


def used(folder):
    """Read a bundle and use it; return whether it was accepted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            bundle = read_bundle(folder)
            bundle_program(bundle)
            training_rows(bundle, folder.parent / "data.csv")
        except SemistanError as error:
            assert str(error)
            return False
        return True


def content_of(folder):
    content = json.loads((folder / MARKER).read_text())
    return {key: value for key, value in content.items() if key not in (FILES, SEAL)}


def try_changes(original, tmp, options):
    content, accepted = content_of(original), []
    (tmp / "data.csv").write_bytes((original.parent / "data.csv").read_bytes())
    folder = shutil.copytree(original, tmp / "bundle")

    @options
    @given(st.sampled_from(places(content)[1:]), VALUES, st.booleans())
    def each(place, value, remove):
        (folder / MARKER).unlink()
        sealed(folder, changed(content, place, value, remove=remove))
        accepted.append(used(folder))

    each()
    return accepted


@pytest.mark.lengthy
def test_a_changed_record_is_read_or_refused(original, tmp_path):
    assert used(original)
    try_changes(original, tmp_path, FEW)


@pytest.mark.lengthy
def test_many_changed_records_are_read_or_refused(original, tmp_path):
    accepted = try_changes(original, tmp_path, MANY)
    assert True in accepted
    assert False in accepted


@pytest.mark.parametrize("change", [
    lambda a: a | {"Pi": a["Pi"] * np.nan},
    lambda a: a | {"Pi": a["Pi"][:-1]},
    lambda a: a | {"p_bar": np.zeros(0)},
    lambda a: a | {"phi_scale": a["phi_scale"] * 0},
    lambda a: a | {"theta": np.append(a["theta"], 1.0)},
    lambda a: a | {"axes": np.array([10**15])},
    lambda a: a | {"axes": np.array([0.5])},
    lambda _: {},
])  # fmt: skip
def test_changed_arrays_are_refused(bundle_folder, change):
    with np.load(bundle_folder / "arrays.npz") as file:
        arrays = change(dict(file))
    np.savez(bundle_folder / "arrays.npz", **arrays)
    content = content_of(bundle_folder) | {"sha256": arrays_hash(arrays)}
    (bundle_folder / MARKER).unlink()
    sealed(bundle_folder, content)
    with pytest.raises(InputError):
        read_bundle(bundle_folder)


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:9/a.csv", "s3://a/b.csv", "file:///etc/passwd", "/dev/zero", "-"]
)
def test_the_table_of_a_bundle_is_never_fetched(bundle_folder, place, monkeypatch):
    def connect(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", connect)
    content = content_of(bundle_folder)
    content["source"]["path"] = place
    (bundle_folder / MARKER).unlink()
    sealed(bundle_folder, content)
    bundle = read_bundle(bundle_folder)
    with pytest.raises(InputError):
        training_rows(bundle)


@pytest.mark.parametrize("name", ["bundle.json", "arrays.npz", "predictor.onnx"])
def test_a_bundle_with_a_link_is_refused(bundle_folder, name, tmp_path):
    (bundle_folder / name).rename(tmp_path / name)
    (bundle_folder / name).symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="is a link"):
        read_bundle(bundle_folder)


def test_a_run_with_a_link_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "chains").symlink_to(tmp_path)
    with pytest.raises(InputError, match="chains' is a link"):
        read_run(tmp_path / "run")


def test_a_damaged_graph_of_a_bundle_is_refused(bundle_folder):
    path = bundle_folder / "predictor.onnx"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="is damaged"):
        onnx_engine(path)
