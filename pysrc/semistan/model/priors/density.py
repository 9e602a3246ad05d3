"""A prior density in Stan's words, and a prior: a density with its arguments.

``autoscale`` multiplies a prior's scale by the units of its parameter, in the manner of
rstanarm: ``normal(0, 2.5)`` on a coefficient becomes ``normal(0, 2.5 * s_eta / s_x)``, and
``lognormal(0, 1)`` on a residual standard deviation ``lognormal(log(s_eta), 1)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.parameter import Parameter

if TYPE_CHECKING:
    from torch import Tensor

ARGUMENT_TEXT = {  # of those whose names do not say it
    "df": "degrees of freedom",
    "meanlog": "mean of its logarithm",
    "sdlog": "standard deviation of its logarithm",
}


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """What a prior of all coefficients together makes them of: parameters of its own.

    Their scales are sampled, so that the posterior is a funnel without a mode. ``values`` are
    these parameters and those of the response's distribution by name, ``data`` the arguments of the
    priors as used, ``theta_scale`` and ``eta_scale``, by their names in the program's data, where
    an argument that carries units has a value for each coefficient.

    Attributes
    ----------
    parameters : callable
        Maps ``data`` (empty before training) and the number of coefficients P to what is sampled.
    theta : callable
        Maps ``values`` and ``data`` to the coefficients (P,), in PyTorch.
    start : callable
        Maps coefficients (P,) and ``data``, with the values of the other parameters, to values
        that make them.
    stan : str
        The declaration of ``theta`` in the program.
    files : tuple of str
        Files of ``stan/`` that it needs.
    z, spread : str
        The name of the standard normal coefficients that theta is a multiple of, given the others,
        and of what in the program; empty if it is not, so that it is not integrated out.
    argument_text : mapping
        What the arguments are whose names do not say it.
    """

    parameters: Callable[[Mapping[str, Any], int], tuple[Parameter, ...]]
    theta: Callable[[Mapping[str, Tensor], Mapping[str, Any]], Tensor]
    start: Callable[[Array, Mapping[str, Any]], dict[str, Any]]
    stan: str
    files: tuple[str, ...] = ()
    z: str = ""
    spread: str = ""
    argument_text: Mapping[str, str] = field(default_factory=dict)


def summed(name: str, *arguments: float) -> Callable[[Tensor], Tensor]:
    """Return the log density, summed over values, of one of torch's distributions."""

    def log_density(value: Tensor) -> Tensor:
        exact = (torch.tensor(argument, dtype=torch.float64) for argument in arguments)
        total: Tensor = getattr(torch.distributions, name)(*exact).log_prob(value).sum()
        return total

    return log_density


@dataclass(frozen=True, slots=True)
class Density:
    """A prior density.

    Attributes
    ----------
    name : str
        In Stan.
    arguments : tuple of str
        In Stan's order.
    carriers : tuple of str
        The arguments that carry the units.
    distribution : str or callable, optional
        Its class in ``torch.distributions``, or what makes one of the same arguments and
        ``validate_args``.
    scipy : callable, optional
        Maps ``scipy.stats`` and the arguments to the distribution there.
    units : str
        How the carriers follow the units: they are multiplied or divided by them, or their
        logarithm is added to them.
    support : str
        The kind of values that it is a density of: ``real``, ``positive`` or ``unit interval``.
    defaults : tuple of float
        Of the last arguments.
    joint : Joint, optional
        What it makes the coefficients of, if it is for all of them together.
    repeats : bool
        Whether its one argument may have a value for each element.
    shares : tuple of str
        The arguments that must be below 1.
    explains : bool
        Whether it is of the variance that parts of the predictor explain together: one prior of
        the coefficients and of standard deviations that have it too.
    """

    name: str
    arguments: tuple[str, ...]
    carriers: tuple[str, ...]
    distribution: str | Callable[..., Any] | None = None
    scipy: Callable[..., Any] | None = None
    units: Literal["times", "over", "plus log"] = "times"
    support: str = "real"
    defaults: tuple[float, ...] = ()
    joint: Joint | None = None
    repeats: bool = False
    shares: tuple[str, ...] = ()
    explains: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def bounded(self) -> tuple[str, ...]:
        """The arguments that must be positive."""
        return tuple(name for name in self.arguments if name not in ("location", "meanlog"))

    @property
    def is_constant(self) -> bool:
        """Whether the prior fixes its parameter at one value."""
        return self.name == "constant"

    @property
    def is_of_each(self) -> bool:
        """Whether it is the distribution of a parameter: neither a value nor a joint prior."""
        return self.distribution is not None

    def argument_text(self, argument: str) -> str:
        """Say what an argument is."""
        own = self.joint.argument_text if self.joint else {}
        return own.get(argument) or ARGUMENT_TEXT.get(argument, argument)

    def in_scipy(self, *arguments: Any) -> Any:
        """Return the distribution with these arguments, numbers or arrays, frozen."""
        from scipy import stats

        assert self.scipy is not None
        return self.scipy(stats, *arguments)

    def in_torch(self, *arguments: Any) -> Any:
        """Return the distribution with these arguments as a torch distribution."""
        assert self.distribution is not None
        values = [torch.as_tensor(argument, dtype=torch.float64) for argument in arguments]
        made = self.distribution
        make = getattr(torch.distributions, made) if isinstance(made, str) else made
        return make(*values, validate_args=False)


@dataclass(frozen=True, slots=True)
class Prior:
    """A density with its arguments, as the user wrote them, and between which bounds it holds."""

    density: Density
    values: tuple[float, ...]
    lb: float = -math.inf
    ub: float = math.inf

    def __str__(self) -> str:
        text = f"{self.density.name}({', '.join(f'{value:.6g}' for value in self.values)})"
        bounds = {"lb": self.lb, "ub": self.ub}
        given = (f", {name}={value:.6g}" for name, value in bounds.items() if math.isfinite(value))
        return text + "".join(given)

    @property
    def is_bounded(self) -> bool:
        """Whether the user gave it a bound."""
        return math.isfinite(self.lb) or math.isfinite(self.ub)

    def argument(self, name: str) -> float:
        """Return one argument's value."""
        return self.values[self.density.arguments.index(name)]

    def rescaled(self, units: float) -> Prior:
        """Return the prior of the parameter times ``units``, location and bounds where they are."""
        density = self.density
        values = dict(zip(density.arguments, self.values, strict=True))
        for carrier in density.carriers:
            if density.units == "plus log":
                values[carrier] += math.log(units)
            else:
                values[carrier] *= units if density.units == "times" else 1 / units
        return replace(self, values=tuple(values.values()))
