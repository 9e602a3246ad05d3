"""A trained model as a value: enough to sample and to predict."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from semistan.model.arrays import Array, Index
from semistan.model.completion import Completion
from semistan.model.config import ModelConfig, SampleConfig
from semistan.model.design import Design
from semistan.model.facts import facts_html, facts_text, trained_facts
from semistan.model.families.family import Family
from semistan.model.integral import output_coordinates
from semistan.model.layout import Layout
from semistan.model.model import Model
from semistan.model.modules import Modules
from semistan.model.names import MU
from semistan.model.networks.networks import Networks
from semistan.model.priors.groups import PHI
from semistan.model.priors.used import prior_data
from semistan.model.sampled import parameters_of
from semistan.model.subspace import Subspace
from semistan.model.trained import Source, Trained
from semistan.model.units import Units

OF_PROGRAM = ("method", "temperature", "temper", "integrate")  # options that change the density


@dataclass(frozen=True, eq=False)
class Bundle:
    """A trained model, ready to be sampled.

    Attributes
    ----------
    config : ModelConfig
        The model and the options it was trained with.
    design : Design
        The learnt design state.
    units : Units
        Locations and scales of the training rows.
    trained : Trained
        The subspace and all that was trained with it.
    source : Source
        Where the training rows came from.
    versions : dict
        Versions of the libraries that trained it.
    around : array, shape (d,), optional
        Weights around which the network is linear, for draws of a linearised approximation.
    modules : mapping
        The user's modules among the networks, by name.
    """

    config: ModelConfig
    design: Design
    units: Units
    trained: Trained
    source: Source
    versions: dict[str, str]
    around: Array | None = None
    modules: Modules = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        # As of ``Model``: what was resolved cannot be pickled.
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @cached_property
    def model(self) -> Model:
        """The model that was trained."""
        return Model(self.config, self.design, self.units, self.modules)

    @cached_property
    def layout(self) -> Layout:
        """The order of the unconstrained coordinates and of the program's columns."""
        phi_scale, information = self.subspace.phi_scale, self.trained.information
        every = Layout(parameters_of(self.model, phi_scale, self.prior_data, information))
        if self.model.integral is None:
            return every
        of_phi = every.slices[PHI].start + self.linear
        others = every.positions(self.model.drawn)
        return Layout(every.parameters, np.concatenate([of_phi, others]))

    @property
    def prior_data(self) -> dict[str, Any]:
        """The arguments of every prior, under their names in the data block."""
        return prior_data(self.model, self.trained)

    @cached_property
    def linear(self) -> Index:
        """Which coordinates of phi are integrated out: those of weights of output layers."""
        if self.model.integral is None or not self.model.integral.phi:
            return np.zeros(0, dtype=np.int64)
        return output_coordinates(self.model.network, self.subspace)

    @property
    def family(self) -> Family:
        """The response family's record."""
        return self.model.family

    @property
    def network(self) -> Networks:
        """The architecture of the network, or of several."""
        return replace(self.model.network, around=self.around)

    def linearised(self, phi: Array) -> Bundle:
        """Return the bundle whose network is linear in the weights around those at phi (k,)."""
        return replace(self, around=self.subspace.lift(phi))

    @property
    def subspace(self) -> Subspace:
        """Where the Bayesian weights may move."""
        return self.trained.subspace

    @property
    def completion(self) -> Completion | None:
        """What the weights outside the subspace add, if the model has that."""
        return self.trained.completion if self.model.completes else None

    @property
    def sha256(self) -> str:
        """Hash of the arrays, the same on every machine."""
        return arrays_hash(bundle_arrays(self))

    def facts(self, subspaces: int = 1) -> dict[str, str]:
        """Return what was trained on what, by name; how many times if in several subspaces."""
        return trained_facts(self.model, self.subspace, self.source, subspaces)

    def __repr__(self) -> str:
        return facts_text(self.facts())

    def _repr_html_(self) -> str:
        return facts_html("Bundle", self.facts())


def bundle_arrays(bundle: Bundle) -> dict[str, Array]:
    """Return the arrays that were trained, under their names in ``arrays.npz``."""
    trained, units = bundle.trained, bundle.units
    subspace = trained.subspace
    return {
        "p_bar": subspace.p_bar,
        "Pi": subspace.Pi,
        "phi_scale": subspace.phi_scale,
        "axes": subspace.axes.astype(float),
        **({"phi_location": subspace.phi_location} if np.any(subspace.phi_location) else {}),
        **_theta_inside(subspace),
        "singular_values": trained.singular_values,
        "control_points": trained.control_points,
        "w_frozen": trained.w_frozen,
        **({"h_loc": trained.h_loc, "h_scale": trained.h_scale} if len(trained.h_loc) else {}),
        "theta": trained.theta,
        **{f"further_{name}": theta for name, theta in trained.linear.items() if name != MU},
        **{f"r{_of(name)}": r for name, r in trained.terms.items() if len(r)},
        **{f"information_{name}": values for name, values in trained.information.items()},
        "x_loc": units.x_loc,
        "x_scale": units.x_scale,
        "u_loc": units.u_loc,
        "u_scale": units.u_scale,
        **{f"history_{name}": values for name, values in trained.history.items()},
        **{f"curve_{name}": values for name, values in trained.curve.items()},
        **_completion(trained.completion),
    }


def _of(predictor: str) -> str:
    return "" if predictor == MU else f"_{predictor}"


def _completion(found: Completion | None) -> dict[str, Array]:
    """Return what the weights outside the subspace add, if they do."""
    if found is None:
        return {}
    return {
        "completion_at": found.at,
        "completion_weights": found.weights,
        "completion_information": found.information,
        "completion_share": np.array(found.share),
        "completion_stride": np.array(found.stride),
        **{f"completion_of_{name}": by for name, by in found.others.items()},
    }


def _theta_inside(subspace: Subspace) -> dict[str, Array]:
    """Return how theta moves with phi, if it does."""
    if not subspace.holds_theta:
        return {}
    return {"theta_bar": subspace.theta_bar, "theta_Pi": subspace.theta_Pi}


def arrays_hash(arrays: dict[str, Array]) -> str:
    """Return the hash of arrays by name, the same on every machine."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], dtype="<f8")
        digest.update(f"{name}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def as_sampled(bundle: Bundle, options: SampleConfig) -> Bundle:
    """Return the bundle with a run's own options that its program and data depend on."""
    own = {name: getattr(options, name) for name in OF_PROGRAM}
    sample = bundle.config.sample.model_copy(update=own)
    return replace(bundle, config=bundle.config.model_copy(update={"sample": sample}))
