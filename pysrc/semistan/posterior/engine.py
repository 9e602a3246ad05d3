"""Two ways to the linear predictor: PyTorch, and ``predictor.onnx`` alone.

An engine maps X (N, P), U (N, Q), phi (S, k) and theta (S, P) to eta (S, N); where the subspace is
completed, psi (S, K) too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from semistan.bundle.onnx_graphs import open_graph
from semistan.density.predictor import linear_predictor
from semistan.errors import InputError, did_you_mean
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle

Engine = Callable[..., Array]

ENGINES = ("torch", "onnx")
GRAPH = "predictor.onnx"


def engine_named(name: str, bundle: Bundle, folder: Path) -> Engine:
    """Return an engine by its name; ``folder`` is the bundle's.

    Raises
    ------
    InputError
        If the name is unknown or the folder has no ``predictor.onnx``.
    """
    if name == "onnx" and bundle.modules:
        raise InputError(
            f"{next(iter(bundle.modules.values())).text} has no ONNX graph; use engine 'torch'"
        )
    if name not in ENGINES:
        raise InputError(f"unknown engine '{name}'.{did_you_mean(name, ENGINES)}")
    return onnx_engine(folder / GRAPH) if name == "onnx" else torch_engine(bundle)


def torch_engine(bundle: Bundle) -> Engine:
    """Compute with the bundle's network in PyTorch."""

    def engine(X: Array, U: Array, phi: Array, theta: Array, *psi: Array) -> Array:
        return linear_predictor(
            bundle.network, bundle.units, bundle.trained, X, U, phi, theta, *psi
        )

    return engine


def onnx_engine(path: Path) -> Engine:
    """Compute with an exported graph in onnxruntime; PyTorch is not imported.

    Raises
    ------
    InputError
        If the graph is missing or damaged.
    """
    if not path.is_file():
        raise InputError(f"'{path}' does not exist; use --engine torch")
    run = open_graph(path)

    def engine(X: Array, U: Array, phi: Array, theta: Array, *psi: Array) -> Array:
        names = ("x", "u", "phi", "theta", "psi")
        (eta,) = run(dict(zip(names, (X, U, phi, theta, *psi), strict=False)))
        return eta

    return engine
