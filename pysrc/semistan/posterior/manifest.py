"""The manifest of a run, ``manifest.json``: what may stand in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from semistan.bundle.seal import FILES, RESTORE, Seal, read_record, read_seal
from semistan.errors import InputError
from semistan.model.config import ModelConfig, SampleConfig

MARKER = "manifest.json"
TRAINING = "training.parquet"
NOT_USED = "not used"  # of CmdStan and the compiler, by methods that PyTorch runs
FORMAT_VERSION = 3


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
    """What is known before the subspaces are trained."""

    format_version: int
    semistan: str
    formula: str
    family: str
    cmdstan: str
    compiler: str
    prior_only: bool
    files: dict[str, Any]
    seal: str
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
        If the folder is no run, or of another format, or its manifest is damaged or was changed.
    """
    marker = path / MARKER
    if not marker.is_file():
        raise InputError(f"'{path}' is not a run (it has no {MARKER})")
    manifest = read_record(marker, "run", FORMAT_VERSION)
    several, begun = "subspaces" in manifest, "plan" not in manifest
    try:
        (_Begun if several and begun else _Ready).model_validate(manifest)
        if several:
            ModelConfig.model_validate(manifest["config"])
        if not begun:
            SampleConfig.model_validate(manifest["sample"])
    except ValidationError as error:
        raise InputError(f"'{marker}' is damaged: {_first(error)}; {RESTORE}") from None
    return manifest


def seal_of(path: Path) -> Seal:
    """Return what a run's manifest, as it now is, says of the files in its folder."""
    if not (path / MARKER).is_file():
        return Seal(path, MARKER, {})
    return read_seal(path / MARKER, read_manifest(path))


def hashes(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the sha256 of files by their names."""
    return {name: stamp["sha256"] for name, stamp in manifest.get(FILES, {}).items()}


def _first(error: ValidationError) -> str:
    """Say what is wrong first."""
    detail = error.errors()[0]
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] == "missing":
        return f"it lacks '{key}'"
    if detail["type"] == "extra_forbidden":
        return f"it has the unknown key '{key}'"
    return f"{key}: {detail['msg'].lower()}"
