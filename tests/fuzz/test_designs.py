"""Random models on random tables: preparation, or an error of ours, and never another exception.

Half of the formulas are valid by construction and half are damaged; the examples are the same in
every run.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistan.data.model_file import read_config
from semistan.errors import SemistanError
from semistan.model.config import config_toml, parse_config
from semistan.model.formula.formula import parse_formula
from semistan.program.program import stan_program
from semistan.workflow.prepare import prepare
from support.small import RESPONSES as SINGLE

CALM = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
FEW, MANY = settings(CALM, max_examples=12), settings(CALM, max_examples=150)

RESPONSES = {
    **SINGLE, "multinomial": "cbind(bus, car, train) | trials(n)",
    "dirichlet": "cbind(sand, silt, clay)",
}  # fmt: skip
NUMBERS, FACTORS, INPUTS = ("x", "z", "a b"), ("g", "h"), ("u", "v", "class")
OPTIONS = ("", ", hidden=[3]", ", activation='relu'", ", hidden=[3, 3], skip=True",
           ", hidden=[2, 2], norm=True")  # fmt: skip
CALLS = ("log({})", "I({} ** 2)", "poly({}, 2)", "scale({})", "bs({}, df=4)", "{}^2", "{} * 2")
BROKEN = ("~", "|", "(", ")", "`", "+", ":", "nn(", "1e400", "0", "-1", ".", ",", "\0", "'", "C(",
          "lambda: 0", "nowhere", "cbind(", "\u2028", "[", "y", "s(g)", "nn(g, k=0)")  # fmt: skip


def quoted(name):
    return name if name.isidentifier() and name != "class" else f"`{name}`"


@st.composite
def term(draw):
    number, factor = quoted(draw(st.sampled_from(NUMBERS))), draw(st.sampled_from(FACTORS))
    return draw(
        st.sampled_from(
            [
                number,
                factor,
                f"C({factor})",
                f"{number}:{factor}",
                f"{number} * {factor}",
                "g:h",
                "C(h, contr.helmert)",
                "offset(z)",
                f"s({number}, k=4)",
                f"(1 | {factor})",
                f"(1 + {number} | {factor})",
                f"(0 + {number} || {factor})",
                "(1 | g:h)",
                draw(st.sampled_from(CALLS[:5])).format("z"),
            ]
        )
    )


@st.composite
def network(draw):
    inputs = draw(st.lists(st.sampled_from((*INPUTS, "g")), min_size=1, max_size=3, unique=True))
    options = draw(st.sampled_from(OPTIONS))
    return f"nn({', '.join(map(quoted, inputs))}{options})"


@st.composite
def right(draw):
    terms = draw(st.lists(term(), max_size=4, unique=True))
    networks = draw(st.lists(network(), min_size=1, max_size=2, unique=True))
    return " + ".join([*terms, *networks])


@st.composite
def valid_formulas(draw, response):
    text = f"{response} ~ {draw(right())}"
    more = response == "y" and draw(st.integers(0, 3)) == 0
    return f"{text}, sigma ~ {draw(right())}" if more else text


@st.composite
def damaged(draw, text):
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = start + draw(st.integers(0, 3))
        text = text[:start] + draw(st.sampled_from((*BROKEN, ""))) + text[stop:]
    return text


COLUMNS = {
    "as it is": lambda values: values,
    "constant": lambda values: np.full(len(values), values[0]),
    "missing": lambda values: np.where(np.arange(len(values)) == 1, np.nan, values),
    "all missing": lambda values: np.full(len(values), np.nan),
    "infinite": lambda values: np.where(np.arange(len(values)) == 1, np.inf, values),
    "huge": lambda values: values * 1e300,
    "tiny": lambda values: values * 1e-300,
    "text": lambda values: np.array([f"t{value:.0f}" for value in values], dtype=object),
    "truth": lambda values: values > np.median(values),
    "dates": lambda values: pd.Timestamp("2020-01-01")
    + pd.to_timedelta(np.arange(len(values)), "D"),
    "whole": lambda values: np.round(values).astype(int),
    "levels": lambda values: pd.Categorical(np.round(values).astype(int).astype(str)),
    "objects": lambda values: np.array([[1, 2]] * len(values), dtype=object),
}  # fmt: skip


@st.composite
def tables(draw, *, odd):
    rows = draw(st.sampled_from([40, 9, 2, 1])) if odd else 40
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    numbers = {name: generator.normal(size=rows) for name in (*NUMBERS, *INPUTS)}
    columns = {
        **numbers,
        "z": generator.uniform(1, 2, rows),
        "y": generator.normal(50, 7, rows),
        "count": generator.poisson(4, rows),
        "flag": np.arange(rows) % 2,
        "g": np.array(["a", "b", "c"])[np.arange(rows) % 3],
        "h": np.array(["p", "q"])[np.arange(rows) // 2 % 2],
    }
    counts = generator.multinomial(9, [0.5, 0.2, 0.3], size=rows)
    columns |= dict(zip(("bus", "car", "train"), counts.T, strict=True), n=np.full(rows, 9))
    shares = generator.dirichlet([1, 2, 3], size=rows)
    columns |= dict(zip(("sand", "silt", "clay"), shares.T, strict=True))
    if odd:
        name = draw(st.sampled_from((*NUMBERS, *INPUTS, "y", "count", "car", "n", "silt")))
        kind = draw(st.sampled_from(list(COLUMNS)))
        columns[name] = COLUMNS[kind](np.asarray(columns[name], dtype=float))
    return pd.DataFrame({name: list(values) for name, values in columns.items()})


KEYS = st.dictionaries(
    st.sampled_from(
        ["network.hidden", "network.activation", "network.frozen", "subspace.k", "subspace.free",
         "subspace.construction", "priors.b", "priors.phi", "train.validation", "sample.method",
         "sample.temperature", "orthogonalise", "orthogonalise_in", "drop_missing", "sample.seed"]
    ),
    st.sampled_from(
        [0, 1, 2, -1, 0.5, 1e30, 10**30, True, "auto", "", "tanh", "relu", "output", "full", "pca",
         "subnetwork", "low_rank_laplace", "naive", "normal(0, 1)", "student_t(3, 0, 1)", "lkj(2)",
         "horseshoe()", "all", "off", "model", "laplace", "flow", "elliptical-slice", [3], [0], [],
         [10**9], ["a"], None, {"a": 1}, float("nan"), float("inf")]
    ),
    max_size=3,
)  # fmt: skip


@st.composite
def designs(draw):
    """A model file's contents and a table: valid, or with one of its parts at odds."""
    family = draw(st.sampled_from(list(RESPONSES)))
    odd = draw(st.sampled_from(["none", "none", "none", "formula", "table", "keys"]))
    text = draw(valid_formulas(RESPONSES[family]))
    content = {
        "formula": draw(damaged(text)) if odd == "formula" else text,
        "family": family,
        "network": {"hidden": [3]},
        "subspace": {"k": 2},
    }
    for key, value in (draw(KEYS) if odd == "keys" else {}).items():
        *section, name = key.split(".")
        (content.setdefault(section[0], {}) if section else content)[name] = value
    return content, draw(tables(odd=odd == "table"))


def prepared_or_refused(content, table):
    """Return the program's text, or nothing where an error of ours says why there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            prepared = prepare(parse_config(content, "model.toml"), table)
            return stan_program(prepared.model)
        except SemistanError as error:
            assert str(error)
            return ""


@FEW
@given(designs())
def test_a_design_is_prepared_or_refused(design):
    prepared_or_refused(*design)


@pytest.mark.lengthy
def test_many_designs_are_prepared_or_refused_and_both_are_common():
    programs = []

    @MANY
    @given(designs())
    def each(design):
        programs.append(prepared_or_refused(*design))

    each()
    share = np.mean([bool(program) for program in programs])
    assert 0.2 < share < 0.8


@FEW
@given(st.text(max_size=200) | valid_formulas("y").flatmap(damaged))
def test_any_text_is_a_formula_or_is_refused(text):
    try:
        found = parse_formula(text)
    except SemistanError:
        return
    assert parse_formula(found.text) == found


@FEW
@given(designs())
def test_a_model_file_is_read_again_as_it_was(tmp_path_factory, design):
    try:
        config = parse_config(design[0], "model.toml")
    except SemistanError:
        return
    path = tmp_path_factory.getbasetemp() / "model.toml"
    path.write_text(config_toml(config), "utf-8")
    assert read_config(path) == config
