"""Chains drawn into a folder as a run does, without a run, and what holds for chains of PyTorch."""

from io import BytesIO

import numpy as np
import pandas as pd
import pytest

from semistan.bundle.unfinished import kept_state
from semistan.infer.backends.local import LOCAL
from semistan.infer.chain_store import chain_tasks, complete, partial_file
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import method_of


def draw_chains(
    bundle, rows, folder, options, starts, *, prior_only=False, progress=None, backend=LOCAL
):
    """Draw the chains that a folder lacks, by a method that PyTorch runs."""
    write_stan_folder(bundle, rows, folder, starts, grainsize=len(rows), prior_only=prior_only)
    (folder / "chains").mkdir(exist_ok=True)
    tasks = chain_tasks(
        folder, method_of(options), bundle, options, prior_only=prior_only, rows=rows,
        keep_metric=starts.keeps_metric,
    )  # fmt: skip
    complete(folder / "chains", tasks, backend, at_once=1, progress=progress)


def complete_folder(folder, bundle, options, *, at_once=2, **settings):
    """Draw the chains that a folder lacks, by a method that CmdStan runs."""
    (folder / "chains").mkdir(exist_ok=True)
    tasks = chain_tasks(folder, method_of(options), bundle, options, **settings)
    complete(folder / "chains", tasks, LOCAL, at_once=at_once)


def columns_of(folder, chains):
    """Read the columns (C, S) of a folder's chains by name."""
    files = [folder / "chains" / f"chain-{c + 1}.csv" for c in range(chains)]
    tables = [pd.read_csv(path, comment="#") for path in files]
    return {name: np.stack([table[name] for table in tables]) for name in tables[0]}


def assert_goes_on(sample, folder, stops):
    """Check that two chains, interrupted at each (chain, iteration), end with the same bytes.

    ``sample`` draws them into a folder, with ``progress``.
    """
    sample(folder / "whole")
    for chain, iteration in stops:

        def progress(*now, stop=(chain, iteration)):
            if now[:2] == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sample(folder / "parts", progress=progress)
        left = np.load(BytesIO(kept_state(partial_file(folder / "parts" / "chains", chain))))
        assert left["done"] == iteration
    sample(folder / "parts")
    for name in ("chain-1.csv", "chain-2.csv"):
        one, other = (folder / x / "chains" / name for x in ("whole", "parts"))
        assert one.read_bytes() == other.read_bytes()


def assert_seed_decides(sample, folder, options):
    """Check that draws are those of the seed, and differ between chains and seeds.

    ``sample`` draws into a folder, with options, and returns the columns.
    """
    one, again = sample(folder / "a", options), sample(folder / "b", options)
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.allclose(one["phi.1"][0], one["phi.1"][1])
    other = sample(folder / "c", options.model_copy(update={"seed": options.seed + 1}))
    assert not np.allclose(other["phi.1"], one["phi.1"])
