"""From a module of the user's to an architecture: what can be wrong is said before training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semistan.errors import InputError
from semistan.lazy import torch
from semistan.model.networks.architecture import Layer
from semistan.model.networks.module import ModuleNetwork, owner, seeded

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

CLOSE = 1e-8  # relative difference of outputs that are the same
SAME = 1e-5  # of those of a module that is given again, perhaps on another machine
FEW = 3  # rows or weight vectors


def adopt(name: str, module: Module, shape: tuple[int, ...], u: Tensor) -> ModuleNetwork:
    """Take a copy of a module in double precision as an architecture.

    Parameters
    ----------
    name : str
        That of the formula.
    module : torch.nn.Module
        It is not changed.
    shape : tuple of int
        Shape of a row's inputs.
    u : torch.Tensor, shape (n, Q)
        Some rows of standardised inputs, at least two.

    Raises
    ------
    InputError
        If it is no module, or has no weights; if it cannot be evaluated, or is random; if it
        changes its buffers, or a row's output depends on other rows; or if its output is not
        finite, not of shape (N,) or (N, 1), or not that of a linear layer with a bias.
    """
    code = _copied(name, module)
    weights = [(key, p) for key, p in code.named_parameters() if p.requires_grad]
    network = ModuleNetwork(
        name, shape, tuple((key, tuple(p.shape)) for key, p in weights), code=code
    )
    with seeded(0), torch.no_grad():
        widest = _evaluated_as_given(network, u)
        network = replace(network, widest=max(network.n_inputs, widest))
        drawn = network
        w = _or_refused(drawn, lambda: drawn.initial(torch.Generator().manual_seed(0)))
        _check_output(network, w, u)
        network = replace(network, batches=_batches(network, w, u))
        network = replace(network, output=_output_layer(network, w, u))
        return replace(network, values=fingerprint(network))


def given_again(network: ModuleNetwork, module: Module) -> ModuleNetwork:
    """Return an architecture that was read from a file with its module.

    Raises
    ------
    InputError
        If the module has other parameters, or computes something else.
    """
    code = _copied(network.name, module)
    found = tuple((key, tuple(p.shape)) for key, p in code.named_parameters() if p.requires_grad)
    if found != network.parameters:
        raise InputError(
            f"{network.text} is another one than that of the fit, whose parameters are "
            f"{_listed(network.parameters)}; got {_listed(found)}"
        )
    known = replace(network, code=code)
    with seeded(0):
        outputs = _or_refused(known, lambda: fingerprint(known))
    if not np.allclose(outputs, network.values, rtol=SAME, atol=SAME):
        raise InputError(
            f"{network.text} has the parameters of the fit's, but computes something else, at the "
            f"same weights and inputs {_numbers(outputs)}, the fit's {_numbers(network.values)}; "
            "expected the same layers, mode (train or eval), buffers and constant parameters"
        )
    return known


def fingerprint(network: ModuleNetwork) -> tuple[float, ...]:
    """Return outputs at weights and inputs that are always the same."""
    generator = np.random.default_rng(0)
    w = generator.normal(size=network.d)
    for layer in network.layers():
        w[layer.weights] /= np.sqrt(layer.m)
    u = generator.normal(size=(4, network.n_inputs))
    with torch.no_grad():
        f = network.forward(torch.from_numpy(w), torch.from_numpy(u))
    return tuple(np.nan_to_num(f[:, 0].numpy()).tolist())


def _copied(name: str, module: Module) -> Module:
    """Return a copy in double precision on the CPU, and refuse what has no weights."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"networks['{name}'] must be a torch.nn.Module, as torch.nn.Sequential(...), got "
            f"{type(module).__name__}"
        )
    parameters = dict(module.named_parameters())
    lazy = [key for key, p in parameters.items() if torch.nn.parameter.is_lazy(p)]
    if lazy:
        raise InputError(
            f"module '{name}' has a lazy parameter '{lazy[0]}', whose shape is not known; evaluate "
            "the module once before the fit"
        )
    other = [key for key, p in parameters.items() if p.requires_grad and not p.is_floating_point()]
    if other:
        raise InputError(
            f"the parameters of module '{name}' must be real floating-point numbers, got "
            f"{parameters[other[0]].dtype} of '{other[0]}'"
        )
    if not any(p.requires_grad for p in parameters.values()):
        raise InputError(
            f"module '{name}' has no parameters that require gradients, so that there is nothing "
            "to train or sample; give a module with weights, as torch.nn.Linear(2, 1)"
        )
    try:
        return deepcopy(module).cpu().double()
    except Exception as error:
        raise InputError(f"module '{name}' cannot be copied: {error}") from error


def _evaluated_as_given(network: ModuleNetwork, u: Tensor) -> int:
    """Refuse a module that is random or changes; return the most numbers of a layer for a row."""
    code, x = deepcopy(network.known), u.reshape(-1, *network.shape)
    before = {key: buffer.clone() for key, buffer in code.named_buffers()}
    numbers = [0]

    def count(_: Module, __: Any, result: Any) -> None:
        numbers.append(result.numel() // len(u) if isinstance(result, torch.Tensor) else 0)

    hooks = [part.register_forward_hook(count) for part in code.modules()]
    first = _or_refused(network, lambda: code(x))
    for hook in hooks:
        hook.remove()
    changed = [key for key, buffer in code.named_buffers() if not _same(buffer, before[key])]
    if changed:
        raise InputError(
            f"{network.text} changes its buffer '{changed[0]}' whenever it is evaluated, as "
            "BatchNorm does, so that its output is no function of inputs and weights; use "
            "LayerNorm or GroupNorm, or give module.eval(), with the statistics that it has"
        )
    _check_shape(network, first, len(u))
    if not _same(first, _or_refused(network, lambda: code(x))):
        raise InputError(
            f"{network.text} is random: two evaluations of the same rows differ, as with Dropout; "
            "leave it out, since the posterior says what is uncertain, or give module.eval(), in "
            "which it does nothing"
        )
    return max(numbers)


def _check_shape(network: ModuleNetwork, f: Any, n: int) -> None:
    """Refuse anything but one output for each row."""
    shape = tuple(f.shape) if isinstance(f, torch.Tensor) else type(f).__name__
    if shape not in ((n,), (n, 1)):
        raise InputError(
            f"{network.text} must return one number for each row, of shape (N,) or (N, 1); of "
            f"inputs {(n, *network.shape)} it returned {shape}"
        )


def _check_output(network: ModuleNetwork, w: Tensor, u: Tensor) -> None:
    """Refuse outputs that are not finite, or that depend on the other rows."""
    f = _or_refused(network, lambda: network.called(w, u))
    _check_shape(network, f, len(u))
    f = f.reshape(len(u))
    if not f.isfinite().all():
        raise InputError(
            f"{network.text} returns {f[~f.isfinite()][0].item()} at weights drawn by its own "
            "initialisation and standardised inputs; expected finite numbers"
        )
    for rows in (u[:1], u[:FEW]):
        alone = _or_refused(network, lambda rows=rows: network.forward(w, rows)[:, 0])  # type: ignore[misc]
        if not torch.allclose(alone, f[: len(rows)], rtol=CLOSE, atol=CLOSE):
            raise InputError(
                f"{network.text} mixes rows: its output of a row is {alone[0].item():.6g} when "
                f"evaluated with {len(rows)} rows and {f[0].item():.6g} with {len(u)}; expected "
                "that each row's output depends on its own inputs alone"
            )


def _batches(network: ModuleNetwork, w: Tensor, u: Tensor) -> bool:
    """Say whether ``vmap`` computes several weight vectors and the rows' derivatives."""
    several, rows = torch.stack([w, 0.5 * w]), u[:FEW]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an operation that vmap would compute one by one
            found = network.forward(several, rows)
            network.output_and_jacobian(w, rows, 0)
    except Exception:
        return False
    expected = torch.stack([network.forward(one, rows) for one in several])
    return torch.allclose(found, expected, rtol=CLOSE, atol=CLOSE)


def _output_layer(network: ModuleNetwork, w: Tensor, u: Tensor) -> str:
    """Return the name of the layer whose inputs, weighted, and bias add up to the output."""
    points = [
        (at, *_or_refused(network, lambda at=at: network.output_and_jacobian(at, u, 0)))  # type: ignore[misc]
        for at in (w, -w)
    ]
    starts = np.cumsum([0, *network.sizes]).tolist()
    for layer in reversed(network.layers()):
        if layer.n == 1 and all(_adds_up(layer, *point) for point in points):
            return owner(network.parameters[starts.index(layer.weights.start)][0])
    raise InputError(
        f"the output of {network.text} must be that of a linear layer with one unit and a bias, "
        "which is the model's intercept; end the module in torch.nn.Linear(m, 1), with nothing "
        "behind it or beside it"
    )


def _adds_up(layer: Layer, w: Tensor, f: Tensor, J: Tensor) -> bool:
    """Say whether the output is linear in a layer's weights and has its bias as a summand."""
    parts, bias = slice(layer.weights.start, layer.biases.stop), J[:, layer.biases]
    close = partial(torch.allclose, rtol=CLOSE, atol=CLOSE)
    return (
        bias.shape[1] == 1
        and close(bias, torch.ones_like(bias))
        and close(J[:, parts] @ w[parts], f)
    )


def _or_refused(network: ModuleNetwork, evaluate: Callable[[], Any]) -> Any:
    """Evaluate a module, whose own errors become those of an input."""
    try:
        return evaluate()
    except InputError:
        raise
    except Exception as error:
        shape = ", ".join(map(str, ("N", *network.shape)))
        raise InputError(
            f"{network.text} cannot be evaluated in double precision at inputs of shape ({shape}): "
            f"{type(error).__name__}: {str(error).strip()}"
        ) from error


def _same(a: Tensor, b: Tensor) -> bool:
    """Compare the values of two tensors; what is not a number is the same as itself."""
    if a.shape != b.shape:
        return False
    return torch.allclose(a, b, rtol=CLOSE, atol=0, equal_nan=True)


def _listed(parameters: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    shown = ", ".join(f"{key} {shape}" for key, shape in parameters[:6])
    return shown + (", ..." if len(parameters) > 6 else "")


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
