"""The coefficient table, with brms's columns."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semistan.bundle.files import atomic_file
from semistan.model.arrays import Array
from semistan.model.design import Design
from semistan.model.families.ordinal import intercept_names
from semistan.model.left_out import left_out
from semistan.model.orthogonal import INTERCEPT, further_names
from semistan.model.table.rows import Rows
from semistan.model.terms.term import Cautious
from semistan.posterior.agreement import Agreement, agreement
from semistan.posterior.collinearity import collinearity
from semistan.posterior.diagnostics import (
    Check,
    Convergence,
    convergence,
    diagnose,
    eta_convergence,
    named_convergence,
    phi_convergence,
    worst,
)
from semistan.posterior.effects.estimates import estimates
from semistan.posterior.modes import Modes, pooled_modes
from semistan.posterior.options import check_interval
from semistan.posterior.posterior import Posterior
from semistan.posterior.written import digits_of, written

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("Estimate", "Est.Error", "l-95% CI", "u-95% CI", "Rhat", "Bulk_ESS", "Tail_ESS")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: posterior mean, sd, 95% interval, and convergence."""

    name: str
    estimate: float
    est_error: float
    lower: float
    upper: float
    rhat: float
    bulk_ess: float
    tail_ess: float

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers in the order of ``COLUMNS``."""
        return (
            self.estimate, self.est_error, self.lower, self.upper,
            self.rhat, self.bulk_ess, self.tail_ess,
        )  # fmt: skip

    @property
    def texts(self) -> tuple[str, ...]:
        """The numbers as they are shown: two significant digits of the error."""
        decimals = (digits_of(self.est_error),) * 4 + (3, 0, 0)
        shown = zip(self.values, decimals, strict=True)
        return tuple(written(value, n) for value, n in shown)


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What a run found.

    Attributes
    ----------
    rows : tuple of Row
        Coefficients and dispersion parameters, on the user's scale.
    eta, phi : Convergence
        Worst figures of the linear predictors and of the subspace coordinates.
    checks : tuple of Check
        The diagnostics with advice.
    reservations : tuple of str
        What keeps the draws from being those of the posterior.
    notes : tuple of str
        Sentences on how to read the coefficients beside the network.
    agreement : Agreement, optional
        How far the subspaces agree, if there are several.
    modes : Modes, optional
        What the mixture of chains in different modes is, if they do not agree and each is sound;
        the diagnostics are those of each chain then.
    """

    rows: tuple[Row, ...]
    eta: Convergence
    phi: Convergence
    checks: tuple[Check, ...]
    reservations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    agreement: Agreement | None = None
    modes: Modes | None = None

    @property
    def passed(self) -> bool:
        """Whether every diagnostic passed, and the chains agree."""
        return self.modes is None and not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The diagnostics that failed."""
        return tuple(check for check in self.checks if not check.passed)

    def table(self) -> pd.DataFrame:
        """Return the coefficient table, one line per variable."""
        import pandas as pd

        return pd.DataFrame(
            [row.values for row in self.rows],
            columns=list(COLUMNS),
            index=pd.Index([row.name for row in self.rows], name="variable"),
        )

    def verdict(self) -> str:
        """Say in one line whether the diagnostics passed, chains are pooled modes, or it failed."""
        failed = "; ".join(f"{check.name} ({check.finding})" for check in self.failed)
        judged = f"FAILED: {failed}." if failed else "All diagnostics passed."
        if self.modes:
            judged = f"POOLED MODES: {self.modes.text()}"
        return " ".join([*self.warnings(), judged, *self.costs()])

    def costs(self) -> list[str]:
        """Say, a sentence each, what diagnostics that passed found to be slow."""
        passed = [check for check in self.checks if check.passed and check.costly]
        return [f"{check.finding}: {check.advice}." for check in passed]

    def warnings(self) -> list[str]:
        """Say, a sentence each, what keeps the draws from being those of the posterior."""
        return [f"Not the posterior: {reservation}." for reservation in self.reservations]

    def judged(self) -> str:
        """Name what was judged, each kind of diagnostic once."""
        return ", ".join(dict.fromkeys(check.name.partition(" of ")[0] for check in self.checks))

    def remarks(self) -> tuple[str, ...]:
        """Return the sentences that stand under the table."""
        return (*([self.agreement.text()] if self.agreement else []), *self.notes)

    def __repr__(self) -> str:
        text = "\n\n".join((*self.remarks(), self.verdict()))
        return f"{self._shown().to_string()}\n\n{text}"

    def _repr_html_(self) -> str:
        text = "".join(f"<p>{escape(text)}</p>" for text in (*self.remarks(), self.verdict()))
        return f"{self._shown().to_html()}{text}"

    def _shown(self) -> pd.DataFrame:
        import pandas as pd

        names = [row.name for row in self.rows]
        return pd.DataFrame([row.texts for row in self.rows], columns=list(COLUMNS), index=names)


def coefficient_table(posterior: Posterior, interval: float) -> pd.DataFrame:
    """Return the coefficient table with intervals of another probability than 95%.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    interval : float
        Probability of the central intervals.

    Returns
    -------
    pandas.DataFrame
        ``variable`` and the columns of the table, whose intervals are named after it.

    Raises
    ------
    InputError
        If it is not between 0 and 1.
    """
    import pandas as pd

    check_interval(interval)
    lines = []
    for name, values in posterior.interpreted.items():
        figures = named_convergence(posterior, name)
        columns = estimates(values.reshape(-1, 1), interval)
        lines.append(
            {"variable": name}
            | {column: float(found[0]) for column, found in columns.items()}
            | dict(
                zip(COLUMNS[4:], (figures.rhat, figures.bulk_ess, figures.tail_ess), strict=True)
            )
        )
    return pd.DataFrame(lines)


def summarise(posterior: Posterior, rows: Rows) -> Summary:
    """Summarise a posterior; ``rows`` are the training rows."""
    values = posterior.interpreted
    figures = {name: named_convergence(posterior, name) for name in values}
    judged = [figures[name] for name in posterior.identified]
    eta = eta_convergence(posterior, rows)
    agreed = agreement(posterior, rows)
    checks = diagnose(posterior, worst(judged), eta, between=agreed.eta if agreed else 0.0)
    modes = pooled_modes(posterior, rows, checks)
    warned = [term.warning(values) for term in posterior.design.terms if isinstance(term, Cautious)]
    return Summary(
        tuple(_row(name, draws, figures[name]) for name, draws in values.items()),
        eta,
        phi_convergence(posterior),
        tuple(map(modes.judged, checks)) if modes else checks,
        posterior.reservations,
        (
            *_names_note(posterior.design),
            *_orthogonal_note(posterior),
            *filter(None, [*warned, collinearity(posterior, rows).warning(), _left_out(posterior)]),
        ),
        agreed,
        modes,
    )


def _left_out(posterior: Posterior) -> str:
    """Say what the intervals of the network's part leave out."""
    return left_out(posterior.members[0].bundle, len(posterior.members))


def by_subspace(posterior: Posterior) -> pd.DataFrame:
    """Return the coefficient table of each subspace alone.

    Returns
    -------
    pandas.DataFrame
        ``variable``, ``subspace`` (from 1) and the columns of the table; the lines of a variable
        stand together.
    """
    import pandas as pd

    lines = [
        (name, number, *_row(name, values, convergence(values)).values)
        for name in posterior.interpreted
        for number, member in enumerate(posterior.members, start=1)
        for values in [member.draws.interpreted[name]]
    ]
    return pd.DataFrame(lines, columns=["variable", "subspace", *COLUMNS])


def _names_note(design: Design) -> tuple[str, ...]:
    """Say which columns the names in the table do not tell."""
    if not design.respelled:
        return ()
    return (f"{', '.join(f'{name}: {column}' for name, column in design.respelled.items())}.",)


def _orthogonal_note(posterior: Posterior) -> tuple[str, ...]:
    """Say which coefficients to read where some are orthogonalised to the network."""
    draws = posterior.members[0].draws
    if draws.orthogonal is None:
        return ()
    raw = draws.orthogonal.unidentified
    further = further_names(posterior.config, posterior.design)
    if draws.orthogonal.in_model:
        read = [posterior.design.coefficients[j] for j in further.values()]
    else:
        read = [*intercept_names(posterior.family.reported_categories, INTERCEPT), *further]
    return (
        f"Orthogonalised to the network: read {', '.join(read)}. {', '.join(raw)} "
        f"{'stands' if len(raw) == 1 else 'stand'} beside the network as it is, which can imitate "
        f"{'it' if len(raw) == 1 else 'them'}. Orthogonalised coefficients hold all that the "
        "network says along their columns, also by way of inputs that vary with them.",
    )


def _row(name: str, values: Array, figures: Convergence) -> Row:
    lower, upper = np.quantile(values, (0.025, 0.975))
    sd = float(values.std(ddof=1)) if np.ptp(values) else 0.0  # no rounding errors of a constant
    return Row(
        name, float(values.mean()), sd, float(lower), float(upper),
        figures.rhat, figures.bulk_ess, figures.tail_ess,
    )  # fmt: skip


def write_summary(summary: Summary, path: Path) -> None:
    """Write the table as CSV, unrounded."""
    with atomic_file(path) as temporary:
        summary.table().to_csv(temporary, float_format="%.10g")
