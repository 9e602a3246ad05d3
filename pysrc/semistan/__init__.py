"""Semi-structured regression: interpretable coefficients and a neural network in Stan.

    g(E[y]) = x' theta + f(u; w),    w = p_bar + Pi phi

``fit = semistan.fit("y ~ x + nn(u)", data)`` does everything, and ``fit.summary()``,
``fit.predict(new)`` and the other verbs of ``Fit`` ask what was learnt. ``semistan.sklearn`` has
estimators for scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semistan.version import __version__

if TYPE_CHECKING:
    from semistan.api.fit import Fit as Fit
    from semistan.api.fit import fit as fit
    from semistan.api.fit import read_fit as read_fit
    from semistan.api.fit import resume as resume
    from semistan.api.fit import update as update
    from semistan.api.models import priors as priors
    from semistan.api.models import sbc as sbc
    from semistan.api.models import simulate as simulate
    from semistan.bundle.seal import trust_edited as trust_edited
    from semistan.infer.cmdstan.install import install_cmdstan as install_cmdstan
    from semistan.workflow.average import predict_average as predict_average
    from semistan.workflow.baseline import baseline as baseline
    from semistan.workflow.compare import compare as compare
    from semistan.workflow.criticise import bayes_r2 as bayes_r2
    from semistan.workflow.criticise import comparisons as comparisons
    from semistan.workflow.criticise import hypothesis as hypothesis
    from semistan.workflow.criticise import pp_check as pp_check
    from semistan.workflow.criticise import sensitivity as sensitivity
    from semistan.workflow.doctor import doctor as doctor
    from semistan.workflow.explain import effect as effect
    from semistan.workflow.explain import importance as importance
    from semistan.workflow.explain import slopes as slopes
    from semistan.workflow.kfold import kfold as kfold
    from semistan.workflow.outputs import draws as draws
    from semistan.workflow.outputs import plot as plot
    from semistan.workflow.outputs import report as report
    from semistan.workflow.predict import predict as predict
    from semistan.workflow.score import loo as loo
    from semistan.workflow.score import score as score
    from semistan.workflow.terms import terms as terms

# The module of each public name: imported on first use, so that importing semistan is instant.
_MODULES = {
    "api.fit": ("Fit", "fit", "read_fit", "resume", "update"),
    "api.models": ("priors", "sbc", "simulate"),
    "bundle.seal": ("trust_edited",),
    "infer.cmdstan.install": ("install_cmdstan",),
    "workflow.average": ("predict_average",),
    "workflow.baseline": ("baseline",),
    "workflow.compare": ("compare",),
    "workflow.doctor": ("doctor",),
    "workflow.explain": ("effect", "importance", "slopes"),
    "workflow.criticise": ("bayes_r2", "comparisons", "hypothesis", "pp_check", "sensitivity"),
    "workflow.kfold": ("kfold",),
    "workflow.outputs": ("draws", "plot", "report"),
    "workflow.predict": ("predict",),
    "workflow.score": ("loo", "score"),
    "workflow.terms": ("terms",),
}
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'semistan' has no attribute '{name}'")
    return getattr(import_module(f"semistan.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
