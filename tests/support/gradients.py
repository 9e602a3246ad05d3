"""Gradients of a posterior against differences."""

import numpy as np
import pytest

from semistan.density.target import negative_log_posterior, value_and_gradient
from semistan.lazy import torch


def assert_gradient(target, q):
    """Value and gradient at q (n,) are those of the negative log posterior."""
    value, gradient = value_and_gradient(target, q)
    assert value == pytest.approx(negative_log_posterior(target, torch.tensor(q)))
    for j, slope in enumerate(gradient):
        move = 1e-5 * np.eye(len(q))[j]
        ends = [negative_log_posterior(target, torch.tensor(x)) for x in (q + move, q - move)]
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-5)
