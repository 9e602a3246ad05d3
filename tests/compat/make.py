"""How the run ``sealed`` was written: run format 3, bundle format 2, cross-validation format 2.

It must NOT be written anew: ``test_compat.py`` reads it to show that such runs stay readable. A
later format gets a folder of its own. Given a folder, this script writes there what is missing, by
whichever version is imported.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import semistan
from semistan.model.config import parse_config
from semistan.posterior.posterior import read_posterior
from semistan.posterior.predictive import log_lik, posterior_epred
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows
from semistan.workflow.sample import read_fitted
from semistan.workflow.watch import Watch

NEW = [2, 11, 33]  # positions of the rows that the new ones are made of
COMMON = {
    "network": {"hidden": [4]},
    "subspace": {"k": 2},
    "priors": {"phi": "normal(0, 1)"},
    "train": {"epochs": 50, "device": "cpu"},
    "sample": {"chains": 2, "warmup": 60, "draws": 25, "kernel": "stan", "threads": 1},
}
CASES = {
    "sealed": {
        "formula": "y ~ x + z + (1 | g) + nn(u, v)",
        "subspace": {"free": "bias"},
        "sample": {"method": "elliptical-slice"},
    },
}


def table(n=40):
    """Return the training rows of every case."""
    generator = np.random.default_rng(20)
    x, u, v = generator.normal(5, 2, n), generator.normal(0, 1, n), generator.uniform(10, 20, n)
    eta = 0.3 * (x - 5) + np.sin(2 * u) + 0.05 * (v - 15)
    tries = np.arange(n) % 5 + 3
    return pd.DataFrame(
        {
            "y": 50 + 7 * (eta + generator.normal(0, 0.5, n)),
            "count": generator.poisson(np.exp(1 + eta / 2)),
            "wins": generator.binomial(tries, 1 / (1 + np.exp(-eta))),
            "tries": tries,
            "mode": np.array(["bus", "car", "train trip"])[
                np.argmax(np.outer(eta, [0, 1, -1]) + generator.gumbel(size=(n, 3)), axis=1)
            ],
            "rating": 1 + np.searchsorted([-0.7, 0.2, 1.0], eta + generator.normal(size=n)),
            "x": x,
            "z": generator.uniform(0, 3, n),
            "g": np.array(["a", "b", "c", "d"])[np.arange(n) % 4],
            "u": u,
            "v": v,
            "o": generator.normal(0, 1, n),
            "q": np.arange(n) % 3 + 1.0,
        }
    )


def configuration(case):
    """Return a case's configuration: its keys over the common ones, section by section."""
    content = {**COMMON, **case}
    for section, values in COMMON.items():
        content[section] = {**values, **case.get(section, {})}
    return parse_config(content, "make.py")


def answers(fit, rows):
    """Return what the version at hand makes of a run: plain numbers, as JSON has them."""
    run = fit.run
    posterior = read_posterior(run)
    draws, design = posterior.draws, run.bundle.design
    new = new_rows(run.bundle, rows, response=True)
    return {
        "rows": rows.to_dict("list"),
        "phi": draws.phi.tolist(),
        "theta": draws.theta.tolist(),
        "coefficients": {name: values.tolist() for name, values in draws.interpreted.items()},
        "summary": fit.summary.table().to_dict("split"),
        "posterior_epred": posterior_epred(posterior, new).tolist(),
        "log_lik": log_lik(posterior, new).tolist(),
        **{
            f"epred_{item.name}": posterior_epred(posterior, new, dpar=item.name).tolist()
            for item in design.of_dispersion
        },
    }


def without_nan(value):
    """Return None in place of NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def make(out):
    """Write every case into a folder: a run without its pictures' data, and expected.json."""
    rows = table()
    new = rows.iloc[NEW].assign(x=[4.0, 6.5, 5.25], u=[-0.5, 0.1, 1.2], z=[0.4, 1.5, 2.2])
    for name, case in CASES.items():
        if (out / name).exists():
            continue
        print(name, flush=True)
        scratch = out / f".{name}"
        fit_model(configuration(case), rows, out=scratch, watch=Watch(print))
        for header in scratch.glob("*.hpp"):
            header.unlink()
        found = answers(read_fitted(scratch), new)
        judged = semistan.kfold(scratch, folds=2)
        found["kfold"] = {"fold": judged.fold.tolist(), **judged.table().to_dict("split")}
        text = json.dumps(without_nan(found), allow_nan=False)
        (scratch / "expected.json").write_text(text + "\n")
        scratch.rename(out / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
