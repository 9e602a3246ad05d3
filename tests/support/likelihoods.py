"""What every likelihood of ordered categories must hold, by its record and the gaps' values."""

import numpy as np
import torch


def _tensor(value):
    return torch.tensor(np.asarray(value, dtype=float))


def assert_finite_far_out(record, gaps, eta):
    """Value, slope and bend are finite in every category."""
    y = _tensor(np.arange(1, record.categories + 1))
    at = torch.full(y.shape, eta, dtype=torch.float64, requires_grad=True)
    value = record.log_lik(y, at, {name: _tensor(gap) for name, gap in gaps.items()})
    (first,) = torch.autograd.grad(value.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), at)
    assert all(torch.isfinite(part).all() for part in (value, first, second))


def assert_derivatives(record, gaps, eta):
    """Both derivatives, by eta of each category and by the gaps, are those of differences."""
    y = _tensor(np.arange(1, record.categories + 1))

    def by_all(eta, *values):
        return record.log_lik(y, eta, dict(zip(gaps, values, strict=True)))

    inputs = tuple(_tensor(value).requires_grad_() for value in (eta, *gaps.values()))
    assert torch.autograd.gradcheck(by_all, inputs)
    assert torch.autograd.gradgradcheck(by_all, inputs)


def assert_drawn_shares(record, gaps, eta, probabilities):
    """Random categories at eta (N,) have their probabilities (N, K)."""
    S = 20_000
    columns = {name: np.full((S, 1), value) for name, value in gaps.items()}
    draws = record.rng(np.tile(eta, (S, 1)), columns, np.random.default_rng(1))
    assert record.support(draws).all()
    each = range(1, record.categories + 1)
    shares = np.stack([(draws == k).mean(axis=0) for k in each], axis=1)
    error = np.sqrt(probabilities * (1 - probabilities) / S)
    assert np.all(np.abs(shares - probabilities) < 5 * error)
