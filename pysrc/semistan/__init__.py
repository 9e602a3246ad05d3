"""Semi-structured regression: interpretable coefficients and a neural network in Stan.

    g(E[y]) = x' theta + f(u; w),    w = p_bar + Pi phi

``semistan.fit`` does everything; the other names are its steps.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semistan.version import __version__

if TYPE_CHECKING:
    from semistan.analysis import effect as effect
    from semistan.analysis import importance as importance
    from semistan.analysis import loo as loo
    from semistan.analysis import marginal_effects as marginal_effects
    from semistan.analysis import predict as predict
    from semistan.analysis import priors as priors
    from semistan.analysis import score as score
    from semistan.analysis import subspace_measures as subspace_measures
    from semistan.bundle.bundle import read_bundle as read_bundle
    from semistan.bundle.bundle import write_bundle as write_bundle
    from semistan.comparison import compare as compare
    from semistan.crossvalidation import kfold as kfold
    from semistan.outputs import draws as draws
    from semistan.outputs import generate as generate
    from semistan.outputs import plot as plot
    from semistan.outputs import plot_effect as plot_effect
    from semistan.outputs import plot_subspace as plot_subspace
    from semistan.outputs import r_script as r_script
    from semistan.outputs import report as report
    from semistan.posterior.draws import read_draws as read_draws
    from semistan.posterior.predict import log_lik as log_lik
    from semistan.posterior.predict import posterior_epred as posterior_epred
    from semistan.posterior.predict import posterior_linpred as posterior_linpred
    from semistan.posterior.predict import posterior_predict as posterior_predict
    from semistan.posterior.prior_draws import prior_draws as prior_draws
    from semistan.posterior.run import read_run as read_run
    from semistan.preparation import new_rows as new_rows
    from semistan.preparation import prepare as prepare
    from semistan.preparation import training_rows as training_rows
    from semistan.stan.data import stan_data as stan_data
    from semistan.stan.program import bundle_program
    from semistan.workflow import fit as fit
    from semistan.workflow import read_fit as read_fit
    from semistan.workflow import sample as sample
    from semistan.workflow import train as train

    stan_code = bundle_program

# Public name -> (module, name): imported on first use, so that importing semistan is instant.
_PUBLIC = {
    "compare": ("comparison", "compare"),
    "draws": ("outputs", "draws"),
    "effect": ("analysis", "effect"),
    "fit": ("workflow", "fit"),
    "generate": ("outputs", "generate"),
    "importance": ("analysis", "importance"),
    "kfold": ("crossvalidation", "kfold"),
    "loo": ("analysis", "loo"),
    "log_lik": ("posterior.predict", "log_lik"),
    "new_rows": ("preparation", "new_rows"),
    "marginal_effects": ("analysis", "marginal_effects"),
    "plot": ("outputs", "plot"),
    "plot_effect": ("outputs", "plot_effect"),
    "plot_subspace": ("outputs", "plot_subspace"),
    "posterior_epred": ("posterior.predict", "posterior_epred"),
    "posterior_linpred": ("posterior.predict", "posterior_linpred"),
    "posterior_predict": ("posterior.predict", "posterior_predict"),
    "predict": ("analysis", "predict"),
    "prepare": ("preparation", "prepare"),
    "prior_draws": ("posterior.prior_draws", "prior_draws"),
    "priors": ("analysis", "priors"),
    "r_script": ("outputs", "r_script"),
    "read_bundle": ("bundle.bundle", "read_bundle"),
    "read_draws": ("posterior.draws", "read_draws"),
    "read_fit": ("workflow", "read_fit"),
    "read_run": ("posterior.run", "read_run"),
    "report": ("outputs", "report"),
    "sample": ("workflow", "sample"),
    "score": ("analysis", "score"),
    "stan_code": ("stan.program", "bundle_program"),
    "stan_data": ("stan.data", "stan_data"),
    "subspace_measures": ("analysis", "subspace_measures"),
    "train": ("workflow", "train"),
    "training_rows": ("preparation", "training_rows"),
    "write_bundle": ("bundle.bundle", "write_bundle"),
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'semistan' has no attribute '{name}'")
    module, attribute = _PUBLIC[name]
    return getattr(import_module(f"semistan.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
