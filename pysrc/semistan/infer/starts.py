"""Where each chain starts, and with which metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from semistan.density.mode import Mode, find_mode
from semistan.density.noncentred import penalised_coordinates, starting_point, values_of
from semistan.density.parameter_coordinates import parameter_values, trained_coordinates
from semistan.density.target import (
    Target,
    coordinates,
    further_slice,
    make_target,
    penalised_slice,
    sampled_positive,
)
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig
from semistan.model.orthogonal import in_model
from semistan.model.priors.prior import (
    check_method,
    has_horseshoe,
    prior_data,
)
from semistan.model.table.rows import Rows
from semistan.subspace.curve import curve_points

JITTER = 0.1  # standard deviation of theta's initial values, in units of each coefficient
WARMUP = 1000
SHORT_WARMUP = 300  # with a fixed metric, only the step size is adapted
SAME_DENSITY = 1.0  # nats within which two modes may be one
SAME_PLACE = 1.0  # standard deviations within which two modes may be one
MOST_DIMENSIONS = 2000  # of a subspace in which a mode is looked for, and of a dense metric
MOST_PENALISED = 500  # coefficients of smooths and groups beside which a metric is dense
NEGLIGIBLE = 10.0  # nats of Laplace evidence below the best at which a mode has no mass


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Initial values of the chains, and the modes that they were drawn around.

    Attributes
    ----------
    values : tuple of dict
        Initial values in the user's units, one for each chain.
    found : tuple of Mode
        The mode that each chain climbed to, or none if they were not looked for or not found.
    """

    values: tuple[dict[str, Any], ...]
    found: tuple[Mode, ...] = ()

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The mode that each chain starts at."""
        return worth_sampling(self.found)

    @property
    def keeps_metric(self) -> bool:
        """Whether the metric of the one mode is kept: not where the sd of coefficients is sampled.

        There the posterior narrows as the standard deviation falls.
        """
        narrows = any(name.startswith(("sd_", "sds_")) for name in self.values[0])
        return self.one_mode and not narrows

    @property
    def one_mode(self) -> bool:
        """Whether all start at one mode that several climbed to: its metric can be trusted."""
        if not self.found:
            return False
        best = max(self.found, key=_evidence)
        climbed = sum(_same(best, mode) for mode in self.found)
        return climbed > 1 and all(_same(best, mode) for mode in self.modes)

    def resolve(self, options: SampleConfig) -> SampleConfig:
        """Replace ``auto`` by a length of warm-up, and a metric that was not found."""
        first = self.values[0]
        further = sum(np.size(value) for name, value in first.items() if name[:2] in ("z_", "zs"))
        small = len(first["phi"]) <= MOST_DIMENSIONS and "hs_local" not in first
        small = small and further <= MOST_PENALISED
        adapted = "dense_e" if small else "diag_e"
        metric = options.metric if self.found or options.metric != "ggn" else adapted
        automatic = SHORT_WARMUP if self.keeps_metric else WARMUP
        warmup = automatic if options.warmup == "auto" else options.warmup
        return options.model_copy(update={"warmup": warmup, "metric": metric})

    def text(self, options: SampleConfig) -> str:
        """Say what was found and what follows, given the resolved options."""
        if options.method != "nuts":
            return (
                "each starts around a mode in the subspace"
                if self.found
                else "they start on the curve"
            )
        if options.metric != "ggn":
            return f"the metric ({options.metric}) is adapted during warm-up"
        if len(self.found) == 1:
            return "the chain climbed to a mode in the subspace; the metric is adapted from there"
        moved = sum(mode not in self.modes for mode in self.found)
        away = f"; {moved} without mass are left for the best" if moved else ""
        if self.one_mode:
            then = "its metric is kept" if self.keeps_metric else "the metric is adapted from there"
            return f"the chains climbed to one mode in the subspace{away}; {then}"
        densities = ", ".join(f"{mode.log_density:.1f}" for mode in self.found)
        modes = f"the chains climbed to modes of log density {densities}{away}"
        return f"{modes}; the metric is adapted"


def find_starts(
    bundle: Bundle, rows: Rows, options: SampleConfig, *, prior_only: bool = False
) -> Starts:
    """Spread the chains along the trained curve, and let each climb to a mode from there.

    With the metric ``ggn``, each chain starts at a draw from the Laplace approximation at its
    mode, or at the best mode if its own has a negligible share of the posterior. Otherwise, or
    if no mode is found, or none is looked for in a horseshoe's funnel or beside very many
    penalised coefficients, it starts on the curve, at t = (c - 1/2) / chains, with the trained
    theta jittered and the trained dispersion.
    """
    generator = np.random.default_rng(options.seed)
    on_curve = curve_states(bundle, options.chains)
    check_method(bundle.config, options.method)
    climb = (
        options.metric == "ggn"
        and bundle.subspace.k <= MOST_DIMENSIONS
        and not has_horseshoe(bundle.config)
        and penalised_coordinates(bundle.design) <= MOST_PENALISED
    )
    if climb or in_model(bundle.config, bundle.design):
        target = make_target(bundle, rows, prior_only=prior_only)
        on_curve = np.array([_sheared(target, state) for state in on_curve])
    if climb:
        found = [find_mode(target, state) for state in on_curve]
        modes = tuple(mode for mode in found if mode is not None)
        if len(modes) == options.chains:
            states = [_laplace_draw(mode, generator) for mode in worth_sampling(modes)]
            return Starts(tuple(initial_values(bundle, state) for state in states), modes)
    theta = slice(bundle.subspace.k, coordinates(bundle))
    on_curve[:, theta] += JITTER * generator.normal(size=on_curve[:, theta].shape)
    return Starts(tuple(initial_values(bundle, state) for state in on_curve))


def _sheared(target: Target, state: Array) -> Array:
    """Turn a state with the trained theta, beside the network as it is, into the program's."""
    if target.shear is None:
        return state
    q = torch.tensor(state)
    phi, theta, _ = target.split(q)
    theta = 2 * theta - target.raw(theta, torch.cat(target.outputs(phi)))
    return torch.cat([q[: len(phi)], theta, q[target.coordinates :]]).numpy()


def worth_sampling(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Replace modes whose Laplace evidence is negligible beside the best one's by that one.

    A chain that starts in a mode without mass may not leave it in any number of draws.
    """
    if not modes:
        return modes
    best = max(modes, key=_evidence)
    least = _evidence(best) - NEGLIGIBLE
    return tuple(mode if _evidence(mode) > least else best for mode in modes)


def curve_states(bundle: Bundle, chains: int) -> Array:
    """Return unconstrained states along the curve, one row for each chain."""
    trained, t = bundle.trained, (np.arange(chains) + 0.5) / chains
    on_curve = bundle.subspace.project(curve_points(trained.control_points, t))
    phi = on_curve / bundle.subspace.phi_scale
    further, spread = starting_point(bundle)
    positive = trained.dispersion | spread
    sampled = sampled_positive(bundle.config, bundle.design)
    further = np.concatenate([further, trained_coordinates(bundle)])
    theta = trained.theta / bundle.units.theta_scale
    free = theta[: coordinates(bundle) - bundle.subspace.k]
    logs = np.log([positive[name] for name in sampled])
    rest = np.concatenate([free, further, logs])
    return np.hstack([phi, np.tile(rest, (chains, 1))])


def initial_values(bundle: Bundle, state: Array) -> dict[str, Any]:
    """Turn an unconstrained state into the parameters' values in the user's units."""
    k, m, penalised = bundle.subspace.k, coordinates(bundle), penalised_slice(bundle)
    further = further_slice(bundle)
    sampled = sampled_positive(bundle.config, bundle.design)
    values: dict[str, Any] = {"phi": bundle.subspace.phi_scale * state[:k]}
    if not bundle.config.subspace.holds_theta:
        theta = bundle.units.theta_scale * state[k:m]
        values |= _horseshoe(bundle, theta) if has_horseshoe(bundle.config) else {"theta": theta}
    values |= values_of(bundle.design, state[penalised])
    values |= parameter_values(bundle, state[further], np.asarray)
    return values | dict(zip(sampled, np.exp(state[further.stop :]).tolist(), strict=True))


def _horseshoe(bundle: Bundle, theta: Array) -> dict[str, Any]:
    """Return parameters of the horseshoe that make theta, each within its own scale."""
    data = prior_data(bundle)
    tau, c = data["prior_b_scale_global"], data["prior_b_scale_slab"]
    local = np.maximum(1, np.abs(theta) / tau)
    zb = theta * np.sqrt(1 / (tau * local) ** 2 + 1 / c**2)
    return {"zb": zb, "hs_local": local, "hs_global": 1.0, "hs_slab": 1.0}


def _evidence(mode: Mode) -> float:
    """Return the log integral of the Laplace approximation, up to a constant."""
    return mode.log_density + float(np.linalg.slogdet(mode.inv_metric)[1]) / 2


def _laplace_draw(mode: Mode, generator: np.random.Generator) -> Array:
    deviation = np.linalg.cholesky(mode.inv_metric) @ generator.normal(size=len(mode.q))
    return np.asarray(mode.q + deviation)


def _same(one: Mode, other: Mode) -> bool:
    gap = other.q - one.q
    distance = gap @ np.linalg.solve(one.inv_metric, gap) / len(gap)
    return bool(abs(one.log_density - other.log_density) < SAME_DENSITY and distance < SAME_PLACE)
