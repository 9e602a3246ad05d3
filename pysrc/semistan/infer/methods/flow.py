"""Variational inference with a normalising flow: an approximation of the posterior of q.

Standard normal draws e go through coupling layers f and two affine maps to

    q = m + C^(1/2) (a + B f(e)),

with m and C the Laplace approximation at the chain's mode, B lower triangular with a positive
diagonal, and all but m and C learnt; at first g, the density of q, is the Laplace approximation.
A coupling layer shifts and scales one half of its input by functions of the other half
(RealNVP), so that g is known. B is there because layers alone imitate a correlation only where
the mass is, not in the tails. Adam, its rate annealed to zero, maximises the evidence lower bound

    E_g[log p(q | y) - log g(q)],

with reparameterised draws. What is drawn afterwards is from g, not from the posterior: log p and
log g of each draw are in the columns log_p__ and log_g__, from which Pareto k-hat tells how
far g is away (Yao et al., 2018). The bound rewards a g that is narrower than the posterior.

Dinh, Sohl-Dickstein and Bengio (2017), ICLR; Rezende and Mohamed (2015), ICML. A layer has no
other half in one dimension: g is a Gaussian then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.density.mode import Mode
from semistan.density.target import (
    Target,
    log_likelihood,
    log_posteriors,
    log_prior,
)
from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import Report
from semistan.infer.method import Method
from semistan.infer.stan_csv import Origin, sampled_columns, stan_csv
from semistan.infer.task import ChainTask
from semistan.lazy import torch
from semistan.model.arrays import Array

if TYPE_CHECKING:
    from torch import Generator, Tensor


LAYERS = 6
HIDDEN = (32, 32)  # units of the networks inside the layers
STEPS = 2000  # of Adam
DRAWS = 32  # for each step
LEARNING_RATE = 1e-2
LARGEST_GRADIENT = 10.0  # norm at which gradients are clipped
ROWS = 4096  # above which each step takes so many at random
NO_MODE_SD = 0.1  # of each element of q at first, where no mode was found
ABOUT = "drawn from a normalising flow that approximates the posterior; it is no sampler of it"


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A density g of q.

    Attributes
    ----------
    layers : torch.nn.Module
        The coupling layers f.
    a : torch.Tensor, shape (n,)
        Learnt shift.
    b : torch.Tensor, shape (n, n)
        Learnt: B's elements below the diagonal, and the logs of those on it.
    mean : torch.Tensor, shape (n,)
        The mode m.
    factor : torch.Tensor, shape (n, n)
        Cholesky factor of C.
    """

    layers: Any
    a: Tensor
    b: Tensor
    mean: Tensor
    factor: Tensor

    @property
    def parameters(self) -> list[Tensor]:
        """All that is learnt."""
        return [*self.layers.parameters(), self.a, self.b]

    def draw(self, normal: Tensor) -> tuple[Tensor, Tensor]:
        """Map standard normal draws (S, n) to q (S, n) and log g(q) (S,)."""
        inverse = self.layers().transform.inv
        f, log_slope = inverse.call_and_ladj(normal)
        n = normal.shape[-1]
        log_normal = -normal.square().sum(dim=-1) / 2 - n * math.log(2 * math.pi) / 2
        log_det = self.b.diagonal().sum() + self.factor.diagonal().log().sum()
        B = self.b.tril(-1) + self.b.diagonal().exp().diag()
        q = self.mean + (self.a + f @ B.T) @ self.factor.T
        return q, log_normal - log_slope - log_det


def flow_chain(task: ChainTask, report: Report) -> bytes:
    """Fit a flow and draw from it; its CSV file has the columns log_p__ and log_g__.

    A chain is a fit of its own, with its own start and random numbers, which depend only on the
    seed and its number. Its draws are independent.

    Raises
    ------
    InputError
        If zuko is not installed.
    SemistanError
        If the bound is not finite any more.
    """
    _zuko()
    target, options = task.target(), task.options
    generator = torch.Generator().manual_seed(task.seed)
    flow = new_flow(*task.begin(target), generator)
    fit_flow(flow, target, STEPS, generator, lambda step: report.step(step, STEPS))
    draws = options.per_chain
    columns = _columns(flow, target, task.outside(target, draws), draws, generator)
    return stan_csv(columns, Origin("flow", ABOUT, task.number, options.seed, STEPS))


def new_flow(start: Array, mode: Mode | None, generator: Generator) -> Flow:
    """Return a flow that is still the Laplace approximation at a mode.

    Parameters
    ----------
    start : array, shape (n,)
        Where to start if there is no mode.
    mode : Mode, optional
        The mode.
    generator : torch.Generator
        Draws the networks' first weights.

    Raises
    ------
    InputError
        If zuko is not installed.
    """
    n = len(start)
    with _seeded(generator):
        layers = _zuko().flows.RealNVP(
            n, transforms=LAYERS, hidden_features=HIDDEN, activation=torch.nn.Tanh
        )
    layers = layers.double()
    with torch.no_grad():
        for layer in layers.transform.transforms:
            last = layer.hyper[-1] if n > 1 else layer
            for parameter in last.parameters():
                parameter.zero_()
    a = torch.zeros(n, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(n, n, dtype=torch.float64, requires_grad=True)
    if mode is None:
        factor = NO_MODE_SD * torch.eye(n, dtype=torch.float64)
        return Flow(layers, a, b, torch.tensor(start), factor)
    factor = torch.linalg.cholesky(torch.tensor(mode.inv_metric))
    return Flow(layers, a, b, torch.tensor(mode.q), factor)


def fit_flow(
    flow: Flow,
    target: Target,
    steps: int,
    generator: Generator,
    report: Callable[[int], None] | None = None,
) -> None:
    """Maximise the evidence lower bound; the flow is changed in place.

    Raises
    ------
    SemistanError
        If the bound is not finite any more.
    """
    adam = torch.optim.Adam(flow.parameters, lr=LEARNING_RATE)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for step in range(1, steps + 1):
        normal = torch.randn(DRAWS, len(flow.mean), generator=generator, dtype=torch.float64)
        q, log_g = flow.draw(normal)
        bound = (_log_densities(target, q, generator) - log_g).mean()
        if not bool(bound.isfinite()):
            raise SemistanError(
                f"the flow's bound is not finite in step {step}; choose a smaller k, a tighter "
                "prior on phi, or another method"
            )
        adam.zero_grad()
        (-bound).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(flow.parameters, LARGEST_GRADIENT)
        adam.step()
        annealing.step()
        if report is not None:
            report(step)


def _zuko() -> Any:
    try:
        import zuko
    except ImportError:
        raise InputError(
            "method = 'flow' needs the library zuko; install it with: pip install 'semistan[flow]'"
        ) from None
    return zuko


@contextmanager
def _seeded(generator: Generator) -> Iterator[None]:
    """Let a library draw from PyTorch's global generator, seeded, and leave that as it was."""
    seed = int(torch.randint(2**31, (1,), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _log_densities(target: Target, q: Tensor, generator: Generator) -> Tensor:
    """Estimate log p(q | y) of draws (S, n), up to a constant, with its derivatives."""
    part, weight = _some_rows(target, generator)

    def log_density(x: Tensor) -> Tensor:
        if target.prior_only:
            return log_prior(target, x)
        return log_prior(target, x) + weight * log_likelihood(part, x)

    # Newton's method, which integrates theta out, stops where each draw needs it to.
    if target.integrates_theta or not target.bundle.network.batches:
        return torch.stack([log_density(x) for x in q])
    return torch.func.vmap(log_density)(q)


def _some_rows(target: Target, generator: Generator) -> tuple[Target, float]:
    """Return random rows of a random chunk, and how often they stand for all rows.

    A chunk is as likely as it is long, so that each row is as likely as any other.
    """
    sizes = torch.tensor([float(len(chunk)) for chunk in target.chunks])
    N = int(sizes.sum())
    if N <= ROWS or target.integrates_theta or target.shear:  # these need all rows
        return target, 1.0
    chunk = target.chunks[int(torch.multinomial(sizes, 1, generator=generator))]
    index = torch.randperm(len(chunk), generator=generator)[:ROWS]
    return replace(target, chunks=(chunk.rows(index),)), N / len(index)


def _columns(
    flow: Flow, target: Target, psi: Array | None, draws: int, generator: Generator
) -> dict[str, Array]:
    """Draw from a fitted flow; log p and log g of each draw come after the program's columns."""
    with torch.no_grad():
        normal = torch.randn(draws, len(flow.mean), generator=generator, dtype=torch.float64)
        q, log_g = flow.draw(normal)
    columns = sampled_columns(
        target, q.numpy(), log_posteriors(target, q.numpy()), np.ones(draws), psi
    )
    return columns | {"log_p__": columns["lp__"], "log_g__": log_g.numpy()}


FLOW = Method(
    "flow", "variational inference with a RealNVP flow", flow_chain, approximate=True,
    by_stan=False, has_warmup=False, columns={"log_p": "log_p__", "log_g": "log_g__"},
    dimensions=40,
)  # fmt: skip
