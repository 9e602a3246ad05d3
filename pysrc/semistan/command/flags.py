"""The keys of ``model.toml`` as flags of the command line: one table, one line per key."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from semistan.errors import InputError
from semistan.infer.methods import names_text
from semistan.model.construction import CONSTRUCTIONS
from semistan.model.networks.activations import ACTIVATIONS
from semistan.posterior.options import GROUPS_TEXT, EffectOptions, PredictOptions

MODEL, TRAINING, SAMPLING, WHERE = "Model", "Training", "Sampling", "Where"
OPTIONS = "Options"  # where Typer shows the options that have no panel
USED_FIRST = {  # what --help shows of the keys of model.toml; --help-all shows all
    "data", "family", "hidden", "k", "prior", "drop_missing", "method", "chains", "budget",
    "warmup", "draws", "adapt_delta", "seed",
}  # fmt: skip


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(
            f"--hidden takes numbers of units as '16,16', and --channels of channels, got '{text}'"
        ) from None


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


def _real_or_auto(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # refused where options are read, unless it is auto


def _held(pairs: list[str]) -> dict[str, str]:
    """Read ``name=value`` pairs."""
    held = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"--at takes a column and its value as g=b, got '{pair}'")
        held[name.strip()] = value.strip()
    return held


class _Default(str):
    """The default of a key, looked up when help shows it: reading it takes a while."""

    def __format__(self, _: str) -> str:
        from semistan.model.config import ModelConfig

        value: Any = ModelConfig(formula="")
        for name in self.split("."):
            value = getattr(value, name)
        if isinstance(value, bool):
            return "yes" if value else "no"
        written = ",".join(map(str, value)) if isinstance(value, tuple) else value
        return "none" if written is None else str(written)


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its parameter's name, the keys of the configuration that it sets, its help.

    A flag without keys of its own reads them from its value. One without a default changes nothing
    unless it is given.
    """

    name: str
    keys: tuple[str, ...]
    type: Any
    help: str
    panel: str
    read: Callable[[Any], Any] = lambda value: value
    default: Any = None

    def settings(self, value: Any) -> dict[str, Any]:
        """Return the keys and values that a given flag sets."""
        found = self.read(value)
        return dict.fromkeys(self.keys, found) if self.keys else dict(found)

    @property
    def hidden(self) -> bool:
        """Whether ``--help`` leaves it to ``--help-all``."""
        return self.panel != OPTIONS and self.name not in USED_FIRST

    @property
    def parameter(self) -> inspect.Parameter:
        """What Typer reads."""
        dashed = self.name.replace("_", "-")
        switch = self.type is bool and self.default is None
        names = [f"--{dashed}/--no-{dashed}"] if switch else [f"--{dashed}"]
        in_config = self.keys and self.panel != OPTIONS
        shown = _Default(self.keys[0]) if in_config else True
        option = typer.Option(
            *names, help=self.help, rich_help_panel=self.panel, show_default=shown,
            hidden=self.hidden,
        )  # fmt: skip
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[self.type | None, option],
        )


MODEL_FLAGS = (
    Flag("data", ("data",), str,
         "Table: CSV or other text, also packed (.gz), Parquet, Feather, Stata (.dta), SPSS "
         "(.sav) or R's .rds; - is text from standard input.", MODEL),
    Flag("sep", ("sep",), str,
         "What separates the fields of a text file: one character, tab or blank; auto guesses.",
         MODEL),
    Flag("decimal", ("decimal",), str, "Its decimal sign, '.' or ','; auto guesses.", MODEL),
    Flag("encoding", ("encoding",), str,
         "Its encoding, as utf-8, utf-16 or cp1252; auto guesses.", MODEL),
    Flag("family", ("family",), str,
         "gaussian, student, skew_normal, asym_laplace, von_mises, lognormal, gamma, weibull, "
         "exponential, cox, beta, zero_one_inflated_beta, poisson, negbinomial, "
         "zero_inflated_poisson, zero_inflated_negbinomial, hurdle_poisson, hurdle_negbinomial, "
         "hurdle_gamma, hurdle_lognormal, bernoulli, binomial, beta_binomial, cumulative, sratio, "
         "cratio, acat, categorical, multinomial or dirichlet; with another link as "
         "'bernoulli(probit)'.",
         MODEL),
    Flag("hidden", ("network.hidden",), str, "Units of the hidden layers, as 16,16; '' for none.",
         MODEL, _widths),
    Flag("activation", ("network.activation",), str,
         f"{_either(ACTIVATIONS)}.", MODEL),
    Flag("skip", ("network.skip",), bool,
         "Add a hidden layer's input to its output (a residual connection), where both have "
         "equally many units.", MODEL),
    Flag("norm", ("network.norm",), bool,
         "Normalise the units of each hidden layer for the layer behind it, row by row.", MODEL),
    Flag("kind", ("network.kind",), str,
         "mlp, conv, or auto: convolutional for images without a trunk, fully connected otherwise.",
         MODEL),
    Flag("channels", ("network.channels",), str,
         "Channels of the convolutional layers, as 8,16,32.", MODEL, _widths),
    Flag("kernel_size", ("network.kernel",), int,
         "Side of the convolutional layers' kernels, in pixels.", MODEL),
    Flag("pooling", ("network.pooling",), int,
         "Side of the squares of which they take the maximum, in pixels.", MODEL),
    Flag("frozen", ("network.frozen",), str,
         "Leading layers that are trained and then constants; auto: all convolutional ones.",
         MODEL, _number_or_auto),
    Flag("construction", ("subspace.construction",), str,
         f"How the subspace is found: {_either(CONSTRUCTIONS)}.", MODEL),
    Flag("k", ("subspace.k",), str,
         "Dimension of each network's subspace, but where nn(u, k=12) gives it; auto: all "
         "weights if the budget allows that, else the 2 of a curve, or 8 if not completed.",
         MODEL, _number_or_auto),
    Flag("curve", ("subspace.curve",), int,
         "Dimensions of the Bézier curve; the others of the k are those of largest variance.",
         MODEL),
    Flag("select", ("subspace.select",), str,
         "Weights of a subnetwork: variance, magnitude, swag or last_layer.", MODEL),
    Flag("curvature", ("subspace.curvature",), str,
         "Of low_rank_laplace: diagonal or kronecker.", MODEL),
    Flag("free", ("subspace.free",), str,
         "What also moves by itself: none, the output bias, or the whole output layer. auto: the "
         "bias beside groups and Gaussian processes; else none.", MODEL),
    Flag("snapshots", ("subspace.snapshots",), int,
         "Last epochs that pca, random and swag average.", MODEL),
    Flag("subspaces", ("subspace.subspaces",), str,
         "Subspaces, each from a training of its own; their posteriors are pooled. auto: three "
         "where --k auto becomes a curve's or layers are constants, five where both; else one.",
         MODEL, _number_or_auto),
    Flag("completion", ("subspace.completion",), str,
         "Of the weights outside the subspace: auto, their normal approximation, or none.", MODEL),
    Flag("weights", ("subspace.weights",), str,
         "Of the subspaces' posteriors: equal or stacking.", MODEL),
    Flag("prior_b", ("priors.b",), str,
         "Prior on the mean's coefficients, as 'normal(0, 2.5)'; those of another predictor have "
         "their own, as --prior b_zi='normal(0, 1)'.", MODEL),
    Flag("prior_w", ("priors.w",), str,
         "Prior on the network's weights, over sqrt(inputs of the layer).", MODEL),
    Flag("prior_phi", ("priors.phi",), str,
         "Prior on subspace coordinates; auto: as wide as the control points spread.", MODEL),
    Flag("prior_sigma", ("priors.sigma",), str, "Prior on the residual sd.", MODEL),
    Flag("prior", (), list[str],
         "Prior on one parameter, as b_age='student_t(3, 0, 2.5)', or on all of a class, as "
         "sds='normal(0, 1)'; of coefficients with bounds, as b_age='normal(0, 1), lb=0'; "
         "repeatable.", MODEL, _priors),
    Flag("autoscale", ("priors.autoscale",), bool,
         "Multiply priors on b and sigma by the units of y and x.", MODEL),
    Flag("drop_missing", ("drop_missing",), bool,
         "Drop rows with missing or infinite values, and name them.", MODEL),
    Flag("orthogonalise", ("orthogonalise",), str,
         "Coefficients that get what the network says along their columns: auto (where nn() sees "
         "all that the term uses), all or off.", MODEL),
    Flag("orthogonalise_in", ("orthogonalise_in",), str,
         "posterior (in each draw, reported as well) or model (sampled, with the prior on them).",
         MODEL),
)  # fmt: skip
TRAIN_FLAGS = (
    Flag("epochs", ("train.epochs",), int, "Training epochs.", TRAINING),
    Flag("steps", ("train.steps",), str,
         "Most optimiser steps; large tables have fewer epochs. auto: as many as there are rows, "
         "from 20,000 to 60,000.", TRAINING, _number_or_auto),
    Flag("learning_rate", ("train.learning_rate",), str,
         "Adam's initial rate; auto: 0.005, in batches of a large table 0.01.",
         TRAINING, _real_or_auto),
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
    Flag("chains", ("sample.chains",), str,
         "Markov chains; auto: 4, and up to 12 shorter ones where all weights move and the chains "
         "stay in different modes; 2 in each of several subspaces where the budget asks for it.",
         SAMPLING, _number_or_auto),
    Flag("budget", ("sample.budget",), float,
         "Minutes of sampling that k = auto aims to stay below.", SAMPLING),
    Flag("warmup", ("sample.warmup",), str,
         "Warm-up iterations of each chain; auto: 100 or 150 if a mode's metric is kept, else "
         "300 to 1000; 500 with the diagonal metric of many dimensions, and beside more than 75 "
         "coefficients if the posterior is not near normal.",
         SAMPLING, _number_or_auto),
    Flag("draws", ("sample.draws",), str,
         "Draws of each chain after warm-up; auto: 1000, 500 where several subspaces are pooled, "
         "and down to 600, or 250 of these, where the budget asks for it.",
         SAMPLING, _number_or_auto),
    Flag("adapt_delta", ("sample.adapt_delta",), str,
         "Target acceptance rate; auto: 0.95; 0.98 in the span of a curve, 0.9 if the posterior is "
         "nearly normal there, or where the output "
         "layer is integrated out of more than 75 dimensions and no other term or scale stays "
         "sampled. With auto, chains whose transitions diverge are drawn once more, with half "
         "the distance to 1, where the budget allows it.",
         SAMPLING, _real_or_auto),
    Flag("max_treedepth", ("sample.max_treedepth",), str,
         "Maximum tree depth; auto: 10; where --adapt-delta auto is 0.9, 7 to 10 by the rows.",
         SAMPLING, _number_or_auto),
    Flag("metric", ("sample.metric",), str,
         "ggn (Gauss-Newton at a mode in the subspace), dense_e, diag_e or unit_e; auto: ggn in "
         "up to 75 dimensions, else diag_e.", SAMPLING),
    Flag("starts", ("sample.starts",), str,
         "Where chains start: curve (on the trained curve, or around the modes that are found from "
         "there), mode (at these) or prior (at draws from it).", SAMPLING),
    Flag("threads", ("sample.threads",), str,
         "Threads within a chain; auto shares the cores, chains first.", SAMPLING,
         _number_or_auto),
    Flag("kernel", ("sample.kernel",), str, "auto, cpp (C++, the fast one) or stan (pure Stan).",
         SAMPLING),
    Flag("integrate", ("sample.integrate",), str,
         "auto (integrate out what a gaussian predictor is linear in, output weights that move by "
         "themselves and coefficients of other terms, and draw it exactly) or none.",
         SAMPLING),
)  # fmt: skip
WHERE_FLAGS = (
    Flag("backend", ("sample.backend",), str,
         "What does the work: local (this machine's cores) or dask; auto: dask where there is a "
         "cluster.", WHERE),
    Flag("cluster", ("sample.cluster",), str,
         "The Dask cluster: its scheduler's address (tcp://...) or JSON file, local or slurm.",
         WHERE),
)  # fmt: skip
SEED_FLAG = Flag(
    "seed", ("train.seed", "sample.seed"), int, "Seed of training and sampling.", SAMPLING
)
FIT_FLAGS = (*MODEL_FLAGS, *TRAIN_FLAGS, *SAMPLE_FLAGS, SEED_FLAG, *WHERE_FLAGS)


def _of(defaults: PredictOptions | EffectOptions, name: str, kind: Any, text: str) -> Flag:
    """Return the flag of an option, with its default."""
    return Flag(name, (name,), kind, text, OPTIONS, default=getattr(defaults, name))


_PREDICT, _EFFECT = PredictOptions(), EffectOptions()
PREDICT_FLAGS = (
    _of(_PREDICT, "kind", str,
        "epred (mean, or probabilities of categories; the default), linpred (linear predictor) or "
        "predict."),
    _of(_PREDICT, "part", str,
        "Of linpred: all, structured (x' theta, orthogonalised), nn (centred) or penalised "
        "(smooths and groups)."),
    _of(_PREDICT, "dpar", str,
        "A parameter instead, as sigma: its value (epred) or predictor."),
    _of(_PREDICT, "interval", float, "Probability of the interval."),
    _of(_PREDICT, "seed", int, "Seed of everything that is drawn here."),
    _of(_PREDICT, "engine", str, "torch, or onnx (predictor.onnx alone)."),
    _of(_PREDICT, "prior", bool, "Predict from the priors; needs no chains."),
    _of(_PREDICT, "drop_missing", bool, "Leave out rows with missing values."),
    _of(_PREDICT, "allow_new_levels", bool,
        "Draw the effects of a group's new levels from all levels'."),
    _of(_PREDICT, "groups", str, GROUPS_TEXT),
)  # fmt: skip
EFFECT_FLAGS = (
    _of(_EFFECT, "kind", str, "pd (partial dependence) or conditional (others held)."),
    Flag("at", ("at",), list[str],
         "Where a conditional effect holds a column, as g=b; repeatable.", OPTIONS, _held),
    _of(_EFFECT, "scale", str, "response (the mean) or linpred."),
    _of(_EFFECT, "resolution", int, "Points of a numeric column; 25, or 15 for two columns."),
    _of(_EFFECT, "rows", int, "Most rows over which pd is averaged."),
    _of(_EFFECT, "curves", int, "Individual curves in the picture of a pd."),
    _of(_EFFECT, "category", str,
        "One category of the response, instead of all (in a picture of two columns, instead of "
        "the second)."),
    _of(_EFFECT, "seed", int, "Seed of everything that is drawn here."),
    _of(_EFFECT, "groups", str, GROUPS_TEXT),
)  # fmt: skip


TABLE_FLAGS = tuple(
    replace(flag, panel=OPTIONS, help=text)
    for flag, text in zip(
        (flag for flag in MODEL_FLAGS if flag.name in ("sep", "decimal", "encoding")),
        ("What separates the fields of --newdata: one character, tab or blank; guessed by default.",
         "Decimal sign of --newdata, '.' or ','; guessed by default.",
         "Encoding of --newdata, as utf-8, utf-16 or cp1252; guessed by default."),
        strict=True,
    )
)  # fmt: skip


def cluster_of(where: Mapping[str, Any]) -> str | None:
    """Return the cluster that given ``WHERE_FLAGS`` ask for, or None for this machine.

    Raises
    ------
    InputError
        For a backend that is not known.
    """
    from semistan.model.config import ModelConfig, with_overrides

    return with_overrides(ModelConfig(formula=""), where).sample.where


def _show_all(context: typer.Context, asked: bool) -> None:
    """Print the help with every option."""
    if not asked:
        return
    for parameter in context.command.params:
        parameter.hidden = False  # type: ignore[attr-defined]
    typer.echo(context.get_help())
    raise typer.Exit


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all", is_eager=True, callback=_show_all, help="Show every option and exit."
        ),
    ],
)


def configurable(
    *flags: Flag, into: str = "overrides"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these flags; it receives keys and values as one argument.

    Parameters
    ----------
    *flags : Flag
        The flags.
    into : str
        The argument's name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(**given: Any) -> None:
            given.pop(HELP_ALL.name, None)
            values = {flag: given.pop(flag.name) for flag in flags}
            found = {
                key: setting
                for flag, value in values.items()
                if value is not None
                for key, setting in flag.settings(value).items()
            }
            command(**{into: found}, **given)

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != into]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters = [*own, *(flag.parameter for flag in flags)]
        if any(flag.hidden for flag in flags) and all(p.name != HELP_ALL.name for p in own):
            parameters.append(HELP_ALL)
        with_flags.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_flags

    return decorate
