"""How numbers are written: two digits of the error, and only 0 as 0, in any units."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from semistan.posterior.checks import predictive_checks
from semistan.posterior.effects.comparisons import average_comparisons
from semistan.posterior.effects.effect import conditional_effect
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.hypothesis import hypotheses
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.scoring.compare import compare_loo
from semistan.posterior.scoring.loo import leave_one_out
from semistan.posterior.scoring.r2 import r2
from semistan.posterior.scoring.scores import pointwise, scores, scores_table
from semistan.posterior.sensitivity import sensitivity
from semistan.posterior.summary import Row, summarise
from semistan.posterior.written import cell, cells, digits_of, significant, table_text, written
from semistan.show.answers import Answer
from semistan.show.pictures.words import interval_words
from semistan.show.report.coefficients import _numbers
from semistan.show.report.learnt import frame_table
from semistan.show.report.numbers import MINUS
from semistan.terminal import screen
from support.drawn import random_draws
from support.small import small_bundle, small_frame


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (1.2345, 2, "1.23"), (-0.0, 2, "0.00"), (0.0, 15, "0.000000000000000"),
        (0.00312, 2, "0.003"), (-4e-5, 2, "-0.00004"), (3.14e-7, 2, "3e-07"),
        (3.141e-14, 16, "3.14e-14"), (-3.1e14, -12, "-3.10e+14"), (123456.7, -2, "123457"),
        (999999999.4, 0, "999999999"), (1.5e9, 0, "1.500000000e+09"), (np.nan, 2, "-"),
        (-np.inf, 2, "-"),
    ],
)  # fmt: skip
def test_a_number_has_its_errors_decimals(value, decimals, text):
    assert written(value, decimals) == text


@pytest.mark.parametrize("exponent", range(-300, 300, 7))
def test_only_0_is_written_as_0_and_digits_are_those_of_the_number(exponent):
    generator = np.random.default_rng(exponent + 300)
    value = float(f"{generator.uniform(1, 10):.3f}e{exponent}") * generator.choice([-1, 1])
    error = abs(value) / 40
    assert abs(float(written(value, digits_of(error))) - value) <= 0.06 * error
    assert float(significant(value)) == pytest.approx(value, rel=0.05)
    for decimals in (-3, 0, 2, 6):
        shown = float(written(value, decimals))
        assert shown != 0
        assert np.sign(shown) == np.sign(value)


def test_cells_that_are_no_floats_are_as_they_are():
    assert [cell(x) for x in (3, "a", None, np.int64(7), np.float32(0.5))] == [
        "3", "a", "None", "7", "0.50000",
    ]  # fmt: skip
    table = pd.DataFrame({"x": [3e-14, 1.0], "n": [1, 20]})
    assert table_text(table).split() == ["x", "n", "3.0000e-14", "1", "1.0000", "20"]


def test_a_column_of_whole_numbers_has_no_point():
    table = pd.DataFrame(
        {"treat": [0.0, 1.0], "big": [1e12, -2.0], "half": [0.5, 1.0], "gap": [np.nan, 1.0]}
    )
    assert [cells(table[name]) for name in table.columns] == [
        ["0", "1"], ["1.0000e+12", "-2.0000"], ["0.50000", "1.0000"], ["-", "1.0000"],
    ]  # fmt: skip
    assert table_text(table[["treat"]]).split() == ["treat", "0", "1"]


UNITS = {"small": (1e14, 1e-14), "large": (1e-14, 1e14), "plain": (1.0, 1.0)}


@pytest.fixture(scope="module", params=UNITS)
def answers(request):
    """What the commands print of a fit, as tables, with x, u and v in one unit and y in another."""
    of_x, of_y = UNITS[request.param]
    frame = small_frame()
    units = {"x": of_x, "u": of_x, "v": of_x, "y": of_y}
    table = frame.assign(**{name: unit * frame[name] for name, unit in units.items()})
    bundle, rows = small_bundle("y ~ x + C(g) + nn(u, v)", table, subspace__construction="full")
    one = SubspacePosterior(bundle, random_draws(bundle, chains=4, iterations=100))
    other = replace(one, draws=random_draws(bundle, chains=4, iterations=100, seed=4))

    def generator():
        return np.random.default_rng(1)

    found = leave_one_out(one, rows)
    explained = r2(one, rows, generator=generator())
    judged = pointwise(one, rows, generator=generator())
    return one, rows, {
        "summary": summarise(one, rows).table().reset_index(),
        "marginal": average_marginal_effects(one, table),
        "comparisons": average_comparisons(one, table, variables="x", contrast="sd"),
        "effect": conditional_effect(one, table, "x", resolution=5).table(),
        "hypothesis": hypotheses(one, rows, ["b_x > 0"], generator=generator()).table(),
        "importance": permutation_importance(one, table, repeats=1, generator=generator()),
        "score": scores_table(scores(bundle.family, judged)),
        "loo": found.table(),
        "pareto_k": found.k_table(),
        "compare": compare_loo({"a": found, "b": leave_one_out(other, rows)}),
        "r2": explained.table(),
        "parts": explained.parts,
        "sensitivity": sensitivity(one, rows),
        "pp_check": predictive_checks(one, rows, "mean,sd", generator=generator()).table(),
    }  # fmt: skip


def test_names_in_brackets_are_shown_as_they_are():
    """Rich takes a word in brackets for a style."""
    name = "b_x[z]"
    tables = {
        "of coefficients": screen.coefficient_table((Row(name, *range(1, 8)),)),
        "of answers": screen.plain_table(pd.DataFrame({name: [1.5], "term": [name]})),
    }
    for what, table in tables.items():
        with screen.out.capture() as shown:
            screen.out.print(table)
        assert shown.get().count(name) == (1 if what == "of coefficients" else 2), what


def shown_cells(table):
    """Pairs of a number and how the screen writes it."""
    laid = screen.plain_table(table)
    for name, column in zip(table.columns, laid.columns, strict=True):
        if table[name].dtype.kind == "f":
            yield from zip(table[name], column.cells, strict=True)


def holds(value, text):
    """Whether a text says of a number whether it is 0, and its sign."""
    if not np.isfinite(value):
        return text in ("-", "\N{EN DASH}")
    shown = float(text.replace(MINUS, "-"))
    return np.sign(shown) == np.sign(value)


def test_no_printed_cell_is_0_unless_the_number_is(answers):
    *_, tables = answers
    for name, table in tables.items():
        pairs = list(shown_cells(table))
        assert pairs, name
        for value, text in pairs:
            assert holds(value, text), (name, value, text)
            if value and np.isfinite(value):
                assert float(text) == pytest.approx(value, rel=0.05), name


def test_the_summary_and_the_page_show_the_sign_of_every_number(answers):
    one, rows, tables = answers
    summary = summarise(one, rows)
    for row in summary.rows:
        shown = (row.texts, [each.text for each in _numbers(row)])
        for texts in shown:
            assert all(map(holds, row.values, texts)), (row.name, texts)
        error = float(row.texts[1])
        assert error == pytest.approx(row.est_error, rel=0.05)
        assert abs(float(row.texts[0]) - row.estimate) <= 0.06 * row.est_error
    for name in ("marginal", "score", "loo", "compare"):
        frame = tables[name].dropna()
        for line, row in zip(frame.to_dict("records"), frame_table(frame, "").rows, strict=True):
            for value, each in zip(line.values(), row, strict=True):
                assert isinstance(value, str) or holds(value, each.text), (name, line)


def test_json_has_numbers_as_they_are(answers, capsys):
    *_, tables = answers
    for name, table in tables.items():
        Answer({"": table}).print_json(sys.stdout)
        lines = json.loads(capsys.readouterr().out)["rows"]
        for line, expected in zip(lines, table.to_dict("records"), strict=True):
            for column, value in expected.items():
                missing = isinstance(value, float) and not np.isfinite(value)
                assert line[column] == (None if missing else value), (name, column)


def test_words_of_pictures_have_the_sign_too():
    words = interval_words(3e-14 + 1e-15 * np.random.default_rng(1).normal(size=400))
    assert all(float(number) > 0 for number in re.findall(r"[\d.]+e-\d+", words))
    assert len(re.findall(r"e-14", words)) == 3
