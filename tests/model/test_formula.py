import re

import pytest

from semistan.errors import InputError
from semistan.model.formula.expression import variables
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.syntax import CALLABLE


def arguments(formula):
    return tuple(network.arguments for network in formula.networks)


def refusal(text):
    with pytest.raises(InputError) as caught:
        parse_formula(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "response", "structured", "network"),
    [
        ("y ~ nn(u)", "y", (), ("u",)),
        ("y ~ x + C(g) + nn(u, v)", "y", ("x", "C(g)"), ("u", "v")),
        ("log(y) ~ x*z + nn(u)", "log(y)", ("x", "z", "x:z"), ("u",)),
        ("y ~ nn(u) + x", "y", ("x",), ("u",)),
        ("y ~ 1 + x + (nn(u))", "y", ("x",), ("u",)),
        ("y ~ (x + z)**2 + nn(u)", "y", ("x", "z", "x:z"), ("u",)),
        ("y ~ x + z - x + nn(u)", "y", ("z",), ("u",)),
        ("y ~ {x**2} + nn(log(u), scale(v))", "y", ("I(x ** 2)",), ("log(u)", "scale(v)")),
        ("y ~ größe + nn(übung)", "y", ("größe",), ("übung",)),
        ("y ~ x\n  + nn(u)", "y", ("x",), ("u",)),
    ],
)
def test_a_formula_has_three_parts(text, response, structured, network):
    formula = parse_formula(text)
    assert (formula.response, arguments(formula)) == (response, (network,))
    assert formula.mean.structured == structured


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("y ~ x + nn(u, v)", (("u", "v"),)),
        ("y ~ nn(u, v) + x + nn(w)", (("u", "v"), ("w",))),
        ("y ~ nn(w) + nn(u, log(w)) + nn(u)", (("w",), ("u", "log(w)"), ("u",))),
        ("y ~ nn(`a nn(b`) + nn(b)", (("`a nn(b`",), ("b",))),
    ],
)
def test_each_nn_is_a_network_of_its_own(text, networks):
    assert arguments(parse_formula(text)) == networks


@pytest.mark.parametrize(
    ("term", "columns"),
    [
        ("log(x):C(g)", ("x", "g")),
        ("C(g, contr.sum)", ("g",)),
        ("poly(x, degree=2)", ("x",)),
        ("I(x + x / z)", ("x", "z")),
        ("`odd name`:`a:b`", ("odd name", "a:b")),
    ],
)
def test_the_columns_of_a_term_are_named_once_and_in_order(term, columns):
    assert variables(term) == columns


@pytest.mark.parametrize(
    "column",
    ["odd name", "a:b", "a+b", "weight (kg)", "a (cm", "x.real", "2x", "naïve name", "it's", "~"],
)
def test_a_quoted_column_may_have_any_name(column):
    formula = parse_formula(f"y ~ `{column}`:x + nn(`{column}`, v)")
    assert formula.mean.structured_variables in ((column, "x"), ("x", column))
    assert arguments(formula) in (((f"`{column}`", "v"),), ((column, "v"),))
    assert formula.network_variables == (column, "v")


@pytest.mark.parametrize("term", ["class", "lambda", "`class`", "`from`", "`None`"])
def test_a_python_keyword_is_a_column_like_any_other(term):
    assert parse_formula(f"y ~ {term} + nn(u)").mean.structured_variables == (term.strip("`"),)


@pytest.mark.parametrize("quote", ["", "`"])
@pytest.mark.parametrize("word", ["class", "if", "in", "is", "lambda", "not"])
def test_a_python_keyword_may_stand_wherever_a_column_may(word, quote):
    name = f"{quote}{word}{quote}"
    formula = parse_formula(
        f"y | weights({name}) ~ C({name}):x + s({name}) + offset(log({name})) + (1 + {name} | g) "
        f"+ (1 | {name}:h) + nn({name}, I({name} * 2)), sigma ~ scale({name}) + nn({name})"
    )
    assert formula.mean.structured == (f"C(`{word}`):x", f"`{word}`")
    assert arguments(formula) == ((f"`{word}`", f"I(`{word}` * 2)"), (f"`{word}`",))
    assert formula.mean.offsets == (f"log(`{word}`)",)
    assert formula.mean.groups[0].terms == (f"`{word}`",)
    assert formula.mean.groups[1].by == (word, "h")
    assert formula.weights == f"`{word}`"
    assert formula.others[0].structured == (f"scale(`{word}`)",)
    assert parse_formula(f"{name} ~ nn(u)").outcome == (word,)


@pytest.mark.parametrize("text", ["y ~ a if b else c + nn(u)", "y ~ not x + nn(u)", "y ~ a in b"])
def test_words_of_python_are_columns_and_no_operators(text):
    assert "cannot read" in refusal(text)


@pytest.mark.parametrize(
    "expression", ["(x + 1) * (z + 2)", "log(x) + log(z)", "x + 1", "-x", "x * (z)"]
)
def test_braces_make_one_term_of_arithmetic(expression):
    (term,) = parse_formula(f"y ~ {{{expression}}} + nn(u)").mean.structured
    assert term.startswith("I(")


@pytest.mark.parametrize(
    ("term", "terms"),
    [
        ("W^2", ("W",)),
        ("(a + b)^2", ("a", "b", "a:b")),
        ("(a + b + c)^2 - a:b", ("a", "b", "c", "a:c", "b:c")),
        ("a + (b + c) ^ 2", ("a", "b", "c", "b:c")),
        ("a:b^2", ("a:b",)),
        ("a*b^2", ("a", "b", "a:b")),
        ("(a + b)^2:c", ("a:c", "b:c", "a:b:c")),
        ("`x^2`^2", ("`x^2`",)),
        ("W + I(W^2)", ("W", "I(W ** 2)")),
        ("I(2 * (a + b)^2 + c)", ("I(2 * (a + b) ** 2 + c)",)),
        ("I(-W^2)", ("I(-W ** 2)",)),
        ("log(W^2)", ("log(W ** 2)",)),
        ("{W^2}", ("I(W ** 2)",)),
    ],
)
def test_a_power_is_what_it_is_in_r(term, terms):
    """The terms are those of ``attr(terms(~ ...), "term.labels")``."""
    formula = parse_formula(f"y ~ {term} + nn(u), sigma ~ {term}")
    assert formula.mean.structured == terms
    assert formula.others[0].structured == terms


def test_a_power_within_a_call_is_arithmetic():
    formula = parse_formula(
        "I(y^2) | weights(w^2) ~ s(x^2) + offset(z^2) + ((a + b)^2 | g) + nn(u^2, v)"
    )
    assert formula.response == "I(y ** 2)"
    assert formula.weights == "I(w ** 2)"
    assert formula.mean.calls[0].expression == "I(x ** 2)"
    assert formula.mean.offsets == ("I(z ** 2)",)
    assert formula.mean.groups[0].terms == ("a", "b", "a:b")
    assert arguments(formula) == (("I(u ** 2)", "v"),)


@pytest.mark.parametrize("name", CALLABLE)
def test_every_listed_function_can_be_called(name):
    assert parse_formula(f"y ~ {name}(x) + nn({name}(u))").columns == ("x", "u")


@pytest.mark.parametrize("contrast", ["contr.sum", "contr.treatment('b')", "contr.treatment"])
def test_the_contrasts_of_formulaic_can_be_chosen(contrast):
    assert parse_formula(f"y ~ C(g, {contrast}) + nn(u)").columns == ("g", "u")


@pytest.mark.parametrize(
    "expression",
    [
        "I(x.__class__)",
        "I(x.real)",
        "I(().__class__.__bases__)",
        "I(__import__('os').system('true'))",
        "I(__builtins__.eval('1'))",
        "I(getattr(x, 'T'))",
        "I(eval('1'))",
        "I(open('f'))",
        "I((lambda: x)())",
        "I(lambda: x)",
        "I([a for a in x])",
        "I({a for a in x})",
        "I({'a': x})",
        "I(sum(a for a in x))",
        "I(f'{x}')",
        "I(x[0])",
        "I((a := x))",
        "I(x if x else 1)",
        "I(x > 1)",
        "I(x and z)",
        "I(poly(*x))",
        "I(log(x)(x))",
        "np.log(x)",
        "I(contr.__init__)",
        "I(contr.sum.__class__)",
        "log(x, out=__import__('os'))",
        "log(x, out=x.real)",
        "C(g, levels=[a for a in x])",
    ],
)
@pytest.mark.parametrize("place", ["y ~ {} + nn(u)", "y ~ x + nn(u, {})", "{} ~ nn(u)"])
def test_arbitrary_python_is_refused(expression, place):
    message = refusal(place.format(expression))
    assert re.search("is not allowed|is not available|cannot read", message), message


def test_dunder_names_are_columns_and_nothing_else():
    assert parse_formula("y ~ __builtins__ + nn(u)").mean.structured_variables == ("__builtins__",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a formula looks like"),
        ("y", "a formula looks like"),
        ("y ~ x ~ nn(u)", "a formula looks like"),
        ("~ nn(u)", "needs one response"),
        ("y + z ~ nn(u)", "needs one response"),
        ("y:z ~ nn(u)", "needs one response"),
        ("1 ~ nn(u)", "needs one response"),
        ("nn(y) ~ nn(u)", "must be a term of its own|needs one response"),
        ("y ~ 0 + nn(u)", "removes the intercept"),
        ("y ~ x - 1 + nn(u)", "removes the intercept"),
        ("y ~ x", r"needs an nn\(\) term"),
        ("y ~ ", r"needs an nn\(\) term"),
        ("y ~ nn(u) + x + nn(u)", "the same arguments"),
        ("y ~ nn(u, log(v)) + nn(log( v ),u)", "the same arguments"),
        ("y ~ nn(u) + nn(v, m=3)", "m=3"),
        ("y ~ nn()", "at least one column"),
        ("y ~ nn(1)", "column|number"),
        ("y ~ nn(u, k=0)", "k=0"),
        ("y ~ nn(u, hidden=16)", "hidden=16"),
        ("y ~ nn(u, hidden=[16, 'a'])", r"hidden=\[16, 'a'\]"),
        ("y ~ nn(u, activation=tanh)", "activation=tanh"),
        ("y ~ nn(u, v, [16])", "not allowed|column"),
        ("y ~ nn(*u)", "not allowed"),
        ("y ~ log(nn(u))", "term of its own"),
        ("y ~ nn(u, nn(v))", "term of its own"),
        ("y ~ x | z + nn(u)", "stands by itself"),
        ("y ~ . + nn(u)", "name the columns"),
        ("y ~ x + + nn(u", "cannot read"),
        ("y ~ 'a' + nn(u)", "cannot read"),
        ("y ~ lgo(x) + nn(u)", "Did you mean 'log'"),
    ],
)
def test_a_wrong_formula_is_refused_with_its_reason(text, message):
    assert re.search(message, refusal(text))


@pytest.mark.parametrize(
    "text", ["y ~ x", "y ~ 0 + nn(u)", "y ~ nn(u) + nn(u)", "y ~ foo(x)+nn(u)"]
)
def test_a_refusal_quotes_the_formula(text):
    assert text in refusal(text)


def test_layers_are_read_and_may_be_left_out():
    text = (
        'y ~ x + nn(u, `odd v`, hidden=[32, 8], activation="relu") + nn(v), '
        "sigma ~ nn(z, hidden=[])"
    )
    formula = parse_formula(text)
    assert arguments(formula) == (("u", "`odd v`"), ("v",), ("z",))
    options = [network.options for network in formula.networks]
    assert options == [{"hidden": [32, 8], "activation": "relu"}, {}, {"hidden": []}]
    assert parse_formula("y ~ nn(u), sigma ~ z").mean.layers == ({},)
