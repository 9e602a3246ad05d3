"""The keys of ``model.toml`` as flags of the command line: one table, one line per key."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from semistan.errors import InputError
from semistan.model.construction import CONSTRUCTIONS
from semistan.infer.methods import names_text

MODEL, TRAINING, SAMPLING = "Model", "Training", "Sampling"


def _hidden(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"--hidden takes numbers of units as '16,16', got '{text}'") from None


def _priors(texts: list[str]) -> dict[str, str]:
    """Read ``b_age=normal(0, 1)`` and the like as keys of the configuration."""
    found = {}
    for text in texts:
        name, separator, prior = (part.strip() for part in text.partition("="))
        if not separator or not name.isidentifier():
            raise InputError(
                f"--prior takes a parameter and its prior as b_age='normal(0, 1)', got '{text}'"
            )
        found[f"priors.{name}"] = prior
    return found


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _number_or_auto(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its parameter's name, the keys of the configuration that it sets, its help.

    A flag without keys of its own reads them from its value.
    """

    name: str
    keys: tuple[str, ...]
    type: Any
    help: str
    panel: str
    read: Callable[[Any], Any] = lambda value: value

    def settings(self, value: Any) -> dict[str, Any]:
        """Return the keys and values that a given flag sets."""
        found = self.read(value)
        return dict.fromkeys(self.keys, found) if self.keys else dict(found)

    @property
    def parameter(self) -> inspect.Parameter:
        """What Typer reads; a flag that is not given changes nothing."""
        dashed = self.name.replace("_", "-")
        names = [f"--{dashed}/--no-{dashed}"] if self.type is bool else [f"--{dashed}"]
        option = typer.Option(*names, help=self.help, rich_help_panel=self.panel)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[self.type | None, option],
        )


MODEL_FLAGS = (
    Flag("data", ("data",), str, "CSV file with the data.", MODEL),
    Flag("family", ("family",), str,
         "gaussian, student, lognormal, poisson, negbinomial, bernoulli, binomial, gamma, beta, "
         "cumulative or categorical; with another link as 'bernoulli(probit)'.", MODEL),
    Flag("hidden", ("network.hidden",), str, "Units of the hidden layers, as 16,16; '' for none.",
         MODEL, _hidden),
    Flag("activation", ("network.activation",), str,
         "tanh, relu, softplus, sigmoid or identity.", MODEL),
    Flag("frozen", ("network.frozen",), int, "Leading layers outside the subspace.", MODEL),
    Flag("construction", ("subspace.construction",), str,
         f"How the subspace is found: {_either(CONSTRUCTIONS)}.", MODEL),
    Flag("k", ("subspace.k",), int, "Dimension of each network's subspace.", MODEL),
    Flag("select", ("subspace.select",), str,
         "Weights of a subnetwork: variance, magnitude, swag or last_layer.", MODEL),
    Flag("curvature", ("subspace.curvature",), str,
         "Of low_rank_laplace: diagonal or kronecker.", MODEL),
    Flag("snapshots", ("subspace.snapshots",), int,
         "Last epochs that pca, random and swag average.", MODEL),
    Flag("prior_b", ("priors.b",), str, "Prior on coefficients, as 'normal(0, 2.5)'.", MODEL),
    Flag("prior_phi", ("priors.phi",), str,
         "Prior on subspace coordinates; auto: as wide as the control points spread.", MODEL),
    Flag("prior_sigma", ("priors.sigma",), str, "Prior on the residual sd.", MODEL),
    Flag("prior", (), list[str],
         "Prior on one parameter, as b_age='student_t(3, 0, 2.5)'; repeatable.", MODEL, _priors),
    Flag("autoscale", ("priors.autoscale",), bool,
         "Multiply priors on b and sigma by the units of y and x.", MODEL),
    Flag("drop_missing", ("drop_missing",), bool,
         "Drop rows with missing or infinite values, and name them.", MODEL),
    Flag("orthogonalise", ("orthogonalise",), str,
         "Coefficients that get what the network says along their columns: auto (where nn() sees "
         "all that the term uses), all or off.", MODEL),
    Flag("orthogonalise_in", ("orthogonalise_in",), str,
         "posterior (in each draw, reported besides) or model (sampled, with the prior on them).",
         MODEL),
)  # fmt: skip
TRAIN_FLAGS = (
    Flag("epochs", ("train.epochs",), int, "Training epochs.", TRAINING),
    Flag("learning_rate", ("train.learning_rate",), float, "Adam's initial rate.", TRAINING),
    Flag("batch_size", ("train.batch_size",), int, "Rows per step; 0 decides by itself.",
         TRAINING),
    Flag("validation", ("train.validation",), float, "Share of rows held out.", TRAINING),
    Flag("device", ("train.device",), str, "auto, cpu or cuda.", TRAINING),
)  # fmt: skip
SAMPLE_FLAGS = (
    Flag("method", ("sample.method",), str, f"{names_text()}.", SAMPLING),
    Flag("temperature", ("sample.temperature",), float,
         "T of a tempered posterior, in which the likelihood is taken to the power 1 / T.",
         SAMPLING),
    Flag("temper", ("sample.temper",), str,
         "likelihood (as it is) or subspace (with theta integrated out).", SAMPLING),
    Flag("chains", ("sample.chains",), int, "Markov chains.", SAMPLING),
    Flag("warmup", ("sample.warmup",), str,
         "Warm-up iterations of each chain; auto: 300 with the metric of one mode, else 1000.",
         SAMPLING, _number_or_auto),
    Flag("draws", ("sample.draws",), int, "Draws of each chain after warm-up.", SAMPLING),
    Flag("adapt_delta", ("sample.adapt_delta",), float, "Target acceptance rate.", SAMPLING),
    Flag("max_treedepth", ("sample.max_treedepth",), int, "Maximum tree depth.", SAMPLING),
    Flag("metric", ("sample.metric",), str,
         "ggn (Gauss-Newton at a mode in the subspace), dense_e, diag_e or unit_e.", SAMPLING),
    Flag("threads", ("sample.threads",), str,
         "Threads within a chain; auto shares the cores, chains first.", SAMPLING,
         _number_or_auto),
    Flag("kernel", ("sample.kernel",), str, "auto, cpp (C++, the fast one) or stan (pure Stan).",
         SAMPLING),
)  # fmt: skip
SEED_FLAG = Flag(
    "seed", ("train.seed", "sample.seed"), int, "Seed of training and sampling.", SAMPLING
)
FIT_FLAGS = (*MODEL_FLAGS, *TRAIN_FLAGS, *SAMPLE_FLAGS, SEED_FLAG)


def configurable(*flags: Flag) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these flags; it receives those that were given as ``overrides``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(**given: Any) -> None:
            values = {flag: given.pop(flag.name) for flag in flags}
            overrides = {
                key: setting
                for flag, value in values.items()
                if value is not None
                for key, setting in flag.settings(value).items()
            }
            command(overrides=overrides, **given)

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "overrides"]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters = [*own, *(flag.parameter for flag in flags)]
        with_flags.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_flags

    return decorate
