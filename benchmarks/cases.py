"""The benchmarks' models: bundles of any size without training, and a table to train on.

What may change in semistan's inner functions is called here, and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from common import Case
from semistan.bundle.bundle import library_versions
from semistan.bundle.files import read_json
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.infer.plan import timed_plan
from semistan.infer.stan_json import write_stan_json
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.model.config import ModelConfig, SampleConfig
from semistan.model.design import learn_design
from semistan.model.families.families import family
from semistan.model.formula.formula import parse_formula
from semistan.model.model import network_spec
from semistan.model.names import MU
from semistan.model.networks.networks import initial
from semistan.model.table.rows import Rows
from semistan.model.trained import Source, Trained
from semistan.model.units import units_of
from semistan.posterior.run import Run
from semistan.program.data import stan_data
from semistan.program.parts import Kernel
from semistan.program.program import bundle_program
from semistan.subspace.curve import arc_length
from semistan.subspace.span import span
from semistan.workflow.new_run import new_run
from semistan.workflow.prepare import configure
from semistan.workflow.sample import draw_missing

FAMILY = "gaussian"


def config_of(case: Case) -> ModelConfig:
    """Return the model of a case: one structured term, and everything else in the network."""
    inputs = ", ".join(f"u{j + 1}" for j in range(case.inputs))
    within = {"subspace.k": case.k, "subspace.completion": "none"}
    subspace = {"subspace.construction": "full"} if case.k is None else within
    overrides = {
        "family": FAMILY,
        "network.hidden": case.hidden,
        "network.activation": case.activation,
        **subspace,
    }
    return configure(f"y ~ x + nn({inputs})", overrides)


def smooth_table(case: Case) -> pd.DataFrame:
    """Draw a table: a smooth nonlinear function of the inputs, a linear effect, and noise."""
    generator = np.random.default_rng(1)
    U = generator.uniform(-2, 2, size=(case.n, case.inputs))
    x = generator.normal(size=case.n) + 0.3 * U[:, 0]
    smooth = np.sin(1.5 * U[:, 0]) * U[:, 1] + 0.5 * U[:, 2] ** 2 + np.tanh(U[:, 3] - U[:, 4])
    y = 20 + 0.8 * x + 2 * smooth + generator.normal(scale=0.5, size=case.n)
    columns = [f"u{j + 1}" for j in range(case.inputs)]
    return pd.DataFrame(U, columns=columns).assign(x=x, y=y)


def untrained(case: Case) -> tuple[Bundle, Rows]:
    """Make a bundle whose control points are initial weights, and its rows."""
    import torch

    if case.k is None:
        raise ValueError("a case without k is trained")
    config, generator = config_of(case), torch.Generator().manual_seed(1)
    design, rows = learn_design(parse_formula(config.formula), smooth_table(case))
    assert rows.y is not None
    units, spec = units_of(design, family(FAMILY), rows), network_spec(config, design)
    draws = [initial(spec, generator).numpy() for _ in range(case.k + 1)]
    points = np.array(draws)
    subspace, singular_values = span(points, case.k, "random points")
    trained = Trained(
        subspace=subspace,
        singular_values=singular_values,
        control_points=points,
        linear={MU: 0.3 * units.theta_scale},
        dispersion={"sigma": 0.8 * units.eta_scale},
        history={},
        curve={},
        arc_length=arc_length(points),
    )
    source = Source(None, len(rows), 0)
    return Bundle(config, design, units, trained, source, library_versions()), rows


def write_data(bundle: Bundle, rows: Rows, path: Path, grainsize: int | None = None) -> None:
    """Write the program's data as semistan writes it; one slice of rows by default."""
    write_stan_json(path, stan_data(bundle, rows, grainsize=grainsize))


def planned_grainsize(
    bundle: Bundle, rows: Rows, kernel: Kernel, threads: int, toolchain: Toolchain
) -> int:
    """Return the rows per slice that semistan would choose for a chain with these threads."""
    options = bundle.config.sample.model_copy(update={"chains": 1, "threads": threads})
    program = compile_program(bundle_program(bundle, kernel), toolchain, kernel)
    return timed_plan(bundle, rows, options, program.executable).grainsize


def sample_run(
    bundle: Bundle,
    rows: Rows,
    path: Path,
    options: SampleConfig,
    kernel: Kernel,
    toolchain: Toolchain,
) -> Run:
    """Sample as ``semistan fit`` does once the subspace is trained."""
    run = new_run(bundle, rows, path, options, toolchain, kernel=kernel)
    draw_missing(run, toolchain)
    return run


def unconstrained_point(bundle: Bundle) -> Array:
    """Return the state (c, z, log sigma) of ``peers`` at which contenders must agree."""
    trained, generator = bundle.trained, np.random.default_rng(2)
    c = 0.3 * generator.normal(size=bundle.subspace.k)
    sigma = trained.dispersion["sigma"]
    return np.array([*c, *(trained.theta / bundle.units.theta_scale), np.log(sigma)])


def initial_points(run: Path, chains: int) -> list[dict[str, Array]]:
    """Read where a run's chains start: phi, theta and sigma of each."""
    contents = [read_json(run / f"inits-{chain}.json") for chain in range(1, chains + 1)]
    return [
        {name: np.array(content[name], dtype=float) for name in ("phi", "theta", "sigma")}
        for content in contents
    ]
