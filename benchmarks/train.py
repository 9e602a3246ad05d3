"""Seconds per training epoch of a Bézier curve, next to a plain network (k = 0).

The plain network is trained with the same loss, optimiser, rows and number of epochs, and is
looked at as often. Ratios are over it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from cases import config_of, smooth_table
from common import AIRFOIL, Case, Record, read_options, record, report, take_turns
from semistan.density.problem import Problem, make_problem
from semistan.model.networks.mlp import FullyConnected
from semistan.subspace.descent import RECORDS
from semistan.workflow.prepare import Prepared, prepare
from semistan.workflow.train import train

DIMENSIONS = (0, 1, 3, 7, 15)
PLAIN = "plain network"


class PlainNetwork(nn.Module):
    """A network, a linear term and a log dispersion, as PyTorch's users write them."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for m, n in pairwise(problem.network.parts[0].widths):
            layers += [nn.Linear(m, n), nn.Tanh()]
        self.network = nn.Sequential(*layers[:-1])
        self.linear = nn.Linear(problem.Z.shape[1], 1, bias=False)
        self.log_sigma = nn.Parameter(torch.zeros(()))
        self.eta_loc, self.eta_scale = problem.eta_loc, problem.eta_scale

    def forward(self, problem: Problem) -> Tensor:
        """Return the mean negative log-likelihood of the rows."""
        f = self.network(problem.U) + self.linear(problem.Z)
        eta = self.eta_loc + self.eta_scale * f.squeeze(-1)
        sigma = self.eta_scale * self.log_sigma.exp()
        return -Normal(eta, sigma, validate_args=False).log_prob(problem.y).mean()


def main() -> None:
    """Train in turns and report."""
    options = read_options(__doc__ or "", repeats=5, cores=1)
    torch.set_num_threads(1)
    cases = [replace(AIRFOIL, k=k) for k in DIMENSIONS[: 3 if options.quick else None]]
    samples = take_turns({_name(case): partial(measure, case) for case in cases}, options.repeats)
    report("train", options, [_record(case, samples) for case in cases])


def measure(case: Case) -> float:
    """Train once and return the seconds per epoch."""
    prepared = prepare(config_of(replace(case, k=max(case.k, 1))), smooth_table(case))
    started = time.perf_counter()
    if case.k == 0:
        train_plain(prepared)
    else:
        train(prepared)
    return (time.perf_counter() - started) / prepared.config.train.epochs


def train_plain(prepared: Prepared) -> dict[str, Tensor]:
    """Train a plain network on full batches; return its state of least validation loss."""
    training, validation = split_problem(prepared)
    epochs = prepared.config.train.epochs
    model = PlainNetwork(training).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=prepared.config.train.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    best, least = model.state_dict(), float("inf")
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        model(training).backward()
        optimiser.step()
        schedule.step()
        if epoch % -(-epochs // RECORDS):
            continue
        with torch.no_grad():
            _, held_out = model(training).item(), model(validation).item()  # as the curve's
        if held_out < least:
            best, least = {n: value.clone() for n, value in model.state_dict().items()}, held_out
    return best


def split_problem(prepared: Prepared) -> tuple[Problem, Problem]:
    """Hold out the configured share of the rows."""
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    order = torch.randperm(len(problem))
    held_out = round(prepared.config.train.validation * len(problem))
    return problem.rows(order[held_out:]), problem.rows(order[:held_out])


def _name(case: Case) -> str:
    return f"Bézier, k = {case.k}" if case.k else PLAIN


def _record(case: Case, samples: dict[str, list[float]]) -> Record:
    d = FullyConnected(case.inputs, case.hidden).d
    values, plain = samples[_name(case)], samples[PLAIN]
    return record(case, _name(case), "seconds per epoch", values, d=d, reference=plain)


if __name__ == "__main__":
    main()
