"""Write draws as CmdStan writes those of NUTS, whatever drew them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from semistan.density.columns import lp_constant, program_columns
from semistan.density.target import Target
from semistan.model.arrays import Array
from semistan.version import __version__

SIGNIFICANT_DIGITS = 10
NUTS_COLUMNS = {  # ArviZ's names of CmdStan's columns, in the order of its files
    "lp": "lp__",
    "acceptance_rate": "accept_stat__",
    "step_size": "stepsize__",
    "tree_depth": "treedepth__",
    "n_steps": "n_leapfrog__",
    "diverging": "divergent__",
    "energy": "energy__",
}
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


def stan_csv(columns: Mapping[str, Array], origin: Origin) -> bytes:
    """Return one chain's file; the same draws give the same bytes, so that no time is in it."""
    values, file = np.column_stack(list(columns.values())), io.StringIO()
    file.writelines(f"# {line}\n" for line in _configuration(len(values), origin))
    file.write(",".join(columns) + "\n")
    file.write("# Adaptation terminated\n# Step size = 1\n# No free parameters for unit metric\n")
    np.savetxt(file, values, fmt=f"%.{SIGNIFICANT_DIGITS}g", delimiter=",")
    file.write(
        "# \n#  Elapsed Time: 0 seconds (Warm-up)\n"
        "#                0 seconds (Sampling)\n"
        "#                0 seconds (Total)\n"
        "# These times are not measured: the run's manifest has the real ones.\n# \n"
    )
    return file.getvalue().encode()


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
        f"Not by CmdStan: {origin.about}",
    ]


def sampled_columns(
    target: Target,
    q: Array,
    log_density: Array,
    evaluations: Array,
    psi: Array | None = None,
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
    psi : array, shape (S, K), optional
        Coordinates outside the subspace, if it is completed.

    Returns
    -------
    dict of arrays, shape (S,)
        The seven columns of a sampler, then those of the program, by their names in the file.
    """
    lp = log_density + lp_constant(target)
    return _sampler_columns(lp, evaluations) | program_columns(target, q, psi)


def _sampler_columns(lp: Array, evaluations: Array) -> dict[str, Array]:
    one, zero = np.ones_like(lp), np.zeros_like(lp)
    return dict(
        zip(NUTS_COLUMNS.values(), (lp, one, one, zero, evaluations, zero, -lp), strict=True)
    )
