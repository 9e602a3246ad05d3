"""New responses from prior and posterior, and calibration by simulation, without CmdStan."""

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError, SemistanError
from semistan.model.design import apply_design
from semistan.model.table.scale import whole
from semistan.workflow import sbc as calibrating
from semistan.workflow.sbc import sbc
from semistan.workflow.simulate import every_weight, simulate, simulated
from support.command import command_in
from support.small import small_config, small_frame, small_prepared

FORMULA = "y ~ x + nn(u)"
LINEAR = {
    "network.hidden": [], "subspace.construction": "full", "train.epochs": 20,
    "sample.method": "laplace", "sample.chains": 1, "sample.draws": 99,
    "priors.b": "normal(0, 0.15)", "priors.sigma": "lognormal(0, 0.2)", "priors.autoscale": False,
}  # fmt: skip


def standard_frame(n=12):
    generator = np.random.default_rng(1)
    y, x, u = stats_of(generator.normal(size=(3, n)))
    return pd.DataFrame({"y": y, "x": x, "u": u})


def stats_of(values):
    return (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)


def plain(formula="y ~ x + nn(u, v)", **settings):
    """A configuration whose prior is that of the weights."""
    return small_config(formula, priors__phi=None, **settings)


def test_a_model_that_is_not_trained_gives_responses_from_its_prior():
    frame = small_frame(200)
    config = plain(priors__b="normal(0, 0.001)", priors__sigma="lognormal(1, 0.01)")
    config = config.model_copy(
        update={"priors": config.priors.model_copy(update={"autoscale": False})}
    )
    table = simulate(config, frame, draws=3, seed=2)
    assert list(table)[:1] == [".draw"] and set(table) == {".draw", "y", "x", "u", "v"}
    assert len(table) == 600 and list(table[".draw"].unique()) == [1, 2, 3]
    for _, part in table.groupby(".draw"):
        np.testing.assert_array_equal(part["x"], frame["x"])
    assert not np.allclose(table["y"][:200], table["y"][200:400])


def test_the_same_seed_gives_the_same_responses():
    first, second, other = (
        simulate(plain(), small_frame(), draws=2, seed=seed)["y"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)


def test_all_weights_move_before_training_and_have_the_prior_of_the_weights():
    prepared = small_prepared("y ~ x + nn(u, v)", priors__phi=None)
    bundle = every_weight(prepared)
    assert bundle.model.moves == "all"
    assert bundle.units == prepared.model.units or bundle.units is prepared.model.units


def test_a_prior_around_trained_weights_is_refused_before_training():
    with pytest.raises(InputError, match=r"priors.phi .* is around the trained weights"):
        simulate(small_config("y ~ x + nn(u)"), small_frame())


def test_a_response_that_is_no_column_is_refused():
    with pytest.raises(InputError, match="put it into the table as a column of its own"):
        simulate(plain("log(z) ~ x + nn(u)"), small_frame())


def test_units_do_not_follow_the_simulated_response():
    prepared = small_prepared("y ~ x + nn(u, v)", priors__phi=None)
    bundle = every_weight(prepared)
    other = simulated(prepared, bundle, 1000 * np.arange(30.0))
    np.testing.assert_array_equal(other.rows.y, 1000 * np.arange(30.0))
    assert other.model.units is prepared.model.units
    rows = apply_design(prepared.design, other.rows.frame, response=True)
    np.testing.assert_array_equal(rows.y, other.rows.y)


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_responses_of_whole_numbers_are_whole_numbers(family):
    response = {"poisson": "count", "bernoulli": "flag"}[family]
    table = simulate(plain(f"{response} ~ x + nn(u)", family=family), small_frame())
    assert table[response].dtype.kind == "i"
    assert family == "poisson" or set(table[response]) <= {0, 1}


def huge():
    """A model whose prior has means far beyond the largest integer."""
    return plain("count ~ x + nn(u)", family="poisson", priors__b="normal(0, 30)")


def test_counts_beyond_the_integers_are_written_as_they_are_drawn():
    counts = simulate(huge(), small_frame(), draws=5)["count"]
    assert counts.max() > 2.0**63
    assert counts.min() >= 0 and (counts == np.floor(counts)).all()


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 2.0**53], "i"), ([0, 2.0**63], "f"), ([0, np.inf], "f"), ([[1, 2], [3, 2.0**62]], "i")],
)
def test_whole_numbers_are_integers_where_they_fit(values, kind):
    found = whole(np.array(values))
    assert found.dtype.kind == kind
    assert np.array_equal(found, np.array(values))


def test_counts_that_stan_cannot_hold_are_refused_before_a_fit():
    prepared = small_prepared("count ~ x + nn(u)", family="poisson", priors__phi=None)
    bundle, y = every_weight(prepared), np.arange(30.0)
    with pytest.raises(InputError, match=r"counts as large as 3e.09, .* Narrow the priors"):
        simulated(prepared, bundle, np.where(y == 3, 3e9, y))


@pytest.mark.lengthy
def test_a_run_gives_responses_from_its_posterior_or_its_prior(tmp_path, monkeypatch, capsys):
    semistan = command_in(tmp_path, monkeypatch, capsys)
    from semistan.workflow.fit import fit_model

    frame, run = standard_frame(), tmp_path / "run"
    fit_model(FORMULA, frame, out=run, overrides=LINEAR)
    table = simulate(run, draws=50)
    assert len(table) == 600
    residuals = table["y"].to_numpy().reshape(50, 12) - frame["y"].to_numpy()
    assert abs(residuals.mean()) < 0.5
    assert not np.allclose(simulate(run, prior=True)["y"], simulate(run)["y"])
    with pytest.raises(InputError, match="--times is from 1 to 99 here, got 100"):
        simulate(run, draws=100)
    code, _, _ = semistan("simulate", run, "--times", "2", "--out", "new.csv")
    assert code == 0
    assert len(pd.read_csv(tmp_path / "new.csv")) == 24


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    out = tmp_path_factory.mktemp("sbc") / "sbc"
    found = sbc(
        FORMULA, standard_frame(), out=out, replications=40, fixed_subspace=True,
        overrides=LINEAR, jobs=1,
    )  # fmt: skip
    return out, found


@pytest.mark.lengthy
def test_a_right_prior_gives_uniform_ranks(calibrated):
    """Chance fails one of four quantities at 0.001 in some 250 runs; the seeds are fixed."""
    table = calibrated[1].table().set_index("quantity")
    assert (table["p"] > 0.001).all()
    assert table.loc["b_x", "coverage 90%"] > 0.7


@pytest.mark.lengthy
def test_a_prior_twice_as_wide_is_found(calibrated, tmp_path):
    """The ranks of b_x, whose true values are from normal(0, 0.3), heap at both ends."""
    wrong = sbc(
        FORMULA, standard_frame(), out=tmp_path / "sbc", replications=40, fixed_subspace=True,
        truth={"priors.b": "normal(0, 0.3)"}, overrides=LINEAR, jobs=1,
    )  # fmt: skip
    right, found = (
        each.table().set_index("quantity").loc["b_x"] for each in (calibrated[1], wrong)
    )
    assert found["p"] < 0.001 < right["p"]
    assert found["coverage 90%"] < right["coverage 90%"]


@pytest.mark.lengthy
def test_replications_are_kept_and_other_settings_refused(calibrated, monkeypatch):
    out, found = calibrated
    assert {item.name for item in out.iterdir()} == {
        "manifest.json", "replications", "summary.csv", "ranks.png", "coverage.png"
    }  # fmt: skip
    settings = {"out": out, "fixed_subspace": True, "overrides": LINEAR, "jobs": 1}
    monkeypatch.setattr(calibrating, "_tasks", lambda *_: pytest.fail("nothing is missing"))
    again = sbc(FORMULA, standard_frame(), replications=40, **settings)
    pd.testing.assert_frame_equal(again.records, found.records)
    with pytest.raises(InputError, match="has replications of another model or other settings"):
        sbc(FORMULA, standard_frame(), replications=40, seed=2, **settings)


@pytest.mark.lengthy
def test_each_replication_trains_where_the_subspace_is_not_fixed(tmp_path, monkeypatch):
    from semistan.workflow import sbc as module

    trained = []
    original = module.fit_prepared

    def counted(prepared, out):
        trained.append(prepared.config.train.seed)
        return original(prepared, out)

    monkeypatch.setattr(module, "fit_prepared", counted)
    overrides = LINEAR | {"subspace.construction": "bezier", "subspace.k": 2, "network.hidden": [2]}
    found = sbc(
        FORMULA, standard_frame(), out=tmp_path / "sbc", replications=2, overrides=overrides, jobs=1
    )
    assert trained == [2, 3]
    assert {"b_Intercept", "b_x", "sigma", "eta[1]", "eta[12]", "log_lik"} <= set(
        found.records["quantity"]
    )


@pytest.mark.lengthy
def test_a_replication_that_fails_says_which(tmp_path, monkeypatch):
    def fail(*_):
        raise SemistanError("no luck.")

    monkeypatch.setattr(calibrating, "fit_prepared", fail)
    with pytest.raises(SemistanError, match=r"replication 1 failed: no luck\. Run it again"):
        sbc(FORMULA, standard_frame(), out=tmp_path / "sbc", replications=2, overrides=LINEAR,
            jobs=1)  # fmt: skip
