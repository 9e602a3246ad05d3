"""The images of Dold et al. (2024), section 4.4, table 2 and figure 6, where the truth is known.

The paper predicts melanoma from a photograph and the patient's age, melanoma ~ age + nn(image). We
draw the lesions (``models/lesions/draw.py``), so that each one's probability of melanoma is known:

    eta = -0.84 + 0.04 (age - 55) + picture,    melanoma ~ Bernoulli(1 / (1 + exp(-eta)))

1000 lesions, drawn with 32 and with 128 pixels along each side, are dealt into six folds: five to
train on, the sixth to predict. All networks have convolutional layers with kernels of 3 and maxima
of 2 x 2, tanh, and two hidden layers of 16 units. The convolutional layers have 8, 16 and 32
channels, semistan's default; 128 pixels take two more layers of 32 channels, five as in the paper.

    defaults              fit_model with nothing set but the family (and, at 128, the layers):
                          convolutional layers are constants, those behind them are sampled by NUTS,
                          and the draws of three trainings are pooled
    stan                  the same with one training
    all_weights           the paper's variant: all weights in a subspace of k = 2, elliptical slice
                          sampling, phi ~ normal(0, 5) as in the paper's authors' code. A
                          likelihood takes all pictures through the network in PyTorch, so that it
                          has fewer epochs and draws than the defaults
    last_layer_laplace    the network that semistan trains for ``stan``, in the middle of its
                          curve; a normal around the mode of intercept, age and output layer, all
                          with semistan's priors, given what the network has before that layer
    ensemble              five networks in plain PyTorch, age beside the last hidden layer, stopped
                          early. Its probability is the mean of five; its intervals are those of a
                          normal with mean and variance of the five, which have no quantiles of
                          their own
    glm                   logistic regression on age alone, with a normal around its mode

Seeds are the folds' numbers, and nothing was chosen by the fold that is predicted. A likelihood of
all weights takes some 0.03 seconds at 32 pixels and 0.5 at 128, and a draw some 15 of them: four to
seven minutes for a fold, and about an hour. The latter cells come last; ``--only`` and
``--minutes`` leave them out.
"""

from __future__ import annotations

import runpy
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from scipy.special import expit, xlog1py, xlogy
from scipy.stats import gaussian_kde, mannwhitneyu
from torch import Tensor, nn
from torch.nn import functional as F

from semistan.density.features import at_features
from semistan.density.predictor import network_inputs
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.networks.conv import Convolutional
from semistan.model.networks.networks import layer_inputs
from semistan.posterior.predictive import posterior_linpred
from semistan.subspace.curve import bernstein
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import configure, new_rows, prepare
from semistan.workflow.train import train
from studies.markdown import mean_se, number, table, verdict, with_se
from studies.networks import MEMBERS, NORMAL
from studies.own import QUICK
from studies.problem import agreement
from studies.study import Cell, Options, Record, Study, main

TITLE = "The images of the paper"
GENERATOR = runpy.run_path(str(Path(__file__).parents[2] / "models" / "lesions" / "draw.py"))
AGE_EFFECT: float = GENERATOR["AGE_EFFECT"]
MARGINAL = 0.0296  # to which the coefficient of age alone tends: what 400,000 lesions give
IMAGES, QUICK_IMAGES, FOLDS, SEED = 1000, 60, 6, 1
FORMULA, COLUMNS = "melanoma ~ age + nn(image(image))", ["image", "age", "melanoma"]
CHANNELS: Mapping[int, tuple[int, ...]] = {32: (8, 16, 32), 128: (8, 16, 32, 32, 32)}
HIDDEN = (16, 16)  # semistan's default
LEVEL = 0.9  # of intervals
KEPT = 200  # draws of age's coefficient, for the picture

DEFAULTS, STAN, ALL, LAPLACE = "defaults", "stan", "all_weights", "last_layer_laplace"
ENSEMBLE, GLM = "ensemble", "glm"
VARIANTS = (STAN, ALL)
ALL_WEIGHTS: Mapping[str, Any] = {
    "network.frozen": 0,
    "subspace.k": 2,
    "priors.phi": "normal(0, 5)",
    "sample.method": "elliptical-slice",
    "sample.warmup": 50,
    "sample.draws": 100,
    "train.epochs": 600,
}
QUICK_ALL = {**QUICK, "train.epochs": 60, "sample.warmup": 10, "sample.draws": 30}
CURVE = 8  # dimensions of the curve that semistan trains where k is left open
SD, SD_W = 2.5, 2.0  # semistan's priors of standardised columns, and of weights over sqrt(inputs)
DRAWS = 4000  # from normal approximations
RATE, BATCH, EPOCHS, PATIENCE = 1e-3, 64, 300, 50  # of the ensemble's training
QUICK_EPOCHS = 60
VALIDATION = 0.1

PUBLISHED = {ALL: (0.841, -0.072), LAPLACE: (0.795, -0.076)}  # table 2: AUC and LPPD
LEAST_HELD, MOST_MINUTES = 5, 10  # targets: of the folds, and of ``stan`` at 32 pixels
WHAT = f"""\
Section 4.4 of Dold et al. (2024) predicts melanoma from a photograph of the lesion and the
patient's age. Here the lesions are drawn, so that it is known what should be found: the logit
grows by 0.04 with each year of age, and by what asymmetry, border and colours of the picture add
(`models/lesions/draw.py`; 1000 lesions, prevalence 0.35). They are dealt into six folds, and each
contender trains on five and predicts the sixth. `defaults` is `semistan.fit` with its defaults:
convolutional layers are trained and then constants, NUTS samples the layers behind them, and the
draws of three trainings are pooled. `stan` is one training (`--subspaces 1`).
`all_weights` is the paper's variant: all weights, those of the convolutions too, in a subspace of
k = 2 around the trained ones, by elliptical slice sampling (phi ~ normal(0, 5), the width in the
authors' code, for the paper names none; 600 epochs, 4 chains of {ALL_WEIGHTS["sample.draws"]}
draws, where the paper has 10 of 800). `last_layer_laplace` is Laplace's approximation of intercept,
age and output layer of the network that `stan` has, with the same priors. `ensemble` is five
networks in plain PyTorch, `glm` a logistic regression on age alone. All have the same layers.
That there are three was chosen by other lesions
([images](images.md#what-the-intervals-leave-out)), nothing by the fold that is predicted.

AUC and LPPD (mean log predictive density, larger is better) are of the fold's responses; RMSE is
of the predicted against the true probability, "holds eta" the share of 90% intervals that hold
the true logit, and so the true probability. The coefficient of age is given with its standard
deviation within a fold and the folds whose 90% interval holds 0.04. `glm` estimates another
coefficient: without the picture, that of age tends to {MARGINAL:.3f}. Figures are means over folds
with standard errors; Rhat is the largest and ESS the least, of age's coefficient and of eta at 50
lesions, within each training. `truth` knows each lesion's probability: no contender can be expected
to do better."""
PAIRED = """\
Differences to `last_layer_laplace` on the same folds, and those of the paper's table 2. The
paper's levels do not compare: its lesions are others, and far fewer of them melanomas."""
PICTURE = f"""\
In the picture, as in the paper's figure 6: the posterior density of age's coefficient, draws of
all folds pooled. The line is the truth {AGE_EFFECT}, the dotted line what age alone tends to. The
ensemble has no posterior: its curve is the normal with mean and variance of the five networks."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a contender is given.

    Attributes
    ----------
    training, test : pandas.DataFrame
        The columns ``image`` (arrays of 3 x size x size numbers from 0 to 255), ``age``,
        ``melanoma``. What the test has in the last is for the score alone.
    truth : array, shape (N,)
        The true eta of the test's rows, for the score alone.
    size : int
        Pixels along each side.
    seed : int
        Of whatever the contender draws.
    quick : bool
        Whether to train and sample briefly: figures mean nothing then.
    """

    training: pd.DataFrame
    test: pd.DataFrame
    truth: Array
    size: int
    seed: int
    quick: bool


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a contender gives back.

    Attributes
    ----------
    p : array, shape (N,)
        Predictive probability of melanoma of the test's rows.
    eta : array, shape (S, N)
        Draws of the linear predictor, for intervals.
    age : array, shape (S,)
        Draws of the coefficient of age, per year.
    train_seconds, sample_seconds : float
        Of what it is made of; 0 where there is no such thing.
    notes : mapping
        What else is worth a record, JSON values by name.
    """

    p: Array
    eta: Array
    age: Array
    train_seconds: float
    sample_seconds: float
    notes: Mapping[str, Any] = field(default_factory=dict)


def cells(options: Options) -> list[Cell]:
    """Return the cells: size after size and fold after fold, and at the end what takes longest."""
    if options.quick:
        return [_cell(32, 1, name, quick=True) for name in CONTENDERS]
    every = [
        _cell(size, fold, name)
        for size in CHANNELS
        for fold in range(1, FOLDS + 1)
        for name in CONTENDERS
    ]
    return sorted(every, key=lambda cell: cell.key["size"] > 32 and cell.key["contender"] == ALL)


def _cell(size: int, fold: int, contender: str, *, quick: bool = False) -> Cell:
    key = {"size": size, "fold": fold, "contender": contender}
    return Cell(key, partial(measure, size, fold, contender, quick))


def measure(size: int, fold: int, contender: str, quick: bool) -> Record:
    """Let a contender learn from five folds, and score what it says of the sixth."""
    task = dealt(size, fold, quick)
    started = time.perf_counter()
    found = CONTENDERS[contender](task)
    seconds = time.perf_counter() - started
    y, true_p = task.test["melanoma"].to_numpy(), expit(task.truth)
    lower, upper = _bounds(found.eta)
    low, high = _bounds(found.age)
    every = max(1, len(found.age) // KEPT)
    return {
        "auc": auc(y, found.p),
        "lppd": lppd(y, found.p),
        "auc_of_truth": auc(y, true_p),
        "lppd_of_truth": lppd(y, true_p),
        "rmse": float(np.sqrt(np.mean((found.p - true_p) ** 2))),
        "covered": float(np.mean((lower <= task.truth) & (task.truth <= upper))),
        "width": float(np.mean(upper - lower)),
        "age_mean": float(found.age.mean()),
        "age_sd": float(found.age.std(ddof=1)),
        "age_low": float(low),
        "age_high": float(high),
        "age_held": bool(low <= AGE_EFFECT <= high),
        "n": len(task.training),
        "n_test": len(task.test),
        "fit_seconds": seconds,
        "train_seconds": found.train_seconds,
        "sample_seconds": found.sample_seconds,
        **found.notes,
        "age": found.age[::every].round(6).tolist(),
    }


def dealt(size: int, fold: int, quick: bool) -> Task:
    """Return one fold's rows and those of the others."""
    lesions = drawn(QUICK_IMAGES if quick else IMAGES, size)
    order = np.random.default_rng(SEED).permutation(len(lesions))
    fold_of = np.empty(len(lesions), dtype=int)
    fold_of[order] = np.arange(len(lesions)) % FOLDS + 1
    test = lesions[fold_of == fold].reset_index(drop=True)
    training = lesions[fold_of != fold].reset_index(drop=True)
    return Task(training[COLUMNS], test[COLUMNS], test["eta"].to_numpy(), size, fold, quick)


@cache
def drawn(images: int, size: int) -> pd.DataFrame:
    """Draw the lesions, with their pictures as arrays, channel by channel."""
    lesions, pictures = GENERATOR["lesions"](images, size, SEED)
    return lesions.assign(image=list(np.moveaxis(pictures, -1, 1)))


def auc(y: Array, p: Array) -> float:
    """Return the share of pairs of a 1 and a 0 that p puts in order; ties count half."""
    ones, zeros = p[y == 1], p[y == 0]
    return float(mannwhitneyu(ones, zeros).statistic / (len(ones) * len(zeros)))


def lppd(y: Array, p: Array) -> float:
    """Return the mean log predictive density."""
    return float(np.mean(xlogy(y, p) + xlog1py(1 - y, -p)))


def _bounds(draws: Array) -> Array:
    """Return the bounds of the central interval of draws (S, ...)."""
    return np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)


def own(settings: Mapping[str, Any], quick: Mapping[str, Any], task: Task) -> Found:
    """Fit with some keys set, and others if it is to be quick, and predict."""
    keys = overrides(task, settings, quick)
    with tempfile.TemporaryDirectory() as folder:
        fit = fit_model(FORMULA, task.training, out=Path(folder) / "run", overrides=keys)
        posterior, first = fit.posterior, fit.posterior.members[0]
        rows = new_rows(first.bundle, task.test)
        eta = posterior_linpred(posterior, rows)
    age, seconds = posterior.coefficients["b_age"].ravel(), fit.run.manifest.seconds
    subspaces = len(posterior.members)
    rhat, ess = agreement(eta, subspaces, first.chains)
    age_rhat, age_ess = agreement(age[:, None], subspaces, first.chains)
    return Found(
        p=expit(eta).mean(axis=0),
        eta=eta,
        age=age,
        train_seconds=seconds["train"],
        sample_seconds=seconds.get("starts", 0.0) + seconds["sample"],  # else in training
        notes={
            "rhat": rhat,
            "ess": ess,
            "age_rhat": age_rhat,
            "age_ess": age_ess,
            "k": first.bundle.subspace.k,
            "d": first.bundle.network.d,
            "passed": fit.summary.passed,
            "verdict": fit.summary.verdict(),
        },
    )


def overrides(task: Task, settings: Mapping[str, Any], quick: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of semistan's configuration that are set."""
    return {
        "family": "bernoulli",
        "network.channels": CHANNELS[task.size],
        "train.seed": task.seed,
        "sample.seed": task.seed,
        **settings,
        **(quick if task.quick else {}),
    }


def last_layer_laplace(task: Task) -> Found:
    """Train semistan's network, and draw intercept, age and output layer from a normal."""
    started = time.perf_counter()
    config = configure(FORMULA, overrides(task, {"subspace.k": CURVE}, QUICK))
    bundle = train(prepare(config, task.training))
    after = time.perf_counter()
    design, new = (
        np.column_stack([_age_alone(rows, task), before_output(bundle, rows)])
        for rows in (task.training, task.test)
    )
    units = design.shape[1] - 2
    sd = np.array([SD, SD, *[SD_W / np.sqrt(units)] * units])
    return _found(task, laplace(design, sd, task), new, (started, after))


def before_output(bundle: Bundle, frame: pd.DataFrame) -> Array:
    """Return what the network in the middle of the curve has before its output layer, (N, H)."""
    heads, rows = at_features(bundle, new_rows(bundle, frame))
    points = bundle.trained.control_points
    w = bernstein(np.array(0.5), len(points) - 1) @ points
    with torch.no_grad():
        inputs = network_inputs(heads.units, rows.U)
        (layers,) = layer_inputs(heads.network, torch.tensor(w), inputs)
    return layers[-1].numpy()


def glm(task: Task) -> Found:
    """Regress on age alone."""
    started = time.perf_counter()
    design, new = (_age_alone(rows, task) for rows in (task.training, task.test))
    return _found(task, laplace(design, np.array([SD, SD]), task), new, (started, started))


def laplace(design: Array, sd: Array, task: Task) -> Array:
    """Draw the coefficients (S, P) of a logistic regression from a normal around their mode.

    Parameters
    ----------
    design : array, shape (N, P)
        Columns of the training rows.
    sd : array, shape (P,)
        Standard deviations of the coefficients' normal prior around 0.
    task : Task
        Response and seed.
    """
    y = task.training["melanoma"].to_numpy()
    sign = 2 * y - 1

    def loss(beta: Array) -> float:
        return float(np.logaddexp(0, -sign * (design @ beta)).sum() + ((beta / sd) ** 2).sum() / 2)

    def gradient(beta: Array) -> Array:
        return design.T @ (expit(design @ beta) - y) + beta / sd**2

    def curvature(beta: Array) -> Array:
        p = expit(design @ beta)
        return design.T @ (design * (p * (1 - p))[:, None]) + np.diag(sd**-2)

    mode = minimize(loss, np.zeros(len(sd)), jac=gradient, hess=curvature, method="trust-exact").x
    covariance = np.linalg.inv(curvature(mode))
    return np.random.default_rng(task.seed).multivariate_normal(mode, covariance, size=DRAWS)


def _age_alone(frame: pd.DataFrame, task: Task) -> Array:
    """Return a column of ones and age, standardised by the training rows."""
    age = task.training["age"]
    return np.column_stack([np.ones(len(frame)), (frame["age"] - age.mean()) / age.std()])


def _found(task: Task, beta: Array, new: Array, times: tuple[float, float]) -> Found:
    """Predict by coefficients (S, P), of which the second is that of age."""
    started, after = times
    eta = beta @ new.T
    age = beta[:, 1] / task.training["age"].std()
    ended = time.perf_counter()
    return Found(expit(eta).mean(axis=0), eta, age, after - started, ended - after)


class Network(nn.Module):
    """The same layers in plain PyTorch, with age beside the last hidden layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for m, n in pairwise((3, *CHANNELS[size])):
            layers += [nn.Conv2d(m, n, 3), nn.Tanh(), nn.MaxPool2d(2)]
        layers.append(nn.Flatten())
        inputs = Convolutional((3, size, size), CHANNELS[size], HIDDEN).top.n_inputs
        for m, n in pairwise((inputs, *HIDDEN)):
            layers += [nn.Linear(m, n), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(HIDDEN[-1] + 1, 1)

    def forward(self, images: Tensor, age: Tensor) -> Tensor:
        """Return eta (N,)."""
        return self.last(torch.cat([self.layers(images), age[:, None]], dim=1))[:, 0]


def ensemble(task: Task) -> Found:
    """Train several networks and mix them."""
    started = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    seeds = range(100 * task.seed, 100 * task.seed + MEMBERS)
    members = [trained(task, seed, device) for seed in seeds]
    with torch.no_grad():
        new = _tensors(task.test, task, device)
        eta = np.stack([member(*new).cpu().numpy() for member in members]).astype(float)
    weights = np.array([member.last.weight[0, -1].item() for member in members])
    return Found(
        p=expit(eta).mean(axis=0),
        eta=_normal(eta),
        age=_normal(weights[:, None] / task.training["age"].std())[:, 0],
        train_seconds=time.perf_counter() - started,
        sample_seconds=0.0,
    )


def trained(task: Task, seed: int, device: str) -> Network:
    """Train a network; return its state of least validation loss."""
    torch.manual_seed(seed)
    network = Network(task.size).to(device)
    images, age = _tensors(task.training, task, device)
    y = torch.tensor(task.training["melanoma"].to_numpy(), dtype=torch.float32, device=device)
    held = round(VALIDATION * len(y))
    validation, training = torch.randperm(len(y)).split([held, len(y) - held])

    def loss(rows: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(network(images[rows], age[rows]), y[rows])

    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    best, least, kept = deepcopy(network.state_dict()), np.inf, 0
    for epoch in range(QUICK_EPOCHS if task.quick else EPOCHS):
        for batch in training[torch.randperm(len(training))].split(BATCH):
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()
        with torch.no_grad():
            now = loss(validation).item()
        if now < least:
            best, least, kept = deepcopy(network.state_dict()), now, epoch
        if epoch - kept > PATIENCE:
            break
    network.load_state_dict(best)
    return network


def _tensors(frame: pd.DataFrame, task: Task, device: str) -> tuple[Tensor, Tensor]:
    """Return pictures and age, standardised by the training rows."""
    pixels = np.stack(task.training["image"].to_list())
    mean, sd = (of(pixels, axis=(0, 2, 3))[:, None, None] for of in (np.mean, np.std))
    images = (np.stack(frame["image"].to_list()) - mean) / sd
    age = _age_alone(frame, task)[:, 1]
    return tuple(
        torch.tensor(values, dtype=torch.float32, device=device) for values in (images, age)
    )


def _normal(each: Array) -> Array:
    """Return "draws" (S, ...) of the normal with mean and variance of some values (M, ...)."""
    return each.mean(axis=0) + each.std(axis=0, ddof=1) * NORMAL[:, None]


CONTENDERS: Mapping[str, Callable[[Task], Found]] = {
    DEFAULTS: partial(own, {}, QUICK),
    STAN: partial(own, {"subspace.subspaces": 1}, QUICK),
    ALL: partial(own, ALL_WEIGHTS, QUICK_ALL),
    LAPLACE: last_layer_laplace,
    ENSEMBLE: ensemble,
    GLM: glm,
}


def section(records: Sequence[Record]) -> str:
    """Return the section: for each size the table, differences to Laplace, and the targets."""
    scored = [item for item in records if "lppd" in item]
    parts = [part for size in CHANNELS for part in _size(scored, size)]
    return "\n\n".join([WHAT, *parts, PICTURE])


def _size(scored: Sequence[Record], size: int) -> list[str]:
    by_contender = _by_contender(scored, size)
    if not by_contender:
        return []
    header = [
        "contender", "folds", "AUC", "LPPD", "RMSE of P", "holds eta", "age", "sd of age",
        "holds 0.04", "train s", "sample s", "Rhat", "ESS",
    ]  # fmt: skip
    rows = [_row(name, own_records) for name, own_records in by_contender.items()]
    differences = [
        _paired_row(name, by_contender)
        for name in by_contender
        if name != LAPLACE and LAPLACE in by_contender
    ]
    paired = ["less last_layer_laplace", "AUC", "paper", "LPPD", "paper"]
    return [
        f"**{size} x {size} pixels**, {' - '.join(map(str, CHANNELS[size]))} channels:",
        table(header, [*rows, _truth(by_contender)]),
        *([PAIRED, table(paired, differences)] if differences else []),
        "\n".join(_targets(by_contender, size)),
    ]


def _by_contender(scored: Sequence[Record], size: int) -> dict[str, list[Record]]:
    found = {
        name: [i for i in scored if (i["key"]["size"], i["key"]["contender"]) == (size, name)]
        for name in CONTENDERS
    }
    return {name: own_records for name, own_records in found.items() if own_records}


def _row(name: str, records: Sequence[Record]) -> list[str]:
    seconds = [np.mean([i[key] for i in records]) for key in ("train_seconds", "sample_seconds")]
    rhat = [i[key] for i in records for key in ("rhat", "age_rhat") if key in i]
    ess = [i[key] for i in records for key in ("ess", "age_ess") if key in i]
    return [
        name,
        str(len(records)),
        *(_over_folds(records, key, 3) for key in ("auc", "lppd", "rmse")),
        _over_folds(records, "covered", 2),
        _over_folds(records, "age_mean", 4),
        number(float(np.mean([i["age_sd"] for i in records])), 4),
        f"{_held(records)} of {len(records)}",
        *(number(value, 0) for value in seconds),
        number(max(rhat, default=None)),
        number(min(ess, default=None), 0),
    ]


def _truth(by_contender: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return the line of who knows each lesion's probability, on the contender with most folds."""
    records = max(by_contender.values(), key=len)
    scores = [_over_folds(records, f"{key}_of_truth", 3) for key in ("auc", "lppd")]
    return ["truth", str(len(records)), *scores, *["-"] * 9]


def _paired_row(name: str, by_contender: Mapping[str, Sequence[Record]]) -> list[str]:
    cells_ = [name]
    for place, figure in enumerate(("auc", "lppd")):
        paper = PUBLISHED[name][place] - PUBLISHED[LAPLACE][place] if name in PUBLISHED else None
        own_difference = mean_se(_differences(by_contender, name, figure))
        cells_ += [with_se(*own_difference, 3), number(paper, 3)]
    return cells_


def _targets(by_contender: Mapping[str, Sequence[Record]], size: int) -> list[str]:
    """Say which targets are met, where all folds have been run."""
    lines = []
    for name in VARIANTS:
        for figure in ("auc", "lppd"):
            differences = _differences(by_contender, name, figure)
            value = float(np.mean(differences)) if len(differences) == FOLDS else np.nan
            text = f"{figure.upper()} of {name} above that of {LAPLACE}, by"
            lines.append(verdict(text, value, value > 0, 3))
        records = by_contender.get(name, [])
        held = float(_held(records)) if len(records) == FOLDS else np.nan
        text = f"age's 90% interval of {name} holds {AGE_EFFECT} in at least {LEAST_HELD} folds"
        lines.append(verdict(text, held, held >= LEAST_HELD, 0))
    if size == 32:
        records = by_contender.get(STAN, [])
        minutes = max((i["fit_seconds"] for i in records), default=np.nan) / 60
        text = f"longest fit and prediction of {STAN} within {MOST_MINUTES} minutes"
        lines.append(verdict(text, minutes, minutes <= MOST_MINUTES, 1))
    return lines


def _differences(
    by_contender: Mapping[str, Sequence[Record]], name: str, figure: str
) -> list[float]:
    """Return a figure less Laplace's, of the folds that have both."""
    ours, theirs = (
        {item["key"]["fold"]: item[figure] for item in by_contender.get(each, [])}
        for each in (name, LAPLACE)
    )
    return [ours[fold] - theirs[fold] for fold in ours if fold in theirs]


def _held(records: Sequence[Record]) -> int:
    return sum(item["age_held"] for item in records)


def _over_folds(records: Sequence[Record], figure: str, digits: int) -> str:
    return with_se(*mean_se([item[figure] for item in records]), digits)


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw the density of age's coefficient by contender, a panel for each size."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scored = [item for item in records if "age" in item]
    sizes = [size for size in CHANNELS if _by_contender(scored, size)] or [32]
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(6 * len(sizes), 4), sharex=True, squeeze=False
    )
    for axis, size in zip(axes[0], sizes, strict=True):
        for name, own_records in _by_contender(scored, size).items():
            _density(axis, name, [item["age"] for item in own_records])
        axis.axvline(AGE_EFFECT, color="k", lw=0.8)
        axis.axvline(MARGINAL, color="k", lw=0.8, ls=":")
        axis.set(title=f"{size} x {size} pixels", xlabel="coefficient of age", yticks=[])
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _density(axis: Any, name: str, folds: Sequence[Sequence[float]]) -> None:
    draws = np.concatenate([np.asarray(own_draws) for own_draws in folds])
    grid = np.linspace(-0.02, 0.1, 400)
    axis.plot(grid, gaussian_kde(draws)(grid), label=name, color=f"C{list(CONTENDERS).index(name)}")


STUDY = Study("images", TITLE, cells, section, draw)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(STUDY, __doc__ or "")
