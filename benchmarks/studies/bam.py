"""An additive model by mgcv's ``bam`` (Wood, Goude and Shaw, 2015), in R.

Structured columns are linear, each input has a thin plate spline of 10 functions, and fast REML
chooses the penalties; covariates are discretised, as is meant for large tables. R writes the
design of the new rows, the estimate and its posterior covariance, of which coefficients are drawn
as in ``regressions.py``.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import pandas as pd

from studies.problem import Found, Problem, predictive_density
from studies.regressions import drawn

FAMILIES = {"gaussian": "gaussian()", "poisson": "poisson()", "bernoulli": "binomial()"}
SCRIPT = """\
suppressPackageStartupMessages(library(mgcv))
model <- bam({formula}, family = {family}, data = read.csv("training.csv"), discrete = TRUE)
save <- function(name, values) write.csv(values, paste0(name, ".csv"), row.names = FALSE)
save("design", predict(model, read.csv("new.csv"), type = "lpmatrix"))
save("estimate", coef(model))
save("covariance", vcov(model))
save("scale", c(model$sig2, df.residual(model)))
"""


def bam(problem: Problem) -> Found:
    """Fit an additive model."""
    started, facts = time.perf_counter(), problem.facts
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        problem.training.to_csv(folder / "training.csv", index=False)
        problem.new.to_csv(folder / "new.csv", index=False)
        terms = [*facts.structured, *(f"s({name})" for name in facts.inputs)]
        script = SCRIPT.format(
            formula=f"{facts.response} ~ {' + '.join(terms)}", family=FAMILIES[facts.family]
        )
        subprocess.run(["Rscript", "-e", script], cwd=folder, check=True)
        design, estimate, covariance, (scale, df) = (
            pd.read_csv(folder / f"{name}.csv").to_numpy().squeeze()
            for name in ("design", "estimate", "covariance", "scale")
        )
    coefficients, sigma = drawn(problem, estimate, covariance / scale, scale, df)
    eta = coefficients @ design.T
    return Found(
        eta=eta,
        lpd=predictive_density(facts.family, problem.new_y, eta, sigma[:, None]),
        seconds=time.perf_counter() - started,
        theta=coefficients[:, 1 : 1 + len(facts.structured)],
    )
