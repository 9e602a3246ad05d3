"""What stands beside a bar: ``y | weights(w) + cens(c)`` and ``(1 + x | g)``.

A formula is split here before formulaic sees it. What is taken out is replaced by text of the
same length that adds nothing, so that places in the one are places in the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from semistan.model.formula.syntax import Span, formula_error, masked

ADDITIONS = ("weights", "trials", "se", "cens", "trunc")
GROUP_EXAMPLE = "(1 + x | g)"
ACROSS = "(1 | ID | g)"  # in several predictors


@dataclass(frozen=True, slots=True)
class GroupText:
    """Where a group-level term stands: all of it, its two sides, and whether the bar is single.

    What stands between two bars is its ID, which has no length where there is one.
    """

    whole: Span
    effects: Span
    group: Span
    correlated: bool
    id: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Bars:
    """A formula without its bars, and what stood beside them.

    Attributes
    ----------
    plain : str
        The formula without them, of the same length.
    additions : dict of spans
        The arguments of ``weights()``, ``trials()``, ``se()``, ``cens()`` and ``trunc()``.
    groups : tuple of GroupText
        The group-level terms.
    """

    plain: str
    additions: dict[str, Span]
    groups: tuple[GroupText, ...]


def split_bars(text: str) -> Bars:
    """Take everything with a bar out of a formula.

    Raises
    ------
    InputError
        With the place of a bar that is neither behind the response nor in a term of its own.
    """
    plain = masked(text)
    if (tilde := plain.find("~")) < 0:  # which is refused elsewhere
        return Bars(text, {}, ())
    additions: dict[str, Span] = {}
    groups: list[GroupText] = []
    kept = text
    for match in re.finditer(r"\|\|?", plain):
        start, end = match.span()
        if groups and start < groups[-1].whole[1]:  # the second bar of (1 | ID | g)
            continue
        if start < tilde:
            if match[0] == "||" or additions:
                raise formula_error(text, "expected one '|' left of '~'", (start, end))
            additions = _additions(text, plain, end, tilde)
            kept = kept[:start] + " " * (tilde - start) + kept[tilde:]
        else:
            group = _group(text, plain, (start, end), tilde)
            head, (first, last) = kept[: group.whole[0]].rstrip(), group.whole
            # A 1 would add the intercept again that "0 +" takes away: its "+" goes too.
            head, filler = (head[:-1], "") if head.endswith("+") else (kept[:first], "1")
            kept = head + filler.ljust(last - len(head)) + kept[last:]
            groups.append(group)
    return Bars(kept, additions, tuple(groups))


NO_THRES = (
    "thres() is not available: thresholds differ between groups where their distances have a "
    "predictor, as y ~ g + x, gap ~ g; a number of categories goes into the family, "
    "as cumulative(logit, 4)"
)

NO_BHAZ = (
    "bhaz() is not available: strata have baseline hazards of their own where its parameters have "
    "a predictor, as y | cens(c) ~ g + x, bhaz ~ g; df and knots go into the family, as cox(df=7)"
)


NO_MISSING_RESPONSE = (
    "mi() left of '~' is for columns on its right, as y ~ mi(x) + nn(u), x | mi() ~ z; a row "
    "without its response says nothing of the coefficients: leave it out by --drop-missing, and "
    "predict it afterwards"
)


def _additions(text: str, plain: str, start: int, end: int) -> dict[str, Span]:
    """Read ``weights(w) + trials(n)`` between two places."""
    found: dict[str, Span] = {}
    for first, last in split_at(plain, start, end, "+"):
        call = re.fullmatch(r"(\w*)\s*\((.*)\)", plain[first:last], re.DOTALL)
        inside = first + (call.start(2) if call else 0)
        closed = enclosing(plain, (inside, inside), first)[1] == last
        if call and call[1] == "thres":
            raise formula_error(text, NO_THRES, (first, last))
        if call and call[1] == "bhaz":
            raise formula_error(text, NO_BHAZ, (first, last))
        if call and call[1] == "mi":
            raise formula_error(text, NO_MISSING_RESPONSE, (first, last))
        if call is None or call[1] not in ADDITIONS or not closed:
            raise formula_error(
                text,
                "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub) between '|' and "
                "'~', as y | cens(c) ~ ...",
                (first, max(last, first + 1)),
            )
        if call[1] in found:
            raise formula_error(text, f"expected one {call[1]}()", (first, last))
        found[call[1]] = _stripped(plain, first + call.start(2), first + call.end(2))
    return found


def _group(text: str, plain: str, bar: Span, tilde: int) -> GroupText:
    start, end = enclosing(plain, bar, tilde)
    alone = f"a group-level term stands by itself in parentheses, as y ~ x + {GROUP_EXAMPLE}"
    named = re.compile(r"\s*(\w+)\s*\|(?!\|)").match(plain, bar[1])
    opening, identity = bar, (0, 0)
    if named and bar[1] - bar[0] == 1:
        bar, identity = (bar[0], named.end()), named.span(1)
    if start < 0 or "|" in plain[start : bar[0]] or "|" in plain[bar[1] : end]:
        raise formula_error(text, alone, opening)
    before, after = plain[tilde:start].rstrip(), plain[end:].lstrip()
    within = before.count("(") != before.count(")")
    if within or before[-1] not in "~+" or (after and after[0] not in "+-"):
        raise formula_error(text, alone, (start, end))
    effects, group = _stripped(plain, start + 1, bar[0]), _stripped(plain, bar[1], end - 1)
    for (first, last), what in ((effects, "1 or a column"), (group, "a column")):
        if first >= last:
            message = f"expected {what} here, as {GROUP_EXAMPLE}"
            raise formula_error(text, message, (first, first + 1))
    return GroupText((start, end), effects, group, opening[1] - opening[0] == 1, identity)


def enclosing(plain: str, bar: Span, tilde: int) -> Span:
    """Return the span of the innermost parentheses around a bar, or (-1, -1)."""
    depth, start = 0, bar[0] - 1
    while start > tilde and not (plain[start] == "(" and depth == 0):
        depth += {")": 1, "(": -1}.get(plain[start], 0)
        start -= 1
    depth, end = 0, bar[1]
    while end < len(plain) and not (plain[end] == ")" and depth == 0):
        depth += {"(": 1, ")": -1}.get(plain[end], 0)
        end += 1
    return (start, end + 1) if start > tilde and end < len(plain) else (-1, -1)


def split_at(plain: str, start: int, end: int, separator: str) -> list[Span]:
    """Split at a separator outside parentheses; return the spans without blanks."""
    edges, depth = [start], 0
    for position in range(start, end):
        depth += {"(": 1, ")": -1}.get(plain[position], 0)
        if plain[position] == separator and depth == 0:
            edges += [position, position + 1]
    edges.append(end)
    return [_stripped(plain, *edges[i : i + 2]) for i in range(0, len(edges), 2)]


def _stripped(plain: str, start: int, end: int) -> Span:
    part = plain[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())
