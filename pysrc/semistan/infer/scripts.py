"""Two short scripts that run an exported folder: by CmdStan alone, and by cmdstanr.

Both sample as ``semistan sample`` does, chain for chain: from the same initial values, with the
same metrics and seed. They name only files of their own folder, which can be moved.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from semistan.bundle.files import atomic_file
from semistan.infer.environment import KEEP_MEMORY
from semistan.infer.methods.nuts import nuts_words, step_size_only
from semistan.infer.stan_csv import SIGNIFICANT_DIGITS
from semistan.model.config import SampleConfig
from semistan.program.parts import Kernel

SHELL, R = "run.sh", "run.R"


def write_scripts(
    folder: Path,
    options: SampleConfig,
    *,
    keep_metric: bool,
    kernel: Kernel,
    include: bool = False,
) -> None:
    """Write ``run.sh`` and ``run.R`` beside ``program.stan``.

    Parameters
    ----------
    folder : Path
        The exported folder.
    options : SampleConfig
        Iterations, adaptation and seed; nothing in them is ``auto`` any more.
    keep_metric : bool
        Whether warm-up adapts the step size only.
    kernel : str
        Whether the program declares the C++ kernel (``cpp``).
    include : bool
        Whether the program includes a file of the folder.
    """
    for name, text in (
        (SHELL, shell_script(options, keep_metric=keep_metric, kernel=kernel, include=include)),
        (R, r_script(options, keep_metric=keep_metric, kernel=kernel, include=include)),
    ):
        with atomic_file(folder / name) as path:
            path.write_text(text, "utf-8")


def shell_script(
    options: SampleConfig, *, keep_metric: bool, kernel: Kernel, include: bool = False
) -> str:
    """Return a shell script that compiles the program, runs NUTS and prints the summary."""
    flags, stanc = "", []
    if kernel == "cpp":
        flags += 'USER_HEADER="$here/log_lik.hpp" '
        stanc.append("--allow-undefined")
    if include:
        stanc.append("--include-paths=$here")
    if stanc:
        flags += f'STANCFLAGS="{" ".join(stanc)}" '
    kept = "metric=dense_e metric_file=metric-$i.json"
    metric = kept if options.metric == "ggn" else f"metric={options.metric}"
    method = " ".join([*nuts_words(options, keep_metric=keep_metric), metric])
    words = " \\\n    ".join(wrap(method, 90))
    chains = " ".join(str(chain) for chain in range(1, options.chain_count + 1))
    settings = " ".join(f"{name}={value}" for name, value in KEEP_MEMORY.items())
    return f"""#!/bin/sh
# Compile, sample into chains/ and summarise: CMDSTAN=/path/to/cmdstan sh run.sh
set -e; all=; cd "$(dirname "$0")"
# CmdStan's make stops at blanks, which the path of this folder may have: it gets another one.
here=$(mktemp -u); ln -s "$PWD" "$here"
make -C "${{CMDSTAN:?must name the folder of CmdStan}}" STAN_THREADS=1 \\
  {flags}"$here/program"
rm "$here"
# glibc keeps what is freed: small gradients take less time.
export {settings}
mkdir -p chains
for i in {chains}; do
  ./program id=$i random seed={options.seed} data file=data.json init=inits-$i.json \\
    {words} \\
    output file=chains/chain-$i.csv sig_figs={SIGNIFICANT_DIGITS} >chains/chain-$i.txt &
  all="$all $!"
done
for one in $all; do wait "$one"; done
"$CMDSTAN/bin/stansummary" chains/chain-*.csv
"""


def r_script(
    options: SampleConfig, *, keep_metric: bool, kernel: Kernel, include: bool = False
) -> str:
    """Return an R script that does the same by cmdstanr, in the folder."""
    assert options.warmup != "auto"
    header = ', user_header = "log_lik.hpp"' if kernel == "cpp" else ""
    if include:
        header += ', include_paths = "."'
    kept = 'metric = "dense_e", metric_file = sprintf("metric-%d.json", chains)'
    metric = kept if options.metric == "ggn" else f'metric = "{options.metric}"'
    window = step_size_only(options.warmup) if keep_metric else {}
    phases = "".join(f", {name} = {value}" for name, value in window.items())
    settings = ", ".join(f"{name} = {value}" for name, value in KEEP_MEMORY.items())
    return f"""# Compile and sample by cmdstanr, which takes CmdStan 2.35 or later: Rscript run.R
n <- {options.chain_count}
chains <- seq_len(n)
# glibc keeps what is freed: small gradients take less time.
Sys.setenv({settings})
model <- cmdstanr::cmdstan_model(
  "program.stan", cpp_options = list(stan_threads = TRUE){header})
fit <- model$sample(
  data = "data.json", init = sprintf("inits-%d.json", chains), seed = {options.seed},
  chains = n, parallel_chains = n, threads_per_chain = 1,
  iter_warmup = {options.warmup}, iter_sampling = {options.per_chain},
  adapt_delta = {options.adapt_delta}, max_treedepth = {options.max_treedepth}{phases},
  {metric}, sig_figs = {SIGNIFICANT_DIGITS})
print(fit$summary())
fit$cmdstan_diagnose()
"""
