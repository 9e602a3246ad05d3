"""Run CmdStan's ``generate_quantities`` on the chains of a run.

CmdStan begins every call with the same stream of random numbers for one seed, and leaves a draw
out without failing if its quantities cannot be computed. So each chain has a seed of its own, made
from the seed and its number, and its lines are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from semistan.errors import SemistanError
from semistan.infer.cmdstan.toolchain import quiet_cmdstanpy
from semistan.infer.sample import chain_file, chain_seed, write_missing

SIGNIFICANT_DIGITS = 12  # of the sampling program's ten-digit draws


def generate_chains(
    executable: Path, run: Path, chains: int, *, seed: int, parallel: int = 1
) -> list[Path]:
    """Write ``generated/chain-<c>.csv`` of the chains that have none yet.

    Each file depends only on its chain's draws, the seed and the chain's number.

    Parameters
    ----------
    executable : Path
        The compiled program of generated quantities.
    run : Path
        The run's folder, with ``data.json`` and ``chains/chain-<c>.csv``.
    chains : int
        Number of chains.
    seed : int
        Seed of the replicated responses.
    parallel : int
        Chains at a time.

    Returns
    -------
    list of Path
        The files of all chains.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed; finished chains are kept.
    """
    folder = run / "generated"

    def generate(chain: int, output: Path) -> Path:
        return _generate_chain(executable, run, chain, seed, output)

    write_missing(run, folder, chains, generate, parallel=parallel, prefix=".generating-")
    return [chain_file(folder, chain) for chain in range(1, chains + 1)]


def _generate_chain(executable: Path, run: Path, chain: int, seed: int, output: Path) -> Path:
    fitted = chain_file(run / "chains", chain)
    try:
        quiet_cmdstanpy().CmdStanModel(exe_file=str(executable)).generate_quantities(
            data=str(run / "data.json"),
            previous_fit=[str(fitted)],
            seed=chain_seed(seed, chain),
            gq_output_dir=str(output),
            sig_figs=SIGNIFICANT_DIGITS,
        )
    except (RuntimeError, ValueError) as error:
        raise SemistanError(f"CmdStan failed: {_console(output) or error}") from None
    (written,) = output.glob("*.csv")
    expected, got = (sum(1 for _ in _draw_lines(path)) for path in (fitted, written))
    if got != expected:
        raise SemistanError(
            f"CmdStan computed the quantities of {got} of the {expected} draws of chain {chain}: "
            f"{_console(output)}"
        )
    return written


def _draw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a Stan CSV but its comments and its header."""
    with path.open("rb") as file:
        lines = (line for line in file if line.strip() and not line.startswith(b"#"))
        next(lines, None)
        yield from lines


def _console(output: Path) -> str:
    """Return what CmdStan printed, from the first exception on; otherwise its last lines."""
    lines = [
        line
        for path in sorted(output.glob("*.txt"))
        for line in path.read_text("utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    words = ("exception", "mismatch", "error")
    first = (i for i, line in enumerate(lines) if any(word in line.lower() for word in words))
    start = next(first, max(0, len(lines) - 6))
    return "\n".join(lines[start : start + 6])
