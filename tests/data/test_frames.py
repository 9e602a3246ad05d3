"""Tables of other libraries, and names that are no text."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from semistan.data.frames import as_frame
from semistan.errors import InputError
from semistan.model.design import design_to_plain
from semistan.workflow.prepare import configure, prepare
from support.small import small_frame


class Exports:
    """A table of a library that exports Arrow's data and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class Lazy:
    def collect(self):
        raise AssertionError


def polars_of(frame):
    return pytest.importorskip("polars").from_pandas(frame)


def narwhals_of(frame):
    return pytest.importorskip("narwhals").from_native(pa.Table.from_pandas(frame))


MAKE = {
    "arrow": pa.Table.from_pandas,
    "exported": lambda frame: Exports(pa.Table.from_pandas(frame)),
    "batches": lambda frame: pa.RecordBatchReader.from_batches(
        pa.Table.from_pandas(frame).schema, pa.Table.from_pandas(frame).to_batches()
    ),
    "dict of lists": lambda frame: frame.to_dict("list"),
    "dict of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "records": lambda frame: frame.to_dict("records"),
    "structured": lambda frame: frame.to_records(index=False),
    "polars": polars_of,
    "narwhals": narwhals_of,
}


@pytest.mark.parametrize("name", MAKE)
def test_tables_of_other_libraries_are_taken(name):
    frame, config = small_frame(), configure("y ~ x + g + (1 | flag) + nn(u, v)")
    expected = prepare(config, frame)
    found = prepare(config, MAKE[name](frame))
    assert design_to_plain(found.design) == design_to_plain(expected.design)
    assert np.array_equal(found.rows.X, expected.rows.X)
    assert np.array_equal(found.rows.U, expected.rows.U)
    assert np.array_equal(found.rows.y, expected.rows.y)


def test_whole_numbers_with_gaps_and_categories_survive_arrow():
    table = pa.table(
        {"id": pa.array([2**53 + 1, None]), "g": pa.array(["b", "a"]).dictionary_encode()}
    )
    frame = as_frame(Exports(table))
    assert int(frame["id"].iloc[0]) == 2**53 + 1
    assert list(frame["g"].cat.categories) == ["b", "a"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([1, 2, 3], "a builtins.list is no table that can be read"),
        (None, "NoneType is no table"),
        (np.zeros((3, 2)), "numpy.ndarray is no table"),
        ({"a": [1, 2], "b": [1]}, "cannot be read: All arrays must be of the same length"),
        (Lazy(), "or the path of a file; collect\\(\\) it first"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(table, message):
    with pytest.raises(InputError, match=message) as caught:
        as_frame(table)
    assert "\n" not in str(caught.value)


def test_names_that_are_numbers_are_written_as_text():
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(20, 3)), columns=[3, 4, "u"])
    prepared = prepare(configure("`3` ~ `4` + nn(u)"), frame)
    assert np.array_equal(prepared.rows.X[:, 0], frame[4])


def test_names_that_are_tuples_are_refused():
    frame = pd.DataFrame(np.zeros((2, 2)), columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))
    with pytest.raises(InputError, match=r"whose name is \('a', 1\) \(tuple\).*frame.columns ="):
        as_frame(frame)
