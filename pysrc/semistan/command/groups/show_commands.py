"""Commands that hand a finished run on: pictures, tables, R, a page."""

# Typer reads annotations at run time: no postponed evaluation here.
from pathlib import Path
from typing import Annotated

import typer

from semistan.command.arguments import Overwrite, RunFolder, rows_of
from semistan.command.flags import TABLE_FLAGS, configurable
from semistan.errors import InputError, did_you_mean
from semistan.terminal import screen

Kind = Annotated[
    str,
    typer.Option(
        help="coefficients, densities, pairs, smooths, band, subspace, loss, ppc, stat, "
        "loo_pit, calibration, images, survival, trace, rank or energy."
    ),
]


@configurable(*TABLE_FLAGS, into="dialect")
def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN ...", help="A run, and others to overlay.")
    ],
    kind: Kind = "coefficients",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="PNG or SVG; KIND.png by default.")
    ] = None,
    variable: Annotated[
        str | None,
        typer.Option(
            help="Column along which a band is drawn, or of images; parameters of pairs, as "
            "b_x,sigma."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Factor that colours a band or survival curves; groups of stat."),
    ] = None,
    stat: Annotated[str | None, typer.Option(help="Statistics of stat, as max,sd,zeros.")] = None,
    category: Annotated[
        str | None,
        typer.Option(help="Category of the response, for a band, calibration or images."),
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
        str | None, typer.Option(help="Rows with a known response, for calibration or images.")
    ] = None,
    overwrite: Overwrite = False,
    *,
    dialect: dict[str, str],
) -> None:
    """Draw a picture; semistan effect --picture draws those of effects."""
    from semistan.bundle.files import check_output_file
    from semistan.show.pictures import check_kind
    from semistan.show.pictures.write import check_suffix
    from semistan.workflow import outputs

    check_kind(kind)
    out = out or Path(f"{kind}.png")
    check_suffix(out)
    check_output_file(out, overwrite=overwrite)
    given = {
        "variable": variable, "by": by, "stat": stat, "category": category,
        "standardise": standardise or None,
        "directions": _directions(directions), "what": density,
    }  # fmt: skip
    options = {name: value for name, value in given.items() if value is not None}
    frame = rows_of(newdata, dialect, *runs) if newdata else None
    outputs.plot(runs[0], kind, out, others=runs[1:], newdata=frame, **options)
    screen.say(f"wrote {out}")


def export(
    run: RunFolder,
    to: Annotated[
        str,
        typer.Option(
            help="draws (all draws as one table with .chain, .iteration and .draw), generated "
            "(log_lik and y_rep of every row, computed by CmdStan, as CSV files in RUN/generated) "
            "or r (an R script that reads the run: draws by name, summary, loo, figures)."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="CSV, Parquet or JSON file of draws; R file, RUN/read.R by default."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of replicated responses; the run's by default.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Hand a run on: draws as a table, log_lik and y_rep by CmdStan, or a script for R."""
    from semistan.workflow import outputs

    if to not in (known := ("draws", "generated", "r")):
        raise InputError(f"there is no export '{to}'.{did_you_mean(to, known)}")
    if to == "generated":
        if out is not None:
            raise InputError("what is generated is written into RUN/generated: leave --out out")
        screen.say(f"wrote {', '.join(str(path) for path in outputs.generate(run, seed=seed))}")
        return
    if seed is not None:
        raise InputError(f"--seed is of replicated responses, which --to {to} has none of")
    (_export_draws if to == "draws" else _export_script)(run, out, overwrite)


def _export_draws(run: Path, out: Path | None, overwrite: bool) -> None:
    from semistan.bundle.files import check_output_file
    from semistan.show.tables import check_table_path, write_table
    from semistan.workflow import outputs

    if out is None:
        raise InputError("--to draws needs --out FILE.csv or FILE.parquet")
    check_table_path(out)
    check_output_file(out, overwrite=overwrite)
    write_table(outputs.draws(run), out)
    screen.say(f"wrote {out}")


def _export_script(run: Path, out: Path | None, overwrite: bool) -> None:
    from semistan.bundle.files import check_output_file
    from semistan.show.r_script import NAME
    from semistan.workflow import outputs

    check_output_file(out or run / NAME, overwrite=overwrite)
    screen.say(f"wrote {outputs.r_script(run, out)}")


def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file; RUN/report.html by default.")
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN2", help="Compare with this run on the page; as often as wanted."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write one self-contained page: table, diagnostics, effects, checks, program, how to cite."""
    from semistan.bundle.files import check_output_file
    from semistan.posterior.run import read_run
    from semistan.workflow import outputs

    opened = read_run(run)
    check_output_file(out or run / outputs.REPORT, overwrite=overwrite)
    screen.say(f"wrote {outputs.report(opened, out, compare=compare or ())}")


def _directions(text: str | None) -> tuple[int, ...] | None:
    """Read numbers as ``1,2``."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--directions takes two numbers as 1,2, got '{text}'") from None
