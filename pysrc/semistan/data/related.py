"""The covariances of levels that are related, from the files that a formula names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from semistan.bundle.files import file_beside
from semistan.data.images import FOLDER
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.model.formula.formula import Formula

if TYPE_CHECKING:
    import pandas as pd


def related_levels(formula: Formula, frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Read the file of each ``gr(g, cov='A.csv')``, from the table's folder or the working one.

    Raises
    ------
    InputError
        If a file is in neither, or cannot be read.
    """
    folder = Path(frame.attrs.get(FOLDER, "."))
    names = {group.cov for part in formula.predictors for group in part.groups if group.cov}
    return {name: _read(name, folder) for name in sorted(names)}


def _read(name: str, folder: Path) -> pd.DataFrame:
    found = file_beside(name, folder)
    if found is None:
        raise InputError(
            f"cov='{name}' is no file, neither beside the table nor in the working directory; it "
            "is a table of covariances with a row and a column for each level"
        )
    return read_table(found)
