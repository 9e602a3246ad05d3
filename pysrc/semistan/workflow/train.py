"""Training: from a prepared model to a bundle."""

from __future__ import annotations

from dataclasses import dataclass

from semistan.bundle.bundle import library_versions
from semistan.density.problem import make_problem
from semistan.errors import InputError
from semistan.infer.backends.backend import SILENT, Backend, Report
from semistan.infer.backends.local import LOCAL
from semistan.infer.task import torch_threads
from semistan.lazy import torch
from semistan.model.bundle import Bundle
from semistan.subspace.construction import construction
from semistan.subspace.descent import Progress
from semistan.workflow.dimension import resolved
from semistan.workflow.prepare import Prepared


@dataclass(frozen=True, slots=True, eq=False)
class TrainTask:
    """The training of one subspace."""

    prepared: Prepared

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
        with torch_threads(len(problem) * model.network.widest):
            construct = construction(config.subspace.construction)
            trained = construct(
                problem, model.units, config.subspace, config.train, generator, report.step
            )
        alone = config.subspace.model_copy(update={"subspaces": 1})
        return Bundle(
            config.model_copy(update={"subspace": alone}), model.design, model.units, trained,
            self.prepared.source, library_versions(),
        )  # fmt: skip


def train(
    prepared: Prepared, progress: Progress | None = None, *, backend: Backend = LOCAL
) -> Bundle:
    """Train a subspace of a prepared model: of several, the first.

    Where k is ``auto``, it is resolved first.
    """
    prepared = resolved(prepared, say=lambda _: None)
    report = SILENT if progress is None else Report(progress)
    ((_, bundle),) = backend.map([TrainTask(prepared)], report=lambda _: report)
    return bundle


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


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("train.device is 'cuda', but PyTorch finds no CUDA device; use 'auto'")
    return name
