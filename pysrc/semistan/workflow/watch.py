"""Who watches a long step, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semistan.data.pixels import Reading
    from semistan.infer.chain_store import ChainProgress
    from semistan.subspace.descent import Progress

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks of a step that takes long.

    Attributes
    ----------
    say : callable
        Receives one line for each thing that is done, found or dropped.
    reading : callable, optional
        Called with how many images of a column have been read, and how many there are.
    training : callable, optional
        Called with the epochs that are done, how many there are, the training and the validation
        loss; where several subspaces are trained side by side, with the epochs of all of them.
    chains : callable, optional
        Called with the chain, the iteration and their number, by methods that iterate.
    """

    say: Say = silent
    reading: Reading | None = None
    training: Callable[[int, int, float, float], None] | None = None
    chains: ChainProgress | None = None

    @property
    def listens(self) -> bool:
        """Whether anybody reads the lines."""
        return self.say is not silent

    def of_epochs(self, epochs: int) -> Progress | None:
        """Return what a training of so many epochs calls, if anybody is told."""
        if (tell := self.training) is None:
            return None
        return lambda epoch, loss, held_out: tell(epoch, epochs, loss, held_out)


NOBODY = Watch()
