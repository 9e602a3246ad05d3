"""What was found of rows with a high Pareto k is kept with their run, since it took sampling.

loo/  manifest.json

It says of which draws it is: of others, as after ``sample --more``, it is not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from semistan.bundle.seal import VERSION, Seal, read_record, read_seal, stamp_of, write_record
from semistan.errors import InputError
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import Loo, Matched

FOLDER = "loo"
MANIFEST = "manifest.json"
FORMAT_VERSION = 1


Repairs = Mapping[str, Mapping[int, Matched]]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    row: int = Field(ge=1)
    elpd: float
    pareto_k: float
    way: str


class _Kept(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    draws: str
    rows: list[_Row]


def read_repairs(run: Run) -> Repairs:
    """Return what is kept of a run's rows, if it is of the run's draws: way -> position -> row.

    Raises
    ------
    InputError
        If it is damaged, was changed or is of a newer format.
    """
    marker = run.path / FOLDER / MANIFEST
    if not marker.is_file():
        return {}
    try:
        kept = _Kept.model_validate(_record(marker.parent))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(f"'{marker}' is damaged: {where}; {_remedy(run)}") from None
    if kept.draws != _draws(run):
        return {}
    if any(each.row > run.bundle.source.rows for each in kept.rows):
        raise InputError(f"'{marker}' is damaged: it has rows that the run lacks; {_remedy(run)}")
    found: dict[str, dict[int, Matched]] = {}
    for each in kept.rows:
        found.setdefault(each.way, {})[each.row - 1] = Matched(each.elpd, each.pareto_k)
    return found


def keep_repairs(run: Run, found: Loo) -> None:
    """Keep what was found of rows in another way than by PSIS of the run's draws."""
    rows: list[dict[str, Any]] = [
        {
            "row": i + 1,
            "elpd": float(found.elpd[i]),
            "pareto_k": float(found.pareto_k[i]),
            "way": way,
        }
        for way, positions in found.repaired.items()
        for i in positions
        if np.isfinite((found.elpd[i], found.pareto_k[i])).all()
    ]
    folder = run.path / FOLDER
    folder.mkdir(exist_ok=True)
    content = {VERSION: FORMAT_VERSION, "draws": _draws(run), "rows": rows}
    write_record(folder / MANIFEST, content, {})


def seal_of_repairs(folder: Path) -> Seal:
    """Return what the manifest says of the folder's files."""
    return read_seal(folder / MANIFEST, _record(folder))


def _record(folder: Path) -> dict[str, Any]:
    return read_record(folder / MANIFEST, "loo", FORMAT_VERSION)


def _remedy(run: Run) -> str:
    return f"delete '{run.path / FOLDER}' and run 'semistan loo {run.path}' again"


def _draws(run: Run) -> str:
    """Return a hash of all chains."""
    stamps = [stamp_of(path).sha256 for path in run.csv_files()]
    return hashlib.sha256("".join(stamps).encode()).hexdigest()
