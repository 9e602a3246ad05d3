"""Monte Carlo assertions: every tolerance is a multiple of the Monte Carlo standard error."""

import numpy as np
from scipy.stats import chi2, norm

from semistan.posterior.arviz import mcse as arvizs_mcse

Z = 5.0  # a correct mean fails once in 1.7 million assertions


def mcse(draws, method):
    return arvizs_mcse(draws, method)


def assert_mean(draws, expected, name=""):
    """Draws (C, S) have this mean."""
    error, limit = abs(draws.mean() - expected), Z * mcse(draws, "mean")
    assert error < limit, f"mean of {name}: {draws.mean():.6g}, not {expected:.6g} +- {limit:.3g}"


def assert_sd(draws, expected, name=""):
    """Draws (C, S) have this standard deviation."""
    error, limit = abs(draws.std() - expected), Z * mcse(draws, "sd")
    assert error < limit, f"sd of {name}: {draws.std():.6g}, not {expected:.6g} +- {limit:.3g}"


def assert_correlation(a, b, expected, name=""):
    """Draws a, b (C, S) have this correlation: the mean of their standardised product."""
    product = (a - a.mean()) / a.std() * (b - b.mean()) / b.std()
    assert_mean(product, expected, f"correlation {name}")


def assert_probability(draws, quantile, expected, name=""):
    """Draws (C, S) fall below the given quantile with this probability."""
    assert_mean((draws < quantile).astype(float), expected, f"P({name} < {quantile:.4g})")


def assert_uniform_ranks(ranks, size, name="", bins=10, p_value=1e-4):
    """Ranks among ``size`` draws (0..size) are uniform.

    By a chi-squared test of their counts, and by the mean and the variance of their normal scores
    (Cook, Gelman and Rubin, 2006), which find a wrong location or scale in fewer replications.
    """
    counts = np.histogram(ranks, bins=bins, range=(-0.5, size + 0.5))[0]
    expected = len(ranks) / bins
    statistic = ((counts - expected) ** 2 / expected).sum()
    scores = norm.ppf((np.asarray(ranks) + 0.5) / (size + 1))
    square = (scores**2).sum()
    p = {
        "counts": chi2.sf(statistic, bins - 1),
        "mean": 2 * norm.sf(abs(scores.mean()) * np.sqrt(len(scores))),
        "variance": 2 * min(chi2.sf(square, len(scores)), chi2.cdf(square, len(scores))),
    }
    assert min(p.values()) > p_value, f"ranks of {name} are not uniform: counts {counts}, p = {p}"
