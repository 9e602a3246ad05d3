"""The picture of what the network found: its numbers, scales and labels."""

import numpy as np
import pytest

from semistan.posterior.effects.decomposition import decompose
from semistan.posterior.posterior import SubspacePosterior
from semistan.show.pictures import decomposition_alt, draw_decomposition
from support.drawn import random_draws
from support.figures import lines, texts, ticks, untidy
from support.small import small_bundle, small_frame


def decomposed(formula, frame=None):
    frame = small_frame(120) if frame is None else frame
    bundle, _ = small_bundle(formula, frame)
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    return decompose(posterior, frame, generator=np.random.default_rng(1))


@pytest.fixture(scope="module")
def found():
    return decomposed("y ~ x + nn(u, v, g)")


def test_each_component_has_a_panel_with_its_share(found):
    figure = draw_decomposition(found, label="y")
    shares = found.shares.mean(axis=0)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"{found.components[i]}: {shares[i]:.1%}" for i in found.order]
    assert not untidy(figure)
    assert "not shown" not in texts(figure)
    assert decomposition_alt(found, label="y").count("%") == 6


def test_lines_are_means_of_draws_and_panels_of_one_kind_share_an_axis(found):
    figure = draw_decomposition(found, label="y")
    by_name = {axes.get_title(loc="left").split(": ")[0]: axes for axes in figure.axes}
    (x, y) = max(lines(by_name["u"], marker="None", linewidth=1.5), key=lambda line: len(line[0]))
    draws = found.analysis.component(found.components.index("u"), [x])
    assert y == pytest.approx(draws.mean(axis=0))
    assert ticks(by_name["g"].xaxis) == ["a", "b", "c"]
    assert [text.get_text() for text in by_name["v:g"].get_legend().get_texts()] == [
        "g = a", "g = b", "g = c",
    ]  # fmt: skip
    for names in (("u", "v", "g"), ("u:v", "u:g", "v:g")):
        assert len({by_name[name].get_ylim() for name in names}) == 1


def test_many_components_are_the_largest_ones():
    generator = np.random.default_rng(8)
    names = [f"u{j}" for j in range(9)]
    frame = small_frame(300).assign(**{name: generator.normal(size=300) for name in names})
    found = decomposed(f"y ~ nn({', '.join(names)})", frame)
    figure = draw_decomposition(found, label="y")
    assert len(figure.axes) == 10
    assert f"{len(found.components) - 10} smaller components are not shown" in texts(figure)
    assert not untidy(figure)


def test_one_input_has_one_panel():
    figure = draw_decomposition(decomposed("y ~ nn(u)"), label="y")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["u: 100.0%"]
    assert not untidy(figure)
