"""The posterior with what eta is linear in integrated out, and exact draws of that, in PyTorch.

Given the sampled coordinates of q, the others, beta, have a normal prior N(m, S^2) and

    eta = eta_m + A (beta - m),    y ~ normal(eta, sigma / sqrt(weights)).

With r = (y - eta_m) sqrt(weights) / sigma, Z = diag(sqrt(weights) / sigma) A S, M = I + Z' Z and
b = Z' r, Woodbury's identity and the determinant lemma give

    log p(y | rest) = sum of weights * log N(0 | 0, sigma) - 1/2 (r' r + log det M - b' M^(-1) b),
    (beta - m) / S given y ~ N(M^(-1) b, M^(-1)).

eta is affine in beta whatever the network and the terms are, so that differences of eta, one for
each coordinate, are columns of A S: those of phi need the network, those of theta and of the terms
do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistan.density.target import Target, Values, log_prior
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.layout import in_file_order
from semistan.model.names import MU
from semistan.model.parameter import Parameter
from semistan.model.priors.distributions import log_mass_inside
from semistan.model.priors.groups import PHI
from semistan.model.priors.weight_scales import SD_W
from semistan.model.terms.term import Integrable, TensorBlock

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """What is linear in standardised beta at a point: the log-likelihood's parts.

    Attributes
    ----------
    residual : torch.Tensor, shape (N,)
        r.
    columns : torch.Tensor, shape (N, m)
        Z.
    level : torch.Tensor
        sum of weights * log N(0 | 0, sigma).
    """

    residual: Tensor
    columns: Tensor
    level: Tensor

    @property
    def factor(self) -> Tensor:
        """The lower Cholesky factor L of M."""
        gram = self.columns.T @ self.columns
        L: Tensor = torch.linalg.cholesky(gram + torch.eye(len(gram), dtype=gram.dtype))
        return L

    def solved(self) -> tuple[Tensor, Tensor]:
        """Return L and L^(-1) b."""
        L, b = self.factor, self.columns.T @ self.residual
        return L, torch.linalg.solve_triangular(L, b[:, None], upper=False)[:, 0]

    def log_integral(self) -> Tensor:
        """Return log p(y | rest)."""
        L, half = self.solved()
        squares = self.residual.square().sum() - half.square().sum()
        return self.level - squares / 2 - L.diagonal().log().sum()


def prior_moments(target: Target, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prior means and standard deviations (m,) of beta at sampled coordinates (n_s,)."""
    layout, sampled = target.layout, _sampled(target, x)
    mean, sd = x.new_full((layout.size,), torch.nan), x.new_full((layout.size,), torch.nan)
    for parameter in _standardised(target):
        at = torch.arange(layout.size)[layout.slices[parameter.name]]
        unit = torch.as_tensor(parameter.unit_at(sampled), dtype=x.dtype)
        mean = mean.index_fill(0, at, 0.0)
        sd = sd.index_copy(0, at, in_file_order((1 / unit).expand(parameter.shape)))
    for prior in target.priors:
        if prior.parameter not in (PHI, target.bundle.design.mean.theta):
            continue
        (parameter,) = (p for p in layout.parameters if p.name == prior.parameter)
        at = torch.arange(layout.size)[layout.slices[parameter.name]]
        unit = torch.from_numpy(np.broadcast_to(parameter.unit, parameter.shape).copy())
        if isinstance(prior.distribution, torch.distributions.Normal) and prior.members is None:
            scale = prior.distribution.scale
            if prior.scales is not None:
                scale = scale * prior.scales.factor(sampled[SD_W])
            mean = mean.index_copy(0, at, prior.distribution.loc / unit)
            sd = sd.index_copy(0, at, scale / unit)
    beta = torch.from_numpy(layout.integrated)
    return mean[beta], sd[beta]


def _standardised(target: Target) -> list[Parameter]:
    """Return the standardised coefficients of terms and of theta that are integrated out."""
    drawn = target.bundle.model.drawn
    return [item for item in target.layout.parameters if item.name in drawn and item.prior]


def _sampled(target: Target, x: Tensor) -> dict[str, Tensor]:
    """Return the parameters at sampled coordinates (n_s,); what is integrated out is 0."""
    return target.layout.unpack(whole(target, x, x.new_zeros(len(target.layout.integrated))))


def whole(target: Target, x: Tensor, beta: Tensor) -> Tensor:
    """Return q (n,) of its sampled (n_s,) and its integrated coordinates (m,)."""
    q = x.new_zeros(target.layout.size)
    q = q.index_add(0, torch.from_numpy(target.layout.sampled), x)
    return q.index_add(0, torch.from_numpy(target.layout.integrated), beta)


def linear_part(target: Target, x: Tensor) -> Linear:
    """Return what is linear at sampled coordinates (n_s,)."""
    mean, sd = prior_moments(target, x)
    values = target.values(whole(target, x, mean))
    at_mean = torch.cat([chunk[MU] for chunk in target.predictors(values)])
    of_phi = _of_phi(target, x, mean, sd, at_mean)
    one_sd_more = target.values(whole(target, x, mean + sd))
    columns = torch.cat([of_phi, _of_data(target, values, one_sd_more)], dim=1)
    sigma = values["sigma"]
    y = torch.cat([chunk.y for chunk in target.chunks])
    weights = [chunk.given.get("weights", torch.ones_like(chunk.y)) for chunk in target.chunks]
    precision = torch.cat(weights).sqrt() / sigma
    level = -torch.cat(weights).sum() * (sigma.log() + math.log(2 * math.pi) / 2)
    return Linear(precision * (y - at_mean), precision[:, None] * columns, level)


def _of_phi(target: Target, x: Tensor, mean: Tensor, sd: Tensor, at_mean: Tensor) -> Tensor:
    """Return the columns (N, n) of coordinates of phi, which come first: differences of eta."""
    n = len(target.bundle.linear)
    if not n:
        return at_mean.new_zeros(len(at_mean), 0)

    def eta(z: Tensor) -> Tensor:
        values = target.values(whole(target, x, mean + sd * z))
        return torch.cat([chunk[MU] for chunk in target.predictors(values)])

    moved: Tensor = torch.func.vmap(eta)(torch.eye(n, len(mean), dtype=mean.dtype))
    return (moved - at_mean).T


def _of_data(target: Target, values: Values, one_sd_more: Values) -> Tensor:
    """Return the columns (N, m - n) of theta and of the terms, without a network.

    They are at parameters whose integrated coordinates are at their prior means, and one standard
    deviation above these.
    """
    integral, mean = target.bundle.model.integral, target.bundle.design.mean
    assert integral
    at_mean, above = (target.coefficients(each, mean) for each in (values, one_sd_more))
    theta_sd, found = target.bundle.units.scale(MU) * (above - at_mean), []
    for chunk in target.chunks:
        own = chunk.columns[MU]
        blocks = dict(zip(mean.terms, own.blocks, strict=True))
        of_terms = [_of_term(term, blocks[term], values) for term in integral.terms]
        of_theta = [own.Z * theta_sd] if integral.theta else []
        found.append(torch.cat([*of_theta, *of_terms, own.Z[:, :0]], dim=1))
    return torch.cat(found)


def _of_term(term: Integrable, block: TensorBlock, values: Values) -> Tensor:
    """Return what each standardised coefficient of a term multiplies, (n, size)."""
    z = term.names[0]
    shape = values[z].shape

    def value(flat: Tensor) -> Tensor:
        own = flat.reshape(shape[::-1]).T if len(shape) == 2 else flat
        return term.value({**values, z: own}, block)

    found: Tensor = torch.func.vmap(value)(torch.eye(shape.numel(), dtype=torch.float64))
    return found.T


def log_integrated(target: Target, x: Tensor) -> Tensor:
    """Return the log density that the program samples at coordinates (n_s,), up to a constant.

    It is that of ``log_likelihood`` plus ``log_prior``, integrated over the other coordinates.
    """
    mean, sd = prior_moments(target, x)
    at_mean = log_prior(target, whole(target, x, mean))
    units = target.layout.log_unit[target.layout.integrated].sum()
    total = at_mean + sd.log().sum() + float(units + len(sd) * math.log(2 * math.pi) / 2)
    return total if target.prior_only else total + linear_part(target, x).log_integral()


def integrated_constant(target: Target) -> float:
    """Return what lp__ has besides ``log_integrated``: units, and what cuts densities off."""
    layout = target.layout
    return float(layout.log_unit[layout.sampled].sum()) - log_mass_inside(target.bundle)


def completed_draws(target: Target, x: Array, generator: np.random.Generator) -> Array:
    """Return q (S, n) at draws (S, n_s) of the sampled coordinates: the others are drawn exactly.

    Without a likelihood they are drawn from their prior.
    """
    found = []
    with torch.no_grad():
        for row in torch.tensor(x):
            mean, sd = prior_moments(target, row)
            z = torch.tensor(generator.normal(size=len(mean)))
            if not target.prior_only:
                L, half = linear_part(target, row).solved()
                z = torch.linalg.solve_triangular(L.T, (half + z)[:, None], upper=True)[:, 0]
            found.append(whole(target, row, mean + sd * z).numpy())
    return np.stack(found)
