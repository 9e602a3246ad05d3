"""The user's own files: ``model.toml`` and the table of data."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semistan.bundle.files import atomic_file
from semistan.errors import InputError
from semistan.model.config import ModelConfig, config_toml, parse_config
from semistan.workflow.images import FOLDER

if TYPE_CHECKING:
    import pandas as pd


def read_config(path: Path) -> ModelConfig:
    """Read a ``model.toml``; a relative path to the data counts from the file's folder.

    Raises
    ------
    InputError
        If the file is missing, is no TOML, or has a wrong key or value.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"'{path}' does not exist or is no file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is no valid TOML: {error}") from None
    config = parse_config(content, str(path))
    if config.data is None:
        return config
    return config.model_copy(update={"data": str((path.parent / config.data).resolve())})


def read_table(path: Path | str) -> pd.DataFrame:
    """Read a CSV file with a header, or a Parquet file, by its suffix.

    Raises
    ------
    InputError
        If the file is missing, empty, or not what its suffix says, or if the rows of a CSV file
        have more fields than its header has names, or two columns have the same one.
    """
    import pandas as pd
    import pyarrow as pa

    try:
        frame = pd.read_parquet(path) if Path(path).suffix == ".parquet" else _read_csv(path)
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"data file '{path}' does not exist or is no file") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"data file '{path}' is empty") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(f"data file '{path}' is no readable CSV: {error}") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"data file '{path}' is no readable Parquet: {error}") from None
    if len(frame) == 0:
        raise InputError(f"data file '{path}' has a header but no rows")
    frame.attrs = {FOLDER: str(Path(path).parent)}
    return frame


def _read_csv(path: Path | str) -> pd.DataFrame:
    """Read a CSV file each of whose fields has a name of its own.

    pandas would shift the names where there are too few, and rename where one stands twice.
    """
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, index_col=False)
    except pd.errors.ParserWarning:
        _check_separator(path, _header(path))
        raise InputError(
            f"the rows of data file '{path}' have more fields than its header has names, so that "
            "it is unclear which column is which; give each field a name. If the first one is the "
            "row names that R's write.table() writes, use write.csv(data, file, row.names = FALSE)"
        ) from None
    _check_separator(path, frame.columns)
    if {re.sub(r"\.\d+$", "", name) for name in frame.columns if "." in name} & {*frame.columns}:
        _check_distinct(path, _header(path))  # the second x is called x.1, as another may be
    return frame


def _header(path: Path | str) -> list[str]:
    """Return the names in the first line of a CSV file, as they are there."""
    import pandas as pd

    options = {"nrows": 1, "dtype": str, "keep_default_na": False, "on_bad_lines": "skip"}
    return list(pd.read_csv(path, header=None, **options).iloc[0])


def _check_distinct(path: Path | str, names: Sequence[str]) -> None:
    """Refuse a name of two columns; columns without a name cannot be meant by a formula."""
    repeated = [f"'{name}' ({n})" for name, n in Counter(names).items() if name and n > 1]
    if repeated:
        raise InputError(
            f"data file '{path}' has several columns of the same name: {', '.join(repeated)}; "
            "rename them, or keep one of each"
        )


def _check_separator(path: Path | str, names: Sequence[str]) -> None:
    if len(names) == 1 and (found := {";", "\t"} & set(names[0])):
        raise InputError(
            f"data file '{path}' seems to be separated by {found.pop()!r}; a CSV file has commas "
            "between its columns and points in its numbers"
        )


def write_config(config: ModelConfig, path: Path) -> None:
    """Write a ``model.toml`` with every key and its value."""
    with atomic_file(path) as temporary:
        temporary.write_text(config_toml(config), "utf-8")
