"""What the R package asks of semistan.

Columns and arrays cross as bytes, which every version of reticulate and numpy understands, text as
codes and levels. ``attempt`` returns errors as text, so that R can raise them as its own.
"""

from __future__ import annotations

import ctypes
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

import semistan
from semistan.errors import SemistanError
from semistan.model.formula.formula import parse_formula
from semistan.posterior import predictive
from semistan.posterior.categories import category_names
from semistan.posterior.summary import coefficient_table
from semistan.workflow.prepare import new_rows

Columns = list[dict[str, Any]]  # of a table, as R writes them
Settings = dict[str, Any]
LISTS = ("hidden", "channels")  # settings that are lists even of one number


def attempt(verb: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    """Return the ``value`` of a verb below, or else an ``error`` or ``interrupted``."""
    try:
        with _interruptible():
            return {"value": VERBS[verb](*arguments, **named)}
    except KeyboardInterrupt:
        return {"interrupted": True}
    except SemistanError as error:
        return {"error": str(error)}
    except Exception as error:  # whatever it is, R's user gets no traceback of Python's
        return {"error": f"{type(error).__name__}: {error}"}


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Python alone hear of Ctrl-C.

    R, if it heard of it too, would jump out of Python's frames, which damages both.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    of_r = _get_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        _set_handler(signal.SIGINT, of_r)


_get_handler, _set_handler = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
_get_handler.argtypes, _get_handler.restype = [ctypes.c_int], ctypes.c_void_p
_set_handler.argtypes, _set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p


# Tables and arrays ------------------------------------------------------------------------------


def table_of(columns: Columns | None) -> pd.DataFrame | None:
    """Return a data frame of R, of whose columns each says its kind and has its bytes."""
    if columns is None:
        return None
    return pd.DataFrame({column["name"]: _column(column) for column in columns})


def _column(column: dict[str, Any]) -> Any:
    kind, content = column["kind"], bytes(column["bytes"])
    if kind in ("number", "date", "time"):
        values = np.frombuffer(content, dtype=np.float64)
        return values if kind == "number" else _moments(values, kind)
    if kind == "long":
        values = np.frombuffer(content, dtype=np.int64)
        missing = values == np.iinfo(np.int64).min
        return pd.arrays.IntegerArray(np.where(missing, 0, values), missing)
    codes = np.frombuffer(content, dtype=np.int32)
    if kind == "whole":
        return codes.astype(np.int64)
    if kind == "truth":
        missing = codes < 0
        return pd.arrays.BooleanArray(codes > 0, missing) if missing.any() else codes > 0
    levels = np.array([*column["levels"], None], dtype=object)
    if kind == "text":
        return pd.Series(levels[codes], dtype=object)
    return pd.Categorical.from_codes(codes, pd.Index(levels[:-1], dtype=object), column["ordered"])


def _moments(values: np.ndarray, kind: str) -> pd.DatetimeIndex:
    """Return dates of days, or times of seconds, since 1970."""
    known = np.isfinite(values)
    units = np.where(known, values, 0) * (86_400_000_000 if kind == "date" else 1_000_000)
    moments = np.round(units).astype("datetime64[us]")
    return pd.DatetimeIndex(np.where(known, moments, np.datetime64("NaT")))


def columns_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table as R reads it: each column's name, kind, bytes and, of text, levels."""
    return [{"name": str(name), **_written(table[name])} for name in table.columns]


def _written(column: pd.Series) -> dict[str, Any]:
    if pd.api.types.is_bool_dtype(column.dtype):
        codes = np.where(column.isna(), -1, column.fillna(False).astype(bool))
        return {"kind": "truth", "bytes": _bytes(codes, np.int32)}
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        seconds = (column - pd.Timestamp(0, tz=column.dt.tz)) / pd.Timedelta(seconds=1)
        return {"kind": "time", "bytes": _bytes(seconds, np.float64)}
    if pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        return {"kind": "number", "bytes": _bytes(values, np.float64)}
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, levels, kind = column.cat.codes, column.cat.categories, "factor"
    else:
        codes, levels = pd.factorize(column)
        kind = "text"
    ordered = kind == "factor" and bool(column.cat.ordered)
    return {"kind": kind, "bytes": _bytes(codes, np.int32), "levels": [*map(str, levels)],
            "ordered": ordered}  # fmt: skip


def array_of(values: Any) -> dict[str, Any]:
    """Return an array as R reads it: its shape, and its bytes by columns."""
    values = np.asarray(values, dtype=float)
    return {"shape": [*values.shape], "bytes": bytearray(values.tobytes(order="F"))}


def _bytes(values: Any, kind: type) -> bytearray:
    return bytearray(np.ascontiguousarray(values, dtype=kind).tobytes())


# Fits -------------------------------------------------------------------------------------------


def fit(model: str, columns: Columns, settings: Settings, **named: Any) -> Any:
    """Fit a model."""
    return semistan.fit(model, table_of(columns), **named, **_plain(settings))


def version() -> str:
    """Return the version of semistan."""
    return semistan.__version__


def read(path: str) -> Any:
    """Read a finished run."""
    return semistan.read_fit(path)


def update(
    fitted: Any, model: str | None, columns: Columns | None, settings: Settings, **named: Any
) -> Any:
    """Fit once more, with what changes."""
    return semistan.update(fitted, model, table_of(columns), **named, **_plain(settings))


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if name not in LISTS or isinstance(value, list) else [value]
        for name, value in settings.items()
    }


def describe(fitted: Any) -> dict[str, Any]:
    """Return what R keeps of a fit."""
    family, design, posterior = fitted.run.bundle.family, fitted.run.bundle.design, fitted.posterior
    formula = parse_formula(design.formula)
    hidden = {*formula.own_columns, *formula.grouping, *formula.not_learnt}
    return {
        "path": str(fitted.path.resolve()),
        "formula": fitted.formula,
        "family": family.name,
        "link": family.link,
        "categories": [*category_names(family, design)],
        "dpars": [*family.dispersion],
        "interpreted": [*posterior.interpreted],
        "columns": [*formula.columns],
        "shown": [name for name in formula.columns if name not in hidden],
        "response": formula.response,
        "nobs": len(fitted.run.rows()),
        "chains": posterior.chains,
        "draws": posterior.size,
        "version": semistan.__version__,
    }


def table(fitted: Any) -> list[dict[str, Any]]:
    """Return the training rows."""
    return columns_of(fitted.run.table())


def response(fitted: Any) -> dict[str, Any]:
    """Return the training rows' response in numbers."""
    return array_of(fitted.run.rows().y)


def shown(fitted: Any) -> str:
    """Return a fit as it is printed."""
    return repr(fitted)


def summary(fitted: Any, prob: float) -> dict[str, Any]:
    """Return the table of coefficients, and what is said above and below it."""
    found = fitted.summary()
    table = coefficient_table(fitted.posterior, prob)
    return {
        "head": repr(fitted.run),
        "table": columns_of(table),
        "remarks": [*found.remarks(), found.verdict()],
        "passed": found.passed,
        "checks": columns_of(_checks(found)),
    }


def _checks(found: Any) -> pd.DataFrame:
    lines = [(check.name, check.passed, check.finding, check.advice) for check in found.checks]
    return pd.DataFrame(lines, columns=["diagnostic", "passed", "finding", "advice"])


def terms(fitted: Any, kind: str, interval: float) -> list[dict[str, Any]]:
    """Return the effects or coefficients of the levels of groups, or smooths."""
    return columns_of(fitted.terms(kind, interval=interval))


def draws(fitted: Any) -> list[dict[str, Any]]:
    """Return all draws, a column for each quantity."""
    return columns_of(fitted.draws())


def priors(fitted: Any) -> list[dict[str, Any]]:
    """Return every prior, as written and as used."""
    return columns_of(semistan.priors(fitted))


def stan_code(fitted: Any) -> str:
    """Return the Stan program."""
    return str(fitted.stan_code)


def stan_data(fitted: Any) -> dict[str, Any]:
    """Return what the Stan program reads."""
    found = json.loads((fitted.run.members[0].path / "data.json").read_text("utf-8"))
    return {name: array_of(value) for name, value in found.items()}


# Predictions ------------------------------------------------------------------------------------


def predictions(
    fitted: Any,
    what: str,
    columns: Columns | None,
    *,
    ndraws: int | None = None,
    seed: int = 1,
    drop_missing: bool = False,
    allow_new_levels: bool = False,
    groups: str = "known",
    **named: Any,
) -> dict[str, Any]:
    """Return draws by rows of ``epred``, ``linpred``, ``replicate`` or ``log_lik``."""
    rows, posterior = fitted.run.rows(), fitted.posterior
    if columns is not None:
        rows = new_rows(
            fitted.run.bundle, table_of(columns), response=what == "log_lik",
            drop_missing=drop_missing, allow_new_levels=allow_new_levels, groups=groups,
        )  # fmt: skip
    posterior = posterior.seeded(seed).with_groups(groups)
    if ndraws is not None:
        posterior = posterior.thin(ndraws)
    if what == "replicate":
        named["generator"] = np.random.default_rng(seed)
    return array_of(PREDICTIONS[what](posterior, rows, **named))


PREDICTIONS: dict[str, Callable[..., Any]] = {
    "epred": predictive.posterior_epred,
    "linpred": predictive.posterior_linpred,
    "replicate": predictive.posterior_predict,
    "log_lik": predictive.log_lik,
}


def predict(fitted: Any, columns: Columns | None, **named: Any) -> list[dict[str, Any]]:
    """Return one line per row, or row and category."""
    return columns_of(fitted.predict(table_of(columns), **named))


def effect(
    fitted: Any, variables: list[str], *, interval: float, at: Columns | None, **named: Any
) -> dict[str, Any]:
    """Return the effect of one or two columns, and where the others are held."""
    table = table_of(at)
    held = {} if table is None else {name: column.iloc[0] for name, column in table.items()}
    found = fitted.effect(variables, at=held, **named)
    grid = columns_of(found.table(interval))
    return {"table": grid, "reference": {k: str(v) for k, v in found.reference.items()}}


def loo_obstacle(fitted: Any) -> dict[str, Any]:
    """Compute PSIS-LOO, which says why it cannot be, and return what is to be said of it."""
    return {"caveat": fitted.loo().caveat}


def r2(fitted: Any, interval: float) -> list[dict[str, Any]]:
    """Return R2 and LOO-R2."""
    return columns_of(fitted.bayes_r2(interval=interval).table())


def resume(fitted: Any, more: int | None, progress: bool) -> Any:
    """Complete an interrupted run, or draw more times in each chain."""
    return semistan.resume(fitted, more=more, progress=progress)


def save(fitted: Any, path: str, overwrite: bool) -> Any:
    """Copy the run's folder."""
    return fitted.save(path, overwrite=overwrite)


VERBS = {
    function.__name__: function
    for function in (
        version, fit, read, update, describe, table, response, shown, summary, terms, draws, priors,
        stan_code, stan_data, predictions, predict, effect, loo_obstacle, r2, resume, save,
    )
}  # fmt: skip
