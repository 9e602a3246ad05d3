"""How often intervals hold the truth, semistan's and those of what else people use.

6 functions x N of 150, 300, 1000 x low and high noise x gaussian, poisson, bernoulli x 10 data sets
(``simulated.py``), and all contenders (``contenders.py``) on each that they can model. At 500 new
rows: the share of 50, 80 and 95% intervals of eta that hold the truth, their width, RMSE of eta's
posterior mean, both in units of f's standard deviation, and LPPD; the same intervals of theta; and
seconds. Every contender has the same rows, network and seeds; no setting was chosen by new rows.

The cells come in blocks of six settings that are nearly balanced over functions, rows, noise and
families: data set 1 of all, then 2, ... Cheap contenders and the defaults run on every block, dear
ones on every third, and on the others when all blocks have had their turn. So whenever the study
is stopped, its figures are of a balanced part of all cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from semistan.model.arrays import Array
from studies.contenders import Contender, available
from studies.coverage_page import LEVELS, draw, section
from studies.problem import Found, Problem, predictive_density
from studies.simulated import FUNCTIONS, SCALE, SIGMA, DataSet, Setting, simulate
from studies.study import Cell, Options, Study, main

ROWS = (150, 300, 1000)
DATA_SETS = 10
BLOCK = len(FUNCTIONS)
STRIDE = 7  # from one function's place among the other factors to the next one's
DEAR = ("paper", "widened", "all-weights", "sampled-scales", "subspaces-3", "mclmc")
DEAR_EVERY = 3  # blocks
QUICK = Setting("interactions", 150, "low", "gaussian")
QUICK_ROWS = 100  # new ones


def settings(of_rows: Sequence[int] = ROWS) -> list[Setting]:
    """Return all settings, each six in a row balanced over functions, rows, noise and families."""
    others = [(rows, noise, family) for noise in SIGMA for family in SCALE for rows in of_rows]
    return [
        Setting(function, *others[(block + STRIDE * place) % len(others)])
        for block in range(len(others))
        for place, function in enumerate(FUNCTIONS)
    ]


def cells(options: Options) -> list[Cell]:
    """Return the study's cells in the order of their turns."""
    torch.set_num_threads(1)
    contenders = available()
    if options.quick:
        return list(_quick(contenders))
    cheap = [contender for contender in contenders if contender.name not in DEAR]
    dear = [contender for contender in contenders if contender.name in DEAR]
    return [cell for number in range(1, DATA_SETS + 1) for cell in _one_each(number, cheap, dear)]


def _quick(contenders: Sequence[Contender]) -> Iterator[Cell]:
    """Give each contender a gaussian data set, and cheap ones one of the other families."""
    for family in SCALE:
        setting = Setting(QUICK.function, QUICK.rows, QUICK.noise, family)
        for contender in contenders:
            if family == QUICK.family or contender.name not in DEAR:
                yield from cells_of(setting, 1, contender, quick=True)


def _one_each(number: int, cheap: Sequence[Contender], dear: Sequence[Contender]) -> Iterator[Cell]:
    """Return the cells of one data set of every setting."""
    later: list[Cell] = []
    for place, setting in enumerate(settings()):
        for contender in cheap:
            yield from cells_of(setting, number, contender)
        dear_cells = [cell for contender in dear for cell in cells_of(setting, number, contender)]
        if place // BLOCK % DEAR_EVERY == 0:
            yield from dear_cells
        else:
            later += dear_cells
    yield from later


def cells_of(
    setting: Setting, number: int, contender: Contender, *, quick: bool = False
) -> Iterator[Cell]:
    """Return a contender's cell on a data set, or none where it cannot model the family."""
    if setting.family not in contender.families:
        return
    key = {
        "function": setting.function,
        "rows": setting.rows,
        "noise": setting.noise,
        "family": setting.family,
        "number": number,
        "contender": contender.name,
    }
    yield Cell(key, partial(measure, setting, number, contender, quick))


def measure(setting: Setting, number: int, contender: Contender, quick: bool) -> Mapping[str, Any]:
    """Let a contender fit a data set, and hold what it says against the truth."""
    data = simulate(setting, number, QUICK_ROWS) if quick else simulate(setting, number)
    problem = Problem(data.training, data.new, data.facts, seed=number, quick=quick)
    found = contender.run(problem)
    error = found.eta.mean(axis=0) - data.eta
    return {
        "coverage": [float(_covered(found.eta, data.eta, level).mean()) for level in LEVELS],
        "width": [float(_width(found.eta, level) / setting.scale) for level in LEVELS],
        "rmse": float(np.sqrt(np.square(error).mean()) / setting.scale),
        "lppd": float(found.lpd.mean()),
        "lppd_of_truth": float(_true_density(data).mean()),
        "fit_seconds": found.seconds,
        "rhat": _number(found.rhat),
        "ess": _number(found.ess),
        "quick": quick,
        **_of_theta(found, data),
        **found.notes,
    }


def _of_theta(found: Found, data: DataSet) -> dict[str, Any]:
    """Return which intervals of each coefficient hold the truth, and estimates."""
    if found.theta is None:
        return {}
    return {
        "theta_covered": [_covered(found.theta, data.theta, level).tolist() for level in LEVELS],
        "theta_mean": found.theta.mean(axis=0).tolist(),
        "theta_sd": found.theta.std(axis=0, ddof=1).tolist(),
    }


def _bounds(draws: Array, level: float) -> tuple[Array, Array]:
    """Return the bounds of the central interval of draws (S, ...)."""
    lower, upper = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2), axis=0)
    return lower, upper


def _covered(draws: Array, truth: Array, level: float) -> Array:
    lower, upper = _bounds(draws, level)
    return (lower <= truth) & (truth <= upper)


def _width(draws: Array, level: float) -> float:
    lower, upper = _bounds(draws, level)
    return float((upper - lower).mean())


def _true_density(data: DataSet) -> Array:
    """Return the log density (N,) of the new rows' response under the truth: LPPD's ceiling."""
    y = data.new[data.facts.response].to_numpy(dtype=float)
    return predictive_density(data.facts.family, y, data.eta[None], data.sigma)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


STUDY = Study(
    name="coverage",
    title="Do the intervals hold the truth?",
    cells=cells,
    section=section,
    draw=draw,
)

if __name__ == "__main__":
    main(STUDY, __doc__ or "")
