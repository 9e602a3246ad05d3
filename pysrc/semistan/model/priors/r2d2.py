"""The R2D2 prior, ``b = "R2D2()"``: of what parts of the predictor explain together.

It says how much of the variance they explain, and shares that out among them (Zhang, Naughton,
Bondell and Reich, 2022, JASA 117; Aguilar and Buerkner, 2023, Electron. J. Stat. 17), with brms's
arguments and defaults. Each part has a standard deviation s_j, in units of the predictor:

    s_j^2 = sigma^2 R2 / (1 - R2) share_j,
    R2 ~ beta(mean_R2 prec_R2, (1 - mean_R2) prec_R2),    share ~ dirichlet(cons_D2, ..., cons_D2)

In families without a residual standard deviation sigma is 1. Every coefficient is such a part, with
s_j = sdb_j and

    theta_j = zb_j sdb_j / sd(x_j),    zb_j ~ normal(0, 1),

and so is what group-level effects, smooths, Gaussian processes and networks add, where their
standard deviations have the prior too.

R2 and the shares are functions of the s_j, which are what is sampled, so that the prior is a
density of these. With v_j = s_j^2 / sigma^2, j = 1, ..., m, their sum T = R2 / (1 - R2),
a = mean_R2 prec_R2, b = (1 - mean_R2) prec_R2 and c = cons_D2,

    log p(v) = (a - m c) log T - (a + b) log(1 + T) + (c - 1) sum_j log v_j
             + log Gamma(m c) - m log Gamma(c) - log B(a, b).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.parameter import POSITIVE, STANDARD_NORMAL, Parameter
from semistan.model.priors.density import Density, Joint
from semistan.model.stan_text import WIDTH, call, statement

if TYPE_CHECKING:
    from torch import Tensor

SDB = "sdb"
SD, UNIT, R2 = "R2D2_sd", "R2D2_unit", "R2D2_R2"  # their names in the program
FILE = "r2d2.stanfunctions"
SPREAD = f"{SDB} .* theta_scale / eta_scale"
THETA = f"vector[P] theta = zb .* {SPREAD};  // structured coefficients\n"
LEAST = 0.1  # of a unit of the predictor, at which a coefficient's standard deviation starts


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """The parts of the predictor that an R2D2 prior is of.

    Attributes
    ----------
    sizes : mapping of str to str
        The parameters that are standard deviations, in order: their sizes in the program, empty of
        scalars.
    unit : array, shape (m,)
        What each is divided by to be the standard deviation of what it adds to the predictor.
    arguments : mapping of str to float
        Those of the prior, by their names in the program's data.
    residual : str
        ``sigma``, or ``1``.
    """

    sizes: Mapping[str, str]
    unit: Array
    arguments: Mapping[str, float]
    residual: str

    @property
    def size_text(self) -> str:
        """How many parts there are, in the program: ``P + 2``."""
        of_vectors = [size for size in self.sizes.values() if size]
        scalars = len(self.sizes) - len(of_vectors)
        return " + ".join([*of_vectors, *([str(scalars)] if scalars else [])])

    @property
    def data_lines(self) -> list[tuple[str, str]]:
        """The declaration of their units."""
        text = "unit of each part that the R2D2 prior is of"
        return [(f"vector<lower=0>[{self.size_text}] {UNIT};", text)]

    @property
    def declared(self) -> str:
        """The declaration of their standard deviations in the transformed parameters."""
        scalars = ", ".join(name for name, size in self.sizes.items() if not size)
        *before, last = [name for name, size in self.sizes.items() if size] + (
            [f"[{scalars}]'"] if scalars else []
        )
        every = "".join(f"append_row({name}, " for name in before) + last + ")" * len(before)
        return (
            f"vector[{self.size_text}] {SD}  // standard deviation of each part of the predictor\n"
            f"{statement(f'  = {every} ./ {UNIT};', WIDTH - 2)}"
        )

    def density(self, to: str) -> str:
        """Return the statement that adds the prior's log density in the program."""
        given = [f"{SD} | {self.residual}", *self.arguments]
        return call(f"{to} += r2d2_lpdf", given, ";", WIDTH - 2)

    @property
    def quantity_lines(self) -> list[tuple[str, str]]:
        """The declaration of R2 in the generated quantities."""
        text = "share of the variance that these parts explain"
        return [(f"real {R2} = r2d2_share({SD}, {self.residual});", text)]

    @property
    def text(self) -> str:
        """The prior in mathematics, in the program's names."""
        mean, precision, concentration = self.arguments.values()
        over = "" if self.residual == "1" else f" / {self.residual}^2"
        return (
            f"R2D2: sum({SD}^2){over} = {R2} / (1 - {R2}), "
            f"{R2} ~ beta({mean * precision:.6g}, {(1 - mean) * precision:.6g}), "
            f"{SD}^2 / sum({SD}^2) ~ dirichlet({concentration:.6g})"
        )

    def sd(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the standard deviations (m,), given the parameters by name."""
        found = torch.cat([values[name].reshape(-1) for name in self.sizes])
        return found / torch.from_numpy(self.unit)

    def share(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return R2."""
        total = (self.sd(values) / self._residual(values)).square().sum()
        return total / (1 + total)

    def log_density(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the prior's log density."""
        sd, sigma = self.sd(values), self._residual(values)
        mean, precision, c = (torch.tensor(x, dtype=torch.float64) for x in self.arguments.values())
        a, b, m = mean * precision, (1 - mean) * precision, len(sd)
        squares = (sd / sigma).square()
        total = squares.sum()
        of_total = (a - m * c) * total.log() - (a + b) * total.log1p()
        of_each = (c - 1) * squares.log() + (2 * sd / sigma.square()).log()
        constant = torch.lgamma(m * c) - m * torch.lgamma(c)
        constant = constant + torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
        density: Tensor = of_total + of_each.sum() + constant
        return density

    def draw(
        self, generator: np.random.Generator, size: int, values: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Draw the parameters (size, ...) from the prior, given the residual (size,)."""
        mean, precision, concentration = self.arguments.values()
        R2 = generator.beta(mean * precision, (1 - mean) * precision, size)
        shares = generator.dirichlet(np.full(len(self.unit), concentration), size)
        variance = (R2 / (1 - R2))[:, None] * shares
        drawn = np.sqrt(variance) * np.multiply.outer(values.get(self.residual, 1.0), self.unit)
        found, start = {}, 0
        for name in self.sizes:
            shape = values[name].shape
            end = start + int(np.prod(shape[1:], dtype=int))
            found[name], start = drawn[:, start:end].reshape(shape), end
        return found

    def _residual(self, values: Mapping[str, Tensor]) -> Tensor:
        sigma = values.get(self.residual)
        return torch.ones((), dtype=torch.float64) if sigma is None else sigma


def _parameters(data: Mapping[str, Any], P: int) -> tuple[Parameter, ...]:  # noqa: ARG001
    """Return what is sampled in place of P coefficients."""
    text = "standard deviation of what each coefficient adds"
    return (
        Parameter("zb", "standardised coefficients", (P,), ("P",), prior=STANDARD_NORMAL),
        Parameter(SDB, text, (P,), ("P",), POSITIVE),
    )


def _theta(values: Mapping[str, Tensor], data: Mapping[str, Any]) -> Tensor:
    """Return theta (P,) in the user's units, given the parameters by name."""
    unit = torch.as_tensor(data["theta_scale"]) / data["eta_scale"]
    theta: Tensor = values["zb"] * values[SDB] * unit
    return theta


def _start(theta: Array, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that make theta, each within its own scale."""
    added = theta * data["eta_scale"] / data["theta_scale"]
    least = max(float(np.sqrt(np.mean(added**2))), LEAST * data["eta_scale"])
    sdb = np.hypot(added, least)
    return {"zb": added / sdb, SDB: sdb}


R2D2 = Density(
    "R2D2", ("mean_R2", "prec_R2", "cons_D2"), (), defaults=(0.5, 2, 0.5), shares=("mean_R2",),
    explains=True,
    joint=Joint(
        _parameters, _theta, _start, THETA, z="zb", spread=SPREAD,
        argument_text={
            "mean_R2": "mean of R2", "prec_R2": "precision of R2",
            "cons_D2": "concentration of the shares",
        },
    ),
)  # fmt: skip
