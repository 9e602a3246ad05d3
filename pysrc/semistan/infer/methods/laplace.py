"""CmdStan's Laplace approximation: a normal distribution at the mode, with the curvature there.

Each "chain" is an approximation of its own, at the mode to which its start climbs.
"""

from __future__ import annotations

from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.process import cmdstan_chain
from semistan.infer.method import Method
from semistan.infer.stan_csv import SIGNIFICANT_DIGITS
from semistan.infer.task import ChainTask


def laplace_chain(task: ChainTask, _: Report) -> bytes:
    """Climb to the mode and draw from the approximation there."""
    return cmdstan_chain(
        task, "laplace_sample", start="opt_args.inits", draws=task.options.draws, seed=task.seed,
        sig_figs=SIGNIFICANT_DIGITS,
    )  # fmt: skip


LAPLACE = Method(
    "laplace", "Laplace's approximation", laplace_chain, approximate=True, by_stan=True,
    has_warmup=False, columns={"log_p": "log_p__", "log_g": "log_q__"}, since=(2, 32),
    dimensions=75,
)  # fmt: skip
