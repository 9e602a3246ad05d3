"""The convolutional network: for images, as in appendix C.3 of Dold et al. (2024).

Each convolutional layer moves a square kernel over the image, without padding and one pixel at a
time, and is followed by the activation and by the maximum over squares of pixels. The last one's
numbers, channel by channel, are the inputs of a fully connected network.

Weights are stored layer by layer in PyTorch's order: each output channel's kernel, input channel by
input channel and row by row, then the biases. The inputs are an image's numbers in the same order.

Convolutions are computed in the precision of the images, whatever that of the weights is, and the
layers behind them in that of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from semistan.errors import InputError, SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.networks.activations import activate, check_activation, onnx_activation
from semistan.model.networks.architecture import Architecture, Graph, Layer, StanText
from semistan.model.networks.mlp import FullyConnected, drawn, slices_of
from semistan.model.networks.residual import Residual

if TYPE_CHECKING:
    from torch import Generator, Tensor

Shape = tuple[int, int, int]  # channels, height, width


class Size(NamedTuple):
    """The image that a convolutional layer takes, and those before and after its maxima."""

    before: Shape
    convolved: Shape
    after: Shape


@dataclass(frozen=True, slots=True)
class Convolutional:
    """A convolutional network, as ``Architecture`` says.

    Attributes
    ----------
    shape : tuple of int
        Channels, height and width of an image.
    channels : tuple of int
        Output channels of each convolutional layer; at least one layer.
    hidden : tuple of int
        Units of each hidden layer of the fully connected network behind them.
    kernel : int
        Height and width of the kernels.
    pooling : int
        Height and width of the squares of which the maxima are taken; 1 takes none.
    activation : str
        Applied after each layer but the last.
    outputs : int
        Units of the output layer.
    skip, norm : bool
        Options of the fully connected network, as of ``Residual``.
    """

    shape: Shape
    channels: tuple[int, ...]
    hidden: tuple[int, ...]
    kernel: int = 3
    pooling: int = 2
    activation: str = "tanh"
    outputs: int = field(default=1, kw_only=True)
    skip: bool = False
    norm: bool = False
    in_stan: ClassVar[bool] = False
    also: ClassVar[tuple[type, ...]] = ()

    def __post_init__(self) -> None:
        check_activation(self.activation)
        least = min((*self.shape, *self.channels, *self.hidden, self.kernel, self.pooling))
        if least < 1 or not self.channels:
            raise InputError(
                "a convolutional network needs at least one layer, and channels, units, kernel "
                f"and pooling of at least 1, got channels {list(self.channels)}, hidden "
                f"{list(self.hidden)}, kernel {self.kernel} and pooling {self.pooling}"
            )
        for layer, size in enumerate(self.sizes, start=1):
            if min(size.after) < 1:
                _, height, width = size.before
                raise InputError(
                    f"convolutional layer {layer} gets images of {height} x {width} pixels, of "
                    f"which a kernel of {self.kernel} and pooling of {self.pooling} leave nothing; "
                    "choose fewer layers (channels), a smaller kernel or pooling, or larger images"
                )

    @property
    def sizes(self) -> list[Size]:
        """The images before and after each convolutional layer."""
        found, shape = [], self.shape
        for n in self.channels:
            convolved = (n, *(side - self.kernel + 1 for side in shape[1:]))
            after = (n, *(max(side, 0) // self.pooling for side in convolved[1:]))
            found.append(Size(shape, convolved, after))  # type: ignore[arg-type]
            shape = found[-1].after
        return found

    @property
    def n_inputs(self) -> int:
        """Numbers of an image."""
        return prod(self.shape)

    @property
    def top(self) -> FullyConnected | Residual:
        """The fully connected network behind the convolutional layers."""
        layers = prod(self.sizes[-1].after), self.hidden, self.activation
        if self.skip or self.norm:
            return Residual(*layers, self.skip, self.norm, outputs=self.outputs)
        return FullyConnected(*layers, outputs=self.outputs)

    @property
    def d(self) -> int:
        """Number of weights."""
        return sum((layer.m + 1) * layer.n for layer in self.layers())

    @property
    def widest(self) -> int:
        """Numbers of the largest layer, inputs included."""
        return max(self.n_inputs, self.top.widest, *(prod(size.convolved) for size in self.sizes))

    @property
    def text(self) -> str:
        """The layers' sizes, as ``3x32x32-conv8-conv16-16-1``."""
        image = "x".join(map(str, self.shape))
        convolutions = (f"conv{n}" for n in self.channels)
        return "-".join((image, *convolutions, self.top.text.partition("-")[2]))

    def layers(self, start: int = 0) -> list[Layer]:
        """Return the layers; those of a convolution map a patch of the image to its channels."""
        channels = pairwise((self.shape[0], *self.channels))
        convolutions = [(before * self.kernel**2, n) for before, n in channels]
        return slices_of([*convolutions, *pairwise(self.top.widths)], start)

    def head(self, frozen: int) -> Architecture:
        """Return the layers behind the first ones: fully connected behind all convolutions."""
        depth = len(self.channels)
        if not 0 <= frozen <= depth + len(self.hidden):
            raise InputError(
                f"frozen must be between 0 and the number of convolutional and hidden layers "
                f"({depth + len(self.hidden)}), got {frozen}: the output layer stays in the "
                "subspace"
            )
        if frozen >= depth:
            return self.top.head(frozen - depth)
        shape = self.sizes[frozen - 1].after if frozen else self.shape
        return replace(self, shape=shape, channels=self.channels[frozen:])

    def features(self, w: Tensor, u: Tensor, frozen: int) -> Tensor:
        """Pass images through the first layers."""
        depth = len(self.channels)
        h = self._images(w, u, min(frozen, depth))[-1].flatten(1).to(w.dtype)
        if frozen <= depth:
            return h
        return self.top.features(w[self._of_convolutions :], h, frozen - depth)

    def initial(self, generator: Generator) -> Tensor:
        """Draw weights as PyTorch does, uniformly within ``1 / sqrt(m)``."""
        return drawn(((layer.m, layer.n) for layer in self.layers()), generator)

    def forward(self, w: Tensor, u: Tensor) -> Tensor:
        """Evaluate the layers; several weight vectors one by one, faster than by ``vmap``."""
        if w.ndim > 1:
            flat = w.reshape(-1, w.shape[-1])
            found = torch.stack([self.forward(one, u) for one in flat])
            return found.reshape(*w.shape[:-1], len(u), self.outputs)
        h = self._images(w, u, len(self.channels))[-1].flatten(1)
        return self.top.forward(w[self._of_convolutions :], h.to(w.dtype))

    def layer_inputs(self, w: Tensor, u: Tensor) -> list[Tensor]:
        """Return the inputs of each layer; of a convolution, the mean of an image's patches.

        With these and the derivatives summed over the patches, a Kronecker-factored curvature is
        K-FAC-reduce (Eschenhagen et al., 2023, NeurIPS).
        """
        *images, last = self._images(w, u, len(self.channels))
        of_patches = [torch.nn.functional.unfold(h, self.kernel).mean(dim=-1) for h in images]
        h = last.flatten(1).to(w.dtype)
        return of_patches + self.top.layer_inputs(w[self._of_convolutions :], h)

    def output_and_jacobian(self, w: Tensor, u: Tensor, output: int) -> tuple[Tensor, Tensor]:
        """Return an output and its derivatives, image by image through ``vmap``."""

        def of_image(at: Tensor, image: Tensor) -> Tensor:
            return self.forward(at, image[None])[0, output]

        both = torch.func.grad_and_value(of_image)
        J, f = torch.func.vmap(both, in_dims=(None, 0))(w.detach(), u.to(w.dtype))
        return f, J

    def derivatives_along(self, w: Tensor, u: Tensor, output: int, V: Tensor) -> Tensor:
        """Return the derivatives along directions, by those by each weight."""
        return self.output_and_jacobian(w, u, output)[1] @ V

    def onnx_features(self, graph: Graph, w: Array, u: str, frozen: int) -> str:
        """Write the first layers down, for one weight vector that is part of the graph."""
        depth = len(self.channels)
        h = self._onnx_convolved(graph, graph.constant(w[None]), u, 0, min(frozen, depth))
        h = graph.apply("Squeeze", h, graph.constant(np.array([0])))
        if frozen <= depth:
            return h
        return self.top.onnx_features(graph, w[self._of_convolutions :], h, frozen - depth)

    def onnx(self, graph: Graph, w: str, u: str, start: int) -> str:
        """Write the layers down."""
        h = self._onnx_convolved(graph, w, u, start, len(self.channels))
        return self.top.onnx(graph, w, h, start + self._of_convolutions)

    def onnx_along(self, graph: Graph, at: Array, v: str, u: str, start: int) -> str:  # noqa: ARG002
        """Refuse: a subspace of convolutional layers is not completed."""
        raise SemistanError("the derivatives of a convolutional network have no ONNX graph")

    @staticmethod
    def stan_text(*, several: bool, predictors: bool, kernel: bool) -> StanText:  # noqa: ARG004
        """Refuse: Stan computes what is behind convolutional layers, not these."""
        raise SemistanError("a convolutional network has no Stan program")

    @staticmethod
    def stan_sizes(parts: Sequence[Any]) -> dict[str, Any]:  # noqa: ARG004
        """Refuse, as ``stan_text``."""
        raise SemistanError("a convolutional network has no Stan program")

    @property
    def _of_convolutions(self) -> int:
        """Number of weights of the convolutional layers."""
        return self.d - self.top.d

    def _images(self, w: Tensor, u: Tensor, depth: int) -> list[Tensor]:
        """Return the images (N, channels, height, width) before and behind so many convolutions."""
        h = u.reshape(-1, *self.shape)
        if u.dtype == torch.float32:  # which PyTorch convolves faster with channels side by side
            h = h.contiguous(memory_format=torch.channels_last)
        w, found = w.to(u.dtype), [h]
        for layer, size in zip(self.layers()[:depth], self.sizes, strict=False):
            kernels = w[layer.weights].reshape(layer.n, size.before[0], self.kernel, self.kernel)
            z = torch.nn.functional.conv2d(found[-1], kernels, w[layer.biases])
            # Activations are monotone, so that those of the maxima are enough.
            most = torch.nn.functional.max_pool2d(z, self.pooling)
            found.append(activate(most, self.activation))
        return found

    def _onnx_convolved(self, graph: Graph, w: str, u: str, start: int, depth: int) -> str:
        """Write the last of ``_images`` down, flat, for weights (S, d): (S, N, numbers).

        A convolution is a product of patches, since onnxruntime has none in double precision.
        """
        h = graph.apply("Unsqueeze", u, graph.constant(np.array([0])))
        for layer, size in zip(self.layers(start)[:depth], self.sizes, strict=False):
            taken = graph.apply(
                "Gather", h, graph.constant(patches(size.before, self.kernel)), axis=2
            )
            matrix = graph.apply(
                "Reshape",
                graph.part(w, layer.weights),
                graph.constant(np.array([-1, 1, layer.n, layer.m])),
            )
            product = graph.apply("MatMul", taken, graph.transposed(matrix))
            biases = graph.constant(np.array([-1, 1, 1, layer.n]))
            bias = graph.apply("Reshape", graph.part(w, layer.biases), biases)
            z = graph.apply("Add", product, bias)
            by_channel = graph.transposed(z)
            flat = graph.constant(np.array([0, 0, prod(size.convolved)]))
            squares = graph.constant(maxima(size, self.pooling))
            pooled = graph.apply(
                "Gather", graph.apply("Reshape", by_channel, flat), squares, axis=2
            )
            most = graph.apply("ReduceMax", pooled, axes=[3], keepdims=0)
            h = onnx_activation(graph, most, self.activation)
        return h


def patches(shape: Shape, kernel: int) -> np.ndarray:
    """Return where an image has the numbers of each patch, (patches, channels * kernel^2)."""
    channels, height, width = shape
    where = np.arange(prod(shape)).reshape(shape)
    windows = np.lib.stride_tricks.sliding_window_view(where, (channels, kernel, kernel))
    return windows.reshape((height - kernel + 1) * (width - kernel + 1), -1)


def maxima(size: Size, pooling: int) -> np.ndarray:
    """Return where a convolved image has the numbers of each square, (squares, pooling^2)."""
    channels, height, width = size.after
    where = np.arange(prod(size.convolved)).reshape(size.convolved)
    cut = where[:, : height * pooling, : width * pooling]
    squares = cut.reshape(channels, height, pooling, width, pooling).transpose(0, 1, 3, 2, 4)
    return squares.reshape(-1, pooling**2)
