"""Columns that are looked up in the table by how their names begin."""

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.model.formula.patterns import LONG, has_patterns, shortened, with_columns
from support.small import small_bundle, small_frame, small_prepared

COLUMNS = ["y", "x", "emb_1", "other", "emb_2", "emb 3", "emb_10", "größe_1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y ~ x + nn(emb_*)", "y ~ x + nn(emb_1, emb_2, emb_10)"),
        ("y ~ nn(x, emb_*, other)", "y ~ nn(x, emb_1, emb_2, emb_10, other)"),
        ("y ~ nn( emb* )", "y ~ nn( emb_1, emb_2, `emb 3`, emb_10 )"),
        ("y ~ x + nn(emb_1*), z ~ nn(größe_*)", "y ~ x + nn(emb_1, emb_10), z ~ nn(größe_1)"),
    ],
)
def test_a_pattern_becomes_the_columns_in_the_tables_order(text, expected):
    assert has_patterns(text)
    assert with_columns(text, COLUMNS) == expected
    assert not has_patterns(expected)


@pytest.mark.parametrize(
    "text",
    ["y ~ x*z + nn(u)", "y ~ (x * z) + nn(u)", "y ~ nn(I(x * z), u)", "y ~ nn(`emb_*`)", "y ~ x*"],
)
def test_products_and_quoted_names_are_no_patterns(text):
    assert not has_patterns(text)
    assert with_columns(text, COLUMNS) == text


def test_a_pattern_that_no_column_fits_is_named_with_its_place():
    with pytest.raises(InputError, match="no column begins with 'embed_'") as caught:
        with_columns("y ~ x + nn(embed_*)", COLUMNS)
    *_, line, carets, _ = str(caught.value).splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == "embed_*"


def test_the_model_holds_the_names_and_new_rows_need_them():
    frame = small_frame().drop(columns=["u", "v"])
    values = np.random.default_rng(1).normal(size=(30, 14))
    frame[[f"e{j}" for j in range(14)]] = values
    prepared = small_prepared("y ~ x + nn(e*)", frame)
    assert np.array_equal(prepared.rows.U, values)
    bundle, _ = small_bundle("y ~ x + nn(e*)", frame)
    assert bundle.design.formula == f"y ~ x + nn({', '.join(f'e{j}' for j in range(14))})"
    assert "Formula: y ~ x + nn(e0, ..., e13)\n" in repr(bundle)


def test_only_long_lists_of_numbered_names_are_shortened():
    names = ", ".join(f"s{j}" for j in range(1, LONG + 2))
    assert shortened(f"y ~ x + nn(a, {names}, b)") == f"y ~ x + nn(a, s1, ..., s{LONG + 1}, b)"
    short = "y ~ nn(" + ", ".join(f"s{j}" for j in range(1, LONG + 1)) + ")"
    assert shortened(short) == short
    quoted = ", ".join(f"`e {j}`" for j in range(20))
    assert shortened(f"nn({quoted})") == "nn(`e 0`, ..., `e 19`)"
    mixed = ", ".join(f"a{j}, b{j}" for j in range(20))
    assert shortened(mixed) == mixed
