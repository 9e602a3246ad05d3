"""Training: from a prepared model to a bundle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.bundle import library_versions
from semistan.bundle.files import LONGEST
from semistan.bundle.unfinished import keep_state, kept_state, set_state_aside
from semistan.density.information import information
from semistan.density.problem import Problem, make_problem
from semistan.errors import SemistanError
from semistan.infer.backends.backend import SILENT, Backend, Report
from semistan.infer.backends.local import LOCAL
from semistan.infer.task import torch_threads
from semistan.lazy import torch
from semistan.model.bundle import Bundle
from semistan.model.config import TrainConfig
from semistan.model.model import Model
from semistan.model.table.rows import Rows
from semistan.model.trained import Trained
from semistan.posterior.implied import implied, implied_text
from semistan.subspace.checkpoint import kept, key_of
from semistan.subspace.completion import complete
from semistan.subspace.construction import construction
from semistan.subspace.descent import Progress
from semistan.subspace.leading_layers import as_epochs, batched, train_leading_layers
from semistan.subspace.trajectory import after, joined
from semistan.workflow.dimension import resolved
from semistan.workflow.prepare import Prepared, check_device
from semistan.workflow.watch import Say, silent

# A loss of rows held out is above that of the others in every fit, by some (effective parameters) /
# rows, and varies with the few rows that are held out. Three standard errors of their mean exclude
# chance; 0.1 is a difference that matters, which in very large tables nearly any is not: for a
# normal response, as an error variance that is a fifth larger than training believes.
ERRORS, LEAST_GAP, FEWEST_ROWS = 3.0, 0.1, 10
MOST_OTHERS = 0.1  # coefficients outside the network, for each row
# What a training does not depend on.
ELSEWHERE: dict[str, Any] = {"data": True, "sample": True, "subspace": {"subspaces"}}


@dataclass(frozen=True, slots=True, eq=False)
class TrainTask:
    """The training of one subspace.

    Attributes
    ----------
    prepared : Prepared
        The model and its rows.
    left : bytes, optional
        What an interrupted attempt kept; nothing is taken of another training's.
    """

    prepared: Prepared
    left: bytes | None = None

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return "training"

    @property
    def in_thread(self) -> bool:
        """PyTorch computes in this process."""
        return False

    def run(self, report: Report) -> Bundle:
        """Train, and report each epoch with its losses."""
        model, config = self.prepared.model, self.prepared.config
        problem = make_problem(model, self.prepared.rows, _device(config.train.device))
        generator = torch.Generator().manual_seed(config.train.seed)
        with (
            torch_threads(len(problem) * model.leading.whole.widest),
            kept(training_key(self.prepared), report.keep, self.left),
        ):
            trained = _trained(model, problem, generator, report.step)
        alone = config.subspace.model_copy(update={"subspaces": 1})
        bundle = Bundle(
            config.model_copy(update={"subspace": alone}), model.design, model.units, trained,
            self.prepared.source, library_versions(), modules=self.prepared.modules,
        )  # fmt: skip
        if found := information(bundle, self.prepared.rows):
            bundle = replace(bundle, trained=replace(trained, information=found))
        with torch_threads(len(problem) * model.leading.whole.widest):
            return complete(bundle, self.prepared.rows)


def _trained(
    model: Model, problem: Problem, generator: torch.Generator, progress: Progress | None
) -> Trained:
    """Train the constant layers if there are some, and span the subspace of what is behind them."""
    subspace, train, leading = model.config.subspace, model.config.train, model.leading
    build = construction(subspace.construction)
    if not leading.any:
        own, shown = _schedule(model, problem, progress)
        return build(problem, model.units, subspace, own, generator, shown)
    found, history = train_leading_layers(problem, leading, train, generator, progress)
    own, shown = _schedule(model, found.problem, after(progress, train.epochs))
    trained = build(found.problem, model.units, subspace, own, generator, shown)
    return found.completed(replace(trained, history=joined(history, trained.history)))


def _schedule(
    model: Model, problem: Problem, progress: Progress | None
) -> tuple[TrainConfig, Progress | None]:
    """Return how to train the Bayesian layers: in batches if these take images."""
    train = model.config.train
    if not model.network.of_images:
        return train, progress
    own = batched(problem, train)
    return own, progress and as_epochs(progress, own.epochs, train.epochs)


def train(
    prepared: Prepared,
    progress: Progress | None = None,
    *,
    checkpoint: Path | None = None,
    backend: Backend = LOCAL,
) -> Bundle:
    """Train a subspace of a prepared model: of several, the first.

    Where k is ``auto``, it is resolved first.

    Parameters
    ----------
    prepared : Prepared
        The model and its rows.
    progress : callable, optional
        Called during training with the epoch, the training and the validation loss.
    checkpoint : Path, optional
        A file from which an interrupted training goes on, to the same result. It stays until
        what was trained is safe and the caller removes it, and is gone if training fails.
    backend : Backend, optional
        What trains; by default this machine.
    """
    prepared = resolved(prepared, say=silent)
    task = TrainTask(prepared, left_of(checkpoint))
    try:
        report = training_report(progress, checkpoint)
        ((_, bundle),) = backend.map([task], report=lambda _: report)
    except SemistanError:
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        raise
    return bundle


def training_report(progress: Progress | None, checkpoint: Path | None) -> Report:
    """Return where a training tells its epochs, and keeps its state."""

    def keep(state: bytes) -> None:
        if checkpoint is not None:
            keep_state(checkpoint, state)

    return Report(progress or SILENT.step, keep)


def checkpoint_file(out: Path) -> Path:
    """Return the file beside a bundle or run from which its training goes on."""
    return out.parent / f".{out.name[:LONGEST]}.training.npz"


def left_of(checkpoint: Path | None) -> bytes | None:
    """Return what an interrupted training kept; None if that is damaged."""
    return None if checkpoint is None else kept_state(checkpoint)


def warn_of_damage(checkpoint: Path, say: Say) -> None:
    """Set aside what an interrupted training kept if it is damaged, and say so."""
    if finding := set_state_aside(checkpoint):
        say(f"warning: {finding}; the training begins anew")


def goes_on(prepared: Prepared, checkpoint: Path) -> bool:
    """Say whether a file holds the state of this very training."""
    left = left_of(checkpoint)
    return left is not None and key_of(left) == training_key(prepared)


def training_key(prepared: Prepared) -> str:
    """Return a hash of all that a training depends on: model, rows and libraries.

    Of modules of the user's, the code is not known: nothing goes on from an earlier process.
    """
    frame, config = prepared.rows.frame, prepared.config
    assert frame is not None
    arrays = [name for name in frame if isinstance(frame[name].iloc[0], np.ndarray)]
    table = BytesIO()
    frame.drop(columns=arrays).to_parquet(table, index=False)
    model = config.model_dump(mode="json", exclude=ELSEWHERE)
    process = os.getpid() if prepared.modules else 0
    said = json.dumps([model, library_versions(), process], sort_keys=True)
    found = hashlib.sha256(said.encode() + table.getvalue())
    for array in (array for name in arrays for array in frame[name]):
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def training_text(bundle: Bundle, seconds: float) -> str:
    """Say what was trained and how it went."""
    trained, d = bundle.trained, bundle.subspace.d
    number = len(bundle.network.parts)
    networks = f"{number} networks" if number > 1 else "a network"
    if not trained.curve:
        return (
            f"trained {networks} of {d} weights and its subspace ({bundle.subspace.origin}) in "
            f"{seconds:.0f} s, loss {trained.history['loss'][-1]:.4f}"
        )
    return (
        f"trained a curve of length {trained.arc_length:.3g} through "
        f"{len(trained.control_points)} points of {d} weights in {seconds:.0f} s, "
        f"loss {trained.curve['loss'].mean():.4f} along it"
    )


def prior_text(bundle: Bundle, rows: Rows) -> str:
    """Say how far the network varies under its prior, given the training rows."""
    generator = np.random.default_rng(bundle.config.train.seed)
    return implied_text(implied(bundle, rows, generator))


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How a trained network does on the rows held out from training.

    Attributes
    ----------
    loss, validation_loss : float
        Mean negative log-likelihood of a row that was trained on, and of one held out.
    error : float
        Standard error of the latter.
    rows : int
        Held out.
    """

    loss: float
    validation_loss: float
    error: float
    rows: int

    @property
    def gap(self) -> float:
        """By how much rows held out are worse."""
        return self.validation_loss - self.loss

    def warning(self) -> str | None:
        """Say that the network is overfitted, or None if it is not far."""
        if self.rows < FEWEST_ROWS or not self.gap > max(LEAST_GAP, ERRORS * self.error):
            return None
        return (
            f"warning: the network predicts the {self.rows} rows held out from training far "
            f"worse than the others: mean negative log-likelihood of a row "
            f"{self.validation_loss:.3f} (standard error {self.error:.3f}) against "
            f"{self.loss:.3f}; try a smaller network (--hidden), "
            f"a stronger prior of its weights (--prior-w 'normal(0, 1)'), or more rows"
        )


def held_out(bundle: Bundle) -> HeldOut | None:
    """Return the losses of the state that the last stage of the training kept.

    None where they would say nothing of the network: other terms, as group-level effects, have so
    many coefficients that these are what fits their rows alone.
    """
    trained, n = bundle.trained, bundle.source.rows
    history = trained.history
    others = sum(map(len, (*trained.linear.values(), *trained.terms.values())))
    if others > MOST_OTHERS * n:
        return None
    rows = min(round(bundle.config.train.validation * n), n - 1)
    last = history["stage"] == history["stage"][-1] if "stage" in history else slice(None)
    kept = int(np.nanargmin(history["validation_loss"][last]))
    names = ("loss", "validation_loss", "validation_error")
    loss, validation_loss, error = (float(history[name][last][kept]) for name in names)
    return HeldOut(loss, validation_loss, error, rows)


def warn_of_overfitting(bundles: Iterable[Bundle], say: Say) -> None:
    """Warn once if networks are overfitted, with the figures of the worst of several."""
    several = [found for found in map(held_out, bundles) if found and found.warning()]
    if several:
        say(str(max(several, key=lambda found: found.gap).warning()))


def _device(name: str) -> str:
    """Return ``cpu`` or ``cuda``; a task may be done on another machine than prepared."""
    check_device(name)
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name
