"""The estimators for scikit-learn: its own checks, formulas over tables, and what they predict."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from semistan.errors import InputError
from semistan.sklearn import SemistanClassifier, SemistanRegressor
from support.small import small_frame

QUICK = {"hidden": (2,), "k": 2, "method": "laplace", "chains": 1, "draws": 50,
         "settings": {"epochs": 20}, "random_state": 1}  # fmt: skip
FORMULA = "x + C(g) + nn(u, v)"
SKIPPED = {"check_array_api_input"}  # which needs an environment variable of SciPy


def regression(n=60):
    table = small_frame(n)
    return table.drop(columns="y"), table["y"]


@pytest.mark.lengthy
@pytest.mark.parametrize("kind", [SemistanRegressor, SemistanClassifier])
@pytest.mark.filterwarnings("ignore::Warning")
def test_scikit_learns_own_checks_pass(kind):
    found = check_estimator(kind(**QUICK), on_fail=None, on_skip=None)
    failed = {each["check_name"]: each["exception"] for each in found
              if each["status"] != "passed" and each["check_name"] not in SKIPPED}  # fmt: skip
    assert not failed
    assert len(found) > 45


@pytest.mark.lengthy
def test_a_formula_chooses_from_a_table_with_factors():
    X, y = regression()
    fitted = SemistanRegressor(FORMULA, **QUICK).fit(X, y)
    assert {"b_x", "b_gb"} <= set(fitted.fit_.summary().table().index)
    mean, error = fitted.predict(X, return_std=True)
    assert np.allclose(mean, fitted.fit_.epred(X).mean(axis=0))
    sigma = fitted.fit_.draws()["sigma"].mean()
    assert error == pytest.approx(np.full(len(X), sigma), rel=0.6)
    assert fitted.n_features_in_ == X.shape[1]
    assert fitted.score(X, y) > 0


def test_the_left_side_names_the_response():
    X, y = regression()
    X = X.rename(columns={"x": "y"})
    with pytest.raises(InputError, match="X has a column 'y'"):
        SemistanRegressor("y ~ y + nn(u)", **QUICK).fit(X, y)
    fitted = SemistanRegressor("target ~ y + nn(u)", **QUICK).fit(X, y)
    assert fitted.fit_.formula == "target ~ y + nn(u)"
    alone = SemistanRegressor("y + nn(u)", **QUICK).fit(X, y)
    assert alone.fit_.formula == "response ~ y + nn(u)"


@pytest.mark.parametrize("names", [(0, 1), ("no", "yes"), ("a", "b", "c")])
def test_classes_are_predicted_by_their_names(names):
    X, y = regression(90)
    edges = np.quantile(y, np.linspace(0, 1, len(names) + 1)[1:-1])
    classes = np.array(names)[np.digitize(y, edges)]
    fitted = SemistanClassifier(FORMULA, **QUICK).fit(X, classes)
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (90, len(names))
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert set(fitted.predict(X)) <= set(names)
    assert fitted.score(X, classes) > 1 / len(names)
    order = [probabilities[classes == name, i].mean() for i, name in enumerate(names)]
    assert min(order) > 1 / len(names)  # each class is the likeliest among its own rows


@pytest.mark.lengthy
def test_they_stand_in_pipelines_and_searches():
    X, y = np.random.default_rng(1).normal(size=(40, 3)), np.arange(40.0)
    chain = make_pipeline(StandardScaler(), SemistanRegressor(**QUICK))
    assert cross_val_score(chain, X, y, cv=2).shape == (2,)
    search = GridSearchCV(SemistanRegressor(**QUICK), {"k": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["k"] in (1, 2)


def test_counts_have_a_family_of_counts():
    X = pd.DataFrame({"a": np.linspace(-1, 1, 50), "b": np.cos(np.arange(50))})
    y = np.random.default_rng(1).poisson(np.exp(1 + X["a"]))
    fitted = SemistanRegressor("a + nn(b)", family="poisson", **QUICK).fit(X, y)
    assert fitted.fit_.config.family == "poisson" and (fitted.predict(X) > 0).all()


def test_the_same_random_state_gives_the_same_fit():
    X, y = regression()
    one, other = (clone(SemistanRegressor(FORMULA, **QUICK)).fit(X, y) for _ in range(2))
    assert np.array_equal(one.predict(X), other.predict(X))


def test_what_cannot_be_fitted_is_said():
    X, y = regression()
    with pytest.raises(NotFittedError):
        SemistanClassifier(**QUICK).predict(X[["u"]])
    with pytest.raises(InputError, match="one class alone"):
        SemistanClassifier(FORMULA, **QUICK).fit(X, np.ones(len(X)))
    with pytest.raises(InputError, match="n_samples=1"):
        SemistanRegressor(FORMULA, **QUICK).fit(X[:1], y[:1])
    with pytest.raises(InputError, match="left side of the formula its name"):
        SemistanRegressor("log(y) ~ x + nn(u)", **QUICK).fit(X, y)
