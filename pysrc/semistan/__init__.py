"""Semi-structured regression: interpretable coefficients and a neural network in Stan.

    g(E[y]) = x' theta + f(u; w),    w = p_bar + Pi phi

``semistan.fit`` does everything; the other names are its steps.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semistan.version import __version__

if TYPE_CHECKING:
    from semistan.bundle.bundle import read_bundle as read_bundle
    from semistan.bundle.bundle import write_bundle as write_bundle
    from semistan.bundle.seal import trust_edited as trust_edited
    from semistan.command.doctor import examine
    from semistan.infer.cmdstan.install import install_cmdstan as install_cmdstan
    from semistan.posterior.posterior import Mixture as Mixture
    from semistan.posterior.posterior import One as One
    from semistan.posterior.posterior import read_posterior as read_posterior
    from semistan.posterior.predictive import log_lik as log_lik
    from semistan.posterior.predictive import posterior_epred as posterior_epred
    from semistan.posterior.predictive import posterior_linpred as posterior_linpred
    from semistan.posterior.predictive import posterior_predict as posterior_predict
    from semistan.posterior.prior_draws import prior_draws as prior_draws
    from semistan.posterior.run import read_run as read_run
    from semistan.program.data import stan_data as stan_data
    from semistan.program.program import bundle_program
    from semistan.workflow.array_jobs import collect as collect
    from semistan.workflow.array_jobs import task as task
    from semistan.workflow.array_jobs import tasks as tasks
    from semistan.workflow.average import predict_average as predict_average
    from semistan.workflow.baseline import baseline as baseline
    from semistan.workflow.check import check as check
    from semistan.workflow.compare import compare as compare
    from semistan.workflow.explain import effect as effect
    from semistan.workflow.explain import importance as importance
    from semistan.workflow.explain import marginal_effects as marginal_effects
    from semistan.workflow.fit import fit as fit
    from semistan.workflow.fit import read_fit as read_fit
    from semistan.workflow.fit import sample as sample
    from semistan.workflow.fit import summary as summary
    from semistan.workflow.inquire import bayes_r2 as bayes_r2
    from semistan.workflow.inquire import comparisons as comparisons
    from semistan.workflow.inquire import hypothesis as hypothesis
    from semistan.workflow.inquire import pp_check as pp_check
    from semistan.workflow.inquire import sensitivity as sensitivity
    from semistan.workflow.kfold import kfold as kfold
    from semistan.workflow.new import new as new
    from semistan.workflow.outputs import draws as draws
    from semistan.workflow.outputs import generate as generate
    from semistan.workflow.outputs import plot as plot
    from semistan.workflow.outputs import plot_effect as plot_effect
    from semistan.workflow.outputs import plot_subspace as plot_subspace
    from semistan.workflow.outputs import r_script as r_script
    from semistan.workflow.outputs import report as report
    from semistan.workflow.predict import predict as predict
    from semistan.workflow.prepare import new_rows as new_rows
    from semistan.workflow.prepare import prepare as prepare
    from semistan.workflow.prepare import training_rows as training_rows
    from semistan.workflow.priors import implied_prior as implied_prior
    from semistan.workflow.priors import priors as priors
    from semistan.workflow.reproduce import reproduce as reproduce
    from semistan.workflow.sbc import sbc as sbc
    from semistan.workflow.score import loo as loo
    from semistan.workflow.score import score as score
    from semistan.workflow.several import resume as resume
    from semistan.workflow.simulate import simulate as simulate
    from semistan.workflow.stan import stan as stan
    from semistan.workflow.subspace import posterior_distance as posterior_distance
    from semistan.workflow.subspace import subspace_measures as subspace_measures
    from semistan.workflow.terms import coef as coef
    from semistan.workflow.terms import ranef as ranef
    from semistan.workflow.terms import smooths as smooths
    from semistan.workflow.train import train as train
    from semistan.workflow.update import update as update

    doctor, marginal, r2, stan_code = examine, marginal_effects, bayes_r2, bundle_program

# Public name -> (module, name): imported on first use, so that importing semistan is instant.
_PUBLIC = {
    "bayes_r2": ("workflow.inquire", "bayes_r2"),
    "check": ("workflow.check", "check"),
    "comparisons": ("workflow.inquire", "comparisons"),
    "coef": ("workflow.terms", "coef"),
    "baseline": ("workflow.baseline", "baseline"),
    "compare": ("workflow.compare", "compare"),
    "doctor": ("command.doctor", "examine"),
    "draws": ("workflow.outputs", "draws"),
    "effect": ("workflow.explain", "effect"),
    "fit": ("workflow.fit", "fit"),
    "generate": ("workflow.outputs", "generate"),
    "hypothesis": ("workflow.inquire", "hypothesis"),
    "implied_prior": ("workflow.priors", "implied_prior"),
    "importance": ("workflow.explain", "importance"),
    "install_cmdstan": ("infer.cmdstan.install", "install_cmdstan"),
    "kfold": ("workflow.kfold", "kfold"),
    "log_lik": ("posterior.predictive", "log_lik"),
    "loo": ("workflow.score", "loo"),
    "marginal": ("workflow.explain", "marginal_effects"),
    "marginal_effects": ("workflow.explain", "marginal_effects"),
    "Mixture": ("posterior.posterior", "Mixture"),
    "new": ("workflow.new", "new"),
    "new_rows": ("workflow.prepare", "new_rows"),
    "One": ("posterior.posterior", "One"),
    "plot": ("workflow.outputs", "plot"),
    "plot_effect": ("workflow.outputs", "plot_effect"),
    "plot_subspace": ("workflow.outputs", "plot_subspace"),
    "posterior_distance": ("workflow.subspace", "posterior_distance"),
    "posterior_epred": ("posterior.predictive", "posterior_epred"),
    "posterior_linpred": ("posterior.predictive", "posterior_linpred"),
    "posterior_predict": ("posterior.predictive", "posterior_predict"),
    "pp_check": ("workflow.inquire", "pp_check"),
    "predict": ("workflow.predict", "predict"),
    "predict_average": ("workflow.average", "predict_average"),
    "prepare": ("workflow.prepare", "prepare"),
    "prior_draws": ("posterior.prior_draws", "prior_draws"),
    "priors": ("workflow.priors", "priors"),
    "r2": ("workflow.inquire", "bayes_r2"),
    "r_script": ("workflow.outputs", "r_script"),
    "read_bundle": ("bundle.bundle", "read_bundle"),
    "read_fit": ("workflow.fit", "read_fit"),
    "read_posterior": ("posterior.posterior", "read_posterior"),
    "read_run": ("posterior.run", "read_run"),
    "report": ("workflow.outputs", "report"),
    "ranef": ("workflow.terms", "ranef"),
    "reproduce": ("workflow.reproduce", "reproduce"),
    "resume": ("workflow.several", "resume"),
    "collect": ("workflow.array_jobs", "collect"),
    "sample": ("workflow.fit", "sample"),
    "task": ("workflow.array_jobs", "task"),
    "tasks": ("workflow.array_jobs", "tasks"),
    "sbc": ("workflow.sbc", "sbc"),
    "score": ("workflow.score", "score"),
    "simulate": ("workflow.simulate", "simulate"),
    "sensitivity": ("workflow.inquire", "sensitivity"),
    "stan": ("workflow.stan", "stan"),
    "smooths": ("workflow.terms", "smooths"),
    "stan_code": ("program.program", "bundle_program"),
    "stan_data": ("program.data", "stan_data"),
    "subspace_measures": ("workflow.subspace", "subspace_measures"),
    "summary": ("workflow.fit", "summary"),
    "train": ("workflow.train", "train"),
    "training_rows": ("workflow.prepare", "training_rows"),
    "trust_edited": ("bundle.seal", "trust_edited"),
    "update": ("workflow.update", "update"),
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
