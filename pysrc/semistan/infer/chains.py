"""Run a method of inference on a run's folder: the one place that knows who runs which."""

from __future__ import annotations

from pathlib import Path

from semistan.infer.approximate import approximate_chains
from semistan.infer.elliptical_slice import elliptical_slice_chains
from semistan.infer.flow import flow_chains
from semistan.infer.methods import ChainProgress, method_of
from semistan.infer.plan import Plan
from semistan.infer.sample import missing_chains, sample_chains
from semistan.infer.starts import find_starts
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.table.rows import Rows


def stan_chains(
    executable: Path,
    run: Path,
    options: SampleConfig,
    plan: Plan,
    *,
    keep_metric: bool,
    show_progress: bool,
) -> None:
    """Let CmdStan sample or approximate the chains that a run does not have yet.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed.
    """
    if method_of(options).approximate:
        approximate_chains(executable, run, options, parallel=plan.chains)
    else:
        sample_chains(
            executable, run, options, plan, keep_metric=keep_metric, show_progress=show_progress
        )


def torch_chains(
    bundle: Bundle,
    rows: Rows,
    run: Path,
    options: SampleConfig,
    *,
    prior_only: bool,
    progress: ChainProgress | None = None,
) -> None:
    """Let PyTorch sample or approximate the chains that a run does not have yet.

    Raises
    ------
    InputError
        If the method's library is not installed, or the method cannot start.
    SemistanError
        If the density is not finite where a chain starts, or a fit diverges.
    """
    if not missing_chains(run / "chains", options.chains):
        return
    starts = find_starts(bundle, rows, options, prior_only=prior_only)
    draw = flow_chains if options.method == "flow" else elliptical_slice_chains
    draw(bundle, rows, run, options, starts, prior_only=prior_only, progress=progress)
