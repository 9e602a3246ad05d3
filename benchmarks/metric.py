"""What the initial metric is worth: leapfrog steps and bulk-ESS per CPU second with each.

``ggn`` is the default, with its search for a mode and its warm-up of 300 or 1000 iterations;
``dense_e`` and ``diag_e`` are adapted by CmdStan from a unit matrix, and ``unit_e`` is never
adapted; their chains start on the trained curve.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from cases import config_of, smooth_table
from common import AIRFOIL, Case, Record, console, read_options, record, report
from ess import Figures, Model, quantities, sample_semistan, summarise, train_model
from semistan.infer.cmdstan.toolchain import find_toolchain

METRICS = ("ggn", "dense_e", "diag_e", "unit_e")


def main() -> None:
    """Sample every case with every metric in turn, and report."""
    options = read_options(__doc__ or "", repeats=2, cores=2)
    toolchain = find_toolchain()
    records: list[Record] = []
    for k in (3,) if options.quick else (5, 20):
        case = replace(AIRFOIL, name=f"airfoil-size, k = {k}", k=k)
        console.print(f"{case.name} ...")
        model = train_model(case, config_of(case), smooth_table(case), toolchain)
        records += _compare(model, options.repeats, options.cores, case)
    report("metric", options, records, toolchain)


def _compare(model: Model, repeats: int, cores: int, case: Case) -> list[Record]:
    samples: dict[str, list[Figures]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, repeats + 1):
            for metric in METRICS:
                path = Path(folder) / f"{metric}-{seed}"
                samples[metric].append(_figures(model, metric, path, seed))
    d = model.bundle.subspace.d
    return [
        record(
            case, metric, name, [figures[name] for figures in values], d=d, threads=cores,
            reference=[figures[name] for figures in samples["ggn"]],
        )
        for name in samples["ggn"][0]
        for metric, values in samples.items()
    ]  # fmt: skip


def _figures(model: Model, metric: str, path: Path, seed: int) -> Figures:
    _, draws, cost = sample_semistan(model, {"metric": metric}, path, seed)
    values = quantities(model, draws)
    steps = cost.gradients / draws["sigma"].size
    return summarise(values, values, cost) | {"leapfrog steps per draw": steps}


if __name__ == "__main__":
    main()
