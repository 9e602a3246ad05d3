"""Generated quantities: Stan's log-likelihood is ours, its responses have the right moments."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from semistan.density.predictor import linear_predictor
from semistan.errors import InputError, SemistanError
from semistan.infer.cmdstan import quantities
from semistan.infer.cmdstan.compile import Compiled, compile_program, without_comments
from semistan.model.config import SampleConfig
from semistan.model.families.families import FAMILIES, family
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import SubspacePosterior, read_posterior
from semistan.posterior.predictive import log_lik, posterior_epred, posterior_linpred
from semistan.posterior.run import read_run
from semistan.program.quantities import quantities_program
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import draw_missing, sample
from support.assertions import Z
from support.sealed import rewrite
from support.small import RESPONSES, small_bundle
from support.untrained import random_bundle

OPTIONS = SampleConfig(chains=2, warmup=150, draws=200, seed=5)
CASES = {
    "gaussian": {"name": "gaussian"},
    "poisson, two frozen layers": {"name": "poisson", "hidden": (4, 3, 3), "frozen": 2},
    "bernoulli, one direction": {"name": "bernoulli", "k": 1},
    "fixed sigma": {"name": "gaussian", "priors": {"sigma": "constant(2)"}},
    "prior": {"name": "gaussian", "prior_only": True},
}


def sampled(folder, toolchain, name, prior_only=False, **settings):
    bundle, rows = random_bundle(name, **settings)
    run = new_run(bundle, rows, folder, OPTIONS, toolchain, prior_only=prior_only)
    return sample(run, toolchain)


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def fit(request, toolchain, tmp_path_factory):
    fit = sampled(tmp_path_factory.mktemp("quantities") / "run", toolchain, **request.param)
    generate_quantities(fit.run, toolchain)
    return fit


@pytest.fixture(scope="module")
def counts(toolchain, tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("counts") / "run", toolchain, "poisson").run


@pytest.fixture
def copy(counts, tmp_path):
    shutil.copytree(counts.path, tmp_path / "run")
    return read_run(tmp_path / "run")


def draw_lines(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def binary(run, toolchain):
    return compile_program(quantities_program(run.bundle), toolchain).executable


def standardised(fit):
    """Replicated responses less their mean, over their sd, given each draw: (S, N)."""
    bundle, draws = fit.run.bundle, fit.posterior.draws
    mu = posterior_epred(SubspacePosterior(bundle, draws), fit.run.rows())
    variance = {
        "gaussian": lambda: draws.dispersion["sigma"].ravel()[:, None] ** 2,
        "poisson": lambda: mu,
        "bernoulli": lambda: mu * (1 - mu),
    }[bundle.family.name]()
    return (read_generated(fit.run).y_rep - mu) / np.sqrt(variance)


def test_log_lik_is_ours(fit):
    ours = log_lik(fit.posterior, fit.run.rows())
    stans = read_generated(fit.run).log_lik
    assert stans.shape == ours.shape == (OPTIONS.chains * OPTIONS.draws, 30)
    assert stans == pytest.approx(ours, rel=1e-9, abs=0)


def test_responses_have_the_mean_and_the_variance_of_their_draws(fit):
    z = standardised(fit)
    assert np.abs(z.mean(axis=0)).max() < Z / np.sqrt(len(z))
    # Squares of a rare 1 among bernoulli responses vary most.
    squares = (z**2).mean(axis=1)
    assert abs(squares.mean() - 1) < Z * squares.std() / np.sqrt(len(squares))


def test_chains_draw_different_random_numbers(fit):
    first, second = np.split(standardised(fit), OPTIONS.chains)
    assert abs((first * second).mean()) < Z * (first * second).std() / np.sqrt(first.size)


def test_discrete_responses_are_in_the_support(fit):
    y_rep = read_generated(fit.run).y_rep
    assert fit.run.bundle.family.support(y_rep).all()


def test_a_model_without_coefficients(toolchain, tmp_path):
    bundle, rows = small_bundle("y ~ nn(u, v)")
    run = new_run(bundle, rows, tmp_path / "run", OPTIONS, toolchain)
    draw_missing(run, toolchain)
    run = read_run(run.path)
    generate_quantities(run, toolchain)
    draws = read_posterior(run).draws
    phi, sigma = draws.phi.reshape(-1, 2), draws.dispersion["sigma"].reshape(-1, 1)
    eta = linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X, rows.U, phi, np.zeros((len(phi), 0))
    )
    assert read_generated(run).log_lik == pytest.approx(norm.logpdf(rows.y, eta, sigma), rel=1e-9)


def test_finished_chains_are_kept_and_missing_ones_come_out_the_same(copy, toolchain):
    first, second = generate_quantities(copy, toolchain)
    kept, lost = first.read_bytes(), draw_lines(second)
    second.unlink()
    assert generate_quantities(copy, toolchain) == [first, second]
    assert first.read_bytes() == kept
    assert draw_lines(second) == lost
    assert not list(copy.path.glob(".generating-*"))
    program = (copy.path / "generated" / "quantities.stan").read_text()
    assert program == quantities_program(copy.bundle)


def test_another_seed_gives_other_responses_and_the_same_log_lik(copy, toolchain):
    generate_quantities(copy, toolchain)
    before = read_generated(copy)
    shutil.rmtree(copy.path / "generated")
    generate_quantities(copy, toolchain, seed=6)
    after = read_generated(copy)
    assert np.array_equal(before.log_lik, after.log_lik)
    assert not np.array_equal(before.y_rep, after.y_rep)


def test_counts_of_huge_means_do_not_stop_stan(copy, toolchain):
    units = copy.bundle.units
    far = replace(copy.bundle, units=replace(units, eta_loc=units.eta_loc + 25))
    eta = posterior_linpred(SubspacePosterior(far, read_posterior(copy).draws), copy.rows())
    generate_quantities(replace(copy, bundle=far), toolchain, seed=1)
    y_rep = read_generated(copy).y_rep
    assert (eta > np.log(2.0**30)).any()
    z = (y_rep - np.exp(eta)) / np.exp(eta / 2)
    assert abs(z.mean()) < Z / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < Z * np.sqrt(2 / z.size)


def test_counts_of_huge_means_do_not_stop_numpy():
    eta = np.repeat([[0.5], [25.0], [60.0], [720.0]], 20_000, axis=1)
    y = family("poisson").rng(eta, {}, np.random.default_rng(1))
    z = (y[:3] - np.exp(eta[:3])) / np.exp(eta[:3] / 2)
    assert np.abs(z.mean(axis=1)).max() < Z / np.sqrt(20_000)
    assert np.abs((z**2).mean(axis=1) - 1).max() < Z * np.sqrt(4 / 20_000)
    assert np.isposinf(y[3]).all()


def test_a_draw_whose_quantities_fail_is_reported(toolchain, tmp_path):
    run = sampled(tmp_path / "run", toolchain, "bernoulli").run
    path = run.path / "chains" / "chain-2.csv"
    lines = path.read_text().splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("lp__"))
    last = max(i for i, line in enumerate(lines) if re.match(r"-?\d", line))
    cells = dict(zip(lines[header].split(","), lines[last].split(","), strict=True))
    lines[last] = ",".join((cells | {"theta.1": "1e308"}).values())
    path.write_text("\n".join(lines) + "\n")
    rewrite(run.path)
    run = read_run(run.path)
    with pytest.raises(SemistanError, match=r"chain 2: .*bernoulli_logit_rng: .* finite"):
        generate_quantities(run, toolchain)
    assert [path.name for path in (run.path / "generated").glob("*.csv")] == ["chain-1.csv"]


def generate_by(executable, run, toolchain, monkeypatch):
    """Compute quantities with some executable in place of the right one."""
    monkeypatch.setattr(quantities, "compile_program", lambda *_: Compiled(executable, True))
    generate_quantities(run, toolchain, seed=1)


@pytest.mark.parametrize("last", ["d", "s/[^,]*/nan/g"], ids=["left out", "not a number"])
def test_a_file_with_too_few_draws_is_refused(last, copy, toolchain, tmp_path, monkeypatch):
    """A killed program leaves the first and no message, newer CmdStans the other."""
    killed = tmp_path / "killed"
    killed.write_text(
        f'#!/bin/sh\n"{binary(copy, toolchain)}" "$@"\n'
        'for word in "$@"; do\n'
        "  case $word in file=*.csv)\n"
        "    sed -i '/^#/d' \"${word#file=}\"  # newer releases end with comments\n"
        f"    sed -i '${last}' \"${{word#file=}}\";;\n"
        "  esac\n"
        "done\n"
    )
    killed.chmod(0o755)
    with pytest.raises(SemistanError, match="of 199 of the 200 draws of chain 1"):
        generate_by(killed, copy, toolchain, monkeypatch)
    assert not list((copy.path / "generated").glob("*.csv"))


def test_chains_of_another_program_are_refused(copy, toolchain, monkeypatch):
    other, _ = random_bundle("gaussian")
    executable = compile_program(quantities_program(other), toolchain).executable
    with pytest.raises(SemistanError, match="CmdStan failed: Mismatch"):
        generate_by(executable, copy, toolchain, monkeypatch)


def test_unfinished_runs_are_refused(copy, toolchain):
    with pytest.raises(InputError, match=r"lacks chains \[1, 2\].*semistan export"):
        read_generated(copy)
    (copy.path / "chains" / "chain-1.csv").unlink()
    with pytest.raises(InputError, match=r"lacks chains \[1\]"):
        generate_quantities(copy, toolchain)
    assert not (copy.path / "generated").exists()


programs = pytest.mark.parametrize(
    "bundle",
    [
        *(random_bundle(name)[0] for name in RESPONSES),
        random_bundle("gaussian", priors={"sigma": "constant(2)"})[0],
    ],
    ids=[*RESPONSES, "fixed sigma"],
)


@programs
def test_the_program_is_laid_out_as_the_sampling_program(bundle):
    text = quantities_program(bundle)
    assert text.startswith("// generated with semistan ")
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
    assert "model {" not in text
    assert f"// bundle: {bundle.sha256}\n" in text


def test_a_family_has_one_program_whatever_the_formula_and_the_priors():
    plain, _ = random_bundle("gaussian")
    other, _ = small_bundle("y ~ x + C(g):z + nn(u)", priors__b="student_t(3, 0, 1)")
    texts = [quantities_program(bundle) for bundle in (plain, other)]
    assert texts[0] != texts[1]
    assert without_comments(texts[0]) == without_comments(texts[1])


def test_every_family_names_stans_density_and_generator():
    for record in FAMILIES:
        row = {"y": "y[n]", "eta": "eta[n]", "trials": "trials[n]", "times": "*"}
        row |= {name: name for name in (*record.dispersion, *(c.name for c in record.costly))}
        density = record.density.format(**row)
        kind = "lpmf" if record.integer else "lpdf"
        assert re.fullmatch(rf"\w+_{kind}\(y\[n\] \| .*eta\[n\].*\)", density)
        assert re.match(r"\w+_rng\(.*eta\[n\]", record.stan_rng.format(**row))
        assert all(name in density for name in (*record.dispersion, *record.given))
