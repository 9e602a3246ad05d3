"""A construction is one record: the sweep of all, and one that is defined here."""

import inspect

import numpy as np
import pytest
import torch

import semistan
from semistan.errors import InputError
from semistan.model.construction import CONSTRUCTIONS
from semistan.model.subspace import along
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.posterior.prior_draws import prior_draws
from semistan.posterior.run import read_run
from semistan.subspace.check import check_smaller
from semistan.subspace.coefficients import settle
from semistan.subspace.construction import Build, Construction, construction, training_epochs
from semistan.subspace.descent import descend, initial_parameters
from semistan.subspace.result import trained_result
from semistan.subspace.span import pointing_up
from semistan.workflow.fit import fit_model
from support.by_hand import naive_network
from support.small import small_bundle, small_config, small_frame, small_prepared

FORMULA = "y ~ x + nn(u, v)"


def around_the_mode(problem, units, subspace, train, generator, progress=None):
    """Train a network and draw orthonormal directions through it."""
    parameters = initial_parameters(problem, 1, generator)
    best, history = descend(problem, parameters, train, generator, progress)
    best, d = settle(problem, best), problem.network.d
    normal = torch.randn((d, subspace.k), generator=generator, dtype=torch.float64)
    Pi = pointing_up(torch.linalg.qr(normal)[0].numpy())
    spanned = along(best.control_points[0].numpy(), Pi, "around_the_mode")
    return trained_result(problem, units, best, history, spanned, np.ones(subspace.k))


@pytest.fixture
def registered(monkeypatch):
    record = Construction(
        name="around_the_mode", text="random directions through the trained network",
        build=around_the_mode, check=check_smaller,
    )  # fmt: skip
    monkeypatch.setitem(CONSTRUCTIONS, record.name, record)
    return record.name


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_a_record_says_what_the_trained_subspace_is(name):
    record = construction(name)
    assert isinstance(record, Construction)
    assert (record.name, bool(record.text)) == (name, True)
    config = small_config(subspace__construction=name).subspace
    bundle, _ = small_bundle(subspace__construction=name, subspace__snapshots=5, train__epochs=4)
    assert bundle.subspace.origin == name
    assert record.holds_theta == config.holds_theta == bundle.subspace.holds_theta
    assert record.scales_phi == config.scales_phi == bool((bundle.subspace.phi_scale != 1).any())


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_a_construction_takes_what_the_protocol_says(name):
    expected = inspect.signature(Build.__call__).parameters.values()
    found = inspect.signature(construction(name).build).parameters.values()
    assert [(p.name, p.default) for p in found] == [(p.name, p.default) for p in expected][1:]


@pytest.mark.parametrize("name", CONSTRUCTIONS)
@pytest.mark.parametrize("select", ["variance", "swag"])
def test_the_history_ends_with_the_last_of_all_epochs(name, select):
    settings = {"subspace__select": select, "subspace__snapshots": 5, "train__epochs": 7}
    bundle, _ = small_bundle(subspace__construction=name, **settings)
    expected = training_epochs(bundle.config)
    assert bundle.trained.history["epoch"][-1] == expected


@pytest.mark.lengthy
def test_a_construction_of_ones_own_is_fitted_and_answers(registered, tmp_path):
    frame = small_frame(40)
    settings = {
        "network.hidden": [3], "train.epochs": 200, "subspace.construction": registered,
        "subspace.k": 3, "sample.method": "elliptical-slice", "sample.chains": 2,
        "sample.warmup": 20, "sample.draws": 30, "priors.phi": "normal(0, 1)",
    }  # fmt: skip
    fit = fit_model(FORMULA, frame, out=tmp_path / "run", overrides=settings)
    bundle, rows = fit.run.bundle, fit.run.rows()
    assert np.array_equal(bundle.subspace.p_bar, bundle.trained.control_points[0])
    assert np.allclose(bundle.subspace.Pi.T @ bundle.subspace.Pi, np.eye(3), atol=1e-12)
    draws = fit.posterior.draws
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    assert phi.shape == (60, 3)
    units, U = bundle.units, (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    w = bundle.subspace.p_bar + phi @ bundle.subspace.Pi.T
    f = np.array([[naive_network((2, 3, 1), one, u, "tanh") for u in U] for one in w])
    eta = units.eta_loc + units.eta_scale * f + theta @ (rows.X - units.x_loc).T
    assert np.allclose(posterior_linpred(fit.posterior, rows), eta, rtol=1e-10)
    again = read_run(tmp_path / "run").bundle
    assert (again.sha256, again.subspace.origin) == (bundle.sha256, registered)
    assert registered in semistan.report(fit.run).read_text("utf-8")


def test_its_prior_draws_lie_in_its_subspace(registered):
    bundle, rows = small_bundle(FORMULA, subspace__construction=registered)
    draws = prior_draws(bundle, rows, (2, 10), np.random.default_rng(0))
    eta = posterior_linpred(SubspacePosterior(bundle, draws), rows)
    assert eta.shape == (20, len(rows))
    assert np.isfinite(eta).all()


def test_it_is_checked_before_training_and_unknown_when_it_is_gone(registered, monkeypatch):
    with pytest.raises(InputError, match="d = 13, got k = 13"):
        small_prepared(FORMULA, subspace__construction=registered, subspace__k=13)
    config = small_config(subspace__construction=registered, train__epochs=9)
    assert training_epochs(config) == 9
    monkeypatch.delitem(CONSTRUCTIONS, registered)
    with pytest.raises(InputError, match=f"unknown construction '{registered}'"):
        small_config(subspace__construction=registered)
