"""Group-level terms ``(1 + x | g)``: the levels of g, and the columns whose effects vary.

The effects of a level are normal with mean 0; their standard deviations, and their correlations
unless the bar is double, are sampled. Unlike a factor's levels, new ones can be predicted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array, Index
from semistan.model.formula.formula import Formula
from semistan.model.formula.group_terms import GroupTerm, with_id
from semistan.model.names import latin, unique_names
from semistan.model.parameter import (
    CORRELATION,
    STANDARD_NORMAL_MATRIX,
    Centring,
    Choice,
    OwnPrior,
    Parameter,
    Shape,
    lkj,
)
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.priors.densities import parse_prior
from semistan.model.stan_text import WIDTH, call
from semistan.model.streams import Streams
from semistan.model.table.canonical import as_text
from semistan.model.table.columns import (
    Terms,
    apply_terms,
    check_varies,
    learn_terms,
    terms_from_plain,
    to_plain,
)
from semistan.model.table.rows import Block
from semistan.model.terms.penalised import Penalised
from semistan.model.terms.term import Elements, Hyperparameter, Lines, TensorBlock

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    Labels = np.ndarray[Any, Any]

NO_LEVEL = ""  # what a new level is called that has the place of none


@dataclass(frozen=True, slots=True, eq=False)
class Group(Penalised):
    """The learnt state of one group-level term.

    Attributes
    ----------
    by : tuple of str
        The columns whose combinations are the levels.
    levels : tuple of str
        The levels of the training rows.
    effect_names : tuple of str
        Names in Stan of what varies: ``Intercept``, then the columns.
    intercept : bool
        Whether the intercept is among them.
    terms : Terms
        The learnt state of the columns.
    correlated : bool
        Whether the correlations of several effects are sampled.
    key : str
        What its names in the program end in.
    of : str
        The predictor, where it is not that of the mean.
    id : str
        What it shares with terms of other predictors whose effects are correlated with its own.
    """

    by: tuple[str, ...]
    levels: tuple[str, ...]
    effect_names: tuple[str, ...]
    intercept: bool
    terms: Terms
    correlated: bool
    key: str = "1"
    of: str = ""
    id: str = ""

    @property
    def size(self) -> int:
        """Number of effects of each level."""
        return len(self.effect_names)

    @property
    def name(self) -> str:
        """The group's part in Stan names: ``g``, ``g_h`` of ``g:h``."""
        return group_name(self.by)

    @property
    def label(self) -> str:
        """The grouping columns as users write them, for tables and messages."""
        return ":".join(self.by)

    @property
    def behind_bar(self) -> str:
        """What users write behind the bar."""
        return with_id(self.id, self.label)

    @property
    def effect_labels(self) -> tuple[str, ...]:
        """What varies, by its name in the table: ``Intercept``, then the columns."""
        return (*("Intercept",) * self.intercept, *self.terms.columns)

    @property
    def correlations(self) -> tuple[str, ...]:
        """Names of the correlations, of ``pairs`` of effects."""
        names = self.correlated_names
        return tuple(f"cor_{self.name}__{names[j]}__{names[i]}" for i, j in self.pairs)

    @property
    def correlated_names(self) -> tuple[str, ...]:
        """The parts of names that the effects of ``pairs`` have."""
        return tuple(self.named(j) for j in range(self.size))

    @property
    def correlated_labels(self) -> tuple[str, ...]:
        """What they are, in words."""
        return self.effect_labels

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the correlations, row by row of the lower triangle."""
        if not self.correlated:
            return ()
        return tuple((i, j) for i in range(self.size) for j in range(i))

    @property
    def n_levels(self) -> int:
        """Number of levels of the training rows."""
        return len(self.levels)

    @property
    def units(self) -> Array:
        """Standard deviation of what each effect multiplies, 1 for the intercept."""
        return np.array([*([1.0] if self.intercept else []), *self.terms.scale])

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of z, L and r."""
        return f"z_{self.key}", f"L_{self.key}" if self.correlated else "", f"r_{self.key}"

    @property
    def stored(self) -> str:
        """The key under which a bundle has groups."""
        return "groups"

    @property
    def text(self) -> str:
        """The term as users write it."""
        first = ["1"] if self.intercept else ["0"]
        bar = "|" if self.correlated or self.size == 1 else "||"
        return f"({' + '.join([*first, *self.terms.terms])} {bar} {self.behind_bar})"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        return "Group-level term", f"{self.text}, {len(self.levels):,} levels"

    @property
    def only_intercept(self) -> bool:
        """Whether nothing but the intercept varies."""
        return self.intercept and self.size == 1

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        return group_to_plain(self)

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:
        """Return the columns (N, size) and the level of each row.

        A row whose grouping column is None is of no level: it has none of the effects.

        Raises
        ------
        InputError
            For levels that the model was not trained on, unless they are allowed.
        """
        level, new = self.places(level_labels(table, self.by), allow_new_levels=allow_new_levels)
        return Block(self._columns(table), level, new)

    def places(
        self, labels: Sequence[str | None], *, allow_new_levels: bool
    ) -> tuple[Index, tuple[str, ...]]:
        """Return the place of each label among the levels, and the new ones, which come behind.

        Raises
        ------
        InputError
            For new ones, unless they are allowed.
        """
        known = {label: i for i, label in enumerate(self.levels)}
        new = tuple(sorted({label for label in labels if label is not None} - known.keys()))
        if new and not allow_new_levels:
            shown = ", ".join(repr(label) for label in new[:5]) + (", ..." if len(new) > 5 else "")
            raise InputError(
                f"'{self.label}' has levels that the model was not trained on: {shown}. "
                "Predict them as drawn from their distribution with --allow-new-levels."
            )
        codes = known | {label: len(known) + i for i, label in enumerate(new)}
        return np.array([-1 if x is None else codes[x] for x in labels], dtype=int), new

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:
        """Return the standardised effects, and the Cholesky factor of their correlations."""
        z, L, _ = self.names
        text = f"effects of {self.name}, standardised"
        prior, centring = STANDARD_NORMAL_MATRIX, self.centring()
        made = Parameter(z, text, self.z_shape, self.z_sizes, prior=prior, centring=centring)
        return (
            (self.correlation_factor(priors, self.size, self.effects_text), made) if L else (made,)
        )

    def correlation_factor(self, priors: ChosenPriors, size: int, M: str) -> Parameter:
        """Return the Cholesky factor of the correlations of so many effects, M in the program."""
        text, L = f"Cholesky factor of the correlations of {self.name}", self.names[1]
        return Parameter(L, text, (size,) * 2, (M,) * 2, CORRELATION, prior=self._of_cor(priors))

    def _of_cor(self, priors: ChosenPriors) -> OwnPrior:
        """Return the prior of the correlations: that of all groups, or one of their own."""
        own = f"cor_{self.name}"
        key = own if own in priors.coefficients else "cor"
        text, source = priors.chosen(own, "cor")
        shape, name = parse_prior(text, key).argument("shape"), f"prior_{key}_shape"
        of = f" of {self.label}" if key == own else ""
        line = (f"real<lower=0> {name};", f"lkj prior on the correlations{of}: shape")
        return lkj(shape, Choice("cor", own, key, text, source, {name: shape}, (line,)))

    @property
    def z_shape(self) -> Shape:
        """Levels times effects."""
        return (self.n_levels, self.size)

    @property
    def z_sizes(self) -> tuple[str, ...]:
        """Levels times effects."""
        return (f"N_{self.key}", self.effects_text)

    def centring(self) -> Centring:
        """Say between which coordinates of the effects the sampler moves."""
        own = Penalised.centring(self)
        if not self.correlated:
            return own
        N, M = self.z_sizes
        return replace(
            own,
            function="partly_centred_effects",
            spread=f"[{', '.join(self.spread)}]', {self.factor_text}",
            declared=f"array[{N}] matrix[{M}, {M}]",
            shape=(*self.z_shape, self.size),
            gain=self._gain,
        )

    @property
    def factor_text(self) -> str:
        """The Cholesky factor of the correlations in the program."""
        return self.names[1]

    def factor_of(self, values: Mapping[str, Any]) -> Tensor:
        """Return it."""
        return torch.as_tensor(values[self.names[1]])

    def _gain(self, values: Mapping[str, Any], information: Tensor) -> Tensor:
        root = self.sd(values)[:, None] * self.factor_of(values)
        return (root * (information @ root)).sum(dim=1)

    def information(self, bend: Tensor, block: TensorBlock) -> Tensor:
        """Return what rows say of the effects of each level: a matrix if they are correlated."""
        if not self.correlated:
            return Penalised.information(self, bend, block)
        found = bend.new_zeros(self.n_levels, self.size, self.size)
        each = bend[:, None, None] * block.Z[:, :, None] * block.Z[:, None, :]
        return found.index_add(0, block.level, each)

    @property
    def spread_text(self) -> str:
        """The standard deviations of the effects, level by level; given others if correlated."""
        if self.correlated:
            return f"rep_matrix(diagonal({self.root_name})', N_{self.key})"
        if self.size == 1:
            return f"rep_matrix({self.spread[0]}, N_{self.key}, 1)"
        return f"rep_matrix([{', '.join(self.spread)}], N_{self.key})"

    @property
    def takes_level(self) -> bool:
        """Whether the intercept varies."""
        return self.intercept

    @property
    def root_name(self) -> str:
        """What the program calls the root of the covariance of correlated effects; else empty."""
        return f"root_{self.key}" if self.correlated else ""

    def root_lines(self) -> Lines:
        """Declare it."""
        M = self.effects_text
        declared = f"matrix[{M}, {M}] {self.root_name}"
        text = f"root of the covariance of effects of {self.name}"
        made = call("= diag_pre_multiply", [*self._sd, self.names[1]], ";", WIDTH - 4)
        return [(declared, text), (indent(made, "  ").rstrip(), "")]

    @property
    def columns_text(self) -> str:
        """What varies, at the place of each row's level."""
        Z = "rep_matrix(1, N, 1)" if self.only_intercept else f"Z_{self.key}"
        return f"columns_by_level({Z}, J_{self.key}, N_{self.key})"

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations of the effects: ``sd_g__Intercept``."""
        return tuple(
            Hyperparameter(
                f"sd_{self.name}__{self.named(j)}",
                f"standard deviation of {effect} by {self.label}",
                "sd",
                1 / float(units),
                within=f"sd_{self.name}",
            )
            for j, (effect, units) in enumerate(zip(self.effect_labels, self.units, strict=True))
        )

    def data_lines(self) -> Lines:
        """Declare the levels, and the columns whose effects vary."""
        N, J = f"N_{self.key}", f"J_{self.key}"
        lines = [
            (f"int<lower=1> {N};", f"levels of {self.label}"),
            (f"array[N] int<lower=1, upper={N}> {J};", "level of each row"),
        ]
        if self.only_intercept:
            return lines
        M = self.effects_text
        return [
            *lines,
            (f"int<lower=1> {M};", "effects that vary by level"),
            (f"matrix[N, {M}] Z_{self.key};", "what they multiply"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return levels and columns of some rows."""
        data = {f"N_{self.key}": len(self.levels), f"J_{self.key}": block.level + 1}
        if self.only_intercept:
            return data
        return data | {self.effects_text: self.size, f"Z_{self.key}": block.Z}

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        columns = [] if self.only_intercept else [f"data matrix Z_{self.key}"]
        return [f"data array[] int J_{self.key}", *columns], [f"matrix r_{self.key}"]

    def made_lines(self) -> Lines:
        """Declare the effects of the levels."""
        declared = f"matrix[N_{self.key}, {self.effects_text}] r_{self.key}"
        return [
            (declared, f"effects of the levels of {self.name}"),
            (indent(self._made_text(), "  ").rstrip(), ""),
        ]

    def _made_text(self) -> str:
        z, L, _ = self.names
        if self.size == 1:
            return f"= {self.spread[0]} * {z};"
        if L:
            return call(f"= {z} * diag_pre_multiply", [*self._sd, L], "';", width=WIDTH - 4)
        return call("= diag_post_multiply", [z, *self._sd], ";", width=WIDTH - 4)

    @property
    def _sd(self) -> list[str]:
        """The standard deviations as a vector, which may be broken between them."""
        first, *others = self.spread
        if not others:
            return [f"[{first}]'"]
        return [f"[{first}", *others[:-1], f"{others[-1]}]'"]

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        level = f"J_{self.key}{rows}"
        if self.only_intercept:
            return f"r_{self.key}[{level}, 1]"
        return f"rows_dot_product(Z_{self.key}{rows}, r_{self.key}[{level}])"

    def quantity_lines(self) -> Lines:
        """Declare the correlations by their names."""
        lines, L = [], self.names[1]
        for name, (a, b) in zip(self.correlations, self.pairs, strict=True):
            declared, value = f"real {name}", f"= dot_product({L}[{b + 1}], {L}[{a + 1}]);"
            fits = len(declared) + len(value) + 3 <= WIDTH
            lines.append((f"{declared} {value}" if fits else f"{declared}\n  {value}", ""))
        return lines

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shape of the effects: levels times effects."""
        return {self.names[2]: (len(self.levels), self.size)}

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the effects r (levels, effects)."""
        return {self.names[2]: self.coefficients(values)}

    def quantities(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the correlations."""
        if not self.names[1]:
            return {}
        L = values[self.names[1]]
        matrix = L @ L.T
        pairs = (matrix[i, j] for i, j in self.pairs)
        return dict(zip(self.correlations, pairs, strict=True))

    def predicted(self, draws: Mapping[str, Array], block: Block, streams: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N); nothing at level -1.

        Levels that the model was not trained on are drawn from the distribution of the levels,
        normal with the draw's standard deviations and correlations: the same for all rows of a
        level and whenever it is predicted, and independent of those of other terms, which have
        other standard deviations.
        """
        r = draws[self.names[2]]
        if block.new:
            r = np.concatenate([r, self._new_levels(draws, block, streams)], axis=1)
        if r.shape[1] == 1:
            return np.asarray(r[:, 0] @ block.Z.T)
        total = np.zeros((len(r), len(block.Z)))
        for j, column in enumerate(block.Z.T):
            total += r[:, block.level, j] * (column * (block.level >= 0))
        return total

    def renewed(self, block: Block) -> Block:
        """Return the rows with a new level in place of each of theirs.

        Rows of one level stay together; those of none are of one new level too.
        """
        labels = (*self.levels, *block.new, NO_LEVEL)
        found, level = np.unique(block.level % len(labels), return_inverse=True)
        return Block(block.Z, self.n_levels + level, tuple(labels[i] for i in found))

    def deviation(self, draws: Mapping[str, Array], block: Block) -> Array:
        """Return the standard deviation (S, N) over all levels of what is added to a predictor."""
        root = self.root(draws)
        total = np.zeros((len(root), len(block.Z)))
        for column in np.moveaxis(root, -1, 0):
            total += np.square(column @ block.Z.T)
        return np.asarray(np.sqrt(total))

    def _new_levels(self, draws: Mapping[str, Array], block: Block, streams: Streams) -> Array:
        root = self.root(draws)
        new = []
        for label in block.new:
            z = streams.normal(*self.drawn_by, label, size=root.shape[2])
            new.append(np.einsum("sij,sj->si", root, z))
        return np.stack(new, axis=1)

    @property
    def drawn_by(self) -> tuple[str, ...]:
        """What names the random numbers of new levels."""
        return self.spread

    def root(self, draws: Mapping[str, Array]) -> Array:
        """Return a root (S, size, n) of the effects' covariance, which n standard normals make."""
        sd = np.stack([draws[name] for name in self.spread], axis=-1)
        return np.asarray(sd[:, :, None] * correlation_root(self, draws, self.size))

    @property
    def reported(self) -> tuple[str, ...]:
        """Standard deviations and correlations."""
        return (*self.spread, *self.correlations)

    def labels(self) -> dict[str, str]:
        """Say what standard deviations and correlations are."""
        texts = {item.name: item.text for item in self.hyperparameters()}
        for name, (a, b) in zip(self.correlations, self.pairs, strict=True):
            names = self.correlated_labels
            texts[name] = f"correlation of {names[b]} and {names[a]} by {self.label}"
        return texts

    @property
    def elements(self) -> dict[str, Elements]:
        """The effects, as brms has them: ``r_g[a,Intercept]``."""
        of = f"__{self.of}" if self.of else ""
        return {self.names[2]: Elements(f"r_{self.name}{of}", (self.levels, self.effect_names))}

    @property
    def effects_text(self) -> str:
        """The number of effects as the program has it."""
        return "1" if self.only_intercept else f"M_{self.key}"

    def named(self, effect: int) -> str:
        """Return an effect's part in the names, after its predictor where it is another's."""
        name = self.effect_names[effect]
        return f"{self.of}_{name}" if self.of else name

    def _columns(self, table: pd.DataFrame) -> Array:
        columns = np.ones((len(table), int(self.intercept)))
        if not self.terms.terms:
            return columns
        return np.hstack([columns, apply_terms(self.terms, table, {})])


def learn_group(term: GroupTerm, table: pd.DataFrame, key: str = "1", of: str = "") -> Group:
    """Learn the levels and the columns from the training rows.

    Parameters
    ----------
    term : GroupTerm
        The parsed term.
    table : pandas.DataFrame
        The training rows.
    key : str
        What its names in the program end in.
    of : str
        The predictor, where it is not that of the mean.

    Raises
    ------
    InputError
        If there is only one level, or two have one label; or the columns cannot be used.
    """
    group = group_of_levels(term, table, labels_in(table, term.by, term.text), key, of)
    group.block(table)  # whose values must be finite
    return group


def labels_in(table: pd.DataFrame, by: tuple[str, ...], text: str) -> set[str]:
    """Return the labels of the levels of some columns, of which no two may be alike."""
    labels = {label for label in level_labels(table, by) if label is not None}
    if len(labels) < len(table[list(by)].dropna().drop_duplicates()):
        raise InputError(f"{text}: two levels of '{':'.join(by)}' look alike; rename one")
    return labels


def group_of_levels(
    term: GroupTerm, table: pd.DataFrame, labels: set[str], key: str, of: str
) -> Group:
    """Learn the columns whose effects vary, given the labels of the levels.

    Raises
    ------
    InputError
        If there is only one level, or the columns cannot be used.
    """
    empty = Terms((), (), {}, {}, (), ())
    terms = learn_terms(term.terms, {}, table, intercept=term.intercept)[0] if term.terms else empty
    check_varies(terms)
    if len(labels) < 2:
        raise InputError(
            f"{term.text}: '{':'.join(term.by)}' has one level; a group-level term needs several"
        )
    intercept = ("Intercept",)
    effects = (*intercept * term.intercept, *unique_names(terms.columns, intercept))
    correlated = term.correlated and len(effects) > 1
    levels = tuple(sorted(labels))
    return Group(term.by, levels, effects, term.intercept, terms, correlated, key, of, term.id)


def shared_state(group: Group) -> dict[str, Any]:
    """Return what kinds of groups have in common, by the names of their fields."""
    return {field.name: getattr(group, field.name) for field in fields(Group)}


def correlation_root(group: Group, draws: Mapping[str, Array], size: int) -> Array:
    """Return the Cholesky factors (S, size, size) of the correlations that a term reports."""
    first = draws[group.spread[0]]
    matrix = np.tile(np.eye(size), (len(first), 1, 1))
    for name, (i, j) in zip(group.correlations, group.pairs, strict=True):
        matrix[:, i, j] = matrix[:, j, i] = draws[name]
    return np.asarray(np.linalg.cholesky(matrix))


def group_name(by: tuple[str, ...]) -> str:
    """Return the name in Stan of grouping columns."""
    return "_".join(re.sub("[^A-Za-z0-9]", "_", latin(column)) for column in by)


def level_labels(table: pd.DataFrame, by: tuple[str, ...]) -> list[str | None]:
    """Return the level of each row as text, ``a_1`` for two columns; None where one is missing."""
    missing = table[list(by)].isna().any(axis=1)
    rows = zip(*(as_text(table[column]) for column in by), strict=True)
    return [None if gone else "_".join(row) for row, gone in zip(rows, missing, strict=True)]


def group_to_plain(group: Group) -> dict[str, Any]:
    """Return the state as JSON-ready data."""
    plain: dict[str, Any] = to_plain(
        {
            "by": group.by,
            "levels": group.levels,
            "effects": group.effect_names,
            "intercept": group.intercept,
            "terms": asdict(group.terms),
            "correlated": group.correlated,
            **({"id": group.id} if group.id else {}),
        }
    )
    return plain


def group_from_plain(
    content: Mapping[str, Any], formula: Formula, key: str = "1", of: str = ""
) -> Group:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its sizes do not fit.
    """
    terms = terms_from_plain(content["terms"], formula)
    by, levels, effects = (
        tuple(str(item) for item in content[name]) for name in ("by", "levels", "effects")
    )
    intercept = bool(content["intercept"])
    if len(effects) != intercept + len(terms.columns) or not set(by) <= set(formula.columns):
        raise ValueError("a group-level term's columns do not fit")
    correlated, identity = bool(content["correlated"]), str(content.get("id", ""))
    return Group(by, levels, effects, intercept, terms, correlated, key, of, identity)
