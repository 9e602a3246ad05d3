"""The manifest of a run, ``manifest.json``: what may stand in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from semistan.bundle.seal import FILES, RESTORE, Seal, Stamp, read_record, read_seal, write_record
from semistan.errors import InputError
from semistan.model.config import ModelConfig, SampleConfig
from semistan.program.parts import Kernel

MARKER = "manifest.json"
TRAINING = "training.parquet"
NOT_USED = "not used"  # of CmdStan and the compiler, by methods that PyTorch runs
FORMAT_VERSION = 3


class Record(BaseModel):
    """What stands in the manifest: known keys alone, of the types that they are written in."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PlanRecord(Record):
    """How the run uses the cores; milliseconds by the grain size, which is text in a file."""

    chains: int = Field(ge=1)
    threads: int = Field(ge=1)
    grainsize: int = Field(ge=1)
    milliseconds: dict[str, float]


class SourceRecord(Record):
    """Where the training rows came from."""

    path: str | None
    rows: int
    dropped: int


class Continuation(Record):
    """Draws by which each chain is continued: how many come before, how many more, their seed.

    ``planned`` ones follow the first part of a fit whose chains agree in it; others were asked for.
    """

    before: int = Field(ge=1)
    draws: int = Field(ge=1)
    seed: int = Field(ge=0)
    planned: bool = False

    @property
    def total(self) -> int:
        """The draws of a chain with these."""
        return self.before + self.draws


class Begun(Record):
    """What is known before the subspaces are trained.

    ``subspaces``, ``config`` and ``source`` are of a run with several subspaces alone, of which the
    folder of each has a manifest of its own.
    """

    format_version: int
    semistan: str
    formula: str
    family: str
    cmdstan: str
    compiler: str
    prior_only: bool
    subspaces: int | None = Field(default=None, ge=1)
    config: ModelConfig | None = None
    source: SourceRecord | None = None
    files: dict[str, Any] = {}
    seal: str = ""

    @property
    def numbers(self) -> range:
        """Those of several subspaces, from 1."""
        return range(1, (self.subspaces or 0) + 1)

    @property
    def hashes(self) -> dict[str, str]:
        """The sha256 of files by their names."""
        return {name: stamp["sha256"] for name, stamp in self.files.items()}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.subspaces is not None and (self.config is None or self.source is None):
            raise ValueError("a run with several subspaces has their config and source")
        return self


class Manifest(Begun):
    """What is known of a run that can be sampled.

    ``weights`` are those of several subspaces, empty where they are equal, ``warmups`` the lengths
    of warm-up in them, and ``targets`` the target acceptance rates. ``smaller_steps`` says that
    chains are to be drawn anew where transitions diverge. ``more`` is asked for, and not there yet.
    ``planned`` are the draws that each chain is to have if chains agree in the first part, until
    that is decided, and ``first`` the chains of that part where others have joined them.
    """

    bundle_sha256: str | list[str]
    sample: SampleConfig
    plan: PlanRecord
    kernel: Kernel
    keep_metric: bool
    smaller_steps: bool = False
    seconds: dict[str, float]
    modes: list[float] = []
    warmups: list[int] = []
    targets: list[float] = []
    weights: list[float] = []
    planned: int | None = None
    first: int | None = None
    more: Continuation | None = None
    continued: list[Continuation] = []

    @field_validator("sample", mode="before")
    @classmethod
    def _sampled(cls, sample: Any) -> Any:
        """Programs whose manifest does not say what they integrate out sample everything."""
        return {"integrate": "none", **sample} if isinstance(sample, dict) else sample

    @property
    def warmup_text(self) -> str:
        """The length of warm-up, or the lengths in different subspaces: ``300 or 1000``."""
        return " or ".join(map(str, self.warmups or (self.sample.warmup,)))


def read_manifest(path: Path) -> Begun:
    """Read a run's manifest: a ``Manifest``, unless the run's subspaces are not trained yet.

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
    content = read_record(marker, "run", FORMAT_VERSION)
    try:
        if "subspaces" in content and "plan" not in content:
            return Begun.model_validate(content)
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise InputError(f"'{marker}' is damaged: {_first(error)}; {RESTORE}") from None


def write_manifest(path: Path, manifest: Begun, stamps: Mapping[str, Stamp]) -> None:
    """Write what is known of the run in a folder, and of its files, with a seal."""
    content = manifest.model_dump(include=manifest.model_fields_set)
    write_record(path / MARKER, content, stamps)


def record_files(path: Path, stamps: Mapping[str, Stamp], **known: Any) -> Manifest:
    """Add files, and what else is known by now, to the manifest in a folder, and return that."""
    manifest = read_manifest(path).model_copy(update=known)
    write_manifest(path, manifest, {**seal_of(path).stamps, **stamps})
    again = read_manifest(path)
    assert isinstance(again, Manifest)
    return again


def seal_of(path: Path) -> Seal:
    """Return what a run's manifest, as it now is, says of the files in its folder."""
    if not (path / MARKER).is_file():
        return Seal(path, MARKER, {})
    return read_seal(path / MARKER, {FILES: read_manifest(path).files})


def _first(error: ValidationError) -> str:
    """Say what is wrong first."""
    detail = error.errors()[0]
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] == "missing":
        return f"it lacks '{key}'"
    if detail["type"] == "extra_forbidden":
        return f"it has the unknown key '{key}'"
    said = detail["msg"].removeprefix("Value error, ")
    return f"{key}: {said.lower()}" if key else said
