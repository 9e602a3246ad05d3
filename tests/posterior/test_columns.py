import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.errors import InputError
from semistan.model.design import (
    apply_design,
    design_from_plain,
    design_to_plain,
    factor_notes,
    learn_design,
)
from semistan.model.formula.formula import parse_formula
from semistan.posterior.effects.effect import conditional_effect, partial_dependence
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.engine import engine_named
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_linpred
from semistan.program.data import stan_data
from semistan.show.pictures.band import _first_input
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.watch import Watch
from support.by_hand import eta_by_hand
from support.drawn import random_draws
from support.small import small_bundle, small_config, small_frame

SIZES = ["low", "mid", "high", "top"]
DAYS = pd.date_range("2021-02-27", periods=30)


def kinds_frame(n=30):
    """small_frame() with an ordered factor, truth values and dates in four guises."""
    days = DAYS[np.arange(n) % 30]
    return small_frame(n).assign(
        size=pd.Categorical(np.array(SIZES)[np.arange(n) % 4], SIZES, ordered=True),
        t=lambda f: f["x"] > -20,
        day=days,
        text=days.strftime("%Y-%m-%d"),
        date=days.date,
        zone=days.tz_localize("Europe/Berlin"),
    )


def learn(text, frame=None):
    return learn_design(parse_formula(text), kinds_frame() if frame is None else frame)


def refusal(text, frame=None):
    with pytest.raises(InputError) as caught:
        learn(text, frame)
    return str(caught.value)


def through_json(design):
    return design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))


def one_hot(column):
    values = np.asarray(column)
    return np.column_stack([values == level for level in sorted(set(values))]).astype(float)


def orthogonal_polynomials(levels):
    """Orthonormal polynomials of degrees 1, 2, ... over equally spaced levels, by QR."""
    Q, R = np.linalg.qr(np.vander(np.arange(levels), increasing=True).astype(float))
    return (Q * np.sign(np.diag(R)))[:, 1:]


@pytest.mark.parametrize("term", ["size", "C(size)"])
def test_an_ordered_factor_has_polynomial_contrasts(term):
    frame = kinds_frame()
    design, rows = learn(f"y ~ x + {term} + nn(u)")
    codes = frame["size"].cat.codes
    assert np.allclose(rows.X[:, 1:], orthogonal_polynomials(4)[codes], atol=1e-14)
    assert design.coefficients == ("b_x", "b_size_L", "b_size_Q", "b_size_C")


def test_polynomial_contrasts_are_those_of_r():
    rscript = shutil.which("Rscript")
    if rscript is None:
        pytest.skip("Rscript is not installed")
    frame = kinds_frame()
    levels = ", ".join(f"'{level}'" for level in SIZES)
    values = ", ".join(f"'{value}'" for value in frame["size"])
    program = (
        f"g <- factor(c({values}), levels = c({levels}), ordered = TRUE); "
        "write.table(format(model.matrix(~ g)[, -1], digits = 15), quote = FALSE)"
    )
    result = subprocess.run([rscript, "-e", program], capture_output=True, text=True, check=True)
    lines = [line.split()[1:] for line in result.stdout.splitlines()[1:]]
    assert np.allclose(learn("y ~ size + nn(u)")[1].X, np.array(lines, dtype=float), atol=1e-12)


def test_the_order_of_the_levels_is_kept_for_plain_text():
    frame = kinds_frame()
    design, rows = learn("y ~ x*size + nn(u)")
    text = frame.assign(size=frame["size"].astype(str))
    assert np.allclose(apply_design(through_json(design), text, response=False).X, rows.X)
    assert list(design.x.levels.values()) == [SIZES]


def test_another_coding_of_an_ordered_factor_can_be_chosen():
    design, rows = learn("y ~ C(size, contr.treatment) + nn(u)")
    assert design.coefficients == ("b_sizemid", "b_sizehigh", "b_sizetop")
    assert np.array_equal(rows.X[:, 0], kinds_frame()["size"] == "mid")


def test_text_can_be_ordered_in_the_formula():
    frame = kinds_frame()
    text = frame.assign(size=frame["size"].astype(str))
    ordered, _ = learn(f"y ~ C(size, contr.poly, levels={SIZES}) + nn(u)", text)
    assert ordered.coefficients == learn("y ~ size + nn(u)")[0].coefficients


def test_levels_without_rows_are_left_out():
    frame = kinds_frame()
    more = pd.Categorical(frame["size"], ["none", *SIZES, "huge"], ordered=True)
    wide, rows = learn("y ~ size + nn(size, u)", frame.assign(size=more))
    assert design_to_plain(wide) == design_to_plain(learn("y ~ size + nn(size, u)")[0])
    assert rows.frame["size"].tolist() == frame["size"].tolist()


def test_truth_values_are_one_column_with_its_name():
    frame = kinds_frame()
    design, rows = learn("y ~ t + x:t + nn(u, t)")
    assert design.coefficients == ("b_t", "b_x_t")
    assert np.array_equal(rows.X, np.column_stack([frame["t"], frame["x"] * frame["t"]]))
    assert np.array_equal(rows.U[:, 1], frame["t"])
    one = apply_design(design, frame.iloc[[3]], response=False)
    assert np.array_equal(one.X, rows.X[[3]])


def test_arithmetic_with_truth_values_counts_them():
    frame = kinds_frame().assign(s=lambda f: f["u"] > 3)
    count = frame["t"].astype(int) + frame["s"]
    assert set(count) == {0, 1, 2}
    design, rows = learn("y ~ {t + s} + nn(u, t + s, -t)", frame)
    for got in (rows, apply_design(design, frame, response=True)):
        assert np.array_equal(got.X[:, 0], count)
        assert np.array_equal(got.U[:, 1:], np.column_stack([count, -frame["t"].astype(int)]))
    design, rows = learn("{t + s} ~ x + nn(u)", frame)
    for got in (rows, apply_design(design, frame, response=True)):
        assert np.array_equal(got.y, count)


@pytest.mark.parametrize("kind", ["boolean", "Int64", "Float64", "category"])
def test_nullable_and_categorical_columns_are_what_they_hold(kind):
    values = kinds_frame()["t"]
    numbers = values if kind == "boolean" else values.astype(int)
    frame = kinds_frame().assign(k=numbers.astype(kind))
    design, rows = learn("y ~ k + nn(k, u)", frame)
    assert np.array_equal(rows.X[:, 0], values)
    expected = one_hot(values) if kind == "category" else values.to_numpy(float)[:, None]
    assert np.array_equal(rows.U[:, :-1], expected)
    single = apply_design(through_json(design), frame.iloc[[2]], response=False)
    assert np.array_equal(single.U, rows.U[[2]])


def test_a_response_of_truth_values_is_zero_or_one_in_single_rows():
    design, rows = learn("t ~ x + nn(u)")
    singles = [apply_design(design, kinds_frame().iloc[[i]], response=True).y for i in range(30)]
    assert np.array_equal(np.concatenate(singles), rows.y)


@pytest.mark.parametrize("column", ["day", "text", "date", "zone"])
def test_dates_are_counted_in_days_from_the_first(column):
    frame = kinds_frame().sample(frac=1, random_state=1)
    design, rows = learn(f"y ~ days({column}) + nn(u, sqrt(days({column})))", frame)
    days = (frame["day"] - pd.Timestamp("2021-02-27")).dt.days.to_numpy()
    assert np.allclose(rows.X[:, 0], days, atol=1e-9)
    assert np.allclose(rows.U[:, 1], np.sqrt(days), atol=1e-6)
    assert design.coefficients == (f"b_days{column}",)
    later = frame.assign(**{column: pd.Timestamp("2022-02-27T12:00")})
    again = apply_design(through_json(design), later, response=False)
    hours = 13 if column == "zone" else 12  # the first midnight in Berlin was at 23:00 UTC
    assert np.allclose(again.X, 365 + hours / 24)


def test_the_guises_of_a_date_can_be_mixed():
    design, rows = learn("y ~ days(day) + nn(u)")
    text = kinds_frame().assign(day=lambda f: f["text"])
    assert np.array_equal(apply_design(design, text, response=False).X, rows.X)


@pytest.mark.parametrize("value", ["31.12.2020", "soon", 20201231, True])
def test_what_is_no_date_is_refused(value):
    frame = kinds_frame().assign(day=value)
    assert "days(day) needs dates such as 2024-05-31" in refusal("y ~ days(day) + nn(u)", frame)
    design, _ = learn("y ~ days(day) + nn(u)")
    with pytest.raises(InputError, match=r"days\(day\) needs dates"):
        apply_design(design, frame, response=False)


def test_dates_as_text_are_warned_of():
    (note,) = factor_notes(learn("y ~ x + nn(text, u)")[0])
    assert "'text' holds dates as text" in note
    assert "days(text)" in note


@pytest.mark.parametrize(
    "values",
    [
        [1, "a"], [b"a", b"b"], pd.to_timedelta([1, 2], unit="D"), [1j, 2j],
        pd.period_range("2020", periods=2, freq="Y"),
    ],
    ids=["mixed", "bytes", "timedelta", "complex", "periods"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["y ~ odd + nn(u)", "y ~ x + nn(odd)", "y ~ C(odd) + nn(u)"])
def test_other_kinds_of_columns_are_refused(values, text):
    odd = pd.Series(values).iloc[np.arange(30) % 2].reset_index(drop=True)
    message = refusal(text, kinds_frame().assign(odd=odd))
    assert "column 'odd'" in message
    assert "cannot use" in message or "mixes types" in message


def test_intervals_are_an_ordered_factor():
    frame = kinds_frame().assign(cut=lambda f: pd.cut(f["x"], 3))
    design, rows = learn("y ~ cut + nn(u)", frame)
    codes = frame["cut"].cat.codes
    assert np.allclose(rows.X, orthogonal_polynomials(3)[codes], atol=1e-14)
    new = frame.assign(cut=frame["cut"].astype(str))
    assert np.array_equal(apply_design(design, new, response=False).X, rows.X)


def test_a_factor_in_the_network_has_all_its_levels():
    frame = kinds_frame()
    design, rows = learn("y ~ x + nn(g, u, C(count), size)")
    expected = [one_hot(frame["g"]), frame[["u"]], one_hot(frame["count"])]
    sizes = one_hot(frame["size"].cat.codes)
    assert np.array_equal(rows.U, np.hstack([*expected, sizes]))
    assert design.u.columns[:4] == ("g[a]", "g[b]", "g[c]", "u")
    assert design.u.columns[-4:] == tuple(f"size[{level}]" for level in SIZES)
    assert np.allclose(design.u.scale, rows.U.std(axis=0, ddof=1))


def test_a_factor_in_both_parts_has_a_reference_in_one():
    design, rows = learn("y ~ g + nn(g, u)")
    assert (rows.X.shape[1], rows.U.shape[1]) == (2, 4)
    assert design.coefficients == ("b_gb", "b_gc")


def test_a_network_may_have_factors_only():
    assert learn("y ~ x + nn(g)")[0].u.columns == ("g[a]", "g[b]", "g[c]")


@pytest.mark.parametrize("text", ["y ~ x + nn(g, u)", "y ~ x + nn(C(`a level`), u)"])
def test_levels_in_the_network_survive_json_and_single_rows(text):
    frame = kinds_frame().assign(**{"a level": lambda f: f["g"]})
    design, rows = learn(text, frame)
    again = through_json(design)
    singles = [apply_design(again, frame.iloc[[i]], response=False).U for i in range(30)]
    assert np.array_equal(np.vstack(singles), rows.U)
    column = "g" if "g" in text.split("nn(")[1] else "a level"
    with pytest.raises(
        InputError, match=f"'{column}' has levels .*'z'. Known levels: 'a', 'b', 'c'"
    ):
        apply_design(again, frame.assign(**{column: "z"}), response=False)


def test_text_in_place_of_a_number_is_refused_for_new_rows():
    design, _ = learn("y ~ x + nn(g, u)")
    for column in ("x", "u"):
        with pytest.raises(InputError, match=f"column '{column}' must be numeric, got 'a'"):
            apply_design(design, kinds_frame().assign(**{column: "a"}), response=False)


@pytest.mark.parametrize(
    ("levels", "words"), [(49, []), (50, ["50 levels"]), (1000, ["1000 levels", "far too many"])]
)
def test_many_levels_in_the_network_are_warned_of(levels, words):
    frame = small_frame(2 * levels).assign(zip=lambda f: [f"z{i % levels}" for i in range(len(f))])
    notes = prepare(small_config("y ~ x + nn(u, zip)"), frame).notes
    assert len(notes) == bool(words)
    assert all(word in notes[0] for word in words)


@pytest.fixture(scope="module")
def fitted():
    """A bundle with a factor, an ordered factor, truth values and dates; draws; its rows."""
    bundle, rows = small_bundle("y ~ x + size + days(day) + nn(g, u, t)", kinds_frame())
    return bundle, random_draws(bundle), rows


def test_the_data_of_the_program_have_the_dummies(fitted):
    bundle, _, rows = fitted
    data = stan_data(bundle, rows)
    assert data["Q"] == 5
    assert np.array_equal(np.asarray(data["U"])[:, :3], one_hot(kinds_frame()["g"]))


def test_predictions_are_those_by_hand_with_both_engines(fitted, tmp_path):
    bundle, draws, rows = fitted
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    new = new_rows(again, kinds_frame().drop(columns="y"))
    expected = eta_by_hand(bundle, draws, rows.X, rows.U)
    for engine in ("torch", "onnx"):
        compute = engine_named(engine, again, tmp_path / "bundle")
        got = posterior_linpred(SubspacePosterior(again, draws, compute), new)
        assert np.allclose(got, expected, rtol=1e-9, atol=1e-9)


def mean_eta(fitted, **columns):
    bundle, draws, _ = fitted
    rows = new_rows(bundle, kinds_frame().assign(**columns))
    return eta_by_hand(bundle, draws, rows.X, rows.U).mean(axis=1)


def test_effects_of_a_factor_in_the_network_are_over_its_levels(fitted):
    bundle, draws, rows = fitted
    generator = np.random.default_rng(0)
    found = partial_dependence(
        SubspacePosterior(bundle, draws), rows.frame, "g", rows=100, generator=generator
    )
    assert found.grid["g"].tolist() == ["a", "b", "c"]
    expected = np.column_stack([mean_eta(fitted, g=level) for level in "abc"])
    assert np.allclose(found.draws, expected, rtol=1e-9)


def test_effects_of_dates_are_over_days(fitted):
    bundle, draws, rows = fitted
    found = conditional_effect(
        SubspacePosterior(bundle, draws), rows.frame, "day", at={"g": "b", "size": "high"}
    )
    assert (found.grid["day"].min(), found.grid["day"].max()) == (0, 29)
    slope = draws.flat(draws.theta)[:, bundle.design.coefficients.index("b_daysday")]
    assert np.allclose(found.draws[:, -1] - found.draws[:, 0], 29 * slope, rtol=1e-6, atol=1e-9)


def test_marginal_effects_are_by_column_of_the_table(fitted):
    bundle, draws, rows = fitted
    found = average_marginal_effects(SubspacePosterior(bundle, draws), rows.frame).set_index(
        ["term", "contrast"]
    )
    assert {name for name, _ in found.index} == {"x", "size", "day", "g", "u", "t"}
    for column, level, reference in (("g", "c", "a"), ("size", "top", "low"), ("t", True, False)):
        difference = mean_eta(fitted, **{column: level}) - mean_eta(fitted, **{column: reference})
        estimate = found.loc[(column, f"{level} - {reference}"), "Estimate"]
        assert estimate == pytest.approx(difference.mean(), rel=1e-7)


def test_importance_permutes_columns_of_the_table(fitted):
    bundle, draws, rows = fitted
    generator = np.random.default_rng(0)
    found = permutation_importance(
        SubspacePosterior(bundle, draws), rows.frame, repeats=1, generator=generator
    )
    assert set(found["term"]) == {"x", "size", "day", "g", "u", "t"}


def test_a_band_is_over_the_first_numeric_input(fitted):
    from types import SimpleNamespace

    from semistan.posterior.effects.columns import predictors_of

    bundle, draws, rows = fitted
    posterior = SubspacePosterior(bundle, draws)
    material = SimpleNamespace(posterior=posterior)
    assert _first_input(material, predictors_of(posterior, rows.frame), None) == "u"


def test_dropped_rows_are_reported():
    frame = kinds_frame()
    frame.loc[[1, 4, 5, 7, 9, 11], "u"] = np.nan
    frame.loc[4, "g"] = None
    prepared = prepare(small_config("y ~ x + nn(g, u)", drop_missing=True), frame)
    assert prepared.notes == (
        "dropped 6 of 30 rows, with missing or infinite values in g (1), u (6): rows 2, 5, 6, 8, "
        "10, ...",
    )
    assert prepared.source.dropped == 6


def test_dropped_rows_of_a_prediction_are_reported(fitted):
    bundle, _, _ = fitted
    frame, said = kinds_frame(), []
    frame.loc[2, "x"] = np.inf
    rows = new_rows(bundle, frame, drop_missing=True, watch=Watch(said.append))
    assert len(rows) == 29
    assert said == ["dropped 1 of 30 rows, with missing or infinite values in x (1): row 3"]


def test_wide_tables_are_read():
    generator = np.random.default_rng(0)
    names = [f"x{i}" for i in range(200)]
    frame = pd.DataFrame(generator.normal(size=(500, 200)), columns=names)
    frame = frame.assign(y=generator.normal(size=500), u=generator.normal(size=500))
    design, rows = learn(f"y ~ {' + '.join(names)} + nn(u)", frame)
    assert np.array_equal(rows.X, frame[names])
    assert design.coefficients == tuple(f"b_{name}" for name in names)
    assert np.array_equal(apply_design(design, frame, response=False).X, rows.X)


WORDS = {"x": "class", "g": "if", "u": "in", "v": "lambda", "z": "None"}
SIGNS = {"x": "m²", "g": "µg", "u": "вес (м²)", "v": "ﬁn", "z": "½"}
OF_WORDS = [
    ("y ~ x + g + C(g):z + nn(u, g, C(g), log(z))", ("b_x", "b_gb", "b_gc")),
    ("y ~ poly(x, 2) + I(x * z) + nn(u), sigma ~ scale(z) + nn(g)", ()),
    ("y | weights(z) ~ s(v) + offset(log(z)) + (1 + x | g) + nn(u)", ("b_v",)),
    ("x ~ C(g, contr.sum) + nn(u)", ("b_ga", "b_gb")),
]


@pytest.mark.parametrize("words", [WORDS, SIGNS], ids=["words", "signs"])
@pytest.mark.parametrize(("text", "names"), OF_WORDS)
def test_columns_that_python_could_not_call_so_are_like_others(text, names, words):
    """They are what the same columns are under other names, here and through JSON."""

    def renamed(text, quote=""):
        for old, new in words.items():
            text = re.sub(rf"\b{old}\b", f"{quote}{new}{quote}", text)
        return text

    frame = kinds_frame()
    design, rows = learn(text, frame)
    other, found = learn(renamed(text, "`"), frame.rename(columns=words))
    new = apply_design(through_json(other), frame.rename(columns=words), response=True)
    for each in (found, new):
        assert np.array_equal(each.X, rows.X) and np.array_equal(each.U, rows.U)
        assert np.array_equal(each.y, rows.y)
        for name, columns in rows.predictors.items():
            assert np.array_equal(each.predictors[name].X, columns.X)
            for ours, theirs in zip(each.predictors[name].blocks, columns.blocks, strict=True):
                assert np.array_equal(ours.Z, theirs.Z) and np.array_equal(ours.level, theirs.level)
    assert list(other.x.columns) == [renamed(column) for column in design.x.columns]
    assert list(other.u.columns) == [renamed(column) for column in design.u.columns]
    assert design.coefficients[: len(names)] == names
    text = {words["g"]: "d", words["x"]: "d"}
    with pytest.raises(InputError, match=r"has levels|must be numeric"):
        apply_design(other, frame.rename(columns=words).assign(**text), response=True)
