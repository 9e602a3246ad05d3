"""Microcanonical Langevin Monte Carlo over the compiled program: a sampler without a check.

The dynamics, its steps and its adaptation are described in ``stan/mclmc.cpp``, a main program in
C++ to which the program is linked in CmdStan's place. Its chains have CmdStan's random numbers of
the run's seed and the chain's number, and its files CmdStan's layout, with one more column: the
squared error of the energy in a step, averaged over a draw's steps and coordinates.

Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR 24;
Robnik and Seljak (2024), Fluctuation without dissipation: microcanonical Langevin Monte Carlo;
Sommer et al. (2025), Microcanonical Langevin ensembles, ICLR.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from semistan.infer.backends.backend import Report
from semistan.infer.cmdstan.process import own_chain
from semistan.infer.content import Content
from semistan.infer.continuation import Motion
from semistan.infer.method import Method
from semistan.infer.microcanonical import (
    COLUMNS,
    ENERGY_VARIANCE,
    GRADIENTS,
    STEPS,
    TEXT,
    check_dimensions,
)
from semistan.infer.stan_csv import SIGNIFICANT_DIGITS
from semistan.infer.task import ChainTask

MAIN = "mclmc"


def mclmc_chain(task: ChainTask, report: Report) -> bytes:
    """Sample a chain; its random numbers are those of the run's seed and its number.

    Raises
    ------
    InputError
        If there is only one coordinate, in which a velocity has nowhere to turn.
    SemistanError
        If the density is not finite where the chain starts.
    """
    model = task.bundle.model
    check_dimensions(len(task.bundle.layout.sampled), integrated=model.integral is not None)
    warmup = task.options.warmup
    assert warmup != "auto"
    return _drawn(task, report, warmup)


def continued_chain(task: ChainTask, report: Report, *, motion: Motion) -> bytes:
    """Sample without warm-up, with a given step, length and diagonal metric."""
    content = json.dumps(asdict(motion)).encode()
    return _drawn(task, report, 0, motion=Content("motion.json", None, content))


def _drawn(task: ChainTask, report: Report, warmup: int, **motion: Any) -> bytes:
    options = task.options
    return own_chain(
        task, MAIN, report,
        seed=options.seed, id=task.number, num_warmup=warmup, num_samples=options.per_chain,
        steps=STEPS, energy_variance=ENERGY_VARIANCE, sig_figs=SIGNIFICANT_DIGITS,
        refresh=max(1, (warmup + options.per_chain) // 50), **motion,
    )  # fmt: skip


MCLMC = Method(
    "mclmc", TEXT, mclmc_chain, approximate=False, by_stan=True, has_warmup=True, columns=COLUMNS,
    from_mode=False, unadjusted=True, gradients=GRADIENTS * STEPS, main=MAIN,
    continued=continued_chain,
)  # fmt: skip
