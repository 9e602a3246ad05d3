"""Is a run or a bundle still what was written? Every file is held to its hash and its form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import read_bundle, read_bundle_record
from semistan.bundle.seal import Seal, read_seal, trust_edited
from semistan.errors import InputError
from semistan.posterior.draws import read_chains
from semistan.posterior.manifest import MARKER as RUN
from semistan.posterior.manifest import seal_of
from semistan.posterior.run import SUBSPACES, read_run
from semistan.posterior.scoring.folds import FOLDER as KFOLD
from semistan.posterior.scoring.folds import seal_of_folds
from semistan.posterior.scoring.loo_repairs import FOLDER as LOO
from semistan.posterior.scoring.loo_repairs import seal_of_repairs
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What became of one file.

    Attributes
    ----------
    file : str
        Its name in the folder, with slashes.
    state : str
        ``unchanged``, ``changed``, ``missing``, or ``damaged`` (its form is wrong, whatever its
        hash).
    finding : str
        What differs.
    """

    file: str
    state: str
    finding: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FolderCheck:
    """What a check found, file by file."""

    files: tuple[FileCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether no file was changed, is missing or damaged."""
        return all(item.state == "unchanged" for item in self.files)

    def table(self) -> pd.DataFrame:
        """Return ``file``, ``state`` and ``finding`` of every file."""
        import pandas as pd

        lines = [(item.file, item.state, item.finding) for item in self.files]
        return pd.DataFrame(lines, columns=["file", "state", "finding"])

    def __repr__(self) -> str:
        return table_text(self.table())


def check(path: Path | str) -> FolderCheck:
    """Hold every file of a run or a bundle to its hash, and read what can be read.

    Parameters
    ----------
    path : path
        The folder of a run, with those of its bundle, subspaces, folds and ``loo``, or of a bundle.

    Returns
    -------
    FolderCheck
        What became of each file.

    Raises
    ------
    InputError
        If the folder is neither.
    """
    path = Path(path)
    if not ((path / RUN).is_file() or (path / BUNDLE).is_file()):
        raise InputError(f"'{path}' is neither a run nor a bundle (it has no {RUN} or {BUNDLE})")
    found = {item.file: item for item in _folder(path, path)}
    wrong = [item for item in found.values() if item.state in ("changed", "missing", DAMAGED)]
    if not wrong and (item := _unreadable(path)) is not None:
        found[item.file] = item
    return FolderCheck(tuple(found.values()))


def _folder(folder: Path, top: Path) -> Iterator[FileCheck]:
    """Yield the files of a folder and of those below it that have a record."""
    if (folder / BUNDLE).is_file():
        yield from _recorded(folder, BUNDLE, top, _seal_of_bundle)
    if not (folder / RUN).is_file():
        return
    yield from _recorded(folder, RUN, top, seal_of)
    yield from _folder(folder / "bundle", top)
    for subspace in sorted((folder / SUBSPACES).glob("*")):
        yield from _folder(subspace, top)
    if (folder / LOO / RUN).is_file():
        yield from _recorded(folder / LOO, RUN, top, seal_of_repairs)
    if (folder / KFOLD / RUN).is_file():
        yield from _recorded(folder / KFOLD, RUN, top, seal_of_folds)
        for fold in sorted((folder / KFOLD).glob("fold-*/run")):
            yield from _folder(fold, top)


def _seal_of_bundle(folder: Path) -> Seal:
    return read_seal(folder / BUNDLE, read_bundle_record(folder))


def _recorded(
    folder: Path, record: str, top: Path, seal_in: Callable[[Path], Seal]
) -> Iterator[FileCheck]:
    """Yield a record, and the files that it knows of or should know of."""
    place = folder.relative_to(top)
    try:
        with trust_edited() as edited:
            seal = seal_in(folder)
    except InputError as error:
        yield FileCheck((place / record).as_posix(), DAMAGED, str(error))
        return
    finding = "it does not match the hash in it" if edited else ""
    state = "changed" if edited else "unchanged"
    yield FileCheck((place / record).as_posix(), state, finding)
    for name in dict.fromkeys((*seal.stamps, *_expected(folder))):
        judged = seal.state(name)
        yield FileCheck((place / name).as_posix(), judged.state, judged.finding)


def _expected(folder: Path) -> Iterator[str]:
    """Yield what a result depends on, should the record not know of it."""
    for pattern in ("*.json", "*.onnx", "arrays.npz", "chains/*.csv", "generated/*.csv"):
        for path in sorted(folder.glob(pattern)):
            if path.name not in (RUN, BUNDLE):
                yield path.relative_to(folder).as_posix()


def _unreadable(path: Path) -> FileCheck | None:
    """Return what cannot be read, though nothing was changed."""
    try:
        if not (path / RUN).is_file():
            read_bundle(path)
        else:
            run = read_run(path)
            for member in run.members:
                if not member.missing:
                    read_chains(member)
    except InputError as error:
        return FileCheck(".", DAMAGED, str(error))
    return None
