"""The covariances of levels that are related, from the files that a formula names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    paths = (folder / name, Path(name))
    try:
        found = next((path for path in paths if path.is_file()), None)
    except OSError:  # the name is too long, or a folder must not be read
        found = None
    if found is None:
        raise InputError(
            f"cov='{name}' is no file, neither beside the table nor in the working directory; it "
            "is a table of covariances with a row and a column for each level"
        )
    return read_table(found)
