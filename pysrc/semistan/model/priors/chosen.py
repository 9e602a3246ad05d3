"""What a term may ask of the priors that the user chose, wherever these are written."""

from __future__ import annotations

from typing import Protocol


class ChosenPriors(Protocol):
    """The section ``[priors]``, as terms know it."""

    @property
    def coefficients(self) -> dict[str, str]:
        """The priors of single coefficients and scalars, by their names."""

    def chosen(self, own: str, *keys: str, default: str = "") -> tuple[str, str]:
        """Return a parameter's prior and its source: its own, or that of the first key with one."""
