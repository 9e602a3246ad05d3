"""How long trees may grow, where that is left open."""

import pytest

from semistan.errors import InputError
from semistan.infer.starts import find_starts
from semistan.infer.trees import BENT, STRAIGHT, WHOLE, Trees, are_cut, trees_of
from semistan.model.config import SampleConfig
from support.small import small_config
from support.untrained import random_bundle

ALL = {"subspace": {"construction": "full"}, "hidden": (16,)}  # 81 weights
NONE = {"sample": {"integrate": "none"}}
GIVEN = {"sigma": "constant(1)"}


def trees(rows=300, **settings):
    bundle, _ = random_bundle("gaussian", **settings)
    found = trees_of(bundle.model, bundle.subspace.k, rows)
    assert are_cut(bundle.model, bundle.subspace.k) == (found not in (BENT, WHOLE))
    return found


@pytest.mark.parametrize(
    ("rows", "depth"), [(20, 7), (500, 7), (501, 8), (5000, 9), (5001, 10), (100_000, 10)]
)
def test_they_are_cut_where_the_output_layer_is_integrated_out_of_many_weights(rows, depth):
    assert trees(rows, **ALL) == Trees(0.9, depth)


def test_they_are_cut_later_where_standard_deviations_are_sampled():
    formula = "y ~ x1 + s(v) + (1 + x1 | g) + nn(u1, u2, u3)"
    assert trees(500, **ALL, formula=formula) == Trees(0.9, 8)
    assert trees(100_000, **ALL, formula=formula) == Trees(0.9, 10)
    assert trees(500, **ALL, priors={"b": "horseshoe(2)"}) == Trees(0.9, 8)


@pytest.mark.parametrize(
    "settings",
    [
        {**ALL, **NONE},
        {**ALL, "hidden": (4,)},
        {**ALL, "formula": "y ~ x1 + mo(h) + nn(u1, u2, u3)"},
        {**ALL, "priors": {"phi": None, "sd_w": "lognormal(0, 0.7)"}},
    ],
    ids=["sampled", "few weights", "monotonic effects", "scales of weights"],
)
def test_they_are_whole_elsewhere(settings):
    assert trees(**settings) == WHOLE


@pytest.mark.parametrize("k", [1, 2, 8])
def test_steps_are_small_in_the_span_of_a_curve(k):
    assert trees(k=k) == BENT


def test_steps_in_the_span_of_a_curve_are_large_where_the_posterior_is_nearly_normal(monkeypatch):
    """Of a linear network and a given sd it is normal."""
    bundle, rows = random_bundle("gaussian", activation="identity", k=2, priors=GIVEN)
    options = SampleConfig(chains=2)
    assert find_starts(bundle, rows, options).resolve(options).adapt_delta == STRAIGHT.adapt_delta
    monkeypatch.setattr("semistan.infer.starts.departure", lambda *_: 0.8)
    assert find_starts(bundle, rows, options).resolve(options).adapt_delta == BENT.adapt_delta
    given = SampleConfig(chains=2, adapt_delta=0.99)
    assert find_starts(bundle, rows, given).resolve(given).adapt_delta == 0.99


def test_numbers_that_were_given_stay():
    bundle, rows = random_bundle("gaussian", **ALL)
    for given in ({}, {"adapt_delta": 0.99}, {"max_treedepth": 9}):
        options = SampleConfig(chains=1, **given)
        found = find_starts(bundle, rows, options).resolve(options)
        expected = {"adapt_delta": 0.9, "max_treedepth": 7} | given
        assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("key", "value"), [("adapt_delta", "most"), ("adapt_delta", 1.0), ("max_treedepth", "deep")]
)
def test_other_words_and_numbers_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        small_config(**{f"sample__{key}": value})
