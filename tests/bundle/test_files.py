import errno
import hashlib
import json
import os
import stat
import subprocess
import sys

import pytest

from semistan.bundle.files import (
    atomic_file,
    atomic_folder,
    check_output_file,
    check_output_folder,
    read_json,
    remove_leftovers,
    sha256_file,
    temporary_prefix,
    write_json,
)
from semistan.errors import InputError, SemistanError, file_error


class Failure(Exception):
    pass


def tree(path):
    return {
        str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in path.rglob("*")
    }


@pytest.mark.parametrize("old", [None, "old"])
def test_a_file_appears_whole(old, tmp_path):
    path = tmp_path / "new" / "a.txt"
    if old:
        path.parent.mkdir()
        path.write_text(old)
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert (path.read_text() if old else path.exists()) == (old or False)
    assert tree(tmp_path) == {"new": None, "new/a.txt": b"new"}


@pytest.mark.parametrize("old", [None, "old"])
def test_a_failure_leaves_the_old_file(old, tmp_path):
    path = tmp_path / "a.txt"
    if old:
        path.write_text(old)
    before = tree(tmp_path)
    with pytest.raises(Failure), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise Failure
    assert tree(tmp_path) == before


def test_a_temporary_file_keeps_the_suffix_for_libraries_that_add_one(tmp_path):
    with atomic_file(tmp_path / "a.npz") as temporary:
        assert temporary.suffix == ".npz"
        assert temporary.parent == tmp_path


@pytest.mark.parametrize("old", [False, True])
def test_a_folder_appears_whole(old, tmp_path):
    path = tmp_path / "deep" / "run"
    if old:
        path.mkdir(parents=True)
        (path / "old").write_text("old")
    with atomic_folder(path) as temporary:
        (temporary / "new").write_text("new")
        assert path.exists() == old
    assert tree(tmp_path) == {"deep": None, "deep/run": None, "deep/run/new": b"new"}


@pytest.mark.parametrize("old", [False, True])
def test_a_failure_leaves_the_old_folder(old, tmp_path):
    path = tmp_path / "run"
    if old:
        path.mkdir()
        (path / "old").write_text("old")
    before = tree(tmp_path)
    with pytest.raises(Failure), atomic_folder(path) as temporary:
        (temporary / "half").write_text("half")
        raise Failure
    assert tree(tmp_path) == before


def test_what_is_written_can_be_read_by_others(tmp_path):
    with atomic_file(tmp_path / "a") as temporary:
        temporary.write_text("a")
    with atomic_folder(tmp_path / "b"):
        pass
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
    assert modes == [0o644, 0o755]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("make", [lambda _: None, lambda path: path.mkdir()])
def test_a_new_or_empty_folder_may_be_written(make, overwrite, tmp_path):
    make(tmp_path / "run")
    check_output_folder(tmp_path / "run", "manifest.json", overwrite=overwrite)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("a file"),
        lambda path: (path.mkdir(), (path / "thesis.tex").write_text("a")),
        lambda path: (path.mkdir(), (path / "manifest.json").mkdir()),
    ],
    ids=["a file", "a foreign folder", "a folder called like the marker"],
)
def test_what_is_foreign_is_never_replaced(make, overwrite, tmp_path):
    make(tmp_path / "run")
    with pytest.raises(InputError, match="was not written by semistan"):
        check_output_folder(tmp_path / "run", "manifest.json", overwrite=overwrite)


def test_a_folder_of_the_same_kind_is_replaced_only_when_told(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="--overwrite"):
        check_output_folder(tmp_path, "manifest.json", overwrite=False)
    check_output_folder(tmp_path, "manifest.json", overwrite=True)


def test_json_is_read_as_written(tmp_path):
    content = {"b": [1, 0.1, None, True], "a": "größe\n", "π": 1e-300}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert list(read_json(tmp_path / "a.json")) == list(content)


def test_json_without_a_meaning_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", float("nan"))
    assert not tree(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"{", "is damaged"),
        (b"", "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_unreadable_json_is_named(content, message, tmp_path):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_the_hash_of_a_file_is_its_sha256(tmp_path):
    content = json.dumps(list(range(10_000))).encode()
    (tmp_path / "a").write_bytes(content)
    assert sha256_file(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def refused_places(tmp_path):
    """Return places where no folder can be written, and words of their refusals."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    return {
        ".": "you are in",
        "..": "you are in",
        tmp_path / "link": "is a link",
        tmp_path / "dangling": "is a link",
        tmp_path / "file" / "run": "expected a folder",
        tmp_path / ("x" * 300): "shorter",
        tmp_path / ("x" * 300) / "run": "shorter",
        tmp_path / "circle" / "run": "circle",
    }


def test_places_that_cannot_be_written_are_refused_at_once(tmp_path, monkeypatch):
    places = refused_places(tmp_path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    before = tree(tmp_path)
    for place, words in places.items():
        with pytest.raises(InputError, match=words):
            check_output_folder(type(tmp_path)(place), "manifest.json", overwrite=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("check", [check_output_file, check_output_folder])
def test_a_read_only_place_is_refused(check, tmp_path, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkdtemp", read_only)
    arguments = () if check is check_output_file else ("manifest.json",)
    with pytest.raises(InputError, match="read-only") as caught:
        check(tmp_path / "run", *arguments, overwrite=False)
    assert str(tmp_path) in str(caught.value)


def test_a_folder_is_no_file_to_be_written(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        check_output_file(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, SemistanError, "free some"),
        (errno.EDQUOT, SemistanError, "free some"),
        (errno.EFBIG, SemistanError, "ulimit -f"),
        (errno.EROFS, InputError, "read-only"),
        (errno.EACCES, InputError, "permission"),
    ],
)
def test_what_the_system_refuses_is_said_with_the_path(number, kind, words, tmp_path):
    with pytest.raises(SemistanError, match=words) as caught, atomic_file(tmp_path / "a.txt"):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is kind
    assert str(tmp_path / "a.txt") in str(caught.value)
    assert not tree(tmp_path)


def test_a_number_that_is_in_the_text_alone_is_read():
    error = OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left")
    assert "no space is left" in str(file_error(error, "a.parquet"))


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    """It is known by the number of its process."""
    code = (
        "import os, sys, tempfile; from semistan.bundle.files import temporary_prefix\n"
        "for name in ('run', 'other'):\n"
        "    folder = tempfile.mkdtemp(dir=sys.argv[1], prefix=temporary_prefix(name))\n"
        "    open(os.path.join(folder, 'half'), 'w').close()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    living = tmp_path / f"{temporary_prefix('run')}abc"
    foreign = tmp_path / ".run.tmp"
    elsewhere = tmp_path / ".run.tmp-00000000-1-abc"
    for path in (living, foreign, elsewhere):
        path.mkdir()
    assert len(list(tmp_path.iterdir())) == 5
    remove_leftovers(tmp_path, "run")
    assert len(list(tmp_path.iterdir())) == 4
    check_output_folder(tmp_path / "other", "manifest.json", overwrite=False)
    assert set(tmp_path.iterdir()) == {living, foreign, elsewhere}
