"""The manifest of a run, ``manifest.json``: what may stand in it.

Formats 1 (one subspace) and 2 (several) have the hashes of some files under keys of their own;
format 3 has the seal, for both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from semistan.bundle.seal import FILES, RESTORE, SEAL, Seal, Stamp, read_record, read_seal
from semistan.errors import InputError
from semistan.model.config import ModelConfig, SampleConfig

MARKER = "manifest.json"
TRAINING = "training.parquet"
NOT_USED = "not used"  # of CmdStan and the compiler, by methods that PyTorch runs
FORMAT_VERSION = 3
SEALED_FORMAT_VERSION = 3  # the first whose record has the hashes of all files and of itself
HASHED = {"program_sha256": "program.stan", "data_sha256": "data.json", "table_sha256": TRAINING}


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Plan(_Checked):
    chains: int = Field(ge=1)
    threads: int = Field(ge=1)
    grainsize: int = Field(ge=1)
    milliseconds: dict[str, float]


class _Source(_Checked):
    path: str | None
    rows: int
    dropped: int


class _More(_Checked):
    """Draws by which each chain is continued: how many come before, how many more, their seed."""

    before: int = Field(ge=1)
    draws: int = Field(ge=1)
    seed: int = Field(ge=0)


class _Begun(_Checked):
    """What is known before the subspaces are trained, and what earlier formats had."""

    format_version: int
    semistan: str
    formula: str
    family: str
    cmdstan: str
    compiler: str
    prior_only: bool
    files: dict[str, Any] = {}
    seal: str = ""
    program_sha256: str = ""
    data_sha256: str = ""
    table_sha256: str = ""
    subspaces: int = Field(default=1, ge=1)
    config: dict[str, Any] | None = None
    source: _Source | None = None


class _Ready(_Begun):
    """What is known of a run that can be sampled."""

    bundle_sha256: str | list[str]
    sample: dict[str, Any]
    plan: _Plan
    kernel: Literal["stan", "cpp"]
    keep_metric: bool
    seconds: dict[str, float]
    modes: list[float] = []
    warmups: list[int] = []
    weights: list[float] = []
    more: _More | None = None  # asked for, and not there yet
    continued: list[_More] = []


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a run's manifest, that of a run whose subspaces are not all trained too.

    Parameters
    ----------
    path : Path
        The run's folder.

    Raises
    ------
    InputError
        If the folder is no run, or of a newer format, or its manifest is damaged or was changed.
    """
    marker = path / MARKER
    if not marker.is_file():
        raise InputError(f"'{path}' is not a run (it has no {MARKER})")
    manifest = read_record(marker, "run", newest=FORMAT_VERSION, sealed=SEALED_FORMAT_VERSION)
    several, begun = "subspaces" in manifest, "plan" not in manifest
    try:
        (_Begun if several and begun else _Ready).model_validate(manifest)
        if several:
            ModelConfig.model_validate(manifest["config"])
        if not begun:
            SampleConfig.model_validate(manifest["sample"])
    except ValidationError as error:
        raise InputError(f"'{marker}' is damaged: {_first(error)}; {RESTORE}") from None
    needed = () if is_sealed(manifest) or several else HASHED
    for key in needed:
        if key not in manifest:
            raise InputError(f"'{marker}' is damaged: it lacks '{key}'; {RESTORE}")
    return manifest


def seal_of(path: Path) -> Seal:
    """Return what a run's manifest, as it now is, says of the files in its folder."""
    if not (path / MARKER).is_file():
        return Seal(path, MARKER, {}, False)
    manifest = read_manifest(path)
    if FILES in manifest:
        return read_seal(path / MARKER, manifest)
    return Seal(path, MARKER, old_stamps(manifest), False)


def old_stamps(manifest: dict[str, Any]) -> dict[str, Stamp]:
    """Return what a manifest of an earlier format says of files."""
    return {name: Stamp(manifest[key]) for key, name in HASHED.items() if manifest.get(key)}


def hashes(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the sha256 of files by their names, whatever the format."""
    stamps = {name: stamp["sha256"] for name, stamp in manifest.get(FILES, {}).items()}
    return stamps or {name: stamp.sha256 for name, stamp in old_stamps(manifest).items()}


def is_sealed(manifest: dict[str, Any]) -> bool:
    """Whether it has the hashes of all files and of itself."""
    return SEAL in manifest


def _first(error: ValidationError) -> str:
    """Say what is wrong first."""
    detail = error.errors()[0]
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] == "missing":
        return f"it lacks '{key}'"
    if detail["type"] == "extra_forbidden":
        return f"it has the unknown key '{key}'"
    return f"{key}: {detail['msg'].lower()}"
