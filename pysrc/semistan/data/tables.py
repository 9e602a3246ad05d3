"""Files of tables: text, Parquet, Feather, Stata, SPSS and RDS."""

from __future__ import annotations

import re
import sys
import warnings
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from semistan.bundle.foreign import OPENERS, check_parquet, check_plain, check_text_size
from semistan.data.dialect import AUTO, OLD, SAMPLE, Dialect, given_dialect, guessed
from semistan.data.images import FOLDER
from semistan.errors import InputError, SemistanError
from semistan.model.config import ModelConfig

if TYPE_CHECKING:
    import pandas as pd

Parsed = TypeVar("Parsed")

GUESSED = Dialect()
STDIN = "-"
_EXACT = {"float_precision": "round_trip"} if version("pandas") < "3" else {}  # as later ones are
NULLABLE = "numpy_nullable"  # pandas's types of whole numbers and truth values that may lack some


def read_table(
    path: Path | str, dialect: Dialect = GUESSED, say: Callable[[str], None] | None = None
) -> pd.DataFrame:
    """Read a table with a header: text, Parquet, Feather, Stata, SPSS or RDS, by the file's suffix.

    Parameters
    ----------
    path : path
        The file; ``-`` is text from standard input.
    dialect : Dialect
        How a text file is written; what is not given is guessed.
    say : callable, optional
        Receives a line that says how an unusual text file was read.

    Raises
    ------
    InputError
        If the file is missing, empty, or not what its suffix says, or if the rows of a text file
        have more fields than its header has names, or two columns have the same one.
    """
    import pandas as pd

    suffix = Path(path).suffix.lower()
    if suffix in ADVICE:
        raise InputError(f"data file '{path}' is of a kind that is not read: {ADVICE[suffix]}")
    try:
        if str(path) != STDIN:
            check_plain(path)
        if suffix in BINARY:
            frame = _read_binary(path, *BINARY[suffix])
            if suffix == ".parquet":
                frame = _with_categories(frame, path, say or (lambda _: None))
        else:
            frame = _read_text(path, dialect, say)
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"data file '{path}' does not exist or is no file") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"data file '{path}' is empty") from None
    frame.attrs = {FOLDER: str(Path(path).parent)}
    return frame


def dialect_of(config: ModelConfig, words: frozenset[str] = frozenset()) -> Dialect:
    """Return what a configuration says of how its table is written, with columns of text."""
    return replace(given_dialect(config.sep, config.decimal, config.encoding), words=words)


def _read_binary(path: Path | str, kind: str, read: Callable[[Any], pd.DataFrame]) -> pd.DataFrame:
    """Read a table of another program; whatever its reader raises is about the file."""
    try:
        return read(path)
    except (FileNotFoundError, IsADirectoryError, SemistanError):
        raise
    except ImportError as error:
        extra = {"SPSS": "spss", "RDS": "rds"}.get(kind)
        advice = f"pip install 'semistan[{extra}]'" if extra else str(error)
        raise InputError(f"data file '{path}' needs another package: {advice}") from None
    except Exception as error:
        raise InputError(f"data file '{path}' is no readable {kind} file: {error}") from None


def _parquet(path: Path | str) -> pd.DataFrame:
    import pandas as pd

    check_parquet(path)
    return pd.read_parquet(path, dtype_backend=NULLABLE)


def _with_categories(
    frame: pd.DataFrame, path: Path | str, say: Callable[[str], None]
) -> pd.DataFrame:
    """Return a table whose categories of numbers are such, which Parquet keeps as numbers.

    Arrow's own schema, which stands in the file's metadata, knows them, but not their order.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = (pq.read_metadata(path).metadata or {}).get(b"ARROW:schema")
    if written is None:
        return frame
    for field in pa.ipc.read_schema(pa.py_buffer(b64decode(written))):
        if not pa.types.is_dictionary(field.type) or field.name not in frame:
            continue
        column = frame[field.name]
        if not hasattr(column, "cat"):
            column = column.astype("category")
            if field.type.ordered:
                column = column.cat.as_ordered()
                say(
                    f"read '{path}' with the ordered categories of '{field.name}' by size: Parquet "
                    "keeps no other order of numbers; make them text for another"
                )
            frame = frame.assign(**{field.name: column})
    return frame


def _feather(path: Path | str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_feather(path, dtype_backend=NULLABLE)


def _stata(path: Path | str) -> pd.DataFrame:
    """Read a Stata file, whose labelled values are factors; an order of them is not meant."""
    import pandas as pd

    return pd.read_stata(path, order_categoricals=False)


def _spss(path: Path | str) -> pd.DataFrame:
    """Read an SPSS file, whose labelled values are factors."""
    import pandas as pd

    return pd.read_spss(path)


def _rds(path: Path | str) -> pd.DataFrame:
    """Read a data frame that R's saveRDS() wrote."""
    import pandas as pd
    import rdata

    frame = rdata.read_rds(path)
    if not isinstance(frame, pd.DataFrame):
        raise ValueError("it holds no data frame")
    return frame.reset_index(drop=True)


BINARY: dict[str, tuple[str, Callable[[Any], pd.DataFrame]]] = {
    ".parquet": ("Parquet", _parquet),
    ".feather": ("Feather", _feather),
    ".arrow": ("Feather", _feather),
    ".dta": ("Stata", _stata),
    ".sav": ("SPSS", _spss),
    ".zsav": ("SPSS", _spss),
    ".rds": ("RDS", _rds),
}
_FROM_R = (
    "in R, write.csv(data, 'data.csv', row.names = FALSE) or arrow::write_parquet(data, "
    "'data.parquet') writes one that is"
)
_UNPACKED = "unpack it, or compress the table itself with gzip, as data.csv.gz"
_AS_CSV = "save it as CSV, or as Parquet by pandas"
ADVICE = {
    ".rda": _FROM_R, ".rdata": _FROM_R,
    ".zst": _UNPACKED, ".tar": _UNPACKED, ".tgz": _UNPACKED,
    ".xlsx": _AS_CSV, ".xls": _AS_CSV, ".ods": _AS_CSV, ".json": _AS_CSV,
}  # fmt: skip


def _read_text(
    path: Path | str, dialect: Dialect, say: Callable[[str], None] | None
) -> pd.DataFrame:
    """Read a text file each of whose fields has a name of its own.

    pandas would shift the names where there are too few, and rename where one stands twice.
    """
    content = sys.stdin.buffer.read() if str(path) == STDIN else None
    first = guessed(dialect, _sample(path) if content is None else content[:SAMPLE])
    frame, found = as_guessed(path, dialect, first, partial(_parsed, path, content))
    say_unusual(path, dialect, found, say)
    return frame


def say_unusual(
    path: Path | str, given: Dialect, found: Dialect, say: Callable[[str], None] | None
) -> None:
    """Say how a text file was read if that is unusual and was not given."""
    if say and found.text and given != found:
        say(f"read '{path}' as {found.text}; --sep, --decimal and --encoding say otherwise")


def as_guessed(
    path: Path | str, given: Dialect, guess: Dialect, parse: Callable[[Dialect], Parsed]
) -> tuple[Parsed, Dialect]:
    """Parse a text file as guessed, or in the old encoding where the guessed one does not fit.

    Raises
    ------
    InputError
        What pandas found, in our words.
    """
    import pandas as pd

    found = guess
    try:
        try:
            return parse(found), found
        except UnicodeDecodeError:
            if given.encoding != AUTO or found.encoding == OLD:
                raise
            found = replace(found, encoding=OLD)
            return parse(found), found
    except pd.errors.ParserWarning:
        raise InputError(
            f"the rows of data file '{path}' have more fields than its header has names, so that "
            "it is unclear which column is which; give each field a name. If the first one is the "
            "row names that R's write.table() writes, use write.csv(data, file, row.names = FALSE)"
        ) from None
    except pd.errors.ParserError as error:
        as_read = found.text or "separated by ','"
        raise InputError(
            f"data file '{path}' is no readable CSV: {error}. It was read as {as_read}; --sep, "
            "--decimal and --encoding say otherwise"
        ) from None
    except UnicodeError as error:
        raise InputError(
            f"data file '{path}' is not encoded as {found.encoding}: {error}; give --encoding"
        ) from None


def _parsed(path: Path | str, content: bytes | None, dialect: Dialect) -> pd.DataFrame:
    """Parse a text file, and refuse names that two columns have."""
    import pandas as pd

    index = 0 if dialect.row_names else False
    with strictly():
        frame = pd.read_csv(_source(path, content), index_col=index, **pandas_options(dialect))
    if dialect.row_names:
        frame = frame.reset_index(drop=True)
    check_names(path, content, frame.columns, dialect)
    return frame.rename(columns=stripped)


def pandas_options(dialect: Dialect, types: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what ``pandas.read_csv`` is to know, with the types of some columns.

    The type of every other column is that of all its values, and whole numbers of which some lack
    stay whole.
    """
    return {
        **_written(dialect),
        "dtype": {**(types or {}), **dict.fromkeys(dialect.words, str)} or None,
        "dtype_backend": NULLABLE,
        "low_memory": False,
        **_EXACT,
    }


def _written(dialect: Dialect) -> dict[str, Any]:
    return {"sep": dialect.sep, "decimal": dialect.decimal, "encoding": dialect.encoding}


def stripped(name: str) -> str:
    """Return the name of a column without the blanks that a file has around it."""
    return name.strip(" \t") or name


@contextmanager
def strictly() -> Iterator[None]:
    """Make pandas's warnings about rows errors."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        yield


def check_names(
    path: Path | str, content: bytes | None, names: Sequence[str], dialect: Dialect
) -> None:
    """Refuse names that two columns have: pandas calls the second x x.1, as another may be."""
    import pandas as pd

    if {re.sub(r"\.\d+$", "", name) for name in names if "." in name} & {*names}:
        first = {"nrows": 1, "dtype": str, "keep_default_na": False, "on_bad_lines": "skip"}
        source = _source(path, content)
        header = pd.read_csv(source, header=None, **first, **_written(dialect))
        _check_distinct(path, list(header.iloc[0]))


def _source(path: Path | str, content: bytes | None) -> Any:
    return path if content is None else BytesIO(content)


def _sample(path: Path | str) -> bytes:
    """Return the first bytes of a text file, compressed or not."""
    check_text_size(path)
    with OPENERS.get(Path(path).suffix.lower(), open)(path, "rb") as stream:
        return bytes(stream.read(SAMPLE))


def _check_distinct(path: Path | str, names: Sequence[str]) -> None:
    """Refuse a name of two columns; columns without a name cannot be meant by a formula."""
    repeated = [f"'{name}' ({n})" for name, n in Counter(names).items() if name and n > 1]
    if repeated:
        raise InputError(
            f"data file '{path}' has several columns of the same name: {', '.join(repeated)}; "
            "rename them, or keep one of each"
        )
