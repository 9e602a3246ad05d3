"""Small models for the fast tests: trained for a few epochs, never sampled."""

import numpy as np
import pandas as pd

from semistan.model.config import parse_config
from semistan.workflow.prepare import prepare
from semistan.workflow.train import train

FORMULA = "y ~ x + C(g) + nn(u, v)"
PAPERS = "normal(0, 5)"  # the paper's prior of phi, around the trained weights
RESPONSES = {"gaussian": "y", "poisson": "count", "bernoulli": "flag"}
MORE_RESPONSES = {
    "negbinomial": "count", "student": "y", "lognormal": "z", "gamma": "z", "beta": "I(z / 3)",
    "binomial": "wins | trials(tries)",
}  # fmt: skip
RARER_RESPONSES = {
    "weibull": "z",
    "exponential": "z",
    "skew_normal": "y",
    "asym_laplace": "y",
    "von_mises": "I(v / 60)",
    "beta_binomial": "wins | trials(tries)",
    "zero_inflated_poisson": "count",
    "zero_inflated_negbinomial": "count",
    "hurdle_poisson": "count",
    "hurdle_negbinomial": "count",
    "hurdle_gamma": "I((abs(z - 1.2) + z - 1.2) / 2)",
    "hurdle_lognormal": "I((abs(z - 1.2) + z - 1.2) / 2)",
    "zero_one_inflated_beta": "I((abs(z - 1.2) - abs(z - 1.8) + 0.6) / 2)",
}  # of families whose Stan functions are compiled together


def small_frame(n=30, seed=0):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": generator.normal(50, 7, n),
            "count": generator.poisson(4, n),
            "flag": np.arange(n) % 2,
            "x": generator.normal(-20, 3, n),
            "z": generator.uniform(1, 2, n),
            "g": np.array(["a", "b", "c"])[np.arange(n) % 3],
            "u": generator.normal(3, 0.1, n),
            "v": generator.normal(0, 40, n),
            "tries": np.arange(n) % 5 + 3,
            "wins": generator.binomial(np.arange(n) % 5 + 3, 0.4),
        }
    )


def small_config(formula=FORMULA, **settings):
    """Keys with a double underscore belong to a section: ``train__epochs=5``."""
    content = {
        "formula": formula,
        "network": {"hidden": [3]},
        "subspace": {"k": 2},
        "train": {"epochs": 3, "validation": 0.2, "device": "cpu"},
        "sample": {},
        "priors": {"phi": PAPERS},
    }
    for key, value in settings.items():
        section, _, name = key.rpartition("__")
        (content[section] if section else content)[name] = value
    return parse_config(content, "test")


def small_prepared(formula=FORMULA, frame=None, *, networks=None, **settings):
    frame = small_frame() if frame is None else frame
    return prepare(small_config(formula, **settings), frame, networks)


def small_bundle(formula=FORMULA, frame=None, **settings):
    """Return a tiny trained bundle and its training rows."""
    prepared = small_prepared(formula, frame, **settings)
    return train(prepared), prepared.rows


def further_bundle(name, further="everything"):
    """Return a tiny bundle and rows with weights, an offset, a smooth and a group, or some."""
    response = RESPONSES.get(name, "count")
    bars = ["trials(n)"] * (name == "binomial") + ["weights(z)"] * (further == "everything")
    left = f"{response} | {' + '.join(bars)}" if bars else response
    terms = "s(u) + (1 + x | g) + nn(v)" if further == "everything" else "nn(u, v)"
    frame = small_frame().assign(n=lambda table: table["count"] + np.arange(len(table)) % 4)
    return small_bundle(f"{left} ~ x + offset(log(z)) + {terms}", frame, family=name)


def category_frame():
    """Return the small frame with unordered categories and ordered ones, 1 to 4."""
    generator, n = np.random.default_rng(6), 30
    modes = np.array(["bus", "car", "train trip"])[[0, 1, 2, *generator.integers(0, 3, n - 3)]]
    return small_frame().assign(mode=modes, rating=np.arange(n) % 4 + 1)


def category_bundle(name="categorical", predictors="x + C(g) + nn(u, v)", **settings):
    """Return a tiny bundle and rows with a response of categories."""
    response = {"categorical": "mode", "cumulative": "rating"}[name]
    return small_bundle(f"{response} ~ {predictors}", category_frame(), family=name, **settings)


def family_bundle(name, predictors="x + C(g) + nn(u, v)", **settings):
    return small_bundle(
        f"{(RESPONSES | MORE_RESPONSES | RARER_RESPONSES)[name]} ~ {predictors}",
        family=name,
        **settings,
    )


def files(path):
    """Return every path below a folder with its content."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in path.rglob("*")}
