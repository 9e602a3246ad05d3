"""Gaussian processes ``gp(x, k, c, cov, by)`` by a basis of functions.

x is moved and scaled to [-1/2, 1/2]. A process with standard deviation sdgp and a covariance whose
spectral density is S (``gp_covariances.py``), by default the squared exponential
sdgp^2 exp(-(x - x')^2 / (2 lscale^2)), is nearly

    f(x) = sum_j sqrt(S(w_j)) h_j(x) zgp_j,

zgp being standard normal. ``lscale`` is a share of the range of x in the training rows, as in
brms. ``gp_basis.py`` has the functions h and frequencies w: ``graded`` ones by default, which
follow all length scales from a twentieth of the range, or the least distance of two values, to
the range; and with k or c those of a Hilbert space, as in brms. The prior of lscale has 1% below
and 1% above that. A posterior beyond what the basis follows is warned of, with the k and c that it
needs. Without k, brms computes the process itself, whose cost grows with the cube of the rows.

With a numeric ``by=z`` it is z f(x), the effect of z that varies with x; ``gp_by.py`` has a process
for each level of a factor, ``gp_plane.py`` one of two columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.formula.calls import TermCall
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.gp_basis import (
    boxed_frequencies,
    boxed_range,
    boxed_values,
    graded_values,
    margin_for,
    size_for,
)
from semistan.model.terms.gp_covariances import COVARIANCES, Covariance
from semistan.model.terms.penalised import LEAST_SPREAD, Common
from semistan.model.terms.term import Hyperparameter, Lines, TensorBlock, View

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

STORED = "processes"
DEFAULT = COVARIANCES["exp_quad"]
SHORTEST, LONGEST = 0.05, 1.0  # of lscale: what the basis follows unless k or c are given
SHORTEST_OF_ALL = 0.5  # where two values at least have such a distance, or k is as small
WITHIN = 1.25  # how much wider than the range of x the default basis is
TAIL = 0.01  # of the prior of lscale at either end


@dataclass(frozen=True, slots=True, eq=False)
class Graded:
    """Frequencies of the default basis with their steps, and the length scales it is made for."""

    nodes: Array
    steps: Array
    follows: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Process(Common):
    """The learnt state of one ``gp()`` term.

    Attributes
    ----------
    expression : str
        What it is a function of.
    name : str
        The term's part in Stan names: ``gpx`` of ``gp(x)``.
    middle, width : float
        Middle and width of the expression's range over the training rows.
    count : int
        Number k of basis functions.
    margin : float
        c, how much wider than the range of x that of the basis is.
    prior : tuple of float
        Shape and scale of the inverse gamma prior of lscale.
    key : str
        What its other names in the program end in.
    graded : Graded, optional
        The default basis; without, it is that of a Hilbert space by ``count`` and ``margin``.
    covariance : Covariance
        What the process has.
    by : str
        The column that it is multiplied by, empty without.
    by_scale : float
        The root mean square of that column over the training rows.
    """

    expression: str
    name: str
    middle: float
    width: float
    count: int
    margin: float
    prior: tuple[float, float]
    key: str = "1"
    graded: Graded | None = None
    covariance: Covariance = DEFAULT
    by: str = ""
    by_scale: float = 1.0

    @property
    def takes_level(self) -> bool:
        """It does: its functions are not centred."""
        return True

    @property
    def whole(self) -> str:
        """What length scales are shares of, in words."""
        return "the range"

    @property
    def stored(self) -> str:
        """The key under which a bundle has processes."""
        return STORED

    @property
    def call(self) -> TermCall:
        """The term as it stands in the formula, without options."""
        return TermCall("gp", self.expression, by=self.by)

    @property
    def text(self) -> str:
        """The term as users write it."""
        return self.call.text

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        return "Gaussian process", f"{self.text}, {self.basis_text}"

    @property
    def basis_text(self) -> str:
        """The covariance and the basis in words."""
        margin = "" if self.graded else f", c = {self.margin:g}"
        of = "" if self.covariance is DEFAULT else f"covariance {self.covariance.name}, "
        return f"{of}{self.count} functions{margin}"

    @property
    def size(self) -> int:
        """Number of basis functions."""
        return self.count

    @property
    def units(self) -> Array:
        """Size of what sdgp multiplies, which is 1 but for the column ``by``."""
        return np.array([self.by_scale])

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of zgp and of the coefficients; there are no correlations."""
        return f"zgp_{self.key}", "", f"rgp_{self.key}"

    @property
    def frequencies(self) -> Array:
        """Return w (k,)."""
        if self.graded:
            return np.tile(self.graded.nodes, 2)
        return boxed_frequencies(self.count, self.margin)

    @property
    def followed(self) -> tuple[float, float]:
        """The least and the largest lscale that the basis follows."""
        if self.graded:
            return self.graded.follows
        return boxed_range(self.covariance, self.count, self.margin)

    @property
    def lscale_start(self) -> float:
        """The lscale of training and at the start of sampling: the prior's median."""
        from scipy import stats

        shape, scale = self.prior
        return float(stats.invgamma(shape, scale=scale).median())

    @property
    def basis_names(self) -> tuple[str, str]:
        """The names of k and of the functions' values in the program."""
        return f"k_gp{self.key}", f"Zgp_{self.key}"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        fields = ("expression", "name", "middle", "width", "count", "margin")
        plain = {name: getattr(self, name) for name in fields}
        plain |= {"prior": list(self.prior), "cov": self.covariance.name}
        plain |= {"by": self.by, "by_scale": self.by_scale} if self.by else {}
        if self.graded is None:
            return plain
        arrays = {"nodes": self.graded.nodes.tolist(), "steps": self.graded.steps.tolist()}
        return plain | {"graded": arrays | {"follows": list(self.graded.follows)}}

    def warning(self, draws: Mapping[str, Array]) -> str | None:
        """Say that the basis does not follow the posterior's length scale, and what does."""
        name = self.spread[1]
        advice = self.advice(draws[name], self.text)
        return None if advice is None else f"Warning: {name} {advice}"

    def advice(self, lscale: Array, text: str) -> str | None:
        """Return what to write in place of ``text``, if the basis does not follow draws."""
        lower, median, upper = np.quantile(lscale, (0.05, 0.5, 0.95))
        least, most = self.followed
        if least <= median <= most:
            return None
        of = self.covariance
        margin = np.ceil(10 * max(self.margin * (median <= most), margin_for(of, upper))) / 10
        count = max(self.count * (median >= least), size_for(of, margin, lower))
        cov = "" if of is DEFAULT else f", cov='{of.name}'"
        return (
            f"has a posterior median of {median:.2g}, and the basis of {text} follows length "
            f"scales from {least:.2g} to {most:.2g} of the range, so that its curve is off: write "
            f"{text[:-1]}, k={count}, c={margin:g}{cov})."
        )

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return the basis functions (N, k) at each row.

        Raises
        ------
        InputError
            For values beyond the basis, where it means nothing.
        """
        x = (evaluate(self.expression, table) - self.middle) / self.width
        L = self.margin / 2
        if np.abs(x).max() > L:
            least, most = self.middle + self.width * L * np.array([-1, 1])
            raise InputError(
                f"{self.text} is known from {least:g} to {most:g}, its range in the training rows "
                f"times c = {self.margin:g}, and these rows go beyond; a larger c makes it wider"
            )
        if self.graded:
            Z = graded_values(x, self.graded.nodes, self.graded.steps)
        else:
            Z = boxed_values(x, self.count, self.margin)
        if self.by:
            Z = Z * evaluate(self.by, table)[:, None]
        return Block(Z, np.zeros(len(x), dtype=int))

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviation ``sdgp_gpx`` and the length scale ``lscale_gpx``."""
        return self.hyperparameters_of(self.text)

    def hyperparameters_of(self, text: str) -> tuple[Hyperparameter, Hyperparameter]:
        """Return them with what they are called, in words."""
        (shape, scale), unit = self.prior, 1 / self.by_scale
        return (
            Hyperparameter(f"sdgp_{self.name}", f"standard deviation of {text}", "sdgp", unit),
            Hyperparameter(
                f"lscale_{self.name}", f"length scale of {text}, over {self.whole}", "lscale",
                default=f"inv_gamma({shape:.6g}, {scale:.6g})", has_units=False,
            ),
        )  # fmt: skip

    def data_lines(self) -> Lines:
        """Declare basis and frequencies."""
        k = f"k_gp{self.key}"
        return [
            (f"int<lower=1> {k};", f"basis functions of {self.text}"),
            (f"matrix[N, {k}] Zgp_{self.key};", "their values"),
            (f"vector[{k}] w_gp{self.key};", "their frequencies"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return the basis of some rows."""
        key = self.key
        return {f"k_gp{key}": self.count, f"Zgp_{key}": block.Z, f"w_gp{key}": self.frequencies}

    def made_lines(self) -> Lines:
        """Declare the coefficients: the root of the spectral density times zgp."""
        (z, _, r), key = self.names, self.key
        return [
            (f"vector[k_gp{key}] {r}", f"coefficients of {self.text}"),
            (f"  = {self.spread_text}", ""),
            (f"    .* {z};", ""),
        ]

    @property
    def spread_text(self) -> str:
        """The standard deviation of each coefficient: the root of the spectral density."""
        sd, lscale = self.spread
        front, back = self.covariance.front, self.covariance.back
        back = back.format(lw=f"{lscale} * w_gp{self.key}")
        return f"{sd} * {front.format(lscale=lscale)} * {back}"

    def coefficients(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the coefficients (1, k)."""
        return (self.sd_of_each(values) * values[self.names[0]])[None]

    def sd_of_each(self, values: Mapping[str, Any]) -> Tensor:
        """Return the standard deviation of each coefficient (k,)."""
        sd, lscale = self.sd(values)
        found: Tensor = sd * self.covariance.root(lscale, torch.as_tensor(self.frequencies))
        return found

    def views(self, table: pd.DataFrame) -> tuple[View, ...]:  # noqa: ARG002
        """Return its curve; of one that a number multiplies, the change for one unit of it."""
        at, less = ({self.by: 1.0}, {self.by: 0.0}) if self.by else ({}, {})
        elements = np.arange(self.count)
        return (View(self.text, "", self.expression, self.spread[:1], elements, at, less),)

    def variances(self, values: Mapping[str, float]) -> Array:
        """Return the prior variances of the coefficients."""
        sd, lscale = (values[name] for name in self.spread)
        return np.asarray((sd * self.root(lscale)) ** 2)

    def root(self, lscale: float) -> Array:
        """Return the root of the spectral density (k,) at sdgp = 1."""
        return np.asarray(self.covariance.root(lscale, self.frequencies))

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what standardised coefficients add at the starting length scale."""
        return block.Z @ (torch.as_tensor(self.training_units(1.0)).to(x) * x)

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return what each standardised coefficient multiplies, (n, k)."""
        return block.Z * torch.as_tensor(self.training_units(1.0)).to(block.Z)

    def training_units(self, scale: float) -> Array:
        """Return the units of the coefficients."""
        return scale / self.by_scale * self.root(self.lscale_start)

    def start(self, x: Array, scale: float) -> dict[str, Any]:
        """Return the parameters at the trained coefficients x."""
        return self._at(x, x**2, self.lscale_start, scale)

    def reestimated(
        self, values: Mapping[str, Any], covariance: Array, fixed: set[str], scale: float
    ) -> dict[str, Any]:
        """Return the sdgp and lscale of greatest expected density, and zgp with the same f.

        Arguments and source as ``Penalised``; lscale stays where its prior has 98%.
        """
        from scipy.optimize import minimize_scalar

        sd_name, lscale_name = self.spread
        sd, lscale = float(values[sd_name]), float(values[lscale_name])
        z = np.asarray(values[self.names[0]], dtype=float)
        r = sd * self.root(lscale) * z
        squares = (sd * self.root(lscale)) ** 2 * (z**2 + np.diag(covariance))

        def less_log_density(log_lscale: float) -> float:
            root = self.root(np.exp(log_lscale))
            mean = max(float((squares / root**2).mean()), np.finfo(float).tiny)
            return float(len(z) * np.log(mean) / 2 + np.log(root).sum())

        if lscale_name not in fixed:
            found = minimize_scalar(less_log_density, bounds=np.log(self._likely), method="bounded")
            lscale = float(np.exp(found.x))
        made = self._at(r, squares, lscale, scale)
        return made if sd_name not in fixed else made | self._with_sd(r, sd, lscale)

    @property
    def _likely(self) -> Array:
        from scipy import stats

        shape, scale = self.prior
        return np.asarray(stats.invgamma(shape, scale=scale).ppf([TAIL, 1 - TAIL]))

    def _at(self, r: Array, squares: Array, lscale: float, scale: float) -> dict[str, Any]:
        root = self.root(lscale)
        sd = max(float(np.sqrt((squares / root**2).mean())), LEAST_SPREAD * scale / self.by_scale)
        return self._with_sd(r, sd, lscale)

    def _with_sd(self, r: Array, sd: float, lscale: float) -> dict[str, Any]:
        named = dict(zip(self.spread, (sd, lscale), strict=True))
        return {self.names[0]: r / (sd * self.root(lscale)), **named}


def inverse_gamma(least: float, most: float) -> tuple[float, float]:
    """Return shape and scale of the inverse gamma with ``TAIL`` below and above two places."""
    from scipy import stats
    from scipy.optimize import brentq

    def ratio(log_shape: float) -> float:
        ends = stats.invgamma(np.exp(log_shape)).ppf([TAIL, 1 - TAIL])
        return float(np.log(ends[1] / ends[0]) - np.log(most / least))

    shape = float(np.exp(brentq(ratio, np.log(0.3), np.log(1e5))))
    return shape, most / float(stats.invgamma(shape).ppf(1 - TAIL))
