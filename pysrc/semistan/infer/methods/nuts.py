"""CmdStan's NUTS, with threads within the chain.

Hoffman and Gelman (2014), JMLR 15; Betancourt (2017), arXiv:1701.02434.
"""

from __future__ import annotations

import json

from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.process import Word, cmdstan_chain
from semistan.infer.content import Content
from semistan.infer.continuation import Motion
from semistan.infer.method import Method
from semistan.infer.stan_csv import NUTS_COLUMNS
from semistan.infer.task import ChainTask
from semistan.model.config import SampleConfig


def nuts_chain(task: ChainTask, report: Report) -> bytes:
    """Sample a chain; its random numbers are those of the run's seed and its number.

    Raises
    ------
    SemistanError
        If CmdStan fails, with what it printed.
    """
    options = task.options
    assert options.warmup != "auto"
    metric: list[Word] = [f"metric={options.metric}"]
    if options.metric == "ggn":
        assert task.mode is not None
        metric = ["metric=dense_e", ("metric_file", task.mode)]
    return cmdstan_chain(
        task, [*nuts_words(options, keep_metric=task.keep_metric), *metric], seed=options.seed,
        chain=task.number, refresh=_refresh(options.warmup + options.per_chain), report=report,
    )  # fmt: skip


def continued_chain(task: ChainTask, report: Report, *, motion: Motion) -> bytes:
    """Sample without warm-up, with a given step size and metric."""
    options, metric = task.options, list[Word](["metric=unit_e"])
    if motion.metric:
        text = json.dumps({"inv_metric": motion.metric}).encode()
        kind = "dense_e" if isinstance(motion.metric[0], list) else "diag_e"
        metric = [f"metric={kind}", ("metric_file", Content("metric.json", None, text))]
    words = [
        "method=sample", f"num_samples={options.per_chain}", "num_warmup=0",
        "adapt", "engaged=0", "algorithm=hmc", "engine=nuts",
        f"max_depth={options.max_treedepth}", f"stepsize={motion.step}",
    ]  # fmt: skip
    return cmdstan_chain(
        task, [*words, *metric], seed=options.seed, chain=task.number,
        refresh=_refresh(options.per_chain), report=report,
    )  # fmt: skip


def nuts_words(options: SampleConfig, *, keep_metric: bool) -> list[str]:
    """Return what CmdStan's command line says of NUTS, but the metric, which follows."""
    assert options.warmup != "auto"
    phases = step_size_only(options.warmup) if keep_metric else {}
    return [
        "method=sample", f"num_samples={options.per_chain}", f"num_warmup={options.warmup}",
        "adapt", f"delta={options.adapt_delta}",
        *(f"{name}={value}" for name, value in phases.items()),
        "algorithm=hmc", "engine=nuts", f"max_depth={options.max_treedepth}",
    ]  # fmt: skip


def _refresh(iterations: int) -> int:
    """Return after how many iterations CmdStan prints a line: fifty lines for a chain."""
    return max(1, iterations // 50)


def step_size_only(warmup: int) -> dict[str, int]:
    """Return CmdStan's phases of adaptation without a window in which the metric is estimated.

    The whole of warm-up is the last phase: if it were the first, Stan would close an empty
    window at its end and put a multiple of the unit matrix in place.
    """
    return {"init_buffer": 0, "window": 0, "term_buffer": warmup}


NUTS = Method(
    "nuts", "NUTS", nuts_chain, approximate=False, by_stan=True, has_warmup=True,
    columns=NUTS_COLUMNS, hamiltonian=True, continued=continued_chain,
)  # fmt: skip
