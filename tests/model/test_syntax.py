import json
import time

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.errors import InputError
from semistan.model.design import design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.formula.syntax import formula_error
from semistan.program.program import bundle_program
from support.small import small_bundle, small_frame
from support.untrained import random_bundle


def refusal(text):
    with pytest.raises(InputError) as caught:
        parse_formula(text)
    return str(caught.value)


def marked(message):
    """Return what the carets of a message stand under."""
    _, formula, carets, *_ = message.split("\n")
    assert set(carets) <= {" ", "^"}
    return formula[carets.index("^") : carets.rindex("^") + 1]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("y ~ x + lgo(u) + nn(v)", "lgo"),
        ("y ~ lgx + lgo(lgo2) + nn(v)", "lgo"),
        ("y ~ größe + `a ~ b`:lgo(`ü + v`) + nn(v)", "lgo"),
        ("y ~ x\n  + z\n  + lgo(u) + nn(v)", "lgo"),
        ("lgo(y) ~ x + nn(v)", "lgo"),
        ("y ~ x + nn(u, lgo(v))", "lgo"),
        ("y ~ x + I(np.log(x)) + nn(v)", "np.log"),
        ("y ~ x + x.real + nn(v)", "x.real"),
        ("y ~ x + I(z[0]) + nn(v)", "z[0]"),
        ("y ~ x + I(f'{z}') + nn(v)", "f'{z}'"),
        ("y ~ x + I(9**9**9 + x) + nn(v)", "9**9**9"),
        ("y ~ x + poly(x, 5000) + nn(v)", "5000"),
        ("y ~ x + C(x + z) + nn(v)", "x + z"),
        ("y ~ x + log(x, z) + nn(v)", "z"),
        ("y ~ x + log(x, 2) + nn(v)", "2"),
        ("y ~ x + 'text' + nn(v)", "'text'"),
        ("y ~ x z + nn(v)", "z"),
        ("y ~ x + log(z + nn(v)", "("),
        ("y ~ x) + nn(v)", ")"),
        ("y ~ x | z + nn(v)", "|"),
        ("y ~ . + nn(v)", "."),
        ("y ~ x ~ nn(v)", "~"),
        ("y + z ~ nn(v)", "y + z"),
        ("y ~ 0 + x + nn(v)", "0"),
        ("y ~ x - 1 + nn(v)", "- 1"),
        ("y ~ x + z", "x + z"),
        ("y ~ nn(u, v) + x + nn(v, u)", "nn(v, u)"),
        ("y ~ x + nn(u, k=0)", "k=0"),
        ("y ~ log(nn(u))", "nn(u)"),
        ("y ~ z + s(x):nn(u)", "s(x):nn(u)"),
        ("y ~ x # comment + nn(u)", "#"),
        ("y ~ x + `1` + nn(u)", "`1`"),
        ("y ~ C(g, levels=['`1`', '``']) + x:`1` + nn(u)", "`1`"),
        ("y ~ x + nn(`1`)", "`1`"),
        ("y ~ x + (`1` | g) + nn(u)", "`1`"),
        ("y ~ x + nn(u), sigma ~ `1`", "`1`"),
        ("y ~ x + `` + nn(u)", "``"),
        ("y ~ x + nn(``, u)", "``"),
        ("y ~ x + nn(````)", "``"),
        ("y ~ a^2 + (b + c)^2 + lgo(x^2) + nn(v)", "lgo"),
        ("y ~ a^2 + b^2 z + nn(v)", "z"),
        ("y ~ a^2 + I(x^2^3) + nn(v)", "2^3"),
        ("y ~ a^2 + x^z + nn(v)", "x^z"),
        ("y ~ a^2 + x^-1 + nn(v)", "x^-1"),
        ("y^2 ~ a + nn(v)", "y^2"),
    ],
)
def test_the_place_of_a_mistake_is_marked(text, place):
    assert marked(refusal(text)) == place


@pytest.mark.parametrize("name", ["0", "2", "1.0", "-1", "1 "])
def test_a_column_may_be_called_like_another_number(name):
    frame = small_frame().rename(columns={"z": name})
    _, rows = learn_design(parse_formula(f"y ~ x + `{name}` + x:`{name}` + nn(`{name}`)"), frame)
    z = frame[name].to_numpy()
    assert np.array_equal(rows.X, np.column_stack([frame.x, z, frame.x * z]))
    assert np.array_equal(rows.U, z[:, None])


def test_what_to_do_about_a_column_called_1():
    assert "cannot be told from the intercept; rename it" in refusal("y ~ `1` + nn(u)")
    assert "expected the name of a column" in refusal("y ~ `` + nn(u)")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("y ~ y + nn(v)", "y"),
        ("log(y) ~ x + y:x + nn(v)", "y"),
        ("y ~ x + nn(v, log(y))", "y"),
        ("y ~ s(y) + nn(v)", "y"),
        ("y ~ offset(y) + nn(v)", "y"),
        ("y ~ (1 | y) + nn(v)", "y"),
        ("y ~ (1 + y | g) + nn(v)", "y"),
        ("y ~ x + nn(v), sigma ~ x + y", "y"),
        ("y ~ x + nn(v), sigma ~ nn(y)", "y"),
        ("`my y` | weights(w) ~ x + `my y` + nn(v)", "`my y`"),
        ("I(y - x) ~ x + nn(y)", "y"),
    ],
)
def test_a_response_among_its_predictors_is_refused(text, place):
    message = refusal(text)
    assert "is the response, which cannot be a predictor of itself" in message
    assert marked(message) == place
    _, formula, carets, *_ = message.split("\n")
    assert carets.index("^") > formula.index("~")


def test_a_change_may_be_adjusted_for_where_it_began():
    formula = parse_formula("I(after - before) ~ before + nn(u)")
    assert formula.mean.structured == ("before",)


def test_an_error_shows_the_formula_and_what_was_expected():
    assert refusal("y ~ x + lgo(u) + nn(v)") == (
        "in the formula\n"
        "  y ~ x + lgo(u) + nn(v)\n"
        "          ^^^\n"
        "function 'lgo' is not available. Did you mean 'log'?"
    )


@pytest.mark.parametrize("before", [0, 3, 30, 300])
@pytest.mark.parametrize("after", [0, 3, 30, 300])
def test_a_long_formula_is_shown_around_the_place(before, after):
    terms = [f"a{i}" for i in range(before)] + ["lgo(x)"] + [f"b{i}" for i in range(after)]
    message = refusal(f"y ~ {' + '.join(terms)} + nn(u)")
    assert marked(message) == "lgo"
    assert len(message.split("\n")[1]) < 120


def test_a_column_that_the_data_lack_is_marked():
    with pytest.raises(InputError) as caught:
        learn_design(parse_formula("y ~ x + log(zz):xx + nn(u)"), small_frame())
    assert marked(str(caught.value)) == "zz"


def test_a_piece_that_is_not_there_marks_the_whole_formula():
    assert marked(str(formula_error("y ~ x", "wrong", "absent"))) == "y ~ x"


HOSTILE = {
    "attribute": "I(x.__class__.__mro__)",
    "call of an attribute": "x.to_pickle('stolen')",
    "import": "I(__import__('os').system('true'))",
    "dunder call": "__import__('os')",
    "lambda": "I((lambda: x)())",
    "comprehension": "I([a for a in x][0])",
    "set comprehension": "{a for a in x}",
    "generator": "I(sum(a for a in x))",
    "f-string": "I(f'{x.__class__}')",
    "f-string in a list of levels": "C(g, levels=[f'{g.__class__}'])",
    "walrus": "I((a := x))",
    "walrus in a call": "log(a := x)",
    "subscript": "I(x[0])",
    "keyword": "log(x, out=x)",
    "second argument": "log(x, z)",
    "keyword with a call": "C(g, levels=eval('1'))",
    "star": "poly(*x)",
    "two stars": "poly(x, **z)",
    "coding with a call": "C(g, contr.treatment(base=eval('1')))",
    "coding with an attribute": "C(g, contr.treatment.__init__)",
    "coding outside of C": "I(contr.sum(x))",
    "dictionary": "C(g, {'a': x})",
    "power of numbers": "I(9**9**9)",
    "power of numbers beside a column": "I(x + 9**9**9)",
    "power in an exponent": "I(x**9**9**9)",
    "power in an option": "poly(x, 9**9**9)",
    "huge degree": "poly(x, 10000000000)",
    "huge degrees of freedom": "bs(x, df=10000000000)",
    "huge number": f"I(x * {'9' * 5000})",
    "large number": f"I(x * {'9' * 20})",
    "repeated text": "I('a' * 999999999)",
    "repeated list": "C(g, levels=['a'] * 999999999)",
    "huge power of terms": "(x + z)**999999999",
    "power of a power of terms": f"{'(' * 9}x + z){')'.join(['**99'] * 9)}",
    "exponential interaction": "*".join(f"x{i}" for i in range(40)),
    "very long": " + ".join("x" * 100 for _ in range(2000)),
    "deep parentheses": f"I({'(' * 5000}x{')' * 5000})",
    "deep signs": f"I({'-' * 50_000}x)",
    "deep calls": f"{'log(' * 2000}x{')' * 2000}",
    "deep sums": f"I({'x + ' * 20_000}x)",
    "matrix product": "I(x @ x)",
    "comparison": "I(x < 1)",
    "shift": "I(1 << 999999999999)",
    "conditional": "I(x if x else z)",
    "await": "I(await x)",
    "yield": "I((yield x))",
    "ellipsis": "I(...)",
    "bytes": "I(b'a')",
    "complex": "I(1j * x)",
    "comment": "x # `",
    "another line": "x\nimport os",
    "null": "x\0",
    "semicolon": "x; import os",
}


ARITHMETIC_IN_NN = (
    "huge power of terms", "power of a power of terms", "exponential interaction",
)  # fmt: skip
CASES = [
    (name, place)
    for place in ("y ~ {} + nn(u)", "y ~ x + nn(u, {})", "{} ~ nn(u)")
    for name in HOSTILE
    if not (name in ARITHMETIC_IN_NN and "nn(u, " in place)
]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_a_hostile_formula_is_refused_at_once(name, place):
    started = time.monotonic()
    refusal(place.format(HOSTILE[name]))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_text_the_error_is_in_words(seed):
    generator = np.random.default_rng(seed)
    pieces = ["x", "nn(", "u", ")", "(", "~", "+", "*", ":", "log(", "C(", ",", "`", "'", "{", "}",
              "[", "]", "**", "2", "0", "-", ".", "^", "%in%", "=", "\\", "#", "\n", "é", " ", "|",
              "lambda", "poly(", '"', "/", "%", "@", "!", "1e9", "_"]  # fmt: skip
    for _ in range(100):
        text = "".join(generator.choice(pieces, size=generator.integers(1, 15)))
        try:
            parse_formula(f"y ~ x + {text} + nn(v)")
        except InputError as error:
            assert str(error)


@pytest.fixture
def plain():
    frame = small_frame().assign(day=pd.date_range("2020-01-01", periods=30))
    design, _ = learn_design(parse_formula("y ~ poly(x, 2) + C(g) + nn(u, g, days(day))"), frame)
    return json.loads(json.dumps(design_to_plain(design)))


def test_an_honest_design_is_read(plain):
    assert design_to_plain(design_from_plain(plain)) == plain


@pytest.mark.parametrize("part", ["x", "u"])
@pytest.mark.parametrize(
    "term",
    [
        "I(__import__('pathlib').Path('stolen').touch())",
        "x + __import__('os')",
        "g.__class__",
        "log(x):eval('1')",
        "`x`.values",
        "lgo(x)",
    ],
)
def test_a_design_with_a_hostile_term_is_refused(plain, part, term, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    terms = plain["x"] if part == "x" else plain["networks"][0]
    terms["terms"][0] = term
    with pytest.raises(InputError):
        design_from_plain(plain)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p.update(formula="y ~ I(eval('1')) + nn(u)"),
        lambda p: p.update(formula="y ~ z + nn(v)"),
        lambda p: p["x"]["levels"].update({"eval('1')": ["a"]}),
        lambda p: p["x"]["levels"].update({"C(g)": 3}),
        lambda p: p["x"]["columns"].pop(),
        lambda p: p["networks"][0].update(loc=[float("nan")] * 5),
        lambda p: p["networks"][0].update(scale=["a"] * 5),
        lambda p: p["networks"][0].pop("terms"),
        lambda p: p["networks"].append(p["networks"][0]),
        lambda p: p.update(networks=[]),
        lambda p: p.update(x=[]),
        lambda p: p["x"].update(transforms=[1]),
        lambda p: p["x"]["transforms"].update(a={"__array__": [[1], [2, 3]]}),
        lambda p: p["x"]["transforms"].update(a={"__pairs__": [1]}),
        lambda p: p.update(origins={"day": "soon"}),
        lambda p: p.update(origins={}),
        lambda p: p.update(origins=3),
    ],
)
def test_a_design_that_does_not_fit_its_formula_is_refused(plain, spoil):
    spoil(plain)
    with pytest.raises(InputError):
        design_from_plain(plain)


def test_a_bundle_with_a_hostile_term_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bundle(random_bundle("gaussian")[0], tmp_path / "bundle")
    path = tmp_path / "bundle" / "bundle.json"
    content = json.loads(path.read_text())
    content["design"]["x"]["terms"][0] = "I(open('stolen', 'w'))"
    path.write_text(json.dumps(content))
    with (
        semistan.trust_edited(),
        pytest.raises(InputError, match="'open' is not available"),
    ):
        read_bundle(tmp_path / "bundle")
    assert not (tmp_path / "stolen").exists()


def test_a_hostile_name_cannot_leave_the_comments_of_the_program():
    frame = small_frame().rename(columns={"x": "a\n} real evil;"})
    frame["g"] = frame["g"].replace({"c": "z\n} real evil; */"})
    bundle, _ = small_bundle("y ~ `a\n} real evil;` + g\n + nn(u, g)", frame)
    program = bundle_program(bundle)
    assert "evil" in program
    assert not [line for line in program.splitlines() if "real evil" in line.split("//")[0]]
