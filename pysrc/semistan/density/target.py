"""The posterior that the program samples, computed in PyTorch.

It is a function of the program's unconstrained coordinates q (``model/layout.py``), and it reads
the rows some at a time. The posterior is tempered as the bundle's configuration says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.features import NUMBERS as FEATURES
from semistan.density.features import at_features
from semistan.density.ggn import CHUNK
from semistan.density.marginal import Conditional, log_marginal
from semistan.density.problem import Problem, all_rows, make_problem
from semistan.density.shear import Shear, shear_of
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.completion import Completion
from semistan.model.families.family import Dispersion
from semistan.model.layout import Layout
from semistan.model.names import MU
from semistan.model.networks.networks import forward
from semistan.model.parameter import Parameter
from semistan.model.predictor import Predictor
from semistan.model.priors.distributions import TorchPrior, torch_priors
from semistan.model.priors.groups import PHI
from semistan.model.table.rows import Rows
from semistan.model.temper import Temper

if TYPE_CHECKING:
    from torch import Tensor

NUMBERS = 4_000_000  # activations, or weights, of several points that are held at a time

Values = Mapping[str, "Tensor"]


@dataclass(frozen=True, eq=False)
class Target:
    """The negative log posterior of q as the program computes it.

    Attributes
    ----------
    bundle : Bundle
        The trained model.
    chunks : tuple of Problem
        Of the rows.
    priors : tuple of TorchPrior
        Those that the user chose.
    prior_only : bool
        Whether the likelihood is left out.
    shear : Shear, optional
        What of the network some coefficients hold.
    """

    bundle: Bundle
    chunks: tuple[Problem, ...]
    priors: tuple[TorchPrior, ...]
    prior_only: bool
    shear: Shear | None = None

    @property
    def constants(self) -> dict[str, float]:
        """Dispersion parameters and standard deviations that are not sampled."""
        return self.bundle.model.constants

    @property
    def layout(self) -> Layout:
        """The order of q."""
        return self.bundle.layout

    @property
    def temper(self) -> Temper | None:
        """How the posterior is tempered, if it is."""
        return self.bundle.model.temper

    @property
    def completion(self) -> Completion | None:
        """What the weights outside the subspace add; nothing without a likelihood."""
        return None if self.prior_only else self.bundle.completion

    def outside(self, size: int, generator: np.random.Generator) -> Array | None:
        """Draw coordinates outside the subspace, (size, K), if it is completed."""
        completion = self.completion
        return None if completion is None else generator.normal(size=(size, completion.K))

    @property
    def power(self) -> float:
        """Of the likelihood, or of p(y | phi) if theta is integrated out: 1 / T."""
        return 1 / self.temper.temperature if self.temper else 1.0

    @property
    def integrates_theta(self) -> bool:
        """Whether theta is integrated out, to temper phi alone."""
        return self.bundle.model.integrates_theta

    @cached_property
    def parts(self) -> tuple[Target, ...]:
        """Targets whose log-likelihoods add up to this one's: of a chunk each, if that can be."""
        if self.prior_only:
            return ()
        if self.shear or self.integrates_theta or len(self.chunks) == 1:
            return (self,)
        return tuple(replace(self, chunks=(chunk,)) for chunk in self.chunks)

    def single(self) -> Target:
        """Return it with convolutions in single precision, in which chains move."""
        return replace(self, chunks=tuple(chunk.single() for chunk in self.chunks))

    @cached_property
    def scalars(self) -> tuple[Dispersion, ...]:
        """The dispersion parameters without a predictor."""
        names = self.bundle.model.scalars
        return tuple(item for item in self.bundle.family.parameters if item.name in names)

    @cached_property
    def prior_data(self) -> dict[str, Any]:
        """The arguments of the priors as used."""
        return self.bundle.prior_data

    @cached_property
    def made_of(self) -> tuple[Parameter, ...]:
        """The parameters that theta is made of, with a joint prior of the coefficients."""
        joint, P = self.bundle.model.joint, len(self.bundle.design.coefficients)
        return joint.parameters(self.prior_data, P) if joint else ()

    def values(self, q: Tensor) -> dict[str, Tensor]:
        """Return all parameters and constants at q by name, as the program has them."""
        return self.completed(self.layout.unpack(q))

    def completed(self, values: Values) -> dict[str, Tensor]:
        """Add the constants, and theta where it is made of others, to the sampled parameters."""
        values = {**values, **self.fixed(values[PHI])}
        return values | self._made_theta(values)

    def fixed(self, like: Tensor) -> dict[str, Tensor]:
        """Return the constants as tensors of some tensor's kind."""
        return {name: like.new_tensor(value) for name, value in self.constants.items()}

    def _made_theta(self, values: Values) -> dict[str, Tensor]:
        subspace = self.bundle.subspace
        if subspace.holds_theta:
            bar, along = torch.from_numpy(subspace.theta_bar), torch.from_numpy(subspace.theta_Pi)
            return {"theta": bar + along @ values[PHI]}
        joint = self.bundle.model.joint
        return {"theta": joint.theta(values, self.prior_data)} if joint else {}

    def coefficients(self, values: Values, predictor: Predictor) -> Tensor:
        """Return a predictor's structured coefficients over their units."""
        scale = torch.from_numpy(self.bundle.units.coefficient_scale(predictor.name))
        value = values.get(predictor.theta)
        return scale.new_zeros(0) if value is None else value / scale

    def outputs(self, phi: Tensor) -> list[Tensor]:
        """Return the output of the mean's networks at phi for each chunk's rows."""
        w = weights(self, phi)
        return [forward(self.bundle.network, w, chunk.U) for chunk in self.chunks]

    def raw(self, theta: Tensor, f: Tensor) -> Tensor:
        """Return the mean's theta / theta_scale beside the network's output f (N,) of all rows."""
        return self.shear.raw(theta, self.shear.along @ f) if self.shear else theta

    def predictors(self, values: Values) -> list[dict[str, Tensor]]:
        """Return the predictors of each chunk's rows by name, that of the mean as ``mu``."""
        w, outputs = weights(self, values[PHI]), self.outputs(values[PHI])
        theta = {p.name: self.coefficients(values, p) for p in self.bundle.design.predictors}
        if self.shear:
            theta[MU] = self.raw(theta[MU], torch.cat(outputs))
        return [
            {
                p.name: self._predictor(p, values, chunk, theta[p.name], w, f)
                for p in self.bundle.design.predictors
            }
            for chunk, f in zip(self.chunks, outputs, strict=True)
        ]

    def _predictor(
        self,
        predictor: Predictor,
        values: Values,
        chunk: Problem,
        theta: Tensor,
        w: Tensor,
        f: Tensor,
    ) -> Tensor:
        """Return one predictor of a chunk's rows, given the mean's networks' output f."""
        name, units = predictor.name, self.bundle.units
        columns = chunk.columns[name]
        own = f if predictor.is_mean else forward(self.bundle.network, w, chunk.U, name)
        inner = columns.Z @ theta + own
        if predictor.has_tau:
            inner = inner + values[predictor.tau]
        total = units.location(self.bundle.family, name) + units.scale(name) * inner
        for term, block in zip(predictor.terms, columns.blocks, strict=True):
            total = total + term.value(values, block)
        return total if columns.offset is None else total + columns.offset


def make_target(bundle: Bundle, rows: Rows, *, prior_only: bool = False) -> Target:
    """Collect what the posterior needs from a bundle and its training rows."""
    bundle, rows = at_features(bundle, rows)
    problem = make_problem(bundle.model, rows, "cpu")
    chunks = tuple(_chunks(bundle, problem))
    shear = shear_of(bundle.model, problem.Z)
    return Target(bundle, chunks, torch_priors(bundle), prior_only, shear)


def negative_log_posterior(target: Target, q: Tensor) -> float:
    """Evaluate minus the log density that the program samples, up to a constant."""
    with torch.no_grad():
        log_density = log_prior(target, q)
        if not target.prior_only:
            log_density = log_density + log_likelihood(target, q)
    return -float(log_density)


def value_and_gradient(target: Target, q: Array) -> tuple[float, Array]:
    """Return minus the log posterior at q (n,), up to a constant, and its gradient (n,).

    Each chunk of rows is gone back through before the next one, so that memory is bounded by a
    chunk; not where theta depends on the network at all rows.
    """
    x = torch.tensor(q, requires_grad=True)
    total = log_prior(target, x)
    (gradient,) = torch.autograd.grad(total, x)
    value = float(total.detach())
    for part in target.parts:
        more = log_likelihood(part, x)
        gradient = gradient + torch.autograd.grad(more, x)[0]
        value += float(more.detach())
    return -value, -gradient.numpy()


def log_posteriors(target: Target, q: Array) -> Array:
    """Evaluate the log density that the program samples at points q (S, n), up to a constant."""
    if target.prior_only:
        return evaluated(lambda x: log_prior(target, x), q, target)
    return evaluated(lambda x: log_prior(target, x) + log_likelihood(target, x), q, target)


def evaluated(function: Callable[[Tensor], Tensor], q: Array, target: Target) -> Array:
    """Evaluate a function of q at points (S, n), some at a time to bound memory."""
    points = torch.tensor(q)
    with torch.no_grad():
        network = target.bundle.network
        # Newton's steps, of which each point needs its own number, integrate theta out.
        if target.integrates_theta or not network.batches:
            return np.array([float(function(point)) for point in points])
        rows = sum(len(chunk) for chunk in target.chunks)
        at_a_time = max(1, NUMBERS // max(rows * network.widest, network.d))
        found: Tensor = torch.func.vmap(function, chunk_size=at_a_time)(points)
    return np.asarray(found.numpy())


def log_likelihood(target: Target, q: Tensor) -> Tensor:
    """Return the log-likelihood of all rows at q, tempered, with its derivatives.

    If theta is integrated out, that is log p(y | phi, theta) + (1 / T - 1) log p(y | phi).
    """
    values, total = target.values(q), q.new_zeros(())
    for chunk, predictors in zip(target.chunks, target.predictors(values), strict=True):
        total = total + log_lik(target, chunk, predictors, values).sum()
    if not target.integrates_theta:
        return target.power * total
    return total + (target.power - 1) * log_marginal_likelihood(target, values)


def log_marginal_likelihood(target: Target, values: Values) -> Tensor:
    """Return log p(y | phi, dispersion), theta integrated out, with its derivatives."""
    f, chunks = torch.cat(target.outputs(values[PHI])), target.chunks
    rows = all_rows(chunks)
    scale = torch.tensor(target.bundle.units.theta_scale)
    start = torch.tensor(target.bundle.trained.theta) / scale
    (prior,) = (prior for prior in target.priors if prior.parameter == "theta")
    conditional = Conditional(
        rows.eta(target.raw(torch.zeros_like(start), f), f),
        rows.eta_scale * rows.Z,
        lambda eta: log_lik(target, rows, {MU: eta}, values),
        lambda t: prior.distribution.log_prob(scale * t) + scale.log(),
    )
    return log_marginal(conditional, start)


def _chunks(bundle: Bundle, problem: Problem) -> Iterator[Problem]:
    """Split the rows so that a Jacobian fits in memory; convolutions go where training was."""
    size, device = max(1, CHUNK // max(bundle.subspace.d, bundle.layout.size)), "cpu"
    if not bundle.network.in_stan:
        size = min(size, max(1, FEATURES // bundle.network.widest))
        allowed = bundle.config.train.device != "cpu"
        device = "cuda" if allowed and torch.cuda.is_available() else "cpu"
    for start in range(0, len(problem), size):
        part = problem.rows(torch.arange(start, min(start + size, len(problem))))
        yield replace(part, inputs=part.inputs.to(device))


def weights(target: Target, phi: Tensor) -> Tensor:
    """Return the Bayesian weights (d,) at phi, as ``Subspace.lift`` does, with gradients."""
    subspace = target.bundle.subspace
    a, axes = len(subspace.axes), torch.from_numpy(subspace.axes)
    w = torch.from_numpy(subspace.p_bar) + torch.from_numpy(subspace.Pi) @ phi[a:]
    return w.index_add(0, axes, phi[:a])


def log_lik(
    target: Target, chunk: Problem, predictors: Mapping[str, Tensor], values: Values
) -> Tensor:
    """Return the log-likelihood of each row of a chunk, given its predictors."""
    parameters = {
        item.name: item.value(predictors[item.name])
        if item.name in predictors
        else values[item.name]
        for item in target.bundle.family.parameters
    }
    return chunk.log_lik(predictors[MU], parameters)


def log_prior(target: Target, q: Tensor) -> Tensor:
    """Return the log prior density of q with the Jacobians of the constraints.

    Constants are left out: the units, and what cuts a density off.
    """
    return target.layout.log_jacobian(q) + log_prior_density(target, target.layout.unpack(q))


def log_prior_density(target: Target, values: Values) -> Tensor:
    """Return the log prior density of the sampled parameters, not cut off."""
    return log_lprior(target, values) + log_effects(target, values)


def log_lprior(target: Target, values: Values) -> Tensor:
    """Return what of it the program calls ``lprior``: without the densities of effects."""
    total = _own_densities(target, values, in_lprior=True)
    for prior in target.priors:
        total = total + prior.log_density(values)
    if explained := target.bundle.model.explained:
        total = total + explained.log_density({**values, **target.fixed(values[PHI])})
    return total


def log_effects(target: Target, values: Values) -> Tensor:
    """Return the rest: the log densities of effects that are given by other parameters."""
    return _own_densities(target, values, in_lprior=False)


def _own_densities(target: Target, values: Values, *, in_lprior: bool) -> Tensor:
    total = values[PHI].new_zeros(())
    for parameter in target.layout.parameters:
        if parameter.prior is not None and parameter.prior.in_lprior == in_lprior:
            total = total + parameter.prior.log_density(values[parameter.name])
    return total
