"""What a network takes: the protocol of every kind of inputs, and what is the same for most.

A kind learns its state from a column or more of the training rows, makes numbers (N, Q) of any
rows, and says which network takes them by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.networks.architecture import Architecture
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.residual import Residual
from semistan.model.table.columns import Learnt

if TYPE_CHECKING:
    import pandas as pd

    from semistan.model.config import NetworkConfig
    from semistan.model.formula.formula import Formula, Network
    from semistan.model.formula.images import Image
    from semistan.model.table.trunk_file import TrunkFile


class Inputs(Learnt, Protocol):
    """What is learnt of one network's inputs.

    Attributes
    ----------
    terms, columns, levels, transforms, loc, scale
        As of ``Terms``.
    shape : tuple of int
        Of the inputs of a row.
    pixels_of : Image, optional
        The images whose pixels they are, of inputs that can be drawn.
    trunks : dict
        The file that made the numbers of a column, if one did.
    made_by : str
        What made the numbers of the rows, in words, if the fit does not have it.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def pixels_of(self) -> Image | None: ...  # noqa: D102
    @property
    def trunks(self) -> dict[str, TrunkFile]: ...  # noqa: D102
    @property
    def made_by(self) -> str: ...  # noqa: D102

    def numbers(self, table: pd.DataFrame) -> Array:
        """Return the numbers (N, Q) of rows of a canonical table, in the user's units.

        Raises
        ------
        InputError
            If a row has none.
        """

    def architecture(self, options: NetworkConfig, outputs: int) -> Architecture:
        """Return the network that takes them, as its options say.

        Raises
        ------
        InputError
            If the options ask for one that cannot.
        """

    def to_plain(self) -> dict[str, Any]:
        """Return them as JSON-ready data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKind:
    """How a kind of inputs is recognised, learnt and stored.

    Attributes
    ----------
    takes : callable
        Whether the inputs of a network in the formula are of this kind.
    learn : callable
        Maps the network and the training rows to what is learnt, and the numbers (N, Q).
    from_plain : callable
        Maps what ``to_plain`` returned, which may come from anybody, and formula and network to
        what is learnt; raises KeyError, TypeError, AttributeError or ValueError for what is none.
    """

    takes: Callable[[Network], bool]
    learn: Callable[[Network, pd.DataFrame], tuple[Inputs, Array]]
    from_plain: Callable[[Mapping[str, Any], Formula, Network], Inputs]


class Vectors:
    """What is the same for kinds whose rows are vectors of numbers; of no use by itself."""

    __slots__ = ()

    terms: tuple[str, ...]
    loc: tuple[float, ...]

    @property
    def levels(self) -> dict[str, list[Any]]:
        """None, as numbers have."""
        return {}

    @property
    def transforms(self) -> dict[str, Any]:
        """None."""
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        """As many numbers as there are."""
        return (len(self.loc),)

    @property
    def pixels_of(self) -> Image | None:
        """None."""
        return None

    @property
    def trunks(self) -> dict[str, TrunkFile]:
        """None."""
        return {}

    @property
    def made_by(self) -> str:
        """Nothing but the table."""
        return ""

    @property
    def no_images(self) -> str:
        """Why they are no images, and what to do, for a message."""
        return (
            f"the inputs of nn({', '.join(self.terms)}) are no images; write nn(image(path)), or "
            "choose kind = 'mlp'"
        )

    def architecture(self, options: NetworkConfig, outputs: int) -> Architecture:
        """Return a fully connected network."""
        if options.kind == "conv":
            raise InputError(f"network.kind is 'conv', but {self.no_images}")
        return fully_connected(len(self.loc), options, outputs)


def fully_connected(n_inputs: int, options: NetworkConfig, outputs: int) -> Architecture:
    """Return a fully connected network, as its options say."""
    layers = n_inputs, options.hidden, options.activation
    if options.skip or options.norm:
        return Residual(*layers, options.skip, options.norm, outputs=outputs)
    return FullyConnected(*layers, outputs=outputs)
