"""Pareto smoothing against ArviZ, and against ratios whose tail is known."""

import numpy as np
import pytest

from semistan.posterior import psis
from semistan.posterior.psis import pareto_smoothed
from support import arviz_oracle

SQUARES = (100, 400, 900, 3600)  # draws for which all releases of ArviZ have a tail of one size


@pytest.mark.parametrize("size", SQUARES)
@pytest.mark.parametrize("spread", [1e-3, 0.5, 2.0])
def test_weights_and_k_are_arvizs(size, spread):
    ratios = spread * np.random.default_rng(size).normal(size=(20, size)) - 700
    (weights, k), (expected, expected_k) = (
        pareto_smoothed(ratios),
        arviz_oracle.pareto_smoothed(ratios),
    )
    assert k == pytest.approx(expected_k, abs=1e-10)
    assert np.exp(weights) == pytest.approx(np.exp(expected), rel=1e-9)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.5, 0.9])
def test_k_is_the_shape_of_a_generalised_pareto_distribution(shape):
    uniform = np.random.default_rng(1).random((400, 4000))
    _, k = pareto_smoothed(np.log1p(np.expm1(-shape * np.log1p(-uniform)) / shape))
    tail = 190
    shrunk = (tail * shape + 5) / (tail + 10)
    error = (1 + shape) / np.sqrt(tail)  # of a maximum of the likelihood
    assert np.mean(k) == pytest.approx(shrunk, abs=0.03)
    assert 0.8 * error < np.std(k) < 1.3 * error


def test_rows_in_blocks_have_the_same_weights(monkeypatch):
    ratios = np.random.default_rng(2).normal(size=(7, 200))
    weights, k = pareto_smoothed(ratios)
    monkeypatch.setattr(psis, "BLOCK", 1)
    in_blocks, k_in_blocks = pareto_smoothed(ratios)
    assert np.array_equal(in_blocks, weights) and np.array_equal(k_in_blocks, k)


def test_repeated_draws_have_a_tail_of_the_same_size():
    once = np.random.default_rng(3).normal(size=(1, 450))
    twice = np.repeat(once, 2, axis=1)  # the cutoff's equal is in the tail of 90
    assert np.isfinite(pareto_smoothed(twice)[1])
    assert pareto_smoothed(twice)[1] == pytest.approx(
        arviz_oracle.pareto_smoothed(twice + 0)[1], abs=0.05
    )
