"""The methods of inference as a table: a line for each, which names the record in its file.

A record is imported when it is asked for, so that names cost nothing: ``semistan --help`` lists
them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from semistan.errors import InputError, ToolchainError, did_you_mean

if TYPE_CHECKING:
    from semistan.infer.method import Method
    from semistan.model.config import SampleConfig
    from semistan.model.networks.networks import Networks

METHODS = {
    "nuts": "semistan.infer.methods.nuts:NUTS",
    "nuts-torch": "semistan.infer.methods.nuts_torch:NUTS_TORCH",
    "meanfield": "semistan.infer.methods.variational:MEANFIELD",
    "fullrank": "semistan.infer.methods.variational:FULLRANK",
    "pathfinder": "semistan.infer.methods.pathfinder:PATHFINDER",
    "laplace": "semistan.infer.methods.laplace:LAPLACE",
    "elliptical-slice": "semistan.infer.methods.elliptical_slice:ELLIPTICAL_SLICE",
    "mclmc": "semistan.infer.methods.mclmc:MCLMC",
    "mclmc-torch": "semistan.infer.methods.mclmc_torch:MCLMC_TORCH",
    "flow": "semistan.infer.methods.flow:FLOW",
}


IN_TORCH = {"nuts": "nuts-torch", "mclmc": "mclmc-torch"}  # for networks that Stan lacks


def names_text() -> str:
    """Return the names of all methods as words: ``nuts, ... or flow``."""
    *first, last = METHODS
    return f"{', '.join(first)} or {last}"


def method_named(name: str) -> Method:
    """Return a method's record.

    Raises
    ------
    InputError
        If there is none of this name.
    """
    if name not in METHODS:
        raise InputError(f"sample.method: there is no '{name}'.{did_you_mean(name, METHODS)}")
    module, _, record = METHODS[name].partition(":")
    method: Method = getattr(import_module(module), record)
    return method


def method_of(options: SampleConfig) -> Method:
    """Return the method that some options ask for."""
    return method_named(options.method)


def suited(options: SampleConfig, networks: Networks) -> SampleConfig:
    """Return the options with the method in PyTorch, where Stan cannot compute the networks."""
    if options.method not in IN_TORCH or networks.in_stan:
        return options
    return options.model_copy(update={"method": IN_TORCH[options.method]})


def reservations(options: SampleConfig) -> tuple[str, ...]:
    """Say what keeps draws from being those of the posterior; nothing in the ordinary case."""
    method, T = method_of(options), options.temperature
    approximate = (f"approximate ({method.text})",) if method.approximate else ()
    what = "p(y | phi)" if options.temper == "subspace" else "the likelihood"
    biased = f"unadjusted ({method.text}: the errors of its steps are a bias)"
    unadjusted = (biased,) if method.unadjusted else ()
    tempered = (f"tempered ({what} to the power 1 / {T:g})",) if T != 1 else ()
    return approximate + unadjusted + tempered


def check_computable(method: Method, networks: Networks) -> None:
    """Refuse networks that Stan cannot compute for a method that CmdStan runs.

    Raises
    ------
    InputError
        Saying what to do.
    """
    if method.by_stan and not networks.in_stan:
        others = [name for name in METHODS if not method_named(name).by_stan]
        modules, constant = networks.modules, "let them be constants (network.frozen = 'auto'), or "
        what, or_constant = ("", "") if modules else ("the convolutional layers of ", constant)
        raise InputError(
            f"Stan cannot compute {what}the network {networks.text}, as method '{method.name}' "
            f"needs; {or_constant}choose a method that PyTorch runs: {', '.join(others[:-1])} or "
            f"{others[-1]}"
        )


def check_version(method: Method, version: tuple[int, ...]) -> None:
    """Refuse a method that CmdStan does not have yet.

    Raises
    ------
    ToolchainError
        With the version that has it, and the methods that this one has.
    """
    if method.by_stan and version[:2] < method.since:
        needed, found = (".".join(map(str, number)) for number in (method.since, version))
        known = [m.name for m in map(method_named, METHODS) if m.by_stan and m.since <= version]
        raise ToolchainError(
            f"the method '{method.name}' needs CmdStan {needed} or newer, this is {found}; install "
            f"a newer one, or use --method {', '.join(known[:-1])} or {known[-1]}"
        )
