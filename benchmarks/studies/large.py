"""How often intervals hold the truth in large tables: coverage.py with 5,000 and 20,000 rows.

6 functions x N of 5,000, 20,000 x low and high noise x gaussian, poisson, bernoulli x 3 data sets,
in the same blocks of six. Where all weights do not fit the budget, the defaults sample the span of
a curve from each of three trainings, completed. Beside them are those contenders that take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from studies.contenders import available
from studies.coverage import cells_of, settings
from studies.coverage_page import draw, section
from studies.study import Cell, Options, Record, Study, main

ROWS = (5000, 20_000)
DATA_SETS = 3
RIVALS = ("bde", "deep-ensemble", "bam")
CONTENDERS = ("defaults", *RIVALS, "glm")
INTRODUCTION = """\
The simulated data, contenders and figures of [Do the intervals hold the
truth?](study-coverage.md), with N of 5,000 and 20,000 rows. Where all weights do not fit the
budget, the defaults sample the span of a curve (k = 2) from each of three trainings, completed."""


def cells(options: Options) -> list[Cell]:
    """Return the study's cells in the order of their turns."""
    torch.set_num_threads(1)
    contenders = available(CONTENDERS)
    number_of = 1 if options.quick else DATA_SETS
    some = settings(ROWS)[:1] if options.quick else settings(ROWS)
    return [
        cell
        for number in range(1, number_of + 1)
        for setting in some
        for contender in contenders
        for cell in cells_of(setting, number, contender, quick=options.quick)
    ]


def introduced(records: Sequence[Record]) -> str:
    """Return the section's Markdown."""
    return section(records, INTRODUCTION, RIVALS)


STUDY = Study(
    name="large",
    title="Do they hold it in large tables?",
    cells=cells,
    section=introduced,
    draw=draw,
)

if __name__ == "__main__":
    main(STUDY, __doc__ or "")
