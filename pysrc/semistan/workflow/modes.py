"""Longer chains where they agree in the first part of a fit, more chains where they do not.

The posterior of all weights has many modes, and where the rows say much, a chain does not leave its
own in any number of draws. Another chain then adds a mode to the mixture that is reported, which
predicts better than more draws of the same modes (Izmailov et al., 2021, ICML).
"""

from __future__ import annotations

from dataclasses import replace

from semistan.bundle.seal import stamp_of
from semistan.infer.continuation import seconds_of
from semistan.infer.folder import write_starts
from semistan.model.config import SampleConfig
from semistan.model.model import Model
from semistan.posterior.diagnostics import eta_convergence
from semistan.posterior.manifest import record_files
from semistan.posterior.posterior import read_posterior
from semistan.posterior.run import Run, recorded
from semistan.workflow.compiled import starts_of
from semistan.workflow.extend import ask_for_more
from semistan.workflow.watch import Say

FIRST = 250  # draws of each chain after which it is decided
TIMES = (3, 2)  # as many chains, where the budget allows them
DISAGREE = 1.1  # Rhat of a linear predictor above which chains are taken to be in different modes


def has_first_part(model: Model, options: SampleConfig) -> bool:
    """Say whether chains are compared before they are drawn to their end.

    They are where all weights move, by NUTS in CmdStan, and the user said neither how many chains
    there are to be nor how long.
    """
    left_open = options.chains == "auto" and options.draws == "auto"
    return left_open and model.moves == "all" and options.method == "nuts"


def decided(run: Run, say: Say) -> Run:
    """Ask for what follows the first part of a fit: more draws of each chain, or more chains.

    Parameters
    ----------
    run : Run
        It has the chains of its first part.
    say : callable
        Receives a line that says what was decided, and why.
    """
    planned, chains, drawn = run.manifest.planned, run.options.chain_count, run.options.per_chain
    assert planned is not None
    rhat = eta_convergence(read_posterior(run), run.rows()).rhat
    found = f"Rhat of the linear predictor is up to {rhat:.2f} after {drawn} draws"
    times = _affordable(run) if rhat > DISAGREE else 1
    if times > 1 and (joined := with_chains(run, times * chains)):
        more = (times - 1) * chains
        say(f"{found}: chains stay in different modes; {more} more follow instead of longer ones")
        return joined
    if planned > drawn:
        say(f"{found}; each chain goes on to {planned}")
        return ask_for_more(run, planned - drawn, planned=True)
    return recorded(run, planned=None)


def _affordable(run: Run) -> int:
    """Return how many times as many chains the budget allows."""
    each = sum(seconds_of(path.read_bytes()) for path in run.csv_files()) / run.plan.chains
    return next((times for times in TIMES if times * each <= 60 * run.options.budget), 1)


def with_chains(run: Run, chains: int) -> Run | None:
    """Let a run of one subspace have more chains, which start where the others do not.

    Parameters
    ----------
    run : Run
        Its chains stay as they are.
    chains : int
        How many it is to have in all.

    Returns
    -------
    Run or None
        None where chains start with the metric of a mode, and new ones find none.
    """
    before, options = run.options.chain_count, run.options.model_copy(update={"chains": chains})
    starts = starts_of(run.bundle, run.rows(), options)
    if options.metric == "ggn" and not starts.found:
        return None
    files = write_starts(run.path, starts, run.bundle.layout, after=before)
    stamps = {path.name: stamp_of(path) for path in files}
    modes = [mode.log_density for mode in starts.found]
    known = {"sample": options, "modes": modes, "planned": None, "first": before}
    return replace(run, manifest=record_files(run.path, stamps, **known))
