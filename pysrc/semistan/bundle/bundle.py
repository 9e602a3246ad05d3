"""The bundle: what training hands over, enough to sample and to predict without PyTorch.

bundle.json     model, design state, versions, and the seal: hashes of all files and of itself
arrays.npz      p_bar, Pi, control points, frozen weights, trained theta
network.onnx    f(u; w)
predictor.onnx  eta(u, x; phi, theta), and psi where the subspace is completed

A module of the user's has no graphs, and is in no file: bundle.json has the names and shapes of its
parameters, and outputs by which it is known again.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.arrays import check_arrays
from semistan.bundle.files import atomic_folder, check_output_folder, damage
from semistan.bundle.foreign import check_no_links, read_arrays
from semistan.bundle.onnx_graphs import network_graph, predictor_graph, save_checked
from semistan.bundle.seal import (
    FILES,
    RESTORE,
    SEAL,
    changed,
    read_record,
    read_seal,
    stamps_of,
    write_record,
)
from semistan.density.features import inputs_at_features
from semistan.density.predictor import linear_predictor, network_output
from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle, arrays_hash, bundle_arrays
from semistan.model.completion import Completion
from semistan.model.config import parse_config
from semistan.model.design import Design, design_from_plain, design_to_plain
from semistan.model.families.family import Family
from semistan.model.families.measured import response_family
from semistan.model.formula.formula import parse_formula
from semistan.model.modules import Given, modules_from_plain, modules_to_plain
from semistan.model.names import MU, stan_name
from semistan.model.subspace import Subspace
from semistan.model.trained import Source, Trained
from semistan.model.units import Units, column_units

FORMAT_VERSION = 2
MARKER = "bundle.json"
ARRAYS = "arrays.npz"
KEYS = {
    "format_version", "config", "family", "design", "eta_units", "dispersion", "subspace", "source",
    "modules", "versions", "sha256", FILES, SEAL,
}  # fmt: skip


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
        np.savez(folder / ARRAYS, **bundle_arrays(bundle))  # type: ignore[arg-type]
        if not bundle.modules:
            _write_graphs(bundle, folder)
        write_record(folder / MARKER, _summary(bundle), stamps_of(folder))


def read_bundle(path: Path | str, networks: Given | None = None) -> Bundle:
    """Read a bundle's folder, and hold it to its seal; the graphs, when they are run.

    Parameters
    ----------
    path : path
        The folder.
    networks : mapping, optional
        The modules that the formula names, as of ``semistan.fit``. Without them the bundle can be
        looked at, but its networks cannot be evaluated.

    Raises
    ------
    InputError
        If the folder is no bundle, of another format, or damaged, or the modules are not those that
        were trained.
    """
    path = Path(path)
    if not (path / MARKER).is_file():
        raise InputError(f"'{path}' is not a bundle (it has no {MARKER})")
    check_no_links(path)
    content = read_bundle_record(path)
    read_seal(path / MARKER, content).verify(ARRAYS)
    arrays = read_arrays(path / ARRAYS)
    if arrays_hash(arrays) != content["sha256"]:
        changed(
            str(path / ARRAYS),
            f"'{path / ARRAYS}' does not match the hash in {MARKER}: it was changed; {RESTORE}",
        )
    with damage(path):
        try:
            bundle = _assemble(content, arrays, networks)
        except KeyError as error:
            raise InputError(
                f"'{path}' lacks {error}: another version of semistan wrote it; train the model "
                "anew"
            ) from None
        check_arrays(bundle, path / ARRAYS)
    return bundle


def read_bundle_record(path: Path) -> dict[str, Any]:
    """Read a bundle's ``bundle.json``, held to its own hash.

    Raises
    ------
    InputError
        If it is damaged or was changed, or is of another format.
    """
    content = read_record(path / MARKER, "bundle", FORMAT_VERSION)
    if "sha256" not in content:
        raise InputError(f"'{path / MARKER}' is damaged: it is not what semistan writes")
    if unknown := sorted(content.keys() - KEYS):
        raise InputError(
            f"'{path / MARKER}' is damaged: it has the unknown key '{unknown[0]}'; {RESTORE}"
        )
    return content


def _write_graphs(bundle: Bundle, folder: Path) -> None:
    """Write both graphs, each checked at a few inputs around the training rows."""
    leading, units, trained = bundle.model.leading, bundle.units, bundle.trained
    generator = np.random.default_rng(0)
    U = units.u_loc + units.u_scale * generator.normal(size=(4, len(units.u_loc)))
    X = units.x_loc + units.x_scale * generator.normal(size=(4, len(units.x_loc)))
    phi = generator.normal(size=(3, trained.subspace.k))
    theta = trained.theta + units.theta_scale * generator.normal(size=(3, len(trained.theta)))
    psi = generator.normal(size=(3, trained.completion.K)) if trained.completion else None
    w = trained.subspace.lift(phi[0])
    heads, H = inputs_at_features(bundle, U)
    save_checked(
        network_graph(leading, units, trained),
        folder / "network.onnx",
        {"u": U, "w": w},
        network_output(heads.network, heads.units, w, H),
    )
    save_checked(
        predictor_graph(leading, units, trained),
        folder / "predictor.onnx",
        {"u": U, "x": X, "phi": phi, "theta": theta} | ({} if psi is None else {"psi": psi}),
        linear_predictor(heads.network, heads.units, trained, X, H, phi, theta, psi),
    )


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
        **({"modules": modules_to_plain(bundle.modules)} if bundle.modules else {}),
        "versions": bundle.versions,
        "sha256": bundle.sha256,
    }


def _assemble(content: dict[str, Any], arrays: dict[str, Array], networks: Given | None) -> Bundle:
    def prefixed(prefix: str) -> dict[str, Array]:
        return {
            name.removeprefix(prefix): values
            for name, values in arrays.items()
            if name.startswith(prefix)
        }

    eta, design = content["eta_units"], design_from_plain(content["design"])
    config = parse_config(content["config"], MARKER)
    record = response_family(config.family, design.formula)
    counted = parse_formula(design.formula).counted
    if tuple(map(stan_name, design.categories)) != record.levels or (
        counted != (design.categories if record.counted else ())
    ):
        raise InputError(f"{MARKER} is damaged: the categories are not those of {config.family}")
    _check_links(design, record)
    axes = arrays["axes"].astype(np.int64)
    if not np.array_equal(axes, arrays["axes"]):
        raise InputError(f"{MARKER} is damaged: its axes are positions, which are whole numbers")
    return Bundle(
        config=config,
        design=design,
        units=Units(
            column_units(design) | {MU: (arrays["x_loc"], arrays["x_scale"])},
            arrays["u_loc"], arrays["u_scale"], eta["loc"], eta["scale"],
            eta.get("y"), eta.get("locations", {}),
        ),
        trained=Trained(
            subspace=Subspace(
                arrays["p_bar"], arrays["Pi"], content["subspace"]["origin"],
                arrays["phi_scale"], axes,
                **{name: arrays[name] for name in ("phi_location", "theta_bar", "theta_Pi")
                   if name in arrays},
            ),
            singular_values=arrays["singular_values"],
            control_points=arrays["control_points"],
            w_frozen=arrays["w_frozen"],
            **{name: arrays[name] for name in ("h_loc", "h_scale") if name in arrays},
            linear={MU: arrays["theta"], **prefixed("further_")},
            dispersion=content["dispersion"],
            history=prefixed("history_"),
            curve=prefixed("curve_"),
            arc_length=content["subspace"]["arc_length"],
            terms={p.name: arrays.get(f"r{p.suffix}", np.zeros(0)) for p in design.predictors},
            information=prefixed("information_"),
            completion=_completion(arrays, prefixed("completion_of_")),
        ),
        source=Source(**content["source"]),
        versions=content["versions"],
        modules=modules_from_plain(content.get("modules", {}), design, networks),
    )  # fmt: skip


def _completion(arrays: dict[str, Array], others: dict[str, Array]) -> Completion | None:
    if "completion_at" not in arrays:
        return None
    of_weights, information, share, stride = (
        arrays[f"completion_{name}"] for name in ("weights", "information", "share", "stride")
    )
    return Completion(
        arrays["completion_at"], of_weights, others, information, float(share), float(stride)
    )


def _check_links(design: Design, of: Family) -> None:
    """Refuse predictors of parameters that the family does not have, or with another link."""
    links = {parameter.name: parameter.link for parameter in of.parameters}
    for predictor in design.others:
        if predictor.link != links.get(predictor.name):
            raise InputError(
                f"{MARKER} is damaged: link {predictor.link!r} of {predictor.name} is not that of "
                f"family {of.name}"
            )
