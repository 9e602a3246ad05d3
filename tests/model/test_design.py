import json
import re

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.names import stan_name, unique_names
from semistan.model.table.missing import complete_rows
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.summary import summarise
from semistan.program.program import bundle_program, labels
from semistan.show.pictures.coefficients import draw_coefficients
from semistan.show.pictures.material import Material
from support.drawn import random_draws
from support.small import small_bundle, small_frame


def learn(text, frame=None):
    return learn_design(parse_formula(text), small_frame() if frame is None else frame)


def refusal(text, frame=None):
    with pytest.raises(InputError) as caught:
        learn(text, frame)
    return str(caught.value)


def complete(text, frame, *, response=True, drop_missing=False):
    return complete_rows(parse_formula(text), frame, response=response, drop_missing=drop_missing)


def through_json(design):
    return design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))


def test_numeric_columns_are_taken_as_they_are():
    frame = small_frame()
    design, rows = learn("y ~ x + nn(v, u)", frame)
    assert np.array_equal(rows.X, frame[["x"]])
    assert np.array_equal(rows.U, frame[["v", "u"]])
    assert np.array_equal(rows.y, frame["y"])
    assert (design.x.columns, design.u.columns) == (("x",), ("v", "u"))
    assert rows.index == tuple(frame.index)


def test_location_and_scale_are_mean_and_sample_deviation():
    frame = small_frame()
    design, _ = learn("y ~ x + nn(u, v)", frame)
    assert np.allclose(design.u.loc, frame[["u", "v"]].mean(), rtol=1e-14)
    assert np.allclose(design.x.scale, frame[["x"]].std(), rtol=1e-14)


@pytest.mark.parametrize("term", ["g", "C(g)"])
def test_the_first_level_is_the_reference(term):
    frame = small_frame()
    design, rows = learn(f"y ~ {term} + nn(u)", frame)
    assert np.array_equal(rows.X, np.column_stack([frame["g"] == "b", frame["g"] == "c"]))
    assert list(design.x.levels.values()) == [["a", "b", "c"]]
    assert design.coefficients == ("b_gb", "b_gc")


def test_the_order_of_a_categorical_is_kept():
    frame = small_frame().assign(g=lambda f: pd.Categorical(f["g"], ["c", "a", "b"]))
    design, rows = learn("y ~ g + nn(u)", frame)
    assert design.coefficients == ("b_ga", "b_gb")
    assert np.array_equal(apply_design(design, small_frame(), response=False).X, rows.X)


def test_levels_can_be_listed():
    design, _ = learn("y ~ C(g, levels=['b', 'a', 'c']) + nn(u)")
    assert design.coefficients == ("b_ga", "b_gc")


@pytest.mark.parametrize(
    ("terms", "lacking"),
    [
        ("C(g, levels=['a', 'b']) + nn(u)", "10 of 30 rows have: 'c' (10)."),
        ("x:C(g, contr.sum, levels=['c']) + nn(u)", "20 of 30 rows have: 'a' (10), 'b' (10)."),
        ("x + nn(u, C(g, levels=['a', 'b']))", "10 of 30 rows have: 'c' (10)."),
        ("x + (C(g, levels=['a', 'b']) | flag) + nn(u)", "10 of 30 rows have: 'c' (10)."),
        ("x + nn(u), sigma ~ C(g, levels=['a', 'b'])", "10 of 30 rows have: 'c' (10)."),
        ("C(`odd name`, levels=[2, 3]) + nn(u)", "1 of 30 rows have: 1 (1)."),
        ("C(flag, levels=['0', '1']) + nn(u)", "30 of 30 rows have: 0 (15), 1 (15)."),
        ("C(row, levels=[9]) + nn(u)", "0 (1), 1 (1), 2 (1), 3 (1), 4 (1), ...."),
        ("C(kind, levels=['a']) + nn(u)", "10 of 30 rows have: 'b' (10)."),
    ],
)
def test_levels_that_are_left_out_are_named_with_their_rows(terms, lacking):
    frame = small_frame().assign(row=range(30), **{"odd name": [1] + [2, 3] * 14 + [2]})
    kinds = pd.Categorical(frame["g"].replace("c", "a"), ["a", "b", "unused"])
    with pytest.raises(InputError, match=f"leaves out levels that .*{re.escape(lacking)}"):
        learn(f"y ~ {terms}", frame.assign(kind=kinds))


@pytest.mark.parametrize("levels", ["[]", "'abc'", "5", "['a', None]", "[['a', 'b', 'c']]"])
def test_levels_are_a_list(levels):
    with pytest.raises(InputError, match=f"a list of all levels .*got levels={re.escape(levels)}"):
        learn(f"y ~ C(g, levels={levels}) + nn(u)")


def test_listed_levels_may_hold_backticks():
    frame = small_frame().replace({"g": {"a": "`a`"}})
    design, _ = learn("y ~ C(g, levels=('b', '`a`', 'c')) + nn(u)", frame)
    assert list(design.x.levels.values()) == [["b", "`a`", "c"]]


def test_the_reference_level_can_be_chosen():
    design, _ = learn("y ~ C(g, contr.treatment('b')) + nn(u)")
    assert design.coefficients == ("b_ga", "b_gc")


def test_an_interaction_is_a_product_of_columns():
    frame = small_frame()
    design, rows = learn("y ~ x*z + x:C(g) + nn(u)", frame)
    X = dict(zip(design.x.columns, rows.X.T, strict=True))
    assert np.array_equal(X["x:z"], frame["x"] * frame["z"])
    assert np.array_equal(X["x:C(g)[T.b]"], frame["x"] * (frame["g"] == "b"))


@pytest.mark.parametrize(
    ("terms", "main"),
    [("h:g", ""), ("g:h", ""), ("x + h:g", "x"), ("C(h):C(g)", ""), ("h:(g + x)", "h:x")],
)
def test_an_interaction_of_factors_alone_spans_the_means_of_all_cells(terms, main):
    frame = small_frame(60).assign(h=lambda f: np.where(f.index % 4 < 2, "p", "q"))
    design, rows = learn(f"y ~ {terms} + nn(u)", frame)
    cells = [(frame.g == g) & (frame.h == h) for g in "abc" for h in "pq"]
    slopes = {"": [], "x": [frame.x], "h:x": [frame.x * (frame.h == h) for h in "pq"]}[main]
    space = np.column_stack([*cells, *slopes]).astype(float)
    X = np.column_stack([np.ones(60), rows.X])
    assert X.shape[1] == np.linalg.matrix_rank(X) == space.shape[1]
    assert np.allclose(space @ np.linalg.lstsq(space, X)[0], X, atol=1e-9)
    again = apply_design(design, frame.iloc[[5, 2]], response=False)
    assert np.array_equal(again.X, rows.X[[5, 2]])


def test_columns_of_a_margin_are_those_of_one_factor():
    frame = small_frame(60).assign(h=lambda f: np.where(f.index % 4 < 2, "p", "q"))
    design, rows = learn("y ~ h:g + nn(u)", frame)
    X = dict(zip(design.coefficients, rows.X.T, strict=True))
    assert list(X) == ["b_gb", "b_gc", "b_hq_ga", "b_hq_gb", "b_hq_gc"]
    assert np.array_equal(X["b_gb"], frame.g == "b")
    assert np.array_equal(X["b_hq_ga"], (frame.h == "q") & (frame.g == "a"))


@pytest.mark.parametrize("expression", ["(x + 1) * (z + 2)", "log(z) + exp(z)", "x / z"])
def test_arithmetic_in_braces_is_one_column(expression):
    frame = small_frame()
    _, rows = learn(f"y ~ {{{expression}}} + nn(u)", frame)
    assert np.allclose(rows.X[:, 0], frame.eval(expression), rtol=1e-14)
    assert rows.X.shape[1] == 1


def test_a_response_in_braces_is_evaluated_as_one():
    frame = small_frame()
    _, rows = learn("{log(y) + log(z)} ~ x + nn(u)", frame)
    assert np.allclose(rows.y, np.log(frame["y"] * frame["z"]), rtol=1e-12)


@pytest.mark.parametrize("argument", ["u**2", "u - 1", "u / 2", "-u"])
def test_arithmetic_within_nn_is_arithmetic_or_refused(argument):
    frame = small_frame()
    try:
        _, rows = learn(f"y ~ x + nn({argument})", frame)
    except InputError:
        return
    assert np.allclose(rows.U[:, 0], frame.eval(argument), rtol=1e-14)


NUMERIC = [
    "poly(x, 3)", "bs(x, df=5)", "center(x)", "scale(x)", "log(z)", "I(x / z)", "`odd: name`",
    "cr(x, df=4, constraints='center')",
]  # fmt: skip
STRUCTURED = ["poly(x, degree=2):z", "C(g):scale(z)", "C(g, contr.sum)", "C(n)", "t", "t:C(g)"]


@pytest.mark.parametrize(
    "text",
    [
        *(f"y ~ {term} + nn(u)" for term in (*NUMERIC, *STRUCTURED)),
        *(f"y ~ x + nn(u, {term})" for term in NUMERIC),
    ],
)
def test_the_state_survives_json_and_applies_to_single_rows_exactly(text):
    frame = small_frame().assign(
        n=lambda f: np.arange(len(f)) % 4, t=lambda f: f["x"] > -20, **{"odd: name": lambda f: f.v}
    )
    design, rows = learn(text, frame)
    again = through_json(design)
    assert design_to_plain(again) == design_to_plain(design)
    singles = [apply_design(again, frame.iloc[[i]], response=True) for i in range(len(frame))]
    assert np.allclose(np.vstack([row.X for row in singles]), rows.X, rtol=1e-12, atol=1e-12)
    assert np.allclose(np.vstack([row.U for row in singles]), rows.U, rtol=1e-12, atol=1e-12)
    assert np.array_equal(np.concatenate([row.y for row in singles]), rows.y)


def test_new_rows_do_not_move_the_state():
    design, _ = learn("y ~ center(x) + nn(u)")
    shifted = small_frame().assign(x=lambda f: f["x"] + 100)
    X = apply_design(design, shifted, response=False).X
    assert X.mean() == pytest.approx(100, rel=1e-12)


def test_the_response_is_not_needed_to_predict():
    design, rows = learn("log(y) ~ x + nn(u)")
    again = apply_design(design, small_frame().drop(columns="y"), response=False)
    assert again.y is None
    assert np.array_equal(again.X, rows.X)


def test_an_unseen_level_is_named_with_the_known_ones():
    design, _ = learn("y ~ C(g) + nn(u)")
    with pytest.raises(InputError, match=r"'g' has levels .* 'd'. Known levels: 'a', 'b', 'c'"):
        apply_design(through_json(design), small_frame().assign(g="d"), response=False)


@pytest.mark.parametrize("term", ["`a level`", "C(`a level`)", "`a level`:x"])
def test_an_unseen_level_of_a_quoted_column_is_named(term):
    frame = small_frame().rename(columns={"g": "a level"})
    design, _ = learn(f"y ~ {term} + nn(u)", frame)
    with pytest.raises(InputError, match="'a level' has levels"):
        apply_design(design, frame.assign(**{"a level": "d"}), response=False)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["y", "x", "u"])
def test_missing_and_infinite_values_are_counted_by_column(column, value):
    frame = small_frame()
    frame.loc[[2, 5], column] = value
    with pytest.raises(InputError, match=rf"2 of 30 rows .*: {column} \(2\)"):
        complete("y ~ x + nn(u)", frame)


def test_missing_rows_can_be_dropped():
    frame = small_frame()
    frame.loc[2, "x"] = np.nan
    frame.loc[3, "g"] = None
    frame.loc[4, "v"] = np.nan  # not used
    kept, dropped = complete("y ~ x + g + nn(u)", frame, drop_missing=True)
    assert (dropped.rows, dropped.total, dropped.counts) == ((3, 4), 30, {"x": 1, "g": 1})
    assert list(kept.index) == [i for i in range(30) if i not in (2, 3)]


def test_a_missing_response_does_not_matter_for_prediction():
    frame = small_frame().assign(y=np.nan)
    kept, dropped = complete("y ~ x + nn(u)", frame, response=False)
    assert (len(kept), len(dropped)) == (30, 0)


def test_no_row_left_is_an_error():
    with pytest.raises(InputError, match="no row is left"):
        complete("y ~ x + nn(u)", small_frame().assign(x=np.nan), drop_missing=True)


@pytest.mark.parametrize("value", [0.0, 5.0, 0.1, -1e9])
@pytest.mark.parametrize("text", ["y ~ k + nn(u)", "y ~ x + nn(u, k)", "y ~ x + nn(k)"])
def test_a_constant_column_is_named(text, value):
    assert "column 'k' is constant" in refusal(text, small_frame().assign(k=value))


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (lambda f: 2 * f["x"] + 3, "k' is collinear with x:"),
        (lambda f: f["x"] - 7 * f["z"], "k' is collinear with x, z:"),
        (lambda f: 1.0 * (f["g"] == "a"), r"k' is collinear with C(g)[T.b], C(g)[T.c]:"),
    ],
)
def test_a_collinear_column_is_named_with_those_it_depends_on(column, named):
    assert named in refusal("y ~ x + z + C(g) + k + nn(u)", small_frame().assign(k=column))


def test_a_strong_but_imperfect_correlation_is_accepted():
    frame = small_frame().assign(k=lambda f: f["x"] + 1e-4 * f["z"])
    assert learn("y ~ x + k + nn(u)", frame)[0].x.columns == ("x", "k")


def test_network_inputs_may_be_collinear():
    frame = small_frame().assign(w=lambda f: 2 * f["u"])
    assert learn("y ~ x + nn(u, w)", frame)[0].u.columns == ("u", "w")


def test_a_column_cannot_be_called_like_the_intercept():
    frame = small_frame().rename(columns={"x": "Intercept"})
    assert "b_Intercept" in refusal("y ~ Intercept + nn(u)", frame)


def test_two_columns_of_one_name_are_refused():
    frame = small_frame().rename(columns={"z": "x"})
    assert "2 columns named 'x'" in refusal("y ~ x + nn(u)", frame)


@pytest.mark.parametrize("text", ["y ~ x + nn(log(g))", "y ~ center(g) + nn(u)", "g ~ x + nn(u)"])
def test_text_is_no_number(text):
    assert "column 'g' must be numeric, got 'a'" in refusal(text)


def test_dates_are_refused():
    frame = small_frame().assign(day=pd.date_range("2020-01-01", periods=30))
    for text in ("y ~ day + nn(u)", "y ~ x + nn(day)", "y ~ C(day) + nn(u)"):
        assert "column 'day' holds dates: write days(day)" in refusal(text, frame)


def test_booleans_are_numbers_for_the_network():
    frame = small_frame().assign(b=lambda f: f["x"] > -20)
    design, rows = learn("y ~ x + nn(b)", frame)
    assert np.array_equal(rows.U[:, 0], frame["b"])
    assert design.u.columns == ("b",)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rows_are_refused(n):
    assert f"at least two rows of data, got {n}" in refusal("y ~ x + nn(u)", small_frame().head(n))


@pytest.mark.parametrize("text", ["y ~ aeg + nn(u)", "y ~ x + nn(aeg)", "aeg ~ x + nn(u)"])
def test_a_missing_column_is_named_with_the_nearest(text):
    frame = small_frame().rename(columns={"z": "age"})
    message = refusal(text, frame)
    assert "'aeg'" in message
    assert "Did you mean 'age'?" in message


def test_a_value_that_a_transformation_makes_infinite_is_located():
    frame = small_frame()
    frame.loc[4, "z"] = 0.0
    assert "'log(z)' is -inf in row 5 (index 4)" in refusal("y ~ log(z) + nn(u)", frame)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("age", "age"),
        ("C(g)[T.b]", "gb"),
        ("C(g, contr.sum)[S.b]", "gb"),
        ("g[T.b]:x", "gb_x"),
        ("x:z", "x_z"),
        ("log(x)", "logx"),
        ("I(x ** 2)", "x_2"),
        ("a b", "a_b"),
        ("_a__b_", "a_b"),
        ("größe", "grosse"),
        ("Größe (µm)", "Grosse_mum"),
        ("Ångström", "Angstrom"),
        ("łódź", "lodz"),
        ("x²", "x2"),
        ("рост", "rost"),
        ("Щука ёлка", "Shchuka_elka"),
        ("C(пол)[T.м]", "polm"),
        ("βάρος", "varos"),
        ("σ", "sigma"),
        ("Δt", "Deltat"),
        ("λ_1", "lambda_1"),
        ("かな", "kana"),
        ("나이", "nai"),
        ("١٢", "12"),
        ("年", "u5e74"),
    ],
)
def test_a_column_has_a_speaking_name_in_stan(column, name):
    assert stan_name(column).replace("Ix", "x") == name


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (("a b", "a.b", "a_b_2", "a_b"), ("a_b", "a_b_3", "a_b_2", "a_b_4")),
        (("%", "x", "★"), ("column", "x", "column_2")),
        (("(Intercept)", "Intercept_2"), ("Intercept_3", "Intercept_2")),
    ],
)
def test_names_that_would_be_the_same_are_numbered(columns, names):
    assert unique_names(columns, ("Intercept",)) == names


@pytest.mark.parametrize("first", range(0x80, 0x30000, 0x1000))
def test_every_character_makes_a_legal_name(first):
    for number in range(first, first + 0x1000, 7):
        assert re.fullmatch("[A-Za-z0-9_]*", stan_name(f"x{chr(number)}"))


FOREIGN = {"x": "рост", "z": "年龄", "u": "σ²", "v": "%", "g": "größe", "flag": "βάρος"}


def test_columns_in_any_script_can_be_used_as_terms():
    frame = small_frame().rename(columns=FOREIGN)
    text = (
        "y ~ рост + `年龄` + größe + s(`%`) + (1 + рост | `βάρος`) + nn(`σ²`, рост), "
        "sigma ~ `年龄` + nn(`%`)"
    )
    bundle, rows = small_bundle(text, frame)
    design = bundle.design
    assert design.coefficients == (
        "b_rost", "b_u5e74u9f84", "b_grosseb", "b_grossec", "b_column"
    )  # fmt: skip
    assert design.others[0].coefficients == ("b_sigma_u5e74u9f84",)
    assert design.terms[1].spread == ("sd_varos__Intercept", "sd_varos__rost")
    assert np.array_equal(rows.X[:, 0], frame["рост"])
    named = labels(bundle.model)
    assert (named["b_rost"], named["b_u5e74u9f84"], named["b_column"]) == ("рост", "年龄", "%")
    assert design.terms[1].labels()["sd_varos__rost"] == "standard deviation of рост by βάρος"
    assert design.respelled["b_rost"] == "рост"
    program = bundle_program(bundle)
    assert all(line.split("//")[0].isascii() for line in program.splitlines())
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design))))
    assert again.coefficients == design.coefficients


def test_table_and_picture_have_the_true_names_of_columns():
    frame = small_frame().rename(columns={"x": "рост", "z": "%"})
    bundle, rows = small_bundle("y ~ рост + `%` + nn(u), sigma ~ рост", frame)
    draws = random_draws(bundle)
    note = "b_rost: рост, b_column: %, b_sigma_rost: рост."
    assert summarise(SubspacePosterior(bundle, draws), rows).notes[0] == note
    figure = draw_coefficients(
        Material(SubspacePosterior(bundle, draws), lambda: rows, lambda: frame)
    )
    ticks = {tick.get_text() for axes in figure.axes for tick in axes.get_yticklabels()}
    assert {"b_rost: рост", "b_column: %", "b_sigma_rost: рост", "b_Intercept"} <= ticks


def test_two_columns_of_one_name_in_stan_are_numbered():
    frame = small_frame().rename(columns={"x": "a b", "z": "a.b"})
    design, _ = learn_design(parse_formula("y ~ `a b` + `a.b` + nn(u), sigma ~ `a.b`"), frame)
    assert design.coefficients == ("b_a_b", "b_a_b_2")
    assert design.others[0].coefficients == ("b_sigma_a_b",)
    assert design.respelled == {"b_a_b_2": "a.b"}


@pytest.mark.parametrize(
    "formula",
    ["y ~ bs(x, df=5) + nn(u)", "y ~ bs(x, df=5):g + nn(u)", "y ~ (bs(x, df=5) | g) + nn(u)",
     "y ~ nn(bs(x, df=5))"],
)  # fmt: skip
def test_a_value_outside_a_splines_range_is_refused_with_the_range(formula):
    frame = small_frame()
    design, _ = learn_design(parse_formula(formula), frame)
    low, high = frame["x"].min(), frame["x"].max()
    message = f"'bs(x, df=5)' is a spline from {low:g} to {high:g}, by default the range of the "
    new = frame.assign(x=frame["x"].where(frame.index != 2, 7.0))
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        apply_design(design, new, response=False)
    assert "'x' is 7 in row 3 (1 of 30 rows)" in str(caught.value)


@pytest.mark.parametrize(
    "spline", ["bs(x, df=5, lower_bound=-90, upper_bound=90)", "bs(x, df=5, extrapolation='clip')"]
)
def test_a_spline_with_wider_bounds_goes_on(spline):
    frame = small_frame()
    design, _ = learn_design(parse_formula(f"y ~ {spline} + nn(u)"), frame)
    rows = apply_design(design, frame.assign(x=7.0), response=False)
    assert np.isfinite(rows.X).all()
