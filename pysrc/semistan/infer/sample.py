"""Run CmdStan's NUTS: chains in parallel, threads within chains."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from semistan.errors import SemistanError
from semistan.infer.cmdstan.toolchain import quiet_cmdstanpy
from semistan.infer.folder import metric_file
from semistan.infer.plan import Plan
from semistan.model.config import SampleConfig

SIGNIFICANT_DIGITS = 10


def chain_file(folder: Path, chain: int) -> Path:
    """Return the path of a chain's CSV."""
    return folder / f"chain-{chain}.csv"


def missing_chains(folder: Path, chains: int) -> list[int]:
    """Return the chains whose CSV is not there yet."""
    return [c for c in range(1, chains + 1) if not chain_file(folder, c).is_file()]


def chain_seed(seed: int, chain: int) -> int:
    """Return a chain's own seed, below 2^31 as CmdStan 2.27 expects."""
    return int(np.random.SeedSequence((seed, chain)).generate_state(1)[0]) >> 1


def write_missing(
    run: Path,
    folder: Path,
    chains: int,
    write: Callable[[int, Path], Path],
    *,
    parallel: int,
    prefix: str = ".sampling-",
) -> None:
    """Let chains that have no CSV in a folder be written apart, and move in those that are whole.

    Parameters
    ----------
    run : Path
        The run's folder, in which a temporary one is made.
    folder : Path
        Where ``chain-<c>.csv`` go; made if it is not there.
    chains : int
        Number of chains.
    write : callable
        Called with a chain's number and an empty folder's name; returns the file it has written.
    parallel : int
        Chains at a time.
    prefix : str
        Of the temporary folder's name.
    """
    folder.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=run, prefix=prefix))

    def finish(chain: int) -> None:
        write(chain, temporary / str(chain)).rename(chain_file(folder, chain))

    try:
        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(finish, missing_chains(folder, chains)))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sample_chains(
    executable: Path,
    run: Path,
    options: SampleConfig,
    plan: Plan,
    *,
    keep_metric: bool,
    show_progress: bool,
) -> None:
    """Sample the chains that a run does not have yet into its ``chains/``.

    Each chain depends only on the seed and its number, so that an interrupted run is
    completed with the draws it would have had.

    Parameters
    ----------
    executable : Path
        The compiled program.
    run : Path
        The run's folder, with ``data.json`` and ``inits-<chain>.json``.
    options : SampleConfig
        Iterations, adaptation, seed; nothing in them is ``auto`` any more.
    plan : Plan
        Chains at a time and threads within them.
    keep_metric : bool
        Whether warm-up adapts the step size only, and leaves the initial metric as it is.
    show_progress : bool
        Whether to show a progress bar per chain.

    Raises
    ------
    SemistanError
        If a chain fails, with what CmdStan printed.
    """
    chains = run / "chains"
    chains.mkdir(exist_ok=True)
    missing = missing_chains(chains, options.chains)
    if not missing:
        return
    temporary = Path(tempfile.mkdtemp(dir=run, prefix=".sampling-"))
    try:
        for block in _consecutive(missing):  # CmdStanPy numbers initial values from the first
            output = temporary / str(block[0])  # a single chain's file has no number
            arguments = _arguments(run, block, options, keep_metric=keep_metric)
            quiet_cmdstanpy().CmdStanModel(exe_file=str(executable)).sample(
                **arguments,
                parallel_chains=min(plan.chains, len(block)),
                threads_per_chain=plan.threads,
                output_dir=str(output),
                show_progress=show_progress,
            )
    except (RuntimeError, ValueError, TimeoutError) as error:
        raise SemistanError(f"CmdStan failed: {console_error(temporary, str(error))}") from None
    finally:
        _keep_finished(temporary, chains)
        shutil.rmtree(temporary, ignore_errors=True)


def _arguments(
    run: Path, chains: Sequence[int], options: SampleConfig, *, keep_metric: bool
) -> dict[str, Any]:
    assert options.warmup != "auto"
    metric = options.metric
    return {
        "data": str(run / "data.json"),
        "inits": [str(run / f"inits-{chain}.json") for chain in chains],
        "chains": len(chains),
        "chain_ids": list(chains),
        "seed": options.seed,
        "iter_warmup": options.warmup,
        "iter_sampling": options.draws,
        "adapt_delta": options.adapt_delta,
        "max_treedepth": options.max_treedepth,
        "metric": [str(metric_file(run, c)) for c in chains] if metric == "ggn" else metric,
        "sig_figs": SIGNIFICANT_DIGITS,
        "refresh": max(1, (options.warmup + options.draws) // 50),
        "force_one_process_per_chain": True,
        **(step_size_only(options.warmup) if keep_metric else {}),
    }


def step_size_only(warmup: int) -> dict[str, int]:
    """Return phases of adaptation without a window in which the metric is estimated.

    The whole of warm-up is the last phase: if it were the first, Stan would close an empty
    window at its end and put a multiple of the unit matrix in place.
    """
    return {"adapt_init_phase": 0, "adapt_metric_window": 0, "adapt_step_size": warmup}


def _consecutive(chains: Sequence[int]) -> list[list[int]]:
    blocks: list[list[int]] = []
    for chain in chains:
        if blocks and chain == blocks[-1][-1] + 1:
            blocks[-1].append(chain)
        else:
            blocks.append([chain])
    return blocks


def _keep_finished(temporary: Path, chains: Path) -> None:
    """Move complete CSVs into ``chains/``, untouched, under their chain's number."""
    for path in temporary.glob("*/*.csv"):
        text = path.read_text("utf-8", errors="replace")
        if "Elapsed Time" in text[-1000:]:
            chain = next(line for line in text.splitlines() if line.startswith("# id = "))
            path.rename(chain_file(chains, int(chain.split("=")[1].split()[0])))


def console_error(temporary: Path, fallback: str) -> str:
    """Return the first error that a chain printed."""
    for path in sorted(temporary.glob("*/*-stdout.txt")):
        lines = path.read_text("utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines):
            if "Exception" in line or "error" in line.lower():
                return "\n".join(lines[number : number + 6])
    return fallback
