"""Gaussian processes by a Hilbert-space basis, against their covariance function."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats
from sklearn.gaussian_process.kernels import RBF, Matern

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.streams import Streams
from semistan.model.terms.gp import inverse_gamma
from semistan.model.terms.gp_covariances import COVARIANCES
from semistan.model.terms.term import TensorBlock

N = 40


def table():
    generator = np.random.default_rng(3)
    frame = pd.DataFrame({"x": 50 + 7 * generator.random(N), "u": generator.random(N)})
    return frame.assign(y=np.sin(frame.x))


def learnt(term, frame=None):
    formula = parse_formula(f"y ~ {term} + nn(u)")
    design, rows = learn_design(formula, table() if frame is None else frame)
    return design, design.terms[0], rows


def exact_covariance(name, lscale):
    """The covariance of values at two sets of places by scikit-learn."""
    kernel = RBF(lscale) if name == "exp_quad" else Matern(lscale, nu=float(name[-2:]) / 10)
    return lambda a, b: kernel(np.asarray(a)[:, None], np.asarray(b)[:, None])


@pytest.mark.parametrize("lscale", [0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    ("cov", "error"), [("exp_quad", 1e-4), ("matern25", 1e-3), ("matern15", 5e-3)]
)
def test_with_many_functions_the_covariance_is_that_of_its_name(cov, error, lscale):
    _, process, rows = learnt(f"gp(x, k=200, c=5, cov='{cov}')")
    Z = rows.predictors["mu"].blocks[0].Z * process.root(lscale)
    x = (table().x.to_numpy() - process.middle) / process.width
    assert np.ptp(x) == pytest.approx(1)
    assert np.abs(Z @ Z.T - exact_covariance(cov, lscale)(x, x)).max() < error
    assert process.covariance.name == cov


@pytest.mark.parametrize("cov", COVARIANCES)
def test_what_a_covariance_says_of_its_reach_and_its_frequencies(cov):
    """Beyond them there is about 1% of the covariance, and less than 1% of the variance."""
    record = COVARIANCES[cov]
    (far,) = exact_covariance(cov, 1.0)([0.0], [record.reach])[0]
    assert 0.004 < far < 0.012
    density = integrate.quad(lambda w: record.root(1.0, w) ** 2 / np.pi, 0, record.last)[0]
    assert 0.99 < density < 1
    assert integrate.quad(lambda w: record.root(0.3, w) ** 2 / np.pi, 0, np.inf)[0] == (
        pytest.approx(1)
    )


def on_the_interval(x, y, new, covariance, noise):
    """Mean and sd of a process given rows with noise, at new places, by the textbook."""
    inner = covariance(x, x) + noise**2 * np.eye(len(x))
    weights = np.linalg.solve(inner, covariance(x, new)).T
    variances = np.diag(covariance(new, new)) - np.einsum("ij,ji->i", weights, covariance(x, new))
    return weights @ y, np.sqrt(variances)


@pytest.mark.parametrize("lscale", [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("rows", [30, 200])
@pytest.mark.parametrize("cov", COVARIANCES)
def test_the_default_basis_has_the_posterior_of_the_exact_process(cov, lscale, rows):
    noise, new = 0.3, np.linspace(-0.5, 0.5, 101)
    generator = np.random.default_rng(rows)
    x = np.concatenate([[-0.5, 0.5], generator.uniform(-0.5, 0.5, rows - 2)])
    frame = pd.DataFrame({"x": x, "u": x, "y": x})
    _, process, _ = learnt(f"gp(x, cov='{cov}')", frame)
    exact = exact_covariance(cov, lscale)

    def basis(a, b):
        of_a, of_b = (
            process.block(pd.DataFrame({"x": places})).Z * process.root(lscale) for places in (a, b)
        )
        return of_a @ of_b.T

    for _ in range(5):
        f = generator.multivariate_normal(np.zeros(rows), exact(x, x) + 1e-10 * np.eye(rows))
        y = f + noise * generator.normal(size=rows)
        mean, sd = on_the_interval(x, y, new, exact, noise)
        nearly, nearly_sd = on_the_interval(x, y, new, basis, noise)
        assert np.abs((nearly - mean) / sd).max() < 0.1
        assert np.abs(nearly_sd / sd - 1).max() < 0.1


@pytest.mark.parametrize(
    ("term", "lscale", "advice"),
    [
        ("gp(x)", 0.3, None),
        ("gp(x)", 0.06, None),
        (
            "gp(x)",
            1.5,
            "from 0.05 to 1 of the range, so that its curve is off: write gp(",
        ),
        ("gp(x, k=20, c=1.25)", 0.3, "follows length scales from 0.08 to 0.083"),
        ("gp(x, k=20, c=2.5)", 0.1, "from 0.16 to 0.5 of the range"),
        ("gp(x, k=20, c=2.5, cov='matern25')", 0.1, "from 0.36 to 0.38 of the range"),
    ],
)
def test_a_posterior_that_the_basis_does_not_follow_is_warned_of(term, lscale, advice):
    _, process, _ = learnt(term)
    draws = {"lscale_gpx": lscale * np.random.default_rng(1).lognormal(0, 0.1, (2, 500))}
    found = process.warning(draws)
    assert (found is None) == (advice is None)
    if found is None:
        return
    assert advice in found
    written = re.search(r"write (gp\(.*\))\.$", found)[1]
    assert learnt(written)[1].warning(draws) is None


def test_what_is_given_stays_and_the_prior_is_of_what_the_basis_follows():
    given = learnt("gp(x, k=20, c=1.25)")[1]
    assert (given.count, given.margin) == (20, 1.25)
    few = learnt("gp(x, k=30)")[1]
    assert (few.count, few.margin) == (30, 4)
    prior = stats.invgamma(few.prior[0], scale=few.prior[1])
    assert prior.cdf([few.followed[0], 1]) == pytest.approx([0.01, 0.99], abs=1e-6)
    coarse = learnt("gp(x)", table().assign(x=np.arange(N) % 6))[1]
    assert coarse.followed == (pytest.approx(0.2), 1)
    assert coarse.count < learnt("gp(x)")[1].count < 60


def test_a_stored_basis_is_kept():
    plain = design_to_plain(learnt("gp(x)")[0])
    del plain["processes"][0]["graded"]
    plain["processes"][0] |= {"count": 20, "margin": 1.25}
    again = design_from_plain(plain).terms[0]
    L, x = 1.25 / 2, (table().x.to_numpy() - again.middle) / again.width
    w = np.arange(1, 21) * np.pi / (2 * L)
    assert pytest.approx(np.sin(np.outer(x + L, w)) / np.sqrt(L)) == again.block(table()).Z


def test_coefficients_are_the_root_of_the_spectral_density_times_z():
    _, process, rows = learnt("gp(x, k=5)")
    z = np.random.default_rng(1).normal(size=5)
    plain = {"zgp_1": z, "sdgp_gpx": 2.0, "lscale_gpx": 0.2}
    values = {name: torch.tensor(x, dtype=torch.float64) for name, x in plain.items()}
    block = rows.predictors["mu"].blocks[0]
    L, total = 4 / 2, np.zeros(N)
    for i, x in enumerate((table().x - process.middle) / process.width):
        for j in range(1, 6):
            w = j * np.pi / (2 * L)
            density = 4 * np.sqrt(2 * np.pi) * 0.2 * np.exp(-((0.2 * w) ** 2) / 2)
            total[i] += np.sqrt(density / L) * np.sin(w * (x + L)) * z[j - 1]
    found = process.value(values, TensorBlock(torch.tensor(block.Z), torch.tensor(block.level)))
    assert found.numpy() == pytest.approx(total, rel=1e-10)
    made = {name: x.numpy()[None] for name, x in process.made(values).items()}
    assert process.predicted(made, block, Streams((1,), 0, 1, 1))[0] == pytest.approx(
        total, rel=1e-10
    )


@pytest.mark.parametrize("least", [0.02, 0.2, 0.5])
def test_the_prior_of_the_length_scale_has_its_tails_where_it_should(least):
    shape, scale = inverse_gamma(least, 1.0)
    prior = stats.invgamma(shape, scale=scale)
    assert prior.cdf([least, 1.0]) == pytest.approx([0.01, 0.99], abs=1e-6)


def test_the_start_has_the_trained_curve():
    _, process, _ = learnt("gp(x, k=6)")
    r = process.training_units(3.0) * np.random.default_rng(2).normal(size=6)
    start = {
        name: torch.as_tensor(x, dtype=torch.float64) for name, x in process.start(r, 3.0).items()
    }
    assert process.made(start)["rgp_1"].numpy() == pytest.approx(r)
    assert float(start["lscale_gpx"]) == pytest.approx(process.lscale_start)


def test_new_standard_deviations_keep_the_curve_and_find_the_length_scale():
    _, process, _ = learnt("gp(x, k=40, c=1.25)")
    true, generator = 0.08, np.random.default_rng(4)
    r = 5 * process.root(true) * generator.normal(size=40)
    values = {"sdgp_gpx": 1.0, "lscale_gpx": 0.3, "zgp_1": r / process.root(0.3)}
    found = process.reestimated(values, np.zeros((40, 40)), set(), 1.0)
    again = {name: torch.as_tensor(x, dtype=torch.float64) for name, x in found.items()}
    assert process.made(again)["rgp_1"].numpy() == pytest.approx(r)
    assert found["lscale_gpx"] == pytest.approx(true, rel=0.25)
    assert found["sdgp_gpx"] == pytest.approx(5, rel=0.5)


def test_names_are_brmss_and_the_state_survives_json():
    design, process, rows = learnt("gp(x, cov='matern25')")
    assert process.reported == ("sdgp_gpx", "lscale_gpx")
    assert process.described[1].startswith("gp(x), covariance matern25, ")
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    assert again.terms[0].covariance is COVARIANCES["matern25"]
    new = apply_design(again, table().iloc[[7, 2]], response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.Z, rows.predictors["mu"].blocks[0].Z[[7, 2]])


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("gp(x, k=2)", table(), "gp() takes one or two expressions"),
        ("gp(x, k=501)", table(), "gp(x) takes k up to 500, got k = 501"),
        ("gp(x, c=1)", table(), "gp() takes one or two expressions"),
        ("gp(x, cov='matern')", table(), "a covariance, which is exp_quad, matern25, matern15"),
        ("gp(x, cov=[1])", table(), "a covariance, which is exp_quad, matern25, matern15"),
        ("gp(x, u, x)", table(), "gp() takes one or two expressions"),
        ("gp(x)", table().assign(x=np.arange(N) % 2), "at least three distinct values"),
    ],
)
def test_what_cannot_be_a_process_is_refused(term, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, frame)


def test_rows_beyond_the_basis_are_refused():
    design, process, _ = learnt("gp(x)")
    edge = process.middle + process.width * 0.624
    apply_design(design, table().assign(x=edge), response=False)
    with pytest.raises(InputError, match="a larger c makes it wider"):
        apply_design(design, table().assign(x=edge + 0.1), response=False)


@pytest.mark.parametrize(
    "damage", [{"width": 0}, {"prior": [1, -1]}, {"count": 0}, {"count": 8}, {"cov": "cubic"}]
)
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt("gp(x)")[0])
    plain["processes"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)
