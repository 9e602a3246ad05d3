"""Functional analysis of variance, against closed forms, and of networks' draws."""

from dataclasses import replace

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design
from semistan.model.subspace import along
from semistan.posterior.effects.anova import Space, analyse
from semistan.posterior.effects.decomposition import Input, chosen_space, decompose
from semistan.posterior.effects.input_basis import level_basis, spline_basis
from semistan.posterior.posterior import Mixture, SubspacePosterior
from support.drawn import random_draws
from support.small import small_bundle, small_frame

N = 4000


def analysed(U, f, singles=18, factors=6, weights=None):
    n, Q = U.shape
    weights = np.full(n, 1 / n) if weights is None else weights / weights.sum()
    bases = [tuple(spline_basis(x, weights, size) for x in U.T) for size in (singles, factors)]
    space = Space(*bases, tuple((j, k) for j in range(Q) for k in range(j + 1, Q)))
    return analyse(space, list(U.T), weights, f[:, None])


def near(draw, function, expected, bias=0.003):
    """Shares are within four Monte Carlo errors, and what splines miss, of the population's."""
    found = []
    for seed in range(12):
        U = draw(np.random.default_rng(seed))
        one = analysed(U, function(*U.T))
        assert one.shares.sum() + one.rest.item() == pytest.approx(1, abs=1e-9)
        found.append([*one.shares[:, 0], one.rest.item(), one.beyond.item()])
    errors = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - expected) < 4 * errors + bias).all()


def cube(low, high):
    return lambda generator: generator.uniform(low, high, (N, 3))


@pytest.fixture
def uniform():
    return np.random.default_rng(3).uniform(-np.pi, np.pi, (N, 3))


def test_an_additive_function_has_no_interactions(uniform):
    a, b, c = uniform.T
    found = analysed(uniform, np.sin(a) + np.exp(b / 2) - np.tanh(2 * c))
    assert np.abs(found.shares[3:]).max() < 1e-4
    assert found.beyond < 1e-4
    assert np.abs(found.rest) < 1e-4


def test_a_product_of_centred_inputs_is_an_interaction_alone():
    near(lambda g: g.normal(size=(N, 3)), lambda a, _, c: a * c, [0, 0, 0, 0, 1, 0, 0, 1])


def test_the_shares_of_ishigamis_function():
    near(
        cube(-np.pi, np.pi),
        lambda a, b, c: np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a),
        [0.3139, 0.4424, 0, 0, 0.2437, 0, 0, 0.2437],
    )


def test_the_shares_of_sobols_g_function():
    a = np.array([0, 1, 4.5])
    V = 1 / (3 * (1 + a) ** 2)
    parts = np.array([*V, V[0] * V[1], V[0] * V[2], V[1] * V[2], V.prod()])
    shares = parts / parts.sum()
    near(
        cube(0, 1),
        lambda *u: ((np.abs(4 * np.array(u).T - 2) + a) / (1 + a)).prod(axis=1),
        [*shares, shares[3:].sum()],
    )


def test_correlated_inputs_of_a_linear_function_share_their_covariances():
    C = np.array([[1, 0.7, 0.2], [0.7, 1, -0.3], [0.2, -0.3, 1]])
    b = np.array([1, -0.5, 2])
    U = np.random.default_rng(6).multivariate_normal(np.zeros(3), C, N)
    found = analysed(U, U @ b)
    exact = b * (np.cov(U.T) @ b) / (b @ np.cov(U.T) @ b)
    assert found.shares[:3, 0] == pytest.approx(exact, abs=1e-5)
    assert found.deviations[:3, 0] == pytest.approx(np.abs(b) * U.std(axis=0), rel=1e-4)


def test_the_product_of_correlated_inputs():
    """The best additive function is rho (u^2 + v^2) / (1 + rho^2), half of it of each input."""
    rho = 0.6
    additive = 4 * rho**2 / (1 + rho**2) ** 2
    near(
        lambda g: g.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 2 * N),
        lambda u, v: u * v,
        [additive / 2, additive / 2, 1 - additive, 0, 1 - additive],
    )


def test_main_effects_take_nothing_of_an_interaction_where_rows_are_few():
    normal = np.random.default_rng(2).normal(size=(40, 200, 4))
    found = [analysed(U, U[:, 0] * U[:, 1], 6, 2).shares[:, 0] for U in normal]
    errors = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    expected = np.eye(10)[4]
    assert (np.abs(np.mean(found, axis=0) - expected) < 4 * errors + 0.003).all()


def test_what_three_inputs_do_is_not_too_small_where_rows_are_few():
    found = []
    for seed in range(40):
        U = np.random.default_rng(seed).normal(size=(200, 4))
        f = U[:, 0] + U[:, 0] * U[:, 1] * U[:, 2]
        found.append(analysed(U, f, 3, 2).beyond.item())
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(0.5, abs=4 * error)


def test_units_weights_and_the_order_of_rows_do_not_matter(uniform):
    f = np.sin(uniform[:, 0]) * uniform[:, 1] + uniform[:, 2]
    found = analysed(uniform, f)
    other = analysed(1000 * uniform[::-1] - 5, 7 - 3 * f[::-1])
    assert other.shares == pytest.approx(found.shares, abs=1e-6)
    weights = np.repeat([1.0, 0.0], N // 2)
    weighted = analysed(uniform, f, weights=weights)
    half = analysed(uniform[: N // 2], f[: N // 2])
    assert weighted.variance == pytest.approx(half.variance)
    assert weighted.shares == pytest.approx(half.shares, abs=0.01)


def test_bases_are_orthonormal_over_weighted_rows_and_exact_for_few_values():
    generator = np.random.default_rng(2)
    weights = generator.uniform(size=500)
    weights /= weights.sum()
    number, few = generator.normal(size=500), generator.integers(0, 5, 500)
    for basis, x in (
        (spline_basis(number, weights, 10), number),
        (spline_basis(few * 1.5, weights, 10), few * 1.5),
        (level_basis(few, weights, 10), few),
    ):
        B = basis.columns(x)
        assert weights @ B == pytest.approx(np.zeros(basis.size), abs=1e-9)
        assert B.T @ (weights[:, None] * B) == pytest.approx(np.eye(basis.size), abs=1e-9)
    assert basis.size == 4


def posterior_of(formula, frame=None, n=200, **settings):
    frame = small_frame(n) if frame is None else frame
    bundle, _ = small_bundle(formula, frame, **settings)
    return SubspacePosterior(bundle, random_draws(bundle)), frame


@pytest.mark.parametrize(("n", "noise"), [(400, 0.05), (400, 0.02), (4000, 0.02)])
def test_inputs_that_nearly_determine_one_another_have_no_large_components_that_cancel(n, noise):
    generator = np.random.default_rng(1)
    u, v = generator.normal(size=(2, n))
    w = u + v + noise * generator.normal(size=n)
    f = np.tanh(2 * u) * (1 + v / 2) + np.sin(w)
    found = analysed(np.stack([u, v, w], axis=1), f, 6, 3)
    assert (found.shares > -0.05).all()
    assert (found.deviations < f.std()).all()
    assert found.shares[:3].sum() == pytest.approx(1 - found.beyond.item(), abs=0.25)
    assert found.shares.sum() + found.rest.item() == pytest.approx(1)


def decomposed(posterior, frame, **options):
    return decompose(posterior, frame, generator=np.random.default_rng(1), **options)


def test_a_network_without_hidden_layers_is_additive():
    posterior, frame = posterior_of("y ~ x + nn(u, v, g)", network__hidden=[])
    found = decomposed(posterior, frame)
    assert found.components[:3] == ("u", "v", "g")
    assert found.analysis.beyond.max() < 1e-6
    assert found.additive() == 1
    assert found.totals()["Estimate"].tolist() == pytest.approx([1, 0, 0, 0], abs=1e-4)
    assert found.table()["Estimate"].sum() == pytest.approx(1)


def test_the_shares_of_draws_are_those_of_their_slopes():
    posterior, frame = posterior_of("y ~ x + nn(u, v)", network__hidden=[])
    found = decomposed(posterior, frame)
    f = posterior.network(apply_design(posterior.design, frame, response=False))
    units, draws = posterior.bundle.units, posterior.draws
    w = posterior.bundle.subspace.lift(draws.flat(draws.phi))
    u = units.eta_scale * w[:, :1] * (frame["u"].to_numpy() - units.u_loc[0]) / units.u_scale[0]
    expected = [np.cov(a, b)[0, 1] / b.var(ddof=1) for a, b in zip(u, f, strict=True)]
    assert found.shares[:, 0] == pytest.approx(np.array(expected), abs=1e-6)


def test_networks_of_their_own_inputs_do_not_interact():
    posterior, frame = posterior_of("y ~ x + nn(u, v) + nn(z, log(z), g)")
    found = decomposed(posterior, frame)
    assert set(found.components) == {"u", "v", "z", "g", "u:v", "z:g"}
    assert found.pairs == (2, 2)


def test_one_input_has_all_and_two_leave_no_rest():
    for formula, names in (("y ~ x + nn(u)", {"u"}), ("y ~ nn(u, v)", {"u", "v", "u:v"})):
        found = decomposed(*posterior_of(formula))
        assert set(found.components) == names
        assert found.shares[:, -1] == pytest.approx(0)
        assert found.shares.sum(axis=1) == pytest.approx(1)


def test_several_subspaces_and_other_predictors():
    posterior, frame = posterior_of("y ~ x + nn(u, v), sigma ~ z + nn(u, g)")
    mixture = Mixture((posterior, posterior))
    once, twice = decomposed(posterior, frame), decomposed(mixture, frame)
    assert twice.shares == pytest.approx(np.concatenate([once.shares] * 2))
    assert decomposed(posterior, frame, dpar="sigma").components[:2] == ("u", "g")


@pytest.mark.parametrize("n", [20, 60])
def test_few_rows_have_few_functions(n):
    found = decomposed(*posterior_of("y ~ nn(x, u, v, z, g)", n=n))
    assert found.space.size <= n
    assert np.isfinite(found.table().iloc[:, 1:5]).all(axis=None)


def test_many_inputs_have_the_pairs_that_matter():
    generator = np.random.default_rng(8)
    names = [f"u{j}" for j in range(12)]
    frame = small_frame(300).assign(**{name: generator.normal(size=300) for name in names})
    posterior, _ = posterior_of(f"y ~ nn({', '.join(names)})", frame)
    found = decomposed(posterior, frame)
    told, every = found.pairs
    assert (told < every, every) == (True, 66)


def test_a_constant_network_has_no_shares():
    posterior, frame = posterior_of("y ~ nn(u, v)", network__hidden=[])
    space = posterior.bundle.subspace
    flat = along(np.zeros_like(space.p_bar), 0 * space.Pi, "by hand")
    trained = replace(posterior.bundle.trained, subspace=flat)
    still = replace(posterior, bundle=replace(posterior.bundle, trained=trained))
    found = decomposed(still, frame)
    assert (found.shares == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dpar": "sigma"}, "the predictor of 'sigma' has no network"),
        ({"dpar": "shape"}, "has no parameter 'shape'"),
        ({"rows": 5}, "at least 10 rows, got 5"),
        ({"rows": 0}, "rows must be at least 1"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(InputError) as caught:
        decomposed(*posterior_of("y ~ nn(u, v)"), **options)
    assert message in str(caught.value)


def test_a_share_to_be_as_good_as_none_lies_between_0_and_1():
    found = decomposed(*posterior_of("y ~ nn(u, v)"))
    with pytest.raises(InputError, match="between 0 and 1, got 5"):
        found.additive(5)
    assert found.additive(0.999) >= found.additive(0.001)


def test_components_and_their_sum_at_rows_are_the_function():
    U = np.random.default_rng(9).normal(size=(500, 2))
    f = U[:, 0] + U[:, 0] ** 2 * U[:, 1]
    found = analysed(U, f, 6, 6)
    parts = [found.component(0, [U[:, 0]]), found.component(1, [U[:, 1]])]
    parts.append(found.component(2, list(U.T)))
    assert sum(parts)[0] == pytest.approx(f - f.mean(), abs=0.1)
    assert [part.std() for part in parts] == pytest.approx(found.deviations[:, 0])
    assert parts[0] @ parts[2].T / 500 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_curves_do_not_follow_what_interactions_do_by_chance(seed):
    """A product has no main effects, and functions of single inputs are followed as before."""
    u, v = np.random.default_rng(seed).uniform(-1.7, 1.7, (2, 600))
    weights, inputs = np.full(600, 1 / 600), (Input("u", u), Input("v", v))
    for f, share in ((u * v, 0.0), (np.sin(4 * u) + v**2, 1.0), (np.sin(4 * u) + u * v, 0.34)):
        space, most = chosen_space(inputs, [(0, 1)], weights, f[:, None])
        assert most == 18
        found = analyse(space, (u, v), weights, f[:, None])
        assert found.shares[:2].sum() == pytest.approx(share, abs=0.06)
        if share == 0:
            grid = np.linspace(-1.7, 1.7, 50)
            for j in range(2):
                assert np.abs(found.component(j, [grid])).mean() < 0.12 * f.std()
