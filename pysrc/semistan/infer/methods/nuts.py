"""CmdStan's NUTS, with threads within the chain.

Hoffman and Gelman (2014), JMLR 15; Betancourt (2017), arXiv:1701.02434.
"""

from __future__ import annotations

import json
from typing import Any

from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.process import cmdstan_chain
from semistan.infer.content import Content
from semistan.infer.continuation import Motion
from semistan.infer.method import Method
from semistan.infer.stan_csv import NUTS_COLUMNS, SIGNIFICANT_DIGITS
from semistan.infer.task import ChainTask


def nuts_chain(task: ChainTask, report: Report) -> bytes:
    """Sample a chain; its random numbers are those of the run's seed and its number.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed.
    """
    options = task.options
    assert options.warmup != "auto"
    phases: dict[str, Any] = step_size_only(options.warmup) if task.keep_metric else {}
    return cmdstan_chain(
        task, "sample", report=report,
        chains=1, chain_ids=[task.number], seed=options.seed,
        iter_warmup=options.warmup, iter_sampling=options.per_chain,
        adapt_delta=options.adapt_delta, max_treedepth=options.max_treedepth,
        metric=task.mode if options.metric == "ggn" else options.metric,
        sig_figs=SIGNIFICANT_DIGITS, refresh=max(1, (options.warmup + options.per_chain) // 50),
        threads_per_chain=task.threads, force_one_process_per_chain=True, show_progress=False,
        **phases,
    )  # fmt: skip


def continued_chain(task: ChainTask, report: Report, *, motion: Motion) -> bytes:
    """Sample without warm-up, with a given step size and metric."""
    options, metric = task.options, json.dumps({"inv_metric": motion.metric}).encode()
    return cmdstan_chain(
        task, "sample", report=report,
        chains=1, chain_ids=[task.number], seed=options.seed,
        iter_warmup=0, iter_sampling=options.per_chain, adapt_engaged=False, step_size=motion.step,
        max_treedepth=options.max_treedepth,
        metric=Content("metric.json", None, metric) if motion.metric else "unit_e",
        sig_figs=SIGNIFICANT_DIGITS, refresh=max(1, options.per_chain // 50),
        threads_per_chain=task.threads, force_one_process_per_chain=True, show_progress=False,
    )  # fmt: skip


def step_size_only(warmup: int) -> dict[str, int]:
    """Return phases of adaptation without a window in which the metric is estimated.

    The whole of warm-up is the last phase: if it were the first, Stan would close an empty
    window at its end and put a multiple of the unit matrix in place.
    """
    return {"adapt_init_phase": 0, "adapt_metric_window": 0, "adapt_step_size": warmup}


NUTS = Method(
    "nuts", "NUTS", nuts_chain, approximate=False, by_stan=True, has_warmup=True,
    columns=NUTS_COLUMNS, hamiltonian=True, continued=continued_chain,
)  # fmt: skip
