"""The data of a program, as a dictionary and as CmdStan's JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from semistan.bundle.bundle import Bundle
from semistan.bundle.files import atomic_file
from semistan.errors import InputError
from semistan.model.design import Rows
from semistan.model.network import ACTIVATIONS
from semistan.stan.priors import prior_data


def stan_data(
    bundle: Bundle, rows: Rows, *, threads: int = 1, prior_only: bool = False
) -> dict[str, Any]:
    """Collect what the program reads, in the user's units.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        The training rows with their response.
    threads : int
        Threads within a chain, which set the grain size.
    prior_only : bool
        Whether to leave the likelihood out.

    Returns
    -------
    dict
        Numbers and NumPy arrays under the names of the program's data block.
    """
    if rows.y is None:
        raise InputError("sampling needs the response, but these rows have none")
    network, units = bundle.network, bundle.units
    return {
        "N": len(rows),
        "y": rows.y.astype(int) if bundle.family.integer else rows.y,
        "P": rows.X.shape[1],
        "X": rows.X,
        "x_loc": units.x_loc,
        "theta_scale": units.theta_scale,
        "Q": network.n_inputs,
        "U": rows.U,
        "u_loc": units.u_loc,
        "u_scale": units.u_scale,
        "eta_loc": units.eta_loc,
        "eta_scale": units.eta_scale,
        "n_layers": len(network.widths) - 1,
        "widths": list(network.widths),
        "activation": 1 + ACTIVATIONS.index(network.activation),
        "frozen": network.frozen,
        "d_frozen": network.d_frozen,
        "w_frozen": bundle.trained.w_frozen,
        "d": bundle.subspace.d,
        "k": bundle.subspace.k,
        "p_bar": bundle.subspace.p_bar,
        "Pi": bundle.subspace.Pi,
        **prior_data(bundle.config, bundle.family, units),
        "prior_only": int(prior_only),
        "grainsize": len(rows) if threads == 1 else max(100, len(rows) // (2 * threads)),
    }


def write_stan_json(path: Path, content: dict[str, Any]) -> None:
    """Write CmdStan's JSON atomically, without rounding."""
    from cmdstanpy import write_stan_json as write

    with atomic_file(path) as temporary:
        write(os.fspath(temporary), content)
