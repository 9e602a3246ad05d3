"""Smooths one by one: their curves, standard deviations and effective degrees of freedom.

A curve is a smooth with its straight part: all structured columns that consist of its own columns
alone, and the penalised ones. It is 0 on average over the training rows (of its level), but for a
smooth by a number, which is the change of the predictor for one unit. Effects of levels and of the
categories of ``mo()`` are shown at these.

The effective degrees of freedom are those of a penalised fit (Wood, 2017, section 6.1.2). With A
the predictor's intercept, structured and penalised columns, W the curvature of the negative
log-likelihood in the predictor, and P the prior precisions of the penalised coefficients, 0 of the
others,

    F = (A' W A + P)^-1 A' W A,

and a smooth has the sum of its diagonal elements: of its straight part and its coefficients.
Standard deviations, the predictor and the parameters are at their posterior means, and the
network is taken as known. Where a smooth and the network share a column, what either of them
takes is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.ggn import curvature
from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.formula.expression import variables
from semistan.model.names import MU
from semistan.model.predictor import Predictor
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Rows
from semistan.model.terms.penalised import Penalised
from semistan.model.terms.term import Shown, TensorBlock, View
from semistan.posterior.effects.estimates import estimates
from semistan.posterior.posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

RESOLUTION = 100


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One curve of a smooth.

    Attributes
    ----------
    predictor : str
        Whose smooth it is.
    view : View
        Which curve it is.
    x : array, shape (G,)
        Values of what it is a function of, over the range of its training rows; numbers of the
        view's places, if it has some.
    values : array, shape (S, G)
        Draws of the curve, in units of the predictor.
    at_rows : array
        What the training rows (of its level) have of x.
    """

    predictor: str
    view: View
    x: Array
    values: Array
    at_rows: Array = field(default_factory=lambda: np.zeros(0))


def smooth_curves(posterior: Posterior, rows: Rows, resolution: int = RESOLUTION) -> list[Curve]:
    """Return the curves of all smooths of one column.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows, with their table.
    resolution : int
        Number of places G.

    Raises
    ------
    InputError
        If the rows come without their table.
    """
    return [
        _curve(posterior, rows, item, number, view, resolution)
        for item, number, view in _views(posterior, rows)
        if len(variables(view.expression)) == 1
    ]


def smooths_table(posterior: Posterior, rows: Rows, interval: float = 0.95) -> pd.DataFrame:
    """Return a line for each standard deviation of each smooth, with the degrees of freedom.

    Raises
    ------
    InputError
        If the rows come without their table, or the interval is no probability.
    """
    import pandas as pd

    spread = {name: x.reshape(-1) for name, x in posterior.interpreted.items()}
    lines, seen = [], set()
    found = [found for found in _views(posterior, rows) if found[-1].spread]
    matrices = {item.name: _influence(posterior, rows, item) for item, _, _ in found}
    for item, number, view in found:
        own = _own_columns(item, view, rows)
        edf = matrices[item.name][[*(1 + own), *_elements(item, number, view)]].sum()
        for name in view.spread:
            if name in seen:  # that of a surface, which has several curves
                continue
            seen.add(name)
            label = {"predictor": item.name, "smooth": view.text, "edf": float(edf), "sd": name}
            label["level"] = view.level if len(view.spread) == 1 else ""
            values = estimates(spread[name][:, None], interval)
            lines.append(label | {column: float(x[0]) for column, x in values.items()})
    table = pd.DataFrame(lines)
    if not lines:
        return table
    front = ["smooth", *(["level"] if table["level"].any() else []), "edf", "sd"]
    front = ["predictor", *front] if len(matrices) > 1 else front
    return table[[*front, *(name for name in table if name not in (*front, "predictor", "level"))]]


def _views(posterior: Posterior, rows: Rows) -> Iterator[tuple[Predictor, int, View]]:
    """Yield the views of all smooths with their predictor and the term's place there."""
    if rows.frame is None:
        raise InputError("smooths need the training table, but the rows came without it")
    for item in posterior.design.predictors:
        for number, term in enumerate(item.terms):
            if isinstance(term, Shown):
                for view in term.views(rows.frame):
                    yield item, number, view


def _curve(
    posterior: Posterior, rows: Rows, item: Predictor, number: int, view: View, resolution: int
) -> Curve:
    (column,) = variables(view.expression)
    of_rows = _of_level(rows, view)
    grid = _grid(view, of_rows[column], resolution)
    frame = of_rows.iloc[np.zeros(len(grid), dtype=int)].assign(**{**view.at, column: grid})
    values = _contribution(posterior, rows, item, number, view, frame)
    if view.less:
        values -= _contribution(posterior, rows, item, number, view, frame.assign(**view.less))
    else:
        at_rows = of_rows.assign(**view.at)
        level = _contribution(posterior, rows, item, number, view, at_rows)
        values -= level.mean(axis=1, keepdims=True)
    if view.places:
        return Curve(item.name, view, np.arange(len(grid), dtype=float), values)
    x = evaluate(view.expression, frame)
    return Curve(item.name, view, x, values, evaluate(view.expression, of_rows))


def _grid(view: View, column: pd.Series[Any], resolution: int) -> Any:
    """Return values over the range of a column, or those of its places, of the column's type."""
    if view.places:
        first = [column.index[column == place][0] for place in view.places]
        return column.loc[first].array
    ends = column.astype(float)
    return np.linspace(ends.min(), ends.max(), resolution)


def _of_level(rows: Rows, view: View) -> pd.DataFrame:
    assert rows.frame is not None
    kept = np.ones(len(rows), dtype=bool)
    for name, value in view.where.items():
        kept &= (rows.frame[name] == value).to_numpy()
    return rows.frame[kept]


def _contribution(
    posterior: Posterior, rows: Rows, item: Predictor, number: int, view: View, frame: pd.DataFrame
) -> Array:
    """Return draws (S, N) of what a smooth and its straight part add at some rows."""
    columns, own = item.columns(frame), _own_columns(item, view, rows)
    names = [item.coefficients[j] for j in own]
    theta = [posterior.coefficients[name].reshape(-1) for name in names]
    term, block = item.terms[number], columns.blocks[number]
    several = [member.draws for member in posterior.counted]
    total = np.concatenate([term.predicted(x.of_terms, block, x.streams) for x in several])
    for j, values in zip(own, theta, strict=True):
        total = total + np.outer(values, columns.X[:, j])
    return np.asarray(total)


def _own_columns(item: Predictor, view: View, rows: Rows) -> np.ndarray:
    """Return the structured columns of a curve: those of its columns alone."""
    own = {*variables(view.expression), *view.at}
    # A factor's own levels are no part of its smooths; a number's coefficient is, where x is 0.
    needed = set(view.less) or own - set(view.where)
    X = item.columns(_of_level(rows, view).assign(**view.at)).X
    terms = {_normal(term): set(variables(term)) for term in item.x.terms}
    found = []
    for j, name in enumerate(item.x.columns):
        of = terms.get(_normal(re.sub(r"\[[^\]]*\]", "", name)), set())
        if of <= own and of & needed and (not view.where or np.ptp(X[:, j])):
            found.append(j)
    return np.array(found, dtype=int)


def _normal(term: str) -> frozenset[str]:
    """Return a term's factors without backticks, in whatever order."""
    return frozenset(term.replace("`", "").split(":"))


def _elements(item: Predictor, number: int, view: View) -> list[int]:
    """Return where the coefficients of a view stand in A: behind intercept and structured ones."""
    before = sum(term.training_size for term in item.terms[:number] if isinstance(term, Penalised))
    return [1 + len(item.coefficients) + before + int(i) for i in view.elements]


def _influence(posterior: Posterior, rows: Rows, item: Predictor) -> Array:
    """Return the diagonal of F."""
    columns = rows.predictors[item.name]
    means = {name: float(x.mean()) for name, x in posterior.interpreted.items()}
    parts, precisions = [np.ones((len(rows), 1)), columns.X], [np.zeros(1 + columns.X.shape[1])]
    for term, block in zip(item.terms, columns.blocks, strict=True):
        if isinstance(term, Penalised):
            spread_out = TensorBlock(torch.tensor(block.Z), torch.tensor(block.level))
            parts.append(spread_out.columns(term.n_levels).numpy())
            precisions.append(1 / np.maximum(term.variances(means), np.finfo(float).tiny))
    A, W = np.hstack(parts), _curvature(posterior, rows, item.name)
    information = A.T @ (W[:, None] * A)
    scale = 1 / np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    scaled = information * scale * scale[:, None]
    penalty = np.diag(np.concatenate(precisions) * scale**2)
    return np.asarray(np.diag(np.linalg.solve(scaled + penalty, scaled)))


def _curvature(posterior: Posterior, rows: Rows, name: str) -> Array:
    """Return the second derivative of the negative log-likelihood by a predictor, (N,)."""
    family = posterior.family
    eta = torch.tensor(posterior.predictor(rows).mean(axis=0))
    parameters = {
        key: torch.tensor(x.mean(axis=0)) for key, x in posterior.parameters(rows).items()
    }
    known = {key: torch.tensor(rows.known[key]) for key in family.given}
    weights = torch.tensor(rows.given.get("weights", np.ones(len(rows))))
    y = torch.tensor(rows.y)

    def loss(value: Tensor) -> Tensor:
        moved = {} if name == MU else {name: family.parameter(name).value(value)}
        at = value if name == MU else eta
        return -(weights * family.log_lik(y, at, {**parameters, **moved, **known})).sum()

    start = eta if name == MU else torch.tensor(posterior.predictor(rows, name).mean(axis=0))
    return np.asarray(np.maximum(curvature(loss, start)[1].numpy(), 0.0))
