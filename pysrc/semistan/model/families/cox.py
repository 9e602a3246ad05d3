"""Times with proportional hazards (Cox, 1972, JRSS B 34), whose baseline hazard is a spline.

    h(t) = h0(t) exp(eta),    P(T > t) = exp(-H0(t) exp(eta)),    H0(t) = integral of h0 from 0 to t

As in brms, exp(b) multiplies the hazard: a positive coefficient shortens the time. The baseline
hazard h0 integrates to 1 over its knots (``baseline.py``), so that exp(eta) is the cumulative
hazard there. In cumulative baseline hazard a time is an exponential one with rate exp(eta), which
is what its tails come from.

Where a ratio of neighbouring coefficients of h0 has a predictor, rows have baseline hazards of
their own: strata, or effects on the hazard that change with time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.families.baseline import Baseline, ratio_names
from semistan.model.families.common import LARGEST_EXPONENT
from semistan.model.families.family import (
    Constant,
    Curve,
    Dispersion,
    Family,
    Given,
    Predicted,
    Tails,
)
from semistan.model.families.shares import log_not_zero
from semistan.model.stan_text import TIED
from semistan.model.table.given import CODES

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

NAME, PIECEWISE = "cox", "piecewise"
RATIO = Dispersion(
    "bhaz", "", "lognormal(0, 1)", of_class="bhaz", in_predictor="normal(0, 1)"
)  # neighbours in time are alike, in every stratum
DEGREE, DF, PIECES = 3, 5, 8  # of the splines; coefficients, and intervals of a step function
DIGITS = 4  # of knots
MOST_KNOTS = 100
USAGE = "cox, cox(df=7), cox(piecewise), cox(piecewise, df=10), or knots, as cox(0, 30, 90, 365)"


def read(options: list[str]) -> Family:
    """Read what users write in brackets: ``piecewise``, and ``df=`` or the knots."""
    degree = 0 if PIECEWISE in options else DEGREE
    rest = [option for option in options if option != PIECEWISE]
    named = re.fullmatch(r"df\s*=\s*(\d{1,9})", rest[0]) if len(rest) == 1 else None
    if named or not rest:
        return _of_number(int(named[1]) if named else None, degree)
    try:
        knots = tuple(map(float, rest))
    except ValueError:
        raise InputError(f"family cox is written as {USAGE}; got '{', '.join(options)}'") from None
    return of_knots(knots, degree)


def _of_number(df: int | None, degree: int) -> Family:
    """Return the record before its knots are known, which it takes from the training rows."""
    least = max(degree + 1, 2)
    if df is not None and not least <= df <= MOST_KNOTS:
        raise InputError(
            f"family cox takes {least} to {MOST_KNOTS} coefficients of the baseline hazard "
            f"{'' if degree else '(piecewise) '}as df, got {df}"
        )
    return replace(
        of_knots((0.0, 1.0) if degree else (0.0, 1.0, 2.0), degree),
        parameters=(),
        varied=None,
        text=_text(degree, (f"df={df}",) if df else ()),
        learn=partial(_learn, df or (DF if degree else PIECES), degree),
    )


def _text(degree: int, rest: tuple[str, ...]) -> str:
    options = rest if degree else (PIECEWISE, *rest)
    return f"{NAME}({', '.join(options)})" if options else NAME


def _learn(df: int, degree: int, y: Array, given: Given) -> Family:
    """Return the record with knots from 0, or the first entry, to the last time, at quantiles."""
    code = given.get("cens", np.zeros(len(y)))
    ended, within = code != CODES["right"], code == CODES["interval"]
    if not ended.any():
        raise InputError("family cox needs times that were observed, but all are censored")
    start = float(np.min(given.get("lb", 0.0)))
    end = float(np.where(within, given.get("y2", y), y).max())
    shares = np.linspace(0, 1, df - degree + 1)[1:-1]
    inner = [_rounded(x) for x in np.quantile(y[ended], shares)] if len(shares) else []
    first, last = _rounded(max(start, 0.0)), _rounded(end)
    between = sorted({x for x in inner if first < x < last})
    return of_knots((first, *between, last), degree)


def _rounded(x: float) -> float:
    return float(f"{x:.{DIGITS}g}")


def of_knots(knots: tuple[float, ...], degree: int) -> Family:
    """Return the record of a baseline hazard with these knots."""
    rises = all(a < b for a, b in pairwise((*knots, np.inf)))
    if not (2 <= len(knots) <= MOST_KNOTS and rises and knots[0] >= 0):
        raise InputError(
            f"family cox takes 2 to {MOST_KNOTS} knots that rise from 0 or above, got "
            f"{', '.join(f'{x:g}' for x in knots)}; or write {USAGE}"
        )
    baseline = Baseline(knots, degree)
    K, ratios = baseline.K, ratio_names(baseline.K)
    written = ", ".join(("1", *ratios))
    shape = f"knots, {degree}"
    return Family(
        name=NAME,
        link="log",
        aliases=(),
        parameters=tuple(
            replace(RATIO, name=name, text=f"baseline hazard, coefficient {k} over {k - 1}")
            for k, name in enumerate(ratios, start=2)
        ),
        integer=False,
        support=lambda y: (y > 0) & np.isfinite(y),
        support_text="positive numbers",
        eta_units=partial(_units, baseline),
        mean=lambda eta, values: baseline.mean(eta, values, np.zeros(()), np.array(np.inf)),
        log_lik=partial(_log_lik, baseline),
        rng=lambda eta, values, generator: baseline.time_between(
            eta, values, np.zeros(()), np.array(np.inf), generator
        ),
        density="cox_lpdf({y} | {eta}, {hazard}, {cumulative})",
        stan_rng=f"baseline_time(exponential_rng(1) * exp(-{{eta}}), bhaz, {shape})",
        density_functions=(
            "b_splines.stanfunctions",
            "baseline.stanfunctions",
            "cox.stanfunctions",
        ),
        stan_functions=("baseline_time.stanfunctions",),
        by_row=True,
        variance=baseline.variance,
        text=_text(degree, tuple(f"{x:.15g}" for x in knots)),
        tails=_tails(baseline, shape),
        predicted=Predicted("{link} h(t) / h0(t)", "hazard of {y}"),
        constants=(
            Constant("knots", f"vector[{len(knots)}]", "of the baseline hazard", np.array(knots)),
        ),
        stan_local=(f"vector[{K}] bhaz = baseline([{written}]', {shape});",),
        curves=(
            Curve("hazard", "hazard", "y", f"b_splines(y, {shape})", K, "bhaz"),
            *(
                Curve(name, vector, of, f"b_spline_integrals({of}, {shape})", K, "bhaz")
                for name, vector, of in (
                    ("cumulative", "cumulative", "y"),
                    *((of, f"cumulative_{of}", of) for of in ("y2", "lb", "ub")),
                )
            ),
        ),
        several=RATIO,
        varied=partial(_varied, ratios, shape),
    )


def _varied(ratios: Sequence[str], shape: str, record: Family, varying: Collection[str]) -> Family:
    """Return the record of rows with baseline hazards of their own."""
    each = (
        f"{name}'" if name in varying else f"rep_row_vector({name},{TIED}{{rows}})"
        for name in ratios
    )
    tails, K = record.tails, len(ratios) + 1
    assert tails is not None
    return replace(
        record,
        stan_rng=_of_row(record.stan_rng),
        tails=replace(tails, inside_rng=_of_row(tails.inside_rng)),
        density_functions=(*record.density_functions, "baselines.stanfunctions"),
        stan_local=(f"matrix[{{rows}}, {K}] bhaz = baselines([{', '.join(each)}], {shape});",),
        curves=tuple(curve._replace(by_row=True) for curve in record.curves),
    )


def _of_row(random: str) -> str:
    """Let a time be drawn by the coefficients of row n."""
    return random.replace(", bhaz,", ", bhaz[n]',")


def _units(baseline: Baseline, y: Array, given: Given) -> tuple[float, float]:
    """Return the units of eta: the log of the rate of events over the knots, if it is constant."""
    ended = max((given.get("cens", np.zeros(len(y))) != CODES["right"]).sum(), 1)
    offsets = given.get("offsets", np.zeros(len(y)))
    at_risk = (y - np.maximum(given.get("lb", 0.0), 0.0)) @ np.exp(offsets - offsets.max())
    over = baseline.knots[-1] - baseline.knots[0]
    return float(np.log(ended * over / at_risk) - offsets.max()), 1.0


def _log_hazard(baseline: Baseline, y: Tensor, eta: Tensor, values: Values) -> Tensor:
    """Return the log of the cumulative hazard at y."""
    return baseline.cumulative(y, baseline.coefficients(values)).log() + eta


def _log_lik(baseline: Baseline, y: Tensor, eta: Tensor, values: Values) -> Tensor:
    c = baseline.coefficients(values)
    hazard, cumulative = (each.log() for each in baseline.both(y, c))
    return hazard + eta - (cumulative + eta).clamp(max=LARGEST_EXPONENT).exp()


def _tails(baseline: Baseline, shape: str) -> Tails:
    """Return the tails, those of an exponential time on the scale of the baseline hazard."""

    def log_above(y: Tensor, eta: Tensor, values: Values) -> Tensor:
        log_hazard = _log_hazard(baseline, y, eta, values)
        return -log_hazard.clamp(max=LARGEST_EXPONENT).exp()

    inside = ("log_not_zero.stanfunctions", "weibull_inside.stanfunctions")
    return Tails(
        log_below=lambda y, eta, values: log_not_zero(_log_hazard(baseline, y, eta, values)),
        log_above=log_above,
        least=0.0,
        density="cox_censored_lpdf({y} | {eta}, {hazard}, {cumulative}, {cens}, {y2})",
        files=(*inside, "cox_censored.stanfunctions"),
        inside="weibull_inside({lb}, {ub}, -{eta}, 1)",
        inside_rng=f"baseline_time(weibull_inside_rng({{lb}}, {{ub}}, -{{eta}}, 1), bhaz, {shape})",
        inside_files=inside,
        rng_files=("weibull_inside_rng.stanfunctions",),
        rng=baseline.time_between,
        mean=baseline.mean,
    )
