"""The constant leading layers of networks, and the heads behind them.

Leading layers are trained with the rest of their network first, and are constants from then on:
what they make of the inputs, the features, is what the Bayesian layers behind them, the heads, take
as inputs. So nothing but training, and what reads the inputs, knows of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from semistan.lazy import torch
from semistan.model.networks.architecture import Architecture
from semistan.model.networks.networks import Networks

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Leading:
    """The leading layers of one network, or of several side by side.

    Attributes
    ----------
    whole : Networks
        The networks with all their layers.
    frozen : tuple of int
        How many leading layers of each are constants.
    """

    whole: Networks
    frozen: tuple[int, ...]

    @property
    def heads(self) -> Networks:
        """The networks behind the leading layers."""
        heads = tuple(part.head(n) for part, n in self.parts)
        return replace(self.whole, parts=heads)

    @property
    def parts(self) -> Iterator[tuple[Architecture, int]]:
        """Each network with the number of its leading layers."""
        return zip(self.whole.parts, self.frozen, strict=True)

    @property
    def sizes(self) -> list[int]:
        """Number of constant weights of each network."""
        return [part.d - part.head(n).d for part, n in self.parts]

    @property
    def text(self) -> str:
        """The sizes of all layers, and how many are constants."""
        counts = " + ".join(map(str, self.frozen if len(set(self.frozen)) > 1 else self.frozen[:1]))
        activation = f", {self.whole.activation}" if self.whole.activation else ""
        return f"{self.whole.text}{activation}" + (f", {counts} frozen" if self.any else "")

    @property
    def any(self) -> bool:
        """Whether there are constant layers."""
        return any(self.frozen)

    def split(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Split the weights (d,) of the whole networks into constants and those of the heads."""
        own = zip(torch.split(w, list(self.whole.sizes)), self.sizes, strict=True)
        pieces = [(part[:used], part[used:]) for part, used in own]
        constants, heads = zip(*pieces, strict=True)
        return torch.cat(constants), torch.cat(heads)

    def features(self, w_frozen: Tensor, u: Tensor) -> Tensor:
        """Pass standardised inputs (N, Q) through the leading layers, to (N, m)."""
        inputs = torch.split(u, [part.n_inputs for part in self.whole.parts], dim=1)
        weights = torch.split(w_frozen, self.sizes)
        found = [
            part.features(w, own, n)
            for (part, n), w, own in zip(self.parts, weights, inputs, strict=True)
        ]
        return torch.cat(found, dim=1)
