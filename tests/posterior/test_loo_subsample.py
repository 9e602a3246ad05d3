"""PSIS-LOO of some rows: the difference estimator's own moments, and that of all rows."""

import numpy as np
import pytest

import semistan
from semistan.errors import InputError
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.scoring.loo import Matched, leave_one_out
from semistan.posterior.scoring.loo_subsample import difference, subsampled
from support.assertions import Z
from support.command import command_in
from support.drawn import random_draws
from support.small import small_config, small_frame
from support.untrained import random_bundle

N, M, TIMES = 2000, 500, 4000


def quick_and_exact(error):
    generator = np.random.default_rng(1)
    exact = generator.normal(-1.3, 0.8, N)
    return exact + generator.normal(0.05, error, N), exact


@pytest.mark.parametrize("error", [0.0, 0.05, 0.3])
def test_the_sum_and_its_errors_are_right_over_samples(error):
    quick, exact = quick_and_exact(error)
    generator = np.random.default_rng(2)
    samples = [generator.choice(N, M, replace=False) for _ in range(TIMES)]
    found = np.array([difference(quick, exact[at], at) for at in samples])
    estimate, spread, sampling = found.T
    tolerance = Z * estimate.std() / np.sqrt(TIMES) + 1e-9
    assert abs(estimate.mean() - exact.sum()) < tolerance
    variance = np.square(sampling)
    assert abs(variance.mean() - estimate.var()) < Z * (
        np.hypot(variance.std(), estimate.var() * np.sqrt(2)) / np.sqrt(TIMES)
    ) + 1e-9  # fmt: skip
    of_all = N * exact.var(ddof=1)
    errors = np.square(spread)
    assert abs(errors.mean() - of_all) < Z * errors.std() / np.sqrt(TIMES) + 1e-6 * of_all


def test_approximations_that_are_far_off_leave_an_error():
    quick, exact = quick_and_exact(5.0)
    generator = np.random.default_rng(2)
    samples = [generator.choice(N, M, replace=False) for _ in range(50)]
    assert all(difference(quick, exact[at], at).error > 0 for at in samples)


@pytest.fixture(scope="module")
def drawn():
    bundle, rows = random_bundle("poisson")
    return SubspacePosterior(bundle, random_draws(bundle)), rows


def test_all_rows_are_psis_loo(drawn):
    posterior, rows = drawn
    whole = leave_one_out(posterior, rows)
    found = subsampled(posterior, rows, len(rows), np.random.default_rng(1))
    assert (found.at == np.arange(len(rows))).all()
    table, expected = found.table(), whole.table()
    for column in ("Estimate", "SE"):
        assert table[column].to_numpy() == pytest.approx(expected[column].to_numpy(), rel=1e-9)
    assert (table["SE_sample"] == 0).all()
    assert found.pointwise().equals(whole.pointwise())


def test_sampled_rows_keep_their_numbers_and_what_was_found_of_them(drawn):
    posterior, rows = drawn
    whole = leave_one_out(posterior, rows)
    size = 20
    first = subsampled(posterior, rows, size, np.random.default_rng(3))
    one = int(first.at[7])
    other = next(i for i in range(len(rows)) if i not in first.at)
    kept = {"by another way": {one: Matched(-9.0, 0.1), other: Matched(-8.0, 0.1)}}
    found = subsampled(posterior, rows, size, np.random.default_rng(3), kept)
    lines = found.pointwise().set_index("row")
    assert lines.loc[one + 1, "elpd_loo"] == -9
    rest = np.delete(found.at, 7)
    assert lines.loc[rest + 1, "elpd_loo"].to_numpy() == pytest.approx(whole.elpd[rest])
    assert f"By {size} of {len(rows)} rows" in found.text()
    for row in found.at[found.sampled.unreliable][:3]:
        assert str(row + 1) in found.text()


@pytest.mark.parametrize("size", [0, 19, 10**6])
def test_a_subsample_of_no_use_is_refused(drawn, size):
    posterior, rows = drawn
    with pytest.raises(InputError, match=f"20 rows at the least and all {len(rows)}.*got {size}"):
        subsampled(posterior, rows, size, np.random.default_rng(1))


@pytest.mark.lengthy
def test_the_command_prints_it_and_refuses_repairs(tmp_path, monkeypatch, capsys):
    config = small_config("y ~ x + nn(u, v)", train__epochs=10)
    sample = {"method": "elliptical-slice", "chains": 2, "warmup": 50, "draws": 100}
    semistan.fit(config, small_frame(60), out=tmp_path / "run", **sample)
    semistan_in = command_in(tmp_path, monkeypatch, capsys)
    code, out, error = semistan_in("loo", "run", "--subsample", 30)
    assert code == 0
    assert "SE_sample" in out
    assert "By 30 of 60 rows" in out + error
    code, _, error = semistan_in("loo", "run", "--subsample", 30, "--reloo")
    assert code == 2
    assert "leave --subsample out" in " ".join(error.split())
