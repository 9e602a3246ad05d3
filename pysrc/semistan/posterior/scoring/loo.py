"""Leave-one-out cross-validation by Pareto-smoothed importance sampling (PSIS-LOO).

    elpd_i = log p(y_i | y_-i),    approximated with weights p(y_i | draw s)^(-1/T), smoothed

T is 1 unless the likelihood is tempered: the draws have p(y_i | .)^(1/T) as a factor, and that is
what leaving row i out takes away. Where p(y | phi) is tempered instead, no weight of row i alone
does so.

Vehtari, Gelman and Gabry (2017), Statistics and Computing 27; Vehtari et al. (2024), JMLR 25(72).
Relative efficiencies are taken as 1, which is also what R's loo does since its version 2.7.

The subspace was trained on all rows, y_i among them, so that elpd_i is conditional on the
subspace and optimistic; k-fold cross-validation that trains the subspace anew is not.

A row whose likelihood is the same in all draws, as that of weight 0 or without trials is, says
nothing of the parameters: the posterior without it is the same, its elpd is its log-likelihood, its
p_loo is 0, and all importance ratios being equal, so is its Pareto k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from semistan.errors import InputError
from semistan.infer.method import Method
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.table.rows import Rows
from semistan.model.temper import temper_of
from semistan.posterior.posterior import Posterior
from semistan.posterior.predictive import log_lik, row_chunks
from semistan.posterior.psis import EQUAL, pareto_smoothed
from semistan.posterior.scoring.finite import check_finite
from semistan.posterior.weighting import left_whole
from semistan.posterior.written import table_text

if TYPE_CHECKING:
    import pandas as pd

CONDITIONAL = (
    "PSIS-LOO is conditional on the subspace, which was trained on all rows, those left out among "
    "them, and so optimistic. 'semistan kfold' trains the subspace anew in each fold."
)


@dataclass(frozen=True, slots=True)
class Matched:
    """The elpd of a row by another way than PSIS of the draws, and its Pareto k there."""

    elpd: float
    pareto_k: float


@dataclass(frozen=True, slots=True, eq=False)
class Loo:
    """PSIS-LOO of N rows.

    Attributes
    ----------
    elpd : array, shape (N,)
        Expected log predictive density of each row, left out.
    lpd : array, shape (N,)
        Log predictive density of each row, not left out.
    pareto_k : array, shape (N,)
        Tail shape of the importance weights; above ``limit`` elpd is unreliable.
    size : int
        Number of draws S.
    conditional : bool
        Whether it is conditional on a subspace that was trained on all rows.
    repaired : dict
        Positions of rows whose elpd was found in another way, by that way.
    whole : str
        What is to be said of rows that stand for several observations.
    """

    elpd: Array
    lpd: Array
    pareto_k: Array
    size: int
    conditional: bool = False
    repaired: dict[str, tuple[int, ...]] = field(default_factory=dict)
    whole: str = ""

    def with_rows(self, found: Mapping[int, Matched], way: str) -> Loo:
        """Return the estimate with other values of some rows, and how they were found."""
        elpd, pareto_k = self.elpd.copy(), self.pareto_k.copy()
        for i, row in found.items():
            elpd[i], pareto_k[i] = row.elpd, row.pareto_k
        repaired = {
            name: tuple(i for i in rows if i not in found) for name, rows in self.repaired.items()
        }
        repaired[way] = tuple(sorted({*repaired.get(way, ()), *found}))
        repaired = {name: rows for name, rows in repaired.items() if rows}
        return replace(self, elpd=elpd, pareto_k=pareto_k, repaired=repaired)

    def with_all(self, repaired: Mapping[str, Mapping[int, Matched]]) -> Loo:
        """Return the estimate with other values of rows, by the way in which they were found."""
        found = self
        for way, rows in repaired.items():
            found = found.with_rows(rows, way)
        return found

    @property
    def limit(self) -> float:
        """Largest reliable Pareto k for this many draws: min(1 - 1 / log10 S, 0.7)."""
        return float(min(1 - 1 / np.log10(self.size), 0.7))

    @property
    def unreliable(self) -> np.ndarray:
        """Positions of the rows whose Pareto k is above the limit."""
        return np.flatnonzero(~(self.pareto_k <= self.limit))

    @property
    def constant(self) -> np.ndarray:
        """Positions of the rows whose likelihood is the same in all draws."""
        return np.flatnonzero(self.elpd == self.lpd)

    @property
    def caveat(self) -> str:
        """What the estimate is conditional on, and what is left out with a row."""
        return " ".join(filter(None, (CONDITIONAL * self.conditional, self.whole)))

    def text(self) -> str:
        """Say whether the estimate can be relied on."""
        n, count = len(self.elpd), len(self.unreliable)
        remarks = f" {self.remarks}".rstrip()
        if not count:
            return f"All {n} Pareto k are below {self.limit:.2f}: reliable.{remarks}"
        return (
            f"{count} of {n} Pareto k are above {self.limit:.2f} (rows "
            f"{row_numbers(self.unreliable)}): their elpd is unreliable; prefer 'semistan kfold'."
            f"{remarks}"
        )

    @property
    def remarks(self) -> str:
        """Which rows were found in another way than by PSIS, and which say nothing."""
        found = [f"Found {way}: rows {row_numbers(rows)}." for way, rows in self.repaired.items()]
        if self.constant.size:
            found.append(
                f"{self.constant.size} of {len(self.elpd)} rows have the same likelihood in all "
                "draws, as those of weight 0 or without trials: these add nothing to p_loo, and "
                "their Pareto k is 0."
            )
        return " ".join(found)

    def table(self) -> pd.DataFrame:
        """Return elpd_loo, p_loo and looic with their standard errors.

        Raises
        ------
        InputError
            If the elpd of a row is not finite.
        """
        import pandas as pd

        check_finite("elpd_loo", self.elpd)
        parts = {
            "elpd_loo": self.elpd,
            "p_loo": self.lpd - self.elpd,
            "looic": -2 * self.elpd,
        }
        lines = [(name, values.sum(), standard_error(values)) for name, values in parts.items()]
        return pd.DataFrame(lines, columns=["measure", "Estimate", "SE"])

    def k_table(self) -> pd.DataFrame:
        """Return how large Pareto k is: ``limit``, ``largest``, ``above`` (rows), ``rows``."""
        import pandas as pd

        line = (self.limit, float(self.pareto_k.max()), len(self.unreliable), len(self.elpd))
        return pd.DataFrame([line], columns=["limit", "largest", "above", "rows"])

    def __repr__(self) -> str:
        return f"{table_text(self.table())}\n\n{self.text()}\n{self.caveat}".rstrip()

    def pointwise(self) -> pd.DataFrame:
        """Return one line per row: ``row`` (from 1), ``elpd_loo``, ``p_loo``, ``pareto_k``."""
        import pandas as pd

        return pd.DataFrame(
            {
                "row": np.arange(1, len(self.elpd) + 1),
                "elpd_loo": self.elpd,
                "p_loo": self.lpd - self.elpd,
                "pareto_k": self.pareto_k,
            }
        )


def row_numbers(positions: Sequence[int] | np.ndarray) -> str:
    """Return the numbers of rows at some positions, from 1: the first ten of them."""
    return ", ".join(str(i + 1) for i in positions[:10]) + (", ..." if len(positions) > 10 else "")


def standard_error(values: Array) -> float:
    """Return the standard error of the sum of independent contributions (N,)."""
    return float(np.sqrt(len(values) * values.var(ddof=1)))


def loo_obstacle(posterior: Posterior) -> str | None:
    """Say why PSIS-LOO of a posterior cannot be computed, or None if it can."""
    return obstacle_of(posterior.method, posterior.config, posterior.design)


def obstacle_of(method: Method, config: ModelConfig, design: Design) -> str | None:
    """Say why PSIS-LOO of a fit could not be computed, or None if it could."""
    if method.approximate:
        return (
            "PSIS-LOO needs draws from the posterior, but these are from an approximation "
            f"({method.text}); sample by --method nuts, or use 'semistan kfold'"
        )
    temper = temper_of(config, design)
    if temper is not None and temper.integral is not None:
        return (
            "PSIS-LOO needs the temperature to act on each row's likelihood, but these draws have "
            f"temper = 'subspace' and temperature {temper.temperature:g}: p(y | phi) to a power is "
            "no product over rows; use 'semistan kfold'"
        )
    return None


def leave_one_out(posterior: Posterior, rows: Rows) -> Loo:
    """Compute PSIS-LOO of the training rows, some rows at a time.

    Raises
    ------
    InputError
        If the draws are not such that a row can be left out by weighting them.
    """
    obstacle = loo_obstacle(posterior)
    if obstacle is not None:
        raise InputError(obstacle)
    temperature = posterior.config.sample.temperature
    chunks = row_chunks(posterior, rows)
    parts = [psis_loo(log_lik(posterior, chunk), temperature) for chunk in chunks]

    def joined(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    return Loo(
        joined("elpd"), joined("lpd"), joined("pareto_k"), posterior.size,
        conditional=in_subspace(posterior), whole=left_whole(rows.given.get("weights")),
    )  # fmt: skip


def in_subspace(posterior: Posterior) -> bool:
    """Say whether the weights move in a subspace that was trained, rather than all of them."""
    return posterior.members[0].bundle.model.moves != "all"


def psis_loo(log_lik: Array, temperature: float = 1.0) -> Loo:
    """Compute PSIS-LOO from the log-likelihood of each row under each draw.

    Parameters
    ----------
    log_lik : array, shape (S, N)
        Log-likelihood as it is, not tempered.
    temperature : float
        T of draws whose posterior has the likelihood to the power 1 / T.
    """
    from scipy.special import logsumexp

    by_row = log_lik.T
    log_weights, pareto_k = psis_weights(log_lik, temperature)
    lpd = logsumexp(by_row, axis=1) - np.log(len(log_lik))
    constant = by_row.max(axis=1) <= by_row.min(axis=1) + EQUAL
    elpd = np.where(constant, lpd, logsumexp(by_row + log_weights, axis=1))
    return Loo(np.asarray(elpd), np.asarray(lpd), pareto_k, len(log_lik))


def psis_weights(log_lik: Array, temperature: float = 1.0) -> tuple[Array, Array]:
    """Return the log weights (N, S) with which draws leave each row out, and Pareto k (N,).

    The weights of a row sum to 1, and are equal if its likelihood is the same in all draws.
    Arguments as of ``psis_loo``.
    """
    return pareto_smoothed(-np.ascontiguousarray(log_lik.T) / temperature)
