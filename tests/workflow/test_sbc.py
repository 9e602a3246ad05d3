"""Simulation-based calibration with a fixed subspace (Talts et al., 2018; Modrak et al., 2023)."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from semistan.density.predictor import linear_predictor, network_output
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import quiet_cmdstanpy
from semistan.infer.stan_json import write_stan_json
from semistan.model.names import MU
from semistan.model.table.rows import Columns
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from support.assertions import assert_uniform_ranks
from support.small import MORE_RESPONSES, RESPONSES
from support.untrained import CATEGORICAL, plain_units, random_bundle, standard_rows

EVERYDAY, REPLICATIONS, THINNED, THIN = 50, 100, 99, 4
ENTRY, END = 0.2, 1.5  # of times that are observed from the one on, and until the other
ORDERED = ("cumulative(probit, 4)", "sratio(logit, 4)", "acat(logit, 4)")
WITH_OTHERS = (
    "zero_inflated_poisson",
    "hurdle_gamma",
    "beta_binomial",
    "skew_normal",
    "asym_laplace",
    "von_mises",
)  # of the rarer families
PRIORS = {
    "b": "normal(0, 0.5)", "phi": "normal(0, 0.7)", "sigma": "student_t(3, 0, 1)",
    "shape": "lognormal(1, 0.5)", "nu": "lognormal(1.5, 0.5)", "precision": "lognormal(2, 0.5)",
    "gap": "normal(0, 2)", "alpha": "normal(0, 2)", "kappa": "lognormal(1, 0.5)",
    "autoscale": False,
}  # fmt: skip
DISPERSION = {
    "sigma": lambda generator: abs(generator.standard_t(3)),
    "shape": lambda generator: generator.lognormal(1, 0.5),
    "nu": lambda generator: generator.lognormal(1.5, 0.5),
    "precision": lambda generator: generator.lognormal(2, 0.5),
    "gap_2": lambda generator: generator.normal(0, 2),
    "gap_3": lambda generator: generator.normal(0, 2),
    "zi": lambda generator: generator.random(),
    "hu": lambda generator: generator.random(),
    "alpha": lambda generator: generator.normal(0, 2),
    **{f"bhaz_{k}": lambda generator: generator.lognormal(0, 1) for k in range(2, 7)},
    "quantile": lambda generator: generator.random(),
    "kappa": lambda generator: generator.lognormal(1, 0.5),
}
ORDERED_GAPS = {name: lambda generator: generator.lognormal(0, 0.5) for name in ("gap_2", "gap_3")}


def predictor(bundle, rows, phi, theta):
    return linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X, rows.U, phi, theta
    )


def log_lik(bundle, y, eta, dispersion, given):
    values = {name: torch.as_tensor(value)[..., None] for name, value in dispersion.items()}
    values |= {name: torch.as_tensor(value) for name, value in given.items()}
    density = bundle.family.log_lik(torch.as_tensor(y), torch.as_tensor(eta), values)
    return density.sum(-1).numpy()


def sampled(bundle, model, rows, number, folder):
    """Sample the posterior of some responses."""
    write_stan_json(folder / f"{number}.json", stan_data(bundle, rows))
    return model.sample(
        data=str(folder / f"{number}.json"), chains=1, seed=number + 1, iter_warmup=300,
        iter_sampling=THINNED * THIN, thin=THIN, metric="dense_e", show_progress=False,
        output_dir=str(folder / str(number)), adapt_delta=0.9,
    )  # fmt: skip


def replicate(bundle, model, rows, number, folder):
    """Draw from the prior, simulate, sample the posterior; return the rank of each quantity."""
    generator = np.random.default_rng([number, 11])
    phi, theta = generator.normal(0, 0.7, bundle.subspace.k), generator.normal(0, 0.5, 2)
    priors = DISPERSION | (ORDERED_GAPS if bundle.family.name == "cumulative" else {})
    dispersion = {name: priors[name](generator) for name in bundle.family.dispersion}
    eta = predictor(bundle, rows, phi[None], theta[None])[0]
    y, rows = seen(rows, bundle.family.rng(eta, dispersion | rows.given, generator))
    fit = sampled(bundle, model, replace(rows, y=y), number, folder)
    draws = {"phi": fit.stan_variable("phi"), "theta": fit.stan_variable("theta")}
    drawn = {name: fit.stan_variable(name) for name in dispersion}
    etas = predictor(bundle, rows, draws["phi"], draws["theta"])
    true = {
        **{f"phi[{i}]": (phi[i], draws["phi"][:, i]) for i in range(len(phi))},
        **{f"theta[{i}]": (theta[i], draws["theta"][:, i]) for i in range(2)},
        "eta[0]": (eta[0], etas[:, 0]),
        "log_lik": tuple(
            log_lik(bundle, y, at, values, rows.given)
            for at, values in ((eta, dispersion), (etas, drawn))
        ),
    }
    true |= {name: (value, drawn[name]) for name, value in dispersion.items()}
    return ranks_of(true)


def seen(rows, y):
    """What is seen of responses: those above ``END`` are censored if the formula has ``cens()``."""
    if "cens" not in rows.given:
        return y, rows
    given = rows.given | {"cens": (y > END).astype(float)}
    return np.minimum(y, END), replace(rows, given=given)


def ranks_of(true):
    """The rank of each true value among its draws."""
    return {name: int((draw < value).sum()) for name, (value, draw) in true.items()}


def replicate_penalised(bundle, model, rows, number, folder):
    """As ``replicate``, with a smooth and two correlated effects of a group."""
    generator = np.random.default_rng([number, 12])
    smooth, group = rows.predictors[MU].blocks
    levels, m = len(bundle.design.mean.terms[1].levels), smooth.Z.shape[1]
    phi, theta = generator.normal(0, 0.7, 2), generator.normal(0, 0.5, 3)
    sds, sd = abs(generator.normal(0, 0.7)), abs(generator.normal(0, 0.7, 2))
    sigma, cor = abs(generator.standard_t(3)), 2 * generator.beta(2, 2) - 1
    covariance = np.outer(sd, sd) * [[1, cor], [cor, 1]]
    s = generator.normal(0, sds, m)
    r = generator.multivariate_normal(np.zeros(2), covariance, levels)
    eta = predictor(bundle, rows, phi[None], theta[None])[0] + smooth.Z @ s
    eta += (group.Z * r[group.level]).sum(axis=1)
    y = generator.normal(eta, sigma)
    fit = sampled(bundle, model, replace(rows, y=y), number, folder)
    drawn = {name: fit.stan_variable(name) for name in ("phi", "theta", "s_1", "r_1")}
    etas = predictor(bundle, rows, drawn["phi"], drawn["theta"]) + drawn["s_1"] @ smooth.Z.T
    etas += np.einsum("nj,snj->sn", group.Z, drawn["r_1"][:, group.level])
    sigmas = fit.stan_variable("sigma")
    true = {
        "phi[0]": (phi[0], drawn["phi"][:, 0]), "theta[2]": (theta[2], drawn["theta"][:, 2]),
        "s[0]": (s[0], drawn["s_1"][:, 0]), "r[0, 0]": (r[0, 0], drawn["r_1"][:, 0, 0]),
        "r[3, 1]": (r[3, 1], drawn["r_1"][:, 3, 1]), "eta[0]": (eta[0], etas[:, 0]),
        "log_lik": tuple(
            log_lik(bundle, y, at, {"sigma": value}, {})
            for at, value in ((eta, sigma), (etas, sigmas))
        ),
    }  # fmt: skip
    named = {
        "sigma": sigma, "sds_sv_1": sds, "sd_g__Intercept": sd[0], "sd_g__x1": sd[1],
        "cor_g__Intercept__x1": cor,
    }  # fmt: skip
    return ranks_of(true | {name: (x, fit.stan_variable(name)) for name, x in named.items()})


def replicate_categorical(bundle, model, rows, number, folder):
    """As ``replicate``, with a predictor of the third category."""
    generator = np.random.default_rng([number, 13])
    phi, theta, further = (generator.normal(0, sd, n) for sd, n in ((0.7, 4), (0.5, 1), (0.5, 1)))
    eta, mutrain = predictors_of_categories(bundle, rows, phi[None], theta[None], further[None])
    y = bundle.family.rng(eta[0], {"mutrain": mutrain[0]}, generator)
    fit = sampled(bundle, model, replace(rows, y=y), number, folder)
    drawn = [fit.stan_variable(name) for name in ("phi", "theta", "theta_mutrain")]
    etas, mutrains = predictors_of_categories(bundle, rows, *drawn)
    return ranks_of({
        **{f"phi[{i}]": (phi[i], drawn[0][:, i]) for i in range(4)},
        "theta": (theta[0], drawn[1][:, 0]), "theta_mutrain": (further[0], drawn[2][:, 0]),
        "eta[0]": (eta[0, 0], etas[:, 0]), "mutrain[0]": (mutrain[0, 0], mutrains[:, 0]),
        "log_lik": tuple(
            bundle.family.log_lik(*map(torch.tensor, (y, at)), {"mutrain": torch.tensor(mu)})
            .sum(-1).numpy()
            for at, mu in ((eta[0], mutrain[0]), (etas, mutrains))
        ),
    })  # fmt: skip


def replicate_effects(bundle, model, rows, number, folder):
    """As ``replicate``, with a scale of how much an effect varies; phi has modes by symmetry."""
    generator = np.random.default_rng([number, 17])
    of_group = bundle.model.weight_scales.of > 0
    sd_w, sigma = abs(generator.normal()), abs(generator.standard_t(3))
    phi = generator.normal(0, bundle.subspace.phi_scale * np.where(of_group, sd_w, 1.0))
    theta = generator.normal(0, 0.5, 1)
    (eta,) = predictor(bundle, rows, phi[None], theta[None])
    y = generator.normal(eta, sigma)
    fit = sampled(bundle, model, replace(rows, y=y), number, folder)
    names = ("phi", "theta", "sigma", "sd_w")
    phis, thetas, sigmas, scales = (fit.stan_variable(name) for name in names)
    etas = predictor(bundle, rows, phis, thetas)
    return ranks_of({
        "sd_w": (sd_w, scales[:, 0]), "sigma": (sigma, sigmas), "theta": (theta[0], thetas[:, 0]),
        "eta[0]": (eta[0], etas[:, 0]), "eta[5]": (eta[5], etas[:, 5]),
        "sum of squares": ((phi[of_group] ** 2).sum(), (phis[:, of_group] ** 2).sum(axis=1)),
        "log_lik": tuple(
            log_lik(bundle, y, at, {"sigma": value}, {})
            for at, value in ((eta, sigma), (etas, sigmas))
        ),
    })  # fmt: skip


def predictors_of_categories(bundle, rows, phi, theta, further):
    """The predictors (S, n) of the second and the third category."""
    w = bundle.subspace.lift(phi)
    f = network_output(bundle.network, bundle.units, w, rows.U, "mutrain")
    return predictor(bundle, rows, phi, theta), further @ rows.predictors["mutrain"].X.T + f


def assert_uniform(replicate, bundle, rows, toolchain, folder, replications=REPLICATIONS):
    """Replicate, and test the ranks of every quantity.

    Where they are not uniform, others are replicated: with a dozen quantities and three tests of
    each, chance fails one set of some hundred, and an error every set.
    """
    program = compile_program(bundle_program(bundle), toolchain)
    model = quiet_cmdstanpy().CmdStanModel(exe_file=str(program.executable))

    def check(first):
        numbers = range(first, first + replications)
        with ThreadPoolExecutor(2) as pool:
            ranks = list(pool.map(lambda n: replicate(bundle, model, rows, n, folder), numbers))
        for name in ranks[0]:
            assert_uniform_ranks([rank[name] for rank in ranks], THINNED, name)

    try:
        check(0)
    except AssertionError:
        check(replications)


@pytest.mark.slow
def test_ranks_are_uniform_with_smooths_and_group_effects(toolchain, tmp_path):
    """Fifty replications are enough for what is likely to go wrong.

    With true standard deviations of g from a prior twice as wide as the program's, the ranks of
    ``sd_g__x1`` have p = 6e-7, and with other replications 1e-5; 1.5 times as wide is not found
    (4e-4 and 0.05). Without the Jacobian of ``sd_g__Intercept`` (the program with
    ``target += -log(sd_g__Intercept)``), those of it have p = 4e-87.
    """
    formula = "y ~ x1 + x2 + s(v, k=4) + (1 + x1 | g) + nn(u1, u2, u3)"
    priors = PRIORS | {"sd": "normal(0, 0.7)", "sds": "normal(0, 0.7)", "cor": "lkj(2)"}
    bundle, rows = random_bundle("gaussian", formula=formula, n=12, hidden=(3,), k=2, priors=priors)
    bundle, generator = plain_units(bundle), np.random.default_rng(1)
    smooth, group = rows.predictors[MU].blocks
    group = replace(group, Z=np.column_stack([np.ones(12), generator.normal(size=12)]))
    mean = Columns(generator.normal(size=(12, 3)), (smooth, group))
    rows = replace(rows, predictors={MU: mean}, U=generator.normal(size=(12, 3)))
    assert_uniform(replicate_penalised, bundle, rows, toolchain, tmp_path, EVERYDAY)


@pytest.mark.slow
def test_ranks_are_uniform_where_output_layers_of_a_sampled_scale_are_integrated_out(
    toolchain, tmp_path
):
    """With true scales from a prior three times as wide as the program's, and 60 replications, the
    ranks of ``sd_w`` have p = 2e-28.
    """
    priors = PRIORS | {"phi": None, "w": "normal(0, 1)", "Intercept": "normal(0, 1)"}
    bundle, rows = random_bundle(
        "gaussian", formula="y ~ x1 + nn(u1, hidden=[2]) + z:nn(v, hidden=[2])", n=10,
        subspace={"construction": "full"}, priors=priors,
    )  # fmt: skip
    bundle, generator = plain_units(bundle), np.random.default_rng(1)
    assert bundle.model.integral and bundle.model.weight_scales
    rows = replace(rows, U=generator.normal(size=rows.U.shape),
                   predictors={MU: Columns(generator.normal(size=(10, 1)))})  # fmt: skip
    assert_uniform(replicate_effects, bundle, rows, toolchain, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*RESPONSES, *MORE_RESPONSES, *WITH_OTHERS, *ORDERED])
def test_posterior_ranks_of_prior_draws_are_uniform(family, toolchain, tmp_path):
    """Three rows leave much to the prior.

    With coefficients from a prior 1.5 times as wide as the program's, theta of a gaussian response
    has p = 4e-8 (with 8 rows and 200 replications, 2e-4); a heavy-tailed prior of sigma 1.5 times
    as wide is not found (p = 0.02).
    """
    priors = PRIORS | ({"gap": "lognormal(0, 0.5)"} if family.startswith("cumulative") else {})
    bundle = plain_units(random_bundle(family, hidden=(3,), k=2, priors=priors)[0])
    rows = standard_rows(np.random.default_rng(1), 3, family)  # few, so that a wrong prior shows
    assert_uniform(replicate, bundle, rows, toolchain, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["weibull", "cox(0.1, 0.4, 1)"])
def test_ranks_are_uniform_with_delayed_entry_and_censored_times(family, toolchain, tmp_path):
    formula = "y | cens(h) + trunc(lb=least) ~ x1 + x2 + nn(u1, u2, u3)"
    bundle, _ = random_bundle(family, formula=formula, n=10, hidden=(3,), k=2, priors=PRIORS)
    rows = standard_rows(np.random.default_rng(1), 4, family)
    rows = replace(rows, given={"cens": np.zeros(4), "lb": np.array([0, ENTRY, ENTRY, 2 * ENTRY])})
    assert_uniform(replicate, plain_units(bundle), rows, toolchain, tmp_path)


@pytest.mark.slow
def test_ranks_are_uniform_with_a_predictor_of_each_category(toolchain, tmp_path):
    formula, generator = "y ~ x1 + nn(u1, u2, u3)", np.random.default_rng(1)
    bundle, rows = random_bundle(
        CATEGORICAL, formula=formula, n=12, hidden=(3,), k=2, priors=PRIORS
    )
    X, U = generator.normal(size=(12, 1)), generator.normal(size=(12, 3))
    predictors = {MU: Columns(X), "mutrain": Columns(X)}
    rows = replace(rows, predictors=predictors, U=np.hstack([U, U]))
    assert_uniform(replicate_categorical, plain_units(bundle), rows, toolchain, tmp_path)
