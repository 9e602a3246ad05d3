"""The folder of a run whose chains are to be drawn: their starts found, the cores planned."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from semistan.bundle.bundle import read_bundle
from semistan.bundle.files import check_output_folder
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.methods import check_computable, method_of, suited
from semistan.model.bundle import Bundle, as_sampled
from semistan.model.config import SampleConfig, anywhere, with_overrides
from semistan.model.table.rows import Rows
from semistan.posterior.manifest import MARKER
from semistan.posterior.run import Run, create_run
from semistan.program.parts import Kernel
from semistan.workflow.compiled import (
    compile_model,
    plan_of,
    starts_of,
    toolchain_for,
    trusted_kernel,
)
from semistan.workflow.first_answer import first_answer
from semistan.workflow.modes import FIRST, has_first_part
from semistan.workflow.prepare import training_rows
from semistan.workflow.watch import NOBODY, Watch


def new_run(
    bundle: Bundle,
    rows: Rows,
    out: Path,
    options: SampleConfig,
    toolchain: Toolchain | None,
    *,
    kernel: Kernel = "stan",
    prior_only: bool = False,
    compares: bool = False,
    overwrite: bool = False,
    timings: dict[str, float] | None = None,
    watch: Watch = NOBODY,
) -> Run:
    """Find the chains' starts, plan the cores, and write the run's folder.

    With ``compares``, chains are compared after a first part (``modes.py``).
    """
    planned = options.per_chain if compares else None
    if compares:
        options = options.model_copy(update={"draws": FIRST})
    started, sampled = time.monotonic(), as_sampled(bundle, options)
    method = method_of(options)
    method.check(bundle.config.model_copy(update={"sample": options}))
    check_computable(method, bundle.network)
    starts = starts_of(sampled, rows, options, prior_only=prior_only, say=watch.say)
    seconds = {**(timings or {}), "starts": time.monotonic() - started}
    watch.say(starts.text(starts.resolve(options), with_metric=method.hamiltonian))
    wanted = watch.listens and not prior_only
    if wanted and (answer := first_answer(sampled, rows, options, starts.found)):
        watch.say(answer.text())
    plan = plan_of(sampled, rows, options, toolchain, kernel)
    return create_run(
        bundle, rows, out, options, starts, plan, toolchain,
        kernel=kernel, prior_only=prior_only, overwrite=overwrite, timings=seconds,
        planned=planned,
    )  # fmt: skip


def start_run(
    source: Path,
    data: str | None,
    out: Path,
    overrides: dict[str, Any],
    *,
    prior_only: bool = False,
    at_once: bool = False,
    overwrite: bool = False,
    watch: Watch = NOBODY,
) -> Run:
    """Make a run's folder from a bundle's, ready to be sampled.

    With ``at_once``, chains are drawn to their end, whether they agree or not.
    """
    check_output_folder(out, MARKER, overwrite=overwrite)
    bundle = read_bundle(source)
    config = anywhere(with_overrides(bundle.config, overrides))
    config = config.model_copy(update={"sample": suited(config.sample, bundle.network)})
    rows = training_rows(bundle, data, watch.reading)
    toolchain = toolchain_for(config.sample)
    model = bundle.model.replace(config=config)
    kernel = compile_model(model, toolchain, watch.say)
    sampled = as_sampled(bundle, config.sample)
    kernel = trusted_kernel(kernel, sampled, rows, toolchain, watch.say)
    return new_run(
        bundle, rows, out, config.sample, toolchain,
        kernel=kernel, prior_only=prior_only, overwrite=overwrite, watch=watch,
        compares=not (prior_only or at_once) and has_first_part(model, config.sample),
    )  # fmt: skip
