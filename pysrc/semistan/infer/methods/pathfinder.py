"""CmdStan's Pathfinder: normal approximations along the way to a mode, of which the best is taken.

Each "chain" is an approximation of its own, from its own start and with its own seed.

Zhang et al. (2022), JMLR 23(306).
"""

from __future__ import annotations

from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.process import cmdstan_chain
from semistan.infer.method import Method
from semistan.infer.task import ChainTask


def pathfinder_chain(task: ChainTask, _: Report) -> bytes:
    """Follow one path without resampling: the weights of its draws are judged afterwards."""
    draws = task.options.per_chain
    words = [
        "method=pathfinder", f"num_psis_draws={draws}", "num_paths=1", f"num_draws={draws}",
        "psis_resample=0",
    ]  # fmt: skip
    return cmdstan_chain(task, words, seed=task.seed)


PATHFINDER = Method(
    "pathfinder", "Pathfinder", pathfinder_chain, approximate=True, by_stan=True,
    has_warmup=False, columns={"log_p": "lp__", "log_g": "lp_approx__"}, since=(2, 33),
    dimensions=75,
)  # fmt: skip
