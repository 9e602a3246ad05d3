"""Commands about a model before it is sampled, and the fit of all steps."""

# Typer reads annotations at run time: no postponed evaluation here.
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistan.command.answering import Reply, answering
from semistan.command.arguments import (
    Data,
    Model,
    Overwrite,
    Picture,
    RunFolder,
    wrote,
)
from semistan.command.flags import FIT_FLAGS, MODEL_FLAGS, configurable
from semistan.errors import InputError
from semistan.terminal import bars, screen

if TYPE_CHECKING:
    from semistan.model.config import ModelConfig


@configurable(*FIT_FLAGS)
def new(
    formula: Annotated[str, typer.Argument(help="As 'y ~ x1 + C(g) + nn(u1, u2)'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("model.toml"),
    overwrite: Overwrite = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Write a model.toml with every key from a formula and --data FILE.csv, after checking it."""
    from semistan.workflow.new import new as write_new

    with bars.watching() as watch:
        write_new(formula, out=out, overwrite=overwrite, overrides=overrides, watch=watch)
    screen.say(f"wrote {out}; fit it with: semistan fit {out}")


@configurable(*FIT_FLAGS)
@answering
def fit(
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write: run, or bundle with --train-only."),
    ] = None,
    overwrite: Overwrite = False,
    train_only: Annotated[
        bool,
        typer.Option("--train-only", help="Train, export the subspace as a bundle, and stop."),
    ] = False,
    impute: Annotated[
        list[Path] | None,
        typer.Option(
            "--impute",
            help="An imputed table instead of --data, once for each, or one file with all of mice "
            "(.imp): fits each into OUT/1, OUT/2, ... and pools.",
        ),
    ] = None,
    *,
    reply: Reply,
    overrides: dict[str, Any],
) -> None:
    """Train, sample and summarise: everything from a table to a posterior in one run folder."""
    screen.begin("reading the table and checking the model")
    from semistan.workflow.fit import fit_model, train_bundle
    from semistan.workflow.prepare import configure

    if impute:
        if train_only or "data" in overrides:
            raise InputError("--impute fits tables of its own: leave --data and --train-only out")
        _fit_imputed(configure(model, overrides), impute, out or Path("run"), overwrite, reply)
        return
    if train_only and reply.as_json:
        raise InputError("--json is of a fit's results, and --train-only ends before there are any")
    config, run = configure(model, overrides), out or Path("run")
    if not train_only:
        with bars.watching() as watch:
            result = fit_model(config, out=run, overwrite=overwrite, watch=watch)
        reply.fit(result)
        return
    bundle = out or Path("bundle")
    with bars.watching() as watch:
        train_bundle(config, bundle, overwrite=overwrite, watch=watch)
    screen.say(f"wrote {bundle}; sample it with: semistan sample {bundle}")


def _fit_imputed(
    config: "ModelConfig", paths: list[Path], out: Path, overwrite: bool, reply: Reply
) -> None:
    """Fit a model to each imputed table, and pool the coefficients."""
    from semistan.data.imputations import read_imputations
    from semistan.data.tables import dialect_of
    from semistan.workflow.fit import fit_model
    from semistan.workflow.pool import imputed_folders
    from semistan.workflow.sample import Fitted

    config = config.model_copy(update={"data": None})
    tables = read_imputations(paths, dialect_of(config), screen.say)
    folders = imputed_folders(out, len(tables), overwrite=overwrite)
    found: list[Fitted] = []
    for table, folder in zip(tables, folders, strict=True):
        screen.say(f"table {len(found) + 1} of {len(tables)}, to {folder}")
        with bars.watching() as watch:
            result = fit_model(config, table, out=folder, overwrite=overwrite, watch=watch)
        found.append(result)
    screen.say(f"predict with all: semistan predict {' '.join(map(str, folders))} --weights equal")
    reply.pooled(found)


@configurable(*FIT_FLAGS)
@answering
def update(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the new run.")],
    formula: Annotated[str | None, typer.Option(help="Another formula.")] = None,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
    overrides: dict[str, Any],
) -> None:
    """Fit a run's model once more, with another formula, --data or settings, into a new run."""
    screen.begin("reading the run")
    from semistan.posterior.run import read_run
    from semistan.workflow.update import update as updated

    old = read_run(run)
    data = overrides.pop("data", None)
    with bars.watching() as watch:
        result = updated(
            old, out=out, formula=formula, data=data, overrides=overrides, overwrite=overwrite,
            watch=watch,
        )  # fmt: skip
    reply.fit(result)


@answering
def subspace(
    source: Annotated[Path, typer.Argument(metavar="BUNDLE|RUN", help="A bundle or a run.")],
    data: Data = None,
    picture: Picture = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Compare a run's posterior with that of another run, as of all weights, instead.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    *,
    reply: Reply,
) -> None:
    """Measure a subspace: its spread, and how much predictive uncertainty it keeps."""
    from semistan.bundle.bundle import read_bundle
    from semistan.bundle.files import check_output_file
    from semistan.posterior.manifest import MARKER
    from semistan.show.pictures.write import check_suffix
    from semistan.workflow.outputs import plot_subspace
    from semistan.workflow.prepare import training_rows
    from semistan.workflow.runs import one_subspace
    from semistan.workflow.subspace import posterior_distance, subspace_measures

    if against is not None:
        if picture is not None or data is not None:
            raise InputError("--against compares two runs: leave --picture and --data out")
        reply.table(posterior_distance(source, against))
        return
    if picture is not None:
        check_suffix(picture)
        check_output_file(picture, overwrite=overwrite)
    run = one_subspace(source) if (source / MARKER).is_file() else None
    bundle = run.bundle if run else read_bundle(source)
    with bars.image_bar() as reading:
        rows = run.rows() if run else training_rows(bundle, data, reading)
    reply.table(subspace_measures(bundle, rows))
    if picture is not None:
        plot_subspace(run or bundle, picture, rows=rows)
    wrote(picture)


@configurable(*MODEL_FLAGS)
@answering
def priors(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|BUNDLE|RUN", help="A model.toml, a formula, a bundle or a run."
        ),
    ],
    *,
    reply: Reply,
    overrides: dict[str, Any],
) -> None:
    """Print each prior as written and as used in the units of the data, and what it implies."""
    from semistan.posterior.implied import implied_text
    from semistan.workflow.priors import implied_prior
    from semistan.workflow.priors import priors as priors_of

    reply.table(priors_of(model, overrides=overrides))
    if not reply.on_screen:
        return
    try:
        text = implied_text(implied_prior(model, overrides=overrides))
    except InputError as error:  # a bundle whose rows are not there has its priors all the same
        text = f"What they imply is not known: {error}"
    screen.out.print(f"\n{text[0].upper()}{text[1:]}.", markup=False)
