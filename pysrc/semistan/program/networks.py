"""One network or several in the program: data, inputs of the Bayesian layers, and their sum.

One network is ``network(H, w, ...)``; several are ``networks(H, w, ...)``, in which H, w and
w_frozen hold what is theirs side by side. Where some are of a dispersion parameter,
``networks_of(H, w, ..., first, last)`` adds those of one predictor. What stands for the dots, and
the files of these functions, is the architecture's.
"""

from __future__ import annotations

from semistan.model.design import Design
from semistan.model.names import MU
from semistan.model.networks.architecture import StanText
from semistan.model.networks.mlp import FullyConnected
from semistan.model.stan_text import WIDTH, call

Lines = list[tuple[str, str]]

LIFTED = "lift(phi, p_bar, axes, Pi)"


def several(design: Design) -> bool:
    """Say whether there is more than one network."""
    return len(design.networks) > 1


def network_text(design: Design, kernel: str = "stan") -> StanText:
    """Return what the networks' architecture brings to the program."""
    return FullyConnected.stan_text(
        several=several(design), predictors=bool(design.network_predictors), kernel=kernel == "cpp"
    )


def network_name(design: Design) -> str:
    """Return the name of the function that adds the outputs of a predictor's networks."""
    if design.network_predictors:
        return "networks_of"
    return "networks" if several(design) else "network"


def weights_lines(design: Design) -> Lines:
    """Declare the weights at phi where the networks of several predictors share them."""
    if not design.network_predictors:
        return []
    return [(f"vector[num_elements(p_bar)] w = {LIFTED};", "weights")]


def shared_weights(design: Design) -> str:
    """Return the expression for the weights at phi behind ``weights_lines``."""
    return "w" if design.network_predictors else LIFTED


def network_arguments(
    design: Design, rows: str = "", predictor: str = MU, weights: str = LIFTED
) -> list[str]:
    """Return that function's arguments at phi, for all rows or some, as ``[start : end]``."""
    passed = [name for _, name in network_text(design).passed]
    arguments = [f"H{rows}", weights, *passed]
    of = design.network_predictors
    if not of:
        return arguments
    first = of.index(predictor) + 1
    return [*arguments, str(first), str(first + of.count(predictor) - 1)]


def network_call(
    design: Design,
    column: int = 0,
    *,
    rows: str = "",
    predictor: str = MU,
    weights: str = LIFTED,
) -> str:
    """Return the expression that is the sum of a predictor's networks at phi.

    It starts at a column of the text, under which further lines of it are indented.
    """
    name, arguments = network_name(design), network_arguments(design, rows, predictor, weights)
    if not design.network_predictors:
        return f"{name}({', '.join(arguments)})"
    lines = call(name, arguments, "", width=WIDTH - 4 - column).splitlines()
    return f"\n{' ' * column}".join(lines)


def network_signature(design: Design) -> list[str]:
    """Return the likelihood's arguments that say how large the networks are."""
    return [f"data {type_} {name}" for type_, name in network_text(design).passed]
