"""Several subspaces in one fit: their folder, their mixture, every command, and interruptions.

The oracles are fits of single subspaces with the same seeds, and the members' draws put together
by hand. Draws are made by PyTorch; one fit goes through CmdStan.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.bundle.bundle import read_bundle
from semistan.errors import InputError, SemistanError
from semistan.infer.backends.local import LOCAL
from semistan.posterior.agreement import between
from semistan.posterior.diagnostics import ebfmi
from semistan.posterior.generated import read_generated
from semistan.posterior.posterior import Mixture, read_posterior, shares_of
from semistan.posterior.predictive import log_lik, posterior_epred, posterior_linpred
from semistan.posterior.run import read_run
from semistan.posterior.scoring.compare import stacking_weights
from semistan.posterior.scoring.loo import leave_one_out
from semistan.workflow.fit import fit_model
from semistan.workflow.kfold import fold_config
from semistan.workflow.outputs import generate, r_script
from semistan.workflow.sample import sample as sample_run
from semistan.workflow.train_subspaces import lacks_trainings, resume
from semistan.workflow.watch import Watch
from support import arviz_oracle
from support.command import command_in
from support.sealed import rewrite
from support.small import files, small_config, small_frame

HELPER = Path(__file__).parents[1] / "show" / "read_run.R"
FORMULA = "y ~ x + C(g) + nn(u, v)"
CHAINS, DRAWS, EPOCHS = 2, 60, 20
SAMPLE = {"method": "elliptical-slice", "chains": CHAINS, "warmup": 20, "draws": DRAWS, "seed": 3}

pytestmark = pytest.mark.lengthy


def config(**settings):
    settings = {"train__epochs": EPOCHS, "train__seed": 5, "sample": SAMPLE} | settings
    return small_config(FORMULA, **settings)


@pytest.fixture(scope="module")
def fit(here, tmp_path_factory):
    folder = tmp_path_factory.mktemp("subspaces")
    small_frame(40).to_csv(folder / "d.csv", index=False)
    return fit_model(config(subspace__subspaces=2), small_frame(40), out=folder / "run")


@pytest.fixture
def copy(fit, tmp_path):
    written = shutil.ignore_patterns("report.html", "read.R", "kfold")
    shutil.copytree(fit.run.path, tmp_path / "copy", ignore=written)
    return tmp_path / "copy"


@pytest.fixture
def command(fit, monkeypatch, capsys):
    """Run ``semistan`` beside the run; return its exit code, standard output and error."""
    return command_in(fit.run.path.parent, monkeypatch, capsys)


def chain(run, subspace, number):
    return run / "subspaces" / str(subspace) / "chains" / f"chain-{number}.csv"


def pooled(fit, of):
    return np.concatenate([of(member.draws).ravel() for member in fit.posterior.members])


def test_the_folder_has_what_is_shared_above_a_run_of_each_subspace(fit):
    assert {path.name for path in fit.run.path.iterdir()} == {
        "manifest.json", "program.stan", "labels.json", "training.parquet", "summary.csv",
        "posterior.nc", "subspaces",
    }  # fmt: skip
    for number in (1, 2):
        member = read_run(fit.run.path / "subspaces" / str(number))
        assert (member.options.seed, member.bundle.config.train.seed) == (2 + number, 4 + number)
        assert len(member.csv_files()) == CHAINS
    manifest = json.loads((fit.run.path / "manifest.json").read_text())
    assert manifest["bundle_sha256"] == [part.bundle.sha256 for part in fit.run.parts]
    assert "bundle:" not in (fit.run.path / "program.stan").read_text()


def test_a_subspace_is_the_run_that_its_seed_alone_would_have_been(fit, tmp_path):
    seeds = {"train.seed": 6, "sample.seed": 4}
    alone = fit_model(config(), small_frame(40), out=tmp_path / "run", overrides=seeds).run
    for number in (1, 2):
        own = alone.path / "chains" / f"chain-{number}.csv"
        assert chain(fit.run.path, 2, number).read_bytes() == own.read_bytes()
    assert alone.bundle.sha256 == fit.run.parts[1].bundle.sha256
    assert not alone.parts


def test_trainings_in_processes_of_their_own_are_the_same(fit, tmp_path, monkeypatch):
    monkeypatch.setattr("semistan.infer.backends.local.usable_processors", lambda: [0, 0])
    told = []
    again = fit_model(
        config(subspace__subspaces=2), small_frame(40), out=tmp_path / "run",
        watch=Watch(training=lambda *of_all: told.append(of_all[:2])),
    )  # fmt: skip
    assert again.run.manifest.bundle_sha256 == fit.run.manifest.bundle_sha256
    assert max(told) == (2 * EPOCHS, 2 * EPOCHS)


def test_the_epochs_of_a_shortened_training_are_told(tmp_path):
    told = []
    fit_model(
        config(), small_frame(40), out=tmp_path / "run",
        overrides={"train.steps": 2, "sample.method": "laplace"},
        watch=Watch(training=lambda *of_all: told.append(of_all[:2])),
    )  # fmt: skip
    assert told == [(1, 2), (2, 2)]


def test_the_table_is_that_of_the_members_draws(fit):
    table = pd.read_csv(fit.run.path / "summary.csv").set_index("variable")
    ends = {"l-95% CI": 0.025, "u-95% CI": 0.975}
    for name in table.index:
        values = pooled(fit, lambda draws, name=name: draws.interpreted[name])
        assert len(values) == 2 * CHAINS * DRAWS
        assert table.loc[name, "Estimate"] == pytest.approx(values.mean())
        assert table.loc[name, "Est.Error"] == pytest.approx(values.std(ddof=1))
        for column, probability in ends.items():
            assert table.loc[name, column] == pytest.approx(np.quantile(values, probability))


def test_the_agreement_is_the_between_share_of_the_variance(fit):
    members, rows = fit.posterior.members, fit.run.rows()
    eta = np.stack([posterior_linpred(member, rows) for member in members])
    share = eta.mean(axis=1).var(axis=0) / eta.reshape(-1, len(rows)).var(axis=0)
    assert fit.summary.agreement.eta == pytest.approx(np.median(share))
    text = fit.summary.agreement.text()
    assert text.startswith(f"2 subspaces: between them lies {100 * np.median(share):.0f}% of the")
    assert text in repr(fit)


def test_the_share_between_groups_of_different_sizes_is_that_of_the_pooled_variance():
    generator = np.random.default_rng(1)
    groups = [generator.normal(j, 1, size=(n, 3)) for j, n in enumerate((5, 9, 20))]
    everything = np.concatenate(groups)
    centred = np.concatenate([group - group.mean(axis=0) for group in groups])
    assert np.allclose(between(groups), 1 - centred.var(axis=0) / everything.var(axis=0))
    assert np.array_equal(between([np.ones((4, 2)), np.ones((3, 2))]), [0, 0])


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_the_inference_data_have_chains_within_subspaces(fit):
    data = arviz_oracle.read(fit.run.path / "posterior.nc")
    assert data.posterior["phi"].dims == ("chain", "draw", "subspace", "subspace_dim")
    assert data.posterior["theta"].dims == ("chain", "draw", "subspace", "coef")
    assert data.sample_stats["lp"].shape == (CHAINS, DRAWS, 2)
    for number, member in enumerate(fit.posterior.members, start=1):
        own = data.posterior.sel(subspace=number)
        assert np.array_equal(own["b_x"], member.draws.coefficients["b_x"])
    assert data.log_likelihood["y"].shape == (2 * CHAINS, DRAWS, 40)
    found = arviz_oracle.loo(data).elpd
    assert found == pytest.approx(leave_one_out(fit.posterior, fit.run.rows()).elpd.sum(), rel=1e-4)


COMMANDS = (
    ("summary", "run"),
    ("summary", "run", "--json"),
    ("summary", "run", "--by", "subspace"),
    ("sample", "run"),
    ("predict", "run", "--newdata", "d.csv", "--kind", "predict", "--draws", "draws.parquet"),
    ("predict", "run", "--newdata", "d.csv", "--engine", "onnx"),
    ("predict", "run", "--newdata", "d.csv", "--prior"),
    ("score", "run", "--newdata", "d.csv"),
    ("effect", "run", "u", "--picture", "effect.png"),
    ("slopes", "run", "x"),
    ("importance", "run", "--repeats", "1"),
    ("decompose", "run"),
    ("pool", "run", "run"),
    ("summary", "run", "--interval", "0.9"),
    ("hypothesis", "run", "b_x > 0", "b_x = 0", "--rope=-1,1"),
    ("score", "run", "--r2"),
    ("comparisons", "run", "x", "--contrast", "sd"),
    ("pp-check", "run", "--stat", "max,sd"),
    ("plot", "run", "--kind", "loo_pit"),
    ("plot", "run", "--kind", "pairs"),
    ("plot", "run", "--kind", "stat"),
    ("sensitivity", "run"),
    ("plot", "run", "--kind", "trace"),
    ("report", "run"),
    ("export", "run", "--to", "draws", "--out", "all.csv"),
    ("loo", "run"),
    ("compare", "run", "run/subspaces/1"),
    ("export", "run", "--to", "r"),
    ("priors", "run"),
    ("doctor", "run"),
    ("kfold", "run", "-K", "2", "--jobs", "1"),
    ("compare", "run", "run/subspaces/1", "--newdata", "d.csv"),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_answers(command, arguments):
    code, out, err = command(*arguments)
    assert code in (0, 3), err
    assert out or err


def test_what_is_printed_tells_of_both_subspaces(command):
    _, out, _ = command("summary", "run")
    assert "weights in 2 subspaces of k = 2 (bezier)" in out
    assert "2 subspaces x 2 chains x 60 after 20 warm-up draws" in out
    assert "2 subspaces: between them lies" in out
    _, out, _ = command("summary", "run", "--by", "subspace", "--json")
    lines = json.loads(out)["rows"]
    assert [line["subspace"] for line in lines if line["variable"] == "b_x"] == [1, 2]
    table = pd.read_csv("run/subspaces/2/chains/chain-1.csv", comment="#")
    other = pd.read_csv("run/subspaces/2/chains/chain-2.csv", comment="#")
    own = pd.concat([table, other])["b_x"].mean()
    (found,) = (x for x in lines if x["variable"] == "b_x" and x["subspace"] == 2)
    assert found["Estimate"] == pytest.approx(own, rel=1e-6)


def test_predictions_by_both_engines_are_those_of_all_draws(fit):
    frame = small_frame(40)
    by_torch, by_onnx = (semistan.predict(fit.run, frame, engine=e) for e in ("torch", "onnx"))
    rows = fit.run.rows()
    mu = np.concatenate([posterior_epred(each, rows) for each in fit.posterior.members])
    assert np.allclose(by_torch["Estimate"], mu.mean(axis=0))
    assert np.allclose(by_torch["Est.Error"], mu.std(axis=0, ddof=1))
    assert np.allclose(by_torch["Estimate"], by_onnx["Estimate"], rtol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("subspace", "run"), "name one of them, as 'run/subspaces/1'"),
        (("stan", "run"), "name the bundle in it, as 'run/subspaces/1/bundle'"),
        (("sample", "run", "--draws", "50"), "semistan sample run/subspaces/1/bundle --out NAME"),
        (("plot", "run", "--kind", "loss"), "plot that of RUN/subspaces/1"),
        (("export", "run", "--to", "generated"), "this run's method is 'elliptical-slice'"),
        (("summary", "run", "--by", "chain"), "--by takes 'subspace', got 'chain'"),
        (("fit", FORMULA, "--data", "d.csv", "--subspaces", "0"), "subspace.subspaces"),
        (
            ("fit", FORMULA, "--data", "d.csv", "--subspaces", "2", "--weights", "stacking",
             "--method", "meanfield", "--out", "never"),
            "subspace.weights is 'stacking', but PSIS-LOO needs draws from the posterior",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(command, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert message in " ".join(err.split())


def test_a_new_model_has_the_keys_and_a_bundle_has_one_subspace(command, fit, here):
    folder = fit.run.path.parent
    code, _, err = command("new", FORMULA, "--data", "d.csv", "--subspaces", "2", "--epochs", "5")
    assert code == 0, err
    text = (folder / "model.toml").read_text()
    assert "subspaces = 2\n" in text
    assert 'weights = "equal"\n' in text
    code, _, err = command("fit", "model.toml", "--train-only", "--out", "bundle")
    assert code == 0, err
    assert "a bundle holds one subspace, the first of 2" in err
    assert read_bundle(folder / "bundle").config.subspace.subspaces == 1


def test_folds_are_fitted_with_as_many_subspaces(fit):
    assert fold_config(fit.run).subspace.subspaces == 2
    assert fold_config(fit.run).sample.draws == DRAWS
    assert fold_config(fit.run.parts[1]).subspace.subspaces == 1
    assert fold_config(fit.run.parts[1]).train.seed == 6


def test_a_killed_chain_is_drawn_again(copy, fit, command):
    chain(copy, 2, 1).unlink()
    assert read_run(copy).missing == [3]
    code, _, err = command("summary", copy)
    assert code == 2
    assert f"semistan sample {copy}" in err.replace("\n", "")
    with pytest.raises(InputError, match=r"lacks chains \[3\] \(each subspace has 2\)"):
        read_posterior(copy)
    code, _, err = command("sample", copy)
    assert code in (0, 3)
    assert "sampling 1 chain x (20 + 60) draws" in err
    assert chain(copy, 2, 1).read_bytes() == chain(fit.run.path, 2, 1).read_bytes()
    assert (copy / "summary.csv").read_bytes() == (fit.run.path / "summary.csv").read_bytes()


class Counting:
    """Does tasks one after the other, and fails after some of them."""

    def __init__(self, most=99):
        self.most, self.done = most, []

    def map(self, tasks, *, at_once=None, report=None):
        """See ``Backend``."""
        for index, result in LOCAL.map(tasks, at_once=at_once, report=report):
            if len(self.done) == self.most:
                raise SemistanError(f"{tasks[index].name} failed: killed")
            self.done.append(tasks[index].name)
            yield index, result


def test_a_killed_training_goes_on_with_what_is_not_trained(fit, tmp_path, command):
    path = tmp_path / "run"
    with pytest.raises(SemistanError, match="training of subspace 2 failed"):
        fit_model(config(subspace__subspaces=2), small_frame(40), out=path, backend=Counting(1))
    trained = files(path / "subspaces" / "1")
    with pytest.raises(InputError, match="interrupted in training: 1 of 2 subspaces"):
        read_run(path)
    assert lacks_trainings(path)
    backend = Counting()
    run = resume(path, backend=backend)
    assert backend.done == ["training of subspace 2"]
    assert files(path / "subspaces" / "1") == trained
    assert not lacks_trainings(path)
    assert run.missing == [1, 2, 3, 4]
    code, _, err = command("sample", path)
    assert code in (0, 3), err
    assert (path / "summary.csv").read_bytes() == (fit.run.path / "summary.csv").read_bytes()


def test_a_training_that_left_half_a_folder_is_done_again(fit, tmp_path, command):
    path = tmp_path / "run"
    shutil.copytree(fit.run.path, path)
    shared = {"bundle_sha256", "sample", "warmups", "plan", "kernel", "keep_metric", "seconds"}
    rewrite(path, lost=shared)
    (path / "subspaces" / "2" / "manifest.json").unlink()
    code, _, err = command("sample", path)
    assert code in (0, 3), err
    assert "subspace 2 of 2: trained a curve" in err
    assert "subspace 1 of 2" not in err
    assert (path / "summary.csv").read_bytes() == (fit.run.path / "summary.csv").read_bytes()


def test_a_changed_subspace_is_refused(copy):
    shutil.rmtree(copy / "subspaces" / "2")
    shutil.copytree(copy / "subspaces" / "1", copy / "subspaces" / "2")
    with pytest.raises(InputError, match="does not have the bundles"):
        read_run(copy)


def test_an_existing_run_needs_overwrite(copy):
    several = config(subspace__subspaces=2)
    with pytest.raises(InputError, match="--overwrite"):
        fit_model(several, small_frame(40), out=copy)
    again = fit_model(config(), small_frame(40), out=copy, overwrite=True)
    assert not (copy / "subspaces").exists()
    assert not again.run.parts


def by_stacking(manifest):
    manifest["config"]["subspace"]["weights"] = "stacking"


def stacked(copy):
    """Sample a copy of the run once more, by stacking."""
    rewrite(copy, by_stacking)
    said = []
    return sample_run(read_run(copy), watch=Watch(said.append)), said


def test_stacked_draws_count_in_proportion_to_the_weights(copy, fit, monkeypatch):
    rows = fit.run.rows()
    found = [leave_one_out(member, rows) for member in fit.posterior.members]
    reliable = np.all([item.pareto_k <= item.limit for item in found], axis=0)
    assert reliable.sum() > 20
    expected = stacking_weights(np.column_stack([item.elpd for item in found])[reliable])
    again, said = stacked(copy)
    assert again.run.weights == pytest.approx(tuple(expected))
    assert any("weights of the subspaces by stacking" in text for text in said)
    assert again.posterior.shares == shares_of(expected, DRAWS)
    assert "by stacking" in repr(again.run)
    values = np.concatenate(
        [
            member.draws.coefficients["b_x"][
                :, np.linspace(0, DRAWS - 1, round(DRAWS * share)).round().astype(int)
            ].ravel()
            for member, share in zip(fit.posterior.members, again.posterior.shares, strict=True)
        ]
    )
    line = again.summary.table().loc["b_x"]
    assert line["Estimate"] == pytest.approx(values.mean())
    assert line["Est.Error"] == pytest.approx(values.std(ddof=1))
    later = read_posterior(copy)
    assert np.array_equal(later.interpreted["b_x"].ravel(), values)


def test_weights_that_rest_on_few_rows_stay_equal(copy, monkeypatch):
    monkeypatch.setattr("semistan.posterior.scoring.stacking.LEAST_RELIABLE", 1.1)
    again, said = stacked(copy)
    assert again.run.weights == ()
    assert any("warning: the subspaces have equal weights" in text for text in said)
    assert again.posterior.chains == 2 * CHAINS


@pytest.mark.parametrize("arguments", COMMANDS[:-2], ids=" ".join)
def test_every_command_answers_with_unequal_weights(command, fit, copy, arguments):
    rewrite(copy, lambda manifest: manifest.update(weights=[0.3, 0.7]) or by_stacking(manifest))
    given = [str(copy) if item == "run" else item for item in arguments]
    for pattern in ("*.png", "*.parquet", "all.csv"):  # written of the run with equal weights
        for written in fit.run.path.parent.glob(pattern):
            written.unlink()
    code, out, err = command(*given)
    assert code in (0, 3), err
    assert out or err


@pytest.mark.parametrize("weights", [(1.0,), (0.0, 0.0), (-1.0, 2.0)])
def test_weights_of_a_mixture_are_checked(fit, weights):
    with pytest.raises(InputError, match="a mixture of 2 posteriors has a weight for each"):
        Mixture(fit.posterior.members, weights)


def test_a_member_without_weight_is_not_judged(fit):
    one, other = fit.posterior.members
    mixed = Mixture((one, other), (1.0, 0.0))
    rows = fit.run.rows()
    assert mixed.counted[0].draws.size == one.draws.size
    assert len(mixed.counted) == 1
    expected = posterior_linpred(one, rows)
    assert np.array_equal(posterior_linpred(mixed, rows), expected)
    assert len(mixed.sampler["lp"]) == CHAINS
    assert mixed.thin(40).size == 40


def test_nuts_samples_all_subspaces_with_one_program(toolchain, tmp_path):
    sample = {"chains": 2, "warmup": 100, "draws": 50, "kernel": "stan", "seed": 3}
    said = []
    fit = fit_model(
        config(subspace__subspaces=2, sample=sample), small_frame(40), out=tmp_path / "run",
        watch=Watch(said.append),
    )  # fmt: skip
    assert sum("compiled" in line for line in said) == 1
    assert (fit.run.options.adapt_delta, fit.run.options.max_treedepth) == (0.98, 10)
    assert any(line.startswith("sampling 4 chains x (100 + 50) draws") for line in said)
    written = generate(fit.run)
    assert [path.relative_to(fit.run.path).parts[:2] for path in written] == [
        ("subspaces", "1"), ("subspaces", "1"), ("subspaces", "2"), ("subspaces", "2"),
    ]  # fmt: skip
    density = log_lik(fit.posterior, fit.run.rows())
    assert read_generated(fit.run).log_lik == pytest.approx(density, rel=1e-6, abs=1e-6)
    rscript = shutil.which("Rscript")
    if rscript is not None and _has_r_packages(rscript):
        _check_r(fit, rscript)


def _has_r_packages(rscript):
    libraries = "library(posterior); library(bayesplot); library(rstan); library(loo)"
    found = subprocess.run([rscript, "-e", libraries], capture_output=True, check=False)
    return found.returncode == 0


def _check_r(fit, rscript):
    """R's table is ours: pooled draws, mean Rhat, sums of effective sample sizes."""
    command = [rscript, HELPER, r_script(fit.run), fit.run.path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(fit.run.path / "coefficients.csv").set_index("variable")
    found = pd.read_csv(fit.run.path / "diagnostics.csv").iloc[0]
    assert found["draws"] == fit.posterior.size
    assert found["ebfmi"] == pytest.approx(ebfmi(fit.posterior.sampler["energy"]).min(), rel=1e-2)
    for row in fit.summary.rows:
        line = table.loc[row.name]
        assert line["Estimate"] == pytest.approx(row.estimate, rel=1e-6)
        assert line["Est.Error"] == pytest.approx(row.est_error, rel=1e-6)
        assert line["Rhat"] == pytest.approx(row.rhat, rel=1e-3)
        assert line["Bulk_ESS"] == pytest.approx(row.bulk_ess, rel=0.02)
