"""Estimators for scikit-learn: ``SemistanRegressor`` and ``SemistanClassifier``.

They need scikit-learn, as ``pip install semistan[sklearn]`` brings it. Everything that a fit can be
asked is behind ``estimator.fit_``, a ``semistan.Fit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from semistan.api.fit import Fit, fit
from semistan.errors import InputError
from semistan.model.arrays import Array
from semistan.model.config import LARGEST_SEED

if TYPE_CHECKING:
    import pandas as pd

NETWORK_OF_ALL = "nn(.)"


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both have in common; the parameters are documented there."""

    def __init__(
        self,
        formula: str | None = None,
        *,
        family: str | None = None,
        priors: Mapping[str, str] | None = None,
        hidden: Sequence[int] = (16, 16),
        k: int | str = "auto",
        method: str = "nuts",
        chains: int = 4,
        warmup: int | str = "auto",
        draws: int | str = "auto",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.formula = formula
        self.family = family
        self.priors = priors
        self.hidden = hidden
        self.k = k
        self.method = method
        self.chains = chains
        self.warmup = warmup
        self.draws = draws
        self.settings = settings
        self.random_state = random_state
        self.progress = progress

    def _response(self, X: Any, y: Any, **options: Any) -> Array:
        """Return y (N,), checked together with X unless a formula has a table to choose from."""
        if self.formula is None or not hasattr(X, "columns"):
            _, y = validate_data(self, X, y, dtype="numeric", **options)
        return np.asarray(column_or_1d(y, warn=True))

    def _fitted(self, X: Any, y: Any, family: str) -> Self:
        """Fit the response ``y``, which is as the family has it, to the rows of X."""
        table = self._table(X)
        if len(table) < 2:
            raise InputError(f"a fit needs at least two rows, got n_samples={len(table)}")
        response, terms = self._split(table)
        if response in table:
            raise InputError(
                f"X has a column '{response}', the name of the response: give the formula a left "
                f"side with another name, as 'target ~ {terms}'"
            )
        seed = int(check_random_state(self.random_state).randint(LARGEST_SEED >> 1))
        given: dict[str, Any] = {
            "family": family, "priors": dict(self.priors or {}), "hidden": tuple(self.hidden),
            "k": self.k, "method": self.method, "chains": self.chains, "warmup": self.warmup,
            "draws": self.draws, "seed": seed, **(self.settings or {}),
        }  # fmt: skip
        self.fit_: Fit = fit(
            f"{response} ~ {terms}", table.assign(**{response: y}), progress=self.progress, **given
        )
        return self

    def _split(self, table: pd.DataFrame) -> tuple[str, str]:
        """Return the name of the response, and the right side of the formula."""
        left, tilde, right = (self.formula or NETWORK_OF_ALL).rpartition("~")
        response = left.strip()
        if tilde and not response.isidentifier():
            raise InputError(
                f"y is the response, and the left side of the formula its name, got '{response}'"
            )
        if not response:
            response = next(name for name in ("y", "response", "y_") if name not in table)
        return response, right.strip()

    def _table(self, X: Any, *, new: bool = False) -> pd.DataFrame:
        """Return X as a table: with a formula as it is, else all of its columns as numbers."""
        import pandas as pd

        if self.formula is not None and hasattr(X, "columns"):
            validate_data(self, X, reset=not new, skip_check_array=True)
            return pd.DataFrame(X)
        values = validate_data(self, X, reset=not new, dtype="numeric")
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(values.shape[1])])
        return pd.DataFrame(np.asarray(values, dtype=float), columns=list(names))

    def _new(self, X: Any) -> pd.DataFrame:
        check_is_fitted(self, "fit_")
        return self._table(X, new=True)


class SemistanRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A semi-structured regression of numbers or counts.

    Parameters
    ----------
    formula : str, optional
        Right side of the formula over the columns of X, as ``"x + nn(u1, u2)"``; with a left side
        too if a column has the response's name ``y``. By default a network of all columns. The
        columns of an array are x0, x1, ...
    family : str, optional
        The response's distribution, as ``"poisson"``; gaussian by default.
    priors : mapping, optional
        Priors in Stan's words, as ``{"b": "normal(0, 1)"}``.
    hidden : sequence of int
        Units of the hidden layers.
    k : int or "auto"
        Dimension of the subspace.
    method : str
        How the posterior is sampled or approximated.
    chains, warmup, draws : int
        Markov chains, and the iterations of each; warmup and draws may be "auto".
    settings : mapping, optional
        Every other keyword of ``semistan.fit``.
    random_state : int, RandomState or None
        Gives the seed of training and sampling.
    progress : bool
        Whether standard error says how far a fit is.

    Attributes
    ----------
    fit_ : semistan.Fit
        The fit: ``fit_.summary()`` has coefficients and diagnostics.
    n_features_in_, feature_names_in_
        As of every estimator.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array, shape (N, Q)
            Covariates.
        y : array, shape (N,)
            Response.

        Raises
        ------
        InputError
            If the formula, the data or a setting cannot be used.
        """
        y = self._response(X, y, y_numeric=True)
        return self._fitted(X, np.asarray(y, dtype=float), self.family or "gaussian")

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of new rows.

        Parameters
        ----------
        X : DataFrame or array, shape (N, Q)
            New rows.
        return_std : bool
            Whether to return the standard deviation of a new response too.

        Returns
        -------
        array (N,), or two of them
        """
        table = self._new(X)
        mean = self.fit_.epred(table).mean(axis=0)
        return (mean, self.fit_.replicate(table).std(axis=0)) if return_std else mean


class SemistanClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A semi-structured regression of classes: bernoulli of two, categorical of more.

    Parameters and attributes are those of ``SemistanRegressor``, and ``classes_``.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array, shape (N, Q)
            Covariates.
        y : array, shape (N,)
            Classes, of numbers or text.

        Raises
        ------
        InputError
            If the formula, the data or a setting cannot be used, or there is one class alone.
        """
        y = self._response(X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y has one class alone ({self.classes_[0]}): two are needed")
        two = len(self.classes_) == 2
        response = codes if two else np.char.add("class", codes.astype(str))
        return self._fitted(X, response, self.family or ("bernoulli" if two else "categorical"))

    def predict_proba(self, X: Any) -> Array:
        """Return the posterior mean of each class's probability.

        Parameters
        ----------
        X : DataFrame or array, shape (N, Q)
            New rows.

        Returns
        -------
        array, shape (N, classes)
        """
        table = self._new(X)
        mean = self.fit_.epred(table).mean(axis=0)
        return mean if mean.ndim > 1 else np.column_stack([1 - mean, mean])

    def predict(self, X: Any) -> Any:
        """Return the most probable class of new rows, shape (N,)."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]
