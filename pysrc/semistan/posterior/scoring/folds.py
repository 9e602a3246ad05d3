"""Cross-validation by K folds: which row is in which, and what was found of each row.

kfold/  manifest.json  folds.csv
        fold-<i>/{pointwise.parquet, summary.csv, checks.json, seconds.json}

The manifest has the options and, from format 2 on, the hashes of all these files and of itself.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.bundle.files import atomic_file, damage, read_json
from semistan.bundle.foreign import check_text_size, read_parquet
from semistan.bundle.seal import (
    FILES,
    SEAL,
    VERSION,
    Seal,
    read_record,
    read_seal,
    read_stamps,
    stamp_of,
    stamps_of,
    write_record,
)
from semistan.errors import InputError
from semistan.posterior.run import Run
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.scoring.loo import standard_error
from semistan.posterior.scoring.scores import Pointwise, join
from semistan.posterior.weighting import left_whole
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "kfold"
MANIFEST = "manifest.json"
POINTWISE = "pointwise.parquet"
SECONDS = "seconds.json"
FOLDS = "folds.csv"
FORMAT_VERSION = 2
MOST_FOLDS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class KFold:
    """What cross-validation found.

    Attributes
    ----------
    fold : array of int, shape (N,)
        Each row's fold, from 1.
    rows : Pointwise
        Each row, judged by the fit that did not see it.
    failed : dict
        Fold -> findings of the diagnostics that its fit failed.
    interval : float
        Probability of the predictive intervals of the rows.
    """

    fold: np.ndarray
    rows: Pointwise
    failed: dict[int, list[str]]
    interval: float = 0.9

    def __repr__(self) -> str:
        return table_text(self.table())

    @property
    def caveat(self) -> str:
        """What is left out with a row, if rows stand for several observations."""
        return left_whole(self.rows.weight)

    def failures(self) -> pd.DataFrame:
        """Return the failed diagnostics: ``fold`` and ``finding``."""
        import pandas as pd

        lines = [(fold, text) for fold, found in self.failed.items() for text in found]
        return pd.DataFrame(lines, columns=["fold", "finding"])

    def table(self) -> pd.DataFrame:
        """Return elpd_kfold and its information criterion with their standard errors.

        They are sums over rows; a row of weight w counts w times.

        Raises
        ------
        InputError
            If the elpd of a row is not finite.
        """
        import pandas as pd

        check_finite("elpd_kfold", self.rows.lpd)
        elpd = self.rows.weight * self.rows.lpd
        parts = {"elpd_kfold": elpd, "kfoldic": -2 * elpd}
        lines = [(name, values.sum(), standard_error(values)) for name, values in parts.items()]
        return pd.DataFrame(lines, columns=["measure", "Estimate", "SE"])


def assign_folds(
    rows: int, folds: int, generator: np.random.Generator, groups: np.ndarray | None = None
) -> np.ndarray:
    """Assign rows to folds of equal size at random, whole groups together if there are any.

    Parameters
    ----------
    rows : int
        Number of rows N.
    folds : int
        Number of folds K.
    generator : numpy.random.Generator
        Source of the order.
    groups : array, shape (N,), optional
        Group of each row.

    Returns
    -------
    array of int, shape (N,)
        Folds from 1 to K.

    Raises
    ------
    InputError
        If there are fewer than two folds or more folds than rows or groups.
    """
    codes = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(codes)
    what = "rows" if groups is None else "groups"
    if not 2 <= folds <= len(sizes):
        raise InputError(
            f"-K must be between 2 and the number of {what} ({len(sizes)}), got {folds}"
        )
    order = generator.permutation(len(sizes))
    fold_of, load = np.zeros(len(sizes), dtype=int), np.zeros(folds)
    for item in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[item] = load.argmin()
        load[fold_of[item]] += sizes[item]
    return fold_of[codes] + 1


def read_kfold(run: Run | str | Path) -> KFold:
    """Read a finished cross-validation from its run's folder.

    Raises
    ------
    InputError
        If there is none or it is not finished.
    """
    path = run.path if isinstance(run, Run) else Path(run)
    folder = path / FOLDER
    if not (folder / MANIFEST).is_file():
        raise InputError(f"'{path}' has no cross-validation: run 'semistan kfold {path}'")
    options = read_fold_options(folder)
    K = options["folds"]
    missing = [i for i in range(1, K + 1) if not fold_folder(folder, i).is_dir()]
    if missing:
        raise InputError(f"'{folder}' lacks folds {missing}: continue with 'semistan kfold {path}'")
    remedy = f"'semistan kfold {path} --overwrite' makes the cross-validation anew"
    seal_of_folds(folder).verify(*_judged(K), remedy=remedy)
    fold = read_folds(folder)
    parts = [_read_pointwise(fold_folder(folder, i)) for i in range(1, K + 1)]
    order = np.argsort(np.concatenate([np.flatnonzero(fold == i) for i in range(1, K + 1)]))
    rows = join(parts)
    checks = {i: read_json(fold_folder(folder, i) / "checks.json") for i in range(1, K + 1)}
    return KFold(
        fold,
        Pointwise(**{field.name: getattr(rows, field.name)[order] for field in fields(Pointwise)}),
        {i: found for i, found in checks.items() if found},
        options["interval"],
    )


def read_fold_options(folder: Path) -> dict[str, Any]:
    """Read the options of a cross-validation from its manifest.

    Raises
    ------
    InputError
        If it is damaged, was changed or is of a newer format.
    """
    content = _record(folder)
    if type(content.get("folds")) is not int or not 1 <= content["folds"] <= MOST_FOLDS:
        raise InputError(f"'{folder / MANIFEST}' is damaged: it has no number of folds")
    return {key: content[key] for key in content if key not in (FILES, SEAL, VERSION)}


def write_fold_options(folder: Path, options: dict[str, Any]) -> None:
    """Write the manifest, with the hashes of what is in the folder."""
    write_record(folder / MANIFEST, {VERSION: FORMAT_VERSION, **options}, stamps_of(folder))


def record_fold(folder: Path, written: Path, fold: int) -> None:
    """Add a fold's files, as they were written into a folder, to the manifest."""
    content = _record(folder)
    path = folder / MANIFEST
    names = (POINTWISE, "summary.csv", "checks.json", SECONDS)
    stamps = {f"{fold_folder(Path(), fold)}/{name}": stamp_of(written / name) for name in names}
    write_record(path, content, read_stamps(path, content) | stamps)


def seal_of_folds(folder: Path) -> Seal:
    """Return what the manifest of a cross-validation says of its files."""
    return read_seal(folder / MANIFEST, _record(folder))


def _record(folder: Path) -> dict[str, Any]:
    return read_record(folder / MANIFEST, "kfold", FORMAT_VERSION)


def _judged(folds: int) -> list[str]:
    """Return the names of the files that a cross-validation is read from."""
    numbers = range(1, folds + 1)
    return [f"fold-{i}/{name}" for i in numbers for name in (POINTWISE, "checks.json")]


def finished_kfold(run: Run) -> KFold | None:
    """Return a run's cross-validation, or None if there is none that is finished."""
    try:
        return read_kfold(run)
    except InputError:
        return None


def fold_folder(folder: Path, fold: int) -> Path:
    """Return the folder of one fold."""
    return folder / f"fold-{fold}"


def fold_seconds(folder: Path) -> float:
    """Return how long the fits of the folds took in the mean; NaN if one does not say so."""
    files = sorted(folder.glob(f"fold-*/{SECONDS}"))
    if len(files) < len(sorted(folder.glob("fold-*"))) or not files:
        return float("nan")
    return float(np.mean([read_json(file) for file in files]))


def write_folds(assigned: np.ndarray, folder: Path) -> None:
    """Write each row's fold."""
    import pandas as pd

    with atomic_file(folder / FOLDS) as temporary:
        table = pd.DataFrame({"row": np.arange(1, len(assigned) + 1), "fold": assigned})
        table.to_csv(temporary, index=False)


def read_folds(folder: Path) -> np.ndarray:
    """Read each row's fold, shape (N,)."""
    import pandas as pd

    seal_of_folds(folder).verify(FOLDS)
    path = folder / FOLDS
    try:
        check_text_size(path)
        return np.asarray(pd.read_csv(path, dtype=int)["fold"])
    except (ValueError, KeyError, OSError) as error:  # pandas' own errors are ValueErrors
        raise InputError(f"'{path}' is damaged, or missing: {error}") from None


def write_pointwise(judged: Pointwise, numbers: np.ndarray, folder: Path) -> None:
    """Write what was found of a fold's rows, numbered from 1.

    ``p_1``, ... are of categories, and ``y_1``, ... if the response counts them.
    """
    import pandas as pd

    columns = {field.name: getattr(judged, field.name) for field in fields(Pointwise)}
    for name in [name for name, values in columns.items() if values.ndim == 2]:
        found = columns.pop(name).T
        columns |= {f"{name}_{k}": column for k, column in enumerate(found, start=1)}
    pd.DataFrame({"row": numbers, **columns}).to_parquet(folder / POINTWISE, index=False)


def _read_pointwise(folder: Path) -> Pointwise:
    table = read_parquet(folder / POINTWISE)
    if "weight" not in table:
        raise InputError(
            f"'{folder}' was written by another version of semistan: make the cross-validation "
            "anew with --overwrite"
        )
    of_categories = ("p",) if "y" in table else ("p", "y")
    found = {
        name: table[[each for each in table if each.startswith(f"{name}_")]].to_numpy(dtype=float)
        for name in of_categories
    }
    names = (field.name for field in fields(Pointwise) if field.name not in of_categories)
    with damage(folder / POINTWISE):
        return Pointwise(**found, **{name: table[name].to_numpy() for name in names})
