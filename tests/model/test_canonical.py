"""A column means the same whatever its type and file: all types x terms x places, bit for bit."""

from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from semistan.data.chunks import read_pieces
from semistan.data.tables import read_table
from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.table.canonical import canonical_column, kind_of, label

N, SOME = 36, slice(3, 20)
WIDTHS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = {
    **{name: name for name in (*WIDTHS, "float16", "float32", "float64")},
    **{name: name for name in ("Int8", "UInt8", "Int64", "UInt64", "Float32", "Float64")},
    **{f"{name}[pyarrow]": f"{name}[pyarrow]" for name in ("int8", "uint64", "float", "double")},
    "decimal[pyarrow]": pd.ArrowDtype(pa.decimal128(9, 2)),
    "sparse": pd.SparseDtype("int64", 0),
    "sparse real": pd.SparseDtype("float64", np.nan),
    "object": object,
    "Decimal": lambda values: [Decimal(value) for value in values],
    "Fraction": lambda values: [Fraction(value) for value in values],
    "mixed": lambda values: [(int, float, Decimal)[i % 3](v) for i, v in enumerate(values)],
}
OF_NUMBERS = [  # a term stands in each place, and each place has several terms
    "y ~ I(a - b) + I(a^2) + a:b + I(a^-1) + I(a*b*a) + log(a) + sin(b) + C(k) + x:C(k) + nn(u)",
    "y ~ poly(a, 2) + scale(b) + C(k, levels=[1, 2, 3]) + offset(I(a * b))"
    " + nn(a, I(a^2), sqrt(I(a * b)), I(b - a), C(k))",
    "y ~ s(a) + s(x, by=b) + t2(a, b, k=3) + gp(a, k=6) + mo(k) + nn(u)",
    "y ~ x + (a + I(a^2) | g) + (1 | k) + nn(u), sigma ~ a + I(b^2)",
    "I(b * b) ~ bs(a, df=5) + x + nn(u)",
    "y | weights(I(a * b)) + trunc(lb=I(-a * a)) ~ x + nn(u)",
    "k | trials(a) ~ x + nn(u)",
    "y | cens(c, I(b * b)) ~ x + nn(u)",
]
TEXTS = {
    "object": object,
    "string": "string",
    "string[python]": "string[python]",
    "string[pyarrow]": "string[pyarrow]",
    "large_string": pd.ArrowDtype(pa.large_string()),
    "str": "str",
    "category": "category",
    "dictionary": lambda values: pd.Series(values, dtype=pd.ArrowDtype(pa.string())).astype(
        pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    ),
}
OF_LEVELS = [
    "y ~ g + x:g + nn(u, g)",
    "y ~ C(g):x + (1 | gr(h, by=g)) + nn(u), sigma ~ g",
    "y ~ x + (1 + x | g) + (1 | g:h) + s(x, by=g) + nn(u)",
    "y ~ x + s(g, bs='re') + nn(u, C(h))",
]


def table():
    generator = np.random.default_rng(4)
    k = np.arange(N) % 3 + 1.0
    return pd.DataFrame(
        {
            "y": generator.normal(size=N),
            "x": generator.normal(size=N),
            "u": generator.normal(size=N),
            "a": generator.permutation(np.arange(N) * 2.0 + 17),
            "b": generator.permutation(np.arange(N) * 3.0 + 11),
            "k": k,
            "c": np.array(["none", "interval"])[(k == 1).astype(int)],
            "g": np.array(["01", "1", "b"], dtype=object)[np.arange(N) // 2 % 3],
            "h": np.array(["p", "q", "r", "s", "t", "v"], dtype=object)[np.arange(N) // 2 % 6],
        }
    )


def typed(values, kind):
    made = kind(values.tolist()) if callable(kind) and kind is not object else values
    if made is not values:
        return pd.Series(made, index=values.index)
    if kind is object and pd.api.types.is_numeric_dtype(values):
        return values.astype(int).astype(object)
    return values.astype(kind)


def numbers_as(frame, kind):
    return frame.assign(**{name: typed(frame[name], kind) for name in "abk"})


def numbers_of(rows):
    """All arrays that a model is given of some rows."""
    found = [rows.U, *rows.given.values()] + ([] if rows.y is None else [rows.y])
    for columns in rows.predictors.values():
        found += [columns.X] + ([] if columns.offset is None else [columns.offset])
        found += [array for block in columns.blocks for array in (block.Z, block.level)]
    return found


def assert_same(found, expected):
    for one, other in zip(numbers_of(found), numbers_of(expected), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def learnt(text, frame):
    return learn_design(parse_formula(text), frame)


def through_json(design):
    return design_from_plain(design_to_plain(design))


@cache
def of_floats(text):
    """What a formula learns of floating point numbers and text, and some rows as new ones."""
    design, rows = learnt(text, table())
    return design, rows, apply_design(through_json(design), table().iloc[SOME], response=True)


def assert_means_the_same(text, other):
    design, rows, new = of_floats(text)
    own, found = learnt(text, other)
    assert design_to_plain(own) == design_to_plain(design), text
    assert_same(found, rows)
    assert_same(apply_design(design, other.iloc[SOME], response=True), new)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_every_type_are_the_same_in_every_term_and_place(name):
    for text in OF_NUMBERS:
        assert_means_the_same(text, numbers_as(table(), NUMBERS[name]))


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_every_type_is_the_same_in_every_term_and_place(name):
    other = table().assign(**{column: typed(table()[column], TEXTS[name]) for column in "gh"})
    for text in OF_LEVELS:
        assert_means_the_same(text, other)


@pytest.mark.parametrize("values", [[2, 10, 1], [2.5, 10.0, 1.0], [True, False, True]])
@pytest.mark.parametrize("ordered", [False, True])
def test_categories_of_numbers_and_truth_values_are_factors_with_their_levels(values, ordered):
    whole = table().assign(v=pd.Categorical(np.array(values)[np.arange(N) % 3], ordered=ordered))
    words = [label(value) for value in whole["v"].cat.categories]
    text = whole.assign(v=whole["v"].cat.rename_categories(words))
    for formula in (each.replace("g", "v") for each in OF_LEVELS if "gr(" not in each):
        design, rows = learnt(formula, whole)
        own, found = learnt(formula, text)
        assert design_to_plain(own) == design_to_plain(design), formula
        assert_same(found, rows)
        plain = whole.assign(v=np.array(values)[np.arange(N) % 3])
        expected = apply_design(design, text.iloc[4:9], response=True)
        for frame in (whole, plain, whole.astype({"v": object})):
            new = apply_design(through_json(design), frame.iloc[4:9], response=True)
            assert_same(new, expected)


@pytest.mark.parametrize("kind", [object, "boolean", "bool[pyarrow]", pd.SparseDtype(bool)])
def test_truth_values_are_the_same_with_and_without_gaps(kind):
    whole = table().assign(t=lambda f: f["x"] > 0)
    for text in ("y ~ t + x:t + nn(u, t)", "y ~ C(t) + (1 | t) + nn(u)", "t ~ x + nn(u)"):
        design, rows = learnt(text, whole)
        own, found = learnt(text, whole.assign(t=whole["t"].astype(kind)))
        assert design_to_plain(own) == design_to_plain(design)
        assert_same(found, rows)
        one = whole.iloc[[2]].assign(t=pd.Series([whole["t"].iloc[2]], dtype=kind, index=[2]))
        expected = apply_design(design, whole.iloc[[2]], response=True)
        assert_same(apply_design(through_json(own), one, response=True), expected)


@pytest.mark.parametrize("names", ["a", "g", "t", "category"])
def test_a_canonical_column_stays_as_it_is(names):
    frame = table().assign(t=lambda f: f["x"] > 0, category=lambda f: f["a"].astype("category"))
    once = canonical_column(frame[names])
    assert canonical_column(once) is once or canonical_column(once).equals(once)
    assert kind_of(once) == {"a": "number", "t": "truth"}.get(names, "level")


def test_dates_and_what_is_mixed_stay_as_they_are():
    dates = pd.Series(pd.date_range("2024-01-01", periods=2))
    for column in (dates, pd.Series([1, "a"], dtype=object), pd.Series([1j, 2j])):
        assert canonical_column(column).equals(column)
        assert kind_of(column) is None


LARGE = 2**53


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("write", ["csv", "parquet", "feather"])
def test_whole_numbers_beyond_what_a_float_holds_stay_apart(write, gaps, tmp_path):
    ids = np.array([LARGE + 1, LARGE + 2, LARGE + 3, 5])[np.arange(N) % 4]
    frame = table().assign(id=pd.array(ids, dtype="Int64"))
    if gaps:
        frame.loc[7, "id"] = pd.NA
    path = tmp_path / f"data.{write}"
    getattr(frame, f"to_{write}")(path, **({"index": False} if write == "csv" else {}))
    read = read_table(path).dropna(subset="id")
    design, rows = learnt("y ~ x + (1 | id) + nn(u)", read)
    assert design.terms[0].levels == ("5", *(str(LARGE + i) for i in (1, 2, 3)))
    assert design.kinds["id"] == "number"
    level = rows.predictors["mu"].blocks[0].level
    assert [design.terms[0].levels[i] for i in level] == read["id"].astype(str).tolist()
    assert learnt("y ~ C(id) + nn(u)", read)[0].coefficients == tuple(
        f"b_id{LARGE + i}" for i in (1, 2, 3)
    )


def test_a_float_that_stands_for_several_whole_numbers_is_no_level():
    frame = table().assign(id=float(LARGE) * 2)
    with pytest.raises(InputError, match=r"a float beyond 2\^53.*dtype=str"):
        learnt("y ~ x + (1 | id) + nn(u)", frame)


def written(frame, kind, folder):
    """Write a table in a file of a kind; return its path."""
    path = folder / f"data.{kind}"
    if kind == "sav":
        pytest.importorskip("pyreadstat").write_sav(frame, str(path))
    elif kind == "rds":
        rdata = pytest.importorskip("rdata")  # which writes factors, and numbers as R has them
        wide = {name: "int32" for name in frame if frame[name].dtype.kind == "i"}
        wide |= {name: "float64" for name in frame if frame[name].dtype.kind == "f"}
        rdata.write_rds(path, frame.astype({**dict.fromkeys("cgh", "category"), **wide}))
    else:
        options = {"csv": {"index": False}, "dta": {"write_index": False}}
        method = {"dta": "stata"}.get(kind, kind)
        getattr(frame, f"to_{method}")(path, **options.get(kind, {}))
    return path


@pytest.mark.parametrize("write", ["csv", "parquet", "feather", "dta", "sav", "rds"])
@pytest.mark.parametrize("kind", ["int8", "int32", "float32", "float64", "category"])
def test_columns_are_the_same_bits_from_every_file(write, kind, tmp_path):
    frame = table() if kind == "category" else numbers_as(table(), kind)
    if kind == "category":
        frame = frame.assign(g=frame["g"].astype("category"))
    path = written(frame, write, tmp_path)
    for text in (OF_NUMBERS[0], OF_NUMBERS[4], *OF_LEVELS[2:]):
        assert_means_the_same(text, read_table(path))


def test_categories_of_numbers_come_back_from_parquet(tmp_path):
    frame = table().assign(
        k=lambda f: f["k"].astype(int).astype("category"),
        c=pd.Categorical(np.array([3, 1, 20])[np.arange(N) % 3], ordered=True),
    )
    frame.to_parquet(tmp_path / "data.parquet")
    said = []
    read = read_table(tmp_path / "data.parquet", say=said.append)
    for text in ("y ~ k + nn(u)", "y ~ c + nn(u)", "y ~ mo(c) + nn(u)"):
        assert design_to_plain(learnt(text, read)[0]) == design_to_plain(learnt(text, frame)[0])
    assert len(said) == 1
    assert "ordered categories of 'c' by size" in said[0]


def test_a_column_of_text_is_text_in_every_piece_of_new_rows(tmp_path, monkeypatch):
    from semistan.data import chunks as pieces
    from semistan.data.dialect import Dialect

    frame = table().assign(h=np.array(["001", "002", "A03"])[np.arange(N) % 3])
    design, _ = learnt("y ~ C(h) + (1 | h) + nn(u)", frame)
    assert design.text_columns == {"h"}
    frame.query("h != 'A03'").to_csv(tmp_path / "new.csv", index=False)
    dialect = Dialect(words=design.text_columns)
    monkeypatch.setattr(pieces, "LONG", 0)
    monkeypatch.setattr(pieces, "PIECE", 7)
    read = [read_table(tmp_path / "new.csv", dialect)]
    read.append(read_pieces(tmp_path / "new.csv", dialect).whole())
    for each in read:
        assert each["h"].tolist() == frame["h"][frame["h"] != "A03"].tolist()


def test_a_type_is_that_of_the_whole_column_and_not_of_a_piece(tmp_path, monkeypatch):
    from semistan.data import chunks as pieces

    monkeypatch.setattr(pieces, "LONG", 0)
    monkeypatch.setattr(pieces, "PIECE", 5)
    frame = pd.DataFrame(
        {
            "word": ["001"] * 12 + ["A03"] + ["002"] * 7,
            "gap": [True] * 5 + [None] * 10 + [False] * 5,
            "id": [LARGE + 1] * 5 + [None] * 5 + [LARGE + 2] * 10,
            "real": ["1"] * 10 + ["1.5"] * 10,
        }
    )
    frame["id"] = frame["id"].astype("Int64")
    frame.to_csv(tmp_path / "long.csv", index=False)
    for read in (read_table(tmp_path / "long.csv"), read_pieces(tmp_path / "long.csv").whole()):
        assert read["word"].tolist() == frame["word"].tolist()
        assert canonical_column(read["gap"]).dtype == "boolean"
        assert canonical_column(read["id"]).equals(frame["id"])
        assert canonical_column(read["real"]).tolist() == [1.0] * 10 + [1.5] * 10
