"""Section 2: the coefficient table, and how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from semistan.model.design import Design
from semistan.model.families.categorical import predictor_name
from semistan.model.families.ordinal import intercept_names
from semistan.model.orthogonal import INTERCEPT, further_names, in_model
from semistan.posterior.summary import COLUMNS, Row
from semistan.posterior.written import digits_of
from semistan.program.predictors import other_labels
from semistan.show.report.blocks import (
    Bullets,
    Cell,
    Column,
    Heading,
    Paragraph,
    Section,
    Table,
    number_cell,
)
from semistan.show.report.evidence import Evidence
from semistan.show.report.illustrate import gallery_at
from semistan.show.report.numbers import joined
from semistan.show.report.results import Results

MEANING = {
    "identity": "the {mean}",
    "log": "the log of the {mean} (its `exp()` is a factor)",
    "logit": "the log odds (its `exp()` is an odds ratio)",
    "probit": "the probability's normal quantile",
    "cloglog": "the log of -log(1 - probability) (its `exp()` is a hazard ratio)",
    "cauchit": "the probability's Cauchy quantile",
    "tan_half": "the tangent of half the {mean}",
}
DISPERSION_LABELS = {"sigma": "residual sd"}


def coefficients_section(results: Results, evidence: Evidence) -> Section:
    """Show the table and say what its intervals do not know."""
    return Section(
        "coefficients",
        "Coefficients",
        (
            *_opening(results),
            coefficient_table(results),
            Paragraph(_columns_text(results)),
            Heading("How to read the table"),
            Bullets(_caveats(results)),
            *gallery_at(evidence.pictures, "coefficients"),
        ),
    )


def coefficient_table(results: Results) -> Table:
    """Show the summary with brms's columns, each number to its error's digits."""
    labels = labels_of(results)
    return Table(
        f"{'Prior' if results.prior_only else 'Posterior'} summary",
        (Column("Name", "code"), Column("Label", "words"), *map(Column, COLUMNS)),
        tuple(
            (Cell(row.name), Cell(labels.get(row.name, "")), *_numbers(row))
            for row in results.summary.rows
        ),
    )


def labels_of(results: Results) -> dict[str, str]:
    """Return the design column, or the meaning in words, of each parameter in the table."""
    return {**_labels(results), **dict(_labels_of_categories(results.posterior.design))}


def _labels(results: Results) -> dict[str, str]:
    design = results.posterior.design
    columns = dict(zip(design.mean.names[1:], design.mean.columns_named[1:], strict=True))
    further = further_names(results.bundle.config, design)
    sheared = in_model(results.bundle.config, design)
    how = "beside the network" if sheared else "orthogonalised"
    columns |= {name: f"{design.x.columns[j]}, {how}" for name, j in further.items()}
    K, orthogonal = results.posterior.family.reported_categories, bool(further) and not sheared
    columns |= _intercept_words(K, INTERCEPT, ", orthogonalised") if orthogonal else {}
    columns |= other_labels(design)
    intercepts = _intercept_words(K, design.intercept)
    terms = {name: text for term in design.terms for name, text in term.labels().items()}
    return {**intercepts, **columns, **terms, **DISPERSION_LABELS}


def _intercept_words(K: int, name: str, further: str = "") -> dict[str, str]:
    names = intercept_names(K, name)
    words = (f"threshold {k}" for k in range(1, K)) if K else ("intercept",)
    return {name: f"{word}{further}" for name, word in zip(names, words, strict=True)}


def _labels_of_categories(design: Design) -> Iterator[tuple[str, str]]:
    """Yield names and meanings, ``x: car against bus``; nothing without unordered categories."""
    if not design.categories:
        return
    levels = {predictor_name(level): level for level in design.categories}
    second = (design.mean_name, design.mean.names, design.mean.columns_named)
    others = ((item.name, item.names, item.columns_named) for item in design.of_categories)
    for predictor, names, columns in (second, *others):
        for name, column in zip(names, ("intercept", *columns[1:]), strict=True):
            yield name, f"{column}: {levels[predictor]} against {design.categories[0]}"


def _numbers(row: Row) -> tuple[Cell, ...]:
    digits = digits_of(row.est_error)
    estimates = (number_cell(value, digits) for value in row.values[:4])
    return (
        *estimates,
        number_cell(row.rhat, 3),
        number_cell(row.bulk_ess, 0),
        number_cell(row.tail_ess, 0),
    )


def _opening(results: Results) -> tuple[Paragraph, ...]:
    if results.posterior.design.coefficients or results.posterior.design.mean.slopes:
        return ()
    return (
        Paragraph(
            "The formula has no structured terms: there are no coefficients to interpret but "
            "the intercept."
        ),
    )


def _columns_text(results: Results) -> str:
    family, design = results.posterior.family, results.posterior.design
    scalars = results.bundle.model.scalars
    intercepts = (design.intercept, *(item.intercept for item in design.of_categories))
    names = ("Coefficients", *(f"`{name}`" for name in (*intercepts, *scalars)))
    varying = "".join(
        f" `b_{item.name}_...` are the same for the logarithm of {item.name}."
        for item in design.of_dispersion
    )
    mean = family.predicted.words.format(y="the response")
    meaning = MEANING.get(family.link, "the linear predictor").format(mean=mean)
    if design.categories:
        reference, *others = design.categories
        of = f"{' or '.join(others)} against {reference}"
        meaning = (
            f"the log ratio of the mean share of {of} (its `exp()` multiplies the ratio)"
            if family.composed
            else f"the log-odds of {of} (its `exp()` is a ratio of such odds)"
        )
    if family.predicted.event:
        meaning += f" of {family.predicted.event}"
    thresholds = (
        f" `{design.intercept}[k]` is the threshold between categories k and k + 1, as by brms."
        if family.reported_categories
        else ""
    )
    return (
        "The columns are brms's: mean and standard deviation of the draws, a central 95% "
        "interval, rank-normalised Rhat, and the effective sample sizes of the bulk and of the "
        f"tails. {joined(names)} are in the units of your data: inputs "
        f"are standardised inside. A coefficient is the change of {meaning} for one unit more "
        f"of its column, all else equal.{thresholds}{varying}"
    )


def _caveats(results: Results) -> tuple[str, ...]:
    intercept = results.posterior.design.intercept
    level = (
        f"The network's output bias is the intercept. `{intercept}` is the mean over the training "
        "rows of the linear predictor less `x' theta`."
    )
    if results.bundle.model.moves != "all":
        level += (
            f" That bias moves only within the subspace, so `{intercept}` and the overall level "
            "can come out too certain, and `theta`, which is sampled in full, by less."
        )
    return (
        *_subspace_caveats(results),
        level,
        "A coefficient is identified only as far as the network cannot imitate its term: keep a "
        "variable either in the structured part or in `nn()`.",
        *results.summary.notes,
    )


def _subspace_caveats(results: Results) -> tuple[str, ...]:
    """Say what the intervals do not know of the subspace, or of several."""
    if results.bundle.model.moves == "all":
        return ()
    if results.summary.agreement:
        return (
            "The subspaces were trained on the same response. Intervals are conditional on them.",
            f"{results.summary.agreement.text()} The draws of all count alike, so that this is in "
            "the standard errors and intervals. Rhat is the root mean square of those within each "
            "subspace, the effective sample sizes are sums over the subspaces.",
        )
    seed = results.bundle.config.train.seed
    return (
        "The subspace was trained on the same response. Intervals are conditional on it.",
        f"The subspace depends on the seed of the training (here {seed}), which Rhat cannot see. "
        "Fit several (`--subspaces 5`) before you trust the third digit.",
    )
