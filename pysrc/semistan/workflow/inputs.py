"""The user's own files: ``model.toml`` and the table of data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from semistan.bundle.files import atomic_file
from semistan.errors import InputError
from semistan.model.config import ModelConfig, config_toml, parse_config

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
        If the file is missing, empty, or not what its suffix says.
    """
    import pandas as pd
    import pyarrow as pa

    try:
        frame = pd.read_parquet(path) if Path(path).suffix == ".parquet" else pd.read_csv(path)
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"data file '{path}' does not exist or is no file") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"data file '{path}' is empty") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(f"data file '{path}' is no readable CSV: {error}") from None
    except pa.ArrowInvalid as error:
        raise InputError(f"data file '{path}' is no readable Parquet: {error}") from None
    if len(frame.columns) == 1 and (found := {";", "\t"} & set(str(frame.columns[0]))):
        raise InputError(
            f"data file '{path}' seems to be separated by {found.pop()!r}; a CSV file has commas "
            "between its columns and points in its numbers"
        )
    if len(frame) == 0:
        raise InputError(f"data file '{path}' has a header but no rows")
    return frame


def write_config(config: ModelConfig, path: Path) -> None:
    """Write a ``model.toml`` with every key and its value."""
    with atomic_file(path) as temporary:
        temporary.write_text(config_toml(config), "utf-8")
