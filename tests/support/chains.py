"""Chains drawn into a folder as a run does, without a run."""

from semistan.infer.backends.local import LOCAL
from semistan.infer.chain_store import chain_tasks, complete
from semistan.infer.folder import write_stan_folder
from semistan.infer.methods import method_of


def draw_chains(
    bundle, rows, folder, options, starts, *, prior_only=False, progress=None, backend=LOCAL
):
    """Draw the chains that a folder lacks, by a method that PyTorch runs."""
    write_stan_folder(bundle, rows, folder, starts, grainsize=len(rows), prior_only=prior_only)
    (folder / "chains").mkdir(exist_ok=True)
    tasks = chain_tasks(
        folder, method_of(options), bundle, options, prior_only=prior_only, rows=rows
    )
    complete(folder / "chains", tasks, backend, at_once=1, progress=progress)


def complete_folder(folder, bundle, options, *, at_once=2, **settings):
    """Draw the chains that a folder lacks, by a method that CmdStan runs."""
    (folder / "chains").mkdir(exist_ok=True)
    tasks = chain_tasks(folder, method_of(options), bundle, options, **settings)
    complete(folder / "chains", tasks, LOCAL, at_once=at_once)
