"""Who takes part in the studies, and what each can do.

    contender             families      theta   what it is
    defaults              all           yes     fit_model with nothing set but formula and family
    paper                 all           yes     subspace.k = 8 and priors.phi = "normal(0, 5)"
    widened               all           yes     subspace.curve = 8, subspace.k = 40, not completed
    all-weights           all           yes     subspace.construction = "full"
    sampled-scales        all           yes     priors.sd_w = "lognormal(0, 0.7)"
    subspaces-3           all           yes     subspace.subspaces = 3
    mclmc                 all           yes     sample.method = "mclmc-torch"
    laplace               all           yes     sample.method = "laplace"
    bde                   not poisson   no      sklearn-contrib-bde
    deep-ensemble         all           no      five networks
    last-layer-laplace    not poisson   yes     laplace-torch
    gam                   all           yes     statsmodels' GLMGam
    bam                   all           yes     mgcv's bam, in R
    glm                   all           yes     statsmodels' GLM

"all" are the families of ``problem.FAMILIES``. A contender whose library or program is missing is
left out, and said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from shutil import which

from common import console
from studies.bam import bam
from studies.bde_ensemble import bde
from studies.networks import deep_ensemble, last_layer_laplace
from studies.own import own_contenders
from studies.problem import FAMILIES, Found, Problem
from studies.regressions import gam, glm


@dataclass(frozen=True, slots=True)
class Contender:
    """One who takes part.

    Attributes
    ----------
    name : str
        Its name in records, which ``--only contender=NAME`` takes.
    run : callable
        Fits a problem's training rows and predicts its new rows.
    families : tuple of str
        What it can model.
    library : str
        The module that it needs.
    program : str
        The program that it needs, if any.
    """

    name: str
    run: Callable[[Problem], Found]
    families: tuple[str, ...] = FAMILIES
    library: str = "semistan"
    program: str = ""


NOT_COUNTS = ("gaussian", "bernoulli")
CONTENDERS: tuple[Contender, ...] = (
    *(Contender(name, run) for name, run in own_contenders().items()),
    Contender("bde", bde, NOT_COUNTS, "bde"),
    Contender("deep-ensemble", deep_ensemble, library="torch"),
    Contender("last-layer-laplace", last_layer_laplace, NOT_COUNTS, "laplace"),
    Contender("gam", gam, library="statsmodels"),
    Contender("bam", bam, program="Rscript"),
    Contender("glm", glm, library="statsmodels"),
)


def available(names: Sequence[str] | None = None) -> list[Contender]:
    """Return the contenders whose libraries are there, and say which are left out.

    Parameters
    ----------
    names : sequence of str, optional
        Those that are wanted, in this order; by default all.
    """
    known = {contender.name: contender for contender in CONTENDERS}
    found = []
    for contender in [known[name] for name in names or known]:
        missing = [] if find_spec(contender.library) else [contender.library]
        missing += [contender.program] if contender.program and not which(contender.program) else []
        if missing:
            console.print(f"{contender.name}: left out, {missing[0]} is not installed")
        else:
            found.append(contender)
    return found
