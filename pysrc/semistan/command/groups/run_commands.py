"""Commands that make a run, or hand it to Stan and R."""

# Typer reads annotations at run time: no postponed evaluation here.
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistan.command.answering import Reply, answering
from semistan.command.arguments import (
    DIAGNOSTIC_FAILED,
    BundleFolder,
    Central,
    Data,
    Out,
    Overwrite,
    PriorOnly,
    RunFolder,
)
from semistan.command.flags import SAMPLE_FLAGS, SEED_FLAG, WHERE_FLAGS, cluster_of, configurable
from semistan.errors import InputError
from semistan.terminal import bars, screen

if TYPE_CHECKING:
    from semistan.posterior.run import Run


@configurable(*SAMPLE_FLAGS, SEED_FLAG)
def stan(
    bundle: BundleFolder,
    data: Data = None,
    out: Out = Path("stan-model"),
    overwrite: Overwrite = False,
    prior_only: PriorOnly = False,
    include: Annotated[
        bool, typer.Option(help="Put the hand-written functions into a file to be included.")
    ] = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts, scripts."""
    from semistan.workflow.stan import stan as write_stan

    with bars.watching() as watch:
        write_stan(
            bundle, data, out=out, prior_only=prior_only, overwrite=overwrite, include=include,
            overrides=overrides, watch=watch,
        )  # fmt: skip
    screen.say(
        f"wrote {out}; run it with: CMDSTAN=/path/to/cmdstan sh {out}/run.sh, or run.R by cmdstanr"
    )


@configurable(*WHERE_FLAGS, into="where")
@configurable(*SAMPLE_FLAGS, SEED_FLAG)
@answering
def sample(
    source: Annotated[
        Path, typer.Argument(metavar="BUNDLE|RUN", help="A bundle, or a run to be completed.")
    ],
    data: Data = None,
    out: Out = Path("run"),
    overwrite: Overwrite = False,
    prior_only: PriorOnly = False,
    more: Annotated[
        int | None,
        typer.Option(help="So many more draws for each chain of a finished run, which goes on."),
    ] = None,
    no_draws: Annotated[
        bool, typer.Option("--no-draws", help="Make the run and stop, for 'semistan jobs list'.")
    ] = False,
    *,
    reply: Reply,
    overrides: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Sample a bundle into a new run, or the chains that an interrupted run still lacks."""
    screen.begin("reading the rows")
    from semistan.infer.backends.dask import backend_at
    from semistan.posterior.manifest import MARKER
    from semistan.workflow.compiled import toolchain_for
    from semistan.workflow.new_run import start_run
    from semistan.workflow.sample import sample as draw
    from semistan.workflow.stan import bundle_of

    cluster = cluster_of(where)
    if (source / MARKER).is_file():
        if overrides:
            raise InputError(
                f"'{source}' is a run with options of its own; sample its bundle into a new "
                f"run instead: semistan sample {bundle_of(source)} --out NAME"
            )
        run = _resumed(source, cluster)
    elif more is not None:
        raise InputError(f"--more continues a run, and '{source}' is none; use --draws")
    else:
        with bars.watching() as watch:
            run = start_run(
                source, data, out, overrides,
                prior_only=prior_only, at_once=no_draws, overwrite=overwrite, watch=watch,
            )  # fmt: skip
    if no_draws:
        screen.say(f"made {run.path}; commands for its chains: semistan jobs list {run.path}")
        return
    toolchain = toolchain_for(run.options)
    with backend_at(cluster) as backend, bars.watching() as watch:
        result = draw(run, toolchain, more=more, watch=watch, backend=backend)
    reply.fit(result)


def _resumed(folder: Path, cluster: str | None) -> "Run":
    """Read a run, after training the subspaces that it lacks."""
    from semistan.infer.backends.dask import backend_at
    from semistan.workflow.train_subspaces import lacks_trainings, resume

    cluster = cluster if lacks_trainings(folder) else None
    with backend_at(cluster) as backend, bars.watching() as watch:
        return resume(folder, watch=watch, backend=backend)


Jobs = Annotated[Path, typer.Option("--out", "-o", help="Folder for the chains' files.")]


@answering
def jobs_list(run: RunFolder, out: Jobs = Path("jobs"), *, reply: Reply) -> None:
    """Print a command for each chain that a run lacks, for array jobs of any scheduler."""
    import pandas as pd

    from semistan.workflow import array_jobs

    tasks = array_jobs.tasks(run, out)
    table = pd.DataFrame({"chain": tasks.keys(), "command": tasks.values()})

    def lines() -> None:
        for command in tasks.values():
            print(command)

    reply.tables({"": table}, show=lines)


def jobs_run(
    run: RunFolder,
    name: Annotated[str, typer.Argument(help="A missing chain's file, as chains/chain-2.csv.")],
    out: Jobs = Path("jobs"),
) -> None:
    """Draw one chain that a run lacks into a file elsewhere, as 'semistan jobs list' says."""
    from semistan.workflow import array_jobs

    screen.say(f"wrote {array_jobs.task(run, name, out)}")


@answering
def jobs_collect(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(help="Where 'semistan jobs run' wrote chains.")] = Path(
        "jobs"
    ),
    *,
    reply: Reply,
) -> None:
    """Take chains of 'semistan jobs run' into their run, and summarise it if it is whole."""
    from semistan.workflow import array_jobs

    result = array_jobs.collect(run, folder, say=screen.say)
    if result is not None:
        reply.fit(result)


@answering
def summary(
    run: RunFolder,
    by: Annotated[
        str | None, typer.Option(help="subspace: the estimates of each subspace alone.")
    ] = None,
    mcse: Annotated[
        bool, typer.Option("--mcse", help="Monte Carlo standard errors of estimates and bounds.")
    ] = False,
    interval: Annotated[
        float | None, typer.Option(help="Print the table with intervals of this probability.")
    ] = None,
    *,
    reply: Reply,
) -> None:
    """Print a run's coefficient table and diagnostics."""
    from semistan.posterior.mcse import mcse_table
    from semistan.posterior.posterior import read_posterior
    from semistan.posterior.run import read_run
    from semistan.posterior.summary import by_subspace, coefficient_table
    from semistan.workflow.sample import read_fitted

    if sum((mcse, by is not None, interval is not None)) > 1:
        raise InputError("--by, --mcse and --interval print a table each: give one of them")
    if interval is not None:
        opened = read_run(run)
        table = coefficient_table(read_posterior(opened), interval)
        reply.table(table)
        screen.say_caveats(opened)
    elif mcse:
        reply.table(mcse_table(read_posterior(run)))
    elif by is None:
        reply.fit(read_fitted(run))
    elif by == "subspace":
        reply.table(by_subspace(read_posterior(run)))
    else:
        raise InputError(f"--by takes 'subspace', got '{by}'")


@answering
def pool(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN1 RUN2 ...", help="A run of each imputed table.")
    ],
    interval: Central = 0.95,
    *,
    reply: Reply,
) -> None:
    """Pool the coefficients of a model that was fitted to several imputed tables."""
    from semistan.workflow.pool import fitted_of

    reply.pooled(fitted_of(runs), interval)


@answering
def reproduce(run: RunFolder, *, reply: Reply) -> None:
    """Train and sample a run once more, in a temporary folder, and say what differs."""
    from semistan.posterior.run import read_run
    from semistan.workflow.reproduce import reproduce as run_again

    opened = read_run(run)
    with bars.watching() as watch:
        found = run_again(opened, watch=watch)
    reply.table(found)
    if not found["same"].all():
        raise typer.Exit(DIAGNOSTIC_FAILED)
