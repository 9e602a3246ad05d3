"""One self-contained HTML page for a finished run.

The page needs no network and no other file: style, script and pictures are inside.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from semistan.bundle.files import atomic_file
from semistan.posterior.posterior import Posterior
from semistan.posterior.run import Run
from semistan.posterior.summary import Summary
from semistan.show.report.content import report_content
from semistan.show.report.evidence import gather
from semistan.show.report.page import render
from semistan.show.report.results import Comparison, Results, results_of


def report_html(results: Results, generator: np.random.Generator) -> str:
    """Compute a run's evidence and write it as one HTML page.

    Parameters
    ----------
    results : Results
        A finished run, in memory.
    generator : numpy.random.Generator
        Draws the rows over which effects are averaged in pictures.
    """
    return render(report_content(results, gather(results, generator)))


def write_report(
    run: Run,
    posterior: Posterior,
    summary: Summary,
    path: Path,
    comparisons: tuple[Comparison, ...] = (),
) -> None:
    """Write a run's page; the sampling seed draws the rows over which its pictures average.

    Raises
    ------
    InputError
        If a file of the run is missing.
    """
    results = results_of(run, posterior, summary, comparisons)
    page = report_html(results, np.random.default_rng(run.options.seed))
    with atomic_file(path) as temporary:
        temporary.write_text(page, "utf-8")
