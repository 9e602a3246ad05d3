"""Programs with every term: laid out well, and the posterior that PyTorch computes."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import expit

from semistan.density.columns import unconstrained
from semistan.density.starts import trained_values
from semistan.density.target import make_target, negative_log_posterior
from semistan.errors import InputError
from semistan.infer.stan_csv import sampled_columns
from semistan.model.config import SampleConfig
from semistan.model.families.families import FAMILIES
from semistan.model.networks.networks import forward
from semistan.model.priors.lines import priors_as_used
from semistan.model.terms.group import Group
from semistan.model.terms.smooth import Smooth
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import log_lik, posterior_epred, posterior_linpred
from semistan.posterior.run import read_run
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.program.quantities import quantities_program
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import new_rows, prepare
from semistan.workflow.sample import sample
from support.assertions import Z
from support.programs import evaluate, stanc_output
from support.small import small_config, small_frame
from support.tables import read_back
from support.untrained import random_bundle

TERMS = "x1 + offset(z) + s(v, k=5) + (1 + x1 + x2 | g) + (x1 || h) + (1 | g:h) + nn(u1, u2, u3)"
EVERYTHING = f"y | weights(w) + trials(tries) ~ {TERMS}"
SOME = "y ~ x1 + offset(z) + s(v, k=6) + s(x2, k=4) + (0 + x1 | h) + (1 + x2 | g) + nn(u1, u2, u3)"
PRIORS = {"cor": "lkj(2.5)", "sd": "normal(0, 2)", "sd_g__x1": "exponential(0.5)",
          "sds": "student_t(4, 0.5, 1.5)"}  # fmt: skip
OPTIONS = SampleConfig(chains=2, warmup=200, draws=150, seed=5, kernel="stan")
TOLERANCE = 1e-9
DIGITS = 1e-7  # of sums of some of the CSV's numbers, which have ten digits


def blocks(rows):
    """What the mean's terms need of the rows."""
    return rows.predictors["mu"].blocks


def by_kind(design):
    """The mean's smooths and its groups, in the order of the program."""
    smooths = [term for term in design.terms if isinstance(term, Smooth)]
    groups = [term for term in design.terms if isinstance(term, Group)]
    assert (*smooths, *groups) == design.terms
    return smooths, groups


def everything(**settings):
    return random_bundle("binomial", formula=EVERYTHING, **settings)


# ----------------------------------------------------------------------------- the text

ALL = [
    *((record.name, f"y | weights(w){' + trials(tries)' * bool(record.given)} ~ {TERMS}")
      for record in FAMILIES),
    *((record.name, f"y{' | trials(tries)' * bool(record.given)} ~ {TERMS}")
      for record in FAMILIES),
    ("gaussian", "y ~ (x1 + x2 + u1 + u2 + u3 + z | g) + nn(v)"),
    ("gaussian", "y ~ (x1 + x2 + u1 + u2 + u3 + z || g) + nn(v)"),
    ("gaussian", "y ~ s(log(w), k=4) + (log(w) + poly(x1, 2) | g:h) + nn(v)"),
]  # fmt: skip
programs = pytest.mark.parametrize(("family", "formula"), ALL, ids=[" ".join(case) for case in ALL])


@programs
def test_lines_fit_and_are_clean(family, formula):
    bundle, _ = random_bundle(family, formula=formula)
    for text in (bundle_program(bundle), quantities_program(bundle)):
        for line in text.splitlines():
            assert len(line) <= 80, line
            assert line == line.rstrip()


@pytest.mark.slow
@programs
def test_stanc_accepts_both_programs_without_a_warning(family, formula, toolchain, tmp_path):
    bundle, _ = random_bundle(family, formula=formula)
    for text in (bundle_program(bundle), quantities_program(bundle)):
        assert stanc_output(text, toolchain, tmp_path) == ""


def test_numbers_of_levels_and_of_knots_leave_the_text_alone():
    formula = "y ~ x1 + s(v, k={}) + (x1 | {}) + nn(u1)"
    one, other = (
        random_bundle("gaussian", formula=formula.format(*terms))[0]
        for terms in ((5, "g"), (9, "g"))
    )
    assert bundle_program(one).splitlines()[4:] == bundle_program(other).splitlines()[4:]


def test_the_rows_are_read_back_as_they_were(tmp_path):
    bundle, rows = everything()
    read = read_back(bundle, rows, tmp_path)
    for name in ("y", "X", "U"):
        assert np.array_equal(getattr(read, name), getattr(rows, name))
    assert read.known.keys() == rows.known.keys() == {"weights", "trials", "offsets"}
    assert all(np.array_equal(read.known[name], rows.known[name]) for name in rows.known)
    for got, expected in zip(blocks(read), blocks(rows), strict=True):
        assert np.array_equal(got.Z, expected.Z)
        assert np.array_equal(got.level, expected.level)


def test_priors_of_spreads_are_in_units_of_eta_over_what_the_effects_multiply():
    bundle, rows = random_bundle("gaussian", formula=SOME)
    data, sd = bundle.prior_data, rows.y - rows.known["offsets"]
    unit = 2.5 * sd.std(ddof=1)
    assert data["prior_sds_sv_1_scale"] == pytest.approx(unit)
    assert data["prior_sd_g__Intercept_scale"] == pytest.approx(unit)
    x2 = rows.frame["x2"].std()
    assert data["prior_sd_g__x2_scale"] == pytest.approx(unit / x2)
    assert data["prior_cor_shape"] == 1
    lines = {line.parameter: line for line in priors_as_used(bundle)}
    assert lines["sd_g__x2"].used == f"student_t(3, 0, {unit / x2:.6g})"
    assert lines["cor"].used == "lkj(1)"


@pytest.mark.parametrize(
    ("formula", "priors", "message"),
    [
        ("y ~ (1 | g) + nn(u)", {"sd": "lkj(1)"}, "lkj() is for the correlations"),
        ("y ~ (1 + x | g) + nn(u)", {"cor": "normal(0, 1)"}, "lkj() is for the correlations"),
        ("y ~ (1 + x | g) + nn(u)", {"cor": "lkj(0)"}, "the shape of lkj must be positive"),
        ("y ~ (1 | g) + nn(u)", {"sd_g__x": "normal(0, 1)"}, "sd_g__x"),
        ("y ~ s(x) + nn(u)", {"sds_sz_1": "normal(0, 1)"}, "sds_sz_1"),
    ],
)
def test_impossible_priors_are_refused(formula, priors, message):
    with pytest.raises(InputError) as caught:
        prepare(small_config(formula, priors=priors), small_frame())
    assert message in str(caught.value)


def test_chains_start_at_the_trained_coefficients():
    bundle, _ = everything()
    values, r = trained_values(bundle), bundle.trained.terms["mu"]
    assert values["sds_sv_1"] * values["zs_1"] == pytest.approx(r[:3])
    sd = [values[f"sd_g__{name}"] for name in ("Intercept", "x1", "x2")]
    assert values["z_1"] * sd == pytest.approx(r[3:15].reshape(4, 3))
    assert np.array_equal(values["L_1"], np.eye(3))
    sd = [values[f"sd_h__{name}"] for name in ("Intercept", "x1")]
    assert values["z_2"] * sd == pytest.approx(r[15:27].reshape(6, 2))
    assert values["z_3"][:, 0] * values["sd_g_h__Intercept"] == pytest.approx(r[27:])
    assert (np.sqrt((values["z_1"] ** 2).mean(axis=0))) == pytest.approx(np.ones(3))


# -------------------------------------------------------------------------- the density

HALF = {
    "normal": lambda d, data, name: d.Normal(*at(data, name, "location", "scale")),
    "student_t": lambda d, data, name: d.StudentT(*at(data, name, "df", "location", "scale")),
    "exponential": lambda d, data, name: d.Exponential(*at(data, name, "rate")),
}


def at(data, name, *arguments):
    values = (float(data[f"prior_{name}_{argument}"]) for argument in arguments)
    return [torch.tensor(value, dtype=torch.float64) for value in values]


def log_prior_of_spread(data, name, value):
    """Log density of a positive parameter, cut off at 0."""
    if f"prior_{name}_rate" in data:
        return HALF["exponential"](torch.distributions, data, name).log_prob(value)
    kind = "student_t" if f"prior_{name}_df" in data else "normal"
    beyond = {
        "normal": lambda m, s: stats.norm.sf(0, m, s),
        "student_t": lambda df, m, s: stats.t.sf(0, df, m, s),
    }[kind]
    arguments = ("location", "scale") if kind == "normal" else ("df", "location", "scale")
    mass = beyond(*(float(data[f"prior_{name}_{argument}"]) for argument in arguments))
    return HALF[kind](torch.distributions, data, name).log_prob(value) - np.log(mass)


class Reader:
    """Hands out the pieces of an unconstrained state, and adds up what they cost."""

    def __init__(self, q):
        self.q, self.lp, self.used = q, 0.0, 0

    def take(self, *shape):
        size = int(np.prod(shape))
        piece = self.q[self.used : self.used + size]
        self.used += size
        # Stan's matrices are written column by column
        return piece.reshape(shape[::-1]).T if len(shape) == 2 else piece

    def normal(self, unit):
        value = self.take(*unit.shape) * unit
        density = torch.distributions.Normal(0.0, 1.0).log_prob(value)
        self.lp = self.lp + density.sum() + unit.log().sum()
        return value

    def scaled(self, scale, location, spread):
        scale = torch.tensor(scale)
        value = self.take(len(scale)) * scale
        prior = torch.distributions.Normal(torch.tensor(location), torch.tensor(spread))
        self.lp = self.lp + prior.log_prob(value).sum() + scale.log().sum()
        return value

    def cholesky(self, m, shape):
        transform = torch.distributions.transforms.CorrCholeskyTransform()
        q = self.take(m * (m - 1) // 2)
        L = transform(q)
        prior = torch.distributions.LKJCholesky(
            m, torch.tensor(shape, dtype=torch.float64), validate_args=False
        )
        self.lp = self.lp + prior.log_prob(L) + transform.log_abs_det_jacobian(q, L)
        return L

    def positive(self, data, names):
        logs = self.take(len(names))
        values = dict(zip(names, logs.exp(), strict=True))
        self.lp = self.lp + logs.sum()
        for name, value in values.items():
            self.lp = self.lp + log_prior_of_spread(data, name, value)
        return values


def by_torch(bundle, rows, data, q):
    """Log density of an unconstrained state, and the linear predictor, term by term."""
    design, reader = bundle.design, Reader(q)
    phi = reader.scaled(data["phi_scale"], data["prior_phi_location"], data["prior_phi_scale"])
    theta = reader.scaled(data["theta_scale"], data["prior_b_location"], data["prior_b_scale"])
    names = [
        *bundle.family.dispersion,
        *(name for term in design.terms for name in term.spread),
    ]
    value = reader.positive(data, names)
    smooths, groups = by_kind(design)
    zs = []
    for i, smooth in enumerate(smooths, 1):
        gain = value[smooth.spread[0]] ** 2 * torch.tensor(data[f"Is_{i}"])
        zs.append(reader.normal((1 + gain) ** -0.5))
    zr = []
    for i, group in enumerate(groups, 1):
        sd = torch.stack([value[name] for name in group.spread])
        known = torch.tensor(data[f"I_{i}"])
        L = torch.eye(group.size, dtype=torch.float64)
        if group.correlated:
            L = reader.cholesky(group.size, data["prior_cor_shape"])
        else:  # each effect by itself
            known = torch.diag_embed(known)
        gain = [
            torch.stack([(sd * L[:, e]) @ of_level @ (sd * L[:, e]) for e in range(group.size)])
            for of_level in known
        ]
        zr.append((reader.normal((1 + torch.stack(gain)) ** -0.5), L))
    assert reader.used == len(q)

    w = torch.tensor(data["p_bar"]) + torch.tensor(bundle.subspace.matrix) @ phi
    U = torch.tensor((rows.U - bundle.units.u_loc) / bundle.units.u_scale)
    eta = data["eta_loc"] + data["eta_scale"] * forward(bundle.network, w, U)
    eta = eta + torch.tensor(rows.X - rows.X.mean(axis=0)) @ theta
    eta = eta + torch.tensor(rows.known["offsets"])
    for smooth, z, block in zip(smooths, zs, blocks(rows), strict=False):
        eta = eta + torch.tensor(block.Z) @ (value[smooth.spread[0]] * z)
    of_groups = blocks(rows)[len(smooths) :]
    for group, (z, L), block in zip(groups, zr, of_groups, strict=True):
        sd = torch.stack([value[name] for name in group.spread])
        by_level = [sd * (L @ row) for row in z]
        eta = eta + torch.stack(
            [torch.tensor(block.Z[n]) @ by_level[block.level[n]] for n in range(len(rows))]
        )
    y, d = torch.tensor(rows.y), torch.distributions
    if bundle.family.name == "binomial":
        density = d.Binomial(torch.tensor(rows.given["trials"]), logits=eta).log_prob(y)
    else:
        density = d.Normal(eta, value["sigma"]).log_prob(y)
    weights = torch.tensor(rows.given.get("weights", np.ones(len(rows))))
    return reader.lp + (weights * density).sum(), eta


def n_unconstrained(bundle):
    design = bundle.design
    size = bundle.subspace.k + len(design.coefficients) + len(bundle.family.dispersion)
    for term in design.terms:
        size += term.n_levels * term.size + len(term.spread)
        size += len(getattr(term, "correlations", ()))
    return size


CASES = {
    "everything": lambda: everything(priors=PRIORS),
    "gaussian without weights": lambda: random_bundle(
        "gaussian", formula=SOME, sample={"integrate": "none"}
    ),
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_density_and_gradient_are_those_of_pytorch(make, toolchain, tmp_path):
    bundle, rows = make()
    data = stan_data(bundle, rows)
    q = 0.6 * np.random.default_rng(3).normal(size=(4, n_unconstrained(bundle)))
    if bundle.family.name == "gaussian":
        sigma = bundle.subspace.k + len(bundle.design.coefficients)
        q[:, sigma] += np.log(bundle.units.eta_scale)
    found = evaluate(bundle, data, q, toolchain, tmp_path)
    for state, lp, gradient in zip(q, found.lp, found.gradient, strict=True):
        leaf = torch.tensor(state, requires_grad=True)
        expected, _ = by_torch(bundle, rows, data, leaf)
        expected.backward()
        assert lp == pytest.approx(expected.item(), rel=TOLERANCE)
        difference = np.max(np.abs(gradient - leaf.grad.numpy()))
        assert difference < TOLERANCE * np.max(np.abs(gradient))


# -------------------------------------------------------------------------- the posterior


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    bundle, rows = everything(priors=PRIORS, sample={"kernel": "stan"})
    folder = tmp_path_factory.mktemp("penalised") / "run"
    fit = sample(new_run(bundle, rows, folder, OPTIONS, toolchain), toolchain)
    generate_quantities(fit.run, toolchain)
    return fit


@pytest.fixture(scope="module")
def columns(fit):
    return pd.concat([pd.read_csv(path, comment="#") for path in fit.run.csv_files()])


def as_stan_has_them(row):
    """Collect numbered columns in arrays, as ``r_1.2.1`` in ``r_1``."""
    numbered = {}
    for name, value in row.items():
        stem, *index = name.split(".")
        numbered.setdefault(stem, {})[tuple(int(i) - 1 for i in index)] = value
    arrays = {}
    for stem, entries in numbered.items():
        arrays[stem] = np.zeros(
            np.array(list(entries)).max(axis=0) + 1 if () not in entries else ()
        )
        for index, value in entries.items():
            arrays[stem][index] = value
    return arrays


def test_pytorch_computes_every_column_of_the_csv_in_its_order(fit, columns):
    target = make_target(fit.run.bundle, fit.run.rows())
    some = columns.iloc[::60]
    q = np.array([unconstrained(target, as_stan_has_them(row)) for _, row in some.iterrows()])
    density = np.array([-negative_log_posterior(target, torch.tensor(x)) for x in q])
    got = sampled_columns(target, q, density, np.zeros(len(q)))
    assert list(got) == list(columns)
    for name in ("lp__", *(name for name in columns if not name.endswith("__"))):
        assert got[name] == pytest.approx(some[name].to_numpy(), rel=DIGITS, abs=DIGITS), name


def test_the_linear_predictor_is_that_of_the_csv_by_hand(fit, columns):
    bundle, rows, units = fit.run.bundle, fit.run.rows(), fit.run.bundle.units
    table = everything()[1].frame  # the run's rows have no table

    def of(name):
        return columns[name].to_numpy()[:, None]

    phi = np.column_stack([columns[f"phi.{j}"] for j in (1, 2, 3)])
    w = bundle.subspace.p_bar + phi @ bundle.subspace.Pi.T
    H = (rows.U - units.u_loc) / units.u_scale
    hidden = np.tanh(np.einsum("nq,shq->snh", H, w[:, :12].reshape(-1, 4, 3)) + w[:, None, 12:16])
    f = np.einsum("snh,sh->sn", hidden, w[:, 16:20]) + w[:, 20:]
    x1, x2, v = (table[name].to_numpy() for name in ("x1", "x2", "v"))
    eta = units.eta_loc + units.eta_scale * f + table["z"].to_numpy()
    eta = eta + of("theta.1") * (x1 - x1.mean()) + of("theta.2") * (v - v.mean())
    eta = eta + np.column_stack([columns[f"s_1.{j}"] for j in (1, 2, 3)]) @ blocks(rows)[0].Z.T
    levels = sorted({f"{a}_{b}" for a, b in zip(table["g"], table["h"], strict=True)})
    for n, row in enumerate(table.itertuples()):
        g, h = "abcd".index(row.g) + 1, int(row.h) + 1
        both = levels.index(f"{row.g}_{row.h}") + 1
        eta[:, n] += (of(f"r_1.{g}.1") + x1[n] * of(f"r_1.{g}.2") + x2[n] * of(f"r_1.{g}.3"))[:, 0]
        eta[:, n] += (of(f"r_2.{h}.1") + x1[n] * of(f"r_2.{h}.2") + of(f"r_3.{both}.1"))[:, 0]
    found = posterior_linpred(fit.posterior, rows)
    assert found == pytest.approx(eta, rel=DIGITS, abs=DIGITS)


def test_spreads_and_correlations_are_those_of_the_effects(fit, columns):
    draws = fit.posterior.draws
    L = np.array([[columns[f"L_1.{i}.{j}"] for j in (1, 2, 3)] for i in (1, 2, 3)])
    correlation = np.einsum("ijs,kjs->iks", L, L)
    names = {
        "cor_g__Intercept__x1": (0, 1),
        "cor_g__Intercept__x2": (0, 2),
        "cor_g__x1__x2": (1, 2),
    }
    for name, (i, k) in names.items():
        assert draws.spread[name].ravel() == pytest.approx(correlation[i, k], abs=DIGITS)
    z = np.array([[columns[f"z_1.{i}.{j}"] for j in (1, 2, 3)] for i in range(1, 5)])
    sd = np.array([columns[f"sd_g__{name}"] for name in ("Intercept", "x1", "x2")])
    expected = np.einsum("js,jks,iks->sij", sd, L, z)
    assert draws.flat(draws.terms["r_1"]) == pytest.approx(expected, rel=DIGITS, abs=DIGITS)
    assert draws.flat(draws.terms["s_1"])[:, 1] == pytest.approx(columns["s_1.2"])


def test_log_lik_of_generated_quantities_is_ours_and_scipys(fit):
    rows = fit.run.rows()
    ours = log_lik(fit.posterior, rows)
    assert read_generated(fit.run).log_lik == pytest.approx(ours, rel=DIGITS)
    eta = posterior_linpred(fit.posterior, rows)
    by_scipy = stats.binom.logpmf(rows.y, rows.given["trials"], expit(eta))
    assert ours == pytest.approx(rows.given["weights"] * by_scipy, rel=1e-9)


def test_replicated_responses_have_the_moments_of_their_draws(fit):
    rows = fit.run.rows()
    mean, trials = posterior_epred(fit.posterior, rows), rows.given["trials"]
    y_rep = read_generated(fit.run).y_rep
    assert ((y_rep >= 0) & (y_rep <= trials)).all()
    z = (y_rep - mean) / np.sqrt(mean * (1 - mean / trials))
    by_draw = z.mean(axis=1)
    assert abs(by_draw.mean()) < Z * by_draw.std() / np.sqrt(len(z))


def test_lp_and_prior_are_those_of_the_densities(fit, columns):
    """lprior is the log prior without Jacobians and effects, to the digits of the CSV."""
    bundle, data = fit.run.bundle, stan_data(fit.run.bundle, fit.run.rows())
    total = stats.norm(data["prior_phi_location"], data["prior_phi_scale"]).logpdf(
        np.column_stack([columns[f"phi.{j}"] for j in (1, 2, 3)])
    ).sum(axis=1)  # fmt: skip
    total += stats.norm(data["prior_b_location"], data["prior_b_scale"]).logpdf(
        np.column_stack([columns["theta.1"], columns["theta.2"]])
    ).sum(axis=1)  # fmt: skip
    for name in columns:
        if name.startswith(("sd_", "sds_")):
            values = torch.tensor(columns[name].to_numpy())
            total += log_prior_of_spread(data, name, values).numpy()
    L = torch.tensor(
        np.array([[columns[f"L_1.{i}.{j}"] for j in (1, 2, 3)] for i in (1, 2, 3)])
    ).permute(2, 0, 1)
    lkj = torch.distributions.LKJCholesky(3, torch.tensor(2.5), validate_args=False)
    total += lkj.log_prob(L).numpy()
    assert fit.posterior.draws.lprior.ravel() == pytest.approx(total, rel=1e-7)
    assert bundle.design.terms


def test_the_run_reads_its_rows_and_bundle_back(fit):
    bundle, rows = everything()
    read = read_run(fit.run.path)
    again = read.rows()
    for got, expected in zip(blocks(again), blocks(rows), strict=True):
        assert np.array_equal(got.Z, expected.Z)
        assert np.array_equal(got.level, expected.level)
    assert all(np.array_equal(again.known[name], rows.known[name]) for name in rows.known)
    assert np.array_equal(read.bundle.trained.terms["mu"], bundle.trained.terms["mu"])


def test_the_table_lists_spreads_first_and_labels_name_the_effects(fit):
    variables = list(pd.read_csv(fit.run.path / "summary.csv")["variable"])
    assert variables == [
        "sds_sv_1", "sd_g__Intercept", "sd_g__x1", "sd_g__x2", "cor_g__Intercept__x1",
        "cor_g__Intercept__x2", "cor_g__x1__x2", "sd_h__Intercept", "sd_h__x1",
        "sd_g_h__Intercept", "b_Intercept", "b_x1", "b_v",
    ]  # fmt: skip
    labels = json.loads((fit.run.path / "labels.json").read_text())
    assert labels["r_1.3.2"] == "r_g[c,x1]"
    csv = (fit.run.path / "chains" / "chain-1.csv").read_text().splitlines()
    header = next(line for line in csv if not line.startswith("#")).split(",")
    assert {name for name in labels if name.startswith("r_")} <= set(header)


def test_predictions_of_new_levels_are_wider_than_those_of_known_ones(fit):
    bundle, draws = fit.run.bundle, fit.posterior.draws
    table = everything()[1].frame
    same = table.iloc[[3, 3]].assign(g=["d", "unseen"])
    new = new_rows(bundle, same, response=False, allow_new_levels=True)
    eta = posterior_linpred(SubspacePosterior(bundle, draws), new)
    assert np.isfinite(eta).all()
    known = posterior_linpred(SubspacePosterior(bundle, draws), fit.run.rows())[:, 3]
    assert eta[:, 0] == pytest.approx(known, rel=1e-9)
    assert eta[:, 1].std() > eta[:, 0].std()


def test_a_moved_run_continues_where_it_stopped(fit, toolchain, tmp_path):
    shutil.copytree(fit.run.path, tmp_path / "moved")
    (tmp_path / "moved" / "chains" / "chain-2.csv").unlink()
    again = sample(read_run(tmp_path / "moved"), toolchain)
    assert np.array_equal(again.posterior.draws.phi, fit.posterior.draws.phi)
    assert np.array_equal(again.posterior.draws.terms["r_1"], fit.posterior.draws.terms["r_1"])
