"""Leave rows out by sampling without them, in the subspaces that were trained on all rows.

What is held fixed: the design's state, the units in which priors are autoscaled, and the subspace.
Cross-validation that trains anew is ``workflow/kfold.py``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from semistan.infer.backends.backend import Backend
from semistan.infer.backends.local import LOCAL
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.model.table.rows import Rows
from semistan.posterior.agreement import agreement
from semistan.posterior.diagnostics import diagnose, eta_convergence, named_convergence, worst
from semistan.posterior.posterior import Mixture, Posterior, SubspacePosterior, read_posterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import Loo, Matched
from semistan.subspace.completion import complete
from semistan.workflow.compiled import toolchain_for
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import draw_missing
from semistan.workflow.watch import Say, silent

WAY = "by sampling without them, in the subspace of all rows"
WAY_OF_ALL = "by sampling without them"


def without_rows(
    run: Run,
    found: Loo,
    rows: Rows,
    *,
    positions: Sequence[int] | None = None,
    say: Say = silent,
    keep: Callable[[Loo], None] = lambda _: None,
    backend: Backend = LOCAL,
) -> Loo:
    """Sample without each of some rows, and put in what that says of them.

    Parameters
    ----------
    run : Run
        The run.
    found : Loo
        Its PSIS-LOO.
    rows : Rows
        Its training rows.
    positions : sequence of int, optional
        Rows to leave out, counted from 0; by default those whose Pareto k is above the limit.
    say : callable
        Receives one line for each row, and one where a diagnostic failed.
    keep : callable
        Receives what is known after each row.
    backend : Backend, optional
        What draws the chains.

    Returns
    -------
    Loo
        With their elpd and a Pareto k of 0, as R's loo has it.
    """
    chosen = [int(i) for i in (found.unreliable if positions is None else positions)]
    toolchain = toolchain_for(run.options) if chosen else None
    way = WAY if found.conditional else WAY_OF_ALL
    for count, i in enumerate(chosen, start=1):
        say(f"sampling without row {i + 1} ({count} of {len(chosen)})")
        posterior, kept = _without(run, rows, i, toolchain, backend)
        _judge(posterior, kept, i, say)
        alone = Matched(_elpd(posterior, rows.take(np.array([i]))), 0.0)
        found = found.with_rows({i: alone}, way)
        keep(found)
    return found


def _without(
    run: Run, rows: Rows, left_out: int, toolchain: Toolchain | None, backend: Backend
) -> tuple[Posterior, Rows]:
    """Return the posterior of all rows but one, and these rows."""
    kept = rows.take(np.delete(np.arange(len(rows)), left_out))
    members = []
    with tempfile.TemporaryDirectory(prefix="semistan-") as name:
        for number, member in enumerate(run.members):
            bundle = complete(member.bundle, kept)  # which must not know the rows that are left out
            again = new_run(
                bundle, kept, Path(name, str(number)), member.options, toolchain,
                kernel=member.kernel,
            )  # fmt: skip
            draw_missing(again, toolchain, backend=backend)
            one = read_posterior(again)
            assert isinstance(one, SubspacePosterior)
            members.append(one)
    return (Mixture(tuple(members), run.weights) if run.parts else members[0]), kept


def _elpd(posterior: Posterior, row: Rows) -> float:
    from scipy.special import logsumexp

    density = log_lik(posterior, row)[:, 0]
    return float(logsumexp(density) - np.log(len(density)))


def _judge(posterior: Posterior, rows: Rows, left_out: int, say: Say) -> None:
    """Say which diagnostics failed without a row."""
    judged = worst([named_convergence(posterior, name) for name in posterior.identified])
    agreed = agreement(posterior, rows)
    checks = diagnose(
        posterior, judged, eta_convergence(posterior, rows), between=agreed.eta if agreed else 0.0
    )
    failed = [f"{check.name} ({check.finding})" for check in checks if not check.passed]
    if failed:
        say(f"warning: without row {left_out + 1}, a diagnostic failed: {'; '.join(failed)}")
