"""The fully connected network with skip connections, layer normalisation, or both.

With h the units of a hidden layer, that behind it is

    z = W n(h) + b,    h' = activation(z) + h

where the sum takes h if ``skip`` and the layers have equally many units, and n is, if ``norm``,

    n(h) = (h - mean(h)) / sqrt(var(h) + 1e-5)

over the units of each row, without weights of its own; without ``norm``, n(h) = h. The output layer
takes n(h) too. The first layer is plain: the network's inputs have units of their own, and are
neither averaged with each other nor added to what the layer makes of them.

References: He, Zhang, Ren and Sun (2016), Deep residual learning for image recognition, CVPR;
Ba, Kiros and Hinton (2016), Layer normalization, arXiv:1607.06450.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.networks.activations import activate, onnx_activation, onnx_slope
from semistan.model.networks.architecture import Graph, Layer, StanText, needed
from semistan.model.networks.mlp import (
    FullyConnected,
    Layered,
    affine,
    onnx_affine,
    onnx_affine_along,
    onnx_constant_affine,
)

if TYPE_CHECKING:
    from torch import Tensor

EPSILON = 1e-5  # as PyTorch's; in stan/residual.stanfunctions too


@final
@dataclass(frozen=True, slots=True)
class Residual(Layered):
    """A fully connected network with options, as ``Architecture`` says.

    Its Stan functions compute ``FullyConnected`` too, which has neither option.

    Attributes
    ----------
    skip : bool
        Whether what comes into a hidden layer is added to what it makes of it, h' = a(z) + h, where
        both have equally many units; not around the first layer (He et al., 2016).
    norm : bool
        Whether each layer behind the first takes n(h) = (h - mean(h)) / sqrt(var(h) + 1e-5), over
        the units of a row (Ba et al., 2016, without gain and bias).

    Notes
    -----
    Behind constant leading layers, the head is a network of the same options whose inputs are the
    features n(h): its own first layer has no skip connection.
    """

    skip: bool = False
    norm: bool = False
    also: ClassVar[tuple[type, ...]] = (FullyConnected,)

    @property
    def text(self) -> str:
        """The widths of all layers, and the options, as ``2-16-16-1 (skip, norm)``."""
        chosen = needed(("skip", self.skip), ("norm", self.norm))
        return "-".join(map(str, self.widths)) + (f" ({', '.join(chosen)})" if chosen else "")

    def onnx_features(self, graph: Graph, w: Array, u: str, frozen: int) -> str:
        """Write the first layers down."""
        return self._onnx_walk(
            graph, u, self.layers()[:frozen],
            lambda h, layer: onnx_constant_affine(graph, w, h, layer),
        )  # fmt: skip

    def onnx(self, graph: Graph, w: str, u: str, start: int) -> str:
        """Write the layers down."""
        *hidden, last = self.layers(start)
        h = self._onnx_walk(graph, u, hidden, lambda h, layer: onnx_affine(graph, w, h, layer))
        return onnx_affine(graph, w, h, last)

    def onnx_along(self, graph: Graph, at: Array, v: str, u: str, start: int) -> str:
        """Write down how the outputs change along v, at constant weights."""
        *hidden, last = self.layers(start)
        a, h, moved_a, moved_h = u, u, "", ""
        for layer, skips in zip(hidden, self._skips, strict=True):
            z = onnx_constant_affine(graph, at, a, layer)
            change = onnx_affine_along(graph, at, v, a, moved_a, layer)
            change = graph.apply("Mul", onnx_slope(graph, z, self.activation), change)
            made = onnx_activation(graph, z, self.activation)
            h = graph.apply("Add", made, h) if skips else made
            moved_h = graph.apply("Add", change, moved_h) if skips else change
            a = onnx_normalised(graph, h) if self.norm else h
            moved_a = onnx_normalised_along(graph, h, moved_h) if self.norm else moved_h
        return onnx_affine_along(graph, at, v, a, moved_a, last)

    @staticmethod
    def stan_text(*, several: bool, predictors: bool, kernel: bool) -> StanText:  # noqa: ARG004
        """Return the program's text, in which both options are data of each network."""
        plain = FullyConnected.stan_text(several=several, predictors=predictors, kernel=False)
        each = "array[n_networks] " if several else ""
        kind = "array[] int" if several else "int"
        return StanText(
            files=needed(
                ("activate.stanfunctions", True),
                ("layers.stanfunctions", True),
                ("residual.stanfunctions", True),
                ("residual_network.stanfunctions", not several),
                ("widths.stanfunctions", several),
                ("n_outputs.stanfunctions", several),
                ("residual_outputs.stanfunctions", several),
                ("residual_networks.stanfunctions", several and not predictors),
            ),
            data=(
                *plain.data,
                (f"{each}int<lower=0, upper=1> skip;", "whether layers of equal width are added"),
                (f"{each}int<lower=0, upper=1> layer_norm;", "whether layers are normalised"),
            ),
            passed=(*plain.passed, (kind, "skip"), (kind, "layer_norm")),
            has_kernel=False,
            along=needed(
                ("activation_slope.stanfunctions", True),
                ("residual_along.stanfunctions", True),
                ("residual_outputs_along.stanfunctions", several),
            ),
        )

    @staticmethod
    def stan_sizes(parts: Sequence[Layered]) -> dict[str, Any]:
        """Return the values of what ``stan_text`` declares as data."""
        options = [(p.skip, p.norm) if isinstance(p, Residual) else (False, False) for p in parts]
        skip, norm = ([int(value) for value in values] for values in zip(*options, strict=True))
        several = len(parts) > 1 or parts[0].outputs > 1
        return FullyConnected.stan_sizes(parts) | {
            "skip": skip if several else skip[0],
            "layer_norm": norm if several else norm[0],
        }

    def walk(self, w: Tensor, u: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the sums of each hidden layer, and what the layer behind it takes."""
        a = h = u
        for layer, skips in zip(self.layers()[:-1], self._skips, strict=False):
            z = affine(a, w, *layer)
            h = activate(z, self.activation) + h if skips else activate(z, self.activation)
            a = normalised(h) if self.norm else h
            yield z, a

    def _onnx_walk(
        self, graph: Graph, u: str, layers: list[Layer], sums: Callable[[str, Layer], str]
    ) -> str:
        """Write ``walk`` down, with the sums of each layer."""
        a = h = u
        for layer, skips in zip(layers, self._skips, strict=False):
            made = onnx_activation(graph, sums(a, layer), self.activation)
            h = graph.apply("Add", made, h) if skips else made
            a = onnx_normalised(graph, h) if self.norm else h
        return a

    @property
    def _skips(self) -> tuple[bool, ...]:
        """Whether there is a connection around each hidden layer."""
        equal = (m == n for m, n in pairwise(self.hidden))
        return (False, *(self.skip and same for same in equal))


def check_options(hidden: Sequence[int], skip: bool, norm: bool) -> None:
    """Refuse options of a whole network that would change nothing, or leave nothing of it.

    Raises
    ------
    InputError
        Saying which hidden layers the option needs.
    """
    if skip and not any(m == n for m, n in pairwise(hidden)):
        raise InputError(
            "skip = true needs two hidden layers of equally many units, one behind the other, got "
            f"hidden {list(hidden)}; choose other layers, as [16, 16], or leave skip out"
        )
    if norm and min(hidden, default=1) < 2:
        raise InputError(
            "norm = true takes the variance over the units of each hidden layer and needs at least "
            f"one such layer, and 2 units in each, got hidden {list(hidden)}; choose other layers, "
            "as [16, 16], or leave norm out"
        )


def normalised(h: Tensor) -> Tensor:
    """Return n(h), over the last axis."""
    centred = h - h.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + EPSILON).sqrt()


def onnx_normalised(graph: Graph, h: str) -> str:
    """Write ``normalised`` down: onnxruntime has no layer normalisation without a gain."""
    return graph.apply("Div", *_onnx_centred(graph, h))


def onnx_normalised_along(graph: Graph, h: str, moved: str) -> str:
    """Write the change of ``normalised`` down, where h (N, m) changes by ``moved`` (S, N, m)."""
    centred, root = _onnx_centred(graph, h)
    n = graph.apply("Div", centred, root)
    change = graph.apply("Sub", moved, graph.apply("ReduceMean", moved, axes=[-1]))
    change = graph.apply("Div", change, root)
    shared = graph.apply("ReduceMean", graph.apply("Mul", n, change), axes=[-1])
    return graph.apply("Sub", change, graph.apply("Mul", n, shared))


def _onnx_centred(graph: Graph, h: str) -> tuple[str, str]:
    """Write h less its means down, and its standard deviations."""
    centred = graph.apply("Sub", h, graph.apply("ReduceMean", h, axes=[-1]))
    squares = graph.apply("Mul", centred, centred)
    variance = graph.apply("ReduceMean", squares, axes=[-1])
    return centred, graph.apply(
        "Sqrt", graph.apply("Add", variance, graph.constant(np.array([EPSILON])))
    )
