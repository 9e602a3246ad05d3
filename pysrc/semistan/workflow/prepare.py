"""From a configuration and a table to a checked model with its rows: all that precedes training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.data.frames import Table, as_frame
from semistan.data.images import with_pictures
from semistan.data.model_file import read_config
from semistan.data.pixels import Reading
from semistan.data.related import related_levels
from semistan.data.tables import BINARY, STDIN, dialect_of, read_table
from semistan.errors import InputError
from semistan.infer.methods import check_computable, method_of, suited
from semistan.lazy import torch
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig, anywhere, with_overrides
from semistan.model.design import (
    Design,
    apply_design,
    factor_notes,
    learn_design,
    new_levels,
    new_levels_text,
)
from semistan.model.families.categorical import with_levels
from semistan.model.families.dirichlet import DIRICHLET
from semistan.model.families.families import (
    UNORDERED,
    family,
    parameter_links,
    with_categories,
)
from semistan.model.families.family import Family, check_response, check_support
from semistan.model.families.measured import response_family, with_errors
from semistan.model.families.multinomial import MULTINOMIAL
from semistan.model.families.ordinal import check_ordered
from semistan.model.formula.formula import Formula, parse_formula
from semistan.model.formula.shorthand import needs_table, rest, with_table
from semistan.model.model import Model, network_spec
from semistan.model.modules import Given, Modules, adopted, check_options
from semistan.model.names import stan_name
from semistan.model.networks.networks import Networks
from semistan.model.orthogonal import check_orthogonal
from semistan.model.predictor import check_parameters, for_each
from semistan.model.priors.checks import check_free_theta, check_priors
from semistan.model.separation import separation_notes
from semistan.model.table.given import check_given, check_weights
from semistan.model.table.imputed import with_numbers
from semistan.model.table.kinds import check_dates
from semistan.model.table.missing import complete_rows
from semistan.model.table.outcome import with_levels_of, with_outcome
from semistan.model.table.rows import Rows
from semistan.model.table.scale import size_notes
from semistan.model.terms.penalised import Penalised
from semistan.model.trained import Source
from semistan.model.units import Units, units_of
from semistan.posterior.options import KNOWN
from semistan.subspace.construction import check_construction
from semistan.subspace.steps import with_rate, within_steps
from semistan.workflow.watch import NOBODY, Say, Watch

if TYPE_CHECKING:
    import pandas as pd


MODULE_ROWS = 16  # at which modules are evaluated before training


@dataclass(frozen=True, eq=False)
class Prepared:
    """A checked model with its training rows: everything that can be known before training.

    ``notes`` say what the user should know: dropped rows, factors of many levels. ``modules`` are
    the user's among the networks. ``units`` are those of other rows, as where responses are
    simulated: priors must not follow these.
    """

    config: ModelConfig
    design: Design
    rows: Rows
    source: Source
    notes: tuple[str, ...] = ()
    modules: Modules = field(default_factory=dict)
    units: Units | None = None

    @cached_property
    def model(self) -> Model:
        """The model in the units of the training rows, unless others are given."""
        record = response_family(self.config.family, self.design.formula)
        units = self.units or units_of(self.design, record, self.rows)
        return Model(self.config, self.design, units, self.modules)


def configure(
    model: str | Path | ModelConfig, overrides: dict[str, Any] | None = None
) -> ModelConfig:
    """Turn a formula, the path of a ``model.toml``, or a configuration into a configuration.

    Raises
    ------
    InputError
        If the file or one of its keys cannot be used.
    """
    settings = dict(overrides or {})
    if isinstance(model, ModelConfig):
        config = model
    elif "~" in str(model):
        config = ModelConfig(formula="")
        settings.setdefault("formula", str(model))
    elif Path(model).suffix in (".csv", *BINARY):
        raise InputError(f"'{model}' is a table: give it by --data, with a formula or a model.toml")
    else:
        config = read_config(Path(model))
    config = with_overrides(config, settings)
    method_of(config.sample)  # an unknown one is refused before any work
    return config


def prepared_of(
    model: Any,
    data: Table | str | Path | None,
    networks: Given | None,
    overrides: Mapping[str, Any] | None,
) -> Prepared:
    """Check a model that is not trained, as ``configure`` takes it, against its table."""
    settings, frame = dict(overrides or {}), data
    if isinstance(data, str | Path):
        frame, settings["data"] = None, str(data)
    return prepare(configure(model, settings), frame, networks)


def prepare(
    config: ModelConfig,
    frame: Table | None = None,
    networks: Given | None = None,
    reading: Reading | None = None,
) -> Prepared:
    """Check the model against its data and learn the design.

    Parameters
    ----------
    config : ModelConfig
        The model.
    frame : pandas.DataFrame or a table of another library, optional
        The data; otherwise ``config.data`` is read.
    networks : mapping, optional
        The modules that the formula names, as of ``semistan.fit``.
    reading : callable, optional
        Called with how many images of a column have been read, and how many there are.

    Raises
    ------
    InputError
        For anything that would make training or sampling impossible or meaningless.
    """
    check_device(config.train.device)
    said: list[str] = []
    formula, table = _read(config, frame, said.append)
    kept, missing = complete_rows(formula, table, response=True, drop_missing=config.drop_missing)
    formula, kept = with_pictures(
        formula, kept, said.append, positions=missing.kept, progress=reading
    )
    record = family(config.family)
    formula, which = with_levels_of(formula, record, kept)
    said += [which] if which else []
    kept = with_outcome(formula, record, kept)
    formula, record, categories = _with_unordered_categories(formula, record, kept)
    record = with_errors(record, formula)
    formula = for_each(formula, record)
    check_parameters(formula, record)
    links = parameter_links(record, (predictor.name for predictor in formula.others))
    related = related_levels(formula, table)
    design, rows = learn_design(formula, kept, categories, links, related)
    record = _learnt(formula, record, kept, rows)
    written, formula = formula, for_each(formula, record)
    if formula is not written:
        links = parameter_links(record, ())
        design, rows = learn_design(formula, kept, categories, links, related)
    check_parameters(formula, record)
    check_weights(formula, rows.given)
    check_given(record, formula, rows.y, rows.given)
    modules = adopted(design, rows.evenly(MODULE_ROWS).U, networks)
    config = config.model_copy(update={"family": str(record), "formula": formula.text})
    config = _settled(config, formula, design, modules, len(rows), said.append)
    from_file = frame is None and config.data not in (None, STDIN)
    path = str(Path(str(config.data)).resolve()) if from_file else None
    notes = (
        *([missing.text] if missing else []),
        *said,
        *factor_notes(design),
        *_size_notes(record, design, rows),
        *separation_notes(record, design, rows),
    )
    source = Source(path, len(rows), len(missing))
    return Prepared(config, design, rows, source, notes, modules)


def _read(config: ModelConfig, frame: Table | None, say: Say) -> tuple[Formula, pd.DataFrame]:
    """Return the formula in the words of the table, and the table.

    A formula that needs no table is parsed first: its mistakes are told before a long file is read.
    """
    formula = None if needs_table(config.formula) else parse_formula(config.formula)
    if frame is not None:
        table = as_frame(frame)
    elif config.data is None:
        raise InputError("no data: give --data FILE.csv, or the key 'data' in model.toml")
    else:
        table = read_table(config.data, dialect_of(config), say)
        if len(table) == 0:
            raise InputError(f"data file '{config.data}' has a header but no rows")
    columns = list(map(str, table.columns))
    formula = formula or parse_formula(with_table(config.formula, columns))
    if others := rest(config.formula, columns):
        say(f"'.' is {', '.join(others)}")
    return formula, table


def _settled(
    config: ModelConfig, formula: Formula, design: Design, modules: Modules, rows: int, say: Say
) -> ModelConfig:
    """Return the configuration with what the design decides, and check the rest against it."""
    check_options(config, modules)
    config, fewer = within_steps(config, rows, of_images=design.of_images)
    if fewer:
        say(fewer)
    config = with_rate(config, rows, of_images=design.of_images)
    spec = network_spec(config, design, modules)
    if all("k" in network.options for network in formula.networks):
        config = with_overrides(config, {"subspace.k": max(spec.dimensions)})
    config = _with_free_level(anywhere(config), design, spec)
    check_construction(config.subspace, spec)
    options = suited(config.sample, spec)
    method = method_of(options)
    if options is not config.sample:
        config = config.model_copy(update={"sample": options})
        say(f"{method.text} runs in PyTorch ({method.name}): Stan cannot compute {spec.text}")
    check_computable(method, spec)
    check_orthogonal(config, design)
    check_priors(config, design)
    method.check(config)
    check_free_theta(config, design)
    return config


def _size_notes(record: Family, design: Design, rows: Rows) -> Iterator[str]:
    """Yield warnings of the sizes of the response, and of the columns but those of images."""
    assert rows.y is not None
    matrices = [rows.predictors[item.name].X for item in design.predictors]
    names = [name for item in design.predictors for name in item.x.columns]
    if not design.of_images:
        matrices, names = [*matrices, rows.U], [*names, *design.u.columns]
    seen = dict(zip(names, np.hstack(matrices).T, strict=True))  # each column once
    counts = record.integer and not record.dispersion and not record.categories
    columns = np.column_stack([*seen.values()]) if seen else np.empty((len(rows), 0))
    yield from size_notes(rows.y, counts, columns, tuple(seen))


def _with_free_level(config: ModelConfig, design: Design, networks: Networks) -> ModelConfig:
    """Let output biases move by themselves where other terms may take the level upon them."""
    if config.subspace.free != "auto":
        return config
    taken = any(
        isinstance(term, Penalised) and (term.takes_level or predictor.slopes)
        for predictor in design.predictors
        for term in predictor.terms
        if predictor.name in networks.predictors
    )
    free = "bias" if taken and config.subspace.moves == "directions" else "none"
    subspace = config.subspace.model_copy(update={"free": free})
    return config.model_copy(update={"subspace": subspace})


def _learnt(formula: Formula, record: Family, table: pd.DataFrame, rows: Rows) -> Family:
    """Check the response, and return the family with what it learns of the training rows."""
    assert rows.y is not None
    check_response(record, rows.y, formula.response)
    if record.learn:
        check_given(record, formula, rows.y, rows.given)
        return record.learn(rows.y, rows.given)
    known = check_ordered(record, formula.response, table)
    return with_categories(record, rows.y, formula.response, known)


def _with_unordered_categories(
    formula: Formula, record: Family, table: pd.DataFrame
) -> tuple[Formula, Family, tuple[str, ...]]:
    """Complete formula and family by the response's categories, and return these too."""
    if record.name not in UNORDERED:
        if formula.counted:
            raise InputError(
                f"'{formula.response}' has a column for each category, for family {MULTINOMIAL} "
                f"of counts or {DIRICHLET} of shares; the family is {record.name}"
            )
        return formula, record, ()
    levels = UNORDERED[record.name](formula, table, record.levels)
    record = family(f"{record.name}({', '.join(map(stan_name, levels))})")
    return with_levels(formula, levels), record, levels


def check_device(name: str) -> None:
    """Refuse to train on a GPU that is not there.

    Raises
    ------
    InputError
        Saying what to do.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "train.device is 'cuda', but PyTorch finds no CUDA device; use 'auto' or 'cpu', or "
            "install a PyTorch that is built for the GPU"
        )


def new_rows(
    bundle: Bundle,
    frame: Table,
    *,
    response: bool = False,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    groups: str = KNOWN,
    training: bool = False,
    watch: Watch = NOBODY,
) -> Rows:
    """Apply a bundle's design to new rows, and say which of them were dropped.

    Where the effects of groups are not those of the rows' levels, these may be new or absent. The
    rows may be those of the ``training``, whose missing values have parameters.

    Raises
    ------
    InputError
        For missing columns or values, or factor levels that the model has not seen.
    """
    formula = parse_formula(bundle.config.formula)
    kept = new_table(
        bundle, frame, response=response, drop_missing=drop_missing, groups=groups, watch=watch
    )
    known = groups == KNOWN
    kept = with_numbers(formula, kept) if training else kept
    rows = apply_design(
        bundle.design, kept, response=response, allow_new_levels=allow_new_levels or not known
    )
    if known and (taken := new_levels(bundle.design, rows)):
        watch.say(new_levels_text(taken))
    if rows.y is not None:
        check_support(bundle.family, rows.y, formula.response)
        check_ordered(bundle.family, formula.response, kept)
    check_given(bundle.family, formula, rows.y, rows.given)
    return rows


def new_table(
    bundle: Bundle,
    frame: Table,
    *,
    response: bool = False,
    drop_missing: bool = False,
    groups: str = KNOWN,
    watch: Watch = NOBODY,
) -> pd.DataFrame:
    """Return complete new rows in the types of the training rows, with their images.

    Where the effects of groups are not those of the rows' levels, these may be absent.

    Raises
    ------
    InputError
        For missing columns or values.
    """
    formula, design = parse_formula(bundle.config.formula), bundle.design
    kept, missing = complete_rows(
        formula, as_frame(frame), response=response, drop_missing=drop_missing,
        kinds=design.kinds, optional=optional_columns(formula, groups),
    )  # fmt: skip
    check_dates(kept, formula.dated)
    if missing:
        watch.say(missing.text)
    _, kept = with_pictures(
        formula, kept, watch.say,
        positions=missing.kept, trunks=design.trunks, progress=watch.reading,
    )  # fmt: skip
    return with_outcome(formula, bundle.family, kept) if response else kept


def optional_columns(formula: Formula, groups: str) -> tuple[str, ...]:
    """Return the columns that new rows may lack: those that only name levels nobody asks for."""
    return () if groups == KNOWN else formula.memberships


def training_rows(
    bundle: Bundle, data: str | Path | None = None, reading: Reading | None = None
) -> Rows:
    """Read a bundle's training rows again, from a given file or where they were."""
    path = data or bundle.source.path
    if path is None or (data is None and path == STDIN):  # no bundle may wait for what is typed
        raise InputError("the bundle was trained on a table in memory: give --data FILE.csv")
    dialect = dialect_of(bundle.config, bundle.design.text_columns)
    table, drop = read_table(path, dialect), bundle.config.drop_missing
    watch = Watch(reading=reading)
    rows = new_rows(bundle, table, response=True, drop_missing=drop, training=True, watch=watch)
    if len(rows) != bundle.source.rows:
        raise InputError(
            f"the bundle was trained on {bundle.source.rows} rows, '{path}' has {len(rows)}"
        )
    return rows
