"""The densities and generators of families that no program of the catalogue has, in one program."""

import json
import subprocess

import mpmath
import numpy as np
import pytest
import torch

from semistan.infer.cmdstan.compile import compile_program
from semistan.model.families.censored import with_censoring
from semistan.model.families.families import family
from semistan.model.families.truncated import with_truncation
from semistan.program.sources import stan_source
from support.distributions import COUNTS
from support.small import RARER_RESPONSES

CENSORED = [
    with_censoring(family(name), ("cens", "y2"))
    for name in ("gaussian", "lognormal", "weibull", "exponential", "poisson", "gaussian(log)")
]
TRUNCATED = [
    *(
        with_truncation(family(name), ("lb", "ub"))
        for name in ("gaussian", "lognormal", "weibull", "exponential", "poisson", "gaussian(log)")
    ),
    *(with_truncation(family(name), ("lb",)) for name in ("lognormal", "weibull", "poisson")),
    *(with_truncation(family(name), ("ub",)) for name in ("gaussian", "weibull", "poisson")),
]
FAMILIES = [*(family(name) for name in RARER_RESPONSES), *CENSORED, *TRUNCATED]
TRIALS, DRAWS = 11, 4000
COUNTED, POSITIVE = (0, 1, 3, 40), (1e-3, 0.8, 30)
RESPONSES = {
    "weibull": POSITIVE, "exponential": POSITIVE, "skew_normal": (-9.0, 0.4, 30.0),
    "asym_laplace": (-9.0, 0.4, 30.0), "von_mises": (-3.1, 0.4, 3.0),
    "beta_binomial": (0, 4, 11), "zero_one_inflated_beta": (0.0, 1e-6, 0.4, 1.0),
    "hurdle_gamma": (0.0, *POSITIVE), "hurdle_lognormal": (0.0, *POSITIVE),
}  # fmt: skip
FAR = ("zero_inflated", "hurdle", "zero_one", "skew", "von")  # finite and differentiable at any eta
WITH_ZEROS = [f.name for f in FAMILIES if f.integer and {"zi", "hu"} & set(f.dispersion)]
PREDICTORS = {"log": 0.7, "logit": -0.4, "identity": -2.0}  # of the other parameters
OF_LINK = {"log": "exp", "logit": "inv_logit", "identity": ""}
PROGRAM = """
data {{
  int which; int count; real y; int trials; int cens; real y2; real lb; real ub;
  {constants}
}}
parameters {{ real eta; vector[3] others; }}
model {{
{densities}}}
generated quantities {{
  vector[{draws}] drawn;
  for (i in 1 : {draws}) {{
{generators}  }}
}}
"""


def program():
    """Every family's density and generator as its record writes them, with its own parameters."""
    files = [file for item in FAMILIES for file in (*item.density_functions, *item.stan_functions)]
    texts = "\n".join(stan_source(name) for name in dict.fromkeys(files))
    densities, generators = "", ""
    for k, item in enumerate(FAMILIES):
        names = {
            p.name: f"{OF_LINK[p.link]}(others[{j}])"
            for j, p in enumerate(item.parameters, start=1)
        }
        mu = "exp(eta)" if str(item) == "gaussian(log)" else "eta"
        given = {name: name for name in ("trials", "cens", "y2", "lb", "ub")}
        costly = {c.name: f"{c.function}([{names[c.parameter]}]')[1]" for c in item.costly}
        row = {"eta": mu, "times": "*", **given, **names, **costly}
        density = item.density.format(y="count" if item.integer else "y", **row)
        densities += f"  if (which == {k}) target += {density};\n"
        if not item.censored:
            generators += f"    if (which == {k}) drawn[i] = {item.stan_rng.format(**row)};\n"
    constants = " ".join(f"{c.kind} {c.name};" for item in FAMILIES for c in item.constants)
    text = PROGRAM.format(
        densities=densities, generators=generators, draws=DRAWS, constants=constants
    )
    return "functions {\n" + texts + "}\n" + text


@pytest.fixture(scope="module")
def evaluated(toolchain, tmp_path_factory):
    """Return the log density, its gradient, and random responses of a family at q."""
    executable = compile_program(program(), toolchain).executable
    folder = tmp_path_factory.mktemp("functions")

    def evaluate(record, y, q, cens=0, y2=1.0, lb=0.0, ub=1.0):
        which = FAMILIES.index(record)
        data = {"which": which, "count": int(y), "y": y, "trials": TRIALS, "cens": cens, "y2": y2,
                "lb": lb, "ub": ub}  # fmt: skip
        data |= {c.name: c.value.tolist() for item in FAMILIES for c in item.constants}
        (folder / "data.json").write_text(json.dumps(data))
        result = subprocess.run(
            [executable, "evaluate", folder / "data.json"],
            input=" ".join(f"{value:.17g}" for value in q), capture_output=True, text=True,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        values = np.array([float(word) for word in result.stdout.splitlines()[1].split()])
        return values[0], values[1:5], values[-DRAWS:]

    return evaluate


def parameters_of(record, others, **given):
    found = {p.name: p.value(at) for p, at in zip(record.parameters, others, strict=False)}
    given = {"trials": TRIALS, "cens": 0, "y2": 1.0} | given
    return found | {name: torch.tensor(given[name], dtype=torch.float64) for name in record.given}


def in_torch(record, y, q, **given):
    leaf = torch.tensor(q, requires_grad=True)
    response = torch.tensor(y, dtype=torch.float64)
    value = record.log_lik(response, leaf[0], parameters_of(record, leaf[1:], **given))
    value.backward()
    return value.item(), leaf.grad.numpy()


def states(record):
    """Predictors near 0 and, where the density is defined there, far out, all or one by one."""
    plain = [PREDICTORS[p.link] for p in record.parameters]
    others = np.array([*plain, 0.3, 0.3, 0.3][:3])
    etas = [-30.0, -2.0, 0.4, 3.0]
    if record.name.startswith(FAR):
        etas += [-800.0, -36.5, 20.0, 800.0]
    yield from (np.r_[eta, others] for eta in etas)
    for j, item in enumerate(record.parameters):
        if item.link == "logit" and item.name != "quantile":  # nothing is below that of 0
            for far in (-800.0, 800.0):
                yield np.r_[0.4, np.where(np.arange(3) == j, far, others)]


@pytest.mark.cmdstan
@pytest.mark.parametrize("record", FAMILIES[: len(RARER_RESPONSES)], ids=str)
def test_values_and_gradients_are_pytorchs(record, evaluated):
    for y in RESPONSES.get(record.name, COUNTED):
        for q in states(record):
            expected, slopes = in_torch(record, y, q)
            found, gradient, _ = evaluated(record, y, q)
            where = f"y = {y}, q = {q}"
            assert np.isfinite(expected) and np.isfinite(slopes).all(), where
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), where
            assert gradient == pytest.approx(slopes, rel=1e-8, abs=1e-12), where


@pytest.mark.cmdstan
@pytest.mark.parametrize("record", CENSORED, ids=str)
@pytest.mark.parametrize("cens", [0, 1, -1, 2])
def test_censored_values_and_gradients_are_pytorchs(record, cens, evaluated):
    normal = record.name in ("gaussian", "lognormal")
    etas = [-30.0, -2.0, 0.4, 3.0]
    if record.name == "poisson":
        etas += [-600.0, 600.0]
    elif record.link != "log" or (record.name != "gaussian" and cens):
        etas += [-800.0, 800.0]
    places = ((0.8, 0.9), (0.3, 500.0), (40.0, 40.0001))
    for y, y2 in ((0, 3), (4, 500), (40, 41)) if record.integer else places:
        for eta in etas:
            q = np.r_[eta, PREDICTORS["log"], 0.3, 0.3]
            expected, slopes = in_torch(record, y, q, cens=cens, y2=y2)
            found, gradient, _ = evaluated(record, y, q, cens=cens, y2=y2)
            where = f"y = {y}, eta = {eta}"
            assert np.isfinite(expected) and np.isfinite(slopes).all(), where
            # the width of a narrow interval far out is known to some digits alone
            digits = 1e-6 if normal and cens == 2 else 1e-9
            assert found == pytest.approx(expected, rel=digits, abs=1e-12), where
            assert gradient == pytest.approx(slopes, rel=10 * digits, abs=1e-10), where


def named(record):
    return f"{record} {' '.join(record.given)}"


@pytest.mark.cmdstan
@pytest.mark.parametrize("record", TRUNCATED, ids=named)
def test_truncated_values_and_gradients_are_pytorchs(record, evaluated):
    etas = [-30.0, -2.0, 0.4, 3.0]
    etas += [] if record.link == "log" else [-800.0, 800.0]
    places = ((0.8, 0.3, 0.9), (0.3, 0.0, 500.0), (40.0, 39.0, 40.5))
    for y, lb, ub in ((2, 0, 3), (40, 4, 500), (40, 40, 41)) if record.integer else places:
        for eta in etas:
            q = np.r_[eta, PREDICTORS["log"], 0.3, 0.3]
            expected, slopes = in_torch(record, y, q, lb=lb, ub=ub)
            found, gradient, drawn = evaluated(record, y, q, lb=lb, ub=ub)
            where = f"y = {y}, eta = {eta}"
            assert np.isfinite(expected) and np.isfinite(slopes).all(), where
            # far out it is a difference of two large numbers
            large = abs(in_torch(family(str(record)), y, q)[0])
            lost = (1e-9 if "normal" in record.density else 1e-13) * large
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-12 + lost), where
            assert gradient == pytest.approx(slopes, rel=1e-8, abs=1e-10 + 10 * lost), where
            assert "lb" not in record.given or drawn.min() >= lb, where
            assert "ub" not in record.given or drawn.max() <= ub, where


@pytest.mark.cmdstan
@pytest.mark.parametrize("record", FAMILIES[: len(RARER_RESPONSES)], ids=str)
def test_stans_random_responses_have_the_moments_of_ours(record, evaluated):
    q = np.r_[0.4, [PREDICTORS[p.link] for p in record.parameters], np.full(3, 0.3)][:4]
    (_, _, drawn), generator = evaluated(record, RESPONSES.get(record.name, (1,))[-1], q), 1
    values = {name: x.numpy() for name, x in parameters_of(record, torch.tensor(q[1:])).items()}
    ours = record.rng(np.full(50 * DRAWS, 0.4), values, np.random.default_rng(generator))
    assert record.support(drawn).all()
    for moment in (1, 2, 3):
        a, b = (np.sign(x) * abs(x) ** moment for x in (drawn, ours))
        assert abs(a.mean() - b.mean()) < 5 * b.std() / np.sqrt(DRAWS), moment


def precise(name, y, eta, logit, log_shape):
    """The log probability of a count in sixty digits, as the definition says."""
    mu, share = mpmath.exp(eta), 1 / (1 + mpmath.exp(-logit))
    shape = mpmath.exp(log_shape)
    if name.endswith("poisson"):
        log_p = lambda k: k * eta - mu - mpmath.loggamma(k + 1)  # noqa: E731
    else:
        log_p = lambda k: (  # noqa: E731
            mpmath.loggamma(k + shape) - mpmath.loggamma(shape) - mpmath.loggamma(k + 1)
            + k * mpmath.log(mu / (mu + shape)) + shape * mpmath.log(shape / (mu + shape))
        )  # fmt: skip
    zero = mpmath.exp(log_p(0))
    if name.startswith("hurdle"):
        return (
            mpmath.log(share) if y == 0 else mpmath.log(1 - share) + log_p(y) - mpmath.log1p(-zero)
        )
    return mpmath.log(share + (1 - share) * zero) if y == 0 else mpmath.log(1 - share) + log_p(y)


@pytest.mark.lengthy
@pytest.mark.parametrize("name", WITH_ZEROS)
@pytest.mark.parametrize("y", [0, 1, 3, 40])
def test_values_and_slopes_are_those_of_sixty_digits(name, y):
    record = family(name)
    for eta in (-800.0, -300.0, -36.5, -35.5, -3.0, 0.4, 3.0, 12.0, 30.0, 600.0):
        q = np.array([eta, *(PREDICTORS[p.link] for p in record.parameters)])
        found, slopes = in_torch(record, y, q)
        with mpmath.workdps(900 if eta < -36 else 60):
            at = [mpmath.mpf(value) for value in q]
            order = dict(zip((p.link for p in record.parameters), at[1:], strict=True))

            def exact(eta, order=order):
                return precise(name, y, eta, order["logit"], order.get("log", mpmath.mpf(0)))

            step = mpmath.mpf(10) ** -20
            slope = (exact(at[0] + step) - exact(at[0] - step)) / (2 * step)
            value = exact(at[0])
        assert found == pytest.approx(float(value), rel=1e-12, abs=1e-12), eta
        assert slopes[0] == pytest.approx(float(slope), rel=1e-9, abs=1e-12), eta


@pytest.mark.parametrize("name", WITH_ZEROS)
def test_probabilities_add_up_to_one(name):
    record = family(name)
    others = [torch.tensor(PREDICTORS[p.link], dtype=torch.float64) for p in record.parameters]
    for eta in (-40.0, -1.0, 2.0):
        log_p = record.log_lik(torch.tensor(COUNTS), torch.tensor(eta, dtype=torch.float64),
                               parameters_of(record, others))  # fmt: skip
        assert log_p.exp().sum().item() == pytest.approx(1, rel=1e-12)
        mean = (torch.tensor(COUNTS) * log_p.exp()).sum().item()
        values = {name: x.numpy() for name, x in parameters_of(record, others).items()}
        assert record.mean(np.array(eta), values) == pytest.approx(mean, rel=1e-12)
