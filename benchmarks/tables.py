"""The papers' regression tables, their splits, and the one model that all contenders fit.

    E[y] = x' theta + f(u)

Two columns of each table are structured, all others are inputs of the network. They were chosen
before anything was fitted: columns with a meaning of their own that are not functions of others.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from common import pin

TEST_SHARE = 0.2  # of a table without a given split
STRUCTURED = {
    "airfoil": ("angle_of_attack_deg", "chord_length_m"),
    "diabetes": ("age", "sex"),
    "energy": ("orientation", "glazing_area"),
    "yacht": ("longitudinal_position", "prismatic_coefficient"),
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The command line.

    Attributes
    ----------
    data : Path
        Folder with a CSV file for each table, the response in the last column, and splits.json.
    tables : tuple of str
        Which of them.
    splits : int
        How many splits of each.
    quick : bool
        Whether to train and sample briefly.
    """

    data: Path
    tables: tuple[str, ...]
    splits: int
    quick: bool


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One table, split and standardised by its training rows' means and standard deviations."""

    table: str
    number: int
    training: pd.DataFrame
    test: pd.DataFrame

    @property
    def response(self) -> str:
        """Name of the response, the last column."""
        return str(self.training.columns[-1])

    @property
    def structured(self) -> list[str]:
        """Names of the structured columns."""
        return list(STRUCTURED[self.table])

    @property
    def inputs(self) -> list[str]:
        """Names of the network's inputs."""
        return [name for name in self.training.columns[:-1] if name not in self.structured]

    @property
    def formula(self) -> str:
        """The model in semistan's words."""
        return f"{self.response} ~ {' + '.join(self.structured)} + nn({', '.join(self.inputs)})"


def read_table_options(description: str) -> TableOptions:
    """Parse the command line and pin this process, hence all that it starts, to one core."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits.json")
    parser.add_argument(
        "--tables", nargs="+", choices=list(STRUCTURED), default=list(STRUCTURED), metavar="NAME"
    )
    parser.add_argument("--splits", type=int, default=1, help="of each table; 1 is the papers'")
    parser.add_argument("--quick", action="store_true", help="train and sample briefly")
    given = parser.parse_args()
    pin(range(1))
    return TableOptions(given.data, tuple(given.tables), given.splits, given.quick)


def read_split(data: Path, table: str, number: int) -> Split:
    """Read a table and split it: 1 is the given split, others are drawn with its sizes.

    A table without a given split has a fifth of its rows for testing. Columns that are not numbers
    stay as they are.
    """
    frame = pd.read_csv(data / f"{table}.csv")
    path = data / "splits.json"
    given = json.loads(path.read_text("utf-8")).get(table) if path.is_file() else None
    if given is not None and number == 1:
        train, test = given["train"], given["test"]
    else:
        size = round((1 - TEST_SHARE) * len(frame)) if given is None else len(given["train"])
        order = np.random.default_rng(number).permutation(len(frame))
        train, test = order[:size], order[size:]
    training, held_out = (frame.iloc[rows].reset_index(drop=True) for rows in (train, test))
    numbers = training.select_dtypes("number").astype(float)
    loc, scale = numbers.mean(), numbers.std(ddof=0).replace(0, 1)
    training, held_out = (
        part.assign(**((part[numbers.columns] - loc) / scale)) for part in (training, held_out)
    )
    return Split(table, number, training, held_out)
