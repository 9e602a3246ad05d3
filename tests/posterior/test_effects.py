import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.posterior.effects.effect import conditional_effect, partial_dependence
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred, posterior_linpred
from support.by_hand import eta_by_hand
from support.drawn import random_draws
from support.small import category_bundle, category_frame, small_bundle, small_frame

LINEAR = {"network__hidden": []}


def frame_with_kinds():
    """Columns of every kind."""
    generator = np.random.default_rng(5)
    return small_frame().assign(
        on=generator.random(30) < 0.5,
        code=generator.integers(0, 4, 30),
        year=generator.integers(1900, 2000, 30),
    )


@pytest.fixture(scope="module")
def linear():
    """Column z is in the structured part and in the network, always as log(z)."""
    formula = "y ~ x + log(z) + C(g) + nn(log(z), v)"
    bundle, _ = small_bundle(formula, **LINEAR)
    return bundle, random_draws(bundle), small_frame()


@pytest.fixture(scope="module")
def curved():
    """A poisson model with a hidden layer, an interaction, and columns of every kind."""
    frame = frame_with_kinds()
    formula = "count ~ x*g + on + C(code) + log(z) + nn(u, v, year, log(z))"
    bundle, _ = small_bundle(formula, frame, family="poisson")
    return bundle, random_draws(bundle), frame


def design_by_hand(frame):
    """X and U of the linear model."""
    g, log_z = frame["g"], np.log(frame["z"])
    X = np.column_stack([frame["x"], log_z, g == "b", g == "c"]).astype(float)
    return X, np.column_stack([log_z, frame["v"]])


def curved_by_hand(bundle, draws, frame):
    """Draws of mu (S, N) of the curved model."""
    x, g, log_z = frame["x"], frame["g"], np.log(frame["z"])
    columns = {
        "x": x, "g[T.b]": g == "b", "g[T.c]": g == "c", "on": frame["on"], "log(z)": log_z,
        "x:g[T.b]": x * (g == "b"), "x:g[T.c]": x * (g == "c"),
        **{f"C(code)[T.{level}]": frame["code"] == level for level in (1, 2, 3)},
    }  # fmt: skip
    X = np.column_stack([columns[name].astype(float) for name in bundle.design.x.columns])
    U = np.column_stack([frame["u"], frame["v"], frame["year"], log_z])
    return np.exp(eta_by_hand(bundle, draws, X, U))


def refusal(function, *arguments, **options):
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    return str(caught.value)


def test_a_conditional_effect_is_x_theta_plus_f_at_typical_values(linear):
    bundle, draws, frame = linear
    effect = conditional_effect(
        SubspacePosterior(bundle, draws), frame, "z", scale="linpred", resolution=7
    )
    z = np.linspace(frame["z"].min(), frame["z"].max(), 7)
    means = {name: frame[name].mean() for name in ("x", "v")}
    expected = eta_by_hand(bundle, draws, *design_by_hand(pd.DataFrame({"z": z, "g": "a"} | means)))
    assert np.allclose(effect.draws, expected, rtol=1e-12)
    assert np.array_equal(effect.grid["z"], z)
    assert effect.reference == pytest.approx({"g": "a"} | means)
    assert (effect.kind, effect.variables, effect.curves) == ("conditional", ("z",), None)


def test_a_conditional_effect_on_the_response_scale_is_the_mean(curved):
    bundle, draws, frame = curved
    held = {name: frame[name].mean() for name in ("x", "z", "v", "year")}
    held |= {"g": "a", "on": False, "code": 0}
    effect = conditional_effect(SubspacePosterior(bundle, draws), frame, ["u"], resolution=5)
    rows = effect.grid.assign(**held)
    assert np.allclose(effect.draws, curved_by_hand(bundle, draws, rows), rtol=1e-12)
    assert effect.reference == pytest.approx(held)


def test_other_columns_can_be_held_elsewhere(curved):
    bundle, draws, frame = curved
    at = {"g": "c", "x": -18.5, "on": True, "code": 2}
    text = {name: str(value) for name, value in at.items()}
    rest = {name: frame[name].mean() for name in ("u", "z", "year")}
    effect, same = (
        conditional_effect(SubspacePosterior(bundle, draws), frame, "v", at=held, resolution=4)
        for held in (at, text)
    )
    rows = effect.grid.assign(**at, **rest)
    assert np.allclose(effect.draws, curved_by_hand(bundle, draws, rows), rtol=1e-12)
    assert np.array_equal(effect.draws, same.draws)
    assert effect.reference == same.reference == pytest.approx(at | rest)


def test_partial_dependence_of_an_additive_term_is_the_term_plus_a_constant(linear):
    bundle, draws, frame = linear
    effect = partial_dependence(
        SubspacePosterior(bundle, draws),
        frame,
        "z",
        scale="linpred",
        resolution=9,
        generator=np.random.default_rng(1),
    )
    at_mean = frame.mean(numeric_only=True)
    X, U = design_by_hand(effect.grid.assign(x=at_mean["x"], v=at_mean["v"], g="a"))
    X[:, 2:] = [(frame["g"] == level).mean() for level in "bc"]
    assert np.allclose(effect.draws, eta_by_hand(bundle, draws, X, U), rtol=1e-12)
    assert (effect.kind, effect.reference) == ("partial dependence", {})


@pytest.mark.parametrize("names", [("z",), ("x", "g"), ("code", "on"), ("v", "year")])
def test_partial_dependence_is_a_loop_over_points_in_pieces_of_any_size(curved, names, monkeypatch):
    bundle, draws, frame = curved
    monkeypatch.setattr("semistan.posterior.effects.effect.DESIGN_ROWS", 3 * len(frame))
    monkeypatch.setattr("semistan.posterior.predictive.CHUNK_PREDICTIONS", 7 * draws.size)
    effect = partial_dependence(
        SubspacePosterior(bundle, draws),
        frame,
        names,
        resolution=4,
        generator=np.random.default_rng(1),
    )
    for g, point in enumerate(effect.grid.to_dict("records")):
        mu = curved_by_hand(bundle, draws, frame.assign(**point))
        assert np.allclose(effect.draws[:, g], mu.mean(axis=1), rtol=1e-12)
    assert effect.draws.shape == (draws.size, len(effect.grid))


def test_individual_curves_are_posterior_means_of_rows_and_average_to_the_dependence(curved):
    bundle, draws, frame = curved
    effect = partial_dependence(
        SubspacePosterior(bundle, draws),
        frame,
        "u",
        resolution=5,
        curves=30,
        generator=np.random.default_rng(1),
    )
    assert np.allclose(effect.curves.mean(axis=0), effect.draws.mean(axis=0), rtol=1e-12)
    for i in range(len(frame)):
        row = pd.concat([frame.iloc[[i]]] * 5).assign(u=effect.grid["u"].to_numpy())
        mu = curved_by_hand(bundle, draws, row).mean(axis=0)
        assert np.allclose(effect.curves[i], mu, rtol=1e-12)


def test_fewer_rows_and_curves_are_drawn_by_the_generator(curved):
    bundle, draws, frame = curved

    def drawn(seed, rows, curves):
        generator = np.random.default_rng(seed)
        return partial_dependence(
            SubspacePosterior(bundle, draws),
            frame,
            "u",
            resolution=3,
            rows=rows,
            curves=curves,
            generator=generator,
        )

    everyone, sampled, some = drawn(1, 30, 30), drawn(2, 12, 12), drawn(2, 12, 4)

    def positions(effect, among):
        return [
            np.flatnonzero((among.curves == curve).all(axis=1)).item() for curve in effect.curves
        ]

    assert positions(sampled, everyone) == sorted(set(positions(sampled, everyone)))
    assert positions(some, sampled) == sorted(set(positions(some, sampled)))
    assert (len(sampled.curves), len(some.curves)) == (12, 4)
    assert positions(some, sampled) != [0, 1, 2, 3]
    assert np.array_equal(sampled.draws, some.draws)
    assert np.allclose(sampled.curves.mean(axis=0), some.draws.mean(axis=0), rtol=1e-12)
    assert not np.array_equal(drawn(3, 12, 4).draws, some.draws)


def test_partial_dependence_of_the_linear_predictor_averages_eta(curved):
    bundle, draws, frame = curved
    effect = partial_dependence(
        SubspacePosterior(bundle, draws),
        frame,
        "g",
        scale="linpred",
        generator=np.random.default_rng(1),
    )
    eta = np.log(curved_by_hand(bundle, draws, frame.assign(g="b")))
    assert np.allclose(effect.draws[:, 1], eta.mean(axis=1), rtol=1e-12)
    assert (effect.scale, effect.curves) == ("linpred", None)


def asked(model):
    bundle, draws, frame = model
    return SubspacePosterior(bundle, draws), frame


def grid(curved, *names, resolution=4):
    return conditional_effect(*asked(curved), names, resolution=resolution).grid


def test_numeric_columns_span_their_range(curved):
    (_, _, frame), u = curved, grid(curved, "u")["u"]
    assert np.allclose(u, frame["u"].min() + np.arange(4) / 3 * np.ptp(frame["u"]), rtol=1e-14)
    year = grid(curved, "year", resolution=21)["year"]
    assert len(np.unique(frame["year"])) > len(year) - 1
    assert (len(year), year.iloc[0], year.iloc[-1]) == (
        21, frame["year"].min(), frame["year"].max(),
    )  # fmt: skip


@pytest.mark.parametrize(("values", "points"), [((1, 2, 5), 3), ((0.5, 2, 5), 7)])
def test_whole_numbers_with_few_values_are_their_own_grid(values, points):
    frame = small_frame().assign(stage=np.repeat(np.array(values, dtype=float), 10))
    bundle, _ = small_bundle("y ~ x + nn(u, stage)", frame)
    effect = conditional_effect(
        SubspacePosterior(bundle, random_draws(bundle)), frame, "stage", resolution=7
    )
    assert np.allclose(
        effect.grid["stage"], np.linspace(values[0], 5, 7) if points == 7 else values
    )


def test_factors_and_booleans_have_their_levels(curved):
    assert list(grid(curved, "g")["g"]) == ["a", "b", "c"]
    assert list(grid(curved, "code")["code"]) == [0, 1, 2, 3]
    assert list(grid(curved, "on")["on"]) == [False, True]


def test_the_order_of_a_categorical_is_kept():
    frame = small_frame().assign(g=lambda f: pd.Categorical(f["g"], ["c", "a", "b"]))
    bundle, _ = small_bundle("y ~ g + nn(u, v)", frame)
    draws = random_draws(bundle)
    assert list(conditional_effect(SubspacePosterior(bundle, draws), frame, "g").grid["g"]) == [
        "c",
        "a",
        "b",
    ]
    assert conditional_effect(SubspacePosterior(bundle, draws), frame, "u").reference["g"] == "c"


def test_two_columns_are_crossed_and_the_last_varies_fastest(curved):
    both = grid(curved, "g", "u", resolution=2)
    assert list(both["g"]) == ["a", "a", "b", "b", "c", "c"]
    assert np.array_equal(both["u"], np.tile(grid(curved, "u", resolution=2)["u"], 3))


def test_a_spline_is_shown_up_to_the_ends_of_its_range():
    bundle, _ = small_bundle("y ~ bs(x, df=4) + `odd name` + nn(u)", small_frame().assign(
        **{"odd name": lambda f: f["g"]}))  # fmt: skip
    frame = small_frame().assign(**{"odd name": lambda f: f["g"]})
    draws = random_draws(bundle)
    effect = partial_dependence(
        SubspacePosterior(bundle, draws),
        frame,
        "x",
        resolution=3,
        rows=5,
        generator=np.random.default_rng(1),
    )
    assert effect.grid["x"].iloc[-1] == frame["x"].max()
    assert list(
        conditional_effect(SubspacePosterior(bundle, draws), frame, "odd name").grid["odd name"]
    ) == [*"abc"]


def test_the_table_has_brms_columns(linear):
    effect = conditional_effect(*asked(linear), ["x", "g"], resolution=2)
    table = effect.table(0.9)
    assert list(table) == ["x", "g", "Estimate", "Est.Error", "l-90% CI", "u-90% CI"]
    assert table[["x", "g"]].equals(effect.grid)
    assert np.allclose(table["Estimate"], effect.draws.mean(axis=0))
    assert np.allclose(table["Est.Error"], effect.draws.std(axis=0, ddof=1))
    assert np.allclose(table["l-90% CI"], np.percentile(effect.draws, 5, axis=0))
    assert np.allclose(table["u-90% CI"], np.percentile(effect.draws, 95, axis=0))
    assert list(effect.table())[-1] == "u-95% CI"
    assert "between 0 and 1" in refusal(effect.table, 95)


def test_the_users_table_is_left_as_it_is(linear):
    bundle, draws, frame = linear
    before = frame.copy()
    conditional_effect(SubspacePosterior(bundle, draws), frame, "z", at={"x": 0})
    partial_dependence(
        SubspacePosterior(bundle, draws), frame, "g", generator=np.random.default_rng(1)
    )
    assert frame.equals(before)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("zz", {}, "does not use a column 'zz'. Did you mean 'z'?"),
        ("u", {}, "does not use a column 'u'"),
        ("y", {}, "'y' is the response"),
        ((), {}, "one or two different columns, got 0"),
        (("x", "z", "v"), {}, "one or two different columns, got 3: x, z, v"),
        ("x", {"scale": "respons"}, "Did you mean 'response'?"),
        ("x", {"resolution": 1}, "resolution must be at least 2, got 1"),
        ("x", {"at": {"x": 1}}, "'x' varies"),
        ("x", {"at": {"vv": 1}}, "at= names 'vv'. Did you mean 'v'?"),
        ("x", {"at": {"g": "d"}}, "'g' has no level 'd'. Known: a, b, c."),
        ("x", {"at": {"v": "high"}}, "'v' is numeric; at= needs a finite number, got 'high'"),
        ("x", {"at": {"v": np.inf}}, "finite number, got inf"),
        ("x", {"at": {"z": -1}}, "'log(z)' is nan"),
    ],
)
def test_what_cannot_be_shown_is_refused(linear, names, options, message):
    assert message in refusal(conditional_effect, *asked(linear), names, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"curves": -1}, "curves must be at least 0, got -1"),
        ({"scale": "eta"}, "unknown scale 'eta'"),
    ],
)
def test_what_cannot_be_averaged_is_refused(linear, options, message):
    assert message in refusal(
        partial_dependence, *asked(linear), "x", generator=np.random.default_rng(1), **options
    )


def test_a_table_that_the_model_cannot_predict_is_refused(linear):
    bundle, draws, frame = linear
    assert "names column 'v'" in refusal(
        conditional_effect, SubspacePosterior(bundle, draws), frame.drop(columns="v"), "x"
    )


@pytest.mark.parametrize("family", ["categorical", "cumulative"])
def test_an_effect_on_categories_is_on_the_probability_of_each(family, monkeypatch):
    (bundle, _), frame = category_bundle(family), category_frame()
    draws = random_draws(bundle)
    names = {"categorical": ("bus", "car", "train trip"), "cumulative": (*"1234",)}[family]
    monkeypatch.setattr(
        "semistan.posterior.predictive.CHUNK_PREDICTIONS", 8 * draws.size * len(names)
    )
    effect = partial_dependence(
        SubspacePosterior(bundle, draws), frame, "g", curves=4, generator=np.random.default_rng(1)
    )
    each = [
        posterior_epred(
            SubspacePosterior(bundle, draws),
            apply_design(bundle.design, frame.assign(g=g), response=False),
        )
        for g in "abc"
    ]
    expected = np.stack([p.mean(axis=1) for p in each], axis=1)
    assert effect.categories == names and effect.curves.shape == (4, 3, len(names))
    assert np.allclose(effect.draws, expected, rtol=1e-12)
    table = effect.table(0.9)
    assert list(table)[:3] == ["g", "category", "Estimate"]
    assert list(table["category"]) == [name for name in names for _ in "abc"]
    assert list(table["g"]) == [*"abc"] * len(names)
    assert np.allclose(table["Estimate"], expected.mean(axis=0).T.ravel(), rtol=1e-12)
    one = effect.of_category(names[2])
    assert one.categories == names[2:3] and np.array_equal(one.draws, effect.draws[..., 2:3])
    assert np.array_equal(one.curves, effect.curves[..., 2:3])
    assert "no category 'cra'" in refusal(effect.of_category, "cra")


def test_the_linear_predictor_is_named_after_the_second_category():
    (bundle, _), frame = category_bundle(), category_frame()
    draws = random_draws(bundle)
    effect = conditional_effect(SubspacePosterior(bundle, draws), frame, "g", scale="linpred")
    at = frame.assign(**{name: frame[name].mean() for name in "xuv"})[:3].assign(g=[*"abc"])
    eta = posterior_linpred(
        SubspacePosterior(bundle, draws), apply_design(bundle.design, at, response=False)
    )
    assert np.allclose(effect.draws[..., 0], eta, rtol=1e-12)
    assert set(effect.table()["category"]) == {"car"}


def test_a_column_may_be_called_category():
    frame = category_frame().rename(columns={"x": "category"})
    bundle, _ = small_bundle("mode ~ category + nn(u, v)", frame, family="categorical")
    table = conditional_effect(
        SubspacePosterior(bundle, random_draws(bundle)), frame, "category"
    ).table()
    assert list(table)[:2] == ["category", ".category"]
    assert table["category"].dtype == float and set(table[".category"]) == set(frame["mode"])
