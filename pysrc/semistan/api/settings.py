"""Every key of ``model.toml`` as a keyword: ``k=8`` for ``[subspace] k``, ``chains=2``, ...

A keyword has the name of its key; what its values mean stands in ``model/config.py``, of priors in
``model/priors/section.py``. The two that are not keys of their own are ``seed``, of training and
sampling, and ``kernel_size``, since ``kernel`` is that of sampling. Tests hold the names to the
configuration and to the flags of the command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

from semistan.errors import InputError, did_you_mean
from semistan.model.config import ModelConfig

Auto = Literal["auto"]
F = TypeVar("F", bound=Callable[..., Any])


class Settings(TypedDict, total=False):
    """The keywords, all optional."""

    # model
    family: str
    priors: Mapping[str, str]
    autoscale: bool
    drop_missing: bool
    orthogonalise: Literal["off", "auto", "all"]
    orthogonalise_in: Literal["posterior", "model"]
    sep: str
    decimal: str
    encoding: str
    # network
    hidden: Sequence[int]
    activation: str
    skip: bool
    norm: bool
    kind: Literal["auto", "mlp", "conv"]
    channels: Sequence[int]
    kernel_size: int
    pooling: int
    frozen: int | Auto
    # subspace
    construction: str
    k: int | Auto
    curve: int | None
    select: Literal["variance", "magnitude", "swag", "last_layer"]
    curvature: Literal["diagonal", "kronecker"]
    free: Literal["auto", "none", "bias", "output"]
    snapshots: int
    subspaces: int | Auto
    completion: Literal["auto", "none"]
    weights: Literal["equal", "stacking"]
    # train
    epochs: int
    steps: int | Auto
    learning_rate: float | Auto
    batch_size: int
    validation: float
    device: Literal["auto", "cpu", "cuda"]
    # sample
    method: str
    temperature: float
    temper: Literal["likelihood", "subspace"]
    chains: int | Auto
    budget: float
    warmup: int | Auto
    draws: int | Auto
    adapt_delta: float | Auto
    max_treedepth: int | Auto
    metric: Literal["auto", "ggn", "dense_e", "diag_e", "unit_e"]
    starts: Literal["curve", "mode", "prior"]
    threads: int | Auto
    kernel: Literal["auto", "cpp", "stan"]
    integrate: Literal["auto", "none"]
    backend: Literal["auto", "local", "dask"]
    cluster: str | None
    seed: int


SECTIONS = ("network", "subspace", "train", "sample")
OTHERS = {  # keywords that are not the last word of one key
    "seed": ("train.seed", "sample.seed"),
    "kernel_size": ("network.kernel",),
    "kernel": ("sample.kernel",),
    "autoscale": ("priors.autoscale",),
}


def keys_of(keyword: str) -> tuple[str, ...]:
    """Return the dotted keys of the configuration that a keyword other than ``priors`` sets."""
    if keyword in OTHERS:
        return OTHERS[keyword]
    for section in SECTIONS:
        if keyword in type(ModelConfig.model_fields[section].default).model_fields:
            return (f"{section}.{keyword}",)
    return (keyword,)


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords as dotted keys of the configuration; priors replace all that there are.

    Raises
    ------
    InputError
        For an unknown keyword, naming the nearest one, or priors that are no mapping.
    """
    found: dict[str, Any] = {}
    for keyword, value in settings.items():
        if keyword not in Settings.__annotations__:
            hint = did_you_mean(keyword, Settings.__annotations__)
            raise InputError(f"there is no setting '{keyword}'.{hint}")
        if keyword == "priors":
            found = {"priors": dict(_named(value)), **found}
        else:
            found |= dict.fromkeys(keys_of(keyword), value)
    return found


def _named(priors: Any) -> Mapping[str, str]:
    if isinstance(priors, Mapping):
        return priors
    raise InputError(
        f"priors are a mapping of names to priors, as {{'b_x': 'normal(0, 1)'}}, got {priors!r:.80}"
    )


def with_settings(function: F) -> F:
    """Show each keyword of ``Settings`` in a function's signature, in place of ``**settings``."""
    types = get_type_hints(Settings)
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=kind)
        for name, kind in types.items()
    ]

    function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
    return function
