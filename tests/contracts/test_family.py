"""A family is one record: Poisson counts padded with zeros, a parameter in (0, 1), defined here."""

import numpy as np
import pandas as pd
import pytest
import torch

import semistan
from semistan.model.families import families
from semistan.model.families.common import counts, is_count, log_of_mean
from semistan.model.families.families import dispersion_keys, family
from semistan.model.families.family import Dispersion, Family
from semistan.posterior.predictive import posterior_epred, posterior_linpred, posterior_predict
from semistan.workflow.fit import fit_model
from support.assertions import assert_mean
from support.columns import assert_program
from support.untrained import random_bundle

N = 400


def log_lik(y, eta, parameters):
    zi = parameters["zi"]
    poisson = y * eta - eta.exp() - (y + 1).lgamma()
    zero = torch.logaddexp(zi.log(), (-zi).log1p() - eta.exp())
    return torch.where(y == 0, zero, (-zi).log1p() + poisson)


def rng(eta, parameters, generator):
    return np.where(generator.random(eta.shape) < parameters["zi"], 0, counts(eta, {}, generator))


PADDED = Family(
    name="padded_poisson",
    link="log",
    aliases=("padded",),
    parameters=(Dispersion("zi", "probability of an extra zero", "beta(1, 1)", start=0.2,
                           link="logit"),),
    integer=True,
    support=is_count,
    support_text="counts 0, 1, 2, ...",
    eta_units=log_of_mean,
    mean=lambda eta, parameters: (1 - parameters["zi"]) * np.exp(eta),
    log_lik=log_lik,
    rng=rng,
    density="({y} == 0 ? log_mix({zi}, 0, -exp({eta})) "
            ": log1m({zi}) + poisson_log_lpmf({y} | {eta}))",
    stan_rng="(bernoulli_rng({zi}) == 1 ? 0 : poisson_log_safe_rng({eta}))",
    stan_functions=("poisson_log_safe_rng.stanfunctions",),
    by_row=True,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as context:
        context.setattr(families, "FAMILIES", (*families.FAMILIES, PADDED))
        yield
    family.cache_clear()


def test_it_is_found_by_its_names_and_its_parameter_has_a_prior():
    assert family("padded") is PADDED
    assert "zi" in dispersion_keys()


@pytest.mark.cmdstan
@pytest.mark.parametrize("further", ["", ", zi ~ x2", ", zi ~ z + (1 | g) + nn(v)"])
def test_its_program_is_pytorchs(further, toolchain, tmp_path):
    formula = f"y ~ x1 + nn(u1, u2){further}"
    bundle, rows = random_bundle("padded_poisson", formula=formula)
    assert_program(bundle, rows, toolchain, tmp_path)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    generator = np.random.default_rng(5)
    x, u = generator.normal(size=(2, N))
    frame = pd.DataFrame({"x": x, "u": u})
    eta = 1.2 + 0.3 * x + 0.4 * np.sin(2 * u)
    frame["y"] = rng(eta, {"zi": 0.3}, generator)
    overrides = {
        "family": "padded", "network.hidden": (4,), "subspace.k": 4, "train.epochs": 300,
        "train.device": "cpu", "sample.chains": 2, "sample.draws": 500, "priors.zi": "beta(2, 2)",
    }  # fmt: skip
    out = tmp_path_factory.mktemp("padded") / "run"
    return fit_model("y ~ x + nn(u)", frame, out=out, overrides=overrides), frame


@pytest.mark.cmdstan
def test_it_is_fitted_summarised_and_predicted(fitted):
    fit, frame = fitted
    found = {row.name: row for row in fit.summary.rows}
    for name, true in (("zi", 0.3), ("b_x", 0.3)):
        assert abs(found[name].estimate - true) < 4 * found[name].est_error
    assert 0 < found["zi"].values[2] < found["zi"].values[3] < 1
    rows = fit.run.rows()
    zi = fit.posterior.parameters(rows)["zi"]
    eta = posterior_linpred(fit.posterior, rows)
    assert posterior_epred(fit.posterior, rows) == pytest.approx((1 - zi) * np.exp(eta))
    drawn = posterior_predict(fit.posterior, rows, generator=np.random.default_rng(1))
    share = (drawn == 0).mean(axis=1)
    assert_mean(share - (zi + (1 - zi) * np.exp(-np.exp(eta))).mean(axis=1), 0)
    assert abs(share.mean() - (frame.y == 0).mean()) < 3 * share.std()


@pytest.mark.cmdstan
def test_it_is_reported(fitted, tmp_path):
    fit, _ = fitted
    text = semistan.report(fit.run, tmp_path / "report.html").read_text("utf-8")
    assert "padded_poisson, link log" in text
    assert "beta(2, 2)" in text
