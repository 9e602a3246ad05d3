"""The Stan and C++ files that generated programs use: of ``stan/``, or made from records."""

from collections.abc import Callable
from pathlib import Path

from semistan.program.activations import kernel_functions, stan_slopes, stan_values

KERNEL_HEADERS = (  # the first is CmdStan's USER_HEADER
    "log_lik.hpp",
    "network_kernel.hpp",
    "network_vectors.hpp",
    "activations.hpp",
)
MADE: dict[str, Callable[[], str]] = {  # from the records of the activations
    "activate.stanfunctions": stan_values,
    "activation_slope.stanfunctions": stan_slopes,
    "activations.hpp": kernel_functions,
}


def stan_source(name: str) -> str:
    """Return the text of a file of ``stan/``, in the package or the checkout, or of ``MADE``."""
    if name in MADE:
        return MADE[name]()
    package = Path(__file__).parents[1]
    installed, checkout = package / "stan_sources" / name, package.parents[1] / "stan" / name
    return (installed if installed.is_file() else checkout).read_text("utf-8")
