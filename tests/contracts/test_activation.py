"""An activation is one record: the softsign, which the kernel has too, and a sine, defined here."""

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.predictor import network_output
from semistan.model.config import SampleConfig
from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.activations.activation import Activation, KernelText, one
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.predictive import log_lik, posterior_epred
from semistan.program.parts import has_kernel
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.agreement import assert_agreement
from support.small import small_bundle
from support.untrained import completed_bundle, random_bundle


def one_and_size(graph, z):
    return graph.apply("Add", one(graph), graph.apply("Abs", z))


def onnx_slope(graph, z):
    size = one_and_size(graph, z)
    return graph.apply("Div", one(graph), graph.apply("Mul", size, size))


SOFTSIGN = Activation(
    name="softsign",
    torch=lambda z: z / (1 + z.abs()),
    onnx=lambda graph, z: graph.apply("Div", z, one_and_size(graph, z)),
    onnx_slope=onnx_slope,
    stan="Z ./ (1 + fmax(Z, -Z))",
    stan_slope="inv_square(1 + fmax(Z, -Z))",
    kernel=KernelText(
        "Vec s; negative_size(z, s); a = z / (1.0 - s);",
        "Vec s; negative_size(a, s); d *= (1.0 + s) * (1.0 + s);",
    ),
    ends=lambda a: (1 - abs(a)) ** 2,
)
SINE = Activation(  # its slope does not follow from its value, as the kernel needs it
    name="sine",
    torch=lambda z: z.sin(),
    onnx=lambda graph, z: graph.apply("Sin", z),
    onnx_slope=lambda graph, z: graph.apply("Cos", z),
    stan="sin(Z)",
    stan_slope="cos(Z)",
)
ADDED = {record.name: record for record in (SOFTSIGN, SINE)}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as context:
        for name, record in ADDED.items():
            context.setitem(ACTIVATIONS, name, record)
        yield


@pytest.mark.parametrize("name", ADDED)
def test_a_bundle_with_it_is_written_and_read(name, tmp_path):
    bundle, _ = small_bundle(network__activation=name)
    assert f"{bundle.network.text}, {name}" in bundle.model.leading.text
    write_bundle(bundle, tmp_path / "bundle")  # checks both graphs against torch
    assert read_bundle(tmp_path / "bundle").sha256 == bundle.sha256


def test_a_network_is_a_naive_loop():
    bundle, rows = small_bundle("y ~ x + nn(u)", network__activation="softsign")
    w = np.random.default_rng(0).normal(size=(2, 10))
    U = (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    naive = [
        [p[9] + sum(p[6 + j] * (z := p[j] * u + p[3 + j]) / (1 + abs(z)) for j in range(3))
         for (u,) in U]
        for p in w
    ]  # fmt: skip
    assert network_output(bundle.network, bundle.units, w, rows.U) == pytest.approx(
        np.array(naive), rel=1e-12
    )


def test_the_kernel_is_chosen_where_it_has_it():
    chosen = {name: has_kernel(random_bundle("gaussian", activation=name)[0].model)
              for name in ADDED}  # fmt: skip
    assert chosen == {"softsign": True, "sine": False}


@pytest.mark.cmdstan
@pytest.mark.parametrize(
    ("name", "kernel"), [("softsign", "stan"), ("softsign", "cpp"), ("sine", "stan")]
)
def test_torch_onnx_stan_and_the_kernel_agree(name, kernel, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", hidden=(4, 3), activation=name)
    assert_agreement(bundle, rows, kernel, toolchain, tmp_path)


@pytest.mark.cmdstan
@pytest.mark.parametrize("name", ADDED)
def test_a_completed_subspace_takes_its_slope(name, toolchain, tmp_path):
    bundle, rows = completed_bundle("gaussian", hidden=(4, 3), activation=name)
    options = SampleConfig(chains=1, warmup=50, draws=20, seed=5, kernel="stan")
    fit = sample(new_run(bundle, rows, tmp_path / "run", options, toolchain), toolchain)
    generate_quantities(fit.run, toolchain)
    ours = log_lik(fit.posterior, rows)  # PyTorch has the slope by automatic differentiation
    assert read_generated(fit.run).log_lik == pytest.approx(ours, rel=1e-6, abs=1e-6)


@pytest.fixture(scope="module", params=["stan", "cpp"])
def fitted(request, tmp_path_factory):
    generator = np.random.default_rng(5)
    x, u = generator.normal(size=(2, 200))
    y = 1 + 0.5 * x + np.sin(2 * u) + generator.normal(0, 0.3, 200)
    overrides = {
        "network.hidden": (4,), "network.activation": "softsign", "train.epochs": 300,
        "train.device": "cpu", "subspace.k": 4, "sample.chains": 2, "sample.draws": 300,
        "sample.kernel": request.param,
    }  # fmt: skip
    out = tmp_path_factory.mktemp("softsign") / "run"
    frame = pd.DataFrame({"x": x, "u": u, "y": y})
    return fit_model("y ~ x + nn(u)", frame, out=out, overrides=overrides), request.param


@pytest.mark.cmdstan
def test_it_is_fitted_predicted_and_reported(fitted, tmp_path):
    fit, kernel = fitted
    assert (fit.run.path / "activations.hpp").is_file() == (kernel == "cpp")
    slope = next(row for row in fit.summary.rows if row.name == "b_x")
    assert abs(slope.estimate - 0.5) < 4 * slope.est_error
    rows = fit.run.rows()
    mean = posterior_epred(fit.posterior, rows).mean(axis=0)
    assert np.std(rows.y - mean) < 0.45  # of noise 0.3: the curve is found
    text = semistan.report(fit.run, tmp_path / "report.html").read_text("utf-8")
    assert "1-4-1, softsign" in text
