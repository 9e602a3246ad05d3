"""Log-likelihood and replicated responses computed by Stan: ``generated/`` in a run's folder.

They are the draws of ``quantities.stan``, a program that CmdStan runs on the run's own chains. Any
program that reads Stan's CSV files can use them, R's loo and bayesplot among them.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semistan.bundle.files import atomic_file, damage
from semistan.bundle.seal import stamp_of
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.local import LOCAL
from semistan.infer.chain_store import FiledTask, chain_file, complete_all, missing_chains
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.quantities import QuantitiesTask
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.content import content_of
from semistan.infer.methods import method_of
from semistan.infer.stan_json import write_stan_json
from semistan.model.arrays import Array
from semistan.model.completion import PSI
from semistan.model.layout import column_names
from semistan.posterior.manifest import record_files
from semistan.posterior.run import Run, record_chain
from semistan.program.data import stan_data
from semistan.program.quantities import quantities_program

FOLDER = "generated"
PROGRAM = "quantities.stan"


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """What Stan computed, chain after chain.

    Attributes
    ----------
    log_lik : array, shape (S, N)
        Log-likelihood of each row under each draw.
    y_rep : array, shape (S, N)
        One replicated response of each row for each draw; (S, N, K) if it counts categories.
    """

    log_lik: Array
    y_rep: Array


def generate_quantities(
    run: Run, toolchain: Toolchain, *, seed: int | None = None, backend: Backend = LOCAL
) -> list[Path]:
    """Let CmdStan compute ``log_lik`` and ``y_rep`` of the training rows for every draw.

    Chains that were computed before are kept. Besides the CSV files, the program is written.

    Parameters
    ----------
    run : Run
        A finished run.
    toolchain : Toolchain
        CmdStan and the compiler.
    seed : int, optional
        Seed of the replicated responses; the run's own by default.
    backend : Backend, optional
        What computes them; by default this machine.

    Returns
    -------
    list of Path
        ``generated/chain-<c>.csv`` in the run's folder, or in that of each subspace, with twelve
        significant digits.

    Raises
    ------
    InputError
        If a chain has not been sampled, or not by a sampler of the compiled program.
    ToolchainError
        If the program does not compile.
    SemistanError
        If CmdStan fails.
    """
    method = method_of(run.options)
    if not method.samples_program:
        raise InputError(
            f"CmdStan's generate_quantities reads draws of the compiled program's samplers, "
            f"'nuts' and 'mclmc'; this run's method is "
            f"'{run.options.method}'; its replicated responses are in posterior.nc, and "
            "its log_lik unless it is tempered"
        )
    run.csv_files()  # nothing is computed unless all chains are there
    program = quantities_program(run.bundle)
    compile_program(program, toolchain)
    for member in run.members:
        _write_program(member.path, program)
    with tempfile.TemporaryDirectory(prefix="semistan-") as name:
        filed = [
            task
            for i, member in enumerate(run.members)
            for task in _tasks(
                member, program, Path(name, f"{i}.json"), None if seed is None else seed + i
            )
        ]
        complete_all(filed, backend, at_once=run.plan.chains, before=record_chain)
    return [
        chain_file(member.path / FOLDER, chain)
        for member in run.members
        for chain in range(1, run.options.chain_count + 1)
    ]


def _write_program(folder: Path, program: str) -> None:
    """Write the program into a run's folder, and record it there."""
    path = folder / FOLDER / PROGRAM
    with atomic_file(path) as temporary:
        temporary.write_text(program, "utf-8")
    record_files(folder, {f"{FOLDER}/{PROGRAM}": stamp_of(path)})


def _tasks(member: Run, program: str, path: Path, seed: int | None) -> list[FiledTask]:
    """Return the tasks of a subspace's chains that have no quantities yet.

    Their data are written anew to a path: another version of the program may have had others.
    """
    folder = member.path / FOLDER
    missing = missing_chains(folder, member.options.chain_count)
    if not missing:
        return []
    shapes = [(p.name, p.shape) for p in member.bundle.layout.parameters]
    if completion := member.bundle.completion:
        shapes.append((PSI, (completion.K,)))
    columns = tuple(name for each in shapes for name in column_names(*each))
    data = stan_data(
        member.bundle, member.rows(), grainsize=member.plan.grainsize, prior_only=member.prior_only
    )
    write_stan_json(path, data)
    drawn = member.csv_files()
    seed = member.options.seed if seed is None else seed
    tasks = (
        QuantitiesTask(
            chain, program, content_of(path), content_of(drawn[chain - 1]), columns, seed
        )
        for chain in missing
    )
    return [FiledTask(task, folder) for task in tasks]


def read_generated(run: Run) -> Generated:
    """Read what ``generate_quantities`` wrote.

    Raises
    ------
    InputError
        If it has not been written, or only in part, or was changed.
    """
    chains = run.options.chain_count
    folders = [member.path / FOLDER for member in run.members]
    for folder in folders:
        if missing := missing_chains(folder, chains):
            raise InputError(
                f"'{folder}' lacks chains {missing}; write them with 'semistan export {run.path} "
                "--to generated'"
            )
    files = [chain_file(folder, chain) for folder in folders for chain in range(1, chains + 1)]
    for member in run.members:
        member.seal().verify(*(f"{FOLDER}/{chain_file(Path(), c)}" for c in range(1, chains + 1)))
    columns = np.concatenate([_read(file) for file in files])
    N, K = run.bundle.source.rows, run.bundle.family.counted
    log_lik, y_rep = np.split(columns, [N], axis=1)
    if K:  # CmdStan writes arrays of arrays with the first index running fastest.
        y_rep = y_rep.reshape(len(columns), K, N).transpose(0, 2, 1)
    return Generated(log_lik, y_rep)


def _read(path: Path) -> Array:
    """Read one CSV: a column of ``log_lik`` for each row, then those of ``y_rep``."""
    import pandas as pd

    with damage(path):
        return np.asarray(pd.read_csv(path, comment="#", index_col=False), dtype=float)
