"""Tables of any library as pandas has them: polars, Arrow, DuckDB, dicts of arrays, records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Table = Any
"""A pandas.DataFrame, a table that exports Arrow's or the dataframe protocol's data, a mapping of
names to columns, a structured array, or a sequence of mappings."""


def as_frame(table: Table) -> pd.DataFrame:
    """Return a table of any library as a pandas.DataFrame whose names are text.

    Raises
    ------
    InputError
        If it is no table, or has names that are neither text nor numbers.
    """
    import pandas as pd

    frame = table if isinstance(table, pd.DataFrame) else _converted(table)
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    for name in frame.columns:
        if not isinstance(name, str | int | np.integer):
            raise InputError(
                f"the table has a column whose name is {name!r} ({type(name).__name__}); a formula "
                "needs text: name them by frame.columns = [...]"
            )
    renamed = frame.set_axis([str(name) for name in frame.columns], axis=1)
    renamed.attrs = frame.attrs
    return renamed


def _converted(table: Table) -> pd.DataFrame:
    import pandas as pd

    try:
        if hasattr(table, "__arrow_c_stream__"):
            return _of_arrow(table)
        if hasattr(table, "__dataframe__"):
            return pd.api.interchange.from_dataframe(table)
        if isinstance(table, Mapping):
            return pd.DataFrame(dict(table))
        if isinstance(table, np.ndarray) and table.dtype.names:
            return pd.DataFrame.from_records(table)
        if isinstance(table, list | tuple) and table and isinstance(table[0], Mapping):
            return pd.DataFrame.from_records(table)
    except (ValueError, TypeError, ImportError) as error:
        raise InputError(f"the table, a {_kind(table)}, cannot be read: {error}") from None
    lazy = "; collect() it first" if hasattr(table, "collect") else ""
    raise InputError(
        f"a {_kind(table)} is no table that can be read: give a pandas, polars or Arrow table, a "
        f"dict of columns, or the path of a file{lazy}"
    )


def _of_arrow(table: Table) -> pd.DataFrame:
    """Return a table that exports Arrow's data; whole numbers with gaps stay whole."""
    import pyarrow as pa

    read = pa.table(table)
    for index, field in enumerate(read.schema):
        if str(field.type) == "string_view":  # which pandas does not know
            text = read.column(index).cast(pa.large_string())
            read = read.set_column(index, field.name, text)
    return read.to_pandas(types_mapper=whole_types().get)


def whole_types() -> dict[Any, Any]:
    """Return pandas's types of Arrow's whole numbers and truth values, of which some may lack."""
    import pandas as pd
    import pyarrow as pa

    whole = {
        pa.type_for_alias(name.lower()): pd.array([], dtype=name).dtype
        for name in (f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
    }
    return {**whole, pa.bool_(): pd.BooleanDtype()}


def _kind(table: Table) -> str:
    return f"{type(table).__module__.partition('.')[0]}.{type(table).__qualname__}"
