"""Simulation-based calibration with a fixed subspace (Talts et al., 2018; Modrak et al., 2023)."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from assertions import assert_uniform_ranks
from semistan.model.rows import Rows
from semistan.stan.cmdstan import quiet_cmdstanpy
from semistan.stan.compile import compile_program
from semistan.stan.data import stan_data, write_stan_json
from semistan.stan.program import bundle_program
from semistan.subspace.predictor import linear_predictor
from small import MORE_RESPONSES, RESPONSES
from untrained import plain_units, random_bundle, standard_rows

REPLICATIONS, THINNED, THIN = 200, 99, 4
PRIORS = {
    "b": "normal(0, 0.5)", "phi": "normal(0, 0.7)", "sigma": "student_t(3, 0, 1)",
    "shape": "lognormal(1, 0.5)", "nu": "lognormal(1.5, 0.5)", "precision": "lognormal(2, 0.5)",
    "gap": "lognormal(0, 0.5)",
    "autoscale": False,
}  # fmt: skip
DISPERSION = {
    "sigma": lambda generator: abs(generator.standard_t(3)),
    "shape": lambda generator: generator.lognormal(1, 0.5),
    "nu": lambda generator: generator.lognormal(1.5, 0.5),
    "precision": lambda generator: generator.lognormal(2, 0.5),
    "gap_2": lambda generator: generator.lognormal(0, 0.5),
    "gap_3": lambda generator: generator.lognormal(0, 0.5),
}


def predictor(bundle, rows, phi, theta):
    return linear_predictor(
        bundle.network, bundle.units, bundle.trained, rows.X, rows.U, phi, theta
    )


def log_lik(bundle, y, eta, dispersion):
    import torch

    values = {name: torch.as_tensor(value)[..., None] for name, value in dispersion.items()}
    density = bundle.family.log_lik(torch.as_tensor(y), torch.as_tensor(eta), values)
    return density.sum(-1).numpy()


def replicate(bundle, model, rows, number, folder):
    """Draw from the prior, simulate, sample the posterior; return the rank of each quantity."""
    generator = np.random.default_rng([number, 11])
    phi, theta = generator.normal(0, 0.7, bundle.subspace.k), generator.normal(0, 0.5, 2)
    dispersion = {name: DISPERSION[name](generator) for name in bundle.family.dispersion}
    eta = predictor(bundle, rows, phi[None], theta[None])[0]
    y = bundle.family.rng(eta, dispersion, generator)
    write_stan_json(
        folder / f"{number}.json", stan_data(bundle, Rows(y, rows.X, rows.U, rows.index))
    )
    fit = model.sample(
        data=str(folder / f"{number}.json"), chains=1, seed=number + 1, iter_warmup=300,
        iter_sampling=THINNED * THIN, thin=THIN, metric="dense_e", show_progress=False,
        output_dir=str(folder / str(number)), adapt_delta=0.9,
    )  # fmt: skip
    draws = {"phi": fit.stan_variable("phi"), "theta": fit.stan_variable("theta")}
    drawn = {name: fit.stan_variable(name) for name in dispersion}
    etas = predictor(bundle, rows, draws["phi"], draws["theta"])
    true = {
        **{f"phi[{i}]": (phi[i], draws["phi"][:, i]) for i in range(len(phi))},
        **{f"theta[{i}]": (theta[i], draws["theta"][:, i]) for i in range(2)},
        "eta[0]": (eta[0], etas[:, 0]),
        "log_lik": (log_lik(bundle, y, eta, dispersion), log_lik(bundle, y, etas, drawn)),
    }
    true |= {name: (value, drawn[name]) for name, value in dispersion.items()}
    return {name: int((draw < value).sum()) for name, (value, draw) in true.items()}


@pytest.mark.parametrize("family", [*RESPONSES, *MORE_RESPONSES, "cumulative(probit, 4)"])
def test_posterior_ranks_of_prior_draws_are_uniform(family, toolchain, tmp_path):
    bundle = plain_units(random_bundle(family, hidden=(3,), k=2, priors=PRIORS)[0])
    rows = standard_rows(np.random.default_rng(1), 8)  # few, so that a wrong prior shows
    program = compile_program(bundle_program(bundle), toolchain)
    model = quiet_cmdstanpy().CmdStanModel(exe_file=str(program.executable))
    with ThreadPoolExecutor(2) as pool:
        ranks = list(
            pool.map(lambda n: replicate(bundle, model, rows, n, tmp_path), range(REPLICATIONS))
        )
    for name in ranks[0]:
        assert_uniform_ranks([rank[name] for rank in ranks], THINNED, f"{name} ({family})")
