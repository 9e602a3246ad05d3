"""Pictures of checks and pairs: what they draw, against the numbers that they are of."""

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.posterior.checks import predictive_checks
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.scoring.loo_pit import loo_pit, uniform_band
from semistan.show.pictures import alt_text, draw
from semistan.show.pictures.material import memory_material
from semistan.show.pictures.words import number
from support.drawn import random_draws
from support.figures import texts, untidy
from support.small import category_bundle, small_bundle


@pytest.fixture(scope="module")
def material():
    bundle, rows = small_bundle()
    return memory_material(
        SubspacePosterior(bundle, random_draws(bundle, chains=2, iterations=300)), rows
    )


def test_the_line_of_loo_pit_is_the_difference_of_the_distribution_functions(material):
    generator = np.random.default_rng(material.seed)
    values, _ = loo_pit(material.posterior, material.rows, generator)
    band = uniform_band(values, 0.95, generator)
    figure = draw(material, "loo_pit")
    (axes,) = figure.axes
    line = axes.lines[-1]
    assert line.get_ydata()[1:-1] == pytest.approx(band.ecdf - band.z)
    assert f"leaves the band at {band.outside} of 29 points" in texts(figure).replace("\n", " ")
    assert f"at {band.outside} of 29 points" in alt_text(material, "loo_pit")


def test_statistics_have_a_panel_each_with_their_p(material):
    found = predictive_checks(
        material.posterior, material.rows, "sd,max", groups=material.table["g"].to_numpy(), by="g",
        generator=np.random.default_rng(material.seed),
    )  # fmt: skip
    figure = draw(material, "stat", stat="sd,max", by="g")
    assert len(figure.axes) == 6
    assert not untidy(figure)
    for axes, each in zip(figure.axes, found.several, strict=True):
        assert axes.get_title(loc="left") == (
            f"{each.statistic}, g = {each.group}   p = {number(each.p)}"
        )
        assert axes.lines[0].get_xdata()[0] == each.observed
    with pytest.raises(InputError, match="has no column 'h'"):
        draw(material, "stat", by="h")


def test_pairs_are_the_draws_of_the_parameters_that_are_named(material):
    figure = draw(material, "pairs", variable="b_x, sigma")
    assert len(figure.axes) == 3
    below = figure.axes[1]
    drawn = material.posterior.interpreted
    x, y = below.collections[0].get_offsets().T
    assert np.isin(x, drawn["b_x"]).all()
    assert np.isin(y, drawn["sigma"]).all()
    r = np.corrcoef(drawn["b_x"].ravel(), drawn["sigma"].ravel())[0, 1]
    assert f"of b_x and sigma {r:.2f}" in alt_text(material, "pairs", variable="b_x,sigma")
    for wrong, message in (("b_y,sigma", "is called 'b_y'"), ("b_x", "pairs are of 2 to 10")):
        with pytest.raises(InputError, match=message):
            draw(material, "pairs", variable=wrong)


@pytest.mark.parametrize("kind", ["stat", "loo_pit"])
def test_unordered_categories_have_no_such_picture(kind):
    bundle, rows = category_bundle()
    material = memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows)
    with pytest.raises(InputError, match=f"there is no picture '{kind}' of this fit: unordered"):
        draw(material, kind)
