"""A model with ``mi(x)``: from the table to predictions, and against Gibbs sampling."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray
from scipy import stats

import semistan
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.model.formula.simpler import smooth_formula
from semistan.posterior.mcse import mcse
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows, training_rows

FORMULA = "y ~ z + mi(x) + nn(u), x | mi() ~ z + C(g)"
N, Z = 120, 4.5


def holed(n=N, seed=1):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(generator.normal(size=(n, 2)), columns=["z", "u"])
    frame["g"] = np.array(["a", "b"])[np.arange(n) % 2]
    x = 20 + 2 * frame.z + generator.normal(0, 1.5, n)
    frame["y"] = 0.8 * x - frame.z + 0.5 * frame.u + generator.normal(0, 0.7, n)
    return frame.assign(x=x.where(generator.random(n) < stats.norm.cdf(1 - frame.z), np.nan))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing")
    holed().to_csv(folder / "d.csv", index=False)
    overrides = {
        "network.hidden": (3,), "subspace.k": 3, "train.epochs": 300, "train.device": "cpu",
        "sample.method": "laplace", "sample.chains": 2, "sample.draws": 400,
        "data": str(folder / "d.csv"),
    }  # fmt: skip
    return fit_model(FORMULA, out=folder / "run", overrides=overrides)


def test_the_table_has_the_coefficients_of_both_regressions(fitted):
    rows = {row.name: row for row in fitted.summary.rows}
    assert list(rows) == [
        "bsp_mix", "b_x[Intercept]", "b_x[z]", "b_x[C(g)[T.b]]", "sigma_mix", "b_Intercept", "b_z",
        "sigma",
    ]  # fmt: skip
    for name, truth in (("bsp_mix", 0.8), ("b_z", -1), ("b_x[z]", 2), ("sigma_mix", 1.5)):
        assert abs(rows[name].estimate - truth) < 4 * rows[name].est_error, name


def test_rows_of_the_training_have_their_parameters_wherever_they_come_from(fitted):
    run = fitted.run
    level = run.rows().predictors["mu"].blocks[0].level
    gone = holed().x.isna().to_numpy()
    assert np.array_equal(level[gone], np.arange(gone.sum()))
    again = training_rows(run.bundle)
    assert np.array_equal(again.predictors["mu"].blocks[0].level, level)
    new = new_rows(run.bundle, holed()).predictors["mu"].blocks[0]
    assert len(new.new) == gone.sum()
    draws, posterior = fitted.posterior.draws, fitted.posterior
    row = int(np.flatnonzero(gone)[0])
    assert run.bundle.design.terms[0].elements["Ymi_1"].axes[0][0] == str(row + 1)
    by_hand = draws.flat(draws.terms["mi_1"])[:, 1]
    found = posterior.predictor(run.rows().take(np.array([row])), part="penalised")[:, 0]
    assert found == pytest.approx(by_hand)


def test_what_is_known_of_a_new_row_narrows_its_prediction(fitted):
    complete = holed().dropna().head(8)
    without = semistan.predict(fitted.run, complete.assign(x=np.nan), kind="epred")
    known = semistan.predict(fitted.run, complete, kind="epred")
    assert (known["Est.Error"] < without["Est.Error"] / 2).all()
    assert (without["Est.Error"] > 0.8 * 1.5 * 0.7).all()
    assert (abs(known["Estimate"] - without["Estimate"]) < 4 * without["Est.Error"]).all()


def test_effects_have_missing_values_at_their_means(fitted):
    found = semistan.comparisons(fitted.run).set_index("term")
    slope = next(row for row in fitted.summary.rows if row.name == "bsp_mix")
    assert set(found.index) == {"z", "x", "u"}
    assert found.loc["x", "Estimate"] == pytest.approx(slope.estimate, rel=1e-6)
    assert semistan.importance(fitted.run)["term"].iloc[0] == "x"
    curve = semistan.effect(fitted.run, "x", resolution=3).table()
    assert np.isfinite(curve["Estimate"]).all()
    assert curve["x"].tolist() == pytest.approx(np.linspace(holed().x.min(), holed().x.max(), 3))
    by_level = semistan.comparisons(fitted.run, "z", by="g")
    assert list(by_level["g"]) == ["a", "b"]


def test_arviz_has_the_missing_values_by_their_rows(fitted):
    data = xarray.open_dataset(fitted.run.path / "posterior.nc", group="posterior")
    rows = [str(row + 1) for row in np.flatnonzero(holed().x.isna())]
    assert data["Ymi_x_level"].values.tolist() == rows
    assert data["Ymi_x"].values == pytest.approx(fitted.posterior.draws.terms["Ymi_1"])
    assert data["b_x[z]"].shape == (2, 400)


def test_a_picture_says_what_is_in_the_units_of_x(fitted, tmp_path):
    figure = semistan.plot(fitted.run, "coefficients")
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels.count("in the units of x") == 1
    assert labels.index("in the units of x") < labels.index("sigma, in units of y")
    figure.savefig(tmp_path / "coefficients.png")


def test_rows_that_lack_another_column_are_refused_by_its_name(fitted):
    with pytest.raises(InputError, match=re.escape("missing or infinite values: z (1)")):
        new_rows(fitted.run.bundle, holed().assign(z=[np.nan] + [0.0] * (N - 1)))
    with pytest.raises(InputError, match=re.escape("missing or infinite values: x (1)")):
        new_rows(fitted.run.bundle, holed().assign(x=[np.inf] + [np.nan] * (N - 1)))
    with pytest.raises(InputError, match="column 'x'"):
        new_rows(fitted.run.bundle, holed().drop(columns="x"))


def test_simpler_formulas_keep_what_missing_values_are_predicted_from(fitted):
    text = smooth_formula(FORMULA, lambda _: True)
    assert text == "y ~ z + mi(x) + s(u) + nn(u), x | mi() ~ z + C(g)"
    assert read_table(fitted.run.bundle.source.path).shape == (N, 5)


def gibbs(frame, scales, df, draws, seed=1):
    """Sample y ~ normal(a + bsp x + b z + c u, sigma), x ~ normal(d + e z, s), prior 1 / s.

    The slopes and a have normal priors with standard deviations ``scales``, and sigma has Student's
    t distribution with ``df`` degrees of freedom and the last of these.
    """
    generator = np.random.default_rng(seed)
    gone, x = frame.x.isna().to_numpy(), frame.x.fillna(frame.x.mean()).to_numpy(copy=True)
    y, one = frame.y.to_numpy(), np.ones(len(frame))
    A = np.column_stack([one, frame.z])
    known_mean = frame.x.mean()
    sigma, found = 1.0, []
    prior = np.diag(1 / np.square(scales[:-1]))
    root = np.linalg.inv(np.linalg.qr(A, mode="r"))
    for _ in range(draws):
        X = np.column_stack([one, x - known_mean, frame.z, frame.u])
        precision = X.T @ X / sigma**2 + prior
        L = np.linalg.cholesky(np.linalg.inv(precision))
        beta = np.linalg.solve(precision, X.T @ y / sigma**2) + L @ generator.normal(size=4)
        rest = np.square(y - X @ beta).sum()
        move = sigma * np.exp(0.15 * generator.normal())
        log_ratio = [
            -(len(y) - 1) * np.log(s) - rest / (2 * s**2) + stats.t.logpdf(s / scales[-1], df)
            for s in (move, sigma)
        ]
        if np.log(generator.random()) < log_ratio[0] - log_ratio[1]:
            sigma = move
        fit = root @ (root.T @ (A.T @ x))
        s = np.sqrt(np.square(x - A @ fit).sum() / generator.chisquare(len(x) - 2))
        b = fit + s * root @ generator.normal(size=2)
        weight = 1 / s**2 + beta[1] ** 2 / sigma**2
        others = y - X[:, [0, 2, 3]] @ beta[[0, 2, 3]] + beta[1] * known_mean
        mean = ((A @ b) / s**2 + beta[1] * others / sigma**2) / weight
        x[gone] = (mean + generator.normal(size=len(x)) / np.sqrt(weight))[gone]
        found.append([beta[1], beta[2], sigma, b[1], s, x[gone][0]])
    return np.array(found)[draws // 10 :]


@pytest.mark.slow
def test_the_posterior_is_that_of_gibbs_sampling(toolchain, tmp_path):
    frame = holed(60, seed=4)
    priors = {"b_z": "normal(0, 1)", "bsp_mix": "normal(0, 1)", "sigma": "student_t(3, 0, 1)"}
    overrides = {
        "network.hidden": (), "sample.draws": 4000, "priors": {**priors, "autoscale": False},
    }  # fmt: skip
    fit = fit_model("y ~ z + mi(x) + nn(u), x | mi() ~ z", frame, out=tmp_path / "run",
                    overrides=overrides)  # fmt: skip
    draws = fit.posterior.draws
    names = {"bsp_mix": 0, "b_z": 1, "sigma": 2, "b_x[z]": 3, "sigma_mix": 4}
    ours = {**draws.spread, **draws.coefficients, **draws.dispersion}
    found = {name: ours[name] for name in names} | {"Ymi_x": draws.terms["Ymi_1"][..., 0]}
    # flat where the program's priors of level and slope are wide
    exact = gibbs(frame, np.array([1e3, 1, 1, 1e3, 1]), 3, 40_000)
    for number, (name, values) in enumerate(found.items()):
        own = exact[:, number].reshape(4, -1)
        for what, of in (("mean", np.mean), ("sd", np.std)):
            error = np.hypot(mcse(values, what), mcse(own, what))
            assert abs(of(values) - of(own)) < Z * error, (name, what)
