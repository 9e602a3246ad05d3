"""Section 3: did the chains converge, and what to do if they did not."""

from __future__ import annotations

import re

import numpy as np

from semistan.posterior.diagnostics import Check, Convergence, ebfmi
from semistan.posterior.summary import Summary
from semistan.show.report.blocks import (
    Cell,
    Column,
    Heading,
    Notice,
    Paragraph,
    Section,
    Table,
    number_cell,
)
from semistan.show.report.evidence import Evidence
from semistan.show.report.illustrate import gallery_at
from semistan.show.report.results import Results
from semistan.words import count

FLAG = re.compile(r"--[a-z][a-z-]*")


def sampling_section(results: Results, evidence: Evidence) -> Section:
    """Show the diagnostics in words, their figures, and each chain."""
    return Section(
        "diagnostics",
        "Diagnostics",
        (
            Paragraph(verdict(results.summary)),
            checks_table(results.summary.checks),
            Heading("Convergence of what is not in the table"),
            convergence_table(results),
            Paragraph(
                "Convergence is judged on coefficients, dispersion and all linear predictors. "
                "`phi` may be multimodal by design; its figures are shown apart."
            ),
            Heading("Chains" if results.posterior.method.has_warmup else "Approximations"),
            *([chains_table(results)] if "energy" in results.posterior.sampler else []),
            *gallery_at(evidence.pictures, "chains"),
        ),
    )


def verdict_notice(summary: Summary) -> tuple[Notice, ...]:
    """Return what opens the page of a run with failed diagnostics, or of one of pooled modes."""
    failed = summary.failed
    if summary.modes:
        return (Notice("note", "Pooled modes", (("", summary.modes.text()),)),)
    if not failed:
        return ()
    title = f"{count(len(failed), 'diagnostic')} failed: do not rely on these figures yet"
    items = tuple(
        (_capital(f"{check.name}: {check.finding}"), f"{_capital(_advice(check))}.")
        for check in failed
    )
    return (Notice("warning", title, items),)


def verdict(summary: Summary) -> str:
    """Say whether the draws can be used."""
    total = len(summary.checks)
    if summary.failed:
        return (
            f"{len(summary.failed)} of {total} diagnostics failed. Follow the advice and fit again "
            "before you use the figures of this page."
        )
    return summary.modes.text() if summary.modes else f"All {total} diagnostics passed."


def checks_table(checks: tuple[Check, ...]) -> Table:
    """Show each diagnostic with its finding and, where any failed, with advice."""
    failed = any(not check.passed for check in checks)
    advice = (Column("What to do", "advice"),) if failed else ()
    columns = (Column("Diagnostic", "words"), Column("Result", "verdict"))
    return Table(
        "Diagnostics",
        (*columns, Column("Finding", "words"), *advice),
        tuple(_check_cells(check, with_advice=failed) for check in checks),
        sortable=False,
    )


def convergence_table(results: Results) -> Table:
    """Show the worst figures of the linear predictors and of phi."""
    summary, eta = results.summary, "s" if results.posterior.design.others else " eta"
    return Table(
        "Largest Rhat and smallest effective sample sizes",
        (
            Column("Quantity", "words"),
            *map(Column, ("Rhat", "Bulk_ESS", "Tail_ESS")),
        ),
        (
            (Cell(f"Linear predictor{eta}"), *_figures(summary.eta)),
            (Cell("Subspace coordinates phi (not judged)"), *_figures(summary.phi)),
        ),
        sortable=False,
    )


def chains_table(results: Results) -> Table:
    """Show what NUTS reports of each chain."""
    names = ("Divergent", "At tree limit", "Acceptance", "Step size", "Leapfrog steps", "E-BFMI")
    posterior, sampler = results.posterior, results.posterior.sampler
    fractions = (
        ebfmi(sampler["energy"]) if np.ptp(sampler["energy"]) else [np.nan] * len(sampler["energy"])
    )
    return Table(
        f"NUTS by chain, over {count(sampler['energy'].shape[1], 'draw')} each",
        (Column("Chain"), *map(Column, names)),
        tuple(
            (
                number_cell(chain + 1, 0),
                number_cell(sampler["diverging"][chain].sum(), 0),
                number_cell((sampler["tree_depth"][chain] >= posterior.max_treedepth).sum(), 0),
                number_cell(sampler["acceptance_rate"][chain].mean(), 2),
                number_cell(sampler["step_size"][chain].mean(), 3),
                number_cell(sampler["n_steps"][chain].mean(), 1),
                number_cell(fractions[chain], 2),
            )
            for chain in range(len(sampler["energy"]))
        ),
        sortable=False,
    )


def _check_cells(check: Check, *, with_advice: bool) -> tuple[Cell, ...]:
    result = Cell("passed" if check.passed else "failed")
    cells = (Cell(_capital(check.name)), result, Cell(check.finding))
    return (*cells, Cell("" if check.passed else _advice(check))) if with_advice else cells


def _figures(figures: Convergence) -> tuple[Cell, ...]:
    return (
        number_cell(figures.rhat, 3),
        number_cell(figures.bulk_ess, 0),
        number_cell(figures.tail_ess, 0),
    )


def _advice(check: Check) -> str:
    """Return the advice with the flags that it names as code."""
    return FLAG.sub(r"`\g<0>`", check.advice)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
