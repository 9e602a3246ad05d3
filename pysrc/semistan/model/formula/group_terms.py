"""Group-level terms as they are written: ``(1 + x | g)``, ``gr(g, by=h)``, ``mm(g1, g2)``, ..."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from semistan.model.formula.arguments import argument, truth
from semistan.model.formula.bars import ACROSS, GroupText, split_at
from semistan.model.formula.expression import (
    as_python,
    is_call_of,
    parse_sides,
    split_outside,
    unique,
    variables,
)
from semistan.model.formula.syntax import (
    Span,
    check_expression,
    check_part,
    formula_error,
    masked,
    term_calls,
)
from semistan.model.terms.kinds import how_to_vary

MEMBERS = (
    "two columns or more, and as options weights and scale, as "
    "mm(g1, g2, weights=cbind(w1, w2), scale=FALSE)"
)


@dataclass(frozen=True, slots=True)
class Members:
    """How ``mm(g1, g2, weights=cbind(w1, w2), scale=TRUE)`` adds up the effects of a row's levels.

    Attributes
    ----------
    weights : tuple of str
        What the effects of each column's level are multiplied with; empty if all are alike.
    scaled : bool
        Whether the weights of a row are divided by their sum.
    """

    weights: tuple[str, ...] = ()
    scaled: bool = True

    def text(self, columns: tuple[str, ...]) -> str:
        """Return the call as users write it."""
        weights = [f"weights=cbind({', '.join(self.weights)})"] if self.weights else []
        return f"mm({', '.join([*columns, *weights, *([] if self.scaled else ['scale=FALSE'])])})"


@dataclass(frozen=True, slots=True)
class GroupTerm:
    """``(1 + x | g)``.

    Attributes
    ----------
    text : str
        The term as written.
    intercept : bool
        Whether the level's intercept varies.
    terms : tuple of str
        The terms whose coefficients vary.
    by : tuple of str
        The columns whose combinations are the levels.
    correlated : bool
        Whether the coefficients' correlations are sampled (one bar, not two).
    per : str
        The column for each of whose levels there are standard deviations of their own, as in
        ``gr(g, by=h)``; empty without.
    cov : str
        The file with the covariances of the levels, as of ``gr(g, cov='A.csv')``; empty without.
    members : Members, optional
        What ``mm(g1, g2)`` says of the columns, in each of which a row has a level.
    id : str
        As of ``(1 | ID | g)``: what terms of several predictors share whose effects are correlated.
    """

    text: str
    intercept: bool
    terms: tuple[str, ...]
    by: tuple[str, ...]
    correlated: bool
    per: str = ""
    cov: str = ""
    members: Members | None = None
    id: str = ""

    @property
    def kind(self) -> str:
        """Which of ``per``, ``cov`` and ``members`` it has; empty of columns by themselves."""
        return next((name for name in ("per", "cov", "members") if getattr(self, name)), "")

    @property
    def behind_bar(self) -> str:
        """What stands behind the bar."""
        if self.members:
            return self.members.text(self.by)
        if self.per or self.cov:
            return gr_text(self.by, self.per, self.cov)
        return with_id(self.id, ":".join(self.by))

    @property
    def expressions(self) -> tuple[str, ...]:
        """What it uses besides levels."""
        return (*self.terms, *(self.members.weights if self.members else ()))

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns that the term uses."""
        return unique((*(v for term in self.expressions for v in variables(term)), *self.levels_of))

    @property
    def levels_of(self) -> tuple[str, ...]:
        """Columns whose levels it uses."""
        return (*self.by, self.per) if self.per else self.by


def group_term(group: GroupText, text: str) -> GroupTerm:
    """Read both sides of a group-level term."""
    (start, end), (first, last) = group.effects, group.group
    source = masked(text)
    check_part(text, source, start, end)
    _, terms = parse_sides(f"~ {text[start:end]}", text)
    for term in terms:
        if called := next((name for name in term_calls() if is_call_of(term, name)), None):
            message = f"{called}() cannot vary by group{how_to_vary(called)}"
            raise formula_error(text, message, (start, end))
        for factor in term:
            check_expression(as_python(factor, text)[0], text)
    levels = _levels((first, last), text)
    effects = tuple(":".join(term) for term in terms if term not in (("1",), ("0",)))
    if not terms:
        raise formula_error(text, "expected 1 or a column before the bar", (start, end))
    whole, identity = text[slice(*group.whole)], text[slice(*group.id)].strip("`")
    found = GroupTerm(
        whole, ("1",) in terms, effects, correlated=group.correlated, id=identity, **levels
    )
    if identity and found.kind:
        message = f"an ID stands before a column, as {ACROSS}; gr() and mm() have none"
        raise formula_error(text, message, group.whole)
    return found


def with_id(identity: str, label: str) -> str:
    """Write what stands behind the bar: ``ID | g``, or ``g``."""
    return f"{identity} | {label}" if identity else label


def gr_text(by: tuple[str, ...], per: str = "", cov: str = "") -> str:
    """Write ``gr(g, by=h)`` or ``gr(g, cov='A.csv')``."""
    return f"gr({':'.join(by)}, {f'by={per}' if per else f'cov={cov!r}'})"


def _levels(span: Span, text: str) -> dict[str, Any]:
    """Read what stands behind the bar: the columns, and what ``gr()`` or ``mm()`` says of them."""
    source = masked(text)
    call = re.fullmatch(r"mm\s*\((.*)\)", source[slice(*span)])
    if call:
        return _members((span[0] + call.start(1), span[0] + call.end(1)), text)
    (first, last), options = _of_gr(source, span, text)
    if not re.fullmatch(r"\w+(\s*@\s*\w+)*", source[first:last]) or source[first].isdigit():
        raise formula_error(
            text, "expected a column, or several as g:h, behind the bar", (first, last)
        )
    by = tuple(name.strip("`") for name in split_outside(text[first:last], ":"))
    return {"by": by, **options}


def _members(inside: Span, text: str) -> dict[str, Any]:
    """Read the arguments of ``mm()``."""
    source, takes = masked(text), f"mm() takes {MEMBERS}"
    columns: list[str] = []
    weights: tuple[str, ...] = ()
    scaled: bool | None = True
    for start, end in split_at(source, *inside, ","):
        written = source[start:end]
        call = re.fullmatch(r"weights\s*=\s*cbind\s*\((.*)\)", written)
        if call and not weights:
            spans = split_at(source, start + call.start(1), start + call.end(1), ",")
            weights = tuple(argument(span, takes, text) for span in spans)
        elif re.match(r"scale\s*=", written):
            scaled = truth("scale", written)
        elif re.fullmatch(r"(?!\d)\w+", written) and not weights:
            columns.append(text[start:end].strip("`"))
        else:
            raise formula_error(text, takes, (start, max(end, start + 1)))
    if scaled is None or len({*columns}) < 2 or len({*columns}) < len(columns):
        raise formula_error(text, takes, inside)
    if weights and len(weights) != len(columns):
        message = f"mm() has {len(columns)} columns and {len(weights)} weights; give each one"
        raise formula_error(text, message, inside)
    return {"by": tuple(columns), "members": Members(weights, scaled)}


def _of_gr(source: str, span: Span, text: str) -> tuple[Span, dict[str, str]]:
    """Return where ``gr()`` has the group, and its option; the whole and nothing without."""
    first, last = span
    by, cov = r"by\s*=\s*(?P<by>\w+)", r"cov\s*=\s*(?P<quote>['\"])(?P<cov>.+)(?P=quote)"
    call = re.fullmatch(rf"gr\s*\(\s*([^,]*?)\s*,\s*(?:{by}|{cov})\s*\)", source[first:last])
    if call is None:
        return span, {}
    name = "by" if call["by"] else "cov"
    value = text[first + call.start(name) : first + call.end(name)].strip("`")
    return (first + call.start(1), first + call.end(1)), {{"by": "per"}.get(name, name): value}
