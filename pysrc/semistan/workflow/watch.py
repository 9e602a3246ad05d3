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
        Called with the epoch, the training and the validation loss; where several subspaces are
        trained, with the epochs of all of them.
    chains : callable, optional
        Called with the chain, the iteration and their number, by methods that iterate.
    """

    say: Say = silent
    reading: Reading | None = None
    training: Progress | None = None
    chains: ChainProgress | None = None

    @property
    def listens(self) -> bool:
        """Whether anybody reads the lines."""
        return self.say is not silent


NOBODY = Watch()
