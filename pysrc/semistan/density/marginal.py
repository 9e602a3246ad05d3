"""Laplace's method for p(y | phi), theta integrated out, in PyTorch.

With t = theta / theta_scale and the mode t* of p(y, t | phi), where H is minus the matrix of the
second derivatives of its logarithm,

    log p(y | phi) ~ log p(y, t* | phi) + P/2 log(2 pi) - 1/2 log det H,

which is exact for a gaussian response and a normal prior. The last of Newton's steps to t* is
differentiated, which gives the mode's derivatives by the implicit function theorem.
Tierney and Kadane (1986), Journal of the American Statistical Association 81(393).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistan.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

MAX_STEPS = 100
ENOUGH = 1e-12  # nats: the step that promises less is the last
NEAR = 1e-3  # nats: a step that promises less is taken whole
LEAST_CURVATURE = 1e-6  # of a prior on the way, which is negative in the tails of a Student t


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """log p(y, t | phi) of a linear predictor eta = offset + Z t.

    Attributes
    ----------
    offset : torch.Tensor, shape (N,)
        The linear predictor without theta.
    Z : torch.Tensor, shape (N, P)
        How t moves it.
    log_lik, log_prior : callable
        Elementwise log densities of eta (N,) and of t (P,).
    """

    offset: Tensor
    Z: Tensor
    log_lik: Callable[[Tensor], Tensor]
    log_prior: Callable[[Tensor], Tensor]

    def density(self, t: Tensor) -> Tensor:
        """Return log p(y, t | phi)."""
        return self.log_lik(self.offset + self.Z @ t).sum() + self.log_prior(t).sum()

    def derivatives(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the slope (P,) at t, and minus the curvature in two parts.

        They are those of the likelihood (P, P) and of the prior (P,).
        """
        by_eta = _slopes(self.log_lik, self.offset + self.Z @ t)
        by_t = _slopes(self.log_prior, t)
        information = self.Z.T @ (-by_eta[1][:, None] * self.Z)
        return self.Z.T @ by_eta[0] + by_t[0], information, -by_t[1]


def log_marginal(conditional: Conditional, start: Tensor) -> Tensor:
    """Return log p(y | phi), with its derivatives by what the conditional depends on.

    Parameters
    ----------
    conditional : Conditional
        log p(y, t | phi).
    start : torch.Tensor, shape (P,)
        Where the mode is looked for.

    Returns
    -------
    torch.Tensor
        A number; NaN if there is no mode.
    """
    with torch.enable_grad():
        near = _near_mode(conditional, start)
        slope, information, bend = conditional.derivatives(near)
        mode = near + torch.linalg.solve_ex(information + torch.diag(bend), slope)[0]
        _, information, bend = conditional.derivatives(mode)
        factor, failed = torch.linalg.cholesky_ex(information + torch.diag(bend))
        volume = len(start) / 2 * math.log(2 * math.pi) - factor.diagonal().log().sum()
        density: Tensor = conditional.density(mode) + volume
        return density * math.nan if failed else density


def _near_mode(conditional: Conditional, start: Tensor) -> Tensor:
    """Take Newton's steps but the last, halved until they lose nothing where they are long."""
    t = start.detach()
    for _ in range(MAX_STEPS):
        slope, information, bend = (x.detach() for x in conditional.derivatives(t))
        H = information + torch.diag(bend.clamp(min=LEAST_CURVATURE))
        move = torch.linalg.solve_ex(H, slope)[0]
        gain = float(slope @ move) / 2
        if not math.isfinite(gain):
            break
        if gain < ENOUGH:
            return t
        if gain > NEAR:
            move = _halved(conditional, t, move)
        t = t + move
    return torch.full_like(t, math.nan)


def _halved(conditional: Conditional, t: Tensor, move: Tensor) -> Tensor:
    with torch.no_grad():
        here = float(conditional.density(t))
        while not math.isnan(here) and not float(conditional.density(t + move)) >= here:
            move = move / 2
    return move


def _slopes(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and second derivatives of functions of one element each, with derivatives."""
    x = at if at.requires_grad else at.detach().requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return first, second
