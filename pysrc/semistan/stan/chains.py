"""Run a method of inference on a run's folder: the one place that knows who runs which."""

from __future__ import annotations

from pathlib import Path

from semistan.model.config import SampleConfig
from semistan.stan.approximate import approximate_chains
from semistan.stan.methods import method_of
from semistan.stan.plan import Plan
from semistan.stan.sample import sample_chains


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
