"""Chains that stay in modes of their own, each sound within itself: what is pooled is a mixture.

The posterior of a network's weights has many modes, in a subspace too, and chains that started in
different ones do not meet. Pooled, they are the equal mixture of the modes that they found. It
predicts better than each of them, and how much of the posterior each mode has is not known
(Izmailov et al., 2021, ICML). That is another finding than chains that have not settled. A chain
is sound within itself if

- its halves agree, in the coefficients and in the linear predictors at some rows,
- all chains together, each by itself, have as many effective draws as four that agree must have,
- its log density is not far below that of the other chains: it is in a mode, not on a slope.

Rhat within a chain is that of its halves. It is the largest over many rows and chains, of short
halves, so that its limit is wider than that of chains that are to agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from semistan.model.arrays import Array
from semistan.model.config import CHAINS
from semistan.model.table.rows import Rows
from semistan.posterior.agreement import between
from semistan.posterior.diagnostics import (
    ESS_PER_CHAIN,
    RHAT_LIMIT,
    Check,
    convergence,
    judged_predictors,
    named_convergence,
)
from semistan.posterior.posterior import Posterior, SubspacePosterior

WITHIN_LIMIT = 1.1  # Rhat of a chain's halves
BELOW = 5.0  # sds of the log density that a chain may be below the median chain
MIXING = ("Rhat", "ESS", "tree depth")  # diagnostics that chains in different modes fail
NEEDED = ESS_PER_CHAIN * CHAINS


@dataclass(frozen=True, slots=True)
class Modes:
    """What the mixture of chains in different modes is.

    Attributes
    ----------
    rhat : float
        The largest Rhat of a chain's halves.
    ess : float
        The smallest sum of the chains' own effective sample sizes.
    eta : float
        Share of the variance of eta that lies between the chains (of a subspace), the median over
        rows.
    name : str
        The quantity of the table of whose variance the largest share does.
    largest : float
        That share.
    agreed : tuple of str
        The quantities of the table on which the chains agree.
    """

    rhat: float
    ess: float
    eta: float
    name: str
    largest: float
    agreed: tuple[str, ...]

    def text(self) -> str:
        """Say it in a sentence or two."""
        agreed = f" They agree on {', '.join(self.agreed)}." if self.agreed else ""
        return (
            "Chains stay in modes of their own, each sound within itself, and are pooled with "
            f"equal weights: between them lies {_percent(self.eta)} of the variance of eta at the "
            f"rows (median), {_percent(self.largest)} of {self.name}'s at most.{agreed}"
        )

    def judged(self, check: Check) -> Check:
        """Return a diagnostic that they failed together as one that they pass one by one."""
        if check.passed:
            return check
        within = {
            "Rhat": f"; within a chain at most {self.rhat:.3f} (limit {WITHIN_LIMIT})",
            "ESS": f"; within chains {self.ess:.0f} in all (needed {NEEDED})",
        }
        finding = check.finding + within.get(check.name.partition(" ")[0], "")
        return replace(check, finding=finding, passed=True)


def pooled_modes(posterior: Posterior, rows: Rows, checks: Sequence[Check]) -> Modes | None:
    """Look whether chains that do not agree are each sound within themselves.

    Parameters
    ----------
    posterior : Posterior
        What was learnt.
    rows : Rows
        The training rows, of which evenly spaced ones are taken.
    checks : sequence of Check
        Its diagnostics.

    Returns
    -------
    Modes or None
        None if the chains agree, or are not sound, or another diagnostic failed.
    """
    failed = [check.name for check in checks if not check.passed]
    apart = any(name.startswith("Rhat") for name in failed)
    members = posterior.counted
    if not apart or not all(name.startswith(MIXING) for name in failed):
        return None
    if min(member.chains for member in members) == 1 or not all(map(_in_modes, members)):
        return None
    etas = [judged_predictors(member, rows) for member in members]
    rhat, ess = _within(members, etas)
    if not (rhat <= WITHIN_LIMIT and ess >= NEEDED):  # NaN of a chain that did not move
        return None
    identified = [member.draws.identified for member in members]
    shares = {name: float(_share([x[name][..., None] for x in identified])[0])
              for name in identified[0]}  # fmt: skip
    largest = max(shares, key=shares.__getitem__)
    agreed = [name for name in shares if not named_convergence(posterior, name).rhat > RHAT_LIMIT]
    eta = float(np.median(_share(etas)))
    return Modes(rhat, ess, eta, largest, shares[largest], tuple(agreed))


def _in_modes(member: SubspacePosterior) -> bool:
    """Say whether no chain's log density is far below that of the others."""
    lp = member.draws.sampler.get("lp")
    if lp is None:
        return False
    means, sd = lp.mean(axis=1), np.sqrt(lp.var(axis=1).mean())
    return bool((means >= np.median(means) - BELOW * sd).all())


def _within(members: Sequence[SubspacePosterior], etas: Sequence[Array]) -> tuple[float, float]:
    """Return the largest Rhat of halves of a chain, and the least sum of the chains' own ESS."""
    figures = []
    for member, eta in zip(members, etas, strict=True):
        quantities = (*member.draws.identified.values(), *np.moveaxis(eta, -1, 0))
        figures.append([_of_chains(values) for values in quantities if np.ptp(values) > 0])
    rhat, *ess = np.moveaxis(np.array(figures), -1, 0)  # each (members, quantities, chains)
    return float(rhat.max()), float(min(kind.sum(axis=(0, 2)).min() for kind in ess))


def _of_chains(values: Array) -> list[tuple[float, float, float]]:
    """Return Rhat and both ESS of each chain's halves; values (C, S)."""
    half = values.shape[1] // 2
    found = (convergence(np.stack([chain[:half], chain[-half:]])) for chain in values)
    return [(item.rhat, item.bulk_ess, item.tail_ess) for item in found]


def _share(several: Sequence[Array]) -> Array:
    """Return the share of the variance (P,) that lies between chains (C, S, P) of a subspace."""
    chains = [chain for member in several for chain in member]
    apart = between([member.reshape(-1, member.shape[-1]) for member in several])
    return between(chains) - apart


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.01 else f"{100 * share:.1g}%"
