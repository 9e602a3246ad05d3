"""The command line: one thin command per step.

Exit codes: 0 success, 1 failure, 2 usage or bad input, 3 finished but a diagnostic failed.
"""

# Typer reads annotations at run time: no postponed evaluation here.
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from semistan.command import screen
from semistan.command.flags import (
    FIT_FLAGS,
    MODEL_FLAGS,
    SAMPLE_FLAGS,
    SEED_FLAG,
    TRAIN_FLAGS,
    configurable,
)
from semistan.errors import InputError, SemistanError
from semistan.version import __version__

DIAGNOSTIC_FAILED = 3

app = typer.Typer(
    help="Semi-structured regression: interpretable coefficients and a neural network in Stan.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[
    str, typer.Argument(help="A model.toml, or a formula in quotes: 'y ~ x + nn(u1, u2)'.")
]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
PriorOnly = Annotated[bool, typer.Option("--prior-only", help="Leave the likelihood out.")]
Data = Annotated[
    str | None, typer.Option(help="The training data, if they are no longer where they were.")
]

NewData = Annotated[str, typer.Option(help="CSV or Parquet file with the rows.")]
Interval = Annotated[float, typer.Option(help="Probability of the predictive interval.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn here.")]
Scale = Annotated[str, typer.Option(help="response (the mean) or linpred.")]
SomeRows = Annotated[
    int | None, typer.Option(help="Use this many rows, drawn by the seed; all by default.")
]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows with missing values.")
]
NewLevels = Annotated[
    bool,
    typer.Option(
        "--allow-new-levels", help="Draw the effects of a group's new levels from all levels'."
    ),
]


@app.callback(invoke_without_command=True)
def _semistan(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"semistan {__version__}")
        raise typer.Exit


@app.command()
@configurable(*FIT_FLAGS)
def new(
    formula: Annotated[str, typer.Argument(help="As 'y ~ x1 + C(g) + nn(u1, u2)'.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("model.toml"),
    overwrite: Overwrite = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Write a model.toml with every key from a formula and --data FILE.csv, after checking it."""
    from semistan.bundle.files import check_output_file
    from semistan.workflow.inputs import write_config
    from semistan.workflow.prepare import configure, prepare

    check_output_file(out, overwrite=overwrite)
    config = configure(formula, overrides)
    prepare(config)
    data = os.path.relpath(str(config.data), out.resolve().parent)
    write_config(config.model_copy(update={"data": data}), out)
    screen.say(f"wrote {out}; fit it with: semistan fit {out}")


@app.command()
@configurable(*FIT_FLAGS)
def fit(
    model: Model,
    out: Out = Path("run"),
    overwrite: Overwrite = False,
    as_json: Json = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train, sample and summarise: everything from a table to a posterior in one run folder."""
    from semistan.subspace.constructions import training_epochs
    from semistan.workflow import fit as workflow
    from semistan.workflow import prepare as preparation

    config = preparation.configure(model, overrides)
    epochs = training_epochs(config.subspace, config.train)
    with screen.training_bar(epochs) as progress, screen.chain_bars() as chain_progress:
        result = workflow.fit(
            config,
            out=out,
            overwrite=overwrite,
            progress=progress,
            chain_progress=chain_progress,
            say=screen.say,
        )
    _finish(result, as_json)


@app.command()
@configurable(*MODEL_FLAGS, *TRAIN_FLAGS, SEED_FLAG)
def train(
    model: Model,
    out: Out = Path("bundle"),
    overwrite: Overwrite = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train the subspace and export it as a bundle."""
    from semistan.bundle.bundle import MARKER, write_bundle
    from semistan.bundle.files import check_output_folder
    from semistan.subspace.constructions import training_epochs
    from semistan.workflow import fit as workflow
    from semistan.workflow import prepare as preparation

    config = preparation.configure(model, overrides)
    check_output_folder(out, MARKER, overwrite=overwrite)
    prepared = preparation.prepare(config)
    for note in prepared.notes:
        screen.say(note)
    with screen.training_bar(training_epochs(config.subspace, config.train)) as progress:
        bundle = workflow.train(prepared, progress)
    write_bundle(bundle, out, overwrite=overwrite)
    screen.say(f"wrote {out}; sample it with: semistan sample {out}")


@app.command()
def subspace(
    source: Annotated[Path, typer.Argument(metavar="BUNDLE|RUN", help="A bundle or a run.")],
    data: Data = None,
    picture: Annotated[Path | None, typer.Option(help="PNG or SVG with the picture.")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Measure a subspace: its spread, and how much predictive uncertainty it keeps."""
    from semistan.bundle.bundle import read_bundle
    from semistan.bundle.files import check_output_file
    from semistan.posterior.run import MARKER, read_run
    from semistan.show.pictures.write import check_suffix
    from semistan.workflow import answers as analysis
    from semistan.workflow.outputs import plot_subspace
    from semistan.workflow.prepare import training_rows

    if picture is not None:
        check_suffix(picture)
        check_output_file(picture, overwrite=overwrite)
    run = read_run(source) if (source / MARKER).is_file() else None
    bundle = run.bundle if run else read_bundle(source)
    rows = run.rows() if run else training_rows(bundle, data)
    screen.show_table(analysis.subspace_measures(bundle, rows), as_json=as_json)
    if picture is not None:
        plot_subspace(run or bundle, picture, rows=rows)
    _wrote(picture)


@app.command()
@configurable(*SAMPLE_FLAGS, SEED_FLAG)
def stan(
    bundle: BundleFolder,
    data: Data = None,
    out: Out = Path("stan-model"),
    overwrite: Overwrite = False,
    prior_only: PriorOnly = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Write a folder that CmdStan or cmdstanr runs by itself: program, data, starts, scripts."""
    from semistan.bundle.bundle import read_bundle
    from semistan.workflow import fit as workflow
    from semistan.workflow import prepare as preparation

    trained = read_bundle(bundle)
    workflow.export_stan(
        trained,
        preparation.training_rows(trained, data),
        out,
        workflow.run_options(trained, overrides),
        prior_only=prior_only,
        overwrite=overwrite,
    )
    screen.say(
        f"wrote {out}; run it with: CMDSTAN=/path/to/cmdstan sh {out}/run.sh, or run.R by cmdstanr"
    )


@app.command()
@configurable(*SAMPLE_FLAGS, SEED_FLAG)
def sample(
    source: Annotated[
        Path, typer.Argument(metavar="BUNDLE|RUN", help="A bundle, or a run to be completed.")
    ],
    data: Data = None,
    out: Out = Path("run"),
    overwrite: Overwrite = False,
    prior_only: PriorOnly = False,
    as_json: Json = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Sample a bundle into a new run, or the chains that an interrupted run still lacks."""
    from semistan.posterior.run import MARKER, read_run
    from semistan.workflow import fit as workflow

    if (source / MARKER).is_file():
        if overrides:
            raise InputError(
                f"'{source}' is a run with options of its own; sample its bundle into a new "
                f"run instead: semistan sample {source / 'bundle'} --out NAME"
            )
        run = read_run(source)
    else:
        run = workflow.start_run(
            source, data, out, overrides,
            prior_only=prior_only, overwrite=overwrite, say=screen.say,
        )  # fmt: skip
    toolchain = workflow.toolchain_for(run.options)
    with screen.chain_bars() as progress:
        result = workflow.sample(
            run,
            toolchain,
            progress=progress,
            say=screen.say,
        )
    _finish(result, as_json)


@app.command()
@configurable(*MODEL_FLAGS)
def priors(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|BUNDLE|RUN", help="A model.toml, a formula, a bundle or a run."
        ),
    ],
    as_json: Json = False,
    *,
    overrides: dict[str, Any],
) -> None:
    """Print each prior as written and as used in the units of the data, before any training."""
    from semistan.workflow import answers as analysis

    screen.show_table(analysis.priors(model, overrides=overrides), as_json=as_json)


@app.command()
def summary(run: RunFolder, as_json: Json = False) -> None:
    """Print a run's coefficient table and diagnostics."""
    from semistan.workflow.fit import read_fit

    _finish(read_fit(run), as_json)


@app.command()
def predict(
    run: RunFolder,
    newdata: NewData,
    kind: Annotated[
        str | None,
        typer.Option(
            help="epred (mean, or probabilities of categories; the default), linpred (linear "
            "predictor) or predict."
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            help="Of linpred: all, structured (x' theta, orthogonalised), nn (centred) or "
            "penalised (smooths and groups)."
        ),
    ] = "all",
    dpar: Annotated[
        str | None,
        typer.Option(help="A parameter instead, as sigma: its value (epred) or predictor."),
    ] = None,
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV or Parquet, instead of printing.")
    ] = None,
    draws: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with one line per row and draw.")
    ] = None,
    seed: Seed = 1,
    engine: Annotated[str, typer.Option(help="torch, or onnx (predictor.onnx alone).")] = "torch",
    prior: Annotated[
        bool, typer.Option("--prior", help="Predict from the priors; needs no chains.")
    ] = False,
    drop_missing: DropMissing = False,
    allow_new_levels: NewLevels = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict new rows: mean, standard error and interval of each, and all draws on request."""
    from semistan.bundle.files import check_output_file
    from semistan.workflow.answers import write_predictions
    from semistan.workflow.inputs import read_table

    for path in (out, draws):
        if path is not None:
            check_output_file(path, overwrite=overwrite)
    write_predictions(
        run, read_table(newdata), out or sys.stdout, draws, kind=kind, part=part,
        dpar=dpar, interval=interval, seed=seed, engine=engine, drop_missing=drop_missing,
        allow_new_levels=allow_new_levels, say=screen.say, prior=prior,
    )  # fmt: skip
    _wrote(out, draws)


@app.command()
def score(
    run: RunFolder,
    newdata: NewData,
    interval: Interval = 0.9,
    seed: Seed = 1,
    drop_missing: DropMissing = False,
    allow_new_levels: NewLevels = False,
    as_json: Json = False,
) -> None:
    """Score predictions of rows with a known response: LPPD, RMSE, MAE, CRPS, coverage, ..."""
    from semistan.workflow.answers import opened
    from semistan.workflow.answers import score as score_rows
    from semistan.workflow.inputs import read_table

    opened_run = opened(run)
    table = score_rows(
        opened_run, read_table(newdata), interval=interval, seed=seed, drop_missing=drop_missing,
        allow_new_levels=allow_new_levels, say=screen.say,
    )  # fmt: skip
    screen.show_table(table, as_json=as_json)
    screen.say_weighting(opened_run.bundle)


@app.command()
def loo(
    run: RunFolder,
    pointwise: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with elpd and Pareto k of each row.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Leave-one-out cross-validation by PSIS, conditional on the subspace."""
    from semistan.bundle.files import check_output_file
    from semistan.posterior.scoring.loo import CONDITIONAL
    from semistan.show.tables import write_table
    from semistan.workflow import answers as analysis

    if pointwise is not None:
        check_output_file(pointwise, overwrite=overwrite)
    found = analysis.loo(run)
    if pointwise is not None:
        write_table(found.pointwise(), pointwise)
    screen.show_tables({"loo": found.table(), "pareto_k": found.k_table()}, as_json=as_json)
    screen.say(found.text())
    screen.say(CONDITIONAL)
    _wrote(pointwise)


@app.command()
def kfold(
    run: RunFolder,
    folds: Annotated[int, typer.Option("--folds", "-K", help="Number of folds.")] = 10,
    group: Annotated[
        str | None, typer.Option(help="Column whose groups stay together in a fold.")
    ] = None,
    data: Data = None,
    seed: Seed = 1,
    interval: Interval = 0.9,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Folds at a time; by default one for each core.")
    ] = None,
    save_fits: Annotated[bool, typer.Option("--save-fits", help="Keep each fold's run.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Cross-validate, training the subspace anew in each fold; again to continue."""
    from semistan.posterior.run import read_run
    from semistan.posterior.scoring.scores import scores, scores_table
    from semistan.workflow.kfold import kfold as cross_validate

    opened = read_run(run)
    found = cross_validate(
        opened, folds=folds, group=group, data=data, seed=seed, interval=interval, jobs=jobs,
        save_fits=save_fits, overwrite=overwrite, say=screen.say,
    )  # fmt: skip
    table = scores_table(scores(opened.bundle, found.rows, interval))
    tables = {"kfold": found.table(), "scores": table}
    if found.failed:
        tables["failed diagnostics"] = found.failures()
    screen.show_tables(tables, as_json=as_json)
    screen.say_weighting(opened.bundle)
    if found.failed:
        screen.say(
            f"warning: {len(found.failed)} of {folds} fits failed a diagnostic; their rows are "
            "judged by fewer effective draws"
        )
        raise typer.Exit(DIAGNOSTIC_FAILED)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN1 RUN2 ...", help="Runs' folders.")],
    by: Annotated[
        str, typer.Option(help="loo (conditional on each subspace) or kfold (made before).")
    ] = "loo",
    newdata: Annotated[
        str | None, typer.Option(help="Table of rows with a known response, to compare on instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs on the same rows: differences in elpd, standard errors, stacking weights."""
    from semistan.posterior.scoring.compare import unreliable_text
    from semistan.posterior.scoring.loo import CONDITIONAL
    from semistan.workflow import compare as comparison
    from semistan.workflow.inputs import read_table

    frame = read_table(newdata) if newdata else None
    table = comparison.compare(runs, by=by, frame=frame)
    screen.show_table(table, as_json=as_json)
    if by == "loo" and frame is None:
        unreliable = unreliable_text(table)
        if unreliable is not None:
            screen.say(f"warning: {unreliable}")
        screen.say(CONDITIONAL)


@app.command()
def effect(
    run: RunFolder,
    variables: Annotated[list[str], typer.Argument(help="One or two columns of the data.")],
    kind: Annotated[
        str, typer.Option(help="pd (partial dependence) or conditional (others held).")
    ] = "pd",
    at: Annotated[
        list[str] | None,
        typer.Option(help="Where a conditional effect holds a column, as g=b; repeatable."),
    ] = None,
    scale: Scale = "response",
    resolution: Annotated[
        int | None, typer.Option(help="Points of a numeric column; 25, or 15 for two columns.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Most rows over which pd is averaged.")] = 1000,
    curves: Annotated[int, typer.Option(help="Individual curves in the picture of a pd.")] = 0,
    category: Annotated[
        str | None,
        typer.Option(
            help="One category of the response, instead of all (in a picture of two columns, "
            "instead of the second)."
        ),
    ] = None,
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    seed: Seed = 1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV or Parquet, instead of printing.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG or SVG with the picture.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Show what one or two columns do to the response, with intervals."""
    from semistan.bundle.files import check_output_file
    from semistan.posterior.run import read_run
    from semistan.show.pictures.write import check_suffix
    from semistan.show.tables import write_table
    from semistan.workflow import answers as analysis
    from semistan.workflow.outputs import plot_effect

    for path in (out, picture):
        if path is not None:
            check_output_file(path, overwrite=overwrite)
    if picture is not None:
        check_suffix(picture)
    opened = read_run(run)
    found = analysis.effect(
        opened, variables, kind=kind, scale=scale, at=_held(at), resolution=resolution, rows=rows,
        curves=curves, seed=seed, category=category,
    )  # fmt: skip
    if picture is not None:
        plot_effect(opened, found, picture)
    if out is not None or picture is None:
        write_table(found.table(interval), out or sys.stdout)
    trained_on = opened.bundle.source.rows
    if kind == "pd" and rows < trained_on:
        screen.say(f"averaged over {rows} of {trained_on} rows, drawn by the seed")
    _wrote(out, picture)


@app.command()
def marginal(
    run: RunFolder,
    variables: Annotated[
        list[str] | None, typer.Argument(help="Columns of the data; all by default.")
    ] = None,
    scale: Scale = "response",
    rows: SomeRows = None,
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Average marginal effects: slopes of numeric columns, differences between levels."""
    from semistan.workflow.answers import marginal_effects

    table = marginal_effects(
        run, variables or None, scale=scale, interval=interval, rows=rows, seed=seed
    )
    screen.show_table(table, as_json=as_json)


@app.command()
def importance(
    run: RunFolder,
    newdata: Annotated[
        str | None, typer.Option(help="Rows with a known response; the training rows by default.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Permutations of each column.")] = 5,
    rows: SomeRows = None,
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Rank columns by what permuting them costs in mean log-likelihood."""
    from semistan.workflow import answers as analysis
    from semistan.workflow.inputs import read_table

    table = analysis.importance(
        run, read_table(newdata) if newdata else None, repeats=repeats, interval=interval,
        rows=rows, seed=seed,
    )  # fmt: skip
    screen.show_table(table, as_json=as_json)


@app.command()
def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN ...", help="A run, and others to overlay.")
    ],
    kind: Annotated[
        str,
        typer.Option(
            help="coefficients, densities, band, subspace, loss, ppc, calibration, trace, rank "
            "or energy."
        ),
    ] = "coefficients",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="PNG or SVG; KIND.png by default.")
    ] = None,
    variable: Annotated[
        str | None, typer.Option(help="Column along which a band is drawn.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Factor that colours a band.")] = None,
    category: Annotated[
        str | None,
        typer.Option(help="Category of the response, for a band or calibration."),
    ] = None,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Coefficients per sd of their column.")
    ] = False,
    directions: Annotated[
        str | None, typer.Option(help="Two directions of the subspace, as 1,2.")
    ] = None,
    density: Annotated[
        str | None, typer.Option(help="Of the subspace: posterior or likelihood.")
    ] = None,
    newdata: Annotated[
        str | None, typer.Option(help="Rows with a known response, for calibration.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw a picture; semistan effect --picture draws those of effects."""
    from semistan.bundle.files import check_output_file
    from semistan.show.pictures import check_kind
    from semistan.show.pictures.write import check_suffix
    from semistan.workflow import outputs
    from semistan.workflow.inputs import read_table

    check_kind(kind)
    out = out or Path(f"{kind}.png")
    check_suffix(out)
    check_output_file(out, overwrite=overwrite)
    given = {
        "variable": variable, "by": by, "category": category, "standardise": standardise or None,
        "directions": _directions(directions), "what": density,
    }  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    frame = read_table(newdata) if newdata else None
    outputs.plot(runs[0], kind, out, others=runs[1:], frame=frame, **options)
    screen.say(f"wrote {out}")


@app.command("draws")
def write_draws(
    run: RunFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV or Parquet file to write.")],
    overwrite: Overwrite = False,
) -> None:
    """Write all draws as one table with .chain, .iteration and .draw."""
    from semistan.bundle.files import check_output_file
    from semistan.show.tables import check_table_path, write_table
    from semistan.workflow import outputs

    check_table_path(out)
    check_output_file(out, overwrite=overwrite)
    write_table(outputs.draws(run), out)
    screen.say(f"wrote {out}")


@app.command()
def generate(
    run: RunFolder,
    seed: Annotated[
        int | None, typer.Option(help="Seed of replicated responses; the run's by default.")
    ] = None,
) -> None:
    """Let CmdStan compute log_lik and y_rep of every row, as CSV files in RUN/generated."""
    from semistan.workflow import outputs

    screen.say(f"wrote {', '.join(str(path) for path in outputs.generate(run, seed=seed))}")


@app.command("r-script")
def r_script(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="R file; RUN/read.R by default.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write an R script that reads the run: draws by name, summary, loo, figures."""
    from semistan.bundle.files import check_output_file
    from semistan.show.r_script import NAME
    from semistan.workflow import outputs

    check_output_file(out or run / NAME, overwrite=overwrite)
    screen.say(f"wrote {outputs.r_script(run, out)}")


@app.command()
def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file; RUN/report.html by default.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write one self-contained page: table, diagnostics, effects, checks, program, how to cite."""
    from semistan.bundle.files import check_output_file
    from semistan.workflow import outputs

    check_output_file(out or run / outputs.REPORT, overwrite=overwrite)
    screen.say(f"wrote {outputs.report(run, out)}")


@app.command()
def doctor(
    run: Annotated[
        Path | None, typer.Argument(help="A run, to see how it shares the cores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether everything needed is there, and how to get what is missing."""
    from semistan.command.doctor import examine
    from semistan.posterior.run import read_run

    findings = examine(read_run(run) if run else None)
    if as_json:
        print(json.dumps([finding.plain() for finding in findings], indent=2))
    else:
        screen.show_findings(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(InputError.exit_code)


@app.command("install-cmdstan")
def install_cmdstan(
    official: Annotated[
        bool, typer.Option(help="Try the official release before the source tree.")
    ] = True,
) -> None:
    """Install CmdStan unless a usable one is found."""
    from semistan.infer.cmdstan.install import install_cmdstan as install

    install(screen.say, official=official)


def _wrote(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            screen.say(f"wrote {path}")


def _held(pairs: list[str] | None) -> dict[str, str]:
    """Read ``name=value`` pairs."""
    held = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"--at takes a column and its value as g=b, got '{pair}'")
        held[name.strip()] = value.strip()
    return held


def _directions(text: str | None) -> tuple[int, ...] | None:
    """Read numbers as ``1,2``."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--directions takes two numbers as 1,2, got '{text}'") from None


def _finish(result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(screen.summary_json(result), indent=2, allow_nan=False))
    else:
        screen.show_fit(result)
    if not result.summary.passed:
        raise typer.Exit(DIAGNOSTIC_FAILED)


def main() -> None:
    """Run the command line; errors become one message and an exit code."""
    try:
        app()
    except SemistanError as error:
        screen.complain(str(error))
        sys.exit(error.exit_code)
