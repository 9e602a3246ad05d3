"""The Gaussian processes that ``gp()`` may be: of one column or two, by a number, by a factor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.table.columns import evaluate
from semistan.model.table.kinds import is_factor
from semistan.model.terms.by_level import levels_from_plain, levels_of
from semistan.model.terms.gp import (
    DEFAULT,
    LONGEST,
    SHORTEST,
    SHORTEST_OF_ALL,
    STORED,
    WITHIN,
    Graded,
    Process,
    inverse_gamma,
)
from semistan.model.terms.gp_basis import (
    LARGEST_SIZE,
    LARGEST_SIZE_OF_PLANE,
    boxed_range,
    graded_nodes,
    margin_for,
    size_for,
)
from semistan.model.terms.gp_by import ProcessByFactor
from semistan.model.terms.gp_covariances import COVARIANCES
from semistan.model.terms.gp_plane import learn_plane, plane_from_plain
from semistan.model.terms.kinds import TermKind, is_one_of
from semistan.model.terms.term import Term

if TYPE_CHECKING:
    import pandas as pd


def _learn(call: TermCall, table: pd.DataFrame, name: str, key: str) -> Term:
    """Learn whichever of the processes a call is."""
    learn = learn_plane if call.others else _learn_process
    process = learn(call, table, name, key)
    if not call.by:
        return process
    if is_factor(table[variables(call.by)[0]]):
        return ProcessByFactor(process, call.by, levels_of(call, table)[0])
    by = evaluate(call.by, table)
    return replace(process, by=call.by, by_scale=float(np.sqrt((by**2).mean())))


def _learn_process(call: TermCall, table: pd.DataFrame, name: str, key: str) -> Process:
    """Learn range and prior of the length scale.

    Raises
    ------
    InputError
        If there are fewer than three distinct values, or k is large.
    """
    if (k := call.option("k", LARGEST_SIZE)) > LARGEST_SIZE:
        raise InputError(f"{call.text} takes k up to {LARGEST_SIZE}, got k = {k}")
    x = evaluate(call.expression, table)
    distinct = np.unique(x)
    if len(distinct) < 3:
        raise InputError(
            f"{call.text} needs at least three distinct values of '{call.expression}', got "
            f"{len(distinct)}"
        )
    width, middle = float(np.ptp(distinct)), float(distinct[0] + distinct[-1]) / 2
    least = min(max(SHORTEST, float(np.diff(distinct).min()) / width), SHORTEST_OF_ALL)
    names = (call.expression, name, middle, width)
    of = COVARIANCES[call.option("cov", DEFAULT.name)]
    if not {"k", "c"} & {*dict(call.options)}:
        nodes, steps = graded_nodes(of, least, LONGEST, WITHIN)
        graded = Graded(nodes, steps, (least, LONGEST))
        prior = inverse_gamma(least, LONGEST)
        return Process(*names, 2 * len(nodes), WITHIN, prior, key, graded, of)
    margin = float(call.option("c", margin_for(of, LONGEST)))
    count = int(call.option("k", size_for(of, margin, least)))
    resolved = min(max(least, boxed_range(of, count, margin)[0]), SHORTEST_OF_ALL)
    return Process(*names, count, margin, inverse_gamma(resolved, LONGEST), key, covariance=of)


def _from_plain(content: Mapping[str, Any], key: str) -> Term:
    """Rebuild whichever of the processes a state is of."""
    if "levels" in content:
        process = _process_from_plain({k: v for k, v in content.items() if k != "by"}, key)
        return ProcessByFactor(process, *levels_from_plain(content))
    return _process_from_plain(content, key)


def _process_from_plain(content: Mapping[str, Any], key: str) -> Process:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its figures do not fit.
    """
    shape, scale = (float(value) for value in content["prior"])
    middle, width, margin = (float(content[name]) for name in ("middle", "width", "margin"))
    count = int(content["count"])
    if min(shape, scale, width, margin, count) <= 0:
        raise ValueError("the figures of a Gaussian process do not fit")
    names = str(content["expression"]), str(content["name"])
    of, found = COVARIANCES[content["cov"]], content.get("graded")
    graded = None if found is None else _graded(found, count)
    process = Process(*names, middle, width, count, margin, (shape, scale), key, graded, of)
    by, by_scale = str(content.get("by", "")), float(content.get("by_scale", 1))
    process = replace(process, by=by, by_scale=by_scale)
    return plane_from_plain(process, content) if "second" in content else process


def _graded(content: Mapping[str, Any], count: int) -> Graded:
    nodes, steps = (np.asarray(content[name], dtype=float) for name in ("nodes", "steps"))
    least, most = (float(value) for value in content["follows"])
    if not (nodes.shape == steps.shape == (count // 2,) and count % 2 == 0 and (steps > 0).all()):
        raise ValueError("the frequencies of a Gaussian process do not fit")
    return Graded(nodes, steps, (least, most))


KIND = TermKind(
    varies="a process of each level of g is gp(x, by=g), and a coefficient of z that varies with x "
    "gp(x, by=z)",
    takes="one or two expressions, k functions, the margin c, a covariance, which is "
    f"{', '.join(COVARIANCES)}, and a column by, as gp(x), gp(x, y), gp(x, k=50, c=2.5), "
    "gp(x, cov='matern25') or gp(x, by=g)",
    arguments=(1, 2),
    options={
        "k": lambda value: type(value) is int and 3 <= value <= LARGEST_SIZE_OF_PLANE,
        "c": lambda value: type(value) in (int, float) and 1 < value <= 100,
        "cov": partial(is_one_of, COVARIANCES),
    },
    has_by=True,
    stored=STORED,
    learn=_learn,
    from_plain=_from_plain,
)
