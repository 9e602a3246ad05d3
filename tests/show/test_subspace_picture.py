"""The picture of a subspace: what is drawn is what was trained and what its measures say."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from semistan.bundle.bundle import write_bundle
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.model.bundle import as_sampled
from semistan.model.config import SampleConfig
from semistan.model.construction import CONSTRUCTIONS
from semistan.model.subspace import along
from semistan.posterior.posterior import SubspacePosterior
from semistan.show.pictures import draw, slice
from semistan.show.pictures import measures as picture
from semistan.show.pictures.material import evenly, memory_material
from semistan.show.pictures.measures import Measured, draw_measures, measures_alt
from semistan.show.pictures.slice import Plane, evaluate
from semistan.show.pictures.write import write_picture
from semistan.subspace.curve import curve_points
from semistan.subspace.measures import measure, relative_error
from semistan.subspace.nested_errors import MOST_SIZES, nested_errors
from semistan.workflow.outputs import plot_subspace
from support.command import command_in
from support.drawn import random_draws
from support.figures import legend, lines, texts, untidy
from support.random_problem import naive_ggn, naive_jacobian, random_problem, with_precision
from support.small import family_bundle, small_frame

NAMES = list(CONSTRUCTIONS)
ORDERED = [name for name in NAMES if name != "full"]  # by the spread of their directions
CURVES = ("bezier", "curve", "naive")
POINTS = {"marker": "D"}


def small_measured(construction="bezier", family="gaussian", draws=False, **settings):
    settings = {"train__epochs": 4, "subspace__snapshots": 5} | settings
    bundle, rows = family_bundle(family, subspace__construction=construction, **settings)
    return Measured(bundle, rows, random_draws(bundle) if draws else None)


def naive_log_lik(bundle, rows, phi, theta, sigma):
    """Of gaussian rows at phi, with one hidden layer of three tanh units, row by row."""
    subspace, units = bundle.subspace, bundle.units
    w, a = subspace.p_bar.copy(), len(subspace.axes)
    for value, position in zip(phi[:a], subspace.axes, strict=True):
        w[position] += value
    for value, direction in zip(phi[a:], subspace.Pi.T, strict=True):
        w += value * direction
    if subspace.holds_theta:
        theta = subspace.theta_bar + subspace.theta_Pi @ phi
    return log_lik_of_weights(rows, units, w, theta, sigma)


def log_lik_of_weights(rows, units, w, theta, sigma):
    total = 0.0
    for y, x, u in zip(rows.y, rows.X, rows.U, strict=True):
        hidden = np.tanh(w[:6].reshape(3, 2) @ ((u - units.u_loc) / units.u_scale) + w[6:9])
        eta = units.eta_loc + units.eta_scale * (w[9:12] @ hidden + w[12])
        total += stats.norm.logpdf(y, eta + (x - units.x_loc) @ theta, sigma)
    return total


def panel(figure, label):
    """Return the panel with this label of its x axis."""
    return next(axes for axes in figure.axes if axes.get_xlabel() == label)


def coordinates(bundle):
    """The control points' coordinates, by least squares."""
    P, deviations = bundle.subspace.matrix, bundle.trained.control_points - bundle.subspace.p_bar
    return np.linalg.lstsq(P, deviations.T, rcond=None)[0].T


@pytest.mark.parametrize("draws", [False, True], ids=["bundle", "draws"])
@pytest.mark.parametrize("construction", ORDERED)
@pytest.mark.lengthy
def test_every_construction_is_drawn_as_it_was_trained(construction, draws, tmp_path):
    measured = small_measured(construction, draws=draws)
    trained, figure = measured.bundle.trained, draw_measures(measured)
    k, number = measured.bundle.subspace.k, len(trained.control_points)
    assert not untidy(figure)
    write_picture(figure, tmp_path / "picture.png")
    spread, *scales = lines(panel(figure, "direction"))
    np.testing.assert_array_equal(spread, (np.arange(1, k + 1), trained.singular_values))
    assert len(scales) == (construction == "pca")
    if scales:
        np.testing.assert_array_equal(scales[0][1], measured.bundle.subspace.phi_scale)
    ((x, y),) = lines(panel(figure, "phi[1]"), **POINTS)
    np.testing.assert_allclose((x, y), coordinates(measured.bundle)[:, :2].T, atol=1e-9)
    found = measure(measured.problem, measured.bundle.units, trained)
    error = lines(panel(figure, "the first j directions"))[1][1]
    assert error[-1] == pytest.approx(found.relative_error, rel=1e-9, abs=1e-12)
    assert ("posterior draws" in legend(figure)) == draws
    assert ("control points" if number > 1 else "trained network") in legend(figure)
    alt = re.fullmatch(
        r"Subspace of 13 weights.*relative error (\S+) with.*\.", measures_alt(measured)
    )
    assert float(alt[1]) == pytest.approx(found.relative_error, rel=5e-3, abs=1e-12)


@pytest.mark.parametrize("settings", [{"construction": "full"}, {"k": "auto"}], ids=str)
def test_all_weights_have_a_loss_and_a_slice_alone(settings):
    bundle, rows = family_bundle("gaussian", subspace=settings)
    measured = Measured(bundle, rows, random_draws(bundle))
    figure, text = draw_measures(measured), measures_alt(measured)
    assert not untidy(figure)
    loss = "epoch" if "construction" in settings else "position t on the trained curve"
    shown = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    assert shown == [loss, "phi[1]"]
    assert "j directions" not in legend(figure)
    assert "relative error" not in texts(figure) + text
    assert "Each weight moves by itself" in texts(figure).replace("\n", " ")
    assert "singular" not in text
    assert "each weight moves by itself" in text


@pytest.mark.parametrize("construction", NAMES)
def test_the_loss_is_that_of_the_curve_or_of_the_training(construction):
    measured = small_measured(construction)
    bundle, trained = measured.bundle, measured.bundle.trained
    figure = draw_measures(measured)
    if construction not in CURVES:
        training = lines(panel(figure, "epoch"))[0]
        np.testing.assert_array_equal(training, (trained.history["epoch"], trained.history["loss"]))
        return
    axes = panel(figure, "position t on the trained curve")
    (curve,) = lines(axes, marker="None")
    np.testing.assert_array_equal(curve, (trained.curve["t"], trained.curve["loss"]))
    ((t, losses),) = lines(axes, **POINTS)
    np.testing.assert_array_equal(t, [0, 0.5, 1])
    np.testing.assert_allclose(losses[[0, 2]], trained.curve["loss"][[0, -1]], rtol=1e-10)
    phi = coordinates(bundle)[1]
    expected = naive_log_lik(bundle, measured.rows, phi, trained.theta, trained.dispersion["sigma"])
    assert losses[1] == pytest.approx(-expected / len(measured.rows), rel=1e-10)


def test_control_points_have_the_loss_of_their_own_weights():
    measured = small_measured(subspace__k=3)
    bundle, trained = measured.bundle, measured.bundle.trained
    for w, loss in zip(trained.control_points, measured.point_losses, strict=True):
        expected = log_lik_of_weights(
            measured.rows, bundle.units, w, trained.theta, trained.dispersion["sigma"]
        )
        assert loss == pytest.approx(-expected / 30, rel=1e-10)


@pytest.mark.parametrize("draws", [False, True], ids=["bundle", "draws"])
@pytest.mark.parametrize("construction", NAMES)
def test_the_slice_is_the_log_density_through_the_trained_state_or_the_mean(construction, draws):
    settings = {
        "priors": {"phi": "normal(0, 2)"},
        "subspace__k": 2 if construction == "curve" else 3,
    }
    measured = small_measured(construction, draws=draws, **settings)
    bundle, plane = measured.bundle, measured.plane
    if draws:
        phi = measured.draws.phi.mean(axis=(0, 1))
        theta = measured.draws.theta.mean(axis=(0, 1))
        sigma = np.exp(np.log(measured.draws.dispersion["sigma"]).mean())
    else:
        points = bundle.trained.control_points
        phi = coordinates(bundle)[0] if len(points) == 1 else np.zeros(bundle.subspace.k)
        theta, sigma = bundle.trained.theta, bundle.trained.dispersion["sigma"]
    part = evaluate(plane)
    assert part.values.shape == (41, 41)
    assert part.values.max() == 0
    picked = [(0, 0), (13, 40), (20, 20), (37, 5)]
    expected = []
    for row, column in picked:
        phi[:2] = part.axes[0][column], part.axes[1][row]
        scale = 2 * bundle.subspace.phi_scale
        log_lik = naive_log_lik(bundle, measured.rows, phi, theta, sigma)
        expected.append(log_lik + stats.norm.logpdf(phi, 0, scale).sum())
    actual = np.array([part.values[index] for index in picked])
    np.testing.assert_allclose(actual - actual[0], np.array(expected) - expected[0], atol=1e-8)


@pytest.mark.parametrize("construction", NAMES)
def test_without_draws_the_slice_covers_the_mass_and_the_control_points(construction):
    measured = small_measured(construction, subspace__k=2)
    part, points = evaluate(measured.plane), coordinates(measured.bundle)[:, :2]
    scale = measured.bundle.subspace.phi_scale[:2]
    wide = scale * np.stack(np.meshgrid(*2 * [np.linspace(-30, 30, 121)]), axis=-1)
    density = measured.plane.density(wide)
    mass = np.exp(density - density.max())
    inside = np.ones_like(mass, dtype=bool)
    for i, axis in enumerate(part.axes):
        inside &= (axis[0] <= wide[..., i]) & (wide[..., i] <= axis[-1])
    assert mass[inside].sum() > 0.8 * mass.sum()  # the far end of a bent arm may be missed
    for values, axis in zip(points.T, part.axes, strict=True):
        assert axis[0] < values.min()
        assert values.max() < axis[-1]


def test_the_slice_shows_draws_and_curve():
    measured = small_measured(subspace__k=3, draws=True)
    figure, bundle = draw_measures(measured), measured.bundle
    axes = panel(figure, "phi[1]")
    ((x, y),) = lines(axes, marker="o")
    np.testing.assert_array_equal((x, y), measured.draws.phi.reshape(-1, 3)[:, :2].T)
    ((x, y),) = lines(axes, marker="None")
    curve = curve_points(bundle.trained.control_points, np.linspace(0, 1, 201))
    expected = (curve - bundle.subspace.p_bar) @ bundle.subspace.Pi
    np.testing.assert_allclose((x, y), expected[:, :2].T, atol=1e-12)
    assert "at their means" in texts(figure)


@pytest.mark.parametrize("draws", [False, True], ids=["bundle", "draws"])
@pytest.mark.parametrize("construction", ["bezier", "subnetwork", "low_rank_laplace", "naive"])
@pytest.mark.lengthy
def test_one_direction_has_a_profile(construction, draws):
    measured = small_measured(construction, draws=draws, subspace__k=1)
    figure, part = draw_measures(measured), evaluate(measured.plane)
    assert not untidy(figure)
    profile = lines(panel(figure, "phi[1]"), marker="None")[0]
    np.testing.assert_array_equal(profile, (part.axes[0], part.values))
    assert "the only direction" in measures_alt(measured)


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
@pytest.mark.parametrize("draws", [False, True], ids=["bundle", "draws"])
def test_other_families_are_drawn(family, draws):
    measured = small_measured(family=family, draws=draws)
    figure = draw_measures(measured)
    assert not untidy(figure)
    assert "dispersion" not in texts(figure)
    assert measured.point_losses[0] == pytest.approx(measured.bundle.trained.curve["loss"][0])


def test_draws_from_the_prior_lie_on_the_prior():
    bundle, rows = family_bundle("gaussian", priors={"phi": "normal(0, 3)"})
    measured = Measured(bundle, rows, random_draws(bundle), prior_only=True)
    figure, part = draw_measures(measured), evaluate(measured.plane)
    log_prior = stats.norm.logpdf(np.stack(np.meshgrid(*part.axes)), 0, 3).sum(axis=0)
    np.testing.assert_allclose(part.values, log_prior - log_prior.max(), atol=1e-10)
    assert "prior draws" in legend(figure)


def test_reservations_are_shown():
    measured = small_measured(draws=True)
    draws = replace(measured.draws, reservations=("tempered (a test)",))
    figure = draw_measures(replace(measured, draws=draws))
    assert "tempered (a test)" in texts(figure)


def test_some_rows_stand_for_all(monkeypatch):
    measured = small_measured()
    monkeypatch.setattr(slice, "MOST_ROWS", 10)
    monkeypatch.setattr(picture, "MOST_ROWS", 10)
    bundle, trained = measured.bundle, measured.bundle.trained
    points = np.array([[0.0, 0.0], [0.3, -0.2]])
    actual = measured.plane.density(points)
    expected = [
        3 * naive_log_lik(bundle, evenly(measured.rows, 10), phi, trained.theta,
                          trained.dispersion["sigma"])
        + stats.norm.logpdf(phi, 0, 5).sum()
        for phi in points
    ]  # fmt: skip
    assert actual[1] - actual[0] == pytest.approx(expected[1] - expected[0], abs=1e-9)
    assert "10 rows stand for all" in texts(draw_measures(measured)).replace("\n", " ")


def test_points_are_evaluated_some_at_a_time(monkeypatch):
    plane = small_measured(network__hidden=[3, 2], network__frozen=1).plane
    points = np.random.default_rng(0).normal(size=(7, 2))
    at_once = plane.density(points)
    monkeypatch.setattr("semistan.density.target.NUMBERS", 1)
    np.testing.assert_allclose(plane.density(points), at_once, rtol=1e-12)
    one_by_one = [plane.density(point) for point in points]
    np.testing.assert_allclose(one_by_one, at_once, rtol=1e-12)


@pytest.mark.parametrize("temper", ["likelihood", "subspace"])
def test_a_tempered_posterior_is_sliced_as_it_is_sampled(temper):
    measured = small_measured(draws=True)
    options = SampleConfig(temperature=3.0, temper=temper)
    plane = replace(measured.plane, bundle=as_sampled(measured.bundle, options))
    points = np.array([[0.0, 0.1], [0.4, -0.2]])
    target = make_target(plane.bundle, plane.rows)
    expected = []
    for point in points:
        q = torch.tensor(np.concatenate([point, plane.centre[2:]]))
        expected.append(-negative_log_posterior(target, q))
    np.testing.assert_allclose(plane.density(points), expected, rtol=1e-12)


def test_the_picture_of_a_run_is_this_slice():
    measured = small_measured("pca", draws=True)
    material = memory_material(SubspacePosterior(measured.bundle, measured.draws), measured.rows)
    (both,) = (axes for axes in draw(material, "subspace").axes if axes.get_xlabel() == "phi[1]")
    here = panel(draw_measures(measured), "phi[1]")
    assert both.get_xlim() == here.get_xlim()
    for one, two in zip(lines(both), lines(here), strict=True):
        np.testing.assert_array_equal(one, two)


# what the first directions keep


def test_nested_errors_are_those_of_the_first_directions():
    problem, state = random_problem("poisson", hidden=(4,))
    d = problem.network.d
    subspace = along(np.zeros(d), np.random.default_rng(1).normal(size=(d, 6)), "test")
    problem = with_precision(problem, 0.3)
    found = nested_errors(problem, state, subspace)
    np.testing.assert_array_equal(found.j, np.arange(1, 7))
    expected = [
        relative_error(problem, problem, state, along(np.zeros(d), subspace.Pi[:, :j], "test"))
        for j in found.j
    ]
    np.testing.assert_allclose(found.error, [error for error, _ in expected], rtol=1e-9)
    assert (np.diff(found.error) < 0).all()
    H, J = naive_ggn(problem, state, 0.3), naive_jacobian(problem, state)
    covariance = np.sort(np.linalg.eigvalsh(J @ np.linalg.inv(H) @ J.T))[::-1]
    best = [np.linalg.norm(covariance[j:]) / np.linalg.norm(covariance) for j in found.j]
    np.testing.assert_allclose(found.best, best, rtol=1e-8)
    assert (found.best < found.error).all()


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
@pytest.mark.parametrize("construction", NAMES)
def test_each_direction_keeps_more(construction, family):
    measured = small_measured(construction, family, subspace__k=4 if construction != "curve" else 2)
    nested = measured.nested
    assert nested.j[-1] == measured.bundle.subspace.k
    assert (np.diff(nested.error) <= 1e-12).all()
    assert (nested.error >= nested.best - 1e-12).all()
    found = measure(measured.problem, measured.bundle.units, measured.bundle.trained)
    assert nested.error[-1] == pytest.approx(found.relative_error, rel=1e-8, abs=1e-12)


def test_many_directions_are_measured_at_some_numbers_of_them():
    measured = small_measured("full", network__hidden=[20])
    nested, k = measured.nested, measured.bundle.subspace.k
    assert len(nested.j) == MOST_SIZES < k
    assert (nested.j[0], nested.j[-1]) == (1, k)
    assert nested.error[-1] < 1e-12


def test_with_too_many_weights_the_error_is_left_out(monkeypatch):
    measured = small_measured()
    monkeypatch.setattr(picture, "MOST", 12)
    figure = draw_measures(measured)
    assert not untidy(figure)
    assert "the first j directions" not in [axes.get_xlabel() for axes in figure.axes]
    assert "not computed for more than 12 weights" in texts(figure).replace("\n", " ")
    assert "relative error" not in measures_alt(measured)


# the command and the function


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run ``semistan`` in a folder with d.csv and a bundle; return code, output and error."""
    small_frame().to_csv(tmp_path / "d.csv", index=False)
    write_bundle(small_measured().bundle, tmp_path / "bundle")
    run = command_in(tmp_path, monkeypatch, capsys)
    return lambda *arguments: run("subspace", *arguments)


def test_the_command_draws_a_bundle(command, tmp_path):
    given = ("bundle", "--data", "d.csv", "--picture", "s.png")
    code, out, err = command(*given)
    assert code == 0, err
    assert "relative error" in out
    assert "wrote s.png" in err
    first = (tmp_path / "s.png").read_bytes()
    code, _, err = command(*given)
    assert (code, "--overwrite" in err) == (2, True)
    code, _, err = command(*given, "--overwrite")
    assert code == 0, err
    assert (tmp_path / "s.png").read_bytes() == first
    code, _, err = command("bundle", "--data", "d.csv", "--picture", "s.pdf")
    assert (code, ".png or .svg" in err) == (2, True)


def test_a_bundle_is_drawn_from_python(tmp_path):
    measured = small_measured()
    figure = plot_subspace(measured.bundle, tmp_path / "s.svg", rows=measured.rows)
    assert (tmp_path / "s.svg").is_file()
    assert panel(figure, "phi[1]")
    with pytest.raises(InputError, match="--data"):
        plot_subspace(measured.bundle)


def test_a_plane_says_what_it_shows():
    measured = small_measured()
    assert measured.plane.words == "log posterior density"
    likelihood = Plane(measured.bundle, measured.rows, None, (0, 1), "likelihood")
    points = np.array([[0.0, 0.0], [0.3, -0.2]])
    difference = measured.plane.density(points) - likelihood.density(points)
    log_prior = stats.norm.logpdf(points, 0, 5).sum(axis=1)
    assert np.diff(difference) == pytest.approx(np.diff(log_prior), abs=1e-9)
