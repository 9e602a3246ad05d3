"""What follows each hidden layer: the record of an activation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from semistan.model.arrays import Array
    from semistan.model.networks.architecture import Graph


class KernelText(NamedTuple):
    """An activation in the C++ kernel: statements on a vector of numbers, empty for nothing to do.

    The functions of ``stan/network_vectors.hpp`` are there, which write what they return into their
    last argument.

    Attributes
    ----------
    value : str
        Sets a, the activation at z.
    back : str
        Multiplies d by the slope, written in a: z is no longer known.
    """

    value: str
    back: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A function that follows each hidden layer, elementwise.

    Attributes
    ----------
    name : str
        As the user writes it.
    torch : callable
        Maps a tensor to its values.
    onnx : callable
        Writes that down: graph and name of z to the name of the values.
    onnx_slope : callable
        Writes the slope down: graph and name of z to the name of the slopes.
    stan, stan_slope : str
        Expressions of the values and of the slopes at a matrix Z.
    kernel : KernelText, optional
        The same in the C++ kernel; networks with an activation that it does not have are computed
        in Stan.
    ends : callable, optional
        Maps values (array) to the slope there over the steepest one, of a function that is flat at
        its ends, where units saturate.
    dead_at_zero : bool
        Whether a unit that is 0 at all rows no longer answers.
    """

    name: str
    torch: Callable[[Tensor], Tensor]
    onnx: Callable[[Graph, str], str]
    onnx_slope: Callable[[Graph, str], str]
    stan: str
    stan_slope: str
    kernel: KernelText | None = None
    ends: Callable[[Array], Array] | None = None
    dead_at_zero: bool = False


def one(graph: Graph) -> str:
    """Write the number 1 down."""
    import numpy as np  # here, because the command line's help reads the names alone

    return graph.constant(np.array(1.0))
