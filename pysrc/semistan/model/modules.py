"""The user's modules: which ``nn()`` takes which, and what the files say of them.

A formula names a module, ``nn(u1, u2, module='f')``, and Python gives it:
``semistan.fit(..., networks={'f': module})``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.arrays import Array
from semistan.model.config import ModelConfig
from semistan.model.design import Design
from semistan.model.formula.formula import Network, parse_formula
from semistan.model.formula.syntax import LAYERS, MODULE, SHARED
from semistan.model.networks.adopt import adopt, given_again
from semistan.model.networks.module import ModuleNetwork, owner

if TYPE_CHECKING:
    from torch.nn import Module

Modules = Mapping[str, ModuleNetwork]  # by their names in the formula
Given = Mapping[str, "Module"]


def adopted(design: Design, U: Array, networks: Given | None) -> Modules:
    """Take the modules that a formula names, and refuse those that cannot be networks.

    Parameters
    ----------
    design : Design
        The learnt design.
    U : array, shape (N, Q)
        Inputs of all networks in the user's units, at some training rows.
    networks : mapping, optional
        The modules by name.

    Raises
    ------
    InputError
        If a name has no module, or a module no ``nn()``; or as ``adopt``.
    """
    given = networks or {}
    wanted = list(_wanted(design))
    check_names(design, given)
    u = torch.tensor((U - design.u.loc) / design.u.scale)
    found: dict[str, ModuleNetwork] = {}
    for name, shape, columns in wanted:
        if name not in found:
            found[name] = adopt(name, given[name], shape, u[:, columns])
        if found[name].shape != shape:
            raise InputError(
                f"module '{name}' is named by two nn() whose inputs have the shapes "
                f"{found[name].shape} and {shape}; give a copy of it another name"
            )
    return found


def check_names(design: Design, networks: Given) -> None:
    """Refuse a name in the formula without a module, and the reverse.

    Raises
    ------
    InputError
        Saying what to write.
    """
    if not isinstance(networks, Mapping):
        raise InputError(
            "networks must be a dict from names in the formula to modules, as {'f': module}, got "
            f"{type(networks).__name__}"
        )
    names = [name for name, *_ in _wanted(design)]
    missing = [name for name in names if name not in networks]
    if missing:
        raise InputError(
            f"the formula has nn(..., module='{missing[0]}'), but no module '{missing[0]}' is "
            "given. Modules are given in Python alone, as semistan.fit(..., "
            f"networks={{'{missing[0]}': torch.nn.Sequential(...)}})"
        )
    unused = [name for name in networks if name not in names]
    if unused:
        raise InputError(
            f"networks has a module '{unused[0]}' that the formula does not name; write "
            f"nn(..., module='{unused[0]}'), or leave it out"
        )


def check_options(config: ModelConfig, modules: Modules) -> None:
    """Refuse options that need more of a module than its output and weights.

    Raises
    ------
    InputError
        Naming the option and what to choose instead.
    """
    if not modules:
        return
    name = next(iter(modules))
    if config.subspace.curvature == "kronecker":
        raise InputError(
            "subspace.curvature is 'kronecker', which needs the inputs of each layer, and those of "
            f"module '{name}' are not known; choose curvature = 'diagonal'"
        )
    if config.priors.scales_all:
        raise InputError(
            "prior 'sd_w' is of the scales of the weights from each input and of each layer, and "
            f"which those are in module '{name}' is not known; leave it out"
        )


def codes(modules: Modules) -> dict[str, Module]:
    """Return the modules themselves, by name.

    Raises
    ------
    InputError
        If they were read from a file and not given again.
    """
    return {name: network.known for name, network in modules.items()}


def modules_to_plain(modules: Modules) -> dict[str, Any]:
    """Return what files say of the modules, as JSON-ready data."""
    return {
        name: {
            "parameters": [[key, list(shape)] for key, shape in network.parameters],
            "output": network.output,
            "widest": network.widest,
            "batches": network.batches,
            "values": list(network.values),
        }
        for name, network in modules.items()
    }


def modules_from_plain(plain: Mapping[str, Any], design: Design, networks: Given | None) -> Modules:
    """Rebuild from ``modules_to_plain``'s data, which may come from anybody.

    Without ``networks`` what is rebuilt has sizes alone, and cannot be evaluated.

    Raises
    ------
    InputError
        If the data are not those of the formula's modules, or the given modules are others.
    """
    if networks is not None:
        check_names(design, networks)
    try:
        found = {name: _from_plain(name, shape, plain[name]) for name, shape, _ in _wanted(design)}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"what the bundle says of its modules is damaged: {error!r}") from None
    if networks is None:
        return found
    return {name: given_again(network, networks[name]) for name, network in found.items()}


def _from_plain(name: str, shape: tuple[int, ...], content: Mapping[str, Any]) -> ModuleNetwork:
    parameters = tuple((str(key), tuple(map(int, size))) for key, size in content["parameters"])
    network = ModuleNetwork(
        name, shape, parameters, str(content["output"]), int(content["widest"]),
        bool(content["batches"]), tuple(map(float, content["values"])),
    )  # fmt: skip
    if network.output not in {owner(key) for key, size in parameters if len(size) > 1}:
        raise ValueError(f"'{network.output}' is no layer")
    return network


def _wanted(design: Design) -> Iterator[tuple[str, tuple[int, ...], slice]]:
    """Yield each name in the formula, the shape of its inputs and their columns in U."""
    start = 0
    written = parse_formula(design.formula).networks
    for inputs, network in zip(design.networks, written, strict=True):
        stop = start + len(inputs.loc)
        own = stop - bool(network.times)  # behind them stands what the network multiplies
        if MODULE in network.options:
            _check_alone(network)
            yield network.options[MODULE], inputs.shape, slice(start, own)
        start = stop


def _check_alone(network: Network) -> None:
    others = sorted(set(network.options) & {*LAYERS, SHARED} - {"frozen"})
    if others:
        raise InputError(
            f"nn(..., module='{network.options[MODULE]}') takes no option '{others[0]}': the "
            "module has its own layers; leave it out"
        )
