"""The bundle: what training hands over, enough to sample and to predict without PyTorch.

bundle.json     model, design state, versions, sha256 of the arrays
arrays.npz      p_bar, Pi, control points, frozen weights, trained theta
network.onnx    f(u; w)
predictor.onnx  eta(u, x; phi, theta)
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from semistan.bundle.describe import bundle_facts, facts_html, facts_text
from semistan.bundle.files import atomic_folder, check_output_folder, read_json, write_json
from semistan.bundle.onnx_graphs import network_graph, predictor_graph, save_checked
from semistan.errors import InputError
from semistan.model.config import ModelConfig, parse_config
from semistan.model.design import Design, design_from_plain, design_to_plain
from semistan.model.families import Family, family
from semistan.model.names import stan_name
from semistan.model.network import Array, Networks, NetworkSpec
from semistan.subspace.predictor import linear_predictor, network_output
from semistan.subspace.problem import Units, block_units, parameter_units
from semistan.subspace.subspace import Subspace
from semistan.subspace.trained import Trained

FORMAT_VERSION = 1
MARKER = "bundle.json"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the training rows came from: the file (None for a table in memory) and its size."""

    path: str | None
    rows: int
    dropped: int


@dataclass(frozen=True, slots=True, eq=False)
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
    """

    config: ModelConfig
    design: Design
    units: Units
    trained: Trained
    source: Source
    versions: dict[str, str]

    @property
    def family(self) -> Family:
        """The response family's record."""
        return family(self.config.family)

    @property
    def network(self) -> Networks:
        """The architecture of the network, or of several."""
        return network_spec(self.config, self.design)

    @property
    def subspace(self) -> Subspace:
        """Where the Bayesian weights may move."""
        return self.trained.subspace

    @property
    def sha256(self) -> str:
        """Hash of the arrays, the same on every machine."""
        return _arrays_hash(_arrays(self))

    def __repr__(self) -> str:
        return facts_text(bundle_facts(self))

    def _repr_html_(self) -> str:
        return facts_html("Bundle", bundle_facts(self))


def network_spec(config: ModelConfig, design: Design) -> Networks:
    """Combine the configured layers with the number of inputs that each network has."""
    network = config.network
    return Networks(
        tuple(
            NetworkSpec(len(terms.columns), network.hidden, network.activation, network.frozen)
            for terms in design.networks
        ),
        design.network_predictors,
    )


def library_versions() -> dict[str, str]:
    """Return the versions that a bundle records."""
    libraries = ("semistan", "torch", "numpy", "pandas", "formulaic", "onnx")
    return {"python": platform.python_version(), **{name: version(name) for name in libraries}}


def write_bundle(bundle: Bundle, path: Path | str, *, overwrite: bool = False) -> None:
    """Write a bundle's folder, replacing an older one only when everything has succeeded.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced.
    SemistanError
        If a graph does not reproduce the network when it is run.
    """
    path = Path(path)
    check_output_folder(path, MARKER, overwrite=overwrite)
    with atomic_folder(path) as folder:
        np.savez(folder / "arrays.npz", **_arrays(bundle))  # type: ignore[arg-type]
        _write_graphs(bundle, folder)
        write_json(folder / MARKER, _summary(bundle))


def read_bundle(path: Path | str) -> Bundle:
    """Read a bundle's folder and check it against its recorded hash.

    Raises
    ------
    InputError
        If the folder is no bundle, of a newer format, or damaged.
    """
    path = Path(path)
    if not (path / MARKER).is_file():
        raise InputError(f"'{path}' is not a bundle (it has no {MARKER})")
    content = read_json(path / MARKER)
    if not isinstance(content, dict) or not {"format_version", "sha256"} <= content.keys():
        raise InputError(f"'{path / MARKER}' is damaged: it is not what semistan writes")
    if content["format_version"] > FORMAT_VERSION:
        raise InputError(
            f"'{path}' has bundle format {content['format_version']}, this semistan reads up to "
            f"{FORMAT_VERSION}; upgrade semistan"
        )
    arrays = _read_arrays(path / "arrays.npz")
    if _arrays_hash(arrays) != content["sha256"]:
        raise InputError(f"'{path}/arrays.npz' does not match the hash in {MARKER}; it was changed")
    try:
        return _assemble(content, arrays)
    except KeyError as error:
        raise InputError(
            f"'{path}' lacks {error}: another version of semistan wrote it; train the model anew"
        ) from None


def _write_graphs(bundle: Bundle, folder: Path) -> None:
    """Write both graphs, each checked at a few inputs around the training rows."""
    spec, units, trained = bundle.network, bundle.units, bundle.trained
    generator = np.random.default_rng(0)
    U = units.u_loc + units.u_scale * generator.normal(size=(4, spec.n_inputs))
    X = units.x_loc + units.x_scale * generator.normal(size=(4, len(units.x_loc)))
    phi = generator.normal(size=(3, trained.subspace.k))
    theta = trained.theta + units.theta_scale * generator.normal(size=(3, len(trained.theta)))
    w = trained.subspace.lift(phi[0])
    save_checked(
        network_graph(spec, units, trained.w_frozen),
        folder / "network.onnx",
        {"u": U, "w": w},
        network_output(spec, units, trained.w_frozen, w, U),
    )
    save_checked(
        predictor_graph(spec, units, trained),
        folder / "predictor.onnx",
        {"u": U, "x": X, "phi": phi, "theta": theta},
        linear_predictor(spec, units, trained, X, U, phi, theta),
    )


def _read_arrays(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None


def _arrays(bundle: Bundle) -> dict[str, Array]:
    trained, units = bundle.trained, bundle.units
    return {
        "p_bar": trained.subspace.p_bar,
        "Pi": trained.subspace.Pi,
        "phi_scale": trained.subspace.phi_scale,
        "axes": trained.subspace.axes.astype(float),
        **_theta_inside(trained.subspace),
        "singular_values": trained.singular_values,
        "control_points": trained.control_points,
        "w_frozen": trained.w_frozen,
        "theta": trained.theta,
        **({"r": trained.r} if len(trained.r) else {}),
        **{f"further_{name}": values for name, values in trained.further.items()},
        "x_loc": units.x_loc,
        "x_scale": units.x_scale,
        "u_loc": units.u_loc,
        "u_scale": units.u_scale,
        **{f"history_{name}": values for name, values in trained.history.items()},
        **{f"curve_{name}": values for name, values in trained.curve.items()},
    }


def _theta_inside(subspace: Subspace) -> dict[str, Array]:
    """Return how theta moves with phi, if it does."""
    if not subspace.holds_theta:
        return {}
    return {"theta_bar": subspace.theta_bar, "theta_Pi": subspace.theta_Pi}


def _arrays_hash(arrays: dict[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], dtype="<f8")
        digest.update(f"{name}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _summary(bundle: Bundle) -> dict[str, Any]:
    trained = bundle.trained
    return {
        "format_version": FORMAT_VERSION,
        "config": bundle.config.model_dump(),
        "family": {"name": bundle.family.name, "link": bundle.family.link},
        "design": design_to_plain(bundle.design),
        "eta_units": {
            "loc": bundle.units.eta_loc,
            "scale": bundle.units.eta_scale,
            **({} if bundle.units.y_scale is None else {"y": bundle.units.y_scale}),
            **({"locations": bundle.units.locations} if bundle.units.locations else {}),
        },
        "dispersion": trained.dispersion,
        "subspace": {
            "origin": trained.subspace.origin,
            "d": trained.subspace.d,
            "k": trained.subspace.k,
            "arc_length": trained.arc_length,
        },
        "source": asdict(bundle.source),
        "versions": bundle.versions,
        "sha256": bundle.sha256,
    }


def _assemble(content: dict[str, Any], arrays: dict[str, Array]) -> Bundle:
    def prefixed(prefix: str) -> dict[str, Array]:
        return {
            name.removeprefix(prefix): values
            for name, values in arrays.items()
            if name.startswith(prefix)
        }

    eta, design = content["eta_units"], design_from_plain(content["design"])
    config = parse_config(content["config"], MARKER)
    if tuple(map(stan_name, design.categories)) != family(config.family).levels:
        raise InputError(f"{MARKER} is damaged: the categories are not those of {config.family}")
    return Bundle(
        config=config,
        design=design,
        units=Units(
            arrays["x_loc"], arrays["x_scale"], arrays["u_loc"], arrays["u_scale"],
            eta["loc"], eta["scale"],
            *block_units(design),
            eta.get("y"),
            parameter_units(design),
            eta.get("locations", {}),
        ),
        trained=Trained(
            subspace=Subspace(
                arrays["p_bar"], arrays["Pi"], content["subspace"]["origin"],
                arrays["phi_scale"], arrays["axes"].astype(np.int64),
                **{name: arrays[name] for name in ("theta_bar", "theta_Pi") if name in arrays},
            ),
            singular_values=arrays["singular_values"],
            control_points=arrays["control_points"],
            w_frozen=arrays["w_frozen"],
            theta=arrays["theta"],
            dispersion=content["dispersion"],
            history=prefixed("history_"),
            curve=prefixed("curve_"),
            arc_length=content["subspace"]["arc_length"],
            r=arrays.get("r", np.zeros(0)),
            further=prefixed("further_"),
        ),
        source=Source(**content["source"]),
        versions=content["versions"],
    )  # fmt: skip
