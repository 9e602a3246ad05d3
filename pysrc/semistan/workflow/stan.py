"""A bundle as a folder that Stan runs without semistan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semistan.bundle.bundle import read_bundle
from semistan.bundle.files import atomic_folder, check_output_folder
from semistan.errors import InputError
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import check_computable, method_named
from semistan.infer.plan import default_plan
from semistan.infer.scripts import write_scripts
from semistan.infer.starts import find_starts
from semistan.model.bundle import Bundle, as_sampled
from semistan.model.config import SampleConfig, with_overrides
from semistan.model.table.rows import Rows
from semistan.posterior.manifest import MARKER, read_manifest
from semistan.posterior.run import subspace_folder
from semistan.program.parts import Kernel, has_kernel
from semistan.workflow.compiled import without_kernel
from semistan.workflow.prepare import training_rows
from semistan.workflow.watch import NOBODY, Say, Watch, silent


def stan(
    bundle: str | Path,
    data: str | Path | None = None,
    *,
    out: str | Path = "stan-model",
    prior_only: bool = False,
    overwrite: bool = False,
    include: bool = False,
    overrides: dict[str, Any] | None = None,
    watch: Watch = NOBODY,
) -> Path:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts, scripts.

    Parameters
    ----------
    bundle : path
        A bundle's folder.
    data : path, optional
        The training data, if they are no longer where they were.
    out : path
        The folder.
    prior_only : bool
        Whether the likelihood is left out.
    overwrite : bool
        Whether an older folder there may be replaced.
    include : bool
        Whether the hand-written functions are put into a file to be included.
    overrides : dict, optional
        Dotted keys of the configuration, as ``{"sample.chains": 2}``.
    watch : Watch, optional
        As of ``fit_model``.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If it is a run's folder and no bundle's, or the rows are not those of the training.
    """
    bundle, out = Path(bundle), Path(out)
    if (bundle / MARKER).is_file():
        raise InputError(f"'{bundle}' is a run; name the bundle in it, as '{bundle_of(bundle)}'")
    trained = read_bundle(bundle)
    rows = training_rows(trained, data, watch.reading)
    export_stan(
        trained, rows, out, with_overrides(trained.config, overrides or {}).sample,
        prior_only=prior_only, overwrite=overwrite, include=include, say=watch.say,
    )  # fmt: skip
    return out


def bundle_of(run: Path) -> Path:
    """Return the folder of a run's bundle, or of the first of several."""
    several = read_manifest(run).subspaces is not None
    return (subspace_folder(run, 1) if several else run) / "bundle"


def export_stan(
    bundle: Bundle,
    rows: Rows,
    out: Path,
    options: SampleConfig,
    *,
    prior_only: bool = False,
    overwrite: bool = False,
    include: bool = False,
    say: Say = silent,
) -> None:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts and scripts.

    With ``include``, the hand-written functions are in a file that the program includes. Where the
    C++ kernel is asked for and cannot compute the network, that is said.
    """
    if (out / MARKER).is_file():
        raise InputError(f"'{out}' is a run, which has its program already; choose another name")
    check_output_folder(out, "program.stan", overwrite=overwrite)
    check_computable(method_named("nuts"), bundle.network)
    bundle = as_sampled(bundle, options)
    starts = find_starts(bundle, rows, options, prior_only=prior_only)
    resolved = starts.resolve(options)
    kernel: Kernel = "cpp" if options.kernel == "cpp" and has_kernel(bundle.model) else "stan"
    if options.kernel == "cpp" and kernel == "stan":
        say(without_kernel(bundle.model))
    with atomic_folder(out) as folder:
        write_stan_folder(
            bundle, rows, folder, starts,
            grainsize=default_plan(options, len(rows)).grainsize,
            kernel=kernel, prior_only=prior_only, include=include,
        )  # fmt: skip
        write_scripts(
            folder, resolved, keep_metric=starts.keeps_metric, kernel=kernel, include=include
        )
