"""The posterior that the program samples, computed in PyTorch.

It is a function of the program's unconstrained coordinates

    q = (phi / phi_scale, theta / theta_scale, log dispersion),

and it reads the rows some at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semistan.bundle.bundle import Bundle
from semistan.model.design import Rows
from semistan.model.network import forward, frozen_features
from semistan.model.priors import Density
from semistan.stan.priors import class_priors, prior_data, sampled_dispersion
from semistan.subspace.problem import Problem, make_problem

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 4_000_000  # derivatives by weights that are held at a time


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The negative log posterior of q as the program computes it, up to a constant."""

    bundle: Bundle
    chunks: tuple[Problem, ...]  # of the rows; U holds the first free layer's input
    priors: tuple[tuple[str, Any], ...]  # parameter and its distribution
    constants: dict[str, float]  # dispersion parameters that are not sampled
    prior_only: bool

    def split(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return phi, theta / theta_scale and the log of the sampled dispersion."""
        import torch

        k, P = self.bundle.subspace.k, len(self.bundle.trained.theta)
        phi_scale = torch.tensor(self.bundle.subspace.phi_scale)
        return phi_scale * q[:k], q[k : k + P], q[k + P :]


def make_target(bundle: Bundle, rows: Rows, *, prior_only: bool = False) -> Target:
    """Collect what the posterior needs from a bundle and its training rows."""
    problem = make_problem(bundle.family, bundle.network, bundle.units, rows, "cpu")
    phi_scale = bundle.subspace.phi_scale
    data = prior_data(bundle.config, bundle.family, bundle.units, phi_scale)
    classes = class_priors(bundle.config, bundle.family)
    priors = tuple(
        (item.parameter, _distribution(item.prior.density, [data[n] for n in item.data_names]))
        for item in classes
        if not item.prior.density.is_constant
    )
    constants = {p.label: data[p.data_names[0]] for p in classes if p.prior.density.is_constant}
    return Target(bundle, tuple(_chunks(bundle, problem)), priors, constants, prior_only)


def negative_log_posterior(target: Target, q: Tensor) -> float:
    """Evaluate minus the log density that the program samples, up to a constant."""
    import torch

    phi, theta, log_dispersion = target.split(q)
    with torch.no_grad():
        value = -log_prior(target, q)
        for chunk in target.chunks:
            if not target.prior_only:
                f = forward(target.bundle.network, weights(target, phi), chunk.U)
                value = value - log_lik(target, chunk, chunk.eta(theta, f), log_dispersion).sum()
    return float(value)


def _chunks(bundle: Bundle, problem: Problem) -> Iterator[Problem]:
    """Split the rows so that a Jacobian fits in memory; U becomes the first free layer's input."""
    import torch

    size = max(1, CHUNK // bundle.subspace.d)
    frozen = torch.tensor(bundle.trained.w_frozen)
    for start in range(0, len(problem), size):
        part = problem.rows(torch.arange(start, min(start + size, len(problem))))
        yield replace(part, U=frozen_features(bundle.network, frozen, part.U))


def weights(target: Target, phi: Tensor) -> Tensor:
    """Return the Bayesian weights (d,) at phi, as ``Subspace.lift`` does, with gradients."""
    import torch

    subspace = target.bundle.subspace
    a, axes = len(subspace.axes), torch.from_numpy(subspace.axes)
    w = torch.from_numpy(subspace.p_bar) + torch.from_numpy(subspace.Pi) @ phi[a:]
    return w.index_add(0, axes, phi[:a])


def log_lik(target: Target, chunk: Problem, eta: Tensor, log_dispersion: Tensor) -> Tensor:
    """Return the log-likelihood of each row of a chunk, given its linear predictor."""
    import torch

    config, family = target.bundle.config, target.bundle.family
    sampled = dict(zip(sampled_dispersion(config, family), log_dispersion.exp(), strict=True))
    fixed = {name: torch.tensor(v, dtype=eta.dtype) for name, v in target.constants.items()}
    return family.log_lik(chunk.y, eta, fixed | sampled)


def log_prior(target: Target, q: Tensor) -> Tensor:
    """Return the log prior density of q, the Jacobian of the dispersion's log included."""
    import torch

    config, family = target.bundle.config, target.bundle.family
    phi, theta, log_dispersion = target.split(q)
    values = {"phi": phi, "theta": theta * torch.tensor(target.bundle.units.theta_scale)}
    values |= dict(zip(sampled_dispersion(config, family), log_dispersion.exp(), strict=True))
    total = log_dispersion.sum()
    for parameter, distribution in target.priors:
        total = total + distribution.log_prob(values[parameter]).sum()
    return total


def _distribution(density: Density, arguments: list[Any]) -> Any:
    """Return a prior as a torch distribution."""
    import torch

    assert density.distribution is not None
    values = [torch.as_tensor(argument, dtype=torch.float64) for argument in arguments]
    return getattr(torch.distributions, density.distribution)(*values, validate_args=False)
