"""What the pictures draw: a posterior, and the rows from which it was learnt.

Rows and table are read when a picture first asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from semistan.errors import InputError
from semistan.model.formula.formula import parse_formula
from semistan.model.table.rows import Rows
from semistan.posterior.posterior import Posterior, read_posterior
from semistan.posterior.run import Run
from semistan.posterior.scoring.scores import Pointwise, pointwise

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
MOST_ROWS = 5000  # rows that a picture judges or shows
MOST_DRAWS = 1000  # draws with which rows are predicted


@dataclass(frozen=True, eq=False)
class Material:
    """What a picture is drawn from.

    Attributes
    ----------
    posterior : Posterior
        The fitted model.
    load_rows : callable
        Returns the training rows.
    load_table : callable
        Returns the columns of the training table that the formula uses.
    label : str
        The fit's name where several are overlaid.
    others : tuple of (str, Posterior)
        Other fits to overlay, by name.
    prior_only : bool
        Whether the draws are from the prior.
    seed : int
        For replicated responses.
    """

    posterior: Posterior
    load_rows: Callable[[], Rows]
    load_table: Callable[[], pd.DataFrame]
    label: str = "this fit"
    others: tuple[tuple[str, Posterior], ...] = ()
    prior_only: bool = False
    seed: int = 1
    _computed: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, compute: Callable[..., T], *given: Any) -> T:
        """Return ``compute(material, *given)``: a picture and its text share what is computed."""
        key = compute, *given
        if key not in self._computed:
            self._computed[key] = compute(self, *given)
        found: T = self._computed[key]
        return found

    @cached_property
    def rows(self) -> Rows:
        """The training rows."""
        return self.load_rows()

    @cached_property
    def table(self) -> pd.DataFrame:
        """The columns of the training table that the formula uses."""
        return self.load_table()

    @cached_property
    def judged(self) -> Pointwise:
        """How well the training rows are predicted, at most ``MOST_ROWS`` of them."""
        return self.judge(self.rows)

    @property
    def several(self) -> tuple[tuple[str, Posterior], ...]:
        """The fit and the others, by name."""
        return ((self.label, self.posterior), *self.others)

    @property
    def response(self) -> str:
        """The response as the formula writes it."""
        return parse_formula(self.posterior.config.formula).response

    @property
    def success(self) -> str:
        """What a binary response is where it is 1: a word, if it is in words."""
        levels = parse_formula(self.posterior.config.formula).levels
        return levels[1] if levels else "1"

    @property
    def source(self) -> str:
        """``Posterior`` or ``Prior``: what the draws are from."""
        return "Prior" if self.prior_only else "Posterior"

    @property
    def reservations(self) -> tuple[str, ...]:
        """What keeps the draws, of any of the fits, from being those of the posterior."""
        return tuple(dict.fromkeys(text for _, fit in self.several for text in fit.reservations))

    def generator(self) -> np.random.Generator:
        """Return a new generator, the same for every call."""
        return np.random.default_rng(self.seed)

    def judge(self, rows: Rows) -> Pointwise:
        """Judge rows with a known response, at most ``MOST_ROWS`` of them."""
        return pointwise(self.posterior.thin(MOST_DRAWS), evenly(rows), generator=self.generator())


def run_material(
    run: Run,
    posterior: Posterior | None = None,
    *,
    label: str | None = None,
    others: tuple[tuple[str, Posterior], ...] = (),
) -> Material:
    """Take what the pictures need from a run's folder.

    Parameters
    ----------
    run : Run
        The run.
    posterior : Posterior, optional
        What was learnt; read from the folder if not given.
    label : str, optional
        The run's name where several are overlaid; by default that of its folder.
    others : tuple of (str, Posterior)
        Other runs to overlay, by name.

    Raises
    ------
    InputError
        If a chain is missing.
    """
    return Material(
        posterior or read_posterior(run), run.rows, run.table,
        label=label or run.path.resolve().name, others=others, prior_only=run.prior_only,
        seed=run.options.seed,
    )  # fmt: skip


def memory_material(
    posterior: Posterior,
    rows: Rows,
    *,
    label: str = "this fit",
    others: tuple[tuple[str, Posterior], ...] = (),
    prior_only: bool = False,
    seed: int = 1,
) -> Material:
    """Collect what the pictures need from values in memory.

    Raises
    ------
    InputError
        When a picture asks for the table, if the rows came without theirs.
    """

    def table() -> pd.DataFrame:
        if rows.frame is None:
            raise InputError("this picture needs the training table, but the rows came without it")
        return rows.frame

    return Material(
        posterior, lambda: rows, table,
        label=label, others=others, prior_only=prior_only, seed=seed,
    )  # fmt: skip


def evenly(rows: Rows, most: int = MOST_ROWS) -> Rows:
    """Keep at most so many rows, evenly spaced."""
    return rows.evenly(most)


def which_rows(shown: int, all_rows: int, what: str = "training rows") -> str:
    """Say how many rows a picture shows, as in ``442 training rows``."""
    return f"{shown:,} {what}" if shown == all_rows else f"{shown:,} of {all_rows:,} {what}"
