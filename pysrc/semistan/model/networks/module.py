"""A ``torch.nn.Module`` of the user's, evaluated at flat weights.

Its weights are the parameters that require gradients, one after the other in the order of
``named_parameters``. What else it holds, its other parameters and its buffers, are constants. No
file holds the module itself, since reading it would run whatever code it contains: an architecture
that was read from a file knows sizes and names alone until it is given the module again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from semistan.errors import InputError, SemistanError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.networks.architecture import Architecture, Graph, Layer, StanText

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module

NUMBERS = 4_000_000  # of the widest layer that are held at a time, for derivatives row by row
RESETS = ("reset_parameters", "_reset_parameters")  # PyTorch's names of a layer's initialisation


@dataclass(frozen=True, slots=True)
class ModuleNetwork:
    """A module with one output, as ``Architecture`` says.

    Attributes
    ----------
    name : str
        That of the formula.
    shape : tuple of int
        Shape of a row's inputs: (Q,), or channels, height and width of an image.
    parameters : tuple of pairs
        Names and shapes of the weights.
    output : str
        The name, within the module, of the linear layer that computes the output.
    widest : int
        Numbers of the largest layer for each row, inputs included.
    batches : bool
        Whether PyTorch's ``vmap`` can compute it; otherwise several weight vectors, and the rows'
        derivatives, are computed one by one.
    values : tuple of float
        Its outputs at weights and inputs that are always the same, which show whether another
        module computes the same.
    code : torch.nn.Module, optional
        The module in double precision; None until it is given again.
    """

    name: str
    shape: tuple[int, ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    output: str = ""
    widest: int = 0
    batches: bool = True
    values: tuple[float, ...] = ()
    code: Module | None = field(default=None, compare=False, repr=False)
    activation: ClassVar[str] = ""
    outputs: ClassVar[int] = 1
    in_stan: ClassVar[bool] = False
    also: ClassVar[tuple[type, ...]] = ()

    @property
    def n_inputs(self) -> int:
        """Number of inputs Q, or numbers of an image."""
        return prod(self.shape)

    @property
    def sizes(self) -> list[int]:
        """Number of weights of each parameter."""
        return [prod(shape) for _, shape in self.parameters]

    @property
    def d(self) -> int:
        """Number of weights."""
        return sum(self.sizes)

    @property
    def text(self) -> str:
        """The module's name."""
        return f"module '{self.name}'"

    def layers(self, start: int = 0) -> list[Layer]:
        """Return the parameters of two or more dimensions with the biases behind them.

        The inputs of such a layer are the numbers in which one of its units has a weight each. The
        last one is the output layer, wherever its weights are.
        """
        ends = list(accumulate(self.sizes, initial=start))
        places = [slice(*pair) for pair in pairwise(ends)]
        found = []
        for i, (name, shape) in enumerate(self.parameters):
            if len(shape) > 1:
                biases = places[i + 1] if self._has_bias(i) else slice(ends[i + 1], ends[i + 1])
                layer = Layer(places[i], biases, prod(shape[1:]), shape[0])
                found.append((owner(name) == self.output, layer))
        return [layer for _, layer in sorted(found, key=lambda pair: pair[0])]

    def head(self, frozen: int) -> Architecture:
        """Return the module itself: which of its layers come first is not known."""
        if frozen:
            raise InputError(
                f"frozen must be 0 for {self.text}, whose order of layers is not known, got "
                f"{frozen}; parameters of the module that are to be constants are those that do "
                "not require gradients: parameter.requires_grad_(False)"
            )
        return self

    def features(self, w: Tensor, u: Tensor, frozen: int) -> Tensor:  # noqa: ARG002
        """Return the inputs: no leading layer is constant."""
        return u

    def initial(self, generator: Generator) -> Tensor:
        """Draw weights as the module's layers do when they are made, by ``reset_parameters``.

        Parameters without such a method are drawn around their own values, with the standard
        deviation that these have.
        """
        fresh, before = deepcopy(self.known), dict(self.known.named_parameters())
        with seeded(int(torch.randint(2**31, (1,), generator=generator))), torch.no_grad():
            for part in fresh.modules():
                reset = next((getattr(part, name) for name in RESETS if hasattr(part, name)), None)
                if reset is not None:
                    reset()
            return torch.cat(
                [_drawn(fresh.get_parameter(name), before[name]) for name, _ in self.parameters]
            )

    def forward(self, w: Tensor, u: Tensor) -> Tensor:
        """Evaluate the module; several weight vectors by ``vmap``, or one by one."""
        if w.ndim == 1:
            return self.called(w, u).reshape(len(u), 1)
        flat = w.reshape(-1, w.shape[-1])
        found = self._each(lambda one: self.forward(one, u), flat)
        return found.reshape(*w.shape[:-1], len(u), 1)

    def called(self, w: Tensor, u: Tensor) -> Tensor:
        """Return what the module returns at weights (d,) for inputs (N, Q)."""
        code = self.known
        pieces = zip(self.parameters, torch.split(w, self.sizes), strict=True)
        values = {name: piece.reshape(shape) for (name, shape), piece in pieces}
        for name, constant in _constants(code):
            values[name] = constant.to(w.device)
        inputs = u.to(w.dtype).reshape(-1, *self.shape)
        found: Tensor = torch.func.functional_call(code, values, (inputs,))
        return found

    def layer_inputs(self, w: Tensor, u: Tensor) -> list[Tensor]:
        """Return the inputs of the output layer alone; those of other layers are not known.

        The output is linear in that layer's weights, so that these are its derivatives.
        """
        return [self._derivatives(w, u, self.layers()[-1].weights)[1]]

    def output_and_jacobian(
        self,
        w: Tensor,
        u: Tensor,
        output: int,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Return the output and its derivatives, row by row."""
        return self._derivatives(w, u, slice(0, self.d))

    def derivatives_along(self, w: Tensor, u: Tensor, output: int, V: Tensor) -> Tensor:
        """Return the derivatives along directions, by those by each weight."""
        return self.output_and_jacobian(w, u, output)[1] @ V

    def onnx_features(self, graph: Graph, w: Array, u: str, frozen: int) -> str:  # noqa: ARG002
        """Refuse: a module has no graph."""
        raise SemistanError(f"{self.text} has no ONNX graph")

    def onnx(self, graph: Graph, w: str, u: str, start: int) -> str:  # noqa: ARG002
        """Refuse, as ``onnx_features``."""
        raise SemistanError(f"{self.text} has no ONNX graph")

    def onnx_along(self, graph: Graph, at: Array, v: str, u: str, start: int) -> str:  # noqa: ARG002
        """Refuse, as ``onnx_features``."""
        raise SemistanError(f"{self.text} has no ONNX graph")

    @staticmethod
    def stan_text(*, several: bool, predictors: bool, kernel: bool) -> StanText:  # noqa: ARG004
        """Refuse: Stan computes no module."""
        raise SemistanError("a module has no Stan program")

    @staticmethod
    def stan_sizes(parts: Sequence[Any]) -> dict[str, Any]:  # noqa: ARG004
        """Refuse, as ``stan_text``."""
        raise SemistanError("a module has no Stan program")

    @property
    def known(self) -> Module:
        """The module.

        Raises
        ------
        InputError
            If it has not been given.
        """
        if self.code is None:
            raise InputError(
                f"the network is {self.text}, a torch.nn.Module that is not in the files; read "
                "them in Python with the module: semistan.read_fit(path, "
                f"networks={{'{self.name}': module}})"
            )
        return self.code

    def _has_bias(self, i: int) -> bool:
        """Say whether the parameter behind the i-th one holds the biases of the same layer."""
        (name, shape), *behind = self.parameters[i : i + 2]
        return [(owner(other), size) for other, size in behind] == [(owner(name), shape[:1])]

    def _each(self, function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        if not self.batches:
            return torch.stack([function(value) for value in values])
        found: Tensor = torch.func.vmap(function)(values)
        return found

    def _derivatives(self, w: Tensor, u: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        """Return the output (N,) and its derivatives by some of the weights, row by row."""
        before, own, after = w.detach().tensor_split((part.start, part.stop))

        def output(at: Tensor, row: Tensor) -> Tensor:
            return self.forward(torch.cat([before, at, after]), row[None])[0, 0]

        def both(row: Tensor) -> Tensor:
            slopes, value = torch.func.grad_and_value(output)(own, row)
            return torch.cat([value[None], slopes])

        size = max(1, NUMBERS // max(self.widest, self.d))
        found = torch.cat([self._each(both, rows) for rows in torch.split(u, size)])
        return found[:, 0], found[:, 1:]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's global generator, and leave it as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def owner(parameter: str) -> str:
    """Return the name of the layer that has a parameter: ``body.0`` of ``body.0.weight``."""
    return parameter.rpartition(".")[0]


def _constants(code: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield what a module holds beside its weights."""
    for name, parameter in code.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter
    yield from code.named_buffers()


def _drawn(fresh: Tensor, before: Tensor) -> Tensor:
    """Return values (n,) that a reset has drawn, or around the ones that it has left."""
    if not torch.equal(fresh, before):
        return fresh.reshape(-1)
    spread = before.std(correction=0)
    return (before + spread * torch.randn_like(before)).reshape(-1)
