"""Commands that study a model: simulated responses, calibration, simpler models beside it."""

# Typer reads annotations at run time: no postponed evaluation here.
from pathlib import Path
from typing import Annotated, Any

import typer

from semistan.command.answering import Reply, answering
from semistan.command.arguments import (
    Model,
    Out,
    Overwrite,
    RunFolder,
    Seed,
    wrote,
)
from semistan.command.flags import FIT_FLAGS, MODEL_FLAGS, WHERE_FLAGS, cluster_of, configurable
from semistan.terminal import screen

Jobs = Annotated[int | None, typer.Option(min=1, help="At a time; by default one for each core.")]


@configurable(*MODEL_FLAGS)
def simulate(
    model: Annotated[
        str, typer.Argument(metavar="RUN|MODEL", help="A run, or a model.toml or formula.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV, Parquet or JSON file to write.")],
    times: Annotated[int, typer.Option(help="New responses of each row.")] = 1,
    prior_only: Annotated[
        bool, typer.Option("--prior-only", help="From the prior of a run, not its posterior.")
    ] = False,
    seed: Seed = 1,
    overwrite: Overwrite = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Write the rows with new responses: from a run's posterior or prior, or a model's prior."""
    from semistan.bundle.files import check_output_file
    from semistan.show.tables import check_table_path, write_table
    from semistan.workflow import simulate as simulating

    check_table_path(out)
    check_output_file(out, overwrite=overwrite)
    table = simulating.simulate(
        model, draws=times, prior=prior_only, seed=seed, overrides=overrides
    )
    write_table(table, out)
    wrote(out)


@configurable(*WHERE_FLAGS, into="where")
@answering
def baseline(
    run: RunFolder,
    folds: Annotated[
        int, typer.Option("--folds", "-K", help="Number of folds, if the run has none yet.")
    ] = 10,
    seed: Seed = 1,
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
    where: dict[str, Any],
) -> None:
    """Put lines (GLM) and smooths (GAM) in the network's place, on the same folds; resumable."""
    from semistan.infer.backends.dask import backend_at
    from semistan.workflow import baseline as comparing

    with backend_at(cluster_of(where)) as backend:
        found = comparing.baseline(
            run, folds=folds, seed=seed, jobs=jobs, overwrite=overwrite, say=screen.say,
            backend=backend,
        )  # fmt: skip
    reply.table(found.table())
    for name, formula in found.formulas.items():
        screen.say(f"{name}: {formula}")
    for name, each in found.folds.items():
        if each.failed:
            screen.say(f"warning: {name}: {len(each.failed)} fits failed a diagnostic")


@configurable(*FIT_FLAGS)
@answering
def sbc(
    model: Model,
    out: Out = Path("sbc"),
    replications: Annotated[
        int, typer.Option("--replications", "-R", help="Number of replications.")
    ] = 100,
    fixed_subspace: Annotated[
        bool,
        typer.Option(
            "--fixed-subspace", help="Train once; true values and fits are in that subspace."
        ),
    ] = False,
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
    overrides: dict[str, Any],
) -> None:
    """Simulate from the prior, fit and rank the truth, training each time; resumable."""
    from semistan.workflow import sbc as calibrating

    found = calibrating.sbc(
        model, out=out, replications=replications, fixed_subspace=fixed_subspace, jobs=jobs,
        overwrite=overwrite, overrides=overrides, say=screen.say,
    )  # fmt: skip
    reply.table(found.table())
    if found.failed:
        screen.say(f"warning: {found.failed} of {replications} fits failed a diagnostic")
    wrote(out / "summary.csv", out / "ranks.png", out / "coverage.png")
