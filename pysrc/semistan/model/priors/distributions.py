"""The priors of a trained model as distributions of PyTorch and of ``scipy.stats``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.lazy import torch
from semistan.model.bundle import Bundle
from semistan.model.priors.groups import PriorGroup
from semistan.model.priors.used import priors_of
from semistan.model.priors.weight_scales import SD_W, WeightScales

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TorchPrior:
    """The user's prior of a parameter, or of some of its elements, in PyTorch."""

    parameter: str
    distribution: Any
    members: Tensor | None = None
    scales: WeightScales | None = None

    def log_density(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the log density of the parameter's value, summed."""
        value = values[self.parameter]
        chosen = value if self.members is None else value[self.members]
        if self.scales is None:
            total: Tensor = self.distribution.log_prob(chosen).sum()
            return total
        factor, loc = self.scales.factor(values[SD_W]), self.distribution.loc
        total = self.distribution.log_prob(loc + (chosen - loc) / factor).sum()
        return total - factor.log().sum()


def torch_priors(bundle: Bundle) -> tuple[TorchPrior, ...]:
    """Return the priors of what is sampled as distributions of PyTorch."""
    return tuple(
        TorchPrior(
            group.parameter,
            group.density.in_torch(*arguments),
            None if group.members is None else torch.tensor(group.members),
            bundle.model.weight_scales if group.is_phi else None,
        )
        for group, arguments in _of_each(bundle)
    )


def scipy_priors(bundle: Bundle) -> list[tuple[PriorGroup, Any]]:
    """Return the priors of what is sampled with their distributions of ``scipy.stats``."""
    return [(group, group.density.in_scipy(*arguments)) for group, arguments in _of_each(bundle)]


def log_mass_inside(bundle: Bundle) -> float:
    """Return the log probability of the possible values under priors that are cut off, summed."""
    return sum(
        float(np.sum(distribution.logsf(0)))
        for group, distribution in scipy_priors(bundle)
        if group.is_truncated
    )


def _of_each(bundle: Bundle) -> Iterator[tuple[PriorGroup, list[Any]]]:
    """Yield the priors of single elements with their densities' arguments."""
    for group in bundle.model.priors:
        if group.density.is_of_each:
            used = priors_of(group, bundle.model, bundle.trained)
            yield group, list(group.arguments(used).values())
