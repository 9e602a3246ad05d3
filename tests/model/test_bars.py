"""Bars, ``offset()`` and ``s()`` in a formula: their parts, and where a mistake is marked."""

import pytest

from semistan.errors import InputError
from semistan.model.formula.bars import split_bars
from semistan.model.formula.calls import TermCall
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.right import GroupTerm
from semistan.model.terms.smooth import DEFAULT_BASIS

EVERYTHING = (
    "y | weights(w) + trials(n) ~ x + offset(log(z)) + s(v, k=5) + (1 + x | g) + (0 + z || h) "
    "+ (1 | g:h) + nn(u)"
)


def test_every_part_of_a_formula_is_found():
    formula = parse_formula(EVERYTHING)
    assert (formula.response, formula.weights, formula.trials) == ("y", "w", "n")
    assert (formula.mean.structured, formula.mean.networks) == (("x", "v"), (("u",),))
    assert formula.mean.offsets == ("log(z)",)
    assert formula.mean.calls == (TermCall("s", "v", (("k", 5),)),)
    assert formula.mean.groups == (
        GroupTerm("(1 + x | g)", True, ("x",), ("g",), True),
        GroupTerm("(0 + z || h)", False, ("z",), ("h",), False),
        GroupTerm("(1 | g:h)", True, (), ("g", "h"), True),
    )


def test_the_columns_of_every_part_are_known():
    formula = parse_formula(EVERYTHING)
    assert set(formula.columns) == {"x", "v", "u", "z", "n", "g", "h"}
    assert formula.outcome == ("y", "w")


@pytest.mark.parametrize(
    ("text", "weights", "trials"),
    [
        ("y | weights(w) ~ nn(u)", "w", ""),
        ("y | trials(n) ~ nn(u)", "", "n"),
        ("y|trials( n )+weights(w)~nn(u)", "w", "n"),
        ("log(y) | weights(sqrt(w) / 2) ~ nn(u)", "I(sqrt(w) / 2)", ""),
        ("y | trials(10) ~ nn(u)", "", "I(10)"),
        ("y | trials((a + b) * 2) ~ nn(u)", "", "I((a + b) * 2)"),
        ("y | weights(`a | ~ b`) ~ nn(u)", "`a | ~ b`", ""),
        ("y |\n weights(w)\n ~ nn(u)", "w", ""),
    ],
)
def test_weights_and_trials_are_expressions(text, weights, trials):
    formula = parse_formula(text)
    assert (formula.weights, formula.trials) == (weights, trials)


@pytest.mark.parametrize(
    ("term", "intercept", "terms", "by", "correlated"),
    [
        ("(1 | g)", True, (), ("g",), True),
        ("(x | g)", True, ("x",), ("g",), True),
        ("(0 + x | g)", False, ("x",), ("g",), True),
        ("(x - 1 | g)", False, ("x",), ("g",), True),
        ("(x || g)", True, ("x",), ("g",), False),
        ("(1 + x*z | g)", True, ("x", "z", "x:z"), ("g",), True),
        ("(log(x) + poly(z, 2) | g)", True, ("log(x)", "poly(z, 2)"), ("g",), True),
        ("(1|g:h : k)", True, (), ("g", "h", "k"), True),
        ("(1 + `odd | name` | `a:b`)", True, ("`odd | name`",), ("a:b",), True),
        ("(1 | `g h`:x)", True, (), ("g h", "x"), True),
        ("(\n1\n|\ng\n)", True, (), ("g",), True),
    ],
)
@pytest.mark.parametrize("around", ["{} + nn(u)", "nn(u) + {}", "v + {} + nn(u)"])
def test_a_group_level_term_has_two_sides(term, intercept, terms, by, correlated, around):
    formula = parse_formula(f"y ~ {around.format(term)}")
    assert formula.mean.groups == (GroupTerm(term, intercept, terms, by, correlated),)
    assert formula.mean.structured == (("v",) if around.startswith("v") else ())


@pytest.mark.parametrize(
    ("text", "offsets", "smooths", "structured"),
    [
        ("offset(x) + offset(log(z))", ("x", "log(z)"), (), ()),
        ("offset(log(x) - z)", ("I(log(x) - z)",), (), ()),
        ("offset(`a b`)", ("`a b`",), (), ()),
        ("s(x)", (), (("x", 10),), ("x",)),
        ("s(x) + x", (), (("x", 10),), ("x",)),
        ("s(log(x), k=4) + z", (), (("log(x)", 4),), ("z", "log(x)")),
        ("s(`a b`, k = 200)", (), (("`a b`", 200),), ("`a b`",)),
        ("s + offset", (), (), ("s", "offset")),  # columns may be called so
    ],
)
def test_offsets_and_smooths_are_terms_of_their_own(text, offsets, smooths, structured):
    formula = parse_formula(f"y ~ {text} + nn(u)")
    assert formula.mean.offsets == offsets
    found = tuple((call.expression, call.option("k", DEFAULT_BASIS)) for call in formula.mean.calls)
    assert found == smooths
    assert sorted(formula.mean.structured) == sorted(structured)


def test_a_bar_in_backticks_or_in_quotes_is_none():
    text = "`y|z` ~ `c|d` + C(g, levels=['a|b', 'c']) + nn(`e | f`)"
    assert split_bars(text).plain == text
    assert parse_formula(text).mean.networks == (("`e | f`",),)


@pytest.mark.parametrize("text", [EVERYTHING, "y ~ (1 | g) + nn(u)", "y ~ x+(1|g)+(1|h)+nn(u)"])
def test_what_is_left_has_the_same_length_and_no_bar(text):
    plain = split_bars(text).plain
    assert len(plain) == len(text)
    assert "|" not in plain
    kept = [i for i, character in enumerate(plain) if character not in " 1"]
    assert all(plain[i] == text[i] for i in kept)


MISTAKES = [
    # left of ~
    ("y | weights(w «|» n) ~ nn(u)", "expected one '|' left of '~'"),
    (
        "y | «weights(w) | trials(n)» ~ nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    ("y «||» weights(w) ~ nn(u)", "expected one '|' left of '~'"),
    (
        "y | «~» nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub) between '|' and '~'",
    ),
    ("y | «w» ~ nn(u)", "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)"),
    ("y | «wieghts(w)» ~ nn(u)", "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)"),
    (
        "y | «sf(w)» + weights(w) ~ nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    (
        "y | weights(w) + «~» nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    ("y | weights(w) + «weights(v)» ~ nn(u)", "expected one weights()"),
    ("y | weights(«)» ~ nn(u)", "weights() takes one expression"),
    ("y | weights(«w, n») ~ nn(u)", "'w, n' is not allowed"),
    ("y | trials(«nn(w)») ~ nn(u)", "trials() takes one expression"),
    ("y | trials(«s(w)») ~ nn(u)", "trials() takes one expression"),
    ("y | weights(«lgo»(w)) ~ nn(u)", "Did you mean 'log'?"),
    ("y | weights(«w.x») ~ nn(u)", "write `w.x` in backticks"),
    (
        "y | «weights(w))» ~ nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    (
        "y | «weights((w)» ~ nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    (
        "y | «weights(w) * trials(n)» ~ nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    (
        "y | «weights(w)(n)» ~ nn(u)",
        "expected weights(w), trials(n), se(s), cens(c) or trunc(lb, ub)",
    ),
    ("y | weights(«lambda: x») ~ nn(u)", "'lambda: x' is not allowed"),
    ("| weights(w) «~» nn(u)", "needs one response left of '~'"),
    ("«offset(y)» ~ nn(u)", "needs one response left of '~'"),
    ("«s(y)» ~ nn(u)", "needs one response left of '~'"),
    # a bar that is no term
    ("y ~ x «|» g + nn(u)", "stands by itself in parentheses, as y ~ x + (1 + x | g)"),
    ("y ~ (x «|» g | h | i) + nn(u)", "stands by itself"),
    ("y ~ (x «|» g:h | i) + nn(u)", "stands by itself"),
    ("y ~ (x «||» g | h) + nn(u)", "stands by itself"),
    ("y ~ (x «||»| g) + nn(u)", "stands by itself"),
    ("y ~ «(1 | g)»:x + nn(u)", "stands by itself"),
    ("y ~ x:«(1 | g)» + nn(u)", "stands by itself"),
    ("y ~ x*«(1 | g)» + nn(u)", "stands by itself"),
    ("y ~ x - «(1 | g)» + nn(u)", "stands by itself"),
    ("y ~ «(1 | g)»**2 + nn(u)", "stands by itself"),
    ("y ~ (x + «(1 | g)») + nn(u)", "stands by itself"),
    ("y ~ («(1 | g)») + nn(u)", "stands by itself"),
    ("y ~ log«(1 | g)» + nn(u)", "stands by itself"),
    ("y ~ nn«(u | g)»", "stands by itself"),
    ("y ~ nn(u, «(1 | g)»)", "stands by itself"),
    ("y ~ (1 «|» g", "stands by itself"),
    ("y ~ 1 «|» g) + nn(u)", "stands by itself"),
    # its sides
    ("y ~ ( «|» g) + nn(u)", "expected 1 or a column here"),
    ("y ~ (1 | «)» + nn(u)", "expected a column here"),
    ("y ~ («0» | g) + nn(u)", "expected 1 or a column before the bar"),
    ("y ~ (1 | «g + h») + nn(u)", "expected a column, or several as g:h"),
    ("y ~ (1 | «C(g)») + nn(u)", "expected a column, or several as g:h"),
    ("y ~ (1 | «g/») + nn(u)", "expected a column, or several as g:h"),
    ("y ~ (1 | «3») + nn(u)", "expected a column, or several as g:h"),
    ("y ~ (1 | «2x») + nn(u)", "expected a column, or several as g:h"),
    ("y ~ (1 | «x.y») + nn(u)", "expected a column, or several as g:h"),
    ("y ~ («nn(x)» | g) + nn(u)", "nn() cannot vary by group"),
    ("y ~ («s(x)» | g) + nn(u)", "s() cannot vary by group; a smooth of each level"),
    ("y ~ («1 + mo(x)» | g) + nn(u)", "mo() cannot vary by group; slopes of whole numbers"),
    ("y ~ t2(x, z, «by=g») + nn(u)", "curves of each level of g are s(x, by=g) + s(z, by=g)"),
    ("y ~ («gp(x)» | g) + nn(u)", "a process of each level of g is gp(x, by=g)"),
    ("y ~ «mo(x):z» + nn(u)", "mo() cannot take part in an interaction; slopes of whole numbers"),
    ("y ~ («1 + offset(x)» | g) + nn(u)", "offset() cannot vary by group"),
    ("y ~ (1 + «lgo»(x) | g) + nn(u)", "Did you mean 'log'?"),
    ("y ~ («'a'» | g) + nn(u)", "cannot read text in quotes here"),
    # the intercept stays the network's
    ("y ~ «0» + (1 | g) + nn(u)", "this removes the intercept"),
    ("y ~ (1 | g) + «0» + nn(u)", "this removes the intercept"),
    ("y ~ (1 | g) «- 1» + nn(u)", "this removes the intercept"),
    ("y ~ x + (1 | g) «- 1» + nn(u)", "this removes the intercept"),
    # offset() and s()
    ("y ~ «offset()» + nn(u)", "offset() takes one expression, as offset(log(exposure))"),
    ("y ~ offset(x, «z») + nn(u)", "offset() takes one expression"),
    ("y ~ offset(«x=1») + nn(u)", "offset() takes one expression"),
    ("y ~ «offset(3)» + nn(u)", "'offset(3)' needs a column"),
    ("y ~ «offset(x):z» + nn(u)", "offset() cannot take part in an interaction"),
    ("y ~ offset(«offset(x)») + nn(u)", "offset() must be a term of its own"),
    ("y ~ log(«offset(x)») + nn(u)", "offset() must be a term of its own"),
    ("y ~ s(x, «4») + nn(u)", "s() takes one expression and k"),
    ("y ~ s(x, «k=2») + nn(u)", "s() takes one expression and k"),
    ("y ~ s(x, «k=1000») + nn(u)", "s() takes one expression and k"),
    ("y ~ s(x, «k=2.5») + nn(u)", "s() takes one expression and k"),
    ("y ~ s(x, «k=z») + nn(u)", "s() takes one expression and k"),
    ("y ~ s(x, «m=3») + nn(u)", "s() takes one expression and k"),
    ("y ~ «s(x):z» + nn(u)", "s() cannot take part in an interaction"),
    ("y ~ s(«s(x)») + nn(u)", "s() must be a term of its own"),
    ("y ~ nn(«s(x)»)", "s() must be a term of its own"),
]


def refusal(text):
    with pytest.raises(InputError) as caught:
        parse_formula(text)
    return str(caught.value)


@pytest.mark.parametrize(("marked", "reason"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_a_mistake_is_marked_at_its_column(marked, reason):
    start, end = marked.index("«"), marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")
    _, shown, carets, *message = refusal(text).split("\n")
    assert shown == f"  {text}"
    assert carets == "  " + " " * start + "^" * (end - start)
    assert reason in message[0]


@pytest.mark.parametrize("code", ['__import__("os").system("true")', "open('x')", "x.T", "(x := 1)",
                                  "eval('1')", "[a for a in x][0]", "{lambda: x}"])  # fmt: skip
@pytest.mark.parametrize(
    "place",
    [
        "y ~ offset({}) + nn(u)", "y ~ offset(log({})) + nn(u)", "y ~ s({}) + nn(u)",
        "y ~ s(x, k={}) + nn(u)", "y | weights({}) ~ nn(u)", "y | trials({}) ~ nn(u)",
        "y ~ ({} | g) + nn(u)", "y ~ (1 | {}) + nn(u)",
    ],
)  # fmt: skip
def test_nothing_is_called_that_is_not_listed(place, code, monkeypatch):
    def run(*_):
        raise AssertionError("evaluated")

    monkeypatch.setattr("os.system", run)
    assert refusal(place.format(code)).startswith("in the formula\n")
