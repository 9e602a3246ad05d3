"""How far the network varies under its prior: a linear network has a closed form."""

import numpy as np
import pytest

from semistan.posterior.implied import DRAWS, LATER, implied, implied_text
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.posterior.prior_draws import prior_draws
from support.assertions import Z
from support.command import command_in
from support.small import small_bundle, small_frame, small_prepared
from support.untrained import LINEAR, random_bundle

NONE = {"priors": {"phi": None}}  # that of the weights


def closed_form(rows, units, scales):
    """The sd of u' w at each row, u standardised and centred over the rows; the median."""
    u = (rows.U - units.u_loc) / units.u_scale
    return np.median(np.sqrt(((u - u.mean(axis=0)) ** 2) @ np.square(scales)))


def assert_sd(found, expected):
    assert abs(found - expected) < Z * expected / np.sqrt(2 * DRAWS)


@pytest.mark.parametrize("k", ["auto", 3])
def test_a_model_before_training_has_the_prior_of_all_its_weights(k):
    prepared = small_prepared(
        priors={"w": "normal(0, 3)"},
        network=LINEAR,
        subspace={"k": k},
        subspace__construction="full" if k == 3 else "bezier",
    )
    (found,) = implied(prepared.model, prepared.rows, np.random.default_rng(1))
    assert found.predictor == "eta"
    assert found.text == f"{found.sd:.2g} sd(y)"
    assert_sd(
        found.sd, closed_form(prepared.rows, prepared.model.units, np.full(2, 3 / np.sqrt(2)))
    )


def test_a_bundle_has_that_of_its_subspace():
    bundle, rows = random_bundle("gaussian", network=LINEAR, priors={"phi": "normal(1, 2)"}, k=2)
    (found,) = implied(bundle, rows, np.random.default_rng(1))
    u = (rows.U - bundle.units.u_loc) / bundle.units.u_scale
    along = (u - u.mean(axis=0)) @ bundle.subspace.Pi[:3]
    assert_sd(found.sd, np.median(2 * np.sqrt(along**2 @ bundle.subspace.phi_scale**2)))


def test_the_bias_is_the_intercepts():
    settings = {"network": LINEAR, "subspace": {"k": "auto"}}
    narrow, wide = (
        implied(prepared.model, prepared.rows, np.random.default_rng(1))[0].sd
        for bias in ("normal(0, 0.1)", "normal(0, 50)")
        for prepared in [small_prepared(priors={"Intercept": bias}, **settings)]
    )
    assert narrow == pytest.approx(wide, rel=1e-9)


def test_a_subspace_is_known_after_training():
    for settings in ({"subspace": {"k": 2}}, {"subspace": {"k": "auto"}, "network__frozen": 1}):
        prepared = small_prepared(priors={}, network__hidden=[3, 3], **settings)
        assert implied(prepared.model, prepared.rows, np.random.default_rng(1)) == ()
    assert implied_text(()) == LATER


def test_each_predictor_with_a_network_has_its_figure_and_scale():
    bundle, rows = small_bundle("y ~ x + nn(u), sigma ~ nn(v)")
    eta, sigma = implied(bundle, rows, np.random.default_rng(1))
    assert (eta.predictor, sigma.predictor) == ("eta", "log sigma")
    assert implied_text((eta, sigma)) == (
        f"under its prior the network's part has an sd of {eta.sd:.2g} sd(y), and {sigma.sd:.2g} "
        "in log sigma at a row (median)"
    )
    counts, of_counts = small_bundle("count ~ x + nn(u)", family="poisson")
    (found,) = implied(counts, of_counts, np.random.default_rng(1))
    assert found.text == f"{found.sd:.2g} on the log scale"
    shifted, others = small_bundle("y ~ x + offset(v) + nn(u)")
    (found,) = implied(shifted, others, np.random.default_rng(1))
    assert found.text.endswith("the data's scale of eta,")


def test_it_is_that_of_draws_from_the_prior():
    bundle, rows = small_bundle()
    (found,) = implied(bundle, rows, np.random.default_rng(1))
    draws = prior_draws(bundle, rows, (4, 1000), np.random.default_rng(2))
    f = posterior_linpred(SubspacePosterior(bundle, draws), rows, part="nn")
    expected = np.median(f.std(axis=0, ddof=1)) / bundle.units.eta_scale
    assert found.sd == pytest.approx(expected, rel=0.1)


def test_the_command_says_it_under_its_table(tmp_path, monkeypatch, capsys):
    small_frame().to_csv(tmp_path / "data.csv", index=False)
    command = command_in(tmp_path, monkeypatch, capsys)
    code, out, _ = command("priors", "y ~ x + nn(u, v)", "--data", "data.csv")
    assert code == 0
    assert out.splitlines()[-1].startswith("Under its prior the network's part has an sd of ")
    code, out, _ = command("priors", "y ~ x + nn(u, v)", "--data", "data.csv", "--k", 3)
    assert out.splitlines()[-1].lower() == f"{LATER}."
    code, out, error = command(
        "fit", "--train-only", "y ~ x + nn(u, v)", "--data", "data.csv", "--epochs", 3
    )
    assert "under its prior the network's part has an sd of" in error
    (tmp_path / "data.csv").unlink()
    code, out, _ = command("priors", "bundle")
    assert code == 0
    assert "What they imply is not known: " in out
