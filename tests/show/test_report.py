"""The report's content, and its page read as text; tests/show/test_report_browser.py opens it."""

import re
import tomllib
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.config import config_toml, parse_config
from semistan.posterior.diagnostics import Check
from semistan.posterior.effects.answers import importance_answer, marginal_answer
from semistan.posterior.effects.decomposition import decompose
from semistan.posterior.effects.importance import permutation_importance
from semistan.posterior.effects.marginal import average_marginal_effects
from semistan.posterior.scoring.folds import KFold
from semistan.posterior.scoring.loo import Loo, leave_one_out
from semistan.posterior.scoring.scores import pointwise
from semistan.posterior.summary import COLUMNS
from semistan.posterior.written import digits_of
from semistan.show import report
from semistan.show.pictures import PICTURES, available
from semistan.show.report.blocks import Facts, Picture, Table
from semistan.show.report.coefficients import coefficient_table
from semistan.show.report.content import report_content
from semistan.show.report.evidence import Effects, Estimates, Evidence, gather
from semistan.show.report.illustrate import material_of
from semistan.show.report.learnt import directions_table, frame_table, pareto_text
from semistan.show.report.numbers import MINUS, joined, number
from semistan.show.report.page import highlighted, inline, render
from semistan.show.report.results import Comparison, judging
from semistan.show.report.sampling import chains_table
from semistan.words import count, part_of
from support.pages import Page, small_results
from support.small import RARER_RESPONSES, category_frame, small_config, small_frame

NASTY = "<script>alert('x')</script>"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SECTIONS = [
    "model", "coefficients", "diagnostics", "effects", "checks", "subspace", "program", "cite",
    "reproduce",
]  # fmt: skip


def estimates(terms):
    n = len(terms)
    return pd.DataFrame(
        {
            "term": terms,
            "contrast": ["dY/dX"] * n,
            "Estimate": np.linspace(-1.5, 1.5, n),
            "Est.Error": np.linspace(0.1, 0.2, n),
        }
    )


def small_loo(pareto_k, *, conditional=True):
    size = len(pareto_k)
    return Loo(np.full(size, -2.0), np.full(size, -1.9), np.array(pareto_k), 4000, conditional)


def some_evidence(terms=("x", "g", "u", "v"), *, conditional=True):
    """Evidence that costs nothing."""
    picture = Picture(PIXEL, "A caption.", "Mean 3.", 700, 400)
    table = Estimates(estimates(list(terms)), "300 of 4,000 draws, 30 rows")
    return Evidence(
        marginal=table,
        importance=table,
        scores=Estimates(
            pd.DataFrame({"score": ["LPPD"], "Estimate": [-1.25], "SE": [0.031]}), "30 rows"
        ),
        loo=small_loo([0.1, 0.3, 0.2], conditional=conditional),
        pictures=dict.fromkeys(
            ("coefficients", "densities", "trace", "rank", "energy", "ppc", "calibration",
             "subspace", "loss"),
            picture,
        ),
        conditional=Effects((picture,), 0, "300 draws"),
        dependence=Effects((picture, picture), 3, "300 draws"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def results():
    return small_results(path="/home/secret/project/data.csv")


@pytest.fixture(scope="module")
def html(results):
    return page_of(results)


@pytest.fixture(scope="module")
def computed():
    """A page with everything that it computes, of more rows than it uses."""
    return small_results("y ~ x + C(g) + nn(u, v)", frame=small_frame(2200), iterations=60)


@pytest.fixture(scope="module")
def evidence(computed):
    return gather(computed, np.random.default_rng(1))


def page_of(results, evidence=None):
    return render(report_content(results, evidence or some_evidence()))


def text_of(html):
    return " ".join(Page(html).all("body")[0].text.split())


def facts_of(content, section):
    blocks = next(item.blocks for item in content.sections if item.id == section)
    facts = [fact for block in blocks if isinstance(block, Facts) for fact in block.items]
    return {fact.term: fact.text for fact in facts}


def shown_value(cell):
    return float(cell.text.replace(MINUS, "-"))


# --- numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [0.0123, 0.5, 1.0, 9.99, 0.00099])
def test_a_small_error_is_shown_with_two_digits(error):
    assert float(number(error, digits_of(error))) == float(f"{error:.1e}")


@pytest.mark.parametrize("error", [10.0, 12.6, 12345.4])
def test_a_large_error_is_shown_as_a_whole_number(error):
    assert number(error, digits_of(error)) == f"{round(error)}"


@pytest.mark.parametrize("error", [0.0, np.nan, np.inf])
def test_an_error_that_does_not_exist_gives_two_decimals(error):
    assert digits_of(error) == 2


def test_numbers_have_a_real_minus_and_only_zero_is_zero():
    assert number(-1.26, 1) == "\u22121.3"
    assert number(-0.0, 2) == "0.00"
    assert number(-0.00012, 2) == "\u22120.0001"
    assert number(-3.1e-14, 15) == "\u22123.1e\u221214"
    assert number(np.nan, 2) == "\u2013"


def test_words_are_joined_and_counted():
    assert [joined(words) for words in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == [
        "", "a", "a and b", "a, b and c",
    ]  # fmt: skip
    assert [count(1, "row"), count(100000, "row")] == ["1 row", "100,000 rows"]
    assert part_of(442, 442, "row") == "442 rows"
    assert part_of(2000, 100_000, "row") == "2,000 of 100,000 rows"


# --- content ---------------------------------------------------------------------------------


def test_the_coefficient_table_is_the_summary(results):
    table = coefficient_table(results)
    assert [column.name for column in table.columns[2:]] == list(COLUMNS)
    assert [row[0].text for row in table.rows] == [
        "b_Intercept", "b_x", "b_gb", "b_gc", "sigma",
    ]  # fmt: skip
    assert [row[1].text for row in table.rows] == [
        "intercept", "x", "C(g)[T.b]", "C(g)[T.c]", "residual sd",
    ]  # fmt: skip
    for cells, row in zip(table.rows, results.summary.rows, strict=True):
        assert tuple(cell.value for cell in cells[2:]) == row.values
        for cell in cells[2:6]:
            assert abs(shown_value(cell) - cell.value) < 0.05 * row.est_error


def test_chains_are_summarised_from_what_nuts_reports():
    sampler = {"diverging": np.zeros((2, 40)), "n_steps": np.arange(80.0).reshape(2, 40)}
    sampler["diverging"][1, :3] = 1
    table = chains_table(small_results(chains=2, iterations=40, sampler=sampler))
    names = [column.name for column in table.columns]
    values = [dict(zip(names, (cell.value for cell in row), strict=True)) for row in table.rows]
    assert [line["Chain"] for line in values] == [1, 2]
    assert [line["Divergent"] for line in values] == [0, 3]
    assert [line["Leapfrog steps"] for line in values] == [19.5, 59.5]


def test_directions_have_their_singular_values_and_shares(results):
    rows = directions_table(results.posterior).rows
    values = results.bundle.trained.singular_values
    assert [row[1].value for row in rows] == list(values)
    assert sum(row[2].value for row in rows) == pytest.approx(1)
    assert rows[0][2].value == pytest.approx(values[0] ** 2 / sum(values**2))
    assert [row[4].value for row in rows] == pytest.approx(
        [np.std(results.posterior.draws.phi[..., j], ddof=1) for j in range(len(rows))]
    )


def test_what_was_fitted_is_told(results, html):
    assert "&#x3a0;" in html  # the directions Pi
    facts = facts_of(report_content(results, some_evidence()), "model")
    assert facts["Family"] == "gaussian, link identity"
    assert facts["Structured terms"] == "x, C(g) (3 coefficients)"
    assert facts["Network"] == "2-3-1, tanh"
    assert facts["Rows"] == "30"
    assert facts["Subspace"] == "d = 13 Bayesian weights in k = 2 dimensions"
    assert facts["Draws"] == "4 chains, 300 draws each after 300 of warm-up"
    assert facts["Metric"] == "Gauss-Newton, at a mode in the subspace; kept"


def test_dropped_rows_are_told(results):
    source = replace(results.bundle.source, dropped=7)
    bundle = replace(results.bundle, source=source)
    dropped = replace(results, posterior=replace(results.posterior, bundle=bundle))
    facts = facts_of(report_content(dropped, some_evidence()), "model")
    assert facts["Rows"] == "30; 7 rows with missing values dropped"


def test_the_data_file_is_named_without_its_folder(results, html):
    assert "data.csv" in text_of(html)
    assert "secret" not in html
    assert "/home" not in html


def test_every_prior_is_shown_as_used(html):
    text = text_of(html)
    for name in ("phi", "b_x", "b_gb", "b_gc", "sigma"):
        assert re.search(rf"\b{name} \w+\([^)]*\) \w+\(", text), name


def test_a_table_of_estimates_has_the_digits_of_each_lines_error():
    frame = pd.DataFrame({"term": ["a", "b"], "Estimate": [1.23456, -100.4], "SE": [0.012, 31.0]})
    table = frame_table(frame, "caption")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["a", "1.235", "0.012"], ["b", "\u2212100", "31"],
    ]  # fmt: skip
    assert table.rows[1][1].value == -100.4


def test_pareto_k_that_are_too_large_are_counted():
    assert "All Pareto k are below 0.70 (largest 0.30)" in pareto_text(small_loo([0.1, 0.3]))
    warned = pareto_text(small_loo([0.1, 0.9, 1.2]))
    assert warned.startswith("2 of 3 rows have a Pareto k above 0.70 (largest 1.20)")
    assert "kfold" in warned


def test_loo_is_called_conditional_and_optimistic(html):
    assert "PSIS-LOO is conditional on the subspace, which was trained on all rows" in text_of(html)


def test_of_all_weights_nothing_is_called_conditional():
    results = small_results(subspace__construction="full", chains=2, iterations=100)
    page = render(report_content(results, some_evidence(conditional=False)))
    text = text_of(page)
    assert "All 13 Bayesian weights of the network are sampled" in text
    assert "all 13 weights" in text and "k = 13" not in text and "&#x3a0;" not in page
    for word in (
        "conditional on", "depends on the seed", "within the subspace",
        "Directions of the subspace",
    ):  # fmt: skip
        assert word not in text


def test_columns_without_a_picture_are_counted(html):
    assert "3 columns of less importance not shown." in text_of(html)


# --- what can differ between runs ------------------------------------------------------------


def test_all_sections_are_there_and_no_warning(html):
    page = Page(html)
    assert [node.attributes["id"] for node in page.all("section")] == SECTIONS
    assert "all diagnostics passed" in page.texts("li")


def test_draws_from_the_prior_are_called_so_and_not_checked():
    content = report_content(small_results(prior_only=True), some_evidence())
    assert "checks" not in [section.id for section in content.sections]
    page = Page(render(content))
    assert page.texts("h1") == ["Prior of a semi-structured regression of y"]
    assert page.texts("h2")[1] == "These are draws from the prior, not from a posterior"
    assert "Prior summary" in page.texts("caption")
    assert "semistan sample bundle --prior-only" in page.all("body")[0].text


def test_without_structured_terms_only_the_intercept_is_shown():
    results = small_results("y ~ nn(u, v)")
    evidence = replace(some_evidence(("u", "v")), conditional=Effects())
    assert [row[0].text for row in coefficient_table(results).rows] == ["b_Intercept", "sigma"]
    page = Page(page_of(results, evidence))
    assert "Structured terms" not in page.texts("h3")
    assert "no coefficients to interpret but the intercept" in text_of(page_of(results, evidence))


def test_failed_diagnostics_open_the_page_with_advice(results):
    checks = (
        Check(
            "divergences", "12 of 1200 transitions diverged", False, "raise --adapt-delta; or wait"
        ),
        Check("E-BFMI", "smallest 0.9", True, "lengthen warm-up"),
    )
    summary = replace(results.summary, checks=checks)
    page = Page(page_of(replace(results, summary=summary)))
    first = page.all("section")[0]
    assert first.attributes["class"] == "notice warning"
    assert "1 diagnostic failed" in first.text
    assert "12 of 1200 transitions diverged" in first.text
    assert "Raise --adapt-delta; or wait." in first.text
    assert "--adapt-delta" in page.texts("code")
    assert "lengthen warm-up" not in page.all("body")[0].text
    assert "1 diagnostic failed" in page.texts("li")
    assert page.texts("span").count("failed") == 1


def test_draws_that_do_not_mix_are_warned_about():
    stuck = {"diverging": np.ones((4, 300))}
    html = page_of(small_results(sampler=stuck))
    assert "1200 of 1200 transitions diverged" in Page(html).all("section")[0].text


def test_a_table_in_memory_is_told_how_to_be_used_again(html):
    text = text_of(page_of(small_results()))
    assert "a table in memory" in text
    assert "semistan fit model.toml --data data.csv --out run" in text
    assert "--data" not in text_of(html)


def test_many_coefficients_scroll_in_their_own_frame():
    generator = np.random.default_rng(0)
    names = [f"x{i}" for i in range(45)]
    values = pd.DataFrame(generator.normal(size=(80, 45)), columns=names)
    frame = small_frame(80).join(values)
    page = Page(page_of(small_results(f"y ~ {' + '.join(names)} + nn(u)", frame=frame)))
    tall = [node for node in page.all("div") if "tall" in node.attributes.get("class", "")]
    assert any("b_x44" in node.text for node in tall)


AMOUNT = RARER_RESPONSES["hurdle_gamma"]
MU, LEAST = "\N{GREEK SMALL LETTER MU}", "\N{GREATER-THAN OR EQUAL TO}"


@pytest.mark.parametrize(
    ("family", "response", "meaning", "equation"),
    [
        ("gaussian", "y", "the mean of the response", "E[y]"),
        ("lognormal", "z", "the mean of log the response", "E[logy]"),
        ("poisson", "count", "the log of the mean of the response", "logE[y]"),
        ("hurdle_poisson", "count", "mean of the response before zeros are", f"log{MU}"),
        ("hurdle_gamma", AMOUNT, "of the response above 0", "logE[y|y>0]"),
        ("hurdle_lognormal", AMOUNT, "log the response above 0", "E[logy|y>0]"),
        ("zero_inflated_poisson", "count", "without the extra zeros", "logE[y|no extra0]"),
        ("bernoulli", "flag", "the log odds", "logitE[y]"),
        ("cumulative", "rating", "log odds .* of a higher category", "logitP[y>k]"),
        ("sratio(probit)", "rating", "of going beyond a category", f"probitP[y>k|y{LEAST}k]"),
        ("acat", "rating", "of a category against the one below", "logP[y=k+1]/P[y=k]"),
        ("categorical", "mode", "against bus", "logP[y=k]/P[y=bus]"),
    ],
)  # fmt: skip
def test_every_family_says_what_a_coefficient_means(family, response, meaning, equation):
    results = small_results(f"{response} ~ x + nn(u)", family=family, frame=category_frame())
    page = page_of(results)
    assert re.search(rf"A coefficient is the change of [^.]*{meaning}", text_of(page))
    found = Page(page).all("math")[0].text.replace("\n", "")
    assert found.split("=x")[0] == equation
    assert ("sigma" in [row[0].text for row in coefficient_table(results).rows]) == (
        "sigma" in results.posterior.family.dispersion
    )


# --- the page --------------------------------------------------------------------------------


def test_names_and_levels_are_escaped():
    frame = small_frame().rename(columns={"x": NASTY, "u": "größe & <b>"})
    frame["g"] = frame["g"].replace("b", "b<img src=q>")
    results = small_results(f"y ~ `{NASTY}` + C(g) + nn(`größe & <b>`, v)", frame=frame)
    page = Page(page_of(results, some_evidence((NASTY, "g", "größe & <b>", "v"))))
    assert len(page.all("script")) == 1
    assert not page.all("b")
    assert all(node.attributes["src"].startswith("data:") for node in page.all("img"))
    assert NASTY in page.texts("td")
    assert "C(g)[T.b<img src=q>]" in page.texts("td")
    assert "größe & <b>" in page.all("dl")[0].text


def test_nothing_is_loaded_and_nothing_may_be(html):
    page = Page(html)
    for node in page.nodes:
        address = node.attributes.get("src") or node.attributes.get("href") or "#"
        assert address.startswith(("#", "data:")), node
    assert "@import" not in html
    assert not re.search(r"url\((?!data:)", html)
    policy = page.all("meta")[1].attributes
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert "default-src 'none'" in policy["content"]


def test_the_policy_allows_exactly_this_style_and_script(html):
    policy = Page(html).all("meta")[1].attributes["content"]
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)[1]
        expected = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{expected}'" in policy
    assert not [node for node in Page(html).nodes if "style" in node.attributes]


def test_the_page_is_well_formed(html):
    page = Page(html)
    ids = [node.attributes["id"] for node in page.nodes if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert link.attributes["href"].removeprefix("#") in ids
    for node in page.nodes:
        for label in node.attributes.get("aria-labelledby", "").split():
            assert label in ids
    assert [link.text for link in page.all("a")[1:]] == page.texts("h2")[1:]
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("nav")) == 1
    assert all(node.attributes["alt"] for node in page.all("img"))
    for table in page.all("table"):
        assert "div" in table.path


def test_every_row_has_a_cell_for_every_column(results):
    for section in report_content(results, some_evidence()).sections:
        for table in (block for block in section.blocks if isinstance(block, Table)):
            assert {len(row) for row in table.rows} == {len(table.columns)}, table.caption


def test_words_between_backticks_are_code_and_all_is_escaped():
    assert inline("a `b < c` <d>") == "a <code>b &lt; c</code> &lt;d&gt;"


def test_a_marked_program_keeps_its_text():
    program = "// a <b>\ndata {\n  int N;  // data { is no block\n}\ntransformed data {\n}\n"
    marked = highlighted(program, "stan")
    assert Page(f"<pre>{marked}</pre>").all("pre")[0].text == program
    marks = [node.text for node in Page(f"<pre>{marked}</pre>").all("span")]
    assert marks == ["// a <b>", "data", "// data { is no block", "transformed data"]


def test_the_model_file_gives_the_same_configuration_back():
    config = small_config(
        "y ~ `a \"b\" \\ ü` + nn(u)", family="gaussian", data="ü \x7f.csv", drop_missing=True,
        sample__adapt_delta=0.95, network__hidden=[7, 5],
    )  # fmt: skip
    assert parse_config(tomllib.loads(config_toml(config)), "test") == config


def test_the_model_file_on_the_page_has_the_options_that_sampled(results, html):
    text = next(node.text for node in Page(html).all("pre") if "[sample]" in node.text)
    config = parse_config(tomllib.loads(text), "test")
    assert config.sample == results.options
    assert config.sample.warmup == 300
    assert config.data == "data.csv"
    assert config.train == results.bundle.config.train


# --- what is computed ------------------------------------------------------------------------


def test_each_kind_of_picture_has_a_place_on_the_page_or_a_reason_to_have_none(results):
    pictures = {
        kind: Picture(PIXEL, f"Caption of {kind}.", "Mean 3.", 700, 400) for kind in PICTURES
    }
    page = Page(page_of(results, replace(some_evidence(), pictures=pictures)))
    captions = page.texts("figcaption")
    for kind, how in PICTURES.items():
        assert bool(how.place) != bool(how.reason), kind
        assert captions.count(f"Caption of {kind}.") == bool(how.place), kind
    assert "Smooths" in page.texts("h3")


@pytest.mark.lengthy
@pytest.mark.parametrize("prior_only", [False, True])
def test_what_is_drawn_of_a_run_is_on_its_page(prior_only):
    results = small_results(
        "y ~ s(x, k=4) + gp(z, k=10) + nn(u, v)", prior_only=prior_only, iterations=60
    )
    evidence = gather(results, np.random.default_rng(1))
    can = set(available(material_of(results)))
    shown = {kind for kind in can if PICTURES[kind].place}
    if prior_only:
        shown = {kind for kind in shown if PICTURES[kind].of_prior}
    assert set(evidence.pictures) == shown
    assert "smooths" in shown
    page = Page(page_of(results, evidence))
    sources = [node.attributes["src"] for node in page.all("img")]
    for kind, picture in evidence.pictures.items():
        assert sources.count(picture.source) == 1, kind
    (smooths,) = (node for node in page.all("img") if node.attributes["alt"].startswith("Smooths."))
    assert "s(x)" in smooths.attributes["alt"]
    assert "gp(z)" in smooths.attributes["alt"]


@pytest.mark.lengthy
def test_every_kind_is_drawn_and_embedded(evidence):
    assert {"coefficients", "trace", "rank", "energy", "ppc", "calibration", "subspace"} <= set(
        evidence.pictures
    )
    assert len(evidence.conditional.pictures) == 2
    assert len(evidence.dependence.pictures) == 2
    for picture in (*evidence.pictures.values(), *evidence.dependence.pictures):
        head, content = picture.source.split(",", 1)
        start = {"data:image/svg+xml;base64": b"<?xml", "data:image/png;base64": b"\x89PNG"}[head]
        assert b64decode(content).startswith(start)
        assert len(picture.alt) > 20
        assert picture.width == 672


@pytest.mark.lengthy
def test_numbers_are_of_all_rows_and_pictures_of_a_part_and_the_page_says_so(computed, evidence):
    assert len(evidence.loo.pareto_k) == 2200
    text = text_of(page_of(computed, evidence))
    assert "PSIS-LOO over 2,200 rows" in text
    assert evidence.scores.basis == "240 draws, 2,200 rows"
    assert evidence.marginal.basis == evidence.importance.basis == "240 draws, 2,200 rows"
    assert evidence.dependence.basis.endswith("100 of 2,200 rows")
    for basis in (evidence.marginal.basis, evidence.importance.basis, evidence.dependence.basis):
        assert basis in text


@pytest.mark.lengthy
def test_very_many_rows_are_judged_with_a_part_of_the_draws(computed, monkeypatch):
    posterior, rows = computed.posterior, computed.rows
    known, thinned = judging(posterior, rows)
    assert known.known
    assert thinned is None
    monkeypatch.setattr("semistan.show.report.results.FEWEST_DRAWS", 60)
    for most, draws, kept in ((100, 100, True), (30, 60, False)):
        monkeypatch.setattr("semistan.show.report.results.MOST_OUTPUTS", most * len(rows))
        whole, thinned = judging(posterior, rows)
        assert whole is posterior
        assert thinned.size == draws
        assert bool(thinned.known) == kept
    evidence = gather(replace(computed, thinned=thinned), np.random.default_rng(1))
    assert evidence.scores.basis == "60 of 240 draws, 2,200 rows"
    text = text_of(page_of(replace(computed, thinned=thinned), evidence))
    assert "PSIS-LOO over 2,200 rows, 60 of 240 draws" in text


@pytest.mark.lengthy
def test_the_page_says_what_the_network_found(computed, evidence):
    found = evidence.components
    asked = {"generator": np.random.default_rng(1)}
    whole = decompose(computed.posterior, computed.table, **asked)
    pd.testing.assert_frame_equal(found.totals.frame, whole.totals())
    pd.testing.assert_frame_equal(found.shares, whole.table())
    assert found.additive == whole.additive(0.05)
    page = Page(page_of(computed, evidence))
    assert "What the network found" in page.texts("h3")
    text = text_of(page_of(computed, evidence))
    for each in ("not additive", "u:v", "from 240 draws"):
        assert each in text
    assert any(n.attributes["src"] == found.picture.source for n in page.all("img"))


@pytest.mark.lengthy
def test_what_cannot_be_decomposed_is_left_out(monkeypatch):
    results = small_results("y ~ x + nn(u, v)", prior_only=True, iterations=60)
    assert gather(results, np.random.default_rng(1)).components is None

    def refuse(*_, **__):
        raise InputError("images")

    monkeypatch.setattr("semistan.show.report.evidence.decompose", refuse)
    evidence = gather(small_results(iterations=60), np.random.default_rng(1))
    assert evidence.components is None


@pytest.mark.lengthy
def test_the_page_and_the_commands_have_the_same_numbers(computed, evidence):
    asked = {"generator": np.random.default_rng(1)}
    marginal = average_marginal_effects(computed.posterior, computed.table)
    importance = permutation_importance(computed.posterior, computed.table, **asked)
    pd.testing.assert_frame_equal(evidence.marginal.frame, marginal)
    pd.testing.assert_frame_equal(evidence.importance.frame, importance)
    pd.testing.assert_frame_equal(
        evidence.loo.table(), leave_one_out(computed.posterior, computed.rows).table()
    )


@pytest.mark.lengthy
def test_where_the_work_is_much_page_and_command_use_the_same_part(monkeypatch):
    monkeypatch.setattr("semistan.posterior.effects.answers.MOST_WORK", 1)
    monkeypatch.setattr("semistan.posterior.effects.answers.FEWEST_DRAWS", 50)
    some = small_results(frame=small_frame(400), iterations=60)
    evidence = gather(some, np.random.default_rng(7))
    for ours, answer in (
        (evidence.marginal, marginal_answer),
        (evidence.importance, importance_answer),
    ):
        theirs = answer(some.posterior, some.table)
        pd.testing.assert_frame_equal(ours.frame, theirs.frame)
        assert theirs.partial and ours.basis == theirs.basis
        assert re.fullmatch(r"\d+ of 240 draws, 300 of 400 rows", ours.basis)
    asked = marginal_answer(some.posterior, some.table, rows=400)
    assert asked.rows == (400, 400)


@pytest.mark.lengthy
def test_rows_held_out_come_before_rows_that_the_fit_has_seen():
    some = small_results("y ~ x + nn(u)", iterations=60)
    judged = pointwise(some.posterior, some.rows, generator=np.random.default_rng(2))
    fold = np.arange(30) % 3 + 1
    found = KFold(fold, judged, {2: ["Rhat: 1.2"]}, 0.8)
    comparison = Comparison(
        "Comparison", "Of two.", "Best first",
        pd.DataFrame({"model": ["a", "b"], "elpd_diff": [0.0, -3.21], "se_diff": [0.0, 1.5],
                      "elpd": [-90.0, -93.21], "se": [4.0, 4.2], "weight": [0.875, 0.125]}),
    )  # fmt: skip
    some = replace(some, kfold=found, comparisons=(comparison,))
    evidence = gather(some, np.random.default_rng(1))
    page = Page(page_of(some, evidence))
    titles = page.texts("h3")
    order = [
        titles.index(title) for title in ("Rows held out", "Comparison", "On the training rows")
    ]
    assert order == sorted(order)
    text = text_of(page_of(some, evidence))
    assert "From 30 rows in 3 folds" in text
    assert "The fits without fold 2 failed a diagnostic." in text
    assert "coverage of 80% interval" in text
    assert "0.88" in text
    assert "Calibration on rows held out" in evidence.held_out.picture.alt
    total = dict(zip(found.table()["measure"], found.table()["Estimate"], strict=True))
    assert total["elpd_kfold"] == pytest.approx(judged.lpd.sum())
    assert number(total["elpd_kfold"], digits_of(found.table()["SE"][0])) in text


def test_without_cross_validation_the_page_says_how_it_is_made(html):
    assert "There is no cross-validation of this run. semistan kfold makes it" in text_of(html)


def test_effects_say_what_their_intervals_leave_out(html):
    assert "Intervals of the network's part are within the subspace" in text_of(html)


@pytest.mark.lengthy
@pytest.mark.parametrize("weighted", [True, False])
def test_the_scores_say_whether_they_are_weighted(weighted):
    frame = small_frame().assign(w=np.arange(30) + 1.0)
    formula = "y | weights(w) ~ x + nn(u)" if weighted else "y ~ x + nn(u)"
    evidence = gather(small_results(formula, frame=frame, iterations=60), np.random.default_rng(1))
    assert evidence.scores.basis == "240 draws, 30 rows" + ", weighted by w" * weighted


@pytest.mark.lengthy
def test_draws_are_fewer_where_the_work_is_much(computed, monkeypatch):
    monkeypatch.setattr("semistan.show.report.evidence.MOST_WORK", 1)
    scarce = gather(computed, np.random.default_rng(1))
    assert scarce.dependence.basis.startswith("100 of 240 draws")


def test_the_most_important_inputs_are_shown_in_the_formulas_order():
    from semistan.show.report.evidence import _most_important

    names = tuple(f"u{i}" for i in range(12))
    order = [*names[4:], *names[:4]]
    importance = Estimates(pd.DataFrame({"term": ["x", *order]}), "")
    assert _most_important(names, importance) == names[4:]
    assert _most_important(names, None) == names[:8]
    assert _most_important(names[:3], importance) == names[:3]


@pytest.mark.lengthy
def test_draws_from_the_prior_are_not_held_against_the_rows():
    evidence = gather(small_results(prior_only=True, iterations=60), np.random.default_rng(1))
    assert evidence.importance is evidence.scores is evidence.loo is None
    assert not {"ppc", "calibration"} & set(evidence.pictures)
    assert evidence.conditional.pictures


@pytest.mark.lengthy
@pytest.mark.parametrize("temper", ["likelihood", "subspace"])
def test_the_page_says_why_a_tempered_subspace_has_no_leave_one_out(temper):
    sample = {"sample__temperature": 2.0, "sample__temper": temper}
    tempered = small_results("y ~ x + nn(u)", iterations=60, **sample)
    evidence = gather(tempered, np.random.default_rng(1))
    assert (evidence.loo is None) == (temper == "subspace")
    text = text_of(page_of(tempered, evidence))
    assert ("PSIS-LOO needs the temperature to act on each row" in text) == (temper == "subspace")
    assert ("PSIS-LOO over 30 rows" in text) == (temper == "likelihood")


@pytest.mark.lengthy
def test_a_seed_gives_the_same_page_each_time():
    results = small_results(iterations=60)
    first, second = (report.report_html(results, np.random.default_rng(3)) for _ in range(2))
    # Coordinates in pictures can differ in the last digit: the solver of layouts is not exact.
    assert re.sub(r'src="[^"]*"', "", first) == re.sub(r'src="[^"]*"', "", second)
    assert len(first) < 3_000_000


def test_a_page_that_fails_leaves_the_older_one(results, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("older")

    def fail(*_):
        raise RuntimeError("no page")

    monkeypatch.setattr(report, "results_of", lambda *_: results)
    monkeypatch.setattr(report, "render", fail)
    monkeypatch.setattr(report, "gather", lambda *_: some_evidence())
    run = SimpleNamespace(options=results.options)
    with pytest.raises(RuntimeError, match="no page"):
        report.write_report(run, results.posterior, results.summary, path)
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "older"


@pytest.fixture(scope="module")
def modes():
    formula = "mode ~ x + nn(u), mutrain_trip ~ C(g) + nn(v)"
    return small_results(formula, frame=category_frame(), family="categorical", iterations=60)


def test_categories_are_named_in_facts_labels_and_text(modes):
    content = report_content(modes, some_evidence())
    facts = facts_of(content, "model")
    assert facts["Categories"] == "bus, car, train trip; the first is the reference"
    assert facts["Predictor of mucar"] == "1 + x + nn(u)"
    assert facts["Predictor of mutrain_trip"] == "1 + C(g) + nn(v)"
    labels = {row[0].text: row[1].text for row in coefficient_table(modes).rows}
    assert labels == {
        "b_mucar_Intercept": "intercept: car against bus",
        "b_mucar_x": "x: car against bus",
        "b_mutrain_trip_Intercept": "intercept: train trip against bus",
        "b_mutrain_trip_gb": "C(g)[T.b]: train trip against bus",
        "b_mutrain_trip_gc": "C(g)[T.c]: train trip against bus",
    }
    text = text_of(render(content))
    assert "the change of the log-odds of car or train trip against bus" in text
    assert "b_Intercept" not in text and "Linear predictors" in text


def test_labels_follow_the_predictors_in_any_order():
    frame = category_frame().assign(mode=lambda table: np.resize([*"abcd"], len(table)))
    some = small_results(
        "mode ~ nn(u), mud ~ x + nn(u), muc ~ z + nn(u)", frame=frame, family="categorical",
        iterations=60,
    )  # fmt: skip
    labels = {row[0].text: row[1].text for row in coefficient_table(some).rows}
    assert (labels["b_mud_x"], labels["b_muc_z"]) == ("x: d against a", "z: c against a")


@pytest.mark.lengthy
def test_effects_and_scores_of_categories_are_on_the_page(modes):
    evidence = gather(modes, np.random.default_rng(1))
    text = text_of(page_of(modes, evidence))
    assert "The change of each category's probability per unit of a column" in text
    assert list(evidence.scores.frame["score"]) == ["LPPD", "accuracy", "Brier"]
    assert set(evidence.marginal.frame["category"]) == {"bus", "car", "train trip"}
    (picture,) = evidence.conditional.pictures[:1]
    assert picture.alt.startswith("Conditional effect of x on P(mode): mode = bus at x = ")
