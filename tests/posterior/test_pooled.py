"""Coefficients over several imputed tables, against Rubin's rules and what is mixed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.posterior.diagnostics import convergence
from semistan.posterior.pooled import missing_share, pooled
from semistan.posterior.posterior import SubspacePosterior
from support.drawn import random_draws
from support.small import small_bundle, small_frame


def posterior_of(shift, formula="y ~ x + nn(u, v)"):
    bundle, _ = small_bundle(formula, small_frame())
    draws = random_draws(bundle)
    moved = {name: values + shift for name, values in draws.coefficients.items()}
    return SubspacePosterior(bundle, replace(draws, coefficients=moved))


def test_draws_are_mixed_in_equal_parts():
    one, two = posterior_of(0), posterior_of(3)
    found = pooled([one, two], 0.8).set_index("variable").loc["b_x"]
    parts = [each.interpreted["b_x"] for each in (one, two)]
    both = np.concatenate([x.ravel() for x in parts])
    assert found["Estimate"] == pytest.approx(both.mean())
    assert found["Est.Error"] == pytest.approx(both.std(ddof=1))
    assert found["l-80% CI"] == pytest.approx(np.quantile(both, 0.1))
    figures = [convergence(x) for x in parts]
    between = 1.5 * 9 / 2  # (1 + 1/2) times the variance of two means that are 3 apart
    within = parts[0].var(ddof=1)
    assert found["Missing"] == pytest.approx(between / (between + within))
    assert found["Rhat"] == pytest.approx(max(item.rhat for item in figures))
    assert found["Bulk_ESS"] == pytest.approx(sum(item.bulk_ess for item in figures))


def test_the_share_of_what_is_missing_is_rubins():
    """Tables' means vary with variance B around one, within each with W."""
    generator, B, W, m = np.random.default_rng(1), 2.0, 3.0, 400
    draws = generator.normal(size=(m, 1)) * B**0.5 + generator.normal(size=(m, 500)) * W**0.5
    assert missing_share(draws) == pytest.approx(B / (B + W), abs=4 * (2 / m) ** 0.5 * 0.25)
    assert np.isnan(missing_share(np.ones((3, 10))))


def test_equal_tables_have_nothing_missing():
    one = posterior_of(0)
    found = pooled([one, one])
    assert found["Missing"].to_numpy() == pytest.approx(0)
    single = one.interpreted["b_x"]
    assert found.set_index("variable").loc["b_x", "Estimate"] == pytest.approx(single.mean())


@pytest.mark.parametrize(
    ("formulas", "message"),
    [
        (["y ~ x + nn(u, v)"], "at least two imputed tables"),
        (["y ~ x + nn(u, v)", "y ~ z + nn(u, v)"], "the first has the formula"),
    ],
)
def test_what_is_no_model_of_several_tables_is_refused(formulas, message):
    with pytest.raises(InputError, match=message):
        pooled([posterior_of(0, formula) for formula in formulas])
