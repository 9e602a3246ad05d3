"""What a run is handed on as: pictures, a page, tables of draws, and R."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table
from semistan.errors import InputError
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.model.bundle import Bundle
from semistan.model.names import MU
from semistan.model.table.rows import Rows
from semistan.posterior.draws import read_draws
from semistan.posterior.effects.columns import (
    check_no_images,
    check_variables,
    predictors_of,
)
from semistan.posterior.effects.decomposition import Decomposition
from semistan.posterior.effects.effect import Effect
from semistan.posterior.generated import generate_quantities
from semistan.posterior.options import NONE
from semistan.posterior.posterior import read_posterior
from semistan.show.export import draws_table
from semistan.show.pictures import draw
from semistan.show.pictures.decomposition import draw_decomposition
from semistan.show.pictures.effect import draw_effect
from semistan.show.pictures.material import run_material
from semistan.show.pictures.measures import Measured, draw_measures
from semistan.show.pictures.row_comparisons import draw_row_comparisons
from semistan.show.pictures.style import reserve
from semistan.show.pictures.words import categorised, effect_words, eta_words, mean_words
from semistan.show.pictures.write import write_picture
from semistan.show.r_script import write_r_script
from semistan.show.report import write_report
from semistan.workflow.baseline import comparison_with, read_baselines
from semistan.workflow.compare import comparison
from semistan.workflow.explain import effect as effect_of
from semistan.workflow.prepare import new_rows, new_table, training_rows
from semistan.workflow.runs import RunLike, one_subspace, opened
from semistan.workflow.sample import read_fitted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

REPORT = "report.html"


def plot(
    run: RunLike,
    kind: str,
    out: Path | str | None = None,
    *,
    others: Sequence[RunLike] = (),
    newdata: Table | None = None,
    **options: Any,
) -> Figure:
    """Draw a picture of a run.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.
    kind : str
        ``coefficients``, ``densities``, ``pairs``, ``smooths``, ``band``, ``subspace``, ``loss``,
        ``ppc``, ``stat``, ``loo_pit``, ``calibration``, ``images``, ``survival``, ``trace``,
        ``rank`` or ``energy``.
    out : path, optional
        PNG or SVG file to write.
    others : sequence of fits, runs or paths
        Further runs to overlay.
    newdata : pandas.DataFrame or a table of another library, optional
        Rows with a known response on which ``calibration`` is judged, or of which ``images`` are
        drawn, instead of the training rows.
    **options
        Of the kind: ``variable`` and ``by`` of ``band``, ``variable`` of ``pairs`` and of
        ``images``, ``category`` of the latter, of ``band`` and of ``calibration``, ``stat`` and
        ``by`` of ``stat``, ``standardise`` of ``coefficients``, ``directions`` and ``what`` of
        ``subspace``.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Raises
    ------
    InputError
        If the kind, an option or the file's suffix is unknown, or the run has no such picture.
    """
    first = opened(run)
    further = [opened(item) for item in others]
    overlaid = tuple((item.path.resolve().name, read_posterior(item)) for item in further)
    if newdata is not None:
        rows = new_rows(first.bundle, newdata, response=True)
        options |= {"rows": rows, "rows_label": "new rows"}
    figure = draw(run_material(first, others=overlaid), kind, **options)
    if out is not None:
        write_picture(figure, Path(out))
    return figure


def plot_effect(
    run: RunLike,
    effect: Effect | str | Sequence[str],
    out: Path | str | None = None,
    *,
    category: str | None = None,
) -> Figure:
    """Draw an effect, with a rug of the training rows.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    effect : Effect, str or sequence of str
        What ``semistan.effect`` has computed, or the columns whose partial dependence is drawn.
    out : path, optional
        PNG or SVG file to write.
    category : str, optional
        Draw the probability of this category alone; by default that of each, where two columns
        vary that of the second.

    Raises
    ------
    InputError
        For an unknown category, or a file of another suffix.
    """
    material = run_material(opened(run))
    if not isinstance(effect, Effect):
        effect = effect_of(run, effect)
    if category is None and len(effect.variables) > 1 and len(effect.categories) > 1:
        category = effect.categories[1]
    if category is not None:
        effect = effect.of_category(category)
    table = predictors_of(material.posterior, material.table).frame
    figure = draw_effect(
        effect, table=table, label=effect_words(material, effect), response=categorised(material)
    )
    reserve(figure, material.reservations)
    if out is not None:
        write_picture(figure, Path(out))
    return figure


def plot_comparisons(
    run: RunLike,
    found: pd.DataFrame,
    out: Path | str | None = None,
    *,
    comparison: str = "difference",
    scale: str = "response",
    against: str | None = None,
    newdata: Table | None = None,
) -> Figure:
    """Draw comparisons of each row, by their size or over a column.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    found : pandas.DataFrame
        What ``comparisons(..., each=True)`` has found of it.
    out : path, optional
        PNG or SVG file to write.
    comparison, scale : str
        What was compared.
    against : str, optional
        A column of the formula over which rows are drawn; by default they stand by their size.
    newdata : pandas.DataFrame or a table of another library, optional
        The rows that were compared, if they are not the training rows.

    Raises
    ------
    InputError
        If the comparisons are not of each row, a column is unknown or holds images, or the file's
        suffix is unknown.
    """
    if "row" not in found:
        raise InputError("a picture of comparisons is of each row: comparisons(..., each=True)")
    run = opened(run)
    material = run_material(run)
    by_category = "category" in found and not material.posterior.family.composed
    mean = categorised(material) or "probability" if by_category else mean_words(material)
    of = eta_words(material) if scale == "linpred" else mean
    column = None
    if against is not None:
        table = material.table if newdata is None else new_table(run.bundle, newdata, groups=NONE)
        predictors = predictors_of(material.posterior.with_groups(NONE), table)
        check_no_images(predictors, check_variables(material.posterior.design, [against]))
        column = predictors.frame[against].set_axis(np.arange(1, len(table) + 1))
    figure = draw_row_comparisons(found, label=f"{comparison}, {of}", against=column)
    reserve(figure, material.reservations)
    if out is not None:
        write_picture(figure, Path(out))
    return figure


def plot_decomposition(run: RunLike, found: Decomposition, out: Path | str | None = None) -> Figure:
    """Draw the main effects and the largest interactions that ``decompose`` found.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    found : Decomposition
        What ``decompose`` has computed of it.
    out : path, optional
        PNG or SVG file to write.

    Raises
    ------
    InputError
        If the file's suffix is unknown.
    """
    material = run_material(opened(run))
    mean = found.predictor == MU
    label = eta_words(material) if mean else f"the predictor of {found.predictor}"
    figure = reserve(draw_decomposition(found, label=label), material.reservations)
    if out is not None:
        write_picture(figure, Path(out))
    return figure


def plot_subspace(
    source: RunLike | Bundle, out: Path | str | None = None, *, rows: Rows | None = None
) -> Figure:
    """Draw a subspace's spread, losses, a slice of it, and the error of its first directions.

    Parameters
    ----------
    source : Fit, Run, path of a run, or Bundle
        A run shows its draws on the slice.
    out : path, optional
        PNG or SVG file to write.
    rows : Rows, optional
        A bundle's training rows, as ``training_rows`` of ``workflow.prepare`` reads them.

    Raises
    ------
    InputError
        If the file's suffix is unknown, a run lacks chains or has several subspaces, or a bundle's
        rows are not given and no longer where they were.
    """
    if isinstance(source, Bundle):
        measured = Measured(source, rows or training_rows(source))
    else:
        run = one_subspace(source)
        measured = Measured(run.bundle, run.rows(), read_draws(run), run.prior_only)
    figure = draw_measures(measured)
    if out is not None:
        write_picture(figure, Path(out))
    return figure


def draws(run: RunLike) -> pd.DataFrame:
    """Return all draws as a table in the layout of R's ``posterior::as_draws_df``.

    Parameters
    ----------
    run : Fit, Run or path
        A finished run.

    Returns
    -------
    pandas.DataFrame
        ``.chain``, ``.iteration``, ``.draw``, and a column for each parameter.
    """
    return draws_table(read_posterior(opened(run)))


def generate(run: RunLike, *, seed: int | None = None) -> list[Path]:
    """Let CmdStan compute ``log_lik`` and ``y_rep`` of every row and draw, and return its CSVs.

    Raises
    ------
    InputError
        If CmdStan is missing or a chain has not been sampled.
    SemistanError
        If CmdStan fails.
    """
    return generate_quantities(opened(run), find_toolchain(), seed=seed)


def r_script(run: RunLike, out: Path | str | None = None) -> Path:
    """Write a script that reads the run in R, by default ``read.R`` in its folder."""
    return write_r_script(opened(run), Path(out) if out is not None else None)


def report(run: RunLike, out: Path | str | None = None, *, compare: Sequence[RunLike] = ()) -> Path:
    """Write a run's page, ``report.html`` in its folder by default, and return its path.

    Its cross-validation and its baselines are on the page if they were made.

    Parameters
    ----------
    run : Fit, Run or path
        The run.
    out : path, optional
        The HTML file.
    compare : sequence of fits, runs or paths
        Runs on the same data, with which the page compares it as ``semistan.compare`` does.

    Raises
    ------
    InputError
        If the run is not complete, or cannot be compared with the others.
    """
    fit = read_fitted(run)
    path = Path(out) if out is not None else fit.run.path / REPORT
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"a report's file ends in .html, got '{path}'")
    found = None if fit.run.prior_only else read_baselines(fit.run)
    comparisons = [comparison_with(found)] if found else []
    comparisons += [comparison(fit.run, compare)] if compare else []
    write_report(fit.run, fit.posterior, fit.summary, path, tuple(comparisons))
    return path
