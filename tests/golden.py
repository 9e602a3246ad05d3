"""Write what the worked models must reproduce: ``python tests/golden.py [--reference]``.

Each ``models/<name>/program.stan`` is the generated program; read it in the diff. With
``--reference``, each ``reference.json`` gets the means, sds and Monte Carlo errors of a long
run (minutes).
"""

import json
import sys
import tempfile
from pathlib import Path

import semistan
from semistan.posterior.arviz import quiet_arviz
from semistan.stan.program import stan_program
from semistan.workflow import configure

MODELS = Path(__file__).parents[1] / "models"
LONG = {"sample.draws": 5000, "sample.seed": 2026}


def model_folders():
    return sorted(path.parent for path in MODELS.glob("*/model.toml"))


def golden_program(folder):
    prepared = semistan.prepare(configure(folder / "model.toml"))
    return stan_program(prepared.config, prepared.design)


def long_run(folder):
    arviz = quiet_arviz()
    with tempfile.TemporaryDirectory() as out:
        fit = semistan.fit(folder / "model.toml", out=Path(out) / "run", overrides=LONG)
    assert fit.summary.passed, folder
    return {
        row.name: {
            "mean": row.estimate,
            "sd": row.est_error,
            "mcse": float(arviz.mcse(fit.draws.interpreted[row.name])),
        }
        for row in fit.summary.rows
    }


if __name__ == "__main__":
    for folder in model_folders():
        (folder / "program.stan").write_text(golden_program(folder))
        if "--reference" in sys.argv:
            reference = long_run(folder)
            (folder / "reference.json").write_text(json.dumps(reference, indent=2) + "\n")
