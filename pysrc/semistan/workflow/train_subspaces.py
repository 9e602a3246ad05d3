"""A fit with several subspaces: one model and one program, trained from several seeds side by side.

The run's folder is there from the beginning. A subspace gets a folder of its own as soon as it is
trained: an ordinary run, with the draws that a fit with its seed alone would have. So an
interrupted training goes on with the subspaces that are not there yet.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from semistan.bundle.files import atomic_folder, check_output_folder
from semistan.bundle.foreign import read_parquet
from semistan.bundle.lock import held
from semistan.bundle.seal import stamp_of, stamps_of
from semistan.infer.backends.backend import Backend, Report
from semistan.infer.backends.local import LOCAL
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.folder import write_program
from semistan.infer.methods import method_of
from semistan.infer.plan import Plan
from semistan.infer.starts import RESOLVED, Starts
from semistan.model.bundle import Bundle, as_sampled
from semistan.model.config import ModelConfig, SampleConfig
from semistan.model.modules import Given, Modules, codes
from semistan.model.trained import Source
from semistan.posterior.manifest import (
    FORMAT_VERSION,
    MARKER,
    NOT_USED,
    TRAINING,
    Begun,
    Manifest,
    SourceRecord,
    read_manifest,
    write_manifest,
)
from semistan.posterior.run import (
    Run,
    create_run,
    read_run,
    subspace_folder,
    untrained,
)
from semistan.program.parts import Kernel
from semistan.program.program import stan_program
from semistan.subspace.construction import training_epochs
from semistan.subspace.descent import Progress
from semistan.version import __version__
from semistan.workflow.compiled import (
    compile_model,
    plan_of,
    starts_of,
    toolchain_for,
    trusted_kernel,
)
from semistan.workflow.prepare import Prepared, prepare
from semistan.workflow.saturation import warn_of_saturation
from semistan.workflow.train import (
    TrainTask,
    checkpoint_file,
    left_of,
    prior_text,
    training_report,
    training_text,
    warn_of_damage,
    warn_of_overfitting,
)
from semistan.workflow.watch import NOBODY, Watch


def member_config(config: ModelConfig, number: int) -> ModelConfig:
    """Return the model of one of several subspaces, counted from 1: with seeds of its own."""
    later = number - 1
    return config.model_copy(
        update={
            "subspace": config.subspace.model_copy(update={"subspaces": 1}),
            "train": config.train.model_copy(update={"seed": config.train.seed + later}),
            "sample": config.sample.model_copy(update={"seed": config.sample.seed + later}),
        }
    )


@dataclass(frozen=True, slots=True, eq=False)
class TrainedSubspace:
    """A trained subspace, where its chains start, and how long either took."""

    bundle: Bundle
    starts: Starts
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class SubspaceTask:
    """The training of one of several subspaces, and the search for its chains' starts.

    Attributes
    ----------
    prepared : Prepared
        The model, with this subspace's seeds.
    number : int
        The subspace, from 1.
    left : bytes, optional
        What an interrupted training kept.
    """

    prepared: Prepared
    number: int
    left: bytes | None = None

    @property
    def name(self) -> str:
        """What it is, for an error message."""
        return f"training of subspace {self.number}"

    @property
    def in_thread(self) -> bool:
        """PyTorch computes in this process."""
        return False

    def run(self, report: Report) -> TrainedSubspace:
        """Train, and climb to the modes at which the chains start."""
        begun = time.monotonic()
        bundle = TrainTask(self.prepared, self.left).run(report)
        trained, options = time.monotonic(), self.prepared.config.sample
        starts = starts_of(as_sampled(bundle, options), self.prepared.rows, options)
        seconds = {"train": trained - begun, "starts": time.monotonic() - trained}
        return TrainedSubspace(bundle, starts, seconds)


def begin_run(
    prepared: Prepared, path: Path, toolchain: Toolchain | None, *, overwrite: bool = False
) -> None:
    """Make the folder of a run whose subspaces are not trained yet; it replaces an older run.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced.
    """
    check_output_folder(path, MARKER, overwrite=overwrite)
    config, frame = prepared.config, prepared.rows.frame
    assert frame is not None
    with atomic_folder(path) as folder:
        frame.to_parquet(folder / TRAINING, index=False)
        manifest = Begun(
            format_version=FORMAT_VERSION,
            semistan=__version__,
            formula=config.formula,
            family=prepared.model.family.name,
            subspaces=config.subspace.trainings,
            config=config,
            source=SourceRecord(**asdict(prepared.source)),
            cmdstan=toolchain.version_text if toolchain else NOT_USED,
            compiler=toolchain.compiler if toolchain else NOT_USED,
            prior_only=False,
        )
        write_manifest(folder, manifest, stamps_of(folder))


def resume(
    path: Path | str,
    *,
    networks: Given | None = None,
    watch: Watch = NOBODY,
    backend: Backend = LOCAL,
) -> Run:
    """Read a run, after training those of its subspaces that an interruption left out.

    Parameters
    ----------
    path : Path or str
        The run's folder.
    networks, watch, backend
        As of ``fit_model``.

    Raises
    ------
    InputError
        As ``read_run``.
    SemistanError
        If training fails; what is trained is kept.
    """
    path = Path(path)
    manifest = read_manifest(path)
    if not _unfinished(path, manifest):
        return read_run(path, networks)
    prepared = _prepared_again(path, manifest, networks)
    toolchain = toolchain_for(prepared.config.sample)
    kernel = compile_model(prepared.model, toolchain, watch.say)
    return train_missing(path, prepared, toolchain, kernel, watch=watch, backend=backend)


def going_on(path: Path, modules: Modules) -> str:
    """Say how an interrupted run goes on: in Python where modules of the user's are networks."""
    if not modules:
        return f"semistan sample {path}"
    return f"semistan.resume('{path}', networks=...)"


def lacks_trainings(path: Path | str) -> bool:
    """Say whether some subspaces of a run have not been trained."""
    return _unfinished(Path(path), read_manifest(Path(path)))


def _unfinished(path: Path, manifest: Begun) -> bool:
    return not isinstance(manifest, Manifest) or bool(untrained(path, manifest))


def _prepared_again(path: Path, manifest: Begun, networks: Given | None) -> Prepared:
    """Learn the design once more from the rows that the run keeps."""
    assert manifest.config is not None and manifest.source is not None
    prepared = prepare(manifest.config, read_parquet(path / TRAINING), networks)
    return replace(prepared, source=Source(**manifest.source.model_dump()))


def train_missing(
    path: Path,
    prepared: Prepared,
    toolchain: Toolchain | None,
    kernel: Kernel,
    *,
    watch: Watch = NOBODY,
    backend: Backend = LOCAL,
) -> Run:
    """Train the subspaces that a run lacks, side by side, and return the run.

    Parameters
    ----------
    path : Path
        The folder that ``begin_run`` made.
    prepared : Prepared
        The model.
    toolchain, kernel
        CmdStan, and what the program was compiled with.
    watch, backend
        As of ``fit_model``.
    """
    with held(path):
        return _trained_missing(path, prepared, toolchain, kernel, watch, backend)


def _trained_missing(
    path: Path,
    prepared: Prepared,
    toolchain: Toolchain | None,
    kernel: Kernel,
    watch: Watch,
    backend: Backend,
) -> Run:
    """Train what is missing; arguments as of ``train_missing``."""
    manifest, started = read_manifest(path), time.monotonic()
    numbers = untrained(path, manifest)
    checkpoints = [checkpoint_file(subspace_folder(path, i)) for i in numbers]
    for checkpoint in checkpoints:
        warn_of_damage(checkpoint, watch.say)
    tasks = [
        SubspaceTask(replace(prepared, config=member_config(prepared.config, i)), i, left_of(kept))
        for i, kept in zip(numbers, checkpoints, strict=True)
    ]
    settled, trained = _settled(path, manifest), []
    training = watch.of_epochs(training_epochs(prepared.config) * len(tasks))
    try:
        for index, found in backend.map(tasks, report=_together(training, checkpoints)):
            task = tasks[index]
            trained.append(found.bundle)
            watch.say(_trained_text(found, task, len(manifest.numbers)))
            if settled is None:
                kernel = trusted_kernel(kernel, found.bundle, prepared.rows, toolchain, watch.say)
                settled = kernel, _plan(found.bundle, prepared, toolchain, kernel)
            _write_member(path, task, found, toolchain, *settled)
    except KeyboardInterrupt:
        watch.say(f"interrupted; go on with: {going_on(path, prepared.modules)}")
        raise
    if trained:
        watch.say(f"{prior_text(trained[0], prepared.rows)} in the first of these subspaces")
    warn_of_overfitting(trained, watch.say)
    warn_of_saturation(trained, prepared.rows, watch.say)
    return _finish(path, manifest, time.monotonic() - started, prepared.modules)


def _together(progress: Progress | None, checkpoints: list[Path]) -> Callable[[int], Report]:
    """Return where each of several trainings reports to, so that their epochs add up."""
    epochs = [0] * len(checkpoints)

    def report(index: int) -> Report:
        def step(epoch: int, loss: float, held_out: float) -> None:
            epochs[index] = epoch
            if progress is not None:
                progress(sum(epochs), loss, held_out)

        return training_report(step, checkpoints[index])

    return report


def _settled(path: Path, manifest: Begun) -> tuple[Kernel, Plan] | None:
    """Return the kernel and the plan of the subspaces that are trained already, if any are."""
    missing = untrained(path, manifest)
    there = (i for i in manifest.numbers if i not in missing)
    first = next(there, None)
    if first is None:
        return None
    run = read_run(subspace_folder(path, first))
    return run.kernel, run.plan


def _plan(bundle: Bundle, prepared: Prepared, toolchain: Toolchain | None, kernel: Kernel) -> Plan:
    """Plan the cores for the chains of all subspaces together."""
    config = prepared.config
    chains = config.sample.chain_count * config.subspace.trainings
    options = config.sample.model_copy(update={"chains": chains})
    return plan_of(as_sampled(bundle, options), prepared.rows, options, toolchain, kernel)


def _write_member(
    path: Path,
    task: SubspaceTask,
    found: TrainedSubspace,
    toolchain: Toolchain | None,
    kernel: Kernel,
    plan: Plan,
) -> None:
    folder = subspace_folder(path, task.number)
    shutil.rmtree(folder, ignore_errors=True)  # what is there without a manifest is unfinished
    create_run(
        found.bundle, task.prepared.rows, folder, task.prepared.config.sample, found.starts,
        plan, toolchain, kernel=kernel, timings=found.seconds,
    )  # fmt: skip
    checkpoint_file(folder).unlink(missing_ok=True)


def _trained_text(found: TrainedSubspace, task: SubspaceTask, number: int) -> str:
    """Say how a training went, and where its chains start."""
    options = task.prepared.config.sample
    starts = found.starts.text(
        found.starts.resolve(options), with_metric=method_of(options).hamiltonian
    )
    trained = training_text(found.bundle, found.seconds["train"])
    return f"subspace {task.number} of {number}: {trained}; {starts}"


def _finish(path: Path, begun: Begun, seconds: float, modules: Modules) -> Run:
    """Write what all subspaces share, once they are trained."""
    assert begun.config is not None
    members = [read_run(subspace_folder(path, i)) for i in begun.numbers]
    first, options = members[0], begun.config.sample
    program = stan_program(first.bundle.model, kernel=first.kernel)
    write_program(first.bundle.model, program, path, first.kernel)
    known = {name: getattr(begun, name) for name in begun.model_fields_set}
    found = {
        "bundle_sha256": [member.bundle.sha256 for member in members],
        "sample": _shared_options(options, members),
        "warmups": sorted({int(member.options.warmup) for member in members}),
        "keep_metric": all(member.keep_metric for member in members),
        "plan": first.manifest.plan,
        "kernel": first.kernel,
        "seconds": {"train": seconds},
    }
    manifest = Manifest(**(known | found))
    own = [item for item in path.iterdir() if item.is_file() and not item.name.startswith(".")]
    stamps = {item.name: stamp_of(item) for item in own if item.name != MARKER}
    write_manifest(path, manifest, stamps)
    return read_run(path, codes(modules))


def _shared_options(options: SampleConfig, members: list[Run]) -> SampleConfig:
    """Replace ``auto`` and a metric that was not found, where that is so in all subspaces."""
    own = [member.options for member in members]
    found = {name: {getattr(item, name) for item in own} for name in RESOLVED}
    return options.model_copy(
        update={name: values.pop() for name, values in found.items() if len(values) == 1}
    )
