"""What a fit needs, as one frozen value: the contents of ``model.toml``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from semistan.errors import InputError, did_you_mean
from semistan.model.construction import Moves, construction_facts, known_construction
from semistan.model.families.families import family
from semistan.model.formula.fixed import fixed_values
from semistan.model.priors.section import PriorConfig
from semistan.model.section import Section

Free = Literal["auto", "none", "bias", "output"]  # what of the output layers moves by itself
MOST_SUBSPACES = 1000
LARGEST_SEED = 2**32 - MOST_SUBSPACES  # CmdStan has 32 bits, and each subspace a seed of its own
MOST_LAYERS = 100
SHOWN = 100  # characters of a wrong value
MOST_DRAWS = 10**7  # in one chain, which is a text file of one line for each
DRAWS = 1000  # of a chain, where nothing asks for fewer
CHAINS = 4
SHOULD_BE = "Input should be "  # with which pydantic says what is expected


Units = Annotated[int, Field(ge=1)]


class NetworkConfig(Section):
    """``[network]``: the architecture of ``f``, or of each of several networks.

    ``kind = "auto"`` is a convolutional network (``conv``) of images and a fully connected one
    (``mlp``) of anything else, as of a trunk's embeddings of images. ``channels`` are those of each
    convolutional layer, behind which come the layers ``hidden``; ``kernel`` and ``pooling`` are the
    sides of their squares of pixels.
    ``frozen`` is how many leading layers are trained and then constants, outside the subspace:
    ``auto`` all convolutional ones, whose output is then Stan's data, and no other. ``skip`` adds
    what comes into a hidden layer to what it makes of it, where both have equally many units;
    ``norm`` normalises the units of each hidden layer, row by row, for the layer behind it
    (``model/networks/residual.py``).
    """

    kind: Literal["auto", "mlp", "conv"] = "auto"
    hidden: tuple[Units, ...] = Field(default=(16, 16), max_length=MOST_LAYERS)
    activation: str = "tanh"
    skip: bool = False
    norm: bool = False
    channels: tuple[Units, ...] = Field(default=(8, 16, 32), max_length=MOST_LAYERS)
    kernel: int = 3
    pooling: int = 2
    frozen: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"


class SubspaceConfig(Section):
    """``[subspace]``: how the affine subspace is constructed.

    ``select`` is for ``subnetwork`` (which weights move), ``curvature`` for
    ``low_rank_laplace`` and what is added to a curve (the generalised Gauss-Newton matrix's
    approximation), ``snapshots`` for ``pca`` and the other constructions that average the last
    epochs (how many). ``full`` takes all weights, whatever ``k`` is; ``curve`` has k = 2. With
    several ``nn()``, each network moves in k dimensions of its own, or in those that the formula
    gives it, as ``nn(u, k=12)``; but for ``subnetwork``, which chooses k weights among all.
    ``free`` lets the output ``bias`` of each network move by itself too, or the whole ``output``
    layer; ``"auto"`` is ``bias`` beside groups and Gaussian processes, whose coefficients can take
    the level of the network upon them, and ``none`` elsewhere.

    With ``bezier``, ``curve`` of the k dimensions are those of the Bézier curve, and the others the
    leading directions of the predictions' variance around it; without it, all are the curve's.
    ``k = "auto"`` is all weights if there are at most 75, or if they are counted to take no more
    than the time that ``[sample] budget`` gives; else the dimensions of a curve: 2 where the
    subspace is completed, 8 where it is not.

    ``subspaces`` is how many are trained, from seeds one after the other; their posteriors are
    pooled with ``weights``: ``equal``, or by ``stacking`` of their leave-one-out densities.
    ``"auto"`` is three where ``k = "auto"`` became those of a curve or layers are constants, five
    where both are so, and one elsewhere.

    ``completion = "auto"`` gives the weights outside the subspace the normal approximation that
    they have at a mode inside it (``model/completion.py``); ``"none"`` holds them where they are.
    """

    construction: str = "bezier"
    k: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    curve: Annotated[int, Field(ge=1)] | None = None
    select: Literal["variance", "magnitude", "swag", "last_layer"] = "variance"
    curvature: Literal["diagonal", "kronecker"] = "diagonal"
    snapshots: int = Field(default=20, ge=2, le=10_000)
    free: Free = "auto"
    subspaces: Annotated[int, Field(ge=1, le=MOST_SUBSPACES)] | Literal["auto"] = "auto"
    weights: Literal["equal", "stacking"] = "equal"
    completion: Literal["auto", "none"] = "auto"

    @property
    def dimension(self) -> int:
        """The number k, behind ``auto``."""
        assert self.k != "auto"
        return self.k

    @property
    def trainings(self) -> int:
        """The number of subspaces: one where ``auto`` has not become another."""
        return 1 if self.subspaces == "auto" else self.subspaces

    @property
    def holds_theta(self) -> bool:
        """Whether the structured coefficients lie in the subspace, without a prior of their own."""
        return construction_facts(self.construction).holds_theta

    @property
    def scales_phi(self) -> bool:
        """Whether training gives each coordinate a prior scale of its own."""
        return construction_facts(self.construction).scales_phi

    @property
    def widens(self) -> bool:
        """Whether k may go beyond what spans the subspace, up to all weights."""
        return construction_facts(self.construction).widens

    @property
    def moves(self) -> Moves:
        """What phi moves: weights along directions, single weights, or all of them."""
        moves = construction_facts(self.construction).moves
        return "both" if moves == "directions" and self.free in ("bias", "output") else moves

    @field_validator("construction")
    @classmethod
    def _known(cls, name: str) -> str:
        return known_construction(name)


class TrainConfig(Section):
    """``[train]``: how Algorithm 1 is run.

    ``batch_size = 0`` means full batches up to 4096 rows, else batches of 1024. ``steps`` is how
    many optimiser steps a training takes at the most: where the rows make epochs longer, these are
    fewer. ``steps = "auto"`` is one for each row of a table, from 20,000 to 60,000, and 20,000 for
    images (``subspace/steps.py``). ``learning_rate = "auto"`` is 0.005 in full batches and for
    images, and 0.01 in batches of a table: their steps are fewer.
    """

    epochs: int = Field(default=3000, ge=1, le=10**9)
    steps: Annotated[int, Field(ge=1, le=10**12)] | Literal["auto"] = "auto"
    learning_rate: Annotated[float, Field(gt=0, le=100)] | Literal["auto"] = "auto"
    batch_size: int = Field(default=0, ge=0, le=10**9)
    validation: float = Field(default=0.1, ge=0, lt=0.9)
    seed: int = Field(default=1, ge=0, le=LARGEST_SEED)
    device: Literal["auto", "cpu", "cuda"] = "auto"

    @property
    def rate(self) -> float:
        """Adam's initial rate, that of full batches where it is not known yet."""
        return 5e-3 if self.learning_rate == "auto" else self.learning_rate


class SampleConfig(Section):
    """``[sample]``: how the posterior is sampled or approximated.

    ``method`` is one of ``infer.methods``. ``temperature`` T takes the likelihood to
    the power 1 / T: of all parameters (``temper = "likelihood"``, the paper's equation 7), or
    with theta integrated out, which leaves theta given phi as it is (``"subspace"``, equation 8).
    ``chains = "auto"`` is 4, and up to 12 shorter ones where all weights move and the chains stay
    in different modes (``workflow/modes.py``); 2 in each of several subspaces if these would not
    be sampled within the budget otherwise.
    ``warmup = "auto"`` is 100 or 150 iterations if a mode's metric is kept, else 300 to 1000, and
    500 for a metric that ``auto`` made diagonal, or beside smooths and groups in many dimensions if
    the posterior is not near normal (``infer/starts.py``). ``draws = "auto"`` is 1000 for each
    chain, 250 to 500 where several subspaces are pooled, and down to 600 where all weights could
    not be sampled within the budget otherwise. ``adapt_delta`` and ``max_treedepth`` of ``"auto"``
    are in ``infer/trees.py``. ``metric = "ggn"`` starts with the generalised Gauss-Newton metric of
    a mode inside the subspace; ``"auto"`` does so in up to 75 dimensions, and adapts a diagonal
    metric in more. ``starts`` says where chains start: around a mode that each climbs to from the
    trained ``curve``, or, where the metric needs no mode, on the curve; at the ``mode`` itself; or
    at a draw from the ``prior``. ``budget`` is the minutes of sampling that ``k = "auto"`` aims to
    stay below. ``threads = "auto"`` fills the cores with chains first, then with threads. ``kernel
    = "auto"`` takes the C++ kernel if it compiles and agrees with the network in PyTorch, else pure
    Stan. ``integrate = "auto"`` integrates out what a gaussian response's predictor is linear in,
    given the rest: output weights that move by themselves and coefficients of other terms. It draws
    them exactly afterwards (``model/integral.py``); ``"none"`` samples everything.

    ``backend`` is what does the work, training and studies included: ``local``, this machine's
    cores, or ``dask``, the workers of ``cluster``: a scheduler's address or JSON file, ``local``
    (workers on this machine; the default) or ``slurm``. ``auto`` is ``dask`` where there is a
    cluster. Neither is kept in a run, which can be completed anywhere.
    """

    method: str = "nuts"
    temperature: float = Field(default=1.0, gt=0, le=1e6)
    temper: Literal["likelihood", "subspace"] = "likelihood"
    chains: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = "auto"
    warmup: Annotated[int, Field(ge=1, le=MOST_DRAWS)] | Literal["auto"] = "auto"
    draws: Annotated[int, Field(ge=1, le=MOST_DRAWS)] | Literal["auto"] = "auto"
    adapt_delta: Annotated[float, Field(gt=0, lt=1)] | Literal["auto"] = "auto"
    max_treedepth: Annotated[int, Field(ge=1, le=30)] | Literal["auto"] = "auto"
    metric: Literal["auto", "ggn", "dense_e", "diag_e", "unit_e"] = "auto"
    starts: Literal["curve", "mode", "prior"] = "curve"
    budget: float = Field(default=10.0, gt=0, le=1e6)
    threads: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = "auto"
    kernel: Literal["auto", "cpp", "stan"] = "auto"
    integrate: Literal["auto", "none"] = "auto"
    backend: Literal["auto", "local", "dask"] = "auto"
    cluster: str | None = None
    seed: int = Field(default=1, ge=0, le=LARGEST_SEED)

    @property
    def chain_count(self) -> int:
        """The chains: those that are drawn at first where ``auto`` leaves their number open."""
        return CHAINS if self.chains == "auto" else self.chains

    @property
    def per_chain(self) -> int:
        """The draws of a chain: those of ``auto`` where nothing asks for fewer."""
        return DRAWS if self.draws == "auto" else self.draws

    @property
    def where(self) -> str | None:
        """The Dask cluster that does the work, or None for this machine's cores."""
        if self.backend == "auto":
            return self.cluster
        return (self.cluster or "local") if self.backend == "dask" else None


class ModelConfig(Section):
    """A model and how to fit it.

    ``orthogonalise`` says which coefficients get what the network says along their columns: those
    of terms whose variables are all in nn() (``auto``), ``all``, or none (``off``).
    ``orthogonalise_in`` says where: in each draw afterwards (``posterior``), or in the program,
    which then has the prior on the orthogonalised coefficient (``model``).
    ``sep``, ``decimal`` and ``encoding`` say how a table that is a text file is written; ``auto``
    is guessed from its first lines.
    """

    formula: str
    family: str = "gaussian"
    data: str | None = None
    sep: str = "auto"
    decimal: str = "auto"
    encoding: str = "auto"
    drop_missing: bool = False
    orthogonalise: Literal["off", "auto", "all"] = "auto"
    orthogonalise_in: Literal["posterior", "model"] = "posterior"
    network: NetworkConfig = NetworkConfig()
    subspace: SubspaceConfig = SubspaceConfig()
    priors: PriorConfig = PriorConfig()
    train: TrainConfig = TrainConfig()
    sample: SampleConfig = SampleConfig()

    @field_validator("family")
    @classmethod
    def _known(cls, name: str) -> str:
        return str(family(name))


def with_options(network: NetworkConfig, own: Mapping[str, Any]) -> NetworkConfig:
    """Return the section ``[network]`` with the options of one ``nn()``.

    Raises
    ------
    InputError
        As ``parse_config``.
    """
    try:
        return NetworkConfig.model_validate(network.model_dump() | dict(own))
    except ValidationError as error:
        raise InputError(f"nn(): {_first_problem(error)}") from None


def parse_config(content: Mapping[str, Any], source: str) -> ModelConfig:
    """Validate the contents of a ``model.toml``.

    Parameters
    ----------
    content : mapping
        The parsed file.
    source : str
        Where it came from, for error messages.

    Raises
    ------
    InputError
        Naming the first wrong key, what was expected and the nearest known key.

    Notes
    -----
    What the formula fixes, as ``nu`` in ``y ~ x + nn(u), nu = 4``, becomes a constant prior.
    """
    try:
        return ModelConfig.model_validate(_with_fixed_values(content))
    except ValidationError as error:
        raise InputError(f"{source}: {_first_problem(error)}") from None
    except UnicodeEncodeError as error:
        raise InputError(f"{source}: {error.object!r:.100} has half a character") from None


def _with_fixed_values(content: Mapping[str, Any]) -> Mapping[str, Any]:
    text, priors = content.get("formula"), content.get("priors", {})
    if not isinstance(text, str) or not isinstance(priors, Mapping):
        return content
    formula, values = fixed_values(text)
    constants = {name: f"constant({value})" for name, value in values.items()}
    for name, constant in constants.items():
        if priors.get(name) not in (None, constant, PriorConfig.default(name)):
            raise InputError(
                f"the formula fixes '{name}' at {values[name]}, and prior '{name}' is "
                f"'{priors[name]}'; give one of them"
            )
    return {**content, "formula": formula, "priors": {**priors, **constants}}


def with_overrides(config: ModelConfig, overrides: Mapping[str, Any]) -> ModelConfig:
    """Return the configuration with dotted keys (``"sample.chains"``) replaced.

    Raises
    ------
    InputError
        As ``parse_config``.
    """
    content = config.model_dump()
    for key, value in overrides.items():
        *path, last = key.split(".")
        section = content
        for name in path:
            section = section[name]
        section[last] = value
    return parse_config(content, "options")


def anywhere(config: ModelConfig) -> ModelConfig:
    """Return the configuration without what does the work, which is no part of what is fitted."""
    sample = config.sample.model_copy(update={"backend": "auto", "cluster": None})
    return config.model_copy(update={"sample": sample})


def config_toml(config: ModelConfig) -> str:
    """Return the text of a ``model.toml`` with every key and its value."""
    content = config.model_dump(exclude_none=True)
    lines = [_line(key, value) for key, value in content.items() if not isinstance(value, dict)]
    for section, values in content.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]", *(_line(*item) for item in values.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any) -> str:
    return f"{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for one control character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)


def _first_problem(error: ValidationError) -> str:
    detail, *others = error.errors()
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return (
            f"unknown key '{key}'.{did_you_mean(str(detail['loc'][-1]), _keys(detail['loc'][:-1]))}"
        )
    if detail["type"] == "missing":
        return f"the key '{key}' is needed, as in formula = \"y ~ x + nn(u1, u2)\""
    if isinstance(cause := detail.get("ctx", {}).get("error"), InputError):
        return f"{key}: {cause}"
    wanted, path = detail["msg"], detail["loc"][:-1]
    for other in others:
        *before, kind = other["loc"]
        if tuple(before) == path and str(kind).startswith("literal["):  # a number or 'auto'
            key = ".".join(str(part) for part in path)
            wanted = f"{wanted.split(',')[0]}, or {other['msg'].removeprefix(SHOULD_BE)}"
    given = repr(detail["input"])
    given = given if len(given) <= SHOWN else f"{given[:SHOWN]} ..."
    return f"{key}: {wanted.lower()}, got {given}"


def _keys(path: tuple[int | str, ...]) -> list[str]:
    section: Any = ModelConfig
    for name in path:
        section = section.model_fields[name].annotation
    return list(section.model_fields)
