"""Numbers that are written as text are refused, with what to write; factors are not."""

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import factor_notes, learn_design
from semistan.model.formula.formula import parse_formula

N = 60
VALUES = np.arange(N) * 37 + 1012

DISGUISED = {
    "thousands": (lambda v: f"{v:,}", "with commas between thousands: write 1012"),
    "percent": (lambda v: f"{v}%", "with a percent sign: write 1012"),
    "percent apart": (lambda v: f"{v / 10} %", "with a percent sign: write 101.2"),
    "dollars": (lambda v: f"${v}", "with a currency: write 1012"),
    "euros": (lambda v: f"{v:,} €", "with a currency: write 1012"),
    "code": (lambda v: f"USD {v}", "with a currency: write 1012"),
    "Fortran": (lambda v: f"{v / 8}D0", "with Fortran's exponent: write 126.5e0"),
    "Fortran small": (lambda v: f"-{v}.d-03", "with Fortran's exponent: write -1012.e-03"),
    "decimal comma": (lambda v: f"{v},5", "with a decimal comma: write 1012.5"),
    "point": (
        lambda v: f"{v * 1000:,}".replace(",", "."),
        "with points between thousands: write 1012000",
    ),
    "thin blank": (lambda v: f"{v:,}".replace(",", "\u202f"), "with blanks between thousands"),
    "hard blank": (lambda v: f"{v:,}".replace(",", "\u00a0"), "with blanks between thousands"),
    "blank behind": (lambda v: f"{v}\u00a0", "with blanks: write 1012"),
    "blank before": (lambda v: f"\u00a0{v}", "with blanks: write 1012"),
    "Swiss": (lambda v: f"{v:,}".replace(",", "'"), "with marks between thousands: write 1012"),
    "minus": (lambda v: f"\u2212{v}", "with another minus sign: write -1012"),
    "behind": (lambda v: f"{v}-", "with a minus sign at the end: write -1012"),
    "parentheses": (lambda v: f"({v})", "with parentheses for a minus sign: write -1012"),
    "quoted": (lambda v: f"'{v}", "with quotation marks: write 1012"),
    "unit": (lambda v: f"{v}kg", "with the unit 'kg': write 1012"),
    "degrees": (lambda v: f"{v} °C", "with the unit '°C': write 1012"),
}
PLACES = [
    "y ~ x + nn(u)",
    "y ~ s(x) + nn(u)",
    "y ~ u + nn(x)",
    "y ~ u:x + nn(u)",
    "y ~ u + nn(u), sigma ~ x",
]
NUMERIC = ["y ~ log(x) + nn(u)", "x ~ u + nn(u)", "y | weights(x) ~ u + nn(u)"]


def table(x):
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"y": generator.normal(size=N), "u": generator.normal(size=N)})
    return frame.assign(x=np.array(x, dtype=object))


def learn(text, x):
    return learn_design(parse_formula(text), table(x))[0]


def refusal(text, x):
    with pytest.raises(InputError) as caught:
        learn(text, x)
    return str(caught.value)


@pytest.mark.parametrize("name", DISGUISED)
def test_numbers_in_disguise_are_refused_in_every_place(name):
    write, told = DISGUISED[name]
    x = [write(value) for value in VALUES]
    for text in PLACES:
        message = refusal(text, x)
        assert f"column 'x' holds numbers as text, as {x[0]!r} in row 1, {told}" in message
        assert "or write C(x) if each value is a level of a factor" in message
    for text in NUMERIC:
        message = refusal(text, x)
        assert f"column 'x' must be numeric, got {x[0]!r} (object) in row 1" in message
        assert told in message or "unit" in told


@pytest.mark.parametrize("mark", [".", "-", "n/a", "?", "NA ", "missing", "#VALUE!", ""])
@pytest.mark.parametrize("every", [2, 3, 10])
def test_marks_for_missing_values_among_numbers_are_refused(mark, every):
    x = [mark if i % every == 0 else str(value) for i, value in enumerate(VALUES)]
    message = refusal("y ~ x + nn(u)", x)
    of = f"{-(-N // every)} of {N} rows, as {mark!r} in row 1"
    assert f"holds numbers but for {of}, which looks like a missing value: leave the" in message
    mixed = [f"{value:,}" if value != mark else value for value in (mark, *VALUES[1:])]
    assert "numbers as text, as '1,049' in row 2, with commas" in refusal("y ~ x + nn(u)", mixed)


def test_words_among_numbers_are_refused_if_they_are_few():
    x = [str(value) for value in VALUES]
    assert "as 'oops' in row 4; mend these" in refusal("y ~ x + nn(u)", [*x[:3], "oops", *x[4:]])
    many = ["oops" if i % 2 else value for i, value in enumerate(x)]
    assert len(learn("y ~ C(x) + nn(u)", many).x.levels["C(x)"]) == 31


@pytest.mark.parametrize(
    "levels",
    [
        ["1", "2", "3"],
        ["001", "002", "A03"],
        ["low", "mid", "high"],
        ["1st", "2nd", "3rd"],
        ["3m", "6m", "12m"],
        ["10-20", "20-30", "30+"],
        ["2024-05-31", "2024-06-01", "2024-06-02"],
        ["1/2", "3/4", "5/6"],
        ["A1", "B2", "C3"],
        [".", "-", "?"],
    ],
)
def test_levels_are_no_numbers_in_disguise(levels):
    design = learn("y ~ x + nn(u, x)", np.array(levels)[np.arange(N) % 3])
    assert sorted(design.x.levels["x"]) == sorted(levels)


def test_what_is_meant_as_levels_is_written_so():
    x = np.array(["5%", "10%", "20%"])[np.arange(N) % 3]
    assert "with a percent sign: write 5" in refusal("y ~ x + nn(u)", x)
    assert learn("y ~ C(x) + nn(u)", x).x.levels["C(x)"] == ["10%", "20%", "5%"]
    assert learn("y ~ u + (1 | x) + nn(u)", x).terms[0].levels == ("10%", "20%", "5%")


def test_factors_of_many_levels_are_warned_of_wherever_they_stand():
    generator = np.random.default_rng(2)
    x = np.array([f"a{i}" for i in range(50)])[generator.permutation(200) % 50]
    frame = pd.DataFrame({"y": generator.normal(size=200), "u": generator.normal(size=200), "x": x})
    for text, where in (
        ("y ~ x + nn(u)", "'x' has 50 levels, each a coefficient of its own"),
        ("y ~ u + nn(u), sigma ~ x", "'x' has 50 levels, each a coefficient of its own"),
        ("y ~ u + nn(x)", "'x' in nn() has 50 levels, each an input of its own"),
    ):
        (note,) = factor_notes(learn_design(parse_formula(text), frame)[0])
        assert where in note


@pytest.mark.parametrize(
    "text",
    ["y ~ x + nn(u)", "y ~ C(x) + nn(u)", "y ~ u:x + nn(u)", "y ~ u + nn(u), sigma ~ x",
     "y ~ u + (x | g) + nn(u)"],
)  # fmt: skip
def test_a_factor_of_one_level_is_refused(text):
    frame = table(["a"] * N).assign(g=np.array(["p", "q"])[np.arange(N) % 2])
    expected = r"factor '.*' has one level in these data, 'a'; leave it out of the formula"
    with pytest.raises(InputError, match=expected):
        learn_design(parse_formula(text), frame)


@pytest.mark.parametrize("text", ["y ~ x + nn(u)", "y ~ u + (x | g) + nn(u)"])
@pytest.mark.parametrize("value", [True, 1.0])
def test_so_is_a_number_that_is_constant(text, value):
    frame = table([value] * N).assign(g=np.array(["p", "q"])[np.arange(N) % 2])
    with pytest.raises(InputError, match="column 'x' is constant in these data"):
        learn_design(parse_formula(text), frame)
