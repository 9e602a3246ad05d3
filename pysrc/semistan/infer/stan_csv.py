"""Write draws as CmdStan writes those of NUTS, whatever drew them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semistan.bundle.files import atomic_file
from semistan.density.columns import lp_constant, program_columns
from semistan.density.target import Target
from semistan.infer.methods import NUTS_COLUMNS
from semistan.infer.sample import SIGNIFICANT_DIGITS
from semistan.model.arrays import Array
from semistan.version import __version__

LAYOUT = (2, 27, 0)  # the version of CmdStan whose layout this is


MAX_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Origin:
    """How a chain was drawn: what its file says above the draws.

    Attributes
    ----------
    algorithm : str
        The method's name in one word.
    about : str
        What the draws are, in one sentence.
    chain, seed, warmup : int
        Number of the chain, seed of the run, draws that were discarded.
    """

    algorithm: str
    about: str
    chain: int
    seed: int
    warmup: int


def write_stan_csv(path: Path, columns: Mapping[str, Array], origin: Origin) -> None:
    """Write one chain; the same draws give the same bytes, so that no time is in the file."""
    values = np.column_stack(list(columns.values()))
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"# {line}\n" for line in _configuration(len(values), origin))
        file.write(",".join(columns) + "\n")
        file.write(
            "# Adaptation terminated\n# Step size = 1\n# No free parameters for unit metric\n"
        )
        np.savetxt(file, values, fmt=f"%.{SIGNIFICANT_DIGITS}g", delimiter=",")
        file.write(
            "# \n#  Elapsed Time: 0 seconds (Warm-up)\n"
            "#                0 seconds (Sampling)\n"
            "#                0 seconds (Total)\n"
            "# These times are not measured: the run's manifest has the real ones.\n# \n"
        )


def _configuration(draws: int, origin: Origin) -> list[str]:
    major, minor, patch = LAYOUT
    return [
        f"stan_version_major = {major}",
        f"stan_version_minor = {minor}",
        f"stan_version_patch = {patch}",
        "model = program_model",
        f"semistan_version = {__version__}",
        "method = sample",
        "  sample",
        f"    num_samples = {draws}",
        f"    num_warmup = {origin.warmup}",
        "    save_warmup = 0",
        "    thin = 1",
        f"    algorithm = {origin.algorithm}",
        f"        max_depth = {MAX_DEPTH}",
        "      metric = unit_e",
        "      stepsize = 1",
        f"id = {origin.chain}",
        "data",
        "  file = data.json",
        "random",
        f"  seed = {origin.seed}",
        "output",
        f"  sig_figs = {SIGNIFICANT_DIGITS}",
        f"Not NUTS: {origin.about}",
    ]


def sampled_columns(
    target: Target, q: Array, log_density: Array, evaluations: Array
) -> dict[str, Array]:
    """Return the columns of a sampler's file for draws of q.

    Parameters
    ----------
    target : Target
        The posterior.
    q : array, shape (S, n)
        Draws in unconstrained coordinates.
    log_density : array, shape (S,)
        Minus ``negative_log_posterior`` of each draw.
    evaluations : array, shape (S,)
        Evaluations of the likelihood that each draw took.

    Returns
    -------
    dict of arrays, shape (S,)
        The seven columns of a sampler, then those of the program, by their names in the file.
    """
    lp = log_density + lp_constant(target)
    return _sampler_columns(lp, evaluations) | program_columns(target, q)


def _sampler_columns(lp: Array, evaluations: Array) -> dict[str, Array]:
    one, zero = np.ones_like(lp), np.zeros_like(lp)
    return dict(
        zip(NUTS_COLUMNS.values(), (lp, one, one, zero, evaluations, zero, -lp), strict=True)
    )
