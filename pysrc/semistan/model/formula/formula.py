"""Read ``y | weights(w) ~ x1 + C(g) + s(x2) + offset(z) + (1 | h) + nn(u1, u2)`` into its parts.

Behind commas stand the predictors of dispersion parameters: ``y ~ x + nn(u), sigma ~ z + nn(u)``.
formulaic parses the text; ``syntax.py`` says what may stand in it, so that a formula from a file
cannot run arbitrary code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from semistan.errors import InputError
from semistan.model.formula.bars import Bars, GroupText, split_at, split_bars
from semistan.model.formula.calls import TermCall
from semistan.model.formula.images import Image, image_of
from semistan.model.formula.shorthand import written_out
from semistan.model.formula.syntax import (
    DAYS,
    EXAMPLE,
    LAYERS,
    PARTS,
    SHARED,
    Span,
    check_expression,
    check_part,
    check_size,
    check_text,
    closing,
    formula_error,
    located,
    masked,
    term_calls,
)
from semistan.model.formula.trunks import Trunk, trunk_of
from semistan.model.names import MU
from semistan.model.spelling import in_formula, spelled, unmarked
from semistan.model.terms.kinds import KINDS, term_kind

Part = TypeVar("Part")


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
    """

    text: str
    intercept: bool
    terms: tuple[str, ...]
    by: tuple[str, ...]
    correlated: bool
    per: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns that the term uses."""
        return _unique((*(v for term in self.terms for v in variables(term)), *self.levels_of))

    @property
    def levels_of(self) -> tuple[str, ...]:
        """Columns whose levels it uses."""
        return (*self.by, self.per) if self.per else self.by


@dataclass(frozen=True, slots=True)
class PredictorFormula:
    """The right-hand side of one predictor: ``x + s(v) + (1 | g) + offset(z) + nn(u)``.

    Attributes
    ----------
    name : str
        The parameter left of ``~``; ``mu`` of the response's mean.
    structured : tuple of str
        The terms whose coefficients are interpreted.
    networks : tuple of tuple of str
        The arguments of each ``nn()``.
    offsets : tuple of str
        What is added to the linear predictor as it is.
    calls : tuple of TermCall
        Terms that are written as a call; the straight parts of smooths are among the structured
        terms.
    groups : tuple of GroupTerm
        Group-level terms.
    layers : tuple of dict
        The options of each ``nn()``.
    """

    name: str
    structured: tuple[str, ...]
    networks: tuple[tuple[str, ...], ...]
    offsets: tuple[str, ...] = ()
    calls: tuple[TermCall, ...] = ()
    groups: tuple[GroupTerm, ...] = ()
    layers: tuple[dict[str, Any], ...] = ()

    @property
    def expressions(self) -> tuple[str, ...]:
        """All terms but the levels of groups."""
        effects = (term for group in self.groups for term in group.terms)
        called = (item for call in self.calls for item in (*call.arguments, call.by) if item)
        inputs = (term for network in self.networks for term in network)
        return (*self.structured, *called, *inputs, *self.offsets, *effects)

    @property
    def calls_of_nn(self) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
        """The arguments and options of each ``nn()``."""
        return zip(self.networks, self.layers, strict=True)

    @property
    def structured_variables(self) -> tuple[str, ...]:
        """Columns that the structured terms use."""
        return _unique(v for term in self.structured for v in variables(term))

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns that the predictor uses."""
        levels = (name for group in self.groups for name in group.levels_of)
        return _unique((*(v for term in self.expressions for v in variables(term)), *levels))


class Network(NamedTuple):
    """One network: what it takes, its options, and the predictors that its outputs are of."""

    arguments: tuple[str, ...]
    options: dict[str, Any]
    of: tuple[str, ...]

    @property
    def layers(self) -> dict[str, Any]:
        """The options that say what its layers are."""
        return {name: value for name, value in self.options.items() if name in LAYERS}

    @property
    def trunk(self) -> Trunk | None:
        """The pretrained network that its inputs come from."""
        return trunk_of(self.arguments, self.options)

    @property
    def of_images(self) -> bool:
        """Whether its inputs are images, which no trunk takes."""
        return self.trunk is None and image_of(self.arguments[0]) is not None


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula's parts, each still text.

    Attributes
    ----------
    text : str
        The formula as written.
    response : str
        The expression left of ``~``.
    predictors : tuple of PredictorFormula
        That of the response's mean, then those behind commas.
    weights, trials : str
        Arguments of ``weights()`` and ``trials()``, empty without.
    cens : tuple of str
        Arguments of ``cens()``: how each row is censored and, if given, where its interval ends.
    levels : tuple of str
        The response's values in order, of ``C(y, levels=['No', 'Yes']) ~``; empty without.
    """

    text: str
    response: str
    predictors: tuple[PredictorFormula, ...]
    weights: str = ""
    trials: str = ""
    cens: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    @property
    def mean(self) -> PredictorFormula:
        """The predictor of the response's mean."""
        return self.predictors[0]

    @property
    def others(self) -> tuple[PredictorFormula, ...]:
        """The predictors behind commas."""
        return self.predictors[1:]

    @property
    def networks(self) -> tuple[Network, ...]:
        """Each network once, predictor by predictor."""
        found: dict[object, Network] = {}
        for predictor in self.predictors:
            for number, (arguments, options) in enumerate(predictor.calls_of_nn):
                key = options.get(SHARED, (predictor.name, number))
                before = found[key].of if key in found else ()
                found[key] = Network(arguments, options, (*before, predictor.name))
        return tuple(found.values())

    @property
    def trunks(self) -> tuple[Trunk | None, ...]:
        """The trunk of each network, if it has one."""
        return tuple(network.trunk for network in self.networks)

    @property
    def images(self) -> tuple[Image, ...]:
        """The images that networks take."""
        found = (image_of(term) for network in self.networks for term in network.arguments)
        return tuple(image for image in found if image)

    @property
    def network_variables(self) -> tuple[str, ...]:
        """Columns of numbers and factors that the networks use."""
        terms = (term for network in self.networks for term in network.arguments)
        used = (v for term in terms for v in variables(term))
        images = {image.column for image in self.images}
        return _unique(name for name in used if name not in images)

    @property
    def dated(self) -> tuple[str, ...]:
        """Columns of dates that ``days()`` turns into numbers."""
        every = (term for predictor in self.predictors for term in predictor.expressions)
        return _unique(d for term in every for d in dated(term))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns needed to predict."""
        trials = variables(self.trials) if self.trials else ()
        return _unique((*(v for p in self.predictors for v in p.variables), *trials))

    @property
    def outcome(self) -> tuple[str, ...]:
        """Columns of the response, its weights and its censoring, not needed to predict."""
        beside = (self.weights, *self.cens)
        named = (name for text in beside if text for name in variables(text))
        return _unique((*variables(self.response), *named))


def parse_formula(text: str) -> Formula:
    """Parse a formula with at least one ``nn()`` term.

    Raises
    ------
    InputError
        If the text is no formula, calls an unlisted function, has no response or has it among
        the predictors, removes the intercept, or has no ``nn()`` term or two with the same
        arguments.
    """
    check_size(text)
    try:
        formula = _all_parts(written_out(text))
    except (RecursionError, MemoryError):  # the latter from Python's parser
        raise InputError(
            f"the formula '{text[:60]} ...' is too long or too deeply nested to be read"
        ) from None
    _check_response(formula)
    _check_images(formula)
    _check_shared(formula)
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
    if set(columns) <= set(formula.columns):
        place = located(formula.text, columns[0], masked(formula.text).index("~") + 1)
        raise formula_error(
            formula.text,
            f"'{columns[0]}' is the response, which cannot be a predictor of itself; leave it out "
            "on the right of '~'",
            place,
        )


def _check_shared(formula: Formula) -> None:
    """Refuse networks that are to share their hidden layers, but differ."""
    seen: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}
    calls = (call for predictor in formula.predictors for call in predictor.calls_of_nn)
    for arguments, options in calls:
        name = options.get(SHARED)
        if name is not None and seen.setdefault(name, (arguments, options)) != (arguments, options):
            raise InputError(
                f"the networks with shared='{name}' in '{formula.text}' differ; give each the "
                "same inputs in the same order and the same options, or another name"
            )


def _check_images(formula: Formula) -> None:
    """Refuse a column of images that is anything else too."""
    images_of = ((image_of(network.arguments[0]), network.trunk) for network in formula.networks)
    taken = {(image, trunk) for image, trunk in images_of if image}
    images = {image.column for image, _ in taken}
    if len(images) < len(taken):
        raise InputError(
            f"the formula '{formula.text}' has image() of one column with different options, or "
            "trunks; give it the same ones, or copy the column"
        )
    expressions = (term for part in formula.predictors for term in part.expressions)
    others = {v for term in expressions if image_of(term) is None for v in variables(term)}
    groups = (group for part in formula.predictors for group in part.groups)
    others |= {name for group in groups for name in group.levels_of} | {*formula.outcome}
    for name in sorted(images & others):
        raise formula_error(
            formula.text, f"'{name}' is a column of images, which image() in nn() takes alone", name
        )


def _all_parts(text: str) -> Formula:
    """Read the parts between commas, each with the others blanked, so that places stay right."""
    predictors: list[PredictorFormula] = []
    first, *others = _spans(text)
    mean = _whole_text(text, first, _checked_formula) if others else _checked_formula(text)
    for span in others:
        if "~" not in masked(text)[slice(*span)]:
            message = "expected a parameter's predictor behind the comma, as in 'sigma ~ z'"
            raise formula_error(text, message, (span[0] - 1, span[1]))
        predictor = _whole_text(text, span, _other_predictor)
        if predictor.name in [known.name for known in predictors]:
            message = f"'{predictor.name}' has a predictor already; write its terms as one"
            raise formula_error(text, message, _stripped(text, *span))
        predictors.append(predictor)
    return replace(mean, text=text, predictors=(*mean.predictors, *predictors))


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


def _other_predictor(text: str) -> PredictorFormula:
    """Read ``sigma ~ z + nn(u)``."""
    bars = split_bars(text)
    check_text(text, bars.plain)
    lhs, rhs = _parse(bars.plain, text)
    tilde = masked(text).index("~")
    left = _stripped(text, 0, tilde)
    if bars.additions:
        message = "weights(), trials() and cens() stand beside the response alone; expected the "
        raise formula_error(text, f"{message}name of a parameter left of '~'", left)
    if not re.fullmatch(r"[A-Za-z]\w*", text[slice(*left)]) or len(lhs) != 1:
        raise formula_error(text, "expected the name of a parameter left of '~'", left)
    return _predictor(text[slice(*left)], rhs, bars, text)


def _predictor(name: str, rhs: list[tuple[str, ...]], bars: Bars, text: str) -> PredictorFormula:
    """Sort the terms right of '~' by what they are; only the mean needs a network."""
    for expression in [factor for term in rhs for factor in term]:
        check_expression(_python(expression, text)[0], text)
    _check_intercept(rhs, bars.plain, text)
    right = _stripped(text, masked(text).index("~") + 1, len(text))
    calls = tuple(_term_call(kind, term, text)
                  for kind in KINDS for term in _calls_of(rhs, kind, text))  # fmt: skip
    plain = (term for term in rhs if not any(_calls(term, call) for call in term_calls()))
    structured = (":".join(term) for term in plain if term != ("1",))
    straight = (item for call in calls for item in term_kind(call.kind).straight(call))
    has_networks = name == MU or any(_calls(term, "nn") for term in rhs)
    networks = _network_terms(rhs, text, right) if has_networks else ()
    return PredictorFormula(
        name,
        _unique((*structured, *straight)),
        tuple(arguments for arguments, _ in networks),
        tuple(_argument(term, text) for term in _calls_of(rhs, "offset", text)),
        calls,
        tuple(_group_term(group, text) for group in bars.groups),
        tuple(options for _, options in networks),
    )


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
    for expression in [factor for term in lhs for factor in term]:
        check_expression(_python(expression, text)[0], text)
    left = _stripped(bars.plain, 0, masked(text).index("~"))
    called = next((name for name in term_calls() if _calls(lhs[0], name)), None) if lhs else None
    if len(lhs) != 1 or len(lhs[0]) != 1 or not variables(lhs[0][0]) or called:
        raise formula_error(text, f"needs one response left of '~', as in '{EXAMPLE}'", left)
    if isinstance(_python(text[slice(*left)], text)[0].body, ast.BinOp):
        raise formula_error(text, "arithmetic left of '~' goes into I(), as I(y^2)", left)
    mean = _predictor(MU, rhs, bars, text)
    response, levels = _response(lhs[0][0], text, left)
    weights, trials = ("".join(_addition(name, 1, bars, text)) for name in ("weights", "trials"))
    cens = _addition("cens", 2, bars, text)
    return Formula(text, response, (mean,), weights, trials, cens, levels)


def _response(factor: str, text: str, left: tuple[int, int]) -> tuple[str, tuple[str, ...]]:
    """Return the response and its levels, which ``C(y, levels=['No', 'Yes'])`` gives."""
    if not factor.startswith("C("):
        return factor, ()
    levels = listed_levels(factor)
    words = [str(level) for level in levels] if isinstance(levels, list) else []
    if len(words) < 2 or len({*words}) < len(words):
        message = "C() left of '~' gives the values in order, as C(y, levels=['low', 'high'])"
        raise formula_error(text, message, left)
    return in_formula(variables(factor)[0]), tuple(words)


def _addition(name: str, most: int, bars: Bars, text: str) -> tuple[str, ...]:
    """Return the arguments of ``weights()``, ``trials()`` or ``cens()``, checked; none without."""
    if name not in bars.additions:
        return ()
    whole = bars.additions[name]
    spans, takes = [whole], f"{name}() takes one expression, as {name}(n)"
    if most > 1:
        spans = split_at(masked(text), *whole, ",")
        takes = f"{name}() takes one or two expressions, as {name}(c) or {name}(c, y2)"
    if len(spans) > most:
        raise formula_error(text, takes, whole)
    return tuple(_added(span, takes, text) for span in spans)


def _added(span: tuple[int, int], takes: str, text: str) -> str:
    """Return one argument."""
    start, end = span
    if start >= end:
        raise formula_error(text, takes, (start, start + 1))
    source = masked(text)
    check_part(text, source, start, end)
    if "@" in source[start:end]:  # an interaction
        shown = text[start:end].strip()
        raise formula_error(text, f"'{shown}' is not allowed: {takes}", (start, end))
    tree, quoted = _python(text[start:end], text)
    check_expression(tree, text)
    if isinstance(tree.body, ast.Call) and getattr(tree.body.func, "id", None) in term_calls():
        raise formula_error(text, takes, (start, end))
    return _operand(tree.body, quoted)


def _group_term(group: GroupText, text: str) -> GroupTerm:
    """Read both sides of a group-level term."""
    (start, end), (first, last) = group.effects, group.group
    source = masked(text)
    check_part(text, source, start, end)
    _, terms = _parse(f"~ {text[start:end]}", text)
    for term in terms:
        if called := next((name for name in term_calls() if _calls(term, name)), None):
            raise formula_error(text, f"{called}() cannot vary by group", (start, end))
        for factor in term:
            check_expression(_python(factor, text)[0], text)
    (first, last), per = _per(source, (first, last), text)
    if not re.fullmatch(r"\w+(\s*@\s*\w+)*", source[first:last]) or source[first].isdigit():
        raise formula_error(
            text, "expected a column, or several as g:h, behind the bar", (first, last)
        )
    by = tuple(name.strip("`") for name in _split(text[first:last], ":"))
    effects = tuple(":".join(term) for term in terms if term not in (("1",), ("0",)))
    if not terms:
        raise formula_error(text, "expected 1 or a column before the bar", (start, end))
    whole = text[slice(*group.whole)]
    return GroupTerm(whole, ("1",) in terms, effects, by, group.correlated, per)


def _per(source: str, span: Span, text: str) -> tuple[Span, str]:
    """Return where ``gr(g, by=h)`` has the group, and h; the whole and nothing without."""
    first, last = span
    call = re.fullmatch(r"gr\s*\(\s*([^,]*?)\s*,\s*by\s*=\s*(\w+)\s*\)", source[first:last])
    if call is None:
        return span, ""
    at = first + call.start(2), first + call.end(2)
    return (first + call.start(1), first + call.end(1)), text[slice(*at)].strip("`")


def _calls_of(terms: list[tuple[str, ...]], name: str, text: str) -> list[str]:
    """Return the calls of a function, each a term of its own."""
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


def _term_call(kind: str, call: str, text: str) -> TermCall:
    """Read ``s(x, k=10)``."""
    tree, quoted = _python(call, text)
    assert isinstance(tree.body, ast.Call)
    written = {str(item.arg): item.value for item in tree.body.keywords}
    by = _operand(written.pop("by"), quoted) if "by" in written else ""
    options = tuple((name, ast.literal_eval(value)) for name, value in written.items())
    others = tuple(_operand(node, quoted) for node in tree.body.args[1:])
    for other in others:
        if not variables(other):
            raise formula_error(text, f"'{other}' needs a column", call)
    return TermCall(kind, _argument(call, text), options, others, by)


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
        return in_formula(unmarked(expression))
    if factor.eval_method.value == "literal":
        return expression
    tree, quoted = _python(expression, text)
    return _operand(tree.body, quoted)


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


Call = tuple[tuple[str, ...], dict[str, Any]]  # the arguments of an nn(), and its options


def _network_terms(
    terms: list[tuple[str, ...]], text: str, right: tuple[int, int]
) -> tuple[Call, ...]:
    calls = [term for term in terms if _calls(term, "nn")]
    if not calls:
        raise formula_error(text, f"needs an nn() term, as in '{EXAMPLE}'", right)
    networks = tuple(_network(term, text) for term in calls)
    _check_distinct(text, right)
    return networks


def _check_distinct(text: str, right: tuple[int, int]) -> None:
    """Refuse a network that is written twice, which formulaic merges."""
    source, seen = masked(text), set()
    for match in re.finditer(r"\bnn\s*\(", source[: right[1]]):
        end = closing(source, match.end())
        arguments = frozenset(_network((text[match.start() : end],), text)[0])
        if arguments in seen:
            message = "another nn() has the same arguments; networks are added, so one is enough"
            raise formula_error(text, message, (match.start(), end))
        seen.add(arguments)


def _network(term: tuple[str, ...], text: str) -> Call:
    """Read ``nn(u1, u2, hidden=[32, 32])``, whose options are checked already."""
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
    if not arguments or not all(variables(item) for item in arguments):
        raise formula_error(text, f"nn() takes {PARTS['nn']}", term[0])
    return arguments, {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}


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
