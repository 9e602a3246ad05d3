"""How long trees may grow, where that is left open."""

import pytest

from semistan.errors import InputError
from semistan.infer.starts import find_starts
from semistan.infer.trees import BENT, CUT, WHOLE, trees_of
from semistan.model.config import SampleConfig
from support.small import small_config
from support.untrained import random_bundle

ALL = {"subspace": {"construction": "full"}, "hidden": (16,)}  # 81 weights
AUTO = {"sample": {"integrate": "auto"}}


def trees(**settings):
    bundle, _ = random_bundle("gaussian", **settings)
    return trees_of(bundle.model, bundle.subspace.k)


def test_they_are_cut_where_the_output_layer_is_integrated_out_of_many_weights():
    assert trees(**ALL, **AUTO) == CUT


@pytest.mark.parametrize(
    "settings",
    [
        ALL,
        {**ALL, **AUTO, "hidden": (4,)},
        {**ALL, **AUTO, "formula": "y ~ x1 + (1 | g) + nn(u1, u2, u3)"},
        {**ALL, **AUTO, "priors": {"b": "horseshoe(2)"}},
        {**ALL, **AUTO, "priors": {"phi": None, "sd_w": "lognormal(0, 0.7)"}},
    ],
    ids=["sampled", "few weights", "groups", "horseshoe", "scales of weights"],
)
def test_they_are_whole_elsewhere(settings):
    assert trees(**settings) == WHOLE


@pytest.mark.parametrize("settings", [{}, AUTO], ids=["sampled", "theta integrated out"])
def test_steps_are_small_in_the_span_of_a_curve(settings):
    assert trees(**settings) == BENT


def test_numbers_that_were_given_stay():
    bundle, rows = random_bundle("gaussian", **ALL, **AUTO)
    for given in ({}, {"adapt_delta": 0.99}, {"max_treedepth": 9}):
        options = SampleConfig(**AUTO["sample"], chains=1, **given)
        found = find_starts(bundle, rows, options).resolve(options)
        expected = {"adapt_delta": 0.8, "max_treedepth": 6} | given
        assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("key", "value"), [("adapt_delta", "most"), ("adapt_delta", 1.0), ("max_treedepth", "deep")]
)
def test_other_words_and_numbers_are_refused(key, value):
    with pytest.raises(InputError, match=key):
        small_config(**{f"sample__{key}": value})
