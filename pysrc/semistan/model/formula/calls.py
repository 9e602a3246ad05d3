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
    others : tuple of str
        Its other arguments.
    by : str
        The column by which it varies, empty without.
    predicted_by : tuple of str
        The terms of what stands behind a comma for it: ``z`` of ``x | mi() ~ z`` for ``mi(x)``.
    """

    kind: str
    expression: str
    options: tuple[tuple[str, Any], ...] = ()
    others: tuple[str, ...] = ()
    by: str = ""
    predicted_by: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """All arguments."""
        return (self.expression, *self.others)

    @property
    def text(self) -> str:
        """The call without its options."""
        by = (f"by={self.by}",) if self.by else ()
        return f"{self.kind}({', '.join([*self.arguments, *by])})"

    @property
    def naming(self) -> str:
        """What its names in Stan are made of, as in brms: ``sxg`` of ``s(x, by=g)``."""
        return f"{self.kind}({''.join([*self.arguments, self.by])})"

    def option(self, name: str, default: Any) -> Any:
        """Return the value of an option, or the default if it is left out."""
        return dict(self.options).get(name, default)
