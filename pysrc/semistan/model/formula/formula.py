"""Read ``y | weights(w) ~ x1 + C(g) + s(x2) + offset(z) + (1 | h) + nn(u1, u2)`` into its parts.

Behind commas stand the predictors of dispersion parameters: ``y ~ x + nn(u), sigma ~ z + nn(u)``.
formulaic parses the text; ``syntax.py`` says what may stand in it, so that a formula from a file
cannot run arbitrary code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import Any, TypeVar

from semistan.errors import InputError
from semistan.model.formula.bars import Bars, GroupText, split_bars
from semistan.model.formula.syntax import (
    DAYS,
    EXAMPLE,
    TERM_CALLS,
    check_expression,
    check_part,
    check_text,
    formula_error,
    located,
    masked,
)
from semistan.model.spelling import spelled, unmarked

Part = TypeVar("Part")
DEFAULT_BASIS = 10  # dimension of a smooth's basis, as in mgcv


@dataclass(frozen=True, slots=True)
class SmoothTerm:
    """``s(x, k)``: the expression and the dimension of its basis."""

    expression: str
    k: int = DEFAULT_BASIS


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
    """

    text: str
    intercept: bool
    terms: tuple[str, ...]
    by: tuple[str, ...]
    correlated: bool

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns that the term uses."""
        return _unique((*(v for term in self.terms for v in variables(term)), *self.by))


@dataclass(frozen=True, slots=True)
class ParameterFormula:
    """``sigma ~ z + nn(u)``: the predictor of a dispersion parameter's logarithm.

    Attributes
    ----------
    name : str
        The parameter.
    structured : tuple of str
        The terms whose coefficients are interpreted.
    networks : tuple of tuple of str
        The arguments of each ``nn()``.
    """

    name: str
    structured: tuple[str, ...]
    networks: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula's parts, each still text.

    Attributes
    ----------
    text : str
        The formula as written.
    response : str
        The expression left of ``~``.
    structured : tuple of str
        The terms whose coefficients are interpreted.
    networks : tuple of tuple of str
        The arguments of each ``nn()``: those of the response's mean, then each parameter's.
    offsets : tuple of str
        What is added to the linear predictor as it is.
    smooths : tuple of SmoothTerm
        Penalised splines; their straight parts are among the structured terms.
    groups : tuple of GroupTerm
        Group-level terms.
    weights, trials : str
        Arguments of ``weights()`` and ``trials()``, empty without.
    parameters : tuple of ParameterFormula
        The predictors of dispersion parameters.
    """

    text: str
    response: str
    structured: tuple[str, ...]
    networks: tuple[tuple[str, ...], ...]
    offsets: tuple[str, ...] = ()
    smooths: tuple[SmoothTerm, ...] = ()
    groups: tuple[GroupTerm, ...] = ()
    weights: str = ""
    trials: str = ""
    parameters: tuple[ParameterFormula, ...] = ()

    @property
    def mean_networks(self) -> tuple[tuple[str, ...], ...]:
        """The arguments of each ``nn()`` of the response's mean."""
        return self.networks[: len(self.networks) - sum(len(p.networks) for p in self.parameters)]

    @property
    def parameter_variables(self) -> tuple[str, ...]:
        """Columns that the structured terms of dispersion parameters use."""
        terms = (term for parameter in self.parameters for term in parameter.structured)
        return _unique(v for term in terms for v in variables(term))

    @property
    def network(self) -> tuple[str, ...]:
        """The arguments of all ``nn()``, in order."""
        return tuple(term for network in self.networks for term in network)

    @property
    def structured_variables(self) -> tuple[str, ...]:
        """Columns that the structured terms use."""
        return _unique(v for term in self.structured for v in variables(term))

    @property
    def network_variables(self) -> tuple[str, ...]:
        """Columns that the networks use."""
        return _unique(v for term in self.network for v in variables(term))

    @property
    def dated(self) -> tuple[str, ...]:
        """Columns of dates that ``days()`` turns into numbers."""
        effects = (term for group in self.groups for term in group.terms)
        further = (term for parameter in self.parameters for term in parameter.structured)
        every = (*self.structured, *self.network, *self.offsets, *effects, *further)
        return _unique(d for term in every for d in dated(term))

    @property
    def predictors(self) -> tuple[str, ...]:
        """All columns needed to predict."""
        known = (*self.offsets, *([self.trials] if self.trials else []))
        return _unique(
            (
                *self.structured_variables,
                *self.network_variables,
                *(v for expression in known for v in variables(expression)),
                *(v for group in self.groups for v in group.variables),
                *self.parameter_variables,
            )
        )

    @property
    def outcome(self) -> tuple[str, ...]:
        """Columns of the response and its weights, not needed to predict."""
        weights = variables(self.weights) if self.weights else ()
        return _unique((*variables(self.response), *weights))


def parse_formula(text: str) -> Formula:
    """Parse a formula with at least one ``nn()`` term.

    Raises
    ------
    InputError
        If the text is no formula, calls an unlisted function, has no response or has it among
        the predictors, removes the intercept, or has no ``nn()`` term or two with the same
        arguments.
    """
    try:
        formula = _all_parts(text)
    except (RecursionError, MemoryError):  # the latter from Python's parser
        raise InputError(
            f"the formula '{text[:60]} ...' is too long or too deeply nested to be read"
        ) from None
    _check_response(formula)
    return formula


def with_predictors(text: str, names: Iterable[str]) -> str:
    """Add predictors behind commas, with the mean's terms, of parameters that have none."""
    spans, source = _spans(text), masked(text)
    written = {text[start:end].partition("~")[0].strip() for start, end in spans[1:]}
    start, end = spans[0]
    terms = text[start + source[start:end].index("~") + 1 : end].strip()
    return ", ".join([text, *(f"{name} ~ {terms}" for name in names if name not in written)])


def check_term(term: str, text: str) -> None:
    """Refuse a term that is anything but columns, arithmetic and the listed functions.

    Raises
    ------
    InputError
        With its place in the formula.
    """
    for factor in factors(term):
        check_expression(_python(factor, text)[0], text)


def variables(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``log(x):C(g)`` uses, in order."""
    tree, quoted = _python("*".join(factors(expression)), expression)
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    roots = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in functions | roots
    ]
    return _in_order(names, quoted)


def dated(expression: str) -> tuple[str, ...]:
    """Return the columns that a term such as ``days(d):C(g)`` counts in days, in order."""
    tree, quoted = _python("*".join(factors(expression)), expression)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == DAYS
    ]
    return _in_order([arg for call in calls for arg in call.args], quoted)


def listed_levels(factor: str) -> Any:
    """Return the option ``levels`` of ``C(g, levels=['a', 'b'])``, None where there is none."""
    tree, quoted = _python(factor, factor)
    options = tree.body.keywords if isinstance(tree.body, ast.Call) else []
    listed = (_written(option.value, quoted) for option in options if option.arg == "levels")
    return ast.literal_eval(next(listed, "None"))


def factors(term: str) -> tuple[str, ...]:
    """Return the factors of a term: ``a`` and ``C(b)`` of ``a:C(b)``."""
    return tuple(_split(term, ":"))


def _in_order(nodes: Iterable[ast.expr], quoted: Mapping[str, str]) -> tuple[str, ...]:
    names = [node for node in nodes if isinstance(node, ast.Name)]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    return _unique(quoted.get(node.id, unmarked(node.id)) for node in names)


def _check_response(formula: Formula) -> None:
    """Refuse predictors that determine the response.

    A response of several columns may have some of them on the right, as a change that is adjusted
    for where it began, ``I(after - before) ~ before``; but not all.
    """
    columns = variables(formula.response)
    if set(columns) <= set(formula.predictors):
        place = located(formula.text, columns[0], masked(formula.text).index("~") + 1)
        raise formula_error(
            formula.text,
            f"'{columns[0]}' is the response, which cannot be a predictor of itself; leave it out "
            "on the right of '~'",
            place,
        )


def _all_parts(text: str) -> Formula:
    """Read the parts between commas, each with the others blanked, so that places stay right."""
    parameters: list[ParameterFormula] = []
    first, *others = _spans(text)
    if not others:
        return _checked_formula(text)
    mean = _whole_text(text, first, _checked_formula)
    for span in others:
        if "~" not in masked(text)[slice(*span)]:
            message = "expected a parameter's predictor behind the comma, as in 'sigma ~ z'"
            raise formula_error(text, message, (span[0] - 1, span[1]))
        parameter = _whole_text(text, span, _parameter)
        if parameter.name in [known.name for known in parameters]:
            message = f"'{parameter.name}' has a predictor already; write its terms as one"
            raise formula_error(text, message, _stripped(text, *span))
        parameters.append(parameter)
    networks = (network for parameter in parameters for network in parameter.networks)
    return replace(
        mean, text=text, networks=(*mean.networks, *networks), parameters=tuple(parameters)
    )


def _spans(text: str) -> list[tuple[int, int]]:
    """Return the places of the parts between commas outside brackets."""
    source, depth, start, found = masked(text), 0, 0, []
    for position, character in enumerate(source):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append((start, position))
            start = position + 1
    return [*found, (start, len(text))]


def _whole_text(text: str, span: tuple[int, int], read: Callable[[str], Part]) -> Part:
    """Read one part with the others blanked; an error shows the whole formula."""
    start, end = span
    part = " " * start + text[start:end] + " " * (len(text) - end)
    try:
        return read(part)
    except InputError as error:
        blanked, shown = (re.sub(r"\s", " ", whole) for whole in (part, text))
        raise InputError(str(error).replace(blanked, shown)) from None


def _parameter(text: str) -> ParameterFormula:
    """Read ``sigma ~ z + nn(u)``."""
    bars, whole = split_bars(text), _stripped(text, 0, len(text))
    if bars.groups or bars.additions:
        message = "the predictor of a parameter has structured terms and nn() alone, no bars"
        raise formula_error(text, message, whole)
    check_text(text)
    lhs, rhs = _parse(text, text)
    tilde = masked(text).index("~")
    left, right = _stripped(text, 0, tilde), _stripped(text, tilde + 1, len(text))
    if not re.fullmatch(r"[A-Za-z]\w*", text[slice(*left)]) or len(lhs) != 1:
        raise formula_error(text, "expected the name of a parameter left of '~'", left)
    for expression in [factor for term in rhs for factor in term]:
        check_expression(_python(expression, text)[0], text)
    _check_intercept(rhs, text, text)
    for name in ("s", "offset"):
        if calls := _calls_of(rhs, name, text):
            message = f"{name}() stands in the mean's predictor alone, not in that of a parameter"
            raise formula_error(text, message, calls[0])
    networks = _network_terms(rhs, text, right) if any(_calls(t, "nn") for t in rhs) else ()
    plain = (term for term in rhs if not _calls(term, "nn") and term != ("1",))
    return ParameterFormula(text[slice(*left)], tuple(":".join(term) for term in plain), networks)


def _check_intercept(rhs: list[tuple[str, ...]], plain: str, text: str) -> None:
    """Refuse a formula that removes the intercept."""
    if ("1",) in rhs:
        return
    tilde = masked(text).index("~")
    zero = re.search(r"\b0\b|-\s*1\b", plain[tilde:])
    raise formula_error(
        text,
        "this removes the intercept, but the network's output bias is the intercept: leave "
        "out '0 +' or '- 1'",
        (tilde + zero.start(), tilde + zero.end())
        if zero
        else _stripped(text, tilde + 1, len(text)),
    )


def _checked_formula(text: str) -> Formula:
    bars = split_bars(text)
    check_text(text, bars.plain)
    lhs, rhs = _parse(bars.plain, text)
    for expression in [factor for term in (*lhs, *rhs) for factor in term]:
        check_expression(_python(expression, text)[0], text)
    tilde = masked(text).index("~")
    left, right = _stripped(bars.plain, 0, tilde), _stripped(text, tilde + 1, len(text))
    called = next((name for name in TERM_CALLS if _calls(lhs[0], name)), None) if lhs else None
    if len(lhs) != 1 or len(lhs[0]) != 1 or not variables(lhs[0][0]) or called:
        raise formula_error(text, f"needs one response left of '~', as in '{EXAMPLE}'", left)
    if isinstance(_python(text[slice(*left)], text)[0].body, ast.BinOp):
        raise formula_error(text, "arithmetic left of '~' goes into I(), as I(y^2)", left)
    _check_intercept(rhs, bars.plain, text)
    smooths = tuple(_smooth(term, text) for term in _calls_of(rhs, "s", text))
    plain = (term for term in rhs if not any(_calls(term, name) for name in TERM_CALLS))
    structured = (":".join(term) for term in plain if term != ("1",))
    return Formula(
        text, lhs[0][0],
        _unique((*structured, *(smooth.expression for smooth in smooths))),
        _network_terms(rhs, text, right),
        tuple(_argument(term, text) for term in _calls_of(rhs, "offset", text)),
        smooths,
        tuple(_group_term(group, text) for group in bars.groups),
        _addition("weights", bars, text),
        _addition("trials", bars, text),
    )  # fmt: skip


def _addition(name: str, bars: Bars, text: str) -> str:
    """Return the argument of ``weights()`` or ``trials()``, checked; empty if there is none."""
    if name not in bars.additions:
        return ""
    (start, end), takes = bars.additions[name], f"{name}() takes one expression, as {name}(n)"
    if start >= end:
        raise formula_error(text, takes, (start, start + 1))
    check_part(text, masked(text), start, end)
    tree, quoted = _python(text[start:end], text)
    check_expression(tree, text)
    if isinstance(tree.body, ast.Call) and getattr(tree.body.func, "id", None) in TERM_CALLS:
        raise formula_error(text, takes, (start, end))
    return _operand(tree.body, quoted)


def _group_term(group: GroupText, text: str) -> GroupTerm:
    """Read both sides of a group-level term."""
    (start, end), (first, last) = group.effects, group.group
    source = masked(text)
    check_part(text, source, start, end)
    _, terms = _parse(f"~ {text[start:end]}", text)
    for term in terms:
        if called := next((name for name in TERM_CALLS if _calls(term, name)), None):
            raise formula_error(text, f"{called}() cannot vary by group", (start, end))
        for factor in term:
            check_expression(_python(factor, text)[0], text)
    if not re.fullmatch(r"\w+(\s*@\s*\w+)*", source[first:last]) or source[first].isdigit():
        raise formula_error(
            text, "expected a column, or several as g:h, behind the bar", (first, last)
        )
    by = tuple(name.strip("`") for name in _split(text[first:last], ":"))
    effects = tuple(":".join(term) for term in terms if term not in (("1",), ("0",)))
    if not terms:
        raise formula_error(text, "expected 1 or a column before the bar", (start, end))
    whole = text[slice(*group.whole)]
    return GroupTerm(whole, ("1",) in terms, effects, by, group.correlated)


def _calls_of(terms: list[tuple[str, ...]], name: str, text: str) -> list[str]:
    """Return the calls of ``s()`` or ``offset()``, each a term of its own."""
    found = [term for term in terms if _calls(term, name)]
    for term in found:
        if len(term) != 1:
            message = f"{name}() cannot take part in an interaction"
            raise formula_error(text, message, ":".join(term))
    return [term[0] for term in found]


def _argument(call: str, text: str) -> str:
    """Return the first argument of a call, as a factor."""
    tree, quoted = _python(call, text)
    assert isinstance(tree.body, ast.Call)
    expression = _operand(tree.body.args[0], quoted)
    if not variables(expression):
        raise formula_error(text, f"'{call}' needs a column", call)
    return expression


def _smooth(call: str, text: str) -> SmoothTerm:
    tree, _ = _python(call, text)
    assert isinstance(tree.body, ast.Call)
    k = [ast.literal_eval(option.value) for option in tree.body.keywords]
    return SmoothTerm(_argument(call, text), *k)


def _parse(plain: str, text: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return both sides as terms, each a tuple of factors that can be parsed again."""
    from formulaic import Formula as Formulaic
    from formulaic.errors import FormulaicError

    try:
        parsed = Formulaic(spelled(plain))
    except (FormulaicError, SyntaxError, TypeError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, SyntaxError):  # whose own words are about Python
            reason = "expected columns and arithmetic between the parentheses of a function"
        raise formula_error(text, f"cannot read this: {reason}") from None
    parts = [getattr(parsed, side, ()) for side in ("lhs", "rhs")]
    sides = [list(part) for part in (parts if parts[1] else ((), parsed))]
    if not all(hasattr(term, "factors") for side in sides for term in side):
        raise formula_error(text, "this has several parts; use one '~'")
    lhs, rhs = (
        [tuple(_rewritten(factor, text) for factor in term.factors) for term in side]
        for side in sides
    )
    return lhs, rhs


def _rewritten(factor: Any, text: str) -> str:
    """Write a factor so that formulaic reads it again: ```odd name```, ``I(x + 1)``."""
    expression = str(factor.expr)
    if factor.eval_method.value == "lookup":
        return _name(unmarked(expression))
    if factor.eval_method.value == "literal":
        return expression
    tree, quoted = _python(expression, text)
    return _operand(tree.body, quoted)


def _name(column: str) -> str:
    return column if column.isidentifier() and not iskeyword(column) else f"`{column}`"


def _operand(node: ast.expr, quoted: Mapping[str, str]) -> str:
    """Write a node of Python as a factor: arithmetic goes into ``I()``."""
    source = _written(node, quoted)
    plain = unmarked(ast.unparse(node), "`")
    source = re.sub(r"quoted_\d+_", lambda match: f"`{quoted[match[0]]}`", plain)
    return source if isinstance(node, ast.Name | ast.Call) else f"I({source})"


def _written(node: ast.expr, quoted: Mapping[str, str]) -> str:
    return re.sub(r"quoted_\d+_", lambda match: f"`{quoted[match[0]]}`", ast.unparse(node))


def _calls(term: Iterable[str], name: str) -> bool:
    return any(re.match(rf"{name}\s*\(", factor) for factor in term)


def _network_terms(
    terms: list[tuple[str, ...]], text: str, right: tuple[int, int]
) -> tuple[tuple[str, ...], ...]:
    calls = [term for term in terms if _calls(term, "nn")]
    if not calls:
        raise formula_error(text, f"needs an nn() term, as in '{EXAMPLE}'", right)
    networks = tuple(_network_arguments(term, text) for term in calls)
    _check_distinct(text, right)
    return networks


def _check_distinct(text: str, right: tuple[int, int]) -> None:
    """Refuse a network that is written twice, which formulaic merges."""
    source, seen = masked(text), set()
    for match in re.finditer(r"\bnn\s*\(", source[: right[1]]):
        end = _closing(source, match.end())
        arguments = frozenset(_network_arguments((text[match.start() : end],), text))
        if arguments in seen:
            message = "another nn() has the same arguments; networks are added, so one is enough"
            raise formula_error(text, message, (match.start(), end))
        seen.add(arguments)


def _closing(source: str, start: int) -> int:
    """Return the position after the parenthesis that closes the one before ``start``."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(source[start], 0)
        start += 1
    return start


def _network_arguments(term: tuple[str, ...], text: str) -> tuple[str, ...]:
    if len(term) != 1:
        raise formula_error(
            text,
            "nn() cannot take part in an interaction; put the other variable inside nn() instead",
            ":".join(term),
        )
    tree, quoted = _python(term[0], text)
    call = tree.body
    assert isinstance(call, ast.Call)
    arguments = tuple(_operand(node, quoted) for node in call.args)
    if not arguments or call.keywords or not all(variables(item) for item in arguments):
        raise formula_error(
            text, "nn() takes at least one column and no options, as nn(u1, u2)", term[0]
        )
    return arguments


def _python(expression: str, text: str) -> tuple[ast.Expression, dict[str, str]]:
    """Parse Python with ```quoted names``` replaced by placeholders; return both."""
    quoted: dict[str, str] = {}

    def placeholder(match: re.Match[str]) -> str:
        key = f"quoted_{len(quoted)}_"
        quoted[key] = unmarked(match[1])
        return key

    source = re.sub(r"`([^`]+)`", placeholder, spelled(expression))
    try:
        return ast.parse(source, mode="eval"), quoted
    except SyntaxError:
        raise formula_error(text, f"cannot read '{expression}'", expression) from None


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Leave out the blanks around a part of the formula."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside parentheses and backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        if not quoted:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == separator and depth == 0 and not quoted:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
