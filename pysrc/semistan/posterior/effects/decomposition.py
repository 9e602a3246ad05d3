"""What the networks of a predictor found: main effects, interactions of pairs, and the rest.

For every posterior draw, the networks' sum f is decomposed over the rows as ``anova.py`` says. An
input is a column of the table, whatever terms ``nn()`` makes of it; a term of several columns, as
``u / v``, is an input by itself. Only pairs that stand in one network can interact.

The number of functions grows with the rows, to a quarter of these; where rows are few, curves of
single inputs come first, with up to a half. Each input has as many as predict the posterior mean
best in rows left out, so that its curve does not follow what interactions do at the rows by chance.
Where there are too many
pairs, those are kept whose interaction, of polynomials of degree 2, explains most of what no sum of
functions of single inputs follows; the others belong to the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.design import apply_design
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import Network, parse_formula
from semistan.model.names import MU
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import evenly_spaced
from semistan.posterior.effects.anova import Analysis, Space, additive, analyse, left_out_errors
from semistan.posterior.effects.columns import Predictors, predictors_of, sample_positions
from semistan.posterior.effects.estimates import estimates
from semistan.posterior.effects.input_basis import CUBIC, SIZES, Basis, level_basis, spline_basis
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import check_dpar
from semistan.posterior.weighting import row_weights
from semistan.posterior.written import table_text
from semistan.words import part_of

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWS, MOST_ROWS = 1000, 10_000
MOST_FUNCTIONS = 1000
SHARE_OF_SINGLES, SHARE_OF_ALL, MOST_OF_ALL = 0.1, 0.25, 0.5  # functions for each row
SCREENING_DRAWS, SCREENING_ROWS = 50, 2000
FEWEST_ROWS = 10
SWEEPS = 2  # through the inputs, in the choice of their numbers of functions
REST, SINGLES, PAIRS, BEYOND = "rest", "main effects", "interactions of pairs", "not additive"


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One input of the networks: its name, its values in each row, and its levels if it has some.

    ``values`` (N,) are numbers, or places among the levels.
    """

    name: str
    values: Array
    levels: tuple[Any, ...] = ()

    def basis(self, weights: Array, size: int) -> Basis:
        """Return functions of the input, about ``size``."""
        if self.levels:
            return level_basis(self.values.astype(int), weights, size)
        return spline_basis(self.values, weights, size)


@dataclass(frozen=True, slots=True, eq=False)
class Decomposition:
    """Shares of the variance of a predictor's networks.

    Attributes
    ----------
    predictor : str
        ``mu``, or a parameter as ``sigma``.
    inputs : tuple of Input
        What the networks take.
    analysis : Analysis
        The components in each draw, those of single inputs first.
    weights : array, shape (N,)
        Of the rows, which sum to 1.
    rows, draws : tuple of int
        How many were used, of how many there are.
    pairs : tuple of int
        How many pairs of inputs were told apart, of how many stand in one network.
    most : int
        The most functions that the rows allow of an input.
    """

    predictor: str
    inputs: tuple[Input, ...]
    analysis: Analysis
    weights: Array
    rows: tuple[int, int]
    draws: tuple[int, int]
    pairs: tuple[int, int]
    most: int

    def __repr__(self) -> str:
        return f"{table_text(self.table())}\n\n{table_text(self.totals())}"

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the inputs, then of pairs, as ``u:v``."""
        names = [each.name for each in self.inputs]
        return (*names, *(f"{names[j]}:{names[k]}" for j, k in self.space.pairs))

    @property
    def space(self) -> Space:
        """The functions that the components are made of."""
        return self.analysis.projection.space

    @property
    def shares(self) -> Array:
        """Draws (S, components + 1) of the components' shares, and last of the rest's."""
        return np.vstack([self.analysis.shares, self.analysis.rest]).T

    @property
    def order(self) -> list[int]:
        """The components, inputs first, the largest mean share first."""
        mean = self.analysis.shares.mean(axis=1)
        return sorted(range(len(mean)), key=lambda i: (i >= len(self.inputs), -mean[i]))

    def table(self, interval: float = 0.95) -> pd.DataFrame:
        """Return a line for each component and the rest, inputs first, the largest share first.

        ``SD`` is the component's standard deviation over the rows, in units of the predictor.

        Raises
        ------
        InputError
            If the interval's probability is not between 0 and 1.
        """
        found = _lines([*self.components, REST], self.shares, interval)
        found["SD"] = [*self.analysis.deviations.mean(axis=1), np.nan]
        return found.iloc[[*self.order, len(found) - 1]].reset_index(drop=True)

    def totals(self, interval: float = 0.95) -> pd.DataFrame:
        """Return lines of all main effects, all pairs, the rest, and what is not additive.

        The last is the share of the variance that the best sum of functions of single inputs
        leaves; with independent inputs it is that of the pairs and the rest.

        Raises
        ------
        InputError
            If the interval's probability is not between 0 and 1.
        """
        Q, found = len(self.inputs), self.analysis
        sums = [found.shares[:Q].sum(axis=0), found.shares[Q:].sum(axis=0)]
        values = np.stack([*sums, found.rest, found.beyond], axis=1)
        return _lines([SINGLES, PAIRS, REST, BEYOND], values, interval)

    def additive(self, below: float = 0.05) -> float:
        """Return the probability that less than a share of the variance is not additive.

        Raises
        ------
        InputError
            If the share is not between 0 and 1.
        """
        if not 0 < below < 1:
            raise InputError(f"below is a share of the variance, between 0 and 1, got {below:g}")
        return float(np.mean(self.analysis.beyond < below))

    @property
    def basis(self) -> str:
        """On what it rests, in words."""
        used = ((self.draws, "draw"), (self.rows, "row"), (self.pairs, "pair"))
        parts = ", ".join(part_of(*numbers, noun) for numbers, noun in used)
        text = f"From {parts} of inputs, by {self.space.size} functions."
        if self._is_limited:
            shape = "straight lines" if self.most == 1 else "parabolas"
            text += (
                f" So few rows can tell only {shape} apart as main effects: what is curved "
                "otherwise counts as not additive."
            )
        return text

    @property
    def _is_limited(self) -> bool:
        """Whether a number with more values than functions has no cubic splines."""
        numbers = [each.values for each in self.inputs if not each.levels]
        return self.most < CUBIC and any(len(np.unique(x)) > self.most + 1 for x in numbers)


def decompose(
    posterior: Posterior,
    table: pd.DataFrame,
    *,
    dpar: str | None = None,
    rows: int | None = None,
    generator: np.random.Generator,
) -> Decomposition:
    """Decompose a predictor's networks.

    Parameters
    ----------
    posterior : Posterior
        The fitted model.
    table : pandas.DataFrame
        The rows, which count by the formula's weights.
    dpar : str, optional
        A parameter, as ``sigma``, whose predictor has networks; the mean's by default.
    rows : int, optional
        Use this many rows, drawn from the table; by default all up to ``MOST_ROWS``.
    generator : numpy.random.Generator
        Draws rows.

    Raises
    ------
    InputError
        If the predictor has no network, a network takes images or the like, or rows are too few.
    """
    name = _predictor(posterior, dpar)
    networks = [each for each in parse_formula(posterior.design.formula).networks
                if name in each.of]  # fmt: skip
    _check(networks, name)
    number = min(MOST_ROWS, len(table)) if rows is None else rows
    sample = table.iloc[sample_positions(len(table), number, generator)]
    weights = row_weights(posterior.config, sample)
    weights = weights / weights.sum()
    thinned = posterior.thin(MOST_DRAWS) if posterior.size > MOST_DRAWS else posterior
    applied = apply_design(posterior.design, sample, response=False)
    F = np.ascontiguousarray(thinned.network(applied, name).T)
    inputs, together = _inputs(networks, predictors_of(posterior, sample))
    _check_rows(len(sample), len(inputs))
    space, most = chosen_space(inputs, together, weights, F)
    found = _whole(analyse(space, [each.values for each in inputs], weights, F), len(together))
    return Decomposition(
        name, tuple(inputs), found, weights, (len(sample), len(table)),
        (thinned.size, posterior.size), (len(space.pairs), len(together)), most,
    )  # fmt: skip


def _predictor(posterior: Posterior, dpar: str | None) -> str:
    if dpar is None:
        return MU
    check_dpar(posterior.family, posterior.design, dpar)
    return MU if dpar == posterior.design.mean_name else dpar


def _check(networks: Sequence[Network], name: str) -> None:
    if not networks:
        of = "the mean" if name == MU else f"'{name}'"
        raise InputError(f"the predictor of {of} has no network that could be decomposed")
    for network in networks:
        if network.call:
            raise InputError(
                f"nn({', '.join(network.arguments)}) takes a column of {network.call}s, which has "
                "no parts to be told apart; semistan importance says how much the predictions owe "
                "to it"
            )


def _check_rows(rows: int, inputs: int) -> None:
    needed = max(FEWEST_ROWS, 2 * inputs)
    if rows < needed:
        raise InputError(
            f"a decomposition by {inputs} inputs needs at least {needed} rows, got {rows}: its "
            "components are averages over rows"
        )


def _inputs(
    networks: Sequence[Network], predictors: Predictors
) -> tuple[list[Input], list[tuple[int, int]]]:
    """Return the inputs, and the pairs of them that stand in one network."""
    found: dict[str, Input] = {}
    together: dict[tuple[int, int], None] = {}
    for network in networks:
        names = dict.fromkeys(_name_of(term) for term in network.arguments)
        for name, term in zip(map(_name_of, network.arguments), network.arguments, strict=True):
            if name not in found:
                found[name] = _input(name, term, predictors)
        order = sorted(list(found).index(name) for name in names)
        together |= dict.fromkeys(combinations(order, 2))
    return list(found.values()), list(together)


def _name_of(term: str) -> str:
    columns = variables(term)
    return columns[0] if len(columns) == 1 else term


def _input(name: str, term: str, predictors: Predictors) -> Input:
    frame = predictors.frame
    if name in predictors.levels:
        levels = predictors.levels[name]
        places = {str(level): i for i, level in enumerate(levels)}
        codes = [places[str(value)] for value in frame[name]]
        return Input(name, np.array(codes, dtype=float), levels)
    if name not in frame.columns:
        return Input(name, evaluate(term, frame))
    column = frame[name]
    if column.dtype.kind == "M":
        return Input(name, column.astype("int64").to_numpy(dtype=float))
    return Input(name, column.to_numpy(dtype=float))


def chosen_space(
    inputs: Sequence[Input], together: Sequence[tuple[int, int]], weights: Array, F: Array
) -> tuple[Space, int]:
    """Choose functions, and pairs if not all can be told apart; return the most of an input too."""
    N, Q = len(F), len(inputs)
    bases = {size: tuple(each.basis(weights, size) for each in inputs) for size in SIZES}
    few = min(SHARE_OF_SINGLES * N, MOST_FUNCTIONS / 2)
    fitting = [m for m in SIZES if sum(basis.size for basis in bases[m]) <= few]
    curved = [m for m in SIZES if m <= 3 and m * Q <= MOST_OF_ALL * N]  # before any pairs
    most = max([*fitting[:1], *curved[:1], 1])
    singles = _best(bases, [m for m in SIZES if m <= most], inputs, weights, F.mean(axis=1))
    left = min(SHARE_OF_ALL * N, MOST_FUNCTIONS) - 1 - sum(basis.size for basis in singles)
    for m in (6, 4, 3, 2):
        space = Space(singles, bases[m], tuple(together))
        if space.size - additive(space).size <= left:
            return space, most
    order = _screened(space, inputs, weights, F) if left > 0 else []
    sizes = np.cumsum([bases[2][j].size * bases[2][k].size for j, k in order])
    chosen = tuple(order[: int(np.searchsorted(sizes, left, "right"))])
    return Space(singles, bases[2], chosen), most


def _best(
    bases: Mapping[int, tuple[Basis, ...]],
    sizes: Sequence[int],
    inputs: Sequence[Input],
    weights: Array,
    f: Array,
) -> tuple[Basis, ...]:
    """Choose each input's functions by how well they all predict f (N,) in rows left out."""
    tried = [list({own[j].size: own[j] for own in map(bases.__getitem__, sizes)}.values())
             for j in range(len(inputs))]  # fmt: skip
    columns = {basis: basis.columns(each.values)
               for each, own in zip(inputs, tried, strict=True) for basis in own}  # fmt: skip
    singles, constant = [own[0] for own in tried], np.ones((len(f), 1))
    for _ in range(SWEEPS):
        for j, own in enumerate(tried):
            others = [columns[basis] for i, basis in enumerate(singles) if i != j]
            errors = left_out_errors(
                np.hstack([constant, *others]), [columns[basis] for basis in own], weights, f
            )
            singles[j] = own[int(np.argmin(errors))]
    return tuple(singles)


def _screened(
    space: Space, inputs: Sequence[Input], weights: Array, F: Array
) -> list[tuple[int, int]]:
    """Return the pairs, the one first that explains most of what is not additive by itself."""
    at = evenly_spaced(len(F), SCREENING_ROWS)
    values = [each.values[at] for each in inputs]
    some = F[at, :: max(1, F.shape[1] // SCREENING_DRAWS)]
    root = np.sqrt(weights[at])[:, None]
    Z = root * additive(space).columns(values)
    residual = root * some - Z @ np.linalg.lstsq(Z, root * some, rcond=None)[0]
    scores = []
    for j, k in space.pairs:
        two = Space((space.singles[j], space.singles[k]), (space.factors[j], space.factors[k]),
                    ((0, 1),))  # fmt: skip
        own = root * two.columns([values[j], values[k]])
        q, _ = np.linalg.qr(own)
        scores.append(np.square(q.T @ residual).sum())
    return [space.pairs[i] for i in np.argsort(-np.array(scores), kind="stable")]


def _whole(found: Analysis, pairs: int) -> Analysis:
    """Give the rest, which is what splines miss, to the component that has all inputs."""
    inputs = len(found.projection.space.singles)
    if (inputs, pairs, len(found.shares)) not in ((1, 0, 1), (2, 1, 3)):
        return found
    shares = found.shares.copy()
    shares[-1] += found.rest
    beyond = found.beyond if pairs else np.zeros_like(found.beyond)
    return replace(found, shares=shares, rest=np.zeros_like(found.rest), beyond=beyond)


def _lines(names: Sequence[str], values: Array, interval: float) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({"component": list(names)} | estimates(values, interval))
