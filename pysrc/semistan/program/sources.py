"""The hand-written Stan files that every generated program uses."""

from pathlib import Path

KERNEL_HEADERS = (  # the first is CmdStan's USER_HEADER
    "log_lik.hpp",
    "network_kernel.hpp",
    "network_vectors.hpp",
)


def stan_source(name: str) -> str:
    """Return the text of a file of ``stan/``, installed with the package or in the checkout."""
    package = Path(__file__).parents[1]
    installed, checkout = package / "stan_sources" / name, package.parents[1] / "stan" / name
    return (installed if installed.is_file() else checkout).read_text("utf-8")
