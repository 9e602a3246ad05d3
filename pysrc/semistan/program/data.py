"""The data of a program, as a dictionary and as CmdStan's JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistan.density.features import at_features
from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.model import Model
from semistan.model.networks.networks import output_layers
from semistan.model.table.rows import Rows
from semistan.program.completion import completion_data
from semistan.program.networks import NetworkText
from semistan.program.parts import known_of_rows
from semistan.program.predictors import predictor_data
from semistan.program.subspace import subspace_data


def stan_data(
    bundle: Bundle, rows: Rows, *, grainsize: int | None = None, prior_only: bool = False
) -> dict[str, Any]:
    """Collect what the program reads, in the user's units.

    Parameters
    ----------
    bundle : Bundle
        The trained model.
    rows : Rows
        The training rows with their response.
    grainsize : int, optional
        Rows per slice of ``reduce_sum``; all rows by default.
    prior_only : bool
        Whether to leave the likelihood out.

    Returns
    -------
    dict
        Numbers and NumPy arrays under the names of the program's data block; none if Stan cannot
        compute the network.
    """
    if (y := rows.y) is None:
        raise InputError("sampling needs the response, but these rows have none")
    if not bundle.network.in_stan:
        return {}
    bundle, rows = at_features(bundle, rows)
    network, units = bundle.network, bundle.units
    inputs = np.setdiff1d(np.arange(network.n_inputs), list(network.multipliers.values()))
    return {
        "N": len(rows),
        "y": y.astype(int) if bundle.family.integer else y,
        **{item.name: item.value for item in bundle.family.constants},
        "P": rows.X.shape[1],
        "X": rows.X,
        "x_loc": units.x_loc,
        "theta_scale": units.theta_scale,
        "Q": len(inputs),
        "U": rows.U[:, inputs].astype(float),
        "u_loc": units.u_loc[inputs],
        "u_scale": units.u_scale[inputs],
        "eta_loc": units.eta_loc,
        "eta_scale": units.eta_scale,
        **network.stan_sizes,
        **NetworkText(bundle.model).multiplier_values(rows.U, units.u_scale),
        **subspace_data(bundle.subspace, bundle.model.moves),
        **{
            name: rows.known[name].astype(int) if name in ("trials", "cens") else rows.known[name]
            for name in known_of_rows(bundle.design)
        },
        **predictor_data(bundle, rows),
        **_information(bundle),
        **_theta_inside(bundle),
        **_orthogonal(bundle.model),
        **_integral(bundle),
        **completion_data(bundle, prior_only=prior_only),
        **bundle.prior_data,
        "prior_only": int(prior_only),
        **_temper(bundle, grainsize or len(rows)),
    }


def _information(bundle: Bundle) -> dict[str, Array]:
    return {
        p.centring.data: np.broadcast_to(p.centring.information, p.centring.shape)
        for p in bundle.layout.centred
        if p.centring and p.name not in bundle.model.drawn
    }


def _theta_inside(bundle: Bundle) -> dict[str, Array]:
    if not bundle.config.subspace.holds_theta:
        return {}
    return {"theta_bar": bundle.subspace.theta_bar, "theta_Pi": bundle.subspace.theta_Pi}


def _orthogonal(model: Model) -> dict[str, Any]:
    """Return which coefficients are sampled orthogonalised to the network, if any."""
    if not model.samples_orthogonal:
        return {}
    return {"n_orth": len(model.orthogonal), "orth": [j + 1 for j in model.orthogonal]}


def _integral(bundle: Bundle) -> dict[str, Any]:
    """Return which coordinates of phi are integrated out, if any are."""
    if bundle.model.integral is None or not bundle.model.integral.phi:
        return {}
    linear, outputs = bundle.linear, np.concatenate(output_layers(bundle.network))
    place = {int(weight): i for i, weight in enumerate(outputs)}
    weights = bundle.subspace.axes[linear]
    return {
        "n_linear": len(linear),
        "linear": linear + 1,
        "sampled": np.setdiff1d(np.arange(bundle.subspace.k), linear) + 1,
        "n_inputs": len(outputs),
        "output": outputs + 1,
        "column": np.array([place[int(weight)] + 1 for weight in weights], dtype=np.int64),
        **({"of_input": _outputs_of_inputs(bundle)} if bundle.design.slopes else {}),
    }


def _outputs_of_inputs(bundle: Bundle) -> list[int]:
    """Return the output, from 1, that each input of the output layers belongs to."""
    ends = enumerate(output_layers(bundle.network), start=1)
    return [number for number, end in ends for _ in end]


def _temper(bundle: Bundle, grainsize: int) -> dict[str, Any]:
    """Return what only a tempered program reads, and what one that integrates theta does not."""
    temper = bundle.model.temper
    data = {"temperature": temper.temperature} if temper else {}
    if bundle.model.integral:
        return data
    if temper is None or temper.integral is None:
        return data | {"grainsize": grainsize}
    return data | ({"theta_hat": bundle.trained.theta} if temper.integral == "laplace" else {})
