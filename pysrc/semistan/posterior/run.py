"""A run: one folder for one fit, which can be moved, read again and completed.

bundle/  program.stan  data.json  training.parquet  inits-*.json  labels.json  manifest.json
chains/*.csv  posterior.nc  summary.csv

A fit with several subspaces has such a folder for each of them, and above these what they share:

subspaces/1/ ...  program.stan  training.parquet  labels.json  manifest.json
posterior.nc  summary.csv
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistan.bundle.bundle import MARKER as BUNDLE
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.bundle.files import atomic_folder, check_output_folder
from semistan.bundle.foreign import check_no_links, read_parquet
from semistan.bundle.seal import (
    RESTORE,
    Seal,
    changed,
    csv_rows,
    stamp_of,
    stamp_of_bytes,
    stamps_of,
)
from semistan.errors import InputError
from semistan.infer.chain_store import chain_file, missing_chains
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import method_of, reservations
from semistan.infer.plan import Plan
from semistan.infer.starts import Starts
from semistan.model.bundle import Bundle, as_sampled
from semistan.model.config import ModelConfig, SampleConfig
from semistan.model.design import apply_design
from semistan.model.facts import facts_html, facts_text
from semistan.model.modules import Given, codes
from semistan.model.table.rows import Rows
from semistan.posterior.manifest import (
    FORMAT_VERSION,
    MARKER,
    NOT_USED,
    TRAINING,
    Begun,
    Manifest,
    PlanRecord,
    read_manifest,
    record_files,
    seal_of,
    write_manifest,
)
from semistan.posterior.orthogonal import STORED
from semistan.posterior.written import written
from semistan.program.parts import Kernel
from semistan.version import __version__
from semistan.words import count

if TYPE_CHECKING:
    import pandas as pd

OUTPUTS = ("summary.csv", "posterior.nc", STORED)
SUBSPACES = "subspaces"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run's folder with its bundle and manifest.

    Attributes
    ----------
    path : Path
        The folder.
    bundle : Bundle
        The trained model, with the run's own temperature; of several subspaces the first one's,
        with which the others share all but what was trained.
    manifest : Manifest
        Versions, seeds, hashes and timings.
    parts : tuple of Run
        The runs of the subspaces, if there are several.
    """

    path: Path
    bundle: Bundle
    manifest: Manifest
    parts: tuple[Run, ...] = ()

    @property
    def members(self) -> tuple[Run, ...]:
        """The runs of single subspaces that it is made of; itself if it has one."""
        return self.parts or (self,)

    @property
    def options(self) -> SampleConfig:
        """How the run is sampled; ``chains`` are those of each subspace."""
        return self.manifest.sample

    @property
    def config(self) -> ModelConfig:
        """The model and how to fit it once more; only warm-up may be ``auto``."""
        if (given := self.manifest.config) is not None:
            draws = self.options.draws if self.manifest.continued else given.sample.draws
            sample = given.sample.model_copy(update={"draws": draws})
            return given.model_copy(update={"sample": sample})
        config, sample = self.bundle.config, self.options
        if config.sample.warmup == "auto":
            sample = sample.model_copy(update={"warmup": "auto"})
        subspace = config.subspace.model_copy(update={"subspaces": 1})
        return config.model_copy(update={"sample": sample, "subspace": subspace})

    @property
    def prior_only(self) -> bool:
        """Whether the run draws from the prior."""
        return self.manifest.prior_only

    @property
    def kernel(self) -> Kernel:
        """Whether the likelihood is computed in Stan or by the C++ kernel."""
        return self.manifest.kernel

    @property
    def plan(self) -> Plan:
        """How the run uses the cores."""
        kept = self.manifest.plan
        milliseconds = {int(grain): ms for grain, ms in kept.milliseconds.items()}
        return Plan(kept.chains, kept.threads, kept.grainsize, milliseconds)

    @property
    def keep_metric(self) -> bool:
        """Whether warm-up adapts the step size only."""
        return self.manifest.keep_metric

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of several subspaces, if they are not equal."""
        return tuple(self.manifest.weights)

    @property
    def missing(self) -> list[int]:
        """Chains that have not been sampled yet, numbered through all subspaces."""
        if not self.parts:
            return missing_chains(self.path / "chains", self.options.chain_count)
        C = self.options.chain_count
        return [i * C + chain for i, part in enumerate(self.parts) for chain in part.missing]

    def csv_files(self) -> list[Path]:
        """Return CmdStan's files, one for each chain, subspace after subspace, as they were drawn.

        Raises
        ------
        InputError
            If a chain is missing or was changed.
        """
        self.check_complete()
        for member in self.members:
            member.seal().verify(*member.chain_names, remedy=member.remedy)
        return [member.path / name for member in self.members for name in member.chain_names]

    @property
    def chain_names(self) -> list[str]:
        """The names of the chains' files in the folder of one subspace."""
        return [chain_name(chain) for chain in range(1, self.options.chain_count + 1)]

    def check_complete(self) -> None:
        """Refuse a run that lacks chains, or draws of some of its subspaces.

        Raises
        ------
        InputError
            Naming what is missing.
        """
        if self.missing:
            through = f" (each subspace has {self.options.chain_count})" if self.parts else ""
            raise InputError(
                f"'{self.path}' lacks chains {self.missing}{through}; complete it with "
                f"'semistan sample {self.path}'"
            )
        drawn = [part.options.per_chain for part in self.parts]
        if len(set(drawn)) > 1:
            raise InputError(
                f"'{self.path}' is being continued, and its subspaces have {drawn} draws of each "
                f"chain by now; complete it with 'semistan sample {self.path}'"
            )

    def seal(self) -> Seal:
        """Read what the manifest, as it now is, says of the folder's files."""
        return seal_of(self.path)

    @property
    def remedy(self) -> str:
        """What to do with a chain that is not as it was drawn."""
        several = self.path.parent.name == SUBSPACES
        return f"'semistan sample {self.path.parents[1] if several else self.path}' draws it anew"

    def rows(self) -> Rows:
        """Apply the design to the training table."""
        return apply_design(self.bundle.design, self.table(), response=True)

    def table(self) -> pd.DataFrame:
        """Read the columns of the training table that the formula uses."""
        return read_parquet(self.path / TRAINING)

    def facts(self) -> dict[str, str]:
        """Return what was fitted, on what and how, by name."""
        options, missing = self.options, len(self.missing)
        lacking = f"; {missing} not sampled yet" if missing else ""
        prior = ", draws from the PRIOR" if self.prior_only else ""
        method = method_of(options)
        kind = "chain" if method.has_warmup else "approximation"
        each = f"{len(self.parts)} subspaces x " if self.parts else ""
        number = f"{each}{count(options.chain_count, kind)}"
        after = (
            f" after {self.manifest.warmup_text} warm-up draws" if method.has_warmup else " draws"
        )
        more = sum(each.draws for each in self.manifest.continued if not each.planned)
        further = f", the last {more} by --more" if more else ""
        draws = f"{number} x {options.per_chain}{after}{further}{prior}{lacking}"
        facts = self.bundle.facts(len(self.members)) | {"Draws": draws}
        if self.weights:
            facts |= {"Weights": f"{', '.join(written(w, 2) for w in self.weights)} by stacking"}
        if method.hamiltonian and options.temperature == 1:
            return facts
        return facts | {"Method": "; ".join(reservations(options)) or method.text}

    def __repr__(self) -> str:
        return facts_text(self.facts() | {"Run": str(self.path)})

    def _repr_html_(self) -> str:
        return facts_html("Run", self.facts() | {"Folder": str(self.path)})


def chain_name(chain: int) -> str:
    """Return the name of a chain's file in a run's folder."""
    return chain_file(Path("chains"), chain).as_posix()


def subspace_folder(run: Path, number: int) -> Path:
    """Return the folder of one of several subspaces, counted from 1."""
    return run / SUBSPACES / str(number)


def create_run(
    bundle: Bundle,
    rows: Rows,
    path: Path,
    options: SampleConfig,
    starts: Starts,
    plan: Plan,
    toolchain: Toolchain | None,
    *,
    kernel: Kernel = "stan",
    prior_only: bool = False,
    overwrite: bool = False,
    timings: dict[str, float] | None = None,
    planned: int | None = None,
) -> Run:
    """Write everything that sampling needs; an older run is replaced only on success.

    ``planned`` is as in the manifest.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced.
    """
    check_output_folder(path, MARKER, overwrite=overwrite)
    with atomic_folder(path) as folder:
        write_bundle(bundle, folder / "bundle")
        write_stan_folder(
            as_sampled(bundle, options), rows, folder, starts,
            grainsize=plan.grainsize, kernel=kernel, prior_only=prior_only,
        )  # fmt: skip
        (folder / "chains").mkdir()
        assert rows.frame is not None
        rows.frame.to_parquet(folder / TRAINING, index=False)
        cores = asdict(plan)
        cores["milliseconds"] = {str(grain): ms for grain, ms in plan.milliseconds.items()}
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            semistan=__version__,
            formula=bundle.config.formula,
            family=bundle.family.name,
            cmdstan=toolchain.version_text if toolchain else NOT_USED,
            compiler=toolchain.compiler if toolchain else NOT_USED,
            prior_only=prior_only,
            bundle_sha256=bundle.sha256,
            sample=starts.resolve(options),
            modes=[mode.log_density for mode in starts.found],
            keep_metric=starts.keeps_metric,
            smaller_steps=options.adapt_delta == "auto",
            plan=PlanRecord(**cores),
            kernel=kernel,
            seconds=timings or {},
            planned=planned,
        )
        write_manifest(folder, manifest, stamps_of(folder))
    return read_run(path, codes(bundle.modules))


def record_seconds(run: Run, **seconds: float) -> Run:
    """Add timings to the manifest and return the run with them."""
    return recorded(run, seconds=run.manifest.seconds | seconds)


def record_weights(run: Run, weights: tuple[float, ...]) -> Run:
    """Keep the weights of the subspaces in the manifest and return the run with them."""
    return recorded(run, weights=list(weights))


def record_chain(path: Path, content: bytes) -> None:
    """Add a chain to the manifest of its run before its file is there.

    So no chain is ever there that the manifest does not know of, whenever a run is interrupted.
    """
    run, rows = path.parents[1], csv_rows(io.BytesIO(content))
    record_files(run, {path.relative_to(run).as_posix(): stamp_of_bytes(content, rows)})


def record_outputs(run: Run) -> None:
    """Add to the manifest what was computed from the draws."""
    for one in {item.path: item for item in (run, *run.parts)}.values():
        written = [name for name in OUTPUTS if (one.path / name).is_file()]
        record_files(one.path, {name: stamp_of(one.path / name) for name in written})


def recorded(run: Run, **known: Any) -> Run:
    """Return the run with more in its manifest, which is written."""
    return replace(run, manifest=record_files(run.path, {}, **known))


def read_run(path: Path | str, networks: Given | None = None) -> Run:
    """Read a run's folder, and hold its files to its seal; chains, when they are read.

    Parameters
    ----------
    path : path
        The folder.
    networks : mapping, optional
        The modules that the formula names, as of ``semistan.fit``. Without them the run can be
        looked at, but its networks cannot be evaluated.

    Raises
    ------
    InputError
        If the folder is no run, of another format, or its files do not match their hashes, or if
        one of several subspaces has not been trained yet, or the modules are not those of the fit.
    """
    path = Path(path)
    check_no_links(path)
    manifest = read_manifest(path)
    if manifest.subspaces is not None or not isinstance(manifest, Manifest):
        return _read_several(path, manifest, networks)
    _verify(path)
    bundle = read_bundle(path / "bundle", networks)
    if bundle.sha256 != manifest.bundle_sha256:
        changed(
            str(path / "bundle"),
            f"'{path}/bundle' is not the bundle that this run was sampled with; {RESTORE}",
        )
    return Run(path, as_sampled(bundle, manifest.sample), manifest)


def untrained(path: Path, manifest: Begun) -> list[int]:
    """Return which of several subspaces have not been trained yet, counted from 1."""
    return [i for i in manifest.numbers if not (subspace_folder(path, i) / MARKER).is_file()]


def _read_several(path: Path, manifest: Begun, networks: Given | None) -> Run:
    """Read a run with several subspaces."""
    missing = untrained(path, manifest)
    if missing or not isinstance(manifest, Manifest):
        raise InputError(
            f"'{path}' was interrupted in training: {len(missing)} of {manifest.subspaces} "
            f"subspaces are not trained yet; go on with 'semistan sample {path}'"
        )
    _verify(path)
    folders = (subspace_folder(path, i) for i in manifest.numbers)
    parts = tuple(read_run(folder, networks) for folder in folders)
    if [part.bundle.sha256 for part in parts] != manifest.bundle_sha256:
        changed(
            str(path / SUBSPACES),
            f"'{path / SUBSPACES}' does not have the bundles that this run was sampled with; "
            f"{RESTORE}",
        )
    return Run(path, parts[0].bundle, manifest, parts)


def _verify(path: Path) -> None:
    """Hold what stands in a run's folder itself, and its bundle's record, to the seal."""
    seal = seal_of(path)
    own = [name for name in seal.stamps if "/" not in name and name not in OUTPUTS]
    bundle = f"bundle/{BUNDLE}"
    seal.verify(*own, *((bundle,) if bundle in seal.stamps else ()))
