"""Monte Carlo standard errors, held against repeated simulation and ArviZ."""

from dataclasses import replace

import numpy as np
import pytest

from semistan.posterior.mcse import MCSE_COLUMNS, mcse_mean, mcse_quantile, mcse_table
from semistan.posterior.posterior import Mixture, SubspacePosterior
from support.arviz_oracle import arviz
from support.drawn import random_draws
from support.untrained import random_bundle

REPEATS = 300


def autocorrelated(generator, shape, rho=0.7):
    noise = generator.normal(size=shape) * np.sqrt(1 - rho**2)
    x = np.empty(shape)
    x[..., 0] = generator.normal(size=shape[:-1])
    for i in range(1, shape[-1]):
        x[..., i] = rho * x[..., i - 1] + noise[..., i]
    return x


def repeated(several_of, figure):
    """The sd of a figure over independent repetitions."""
    generator = np.random.default_rng(1)
    found = [
        figure(np.concatenate([x.ravel() for x in several_of(generator)])) for _ in range(REPEATS)
    ]
    return np.std(found, ddof=1)


def two(generator):
    return [autocorrelated(generator, (2, 400)), 3 + 2 * autocorrelated(generator, (2, 200))]


def one(generator):
    return [autocorrelated(generator, (2, 400))]


@pytest.mark.parametrize("several_of", [one, two])
def test_the_errors_are_those_of_repetitions(several_of):
    mean = repeated(several_of, np.mean)
    upper = repeated(several_of, lambda x: np.quantile(x, 0.9))
    generator = np.random.default_rng(2)
    draws = [several_of(generator) for _ in range(20)]
    # The repetitions' sd is off by 1 / sqrt(2 * 300) = 4%, and so are averages of estimates.
    assert np.mean([mcse_mean(x) for x in draws]) == pytest.approx(mean, rel=0.15)
    assert np.mean([mcse_quantile(x, 0.9) for x in draws]) == pytest.approx(upper, rel=0.2)


def test_the_table_has_arvizs_figures():
    bundle, _ = random_bundle("gaussian")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    table = mcse_table(posterior)
    assert list(table.columns) == ["variable", *MCSE_COLUMNS]
    assert list(table.variable) == list(posterior.interpreted)
    values = posterior.interpreted["b_x1"]
    line = table.set_index("variable").loc["b_x1"]
    assert line["Estimate"] == pytest.approx(values.mean())
    assert line["MCSE_Estimate"] == pytest.approx(float(arviz.mcse(values)))
    lower = float(arviz.mcse(values, method="quantile", prob=0.025))
    assert line["MCSE_l-95% CI"] == pytest.approx(lower)


def test_a_constant_has_no_error():
    bundle, _ = random_bundle("gaussian")
    draws = random_draws(bundle)
    still = replace(draws, dispersion={"sigma": np.ones((2, 50))})
    table = mcse_table(
        Mixture((SubspacePosterior(bundle, still), SubspacePosterior(bundle, draws)))
    ).set_index("variable")
    assert np.isnan(table.loc["sigma", "MCSE_Estimate"])
    assert np.isfinite(table.loc["b_x1"].to_numpy(dtype=float)).all()
