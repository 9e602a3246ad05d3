"""PSIS-LOO against ArviZ and the exact leave-one-out density; comparisons against ArviZ."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from semistan.command import cli
from semistan.errors import InputError
from semistan.infer.methods import method_named
from semistan.posterior import predictive
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.run import Run
from semistan.posterior.scoring.compare import (
    compare_elpd,
    compare_loo,
    stacking_weights,
    unreliable_text,
)
from semistan.posterior.scoring.folds import KFold
from semistan.posterior.scoring.loo import CONDITIONAL, Loo, leave_one_out, psis_loo
from semistan.workflow.compare import caveat, check_same_response, compare, resolved_by
from support import arviz_oracle
from support.drawn import random_draws
from support.manifests import manifest
from support.untrained import random_bundle


def normal_log_lik(n=40, size=4000, seed=0):
    """Known sd 1, flat prior: the posterior of the mean is exactly normal."""
    generator = np.random.default_rng(seed)
    y = generator.normal(1.0, 1.0, n)
    mu = generator.normal(y.mean(), 1 / np.sqrt(n), size)
    return y, stats.norm.logpdf(y, mu[:, None], 1.0)


def test_elpd_is_the_exact_leave_one_out_density():
    y, density = normal_log_lik()
    n, found = len(y), psis_loo(density)
    left_out = (y.sum() - y) / (n - 1)
    exact = stats.norm.logpdf(y, left_out, np.sqrt(1 + 1 / (n - 1)))
    assert np.abs(found.elpd - exact).max() < 0.02
    assert abs(found.elpd.sum() - exact.sum()) < 0.05
    assert found.unreliable.size == 0


def tempered_linear_model(temperature, n=60, size=4000):
    """Draws of N(y | X beta, 1)^(1 / T) N(beta | 0, 4 I): density (S, N) and exact LOO (N,)."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(n, 6))
    y = X @ generator.normal(size=6) + generator.normal(size=n)

    def posterior(rows):
        covariance = np.linalg.inv(X[rows].T @ X[rows] / temperature + np.eye(6) / 4)
        return covariance @ X[rows].T @ y[rows] / temperature, covariance

    beta = generator.multivariate_normal(*posterior(np.arange(n)), size)
    exact = np.zeros(n)
    for i in range(n):
        mean, covariance = posterior(np.delete(np.arange(n), i))
        exact[i] = stats.norm.logpdf(y[i], X[i] @ mean, np.sqrt(1 + X[i] @ covariance @ X[i]))
    return stats.norm.logpdf(y, beta @ X.T, 1.0), exact


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0, 16.0])
def test_elpd_of_a_tempered_posterior_is_its_exact_leave_one_out_density(temperature):
    density, exact = tempered_linear_model(temperature)
    found = psis_loo(density, temperature)
    assert found.unreliable.size == 0
    assert np.abs(found.elpd - exact).max() < 0.1
    assert abs(found.elpd.sum() - exact.sum()) < 0.3


def test_the_temperature_is_that_of_the_bundle():
    bundle, rows = random_bundle("gaussian", sample={"temperature": 3.0})
    draws = random_draws(bundle)
    density = predictive.log_lik(SubspacePosterior(bundle, draws), rows)
    found = leave_one_out(SubspacePosterior(bundle, draws), rows)
    assert found.elpd == pytest.approx(psis_loo(density, 3.0).elpd, rel=1e-12)
    assert found.elpd != pytest.approx(psis_loo(density).elpd, rel=1e-3)


def test_a_tempered_subspace_has_no_psis_loo():
    sample = {"temperature": 2.0, "temper": "subspace"}
    bundle, rows = random_bundle("gaussian", sample=sample)
    with pytest.raises(InputError, match=r"temperature 2: p\(y \| phi\) .* use 'semistan kfold'"):
        leave_one_out(SubspacePosterior(bundle, random_draws(bundle)), rows)
    plain, rows = random_bundle("gaussian", sample=sample | {"temperature": 1.0})
    assert np.isfinite(
        leave_one_out(SubspacePosterior(plain, random_draws(plain)), rows).elpd
    ).all()


def test_the_table_is_arvizs():
    _, density = normal_log_lik(size=3600)
    data = arviz_oracle.collected(
        posterior={"mu": np.zeros((4, 900))}, log_likelihood={"y": density.reshape(4, 900, -1)}
    )
    expected, found = arviz_oracle.loo(data), psis_loo(density)
    table = found.table().set_index("measure")
    assert table.loc["elpd_loo", "Estimate"] == pytest.approx(expected.elpd)
    assert table.loc["p_loo", "Estimate"] == pytest.approx(expected.p)
    assert table.loc["elpd_loo", "SE"] == pytest.approx(expected.se)
    assert table.loc["looic", "Estimate"] == pytest.approx(-2 * expected.elpd)


def test_an_influential_row_is_named():
    y, density = normal_log_lik(n=10, size=500)
    generator = np.random.default_rng(2)
    density[:, 3] = -40 * np.abs(generator.standard_cauchy(500))
    found = psis_loo(density)
    assert list(found.unreliable) == [3]
    assert "1 of 10 Pareto k" in found.text()
    assert "rows 4)" in found.text()
    assert "kfold" in found.text()
    assert list(found.pointwise()["row"]) == list(range(1, len(y) + 1))


def test_repeated_draws_do_not_shorten_the_tail():
    """With each of 190 draws twice, the tail of 59 begins between two equal weights."""
    _, density = normal_log_lik(n=5, size=190)
    twice = np.repeat(density, 2, axis=0)
    jittered = twice + 1e-9 * np.random.default_rng(0).normal(size=twice.shape)
    repeated, distinct = psis_loo(twice), psis_loo(jittered)
    assert repeated.pareto_k == pytest.approx(distinct.pareto_k, abs=1e-6)
    assert repeated.elpd == pytest.approx(distinct.elpd, abs=1e-6)


def test_the_limit_depends_on_the_number_of_draws():
    none = np.zeros(0)
    assert Loo(none, none, none, 100).limit == pytest.approx(0.5)
    assert Loo(none, none, none, 4000).limit == 0.7


def test_rows_are_taken_in_pieces(monkeypatch):
    bundle, rows = random_bundle("poisson")
    draws = random_draws(bundle)
    whole = leave_one_out(SubspacePosterior(bundle, draws), rows)
    monkeypatch.setattr(predictive, "CHUNK_PREDICTIONS", 7 * draws.size)
    pieces = leave_one_out(SubspacePosterior(bundle, draws), rows)
    assert pieces.elpd == pytest.approx(whole.elpd, rel=1e-12)
    assert pieces.size == draws.size


def three_models(n=200):
    """Pointwise densities of a good, a bad and a complementary model."""
    generator = np.random.default_rng(3)
    y = np.concatenate([generator.normal(0, 1, n // 2), generator.normal(4, 1, n // 2)])
    return {name: stats.norm.logpdf(y, mean, sd) for name, mean, sd in
            (("low", 0, 1), ("high", 4, 1), ("wide", 2, 4))}  # fmt: skip


def found_loo(elpd, pareto_k, size=4000):
    return Loo(np.asarray(elpd), np.asarray(elpd), np.asarray(pareto_k), size)


def test_a_comparison_by_loo_says_where_pareto_k_is_too_large():
    good, bad = np.random.default_rng(1).normal(size=(2, 5))
    found = {"a": found_loo(bad, [0.1, 0.9, 0.2, 0.71, 0.3]), "b": found_loo(good, np.full(5, 0.5))}
    table = compare_loo(found)
    plain = compare_elpd({"a": bad, "b": good})
    assert table[plain.columns].equals(plain)
    by_name = table.set_index("model")
    assert by_name["largest_k"].to_dict() == {"a": 0.9, "b": 0.5}
    assert by_name["k_above"].to_dict() == {"a": 2, "b": 0}
    assert "'a' in 2 rows (largest 0.90). Their elpd is unreliable" in unreliable_text(table)
    assert "'b'" not in unreliable_text(table)
    assert unreliable_text(compare_loo({"b": found["b"], "c": found["b"]})) is None
    few = {name: replace(item, size=100) for name, item in found.items()}  # limit 0.5
    assert compare_loo(few).set_index("model")["k_above"].to_dict() == {"a": 2, "b": 0}


@pytest.mark.parametrize("method", ["meanfield", "fullrank", "pathfinder", "laplace", "flow"])
def test_an_approximation_has_no_psis_loo(method):
    bundle, rows = random_bundle("gaussian")
    draws = replace(random_draws(bundle), method=method_named(method))
    with pytest.raises(InputError, match=r"from an approximation .* use 'semistan kfold'"):
        leave_one_out(SubspacePosterior(bundle, draws), rows)


@pytest.fixture
def two_runs(monkeypatch):
    """Two runs of random draws, one of them with a row whose response is far from all else."""
    bundle, rows = random_bundle("gaussian")
    drawn = {"run": random_draws(bundle), "other": random_draws(bundle, seed=9)}
    runs = [Run(Path(name), bundle, manifest()) for name in drawn]
    monkeypatch.setattr(Run, "rows", lambda _: rows)
    monkeypatch.setattr(
        "semistan.workflow.score.read_posterior",
        lambda run: SubspacePosterior(run.bundle, drawn[run.path.name]),
    )
    return runs, drawn


def test_runs_are_compared_with_their_pareto_k(two_runs, monkeypatch, capsys):
    runs, drawn = two_runs
    table = compare(runs).set_index("model")
    for run in runs:
        expected = leave_one_out(SubspacePosterior(run.bundle, drawn[run.path.name]), run.rows())
        assert table.loc[run.path.name, "k_above"] == len(expected.unreliable) > 0
        assert table.loc[run.path.name, "largest_k"] == expected.pareto_k.max()
    read = []
    monkeypatch.setattr(
        "semistan.workflow.runs.read_run",
        lambda path: read.append(str(path)) or runs[str(path) == "other"],
    )
    monkeypatch.setattr("sys.argv", ["semistan", "compare", "run", "other", "--json"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    out, err = capsys.readouterr()
    assert not left.value.code
    assert read == ["run", "other"], "each run is read once"
    counts = {line["model"]: line["k_above"] for line in json.loads(out)["rows"]}
    assert counts == table["k_above"].to_dict()
    assert "warning: Pareto k is above its limit" in " ".join(err.split())


def test_folds_are_preferred_where_a_subspace_is_compared(two_runs, monkeypatch):
    runs, _ = two_runs
    folds = {run.path: np.arange(30) % 3 for run in runs}

    def read_kfold(run):
        if run.path not in folds:
            raise InputError("none")
        return KFold(folds[run.path], None, {})

    monkeypatch.setattr("semistan.workflow.compare.read_kfold", read_kfold)
    assert resolved_by(runs) == "kfold"
    assert "K-fold" in caveat(runs, "kfold")
    folds[runs[0].path] = np.arange(30) % 4
    assert resolved_by(runs) == "loo"
    folds.clear()
    assert resolved_by(runs) == "loo"
    assert caveat(runs, "loo") == CONDITIONAL


def test_all_weights_need_no_folds_and_no_caveat(monkeypatch):
    bundle, rows = random_bundle("gaussian", subspace={"construction": "full"})
    run = Run(Path("run"), bundle, manifest())
    monkeypatch.setattr("semistan.workflow.compare.read_kfold", None)
    assert resolved_by([run, run]) == "loo"
    assert caveat([run, run], "loo") == ""
    found = leave_one_out(SubspacePosterior(bundle, random_draws(bundle)), rows)
    assert found.caveat == ""
    assert repr(found).endswith(found.text())
    narrow, rows = random_bundle("gaussian")
    found = leave_one_out(SubspacePosterior(narrow, random_draws(narrow)), rows)
    assert repr(found).endswith(CONDITIONAL)


def test_a_run_that_has_no_psis_loo_is_named(two_runs):
    runs, drawn = two_runs
    drawn["other"] = replace(drawn["other"], method=method_named("meanfield"))
    with pytest.raises(InputError, match=r"'other': PSIS-LOO needs draws from the posterior"):
        compare(runs)


def test_differences_and_their_standard_errors():
    elpd = three_models()
    table = compare_elpd(elpd)
    assert table["model"][0] == "wide"
    assert (table["elpd_diff"][0], table["se_diff"][0]) == (0, 0)
    for _, line in table.iterrows():
        difference = elpd[line["model"]] - elpd["wide"]
        assert line["elpd_diff"] == pytest.approx(difference.sum())
        assert line["se_diff"] == pytest.approx(stats.tstd(difference) * np.sqrt(200))


def test_stacking_weights_maximise_the_mixture():
    elpd = np.column_stack(list(three_models().values()))
    weights = stacking_weights(elpd)

    def value(w):
        return np.log(np.exp(elpd) @ w).mean()

    assert weights.sum() == pytest.approx(1)
    generator = np.random.default_rng(0)
    assert all(value(weights) >= value(w) - 1e-9 for w in generator.dirichlet([0.5] * 3, 5000))


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_stacking_weights_are_arvizs():
    elpd = three_models()
    expected = arviz_oracle.stacking(elpd)
    found = compare_elpd(elpd).set_index("model")["weight"]
    for name in elpd:
        assert found[name] == pytest.approx(expected[name], abs=2e-4)


def test_a_row_of_weight_3_counts_three_times():
    elpd, weight = three_models(), np.random.default_rng(2).integers(0, 4, 200)
    found = compare_elpd(elpd, weight.astype(float)).set_index("model")
    repeated = compare_elpd({name: np.repeat(x, weight) for name, x in elpd.items()})
    repeated = repeated.set_index("model").loc[found.index]
    for column in ("elpd", "elpd_diff"):
        assert found[column].to_numpy() == pytest.approx(repeated[column].to_numpy())
    assert found["weight"].to_numpy() == pytest.approx(repeated["weight"].to_numpy(), abs=1e-4)


def test_a_dominated_model_gets_no_weight():
    good = np.random.default_rng(1).normal(size=50)
    assert compare_elpd({"a": good - 3, "b": good})["weight"].to_numpy() == pytest.approx([1, 0])


@pytest.mark.parametrize(
    ("elpd", "message"),
    [
        ({"a": np.zeros(3)}, "at least two models, got 1"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, "different numbers of rows .a: 3, b: 4."),
    ],
)
def test_what_cannot_be_compared_is_refused(elpd, message):
    with pytest.raises(InputError, match=message):
        compare_elpd(elpd)


def run_on(values, y, categories=()):
    """What the comparison asks of a run on the response r."""
    design = SimpleNamespace(categories=categories)
    bundle = SimpleNamespace(design=design, config=SimpleNamespace(formula="r ~ x + nn(u)"))
    return SimpleNamespace(
        bundle=bundle, path=Path("run"), table=lambda: pd.DataFrame({"r": values}),
        rows=lambda: SimpleNamespace(y=np.array(y, dtype=float)),
    )  # fmt: skip


def test_the_same_categories_may_have_another_reference_or_order():
    bus_first = run_on(["car", "bus", "bus"], [2, 1, 1], ("bus", "car"))
    car_first = run_on(["car", "bus", "bus"], [1, 2, 2], ("car", "bus"))
    check_same_response([bus_first, car_first], ["one", "two"])
    other = run_on(["car", "train", "bus"], [2, 3, 1], ("bus", "car", "train"))
    with pytest.raises(InputError, match="row 2 is bus and train"):
        check_same_response([bus_first, other], ["one", "two"])
    numbers = run_on([2, 1, 3], [2, 1, 3], ("1", "2", "3"))
    check_same_response([numbers, run_on([2.0, 1.0, 3.0], [2, 1, 3])], ["one", "two"])
    with pytest.raises(InputError, match=r"row 3 is 3 and 2\."):
        check_same_response([run_on([2, 1, 3], [2, 1, 3]), run_on([2, 1, 2], [2, 1, 2])], "ab")
