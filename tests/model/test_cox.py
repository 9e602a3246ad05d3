"""Proportional hazards: the baseline hazard's splines, times, and rows that are split in time."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from scipy.interpolate import BSpline

from semistan.errors import InputError
from semistan.model.config import SampleConfig
from semistan.model.families.baseline import Baseline, b_splines, ratio_names
from semistan.model.families.censored import with_censoring
from semistan.model.families.families import family
from semistan.model.families.truncated import with_truncation
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.predictive import distribution, posterior_linpred
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from support.assertions import Z
from support.small import small_frame, small_prepared
from support.untrained import COX, random_bundle

SHAPES = (
    Baseline((0.0, 10.0, 30.0, 100.0), 3),
    Baseline((5.0, 10.0, 30.0), 0),
    Baseline((0.0, 50.0), 3),
    Baseline((2.0, 3.0, 4.0, 9.0), 1),
)
ETA = np.array([-3.0, 0.0, 1.5, 4.0])

each = pytest.mark.parametrize("baseline", SHAPES, ids=str)


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def values_of(baseline, of=np.asarray):
    generator = np.random.default_rng(baseline.K)
    return {name: of(generator.lognormal(0, 0.8)) for name in ratio_names(baseline.K)}


def record_of(baseline):
    pieces = () if baseline.degree else ("piecewise",)
    assert baseline.degree in (0, 3)
    return family(f"cox({', '.join(map(str, (*pieces, *baseline.knots)))})")


def survival(baseline, values):
    c = baseline.coefficients({name: tensor(x) for name, x in values.items()})
    return lambda t, eta: np.exp(-float(baseline.cumulative(tensor(t), c)) * np.exp(eta))


@each
def test_the_splines_are_scipys(baseline):
    p = baseline.degree
    ends = np.full(p, baseline.knots[0]), np.full(p, baseline.knots[-1])
    t = np.linspace(baseline.knots[0], baseline.knots[-1], 41)[:-1]
    expected = BSpline.design_matrix(t, np.r_[ends[0], baseline.knots, ends[1]], p).toarray()
    found = torch.stack(b_splines(tensor(t), baseline.knots, p), dim=1).numpy()
    assert np.allclose(found, expected, atol=1e-14)


@each
def test_the_hazard_integrates_to_1_over_the_knots_and_is_constant_outside(baseline):
    c = baseline.coefficients(values_of(baseline, tensor))
    first, last = baseline.knots[0], baseline.knots[-1]
    t = tensor([first, last, last + 7.0, first / 2])
    at = baseline.cumulative(t, c).numpy()
    hazard = baseline.hazard(t, c).numpy()
    assert at[1] - at[0] == pytest.approx(1, rel=1e-12)
    assert at[2] - at[1] == pytest.approx(7 * hazard[1], rel=1e-12)
    assert at[3] == pytest.approx(first / 2 * hazard[0], rel=1e-12)
    for end in (0.3 * last, 0.9 * last, 1.4 * last):
        inner = [knot for knot in baseline.knots if 0 < knot < end]
        integral = quad(
            lambda s: float(baseline.hazard(tensor(s), c)), 0, end, points=inner or None, limit=200
        )[0]
        assert float(baseline.cumulative(tensor(end), c)) == pytest.approx(integral, rel=1e-7)


@each
def test_equal_coefficients_are_a_constant_hazard(baseline):
    c = baseline.coefficients({name: tensor(1.0) for name in ratio_names(baseline.K)})
    t = tensor(np.linspace(0.01, 2 * baseline.knots[-1], 50))
    over = baseline.knots[-1] - baseline.knots[0]
    assert np.allclose(baseline.hazard(t, c), 1 / over, rtol=1e-12)
    assert np.allclose(baseline.cumulative(t, c), t / over, rtol=1e-12)


@each
def test_times_have_the_cumulative_hazard_that_was_asked_for(baseline):
    values = {name: np.full((2, 1), x) * [[1], [0.3]] for name, x in values_of(baseline).items()}
    z = np.abs(np.random.default_rng(1).normal([[0.0], [1.0]], 1.0, (2, 200)))
    t = baseline.time(z, values)
    c = baseline.coefficients({name: tensor(x) for name, x in values.items()})
    assert np.allclose(baseline.cumulative(tensor(t), c), z, rtol=1e-10)


@each
def test_mean_and_variance_are_integrals_of_the_survival_function(baseline):
    values = values_of(baseline)
    lives, last = survival(baseline, values), baseline.knots[-1]
    never, zero = np.array(np.inf), np.zeros(())
    mean, variance = baseline.mean(ETA, values, zero, never), baseline.variance(ETA, values)
    points = [*baseline.knots[:-1], *(last * 0.5 ** np.arange(1, 8))]
    for eta, found, spread in zip(ETA, mean, variance, strict=True):
        moments = [
            quad(lambda t, m=m, e=eta: m * t ** (m - 1) * lives(t, e), 0, last, points=points,
                 limit=500, epsabs=1e-12)[0]
            + quad(lambda t, m=m, e=eta: m * t ** (m - 1) * lives(t, e), last, np.inf)[0]
            for m in (1, 2)
        ]  # fmt: skip
        assert found == pytest.approx(moments[0], rel=1e-6)
        assert spread == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-5)


@each
def test_the_mean_between_bounds_is_that_of_times_drawn_there(baseline):
    values = values_of(baseline)
    lb, ub = np.array([0.0, 0.2, 0.7, 1.2]), np.array([0.5, 0.9, np.inf, 1.3])
    lb, ub = lb * baseline.knots[-1], ub * baseline.knots[-1]
    eta = np.full((20_000, 4), 0.5)
    draws = baseline.time_between(eta, values, lb, ub, np.random.default_rng(2))
    assert ((draws > lb) & (draws <= ub)).all()
    error = draws.std(axis=0) / np.sqrt(len(draws))
    mean = baseline.mean(np.full(4, 0.5), values, lb, ub)
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * error).all()


@each
def test_times_are_drawn_from_the_distribution(baseline):
    values = values_of(baseline)
    lives = survival(baseline, values)
    draws = baseline.time_between(
        np.full(2000, 0.4), values, np.zeros(()), np.array(np.inf), np.random.default_rng(3)
    )
    p = stats.kstest(draws, np.vectorize(lambda t: 1 - lives(t, 0.4))).pvalue
    assert p > 1e-3


def test_one_piece_is_the_exponential_family_with_the_other_sign():
    record, other = family("cox(piecewise, 0, 20)"), family("exponential")
    y, eta = tensor(np.linspace(0.1, 60, 30)), tensor(np.linspace(-2, 2, 30))
    assert record.dispersion == ()
    expected = other.log_lik(y, np.log(20) - eta, {})
    assert np.allclose(record.log_lik(y, eta, {}), expected, rtol=1e-12)
    assert np.allclose(record.mean(eta.numpy(), {}), 20 * np.exp(-eta.numpy()), rtol=1e-10)
    assert np.allclose(record.variance(eta.numpy(), {}), 400 * np.exp(-2 * eta.numpy()), rtol=1e-8)


@pytest.mark.parametrize("baseline", SHAPES[:3], ids=str)
def test_a_row_that_is_split_in_time_has_the_same_likelihood(baseline):
    """(0, y] is (0, a] and (a, b], survived, and (b, y]: the counting process of a subject."""
    values, given = values_of(baseline, tensor), ("cens", "lb")
    record = with_truncation(with_censoring(record_of(baseline), given), given)
    y, eta = tensor([3.0, 17.0, 45.0, 140.0]), tensor([-1.0, 0.3, 1.0, 2.0])
    a, b = 0.3 * y, 0.8 * y
    for code in (0.0, 1.0):
        last = values | {"cens": torch.full((4,), code), "lb": b}
        first = values | {"cens": torch.ones(4), "lb": torch.zeros(4)}
        middle = values | {"cens": torch.ones(4), "lb": a}
        whole = record.log_lik(y, eta, last | {"lb": torch.zeros(4)})
        parts = record.log_lik(a, eta, first) + record.log_lik(b, eta, middle)
        assert np.allclose(whole, parts + record.log_lik(y, eta, last), rtol=1e-12)


def test_an_interval_has_the_probability_between_its_ends():
    record = with_censoring(family("cox(0, 10, 30)"), ("cens", "y2"))
    values = values_of(Baseline((0.0, 10.0, 30.0), 3))
    lives = survival(Baseline((0.0, 10.0, 30.0), 3), values)
    given = {"cens": tensor([2.0, -1.0]), "y2": tensor([21.0, 1.0])}
    found = record.log_lik(
        tensor([4.0, 6.0]), tensor([0.5, -1.0]), {k: tensor(x) for k, x in values.items()} | given
    )
    expected = np.log([lives(4.0, 0.5) - lives(21.0, 0.5), 1 - lives(6.0, -1.0)])
    assert np.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("text", ["cox(0, 10, 30)", "cox(piecewise, 5, 10, 30, 70)"])
@pytest.mark.parametrize("eta", [-700.0, 700.0])
def test_it_is_finite_far_out_with_its_gradient(text, eta):
    record = family(text)
    y = tensor([1e-6, 0.5, 10, 30, 4000])
    leaf = torch.full((5,), eta, dtype=torch.float64, requires_grad=True)
    wide = {name: tensor(np.exp(30.0 * (-1) ** k)) for k, name in enumerate(record.dispersion)}
    total = record.log_lik(y, leaf, wide)
    total.sum().backward()
    assert torch.isfinite(total).all()
    assert torch.isfinite(leaf.grad).all()


def test_the_knots_are_those_of_the_events():
    frame = small_frame(200).assign(z=lambda t: 3 * t["z"] ** 4, c=np.arange(200) % 4 == 0)
    prepared = small_prepared("z | cens(c) ~ x + nn(u)", frame, family="cox")
    ended = frame["z"][~frame["c"]]
    first, inner, last = family(prepared.config.family).constants[0].value
    assert first == 0
    assert inner == pytest.approx(np.median(ended), rel=1e-3)
    assert last == pytest.approx(frame["z"].max(), rel=1e-3)
    assert prepared.config.family == f"cox(0, {inner:g}, {last:g})"


def test_the_knots_begin_where_the_first_row_enters():
    frame = small_frame(200).assign(enters=lambda t: t["z"] - 0.5)
    prepared = small_prepared(
        "z | trunc(lb=enters) ~ x + nn(u)", frame, family="cox(piecewise, df=3)"
    )
    knots = family(prepared.config.family).constants[0].value
    assert knots[0] == pytest.approx(frame["enters"].min(), rel=1e-3)
    assert len(knots) == 4


def test_the_last_knot_is_the_end_of_an_interval_but_not_of_rows_without_one():
    frame = small_frame(40).assign(
        c=np.where(np.arange(40) == 3, "interval", "none"),
        end=np.where(np.arange(40) == 3, 7.0, 900.0),
    )
    prepared = small_prepared("z | cens(c, end) ~ x + nn(u)", frame, family="cox")
    assert family(prepared.config.family).constants[0].value[-1] == 7


def test_with_knots_of_ones_own_all_times_may_be_censored():
    frame = small_frame().assign(c=1)
    prepared = small_prepared("z | cens(c) ~ x + nn(u)", frame, family="cox(0, 1, 3)")
    assert np.isfinite(prepared.model.units.eta_loc)


@pytest.mark.parametrize("eta", [-700.0, 700.0])
def test_predictions_far_out_are_no_nan(eta):
    record = family("cox(0, 10, 30)")
    values = values_of(Baseline((0.0, 10.0, 30.0), 3))
    eta = np.full(50, eta)
    assert not np.isnan(record.mean(eta, values)).any()
    assert not np.isnan(record.rng(eta, values, np.random.default_rng(1))).any()


def test_few_distinct_times_have_fewer_knots():
    frame = small_frame(40).assign(z=np.arange(40) % 2 + 1.0)
    prepared = small_prepared("z ~ x + nn(u)", frame, family="cox(df=9)")
    assert prepared.config.family == "cox(0, 1, 1.5, 2)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cox(3)", "2 to 100 knots that rise from 0 or above, got 3"),
        ("cox(0, 5, 5)", "got 0, 5, 5"),
        ("cox(-1, 5)", "got -1, 5"),
        ("cox(0, inf)", "got 0, inf"),
        ("cox(probit)", r"cox\(df=7\).* got 'probit'"),
        ("cox(df=3)", "4 to 100 coefficients"),
        ("cox(piecewise, df=1)", "2 to 100 coefficients"),
        ("cox(df=x)", "got 'df=x'"),
    ],
)
def test_what_cannot_be_a_baseline_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        family(text)


def test_censored_times_alone_are_refused():
    frame = small_frame().assign(c=1)
    with pytest.raises(InputError, match="all are censored"):
        small_prepared("z | cens(c) ~ x + nn(u)", frame, family="cox")


# ------------------------------------------------------------------------------------------ strata

TIMES = "z | cens(c) ~ x + nn(u)"


def of_strata(of):
    """A family, the strata of 30 rows, and the ratios of each row and of each stratum."""
    baseline, g = Baseline((0.5, 5.0, 9.0, 30.0), 3), np.arange(30) % 2
    names = ratio_names(baseline.K)
    own = np.random.default_rng(4).lognormal(0, 0.8, size=(2, len(names)))
    rows = {name: of(own[g, j]) for j, name in enumerate(names)}
    strata = [dict(zip(names, map(of, each), strict=True)) for each in own]
    return record_of(baseline), g, rows, strata


def test_strata_have_the_likelihood_and_mean_of_a_model_for_each():
    record, g, rows, strata = of_strata(tensor)
    given = ("cens", "lb")
    record = with_truncation(with_censoring(record, given), given)
    y, eta = tensor(np.linspace(1, 40, 30)), tensor(np.linspace(-1.5, 1.5, 30))
    known = {"cens": tensor(np.arange(30) % 3 % 2), "lb": tensor(np.arange(30) % 4 * 0.2)}
    found = record.log_lik(y, eta, rows | known)
    plain, _, numbers, of_each = of_strata(np.asarray)
    mean = plain.mean(eta.numpy(), numbers)
    for stratum in (0, 1):
        here = g == stratum
        alone = strata[stratum] | {name: x[here] for name, x in known.items()}
        assert np.allclose(found[here], record.log_lik(y[here], eta[here], alone), rtol=1e-12)
        expected = plain.mean(eta.numpy()[here], of_each[stratum])
        assert np.allclose(mean[here], expected, rtol=1e-12)


def test_a_coefficient_of_the_baseline_is_an_effect_that_changes_with_time():
    """With x in bhaz_2 alone, the log hazard ratio of x is one before a knot and another behind."""
    record = family("cox(piecewise, 0, 10, 30)")
    baseline, b, t = Baseline((0.0, 10.0, 30.0), 0), 0.7, tensor([3.0, 8.0, 15.0, 25.0])
    without, with_x = (
        baseline.hazard(t, baseline.coefficients({"bhaz_2": tensor(2.0 * np.exp(b * x))})).log()
        for x in (0, 1)
    )
    ratio = (with_x - without).numpy()
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-12)
    assert ratio[2:] - ratio[:2] == pytest.approx(b, rel=1e-12)
    assert record.dispersion == ("bhaz_2",)


def strata_frame(n=60):
    return small_frame(n).assign(z=lambda t: 1 + 3 * t["z"] ** 2, c=np.arange(n) % 3 == 0)


@pytest.mark.parametrize("name", ["cox", "cox(0, 5, 40)"])
@pytest.mark.parametrize(
    ("further", "written"),
    [
        ("bhaz ~ g", "bhaz_2 ~ g, bhaz_3 ~ g, bhaz_4 ~ g, bhaz_5 ~ g"),
        ("bhaz_3 ~ x, bhaz ~ g", "bhaz_3 ~ x, bhaz_2 ~ g, bhaz_4 ~ g, bhaz_5 ~ g"),
    ],
)
def test_a_predictor_of_all_ratios_is_written_out(further, written, name):
    prepared = small_prepared(f"{TIMES}, {further}", strata_frame(), family=name)
    assert prepared.config.formula == f"{TIMES}, {written}"
    again = small_prepared(prepared.config.formula, strata_frame(), family=prepared.config.family)
    assert again.config == prepared.config
    priors = {group.label: str(group.written[0]) for group in prepared.model.priors}
    assert priors["b_bhaz_2"] == priors["b_bhaz_5"] == "normal(0, 1)"


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        (f"{TIMES}, bhaz_6 ~ g", "Did you mean 'bhaz_"),
        (f"{TIMES}, haz ~ g", "family cox has no such parameter"),
        ("z | cens(c) + bhaz(gr=g) ~ x + nn(u)", "bhaz ~ g"),
    ],
)
def test_what_no_baseline_has_is_refused(formula, words):
    with pytest.raises(InputError, match=words):
        small_prepared(formula, strata_frame(), family="cox")


def test_one_constant_hazard_has_no_ratio_that_could_have_a_predictor():
    with pytest.raises(InputError, match="no dispersion parameter"):
        small_prepared(f"{TIMES}, bhaz ~ g", strata_frame(), family="cox(piecewise, 0, 90)")


def test_stans_times_have_exponential_cumulative_hazards_in_each_stratum(toolchain, tmp_path):
    formula = "y | cens(c) ~ x1 + nn(u1, u2), bhaz_2 ~ x2, bhaz_4 ~ t"
    bundle, rows = random_bundle(COX, formula=formula)
    options = SampleConfig(chains=2, warmup=150, draws=200, seed=5)
    fit = sample(new_run(bundle, rows, tmp_path / "run", options, toolchain), toolchain)
    generate_quantities(fit.run, toolchain)
    values = {n: tensor(x) for n, x in distribution(fit.posterior, rows).items()}
    baseline = Baseline(tuple(bundle.family.constants[0].value), 3)
    y = tensor(np.ascontiguousarray(read_generated(fit.run).y_rep))
    total = baseline.cumulative(y, baseline.coefficients(values)).numpy()
    z = total * np.exp(posterior_linpred(fit.posterior, rows))
    assert np.abs(z.mean(axis=0) - 1).max() < Z / np.sqrt(len(z))
    assert stats.kstest(z.ravel(), "expon").pvalue > 1e-3
