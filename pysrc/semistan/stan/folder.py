"""What a Stan user needs in one folder: program, data, initial values and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.bundle.files import atomic_file, write_json
from semistan.model.config import SampleConfig
from semistan.model.design import Rows
from semistan.stan.data import stan_data, write_stan_json
from semistan.stan.priors import sampled_dispersion
from semistan.stan.program import Kernel, bundle_program, labels
from semistan.stan.sources import KERNEL_HEADERS, stan_source
from semistan.subspace.curve import curve_points

JITTER = 0.1  # standard deviation of theta's initial values, in units of each coefficient


def initial_values(
    bundle: Bundle, chains: int, generator: np.random.Generator
) -> list[dict[str, Any]]:
    """Spread initial values along the trained curve, one for each chain.

    Chain c starts at t = (c - 1/2) / chains, with the trained theta jittered and the trained
    dispersion.
    """
    trained, subspace = bundle.trained, bundle.subspace
    t = (np.arange(chains) + 0.5) / chains
    phi = subspace.project(curve_points(trained.control_points, t))
    jitter = JITTER * generator.normal(size=(chains, len(trained.theta)))
    theta = trained.theta + bundle.units.theta_scale * jitter
    sampled = sampled_dispersion(bundle.config, bundle.family)
    dispersion = {name: trained.dispersion[name] for name in sampled}
    return [{"phi": phi[c], "theta": theta[c], **dispersion} for c in range(chains)]


def write_stan_folder(
    bundle: Bundle,
    rows: Rows,
    folder: Path,
    options: SampleConfig,
    *,
    threads: int,
    kernel: Kernel = "stan",
    prior_only: bool = False,
) -> None:
    """Write ``program.stan``, ``data.json``, ``inits-<chain>.json`` and ``labels.json``.

    With the C++ kernel, its headers are written too: ``log_lik.hpp`` is CmdStan's USER_HEADER.
    """
    texts = {"program.stan": bundle_program(bundle, kernel)}
    if kernel == "cpp":
        texts |= {name: stan_source(name) for name in KERNEL_HEADERS}
    for name, text in texts.items():
        with atomic_file(folder / name) as path:
            path.write_text(text, "utf-8")
    data = stan_data(bundle, rows, threads=threads, prior_only=prior_only)
    write_stan_json(folder / "data.json", data)
    inits = initial_values(bundle, options.chains, np.random.default_rng(options.seed))
    for chain, values in enumerate(inits, start=1):
        write_stan_json(folder / f"inits-{chain}.json", values)
    write_json(folder / "labels.json", labels(bundle.design))
