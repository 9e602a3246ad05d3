"""A baseline hazard: a B-spline curve of time with positive coefficients.

    h0(t) = c_1 B_1(t) + ... + c_K B_K(t),    c_k = bhaz_k c_{k-1}

B_1, ..., B_K are the B-splines of a degree between the first and the last knot (de Boor, 2001, A
Practical Guide to Splines), over which h0 integrates to 1; before and after, h0 is constant. Times
its integral, a B-spline is an M-spline (Ramsay, 1988, Statistical Science 3). Of degree 0, h0 is a
step function. If each ratio bhaz_k is 1, h0 is constant everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.families.common import LARGEST_EXPONENT

if TYPE_CHECKING:
    from torch import Tensor

    Values = Mapping[str, Tensor]

NODES, PANELS = 8, 4  # of Gauss and Legendre's rule in each panel, panels between two knots
HALVINGS = 8  # of the first panel towards the first knot, where a large hazard ends all times
NEWTON_STEPS = 40  # at most; some five are taken


def ratio_names(K: int) -> tuple[str, ...]:
    """Return the names of the ratios of neighbouring coefficients."""
    return tuple(f"bhaz_{k}" for k in range(2, K + 1))


def b_splines(t: Tensor, knots: tuple[float, ...], degree: int) -> list[Tensor]:
    """Return the B-splines at times t, outside the knots as at the nearest one."""
    ends = degree * (knots[0],), degree * (knots[-1],)
    tau, t = (*ends[0], *knots, *ends[1]), t.clamp(knots[0], knots[-1])
    last = degree + len(knots) - 2  # the cell that holds its right end
    found = [
        ((t >= a) & ((t < b) | (i == last))).to(t.dtype) for i, (a, b) in enumerate(pairwise(tau))
    ]
    for d in range(1, degree + 1):
        for i in range(len(found) - d):
            rise, fall = tau[i + d] - tau[i], tau[i + d + 1] - tau[i + 1]
            up = (t - tau[i]) / rise if rise else 0.0
            down = (tau[i + d + 1] - t) / fall if fall else 0.0
            found[i] = up * found[i] + down * found[i + 1]
    return found[: len(knots) - 1 + degree]


@dataclass(frozen=True)
class Baseline:
    """A baseline hazard, given its knots.

    Attributes
    ----------
    knots : tuple of float
        From the first to the last, in units of the response.
    degree : int
        Of the splines.
    """

    knots: tuple[float, ...]
    degree: int

    @property
    def K(self) -> int:
        """Number of coefficients."""
        return len(self.knots) - 1 + self.degree

    @cached_property
    def areas(self) -> tuple[float, ...]:
        """The integral of each B-spline."""
        p = self.degree
        tau = (*p * (self.knots[0],), *self.knots, *p * (self.knots[-1],))
        return tuple((tau[k + p + 1] - tau[k]) / (p + 1) for k in range(self.K))

    def coefficients(self, values: Values) -> list[Tensor]:
        """Return c_1, ..., c_K from the ratios among values."""
        ratios = [values[name] for name in ratio_names(self.K)]
        if not ratios:
            return [torch.tensor(1 / self.areas[0], dtype=torch.float64)]
        first, *others = torch.broadcast_tensors(*ratios)  # type: ignore[no-untyped-call]
        steps = torch.stack([torch.ones_like(first), first, *others]).log()
        c = steps.cumsum(dim=0).softmax(dim=0)
        areas = _cells(self, c.dtype, c.device).areas
        return list((c / torch.tensordot(areas, c, dims=1)).unbind())

    def hazard(self, t: Tensor, c: list[Tensor]) -> Tensor:
        """Return h0 at times t."""
        return self.both(t, c)[0]

    def cumulative(self, t: Tensor, c: list[Tensor]) -> Tensor:
        """Return the integral of h0 from 0 to times t."""
        t = t.to(c[0].dtype)
        found = _horner(*self._polynomials(t.clamp(max=torch.finfo(t.dtype).max), c)[:2])
        return torch.where(t.isinf(), t, found)

    def both(self, t: Tensor, c: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return h0 at finite times t, and its integral up to there."""
        powers, u, width = self._polynomials(t.to(c[0].dtype), c)
        slopes = [q * each for q, each in enumerate(powers[1:], start=1)]
        return _horner(slopes, u) / width, _horner(powers, u)

    def _polynomials(self, t: Tensor, c: list[Tensor]) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return the integral around times t as polynomials, from the constant term.

        Their argument comes with them, from 0 to 1 in each cell, and its width.
        """
        cells = _cells(self, t.dtype, t.device)
        cell = torch.bucketize(t.detach(), cells.ends, right=True)
        width = cells.widths[cell]
        u = (t - cells.starts[cell]) / width
        if any(each.ndim for each in c):
            return [_curve(power[cell], c) for power in cells.powers.unbind(dim=1)], u, width
        # One curve for all times: its polynomials are those of a few cells.
        return list((cells.powers @ torch.stack(c))[cell].unbind(dim=-1)), u, width

    @cached_property
    def widths(self) -> Array:
        """The width of each cell; that behind the last knot has none, and 1 for it."""
        return np.array([self.knots[0] or 1.0, *np.diff(self.knots), 1.0])

    @cached_property
    def table(self) -> Array:
        """The integral of each B-spline in each cell, as a polynomial, (cells, powers, K)."""
        p, first = self.degree, self.knots[0]
        u = np.arange(p + 2) / (p + 1)
        starts = np.array(self.knots[:-1])[:, None]
        inner = self._integrals(torch.tensor(starts + np.diff(self.knots)[:, None] * u)).numpy()
        table = np.zeros((len(self.knots) + 1, p + 2, self.K))
        table[1:-1] = np.linalg.inv(u[:, None] ** np.arange(p + 2)) @ inner
        table[-1, 0] = self.areas
        table[1:, 0, 0] += first
        table[0, 1, 0] = self.widths[0]
        table[-1, 1, -1] = 1.0
        return table

    def _integrals(self, t: Tensor) -> Tensor:
        """Return the integrals of the B-splines from the first knot to times between the knots."""
        higher = torch.stack(b_splines(t, self.knots, self.degree + 1)[1:], dim=-1)
        return higher.flip(-1).cumsum(-1).flip(-1) * torch.tensor(self.areas)

    def time(self, cumulative: Array, values: Mapping[str, Array]) -> Array:
        """Return the times to which the integral of h0 has these values."""
        c = self._numbers(values)
        at = [self._at(np.array(knot), c) for knot in self.knots]
        cell = np.zeros_like(cumulative)
        for each in at[1:-1]:
            cell = cell + (cumulative >= each)
        start, end, first, width = (
            _picked(cell, each) for each in (at[:-1], at[1:], self.knots[:-1], np.diff(self.knots))
        )
        numbers = [each.numpy() for each in c]
        polynomial = [
            _picked(cell, [sum(w * x for w, x in zip(row, numbers, strict=True)) for row in power])
            for power in self.table[1:-1, 1:].transpose(1, 0, 2)
        ]
        goal = np.clip(cumulative, start, end) - start
        low, high = np.zeros_like(goal), np.ones_like(goal)
        u = goal / (end - start)
        for _ in range(NEWTON_STEPS):
            gap = u * _horner(polynomial, u) - goal
            low, high = np.where(gap < 0, u, low), np.where(gap < 0, high, u)
            slopes = [q * each for q, each in enumerate(polynomial, start=1)]
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = u - gap / _horner(slopes, u)
            inside = (moved > low) & (moved < high)
            before, u = u, np.where(inside, moved, (low + high) / 2)
            if np.abs(u - before).max(initial=0) < 1e-15:
                break
        early = np.minimum(cumulative, at[0]) / c[0].numpy() - self.knots[0]
        late = np.maximum(cumulative - at[-1], 0) / c[-1].numpy()
        return np.asarray(first + width * u + np.where(cumulative < at[0], early, late))

    def time_between(
        self,
        eta: Array,
        values: Mapping[str, Array],
        lb: Array,
        ub: Array,
        generator: np.random.Generator,
    ) -> Array:
        """Draw times above lb and at most at ub whose hazard is exp(eta) h0(t)."""
        c = self._numbers(values)
        rate = _rate(eta)
        start, end = (rate * self._at(np.maximum(x, 0.0), c) for x in (lb, ub))
        shape = np.broadcast_shapes(np.shape(eta), np.shape(start), np.shape(end))
        u = generator.random(shape)
        return self.time((start - np.log1p(u * np.expm1(start - end))) / rate, values)

    def _numbers(self, values: Mapping[str, Array]) -> list[Tensor]:
        """Return the coefficients from arrays."""
        return self.coefficients(
            {name: torch.tensor(x, dtype=torch.float64) for name, x in values.items()}
        )

    def _at(self, t: Array, c: list[Tensor]) -> Array:
        """Return the integral of h0 up to times."""
        return np.asarray(self.cumulative(torch.tensor(t, dtype=torch.float64), c).numpy())

    def mean(self, eta: Array, values: Mapping[str, Array], lb: Array, ub: Array) -> Array:
        """Return the mean of times above lb and at most at ub whose hazard is exp(eta) h0(t).

        It is lb and the integral of what the survival function is above its value at ub, over what
        it falls by.
        """
        c, rate = self._numbers(values), _rate(eta)
        lb, last = np.maximum(lb, 0.0), self.knots[-1]
        start, end = self._at(lb, c), self._at(ub, c)

        def above(at: Array) -> Array:
            return np.asarray(np.exp(-rate * (at - start)) * -np.expm1(-rate * (end - at)))

        total = self._integral(lambda t: above(self._at(t, c)), lb, ub)
        after, r = np.maximum(lb, last), rate * c[-1].numpy()
        wide = np.where(np.isinf(ub), 0.0, np.maximum(ub - after, 0.0))
        share = np.where(np.isinf(ub), 1.0, -np.expm1(-r * wide)) / r - wide * np.exp(-r * wide)
        total = total + share * np.exp(-rate * (self._at(after, c) - start))
        falls = -np.expm1(-rate * (end - start))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = lb + np.where(falls > 0, total / falls, (np.minimum(ub, last) - lb) / 2)
        return np.asarray(np.clip(found, lb, ub))

    def variance(self, eta: Array, values: Mapping[str, Array]) -> Array:
        """Return the variance of times whose hazard is exp(eta) h0(t)."""
        c, rate = self._numbers(values), _rate(eta)
        last, never = np.array(self.knots[-1]), np.array(np.inf)
        r = rate * c[-1].numpy()

        def lives(t: Array) -> Array:
            return np.asarray(np.exp(-rate * self._at(t, c)))

        square = self._integral(lambda t: 2 * t * lives(t), np.zeros(()), never)
        square = square + 2 * (last + 1 / r) / r * lives(last)
        return np.asarray(square - self.mean(eta, values, np.zeros(()), never) ** 2)

    def _integral(self, of: Callable[[Array], Array], lb: Array, ub: Array) -> Array:
        """Integrate over times from lb to ub up to the last knot, by Gauss and Legendre's rule."""
        x, weight = np.polynomial.legendre.leggauss(NODES)
        total: Array = np.zeros(())
        for start, end in pairwise(self._panels()):
            a, b = np.clip(start, lb, ub), np.clip(end, lb, ub)
            for node, w in zip((x + 1) / 2, weight / 2, strict=True):
                total = np.asarray(total + w * (b - a) * of(a + (b - a) * node))
        return total

    def _panels(self) -> list[float]:
        """Return where the panels of a mean begin and end."""
        first, second = self.knots[0], self.knots[1]
        shares = 0.5 ** np.arange(1, HALVINGS + 1)
        halved = [*(first * shares), *(first + (second - first) * shares)]
        cells = [np.linspace(a, b, PANELS + 1)[1:] for a, b in pairwise(self.knots)]
        return sorted({0.0, first, *map(float, halved), *np.concatenate(cells).tolist()})


class _Cells(NamedTuple):
    """The cells between the knots, before the first and behind the last, as tensors."""

    ends: Tensor
    starts: Tensor
    widths: Tensor
    powers: Tensor
    areas: Tensor


@lru_cache(maxsize=32)  # asked for in every step of training
def _cells(baseline: Baseline, dtype: torch.dtype, device: torch.device) -> _Cells:
    knots, table = baseline.knots, baseline.table
    every = (knots, (0.0, *knots), baseline.widths, table, baseline.areas)
    return _Cells(*(torch.as_tensor(each, dtype=dtype, device=device) for each in every))


def _rate(eta: Array) -> Array:
    return np.asarray(np.exp(np.clip(eta, -LARGEST_EXPONENT, LARGEST_EXPONENT)))


def _curve(columns: Tensor, c: list[Tensor]) -> Tensor:
    """Return columns (..., K) times coefficients of each row or draw."""
    total = columns[..., 0] * c[0]
    for k, each in enumerate(c[1:], start=1):
        total = total + columns[..., k] * each
    return total


def _picked(cell: Array, of_cells: Iterable[Any]) -> Array:
    """Return for each element the value of its cell."""
    found = np.zeros_like(cell)
    for j, value in enumerate(of_cells):
        found = np.where(cell == j, value, found)
    return found


def _horner(polynomial: list[Any], u: Any) -> Any:
    """Return a polynomial at u, from its constant term."""
    total = polynomial[-1]
    for each in polynomial[-2::-1]:
        total = total * u + each
    return total
