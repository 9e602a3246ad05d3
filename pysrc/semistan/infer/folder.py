"""What a Stan user needs in one folder: program, data, initial values and labels."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.files import atomic_file, write_json
from semistan.infer.stan_json import write_stan_json
from semistan.infer.starts import Starts
from semistan.model.bundle import Bundle
from semistan.model.layout import Layout
from semistan.model.model import Model
from semistan.model.table.rows import Rows
from semistan.program.data import stan_data
from semistan.program.parts import Kernel
from semistan.program.program import bundle_program, included_functions, labels, raw_labels
from semistan.program.sources import KERNEL_HEADERS, stan_source

FUNCTIONS = "functions.stanfunctions"  # what a program with --include includes


def metric_file(folder: Path, chain: int) -> Path:
    """Return the path of a chain's initial inverse metric."""
    return folder / f"metric-{chain}.json"


def start_file(folder: Path, chain: int) -> Path:
    """Return the path of a chain's initial values."""
    return folder / f"inits-{chain}.json"


def write_stan_folder(
    bundle: Bundle,
    rows: Rows,
    folder: Path,
    starts: Starts,
    *,
    grainsize: int,
    kernel: Kernel = "stan",
    prior_only: bool = False,
    include: bool = False,
) -> None:
    """Write ``program.stan``, ``data.json``, ``inits-<chain>.json`` and ``labels.json``.

    A chain whose mode is known gets ``metric-<chain>.json``: the inverse metric there, under the
    name that CmdStan reads, and the mode itself, so that nothing looks for it again. With the C++
    kernel, its headers are written too: ``log_lik.hpp`` is CmdStan's USER_HEADER. With ``include``,
    the program's hand-written functions are in a file of their own.
    """
    program = bundle_program(bundle, kernel, include=FUNCTIONS if include else "")
    write_program(bundle.model, program, folder, kernel)
    if include:
        _write(folder / FUNCTIONS, included_functions(bundle.model, kernel))
    data = stan_data(bundle, rows, grainsize=grainsize, prior_only=prior_only)
    write_stan_json(folder / "data.json", data)
    write_starts(folder, starts, bundle.layout)


def write_program(model: Model, program: str, folder: Path, kernel: Kernel) -> None:
    """Write a model's ``program.stan`` with the kernel's headers, and ``labels.json``."""
    texts = {"program.stan": program}
    if kernel == "cpp":
        texts |= {name: stan_source(name) for name in KERNEL_HEADERS}
    for name, text in texts.items():
        _write(folder / name, text)
    write_json(folder / "labels.json", labels(model) | raw_labels(model))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, "utf-8")


def write_starts(folder: Path, starts: Starts, layout: Layout, *, after: int = 0) -> list[Path]:
    """Write where each chain after some starts, and its mode if that is known; return the files.

    Of what is integrated out, a mode has neither a place nor a metric: what is left is the
    covariance of the other coordinates.
    """
    sampled, content = layout.sampled, dict[Path, dict[str, Any]]()
    for chain, values in enumerate(starts.values[after:], start=after + 1):
        content[start_file(folder, chain)] = values
    for chain, mode in enumerate(starts.modes[after:], start=after + 1):
        inv_metric = mode.inv_metric[np.ix_(sampled, sampled)]
        own = replace(mode, q=mode.q[sampled], inv_metric=inv_metric)
        content[metric_file(folder, chain)] = asdict(own)
    for path, values in content.items():
        write_stan_json(path, values)
    return [*content]
