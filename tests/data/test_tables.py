"""Tables as other programs write them: guessed, said, and read as what they are."""

import contextlib
import io
import re

import numpy as np
import pandas as pd
import pytest

from semistan.data.dialect import Dialect, given_dialect
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.model.table.kinds import check_columns
from semistan.workflow.prepare import configure, prepare
from support.small import small_frame

TABLE = pd.DataFrame({"größe": [1.5, 2.25, -3.0], "g": ["ä b", "c", "d"], "n": [1, 20, 300]})


def read(path, **given):
    said = []
    return read_table(path, given_dialect(**given), said.append), " ".join(said)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"])
@pytest.mark.parametrize(("sep", "decimal"), [(",", "."), (";", ","), ("\t", ","), (" ", ".")])
def test_a_table_in_text_is_guessed(tmp_path, sep, decimal, encoding):
    path = tmp_path / "data.csv"
    TABLE.to_csv(path, index=False, sep=sep, decimal=decimal, encoding=encoding)
    frame, said = read(path)
    pd.testing.assert_frame_equal(frame, TABLE, check_dtype=False)
    usual = sep == "," and encoding.startswith("utf-8")
    assert bool(said) == (not usual)
    assert ("decimal commas" in said) == (decimal == ",")
    assert ("--encoding say otherwise" in said) == bool(said)


def test_tables_of_r_are_read(tmp_path):
    """As write.csv2(), write.table() and write.table(sep = "\\t") of R 4 wrote them."""
    texts = {
        "csv2": '"";"y";"g"\n"1";1,5;"a b"\n"2";-2;"c"\n',
        "table": '"y" "g"\n"1" 1.5 "a b"\n"2" -2 "c"\n',
        "tabs": '"y"\t"g"\n"1"\t1.5\t"a b"\n"2"\t-2\t"c"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        frame, said = read(tmp_path / name)
        assert frame["y"].tolist() == [1.5, -2.0], name
        assert frame["g"].tolist() == ["a b", "c"]
        assert ("row names" in said) == (name != "csv2")


def test_what_is_given_is_not_guessed(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"x;y,z\n1;2,5\n")
    assert read(path)[0].columns.tolist() == ["x;y", "z"]
    assert read(path, sep=";")[0].columns.tolist() == ["x", "y,z"]
    assert read(path, sep=";")[0]["y,z"].tolist() == [2.5]
    assert read(path, sep=";", decimal=".")[0]["y,z"].tolist() == ["2,5"]
    path.write_bytes("x\n\xe9\n".encode("latin-1"))
    assert read(path, encoding="cp437")[0]["x"].tolist() == ["Θ"]


def test_points_and_commas_in_numbers_are_not_mixed(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x;y\n1,5;2.5\n2,5;3.5\n")
    assert read(path)[0]["x"].tolist() == ["1,5", "2,5"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sep": ";;"}, "--sep takes one character"),
        ({"decimal": "'"}, "--decimal takes"),
        ({"sep": ",", "decimal": ","}, "cannot be between two fields"),
        ({"encoding": "cp1253x"}, "Did you mean 'cp1252'"),
        ({"encoding": "base64"}, "is unknown"),
    ],
)
def test_what_cannot_be_given_is_refused(given, message):
    with pytest.raises(InputError, match=re.escape(message)):
        given_dialect(**given)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
def test_packed_text_is_read(tmp_path, suffix):
    path = tmp_path / f"data.csv{suffix}"
    sep = "," if suffix == ".zip" else ";"
    TABLE.to_csv(path, index=False, sep=sep)
    pd.testing.assert_frame_equal(read(path)[0], TABLE, check_dtype=False)


def test_what_is_not_packed_is_said(tmp_path):
    (tmp_path / "data.csv.gz").write_text("x,y\n1,2\n")
    with pytest.raises(InputError, match="cannot be unpacked"):
        read(tmp_path / "data.csv.gz")


def test_tables_of_other_programs_are_read(tmp_path):
    frame = TABLE.rename(columns={"größe": "size"})
    frame.to_feather(tmp_path / "data.feather")
    pd.testing.assert_frame_equal(read(tmp_path / "data.feather")[0], frame, check_dtype=False)
    frame.assign(g=pd.Categorical(frame["g"])).to_stata(tmp_path / "data.dta", write_index=False)
    stata = read(tmp_path / "data.dta")[0]
    assert stata["size"].tolist() == frame["size"].tolist()
    assert stata["g"].tolist() == frame["g"].tolist()
    assert not stata["g"].dtype.ordered  # the codes' order is no statement about the levels


def test_a_bar_separates_fields_and_what_does_else_is_asked_for(tmp_path):
    (tmp_path / "bars.csv").write_text("y|x|g\n1|2|a\n3|4|b\n")
    frame, said = read(tmp_path / "bars.csv")
    assert frame.to_numpy().tolist() == [[1, 2, "a"], [3, 4, "b"]]
    assert "separated by '|'" in said
    (tmp_path / "hats.csv").write_text("y^x^g\n1^2^a\n3^4^b\n")
    with pytest.raises(InputError, match=r"have one, 'y\^x\^g': --sep says what separates"):
        check_columns(read(tmp_path / "hats.csv")[0], ["y", "x"], "y ~ x + nn(g)")


def test_blanks_around_names_are_no_part_of_them(tmp_path):
    (tmp_path / "data.csv").write_text("y, x , g\n1, 2, a\n")
    frame = read(tmp_path / "data.csv")[0]
    assert list(frame.columns) == ["y", "x", "g"]
    assert frame["x"].tolist() == [2]


def test_a_table_of_spss_is_read(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    frame = pd.DataFrame({"y": [1.5, 2.5], "g": [1.0, 2.0]})
    path = tmp_path / "data.sav"
    labels = {"g": {1.0: "low", 2.0: "high"}}
    pyreadstat.write_sav(frame, str(path), variable_value_labels=labels)
    found = read(path)[0]
    assert found["y"].tolist() == [1.5, 2.5]
    assert found["g"].astype(str).tolist() == ["low", "high"]


def test_a_table_of_r_is_read(tmp_path):
    rdata = pytest.importorskip("rdata")
    frame = pd.DataFrame({"y": [1.5, 2.5], "g": pd.Categorical(["b", "a"], ["b", "a"])})
    rdata.write_rds(tmp_path / "data.rds", frame)
    found = read(tmp_path / "data.rds")[0]
    assert found["y"].tolist() == [1.5, 2.5]
    assert found["g"].cat.categories.tolist() == ["b", "a"]
    rdata.write_rds(tmp_path / "data.rds", np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="no data frame"):
        read(tmp_path / "data.rds")


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".dta"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x00" * 500, b"y,x\n1,2\n"])
def test_what_is_not_what_its_suffix_says_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match="no readable"):
        read(path)


@pytest.mark.parametrize(("suffix", "advice"), [(".RData", "write.csv"), (".xlsx", "as CSV")])
def test_tables_that_are_not_read_have_advice(tmp_path, suffix, advice):
    with pytest.raises(InputError, match=advice):
        read(tmp_path / f"data{suffix}")


def test_text_comes_from_standard_input(monkeypatch):
    content = TABLE.to_csv(index=False, sep=";", decimal=",").encode("cp1252")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    pd.testing.assert_frame_equal(read("-")[0], TABLE, check_dtype=False)


def test_a_fit_says_how_its_table_was_read_and_remembers_what_was_given(tmp_path):
    path = tmp_path / "data.csv"
    small_frame().to_csv(path, index=False, sep=";", decimal=",")
    config = configure("y ~ x + nn(u)", {"data": str(path), "sep": ";"})
    prepared = prepare(config)
    assert "decimal commas" in prepared.notes[0]
    assert prepared.config.sep == ";"
    np.testing.assert_allclose(prepared.rows.y, small_frame()["y"])


@pytest.mark.parametrize("seed", range(3))
def test_bytes_are_a_table_or_one_of_our_errors(tmp_path, seed):
    generator, path = np.random.default_rng(seed), tmp_path / "data.csv"
    alphabet = np.frombuffer(b'ab1.,;\t "\n\r\x00\xff\xe4\xef\xbb\xbf', dtype=np.uint8)
    for _ in range(150):
        path.write_bytes(generator.choice(alphabet, generator.integers(1, 80)).tobytes())
        with contextlib.suppress(InputError):
            assert len(read_table(path, Dialect()).columns) > 0
