"""What else people use: each contender turns training rows into a predictive distribution.

All networks are the same: theta and the output layer side by side, trained as semistan trains a
single network (Adam with a cosine-annealed rate, a tenth of the rows held out, the state of
least validation loss), with one learnt sigma.

    linear model    statsmodels' least squares on all columns, with its prediction interval
    one network     the trained network and its sigma
    deep ensemble   five networks from different starts, mixed with equal weights
                    (Lakshminarayanan, Pritzel and Blundell, 2017)
    SWAG            a Gaussian around the average of the training path, low rank and diagonal
                    (Maddox et al., 2019, algorithm 1)
    Laplace         laplace-torch on the one network: all weights of the last layer, or a
                    subnetwork of those of largest variance (Daxberger et al., 2021); prior
                    precision and sigma by the marginal likelihood
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from semistan.model.arrays import Array
from semistan.model.config import TrainConfig
from semistan.subspace.descent import RECORDS
from tables import Split

DRAWS = 1000  # of the linear model and of SWAG's networks
MEMBERS = 5  # of a deep ensemble
RANK = 20  # of SWAG's covariance
RATES = (5e-4, 2e-3, 5e-3)  # of SWAG's path; the validation rows choose
PATH_SHARE = 10  # SWAG's path has a tenth of training's epochs, each in ten batches
HYPER_STEPS = 200  # towards Laplace's prior precision and sigma

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}

Model = TypeVar("Model", bound=nn.Module)  # with a loss of its own


@dataclass(frozen=True, slots=True, eq=False)
class Predictive:
    """Mixture with equal weights of S normals for each of N rows: mean (S, N), sd (S, N)."""

    mean: Array
    sd: Array


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A split as tensors, and how networks are to be trained.

    Attributes
    ----------
    split : Split
        The tables.
    inputs, test_inputs : torch.Tensor, shape (N, P + Q)
        Structured columns first.
    y : torch.Tensor, shape (N,)
        The training rows' response.
    hidden : tuple of int
        Units of each hidden layer.
    train : TrainConfig
        Epochs, learning rate, validation share.
    """

    split: Split
    inputs: Tensor
    test_inputs: Tensor
    y: Tensor
    hidden: tuple[int, ...]
    train: TrainConfig


def make_task(split: Split, hidden: tuple[int, ...], train: TrainConfig) -> Task:
    """Turn a split's tables into tensors."""
    columns = [*split.structured, *split.inputs]
    inputs, test_inputs, y = (
        torch.tensor(values.to_numpy(copy=True))
        for values in (split.training[columns], split.test[columns], split.training[split.response])
    )
    return Task(split, inputs, test_inputs, y, hidden, train)


class SemiStructured(nn.Module):
    """x' theta + f(u), theta being the first weights of the output layer."""

    def __init__(
        self,
        structured: int,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int = 1,
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for m, n in pairwise((inputs, *hidden)):
            layers += [nn.Linear(m, n), ACTIVATIONS[activation]()]
        self.structured = structured
        self.hidden = nn.Sequential(*layers)
        self.last = nn.Linear(structured + hidden[-1], outputs)

    def features(self, inputs: Tensor) -> Tensor:
        """Return what the output layer is given, shape (N, P + H), of rows (N, P + Q)."""
        x, u = inputs[:, : self.structured], inputs[:, self.structured :]
        return torch.cat([x, self.hidden(u)], dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the mean, shape (N, 1), or so many outputs, of rows (N, P + Q)."""
        return self.last(self.features(inputs))


class Gaussian(nn.Module):
    """A network with the logarithm of a residual standard deviation."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.log_sigma = nn.Parameter(torch.zeros(()))

    def loss(self, inputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean negative log-likelihood."""
        mean = self.network(inputs).squeeze(-1)
        return -Normal(mean, self.log_sigma.exp(), validate_args=False).log_prob(y).mean()

    def predict(self, inputs: Tensor) -> Predictive:
        """Return its normal distributions, S = 1."""
        with torch.no_grad():
            mean = self.network(inputs).T.numpy()
            return Predictive(mean, np.full_like(mean, self.log_sigma.exp().item()))


def linear_model(task: Task, seed: int) -> Predictive:
    """Draw from the posterior of least squares under a flat prior: Student t in the mixture."""
    import statsmodels.api as sm

    generator = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # energy has a redundant column: the mean is still unique
        found = sm.OLS(task.y.numpy(), sm.add_constant(task.inputs.numpy())).fit()
    sigma = np.sqrt(found.ssr / generator.chisquare(found.df_resid, size=DRAWS))
    centred = generator.multivariate_normal(
        np.zeros(len(found.params)), found.normalized_cov_params, size=DRAWS, method="svd"
    )
    coefficients = found.params + sigma[:, None] * centred
    mean = coefficients @ sm.add_constant(task.test_inputs.numpy(), has_constant="add").T
    return Predictive(mean, np.broadcast_to(sigma[:, None], mean.shape))


def one_network(task: Task, seed: int) -> Predictive:
    """Train a network."""
    return trained(task, seed).predict(task.test_inputs)


def deep_ensemble(task: Task, seed: int) -> Predictive:
    """Train several networks."""
    return mixture([one_network(task, 100 * seed + member) for member in range(MEMBERS)])


def swag(task: Task, seed: int) -> Predictive:
    """Train a network, follow its path at several rates, and keep the best by validation."""
    start = trained(task, seed)
    training, validation = held_out(len(task.y), task.train, seed)
    best, least = None, np.inf
    for rate in RATES:
        members = swag_members(task, start, training, rate, seed)
        found = mixture([member.predict(task.inputs[validation]) for member in members])
        loss = -log_density(found, task.y[validation].numpy()).mean()
        if loss < least:
            best, least = members, loss
    if best is None:
        raise ValueError(f"SWAG's path diverged at every rate ({RATES})")
    return mixture([member.predict(task.test_inputs) for member in best])


def last_layer_laplace(task: Task, seed: int) -> Predictive:
    """Approximate the posterior of theta and the output layer."""
    from laplace import Laplace

    model = trained(task, seed)
    return laplace_predictive(
        task, model, Laplace(model.network, "regression", "last_layer", "full")
    )


def subnetwork_laplace(task: Task, seed: int, size: int) -> Predictive:
    """Approximate the posterior of so many weights, those of largest diagonal variance."""
    from laplace import DiagLaplace, Laplace
    from laplace.utils.subnetmask import LargestVarianceDiagLaplaceSubnetMask

    model = trained(task, seed)
    sigma = model.log_sigma.exp().item()
    diagonal = DiagLaplace(model.network, "regression", sigma_noise=sigma)
    mask = LargestVarianceDiagLaplaceSubnetMask(model.network, size, diagonal)
    indices = mask.select(_loader(task))
    return laplace_predictive(
        task,
        model,
        Laplace(model.network, "regression", "subnetwork", "full", subnetwork_indices=indices),
    )


def trained(task: Task, seed: int) -> Gaussian:
    """Train a network; return its state of least validation loss."""
    torch.manual_seed(seed)
    split = task.split
    network = SemiStructured(len(split.structured), len(split.inputs), task.hidden)
    return descend(Gaussian(network).double(), task.inputs, task.y, task.train, seed)


def descend(model: Model, inputs: Tensor, y: Tensor, train: TrainConfig, seed: int) -> Model:
    """Train a model by its ``loss(inputs, y)``; return its state of least validation loss."""
    training, validation = held_out(len(y), train, seed)
    rows, others = ((inputs[i], y[i]) for i in (training, validation))
    epochs = train.epochs
    optimiser = torch.optim.Adam(model.parameters(), lr=train.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    best, least = deepcopy(model.state_dict()), np.inf
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        model.loss(*rows).backward()
        optimiser.step()
        schedule.step()
        if epoch % -(-epochs // RECORDS) and epoch != epochs:
            continue
        with torch.no_grad():
            loss = model.loss(*others).item()
        if loss < least:
            best, least = deepcopy(model.state_dict()), loss
    model.load_state_dict(best)
    return model


def held_out(rows: int, train: TrainConfig, seed: int) -> tuple[Tensor, Tensor]:
    """Return the positions of the rows to train on and of those held out."""
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    size = round(train.validation * rows)
    return order[size:], order[:size]


def swag_members(
    task: Task, start: Gaussian, training: Tensor, rate: float, seed: int
) -> list[Gaussian]:
    """Follow the path from a trained network and draw networks from SWAG's Gaussian.

    The covariance is diag(variance) / 2 + D D' / (2 (K - 1)), with the last K deviations from
    the running mean in D.
    """
    model, generator = deepcopy(start), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    epochs = max(task.train.epochs // PATH_SHARE, 2 * RANK)
    mean = squares = torch.zeros_like(parameters_to_vector(model.parameters()))
    deviations: list[Tensor] = []
    for epoch in range(1, epochs + 1):
        order = training[torch.randperm(len(training), generator=generator)]
        for batch in order.chunk(PATH_SHARE):
            optimiser.zero_grad()
            model.loss(task.inputs[batch], task.y[batch]).backward()
            optimiser.step()
        w = parameters_to_vector(model.parameters()).detach()
        mean, squares = mean + (w - mean) / epoch, squares + (w**2 - squares) / epoch
        deviations = [*deviations, w - mean][-RANK:]
    sd, D = (squares - mean**2).clamp(min=1e-30).sqrt(), torch.stack(deviations, dim=1)
    return [_drawn(start, mean, sd, D, generator) for _ in range(DRAWS // 10)]


def _drawn(
    start: Gaussian, mean: Tensor, sd: Tensor, D: Tensor, generator: torch.Generator
) -> Gaussian:
    def normal(size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=mean.dtype)

    w = mean + (sd * normal(len(mean)) + D @ normal(RANK) / (RANK - 1) ** 0.5) / 2**0.5
    drawn = deepcopy(start)
    vector_to_parameters(w, drawn.parameters())
    return drawn


def laplace_predictive(task: Task, model: Gaussian, posterior) -> Predictive:
    """Fit laplace-torch's posterior, tune it, and predict."""
    posterior.fit(_loader(task))
    tune(posterior, model.log_sigma.detach())
    with torch.no_grad():
        mean, variance = posterior(task.test_inputs)
    total = variance.reshape(1, -1) + posterior.sigma_noise**2
    return Predictive(mean.reshape(1, -1).numpy(), total.sqrt().numpy())


def tune(posterior, start: Tensor) -> None:
    """Set prior precision and sigma by the marginal likelihood, as in laplace-torch's example.

    Parameters
    ----------
    posterior : laplace.ParametricLaplace
        Fitted to a regression.
    start : torch.Tensor, shape ()
        Logarithm of the sigma to begin with.
    """
    log_precision = torch.zeros(1, dtype=start.dtype, requires_grad=True)
    log_sigma = start.reshape(1).clone().requires_grad_()
    optimiser = torch.optim.Adam([log_precision, log_sigma], lr=0.1)
    for _ in range(HYPER_STEPS):
        optimiser.zero_grad()
        evidence = posterior.log_marginal_likelihood(log_precision.exp(), log_sigma.exp())
        (-evidence).backward()
        optimiser.step()
    posterior.prior_precision = log_precision.detach().exp()
    posterior.sigma_noise = log_sigma.detach().exp()


def mixture(parts: list[Predictive]) -> Predictive:
    """Mix predictive distributions with equal weights."""
    return Predictive(
        np.concatenate([part.mean for part in parts]), np.concatenate([part.sd for part in parts])
    )


def log_density(predictive: Predictive, y: Array) -> Array:
    """Return the log predictive density of each response, shape (N,)."""
    from scipy.special import logsumexp
    from scipy.stats import norm

    terms = norm.logpdf(y, predictive.mean, predictive.sd)
    return np.asarray(logsumexp(terms, axis=0) - np.log(len(terms)))


def _loader(task: Task) -> DataLoader:
    return DataLoader(TensorDataset(task.inputs, task.y[:, None]), batch_size=len(task.y))


def contenders(size: int) -> Mapping[str, Callable[[Task, int], Predictive]]:
    """Return every contender by its name, with so many weights in Laplace's subnetwork."""
    return {
        "linear model": linear_model,
        "one network": one_network,
        "deep ensemble": deep_ensemble,
        "SWAG": swag,
        "last-layer Laplace": last_layer_laplace,
        "subnetwork Laplace": lambda task, seed: subnetwork_laplace(task, seed, size),
    }
