"""CmdStan's approximations of the posterior: variational inference, Pathfinder, Laplace.

    meanfield, fullrank   ADVI: Kucukelbir et al. (2017), JMLR 18(14)
    pathfinder            Zhang et al. (2022), JMLR 23(306)
    laplace               a normal distribution at the mode, with the curvature there

Each "chain" is an approximation of its own, from its own start and with its own seed, so that
what they disagree on shows. Their draws are independent and need no warm-up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semistan.errors import SemistanError
from semistan.infer.cmdstan.toolchain import quiet_cmdstanpy
from semistan.infer.sample import (
    SIGNIFICANT_DIGITS,
    chain_seed,
    console_error,
    write_missing,
)
from semistan.model.config import SampleConfig

TOLERANCE = 1e-4  # relative change of the ELBO at which ADVI ends
GRADIENTS = 10  # draws for each gradient of the ELBO


def approximate_chains(
    executable: Path, run: Path, options: SampleConfig, *, parallel: int = 1
) -> None:
    """Write ``chains/chain-<c>.csv`` of the approximations that a run does not have yet.

    Parameters
    ----------
    executable : Path
        The compiled program.
    run : Path
        The run's folder, with ``data.json`` and ``inits-<chain>.json``.
    options : SampleConfig
        Method, number of approximations and of draws, seed.
    parallel : int
        Approximations at a time.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed; finished approximations are kept.
    """

    def approximate(chain: int, output: Path) -> Path:
        try:
            return _approximate(executable, run, options, chain, output)
        except (RuntimeError, ValueError) as error:
            message = console_error(output.parent, str(error))
            raise SemistanError(f"CmdStan's {options.method} failed: {message}") from None

    write_missing(run, run / "chains", options.chains, approximate, parallel=parallel)


def _approximate(
    executable: Path, run: Path, options: SampleConfig, chain: int, output: Path
) -> Path:
    """Run one approximation and return its CSV file."""
    model = quiet_cmdstanpy().CmdStanModel(exe_file=str(executable))
    common: dict[str, Any] = {
        "data": str(run / "data.json"),
        "seed": chain_seed(options.seed, chain),
        "output_dir": str(output),
        "sig_figs": SIGNIFICANT_DIGITS,
    }
    start = str(run / f"inits-{chain}.json")
    if options.method == "pathfinder":
        # One path without resampling: its weights are judged afterwards.
        fitted = model.pathfinder(
            **common, inits=start, num_paths=1, psis_resample=False,
            draws=options.draws, num_single_draws=options.draws,
        )  # fmt: skip
    elif options.method == "laplace":
        fitted = model.laplace_sample(**common, draws=options.draws, opt_args={"inits": start})
    else:
        # A start at the mode is near enough for ADVI to call its first evaluations converged.
        fitted = model.variational(
            **common, inits=start, algorithm=options.method, draws=options.draws,
            tol_rel_obj=TOLERANCE, grad_samples=GRADIENTS, require_converged=False,
        )  # fmt: skip
    fitted.save_csvfiles(dir=str(output / "draws"))
    (written,) = (output / "draws").glob("*.csv")
    return written
