"""What people see on the terminal: tables, and diagnostics in words."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.config import ModelConfig
    from semistan.posterior.diagnostics import Convergence
    from semistan.posterior.effects.answers import EffectTable
    from semistan.posterior.run import Run
    from semistan.posterior.summary import Row, Summary
    from semistan.workflow.doctor import Finding
    from semistan.workflow.sample import Fitted

out = Console(highlight=False, soft_wrap=True)
notes = Console(stderr=True, highlight=False, soft_wrap=True)


def escape_what_cannot_be_encoded() -> None:
    r"""Have streams that are not UTF-8 print a name in another script as ``\u0432``.

    Python would raise instead, after a command has done all its work. An error handler that the
    user chose (``PYTHONIOENCODING=latin-1:replace``) stays.
    """
    for stream in (sys.stdout, sys.stderr):
        strict = getattr(stream, "errors", None) in ("strict", "surrogateescape")
        if strict and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(line: str) -> None:
    """Write one line about what is going on, to standard error."""
    notes.print(escape(line), style="dim")


def say_all(lines: Iterable[str]) -> None:
    """Write lines about what was printed, to standard error."""
    for line in lines:
        say(line)


def begin(line: str) -> None:
    """Say at once, on a terminal, what the seconds until the next line are for."""
    if is_interactive():
        say(f"{line} ...")


def complain(message: str) -> None:
    """Write an error to standard error."""
    notes.print(f"[bold red]error:[/] {escape(message)}")


def is_interactive() -> bool:
    """Say whether progress bars make sense."""
    return sys.stderr.isatty()


def show_fit(fit: Fitted) -> None:
    """Print what was fitted, the coefficient table, the diagnostics and the run's folder."""
    from semistan.model.facts import facts_text

    out.print(escape(facts_text(fit.run.facts())) + "\n")
    _print_whole(coefficient_table(fit.summary.rows))
    out.print()
    for remark in fit.summary.remarks():
        out.print(escape(remark))
    out.print("Priors as used: " + escape("; ".join(_priors(fit))) + ".")
    show_diagnostics(fit.summary)
    out.print(escape(f"Run: {fit.run.path}"))


def coefficient_table(rows: tuple[Row, ...]) -> Table:
    """Lay out the table; estimates show two significant digits of their error."""
    from semistan.posterior.summary import COLUMNS

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(escape(row.name), *row.texts)
    return table


def show_diagnostics(summary: Summary) -> None:
    """Print the verdict, failed checks with advice, and the figures of eta and phi."""
    out.print()
    for warning in summary.warnings():
        out.print(f"[bold yellow]{escape(warning)}[/]")
    if summary.passed:
        out.print(f"[green]All diagnostics passed[/]: {escape(summary.judged())}.")
    if summary.modes:
        out.print(f"[yellow]Pooled modes[/]: {escape(summary.modes.text())}")
    for check in summary.failed:
        out.print(f"[bold yellow]Warning[/] {escape(check.name)}: {escape(check.finding)}.")
        out.print(f"        {escape(check.advice)}.")
    for cost in summary.costs():
        out.print(escape(cost))
    out.print(f"Linear predictor: {_figures(summary.eta)}.")
    out.print(f"phi (may be multimodal, not judged): {_figures(summary.phi)}.")


def show_tables(tables: Mapping[str, pd.DataFrame]) -> None:
    """Print tables for people."""
    for i, table in enumerate(tables.values()):
        if i:
            out.print()
        _print_whole(plain_table(table))


def _print_whole(table: Table) -> None:
    """Print a table as wide as it is: cut names cannot be told apart."""
    table.width = max(out.measure(table, options=out.options.update(max_width=10_000)).maximum, 1)
    out.print(table, crop=False)


def plain_table(table: pd.DataFrame) -> Table:
    """Lay out a table: text to the left, numbers to the right with some significant digits."""
    from semistan.posterior.written import cells

    laid = Table(box=None, pad_edge=False)
    numeric = [table[name].dtype.kind in "iuf" for name in table.columns]
    for name, is_number in zip(table.columns, numeric, strict=True):
        laid.add_column(escape(str(name)), justify="right" if is_number else "left")
    for row in zip(*(cells(column) for _, column in table.items()), strict=True):
        laid.add_row(*map(escape, row))
    return laid


def say_basis(answer: EffectTable) -> None:
    """Say on what estimates rest if that is not all draws and rows alike."""
    if answer.partial or answer.weights:
        say(f"From {answer.basis}.")


def say_caveat(run: Run) -> None:
    """Say what the intervals of a run leave out; a prior's leave nothing out."""
    if text := _caveat(run):
        say(text)


def say_caveats_of(runs: Sequence[Run]) -> None:
    """Say what the intervals of each run leave out, once if it is the same."""
    if len({_caveat(run) for run in runs}) == 1:
        say_caveat(runs[0])
        return
    for run in runs:
        if text := _caveat(run):
            say(f"{run.path}: {text}")


def _caveat(run: Run) -> str:
    from semistan.model.left_out import left_out

    return "" if run.prior_only else left_out(run.bundle, len(run.members))


def say_caveats(run: Run) -> None:
    """Say what keeps draws from being the posterior's, and what intervals leave out."""
    from semistan.infer.methods import reservations

    for text in reservations(run.options):
        say(f"Not the posterior: {text}.")
    say_caveat(run)


def say_weighting(config: ModelConfig, columns: Iterable[str] | None = None) -> None:
    """Say by what averages over rows (with these columns) are weighted, if they are."""
    from semistan.posterior.weighting import weighting

    if weights := weighting(config, columns):
        say(f"Averages over rows are {weights}.")


def show_findings(findings: list[Finding]) -> None:
    """Print what the doctor found, with advice where something is missing."""
    for finding in findings:
        mark = "[green]ok[/]     " if finding.ok else "[bold red]missing[/]"
        out.print(f"{mark} {escape(finding.name)}: {escape(finding.text)}")


def summary_answer(fit: Fitted) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the coefficients as a table, and the facts beside it for scripts."""
    from dataclasses import asdict

    import pandas as pd

    from semistan.posterior.summary import COLUMNS

    summary = fit.summary
    table = pd.DataFrame(
        [(row.name, *row.values) for row in summary.rows], columns=["variable", *COLUMNS]
    )
    facts = {
        "run": str(fit.run.path),
        "formula": fit.run.bundle.config.formula,
        "family": fit.run.bundle.family.name,
        "method": fit.run.options.method,
        "reservations": list(summary.reservations),
        "notes": list(summary.notes),
        "passed": summary.passed,
        "verdict": summary.verdict(),
        "eta": asdict(summary.eta),
        "phi": asdict(summary.phi),
        "priors": dict(prior.split(" ~ ") for prior in _priors(fit)),
        "checks": [asdict(check) for check in summary.checks],
        **({"agreement": asdict(summary.agreement)} if summary.agreement else {}),
        **({"modes": asdict(summary.modes)} if summary.modes else {}),
        "seconds": fit.run.manifest.seconds,
    }
    return table, facts


def _priors(fit: Fitted) -> list[str]:
    from semistan.model.priors.lines import priors_as_used

    return [f"{line.parameter} ~ {line.used}" for line in priors_as_used(fit.run.bundle)]


def _figures(figures: Convergence) -> str:
    from semistan.posterior.written import written

    return (
        f"largest Rhat {written(figures.rhat, 3)}, smallest bulk ESS "
        f"{written(figures.bulk_ess, 0)}, tail ESS {written(figures.tail_ess, 0)}"
    )
