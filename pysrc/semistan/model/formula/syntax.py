"""What may stand in a formula, and the place where one goes wrong.

A formula may come from a file that somebody else has written. Only the functions listed here
can be called, on columns, numbers and literal options; there are no attributes, subscripts,
comprehensions or assignments. The text is checked before formulaic sees it, so that every
mistake has a place, and what formulaic makes of it is checked again by the same rules.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeGuard

import numpy as np

from semistan.errors import InputError, did_you_mean
from semistan.model.spelling import is_word
from semistan.model.terms.kinds import KINDS, how_to_vary, term_kind

EXAMPLE = "y ~ x1 + C(g) + nn(u1, u2)"
COUNTED = "cbind"  # a response that counts categories, each in a column

# Stateless functions beside formulaic's own transforms.
MATH = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
}
DAYS = "days"  # a column of dates becomes a number before formulaic sees it
TRANSFORMS = ("C", "I", "center", "scale", "poly", "bs", "cr", "cs", "cc")
CALLABLE = (*MATH, DAYS, *TRANSFORMS)
PARTS = {
    "nn": "at least one column, and as options those of [network] and k, as "
    "nn(u1, u2, hidden=[32, 32], activation='relu'); a name for predictors that share a network's "
    "hidden layers, as nn(u1, u2, shared='f'); for images trunk and output, as nn(image(path), "
    "trunk='resnet.onnx', output='embedding'); or the name of a torch.nn.Module that Python gives, "
    "as nn(u1, u2, module='f')",
    "offset": "one expression, as offset(log(exposure))",
}  # beside the kinds of terms; each takes what is said here
Options = Mapping[str, Callable[[object], bool]]  # what each may be


def _is_whole(value: object) -> bool:
    return type(value) is int


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_whole, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _are_numbers(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(type(x) in (int, float) and math.isfinite(x) for x in listed)


def _are_positive(value: Any) -> bool:
    return _are_numbers(value) and min(value if isinstance(value, list) else [value]) > 0


SHARED = "shared"  # what a network is called that several predictors share
LAYERS: Options = {
    "kind": _is_text,
    "hidden": _are_whole,
    "activation": _is_text,
    "skip": _is_switch,
    "norm": _is_switch,
    "frozen": lambda value: _is_whole(value) or _is_text(value),
    "channels": _are_whole,
    "kernel": _is_whole,
    "pooling": _is_whole,
}  # the options of nn() that are keys of [network] too
TRUNK: Options = {"trunk": _is_name, "output": _is_name}  # of nn() with images
MODULE = "module"  # the name of a network that Python gives
NN: Options = {
    **LAYERS,
    **TRUNK,
    SHARED: _is_name,
    MODULE: _is_name,
    "k": lambda value: type(value) is int and value > 0,
}
IMAGE = "image"  # in nn() alone
IMAGES: Options = {
    "size": lambda value: _is_whole(value) or (_are_whole(value) and len(value) == 2),  # type: ignore[arg-type]
    "channels": lambda value: type(value) is int and value > 0,
    "array": _is_text,
    "mean": _are_numbers,
    "sd": _are_positive,
}
IMAGE_TAKES = (
    "a column of files or rows, and as options size, channels and array, as image(path, size=32), "
    "image(path, size=[32, 48], channels=1) or image(row, array='images.npy'); before a trunk also "
    "mean and sd, as image(path, mean=[0.5, 0.5, 0.5], sd=0.25)"
)


@dataclass(frozen=True, slots=True)
class InputCall:
    """How inputs that a column has in a way of its own are written, in ``nn()`` alone.

    Attributes
    ----------
    noun : str
        What the column has, for error messages.
    takes : str
        What the call takes, in words.
    options : dict of callables
        Each option's name, and whether a literal can be its value.
    """

    noun: str
    takes: str
    options: Options


INPUT_CALLS: dict[str, InputCall] = {IMAGE: InputCall("images", IMAGE_TAKES, IMAGES)}
CODINGS = tuple(f"contr.{name}" for name in ("treatment", "sum", "helmert", "diff", "poly", "SAS"))

LONGEST = 100_000  # characters
MOST_TERMS = 1_000  # of one predictor, once products are expanded
MOST_INPUTS = 5_000  # of one network
MOST_PARTS = 200  # networks, smooths, offsets, group-level terms and predictors, each
LARGEST_DEGREE = 1_000
LARGEST_WHOLE = 10**15
SAME_LENGTH = {":": "@", "{": "(", "}": ")", "\n": " ", "\r": " ", "#": "?", "`": "?"}
SHOWN = 100  # characters of a long formula around the place of a mistake

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Mod, ast.FloorDiv)
_OF_FORMULAS = (ast.MatMult,)  # ':'
_PLAIN = (ast.Expression, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd)

Span = tuple[int, int]
Refusal = Callable[[ast.AST, str], NoReturn]


@dataclass(frozen=True, slots=True)
class Report:
    """How a node of a tree is shown, and where in the formula its mistake is marked."""

    shown: Callable[[ast.AST], str]
    refuse: Refusal
    operators: tuple[type[ast.operator], ...] = _OPERATORS


def term_calls() -> tuple[str, ...]:
    """Return the functions that are a term of their own."""
    return (*PARTS, *KINDS)


def formula_error(text: str, message: str, place: Span | str | None = None) -> InputError:
    """Return an error that shows the formula with carets under a place.

    Parameters
    ----------
    text : str
        The formula.
    message : str
        What is wrong there, and what was expected.
    place : pair of int, or str, optional
        First position and the one after the last, or a piece of the formula, such as a column;
        the whole formula by default.
    """
    start, end = located(text, place or "") if isinstance(place, str | None) else place
    line = re.sub(r"\s", " ", text)
    first = max(0, start - SHOWN // 2) if len(line) > SHOWN else 0
    last = max(first + SHOWN, min(end, start + SHOWN))
    before, after = "... " if first > 0 else "", " ..." if last < len(line) else ""
    carets = " " * (len(before) + start - first) + "^" * max(1, min(end, last) - start)
    return InputError(f"in the formula\n  {before}{line[first:last]}{after}\n  {carets}\n{message}")


def check_size(text: str) -> None:
    """Refuse a formula that is too long to be worth reading, before anything reads it.

    Raises
    ------
    InputError
        With how much there is, and how much there may be.
    """
    if len(text) > LONGEST:
        raise InputError(f"a formula has at most {LONGEST} characters, got {len(text)}")
    if (half := re.search("[\ud800-\udfff]", text)) is not None:
        raise InputError(f"the formula has half a character, {half[0]!r}, which is no text")
    for part, found in {
        "bars": text.count("|"),
        "'~'": text.count("~"),
        **{f"{name}()": len(re.findall(rf"\b{name}\s*\(", text)) for name in term_calls()},
    }.items():
        if found > MOST_PARTS:
            raise InputError(f"a formula has at most {MOST_PARTS} {part}, got {found}")


def check_text(text: str, plain: str | None = None) -> None:
    """Refuse a formula whose text holds anything but terms, arithmetic and listed functions.

    Parameters
    ----------
    text : str
        The formula as written, for the error.
    plain : str, optional
        What is checked: the formula without its bars, of the same length.

    Raises
    ------
    InputError
        With the place.
    """
    _check_quoted_names(text)
    source = masked(text if plain is None else plain)
    tildes = [match.start() for match in re.finditer("~", source)]
    if len(tildes) != 1:
        place = (tildes[1], tildes[1] + 1) if tildes else (len(text), len(text) + 1)
        raise formula_error(text, f"a formula looks like '{EXAMPLE}', with one '~'", place)
    if found := re.search(r"(?<![\w.)])\.(?![\w.])", source):
        message = "'.' is all other columns of a table, of which none is here; name the columns"
        raise formula_error(text, message, found.span())
    for start, end in (*_left(source, tildes[0]), (tildes[0] + 1, len(source))):
        if source[start:end].strip():
            check_part(text, source, start, end)


def _left(source: str, tilde: int) -> list[Span]:
    """Return what stands left of ``~``: the response, or each column of ``cbind(a, b)``."""
    counted = re.fullmatch(rf"\s*{COUNTED}\s*\((.*)\)\s*", source[:tilde], re.DOTALL)
    if counted is None:
        return [(0, tilde)]
    return [match.span() for match in re.compile("[^,]+").finditer(source, *counted.span(1))]


def _check_quoted_names(text: str) -> None:
    """Refuse names in backticks that formulaic reads as the intercept, or as nothing."""
    for token in re.finditer("`([^`]*)`|'[^'\n]*'|\"[^\"\n]*\"", text):
        if token[1] == "":
            message = "expected the name of a column between the backticks, got nothing"
            raise formula_error(text, message, token.span())
        if token[1] == "1":
            message = (
                "a column called '1' cannot be told from the intercept; rename it in the data, "
                "as x1, say"
            )
            raise formula_error(text, message, token.span())


def check_expression(tree: ast.Expression, text: str) -> None:
    """Refuse a factor that is anything but columns, arithmetic and the listed functions.

    Raises
    ------
    InputError
        With the place in the formula, if it can be found there.
    """

    def refuse(node: ast.AST, message: str) -> NoReturn:
        raise formula_error(text, message, ast.unparse(node))

    check_tree(tree, Report(ast.unparse, refuse))


def check_tree(tree: ast.AST, report: Report) -> None:
    """Check every node of a tree; ``nn()`` and its like may stand outside any other call."""
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, within = todo.pop()
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in term_calls():
                if within:
                    report.refuse(node, f"{node.func.id}() must be a term of its own")
                _check_term_call(node, node.func.id, report)
                own = [a for a in node.args if node.func.id == "nn" and _is_input(a)]
                _check_trunk(node, any(input_call(a) == IMAGE for a in own), report)
                for call in own:
                    _check_input(node, call, report)
                todo += [(argument, True) for argument in node.args if argument not in own]
            else:
                _check_call(node, report)
                todo += [(argument, True) for argument in node.args[:1]]
        else:
            _check_node(node, report)
            todo += [(child, within) for child in ast.iter_child_nodes(node)]


def check_part(text: str, source: str, start: int, end: int) -> None:
    """Check the part of a formula between two places; ``source`` is what ``masked`` returns.

    Raises
    ------
    InputError
        With the place.
    """
    start += len(source[start:end]) - len(source[start:end].lstrip())
    piece = source[start:end].rstrip()
    widths = [len(_power(character)) for character in piece]
    places = [start + i for i, width in enumerate(widths) for _ in range(width)]
    places.append(start + len(piece))

    def span(node: ast.AST) -> Span:
        first, last = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None)
        return places[first], end if last is None else places[last]

    def refuse(node: ast.AST, message: str) -> NoReturn:
        raise formula_error(text, message, span(node))

    def shown(node: ast.AST) -> str:
        first, last = span(node)
        return text[first:last]

    tree = _parsed(text, "".join(map(_power, piece)), places)
    check_tree(tree, Report(shown, refuse, (*_OPERATORS, *_OF_FORMULAS)))
    terms = _terms(tree.body, refuse)
    if terms > MOST_TERMS:
        raise formula_error(text, f"this expands to more than {MOST_TERMS} terms", (start, end))


def _power(character: str) -> str:
    """Write R's power as Python does, whose own ``^`` would bind last."""
    return "**" if character == "^" else character


def _parsed(text: str, source: str, places: list[int]) -> ast.Expression:
    """Parse one side, each of whose characters has its place in the formula."""
    try:
        return ast.parse(source, mode="eval")
    except SyntaxError as error:
        at = places[min(max((error.offset or 1) - 1, 0), len(source))]
        if error.offset == 0:  # the end was reached
            at = places[-1]
        reason = f"cannot read this: {_expected(error.msg)}"
        raise formula_error(text, reason, (at, at + 1)) from None


def _expected(reason: str) -> str:
    if "never closed" in reason or "unmatched" in reason or "does not match" in reason:
        return f"{reason}; expected as many closing as opening parentheses, in order"
    return "expected a column, a listed function or an operator; odd names go in backticks"


def closing(source: str, start: int) -> int:
    """Return the position after the parenthesis that closes the one before ``start``."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(source[start], 0)
        start += 1
    return start


@lru_cache(maxsize=16)  # every part of the reader asks for that of the whole formula
def masked(text: str) -> str:
    """Return Python of the same length, in ASCII: what stands in quotes is blanked."""

    def mask(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] == "`":
            return "_" * len(token)
        if token[0] in "'\"":
            return f"{token[0]}{'_' * (len(token) - 2)}{token[0]}"
        if token == "%in%":
            return "@   "
        if is_word(token):
            return "_" * len(token)
        if token.isidentifier():
            return "".join(c if c.isascii() else "_" for c in token)
        return SAME_LENGTH.get(token, token)

    return re.sub(r"`[^`]+`|'[^'\n]*'|\"[^\"\n]*\"|%in%|[^\W\d]\w*|.|\n", mask, text)


def _check_node(node: ast.AST, report: Report) -> None:
    if isinstance(node, ast.BinOp):
        _check_arithmetic(node, report)
    elif isinstance(node, ast.Constant):
        _check_constant(node, report)
    elif isinstance(node, ast.Attribute):
        name = report.shown(node)
        hint = f"; if a column is called so, write `{name}` in backticks"
        whole = re.fullmatch(r"\w+(\.\w+)+", name)
        report.refuse(node, f"'{name}' is not allowed{hint if whole else ''}")
    elif not isinstance(node, (*_PLAIN, *report.operators)):
        report.refuse(node, f"'{report.shown(node)}' is not allowed in a formula")


def _check_arithmetic(node: ast.BinOp, report: Report) -> None:
    if not isinstance(node.op, report.operators):
        report.refuse(node, f"'{report.shown(node)}' is not allowed in a formula")
    named = any(isinstance(part, ast.Name) for part in ast.walk(node))
    if isinstance(node.op, ast.Pow) and not named:
        report.refuse(node, "a power of numbers alone is not allowed; write its value")


def _check_constant(node: ast.Constant, report: Report) -> None:
    if isinstance(node.value, str):
        report.refuse(node, "cannot read text in quotes here; a column's name goes in backticks")
    if type(node.value) not in (int, float):
        report.refuse(node, f"'{report.shown(node)}' is not allowed in a formula")
    if isinstance(node.value, int) and node.value > LARGEST_WHOLE:
        report.refuse(node, f"a whole number is at most {LARGEST_WHOLE:.0e}; write 1e20, say")


def _check_term_call(node: ast.Call, name: str, report: Report) -> None:
    known: Options
    if name in PARTS:
        takes, known = PARTS[name], {"nn": NN}.get(name, {})
        least, most = 1, len(node.args) if name == "nn" else 1
    else:
        kind = term_kind(name)
        takes, known, (least, most) = kind.takes, kind.options, kind.arguments
    starred = [argument for argument in node.args if isinstance(argument, ast.Starred)]
    options = [
        option
        for option in node.keywords
        if not known.get(str(option.arg), _never)(_literal(option.value))
        and not _is_by(name, option)
    ]
    for part in (*starred, *node.args[most:], *options):
        instead = how_to_vary(name) if getattr(part, "arg", "") == "by" else ""
        message = f"'{report.shown(part)}' is not allowed: {name}() takes {takes}{instead}"
        report.refuse(part, message)
    if len(node.args) < least:
        report.refuse(node, f"{name}() takes {takes}")
    if len(node.args) > MOST_INPUTS:
        report.refuse(node, f"{name}() takes at most {MOST_INPUTS} inputs, got {len(node.args)}")


def _is_by(name: str, option: ast.keyword) -> bool:
    """Say whether an option is the column by which a term varies."""
    varies = name not in PARTS and term_kind(name).has_by
    return varies and option.arg == "by" and isinstance(option.value, ast.Name)


def _never(_: object) -> bool:
    """Say that no value is possible: there is no such option."""
    return False


def input_call(node: ast.expr) -> str:
    """Return the name of the call by which inputs are read from a column; empty of others."""
    name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    return name if name in INPUT_CALLS else ""


def _is_input(node: ast.expr) -> TypeGuard[ast.Call]:
    return bool(input_call(node))


def _check_trunk(node: ast.Call, of_images: bool, report: Report) -> None:
    """Refuse a trunk of anything but images, and an output of no trunk."""
    given = {option.arg for option in node.keywords}
    if "output" in given and "trunk" not in given:
        report.refuse(node, "output= is that of a trunk; name its file, as trunk='resnet.onnx'")
    if "trunk" in given and not of_images:
        report.refuse(
            node, "a trunk takes images, as nn(image(path), trunk='resnet.onnx'), nothing else"
        )


def _check_input(network: ast.Call, node: ast.Call, report: Report) -> None:
    """Refuse images and the like beside other inputs of a network, and options that are none."""
    name = input_call(node)
    call = INPUT_CALLS[name]
    if len(network.args) > 1:
        report.refuse(
            network,
            f"{call.noun} are inputs of a network of their own; write the other inputs as another "
            f"one, as nn({report.shown(node)}) + nn(u)",
        )
    known = {option.arg: _literal(option.value) for option in node.keywords}
    column = len(node.args) == 1 and isinstance(node.args[0], ast.Name)
    possible = [call.options.get(str(key), _never)(value) for key, value in known.items()]
    if not column or not all(possible):
        report.refuse(node, f"'{report.shown(node)}' is not allowed: {name}() takes {call.takes}")
    if name == IMAGE:
        _check_image(network, node, known, report)


def _check_image(
    network: ast.Call, node: ast.Call, known: Mapping[str | None, Any], report: Report
) -> None:
    """Refuse images without pixels, and means and standard deviations that are none of theirs."""
    size = known.get("size", 1)
    if min(size if isinstance(size, list) else [size]) < 1:
        report.refuse(node, f"images need at least 1 x 1 pixels, got size={size}")
    _check_standardisation(network, node, known, report)


def _check_standardisation(
    network: ast.Call, node: ast.Call, known: Mapping[str | None, Any], report: Report
) -> None:
    """Refuse means and standard deviations without a trunk, or of other numbers of channels."""
    given = {name: known[name] for name in ("mean", "sd") if name in known}
    if given and not any(option.arg == "trunk" for option in network.keywords):
        report.refuse(
            node,
            "mean and sd are those that a trunk was trained with; without trunk='FILE.onnx' images "
            "are standardised by the training rows",
        )
    lengths = {len(value) for value in given.values() if isinstance(value, list)} - {1}
    lengths |= {known["channels"]} if lengths and "channels" in known else set()
    if len(lengths) > 1:
        report.refuse(node, "mean and sd have one number for each channel, or one for all")


def _check_call(node: ast.Call, report: Report) -> None:
    name = report.shown(node.func)
    if name == IMAGE:
        report.refuse(node, "image() stands in nn(), as nn(image(path, size=32))")
    if name in INPUT_CALLS:
        report.refuse(node, f"{name}() stands in nn(), as nn({name}(column))")
    if not isinstance(node.func, ast.Name) or name not in CALLABLE:
        report.refuse(
            node.func, f"function '{name}' is not available.{did_you_mean(name, CALLABLE)}"
        )
    if not node.args:
        report.refuse(node, f"{name}() needs a column first, as {name}(x)")
    if name in ("C", DAYS) and not isinstance(node.args[0], ast.Name):
        report.refuse(
            node.args[0],
            f"{name}() takes a column, got '{report.shown(node.args[0])}'; make the expression a "
            "column of its own",
        )
    for argument in node.args[1:]:
        _check_option(name, None, argument, report)
    for keyword in node.keywords:
        _check_option(name, keyword.arg, keyword.value, report)


def _check_option(name: str, key: str | None, value: ast.expr, report: Report) -> None:
    """Options are literals, and for ``C()`` a coding as well."""
    refusal = f"'{report.shown(value)}' is not allowed: "
    if name in MATH or name in ("I", DAYS):
        report.refuse(value, f"{refusal}{name}() takes one argument")
    if name == "C" and _is_coding(value, report):
        return
    literal = _literal(value)
    if literal is _NONE:
        report.refuse(value, f"{refusal}an option is a number, a text or a list of these")
    if key in (None, "df", "degree") and isinstance(literal, int) and literal > LARGEST_DEGREE:
        report.refuse(value, f"a degree or number of columns is at most {LARGEST_DEGREE}")


def _is_coding(node: ast.expr, report: Report) -> bool:
    if isinstance(node, ast.Call):
        options = (*node.args, *(keyword.value for keyword in node.keywords))
        if any(_literal(option) is _NONE for option in options):
            return False
        node = node.func
    return isinstance(node, ast.Attribute) and "".join(report.shown(node).split()) in CODINGS


_NONE = object()


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NONE


def _terms(node: ast.AST, refuse: Refusal) -> int:
    """Return at least as many terms as formulaic makes of one side."""
    chain = []
    while isinstance(node, ast.BinOp):
        chain.append(node)
        node = node.left
    terms = _terms(node.operand, refuse) if isinstance(node, ast.UnaryOp) else 1
    for parent in reversed(chain):
        terms = _combined(parent, terms, refuse)
    return terms


def _combined(node: ast.BinOp, left: int, refuse: Refusal) -> int:
    if isinstance(node.op, ast.Pow):
        power = getattr(node.right, "value", None)
        if not isinstance(power, int | float):
            refuse(node, "a power of terms is a number, as (a + b)^2; arithmetic goes into I()")
        terms: int = left ** math.ceil(min(power, 100))
        return min(terms, MOST_TERMS + 1)
    right = _terms(node.right, refuse)
    if isinstance(node.op, ast.Add | ast.Sub):
        return left + right
    return left * right + (0 if isinstance(node.op, ast.MatMult) else left + right)


def located(text: str, piece: str, start: int = 0) -> Span:
    """Find a piece behind a place, whatever its blanks; the whole formula if it is not there."""
    tokens = [re.escape(token) for token in re.findall(r"\w+|[^\w\s]", piece.strip("`"))]
    pattern = r"\s*".join(tokens)
    whole = re.compile(rf"(?<![\w.])`?{pattern}`?(?!\w)")
    if tokens and (found := whole.search(text, start)):
        return found.span()
    return len(text) - len(text.lstrip()), max(1, len(text.rstrip()))
