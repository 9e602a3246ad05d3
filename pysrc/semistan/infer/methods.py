"""The methods of inference as a table: what each is, and what of its CSV files is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from semistan.errors import ToolchainError
from semistan.model.config import SampleConfig

ChainProgress = Callable[[int, int, int], None]  # chain, iteration, iterations in all

NUTS_COLUMNS = {  # in the order of CmdStan's files
    "lp": "lp__",
    "acceptance_rate": "accept_stat__",
    "step_size": "stepsize__",
    "tree_depth": "treedepth__",
    "n_steps": "n_leapfrog__",
    "diverging": "divergent__",
    "energy": "energy__",
}


@dataclass(frozen=True, slots=True)
class Method:
    """One way to sample or to approximate the posterior.

    Attributes
    ----------
    name : str
        By which users ask for it.
    text : str
        What it is, in a few words.
    approximate : bool
        Whether its draws are from an approximation, whatever their number.
    by_stan : bool
        Whether CmdStan runs it on the compiled program; otherwise PyTorch does.
    has_warmup : bool
        Whether warm-up iterations come first.
    columns : dict
        Columns of its CSV files about the method itself, by ArviZ's names. Approximations have
        ``log_p`` and ``log_g``: log densities of a draw under the posterior and under the
        approximation, both up to a constant.
    since : tuple of int
        The first CmdStan that has it.
    """

    name: str
    text: str
    approximate: bool
    by_stan: bool
    has_warmup: bool
    columns: dict[str, str]
    since: tuple[int, int] = (2, 27)


_VARIATIONAL = {"log_p": "log_p__", "log_g": "log_g__"}
METHODS = {
    method.name: method
    for method in (
        Method("nuts", "NUTS", False, True, True, NUTS_COLUMNS),
        Method("meanfield", "mean-field variational inference", True, True, False, _VARIATIONAL),
        Method("fullrank", "full-rank variational inference", True, True, False, _VARIATIONAL),
        Method("pathfinder", "Pathfinder", True, True, False,
               {"log_p": "lp__", "log_g": "lp_approx__"}, (2, 33)),
        Method("laplace", "Laplace's approximation", True, True, False,
               {"log_p": "log_p__", "log_g": "log_q__"}, (2, 32)),
        Method("elliptical-slice", "elliptical slice sampling", False, False, True,
               {"lp": "lp__"}),
        Method("flow", "variational inference with a RealNVP flow", True, False, False,
               _VARIATIONAL),
    )
}  # fmt: skip


def method_of(options: SampleConfig) -> Method:
    """Return the method that some options ask for."""
    return METHODS[options.method]


def reservations(options: SampleConfig) -> tuple[str, ...]:
    """Say what keeps draws from being those of the posterior; nothing in the ordinary case."""
    method, T = method_of(options), options.temperature
    approximate = (f"approximate ({method.text})",) if method.approximate else ()
    what = "p(y | phi)" if options.temper == "subspace" else "the likelihood"
    tempered = (f"tempered ({what} to the power 1 / {T:g})",) if T != 1 else ()
    return approximate + tempered


def check_version(method: Method, version: tuple[int, ...]) -> None:
    """Refuse a method that CmdStan does not have yet.

    Raises
    ------
    ToolchainError
        With the version that has it.
    """
    if method.by_stan and version[:2] < method.since:
        needed, found = (".".join(map(str, number)) for number in (method.since, version))
        raise ToolchainError(
            f"the method '{method.name}' needs CmdStan {needed} or newer, this is {found}; install "
            "a newer one, or use --method nuts, meanfield or fullrank"
        )
