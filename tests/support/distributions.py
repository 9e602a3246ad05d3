"""Families as SciPy has them, and what it lacks from what it has: extra zeros, no zeros."""

import numpy as np
from scipy import stats
from scipy.special import gamma, polygamma

COUNTS = np.arange(5000.0)
# of eta, and the values of the dispersion parameters
ORACLES = {
    "gaussian": (lambda eta: stats.norm(eta, 1.7), {"sigma": 1.7}),
    "lognormal": (lambda eta: stats.lognorm(0.4, scale=np.exp(eta)), {"sigma": 0.4}),
    "weibull": (
        lambda eta: stats.weibull_min(1.6, scale=np.exp(eta) / gamma(1 + 1 / 1.6)), {"shape": 1.6},
    ),
    "exponential": (lambda eta: stats.expon(scale=np.exp(eta)), {}),
    "gaussian(log)": (lambda eta: stats.norm(np.exp(eta), 1.7), {"sigma": 1.7}),
}  # fmt: skip


class Mixed:
    """What SciPy's frozen distributions have, from raw moments."""

    def mean(self):
        return self.raw(1)

    def stats(self, _):
        m1, m2, m3, m4 = map(self.raw, range(1, 5))
        variance = m2 - m1**2
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        return m1, variance, fourth / variance**2 - 3


class LogBetaPrime:
    """eta + width times the logarithm of a variable with a beta prime distribution."""

    def __init__(self, a, b, eta, width):
        self.a, self.b, self.eta, self.width = a, b, eta, width

    def logpdf(self, y):
        x = (y - self.eta) / self.width
        return stats.betaprime(self.a, self.b).logpdf(np.exp(x)) + x - np.log(self.width)

    def pdf(self, y):
        return np.exp(self.logpdf(y))

    def mean(self):
        return self.stats("m")[0]

    def stats(self, moments):
        """From the cumulants, which are differences of polygamma functions."""
        first, second, fourth = (polygamma(n, self.a) for n in (0, 1, 3))
        other, further, last = (polygamma(n, self.b) for n in (0, 1, 3))
        variance = second + further
        every = {
            "m": self.eta + self.width * (first - other),
            "v": self.width**2 * variance + 0 * self.eta,
            "k": (fourth + last) / variance**2 + 0 * self.eta,
        }
        return tuple(every[moment] for moment in moments)


class Angles:
    """Angles around a direction, and the moments of those whose distances from it are not cut."""

    def __init__(self, direction, kappa):
        self.direction, self.of_zero = direction, stats.vonmises(kappa)

    def logpdf(self, y):
        return self.of_zero.logpdf(y - self.direction)

    def mean(self):
        return self.direction

    def stats(self, _):
        second, fourth = (self.of_zero.expect(lambda t, n=n: t**n) for n in (2, 4))
        return self.direction, second, fourth / second**2 - 3


class ZeroInflated(Mixed):
    """Counts of a frozen distribution, and a share of extra zeros."""

    def __init__(self, counts, share):
        self.counts, self.share = counts, share

    def logpmf(self, y):
        found = np.log1p(-self.share) + self.counts.logpmf(y)
        return np.where(np.asarray(y) == 0, np.logaddexp(np.log(self.share), found), found)

    def pmf(self, y):
        return np.exp(self.logpmf(y))

    def raw(self, order):
        y = COUNTS.reshape(-1, *[1] * np.ndim(self.counts.mean()))
        return (y**order * self.pmf(y)).sum(axis=0)


class Hurdle(ZeroInflated):
    """Counts of a frozen distribution without its zeros, and a share of zeros."""

    def logpmf(self, y):
        above = np.log1p(-self.share) + self.counts.logpmf(y) - np.log(self.counts.sf(0))
        return np.where(np.asarray(y) == 0, np.log(self.share), above)


class HurdleAmounts(Mixed):
    """Amounts of a frozen distribution, and a share of zeros."""

    def __init__(self, amounts, share):
        self.amounts, self.share = amounts, share

    def logpdf(self, y):
        above = np.log1p(-self.share) + self.amounts.logpdf(np.where(np.equal(y, 0), 1.0, y))
        return np.where(np.equal(y, 0), np.log(self.share), above)

    def pdf(self, y):
        return np.exp(self.logpdf(y))

    def raw(self, order):
        return (1 - self.share) * self.amounts.moment(order)


class InflatedBeta(Mixed):
    """Proportions of a beta distribution, and a share of zeros and ones."""

    def __init__(self, a, b, share, ones):
        self.a, self.b, self.share, self.ones = a, b, share, ones

    def logpdf(self, y):
        from scipy import stats

        inner = np.log1p(-self.share) + stats.beta.logpdf(
            np.clip(y, 1e-9, 1 - 1e-9), self.a, self.b
        )
        end = np.log(self.share * np.where(y == 1, self.ones, 1 - self.ones))
        return np.where((y == 0) | (y == 1), end, inner)

    def pdf(self, y):
        return np.exp(self.logpdf(y))

    def raw(self, order):
        j = np.arange(order).reshape(-1, *[1] * np.ndim(self.a))
        beta = ((self.a + j) / (self.a + self.b + j)).prod(axis=0)
        return self.share * self.ones + (1 - self.share) * beta
