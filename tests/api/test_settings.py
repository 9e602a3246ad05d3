"""Keywords in Python are the keys of the configuration, and the flags of the command line."""

import inspect
from typing import get_args, get_type_hints

import pytest

import semistan
from semistan.api.settings import SECTIONS, Settings, dotted, keys_of
from semistan.command.flags import FIT_FLAGS
from semistan.errors import InputError
from semistan.model.config import ModelConfig, with_overrides
from semistan.model.priors.section import PriorConfig

GIVEN = {"formula", "data", "network", "subspace", "priors", "train", "sample"}
OF_PRIORS = {flag.name for flag in FIT_FLAGS if not flag.keys} | {
    flag.name for flag in FIT_FLAGS if flag.keys and flag.keys[0] == f"priors.{flag.name[6:]}"
}


def every_key():
    fields = ModelConfig.model_fields
    for name in set(fields) - GIVEN:
        yield name, fields[name]
    for section in SECTIONS:
        for name, field in type(fields[section].default).model_fields.items():
            yield f"{section}.{name}", field


def test_every_key_has_a_keyword_and_every_keyword_a_key():
    reached = {
        key for name in Settings.__annotations__ if name != "priors" for key in keys_of(name)
    }
    assert reached == {key for key, _ in every_key()} | {"priors.autoscale"}


def test_keywords_are_the_flags_but_for_priors():
    flags = {flag.name: flag.keys for flag in FIT_FLAGS if flag.name not in OF_PRIORS | {"data"}}
    keywords = {name: keys_of(name) for name in Settings.__annotations__ if name != "priors"}
    assert keywords == flags


def test_the_words_of_a_keyword_are_those_of_its_key():
    fields, hints = dict(every_key()), get_type_hints(Settings)
    for name, hint in hints.items():
        if name in ("priors", "autoscale"):
            continue
        known = literals(fields[keys_of(name)[0]].annotation)
        assert literals(hint) == known, name


def literals(hint):
    if isinstance(hint, str):
        return {hint}
    return {word for part in get_args(hint) for word in literals(part)}


@pytest.mark.parametrize(
    "function",
    [
        semistan.fit,
        semistan.update,
        semistan.Fit.update,
        semistan.priors,
        semistan.simulate,
        semistan.sbc,
    ],
)
def test_the_signature_shows_every_keyword(function):
    shown = inspect.signature(function).parameters
    assert set(Settings.__annotations__) <= set(shown)
    assert all(p.kind is not p.VAR_KEYWORD for p in shown.values())


def test_keywords_become_a_configuration():
    settings = {"priors": {"b_x": "normal(0, 1)", "w": "normal(0, 3)"}, "autoscale": False,
                "hidden": [4, 3], "k": 5, "kernel": "stan", "kernel_size": 5, "seed": 7,
                "family": "poisson", "drop_missing": True}  # fmt: skip
    config = with_overrides(ModelConfig(formula="y ~ x + nn(u)"), dotted(settings))
    assert config.priors.coefficients == {"b_x": "normal(0, 1)"}
    assert (config.priors.w, config.priors.autoscale) == ("normal(0, 3)", False)
    assert (config.network.hidden, config.network.kernel, config.sample.kernel) == (
        (4, 3),
        5,
        "stan",
    )
    assert (config.subspace.k, config.train.seed, config.sample.seed) == (5, 7, 7)
    assert (config.family, config.drop_missing) == ("poisson", True)
    assert isinstance(config.priors, PriorConfig)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"chain": 2}, "there is no setting 'chain'. Did you mean 'chains'?"),
        ({"priors": "normal(0, 1)"}, "priors are a mapping of names to priors"),
        ({"overrides": {"subspace.k": 2}}, "there is no setting 'overrides'"),
    ],
)
def test_what_is_no_setting_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        semistan.fit("y ~ x + nn(u)", {"y": [1.0]}, progress=False, **settings)


def test_a_wrong_value_is_refused_by_its_key():
    with pytest.raises(InputError, match=r"train.epochs: input should be a valid integer, got '2'"):
        semistan.fit("y ~ x + nn(u)", {"y": [1.0]}, progress=False, epochs="2")
