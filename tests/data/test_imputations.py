"""Imputed tables: a file of each, or one of all."""

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest

from semistan.data.imputations import read_imputations
from semistan.data.tables import GUESSED
from semistan.errors import InputError


def table(number, rows=5):
    return pd.DataFrame({"x": np.arange(rows) + 0.5 * number, "y": np.arange(rows) ** 2.0})


def long(name=".imp", others=(".id",), first=0):
    parts = [table(m).assign(**{name: m, **dict.fromkeys(others, 1)}) for m in range(first, 4)]
    return pd.concat(parts)


def read(*paths):
    return read_imputations(paths, GUESSED, lambda _: None)


def assert_tables(found):
    assert len(found) == 3
    for number, each in enumerate(found, start=1):
        pd.testing.assert_frame_equal(each, table(number), check_dtype=False)


def test_a_file_of_each(tmp_path):
    paths = [tmp_path / f"{m}.csv" for m in (1, 2, 3)]
    for number, path in enumerate(paths, start=1):
        table(number).to_csv(path, index=False)
    assert_tables(read(*paths))


MICE, STATA = (".imp", (".id",)), ("_mi_m", ("_mi_id", "_mi_miss"))


@pytest.mark.parametrize(
    ("suffix", "name", "others"),
    [("csv", *MICE), ("parquet", *MICE), ("csv", ".imp", ()), ("csv", *STATA), ("dta", *STATA)],
)
@pytest.mark.parametrize("first", [0, 1])
def test_one_file_of_all(suffix, name, others, first, tmp_path):
    path, frame = tmp_path / f"all.{suffix}", long(name, others, first)
    write = {
        "csv": partial(frame.to_csv, index=False), "parquet": frame.to_parquet,
        "dta": partial(frame.to_stata, write_index=False),
    }  # fmt: skip
    write[suffix](path)
    assert_tables(read(path))


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([table(1)], "is one table: name a file of each imputation, or one with a column .imp or"),
        ([long(first=3)], "needs two tables or more, got table 3 of"),
        ([long().query("`.imp` == 0")], "needs two tables or more, got"),
        ([table(1), table(2, rows=4)], "0.csv has 5 and"),
        ([table(1), table(2).assign(z=1)], "differ in z"),
    ],
)
def test_other_tables_are_refused(frames, named, tmp_path):
    paths = [tmp_path / f"{k}.csv" for k in range(len(frames))]
    for frame, path in zip(frames, paths, strict=True):
        frame.to_csv(path, index=False)
    with pytest.raises(InputError, match=re.escape(named)):
        read(*paths)
