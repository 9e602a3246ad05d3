"""Tables with columns of the user's and ours: each name once, and the user's keep theirs."""

import numpy as np
import pandas as pd
import pytest

from semistan.posterior.checks import predictive_checks
from semistan.posterior.effects.comparisons import average_comparisons
from semistan.posterior.effects.effect import conditional_effect
from semistan.posterior.effects.estimates import apart, estimates_table
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.posterior import SubspacePosterior
from semistan.workflow.simulate import simulate
from support.drawn import random_draws
from support.small import small_bundle, small_config, small_frame

OURS = ["Estimate", "Est.Error", "l-95% CI", "u-95% CI"]
NAMES = {"x": "Estimate", "g": "term", "u": "l-95% CI", "v": "category"}


@pytest.fixture(scope="module")
def fitted():
    frame = small_frame().rename(columns=NAMES)
    bundle, rows = small_bundle("y ~ Estimate + C(term) + nn(`l-95% CI`, category)", frame)
    return SubspacePosterior(bundle, random_draws(bundle)), rows, frame


def test_an_effects_table_has_the_column_and_its_estimate(fitted):
    posterior, _, frame = fitted
    effect = conditional_effect(posterior, frame, "Estimate", resolution=3)
    table = effect.table()
    assert list(table) == ["Estimate", ".Estimate", *OURS[1:]]
    assert table["Estimate"].tolist() == effect.grid["Estimate"].tolist()
    assert table[".Estimate"].to_numpy() == pytest.approx(effect.draws.mean(axis=0))
    table = conditional_effect(posterior, frame, ["Estimate", "l-95% CI"], resolution=3).table()
    assert list(table) == [
        "Estimate", "l-95% CI", ".Estimate", "Est.Error", ".l-95% CI", "u-95% CI"
    ]  # fmt: skip


def test_groups_of_comparisons_and_checks_keep_their_name(fitted):
    posterior, rows, frame = fitted
    by = average_comparisons(posterior, frame, variables="Estimate", by="term")
    assert list(by) == [".term", "contrast", "term", *OURS]
    assert by["term"].tolist() == ["a", "b", "c"]
    assert list(average_marginal_effects(posterior, frame)) == ["term", "contrast", *OURS]
    for name in ("stat", "rows", "Observed", "p"):
        checked = predictive_checks(
            posterior, rows, "mean", groups=np.arange(30) % 2, by=name,
            generator=np.random.default_rng(1),
        )  # fmt: skip
        table = checked.table()
        assert table.columns.is_unique
        assert table[name].tolist() == [0, 1]
        assert f".{name}" in table


def test_categories_and_names_behind_dots_are_kept_too():
    values = np.random.default_rng(1).normal(size=(5, 2, 3))
    labels = pd.DataFrame({"category": [1, 2], ".category": [3, 4], "Estimate": [5, 6]})
    table = estimates_table(labels, values, ("a", "b", "c"), 0.95)
    assert list(table) == [*labels, "..category", ".Estimate", *OURS[1:]]
    assert table["..category"].tolist() == ["a", "a", "b", "b", "c", "c"]
    assert apart("x", []) == "x"


def test_a_column_called_draw_is_simulated_as_it_is():
    frame = small_frame().rename(columns={"x": ".draw"})
    config = small_config("y ~ `.draw` + nn(u, v)", priors__phi=None)
    table = simulate(config, frame, draws=2)
    assert table["..draw"].tolist() == [1] * 30 + [2] * 30
    assert table[".draw"].tolist() == 2 * frame[".draw"].tolist()


def test_an_offset_is_known_and_has_no_effect_of_its_own_by_default():
    bundle, _ = small_bundle("y ~ x + offset(z) + nn(u, v), sigma ~ offset(v)")
    one = SubspacePosterior(bundle, random_draws(bundle))
    assert average_marginal_effects(one, small_frame())["term"].tolist() == ["x", "u", "v"]
    assert average_comparisons(one, small_frame())["term"].tolist() == ["x", "u", "v"]
    asked = average_marginal_effects(one, small_frame(), variables=["z"])
    assert asked["term"].tolist() == ["z"]
    assert asked["Estimate"][0] == pytest.approx(1)
