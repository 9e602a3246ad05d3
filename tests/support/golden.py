"""Write what the worked models must reproduce: ``python -m support.golden [--reference NAME ...]``.

Each ``models/<name>/program.stan`` is the generated program, and so is each
``tests/golden/<name>.stan``, of models with other terms; read them in the diff. With
``--reference``, ``reference.json`` of the named models, or of all, gets the means, sds and Monte
Carlo errors of a longer run from another seed (minutes).
"""

import json
import sys
import tempfile
from pathlib import Path

from semistan.posterior.arviz import mcse
from semistan.program.program import stan_program
from semistan.workflow.dimension import with_dimension
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import configure, prepare
from support.untrained import CATEGORICAL, DIRICHLET, MULTINOMIAL, completed_bundle, random_bundle

MODELS = Path(__file__).parents[2] / "models"
TERMS = Path(__file__).parents[1] / "golden"
NETWORK = "nn(u1, u2, u3)"
SHARED = "nn(u1, u2, shared='f')"
CASES = {
    "offset": ("poisson", f"y ~ x1 + offset(log(w)) + {NETWORK}"),
    "trials": ("binomial", f"y | trials(tries) + weights(w) ~ x1 + {NETWORK}"),
    "smooth": ("gaussian", f"y ~ x1 + s(v) + {NETWORK}"),
    "distributional": ("gaussian", f"y ~ x1 + {NETWORK}, sigma ~ x1 + z + nn(v)"),
    "varying_shape": ("negbinomial", f"y | weights(w) ~ x1 + {NETWORK}, shape ~ x2"),
    "groups": ("bernoulli", f"y ~ x1 + (1 + x1 | g) + (v || h) + (1 | g:h) + {NETWORK}"),
    "completed": ("gaussian", f"y ~ x1 + (1 | g) + {NETWORK}"),
    "integrated": ("gaussian", f"y | weights(w) ~ x1 + (1 | g) + {NETWORK}"),
    "multiplied": ("gaussian", "y ~ x1 + (1 | g) + nn(u1, u2) + z:nn(v)"),
    "shared": ("gaussian", f"y ~ x1 + {SHARED} + nn(v), sigma ~ {SHARED}"),
    "categorical": (CATEGORICAL, f"y ~ x1 + x2 + {NETWORK}"),
    "multinomial": (MULTINOMIAL, f"cbind(bus, car, train) | trials(tries) ~ x1 + {SHARED}"),
    "dirichlet": (DIRICHLET, f"cbind(bus, car, train) ~ x1 + {NETWORK}"),
}
COMPLETED = {"completed", "multiplied"}
SETTINGS = {"integrated": {"subspace": {"construction": "full"}}}
LONG = 2000  # draws of a chain, or of the chains of all subspaces together


def model_folders():
    """Return the folders of the models whose data are stored, not drawn when they are fitted."""
    folders = (path.parent for path in MODELS.glob("*/model.toml"))
    return sorted(folder for folder in folders if not (folder / "draw.py").is_file())


def golden_program(folder):
    prepared = prepare(configure(folder / "model.toml"))
    return stan_program(with_dimension(prepared, lambda _: 0.0).prepared.model)


def case_program(name):
    family, formula = CASES[name]
    made = completed_bundle if name in COMPLETED else random_bundle
    bundle, _ = made(family, formula=formula, **SETTINGS.get(name, {}))
    return stan_program(bundle.model)


def long_run(folder):
    trainings = configure(folder / "model.toml").subspace.trainings
    longer = {"sample.draws": LONG // trainings, "sample.seed": 2026}
    with tempfile.TemporaryDirectory() as out:
        fit = fit_model(folder / "model.toml", out=Path(out) / "run", overrides=longer)
    assert fit.summary.passed, folder
    return {
        row.name: {
            "mean": row.estimate,
            "sd": row.est_error,
            "mcse": mcse(fit.posterior.interpreted[row.name]),
        }
        for row in fit.summary.rows
    }


def golden_files():
    return [*(folder / "program.stan" for folder in model_folders()), *sorted(TERMS.glob("*.stan"))]


if __name__ == "__main__":
    for name in CASES:
        (TERMS / f"{name}.stan").write_text(case_program(name))
    wanted = sys.argv[2:]
    for folder in model_folders():
        (folder / "program.stan").write_text(golden_program(folder))
        if "--reference" in sys.argv and folder.name in (wanted or [folder.name]):
            reference = long_run(folder)
            (folder / "reference.json").write_text(json.dumps(reference, indent=2) + "\n")
