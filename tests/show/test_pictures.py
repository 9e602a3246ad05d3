"""Pictures: the numbers in them, their labels, and that nothing is cut off."""

import re
from collections import Counter
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.model.names import MU
from semistan.model.table.rows import Columns, Rows
from semistan.posterior.effects.effect import Effect
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred, posterior_predict
from semistan.posterior.scoring.scores import Pointwise, pointwise
from semistan.show.pictures import PICTURES, alt_text, available, draw
from semistan.show.pictures.effect import draw_effect, effect_alt
from semistan.show.pictures.importance import draw_importance, importance_alt
from semistan.show.pictures.material import MOST_DRAWS, evenly, memory_material
from semistan.show.pictures.style import SERIES, wrapped
from semistan.show.pictures.subspace import density_slice
from semistan.show.pictures.write import write_picture
from support.drawn import random_draws
from support.figures import legend, lines, texts, ticks, untidy
from support.small import (
    FORMULA,
    category_bundle,
    category_frame,
    family_bundle,
    small_bundle,
    small_frame,
)
from support.untrained import DIRICHLET, MULTINOMIAL, random_bundle

FAMILIES = ("gaussian", "poisson", "bernoulli")
NUMERIC = ("stat", "loo_pit")  # not of unordered categories
OF_NUMBERS = tuple(  # of models without images, smooths and times
    kind for kind in PICTURES if kind not in ("images", "smooths", "survival")
)


def with_energy(draws, seed=0):
    energy = np.random.default_rng(seed).normal(size=draws.phi.shape[:2])
    return replace(draws, sampler={**draws.sampler, "energy": energy})


def small_material(name="gaussian", chains=2, others=(), prior_only=False, **settings):
    bundle, rows = family_bundle(name, **settings)
    draws = with_energy(random_draws(bundle, chains=chains))
    return memory_material(
        SubspacePosterior(bundle, draws), rows, others=others, prior_only=prior_only
    )


@pytest.fixture(scope="module")
def gaussian():
    return small_material()


@pytest.fixture(scope="module")
def wide():
    """Twenty coefficients with long names, scales from 0.01 to 100, and a second fit."""
    generator = np.random.default_rng(0)
    frame = small_frame(60).assign(
        **{f"x_{i}": generator.normal(0, 100.0 ** (i % 3 - 1), 60) for i in range(18)},
        occupation=np.array(["machine_op_inspct", "other_service", "prof_specialty"] * 20),
    )
    names = " + ".join(f"x_{i}" for i in range(18))
    bundle, rows = small_bundle(f"y ~ {names} + C(occupation) + nn(u, v)", frame)
    others = (
        (
            "HMC in the full space of all weights",
            SubspacePosterior(bundle, random_draws(bundle, seed=1)),
        ),
    )
    return memory_material(
        SubspacePosterior(bundle, with_energy(random_draws(bundle))), rows, others=others
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.lengthy
def test_every_kind_is_drawn_and_described(family, tmp_path):
    material = small_material(family)
    assert available(material) == OF_NUMBERS
    for kind in OF_NUMBERS:
        figure = draw(material, kind)
        assert not untidy(figure), kind
        write_picture(figure, tmp_path / f"{kind}.png")
        assert re.fullmatch(r"[A-Z].*\d.*\.", alt_text(material, kind)), kind


@pytest.mark.lengthy
def test_long_names_and_many_coefficients_are_not_untidy(wide):
    for kind in OF_NUMBERS:
        assert not untidy(draw(wide, kind)), kind
    assert not untidy(draw(wide, "coefficients", standardise=True))
    assert not untidy(draw(wide, "band", by="occupation"))


@pytest.mark.lengthy
@pytest.mark.parametrize("k", [1, 6])
def test_prior_draws_say_so(k):
    material = small_material(chains=1, prior_only=True, subspace__k=k)
    kinds = set(OF_NUMBERS) - {"calibration", "loo_pit", "rank"}
    assert set(available(material)) == kinds
    titles = {kind: texts(draw(material, kind)) for kind in available(material)}
    for kind in ("coefficients", "densities", "band", "subspace", "ppc"):
        assert "prior" in titles[kind].lower() and "posterior" not in titles[kind].lower(), kind
    with pytest.raises(InputError, match="draws from the prior"):
        draw(material, "calibration")
    with pytest.raises(InputError, match="no likelihood"):
        draw(material, "subspace", what="likelihood")


def test_settings_of_matplotlib_stay_as_they_were(gaussian):
    before = dict(matplotlib.rcParams)
    draw(gaussian, "densities")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("family", ["gaussian", "weibull"])
def test_a_text_computes_no_network_that_its_picture_has_computed(family, monkeypatch):
    material = small_material(family)
    kinds = [kind for kind in available(material) if PICTURES[kind].place]
    assert "survival" in kinds or family == "gaussian"
    for kind in kinds:
        draw(material, kind)

    def refuse(*_):
        raise AssertionError("computed once more")

    monkeypatch.setattr("semistan.posterior.predictors.network_output", refuse)
    assert all(alt_text(material, kind) for kind in kinds)


# coefficients


def test_coefficients_are_mean_and_intervals(gaussian):
    figure = draw(gaussian, "coefficients")
    names = [name for axes in figure.axes for name in ticks(axes.yaxis)]
    assert sorted(names) == ["b_Intercept", "b_gb", "b_gc", "b_x", "sigma"]
    for axes in figure.axes:
        for i, name in enumerate(ticks(axes.yaxis)):
            values = np.sort(gaussian.posterior.draws.interpreted[name].ravel())
            wide, narrow, point = (
                x for x, y in lines(axes, color=SERIES[0]) if abs(y[0] - i) < 1e-9
            )
            np.testing.assert_allclose(wide, np.percentile(values, [2.5, 97.5]))
            np.testing.assert_allclose(narrow, np.percentile(values, [25, 75]))
            np.testing.assert_allclose(point, [values.sum() / values.size])


def test_coefficients_share_an_axis_only_while_intervals_are_readable(gaussian, wide):
    groups = [ticks(axes.yaxis) for axes in draw(gaussian, "coefficients").axes]
    assert groups == [["b_x", "b_gb", "b_gc"], ["b_Intercept"], ["sigma"]]
    apart = draw(wide, "coefficients").axes
    assert [len(ticks(axes.yaxis)) for axes in apart] == [1] * 22
    (shared,) = draw(wide, "coefficients", standardise=True).axes
    assert len(ticks(shared.yaxis)) == 20


def test_standardised_coefficients_are_multiplied_with_the_columns_sd(gaussian):
    (axes,) = draw(gaussian, "coefficients", standardise=True).axes
    assert "one standard deviation" in axes.get_xlabel()
    sd = gaussian.rows.X.std(axis=0, ddof=1)
    points = [x[0] for x, _ in lines(axes, marker="o")]
    np.testing.assert_allclose(points, gaussian.posterior.draws.theta.mean(axis=(0, 1)) * sd)


def test_several_fits_are_side_by_side(wide):
    figure = draw(wide, "coefficients")
    assert legend(figure) == ["this fit", "HMC in the full space of all weights"]
    first = figure.axes[0]
    means = [draws.coefficients["b_x_0"].mean() for _, draws in wide.several]
    points = [(x[0], y[0]) for x, y in lines(first, marker="o")]
    np.testing.assert_allclose([x for x, _ in points], means)
    assert points[0][1] < 0 < points[1][1]
    assert "of HMC in the full" in alt_text(wide, "coefficients")


def test_axes_name_the_scale_of_the_link():
    words = {
        "gaussian": "change of mean of y for one unit of the column",
        "poisson": "change of log mean of count for one unit of the column",
        "bernoulli": "change of log-odds of flag = 1 for one unit of the column",
    }
    for family, text in words.items():
        labels = [axes.get_xlabel() for axes in draw(small_material(family), "coefficients").axes]
        assert text in labels


def test_alt_text_of_coefficients_has_their_numbers(gaussian):
    values = gaussian.posterior.draws.coefficients["b_x"]
    lower, upper = np.percentile(values, [2.5, 97.5])
    text = f"b_x: mean {values.mean():.3g}, 95% interval {lower:.3g} to {upper:.3g}"
    assert text in alt_text(gaussian, "coefficients")


# densities


def test_densities_integrate_to_one_around_the_draws(wide):
    figure = draw(wide, "densities")
    assert [axes.get_xlabel().replace("\n", "") for axes in figure.axes] == list(
        wide.posterior.bundle.design.coefficients
    )
    assert legend(figure) == [*(name for name, _ in wide.several), "trained value"]
    for axes, name, trained in zip(
        figure.axes,
        wide.posterior.bundle.design.coefficients,
        wide.posterior.bundle.trained.theta,
        strict=True,
    ):
        curves = lines(axes, marker="None")
        assert len(curves) == 2
        for (x, y), (_, draws) in zip(curves, wide.several, strict=True):
            values = draws.coefficients[name]
            np.testing.assert_allclose(np.trapezoid(y, x), 1, rtol=0.01)
            assert abs(np.trapezoid(x * y, x) - values.mean()) < 0.2 * values.std()
        ((tick, _),) = lines(axes, marker="|")
        np.testing.assert_allclose(tick, trained)


# band


@pytest.mark.parametrize("family", FAMILIES)
def test_band_is_that_of_a_typical_row(family):
    material = small_material(family)
    (axes,) = draw(material, "band", variable="v").axes
    table = material.table
    ((x, mean),) = lines(axes, marker="None")
    np.testing.assert_allclose(x, np.linspace(table["v"].min(), table["v"].max(), len(x)))
    frame = pd.DataFrame({"x": table["x"].mean(), "g": "a", "u": table["u"].mean(), "v": x})
    rows = apply_design(material.posterior.bundle.design, frame, response=False)
    mu = posterior_epred(material.posterior, rows)
    np.testing.assert_allclose(mean, mu.mean(axis=0))
    outer, inner = (item.get_paths()[0].vertices for item in axes.collections)
    middle = () if family == "poisson" else (len(x) // 2,)  # whole numbers are drawn in steps
    for vertices, probability in ((outer, 0.05), (inner, 0.25)):
        for i in (0, *middle, len(x) - 1):
            edge = vertices[np.isclose(vertices[:, 0], x[i]), 1]
            _check_quantiles(material, mu[:, i], edge.min(), edge.max(), probability)


def _check_quantiles(material, mu, lower, upper, p):
    """The edges have these tail probabilities, up to the error of 40,000 responses."""
    if material.posterior.bundle.family.name == "bernoulli":
        np.testing.assert_allclose((lower, upper), np.quantile(mu, (p, 1 - p)))
        return
    if material.posterior.bundle.family.name == "poisson":
        error = 5 * np.sqrt(p * (1 - p) / 40_000)
        for edge, tail in ((lower, p), (upper, 1 - p)):
            assert stats.poisson.cdf(edge, mu).mean() > tail - error
            assert stats.poisson.cdf(edge - 1, mu).mean() < tail + error
        return
    sigma = material.posterior.draws.dispersion["sigma"].ravel()
    tails = stats.norm.cdf((lower - mu) / sigma).mean(), stats.norm.sf((upper - mu) / sigma).mean()
    np.testing.assert_allclose(tails, p, atol=5 * np.sqrt(p * (1 - p) / 40_000))


def test_band_shows_the_rows_coloured_by_a_factor(gaussian):
    figure = draw(gaussian, "band", variable="u", by="g")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("u", "y")
    assert legend(figure)[:3] == ["g = a", "g = b", "g = c"]
    points = lines(axes, marker="o")
    assert len(points) == 3 and len(lines(axes, marker="None")) == 3
    for (x, y), level in zip(points, "abc", strict=True):
        here = gaussian.table[gaussian.table["g"] == level]
        np.testing.assert_allclose(x, here["u"])
        np.testing.assert_allclose(y, here["y"])
    caption = texts(figure).replace("\xa0", " ")
    assert f"x = {gaussian.table['x'].mean():.3g}" in caption and "30 training rows" in caption


def test_band_refuses_columns_that_it_cannot_draw(gaussian):
    refusals = {
        "numeric column": {"variable": "g"},
        "Did you mean 'x'": {"variable": "xx"},
        "at most 6 values": {"by": "x"},
        "cannot be both": {"variable": "x", "by": "x"},
        "is the response": {"variable": "y"},
    }
    for message, options in refusals.items():
        with pytest.raises(InputError, match=message):
            draw(gaussian, "band", **options)


# subspace


def naive_log_density(material, phi, likelihood=True, prior=True):
    """Log density at phi, other parameters at their means, up to a constant; one tanh layer."""
    bundle, rows, draws = material.posterior.bundle, material.rows, material.posterior.draws
    w = bundle.subspace.p_bar + bundle.subspace.Pi @ phi
    units, theta = bundle.units, draws.theta.mean(axis=(0, 1))
    f = []
    for u in (rows.U - units.u_loc) / units.u_scale:
        hidden = np.tanh(w[:6].reshape(3, 2) @ u + w[6:9])
        f.append(w[9:12] @ hidden + w[12])
    eta = units.eta_loc + units.eta_scale * np.array(f) + (rows.X - units.x_loc) @ theta
    sigma = np.exp(np.log(draws.dispersion["sigma"]).mean())
    total = stats.norm.logpdf(rows.y, eta, sigma).sum() if likelihood else 0
    return total + (stats.norm.logpdf(phi, 0, 5).sum() if prior else 0)


@pytest.mark.parametrize(
    ("what", "prior_only", "parts"),
    [
        ("posterior", False, {}),
        ("likelihood", False, {"prior": False}),
        ("posterior", True, {"likelihood": False}),
    ],
)
def test_slice_is_the_log_density_through_the_mean(what, prior_only, parts):
    material = small_material(subspace__k=3, prior_only=prior_only)
    part = density_slice(material, (0, 2), what)
    first, second = part.axes
    centre = material.posterior.draws.phi.mean(axis=(0, 1))
    expected = np.array(
        [
            [naive_log_density(material, np.array([a, centre[1], c]), **parts) for a in first]
            for c in second[::10]
        ]
    )
    actual = part.values[::10]
    assert part.values.max() == 0
    np.testing.assert_allclose(actual - actual[0, 0], expected - expected[0, 0], atol=1e-8)


def test_subspace_shows_control_points_curve_and_draws():
    material = small_material(subspace__k=3)
    figure = draw(material, "subspace", directions=(3, 1))
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("phi[3]", "phi[1]")
    assert "relative to its maximum" in bar.get_ylabel()
    assert legend(figure) == ["posterior draws", "trained curve", "control points"]
    bundle = material.posterior.bundle
    coordinates = (bundle.trained.control_points - bundle.subspace.p_bar) @ bundle.subspace.Pi
    ((x, y),) = lines(axes, marker="D")
    np.testing.assert_allclose((x, y), coordinates[:, [2, 0]].T, atol=1e-10)
    ((x, y),) = lines(axes, marker="None")
    np.testing.assert_allclose((x[[0, -1]], y[[0, -1]]), coordinates[[0, -1]][:, [2, 0]].T)
    ((x, y),) = lines(axes, marker="o")
    np.testing.assert_allclose((x, y), material.posterior.draws.phi.reshape(-1, 3)[:, [2, 0]].T)


def test_subspace_of_one_dimension_is_a_profile():
    material = small_material(subspace__k=1)
    figure = draw(material, "subspace")
    (axes,) = figure.axes
    profile, _curve = lines(axes, marker="None")
    expected = np.array([naive_log_density(material, np.array([value])) for value in profile[0]])
    np.testing.assert_allclose(profile[1], expected - expected.max(), atol=1e-8)


def test_subspace_refuses_unknown_directions(gaussian):
    for directions in ((1, 1), (0, 1), (1, 3)):
        with pytest.raises(InputError, match="from 1 to 2"):
            draw(gaussian, "subspace", directions=directions)
    with pytest.raises(InputError, match="Did you mean 'likelihood'"):
        draw(gaussian, "subspace", what="likelihod")


# loss


def test_loss_is_the_bundles(gaussian):
    curve = gaussian.posterior.bundle.trained.curve
    losses = {"loss": [3.0, 2.0, 1.0], "validation_loss": [3.5, 2.5, 2.75]}
    history = {name: np.array(values) for name, values in losses.items()}
    history["epoch"] = np.array([10.0, 20.0, 30.0])
    bundle = replace(
        gaussian.posterior.bundle,
        trained=replace(gaussian.posterior.bundle.trained, history=history),
    )
    material = memory_material(SubspacePosterior(bundle, gaussian.posterior.draws), gaussian.rows)
    figure = draw(material, "loss")
    first, second = figure.axes
    (training, validation, kept) = lines(first)
    np.testing.assert_array_equal(training, (history["epoch"], history["loss"]))
    np.testing.assert_array_equal(validation, (history["epoch"], history["validation_loss"]))
    assert (kept[0], kept[1]) == (20, 2.5)
    assert "fell from 3 to 2 at epoch 20" in alt_text(material, "loss")
    np.testing.assert_array_equal(lines(second), [(curve["t"], curve["loss"])])
    assert legend(figure) == ["training rows", "validation rows", "kept"]


def test_loss_without_validation_rows_or_history():
    material = small_material(train__validation=0.0)
    assert legend(draw(material, "loss")) == ["training rows", "kept"]
    bundle = material.posterior.bundle
    untrained = replace(bundle, trained=replace(bundle.trained, history={}, curve={}))
    bare = memory_material(SubspacePosterior(untrained, material.posterior.draws), material.rows)
    assert "loss" not in available(bare)
    with pytest.raises(InputError, match="no history"):
        draw(bare, "loss")


# predictive check


def test_check_of_a_continuous_response_overlays_densities(gaussian):
    figure = draw(gaussian, "ppc")
    (axes,) = figure.axes
    curves = lines(axes)
    assert len(curves) == 51 and legend(figure) == ["observed", "50 replications"]
    assert axes.get_xlabel() == "y"
    x, density = curves[-1]
    np.testing.assert_allclose(np.trapezoid(density, x), 1, rtol=0.01)
    assert abs(np.trapezoid(x * density, x) - gaussian.rows.y.mean()) < 0.2 * gaussian.rows.y.std()


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_check_of_whole_numbers_counts_rows(family):
    material = small_material(family)
    (axes,) = draw(material, "ppc").axes
    observed = Counter(material.rows.y)
    bars = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in axes.patches}
    assert {round(value): rows for value, rows in bars.items() if rows} == observed
    replicated = posterior_predict(
        material.posterior, material.rows, np.random.default_rng(material.seed)
    )
    ((values, mean),) = lines(axes, marker="o")
    for value, rows in zip(values, mean, strict=True):
        assert rows == pytest.approx(np.mean([np.sum(y == value) for y in replicated]))
    assert axes.get_ylabel() == "rows"


def test_check_says_if_replicated_counts_go_beyond_the_picture():
    material = small_material("poisson")
    draws = replace(material.posterior.draws, phi=5 * material.posterior.draws.phi)
    figure = draw(
        memory_material(SubspacePosterior(material.posterior.bundle, draws), material.rows), "ppc"
    )
    top = figure.axes[0].patches[-1].get_x() + figure.axes[0].patches[-1].get_width()
    assert top < 3 * material.rows.y.max() + 6
    assert re.search(r"\d% of replicated values are larger", texts(figure))


def test_check_of_large_counts_puts_values_together():
    generator = np.random.default_rng(0)
    frame = small_frame().assign(count=generator.poisson(300, 30))
    bundle, rows = small_bundle("count ~ x + nn(u, v)", frame, family="poisson")
    (axes,) = draw(
        memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows), "ppc"
    ).axes
    assert len(axes.patches) <= 41
    assert sum(bar.get_height() for bar in axes.patches) == 30
    assert re.fullmatch(r"rows in \d+ values", axes.get_ylabel())


# calibration


def test_calibration_counts_transforms_and_bins_predictions():
    material = small_material("bernoulli")
    judged = pointwise(material.posterior, material.rows, generator=np.random.default_rng(1))
    figure = draw(material, "calibration")
    left, right = figure.axes
    counts = Counter(min(int(10 * value), 9) for value in judged.pit)
    band, heights = left.patches[-1], [bar.get_height() for bar in left.patches[:-1]]
    np.testing.assert_allclose(heights, [counts[i] / 3 for i in range(10)])
    pmf = stats.binom.pmf(np.arange(31), 30, 0.1)
    upper = next(n for n in range(31) if pmf[: n + 1].sum() >= 0.995)
    assert band.get_y() + band.get_height() == pytest.approx(upper / 3)
    order = np.argsort(judged.mean, kind="stable").reshape(10, 3)
    ((x, y),) = lines(right, marker="o")
    np.testing.assert_allclose(x, [judged.mean[part].mean() for part in order])
    np.testing.assert_allclose(y, [judged.y[part].mean() for part in order])
    assert "training rows" in texts(figure) and "flatter" in texts(figure)
    assert right.get_ylabel() == "observed share of flag = 1"


def test_calibration_of_new_rows_says_so(gaussian):
    rows = apply_design(gaussian.posterior.bundle.design, small_frame(40, seed=3), response=True)
    figure = draw(gaussian, "calibration", rows=rows, rows_label="test rows")
    assert "40 test rows" in texts(figure) and "training" not in texts(figure)
    assert "on test rows" in alt_text(gaussian, "calibration", rows=rows, rows_label="test rows")


# images


def pixels_of(n, shape, seed=0):
    """Images (n, height, width) or (n, height, width, 3) from 0 to 255, all different."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (n, *shape)).astype(float)


def image_material(formula="flag ~ x + nn(image(scan))", shape=(8, 9, 3), n=30, **settings):
    """Return a fit to images in the column ``scan`` (and ``other``), and its pixels."""
    images = pixels_of(n, shape)
    frame = category_frame().iloc[:n].assign(scan=list(images), other=list(images[::-1]))
    settings = {"family": "bernoulli", "network__channels": [2], **settings}
    bundle, rows = small_bundle(formula, frame, **settings)
    return memory_material(
        SubspacePosterior(bundle, with_energy(random_draws(bundle))), rows
    ), images


@pytest.fixture(scope="module")
def lesions():
    return image_material()


def shown_images(figure):
    """What each panel shows: the pixels, the mean, the ends of the interval, the response."""
    for axes in figure.axes:
        mean, interval = axes.get_title().split("\n", 1)
        lower, upper = interval.split("to")
        below = " ".join(axes.texts[0].get_text().split()).removeprefix("observed ")
        (image,) = axes.images
        numbers = [float(text.replace(",", "")) for text in (mean, lower, upper)]
        yield np.asarray(image.get_array()), numbers, below


def check_images(figure, mu, images, observed):
    """Panels are at equal steps of the order of the means of mu (S, N), the ends included."""
    order = np.argsort(mu.mean(axis=0))
    chosen = order[[round(i * (len(order) - 1) / 11) for i in range(12)]]
    least, most = images[chosen].min(), images[chosen].max()
    shown = list(shown_images(figure))
    assert len(shown) == 12
    for i, (values, numbers, below) in zip(chosen, shown, strict=True):
        expected = images[i].reshape(values.shape)
        np.testing.assert_allclose(values, (expected - least) / (most - least), atol=1e-12)
        draws = [mu[:, i].mean(), *np.percentile(mu[:, i], [2.5, 97.5])]
        np.testing.assert_allclose(numbers, draws, rtol=5e-3)
        assert below == str(observed[i])


def test_images_are_in_the_order_of_their_probabilities(lesions):
    material, images = lesions
    figure = draw(material, "images")
    mu = posterior_epred(material.posterior, material.rows)
    check_images(figure, mu, images, small_frame()["flag"])
    assert not untidy(figure)
    assert "Images by P(flag = 1)" in texts(figure)
    assert "12 images (column scan) of 30 training rows" in texts(figure).replace("\n", " ")


@pytest.mark.parametrize(("family", "response"), [("gaussian", "y"), ("poisson", "count")])
def test_grey_images_of_other_responses_have_means(family, response):
    formula = f"{response} ~ x + nn(image(scan))"
    material, images = image_material(formula, (8, 8), family=family)
    figure = draw(material, "images")
    mu = posterior_epred(material.posterior, material.rows)
    observed = [f"{value:.3g}" for value in small_frame()[response]]
    check_images(figure, mu, images, observed)
    assert all(axes.images[0].get_cmap().name == "gray" for axes in figure.axes)
    assert f"Images by mean of {response}" in texts(figure)


def test_images_of_categories_are_ordered_by_one_probability():
    formula = "mode ~ x + nn(image(scan))"
    material, images = image_material(formula, family="categorical")
    p = posterior_epred(material.posterior, material.rows)
    modes = category_frame()["mode"].to_numpy()
    for options, k in (({}, 1), ({"category": "train trip"}, 2)):
        figure = draw(material, "images", **options)
        check_images(figure, p[..., k], images, modes)
        assert not untidy(figure)
    assert "Images by P(mode = train trip)" in texts(figure)
    with pytest.raises(InputError, match="Did you mean 'car'"):
        draw(material, "images", category="cra")


def test_images_of_new_rows_and_of_another_column(lesions):
    material, _ = lesions
    images = pixels_of(20, (8, 9, 3), seed=5)
    flag = np.arange(20) // 10
    flat = [image.transpose(2, 0, 1).ravel() for image in images]  # as tables are read
    frame = small_frame(20, seed=3).assign(scan=flat, flag=flag)
    rows = apply_design(material.posterior.design, frame, response=True)
    options = {"rows": rows, "rows_label": "test rows"}
    figure = draw(material, "images", **options)
    check_images(figure, posterior_epred(material.posterior, rows), images, flag)
    assert "20 test rows" in texts(figure) and "training" not in texts(figure)
    assert "of 20 test rows" in alt_text(material, "images", **options)

    both, images = image_material("flag ~ nn(image(scan)) + nn(image(other))")
    mu = posterior_epred(both.posterior, both.rows)
    for options, expected in (({}, images), ({"variable": "other"}, images[::-1])):
        check_images(draw(both, "images", **options), mu, expected, small_frame()["flag"])
    with pytest.raises(InputError, match=r"'othr' is no column of images\. Did you mean 'other'"):
        draw(both, "images", variable="othr")


def test_the_largest_and_smallest_prediction_are_told(lesions):
    material, _ = lesions
    mu = posterior_epred(material.posterior, material.rows)
    order = np.argsort(mu.mean(axis=0))
    words = []
    for i in order[[0, -1]]:
        lower, upper = np.percentile(mu[:, i], [2.5, 97.5])
        interval = f"95% interval {lower:.3g} to {upper:.3g}"
        words.append(f"mean {mu[:, i].mean():.3g}, {interval}, observed {i % 2}")
    assert alt_text(material, "images") == (
        "12 images (column scan) of 30 training rows by P(flag = 1). "
        f"The first: {words[0]}. The last: {words[1]}."
    )


def test_few_images_are_all_drawn_in_one_line():
    material, _ = image_material(n=5)
    figure = draw(material, "images")
    means = posterior_epred(material.posterior, material.rows).mean(axis=0)
    drawn = [numbers[0] for _, numbers, _ in shown_images(figure)]
    np.testing.assert_allclose(drawn, np.sort(means), rtol=5e-3)
    assert np.ptp([axes.get_position().y0 for axes in figure.axes]) < 1e-9
    assert not untidy(figure)


def test_models_without_images_have_no_such_picture(gaussian):
    with pytest.raises(InputError, match=r"no network of it takes images, as nn\(image\(path\)\)"):
        draw(gaussian, "images")
    formula = "y ~ x + nn(image(scan), trunk='trunk.onnx')"
    frame = small_frame().assign(scan=list(pixels_of(30, (4,))))
    bundle, rows = small_bundle(formula, frame)
    embedded = memory_material(SubspacePosterior(bundle, with_energy(random_draws(bundle))), rows)
    assert available(embedded) == OF_NUMBERS
    with pytest.raises(InputError, match="holds the embeddings alone"):
        draw(embedded, "images")


# categories


def category_material(name):
    bundle, rows = category_bundle(name)
    return memory_material(SubspacePosterior(bundle, with_energy(random_draws(bundle))), rows)


@pytest.fixture(scope="module")
def modes():
    return category_material("categorical")


@pytest.mark.parametrize("name", ["categorical", "cumulative"])
@pytest.mark.lengthy
def test_every_kind_is_drawn_and_described_of_categories(name):
    material = category_material(name)
    kinds = tuple(kind for kind in OF_NUMBERS if name == "cumulative" or kind not in NUMERIC)
    assert available(material) == kinds
    for kind in kinds:
        assert not untidy(draw(material, kind)), kind
        assert re.fullmatch(r"[A-Z].*\d.*\.", alt_text(material, kind)), kind
    third = {"categorical": "train trip", "cumulative": "3"}[name]
    for kind in ("band", "calibration"):
        assert not untidy(draw(material, kind, category=third)), kind


def test_coefficients_of_all_categories_share_an_axis(modes):
    figure = draw(modes, "coefficients")
    slopes, intercept, last = figure.axes
    assert ticks(slopes.yaxis)[0] == "b_mucar_x" and len(ticks(slopes.yaxis)) == 6
    assert slopes.get_xlabel() == "change of log-odds against mode = bus for one unit of the column"
    assert last.get_xlabel() == "log-odds against mode = bus, with structured columns at 0"
    assert [ticks(axes.yaxis) for axes in (intercept, last)] == [
        ["b_mucar_Intercept"], ["b_mutrain_trip_Intercept"],
    ]  # fmt: skip
    (standardised,) = draw(modes, "coefficients", standardise=True).axes
    means = [x[0] for x, _ in lines(standardised, marker="o")]
    values = modes.posterior.draws.coefficients["b_mutrain_trip_x"]
    assert means[3] == pytest.approx(values.mean() * modes.rows.X[:, 0].std(ddof=1))


@pytest.mark.parametrize("name", [MULTINOMIAL, DIRICHLET])
@pytest.mark.lengthy
def test_every_kind_is_drawn_and_described_of_several_columns(name):
    bundle, rows = random_bundle(name)
    material = memory_material(SubspacePosterior(bundle, with_energy(random_draws(bundle))), rows)
    for kind in available(material):
        assert not untidy(draw(material, kind)), kind
        assert re.fullmatch(r"[A-Z].*\d.*\.", alt_text(material, kind)), kind
    assert "rows: the observed share" in legend(draw(material, "band", category="train"))
    (axes,) = draw(material, "ppc").axes
    weights, noun = (1, "trials") if name == MULTINOMIAL else (1 / len(rows), "mean share")
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(rows.y.sum(axis=0) * weights)
    assert axes.get_ylabel() == noun


def test_the_check_has_a_bar_for_each_category(modes):
    (axes,) = draw(modes, "ppc").axes
    assert ticks(axes.xaxis) == ["bus", "car", "train trip"]
    observed = Counter(modes.rows.y)
    assert [bar.get_height() for bar in axes.patches] == [observed[k] for k in (1, 2, 3)]
    y = posterior_predict(modes.posterior, modes.rows, np.random.default_rng(1))
    ((_, mean),) = lines(axes, marker="o")
    np.testing.assert_allclose(mean, [(y == k).sum(axis=1).mean() for k in (1, 2, 3)])
    assert f"bus has {observed[1]} rows" in alt_text(modes, "ppc")


def test_calibration_of_unordered_categories_is_the_reliability_of_each(modes):
    p = posterior_epred(modes.posterior, modes.rows).mean(axis=0)
    figure = draw(modes, "calibration")
    assert [axes.get_xlabel().replace("\n", " ") for axes in figure.axes] == [
        f"predicted P(mode = {name})" for name in ("bus", "car", "train trip")
    ]
    (one,) = draw(modes, "calibration", category="car").axes
    for axes, k in ((figure.axes[2], 2), (one, 1)):
        order = np.argsort(p[:, k], kind="stable").reshape(10, 3)
        ((x, y),) = lines(axes, marker="o")
        np.testing.assert_allclose(x, [p[part, k].mean() for part in order])
        np.testing.assert_allclose(y, [np.mean(modes.rows.y[part] == k + 1) for part in order])
    assert "99% band" not in texts(figure) + " ".join(legend(figure))


def test_a_band_is_that_of_one_category(modes):
    for options, name, k in (({}, "car", 1), ({"category": "train trip"}, "train trip", 2)):
        figure = draw(modes, "band", variable="v", **options)
        (axes,) = figure.axes
        ((x, mean),) = lines(axes, marker="None")
        held = {"x": modes.table["x"].mean(), "g": "a", "u": modes.table["u"].mean()}
        frame = pd.DataFrame({**held, "v": x})
        rows = apply_design(modes.posterior.bundle.design, frame, response=False)
        p = posterior_epred(modes.posterior, rows)[..., k]
        np.testing.assert_allclose(mean, p.mean(axis=0))
        assert legend(figure)[0] == f"P(mode = {name})"
        ((_, y),) = lines(axes, marker="o")
        np.testing.assert_array_equal(y > 0.5, modes.rows.y == k + 1)


def test_categories_that_there_are_not_are_refused(modes, gaussian):
    with pytest.raises(InputError, match=r"no category 'cra'\. Did you mean 'car'"):
        draw(modes, "band", category="cra")
    for kind in ("band", "calibration"):
        with pytest.raises(InputError, match="response of family gaussian has no categories"):
            draw(gaussian, kind, category="1")


def test_an_effect_on_categories_has_a_curve_for_each():
    names, grid = ("a", "b"), pd.DataFrame({"u": [1.0, 2, 4]})
    draws = np.random.default_rng(0).normal(size=(40, 3, 2))
    curves = np.arange(12.0).reshape(2, 3, 2)
    effect = Effect("conditional", ("u",), "response", grid, draws, curves, {}, names)
    figure = draw_effect(effect, label="P(r)", response="r")
    (axes,) = figure.axes
    assert legend(figure) == ["r = a", "r = b"]
    for j in (0, 1):
        rows = [y for _, y in lines(axes, color=SERIES[j], linewidth=0.5)]
        np.testing.assert_array_equal(rows, curves[..., j])
        ((_, mean),) = lines(axes, color=SERIES[j], linewidth=2.0)
        np.testing.assert_allclose(mean, draws[..., j].mean(axis=0))
    assert "r = b at u = 4" in effect_alt(effect, label="P(r)", response="r")
    one = draw_effect(effect.of_category("b"), label="P(r = b)")
    ((_, mean),) = lines(one.axes[0], linewidth=2.0)
    np.testing.assert_allclose(mean, draws[..., 1].mean(axis=0))
    factor = replace(effect, grid=pd.DataFrame({"u": ["x", "y", "z"]}), curves=None)
    points = lines(draw_effect(factor, label="P(r)").axes[0], marker="o")
    np.testing.assert_allclose([y[0] for _, y in points], draws.mean(axis=0).T.ravel())


def test_an_effect_of_two_columns_shows_one_category():
    grid = pd.DataFrame({"u": [0.0, 0, 1, 1], "v": [0.0, 1, 0, 1]})
    draws = np.random.default_rng(0).normal(size=(40, 4, 2))
    effect = Effect("conditional", ("u", "v"), "response", grid, draws, None, {}, ("a", "b"))
    with pytest.raises(InputError, match=r"choose one, as effect\.of_category\('b'\)"):
        draw_effect(effect, label="P(r)")
    surface = draw_effect(effect.of_category("b"), label="P(r = b)").axes[0].collections[0]
    assert surface.zmax == pytest.approx(draws[..., 1].mean(axis=0).max())


# chains


def test_trace_shows_the_worst_first_and_says_what_is_left_out(wide):
    shifted = wide.posterior.draws.coefficients["b_x_7"] + np.array([[0.0], [9e5]])
    draws = replace(
        wide.posterior.draws, coefficients={**wide.posterior.draws.coefficients, "b_x_7": shifted}
    )
    material = memory_material(SubspacePosterior(wide.posterior.bundle, draws), wide.rows)
    figure = draw(material, "trace")
    assert len(figure.axes) == 8 and "14 more" in texts(figure)
    assert figure.axes[0].get_title(loc="left").startswith("b_x_7  Rhat")
    for (x, y), chain in zip(lines(figure.axes[0]), shifted, strict=True):
        np.testing.assert_array_equal(x, np.arange(1, 51))
        np.testing.assert_array_equal(y, chain)
    assert legend(figure) == ["chain 1", "chain 2"]
    assert "Rhat of b_x_7" in alt_text(material, "trace")


def test_rank_counts_ranks_by_chain(gaussian):
    draws = gaussian.posterior.draws
    figure = draw(gaussian, "rank")
    panel = next(axes for axes in figure.axes if axes.get_title(loc="left").startswith("b_x"))
    values = draws.coefficients["b_x"]
    order = np.sort(values.ravel())
    steps = [item.get_data().values for item in panel.patches if hasattr(item, "get_data")]
    for chain, heights in zip(values, steps, strict=True):
        counts = Counter(int(20 * np.searchsorted(order, value) / order.size) for value in chain)
        np.testing.assert_allclose(heights, [counts[i] * 20 / 50 for i in range(20)])


def test_rank_needs_two_chains():
    with pytest.raises(InputError, match="at least two chains"):
        draw(small_material(chains=1), "rank")


def test_energy_says_ebfmi(gaussian):
    figure = draw(gaussian, "energy")
    for axes, energy in zip(figure.axes, gaussian.posterior.draws.sampler["energy"], strict=True):
        change = sum((energy[i] - energy[i - 1]) ** 2 for i in range(1, len(energy)))
        ratio = change / (len(energy) - 1) / np.var(energy)
        assert axes.get_title(loc="left").endswith(f"E-BFMI {ratio:.2f}")
        (marginal, transition) = lines(axes)
        spread = [np.trapezoid(x**2 * y, x) for x, y in (marginal, transition)]
        assert spread[1] > spread[0]


# effects


def make_effect(grid, curves=None, kind="conditional", reference=None):
    generator = np.random.default_rng(0)
    grid = pd.DataFrame(grid)
    draws = generator.normal(np.arange(len(grid)), 1, size=(40, len(grid)))
    return Effect(kind, tuple(grid), "response", grid, draws, curves, reference or {})


def test_effect_of_a_number_is_a_line_with_ribbons():
    curves = np.arange(12.0).reshape(3, 4)
    effect = make_effect({"u": [1.0, 2, 4, 8]}, curves, reference={"a_rather_long_name": 2.5})
    table = pd.DataFrame({"u": [1.5, 3.0, 7.0]})
    figure = draw_effect(effect, table=table, label="mean of y")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("u", "mean of y")
    ((x, y),) = lines(axes, color=SERIES[0])
    np.testing.assert_allclose((x, y), ([1, 2, 4, 8], effect.draws.mean(axis=0)))
    np.testing.assert_array_equal([y for _, y in lines(axes, color="#888888")], curves)
    np.testing.assert_array_equal(lines(axes, gid="rug")[0][0], table["u"])
    outer = axes.collections[0].get_paths()[0].vertices
    edges = [np.percentile(outer[outer[:, 0] == 2, 1], q) for q in (0, 100)]
    np.testing.assert_allclose(edges, np.percentile(effect.draws[:, 1], [2.5, 97.5]))
    assert "a_rather_long_name\xa0=\xa02.5" in texts(figure)
    assert effect_alt(effect, label="mean of y").count("95% interval") == 2


def test_effect_of_zero_and_one_has_no_line_between_them():
    (axes,) = draw_effect(make_effect({"treated": [0.0, 1.0]}), label="mean of y").axes
    assert ticks(axes.xaxis) == ["0", "1"]


def test_effect_of_a_factor_is_points():
    effect = make_effect({"g": ["prof_specialty", "other"]})
    (axes,) = draw_effect(effect, label="P(y = 1)").axes
    assert ticks(axes.xaxis) == [wrapped("prof_specialty", 14), "other"]
    points = {x[0]: y[0] for x, y in lines(axes, marker="o")}
    np.testing.assert_allclose([points[0], points[1]], effect.draws.mean(axis=0))
    codes = make_effect({"g": [1, 2]})
    assert len(lines(draw_effect(codes, label="y", factors=["g"]).axes[0], marker="o")) == 2
    assert not lines(draw_effect(codes, label="y").axes[0], marker="o")


@pytest.mark.parametrize("names", [("u", "g"), ("g", "u")])
def test_effect_of_a_number_and_a_factor_is_coloured(names):
    grid = {"g": ["a", "a", "b", "b"], "u": [0.0, 1, 0, 1]}
    effect = make_effect({name: grid[name] for name in names})
    figure = draw_effect(effect, label="mean of y")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "u" and legend(figure) == ["g = a", "g = b"]
    for j, index in enumerate(([0, 1], [2, 3])):
        ((x, y),) = lines(axes, color=SERIES[j])
        np.testing.assert_allclose((x, y), ([0, 1], effect.draws.mean(axis=0)[index]))


def test_effect_of_two_factors_is_coloured_points():
    effect = make_effect({"g": ["a", "a", "b", "b"], "h": ["x", "y", "x", "y"]})
    figure = draw_effect(effect, label="mean of y")
    assert legend(figure) == ["h = x", "h = y"]
    points = {x[0]: y[0] for x, y in lines(figure.axes[0], marker="o")}
    np.testing.assert_allclose([points[x] for x in sorted(points)], effect.draws.mean(axis=0))


def test_effect_of_two_numbers_is_contours_of_mean_and_sd():
    u, v = np.meshgrid([0.0, 1, 2], [5.0, 6], indexing="ij")
    effect = make_effect({"u": u.ravel(), "v": v.ravel()})
    effect = replace(effect, draws=effect.draws + 100 * u.ravel() ** 2)
    table = pd.DataFrame({"u": [0.5], "v": [5.5]})
    figure = draw_effect(effect, table=table, label="mean of y")
    mean, sd, *bars = figure.axes
    assert [axes.get_xlabel() for axes in bars] == ["mean of y", "posterior standard deviation"]
    for axes, values in ((mean, effect.draws.mean(axis=0)), (sd, effect.draws.std(axis=0, ddof=1))):
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("u", "v")
        surface = axes.collections[0]
        assert (surface.zmin, surface.zmax) == pytest.approx((values.min(), values.max()))
    # The mean rises with u, hardly with v: the highest contour is a strip at u = 2.
    strip = [path.vertices for path in mean.collections[0].get_paths() if len(path.vertices)][-1]
    assert strip[:, 0].min() > 1.7 and (strip[:, 1].min(), strip[:, 1].max()) == (5, 6)
    assert not untidy(figure)


def test_importance_has_the_largest_first():
    table = pd.DataFrame(
        {
            "term": ["a", "b_C_occupation_prof_specialty"],
            "Estimate": [0.1, 0.4],
            "l-95% CI": [0.0, 0.3],
            "u-95% CI": [0.2, 0.6],
        }
    )
    figure = draw_importance(table, label="loss of log-likelihood")
    (axes,) = figure.axes
    assert ticks(axes.yaxis) == [wrapped("b_C_occupation_prof_specialty"), "a"]
    assert [bar.get_width() for bar in axes.patches] == [0.4, 0.1]
    spans = [path.vertices[:, 0].tolist() for path in axes.collections[0].get_paths()]
    assert spans == [[0.3, 0.6], [0.0, 0.2]]
    assert not untidy(figure)
    assert "prof_specialty 0.4 (0.3 to 0.6); a 0.1" in importance_alt(table, label="loss")
    with pytest.raises(InputError, match="l-95% CI"):
        draw_importance(table[["term", "Estimate"]], label="loss")


# writing


def test_files_are_reproducible_and_of_the_promised_size(gaussian, tmp_path):
    from PIL import Image

    for suffix in (".svg", ".PNG"):
        written = []
        for name in ("one", "two"):
            path = tmp_path / f"{name}{suffix}"
            write_picture(draw(gaussian, "calibration"), path)
            written.append(path.read_bytes())
        assert written[0] == written[1]
    with Image.open(tmp_path / "one.PNG") as image:
        assert image.width == 7 * 144
    assert b"<dc:date>" not in (tmp_path / "one.svg").read_bytes()


def test_other_files_are_refused(gaussian, tmp_path):
    with pytest.raises(InputError, match=r"\.png or \.svg, got '\.jpg'"):
        write_picture(draw(gaussian, "energy"), tmp_path / "picture.jpg")
    assert not list(tmp_path.iterdir())


# material and names


def test_unknown_kinds_and_options_are_refused(gaussian):
    with pytest.raises(InputError, match="Did you mean 'densities'"):
        draw(gaussian, "density")
    with pytest.raises(InputError, match=r"no option 'varable'\. Did you mean 'variable'"):
        draw(gaussian, "band", varable="u")
    with pytest.raises(InputError, match="It has none"):
        alt_text(gaussian, "trace", by="g")


@pytest.mark.lengthy
def test_rows_without_their_table_can_be_drawn_where_it_is_not_needed(gaussian):
    rows = replace(gaussian.rows, frame=None)
    material = memory_material(gaussian.posterior, rows)
    for kind in set(OF_NUMBERS) - {"band"}:
        draw(material, kind)
    with pytest.raises(InputError, match="training table"):
        draw(material, "band")


def test_many_rows_are_thinned_evenly():
    rows = Rows(np.arange(9.0), {MU: Columns(np.zeros((9, 1)))}, np.zeros((9, 1)), tuple(range(9)))
    assert evenly(rows, 3).y.tolist() == [0, 4, 8]
    assert evenly(rows, 9) is rows
    assert MOST_DRAWS >= 100


def test_names_that_matplotlib_would_read_as_commands_are_shown():
    frame = small_frame().rename(columns={"u": "_u", "g": "_cost_$_$"})
    formula = FORMULA.replace("C(g)", "C(`_cost_$_$`)").replace("nn(u", "nn(_u")
    bundle, rows = small_bundle(formula, frame)
    others = (("_other", SubspacePosterior(bundle, random_draws(bundle, seed=1))),)
    material = memory_material(
        SubspacePosterior(bundle, random_draws(bundle)), rows, label="_this", others=others
    )
    for kind in ("coefficients", "densities"):
        names = [name.strip() for name in legend(draw(material, kind))]
        assert names[:2] == ["_this", "_other"]
    figure = draw(material, "band", by="_cost_$_$")
    assert not untidy(figure)
    assert legend(figure)[0].strip() == "_cost_$_$ = a"
    assert figure.axes[0].get_xlabel().strip() == "_u"


# --- weights, groups -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grouped():
    bundle, rows = small_bundle("y ~ x + (1 | g) + nn(u, v)")
    return memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows)


def test_a_standard_deviation_of_a_group_is_no_change_for_one_unit(grouped):
    panels = draw(grouped, "coefficients").axes
    words = {tuple(ticks(axes.yaxis)): axes.get_xlabel() for axes in panels}
    assert words[("sd_g__Intercept",)] == "in the units of mean of y"
    assert "change of mean of y" in words[("b_x",)]


def test_an_intercept_has_an_axis_of_its_own_without_zero(grouped):
    panels = {tuple(ticks(axes.yaxis)): axes for axes in draw(grouped, "coefficients").axes}
    slope, level = panels[("b_x",)], panels[("b_Intercept",)]
    assert any(np.ptp(x) == 0 == x[0] for x, _ in lines(slope))
    assert not any(np.ptp(x) == 0 == x[0] for x, _ in lines(level))


def test_groups_that_are_left_out_are_named(grouped):
    said = texts(draw(grouped, "band", variable="u"))
    assert "None" not in said
    assert "Without the effects of g." in said


@pytest.mark.parametrize(("family", "response"), [("poisson", "count"), ("gaussian", "y")])
def test_a_check_counts_weighted_rows_by_their_weights_or_says_that_it_does_not(family, response):
    frame = small_frame().assign(w=np.arange(30) % 3 + 1.0)
    formula = f"{response} | weights(w) ~ x + nn(u)"
    bundle, rows = small_bundle(formula, frame, family=family)
    material = memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows)
    figure = draw(material, "ppc")
    (axes,) = figure.axes
    if family == "gaussian":
        assert "30 training rows, unweighted." in texts(figure)
        return
    assert axes.get_ylabel().startswith("sum of w")
    heights = [bar.get_height() for bar in axes.patches]
    assert sum(heights) == pytest.approx(frame["w"].sum())
    assert "weighted by w" in texts(draw(material, "calibration"))


def test_a_transform_counts_rows_by_their_weights():
    from semistan.show.pictures.calibration import _bars

    generator = np.random.default_rng(0)
    pit, times = generator.random(50), generator.integers(1, 4, 50)
    nothing = np.zeros(50)
    once = Pointwise(*[nothing] * 6, pit, np.zeros((50, 0)), times.astype(float))
    repeated, _ = np.histogram(np.repeat(pit, times), 10, range=(0, 1))
    np.testing.assert_allclose(_bars(once)[0], repeated * 10 / times.sum())
    lower, upper = _bars(once)[1]
    number = times.sum() ** 2 / (times**2).sum()
    assert upper - lower > stats.norm.ppf(0.99) * 2 * np.sqrt(0.09 / number) * 10 * 0.8
