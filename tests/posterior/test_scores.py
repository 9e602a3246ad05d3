"""Scores against scikit-learn, scoringrules, scipy and naive loops."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scoringrules
from scipy import stats
from scipy.special import gamma
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    roc_auc_score,
    root_mean_squared_error,
)

from semistan.bundle.files import write_json
from semistan.errors import InputError
from semistan.model.families.families import FAMILIES, family
from semistan.posterior import predictive
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred, posterior_linpred
from semistan.posterior.scoring.folds import (
    fold_folder,
    read_kfold,
    write_fold_options,
    write_folds,
    write_pointwise,
)
from semistan.posterior.scoring.scores import (
    Pointwise,
    _replicated,
    _standard_error,
    crps,
    join,
    pointwise,
    reliability,
    scores,
    scores_table,
    scoring_notes,
)
from semistan.show.pictures.calibration import _curves
from semistan.show.pictures.words import eta_words, mean_words
from semistan.terminal import screen
from support.distributions import HurdleAmounts, InflatedBeta, LogBetaPrime
from support.drawn import random_draws
from support.small import category_bundle
from support.untrained import MULTINOMIAL, random_bundle

NAMES = [record.name for record in FAMILIES]
NONE = np.zeros((0, 0))  # probabilities of a response without categories


def judged(name, **options):
    bundle, rows = random_bundle(name)
    draws = random_draws(bundle, chains=2, iterations=200)
    options = {"generator": np.random.default_rng(1)} | options
    return bundle, rows, draws, pointwise(SubspacePosterior(bundle, draws), rows, **options)


def by_name(bundle, found, interval=0.9):
    return {item.name: item for item in scores(bundle.family, found, interval)}


def zero_inflated(pmf, y, share):
    return share * (y == 0) + (1 - share) * pmf(y)


def hurdle(pmf, y, share):
    return share if y == 0 else (1 - share) * pmf(y) / (1 - pmf(0))


def skew_normal(y, mean, sd, slant):
    shift = slant / np.sqrt(1 + slant**2) * np.sqrt(2 / np.pi)
    omega = sd / np.sqrt(1 - shift**2)
    return stats.skewnorm.pdf(y, slant, mean - omega * shift, omega)


def density(name, y, eta, dispersion, s, trials):
    at = {key: values.ravel()[s] for key, values in dispersion.items()}
    mean = 1 / (1 + np.exp(-eta))

    def poisson(y):
        return stats.poisson.pmf(y, np.exp(eta))

    def negbinomial(y):
        return stats.nbinom.pmf(y, at["shape"], at["shape"] / (at["shape"] + np.exp(eta)))

    densities = {
        "gaussian": lambda: stats.norm.pdf(y, eta, at["sigma"]),
        "poisson": lambda: stats.poisson.pmf(y, np.exp(eta)),
        "bernoulli": lambda: stats.bernoulli.pmf(y, mean),
        "negbinomial": lambda: stats.nbinom.pmf(
            y, at["shape"], at["shape"] / (at["shape"] + np.exp(eta))
        ),
        "student": lambda: stats.t.pdf(y, at["nu"], eta, at["sigma"]),
        "lognormal": lambda: stats.lognorm.pdf(y, at["sigma"], scale=np.exp(eta)),
        "gamma": lambda: stats.gamma.pdf(y, at["shape"], scale=np.exp(eta) / at["shape"]),
        "beta": lambda: stats.beta.pdf(y, at["precision"] * mean, at["precision"] * (1 - mean)),
        "binomial": lambda: stats.binom.pmf(y, trials, mean),
        "weibull": lambda: stats.weibull_min.pdf(
            y, at["shape"], scale=np.exp(eta) / gamma(1 + 1 / at["shape"])
        ),
        "exponential": lambda: stats.expon.pdf(y, scale=np.exp(eta)),
        "asym_laplace": lambda: LogBetaPrime(
            1 - at["quantile"], at["quantile"], eta, at["sigma"]
        ).pdf(y),
        "von_mises": lambda: stats.vonmises.pdf(y, at["kappa"], 2 * np.arctan(eta)),
        "skew_normal": lambda: skew_normal(y, eta, at["sigma"], at["alpha"]),
        "beta_binomial": lambda: stats.betabinom.pmf(
            y, trials, at["precision"] * mean, at["precision"] * (1 - mean)
        ),
        "zero_inflated_poisson": lambda: zero_inflated(poisson, y, at["zi"]),
        "zero_inflated_negbinomial": lambda: zero_inflated(negbinomial, y, at["zi"]),
        "hurdle_poisson": lambda: hurdle(poisson, y, at["hu"]),
        "hurdle_negbinomial": lambda: hurdle(negbinomial, y, at["hu"]),
        "hurdle_gamma": lambda: HurdleAmounts(
            stats.gamma(at["shape"], scale=np.exp(eta) / at["shape"]), at["hu"]
        ).pdf(y),
        "hurdle_lognormal": lambda: HurdleAmounts(
            stats.lognorm(at["sigma"], scale=np.exp(eta)), at["hu"]
        ).pdf(y),
        "zero_one_inflated_beta": lambda: InflatedBeta(
            at["precision"] * mean, at["precision"] * (1 - mean), at["zoi"], at["coi"]
        ).pdf(y),
    }
    return densities[name]()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.lengthy
def test_lppd_is_that_of_a_naive_loop(name):
    bundle, rows, draws, found = judged(name)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    total, trials = 0.0, rows.given.get("trials", np.ones(len(rows)))
    for i in range(len(rows)):
        mixture = np.mean(
            [
                density(name, rows.y[i], eta[s, i], draws.dispersion, s, trials[i])
                for s in range(len(eta))
            ]
        )
        total += np.log(mixture)
    assert by_name(bundle, found)["LPPD"].value == pytest.approx(total / len(rows), rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_scikit_learns(name):
    bundle, rows, draws, found = judged(name)
    mean = posterior_epred(SubspacePosterior(bundle, draws), rows).mean(axis=0)
    mine = by_name(bundle, found)
    assert mine["RMSE"].value == pytest.approx(root_mean_squared_error(rows.y, mean))
    assert mine["MAE"].value == pytest.approx(mean_absolute_error(rows.y, mean))


def test_auc_and_brier_score_are_scikit_learns():
    bundle, rows, draws, found = judged("bernoulli")
    mean = posterior_epred(SubspacePosterior(bundle, draws), rows).mean(axis=0)
    mine = by_name(bundle, found)
    assert mine["AUC"].value == pytest.approx(roc_auc_score(rows.y, mean))
    assert mine["Brier"].value == pytest.approx(brier_score_loss(rows.y, mean))


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson"])
def test_averages_have_the_weights_and_densities_do_not(name, capsys):
    bundle, rows = random_bundle(name, formula="y | weights(w) ~ x1 + x2 + nn(u1, u2, u3)")
    draws = random_draws(bundle, chains=2, iterations=200)
    found = pointwise(SubspacePosterior(bundle, draws), rows, generator=np.random.default_rng(1))
    plain, plain_rows = random_bundle(name)
    of_plain = pointwise(
        SubspacePosterior(plain, draws), plain_rows, generator=np.random.default_rng(1)
    )
    for field in Pointwise.__dataclass_fields__:
        if field != "weight":
            assert np.array_equal(getattr(found, field), getattr(of_plain, field))
    w, mean = rows.given["weights"], found.mean
    assert np.array_equal(found.weight, w) and np.array_equal(of_plain.weight, np.ones(len(w)))
    mine = by_name(bundle, found)
    assert mine["LPPD"].value == pytest.approx(np.average(found.lpd, weights=w))
    assert mine["CRPS"].value == pytest.approx(np.average(found.crps, weights=w))
    options = {"sample_weight": w}
    expected = root_mean_squared_error(rows.y, mean, **options)
    assert mine["RMSE"].value == pytest.approx(expected)
    assert mine["MAE"].value == pytest.approx(mean_absolute_error(rows.y, mean, **options))
    if name == "bernoulli":
        assert mine["AUC"].value == pytest.approx(roc_auc_score(rows.y, mean, **options))
        assert mine["Brier"].value == pytest.approx(brier_score_loss(rows.y, mean, **options))
    screen.say_weighting(plain.config)
    assert capsys.readouterr().err == ""
    screen.say_weighting(bundle.config)
    assert capsys.readouterr().err == "Averages over rows are weighted by w.\n"


def test_a_factor_of_all_weights_changes_no_score():
    bundle, _, _, found = judged("gaussian")
    tenfold = replace(found, weight=10 * found.weight)
    one, ten = by_name(bundle, found), by_name(bundle, tenfold)
    for name, item in one.items():
        assert (ten[name].value, ten[name].se) == pytest.approx((item.value, item.se))


def test_the_standard_error_of_a_weighted_mean_is_its_spread_over_samples():
    generator = np.random.default_rng(4)
    w, values = generator.uniform(0.2, 3, 40), generator.normal(size=(4000, 40))
    means = values @ w / w.sum()
    found = [_standard_error(row, w) for row in values]
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(means.std(), rel=0.05)


def judged_categories(name):
    counted = name == MULTINOMIAL
    bundle, rows = random_bundle(name) if counted else category_bundle(name)
    draws = random_draws(bundle, chains=2, iterations=200)
    found = pointwise(SubspacePosterior(bundle, draws), rows, generator=np.random.default_rng(1))
    return bundle, rows, posterior_epred(SubspacePosterior(bundle, draws), rows).mean(axis=0), found


def test_unordered_categories_have_three_scores():
    bundle, rows, p, found = judged_categories("categorical")
    mine, y = by_name(bundle, found), rows.y.astype(int) - 1
    assert set(mine) == {"LPPD", "accuracy", "Brier"}
    assert mine["LPPD"].value == pytest.approx(-log_loss(y, p, labels=[0, 1, 2]), rel=1e-9)
    assert mine["accuracy"].value == pytest.approx(accuracy_score(y, p.argmax(axis=1)))
    each = [sum((p[i, k] - (y[i] == k)) ** 2 for k in range(3)) for i in range(30)]
    assert mine["Brier"].value == pytest.approx(np.mean(each), rel=1e-9)
    assert mine["Brier"].se == pytest.approx(np.std(each, ddof=1) / np.sqrt(30), rel=1e-9)
    assert np.isnan(found.mean).all() and np.isnan(found.crps).all() and np.isnan(found.pit).all()


def test_ordered_categories_have_an_accuracy_besides():
    bundle, rows, p, found = judged_categories("cumulative")
    mine = by_name(bundle, found)
    assert {"RMSE", "MAE", "CRPS", "width of 90% interval"} < set(mine)
    assert mine["accuracy"].value == pytest.approx(accuracy_score(rows.y, p.argmax(axis=1) + 1))
    assert found.mean == pytest.approx(p @ np.arange(1, 5), rel=1e-9)


def test_reliability_is_that_of_a_category():
    _, rows, p, found = judged_categories("categorical")
    table = reliability(found.of_category(2), bins=3)
    order = np.argsort(p[:, 2], kind="stable").reshape(3, 10)
    assert list(table["predicted"]) == pytest.approx([p[part, 2].mean() for part in order])
    assert list(table["observed"]) == [np.mean(rows.y[part] == 3) for part in order]


@pytest.mark.parametrize("name", ["categorical", "cumulative", MULTINOMIAL])
def test_a_folds_rows_are_kept_with_their_probabilities(name, tmp_path):
    *_, found = judged_categories(name)
    write_folds(np.repeat([1, 2], 15), tmp_path / "kfold")
    for fold in (1, 2):
        part = slice(15 * (fold - 1), 15 * fold)
        folder = fold_folder(tmp_path / "kfold", fold)
        folder.mkdir()
        values = {name: getattr(found, name)[part] for name in Pointwise.__dataclass_fields__}
        write_pointwise(Pointwise(**values), np.arange(15), folder)
        write_json(folder / "checks.json", [])
    write_fold_options(tmp_path / "kfold", {"folds": 2, "interval": 0.9})
    rows = read_kfold(tmp_path).rows
    assert np.array_equal(rows.p, found.p) and np.array_equal(rows.lpd, found.lpd)
    assert np.array_equal(rows.y, found.y)
    assert np.array_equal(rows.crps, found.crps, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_binary_response_has_an_auc_and_others_an_interval(name):
    bundle, _, _, found = judged(name)
    kinds = ("coverage", "width", *(["randomised coverage"] if bundle.family.integer else []))
    binary, interval = {"AUC", "Brier"}, {f"{x} of 90% interval" for x in kinds}
    scored = set(by_name(bundle, found)) - {"LPPD", "RMSE", "MAE", "CRPS"}
    assert scored == (binary if name == "bernoulli" else interval)


def test_a_binary_family_of_any_name_has_an_auc_and_a_probability():
    bundle, _, _, found = judged("bernoulli")
    coin = replace(bundle.family, name="coin")
    assert scores(coin, found) == scores(bundle.family, found)
    posterior = SimpleNamespace(family=coin, design=bundle.design)
    material = SimpleNamespace(response="head", success="1", posterior=posterior)
    assert (mean_words(material), eta_words(material)) == ("P(head = 1)", "log-odds of head = 1")
    (curve,) = _curves(material, found, None)
    assert curve.observed == "share of head = 1"


def test_auc_with_ties_counts_them_half_and_needs_both_classes():
    def auc(y, mean):
        y, mean = np.array(y, float), np.array(mean, float)
        rows = Pointwise(y, y, mean, y, y, y, y, NONE, np.ones(len(y)))
        return by_name(SimpleNamespace(family=family("bernoulli")), rows).get("AUC")

    assert auc([0, 1, 0, 1], [0.5, 0.5, 0.2, 0.9]).value == pytest.approx(3.5 / 4)
    assert auc([1, 1], [0.2, 0.3]) is None


def test_the_standard_error_of_auc_is_its_spread_over_samples():
    """DeLong's standard error against the sd of AUC over independent samples."""
    generator, found = np.random.default_rng(3), []
    for _ in range(400):
        y = generator.integers(0, 2, 80).astype(float)
        mean = y + generator.normal(0, 1.2, 80)
        rows = Pointwise(y, y, mean, y, y, y, y, NONE, np.ones(len(y)))
        found.append(by_name(SimpleNamespace(family=family("bernoulli")), rows)["AUC"])
    spread = np.std([item.value for item in found], ddof=1)
    assert np.mean([item.se for item in found]) == pytest.approx(spread, rel=5 / np.sqrt(2 * 400))


def test_standard_errors_are_those_of_means_over_rows():
    bundle, rows, _, found = judged("gaussian")
    mine = by_name(bundle, found)
    assert mine["LPPD"].se == pytest.approx(stats.sem(found.lpd))
    assert mine["CRPS"].se == pytest.approx(stats.sem(found.crps))
    error = np.square(found.mean - rows.y)
    assert mine["RMSE"].se == pytest.approx(stats.sem(error) / 2 / mine["RMSE"].value)


def test_crps_is_scoringrules_unbiased_ensemble_score():
    generator = np.random.default_rng(4)
    replicated = np.sort(generator.normal(size=(500, 7)), axis=0)
    y = generator.normal(size=7)
    expected = scoringrules.crps_ensemble(y, replicated.T, estimator="fair")
    assert crps(replicated, y) == pytest.approx(expected, rel=1e-9)


def test_crps_of_a_normal_ensemble_is_the_closed_form():
    generator = np.random.default_rng(5)
    y, repeats = np.array([0.3, -1.0, 2.5]), 200
    found = np.array(
        [crps(np.sort(generator.normal(size=(400, 3)), axis=0), y) for _ in range(repeats)]
    )
    error = found.std(axis=0, ddof=1) / np.sqrt(repeats)
    assert np.all(np.abs(found.mean(axis=0) - scoringrules.crps_normal(y, 0, 1)) < 5 * error)


@pytest.mark.lengthy
def test_intervals_cover_as_they_should_when_the_model_is_true():
    bundle, rows = random_bundle("gaussian")
    draws = random_draws(bundle, chains=1, iterations=2000)
    generator = np.random.default_rng(6)
    replicated = predictive.posterior_predict(SubspacePosterior(bundle, draws), rows, generator)
    covered, pit = [], []
    for y in replicated[generator.choice(2000, 300, replace=False)]:
        found = pointwise(
            SubspacePosterior(bundle, draws), replace(rows, y=y), interval=0.8, generator=generator
        )
        covered.append(((found.lower <= y) & (y <= found.upper)).mean())
        pit.append(found.pit[0])
    assert abs(np.mean(covered) - 0.8) < 5 * stats.sem(covered) + 2 / 2000
    assert stats.kstest(pit, "uniform").pvalue > 1e-4


def test_the_randomised_pit_of_counts_is_uniform():
    bundle, rows = random_bundle("poisson")
    draws = random_draws(bundle, chains=1, iterations=1000)
    generator = np.random.default_rng(7)
    replicated = predictive.posterior_predict(SubspacePosterior(bundle, draws), rows, generator)
    pit = []
    for y in replicated[:300]:
        one = replace(rows, y=y).first(1)
        pit.append(pointwise(SubspacePosterior(bundle, draws), one, generator=generator).pit[0])
    assert stats.kstest(pit, "uniform").pvalue > 1e-4


def test_rows_are_judged_the_same_in_pieces(monkeypatch):
    _, rows, _, whole = judged("gaussian")
    monkeypatch.setattr(predictive, "CHUNK_PREDICTIONS", 7 * 400)
    _, _, _, pieces = judged("gaussian")
    assert pieces.lpd.shape == (len(rows),)
    for name in ("lpd", "mean"):
        assert getattr(pieces, name) == pytest.approx(getattr(whole, name), rel=1e-12)


def test_join_keeps_the_order():
    one, two = (
        Pointwise(*(np.full(n, float(n)) for _ in range(7)), NONE, np.ones(n)) for n in (2, 3)
    )
    assert list(join([one, two]).pit) == [2, 2, 3, 3, 3]


def test_reliability_compares_means_in_bins_of_equal_size():
    generator = np.random.default_rng(8)
    mean = generator.uniform(size=1000)
    y = (generator.random(1000) < mean).astype(float)
    table = reliability(Pointwise(y, y, mean, y, y, y, y, NONE, np.ones(len(y))), bins=5)
    assert list(table["rows"]) == [200] * 5
    lowest = np.argsort(mean)[:200]
    assert table["predicted"][0] == pytest.approx(mean[lowest].mean())
    assert table["observed"][0] == pytest.approx(y[lowest].mean())
    assert (np.abs(table["observed"] - table["predicted"]) < 5 * table["se"]).all()


def test_a_row_of_weight_w_counts_w_times_in_cross_validation(tmp_path):
    _, _, _, found = judged("gaussian")
    weighted = replace(found, weight=np.arange(30) % 3.0)
    folder = fold_folder(tmp_path / "kfold", 1)
    folder.mkdir(parents=True)
    write_folds(np.ones(30, int), tmp_path / "kfold")
    write_pointwise(weighted, np.arange(30), folder)
    write_json(folder / "checks.json", [])
    write_fold_options(tmp_path / "kfold", {"folds": 1, "interval": 0.9})
    table = read_kfold(tmp_path).table().set_index("measure")
    expected = found.lpd[1::3].sum() + 2 * found.lpd[2::3].sum()
    assert table.loc["elpd_kfold", "Estimate"] == pytest.approx(expected)
    assert table.loc["kfoldic", "Estimate"] == pytest.approx(-2 * expected)
    points = pd.read_parquet(folder / "pointwise.parquet").drop(columns="weight")
    points.to_parquet(folder / "pointwise.parquet", index=False)
    write_fold_options(tmp_path / "kfold", {"folds": 1, "interval": 0.9})
    with pytest.raises(InputError, match=r"another version .* with --overwrite"):
        read_kfold(tmp_path)


def test_reliability_has_the_weights():
    generator = np.random.default_rng(8)
    y, mean = generator.normal(size=(2, 12))
    w = np.array([0.0, 2.0, 1.0] * 4)
    table = reliability(Pointwise(y, y, mean, y, y, y, y, NONE, w), bins=2)
    kept = [i for i in np.argsort(mean) if w[i] > 0]
    for j, part in enumerate((kept[:4], kept[4:])):
        assert table["predicted"][j] == pytest.approx(np.average(mean[part], weights=w[part]))
        assert table["observed"][j] == pytest.approx(np.average(y[part], weights=w[part]))


def test_the_table_names_the_interval():
    bundle, _, _, found = judged("gaussian", interval=0.5)
    table = scores_table(scores(bundle.family, found, 0.5))
    assert list(table.columns) == ["score", "Estimate", "SE"]
    assert "coverage of 50% interval" in list(table["score"])


def test_a_probability_of_95_is_refused():
    with pytest.raises(InputError, match="between 0 and 1, got 95"):
        judged("gaussian", interval=95)


def test_one_row_has_every_score_but_those_of_several():
    for name in ("gaussian", "bernoulli", "poisson", "cumulative", "binomial"):
        bundle, rows = random_bundle(name)
        posterior = SubspacePosterior(bundle, random_draws(bundle))
        found = pointwise(posterior, rows.first(1), generator=np.random.default_rng(1))
        several = scores(bundle.family, found)
        whole = pointwise(posterior, rows, generator=np.random.default_rng(1))
        expected = {item.name for item in scores(bundle.family, whole)} - {"AUC"}
        assert {item.name for item in several} == expected
        assert np.isfinite([item.value for item in several]).all()
        said = scoring_notes(bundle.family, found)
        assert said[0] == "One row counts, so that there are no standard errors."
        assert ("There is no AUC: all rows that count are of one class." in said) == (
            name == "bernoulli"
        )
        assert len(reliability(found)) == 0


def test_the_randomised_coverage_of_a_right_model_is_the_intervals_probability():
    record, generator = family("poisson"), np.random.default_rng(4)
    n, size, mean = 4000, 1000, 2.0
    eta = np.full((size, n), np.log(mean))
    y = generator.poisson(mean, n).astype(float)
    judged = _replicated(record, eta, {}, y, 0.8, generator)
    found = Pointwise(y, y, y, p=np.zeros((n, 0)), weight=np.ones(n), **judged)
    scored = {item.name: item for item in scores(record, found, 0.8)}
    randomised = scored["randomised coverage of 80% interval"]
    assert abs(randomised.value - 0.8) < 4 * randomised.se
    # the quantiles of Poisson(2) at 0.1 and 0.9 are 0 and 4
    assert scored["coverage of 80% interval"].value == pytest.approx((y <= 4).mean())
    assert scored["coverage of 80% interval"].value > 0.92
    assert any("holds 80% or more" in text for text in scoring_notes(record, found, 0.8))
    assert not scoring_notes(family("gaussian"), found, 0.8)
