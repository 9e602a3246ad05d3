"""The priors of a model, a line for each parameter: as written, as used, and what decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.model import Model
from semistan.model.priors.densities import AUTO
from semistan.model.priors.groups import PHI, WEIGHTS, PriorGroup, choices, phi_prior
from semistan.model.priors.section import PriorConfig
from semistan.model.priors.used import phi_units
from semistan.model.priors.weight_scales import SD_W

LATER = "known after training"


@dataclass(frozen=True, slots=True)
class PriorLine:
    """One parameter's prior, as written and as used, and what decided it.

    Attributes
    ----------
    parameter : str
        Its name in the tables: ``b_age``, ``phi``, ``sigma``.
    written, used : str
        The prior, with the scales of the user's text and of the program's data.
    source : str
        ``default``, ``class`` (given for all of its kind) or ``coefficient``.
    key : str
        The key of ``[priors]`` that it has with its like: ``b``, ``sd``.
    """

    parameter: str
    written: str
    used: str
    source: str
    key: str


def priors_as_used(bundle: Bundle) -> tuple[PriorLine, ...]:
    """Return every prior of a trained model, phi's as one unless its scales differ."""
    scales = phi_units(bundle.model, bundle.trained)
    return _lines(bundle.config, bundle.design, bundle.model.priors, scales)


def priors_before_training(model: Model) -> tuple[PriorLine, ...]:
    """Return every prior of a model; how wide phi's is may depend on the subspace."""
    return _lines(model.config, model.design, model.priors, None)


def _lines(
    config: ModelConfig, design: Design, groups: Sequence[PriorGroup], phi_scales: Array | None
) -> tuple[PriorLine, ...]:
    by_parameter: dict[str, list[tuple[int, PriorLine]]] = {}
    for group in groups[1:]:
        members = group.members or range(len(group.names))
        lines = zip(members, group.names, group.written, group.used, group.sources, strict=True)
        by_parameter.setdefault(group.parameter, []).extend(
            (position, PriorLine(name, str(written), str(used), source, group.key))
            for position, name, written, used, source in lines
        )
    found = _phi_lines(config, design, groups, phi_scales)
    for lines_of in by_parameter.values():
        found += [line for _, line in sorted(lines_of, key=lambda item: item[0])]
    found += [
        PriorLine(item.parameter, item.written, item.written, item.source, item.key)
        for item in choices(config.priors, design)
    ]
    return tuple(found)


def _phi_lines(
    config: ModelConfig, design: Design, groups: Sequence[PriorGroup], scales: Array | None
) -> list[PriorLine]:
    (prior, key), phi = phi_prior(config.priors), config.priors.phi
    source = config.priors.source(key)
    if phi is None:
        scaled = any(group.label == SD_W for group in groups)
        return _weight_lines(config.priors, design, scaled=scaled)
    automatic = phi.strip() == AUTO
    written = AUTO if automatic else str(prior)
    if scales is None:
        known = not automatic and not config.subspace.scales_phi
        return [PriorLine(PHI, written, written if known else LATER, source, PHI)]
    if np.ptp(scales) == 0:
        return [PriorLine(PHI, written, str(prior.rescaled(float(scales[0]))), source, PHI)]
    return [
        PriorLine(f"phi[{j}]", written, str(prior.rescaled(float(scale))), source, PHI)
        for j, scale in enumerate(scales, start=1)
    ]


def _weight_lines(config: PriorConfig, design: Design, *, scaled: bool) -> list[PriorLine]:
    """Return the priors of weights and biases, and those of output layers by themselves."""
    of_outputs = f"{SD_W} " if config.scales_all else ""
    factor = "" if config.scales_outputs else of_outputs
    scale, source = f"{factor}{config.scale_of(WEIGHTS):.6g}", config.source(WEIGHTS)
    used = f"normal(0, {scale} / sqrt(inputs of the layer)), normal(0, {scale}) of biases"
    found = [PriorLine(WEIGHTS, config.w, used, source, WEIGHTS)]
    if config.scales_outputs:
        used = f"normal(0, {of_outputs}{scale} / sqrt(inputs of the layer))"
        found.append(PriorLine("output weights", config.w, used, source, WEIGHTS))
    for slope in design.slopes:
        key, written = slope.weights, config.coefficients.get(slope.weights)
        if written or (scaled and not factor):
            by = of_outputs or ("" if written else f"{SD_W}[{slope.effect}] ")
            own = f"{by}{config.scale_of_slope(key):.6g}"
            used = f"normal(0, {own} / sqrt(inputs of the layer)) of output weights"
            source = "coefficient" if written else config.source(WEIGHTS)
            found.append(PriorLine(key, written or config.w, used, source, WEIGHTS))
    intercept, source = config.Intercept, config.source("Intercept")
    return [*found, PriorLine("output biases", intercept, intercept, source, "Intercept")]
