"""Simulate and recover: is a model's posterior calibrated where its prior is true.

A replication draws true values from the prior and responses from these, fits the model to them, and
ranks the true values among the fit's draws. With the training in each replication the truth has any
weights that the prior of the networks allows, and what is found is what a user gets. With a fixed
subspace the truth lies in it, so that ranks are uniform up to chance unless something is wrong.

    OUT/  manifest.json  replications/<i>.csv  summary.csv  ranks.png  coverage.png
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.bundle.files import (
    atomic_file,
    atomic_folder,
    check_output_folder,
    read_json,
    write_json,
)
from semistan.data.frames import Table
from semistan.errors import InputError, SemistanError, sentence
from semistan.infer.backends.backend import SILENT, Backend, Report
from semistan.infer.backends.dask import backend_at
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import with_overrides
from semistan.model.modules import Given
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior, SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_linpred, posterior_predict
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.scoring.ranks import ranks_table
from semistan.posterior.written import table_text
from semistan.program.parts import Kernel
from semistan.show.pictures.ranks import draw_coverage, draw_ranks
from semistan.show.pictures.write import write_picture
from semistan.workflow.compiled import compile_model, toolchain_for
from semistan.workflow.dimension import resolved
from semistan.workflow.fit import fit_prepared
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import Prepared, configure, prepared_of
from semistan.workflow.sample import Fitted, sample
from semistan.workflow.simulate import (
    Model,
    check_simulated,
    every_weight,
    simulated,
)
from semistan.workflow.train import TrainTask
from semistan.workflow.watch import Say, silent

if TYPE_CHECKING:
    import pandas as pd

MARKER, REPLICATIONS = "manifest.json", "replications"
RANKED = 99  # draws, about, among which a true value is ranked
ROWS = 3  # whose linear predictors are ranked


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What replications found.

    Attributes
    ----------
    records : pandas.DataFrame
        ``replication``, ``quantity``, ``truth``, ``Estimate``, ``Est.Error``, ``rank``, ``draws``,
        ``passed`` (the fit's diagnostics) and ``seconds``.
    folder : Path
        Where they are.
    """

    records: pd.DataFrame
    folder: Path

    def table(self) -> pd.DataFrame:
        """Return one line for each quantity, as ``ranks_table`` does."""
        return ranks_table(self.records)

    @property
    def failed(self) -> int:
        """How many fits failed a diagnostic."""
        passed = self.records.groupby("replication")["passed"].all()
        return int((~passed).sum())

    def __repr__(self) -> str:
        return table_text(self.table())


@dataclass(frozen=True, slots=True, eq=False)
class ReplicationTask:
    """One replication.

    Attributes
    ----------
    number : int
        From 1; with ``seed`` it says what is drawn.
    seed : int
        Of all replications.
    prepared : Prepared
        The model that is fitted, and the rows whose response is replaced.
    truth : Bundle
        The model from whose prior true values are drawn.
    fixed : Bundle, optional
        The subspace in which all replications are sampled; else each trains its own.
    kernel : str
        With which the program of a fixed subspace was compiled.
    """

    number: int
    seed: int
    prepared: Prepared
    truth: Bundle
    fixed: Bundle | None
    kernel: Kernel

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"replication {self.number}"

    @property
    def in_thread(self) -> bool:
        """Training computes in this process."""
        return False

    def run(self, _: Report) -> pd.DataFrame:
        """Simulate, fit and rank."""
        generator = np.random.default_rng((self.seed, self.number))
        rows = self.prepared.rows
        truth = SubspacePosterior(self.truth, prior_draws(self.truth, rows, (1, 1), generator))
        y = posterior_predict(truth, rows, generator)[0]
        model = simulated(_seeded(self.prepared, self.number), self.truth, y)
        try:
            with tempfile.TemporaryDirectory(prefix="semistan-") as folder:
                fit = self._fit(model, Path(folder) / "run")
        except SemistanError as error:
            raise SemistanError(
                f"{self.name} failed: {sentence(error)} Run it again to continue."
            ) from None
        passed, seconds = fit.summary.passed, sum(fit.run.manifest.seconds.values())
        records = _ranked(truth, fit.posterior, model.rows)
        return records.assign(replication=self.number, passed=passed, seconds=seconds)

    def _fit(self, model: Prepared, out: Path) -> Fitted:
        if self.fixed is None:
            return fit_prepared(model, out)
        options, toolchain = model.config.sample, toolchain_for(model.config.sample)
        run = new_run(self.fixed, model.rows, out, options, toolchain, kernel=self.kernel)
        return sample(run, toolchain)


def sbc(
    model: Model,
    data: Table | str | Path | None = None,
    *,
    out: str | Path,
    replications: int = 100,
    fixed_subspace: bool = False,
    truth: Mapping[str, Any] | None = None,
    seed: int = 1,
    jobs: int | None = None,
    overwrite: bool = False,
    networks: Given | None = None,
    overrides: Mapping[str, Any] | None = None,
    say: Say = silent,
    backend: Backend | None = None,
) -> Calibration:
    """Calibrate a model by simulation; replications that are already there are kept.

    Parameters
    ----------
    model, data, out, replications, fixed_subspace, jobs, overwrite, networks
        As of ``semistan.sbc``.
    truth : mapping, optional
        Dotted keys of the configuration that differ in the model from whose prior the true values
        are drawn, as ``{"priors.b": "normal(0, 5)"}``: what a wrong prior does.
    seed : int
        Of the true values, the responses, and the fits.
    overrides : mapping, optional
        Dotted keys of the configuration.
    say : callable
        Receives one line for each replication.
    backend : Backend, optional
        What does the replications; by default what the configuration says.

    Raises
    ------
    InputError
        If the model cannot be used, or ``out`` holds replications of other settings.
    SemistanError
        If a replication fails; run it again to continue.
    """
    if replications < 2:
        raise InputError(f"--replications must be at least 2, got {replications}")
    prepared, folder = prepared_of(model, data, networks, overrides), Path(out)
    check_simulated(prepared.model.family)
    where = {"sample": {"backend", "cluster"}}
    options = {
        "config": prepared.config.model_dump(mode="json", exclude=where),
        "fixed_subspace": fixed_subspace,
        "truth": dict(truth or {}), "seed": seed,
    }  # fmt: skip
    _begin(folder, options, overwrite=overwrite)
    missing = [i for i in range(1, replications + 1) if not _file(folder, i).is_file()]
    if missing:
        tasks = _tasks(prepared, missing, fixed_subspace, dict(truth or {}), seed, say)
        cluster = configure(model, dict(overrides or {})).sample.where
        with nullcontext(backend) if backend else backend_at(cluster) as chosen:
            _complete(folder, tasks, chosen, jobs, say)
    return _summarised(folder, replications)


def _complete(
    folder: Path, tasks: Sequence[ReplicationTask], backend: Backend, jobs: int | None, say: Say
) -> None:
    """Let a backend do replications, and write what it finds as soon as it is there."""
    for index, found in backend.map(tasks, at_once=jobs):
        with atomic_file(_file(folder, tasks[index].number)) as temporary:
            found.to_csv(temporary, index=False)
        say(f"{tasks[index].name} is done")


def _tasks(
    prepared: Prepared,
    numbers: Sequence[int],
    fixed_subspace: bool,
    truth: dict[str, Any],
    seed: int,
    say: Say,
) -> list[ReplicationTask]:
    """Train what all replications share, compile their program, and return them."""
    toolchain = toolchain_for(prepared.config.sample)
    if fixed_subspace:  # the truth is in it
        config = with_overrides(prepared.config, {"subspace.completion": "none"})
        prepared = replace(prepared, config=config)
    prepared = resolved(prepared, say=say)
    prepared = replace(prepared, units=prepared.model.units)
    kernel = compile_model(prepared.model, toolchain, say)
    fixed = TrainTask(prepared).run(SILENT) if fixed_subspace else None
    of = fixed or every_weight(prepared)
    source = replace(of, config=with_overrides(of.config, truth)) if truth else of
    return [ReplicationTask(i, seed, prepared, source, fixed, kernel) for i in numbers]


def _begin(folder: Path, options: dict[str, Any], *, overwrite: bool) -> None:
    """Make the folder, unless it has replications of the same settings."""
    if (folder / MARKER).is_file() and read_json(folder / MARKER) == options:
        return
    if (folder / MARKER).is_file() and not overwrite:
        raise InputError(
            f"'{folder}' has replications of another model or other settings; give the same ones "
            "to continue, or --overwrite"
        )
    check_output_folder(folder, MARKER, overwrite=overwrite)
    with atomic_folder(folder) as temporary:
        (temporary / REPLICATIONS).mkdir()
        write_json(temporary / MARKER, options)


def _summarised(folder: Path, replications: int) -> Calibration:
    """Read all replications, and write their table and pictures."""
    import pandas as pd

    parts = [pd.read_csv(_file(folder, i)) for i in range(1, replications + 1)]
    found = Calibration(pd.concat(parts, ignore_index=True), folder)
    with atomic_file(folder / "summary.csv") as temporary:
        found.table().to_csv(temporary, index=False)
    write_picture(draw_ranks(found.records), folder / "ranks.png")
    write_picture(draw_coverage(found.records), folder / "coverage.png")
    return found


def _file(folder: Path, number: int) -> Path:
    return folder / REPLICATIONS / f"{number}.csv"


def _seeded(prepared: Prepared, number: int) -> Prepared:
    """Give a replication seeds of its own."""
    config = prepared.config
    seeds = {
        "train.seed": config.train.seed + number, "sample.seed": config.sample.seed + number
    }  # fmt: skip
    return replace(prepared, config=with_overrides(config, seeds))


def _ranked(truth: Posterior, posterior: Posterior, rows: Rows) -> pd.DataFrame:
    """Rank the true value of each quantity among about a hundred evenly spaced draws."""
    import pandas as pd

    thinned = posterior.thin(RANKED)
    true, drawn = _quantities(truth, rows), _quantities(thinned, rows)
    lines = [
        {
            "quantity": name, "truth": float(true[name][0]), "Estimate": float(draws.mean()),
            "Est.Error": float(draws.std(ddof=1)), "rank": int((draws < true[name][0]).sum()),
            "draws": len(draws),
        }
        for name, draws in drawn.items()
        if name in true
    ]  # fmt: skip
    return pd.DataFrame(lines)


def _quantities(posterior: Posterior, rows: Rows) -> dict[str, Array]:
    """Return draws (S,) of coefficients, dispersion, eta at some rows, and the log-likelihood."""
    found = {name: values.ravel() for name, values in posterior.identified.items()}
    chosen = np.linspace(0, len(rows) - 1, ROWS).astype(int)
    eta = posterior_linpred(posterior, rows.take(chosen))
    found |= {f"eta[{i + 1}]": column for i, column in zip(chosen, eta.T, strict=True)}
    return found | {"log_lik": log_lik(posterior, rows).sum(axis=1)}
