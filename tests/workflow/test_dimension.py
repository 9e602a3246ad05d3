"""The dimension that k = "auto" becomes, and what is said of it."""

import time
from dataclasses import replace

import pandas as pd
import pytest

from semistan.model.networks.conv import Convolutional
from semistan.model.networks.networks import Networks
from semistan.subspace.construction import check_construction
from semistan.workflow.dimension import resolved, with_dimension
from semistan.workflow.fit import fit_model
from semistan.workflow.work import KERNEL, forward_products, gradient_seconds
from support.small import small_config, small_frame, small_prepared

D = 13  # weights of a network of 2 inputs and 3 units
MANY = 1801


def prepared(formula="y ~ x + nn(u, v)", **settings):
    open_ = {"subspace__k": "auto", "sample__integrate": "none"}
    return small_prepared(formula, **open_ | settings)


def decided(seconds, **settings):
    found = with_dimension(prepared(**settings), lambda _: seconds)
    subspace = found.prepared.config.subspace
    return subspace.k, subspace.curve, found.reason


def test_all_weights_are_taken_where_they_can_be_sampled():
    k, curve, reason = decided(1e-6)
    assert (k, curve) == (D, 8)
    assert reason.startswith("k = all 13 weights, as always where there are up to 75: sampling")
    assert "counting 0.001 ms per gradient" in reason


@pytest.mark.parametrize("method", ["nuts", "nuts-torch"])
def test_few_weights_all_move_whatever_the_budget(method):
    """Of 13 weights a subspace saves nothing that a budget could be about."""
    found = with_dimension(prepared(sample__method=method), lambda _: 1e6)
    config = found.prepared.config
    assert (config.subspace.k, config.sample.draws) == (D, 600)
    assert found.reason.endswith("with 600 draws of each chain for the budget")


def test_the_prediction_is_rounds_of_chains_times_iterations_times_steps(monkeypatch):
    monkeypatch.setattr("semistan.workflow.dimension.plan_threads", lambda _: (2, 1))
    settings = {"sample__chains": 4, "sample__warmup": 100, "sample__draws": 200}
    *_, reason = decided(1e-4, **settings)
    assert "61 s" in reason  # 2 x 300 x 1024 x 0.1 ms, in however few dimensions
    *_, reason = decided(1e-4, network__hidden=[40], **settings)
    assert "61 s" in reason  # 2 x 300 x 1024 x 0.1 ms
    *_, reason = decided(1e-4, network__hidden=[40], sample__max_treedepth=5, **settings)
    assert "2 s" in reason  # 2^5 steps
    *_, reason = decided(1e-3, network__hidden=[8, 8], sample__integrate="auto", **settings)
    assert "77 s" in reason  # 2^7 steps, with the output layer integrated out


@pytest.mark.parametrize(
    ("family", "formula", "rows", "seconds"),
    [
        ("bernoulli", "flag ~ x + nn(u, v)", 500, "8 s"),  # 2 x 300 x 2^7 x 0.1 ms
        ("bernoulli", "flag ~ x + nn(u, v)", 501, "15 s"),
        ("bernoulli", "flag ~ x + nn(u, v)", 1501, "61 s"),
        ("bernoulli", "flag ~ x + (1 | g) + nn(u, v)", 500, "61 s"),
        ("poisson", "count ~ x + nn(u, v)", 500, "61 s"),
    ],
)
def test_trees_of_few_zeros_and_ones_are_counted_as_long_as_they_are(
    family, formula, rows, seconds, monkeypatch
):
    monkeypatch.setattr("semistan.workflow.dimension.plan_threads", lambda _: (2, 1))
    given = small_prepared(
        formula, small_frame(rows), family=family, subspace__k="auto", sample__chains=4,
        sample__warmup=100, sample__draws=200,
    )  # fmt: skip
    assert f"up to {seconds} (" in with_dimension(given, lambda _: 1e-4).reason


@pytest.mark.parametrize(("hidden", "seconds"), [(3, "41 s"), (40, "31 s")])
def test_warm_up_is_longer_where_a_dense_metric_is_learnt(hidden, seconds, monkeypatch):
    monkeypatch.setattr("semistan.workflow.dimension.plan_threads", lambda _: (4, 1))
    *_, reason = decided(2e-5, network__hidden=[hidden])
    assert f"up to {seconds}" in reason  # (1000 or 500, and 1000) x 1024 x 0.02 ms


@pytest.mark.parametrize(
    ("milliseconds", "chains", "draws"),
    [
        (15, "auto", 500),
        (20, "auto", 350),
        (24, "auto", 250),
        (30, 2, 500),
        (50, 2, 250),
        (100, 2, 250),
    ],
)
def test_what_takes_too_long_becomes_the_curves_of_three_trainings_with_chains_for_the_budget(
    milliseconds, chains, draws, monkeypatch
):
    # 3 subspaces x 2 or 1 rounds x (150 + draws) x 10 steps within 10 minutes
    monkeypatch.setattr("semistan.workflow.dimension.plan_threads", lambda _: (2, 1))
    given = prepared(network__hidden=[40, 40], priors={}, sample__chains="auto")
    found = with_dimension(given, lambda _: 1e-3 * milliseconds)
    config = found.prepared.config
    assert (config.subspace.k, config.subspace.curve) == (2, None)
    assert config.subspace.subspaces == 3
    assert (config.sample.chains, config.sample.draws) == (chains, draws)
    of = f"k = 2 of {MANY} weights in each of 3 subspaces, the others by their normal approximation"
    assert found.reason.startswith(f"{of}: all would take")
    assert "more than the budget of 10 min" in found.reason
    over = "; these take up to 20 min, and without them intervals would be too narrow"
    assert (over in found.reason) == (milliseconds == 100)


def test_chains_that_were_asked_for_stay():
    given = prepared(network__hidden=[40, 40], priors={}, sample__chains=4)
    assert with_dimension(given, lambda _: 1.0).prepared.config.sample.chains == 4


def test_a_curve_is_counted_by_the_gradient_of_its_own_program():
    given = prepared(network__hidden=[40, 40], priors={}, sample__integrate="auto")
    assert with_dimension(given, lambda _: 1.0).prepared.config.sample.draws == 250
    found = with_dimension(given, lambda it: 1.0 if it.model.integral else 2e-3)
    assert found.prepared.config.sample.draws == 500
    assert "counting 1e+03 ms" in found.reason


def test_warm_up_is_counted_long_where_the_metric_of_a_mode_is_not_kept():
    given = prepared("y ~ x + (1 | g) + nn(u, v)", network__hidden=[40, 40], priors={})
    assert with_dimension(given, lambda _: 1.2e-2).prepared.config.sample.draws == 250


@pytest.mark.parametrize(("asked", "number"), [("auto", 3), (1, 1), (2, 2)])
def test_constant_layers_are_those_of_three_trainings(asked, number):
    """Their uncertainty is only between trainings, so that one has none."""
    constant = {"network__hidden": [3, 2], "network__frozen": 1, "subspace__subspaces": asked}
    found = with_dimension(prepared(**constant), lambda _: 1e-6)
    assert found.prepared.config.subspace.trainings == number
    assert found.prepared.config.sample.draws == (500 if number > 1 else 1000)
    of_each = f" in each of {number} subspaces with constant layers of their own"
    each = of_each if number > 1 else ""
    assert found.reason.startswith(f"k = all 11 weights{each}, as always")


@pytest.mark.parametrize(("frozen", "number"), [(0, 3), (1, 5)])
def test_there_are_more_trainings_where_both_weights_and_layers_are_not_sampled(frozen, number):
    given = prepared(network__hidden=[5, 20], network__frozen=frozen, priors={})
    config = with_dimension(given, lambda _: 1.0).prepared.config
    assert (config.subspace.k, config.subspace.trainings) == (2, number)


def test_a_dimension_that_was_asked_for_is_that_of_one_training():
    constant = {"network__hidden": [3, 2], "network__frozen": 1, "subspace__k": 2}
    assert with_dimension(prepared(**constant)).prepared.config.subspace.trainings == 1


def test_without_a_completion_it_is_not_spoken_of():
    *_, reason = decided(1.0, network__hidden=[40, 40])
    assert f"k = 8 of {MANY} weights in each of 3 subspaces: all would take" in reason


def test_a_number_of_subspaces_that_was_asked_for_stays():
    given = prepared(network__hidden=[40, 40], subspace__subspaces=5)
    found = with_dimension(given, lambda _: 1.0).prepared.config
    assert (found.subspace.k, found.subspace.subspaces) == (8, 5)


def test_a_larger_budget_allows_more():
    assert decided(2e-3, network__hidden=[40, 40], sample__budget=600.0)[0] == MANY


@pytest.mark.parametrize(
    ("milliseconds", "draws", "k"),
    [(0.19, 1000, MANY), (0.22, 800, MANY), (0.26, 600, MANY), (0.27, 500, 8)],
)
def test_chains_become_shorter_before_weights_are_confined(milliseconds, draws, k, monkeypatch):
    # 2 rounds x (500 + draws) x 1024 steps within 10 minutes
    monkeypatch.setattr("semistan.workflow.dimension.plan_threads", lambda _: (2, 1))
    given = prepared(network__hidden=[40, 40])
    found = with_dimension(given, lambda _: 1e-3 * milliseconds)
    config = found.prepared.config
    assert (config.subspace.k, config.sample.draws) == (k, draws)
    shorter = k == MANY and draws < 1000
    after = f"with {draws} draws of each chain for the budget"
    assert found.reason.endswith(after) == shorter
    assert config.sample.warmup == "auto"


def test_a_warm_up_that_was_asked_for_stays(monkeypatch):
    # 2 rounds x (400 + draws) x 1024 steps within 10 minutes
    monkeypatch.setattr("semistan.workflow.dimension.plan_threads", lambda _: (2, 1))
    given = prepared(network__hidden=[40, 40], sample__warmup=400)
    found = with_dimension(given, lambda _: 2.5e-4)
    sample = found.prepared.config.sample
    assert (sample.warmup, sample.draws) == (400, 750)
    assert found.reason.endswith("with 750 draws of each chain for the budget")


def test_the_number_of_draws_that_was_asked_for_stays():
    found = with_dimension(prepared(sample__draws=700), lambda _: 3e-4)
    assert found.prepared.config.sample.draws == 700


@pytest.mark.parametrize(("subspaces", "draws"), [(1, 1000), (2, 500), (5, 500)])
@pytest.mark.parametrize("k", [3, "auto"])
def test_several_subspaces_have_shorter_chains(subspaces, draws, k):
    given = prepared(subspace__subspaces=subspaces, subspace__k=k)
    found = with_dimension(given, lambda _: 1e-6)
    assert found.prepared.config.sample.draws == draws
    assert (f"each of {subspaces} subspaces" in found.reason) == (k == "auto" and subspaces > 1)


def test_a_number_stays_and_is_not_timed():
    given = prepared(subspace__k=3, sample__draws=200)
    found = with_dimension(given, lambda _: 1 / 0)
    config = found.prepared.config
    assert config.subspace.model_copy(update={"subspaces": "auto"}) == given.config.subspace
    assert (config.subspace.subspaces, config.sample, found.reason) == (1, given.config.sample, "")


@pytest.mark.parametrize("construction", ["pca", "random", "low_rank_laplace"])
def test_constructions_that_cannot_be_widened_have_eight_dimensions(construction):
    assert decided(0.0, subspace__construction=construction) == (8, None, "")


def test_methods_with_a_limit_keep_to_it():
    k, curve, reason = decided(0.0, network__hidden=[40, 40], sample__method="elliptical-slice")
    assert (k, curve) == (8, None)
    assert "elliptical-slice" in reason


@pytest.mark.parametrize(("seconds", "k", "curve"), [(1e-9, 128, 6), (1e9, 6, None)])
@pytest.mark.parametrize(
    "formula", ["y ~ nn(u) + nn(v, hidden=[40])", "y ~ nn(u), sigma ~ nn(v, hidden=[40])"]
)
def test_the_curve_is_narrower_than_the_smallest_of_several_networks(formula, seconds, k, curve):
    given = small_prepared(formula, subspace__k="auto", network__hidden=[2])
    found = with_dimension(given, lambda _: seconds).prepared
    assert (found.config.subspace.k, found.config.subspace.curve) == (k, curve)
    check_construction(found.config.subspace, found.model.network)


def test_networks_of_dispersion_parameters_have_no_directions_beside_the_curve():
    given = small_prepared("y ~ x + nn(u), sigma ~ nn(v)", subspace__k="auto",
                           network__hidden=[40, 40])  # fmt: skip
    subspace = with_dimension(given, lambda _: 1.0).prepared.config.subspace
    assert (subspace.k, subspace.curve) == (8, None)


@pytest.mark.parametrize("hidden", [[3], [40, 40], [200, 200]])
def test_no_clock_and_no_toolchain_decide(hidden, monkeypatch):
    """A clock that runs ten times as fast, as beside nine other programs, changes nothing."""
    given = prepared(network__hidden=hidden, sample__threads=1)
    expected = resolved(given, say=lambda _: None).config
    for clock in ("perf_counter", "process_time", "monotonic", "time"):
        real = getattr(time, clock)
        monkeypatch.setattr(time, clock, lambda real=real: 10 * real())
    monkeypatch.setattr("subprocess.run", lambda *_, **__: 1 / 0)
    said = []
    assert resolved(given, say=said.append).config == expected
    assert "ms per gradient" in said[0]


def test_a_fit_has_the_same_draws_on_a_busy_machine(tmp_path, monkeypatch):
    sample = {"method": "laplace", "chains": 2, "draws": 10}
    config = small_config("y ~ x + nn(u, v)", sample=sample, subspace={"k": "auto"})
    runs = []
    for name in ("idle", "busy"):
        runs.append(fit_model(config, small_frame(), out=tmp_path / name).run)
        for clock in ("perf_counter", "process_time", "monotonic"):
            real = getattr(time, clock)
            monkeypatch.setattr(time, clock, lambda real=real: 10 * real())
    idle, busy = runs
    assert idle.config.subspace.k == D
    assert idle.config == busy.config
    for own in ("chain-1.csv", "chain-2.csv"):
        one, other = (pd.read_csv(run.path / "chains" / own, comment="#") for run in runs)
        assert one.equals(other)


def test_work_is_counted_by_what_computes_it():
    """More rows, units and threads count as they should; a convolution has many places."""

    def seconds(**settings):
        return gradient_seconds(prepared(**{"network__hidden": [40, 40]} | settings))

    one = seconds(sample__threads=1)
    assert seconds(sample__threads=1, sample__kernel="stan") > 5 * one
    assert seconds(sample__threads=2) < one
    assert seconds(sample__threads=1, family="student") > one  # whose likelihood is Stan's
    whole = prepared(network__hidden=[40, 40], sample__threads=1)
    half = gradient_seconds(replace(whole, rows=whole.rows.first(15)))
    assert one - KERNEL.call == pytest.approx(2 * (half - KERNEL.call))
    assert forward_products(whole.model.network) == MANY
    convolution = Networks((Convolutional((1, 8, 8), (3,), (4,), activation="relu"),))
    assert forward_products(convolution) > 5 * convolution.d


def test_methods_in_pytorch_run_chains_in_turn_and_may_take_as_many_gradients_in_any_dimension():
    settings = {"sample__chains": 4, "sample__warmup": 100, "sample__draws": 200}
    *_, reason = decided(1e-3, network__hidden=[40], sample__method="mclmc-torch", **settings)
    assert "12 s" in reason  # 4 x 300 x 10 x 1 ms
