"""A first answer while the chains run: Laplace's approximation of what is interpreted.

Its modes are those at which the chains start. Where none were looked for, because all weights move
or too many dimensions do, they are modes in the span of the curve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistan.density.mode import Mode
from semistan.density.target import make_target
from semistan.infer.methods import method_named, method_of
from semistan.infer.methods.laplace import approximation_columns
from semistan.infer.starts import find_starts, worth_sampling
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.table.rows import Rows
from semistan.posterior.draws import draws_of_columns
from semistan.posterior.written import digits_of, written
from semistan.subspace.narrow import along_its_curve

DRAWS = 500  # of each chain's mode
MOST_DERIVATIVES = 1_000_000  # rows times weights, beyond which it takes too long to be first


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """Median and spread of what is interpreted, by name; ``where`` is in words.

    The spread is half the width of the central interval that holds what a standard deviation around
    the mean holds of a normal distribution. The standard deviation itself says nothing of one of
    few levels, whose logarithm is normal here.
    """

    figures: dict[str, tuple[float, float]]
    where: str

    def text(self) -> str:
        """Lay out the figures as the table that comes later does."""
        shown = {
            name: [written(value, digits_of(sd)) for value in (mean, sd)]
            for name, (mean, sd) in self.figures.items()
        }
        width = max(map(len, shown))
        lines = [f"{name:<{width}}  {mean:>10}  {sd:>9}" for name, (mean, sd) in shown.items()]
        title = f"a first answer, by Laplace's approximation in {self.where}, until the chains end:"
        return "\n".join([title, f"{'':<{width}}    Estimate  Est.Error", *lines])


def first_answer(
    bundle: Bundle, rows: Rows, options: SampleConfig, modes: tuple[Mode, ...] = ()
) -> FirstAnswer | None:
    """Find roughly what the posterior of the coefficients will be.

    Parameters
    ----------
    bundle : Bundle
        The trained model, tempered as it is sampled.
    rows : Rows
        Of training.
    options : SampleConfig
        Those of sampling.
    modes : tuple of Mode
        At which the chains start, if such were looked for.

    Returns
    -------
    FirstAnswer, optional
        None where there is no such approximation, or not in seconds, and for methods other than
        NUTS, of which Laplace's approximation is one.
    """
    orthogonal = bundle.model.orthogonal and not bundle.model.samples_orthogonal
    if not method_of(options).hamiltonian or orthogonal or bundle.model.integrates_theta:
        return None
    if len(rows) * bundle.subspace.d > MOST_DERIVATIVES:
        return None
    where = "the subspace"
    if not modes and bundle.trained.curve:
        bundle, where = along_its_curve(bundle, rows), "the span of the curve"
    if not modes:
        with_modes = options.model_copy(update={"metric": "auto", "starts": "curve"})
        modes = find_starts(bundle, rows, with_modes).found
    if not modes:
        return None
    figures = _figures(bundle, rows, options, modes)
    return FirstAnswer(figures, f"{where} (k = {bundle.subspace.k})")


def _figures(
    bundle: Bundle, rows: Rows, options: SampleConfig, modes: tuple[Mode, ...]
) -> dict[str, tuple[float, float]]:
    """Return median and spread of what is interpreted, by name."""
    target, generator = make_target(bundle, rows), np.random.default_rng(options.seed)
    laplace = options.model_copy(update={"method": "laplace"})
    before = method_named("laplace").lines_before  # the mode, which is no draw
    found = [
        approximation_columns(target, mode, DRAWS, generator) for mode in worth_sampling(modes)
    ]
    chains = [{name: values[before:] for name, values in each.items()} for each in found]
    drawn = draws_of_columns(bundle, chains, laplace).interpreted
    quantiles = {name: np.quantile(x, (0.1587, 0.5, 0.8413)) for name, x in drawn.items()}
    return {
        name: (float(middle), float(high - low) / 2)
        for name, (low, middle, high) in quantiles.items()
    }
