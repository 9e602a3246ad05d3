"""Gaussian processes of two columns, against their covariance function by scikit-learn."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import integrate
from sklearn.gaussian_process.kernels import RBF, Matern

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.terms.gp_covariances import COVARIANCES, COVARIANCES_OF_PLANE

N = 60
SHORTEST = {"exp_quad": 0.09, "matern25": 0.2, "matern15": 0.34}


def table(N=N, seed=3):
    """Places in a country of 300 km by 400 km."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": 100 + 300 * generator.random(N), "y": 400 * generator.random(N)})
    return frame.assign(u=generator.random(N), z=generator.random(N), g=np.resize(list("abc"), N),
                        value=np.sin(frame.x / 50))  # fmt: skip


def learnt(term, frame=None):
    formula = parse_formula(f"value ~ {term} + nn(u)")
    design, rows = learn_design(formula, table() if frame is None else frame)
    return design, design.terms[0], rows.predictors["mu"].blocks[0]


def exact_covariance(name, lscale):
    return RBF(lscale) if name == "exp_quad" else Matern(lscale, nu=float(name[-2:]) / 10)


def scaled(frame, process):
    """Places in units of the largest distance of two rows."""
    x = frame[["x", "y"]].to_numpy()
    width = max(np.hypot(*(a - b)) for a in x for b in x)
    assert process.width == pytest.approx(width, rel=1e-3)
    return x / width


@pytest.mark.parametrize("cov", COVARIANCES_OF_PLANE)
def test_spectral_densities_are_those_of_unit_processes(cov):
    record = COVARIANCES_OF_PLANE[cov]
    assert COVARIANCES_OF_PLANE.keys() == COVARIANCES.keys()

    def within(lscale, end):
        of_ring = lambda w: record.root(lscale, w) ** 2 * w / (2 * np.pi)  # noqa: E731
        return integrate.quad(of_ring, 0, end, limit=200)[0]

    assert within(0.3, np.inf) == pytest.approx(1, rel=1e-6)
    assert 0.985 < within(1.0, record.last) < 1


@pytest.mark.parametrize(
    ("cov", "lscale", "error"),
    [
        ("exp_quad", 0.09, 0.01),
        ("exp_quad", 0.3, 0.01),
        ("exp_quad", 1.0, 0.04),
        ("matern25", 0.2, 0.02),
        ("matern25", 1.0, 0.06),
        ("matern15", 0.34, 0.03),
        ("matern15", 1.0, 0.06),
    ],
)
def test_the_covariance_is_that_of_its_name_at_the_distance(cov, lscale, error):
    """What is left of the error at long scales is nearly constant, as is an intercept."""
    _, process, block = learnt(f"gp(x, y, cov='{cov}')")
    Z, x = block.Z * process.root(lscale), scaled(table(), process)
    off = Z @ Z.T - exact_covariance(cov, lscale)(x)
    assert np.abs(off).max() < error
    assert np.ptp(off) < max(error / 2, 0.02)
    assert 400 < process.count <= 500


@pytest.mark.parametrize(
    ("cov", "lscale"),
    [(cov, at) for cov, least in SHORTEST.items() for at in (least, 0.5, 1.0)],
)
def test_the_basis_has_the_posterior_of_the_exact_process(cov, lscale):
    noise, frame = 0.3, table(150)
    _, process, block = learnt(f"gp(x, y, cov='{cov}')", frame)
    generator, x = np.random.default_rng(1), scaled(frame, process)
    exact = exact_covariance(cov, lscale)(x)
    Z = block.Z * process.root(lscale)
    f = generator.multivariate_normal(np.zeros(150), exact + 1e-10 * np.eye(150))
    data = f + noise * generator.normal(size=150)
    found = []
    for K in (exact, Z @ Z.T):
        K = K + 4  # an intercept beside it
        gain = np.linalg.solve(K + noise**2 * np.eye(150), K).T
        found.append((gain @ data, np.sqrt(np.diag(K - gain @ K))))
    (mean, sd), (nearly, nearly_sd) = found
    assert np.abs((nearly - mean) / sd).max() < 0.5
    assert np.abs(nearly_sd / sd - 1).max() < 0.25


def test_it_is_the_same_however_the_plane_is_turned_and_moved():
    frame = table()
    a, b = np.cos(0.7), np.sin(0.7)
    turned = frame.assign(x=5 + a * frame.x - b * frame.y, y=b * frame.x + a * frame.y)
    one, other = (learnt("gp(x, y)", each) for each in (frame, turned))
    assert one[1].width == pytest.approx(other[1].width, rel=1e-3)
    K, same = ((each[2].Z * each[1].root(0.3)) @ (each[2].Z * each[1].root(0.3)).T
               for each in (one, other))  # fmt: skip
    assert np.abs(K - same).max() < 0.01


def test_names_are_brmss_and_the_state_survives_json():
    design, process, block = learnt("gp(x, y, cov='matern25')")
    assert process.reported == ("sdgp_gpxy", "lscale_gpxy")
    assert process.described[1].startswith("gp(x, y), covariance matern25, ")
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    new = apply_design(again, table().iloc[[7, 2]], response=False).predictors["mu"].blocks[0]
    assert np.array_equal(new.Z, block.Z[[7, 2]])
    assert again.terms[0].covariance is COVARIANCES_OF_PLANE["matern25"]


def test_it_varies_by_a_number_and_by_a_factor():
    plain = learnt("gp(x, y)")[2].Z
    _, by_number, block = learnt("gp(x, y, by=z)")
    assert pytest.approx(plain * table().z.to_numpy()[:, None]) == block.Z
    assert by_number.text == "gp(x, y, by=z)"
    _, by_factor, block = learnt("gp(x, y, by=g)")
    assert pytest.approx(plain) == block.Z
    assert by_factor.text == "gp(x, y, by=g)"
    assert by_factor.reported[0] == "sdgp_gpxyga"


def test_it_follows_as_short_scales_as_its_functions_and_its_places_allow():
    for cov, least in SHORTEST.items():
        process = learnt(f"gp(x, y, cov='{cov}')")[1]
        assert process.followed == (pytest.approx(least, rel=0.05), 1)
        assert learnt(f"gp(x, y, cov='{cov}', k=1000)")[1].followed[0] < 0.75 * least
    process = learnt("gp(x, y)")[1]
    i, j = np.meshgrid(np.arange(5), np.arange(5))
    grid = table(25).assign(x=i.ravel(), y=j.ravel())
    coarse = learnt("gp(x, y)", grid)[1]
    assert coarse.followed[0] == pytest.approx(1 / np.hypot(4, 4), rel=1e-3)
    assert coarse.count < process.count


@pytest.mark.parametrize(
    ("lscale", "advice"),
    [(0.3, None), (0.07, "write gp(x, y, k=1000)."), (0.05, "is off."), (1.5, "is off.")],
)
def test_a_posterior_that_the_basis_does_not_follow_is_warned_of(lscale, advice):
    draws, process = {"lscale_gpxy": np.full((2, 50), lscale)}, learnt("gp(x, y)")[1]
    found = process.warning(draws)
    assert (found is None) == (advice is None)
    if found is None:
        return
    assert found.endswith(advice)
    if written := re.search(r"write (gp\(.*\))\.$", found):
        assert learnt(written[1])[1].warning(draws) is None


@pytest.mark.parametrize(
    ("term", "frame", "message"),
    [
        ("gp(x, y, u)", table(), "gp() takes one or two expressions"),
        ("gp(x, y, c=2)", table(), "takes k and cov, and no c"),
        ("gp(x, y, k=19)", table(), "needs k = 20 functions at the least, got k = 19"),
        ("gp(x, y, k=60, cov='matern25')", table(), "follows no length scale up to the largest"),
        ("gp(x, y)", table().assign(x=1, y=np.arange(N) % 2), "at least three distinct places"),
    ],
)
def test_what_cannot_be_a_process_is_refused(term, frame, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(term, frame)


def test_places_on_a_line_are_a_process_of_one_dimension():
    frame = table().assign(y=lambda t: 2 * t.x)
    _, process, block = learnt("gp(x, y)", frame)
    Z, x = block.Z * process.root(0.3), scaled(frame, process)
    assert np.abs(Z @ Z.T - exact_covariance("exp_quad", 0.3)(x)).max() < 0.01


def test_rows_beyond_the_basis_are_refused():
    design, process, _ = learnt("gp(x, y)")
    x, y = process.centre
    near = process.width * (process.margin / 2 - 0.01)
    apply_design(design, table().assign(x=x + near, y=y), response=False)
    with pytest.raises(InputError, match="leave out rows that far away"):
        apply_design(design, table().assign(x=x, y=y + near + 0.02 * process.width), response=False)


@pytest.mark.parametrize(
    "damage", [{"angles": [1.0]}, {"centre": [1.0]}, {"graded": None}, {"cov": "cubic"}], ids=str
)
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt("gp(x, y)")[0])
    plain["processes"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)
