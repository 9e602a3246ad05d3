import re

import numpy as np
import pytest

from semistan.program.program import bundle_program, labels, stan_program
from semistan.version import __version__
from support.small import RESPONSES, small_bundle, small_config, small_frame, small_prepared

BLOCKS = [
    "functions", "data", "transformed data", "parameters", "transformed parameters", "model",
    "generated quantities",
]  # fmt: skip
ODD = ["odd name", "größe", "a/*b", "b*/c", "a//b", "x{y}", '"q"', "a;b", "__a__", "lambda (1/s)"]
LONG = "a" + "_very_long" * 14


def program(formula="y ~ x + C(g) + nn(u, v)", frame=None, **settings):
    prepared = small_prepared(formula, frame, **settings)
    return stan_program(prepared.model)


def code(text):
    """The lines of the program without their comments, which is all that stanc reads."""
    lines = (re.sub(r"//.*", "", line).rstrip() for line in re.split(r"[\r\n]+", text))
    return "\n".join(line for line in lines if line)


def with_column(name):
    return program(f"y ~ `{name}` + nn(u)", small_frame().rename(columns={"x": name}))


@pytest.fixture(params=[
    {},
    *({"family": name, "formula": f"{response} ~ {terms}nn(u, v)"}
      for name, response in RESPONSES.items() for terms in ("", "x + C(g):z + poly(u, 3) + ")),
    *({"priors__sigma": text} for text in ("constant(2)", "exponential(1)", "cauchy(0, 1)")),
    {"priors__b": "student_t(3, 0, 1)", "priors__phi": "cauchy(0, 1)"},
    {"formula": "y ~ (scale(x) + scale(z) + center(u))**3 + nn(v)"},
    {"sample__integrate": "auto"},
    {"sample__integrate": "auto", "subspace__construction": "full"},
], ids=str)  # fmt: skip
def text(request):
    return program(**request.param)


def test_lines_fit_and_are_clean(text):
    assert text.endswith("}\n")
    for line in text.splitlines():
        assert len(line) <= 80, line
        assert "\t" not in line
        assert line == line.rstrip(), repr(line)


def test_no_name_ends_in_two_underscores(text):
    assert not re.search(r"\w__\b", code(text))


def test_the_blocks_come_in_stans_order_and_are_balanced(text):
    found = re.findall(r"^([a-z][a-z ]*) \{$", text, flags=re.MULTILINE)
    assert found == [block for block in BLOCKS if block in found]
    assert {*BLOCKS} - {*found} <= {"transformed parameters"}
    for opening, closing in ("()", "[]", "{}"):
        assert code(text).count(opening) == code(text).count(closing)


def test_every_statement_is_indented_by_two_spaces_within_its_block(text):
    inside = [line for line in text.splitlines() if line and line[0] not in "/}"]
    assert all(line.startswith("  ") or line.endswith(" {") for line in inside)


def test_arrays_have_the_new_syntax(text):
    assert not re.search(r"^\s*int\s+\w+\[", code(text), flags=re.MULTILINE)


def test_the_header_has_the_model_and_the_priors_as_used():
    lines, frame = program().splitlines(), small_frame()
    top = [line[2:].strip() for line in lines[: lines.index("functions {")]]
    assert "y ~ normal(eta, sigma)" in top
    assert "eta = eta_loc + eta_scale f(u, v; w) + (x - x_loc)' theta" in top
    assert f"b_x ~ normal(0, {2.5 * frame.y.std() / frame.x.std():.6g})" in top
    assert f"sigma ~ student_t(3, 0, {2.5 * frame.y.std():.6g})" in top


def test_the_header_tells_several_networks_and_their_weights_apart():
    lines = program("y ~ nn(v, shared='f') + nn(u), sigma ~ nn(z) + nn(v, shared='f')").splitlines()
    top = [line[2:].strip() for line in lines[: lines.index("functions {")]]
    assert "eta = eta_loc + eta_scale (f_mu(v; w_1) + f_2(u; w_2))" in top
    assert "log sigma = sigma_loc + f_3(z; w_3) + f_sigma(v; w_1)" in top
    assert "w = (w_1, w_2, w_3)" in top


def test_very_many_priors_of_a_kind_are_counted_by_their_key():
    columns = {f"a{j}": np.random.default_rng(j).normal(size=40) for j in range(15)}
    frame = small_frame(40).assign(**columns, sds=np.arange(40.0) ** 2)
    formula = f"y ~ {' + '.join(columns)} + sds + s(u) + s(v) + nn(z)"
    top = program(formula, frame).partition("functions {")[0]
    assert "b_a11 ~" in top and "b_a12 ~" not in top
    assert top.count("more of this kind") == 1 and "... and 6 more of this kind" in top
    assert "sds_su_1 ~" in top and "sds_sv_1 ~" in top


def test_the_header_says_where_the_program_comes_from():
    bundle, _ = small_bundle()
    lines = bundle_program(bundle).splitlines()
    assert lines[:4] == [
        f"// generated with semistan {__version__}",
        "// formula: y ~ x + C(g) + nn(u, v)",
        "// family: gaussian, link: identity",
        f"// bundle: {bundle.sha256}",
    ]


@pytest.mark.parametrize("name", RESPONSES)
def test_the_family_decides_the_density_and_the_type_of_the_response(name):
    text = program(f"{RESPONSES[name]} ~ x + nn(u)", family=name)
    density = {
        "gaussian": "normal_id_glm_lpdf", "poisson": "poisson_log_glm_lpmf",
        "bernoulli": "bernoulli_logit_glm_lpmf",
    }  # fmt: skip
    assert [glm for glm in density.values() if glm in text] == [density[name]]
    assert ("array[N] int y;" in text) == (name != "gaussian")
    assert ("real<lower=0> sigma;" in text) == (name == "gaussian")


@pytest.mark.parametrize(
    "settings",
    [
        {"network__hidden": [5, 4]},
        {"network__activation": "relu"},
        {"subspace__k": 3},
        {"priors__b": "normal(1, 7)"},
        {"priors__phi": "normal(0, 1)"},
        {"priors__sigma": "student_t(4, 1, 9)"},
        {"priors__autoscale": False},
        {"network__frozen": 1},
        {"train__epochs": 1},
        {"sample__chains": 1, "sample__threads": 3},
        {"frame": small_frame(17, seed=8)},
    ],
    ids=str,
)
def test_numbers_networks_and_data_leave_the_code_alone(settings):
    assert code(program(**settings)) == code(program())


@pytest.mark.parametrize(
    "settings",
    [
        {"subspace__free": "bias"},
        {"subspace__construction": "full"},
        {"priors__b": "student_t(3, 0, 2.5)"},
        {"priors__phi": "cauchy(0, 5)"},
        {"priors__sigma": "normal(0, 2.5)"},
        {"priors__sigma": "exponential(1)"},
        {"priors__sigma": "constant(1)"},
        {"family": "poisson", "formula": "count ~ x + C(g) + nn(u, v)"},
        {"formula": "y ~ z + C(g) + nn(u, v)"},
    ],
    ids=str,
)
def test_densities_families_and_names_change_the_code(settings):
    assert code(program(**settings)) != code(program())


SEVERAL = "nn(u, v) + nn(log(z), hidden=[3], frozen=0)"
OF_SIGMA = "y ~ x + nn(u, shared='f') + nn(v), sigma ~ nn(u, shared='f')"


@pytest.mark.parametrize(
    ("formula", "hidden", "expected"),
    [
        ("y ~ x + nn(u, v)", [3], "U: what the constant layers make of u, v"),
        (f"y ~ x + {SEVERAL}", [3],
         "U: what the constant layers make of u, v; and log(z), standardised"),
        (OF_SIGMA, [3, 2], "U: what the constant layers make of u, v"),
    ],
)  # fmt: skip
def test_constant_layers_are_told_of_at_the_top(formula, hidden, expected):
    text = program(formula, network__hidden=hidden, network__frozen=1)
    assert f"//   {expected}\n" in text
    assert "constant layers" not in program(formula, network__hidden=hidden)


def test_the_inputs_of_the_network_change_nothing_but_the_header():
    assert code(program("y ~ x + nn(u)")) == code(program("y ~ x + nn(v, z)"))


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        ("normal(0, 1)", "normal_lccdf"),
        ("student_t(3, 0, 1)", "student_t_lccdf"),
        ("cauchy(0, 1)", "cauchy_lccdf"),
        ("exponential(1)", None),
        ("constant(1)", None),
    ],
)
def test_priors_on_positive_parameters_are_truncated_where_needed(prior, expected):
    text = program(priors__sigma=prior)
    assert re.findall(r"\w+_lccdf", text) == ([expected] if expected else [])


def test_a_constant_dispersion_is_no_parameter():
    text = program(priors__sigma="constant(1)")
    assert "real<lower=0> sigma;" not in text
    assert "real sigma = prior_sigma_value;" in text


@pytest.mark.parametrize(
    ("family", "constant", "declared"),
    [
        ("skew_normal", {"alpha": "constant(-2)"}, "real prior_alpha_value;"),
        (
            "zero_inflated_poisson",
            {"zi": "constant(0.2)"},
            "real<lower=0, upper=1> prior_zi_value;",
        ),
    ],
)
def test_a_constant_is_declared_with_the_limits_of_its_parameter(family, constant, declared):
    assert declared in program("count ~ x + nn(u)", family=family, priors=constant)


@pytest.mark.parametrize("predictors", ["nn(u)", "nn(u, v)"])
def test_a_program_without_structured_terms_has_an_intercept_alone(predictors):
    text = program(f"y ~ {predictors}")
    assert re.findall(r"real (b_\w+)", text) == ["b_Intercept"]


def test_each_coefficient_has_a_speaking_name():
    text = program("y ~ x + C(g):z + nn(u)")
    names = re.findall(r"^  real (b_\w+) = theta\[(\d)\];", text, flags=re.MULTILINE)
    assert names == [("b_x", "1"), ("b_ga_z", "2"), ("b_gb_z", "3"), ("b_gc_z", "4")]


def test_labels_lead_from_speaking_names_to_columns():
    model = small_prepared("y ~ C(g) + log(z) + nn(u)").model
    assert labels(model) == {
        "b_Intercept": "Intercept", "b_gb": "C(g)[T.b]", "b_gc": "C(g)[T.c]", "b_logz": "log(z)",
    }  # fmt: skip


@pytest.mark.parametrize("name", [*ODD, LONG])
def test_any_column_name_is_harmless(name):
    text = with_column(name)
    assert code(text).isascii()
    (coefficient,) = re.findall(r"real (b_\w+) = theta\[1\];", text)
    assert re.fullmatch(r"b_[A-Za-z0-9_]*[A-Za-z0-9]", coefficient)
    plain = code(with_column("x")).replace("b_x", coefficient)
    assert re.sub(r"\s+", " ", code(text)) == re.sub(r"\s+", " ", plain)


@pytest.mark.parametrize("name", [*ODD, LONG[:55], LONG, LONG.replace("_", " ")])
def test_any_column_name_leaves_the_lines_short(name):
    for line in with_column(name).splitlines():
        assert len(line) <= 80 or re.fullmatch(r"  real b_\w{60,} = theta\[1\];", line)


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028"])
def test_a_line_break_in_a_formula_cannot_escape_its_comment(newline):
    config = small_config(f"y ~ x +{newline}reject(1); + nn(u)")
    text = stan_program(small_prepared("y ~ x + nn(u)").model.replace(config=config))
    assert code(text) == code(program("y ~ x + nn(u)"))


@pytest.mark.parametrize("newline", ["\n", "\r", "\r\n"])
def test_a_line_break_in_a_column_cannot_escape_its_comment(newline):
    text = with_column(f"x{newline}reject(1);")
    assert "reject(" not in code(text)


def test_the_program_needs_no_stan_function_that_it_does_not_define(text):
    defined = re.findall(r"^  (?:matrix|vector|int|real) (\w+)\(", text, flags=re.MULTILINE)
    network = {"activate", "affine", "n_weights", "hidden_layers", "network"}
    integral = {"integral_products", "in_units", "log_integral", "given_y_rng", "linear_part"}
    integrates = "linear_part" in defined
    assert set(defined) - {"output_inputs"} == network | (
        integral if integrates else {"partial_log_lik"}
    )
