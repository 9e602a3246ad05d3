"""An architecture is one class and a file of Stan functions: a convolution, defined here."""
# ruff: noqa: ARG002, ARG004 - the protocol says which arguments there are

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.ggn import diagonal_ggn
from semistan.density.predictor import network_output
from semistan.density.problem import make_problem
from semistan.errors import InputError
from semistan.model.networks.activations import activate, onnx_activation
from semistan.model.networks.architecture import Layer, StanText
from semistan.model.networks.mlp import affine, onnx_affine
from semistan.model.table import inputs
from semistan.posterior.predictive import posterior_linpred
from semistan.program import program, quantities
from semistan.program.sources import stan_source
from semistan.subspace.descent import initial_parameters
from semistan.workflow.fit import fit_model
from support.agreement import assert_agreement
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import random_bundle

FORMULA = "y ~ x + nn(u, v, z)"
STAN = """\
// A filter on each pair of neighbouring inputs, on average, and a linear layer.
vector network(matrix H, vector w, int filters, int activation) {
  int used = 3 * filters;
  matrix[rows(H), filters] sums = rep_matrix(0, rows(H), filters);
  for (t in 2 : cols(H)) {
    sums += activate(affine(H[ : , t - 1 : t], w[1 : used], 2, filters),
                     activation);
  }
  return affine(sums / (cols(H) - 1), w[used + 1 : num_elements(w)], filters,
                1)[ : , 1];
}
"""


@dataclass(frozen=True)
class Convolution:
    """f(u; w) = v' mean_t activation(K (u_t, u_{t+1}) + b) + c."""

    n_inputs: int
    hidden: tuple[int, ...]
    activation: str = "tanh"
    outputs: int = 1
    in_stan: ClassVar[bool] = True
    also: ClassVar[tuple] = ()

    @property
    def filters(self):
        return self.hidden[0]

    @property
    def d(self):
        return 4 * self.filters + 1

    @property
    def widest(self):
        return self.filters * self.n_inputs

    @property
    def text(self):
        return f"{self.n_inputs}-conv{self.filters}-1"

    def layers(self, start=0):
        n, used = self.filters, start + 3 * self.filters
        return [
            Layer(slice(start, start + 2 * n), slice(start + 2 * n, used), 2, n),
            Layer(slice(used, used + n), slice(used + n, used + n + 1), n, 1),
        ]

    def initial(self, generator):
        return torch.rand(self.d, generator=generator, dtype=torch.float64) - 0.5

    def head(self, frozen):
        if frozen:
            raise InputError(f"no layer of a convolution can be constant, got frozen = {frozen}")
        return self

    def features(self, w, u, frozen):
        return u

    def _pooled(self, w, u):
        pairs = u.unfold(1, 2, 1)
        z = affine(pairs.flatten(0, 1), w, *self.layers()[0])
        z = activate(z, self.activation).unflatten(-2, pairs.shape[:2])
        return pairs, z.mean(dim=-2)

    def forward(self, w, u):
        return affine(self._pooled(w, u)[1], w, *self.layers()[1])

    def layer_inputs(self, w, u):
        return list(self._pooled(w, u))

    def output_and_jacobian(self, w, u, output):
        of = lambda at: self.forward(at, u)[:, output]  # noqa: E731
        return of(w), torch.func.jacrev(of)(w)

    def derivatives_along(self, w, u, output, V):
        return self.output_and_jacobian(w, u, output)[1] @ V

    def onnx_features(self, graph, w, u, frozen):
        return u

    def onnx(self, graph, w, u, start):
        first, last = self.layers(start)
        total = None
        for t in range(self.n_inputs - 1):
            z = onnx_affine(graph, w, graph.part(u, slice(t, t + 2)), first)
            z = onnx_activation(graph, z, self.activation)
            total = z if total is None else graph.apply("Add", total, z)
        share = graph.constant(np.array(1 / (self.n_inputs - 1)))
        return onnx_affine(graph, w, graph.apply("Mul", total, share), last)

    @staticmethod
    def stan_text(*, several, predictors, kernel):
        return StanText(
            files=(
                "activate.stanfunctions",
                "layers.stanfunctions",
                "convolution.stanfunctions",
            ),
            data=(
                ("int<lower=1> filters;", "filters"),
                ("int<lower=1, upper=5> activation;", "1 tanh ... 5 identity"),
            ),
            passed=(("int", "filters"), ("int", "activation")),
            has_kernel=False,
        )

    @staticmethod
    def stan_sizes(parts):
        return {"filters": parts[0].filters, "activation": 1}


@pytest.fixture(autouse=True)
def convolutions(monkeypatch):
    """Let nn() be a convolution."""
    monkeypatch.setattr(inputs, "FullyConnected", Convolution)
    for module in (program, quantities):
        source = {"convolution.stanfunctions": STAN}
        monkeypatch.setattr(
            module, "stan_source", lambda name, known=source: known.get(name) or stan_source(name)
        )


def naive_output(w, u, filters):
    """One row through the convolution, in plain Python."""
    K, b, v, c = w[: 2 * filters], w[2 * filters : 3 * filters], w[3 * filters : -1], w[-1]
    total = c
    for i in range(filters):
        pairs = [np.tanh(K[2 * i] * u[t] + K[2 * i + 1] * u[t + 1] + b[i]) for t in range(2)]
        total += v[i] * sum(pairs) / 2
    return total


def naive_outputs(bundle, rows, w):
    U = (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    filters = bundle.network.parts[0].filters
    return np.array([[naive_output(one, u, filters) for u in U] for one in w])


def test_its_output_is_a_naive_loop():
    bundle, rows = small_bundle(FORMULA)
    w = np.random.default_rng(0).normal(size=(4, 13))
    found = network_output(bundle.network, bundle.units, w, rows.U)
    assert np.allclose(found, naive_outputs(bundle, rows, w), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("construction", ["bezier", "subnetwork", "low_rank_laplace", "full"])
def test_constructions_train_it(construction):
    bundle, _ = small_bundle(FORMULA, subspace__construction=construction, train__epochs=30)
    assert bundle.network.text == "3-conv3-1"
    assert bundle.subspace.d == 13
    assert bundle.trained.history["loss"][-1] < bundle.trained.history["loss"][0]


def test_constant_layers_that_it_cannot_have_are_refused():
    with pytest.raises(InputError, match="no layer of a convolution can be constant"):
        small_prepared(FORMULA, network__frozen=1)


def test_its_curvature_is_that_of_finite_differences():
    prepared = small_prepared(FORMULA)
    spec, units = prepared.model.network, prepared.model.units
    assert spec.parts == (Convolution(3, (3,)),)
    problem = make_problem(prepared.model, prepared.rows, "cpu")
    parameters = initial_parameters(problem, 1, torch.Generator().manual_seed(1)).copy()
    state, step = parameters.at(torch.ones(1, dtype=torch.float64)), 1e-5
    output = lambda w: spec.parts[0].forward(w, problem.U)[:, 0]  # noqa: E731
    J = torch.stack(
        [(output(state.w + step * e) - output(state.w - step * e)) / (2 * step)
         for e in torch.eye(13, dtype=torch.float64)]
    )  # fmt: skip
    sigma = float(problem.dispersion(state.log_dispersion)["sigma"])
    expected = 1 + (units.eta_scale * J / sigma).square().sum(dim=1)
    assert torch.allclose(diagonal_ggn(problem, state).values, expected, rtol=1e-6)


@pytest.mark.lengthy
def test_it_is_written_read_sampled_and_predicted_with(tmp_path):
    settings = {
        "network.hidden": [3], "train.epochs": 50, "subspace.k": 2, "sample.chains": 1,
        "sample.method": "elliptical-slice", "sample.warmup": 10, "sample.draws": 20,
    }  # fmt: skip
    fit = fit_model(FORMULA, small_frame(40), out=tmp_path / "run", overrides=settings)
    bundle, rows = fit.run.bundle, fit.run.rows()
    draws = fit.posterior.draws
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    f = naive_outputs(bundle, rows, bundle.subspace.lift(phi))
    eta = bundle.units.eta_loc + bundle.units.eta_scale * f
    eta = eta + theta @ (rows.X - bundle.units.x_loc).T
    assert np.allclose(posterior_linpred(fit.posterior, rows), eta, rtol=1e-10)
    write_bundle(bundle, tmp_path / "bundle")  # checks both graphs against torch
    assert read_bundle(tmp_path / "bundle").sha256 == bundle.sha256


@pytest.mark.cmdstan
def test_torch_onnx_and_stan_agree(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", hidden=(4,))
    assert_agreement(bundle, rows, "cpp", toolchain, tmp_path)  # has no kernel: it is Stan
