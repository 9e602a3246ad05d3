"""The whole package as one story: check, compile, train, sample, summarise."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import write_bundle
from semistan.bundle.files import check_output_folder
from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.infer.backends.backend import Backend
from semistan.infer.backends.dask import backend_at
from semistan.infer.backends.local import LOCAL
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.methods import method_of
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.modules import Given
from semistan.model.orthogonal import announcement
from semistan.model.table.rows import Rows
from semistan.posterior.manifest import MARKER
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import obstacle_of
from semistan.program.parts import Kernel
from semistan.subspace.construction import training_epochs
from semistan.workflow.compiled import compile_model, toolchain_for, trusted_kernel
from semistan.workflow.dimension import resolved
from semistan.workflow.modes import has_first_part
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import Prepared, configure, prepare
from semistan.workflow.sample import Fitted, sample
from semistan.workflow.saturation import warn_of_saturation
from semistan.workflow.train import (
    checkpoint_file,
    goes_on,
    prior_text,
    train,
    training_text,
    warn_of_damage,
    warn_of_overfitting,
)
from semistan.workflow.train_subspaces import begin_run, train_missing
from semistan.workflow.watch import NOBODY, Say, Watch


def fit_model(
    model: str | Path | ModelConfig,
    data: Table | str | Path | None = None,
    *,
    out: str | Path,
    networks: Given | None = None,
    overwrite: bool = False,
    overrides: dict[str, Any] | None = None,
    watch: Watch = NOBODY,
    backend: Backend | None = None,
) -> Fitted:
    """Fit a model: everything from a formula and a table to a posterior.

    Parameters
    ----------
    model, data, networks, overwrite
        As of ``semistan.fit``.
    out : path
        The run's folder.
    overrides : dict, optional
        Dotted keys of the configuration, as ``{"subspace.k": 8, "sample.seed": 3}``.
    watch : Watch, optional
        Who is told how the fit goes on; by default nobody.
    backend : Backend, optional
        What trains and draws the chains; by default what the configuration says.

    Raises
    ------
    InputError
        Before anything is trained or written, if the model or the data cannot be used or
        CmdStan is missing.
    SemistanError
        If training or sampling fails.
    """
    frame, overrides = data, dict(overrides or {})
    if isinstance(data, str | Path):
        frame, overrides["data"] = None, str(data)
    config = configure(model, overrides)
    check_output_folder(Path(out), MARKER, overwrite=overwrite)
    with nullcontext(backend) if backend else backend_at(config.sample.where) as chosen:
        prepared = prepare(config, frame, networks, watch.reading)
        for note in prepared.notes:
            watch.say(note)
        return fit_prepared(prepared, Path(out), overwrite=overwrite, watch=watch, backend=chosen)


def fit_prepared(
    prepared: Prepared,
    out: Path,
    *,
    overwrite: bool = False,
    watch: Watch = NOBODY,
    backend: Backend = LOCAL,
) -> Fitted:
    """Fit a model that was checked against its rows; other arguments as of ``fit_model``."""
    config = prepared.config
    if orthogonal := announcement(config, prepared.design):
        watch.say(orthogonal)
    _check_weights(prepared)
    toolchain, asked = toolchain_for(config.sample), config.sample
    prepared = resolved(prepared, say=watch.say)
    config = prepared.config
    kernel = compile_model(prepared.model, toolchain, watch.say)
    if config.subspace.trainings > 1:
        begin_run(prepared, out, toolchain, overwrite=overwrite)
        run = train_missing(out, prepared, toolchain, kernel, watch=watch, backend=backend)
    else:
        run = _trained_run(
            prepared, out, toolchain, kernel,
            compares=has_first_part(prepared.model, asked),
            overwrite=overwrite, watch=watch, backend=backend,
        )  # fmt: skip
    return sample(run, toolchain, watch=watch, backend=backend)


def _judge(bundle: Bundle, rows: Rows, say: Say) -> None:
    """Say how wide the prior is, and what is doubtful of a trained subspace."""
    say(prior_text(bundle, rows))
    warn_of_overfitting([bundle], say)
    warn_of_saturation([bundle], rows, say)


def _check_weights(prepared: Prepared) -> None:
    """Refuse, before anything is trained, stacking by a PSIS-LOO that cannot be computed."""
    config = prepared.config
    obstacle = obstacle_of(method_of(config.sample), config, prepared.design)
    if config.subspace.trainings > 1 and config.subspace.weights == "stacking" and obstacle:
        raise InputError(f"subspace.weights is 'stacking', but {obstacle}, or weights = 'equal'")


def _trained_run(
    prepared: Prepared,
    out: Path,
    toolchain: Toolchain | None,
    kernel: Kernel,
    *,
    compares: bool,
    overwrite: bool,
    watch: Watch,
    backend: Backend,
) -> Run:
    """Train one subspace and make the run's folder; ``compares`` as of ``new_run``."""
    started, checkpoint = time.monotonic(), checkpoint_file(out)
    warn_of_damage(checkpoint, watch.say)
    if goes_on(prepared, checkpoint):
        watch.say("training goes on where it was interrupted")
    try:
        training = watch.of_epochs(training_epochs(prepared.config))
        bundle = train(prepared, training, checkpoint=checkpoint, backend=backend)
    except KeyboardInterrupt:
        watch.say("interrupted; the same command goes on with the training")
        raise
    seconds = {"train": time.monotonic() - started}
    watch.say(training_text(bundle, seconds["train"]))
    _judge(bundle, prepared.rows, watch.say)
    kernel = trusted_kernel(kernel, bundle, prepared.rows, toolchain, watch.say)
    run = new_run(
        bundle, prepared.rows, out, prepared.config.sample, toolchain,
        kernel=kernel, compares=compares, overwrite=overwrite, timings=seconds, watch=watch,
    )  # fmt: skip
    checkpoint.unlink(missing_ok=True)
    return run


def train_bundle(
    config: ModelConfig,
    out: Path,
    *,
    overwrite: bool = False,
    watch: Watch = NOBODY,
) -> Bundle:
    """Train one subspace and export it as a bundle; arguments as of ``fit_model``."""
    check_output_folder(out, BUNDLE, overwrite=overwrite)
    prepared = prepare(config, reading=watch.reading)
    for note in prepared.notes:
        watch.say(note)
    if config.subspace.trainings > 1:
        watch.say(
            f"a bundle holds one subspace, the first of {config.subspace.trainings}; "
            "'semistan fit' trains and samples all"
        )
    prepared = resolved(prepared, say=watch.say)
    checkpoint = checkpoint_file(out)
    warn_of_damage(checkpoint, watch.say)
    training = watch.of_epochs(training_epochs(prepared.config))
    bundle = train(prepared, training, checkpoint=checkpoint)
    _judge(bundle, prepared.rows, watch.say)
    write_bundle(bundle, out, overwrite=overwrite)
    checkpoint.unlink(missing_ok=True)
    return bundle
