"""Sections 4 to 6: effects, checks against the response, and the subspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistan.model.left_out import left_out
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.scoring.finite import fault_of
from semistan.posterior.scoring.loo import Loo, loo_obstacle
from semistan.posterior.written import digits_of
from semistan.show.report.blocks import (
    Block,
    Cell,
    Column,
    Heading,
    Paragraph,
    Section,
    Table,
    galleries,
    number_cell,
)
from semistan.show.report.evidence import Components, Effects, Estimates, Evidence, HeldOut
from semistan.show.report.illustrate import gallery_at
from semistan.show.report.numbers import joined, number
from semistan.show.report.results import Comparison, Results
from semistan.words import count, part_of

if TYPE_CHECKING:
    import pandas as pd

CONDITIONAL = "One column varies; the others are held at their mean, or at a factor's first level."
SMOOTHS = "What each smooth adds to its linear predictor, with 95% intervals; marks are the rows."
DEPENDENCE = (
    "Partial dependence: one column varies in every row, and the predictions are averaged. "
    "Combinations that do not occur in the data are averaged too."
)
COMPONENTS = (
    "What the network adds to the predictor, told apart into effects of single inputs and "
    "interactions of pairs, each without what the others say (a functional analysis of variance "
    "over the rows)."
)
ADDITIVE = 0.05  # the share below which what is not additive is as good as none
MARGINAL = (
    "The change of {} per unit of a column (`dY/dX`), or from a factor's first level to another, "
    "averaged over the rows."
)
IMPORTANCE = (
    "The loss of mean log-likelihood, in nats per row, when a column is shuffled among the rows. "
    "It says what the model uses, not what causes the response; of columns that are correlated, "
    "each can stand in for the other."
)
SCORES = (
    "These compare the model with the rows that trained it: they can find a wrong model, but not "
    "an overfitted one."
)
HELD_OUT = (
    "Cross-validation: each row is predicted by a fit, its training included, that did not see it. "
    "This is how well new rows of this kind can be expected to be predicted."
)
NO_FOLDS = (
    "There is no cross-validation of this run. `semistan kfold` makes it, training included, and "
    "`semistan report` then shows it here."
)
LOO = "Each row's predictive density as if it had been left out, by importance sampling."
WORDS = ("component", "term", "contrast", "category", "measure", "score", "model", "")
DIGITS = {"Relative": 2, "weight": 2, "largest_k": 2, "k_above": 0}
FIGURES = (  # without an error
    "RMSE", "MAE", "CRPS", "AUC", "Brier", "accuracy", "coverage", "randomised coverage", "seconds"
)  # fmt: skip
ERRORS = ("Est.Error", "SE", "se")


def effects_section(results: Results, evidence: Evidence) -> Section:
    """Show what each column does to the response."""
    by_category = "category" in evidence.marginal.frame
    each = "mean share" if results.posterior.family.composed else "probability"
    mean = f"each category's {each}" if by_category else "the mean response"
    return Section(
        "effects",
        "Effects",
        (
            *_caveat(results),
            *_shown("Structured terms", CONDITIONAL, evidence.conditional),
            *_smooths(evidence),
            *_shown("Network inputs", DEPENDENCE, evidence.dependence),
            *_components(evidence.components),
            *_estimated("Average marginal effects", MARGINAL.format(mean), evidence.marginal),
            *_estimated("Permutation importance", IMPORTANCE, evidence.importance),
        ),
    )


def checks_section(results: Results, evidence: Evidence) -> Section:
    """Hold the model against rows held out and other models, and the rows it was trained on."""
    return Section(
        "checks",
        "Checks",
        (
            *_cross_validation(evidence.held_out),
            *_left_out(results, evidence),
            *(block for each in results.comparisons for block in _compared(each)),
            Heading("On the training rows"),
            Paragraph(SCORES),
            *gallery_at(evidence.pictures, "training rows"),
            *_estimated("Scores on the training rows", "", evidence.scores),
        ),
    )


def subspace_section(results: Results, evidence: Evidence) -> Section:
    """Show where the network's weights could move, and how the draws use it."""
    bundle = results.bundle
    subspace = bundle.subspace
    moves = (
        f"The network's {subspace.d:,} Bayesian weights move in {subspace.k} dimensions "
        f"(construction: {subspace.origin}). `phi` are their coordinates there. "
        f"{left_out(bundle, len(results.posterior.members))}"
    )
    every = bundle.model.moves == "all"
    if every:
        moves = (
            f"All {subspace.d:,} Bayesian weights of the network are sampled: `phi` is the weight "
            "vector itself."
        )
    return Section(
        "subspace",
        "The network's weights" if every else "The subspace",
        (
            Paragraph(moves),
            *gallery_at(evidence.pictures, "subspace"),
            *map(directions_table, () if every else results.posterior.members),
        ),
    )


def pareto_text(loo: Loo) -> str:
    """Say how many Pareto k are too large, and what to do."""
    bad, limit = loo.unreliable.size, f"{loo.limit:.2f}"
    largest = f"largest {loo.pareto_k.max():.2f}"
    if not bad:
        return (
            f"All Pareto k are below {limit} ({largest}): the importance sampling is reliable. "
            f"{loo.remarks}"
        ).rstrip()
    return (
        f"{part_of(bad, loo.pareto_k.size, 'row')} have a Pareto k above {limit} ({largest}): "
        "their elpd is unreliable. Look at these rows, and use `semistan loo --reloo` or "
        f"`semistan kfold`. {loo.remarks}"
    ).rstrip()


def directions_table(member: SubspacePosterior) -> Table:
    """Show each direction's singular value, its share, and the draws along it."""
    phi, values = member.draws.flat(member.draws.phi), member.bundle.trained.singular_values
    share = values**2 / np.square(values).sum()
    names = ("Direction", "Singular value", "Share of spread", "Mean of phi", "SD of phi")
    return Table(
        "Directions of the subspace: spread of the trained points, and draws along each",
        tuple(map(Column, names)),
        tuple(
            (
                number_cell(j + 1, 0),
                number_cell(values[j], digits_of(values[j]) + 1),
                Cell(f"{number(100 * share[j], 1)}%", float(share[j])),
                number_cell(phi[:, j].mean(), 2),
                number_cell(phi[:, j].std(ddof=1), 2),
            )
            for j in range(len(values))
        ),
    )


def frame_table(frame: pd.DataFrame, caption: str) -> Table:
    """Turn estimates into a table; each line's numbers have the digits of its error."""
    error = next(name for name in ERRORS if name in frame)
    columns = tuple(
        Column(name.capitalize() or "Quantity", "words") if name in WORDS else Column(name)
        for name in frame
    )
    return Table(
        caption,
        columns,
        tuple(
            tuple(_cell(name, value, line[error]) for name, value in line.items())
            for line in frame.to_dict("records")
        ),
    )


def _caveat(results: Results) -> tuple[Block, ...]:
    """Say what the intervals leave out; a prior's leave nothing out."""
    text = left_out(results.bundle, len(results.posterior.members))
    return (Paragraph(text),) if text and not results.prior_only else ()


def _cross_validation(found: HeldOut | str | None) -> tuple[Block, ...]:
    heading = Heading("Rows held out")
    if found is None:
        return heading, Paragraph(NO_FOLDS)
    if isinstance(found, str):
        return heading, Paragraph(found)
    failed = (
        f" The fits without fold {joined(tuple(map(str, found.failed)))} failed a diagnostic."
        if found.failed
        else ""
    )
    return (
        heading,
        Paragraph(HELD_OUT + failed),
        *galleries((found.picture,)),
        *_estimated("", "", found.scores),
        frame_table(found.elpd, "Expected log predictive density, summed over rows"),
    )


def _compared(found: Comparison) -> tuple[Block, ...]:
    return (
        Heading(found.title), Paragraph(found.text), frame_table(found.frame, found.caption)
    )  # fmt: skip


def _cell(name: str, value: str | float, error: float) -> Cell:
    if isinstance(value, str):
        return Cell(value)
    if name in FIGURES:
        return number_cell(value, digits_of(value / 10))
    return number_cell(value, DIGITS[name] if name in DIGITS else digits_of(error))


def _estimated(title: str, text: str, estimates: Estimates | str | None) -> tuple[Block, ...]:
    if estimates is None:
        return ()
    heading = (Heading(title),) if title else ()
    paragraph = (Paragraph(text),) if text else ()
    if isinstance(estimates, str):
        return (*heading, *paragraph, Paragraph(estimates))
    return (*heading, *paragraph, frame_table(estimates.frame, f"From {estimates.basis}"))


def _shown(title: str, text: str, effects: Effects) -> tuple[Block, ...]:
    if not effects.pictures:
        return ()
    left = f" {count(effects.left_out, 'column')} of less importance not shown."
    basis = f" From {effects.basis}.{left if effects.left_out else ''}"
    return (Heading(title), Paragraph(text + basis), *galleries(effects.pictures))


def _components(found: Components | None) -> tuple[Block, ...]:
    if found is None:
        return ()
    return (
        Heading("What the network found"),
        Paragraph(
            f"{COMPONENTS} The probability that less than {ADDITIVE:.0%} is not additive is "
            f"{number(found.additive, 2)}."
        ),
        *galleries((found.picture,)),
        frame_table(found.totals.frame, f"Shares of the variance, from {found.totals.basis}"),
        frame_table(found.shares, "Shares of single inputs and of pairs"),
    )


def _smooths(evidence: Evidence) -> tuple[Block, ...]:
    found = gallery_at(evidence.pictures, "smooths")
    return (Heading("Smooths"), Paragraph(SMOOTHS), *found) if found else ()


def _left_out(results: Results, evidence: Evidence) -> tuple[Block, ...]:
    loo = evidence.loo
    if loo is None:
        obstacle = loo_obstacle(results.posterior)
        said = obstacle is not None and not results.prior_only
        return (Heading("Leave-one-out"), Paragraph(f"{obstacle}.")) if said else ()
    basis = part_of(loo.pareto_k.size, len(results.rows), "row")
    if results.thinned:
        basis += f", {part_of(results.judging.size, results.posterior.size, 'draw')}"
    fault = fault_of("elpd_loo", loo.elpd)
    return (
        Heading("Leave-one-out"),
        Paragraph(f"{LOO} {loo.caveat}".rstrip().replace("'semistan kfold'", "`semistan kfold`")),
        Paragraph(f"{fault}.") if fault else frame_table(loo.table(), f"PSIS-LOO over {basis}"),
        Paragraph(pareto_text(loo)),
        *gallery_at(evidence.pictures, "leave-one-out"),
    )
