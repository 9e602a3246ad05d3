"""The program's own columns at given states, against those that we compute."""

import numpy as np
import pytest
import torch

from semistan.density.columns import program_columns
from semistan.density.derivatives import derivatives
from semistan.density.integral import integrated_constant, log_integrated
from semistan.density.target import make_target, negative_log_posterior
from semistan.infer.stan_csv import NUTS_COLUMNS, sampled_columns
from semistan.model.integral import PHI_SAMPLED
from semistan.model.layout import column_names
from semistan.program.data import stan_data
from semistan.subspace.start_values import curve_states
from support.programs import evaluate

TOLERANCE = 1e-9


def columns_of(bundle, rows, q, psi=None):
    target = make_target(bundle, rows)
    density = np.array([-negative_log_posterior(target, torch.tensor(row)) for row in q])
    return sampled_columns(target, q, density, np.full(len(q), 9.0), psi)


def psi_written(bundle, written):
    """What a program drew outside the subspace, if it is completed."""
    if bundle.completion is None:
        return None
    return np.column_stack([written[f"psi.{i + 1}"] for i in range(bundle.completion.K)])


def states(bundle, n=6):
    generator = np.random.default_rng(1)
    on_curve = curve_states(bundle, n)
    return on_curve + 0.3 * generator.normal(size=on_curve.shape)


def assert_integrated(bundle, rows, toolchain, tmp_path, kernel="stan"):
    """Hold the density, the gradient and the columns at what is drawn equal to PyTorch's."""
    target, layout = make_target(bundle, rows), bundle.layout
    x = states(bundle)[:, layout.sampled]
    stan = evaluate(bundle, stan_data(bundle, rows), x, toolchain, tmp_path, kernel)
    for row, lp, gradient in zip(x, stan.lp, stan.gradient, strict=True):
        leaf = torch.tensor(row, requires_grad=True)
        expected = log_integrated(target, leaf)
        (slope,) = torch.autograd.grad(expected, leaf)
        assert lp == pytest.approx(expected.item() + integrated_constant(target), rel=TOLERANCE)
        assert np.max(np.abs(gradient - slope.numpy())) < TOLERANCE * float(slope.abs().max())
    values = [_values(layout, stan.written, s) for s in range(len(x))]
    q = np.stack([layout.pack(one) for one in values])
    assert q[:, layout.sampled] == pytest.approx(x, rel=1e-9, abs=1e-12)
    drawn = q[:, layout.integrated]
    assert len(np.unique(drawn)) == drawn.size
    ours = program_columns(target, q, psi_written(bundle, stan.written))
    assert {name for name in stan.written if not name.startswith(PHI_SAMPLED)} == set(ours)
    for name, column in ours.items():
        assert column == pytest.approx(stan.written[name], rel=TOLERANCE, abs=1e-12), name


def _values(layout, written, s):
    """The parameters of one line that a program wrote."""
    found = {}
    for p in layout.parameters:
        found[p.name] = np.zeros(p.shape)
        for name, index in column_names(p.name, p.shape).items():
            found[p.name][index] = written[name][s]
    return found


def assert_program(bundle, rows, toolchain, tmp_path, kernel="stan"):
    """Hold the program's density, gradient and columns at states equal to PyTorch's."""
    if bundle.model.integral:
        assert_integrated(bundle, rows, toolchain, tmp_path, kernel)
        return
    q = states(bundle)
    # slices of four rows begin anywhere
    data = stan_data(bundle, rows, **({"grainsize": 4} if kernel == "cpp" else {}))
    stan = evaluate(bundle, data, q, toolchain, tmp_path, kernel)
    ours = columns_of(bundle, rows, q, psi_written(bundle, stan.written))
    assert list(ours) == [*NUTS_COLUMNS.values(), *stan.written]
    assert ours["lp__"] == pytest.approx(stan.lp, rel=TOLERANCE)
    for name, values in stan.written.items():
        assert ours[name] == pytest.approx(values, rel=TOLERANCE, abs=1e-12), name
    target = make_target(bundle, rows)
    for state, gradient in zip(q, stan.gradient, strict=True):
        expected = -derivatives(target, torch.tensor(state))[0].numpy()
        assert np.max(np.abs(gradient - expected)) < TOLERANCE * np.max(np.abs(expected))


def assert_columns(bundle, rows, toolchain, tmp_path):
    """Hold our columns at states equal to the program's."""
    q = states(bundle)
    program = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path)
    ours = columns_of(bundle, rows, q)
    assert list(ours) == [*NUTS_COLUMNS.values(), *program.written]
    assert ours["lp__"] == pytest.approx(program.lp, rel=1e-10)
    for name in program.written:
        assert ours[name] == pytest.approx(program.written[name], rel=1e-9, abs=1e-12), name
