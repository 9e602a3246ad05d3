"""The posterior that the program samples, computed in PyTorch.

It is a function of the program's unconstrained coordinates

    q = (phi / phi_scale, theta / theta_scale, penalised coordinates, those of dispersion parameters
         with predictors, log dispersion, log spread),

without theta where the subspace holds it (the coordinates of smooths and groups are those of
``noncentred.py``, the predictors' those of ``distributional.py``), and it reads the rows some at a
time. The posterior is tempered as the bundle's configuration says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semistan.density.marginal import Conditional, log_marginal
from semistan.density.noncentred import coefficients, penalised_coordinates
from semistan.density.noncentred import log_prior as penalised_log_prior
from semistan.density.parameter_coordinates import (
    parameter_coordinates,
    parameter_values,
    split_coordinates,
)
from semistan.density.problem import Problem, all_rows, make_problem
from semistan.density.shear import Shear, shear_of
from semistan.lazy import torch
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.networks.networks import forward, frozen_features
from semistan.model.priors.density import parse_prior
from semistan.model.priors.prior import prior_data, prior_groups
from semistan.model.table.rows import Rows
from semistan.model.temper import Temper, temper_of

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 4_000_000  # derivatives by weights that are held at a time


@dataclass(frozen=True, slots=True, eq=False)
class TorchPrior:
    """The prior of a parameter, or of some of its elements."""

    parameter: str
    distribution: Any
    members: Tensor | None = None

    def log_density(self, values: Tensor) -> Tensor:
        """Return the log density of the parameter's value, summed."""
        chosen = values if self.members is None else values[self.members]
        total: Tensor = self.distribution.log_prob(chosen).sum()
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The negative log posterior of q as the program computes it, up to a constant.

    A horseshoe on theta is left out: it is no density of q.
    """

    bundle: Bundle
    chunks: tuple[Problem, ...]  # of the rows; U holds the first free layer's input
    priors: tuple[TorchPrior, ...]
    sampled: tuple[str, ...]  # dispersion parameters and standard deviations of coefficients
    constants: dict[str, float]  # those that are not sampled
    prior_only: bool
    temper: Temper | None = None
    shear: Shear | None = None

    @property
    def power(self) -> float:
        """Of the likelihood, or of p(y | phi) if theta is integrated out: 1 / T."""
        return 1 / self.temper.temperature if self.temper else 1.0

    @property
    def integrates_theta(self) -> bool:
        """Whether theta is integrated out, to temper phi alone."""
        return self.temper is not None and self.temper.integral is not None

    @property
    def coordinates(self) -> int:
        """How many of q's elements, the first ones, are phi's and theta's."""
        return coordinates(self.bundle)

    @property
    def penalised(self) -> slice:
        """Where q has the coordinates of smooths and groups."""
        return penalised_slice(self.bundle)

    @property
    def further(self) -> slice:
        """Where q has the coordinates of dispersion parameters' predictors."""
        return further_slice(self.bundle)

    def split(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return phi, theta / theta_scale and the log of the sampled dispersion and spread."""
        subspace, m, rest = self.bundle.subspace, self.coordinates, q[self.further.stop :]
        phi = torch.tensor(subspace.phi_scale) * q[: subspace.k]
        if not subspace.holds_theta:
            return phi, q[subspace.k : m], rest
        theta = torch.from_numpy(subspace.theta_bar) + torch.from_numpy(subspace.theta_Pi) @ phi
        return phi, theta / torch.from_numpy(self.bundle.units.theta_scale), rest

    def positive(self, log_values: Tensor) -> dict[str, Tensor | float]:
        """Return dispersion and spread by name, sampled and constant, given the sampled logs."""
        return {**self.constants, **dict(zip(self.sampled, log_values.exp(), strict=True))}

    def linear(self, q: Tensor) -> Tensor:
        """Return theta / theta_scale, followed by the penalised coefficients over r_scale."""
        _, theta, log_values = self.split(q)
        if not self.bundle.design.penalised:
            return theta
        spread = self.positive(log_values)
        return torch.cat([theta, coefficients(self.bundle, q[self.penalised], spread)])

    def raw(self, theta: Tensor, f: Tensor) -> Tensor:
        """Return theta / theta_scale beside the network's output f (N,) over all rows."""
        return self.shear.raw(theta, self.shear.along @ f) if self.shear else theta

    def further_predictors(self, q: Tensor) -> list[dict[str, Tensor]]:
        """Return dispersion parameters' predictors for each chunk's rows, without their starts."""
        if not self.bundle.design.parameters:
            return [{} for _ in self.chunks]
        w, network = weights(self, self.split(q)[0]), self.bundle.network
        parts = list(split_coordinates(self.bundle.design, q[self.further]))
        return [
            {
                item.name: tau.sum()
                + chunk.further[item.name] @ theta
                + forward(network, w, chunk.U, item.name)
                for item, tau, theta in parts
            }
            for chunk in self.chunks
        ]

    def outputs(self, phi: Tensor) -> list[Tensor]:
        """Return the network's output at phi for each chunk's rows."""
        w = weights(self, phi)
        return [forward(self.bundle.network, w, chunk.U) for chunk in self.chunks]

    def predictors(self, phi: Tensor, theta: Tensor) -> list[Tensor]:
        """Return the linear predictor of each chunk's rows, given phi and ``linear``."""
        f = self.outputs(phi)
        raw = self.raw(theta, torch.cat(f)) if self.shear else theta
        return [chunk.eta(raw, part) for chunk, part in zip(self.chunks, f, strict=True)]


def coordinates(bundle: Bundle) -> int:
    """Return the number of phi's and free theta's elements."""
    free = 0 if bundle.subspace.holds_theta else len(bundle.trained.theta)
    return bundle.subspace.k + free


def penalised_slice(bundle: Bundle) -> slice:
    """Return where q has the coordinates of smooths and groups."""
    start = coordinates(bundle)
    return slice(start, start + penalised_coordinates(bundle.design))


def further_slice(bundle: Bundle) -> slice:
    """Return where q has the coordinates of dispersion parameters' predictors."""
    start = penalised_slice(bundle).stop
    return slice(start, start + parameter_coordinates(bundle.design))


def sampled_positive(config: ModelConfig, design: Design) -> tuple[str, ...]:
    """Return the dispersion parameters and standard deviations that are sampled, in q's order."""
    groups = prior_groups(config, design)
    return tuple(g.parameter for g in groups if g.positive and not g.density.is_constant)


def make_target(bundle: Bundle, rows: Rows, *, prior_only: bool = False) -> Target:
    """Collect what the posterior needs from a bundle and its training rows."""
    problem = make_problem(bundle.family, bundle.network, bundle.units, rows, "cpu")
    data, groups = prior_data(bundle), prior_groups(bundle.config, bundle.design)
    priors = tuple(
        TorchPrior(
            group.parameter, group.density.in_torch(*(data[name] for name in group.data_names)),
            None if group.members is None else torch.tensor(group.members),
        )
        for group in groups
        if not (group.density.is_constant or group.density.is_horseshoe)
    )  # fmt: skip
    constants = {g.label: data[g.data_names[0]] for g in groups if g.density.is_constant}
    sampled = sampled_positive(bundle.config, bundle.design)
    temper = temper_of(bundle.config, bundle.design)
    chunks = tuple(_chunks(bundle, problem))
    shear = shear_of(bundle, problem.Z)
    return Target(bundle, chunks, priors, sampled, constants, prior_only, temper, shear)


def negative_log_posterior(target: Target, q: Tensor) -> float:
    """Evaluate minus the log density that the program samples, up to a constant."""
    with torch.no_grad():
        log_density = log_prior(target, q)
        if not target.prior_only:
            log_density = log_density + log_likelihood(target, q)
    return -float(log_density)


def log_likelihood(target: Target, q: Tensor) -> Tensor:
    """Return the log-likelihood of all rows at q, tempered, with its derivatives.

    If theta is integrated out, that is log p(y | phi, theta) + (1 / T - 1) log p(y | phi).
    """
    phi, _, log_dispersion = target.split(q)
    total = q.new_zeros(())
    predictors = target.predictors(phi, target.linear(q))
    further = target.further_predictors(q)
    for chunk, eta, added in zip(target.chunks, predictors, further, strict=True):
        total = total + log_lik(target, chunk, eta, log_dispersion, added).sum()
    if not target.integrates_theta:
        return target.power * total
    return total + (target.power - 1) * log_marginal_likelihood(target, phi, log_dispersion)


def log_marginal_likelihood(target: Target, phi: Tensor, log_dispersion: Tensor) -> Tensor:
    """Return log p(y | phi, dispersion), theta integrated out, with its derivatives."""
    f, chunks = torch.cat(target.outputs(phi)), target.chunks
    rows = all_rows(chunks)
    scale = torch.tensor(target.bundle.units.theta_scale)
    start = torch.tensor(target.bundle.trained.theta) / scale
    (prior,) = (prior for prior in target.priors if prior.parameter == "theta")
    conditional = Conditional(
        rows.eta(target.raw(torch.zeros_like(start), f), f),
        rows.eta_scale * rows.Z,
        lambda eta: log_lik(target, rows, eta, log_dispersion),
        lambda t: prior.distribution.log_prob(scale * t) + scale.log(),
    )
    return log_marginal(conditional, start)


def _chunks(bundle: Bundle, problem: Problem) -> Iterator[Problem]:
    """Split the rows so that a Jacobian fits in memory; U becomes the first free layer's input."""
    size = max(1, CHUNK // bundle.subspace.d)
    frozen = torch.tensor(bundle.trained.w_frozen)
    for start in range(0, len(problem), size):
        part = problem.rows(torch.arange(start, min(start + size, len(problem))))
        yield replace(part, U=frozen_features(bundle.network, frozen, part.U))


def weights(target: Target, phi: Tensor) -> Tensor:
    """Return the Bayesian weights (d,) at phi, as ``Subspace.lift`` does, with gradients."""
    subspace = target.bundle.subspace
    a, axes = len(subspace.axes), torch.from_numpy(subspace.axes)
    w = torch.from_numpy(subspace.p_bar) + torch.from_numpy(subspace.Pi) @ phi[a:]
    return w.index_add(0, axes, phi[:a])


def log_lik(
    target: Target,
    chunk: Problem,
    eta: Tensor,
    log_dispersion: Tensor,
    further: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Return the log-likelihood of each row of a chunk, given its predictors."""
    values, added = dict(target.positive(log_dispersion)), further or {}
    for item in target.bundle.family.parameters:
        if item.name in added:
            values[item.name] = item.moved(chunk.starts[item.name], added[item.name])
    names = target.bundle.family.dispersion
    return chunk.log_lik(eta, {n: torch.as_tensor(values[n], dtype=eta.dtype) for n in names})


def log_prior(target: Target, q: Tensor) -> Tensor:
    """Return the log prior density of q, the Jacobians of its transformations included."""
    phi, theta, log_dispersion = target.split(q)
    values = {"phi": phi, "theta": theta * torch.tensor(target.bundle.units.theta_scale)}
    values |= dict(zip(target.sampled, log_dispersion.exp(), strict=True))
    values |= parameter_values(target.bundle, q[target.further], torch.from_numpy)
    total = log_dispersion.sum()
    for prior in target.priors:
        total = total + prior.log_density(values[prior.parameter])
    if target.bundle.design.penalised:
        shape = parse_prior(target.bundle.config.priors.cor, "cor").argument("shape")
        total = total + penalised_log_prior(target.bundle.design, q[target.penalised], shape)
    return total
