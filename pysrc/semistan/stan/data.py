"""The data of a program, as a dictionary and as CmdStan's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from semistan.bundle.bundle import Bundle
from semistan.bundle.files import atomic_file
from semistan.errors import InputError
from semistan.model.design import Design
from semistan.model.network import ACTIVATIONS, Array
from semistan.model.orthogonal import in_model, orthogonal_columns
from semistan.model.rows import Block, Rows
from semistan.stan.distributional import parameter_data
from semistan.stan.networks import network_data
from semistan.stan.penalised import penalised_data, penalised_names
from semistan.stan.priors import prior_data
from semistan.stan.temper import temper_of

ROWS_AT_A_TIME = 10_000


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
        **network_data(network),
        "activation": 1 + ACTIVATIONS.index(network.activation),
        "frozen": network.frozen,
        "d_frozen": network.d_frozen,
        "w_frozen": bundle.trained.w_frozen,
        "d": bundle.subspace.d,
        "k": bundle.subspace.k,
        "p_bar": bundle.subspace.p_bar,
        "n_axes": len(bundle.subspace.axes),
        "axes": bundle.subspace.axes + 1,
        "Pi": bundle.subspace.Pi,
        "phi_scale": bundle.subspace.phi_scale,
        **{
            name: rows.given[name].astype(int) if name == "trials" else rows.given[name]
            for name in bundle.design.given
        },
        **penalised_data(bundle, rows),
        **parameter_data(bundle, rows),
        **_theta_inside(bundle),
        **_orthogonal(bundle),
        **prior_data(bundle),
        "prior_only": int(prior_only),
        **_temper(bundle, grainsize or len(rows)),
    }


def _theta_inside(bundle: Bundle) -> dict[str, Array]:
    if not bundle.config.subspace.holds_theta:
        return {}
    return {"theta_bar": bundle.subspace.theta_bar, "theta_Pi": bundle.subspace.theta_Pi}


def _orthogonal(bundle: Bundle) -> dict[str, Any]:
    """Return which coefficients are sampled orthogonalised to the network, if any."""
    if not in_model(bundle.config, bundle.design):
        return {}
    columns = orthogonal_columns(bundle.config, bundle.design)
    return {"n_orth": len(columns), "orth": [j + 1 for j in columns]}


def _temper(bundle: Bundle, grainsize: int) -> dict[str, Any]:
    """Return what only a tempered program reads, and what one that integrates theta does not."""
    temper = temper_of(bundle.config, bundle.design)
    data = {"temperature": temper.temperature} if temper else {}
    if temper is None or temper.integral is None:
        return data | {"grainsize": grainsize}
    return data | ({"theta_hat": bundle.trained.theta} if temper.integral == "laplace" else {})


def write_stan_json(path: Path, content: dict[str, Any]) -> None:
    """Write CmdStan's JSON atomically, without rounding, a line for each name.

    Rows are written some at a time: text of gigabytes is never held in memory.
    """
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        separator = "{\n"
        for name, value in content.items():
            file.write(f'{separator}"{name}": ')
            for piece in _pieces(value):
                file.write(piece)
            separator = ",\n"
        file.write("\n}\n")


def _pieces(value: Any) -> Iterator[str]:
    array = np.asarray(value)
    if array.ndim == 0 or array.size == 0:
        yield json.dumps(array.tolist())
        return
    for start in range(0, len(array), ROWS_AT_A_TIME):
        text = json.dumps(array[start : start + ROWS_AT_A_TIME].tolist())
        yield ("," if start else "[") + text[1:-1]
    yield "]"


def read_stan_rows(path: Path, design: Design) -> Rows:
    """Read the rows back, one line of ``write_stan_json`` at a time.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    further = penalised_names(design)
    blocks = [name for pair in further for name in pair if name]
    own = {item.name: f"X_{item.name}" for item in design.parameters if item.coefficients}
    wanted = ("N", "P", "Q", "y", "X", "U", *design.given, *blocks, *own.values())
    found: dict[str, Array] = {}
    with path.open("rb") as file:
        for line in file:
            name = line.partition(b":")[0].strip().strip(b'"').decode()
            if name in wanted:
                found[name] = _numbers(line.partition(b":")[2])
    if set(found) != set(wanted):
        raise InputError(f"'{path}' is damaged: it lacks some of {', '.join(wanted)}")
    N, P, Q = (int(found[name][0]) for name in ("N", "P", "Q"))
    return Rows(
        found["y"], found["X"].reshape(N, P), found["U"].reshape(N, Q), tuple(range(N)),
        given={name: found[name] for name in design.given},
        blocks=tuple(
            Block(
                found[Z].reshape(N, -1) if Z else np.ones((N, 1)),
                found[J].astype(int) - 1 if J else np.zeros(N, dtype=int),
            )
            for Z, J in further
        ),
        further={
            item.name: found[own[item.name]].reshape(N, -1) if item.coefficients
            else np.zeros((N, 0))
            for item in design.parameters
        },
    )  # fmt: skip


def _numbers(text: bytes) -> Array:
    plain = text.translate(None, b"[] \r\n").strip(b",")
    return np.fromstring(plain.decode("ascii"), sep=",") if plain else np.zeros(0)
