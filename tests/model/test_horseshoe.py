"""The regularised horseshoe: the program against NumPy, its starts, draws and refusals."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.model.priors.densities import parse_prior
from semistan.model.priors.lines import priors_as_used
from semistan.posterior.generated import read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik
from semistan.posterior.prior_draws import prior_draws
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.workflow.new_run import new_run
from semistan.workflow.outputs import generate
from semistan.workflow.sample import sample
from support.assertions import Z, mcse
from support.programs import evaluate, stanc_output
from support.small import small_prepared
from support.untrained import random_bundle

HORSESHOE = {"b": "horseshoe(df=3, scale_global=0.5, df_global=2, scale_slab=1.5, df_slab=5)"}


def shrunk(z, local, tau, c2):
    """The coefficient as brms writes it, one at a time."""
    return z * tau * np.sqrt(c2 * local**2 / (c2 + tau**2 * local**2))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("horseshoe()", (1, 1, 1, 2, 4)),
        ("horseshoe(3)", (3, 1, 1, 2, 4)),
        ("horseshoe(scale_global = 0.1, df_slab=7)", (1, 0.1, 1, 2, 7)),
        ("horseshoe(3, df_slab=7)", (3, 1, 1, 2, 7)),
    ],
)
def test_arguments_have_brmss_defaults_and_names(text, values):
    assert parse_prior(text, "b").values == values


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"b": "horseshoe(df=0)"}, "the df of horseshoe must be positive, got 0"),
        ({"b": "horseshoe(scale=1)"}, "horseshoe takes (df=1, scale_global=1, df_global=1, "
                                      "scale_slab=2, df_slab=4), got 'horseshoe(scale=1)'"),
        ({"b": "horseshoe(3, df=1)"}, "horseshoe takes (df=1"),
        ({"b": "horseshoe(1, 1, 1, 1, 1, 1)"}, "horseshoe takes (df=1"),
        ({"b": "horseshoe(df=)"}, "must be numbers"),
        ({"phi": "horseshoe()"}, "for all coefficients together, as prior 'b'"),
        ({"b_x": "horseshoe()"}, "for all coefficients together, as prior 'b'"),
        ({"b": "horseshoe()", "b_x": "normal(0, 1)"}, "none can have another"),
    ],
)  # fmt: skip
def test_a_wrong_horseshoe_is_refused(priors, message):
    with pytest.raises(InputError, match=re.escape(message)):
        small_prepared(priors=priors)


def test_it_needs_coefficients_and_a_method_that_knows_it(tmp_path):
    with pytest.raises(InputError, match="the model has none"):
        small_prepared("y ~ nn(u)", priors__b="horseshoe()")
    named = "reference, which horseshoe\\(\\) does not have; use method = 'nuts' or 'flow'"
    with pytest.raises(InputError, match=named):
        small_prepared(priors__b="horseshoe()", sample={"method": "elliptical-slice"})
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE)
    with pytest.raises(InputError, match=named):
        new_run(bundle, rows, tmp_path / "run", SampleConfig(method="elliptical-slice"), None)
    assert small_prepared(priors__b="horseshoe()", sample={"method": "flow"}).model.joint
    with pytest.raises(InputError, match="use temper = 'likelihood'"):
        bundle_program(random_bundle(
            "gaussian", priors=HORSESHOE, sample={"temperature": 2, "temper": "subspace"}
        )[0])  # fmt: skip


def test_it_is_in_the_units_of_each_coefficient():
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE)
    data, units = stan_data(bundle, rows), bundle.units.theta_scale
    assert data["prior_b_scale_global"] == pytest.approx(0.5 * units)
    assert data["prior_b_scale_slab"] == pytest.approx(1.5 * units)
    assert (data["prior_b_df"], data["prior_b_df_global"], data["prior_b_df_slab"]) == (3, 2, 5)
    (line,) = (line for line in priors_as_used(bundle) if line.parameter == "b_x1")
    assert line.used == f"horseshoe(3, {0.5 * units[0]:.6g}, 2, {1.5 * units[0]:.6g}, 5)"


def test_the_program_has_the_density_that_numpy_computes(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE, sample={"integrate": "none"})
    states = np.random.default_rng(3).normal(0, 0.7, size=(4, 10))
    data = stan_data(bundle, rows, prior_only=True)
    found = evaluate(bundle, data, states, toolchain, tmp_path)
    phi, z, logs = states[:, :3], states[:, 3:5], states[:, 5:]
    local, all_of_them, slab, sigma = (np.exp(logs[:, j]) for j in (slice(2), 2, 3, 4))
    units = bundle.units.theta_scale
    for j in range(2):
        expected = shrunk(z[:, j], local[:, j], 0.5 * units[j] * all_of_them,
                          (1.5 * units[j]) ** 2 * slab)  # fmt: skip
        assert found.vector("theta", 2)[:, j] == pytest.approx(expected, rel=1e-12)
    prior = (
        stats.norm.logpdf(phi, 0, 5).sum(axis=1)
        + (stats.t.logpdf(local, 3) + np.log(2)).sum(axis=1)
        + stats.t.logpdf(all_of_them, 2) + np.log(2)
        + stats.invgamma.logpdf(slab, 2.5, scale=2.5)
        + stats.t.logpdf(sigma, 3, 0, 2.5 * bundle.units.eta_scale) + np.log(2)
    )  # fmt: skip
    assert found.written["lprior"] == pytest.approx(prior, rel=1e-12)
    effects = stats.norm.logpdf(z).sum(axis=1)
    assert found.lp == pytest.approx(prior + effects + logs.sum(axis=1), rel=1e-12)


def test_its_coefficients_are_made_of_what_is_sampled_beside_an_integral(
    toolchain, tmp_path, monkeypatch
):
    monkeypatch.setattr("semistan.model.integral.MOST_COLUMNS", 1)
    bundle, _ = random_bundle("gaussian", priors=HORSESHOE, subspace={"construction": "full"})
    assert bundle.model.integral.phi
    assert bundle.model.integral.joint is None
    assert stanc_output(bundle_program(bundle), toolchain, tmp_path) == ""


def test_the_kernel_passes_its_self_check(toolchain):
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE)
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert kernel_failure(bundle, rows, compiled.executable) is None


def test_chains_start_on_the_curve_at_the_trained_coefficients():
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE, sample={"integrate": "none"})
    starts = find_starts(bundle, rows, SampleConfig())
    assert starts.modes == ()
    assert starts.resolve(SampleConfig()).metric == "diag_e"
    units = bundle.units.theta_scale
    for values in starts.values:
        c2 = (1.5 * units) ** 2 * values["hs_slab"]
        theta = shrunk(values["zb"], values["hs_local"], 0.5 * units * values["hs_global"], c2)
        assert np.abs(theta - bundle.trained.theta).max() < (0.5 * units).max()
        assert np.abs(values["zb"]).max() < 5


@pytest.mark.lengthy
def test_prior_draws_are_those_of_a_simulation():
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE)
    draws = prior_draws(bundle, rows, (4, 2000), np.random.default_rng(1))
    generator, size, units = np.random.default_rng(2), 8000, bundle.units.theta_scale
    z, local = generator.normal(size=(2, size)), np.abs(generator.standard_t(3, (2, size)))
    tau = 0.5 * np.abs(generator.standard_t(2, size))
    c2 = 1.5**2 * 2.5 / generator.gamma(2.5, size=size)
    for j in range(2):
        simulated = np.abs(units[j] * shrunk(z[j], local[j], tau, c2))
        for p in (0.1, 0.5, 0.9):
            below = (np.abs(draws.theta[..., j]) < np.quantile(simulated, p)).astype(float)
            limit = Z * np.hypot(mcse(below, "mean"), np.sqrt(p * (1 - p) / size))
            assert abs(below.mean() - p) < limit
    assert (draws.coefficients["b_x1"] == draws.theta[..., 0]).all()
    assert np.isfinite(draws.lprior).all()


def test_a_run_has_its_coefficients_and_generated_quantities(toolchain, tmp_path):
    options = {"chains": 2, "warmup": 300, "draws": 200, "adapt_delta": 0.95}
    bundle, rows = random_bundle("gaussian", priors=HORSESHOE, sample=options)
    run = new_run(
        bundle, rows, tmp_path / "run", bundle.config.sample, toolchain, kernel="cpp"
    )  # fmt: skip
    draws = sample(run, toolchain).posterior.draws
    table = pd.read_csv(run.csv_files()[0], comment="#")
    units = bundle.units.theta_scale
    theta = shrunk(table["zb.2"], table["hs_local.2"], 0.5 * units[1] * table["hs_global"],
                   (1.5 * units[1]) ** 2 * table["hs_slab"])  # fmt: skip
    assert draws.theta[0, :, 1] == pytest.approx(theta.to_numpy(), rel=1e-6)
    generate(run)
    assert read_generated(run).log_lik == pytest.approx(
        log_lik(SubspacePosterior(bundle, draws), rows), rel=1e-5
    )
