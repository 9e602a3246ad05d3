"""One network or several in the program: data, inputs of the Bayesian layers, and their sum.

One network is ``network(H, w, widths, activation)`` of ``network.stanfunctions``, or the C++
kernel's, which ``network_in_cpp.stanfunctions`` declares. Several are
``networks(H, w, widths, activation)`` of ``networks.stanfunctions``: ``widths`` has a row for each,
and H, w and w_frozen hold what is theirs side by side. Where some are of a dispersion parameter,
``networks_of`` of ``networks_of.stanfunctions`` adds those of one predictor.
"""

from __future__ import annotations

from typing import Any

from semistan.model.design import Design
from semistan.model.networks.mlp import MU, Networks
from semistan.model.stan_text import WIDTH, call

Lines = list[tuple[str, str]]

LIFTED = "lift(phi, p_bar, axes, Pi)"


def several(design: Design) -> bool:
    """Say whether there is more than one network."""
    return len(design.networks) > 1


def network_files(design: Design, kernel: str) -> tuple[str, ...]:
    """Return the files with the functions of the network or of several, in Stan or in C++."""
    one = "network_in_cpp" if kernel == "cpp" else "network"
    many = ["networks.stanfunctions"] if several(design) else []
    some = ["networks_of.stanfunctions"] if design.network_predictors else []
    return ("layers.stanfunctions", f"{one}.stanfunctions", *many, *some)


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
    arguments = [f"H{rows}", weights, "free_widths", "activation"]
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


def widths_argument(design: Design) -> str:
    """Return the likelihood's argument with the widths of the Bayesian layers."""
    return f"data array[{',' * several(design)}] int free_widths"


def network_data_lines(design: Design) -> Lines:
    """Declare the layers."""
    many = several(design)
    number = ("int<lower=1> n_networks;", "networks, whose outputs are added")
    size, of = ("n_networks, ", "of each: inputs, ") if many else ("", "Q, ")
    return [
        *([number] if many else []),
        ("int<lower=1> n_layers;", "layers, the output layer included"),
        (f"array[{size}n_layers + 1] int<lower=1> widths;", f"{of}hidden units, 1"),
        ("int<lower=1, upper=5> activation;", "1 tanh ... 5 identity"),
        ("int<lower=0, upper=n_layers - 1> frozen;", "leading constant layers"),
        ("int<lower=0> d_frozen;", "constant weights"),
    ]


def network_data(network: Networks) -> dict[str, Any]:
    """Return the sizes that ``network_data_lines`` declares."""
    widths = [list(part.widths) for part in network.parts]
    many = len(widths) > 1
    return {
        **({"n_networks": len(widths)} if many else {}),
        "n_layers": len(widths[0]) - 1,
        "widths": widths if many else widths[0],
    }


def free_width_lines(design: Design) -> Lines:
    """Declare the widths of the Bayesian layers, in the transformed data."""
    rows, part = ("n_networks, ", " : , ") if several(design) else ("", "")
    return [
        (f"array[{rows}n_layers - frozen + 1] int free_widths", "widths of the Bayesian layers"),
        (f"  = widths[{part}frozen + 1 : n_layers + 1];", ""),
    ]


def input_size(design: Design) -> str:
    """Return the expression for the columns of H."""
    return "sum(free_widths[ : , 1])" if several(design) else "free_widths[1]"


def constant_layers(design: Design) -> str:
    """Return the expression that takes standardised inputs Z through the constant layers."""
    if several(design):
        return "constant_layers(Z, w_frozen, widths[ : , 1 : frozen + 1], activation)"
    return "hidden_layers(Z, w_frozen, widths[1 : frozen + 1], activation)"
