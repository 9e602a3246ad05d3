"""Draws of predictors and parameters at some rows, of one subspace, as S x N arrays.

The linear predictor has parts besides the intercept,

    eta = b_Intercept + x' theta + z b_z + f_c(u) + smooths + group-level effects + offsets,

where f_c is the network's part, centred over the training rows in each draw; of a network that
multiplies z, its mean is b_z, and what is left of it is in f_c. Where coefficients
are orthogonalised to the network, they hold what it says along their columns, and f_c is without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise

import numpy as np

from semistan.density.features import at_features
from semistan.density.pieces import pieces_of
from semistan.density.predictor import completion_output, network_output, output_and_slopes
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.names import MU
from semistan.model.networks.networks import Networks
from semistan.model.predictor import Predictor
from semistan.model.table.rows import Block, Rows
from semistan.model.terms.group import Group
from semistan.model.terms.group_across import GroupAcross
from semistan.model.terms.term import Term
from semistan.posterior.draws import Draws, level
from semistan.posterior.engine import Engine
from semistan.posterior.options import MARGINAL, NEW, NONE

CHUNK_ACTIVATIONS = 1_000_000  # of the widest layer held at a time; more leave the cache


@dataclass(frozen=True, slots=True, eq=False)
class NetworkOutputs:
    """What networks add to some predictors at some rows, computed once.

    Attributes
    ----------
    outputs : dict of arrays, shape (S, N)
        By predictor, the sum of its networks' outputs in each draw.
    places : dict of dicts
        By predictor, in which of the rows its networks have inputs, by a digest of these.
    """

    outputs: dict[str, Array]
    places: dict[str, dict[bytes, int]]

    def at(self, bundle: Bundle, draws: Draws, U: Array, name: str) -> Array | None:  # noqa: ARG002
        """Return a predictor's at inputs U, if its networks' inputs are among these; else none."""
        if name not in self.outputs:
            return None
        places, outputs = self.places[name], self.outputs[name]
        found = [places.get(each, -1) for each in _digests(bundle.model.leading.whole, U, name)]
        if -1 in found:
            return None
        return outputs if found == list(range(outputs.shape[1])) else outputs[:, found]


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTangents:
    """What networks add to some predictors near some rows, to first order in their inputs.

    Attributes
    ----------
    U : array, shape (N, Q)
        The networks' inputs, in the units of the data.
    outputs : dict of arrays, shape (S, N)
        By predictor, the sum of its networks' outputs in each draw, without the completion.
    slopes : dict of arrays, shape (S, N, Q)
        Their derivatives with respect to the inputs.
    """

    U: Array
    outputs: dict[str, Array]
    slopes: dict[str, Array]

    def at(self, bundle: Bundle, draws: Draws, U: Array, name: str) -> Array | None:
        """Return a predictor's (S, N) at inputs U near those of the rows; None of another one."""
        if name not in self.outputs:
            return None
        moved, total = U - self.U, self.outputs[name] + _completion(bundle, draws, U, name)
        for column in np.flatnonzero(moved.any(axis=0)):
            total += self.slopes[name][:, :, column] * moved[:, column]
        return total


Known = NetworkOutputs | NetworkTangents


def network_tangents_at(
    bundle: Bundle, draws: Draws, rows: Rows, names: Iterable[str]
) -> NetworkTangents:
    """Compute the networks of the named predictors at some rows, with their derivatives."""
    phi, network = draws.flat(draws.phi), bundle.network
    size, found = len(rows) * network.widest, {}
    for name in names:
        pieces = pieces_of(len(phi), size, CHUNK_ACTIVATIONS)
        weights = (bundle.subspace.lift(phi[piece]) for piece in pieces)
        parts = [output_and_slopes(network, bundle.units, w, rows.U, name) for w in weights]
        found[name] = [np.concatenate(each) for each in zip(*parts, strict=True)]
    outputs, slopes = ({name: each[i] for name, each in found.items()} for i in (0, 1))
    return NetworkTangents(rows.U, outputs, slopes)


def network_outputs_at(
    bundle: Bundle, draws: Draws, known: Known | None, rows: Rows, names: Iterable[str]
) -> NetworkOutputs:
    """Compute the networks of the named predictors at some rows, unless they are known."""
    networks = bundle.model.leading.whole
    outputs = {name: _output(bundle, draws, rows, name, known) for name in names}
    places = {
        name: {each: row for row, each in enumerate(_digests(networks, rows.U, name))}
        for name in outputs
    }
    return NetworkOutputs(outputs, places)


def _digests(networks: Networks, U: Array, name: str) -> list[bytes]:
    """Return what tells rows of a predictor's inputs apart, which may be large pictures."""
    inputs = U[:, _inputs_of(networks, name)]
    return [blake2b(row.tobytes(), digest_size=16).digest() for row in inputs]


def _inputs_of(networks: Networks, name: str) -> list[int]:
    """Return which columns of U the networks of a predictor take."""
    ends = pairwise(accumulate((part.n_inputs for part in networks.parts), initial=0))
    parts = zip(ends, networks.predictors_of_parts, strict=True)
    return [column for (first, last), of in parts if name in of for column in range(first, last)]


def predictor_draws(
    bundle: Bundle, draws: Draws, rows: Rows, name: str | None, part: str, engine: Engine | None,
    known: Known | None = None,
) -> Array:  # fmt: skip
    """Return draws (S, N) of eta or a part of it, or of the predictor of a named parameter.

    ``Posterior.predictor`` says what the arguments mean; the engine is PyTorch by default.
    """
    if name is not None:
        return _other_predictor(bundle, draws, rows, name, known)
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    structured = draws.flat(draws.effects) @ rows.X.T
    columns = bundle.model.leading.whole.multipliers
    for slope in bundle.design.mean.slopes:
        z = rows.U[:, columns[slope.network]]
        structured += np.outer(draws.flat(draws.coefficients[slope.name]), z)
    if part == "structured":
        return structured
    if part == "penalised":
        return _terms(bundle.design.mean, draws, rows)
    if engine is None:
        eta = bundle.units.eta_scale * _output(bundle, draws, rows, MU, known)
        eta += bundle.units.eta_loc
        eta += theta @ (rows.X - bundle.units.x_loc).T
    else:
        pieces = pieces_of(len(phi), len(rows) * bundle.network.widest, CHUNK_ACTIVATIONS)
        of_draws = (phi, theta, *([] if draws.psi is None else [draws.flat(draws.psi)]))
        eta = np.concatenate(
            [engine(rows.X, rows.U, *(each[piece] for each in of_draws)) for piece in pieces]
        )
    if part == "nn":
        return eta - structured - draws.flat(level(bundle, draws))[:, None]
    return eta + _rest(bundle.design.mean, draws, rows)


def network_draws(
    bundle: Bundle, draws: Draws, known: Known | None, rows: Rows, name: str
) -> Array:
    """Return draws (S, N) of what networks add to a predictor, in its units; ``mu`` is eta."""
    scale = bundle.units.eta_scale if name == MU else 1.0
    return np.asarray(scale * _output(bundle, draws, rows, name, known))


def parameter_draws(
    bundle: Bundle, draws: Draws, rows: Rows, known: Known | None = None
) -> dict[str, Array]:
    """Return draws of dispersion parameters: (S, 1), or (S, N) of those with a predictor."""
    sampled = {name: draws.flat(values)[:, None] for name, values in draws.dispersion.items()}
    predictors = (
        (item.name, _own_predictor(bundle, draws, rows, item, known))
        for item in bundle.design.others
    )
    varying = {
        name: np.asarray(bundle.family.parameter(name).value(predictor))
        for name, predictor in predictors
    }
    return sampled | varying


def group_roots(
    bundle: Bundle, draws: Draws, rows: Rows, names: Sequence[str]
) -> dict[tuple[str, str], Array]:
    """Return a root of the covariance of what all levels of groups may add to predictors.

    ``Posterior.group_roots`` says what it is. It is lower triangular; elements that are 0 in all
    draws and rows are left out.
    """
    groups = [
        (name, term, block)
        for name in names
        for term, block in _with_blocks(bundle.design.predictor(name), rows)
        if isinstance(term, Group)
    ]
    roots: dict[tuple[str, str], Array] = {}
    for i, name in enumerate(names):
        for other in names[: i + 1]:
            covariance = _covariance(groups, draws.of_terms, name, other)
            for before in names[: names.index(other)]:
                if (name, before) in roots and (other, before) in roots:
                    covariance = covariance - roots[name, before] * roots[other, before]
            if name == other:
                roots[name, name] = np.sqrt(np.maximum(covariance, 0.0))
            elif not isinstance(covariance, float):
                own = roots[other, other]
                roots[name, other] = covariance / np.where(own > 0, own, 1.0)
    return roots


def _covariance(
    groups: Sequence[tuple[str, Group, Block]], draws: Mapping[str, Array], name: str, other: str
) -> Array | float:
    """Return the covariance (S, N) of what groups add to two predictors; 0.0 if they share none."""
    total: Array | float = 0.0
    for of, term, block in groups:
        if of == name == other:
            total = total + np.square(term.deviation(draws, block))
        elif of == name and isinstance(term, GroupAcross):
            own = term.directions(draws, block)
            for theirs, linked, its in groups:
                if theirs == other and isinstance(linked, GroupAcross) and linked.id == term.id:
                    total = total + (own * linked.directions(draws, its)).sum(axis=-1)
    return total


def _other_predictor(
    bundle: Bundle, draws: Draws, rows: Rows, name: str, known: Known | None
) -> Array:
    """Return draws (S, N) of the predictor of a dispersion parameter that may have none."""
    if name in bundle.design.varying:
        return _own_predictor(bundle, draws, rows, bundle.design.predictor(name), known)
    values = draws.flat(draws.dispersion[name])[:, None]
    return np.repeat(bundle.family.parameter(name).predictor(values), len(rows), axis=1)


def _own_predictor(
    bundle: Bundle, draws: Draws, rows: Rows, item: Predictor, known: Known | None
) -> Array:
    X, theta = rows.predictors[item.name].X, np.zeros((draws.size, len(item.coefficients)))
    for j, name in enumerate(item.coefficients):
        theta[:, j] = draws.flat(draws.coefficients[name])
    if item.has_tau:
        level = draws.flat(draws.coefficients[item.intercept])[:, None] + theta @ X.T
        f = _output(bundle, draws, rows, item.name, known) if item.networks else 0.0
        return np.asarray(level + f + _rest(item, draws, rows))
    start = bundle.units.location(bundle.family, item.name)
    predictor = start + theta @ (X - bundle.units.columns[item.name][0]).T
    predictor += _output(bundle, draws, rows, item.name, known)
    return np.asarray(predictor + _rest(item, draws, rows))


def _output(bundle: Bundle, draws: Draws, rows: Rows, name: str, known: Known | None) -> Array:
    """Return the output (S, N) of a predictor's networks, computed unless it is known."""
    found = known.at(bundle, draws, rows.U, name) if known else None
    if found is not None:
        return found
    heads, behind = at_features(bundle, rows)
    return _network(heads, draws, behind, name)


def _network(bundle: Bundle, draws: Draws, rows: Rows, name: str) -> Array:
    """Compute the output (S, N) of a predictor's networks at features."""
    phi = draws.flat(draws.phi)
    pieces = pieces_of(len(phi), len(rows) * bundle.network.widest, CHUNK_ACTIVATIONS)
    weights = (bundle.subspace.lift(phi[piece]) for piece in pieces)
    network, units, U = bundle.network, bundle.units, rows.U
    f = np.concatenate([network_output(network, units, w, U, name, single=True) for w in weights])
    f += _completion(bundle, draws, U, name)
    return f


def _completion(bundle: Bundle, draws: Draws, U: Array, name: str) -> Array | float:
    """Return what the weights outside the subspace add (S, N), if draws are completed."""
    if draws.psi is None or not bundle.completion:
        return 0.0
    psi = draws.flat(draws.psi)
    return completion_output(bundle.network, bundle.units, bundle.completion, U, psi, name)


def _rest(predictor: Predictor, draws: Draws, rows: Rows) -> Array | float:
    """Return what terms and offset add to a predictor, (S, N) or one that broadcasts to it."""
    offset = rows.predictors[predictor.name].offset
    terms = _terms(predictor, draws, rows) if predictor.terms else 0.0
    return terms if offset is None else terms + offset


def _terms(predictor: Predictor, draws: Draws, rows: Rows) -> Array:
    """Return the sum (S, N) of a predictor's other terms."""
    total = np.zeros((draws.size, len(rows)))
    values = draws.of_terms
    for term, block in _with_blocks(predictor, rows):
        if isinstance(term, Group):
            if draws.groups in (NONE, MARGINAL):
                continue
            block = term.renewed(block) if draws.groups == NEW else block
        total += term.predicted(values, block, draws.streams)
    return total


def _with_blocks(predictor: Predictor, rows: Rows) -> Iterator[tuple[Term, Block]]:
    """Yield a predictor's terms, with what each needs of the rows."""
    return zip(predictor.terms, rows.predictors[predictor.name].blocks, strict=True)
