"""Gaussian processes of two columns, ``gp(x, y)``: a surface, as of places on a map.

Both columns are in the same units, and the covariance depends on the distance in them alone:
``lscale`` is a share of the largest distance of two training rows, as in brms. The functions are
``ringed`` (``gp_basis.py``). They follow length scales down to the least distance of two rows, or
as far as 500 functions do, or k. At the shortest of them, of 150 rows with a noise of 0.3 sdgp,
posterior means are within half of their sd of those of the exact process, and that sd is within a
quarter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.formula.calls import TermCall
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.gp import (
    DEFAULT,
    LONGEST,
    SHORTEST,
    SHORTEST_OF_ALL,
    WITHIN,
    Graded,
    Process,
    inverse_gamma,
)
from semistan.model.terms.gp_basis import LARGEST_SIZE_OF_PLANE, ringed_nodes, ringed_values
from semistan.model.terms.gp_covariances import COVARIANCES_OF_PLANE
from semistan.model.terms.slices import slices
from semistan.model.terms.term import View

if TYPE_CHECKING:
    import pandas as pd

LEAST_SIZE, DEFAULT_SIZE = 20, 500  # functions, at the most
DIRECTIONS = 180  # in which the rows are measured
FINER = 1.02  # steps in which the shortest length scale is looked for


@dataclass(frozen=True, slots=True, eq=False)
class PlaneProcess(Process):
    """The learnt state of one ``gp()`` term of two columns.

    Attributes
    ----------
    second : str
        The second column or its transformation; ``expression`` is the first.
    centre : pair of float
        Middle of the range of each.
    angles : array, shape (m,)
        Of the frequencies. ``graded`` has their sizes, and their areas for steps.
    """

    second: str = ""
    centre: tuple[float, float] = (0.0, 0.0)
    angles: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def call(self) -> TermCall:
        """The term as it stands in the formula, without options."""
        return TermCall("gp", self.expression, others=(self.second,), by=self.by)

    @property
    def whole(self) -> str:
        """What length scales are shares of, in words."""
        return "the largest distance"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        own = {"second": self.second, "centre": list(self.centre), "angles": self.angles.tolist()}
        return Process.to_plain(self) | own  # super() does not know classes with slots

    def advice(self, lscale: Array, text: str) -> str | None:
        """Return what to write in place of ``text``, if the basis does not follow draws."""
        median, (least, most) = float(np.median(lscale)), self.followed
        if least <= median <= most:
            return None
        off = (
            f"has a posterior median of {median:.2g}, and the basis of {text} follows length "
            f"scales from {least:.2g} to {most:.2g} of {self.whole}, so that its surface "
            "is off"
        )
        finest = least * np.sqrt(self.count / LARGEST_SIZE_OF_PLANE)  # functions fill the plane
        if finest * FINER < median < least:
            return f"{off}: write {text[:-1]}, k={LARGEST_SIZE_OF_PLANE})."
        return f"{off}."

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the basis functions (N, k) at each row.

        Raises
        ------
        InputError
            For places beyond the basis, where it means nothing.
        """
        assert self.graded is not None
        x = (_columns(self.call, table) - self.centre) / self.width
        far = np.hypot(*x.T).max(initial=0.0)
        if far > self.margin / 2:
            raise InputError(
                f"{self.text} is known up to {self.width * self.margin / 2:g} from its middle, "
                f"({self.centre[0]:g}, {self.centre[1]:g}), and these rows go up to "
                f"{self.width * far:g}; leave out rows that far away"
            )
        Z = ringed_values(x, self.graded.nodes, self.angles, self.graded.steps)
        if self.by:
            Z = Z * evaluate(self.by, table)[:, None]
        return Block(Z, np.zeros(len(x), dtype=int))

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:
        """Return curves over the first column at low, middle and high values of the second."""
        at, less = ({self.by: 1.0}, {self.by: 0.0}) if self.by else ({}, {})
        of = View(self.text, "", self.expression, self.spread[:1], np.arange(self.count), at, less)
        return slices(of, self.second, table)


def learn_plane(call: TermCall, table: pd.DataFrame, name: str, key: str) -> PlaneProcess:
    """Learn middle, largest distance and prior of the length scale.

    Raises
    ------
    InputError
        If there are fewer than three distinct places, c is given, or k is small.
    """
    from scipy.spatial import KDTree

    if call.option("c", None) is not None:
        raise InputError(f"{call.text} takes k and cov, and no c, which is of gp() of one column")
    if (most := call.option("k", DEFAULT_SIZE)) < LEAST_SIZE:
        raise InputError(
            f"{call.text} needs k = {LEAST_SIZE} functions at the least, got k = {most}"
        )
    x = _columns(call, table)
    distinct = np.unique(x, axis=0)
    if len(distinct) < 3:
        raise InputError(f"{call.text} needs at least three distinct places, got {len(distinct)}")
    angles = np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    width = max(float(np.ptp(distinct @ [np.cos(a), np.sin(a)])) for a in angles)
    apart = float(KDTree(distinct).query(distinct, k=2)[0][:, 1].min()) / width
    least = min(max(SHORTEST, apart), SHORTEST_OF_ALL)
    of = COVARIANCES_OF_PLANE[call.option("cov", DEFAULT.name)]
    while len((nodes := ringed_nodes(of, least, LONGEST, WITHIN))[0]) > most // 2:
        least *= FINER
    if least >= LONGEST:
        raise InputError(
            f"{call.text} with k = {most} functions of covariance {of.name} follows no length "
            "scale up to the largest distance of two rows; a larger k does"
        )
    w, angles, areas = nodes
    centre = (distinct.min(axis=0) + distinct.max(axis=0)) / 2
    margin = 2 * float(np.hypot(*(distinct - centre).T).max()) / width + WITHIN - 1
    prior = inverse_gamma(min(least, SHORTEST_OF_ALL), LONGEST)
    first, second = call.arguments
    return PlaneProcess(
        first, name, 0.0, width, 2 * len(w), margin, prior, key,
        Graded(w, areas, (least, LONGEST)), of, second=second,
        centre=(float(centre[0]), float(centre[1])), angles=angles,
    )  # fmt: skip


def plane_from_plain(process: Process, content: Mapping[str, Any]) -> PlaneProcess:
    """Rebuild a state that went through JSON, given what it shares with one of one column.

    Raises
    ------
    ValueError
        If its figures do not fit.
    """
    angles = np.asarray(content["angles"], dtype=float)
    x, y = (float(value) for value in content["centre"])
    if process.graded is None or angles.shape != process.graded.nodes.shape:
        raise ValueError("the frequencies of a Gaussian process do not fit")
    shared = {item.name: getattr(process, item.name) for item in fields(process)}
    shared["covariance"] = COVARIANCES_OF_PLANE[content["cov"]]
    return PlaneProcess(**shared, second=str(content["second"]), centre=(x, y), angles=angles)


def _columns(call: TermCall, table: pd.DataFrame) -> Array:
    """Return both columns (N, 2)."""
    return np.column_stack([evaluate(text, table) for text in call.arguments])
