"""A call that is a term of its own, as ``s(x, k=10)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TermCall:
    """What stands in the formula.

    Attributes
    ----------
    kind : str
        The function: ``s``.
    expression : str
        Its argument.
    options : tuple of pairs
        Names and values of the options, as written.
    """

    kind: str
    expression: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """The call without its options."""
        return f"{self.kind}({self.expression})"

    def option(self, name: str, default: Any) -> Any:
        """Return the value of an option, or the default if it is left out."""
        return dict(self.options).get(name, default)
