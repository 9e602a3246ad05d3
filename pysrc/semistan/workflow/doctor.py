"""What the machine has, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from semistan.errors import ToolchainError
from semistan.infer.cmdstan.compile import cache_folder
from semistan.infer.cmdstan.toolchain import (
    as_text,
    compiler_version,
    find_cmdstan,
    find_make,
    versions_text,
)
from semistan.infer.plan import plan_threads
from semistan.infer.processors import usable_cores
from semistan.model.config import SampleConfig
from semistan.posterior.run import Run
from semistan.version import __version__
from semistan.words import count
from semistan.workflow.runs import RunLike, opened

LIBRARIES = ("torch", "cmdstanpy", "numpy", "pandas", "arviz", "formulaic", "onnx", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str

    def plain(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return asdict(self)


def doctor(run: RunLike | None = None) -> list[Finding]:
    """Look at Python, the libraries, the compiler, CmdStan, cores and the compile cache.

    With a run, its plan of chains, threads and slices is shown with the times that decided it.
    """
    plan = [Finding("plan of the run", True, _plan(opened(run)))] if run is not None else []
    return [
        Finding("semistan", True, f"{__version__} on Python {platform.python_version()}"),
        *(_library(name) for name in LIBRARIES),
        _tool("C++ compiler", compiler_version),
        _tool("make", find_make),
        _tool("CmdStan", _cmdstan),
        _cores(),
        *plan,
        _gpu(),
        _cache(),
    ]


def _library(name: str) -> Finding:
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, False, f"not installed; pip install {name}")


def _tool(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, look())
    except ToolchainError as error:
        return Finding(name, False, str(error))


def _cmdstan() -> str:
    path, number = find_cmdstan()
    return f"{as_text(number)} in {path}; {versions_text(number)}"


def _cores() -> Finding:
    chains, threads = plan_threads(SampleConfig())
    return Finding(
        "cores",
        True,
        f"{usable_cores()} physical cores usable: by default {chains} of 4 chains at a time, "
        f"{count(threads, 'thread')} each",
    )


def _plan(run: Run) -> str:
    return f"{run.plan.chains} chains at a time, {run.plan.text()}"


def _gpu() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("GPU", True, "unknown without torch")
    if not torch.cuda.is_available():
        return Finding("GPU", True, "none; training uses the CPU")
    return Finding("GPU", True, torch.cuda.get_device_name(0))


def _cache() -> Finding:
    folder = cache_folder()
    count = len([path for path in folder.glob("*") if path.is_dir()]) if folder.is_dir() else 0
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(parent).free / 1e9
    if not os.access(parent, os.W_OK):
        return Finding("compile cache", False, f"{parent} is not writable; set SEMISTAN_CACHE")
    text = f"{count} compiled programs in {folder} ({free:.0f} GB free)"
    return Finding("compile cache", True, text)
