"""``model.toml``, read and written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from semistan.bundle.files import atomic_file
from semistan.bundle.foreign import check_plain
from semistan.data.tables import STDIN
from semistan.errors import InputError
from semistan.model.config import ModelConfig, config_toml, parse_config, with_overrides

LARGEST_TOML = 1_000_000  # bytes
DEEPEST = 16  # parts of a key, whose number tomllib squares
DEEP_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST},}}"""
)


def read_config(path: Path) -> ModelConfig:
    """Read a ``model.toml``; relative paths of files in it count from its own folder.

    Raises
    ------
    InputError
        If the file is missing, is no TOML, or has a wrong key or value.
    """
    try:
        content = _toml(path)
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"'{path}' does not exist or is no file") from None
    config = parse_config(content, str(path))
    if config.sample.cluster and config.sample.cluster.endswith(".json"):
        file = _from(path, "sample.cluster", config.sample.cluster)
        config = with_overrides(config, {"sample.cluster": file})
    if config.data is None or config.data == STDIN:
        return config
    return config.model_copy(update={"data": _from(path, "data", config.data)})


def _from(path: Path, key: str, name: str) -> str:
    """Return the path of a file that a ``model.toml`` names."""
    try:
        return str((path.parent / name).resolve())
    except (ValueError, OSError, RuntimeError):  # a character 0, or links that lead in a circle
        raise InputError(f"{path}: {key}: {name!r} is no name of a file") from None


def _toml(path: Path) -> dict[str, Any]:
    """Read TOML that is no larger and no deeper than a model can be."""
    check_plain(path)
    size = path.stat().st_size
    if size > LARGEST_TOML:
        raise InputError(f"'{path}' has {size:,} bytes; a model has at most {LARGEST_TOML:,}")
    try:
        text = path.read_text("utf-8")
        if DEEP_KEY.search(text):
            raise ValueError(f"a key of more than {DEEPEST} parts")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits
        raise InputError(f"'{path}' is no valid TOML: {error}") from None


def write_config(config: ModelConfig, path: Path) -> None:
    """Write a ``model.toml`` with every key and its value."""
    with atomic_file(path) as temporary:
        temporary.write_text(config_toml(config), "utf-8")
