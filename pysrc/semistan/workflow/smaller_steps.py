"""Smaller steps where transitions diverged, and the target acceptance rate was left open.

Transitions diverge where the posterior is narrower than the steps. Their chains miss that place, or
stay in it for too long, so that all chains of the subspace are drawn anew.
"""

from __future__ import annotations

from dataclasses import replace

from semistan.infer.methods import method_of
from semistan.posterior.draws import read_draws
from semistan.posterior.run import Run, recorded
from semistan.words import count
from semistan.workflow.watch import Say

LONGER = 2.0  # times as long as before, at most, that chains with smaller steps take


def with_smaller_steps(run: Run, took: float, say: Say) -> Run:
    """Leave out the chains of subspaces whose transitions diverged, and let their steps be smaller.

    They do so once, and where the time that the budget leaves is enough.

    Parameters
    ----------
    run : Run
        It has all chains.
    took : float
        The seconds in which they were drawn.
    say : callable
        Receives a line for each such subspace.

    Returns
    -------
    Run
        It lacks these chains.
    """
    affordable = (1 + LONGER) * took / len(run.members) <= 60 * run.options.budget
    able = method_of(run.options).hamiltonian and not run.prior_only
    if run.manifest.continued or not (able and affordable):
        return run
    members = tuple(_of_member(member, run, say) for member in run.members)
    if not run.parts:
        return members[0]
    targets = sorted({float(member.options.adapt_delta) for member in members})
    return recorded(replace(run, parts=members), targets=targets)


def _of_member(member: Run, run: Run, say: Say) -> Run:
    if not member.manifest.smaller_steps or not (transitions := diverged(member)):
        return member
    before = float(member.options.adapt_delta)
    target = smaller(before)
    where = f" of subspace {run.members.index(member) + 1}" if run.parts else ""
    say(
        f"{count(transitions, 'transition')}{where} diverged; the chains are drawn anew with "
        f"smaller steps (adapt_delta {target:g} instead of {before:g})"
    )
    # The manifest follows: if this is interrupted between, the same chains are drawn once more.
    for path in member.csv_files():
        path.unlink()
    sample = member.options.model_copy(update={"adapt_delta": target})
    return recorded(member, sample=sample, smaller_steps=False)


def diverged(member: Run) -> int:
    """Return how many transitions of the run of one subspace diverged."""
    return int(read_draws(member).sampler["diverging"].sum())


def smaller(target: float) -> float:
    """Return the target acceptance rate that follows: half as far from 1."""
    return round((1 + target) / 2, 4)
