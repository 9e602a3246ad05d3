"""CmdStan's ADVI: a normal approximation, with independent coordinates or with all correlations.

Each "chain" is an approximation of its own, from its own start and with its own seed, so that what
they disagree on shows. Its draws are independent.

Kucukelbir et al. (2017), JMLR 18(14).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.process import cmdstan_chain
from semistan.infer.method import Method
from semistan.infer.task import ChainTask

TOLERANCE = 1e-4  # relative change of the ELBO at which ADVI ends
GRADIENTS = 10  # draws for each gradient of the ELBO


def variational_chain(
    algorithm: Literal["meanfield", "fullrank"], task: ChainTask, _: Report
) -> bytes:
    """Fit an approximation and draw from it; the first line is its mean."""
    # A start at the mode is near enough for ADVI to call its first evaluations converged.
    words = [
        "method=variational", f"algorithm={algorithm}", f"grad_samples={GRADIENTS}",
        f"tol_rel_obj={TOLERANCE}", f"output_samples={task.options.per_chain}",
    ]  # fmt: skip
    return cmdstan_chain(task, words, seed=task.seed)


def _record(name: Literal["meanfield", "fullrank"], text: str) -> Method:
    return Method(
        name, text, partial(variational_chain, name), approximate=True, by_stan=True,
        has_warmup=False, columns={"log_p": "log_p__", "log_g": "log_g__"}, lines_before=1,
        dimensions=75,
    )  # fmt: skip


MEANFIELD = _record("meanfield", "mean-field variational inference")
FULLRANK = _record("fullrank", "full-rank variational inference")
