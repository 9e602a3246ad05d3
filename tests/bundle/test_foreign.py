"""Files that somebody else made: refused in our words, before any memory is taken."""

import gzip
import io
import os
import struct
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest

from semistan.bundle.foreign import (
    check_memory,
    check_no_links,
    check_plain,
    check_text_size,
    read_arrays,
    read_parquet,
    unpack,
)
from semistan.errors import InputError


def array_file(values=None, *, header=None):
    """The bytes of a .npy file; ``header`` takes the place of the true one."""
    file = io.BytesIO()
    if header is None:
        np.lib.format.write_array(file, np.arange(3.0) if values is None else values)
    else:
        text = (header + "\n").encode("latin1")
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(24))
    return file.getvalue()


def archive(path, *members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def test_arrays_that_numpy_wrote_are_read(tmp_path):
    path = tmp_path / "a.npz"
    table = np.arange(6.0).reshape(2, 3)
    given = {
        "a": table,
        "empty": np.zeros((0, 4)),
        "n": np.array([1, 2]),
        "fortran": np.asfortranarray(table),
        "flag": np.array(True),
    }
    np.savez(path, **given)
    found = read_arrays(path)
    assert found.keys() == given.keys()
    for name, values in given.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype


CLAIMS = {
    "terabytes": "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "more than there is": "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }",
    "twice negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -3), }",
    "no numbers": "{'descr': '<U2', 'fortran_order': False, 'shape': (3,), }",
    "pickles": "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    "records": "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,), }",
    "no header": "import os",
    "deep": "(" * 5000,
    "digits": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",), }",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_an_array_that_claims_what_it_has_not_is_refused(tmp_path, claim):
    path = archive(tmp_path / "a.npz", ("a.npy", array_file(header=CLAIMS[claim])))
    sized = claim in ("terabytes", "more than there is", "twice negative")
    with pytest.raises(InputError, match="claims the shape" if sized else "cannot be read"):
        read_arrays(path)


def test_compressed_and_repeated_members_are_refused(tmp_path):
    bomb = array_file(np.zeros(1_000_000))
    path = archive(tmp_path / "a.npz", ("a.npy", bomb), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="compressed"):
        read_arrays(path)
    with pytest.warns(UserWarning, match="Duplicate"):
        path = archive(tmp_path / "b.npz", ("a.npy", array_file()), ("a.npy", array_file()))
    with pytest.raises(InputError, match="twice"):
        read_arrays(path)


@pytest.mark.parametrize("name", ["../a.npy", "/etc/a.npy", "a.pkl"])
def test_members_that_are_no_arrays_of_the_file_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="expected arrays alone"):
        read_arrays(archive(tmp_path / "a.npz", (name, array_file())))


@pytest.mark.parametrize("content", [b"", b"PK", array_file(), b"\x80\x04N.", bytes(1000)])
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(path, content=content)


def test_addresses_devices_and_pipes_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    for place in ("http://127.0.0.1/a.csv", "s3://a/b", "file:///etc/passwd", "a\0b", "a" * 5000,
                  "/dev/zero", tmp_path / "pipe", tmp_path / "circle"):  # fmt: skip
        with pytest.raises(InputError):
            check_plain(place)


def test_a_folder_with_a_link_anywhere_is_refused(tmp_path):
    inner = tmp_path / "run" / "chains"
    inner.mkdir(parents=True)
    (inner / "chain-1.csv").write_text("lp__\n")
    check_no_links(tmp_path / "run")
    (inner / "chain-2.csv").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match=r"chain-2\.csv' is a link"):
        check_no_links(tmp_path / "run")
    (inner / "chain-2.csv").unlink()
    os.mkfifo(inner / "chain-2.csv")
    with pytest.raises(InputError, match="pipe"):
        check_no_links(tmp_path / "run")


def test_a_compressed_text_may_not_unpack_to_very_much_more(tmp_path):
    bomb = tmp_path / "a.csv.gz"
    with gzip.open(bomb, "wb") as file:
        for _ in range(80):
            file.write(bytes(1 << 20))
    with pytest.raises(InputError, match="unpacks to more than"):
        check_text_size(bomb)
    fine = tmp_path / "b.csv.gz"
    with gzip.open(fine, "wb") as file:
        file.write(b"y,x\n" + b"1,2\n" * 100_000)  # shrinks to a thousandth
    check_text_size(fine)


def test_an_archive_has_one_table(tmp_path):
    path = archive(tmp_path / "a.csv.zip", ("a.csv", "x,y"), ("b.csv", "x,y"))
    with pytest.raises(InputError, match="has 2 files, expected one"):
        check_text_size(path)
    zeros = bytes(80 << 20)
    path = archive(tmp_path / "b.csv.zip", ("b.csv", zeros), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="unpacks to more than"):
        check_text_size(path)


def test_a_sparse_file_larger_than_the_memory_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(InputError, match=r"8,192 GiB by what it says"):
        check_text_size(path)


def test_memory_is_compared_with_what_the_machine_has(tmp_path):
    check_memory(tmp_path, 10**6)
    with pytest.raises(InputError, match="of memory"):
        check_memory(tmp_path, 10**18)


def test_parquet_is_read_or_refused(tmp_path):
    path = tmp_path / "a.parquet"
    table = pd.DataFrame({"x": [1.0, 2.0], "g": ["a", "b"]})
    table.to_parquet(path)
    pd.testing.assert_frame_equal(read_parquet(path), table)
    content = path.read_bytes()
    for damaged in (b"", b"PAR1", content[: len(content) // 2], content[:-8] + b"\xff" * 8,
                    content[:-200] + bytes(192) + content[-8:]):  # fmt: skip
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read"):
            read_parquet(path)


def test_parquet_that_claims_more_rows_than_fit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": np.zeros(100_000)}).to_parquet(path)  # 800 kB in 1 kB
    monkeypatch.setattr("semistan.bundle.foreign.os.sysconf", lambda _: 512)
    with pytest.raises(InputError, match="of memory"):
        read_parquet(path)


def tar_of(name="run/a.txt", content=b"a", *, mode="w", **header):
    """The bytes of a tar archive with one member."""
    file, member = io.BytesIO(), tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in header.items():
        setattr(member, key, value)
    with tarfile.open(fileobj=file, mode=mode) as archive:
        if content:
            archive.addfile(member, io.BytesIO(content))
        else:  # the header alone, which may claim what is not there
            archive.fileobj.write(member.tobuf())
    return file.getvalue()


def test_an_archive_of_files_is_unpacked(tmp_path):
    unpack(tar_of(), tmp_path)
    assert (tmp_path / "run" / "a.txt").read_bytes() == b"a"


@pytest.mark.parametrize(
    "content",
    [
        tar_of("../a.txt"),
        tar_of("run/../../a.txt"),
        tar_of(type=tarfile.SYMTYPE, linkname="a", content=b""),
        tar_of(type=tarfile.SYMTYPE, linkname="/etc/passwd", content=b""),
        tar_of(type=tarfile.LNKTYPE, linkname="run/b.txt", content=b""),
        tar_of(type=tarfile.FIFOTYPE, content=b""),
        tar_of(type=tarfile.CHRTYPE, content=b""),
        tar_of(content=bytes(10**6), mode="w:gz"),
        tar_of(size=10**13, content=b""),
        tar_of(pax_headers={"GNU.sparse.size": str(10**13), "GNU.sparse.map": "0,1"}),
        b"no archive",
        b"",
    ],
    ids=range(12),
)
def test_an_archive_of_anything_else_writes_nothing(tmp_path, content):
    (tmp_path / "inside").mkdir()
    with pytest.raises(InputError, match="archive"):
        unpack(content, tmp_path / "inside")
    assert [path.name for path in tmp_path.rglob("*")] == ["inside"]
