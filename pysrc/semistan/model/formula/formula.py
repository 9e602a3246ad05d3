"""Read ``y | weights(w) ~ x1 + C(g) + s(x2) + offset(z) + (1 | h) + nn(u1, u2)`` into its parts.

Behind commas stand the predictors of dispersion parameters: ``y ~ x + nn(u), sigma ~ z + nn(u)``.
formulaic parses the text; ``syntax.py`` says what may stand in it, so that a formula from a file
cannot run arbitrary code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from semistan.errors import InputError
from semistan.model.formula.bars import split_bars
from semistan.model.formula.expression import (
    dated,
    parse_sides,
    stripped,
    unique,
    variables,
)
from semistan.model.formula.images import Image, image_of
from semistan.model.formula.imputation import (
    MI,
    check_imputed,
    imputation_at,
    read_imputation,
    with_imputations,
)
from semistan.model.formula.left import read_left
from semistan.model.formula.right import PredictorFormula, read_predictor
from semistan.model.formula.shorthand import written_out
from semistan.model.formula.syntax import (
    INPUT_CALLS,
    LAYERS,
    SHARED,
    check_size,
    check_text,
    formula_error,
    located,
    masked,
)
from semistan.model.formula.trunks import Trunk, trunk_of
from semistan.model.names import MU

Part = TypeVar("Part")


def called(argument: str) -> str:
    """Return the call of ``INPUT_CALLS`` that an argument of ``nn()`` is; empty if it is none."""
    name = argument.partition("(")[0].strip()
    return name if name in INPUT_CALLS else ""


class Network(NamedTuple):
    """One network: what it takes, its options, and the predictors that its outputs are of.

    ``times`` is the term that it multiplies, as ``z`` of ``z:nn(u)``; empty of one by itself.
    """

    arguments: tuple[str, ...]
    options: dict[str, Any]
    of: tuple[str, ...]
    times: str = ""

    @property
    def layers(self) -> dict[str, Any]:
        """The options that say what its layers are."""
        return {name: value for name, value in self.options.items() if name in LAYERS}

    @property
    def trunk(self) -> Trunk | None:
        """The pretrained network that its inputs come from."""
        return trunk_of(self.arguments, self.options)

    @property
    def call(self) -> str:
        """The call that reads its inputs from a column, as ``image``; empty of terms."""
        return called(self.arguments[0])

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
    se : str
        First argument of ``se()``, empty without.
    se_and_sigma : bool
        Whether there is a residual standard deviation too: ``se(s, sigma=TRUE)``.
    cens : tuple of str
        Arguments of ``cens()``: how each row is censored and, if given, where its interval ends.
    lb, ub : str
        Arguments of ``trunc()``, empty without.
    levels : tuple of str
        The response's values in order, of ``C(y, levels=['No', 'Yes']) ~``; empty without.
    counted : tuple of str
        The columns that count the response's categories, of ``cbind(a, b) ~``; empty without.
    """

    text: str
    response: str
    predictors: tuple[PredictorFormula, ...]
    weights: str = ""
    trials: str = ""
    se: str = ""
    se_and_sigma: bool = False
    cens: tuple[str, ...] = ()
    lb: str = ""
    ub: str = ""
    levels: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

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
            calls = zip(predictor.keys_of_nn, predictor.calls_of_nn, predictor.times, strict=True)
            for key, (arguments, options), times in calls:
                before = found[key].of if key in found else ()
                found[key] = Network(arguments, options, (*before, predictor.name), times)
        return tuple(found.values())

    def places(self, predictor: PredictorFormula) -> tuple[int, ...]:
        """Return which of ``networks`` each ``nn()`` of a predictor is."""
        keys = list(dict.fromkeys(key for each in self.predictors for key in each.keys_of_nn))
        return tuple(keys.index(key) for key in predictor.keys_of_nn)

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
        return unique(name for name in used if name not in self.own_columns)

    @property
    def own_columns(self) -> dict[str, str]:
        """The call that reads each column of images and the like, which stands nowhere else."""
        calls = ((network.call, network.arguments[0]) for network in self.networks)
        return {variables(argument)[0]: call for call, argument in calls if call}

    @property
    def dated(self) -> tuple[str, ...]:
        """Columns of dates that ``days()`` turns into numbers."""
        every = (term for predictor in self.predictors for term in predictor.expressions)
        return unique(d for term in every for d in dated(term))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns needed to predict."""
        known = (text for text in (self.trials, self.se, self.lb, self.ub) if text)
        of_known = (name for text in known for name in variables(text))
        return unique((*(v for p in self.predictors for v in p.variables), *of_known))

    @property
    def grouping(self) -> tuple[str, ...]:
        """Columns that only name the levels of groups."""
        every = (term for predictor in self.predictors for term in predictor.expressions)
        others = {name for term in every for name in variables(term)}
        groups = (group for predictor in self.predictors for group in predictor.groups)
        return unique(n for group in groups for n in group.levels_of if n not in others)

    @property
    def memberships(self) -> tuple[str, ...]:
        """Those of them that no standard deviation depends on, as one does on h of gr(g, by=h)."""
        per = {group.per for predictor in self.predictors for group in predictor.groups}
        return tuple(name for name in self.grouping if name not in per)

    @property
    def not_learnt(self) -> tuple[str, ...]:
        """Columns that stand in ``offset()`` or the weights of ``mm()`` alone."""
        learnt = {name for item in self.predictors for name in item.learnt_variables}
        known = (name for item in self.predictors for name in item.known_variables)
        return unique(name for name in known if name not in learnt)

    @property
    def bounding(self) -> tuple[str, ...]:
        """Columns that are bounds or standard errors of the response and explain nothing."""
        return self._explaining_nothing(self.lb, self.ub, self.se)

    @property
    def limiting(self) -> tuple[str, ...]:
        """These, and the number of trials where it explains nothing."""
        return self._explaining_nothing(self.lb, self.ub, self.se, self.trials)

    def _explaining_nothing(self, *texts: str | None) -> tuple[str, ...]:
        explaining = {name for predictor in self.predictors for name in predictor.variables}
        named = (name for text in texts if text for name in variables(text))
        return unique(name for name in named if name not in explaining)

    @property
    def imputed(self) -> tuple[str, ...]:
        """Columns whose missing values are parameters: x of ``mi(x)``."""
        calls = (call for call in self.mean.calls if call.kind == MI)
        return tuple(name for call in calls for name in variables(call.expression))

    @property
    def imputing(self) -> tuple[str, ...]:
        """Columns from which missing values are predicted, and nothing else."""
        calls = tuple(replace(call, predicted_by=()) for call in self.mean.calls)
        mean = replace(self.mean, calls=calls)
        explaining = {v for predictor in (mean, *self.others) for v in predictor.variables}
        return tuple(name for name in self.mean.variables if name not in explaining)

    @property
    def outcome(self) -> tuple[str, ...]:
        """Columns of the response, its weights and its censoring, not needed to predict."""
        beside = (self.weights, *self.cens)
        named = (name for text in beside if text for name in variables(text))
        return unique((*variables(self.response), *named))


@lru_cache(maxsize=16)  # whoever applies a design asks for its formula's parts again
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
    check_imputed(formula.text, formula.predictors, formula.weights)
    _check_images(formula)
    _check_shared(formula)
    return formula


def with_predictors(text: str, names: Iterable[str]) -> str:
    """Add predictors behind commas, with the mean's terms, of parameters that have none."""
    spans, source = spans_of(text), masked(text)
    written = {text[start:end].partition("~")[0].strip() for start, end in spans[1:]}
    start, end = spans[0]
    terms = text[start + source[start:end].index("~") + 1 : end].strip()
    return ", ".join([text, *(f"{name} ~ {terms}" for name in names if name not in written)])


def with_each(text: str, name: str, names: Iterable[str]) -> str:
    """Write the predictor ``name ~ ...`` out for each of several parameters without their own."""
    parts = [text[start:end] for start, end in spans_of(text)]
    written = [part.partition("~")[0].strip() for part in parts]
    found = []
    for part, own in zip(parts, written, strict=True):
        terms = part.partition("~")[2].strip()
        each = [f" {other} ~ {terms}" for other in names if other not in written]
        found += each if own == name else [part]
    return ",".join(found)


def _check_response(formula: Formula) -> None:
    """Refuse predictors that determine the response.

    An expression of several columns may have some of them on the right, as a change that is
    adjusted for where it began, ``I(after - before) ~ before``; but not all. Counts of categories
    may have none.
    """
    columns = variables(formula.response)
    again = [name for name in columns if name in formula.columns]
    if len(again) == len(columns) or (again and formula.counted):
        place = located(formula.text, again[0], masked(formula.text).index("~") + 1)
        raise formula_error(
            formula.text,
            f"'{again[0]}' is the response, which cannot be a predictor of itself; leave it out "
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
    if len({image.column for image, _ in taken}) < len(taken):
        raise InputError(
            f"the formula '{formula.text}' has image() of one column with different options, or "
            "trunks; give it the same ones, or copy the column"
        )
    expressions = (term for part in formula.predictors for term in part.expressions)
    others = {v for term in expressions if not called(term) for v in variables(term)}
    groups = (group for part in formula.predictors for group in part.groups)
    others |= {name for group in groups for name in group.levels_of} | {*formula.outcome}
    for name, call in sorted(formula.own_columns.items()):
        if name in others:
            noun = INPUT_CALLS[call].noun
            raise formula_error(
                formula.text, f"'{name}' is a column of {noun}, which {call}() in nn() takes alone",
                name,
            )  # fmt: skip


def _all_parts(text: str) -> Formula:
    """Read the parts between commas, each with the others blanked, so that places stay right."""
    predictors: list[PredictorFormula] = []
    first, *others = spans_of(text)
    mean = _whole_text(text, first, _checked_formula) if others else _checked_formula(text)
    found: dict[str, tuple[str, ...]] = {}
    for span in others:
        if imputation := imputation_at(text, span):
            name, tilde = imputation
            if name in found:
                message = f"what '{name}' is predicted from stands here twice; write it as one"
                raise formula_error(text, message, stripped(text, *span))
            found[name] = _whole_text(text, (tilde, span[1]), read_imputation)
            continue
        if "~" not in masked(text)[slice(*span)]:
            message = (
                "expected a parameter's predictor or value behind the comma: 'sigma ~ z', 'nu = 4'"
            )
            raise formula_error(text, message, (span[0] - 1, span[1]))
        predictor = _whole_text(text, span, _other_predictor)
        if predictor.name in [known.name for known in predictors]:
            message = f"'{predictor.name}' has a predictor already; write its terms as one"
            raise formula_error(text, message, stripped(text, *span))
        predictors.append(predictor)
    of_mean = with_imputations(mean.mean, found, text)
    return replace(mean, text=text, predictors=(of_mean, *predictors))


def spans_of(text: str) -> list[tuple[int, int]]:
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
    lhs, rhs = parse_sides(bars.plain, text)
    tilde = masked(text).index("~")
    left = stripped(text, 0, tilde)
    if bars.additions:
        message = (
            "weights(), trials(), se(), cens() and trunc() stand beside the response alone; "
            "expected the "
        )
        raise formula_error(text, f"{message}name of a parameter left of '~'", left)
    if not re.fullmatch(r"[A-Za-z]\w*", text[slice(*left)]) or len(lhs) != 1:
        raise formula_error(text, "expected the name of a parameter left of '~'", left)
    if not text[tilde + 1 :].strip():
        raise formula_error(text, "expected terms right of '~', or 1 for an intercept", left)
    return read_predictor(text[slice(*left)], rhs, bars, text)


def _checked_formula(text: str) -> Formula:
    bars = split_bars(text)
    check_text(text, bars.plain)
    lhs, rhs = parse_sides(bars.plain, text)
    left = read_left(lhs, bars, text)
    return Formula(text=text, predictors=(read_predictor(MU, rhs, bars, text),), **left._asdict())
