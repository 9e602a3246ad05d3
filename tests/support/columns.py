"""The program's own columns at given states, against those that we compute."""

import numpy as np
import pytest
import torch

from semistan.density.target import make_target, negative_log_posterior
from semistan.infer.stan_csv import NUTS_COLUMNS, sampled_columns
from semistan.infer.starts import curve_states
from semistan.program.data import stan_data
from support.programs import evaluate


def columns_of(bundle, rows, q):
    target = make_target(bundle, rows)
    density = np.array([-negative_log_posterior(target, torch.tensor(row)) for row in q])
    return sampled_columns(target, q, density, np.full(len(q), 9.0))


def states(bundle, n=6):
    generator = np.random.default_rng(1)
    on_curve = curve_states(bundle, n)
    return on_curve + 0.3 * generator.normal(size=on_curve.shape)


def assert_columns(bundle, rows, toolchain, tmp_path):
    """Hold our columns at states equal to the program's."""
    q = states(bundle)
    program = evaluate(bundle, stan_data(bundle, rows), q, toolchain, tmp_path)
    ours = columns_of(bundle, rows, q)
    assert list(ours) == [*NUTS_COLUMNS.values(), *program.written]
    assert ours["lp__"] == pytest.approx(program.lp, rel=1e-10)
    for name in program.written:
        assert ours[name] == pytest.approx(program.written[name], rel=1e-9, abs=1e-12), name
