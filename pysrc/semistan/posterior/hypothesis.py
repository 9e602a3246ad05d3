"""Hypotheses about parameters: ``b_x > 0``, ``b_x / b_z > 1``, ``b_x = 0``.

    one-sided    Evid.Ratio = P(H | y) / P(not H | y)
    two-sided    Evid.Ratio = p(d = 0 | y) / p(d = 0),   d = left side minus right side

The latter is the ratio of Savage and Dickey (Dickey, 1971, Annals of Mathematical Statistics 42),
the Bayes factor of d = 0 against a d that is free, where the prior of all else does not depend on
d. Both densities at 0 are kernel estimates from draws. Names and columns are those of brms's
``hypothesis``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.left_out import left_out
from semistan.model.table.rows import Rows
from semistan.posterior.draws import Draws
from semistan.posterior.expression import evaluate_expression
from semistan.posterior.mcse import mcse_mean
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

PRIOR_DRAWS = 10_000
FEWEST_NEAR = 10  # draws within a bandwidth of 0, below which a density there is no estimate

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One hypothesis: a left side, a right side, and the relation between them."""

    text: str
    left: str
    relation: str
    right: str

    @property
    def two_sided(self) -> bool:
        """Whether it says that both sides are equal."""
        return self.relation == "="


@dataclass(frozen=True, slots=True, eq=False)
class Hypotheses:
    """What a posterior says of hypotheses: a line for each, and sentences on how to read them."""

    lines: pd.DataFrame
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join([table_text(self.lines), "", *self.notes]).rstrip()

    def table(self) -> pd.DataFrame:
        """Return the lines."""
        return self.lines


def parse_hypothesis(text: str) -> Hypothesis:
    """Read ``left > right``, ``left < right`` or ``left = right``.

    Raises
    ------
    InputError
        If there is not one relation with something on both sides.
    """
    parts = re.split(r"(==|[<>=])", text)
    if len(parts) != 3 or not parts[0].strip() or not parts[2].strip():
        raise InputError(
            f"a hypothesis has one of >, < and = between two expressions, as 'b_x > 0', got "
            f"'{text}'"
        )
    left, relation, right = (part.strip() for part in parts)
    return Hypothesis(f"{left} {relation[0]} {right}", left, relation[0], right)


def hypotheses(
    posterior: Posterior,
    rows: Rows,
    texts: Sequence[str],
    *,
    interval: float = 0.95,
    rope: Range | None = None,
    generator: np.random.Generator,
) -> Hypotheses:
    """Judge hypotheses about what the coefficient table has.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows, over which the prior's b_Intercept is a mean.
    texts : sequence of str
        The hypotheses.
    interval : float
        Probability p of the interval of a two-sided hypothesis; as in brms, that of a one-sided one
        has 2 p - 1, so that its outer bound is that of a one-sided interval of probability p.
    rope : tuple of float, optional
        A range of d that is as good as 0.
    generator : numpy.random.Generator
        Draws from the prior, for two-sided hypotheses.

    Returns
    -------
    Hypotheses
        ``Hypothesis``, ``Estimate``, ``Est.Error``, ``CI.Lower`` and ``CI.Upper`` of d,
        ``Evid.Ratio``, ``Post.Prob`` (of a two-sided hypothesis where both sides are equally
        probable a priori), ``P(d > 0)`` and its Monte Carlo standard error ``MCSE``, and
        ``P(ROPE)``, the probability that d is in the range.

    Raises
    ------
    InputError
        If a hypothesis cannot be read, or a number is out of its range.
    """
    import pandas as pd

    parsed = [parse_hypothesis(text) for text in texts]
    _check(parsed, interval, rope)
    notes = _Notes(posterior)
    prior = _prior_of(posterior, rows, generator)
    lines = [_line(posterior, item, interval, rope, prior, notes) for item in parsed]
    return Hypotheses(pd.DataFrame(lines), notes.all)


def _check(parsed: Sequence[Hypothesis], interval: float, rope: Range | None) -> None:
    check_interval(interval)
    if not parsed:
        raise InputError("give at least one hypothesis, as 'b_x > 0'")
    if interval <= 0.5 and any(not item.two_sided for item in parsed):
        raise InputError(
            f"--interval of a one-sided hypothesis is above 0.5, got {interval:g}: its bounds "
            "enclose 2 * interval - 1"
        )
    if rope is not None and not rope[0] < rope[1]:
        raise InputError(f"--rope takes LOW,HIGH with LOW below HIGH, got {rope[0]:g},{rope[1]:g}")


class _Notes:
    """Sentences on how to read the table, each once."""

    def __init__(self, posterior: Posterior) -> None:
        self.unknown: list[str] = []
        kept = [f"Not the posterior: {text}." for text in posterior.reservations]
        self.kept = [*kept, left_out(posterior.members[0].bundle, len(posterior.members))]

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, [*self.unknown, *self.kept])))


def _line(
    posterior: Posterior,
    item: Hypothesis,
    interval: float,
    rope: Range | None,
    prior: Callable[[Hypothesis], Array | str],
    notes: _Notes,
) -> dict[str, object]:
    """Return one line of the table."""
    several = [_difference(item, member.draws) for member in posterior.counted]
    d = np.concatenate([values.ravel() for values in several])
    width = interval if item.two_sided else 2 * interval - 1
    lower, upper = np.quantile(d, ((1 - width) / 2, (1 + width) / 2))
    above = float((d > 0).mean())
    ratio, probability = _evidence(item, d, prior, notes)
    line: dict[str, object] = {
        "Hypothesis": item.text, "Estimate": float(d.mean()), "Est.Error": float(d.std(ddof=1)),
        "CI.Lower": float(lower), "CI.Upper": float(upper), "Evid.Ratio": ratio,
        "Post.Prob": probability, "P(d > 0)": above,
        "MCSE": _mcse(several),
    }  # fmt: skip
    if rope is not None:
        line["P(ROPE)"] = float(((rope[0] <= d) & (d <= rope[1])).mean())
    return line


def _difference(item: Hypothesis, draws: Draws) -> Array:
    """Return left minus right (C, S)."""
    return evaluate_expression(f"({item.left}) - ({item.right})", draws.interpreted)


def _mcse(several: Sequence[Array]) -> float:
    """Return the error of P(d > 0); members in which it is certain add nothing to it."""
    above = [(values > 0).astype(float) for values in several]
    total = sum(values.size for values in above)
    errors = [values.size / total * mcse_mean([values]) for values in above if np.ptp(values) > 0]
    return float(np.sqrt(np.sum(np.square(errors)))) if errors else float("nan")


def _evidence(
    item: Hypothesis, d: Array, prior: Callable[[Hypothesis], Array | str], notes: _Notes
) -> tuple[float, float]:
    """Return the evidence ratio and the hypothesis's probability, NaN if they are not known."""
    if not item.two_sided:
        share = float((d > 0).mean() if item.relation == ">" else (d < 0).mean())
        return (share / (1 - share) if share < 1 else np.inf), share
    drawn = prior(item)
    if isinstance(drawn, str):
        notes.unknown.append(f"No evidence ratio of '{item.text}': {drawn}.")
        return np.nan, np.nan
    densities = density_at_0(drawn), density_at_0(d)
    if np.isnan(densities).any():
        whose = "prior" if np.isnan(densities[0]) else "posterior"
        notes.unknown.append(
            f"No evidence ratio of '{item.text}': fewer than {FEWEST_NEAR} {whose} draws lie "
            "near 0, so that its density there is not known."
        )
        return np.nan, np.nan
    ratio = densities[1] / densities[0]
    return ratio, ratio / (1 + ratio)


def density_at_0(values: Array) -> float:
    """Estimate a density at 0 from draws (S,) with a normal kernel; NaN if too few lie near.

    The bandwidth is Silverman's, 0.9 min(sd, IQR / 1.34) S^(-1/5), which heavy tails leave narrow.
    """
    lower, upper = np.quantile(values, (0.25, 0.75))
    width = 0.9 * min(values.std(ddof=1), (upper - lower) / 1.34) * len(values) ** -0.2
    if not width > 0 or (np.abs(values) < 2 * width).sum() < FEWEST_NEAR:
        return float("nan")
    kernels = np.exp(-0.5 * np.square(values / width))
    return float(kernels.mean() / (width * np.sqrt(2 * np.pi)))


def _prior_of(
    posterior: Posterior, rows: Rows, generator: np.random.Generator
) -> Callable[[Hypothesis], Array | str]:
    """Return what draws d from the prior, once for all hypotheses, or says why it cannot."""
    drawn: list[Draws] = []

    def difference(item: Hypothesis) -> Array | str:
        if posterior.reservations:
            return f"the draws are not those of the posterior ({'; '.join(posterior.reservations)})"
        if not drawn:
            drawn.extend(_prior_draws(posterior, rows, generator))
        return np.concatenate([_difference(item, draws).ravel() for draws in drawn])

    return difference


def _prior_draws(posterior: Posterior, rows: Rows, generator: np.random.Generator) -> list[Draws]:
    """Draw from the prior in each subspace, in proportion to its weight."""
    sizes = [
        max(1, round(PRIOR_DRAWS * member.draws.size / posterior.size))
        for member in posterior.counted
    ]
    return [
        prior_draws(member.bundle, rows, (1, size), generator)
        for member, size in zip(posterior.counted, sizes, strict=True)
    ]
