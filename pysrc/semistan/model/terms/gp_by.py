"""Gaussian processes by group, ``gp(x, by=g)``: for each level of a factor a process of its own.

All levels have the basis of ``gp(x)`` and the prior of its length scale, and each a standard
deviation and a length scale of its own, ``sdgp_gpxga`` and ``lscale_gpxga``, as in brms. A process
has mean 0, so that the factor is a term too: ``g + gp(x, by=g)``, or ``(1 | g) + gp(x, by=g)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.formula.calls import TermCall
from semistan.model.terms.by_level import ByLevel
from semistan.model.terms.gp import Process
from semistan.model.terms.term import Hyperparameter, Lines, TensorBlock

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ProcessByFactor(ByLevel):
    """The learnt state of ``gp(x, by=g)``."""

    one: Process

    @property
    def takes_level(self) -> bool:
        """It does: its functions are not centred."""
        return True

    @property
    def call(self) -> TermCall:
        """The term as it stands in the formula, without options."""
        return replace(self.one.call, by=self.by)

    @property
    def called(self) -> str:
        """What a level has."""
        return "a process"

    @property
    def described(self) -> tuple[str, str]:
        """What kind of term it is, and what was learnt, in words."""
        basis = f"{self.one.basis_text} for each of {len(self.levels)} levels"
        return "Gaussian process", f"{self.text}, {basis}"

    @property
    def each(self) -> tuple[Process, ...]:
        """The process of each level."""
        return tuple(replace(self.one, name=name) for name in self.names_of_levels)

    @property
    def units(self) -> Array:
        """Standard deviation of what each sdgp multiplies, which is 1."""
        return np.ones(self.n_levels)

    @property
    def spread_of_levels(self) -> tuple[str, ...]:
        """The name of the standard deviation of each level."""
        return self.spread[: self.n_levels]

    @property
    def spread_text(self) -> str:
        """The standard deviation of each coefficient: the root of each level's spectral density."""
        sd, lscale = (
            f"[{', '.join(names)}]'"
            for names in (self.spread_of_levels, self.spread[self.n_levels :])
        )
        of = self.one.covariance
        back = of.back.format(lw=f"{lscale} * w_gp{self.key}'")
        return f"diag_pre_multiply({sd} .* {of.front.format(lscale=lscale)}, {back})"

    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        """Return the standard deviations, ``sdgp_gpxga``, and then the length scales."""
        pairs = [
            process.hyperparameters_of(text)
            for process, text in zip(self.each, self.texts_of_levels, strict=True)
        ]
        return tuple(item for kind in zip(*pairs, strict=True) for item in kind)

    def made_lines(self) -> Lines:
        """Declare the coefficients: the roots of the spectral densities times zgp."""
        z, _, r = self.names
        return [
            (f"matrix[{', '.join(self.z_sizes)}] {r}", f"coefficients of {self.text}"),
            (f"  = {self.spread_text}", ""),
            (f"    .* {z};", ""),
        ]

    def coefficients(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the coefficients (levels, k)."""
        return self.sd_of_each(values) * values[self.names[0]]

    def sd_of_each(self, values: Mapping[str, Any]) -> Tensor:
        """Return the standard deviation of each coefficient (levels, k)."""
        return torch.stack([process.sd_of_each(values) for process in self.each])

    def variances(self, values: Mapping[str, float]) -> Array:
        """Return the prior variances of the coefficients, level by level."""
        return np.concatenate([process.variances(values) for process in self.each])

    def training_value(self, x: Tensor, block: TensorBlock) -> Tensor:
        """Return what standardised coefficients add at the starting length scale."""
        units = torch.as_tensor(self.training_units(1.0)).to(x)
        return block.product((x * units).reshape(self.z_shape))

    def training_columns(self, block: TensorBlock) -> Tensor | None:
        """Return what each standardised coefficient multiplies, (n, levels * k)."""
        units = torch.as_tensor(self.training_units(1.0)).to(block.Z)
        return block.columns(self.n_levels) * units

    def training_units(self, scale: float) -> Array:
        """Return the units of the coefficients, level by level."""
        return np.tile(self.one.training_units(scale), self.n_levels)

    def start(self, x: Array, scale: float) -> dict[str, Any]:
        """Return the parameters at the trained coefficients x."""
        parts = zip(self.each, x.reshape(self.z_shape), strict=True)
        return self._together([process.start(own, scale) for process, own in parts])

    def reestimated(
        self, values: Mapping[str, Any], covariance: Array, fixed: set[str], scale: float
    ) -> dict[str, Any]:
        """Return each level's sdgp and lscale of greatest expected density, as ``Process``."""
        z = self.names[0]
        variances = np.diag(covariance).reshape(self.z_shape[::-1]).T
        parts = zip(self.each, np.asarray(values[z], dtype=float), variances, strict=True)
        return self._together(
            [
                process.reestimated({**values, z: own}, np.diag(variance), fixed, scale)
                for process, own, variance in parts
            ]
        )

    def _together(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the parameters of all levels."""
        z = self.names[0]
        found = {name: value for part in parts for name, value in part.items()}
        return found | {z: np.stack([part[z] for part in parts])}

    def warning(self, draws: Mapping[str, Array]) -> str | None:
        """Say of the first level where it is so that the basis does not follow its length scale."""
        for name in self.spread[self.n_levels :]:
            if advice := self.one.advice(draws[name], self.text):
                return f"Warning: {name} {advice}"
        return None
