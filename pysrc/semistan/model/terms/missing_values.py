"""Missing values ``mi(x)`` of a column, with what they are predicted from, ``x | mi() ~ z``.

    x_n ~ normal(a_n' b, sigma),    a_n = (1, z_n),

with the prior density of (b, sigma) proportional to 1 / sigma, as in mice's ``norm``. The known
values alone say of them, in closed form, with their least squares estimate and n - P degrees of
freedom nu,

    sigma^2 ~ scaled inverse chi squared(nu, s^2),    b ~ normal(estimate, sigma^2 (A' A)^-1).

That is their prior in the program, where the missing values are ``a_n' b + sigma z_n`` with z_n
standard normal; the response then says more of all of them. The term adds

    f(x) = bsp (x - mean of its known values).

Rubin (1987), Multiple Imputation for Nonresponse in Surveys, section 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.formula.calls import TermCall
from semistan.model.formula.expression import variables
from semistan.model.parameter import POSITIVE, REAL, STANDARD_NORMAL, OwnPrior, Parameter, Shape
from semistan.model.priors.chosen import ChosenPriors
from semistan.model.streams import Streams
from semistan.model.table.columns import (
    Terms,
    apply_structured,
    learn_structured,
    terms_of_plain,
    to_plain,
)
from semistan.model.table.imputed import numbers_of
from semistan.model.table.kinds import check_numeric
from semistan.model.table.rows import Block
from semistan.model.terms.kinds import TermKind
from semistan.model.terms.term import (
    Elements,
    Hyperparameter,
    Lines,
    TensorBlock,
    element_labels,
)

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

STORED = "imputed"
MOST_MISSING = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class MissingValues:
    """The learnt state of one ``mi()`` term.

    Attributes
    ----------
    column : str
        The column with missing values.
    name : str
        The term's part in Stan names: ``mix`` of ``mi(x)``.
    known : Terms
        The learnt state of what the missing values are predicted from.
    missing : tuple of int
        The training rows that have none, counted from 0.
    A : array, shape (M, P)
        What predicts the missing values, 1 first.
    loc, scale : float
        Mean and standard deviation of the known values.
    estimate : array, shape (P,)
        Least squares estimate of the coefficients of x, from the known values.
    root : array, shape (P, P)
        A square root of their covariance matrix, over sigma squared.
    s, nu : float
        The residual standard deviation there, and its degrees of freedom.
    key : str
        What its other names in the program end in.
    """

    column: str
    name: str
    known: Terms
    missing: tuple[int, ...]
    A: Array
    loc: float
    scale: float
    estimate: Array
    root: Array
    s: float
    nu: float
    key: str = "1"

    @property
    def stored(self) -> str:
        """The key under which a bundle has columns with missing values."""
        return STORED

    @property
    def text(self) -> str:
        """The term as users write it."""
        return f"mi({self.column})"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        of = " + ".join(self.known.terms) or "1"
        return "Missing values", f"{self.text}, {len(self.missing)} of them, from {of}"

    @property
    def slope(self) -> str:
        """The name of the coefficient of x."""
        return f"bsp_{self.name}"

    @property
    def sigma(self) -> str:
        """The name of the residual standard deviation of x."""
        return f"sigma_{self.name}"

    @property
    def spelled(self) -> str:
        """The column as names in tables have it."""
        return self.name.removeprefix("mi").strip("_")

    @property
    def made_names(self) -> tuple[str, str, str]:
        """The names of the coefficients, of the missing values, and of what is added."""
        return f"b_mi_{self.key}", f"Ymi_{self.key}", f"mi_{self.key}"

    def to_plain(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""
        arrays = {name: getattr(self, name).tolist() for name in ("A", "estimate", "root")}
        fields = ("column", "name", "missing", "loc", "scale", "s", "nu")
        plain = {name: getattr(self, name) for name in fields}
        return {
            **plain,
            **arrays,
            "missing": list(self.missing),
            "known": to_plain(asdict(self.known)),
        }

    def block(self, table: pd.DataFrame, *, allow_new_levels: bool = False) -> Block:  # noqa: ARG002
        """Return x and what predicts it; the level of a missing value is its number.

        The training rows know theirs. A missing value of another row is new.
        """
        x, gone = _values(self.column, table)
        level = np.full(len(x), -1)
        level[gone] = numbers_of(self.column, table)[gone] - 1
        new = np.flatnonzero(gone & ((level < 0) | (level >= len(self.missing))))
        level[new] = len(self.missing) + np.arange(len(new))
        labels = tuple(str(table.index[row]) for row in new)
        columns = [np.where(gone, 0.0, x - self.loc), np.ones(len(x))]
        return Block(
            np.column_stack([*columns, apply_structured(self.known, table)]), level, labels
        )

    def parameters(self, priors: ChosenPriors) -> tuple[Parameter, ...]:  # noqa: ARG002
        """Return the residual standard deviation of x, and standard normal z of all else."""
        key, P, M = self.key, len(self.estimate), len(self.missing)
        prior = scaled_inverse_chi(self.nu, self.s, f"nu_mi_{key}", f"s_mi_{key}")
        residual = f"residual standard deviation of {self.column}"
        return (
            Parameter(self.sigma, residual, kind=POSITIVE, prior=prior),
            Parameter(
                f"zb_mi_{key}", f"coefficients of {self.column}, standardised",
                (P,), (f"P_mi_{key}",), prior=STANDARD_NORMAL,
            ),
            Parameter(
                f"z_mi_{key}", f"missing values of {self.column}, standardised",
                (M,), (f"N_mi_{key}",), prior=STANDARD_NORMAL,
            ),
        )  # fmt: skip

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the coefficient ``bsp_mix``."""
        return (
            Hyperparameter(
                self.slope, f"coefficient of {self.text}", "b", 1 / self.scale, kind=REAL
            ),
        )

    def data_lines(self) -> Lines:
        """Declare x, and what its known values say of its distribution."""
        key, x = self.key, self.column
        N, P = f"N_mi_{key}", f"P_mi_{key}"
        return [
            (f"int<lower=0> {N};", f"missing values of {x}"),
            (f"int<lower=1> {P};", f"coefficients of {x}"),
            (f"vector[N] x_mi_{key};", f"{x} less its mean, 1 where it is missing"),
            (
                f"array[N] int<lower=1, upper={N} + 1> J_mi_{key};",
                "1, or 1 + the number of the missing value",
            ),
            (f"matrix[{N}, {P}] A_mi_{key};", "what predicts the missing values"),
            (f"real mean_mi_{key};", "mean of the known ones"),
            (f"vector[{P}] estimate_mi_{key};", "coefficients by least squares"),
            (f"matrix[{P}, {P}] root_mi_{key};", "of their covariances over sigma^2"),
            (f"real<lower=0> s_mi_{key};", "residual standard deviation there"),
            (f"real<lower=0> nu_mi_{key};", "its degrees of freedom"),
        ]

    def data(self, block: Block) -> dict[str, Any]:
        """Return them, x of some rows.

        Raises
        ------
        InputError
            If x is missing in rows that are not those of the training.
        """
        if block.new:
            raise InputError(
                f"'{self.column}' is missing in {len(block.new)} new rows, and the program has a "
                "parameter for each missing value of the training rows only; fill them in, or let "
                "semistan predict draw them"
            )
        key, gone = self.key, block.level >= 0
        return {
            f"N_mi_{key}": len(self.missing),
            f"P_mi_{key}": len(self.estimate),
            f"x_mi_{key}": np.where(gone, 1.0, block.Z[:, 0]),
            f"J_mi_{key}": block.level + 2,
            f"A_mi_{key}": self.A,
            f"mean_mi_{key}": self.loc,
            f"estimate_mi_{key}": self.estimate,
            f"root_mi_{key}": self.root,
            f"s_mi_{key}": self.s,
            f"nu_mi_{key}": self.nu,
        }

    def arguments(self) -> tuple[list[str], list[str]]:
        """Return the likelihood's arguments."""
        data = [f"data vector x_mi_{self.key}", f"data array[] int J_mi_{self.key}"]
        return data, [f"vector {self.made_names[2]}"]

    def made_lines(self) -> Lines:
        """Declare coefficients and missing values of x, and what these add."""
        key, (b, Y, added) = self.key, self.made_names
        return [
            (f"vector[P_mi_{key}] {b}", f"coefficients of {self.column}"),
            (f"  = estimate_mi_{key} + {self.sigma} * (root_mi_{key} * zb_mi_{key});", ""),
            (f"vector[N_mi_{key}] {Y}", f"missing values of {self.column}"),
            (f"  = A_mi_{key} * {b} + {self.sigma} * z_mi_{key};", ""),
            (f"vector[N_mi_{key} + 1] {added}", "its coefficient, and what each of these adds"),
            (f"  = {self.slope} * append_row(1, {Y} - mean_mi_{key});", ""),
        ]

    @property
    def model_lines(self) -> tuple[str, ...]:
        """The distribution of the missing values, and what the known ones say of it."""
        key, (b, *_) = self.key, self.made_names
        return (
            f"{self.text} = {self.slope} ({self.column} - mean_mi_{key})",
            f"{self.column} ~ normal(a' {b}, {self.sigma}), "
            f"a = ({', '.join(('1', *self.known.columns))}), where it is missing; "
            "its known values alone say that",
            f"{self.sigma}^2 ~ scaled_inv_chi_square(nu_mi_{key}, s_mi_{key})",
            f"{b} ~ multi_normal(estimate_mi_{key}, {self.sigma}^2 root_mi_{key} root_mi_{key}')",
        )

    def summand(self, rows: str) -> str:
        """Return what is added to the predictor."""
        return f"x_mi_{self.key}{rows} .* {self.made_names[2]}[J_mi_{self.key}{rows}]"

    def quantity_lines(self) -> Lines:
        """Declare nothing."""
        return []

    def quantities(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        """Return nothing."""
        return {}

    def value(self, values: Mapping[str, Tensor], block: TensorBlock) -> Tensor:
        """Return what is added to the predictor of each row."""
        known = torch.where(block.level >= 0, torch.ones_like(block.Z[:, 0]), block.Z[:, 0])
        return known * self.made(values)[self.made_names[2]][block.level + 1]

    @property
    def made_shapes(self) -> dict[str, Shape]:
        """The shapes of coefficients, missing values and what is added."""
        P, M = len(self.estimate), len(self.missing)
        return dict(zip(self.made_names, ((P,), (M,), (M + 1,)), strict=True))

    def made(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the coefficients (P,), the missing values (M,) and what is added (M + 1,)."""
        sigma, slope = values[self.sigma], values[self.slope]

        def tensor(array: Array) -> Tensor:
            return torch.as_tensor(array).to(slope)

        b = tensor(self.estimate) + sigma * (tensor(self.root) @ values[f"zb_mi_{self.key}"])
        Y = tensor(self.A) @ b + sigma * values[f"z_mi_{self.key}"]
        added = slope * torch.cat([slope.new_ones(1), Y - self.loc])
        return dict(zip(self.made_names, (b, Y, added), strict=True))

    def predicted(self, draws: Mapping[str, Array], block: Block, streams: Streams) -> Array:
        """Return what is added to the predictor of rows, (S, N).

        A missing value of a new row is drawn from the distribution of x, the same wherever that
        row is predicted.
        """
        added = draws[self.made_names[2]]
        known = np.where(block.level >= 0, 1.0, block.Z[:, 0])
        level = np.where(block.level < len(self.missing), block.level, -1)
        total = known * added[:, level + 1]
        for row in np.flatnonzero(block.level >= len(self.missing)):
            label = block.new[block.level[row] - len(self.missing)]
            z = streams.normal(self.sigma, label, size=1)[:, 0]
            mean = draws[self.made_names[0]] @ block.Z[row, 1:]
            x = mean + draws[self.sigma] * z
            total[:, row] = added[:, 0] * (x - self.loc)
        return np.asarray(total)

    def expected(self, block: Block, b: Array, Y: Array) -> Array:
        """Return the expected values (N,) of x where it is missing, at b (P,) and Y (M,)."""
        mean, M = block.Z[:, 1:] @ b, len(self.missing)
        at = np.minimum(block.level, M)
        return np.where((block.level >= 0) & (at < M), np.append(Y, np.nan)[at], mean)

    @property
    def reported(self) -> tuple[str, ...]:
        """The coefficient of x, and those by which it is predicted."""
        return (self.slope, *self._of_x, self.sigma)

    @property
    def own_units(self) -> dict[str, str]:
        """What is in the units of x."""
        return dict.fromkeys((*self._of_x, self.sigma), self.column)

    @property
    def _of_x(self) -> dict[str, str]:
        """The columns by which x is predicted, by the names of their coefficients."""
        names = (name for name in element_labels(self).values() if name.startswith("b_"))
        return dict(zip(names, ("Intercept", *self.known.columns), strict=True))

    def labels(self) -> dict[str, str]:
        """Say what they are."""
        of_x = {name: f"{self.column}: {column}" for name, column in self._of_x.items()}
        sigma = {self.sigma: f"residual standard deviation of {self.column}"}
        return {item.name: item.text for item in self.hyperparameters()} | of_x | sigma

    @property
    def elements(self) -> dict[str, Elements]:
        """The coefficients ``b_x[z]``, and the missing values by their rows: ``Ymi_x[12]``."""
        b, Y, _ = self.made_names
        rows = tuple(str(row + 1) for row in self.missing)
        return {
            b: Elements(f"b_{self.spelled}", (("Intercept", *self.known.columns),)),
            Y: Elements(f"Ymi_{self.spelled}", (rows,)),
        }

    @property
    def standardised(self) -> str:
        """The name of the missing values, less their means and over their standard deviation."""
        return f"z_mi_{self.key}"

    @property
    def held(self) -> tuple[str, ...]:
        """The residual standard deviation of x."""
        return (self.sigma,)

    def reestimated(
        self,
        values: Mapping[str, Any],
        covariance: Array,
        fixed: set[str],  # noqa: ARG002
        scale: float,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return a new residual standard deviation, from all values, and the same missing ones."""
        of_x, z = f"zb_mi_{self.key}", np.asarray(values[self.standardised], dtype=float)
        old, size = float(values[self.sigma]), len(z)
        squares = np.square(z).sum() + np.trace(covariance)
        new = np.sqrt((self.nu * self.s**2 + old**2 * squares) / (self.nu + size))
        moved = {name: np.asarray(values[name]) * old / new for name in (of_x, self.standardised)}
        return {self.sigma: float(new), **moved}

    @property
    def training_size(self) -> int:
        """The coefficient of x, whose missing values are as predicted by least squares."""
        return 1

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what x adds to the predictor, in its unit."""
        return (self.training_columns(block) @ x[:, None])[:, 0]

    def training_columns(self, block: TensorBlock) -> Tensor:
        """Return x over its unit, with the missing values filled in."""
        filled = block.Z[:, 1:] @ torch.as_tensor(self.estimate).to(block.Z) - self.loc
        return (torch.where(block.level >= 0, filled, block.Z[:, 0]) / self.scale)[:, None]

    def training_units(self, scale: float) -> Array:
        """Return the unit of the coefficient."""
        return np.array([scale / self.scale])

    def start(self, x: Array, scale: float) -> dict[str, Any]:  # noqa: ARG002
        """Return the trained coefficient, and the least squares predictions."""
        P, M = len(self.estimate), len(self.missing)
        zeros = {f"zb_mi_{self.key}": np.zeros(P), f"z_mi_{self.key}": np.zeros(M)}
        return {self.slope: float(x[0]), self.sigma: self.s} | zeros


def scaled_inverse_chi(nu: float, s: float, nu_name: str, s_name: str) -> OwnPrior:
    """Return the prior of a standard deviation whose square is scaled inverse chi squared.

    Parameters
    ----------
    nu, s : float
        Degrees of freedom, and the scale: the square is nu s^2 over a chi squared variable.
    nu_name, s_name : str
        What they are in the program's data.
    """

    def log_density(value: Tensor) -> Tensor:
        half = torch.as_tensor([nu / 2, nu * s**2 / 2], dtype=torch.float64).to(value)
        precision: Any = torch.distributions.Gamma(half[0], half[1])
        of_precision: Tensor = precision.log_prob(value.square().reciprocal())
        return of_precision + float(np.log(2)) - 3 * value.log()

    def draw(generator: np.random.Generator, size: int, shape: Shape) -> Array:
        return np.asarray(s * np.sqrt(nu / generator.chisquare(nu, size=(size, *shape))))

    def stan(name: str) -> str:
        square = f"scaled_inv_chi_square_lpdf(square({name}) | {nu_name}, {s_name})"
        return f"{square} + log(2 * {name})"

    return OwnPrior(stan, log_density, draw, in_lprior=False)


def _values(column: str, table: pd.DataFrame) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return x (N,), and where it is missing.

    Raises
    ------
    InputError
        If it is text.
    """
    if table[column].notna().any():  # else it may be of any type
        check_numeric(table, (column,))
    x = table[column].to_numpy(dtype=float, na_value=np.nan)
    return x, np.isnan(x)


def _learn(call: TermCall, table: pd.DataFrame, name: str, key: str) -> MissingValues:
    """Learn the distribution of the known values.

    Raises
    ------
    InputError
        If its values are no numbers, if too many of them are missing or too few known, or if what
        predicts them is collinear or says exactly what they are.
    """
    (column,) = variables(call.expression)
    x, gone = _values(column, table)
    if gone.sum() > MOST_MISSING:
        raise InputError(
            f"{call.text}: {gone.sum()} values are missing, each a parameter; at most "
            f"{MOST_MISSING:,} may be. Fill them in several times, and fit all tables at once: "
            "semistan fit --impute"
        )
    known, Z = learn_structured(call.predicted_by, table)
    P = 1 + Z.shape[1]
    there = x[~gone]
    if len(there) < P + 2 or np.ptp(there) == 0:
        raise InputError(
            f"{call.text}: {len(there)} values of '{column}' are known, and they must be at least "
            f"{P + 2}, which differ, to say how it depends on {' + '.join(known.terms) or '1'}"
        )
    loc, scale = np.array([0.0, *known.loc]), np.array([1.0, *known.scale])
    A = np.column_stack([np.ones(len(x)), Z])
    standard = (A - loc) / np.where(scale > 0, scale, 1.0)
    Q, R = np.linalg.qr(standard[~gone])
    if np.abs(np.diag(R)).min() < 1e-8 * np.sqrt(len(there)):
        raise InputError(
            f"{call.text}: in the rows with '{column}', {' + '.join(known.terms)} is constant or "
            "collinear; leave a term out"
        )
    back = np.diag(1 / scale)  # from coefficients of standardised columns to the user's
    back[0] -= loc / scale
    coefficients = np.linalg.solve(R, Q.T @ there)
    nu = float(len(there) - P)
    s = float(np.sqrt(np.square(there - standard[~gone] @ coefficients).sum() / nu))
    if not s > 1e-8 * there.std():
        raise InputError(
            f"{call.text}: {' + '.join(known.terms)} says exactly what '{column}' is; fill its "
            "missing values in"
        )
    return MissingValues(
        column, name, known, tuple(np.flatnonzero(gone).tolist()), A[gone],
        float(there.mean()), float(there.std(ddof=1)),
        back @ coefficients, back @ np.linalg.inv(R), s, nu, key,
    )  # fmt: skip


def _from_plain(content: Mapping[str, Any], key: str) -> MissingValues:
    """Rebuild a state that went through JSON.

    Raises
    ------
    ValueError
        If its figures do not fit.
    """
    known = terms_of_plain(content["known"], f"mi({content['column']})")
    missing = tuple(int(row) for row in content["missing"])
    P, M = 1 + len(known.columns), len(missing)
    A = np.array(content["A"], dtype=float).reshape(M, P)
    root, estimate = (np.array(content[name], dtype=float) for name in ("root", "estimate"))
    loc, scale, s, nu = (float(content[name]) for name in ("loc", "scale", "s", "nu"))
    fits = (root.shape, estimate.shape) == ((P, P), (P,)) and min(scale, s, nu) > 0
    if not fits or not all(np.isfinite(each).all() for each in (A, root, estimate, loc)):
        raise ValueError("the model of a column's missing values does not fit")
    names = str(content["column"]), str(content["name"])
    return MissingValues(*names, known, missing, A, loc, scale, estimate, root, s, nu, key)


KIND = TermKind(
    varies="fill the missing values in several times instead: semistan fit --impute",
    takes="one column, whose model stands behind a comma, as y ~ mi(x) + nn(u), x | mi() ~ z",
    stored=STORED,
    learn=_learn,
    from_plain=_from_plain,
)
