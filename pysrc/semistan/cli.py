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

from semistan import screen
from semistan.errors import InputError, SemistanError
from semistan.flags import (
    FIT_FLAGS,
    MODEL_FLAGS,
    SAMPLE_FLAGS,
    SEED_FLAG,
    TRAIN_FLAGS,
    configurable,
)
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
    from semistan.inputs import write_config
    from semistan.workflow import configure, prepare

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
    from semistan import workflow

    config = workflow.configure(model, overrides)
    with screen.training_bar(config.train.epochs) as progress:
        result = workflow.fit(
            config,
            out=out,
            overwrite=overwrite,
            show_progress=screen.is_interactive(),
            progress=progress,
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
    from semistan import workflow
    from semistan.bundle.bundle import MARKER, write_bundle
    from semistan.bundle.files import check_output_folder

    config = workflow.configure(model, overrides)
    check_output_folder(out, MARKER, overwrite=overwrite)
    prepared = workflow.prepare(config)
    with screen.training_bar(config.train.epochs) as progress:
        bundle = workflow.train(prepared, progress)
    write_bundle(bundle, out, overwrite=overwrite)
    screen.say(f"wrote {out}; sample it with: semistan sample {out}")


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
    """Write the Stan program, its data and initial values, without sampling."""
    from semistan import workflow
    from semistan.bundle.bundle import read_bundle

    trained = read_bundle(bundle)
    workflow.export_stan(
        trained,
        workflow.training_rows(trained, data),
        out,
        workflow.run_options(trained, overrides),
        prior_only=prior_only,
        overwrite=overwrite,
    )
    screen.say(f"wrote {out}/program.stan, data.json, inits-*.json and labels.json")


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
    from semistan import workflow
    from semistan.posterior.run import MARKER, read_run
    from semistan.stan.cmdstan import find_toolchain

    toolchain = find_toolchain()
    if (source / MARKER).is_file():
        if overrides:
            raise InputError(
                f"'{source}' is a run with options of its own; sample its bundle into a new "
                f"run instead: semistan sample {source / 'bundle'} --out NAME"
            )
        run = read_run(source)
    else:
        run = workflow.start_run(
            source, data, out, overrides, toolchain,
            prior_only=prior_only, overwrite=overwrite, say=screen.say,
        )  # fmt: skip
    result = workflow.sample(run, toolchain, show_progress=screen.is_interactive(), say=screen.say)
    _finish(result, as_json)


@app.command()
def summary(run: RunFolder, as_json: Json = False) -> None:
    """Print a run's coefficient table and diagnostics."""
    from semistan.workflow import read_fit

    _finish(read_fit(run), as_json)


@app.command()
def predict(
    run: RunFolder,
    newdata: Annotated[str, typer.Option(help="CSV file with the new rows.")],
    kind: Annotated[
        str, typer.Option(help="epred (mean), linpred (linear predictor) or predict (responses).")
    ] = "epred",
    interval: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV to write instead of printing it.")
    ] = None,
    draws: Annotated[Path | None, typer.Option(help="CSV to write with one line per draw.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of new responses.")] = 1,
    drop_missing: Annotated[bool, typer.Option("--drop-missing")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict new rows: mean, standard error and interval of each, and all draws on request."""
    from semistan import workflow
    from semistan.bundle.files import check_output_file
    from semistan.inputs import read_table
    from semistan.posterior.prediction import summarise_prediction, write_draws, write_table

    for path in (out, draws):
        if path is not None:
            check_output_file(path, overwrite=overwrite)
    values = workflow.predict(
        run, read_table(newdata), kind=kind, seed=seed, drop_missing=drop_missing
    )
    table = summarise_prediction(values, interval)
    if draws is not None:
        write_draws(values, draws)
    write_table(table, out or sys.stdout)


@app.command()
def doctor(
    run: Annotated[
        Path | None, typer.Argument(help="A run, to see how it shares the cores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether everything needed is there, and how to get what is missing."""
    from semistan.doctor import examine
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
    from semistan.stan.install import install_cmdstan as install

    install(screen.say, official=official)


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
