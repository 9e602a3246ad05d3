"""Several networks, or one: f = f_1(u_1; w_1) + f_2(u_2; w_2) + ...

Their inputs and weights stand side by side, network by network. Each output is of one predictor,
that of the mean (``mu``) or of a dispersion parameter, and only those of the same predictor are
added. The outputs of one network share its hidden layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.names import MU
from semistan.model.networks.architecture import Architecture, Layer
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.module import ModuleNetwork
from semistan.model.networks.multiplied import Multiplied, multiplier_columns, unmultiplied

if TYPE_CHECKING:
    from torch import Generator, Tensor

DERIVATIVES = 4_000_000  # of linearised outputs that are held at a time


@dataclass(frozen=True, slots=True)
class Networks:
    """One network, or several whose outputs are added.

    Attributes
    ----------
    parts : tuple of Architecture
        At least one.
    of : tuple of str
        The predictor of each output, network by network, if there is another one than ``mu``.
    dimensions : tuple of int
        The dimension of the subspace of each, if the formula gives that of one.
    around : array, shape (d,), optional
        Weights around which the outputs are linear: f(w) is f(around) + J (w - around), with the
        derivatives J at ``around``. Without them, f is the networks as they are.
    """

    parts: tuple[Architecture, ...]
    of: tuple[str, ...] = ()
    dimensions: tuple[int, ...] = ()
    around: Array | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("expected at least one network, got none")

    @property
    def activation(self) -> str:
        """What follows each layer but the last, of each part if they differ; empty of modules."""
        every = [part.activation for part in self.parts if part.activation]
        return " + ".join(every[:1] if len(set(every)) == 1 else every)

    @property
    def n_inputs(self) -> int:
        """Number of network inputs Q of all parts."""
        return sum(part.n_inputs for part in self.parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of weights of each part."""
        return tuple(part.d for part in self.parts)

    @property
    def d(self) -> int:
        """Number of weights of all parts."""
        return sum(self.sizes)

    @property
    def in_stan(self) -> bool:
        """Whether Stan can compute them all."""
        return all(part.in_stan for part in self.parts)

    @property
    def batches(self) -> bool:
        """Whether PyTorch's ``vmap`` can compute them all."""
        return all(module.batches for module in self.modules)

    @property
    def own(self) -> tuple[Architecture, ...]:
        """The networks themselves, whether they multiply a column or not."""
        return tuple(map(unmultiplied, self.parts))

    @property
    def multipliers(self) -> dict[int, int]:
        """Where the column that a network multiplies stands among the inputs, by its number."""
        return multiplier_columns(self.parts)

    @property
    def modules(self) -> tuple[ModuleNetwork, ...]:
        """Those of them that are modules of the user's."""
        return tuple(part for part in self.own if isinstance(part, ModuleNetwork))

    @property
    def of_images(self) -> bool:
        """Whether some of them take images, all of whose layers are Bayesian."""
        return any(
            len(part.shape) > 1
            for part in self.own
            if isinstance(part, Convolutional | ModuleNetwork)
        )

    @property
    def convolves(self) -> bool:
        """Whether some of them have convolutional layers, in the precision of their inputs."""
        return any(isinstance(part, Convolutional) for part in self.own)

    @property
    def predictors(self) -> tuple[str, ...]:
        """The predictor that each output is of."""
        return self.of or (MU,) * len(self.parts)

    @property
    def predictors_of_parts(self) -> list[tuple[str, ...]]:
        """The predictors that the outputs of each part are of."""
        ends = list(accumulate((part.outputs for part in self.parts), initial=0))
        return [self.predictors[first:last] for first, last in pairwise(ends)]

    @property
    def widest(self) -> int:
        """Numbers of the largest layer for each row, inputs included."""
        return max(part.widest for part in self.parts)

    @property
    def text(self) -> str:
        """The sizes of all layers, as ``2-16-16-1 + 1-16-16-1``."""
        return " + ".join(part.text for part in self.parts)

    @property
    def kind(self) -> type[Architecture]:
        """The architecture of all parts, or that of some whose Stan functions compute them all."""
        kinds = {type(part) for part in self.own}
        for part in self.own:
            if kinds <= {type(part), *part.also}:
                return type(part)
        raise SemistanError(f"the networks {self.text} have no Stan functions in common")

    @property
    def stan_sizes(self) -> dict[str, Any]:
        """What the program reads about the sizes of the networks."""
        return self.kind.stan_sizes(self.own)


def layers(spec: Networks) -> list[list[Layer]]:
    """Return the layers of each part, in the weights of all."""
    starts = accumulate(spec.sizes, initial=0)
    return [part.layers(start) for part, start in zip(spec.parts, starts, strict=False)]


def output_layers(spec: Networks, predictor: str | None = None) -> list[Index]:
    """Return where the weights and the bias of each output are, of all or of one predictor."""
    ends = [
        np.append(np.arange(last.weights.start + i * last.m, last.weights.start + (i + 1) * last.m),
                  last.biases.start + i)
        for *_, last in layers(spec)
        for i in range(last.n)
    ]  # fmt: skip
    return [end for end, of in zip(ends, spec.predictors, strict=True) if predictor in (None, of)]


def prior_scales(
    spec: Networks, w: float, intercept: float, own: Mapping[int, float] = MappingProxyType({})
) -> Array:
    """Return the standard deviation (d,) of each weight under the weights' prior.

    It is ``w / sqrt(m)`` for the weights of a layer with m inputs, so that the network's output
    does not widen with its layers, ``w`` for biases, and ``intercept`` for the output biases.
    ``own`` has what stands in place of ``w`` for the output weights of some networks, by their
    numbers.
    """
    scales = np.full(spec.d, w)
    for number, part in enumerate(layers(spec)):
        for layer in part:
            scales[layer.weights] /= np.sqrt(layer.m)
        scales[part[-1].weights] *= own.get(number, w) / w
        scales[part[-1].biases] = intercept
    return scales


def initial(spec: Networks, generator: Generator) -> Tensor:
    """Draw the weights (d,) of all parts, with which training starts."""
    return torch.cat([part.initial(generator) for part in spec.parts])


def forward(spec: Networks, w: Tensor, u: Tensor, predictor: str = MU) -> Tensor:
    """Evaluate one predictor's networks.

    Parameters
    ----------
    spec : Networks
        The networks.
    w : torch.Tensor, shape (..., d)
        Flat weights; leading axes are a batch.
    u : torch.Tensor, shape (N, Q)
        Standardised inputs of all networks; where they are on another device than the weights, the
        network is computed there.
    predictor : str
        Whose networks are added.

    Returns
    -------
    torch.Tensor, shape (..., N)
        The network's output for each row; the sum of several parts' outputs, 0 of none.
    """
    if predictor not in spec.predictors:
        return u.new_zeros(*w.shape[:-1], len(u))
    if spec.around is not None:
        pieces = torch.split(u, max(1, DERIVATIVES // spec.d))
        return torch.cat([_linear(spec, w, piece, predictor)[0] for piece in pieces], dim=-1)
    parts = _parts(spec, w.to(u.device), u, predictor)
    total, *others = (
        part.forward(own, own_u)[..., of.index(predictor)] for part, of, own, own_u in parts
    )
    for output in others:
        total = total + output
    return total.to(w.device)


def outputs(spec: Networks, w: Tensor, u: Tensor) -> Tensor:
    """Return each output of all parts, shape (..., outputs, N); parameters as ``forward``."""
    found = [part.forward(own, own_u) for part, _, own, own_u in _parts(spec, w, u)]
    return torch.cat(found, dim=-1).transpose(-1, -2)


def layer_inputs(
    spec: Networks, w: Tensor, u: Tensor, predictor: str | None = None
) -> Iterator[list[Tensor]]:
    """Yield the inputs (n, m) of the layers at weights (d,), of all parts or of some."""
    for part, _, own, own_u in _parts(spec, w, u, predictor):
        yield part.layer_inputs(own, own_u)


def output_inputs(spec: Networks, w: Tensor, u: Tensor, predictor: str = MU) -> Tensor:
    """Return what the weights and the bias of each output layer multiply, (n, m) side by side."""
    found = []
    for part, _, own, own_u in _parts(spec, w, u, predictor):
        last = part.layer_inputs(own, own_u)[-1]
        columns = torch.cat([last, last.new_ones(len(last), 1)], dim=1)
        found.append(columns * own_u[:, -1:] if isinstance(part, Multiplied) else columns)
    return torch.cat(found, dim=1)


def with_multipliers(spec: Networks, u: Tensor, one: int | None = None) -> Tensor:
    """Return inputs (n, Q) at which all columns that networks multiply are 0, or one of them 1.

    ``one`` is the number of that network. The outputs are then those of the networks that multiply
    nothing, or these and its own.
    """
    u = u.clone()
    for number, column in spec.multipliers.items():
        u[:, column] = float(number == one)
    return u


def output_and_jacobian(
    spec: Networks, w: Tensor, u: Tensor, predictor: str = MU
) -> tuple[Tensor, Tensor]:
    """Return f (n,) and its derivatives with respect to the weights (n, d).

    The derivatives with respect to the weights of other predictors' networks are 0.
    """
    if predictor not in spec.predictors:
        return u.new_zeros(len(u)), u.new_zeros(len(u), spec.d)
    if spec.around is not None:
        return _linear(spec, w, u, predictor)
    every = [
        part.output_and_jacobian(own, own_u, of.index(predictor))
        if predictor in of
        else (None, u.new_zeros(len(u), part.d))
        for part, of, own, own_u in _parts(spec, w.to(u.device), u)
    ]
    f, *others = (output for output, _ in every if output is not None)
    for output in others:
        f = f + output
    return f.to(w.device), torch.cat([own for _, own in every], dim=1).to(w.device)


def derivatives_along(
    spec: Networks, w: Tensor, u: Tensor, V: Tensor, predictor: str = MU
) -> Tensor:
    """Return the derivatives (n, k) of f at weights (d,) along the columns of V (d, k).

    Of few directions, there is no need for the derivatives by each weight.
    """
    few = V.shape[1] * spec.widest < spec.d
    if spec.around is not None or predictor not in spec.predictors or not few:
        return output_and_jacobian(spec, w, u, predictor)[1] @ V
    pieces = torch.split(V.to(u.device), list(spec.sizes))
    total = u.new_zeros(len(u), V.shape[1])
    for (part, of, own, own_u), along in zip(_parts(spec, w.to(u.device), u), pieces, strict=True):
        if predictor in of:
            total = total + part.derivatives_along(own, own_u, of.index(predictor), along)
    return total.to(w.device)


def _linear(spec: Networks, w: Tensor, u: Tensor, predictor: str) -> tuple[Tensor, Tensor]:
    """Return what is linear around some weights, at weights (..., d), and its derivatives."""
    around = torch.tensor(spec.around)
    with torch.enable_grad():
        f, J = output_and_jacobian(replace(spec, around=None), around, u, predictor)
    return f + (w - around) @ J.T, J


def _parts(
    spec: Networks, w: Tensor, u: Tensor, predictor: str | None = None
) -> Iterator[tuple[Architecture, tuple[str, ...], Tensor, Tensor]]:
    """Yield each part, or a predictor's: its predictors, weights (..., d_i), inputs (N, Q_i)."""
    columns = [part.n_inputs for part in spec.parts]
    weights, inputs = torch.split(w, list(spec.sizes), dim=-1), torch.split(u, columns, dim=1)
    for part in zip(spec.parts, spec.predictors_of_parts, weights, inputs, strict=True):
        if predictor is None or predictor in part[1]:
            yield part
