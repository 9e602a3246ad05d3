"""What the fuzzers call: each reader, given any bytes, returns or raises an error of ours."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from semistan.bundle.files import read_json
from semistan.bundle.foreign import read_arrays, read_parquet
from semistan.bundle.onnx_graphs import open_graph
from semistan.data.model_file import read_config
from semistan.data.tables import read_table
from semistan.errors import SemistanError
from semistan.model.config import config_toml, parse_config
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.patterns import with_columns
from semistan.model.priors.densities import parse_prior

CORPUS = Path(__file__).with_name("corpus")
FOLDER = Path(tempfile.mkdtemp(prefix="semistan-fuzz-"))  # a file of each kind, written again


def _written(name: str, content: bytes) -> Path:
    path = FOLDER / name
    path.write_bytes(content)
    return path


def formula(content: bytes) -> None:
    """Read a formula, look its patterns up, and read what it says of itself again."""
    text = content.decode("utf-8", errors="surrogateescape")
    found = parse_formula(with_columns(text, ["y", "x", "u1", "u2", "emb_1"]))
    assert parse_formula(found.text) == found


def prior(content: bytes) -> None:
    """Read a prior."""
    parse_prior(content.decode("utf-8", errors="surrogateescape"), "b")


def family(content: bytes) -> None:
    """Read a family and a link."""
    text = content.decode("utf-8", errors="surrogateescape")
    parse_config({"formula": "y ~ nn(u)", "family": text}, "fuzz")


def model(content: bytes) -> None:
    """Read a model.toml; what is accepted is the same when it is written and read again."""
    config = read_config(_written("model.toml", content))
    again = read_config(_written("again.toml", config_toml(config).encode()))
    assert again == config


def csv(content: bytes) -> None:
    """Read a table of text."""
    read_table(_written("table.csv", content))


def packed(content: bytes) -> None:
    """Read a table that is packed, in one of two ways by how it begins."""
    suffix = "zip" if content.startswith(b"P") else "gz"
    read_table(_written(f"table.csv.{suffix}", content))


def arrays(content: bytes) -> None:
    """Read a bundle's arrays; they take no more memory than the file."""
    found = read_arrays(_written("arrays.npz", content))
    assert sum(np.asarray(values).nbytes for values in found.values()) <= len(content)


def graph(content: bytes) -> None:
    """Read an ONNX graph."""
    open_graph(_written("predictor.onnx", content), threads=1)


def parquet(content: bytes) -> None:
    """Read a run's table."""
    read_parquet(_written("training.parquet", content))


def json(content: bytes) -> None:
    """Read JSON."""
    read_json(_written("bundle.json", content))


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (formula, prior, family, model, csv, packed, arrays, graph, parquet, json)
}


def attempt(name: str, content: bytes) -> str:
    """Run a target; return the text of an error of ours, and raise every other one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TARGETS[name](content)
        except SemistanError as error:
            return str(error)
    return ""
