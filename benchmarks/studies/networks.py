"""Networks without a posterior of all weights: a deep ensemble, and Laplace on the last layer.

All members are the network that semistan fits, theta and the output layer side by side, trained as
in ``approximations.py``: Adam with a cosine-annealed rate, the state of least validation loss.

    deep ensemble         five networks from different starts (Lakshminarayanan, Pritzel and
                          Blundell, 2017). Its predictive density is their mixture, its intervals
                          of eta those of a normal with the mean and the variance of the five:
                          they have no quantiles of their own. It has no posterior of theta.
    last-layer Laplace    laplace-torch on one network: a normal for theta and the output layer,
                          with prior precision and sigma by the marginal likelihood. It has
                          regression and classification, but no counts.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from approximations import Gaussian, SemiStructured, descend, tune
from semistan.model.arrays import Array
from semistan.model.config import TrainConfig
from studies.problem import Found, Problem, predictive_density

MEMBERS = 5
DRAWS = 4000
NORMAL = norm.ppf((np.arange(1000) + 0.5) / 1000)  # "draws" of a normal, evenly in probability
QUICK_EPOCHS = 200


class Counts(nn.Module):
    """A network of the logarithm of a Poisson rate."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean negative log-likelihood, up to a constant."""
        return F.poisson_nll_loss(self.network(inputs).squeeze(-1), y)


class Classes(nn.Module):
    """A network of the logits of 0 and 1; eta is their difference."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean negative log-likelihood."""
        return F.cross_entropy(self.network(inputs), y.long())


LIKELIHOODS = {"gaussian": Gaussian, "poisson": Counts, "bernoulli": Classes}


def deep_ensemble(problem: Problem) -> Found:
    """Train several networks and mix them."""
    started, standard, family = time.perf_counter(), problem.standard, problem.facts.family
    members = [trained(problem, 100 * problem.seed + member) for member in range(MEMBERS)]
    with torch.no_grad():
        outputs = [member.network(torch.tensor(standard.new_inputs)) for member in members]
    each = standard.eta(np.stack([_eta(output.numpy()) for output in outputs]))
    sigma = standard.y_scale * np.array([_sigma(member) for member in members])[:, None]
    mean, sd = each.mean(axis=0), each.std(axis=0, ddof=1)
    return Found(
        eta=mean + sd * NORMAL[:, None],
        lpd=predictive_density(family, problem.new_y, each, sigma),
        seconds=time.perf_counter() - started,
    )


def last_layer_laplace(problem: Problem) -> Found:
    """Train a network, and draw the weights of its last layer, with theta among them."""
    from laplace import Laplace

    started, standard, facts = time.perf_counter(), problem.standard, problem.facts
    model = trained(problem, problem.seed)
    binary = facts.family == "bernoulli"
    kind = "classification" if binary else "regression"
    posterior = Laplace(model.network, kind, "last_layer", "full")
    posterior.fit(_loader(standard.inputs, standard.y, binary))
    if binary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how to predict, which is done below by draws
            posterior.optimize_prior_precision(method="marglik")
    else:
        tune(posterior, model.log_sigma.detach())
    weights, bias = _last_layers(model.network.last, posterior, problem.seed)
    with torch.no_grad():
        features = model.network.features(torch.tensor(standard.new_inputs)).numpy()
    eta = standard.eta(weights @ features.T + bias[:, None])
    sigma = 1.0 if binary else standard.y_scale * posterior.sigma_noise.item()
    return Found(
        eta=eta,
        lpd=predictive_density(facts.family, problem.new_y, eta, sigma),
        seconds=time.perf_counter() - started,
        theta=standard.theta(weights[:, : len(facts.structured)]),
        sigma=None if binary else np.full((1, 1), sigma),
    )


def trained(problem: Problem, seed: int) -> Gaussian | Counts | Classes:
    """Train one network on the standardised rows."""
    torch.manual_seed(seed)
    facts, standard = problem.facts, problem.standard
    outputs = 2 if facts.family == "bernoulli" else 1
    network = SemiStructured(
        len(facts.structured), len(facts.inputs), problem.hidden, outputs, problem.activation
    )
    model = LIKELIHOODS[facts.family](network).double()
    train = TrainConfig(epochs=QUICK_EPOCHS) if problem.quick else TrainConfig()
    return descend(model, torch.tensor(standard.inputs), torch.tensor(standard.y), train, seed)


def _eta(outputs: Array) -> Array:
    """Return eta of a network's outputs (N, 1), or (N, 2) of classes."""
    return outputs[:, -1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs[:, 0]


def _sigma(model: Gaussian | Counts | Classes) -> float:
    return model.log_sigma.exp().item() if isinstance(model, Gaussian) else 1.0


def _loader(inputs: Array, y: Array, binary: bool) -> DataLoader:
    target = torch.tensor(y).long() if binary else torch.tensor(y)[:, None]
    return DataLoader(TensorDataset(torch.tensor(inputs), target), batch_size=len(y))


def _last_layers(last: nn.Linear, posterior, seed: int) -> tuple[Array, Array]:
    """Draw weights (S, P + H) and bias (S,) of eta from the posterior of the last layer."""
    draws = posterior.sample(DRAWS, torch.Generator().manual_seed(seed)).numpy()
    size, shape = last.weight.numel(), (-1, *last.weight.shape)
    weights, bias = draws[:, :size].reshape(shape), draws[:, size:]
    if len(last.weight) == 2:
        return weights[:, 1] - weights[:, 0], bias[:, 1] - bias[:, 0]
    return weights[:, 0], bias[:, 0]
