"""A training that was interrupted goes on to the bytes it would have had."""

import pytest

from semistan.errors import SemistanError
from semistan.model.bundle import arrays_hash, bundle_arrays
from semistan.subspace import checkpoint
from semistan.workflow.train import checkpoint_file, goes_on, train, warn_of_damage
from support.small import small_prepared

pytestmark = pytest.mark.lengthy
SETTINGS = {"train__epochs": 40, "train__batch_size": 7, "network__hidden": [4]}


class Stopped(Exception):
    pass


def stopping(after):
    """Return a progress callback that stops training at its ``after``-th call."""
    calls = []

    def progress(*_):
        calls.append(1)
        if len(calls) == after:
            raise Stopped

    return progress, calls


def prepared_with(construction, **settings):
    return small_prepared(subspace__construction=construction, **{**SETTINGS, **settings})


@pytest.mark.parametrize("after", [1, 23])
@pytest.mark.parametrize("construction", ["bezier", "curve", "pca"])
def test_an_interrupted_training_has_the_same_bytes(construction, after, tmp_path, monkeypatch):
    """Epochs before the last state that was kept are not done again."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    prepared, file = prepared_with(construction), checkpoint_file(tmp_path / "run")
    whole, count = stopping(10**6)
    expected = bundle_arrays(train(prepared, whole))
    progress, _ = stopping(after)
    with pytest.raises(Stopped):
        train(prepared, progress, checkpoint=file)
    assert goes_on(prepared, file) == (after > 1)
    again, repeated = stopping(10**6)
    found = bundle_arrays(train(prepared, again, checkpoint=file))
    assert arrays_hash(found) == arrays_hash(expected)
    assert len(repeated) == len(count) - (after - 1)


@pytest.mark.parametrize(
    "change", [{"train__seed": 4}, {"train__learning_rate": 0.02}, {"network__hidden": [5]}]
)
def test_nothing_is_taken_of_another_training(change, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    file = checkpoint_file(tmp_path / "run")
    train(prepared_with("bezier"), checkpoint=file)
    other = prepared_with("bezier", **change)
    assert not goes_on(other, file)
    found = bundle_arrays(train(other, checkpoint=file))
    assert arrays_hash(found) == arrays_hash(bundle_arrays(train(other)))


def test_a_damaged_file_is_not_taken(tmp_path):
    prepared, file = prepared_with("bezier"), checkpoint_file(tmp_path / "run")
    file.write_bytes(b"PK\x03\x04 half of a file")
    assert not goes_on(prepared, file)
    found = bundle_arrays(train(prepared, checkpoint=file))
    assert arrays_hash(found) == arrays_hash(bundle_arrays(train(prepared)))


def test_a_changed_byte_is_noticed_and_the_training_begins_anew(tmp_path, monkeypatch):
    """Also one of a weight, which the state's own form would not tell."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    prepared, file = prepared_with("bezier"), checkpoint_file(tmp_path / "run")
    with pytest.raises(Stopped):
        train(prepared, stopping(23)[0], checkpoint=file)
    whole, said = file.read_bytes(), []
    assert goes_on(prepared, file)
    file.write_bytes(whole[:-900] + bytes([whole[-900] ^ 16]) + whole[-899:])
    assert not goes_on(prepared, file)
    warn_of_damage(file, said.append)
    assert not file.exists()
    aside = f"set aside as {file.name}.damaged; the training begins anew"
    assert said == [f"warning: '{file}' does not match the hash in it: {aside}"]
    found = bundle_arrays(train(prepared, checkpoint=file))
    assert arrays_hash(found) == arrays_hash(bundle_arrays(train(prepared)))


def test_a_training_that_fails_leaves_nothing(tmp_path):
    def diverging(epoch, *_):
        if epoch == 5:
            raise SemistanError("training diverged")

    with pytest.raises(SemistanError):
        train(prepared_with("bezier"), diverging, checkpoint=checkpoint_file(tmp_path / "run"))
    assert not list(tmp_path.iterdir())
