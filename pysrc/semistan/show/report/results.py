"""What a page is made from: a run's parts, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.formula.formula import Formula, parse_formula
from semistan.model.table.rows import Rows
from semistan.posterior.effects.columns import spared
from semistan.posterior.manifest import Manifest
from semistan.posterior.posterior import Posterior
from semistan.posterior.run import Run
from semistan.posterior.scoring.folds import KFold, finished_kfold
from semistan.posterior.scoring.loo_repairs import Repairs, read_repairs
from semistan.posterior.summary import Summary

if TYPE_CHECKING:
    import pandas as pd

MOST_OUTPUTS = 100_000_000  # draws times rows, of 8 bytes, that are held for a page
FEWEST_DRAWS = 1000  # with which the training rows are judged


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A table in which the run stands beside other models.

    Attributes
    ----------
    title, text, caption : str
        A heading, what is compared and how to read it, and the table's caption.
    frame : pandas.DataFrame
        One line for each model.
    """

    title: str
    text: str
    caption: str
    frame: pd.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """A finished run.

    Attributes
    ----------
    posterior : Posterior
        The fitted model.
    summary : Summary
        The coefficient table and the diagnostics.
    rows : Rows
        The training rows as numbers.
    table : pandas.DataFrame
        The same rows with the user's columns.
    program : str
        The Stan program.
    manifest : Manifest
        Versions, seeds, hashes and timings, as in ``manifest.json``.
    kfold : KFold or None
        Its cross-validation, if it was made.
    comparisons : tuple of Comparison
        With other models.
    repaired : mapping
        What is kept of rows that PSIS-LOO is unreliable of.
    thinned : Posterior or None
        The part of the draws with which the training rows are judged, where these are many.
    """

    posterior: Posterior
    summary: Summary
    rows: Rows
    table: pd.DataFrame
    program: str
    manifest: Manifest
    kfold: KFold | None = None
    comparisons: tuple[Comparison, ...] = ()
    repaired: Repairs = field(default_factory=dict)
    thinned: Posterior | None = None

    @property
    def judging(self) -> Posterior:
        """The draws with which the training rows are judged."""
        return self.thinned or self.posterior

    @property
    def bundle(self) -> Bundle:
        """The trained model; of a mixture that of the first member."""
        return self.posterior.members[0].bundle

    @property
    def prior_only(self) -> bool:
        """Whether the draws are from the prior."""
        return self.manifest.prior_only

    @property
    def options(self) -> SampleConfig:
        """How the run was sampled."""
        return self.manifest.sample

    @property
    def weights(self) -> str:
        """How the subspaces are weighted."""
        return self.manifest.config.subspace.weights if self.manifest.config else "equal"

    @property
    def formula(self) -> Formula:
        """The formula's parts."""
        return parse_formula(self.bundle.config.formula)

    @property
    def data_name(self) -> str | None:
        """Name of the data file without its folder, or None for a table in memory."""
        path = self.bundle.source.path
        return None if path is None else PurePath(path).name


def judging(posterior: Posterior, rows: Rows) -> tuple[Posterior, Posterior | None]:
    """Return the draws, and the part of them that judges rows where these are many.

    The networks of those that judge are computed at the rows, where that fits.
    """
    networks = spared(posterior.design, ())
    most = MOST_OUTPUTS // max(1, len(networks) * len(rows))
    if posterior.size <= most:
        return posterior.knowing(rows, networks), None
    thinned = posterior.thin(max(FEWEST_DRAWS, most))
    return posterior, thinned.knowing(rows, networks) if thinned.size <= most else thinned


def results_of(
    run: Run, posterior: Posterior, summary: Summary, comparisons: tuple[Comparison, ...] = ()
) -> Results:
    """Read what else a page needs from a run's folder.

    The networks are computed at the training rows once for the whole page, where that fits.
    """
    rows = run.rows()
    posterior, thinned = judging(posterior, rows)
    return Results(
        posterior=posterior,
        thinned=thinned,
        summary=summary,
        rows=rows,
        table=run.table(),
        program=(run.path / "program.stan").read_text("utf-8"),
        manifest=run.manifest,
        kfold=finished_kfold(run),
        comparisons=comparisons,
        repaired={} if run.prior_only else read_repairs(run),
    )
