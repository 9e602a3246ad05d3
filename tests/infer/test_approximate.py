"""CmdStan's approximations: against a closed form, and marked wherever they are shown."""

import json
from dataclasses import replace

import numpy as np
import pytest

import semistan
from semistan.command import cli
from semistan.errors import InputError, ToolchainError
from semistan.infer.cmdstan import process
from semistan.infer.cmdstan.compile import Compiled
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import check_version, method_named, reservations
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.posterior.diagnostics import diagnose, pareto_k, worst
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.run import read_run
from semistan.workflow import compiled
from semistan.workflow import fit as workflow
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.outputs import generate, plot_effect
from semistan.workflow.sample import sample
from support import arviz_oracle
from support.chains import complete_folder
from support.drawn import random_draws
from support.small import small_config, small_frame
from support.untrained import random_bundle

OPTIONS = SampleConfig(method="fullrank", chains=2, draws=300, seed=3)
TEXT = "approximate (full-rank variational inference)"


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    """A linear gaussian model, whose posterior is nearly normal."""
    config = small_config("y ~ x + nn(u, v)", network__hidden=[], train__epochs=200)
    folder = tmp_path_factory.mktemp("approximate") / "run"
    settings = {f"sample.{key}": value for key, value in OPTIONS.model_dump().items()}
    return fit_model(config, small_frame(60), out=folder, overrides=settings)


def test_full_rank_is_near_nuts_where_the_posterior_is_nearly_normal(fit, toolchain, tmp_path):
    options = OPTIONS.model_copy(update={"method": "nuts", "draws": 1000})
    rows = fit.run.rows()
    rows = replace(rows, frame=fit.run.table())
    nuts = sample(new_run(fit.run.bundle, rows, tmp_path / "nuts", options, toolchain),
                           toolchain)  # fmt: skip
    for ours, exact in zip(fit.summary.rows, nuts.summary.rows, strict=True):
        assert abs(ours.estimate - exact.estimate) < 0.5 * exact.est_error, ours.name
        assert 0.6 < ours.est_error / exact.est_error < 1.6, ours.name


def test_the_mean_in_the_first_line_is_no_draw(fit):
    lines = [line for line in fit.run.csv_files()[0].read_text().splitlines() if line[0] != "#"]
    assert len(lines) == 2 + OPTIONS.draws
    assert lines[1].startswith("0,0,0,")
    column = lines[0].split(",").index("theta.1")
    written = [float(line.split(",")[column]) for line in lines[2:]]
    assert fit.posterior.draws.theta[0, :, 0].tolist() == written
    assert fit.posterior.draws.phi.shape == (2, OPTIONS.draws, 2)


def test_the_seed_decides_and_each_approximation_has_its_own(fit, toolchain, tmp_path):
    assert not np.allclose(fit.posterior.draws.phi[0], fit.posterior.draws.phi[1])
    rows = replace(fit.run.rows(), frame=fit.run.table())
    run = new_run(fit.run.bundle, rows, tmp_path / "again", OPTIONS, toolchain, kernel="cpp")
    again = sample(run, toolchain)
    assert np.array_equal(again.posterior.draws.phi, fit.posterior.draws.phi)
    (run.path / "chains" / "chain-1.csv").unlink()
    assert read_run(run.path).missing == [1]
    assert np.array_equal(
        sample(read_run(run.path), toolchain).posterior.draws.phi, fit.posterior.draws.phi
    )


def test_it_is_marked_wherever_it_is_shown(fit, tmp_path, monkeypatch, capsys):
    assert f"Not the posterior: {TEXT}." in repr(fit)
    assert fit.run.facts()["Method"] == TEXT
    assert fit.run.facts()["Draws"] == "2 approximations x 300 draws"
    data = arviz_oracle.read(fit.run.path / "posterior.nc")
    assert (data.attrs["method"], data.attrs["reservations"]) == ("fullrank", TEXT)
    assert set(data.sample_stats.data_vars) == {"log_p", "log_g"}
    for kind in ("coefficients", "trace", "ppc"):
        assert TEXT in [text.get_text() for text in semistan.plot(fit.run, kind).texts]
    effect = semistan.effect(fit.run, ["u"])
    assert TEXT in [text.get_text() for text in plot_effect(fit.run, effect).texts]
    page = semistan.report(fit.run, tmp_path / "page.html").read_text()
    assert "These are not draws from the posterior" in page
    assert f"Every figure of this page is {TEXT}." in page
    assert "NUTS" not in page.partition('id="program"')[0]
    monkeypatch.setattr("sys.argv", ["semistan", "summary", str(fit.run.path), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    shown = json.loads(capsys.readouterr().out)
    assert (shown["method"], shown["reservations"]) == ("fullrank", [TEXT])
    assert {"log_p__", "log_g__"} <= set(semistan.draws(fit.run).columns)


def test_there_is_no_energy_to_be_drawn(fit):
    with pytest.raises(InputError, match="draws of full-rank variational inference have no energy"):
        semistan.plot(fit.run, "energy")


def test_cmdstans_quantities_are_those_of_nuts(fit):
    with pytest.raises(InputError, match="this run's method is 'fullrank'"):
        generate(fit.run)


def approximated(log_weights):
    bundle, _ = random_bundle("gaussian")
    chains, iterations = log_weights.shape
    draws = random_draws(bundle, chains=chains, iterations=iterations)
    sampler = {"log_p": log_weights, "log_g": np.zeros_like(log_weights)}
    return SubspacePosterior(
        bundle, replace(draws, sampler=sampler, method=method_named("meanfield"))
    )


def test_pareto_k_tells_a_wide_approximation_from_a_narrow_one():
    generator = np.random.default_rng(0)
    z = generator.normal(size=(2, 4000))

    def weights(sd):  # of a standard normal posterior, approximated with this sd
        return -0.5 * (sd * z) ** 2 + 0.5 * z**2

    wide, narrow = (pareto_k(approximated(weights(sd))) for sd in (1.3, 0.4))
    assert (wide < 0.5).all()
    # The weights' tail is that of u**-(1 - sd**2): k = 1 - sd**2 = 0.84.
    assert narrow == pytest.approx([0.84, 0.84], abs=0.2)
    assert pareto_k(approximated(np.zeros((1, 500)))) == [0]
    assert pareto_k(approximated(weights(1.3) + 1e9)) == pytest.approx(wide, abs=1e-3)


def test_an_approximation_is_judged_by_its_weights_and_by_agreement():
    generator = np.random.default_rng(0)
    posterior = approximated(generator.normal(size=(2, 500)))
    names = [check.name for check in diagnose(posterior, worst([]), worst([]))]
    assert names == [
        "Pareto k of the approximation", "Rhat of coefficients", "Rhat of linear predictor",
    ]  # fmt: skip
    bad = approximated(10 * generator.normal(size=(2, 500)))
    check = diagnose(bad, worst([]), worst([]))[0]
    assert not check.passed
    assert "--method nuts" in check.advice


def test_what_cmdstan_does_not_have_yet_is_refused():
    expected = "'pathfinder' needs CmdStan 2.33 or newer, this is 2.27.0"
    with pytest.raises(ToolchainError, match=expected):
        check_version(method_named("pathfinder"), (2, 27, 0))
    check_version(method_named("pathfinder"), (2, 36, 0))


def test_cmdstan_is_asked_for_one_path_of_pathfinder_and_independent_draws(
    monkeypatch, toolchain, tmp_path
):
    asked = {}

    def fake(executable, method, call, output, report):
        asked[call.seed] = dict(word.split("=") for word in method)
        return b"lp__\n" + b"0\n" * int(asked[call.seed]["num_draws"])

    monkeypatch.setattr(process, "run_cmdstan", fake)
    monkeypatch.setattr(process, "compile_program", lambda *_: Compiled(tmp_path / "exe", True))
    options = OPTIONS.model_copy(update={"method": "pathfinder"})
    bundle, rows = random_bundle("gaussian")
    starts = find_starts(bundle, rows, options)
    write_stan_folder(bundle, rows, tmp_path, starts, grainsize=len(rows))
    complete_folder(tmp_path, bundle, options)
    assert len(asked) == 2
    draws = str(options.per_chain)
    for words in asked.values():
        assert words == {"method": "pathfinder", "num_psis_draws": draws, "num_paths": "1",
                         "num_draws": draws, "psis_resample": "0"}  # fmt: skip
    assert (tmp_path / "chains" / "chain-2.csv").is_file()


def test_reservations_name_method_and_temperature():
    assert reservations(SampleConfig()) == ()
    assert reservations(SampleConfig(method="elliptical-slice")) == ()
    assert reservations(SampleConfig(temperature=2, temper="subspace")) == (
        "tempered (p(y | phi) to the power 1 / 2)",
    )
    assert len(reservations(SampleConfig(method="flow", temperature=2))) == 2


def test_a_method_of_newer_cmdstans_is_refused_before_training(monkeypatch, tmp_path):
    old = Toolchain(tmp_path, (2, 27, 0), "")
    monkeypatch.setattr(compiled, "find_toolchain", lambda: old)
    monkeypatch.setattr(workflow, "train", lambda *_: 1 / 0)
    with pytest.raises(ToolchainError, match=r"needs CmdStan 2\.33"):
        fit_model(
            small_config("y ~ x + nn(u, v)"), small_frame(), out=tmp_path / "run",
            overrides={"sample.method": "pathfinder"},
        )  # fmt: skip
