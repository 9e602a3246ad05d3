"""Did the chains converge, and what to do if they did not.

Convergence is judged on what is identified: the coefficients, the dispersion, all linear
predictors at some rows, and the log density lp__. phi may be multimodal by design, so its figures
are shown apart. Where the subspace is completed, so is what is judged, and lp__ is not, which knows
phi alone: what counts is how far chains disagree relative to what is reported.
Rank-normalised Rhat and bulk and tail ESS: Vehtari et al. (2021), Bayesian Analysis 16(2).
E-BFMI: Betancourt (2016), arXiv:1604.00695.

An approximation is judged by the importance weights of its draws, p / g: their Pareto k says
how far it is from the posterior (Yao et al., 2018, ICML; Vehtari et al., 2024, JMLR 25(72)).
Independent approximations have to agree as chains do.

The posteriors of different subspaces differ, so that chains have to agree with those of their
subspace alone. Of a mixture, a quantity's Rhat is the root mean square of those within the
subspaces, which says by how much chains that disagree widen the mixture's intervals, and its
effective sample size is the sum over the subspaces, whose draws are independent; of each the share
of draws that counts. (The largest Rhat says more of chance than of the chains: of 3 subspaces with
4 chains of 225 independent draws, some of 10 coefficients is above 1.01 in one fit of eight.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from semistan.infer.trees import LEAST_DEPTH, are_cut
from semistan.model.arrays import Array
from semistan.model.table.rows import Rows
from semistan.posterior.arviz import ess, rhat
from semistan.posterior.draws import Draws
from semistan.posterior.posterior import Posterior, SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.posterior.psis import pareto_smoothed

RHAT_LIMIT = 1.01
ESS_PER_CHAIN = 100
EBFMI_LIMIT = 0.3
CUT_SHARE = 0.01  # of transitions whose trees are cut, above which sampling is said to be slow
PARETO_K_LIMIT = 0.7
ENERGY_ERROR_LIMIT = 2e-3  # of unadjusted chains, whose steps are adapted to 5e-4
STRIDE_LIMIT = 2.0  # from 0.6 to 1.5, 95% intervals of one training held 97 to 87% in simulations
APART = 1.0  # sds between a chain's mean and the others': an ESS of 10 a chain makes that 3 errors
ETA_ROWS = 50  # rows at which the linear predictors are judged


@dataclass(frozen=True, slots=True)
class Check:
    """One diagnostic: its finding in words, whether it passed, and advice if it did not.

    ``costly`` says that it passed at a price in time, so that finding and advice are still worth
    reading.
    """

    name: str
    finding: str
    passed: bool
    advice: str
    costly: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Convergence:
    """Rhat and ESS of one quantity, or the worst of several."""

    rhat: float
    bulk_ess: float
    tail_ess: float


def convergence(values: Array) -> Convergence:
    """Return rank-normalised Rhat, bulk ESS and tail ESS of draws (C, S); NaN if constant."""
    if np.ptp(values) == 0:
        return Convergence(np.nan, np.nan, np.nan)
    return Convergence(
        rhat(values) if values.shape[0] > 1 else np.nan,
        ess(values, "bulk"),
        ess(values, "tail"),
    )


def worst(several: list[Convergence]) -> Convergence:
    """Return the largest Rhat and the smallest ESS; constant quantities do not count."""
    known = [item for item in several if np.isfinite(item.bulk_ess)]
    if not known:
        return Convergence(np.nan, np.nan, np.nan)
    return Convergence(
        float(np.max([item.rhat for item in known])),
        float(np.min([item.bulk_ess for item in known])),
        float(np.min([item.tail_ess for item in known])),
    )


def together(several: Sequence[Convergence], shares: Sequence[float]) -> Convergence:
    """Return the figures of one quantity in several subspaces: mean Rhat, sum of ESS.

    Parameters
    ----------
    several : sequence of Convergence
        The figures in each subspace.
    shares : sequence of float
        Which share of its draws counts; a subspace without any is not judged.
    """
    pairs = zip(several, shares, strict=True)
    known = [(item, share) for item, share in pairs if share > 0 and np.isfinite(item.bulk_ess)]
    if not known:
        return worst([])
    squares = [item.rhat**2 for item, _ in known]
    return Convergence(
        float(np.sqrt(np.average(squares, weights=[share for _, share in known]))),
        float(np.sum([share * item.bulk_ess for item, share in known])),
        float(np.sum([share * item.tail_ess for item, share in known])),
    )


def named_convergence(posterior: Posterior, name: str) -> Convergence:
    """Return the figures of an interpreted quantity."""
    found = [convergence(member.draws.interpreted[name]) for member in posterior.members]
    return together(found, posterior.shares)


def eta_convergence(posterior: Posterior, rows: Rows) -> Convergence:
    """Return the worst figures of all linear predictors over evenly spaced rows.

    Unordered categories but the first have one each, and so may sigma and other parameters: their
    networks can disagree between chains where eta and the coefficients agree.
    """
    etas = (judged_predictors(member, rows) for member in posterior.members)
    several = [[convergence(values) for values in np.moveaxis(eta, -1, 0)] for eta in etas]
    return worst([together(item, posterior.shares) for item in zip(*several, strict=True)])


def judged_predictors(member: SubspacePosterior, rows: Rows) -> Array:
    """Return draws (C, S, P) of all linear predictors at evenly spaced rows, in one subspace."""
    chosen = rows.evenly(ETA_ROWS)
    names = (None, *(item.name for item in member.design.others))
    found = [posterior_linpred(member, chosen, dpar=name) for name in names]
    return np.concatenate(found, axis=-1).reshape(member.chains, -1, len(names) * len(chosen))


def phi_convergence(posterior: Posterior) -> Convergence:
    """Return the worst figures over the coordinates of each subspace, which have their own."""
    return worst(
        [
            convergence(member.draws.phi[..., i])
            for member in posterior.members
            for i in range(member.draws.phi.shape[-1])
        ]
    )


def lp_convergence(posterior: Posterior) -> Convergence | None:
    """Return the figures of the log density, or None of methods that do not report it."""
    if "lp" not in posterior.sampler:
        return None
    several = [convergence(member.draws.sampler["lp"]) for member in posterior.members]
    return together(several, posterior.shares)


def chains_apart(values: Mapping[str, Array]) -> dict[int, tuple[str, float]]:
    """Return the chains, from 1, whose means stay apart from those of the others.

    Parameters
    ----------
    values : mapping of arrays, shape (C, S)
        Quantities by name.

    Returns
    -------
    dict
        Of each such chain, the quantity of which that is most so, and the distance to the median of
        the other chains' means, in sds within the chains.
    """
    found: dict[int, tuple[str, float]] = {}
    for name, x in values.items():
        means, sd = x.mean(axis=1), np.sqrt(x.var(axis=1).mean())
        for chain, mean in enumerate(means if len(means) > 1 and sd > 0 else (), start=1):
            others = np.delete(means, chain - 1)
            distance = float(abs(mean - np.median(others)) / sd)
            if distance > max(APART, found.get(chain, ("", 0.0))[1]):
                found[chain] = name, distance
    return found


def ebfmi(energy: Array) -> Array:
    """Return each chain's energy Bayesian fraction of missing information, shape (C,)."""
    return np.asarray(np.square(np.diff(energy)).mean(axis=1) / energy.var(axis=1))


def diagnose(
    posterior: Posterior, interpreted: Convergence, eta: Convergence, *, between: float = 0.0
) -> tuple[Check, ...]:
    """Judge a run.

    Parameters
    ----------
    posterior : Posterior
        The run's posterior.
    interpreted : Convergence
        Worst figures over the coefficients and dispersion.
    eta : Convergence
        Worst figures over the linear predictors.
    between : float
        Share of their variance that lies between several subspaces.
    """
    completed = any(member.bundle.completion for member in posterior.members)
    lp = None if posterior.method.approximate or completed else lp_convergence(posterior)
    mixing = (
        *_mixing("coefficients", interpreted, posterior, lambda draws: draws.identified),
        *_mixing("linear predictor", eta, posterior, lambda _: {}),
        *(_mixing("lp__", lp, posterior, _log_density) if lp else ()),
    )
    return (*_of_the_method(posterior, all(check.passed for check in mixing), between), *mixing)


def _of_the_method(posterior: Posterior, mixed: bool, between: float) -> Iterator[Check]:
    if "diverging" in posterior.sampler:
        yield from (_divergences(posterior), _tree_depth(posterior, mixed), _energy(posterior))
    if posterior.method.approximate:
        yield _importance(posterior)
    if posterior.method.unadjusted:
        yield _energy_error(posterior)
    if posterior.members[0].draws.psi is not None:
        yield _stride(posterior, between)


def pareto_k(posterior: Posterior) -> Array:
    """Return the Pareto k of each approximation's importance weights, shape (C,); 0 if equal."""
    log_weights = posterior.sampler["log_p"] - posterior.sampler["log_g"]
    return pareto_smoothed(log_weights)[1]


def _importance(posterior: Posterior) -> Check:
    greatest, text = float(pareto_k(posterior).max()), posterior.method.text
    advice = f"{text} is far from the posterior: its intervals cannot be trusted; use --method nuts"
    if posterior.method.linearised:
        advice = (
            f"the weights of the {text} are far from the posterior's; its predictions are of a "
            "linear network, which may be better than that: compare them with --method nuts"
        )
    return Check(
        "Pareto k of the approximation",
        f"largest Pareto k of the importance weights {greatest:.2f} (limit {PARETO_K_LIMIT})",
        bool(greatest <= PARETO_K_LIMIT),
        advice,
    )


def _divergences(posterior: Posterior) -> Check:
    diverging = posterior.sampler["diverging"]
    count = int(diverging.sum())
    return Check(
        "divergences",
        f"{count} of {diverging.size} transitions diverged",
        count == 0,
        "raise adapt_delta (--adapt-delta 0.995); if they stay, choose a smaller k or a tighter "
        "prior on phi",
    )


def _tree_depth(posterior: Posterior, mixed: bool) -> Check:
    """Judge the trees that were cut: their draws are valid, so that they fail only unmixed chains.

    Stan's guide to its warnings calls it a concern of efficiency, not of validity. Where they are
    cut early by intention, they are no concern.
    """
    limit, depth = posterior.max_treedepth, posterior.sampler["tree_depth"]
    count, bundle = int((depth >= limit).sum()), posterior.members[0].bundle
    meant = limit >= LEAST_DEPTH and are_cut(bundle.model, bundle.subspace.k)
    return Check(
        "tree depth",
        f"{count} of {depth.size} transitions hit the maximum tree depth of {limit}",
        count == 0 or mixed or meant,
        "the sampler is slow, not wrong; raise --max-treedepth, lengthen --warmup, or choose "
        "a smaller k",
        costly=count > CUT_SHARE * depth.size and not meant,
    )


def _energy(posterior: Posterior) -> Check:
    least = float(ebfmi(posterior.sampler["energy"]).min())
    return Check(
        "E-BFMI",
        f"smallest E-BFMI over chains {least:.2f} (limit {EBFMI_LIMIT})",
        not least < EBFMI_LIMIT,
        "the chains explore the energy slowly: lengthen --warmup, or use a tighter prior on "
        "phi or on the dispersion",
    )


def _stride(posterior: Posterior, between: float) -> Check:
    """Judge how far outside the subspace the weights would go, where eta is taken to be linear.

    A step in sds of one training is a shorter one in those of several that are pooled. Of 100,000
    rows, three trainings with steps of 1.8 to 2.4 of their own sds held the truth in 0.79 to 0.88
    of 95% intervals, and pooled in 0.97.
    """
    several = (member.bundle.completion for member in posterior.members)
    greatest = max(completion.stride for completion in several if completion)
    greatest *= float(np.sqrt(1 - between))
    return Check(
        "step of the completion",
        f"largest step out of a subspace {greatest:.1f} standard deviations (limit {STRIDE_LIMIT})",
        greatest <= STRIDE_LIMIT,
        "the mode in the subspace is far from that of all weights, so that intervals of the "
        "network's part may be too narrow: train longer (--epochs, --steps), or pool more "
        "subspaces (--subspaces 5)",
    )


def _energy_error(posterior: Posterior) -> Check:
    """Judge the middle draw's error: where the posterior has narrow places, some are far larger."""
    error = float(np.median(posterior.sampler["energy_error"], axis=1).max())
    return Check(
        "energy error",
        f"typical squared error of the energy in a step {error:.1e} for each parameter "
        f"(limit {ENERGY_ERROR_LIMIT:.0e})",
        error <= ENERGY_ERROR_LIMIT,
        "the steps are too long for the density, and nothing corrects their errors: lengthen "
        "--warmup, or use --method nuts",
    )


def _log_density(draws: Draws) -> dict[str, Array]:
    return {"lp__": draws.sampler["lp"]}


def _mixing(
    what: str, figures: Convergence, posterior: Posterior, of: Callable[[Draws], dict[str, Array]]
) -> tuple[Check, ...]:
    checks = _chains_mix(what, figures, posterior, of)
    return checks[:1] if posterior.method.approximate else checks  # independent draws are effective


def _apart_text(posterior: Posterior, of: Callable[[Draws], dict[str, Array]]) -> str:
    """Name the chains that stay apart, and in what."""
    text = ""
    for number, member in enumerate(posterior.members, start=1):
        where = f" of subspace {number}" if len(posterior.members) > 1 else ""
        for chain, (name, distance) in chains_apart(of(member.draws)).items():
            text += f"; chain {chain}{where} stays apart by {distance:.1f} sds of {name}"
    return text


def _chains_mix(
    what: str, figures: Convergence, posterior: Posterior, of: Callable[[Draws], dict[str, Array]]
) -> tuple[Check, Check]:
    chains = posterior.members[0].chains
    needed = ESS_PER_CHAIN * chains * len(posterior.counted)
    least = min(figures.bulk_ess, figures.tail_ess)
    agree = not figures.rhat > RHAT_LIMIT
    return (
        Check(
            f"Rhat of {what}",
            "Rhat needs at least two chains"
            if chains == 1
            else f"largest Rhat {figures.rhat:.4f} (limit {RHAT_LIMIT})"
            + ("" if agree else _apart_text(posterior, of)),
            agree,
            "the chains do not agree: run longer (--warmup, --draws); if they sit in "
            "different modes, train longer, choose another seed or a smaller network",
        ),
        Check(
            f"ESS of {what}",
            f"smallest effective sample size {least:.0f} (needed {needed})",
            not least < needed,
            "draw more (--draws) for reliable intervals",
        ),
    )
