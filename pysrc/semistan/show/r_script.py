"""A script with which an R user carries on from the run's CSV files.

What varies between runs is set at the top of the script; the rest is ``read.R`` in this folder.
It needs the package posterior, uses loo and bayesplot where they are, and leaves ``draws`` and
``draws_df`` under brms's names, ``coefficient_table`` as ``summary.csv`` and, with ``generated/``,
``log_lik``, ``y_rep`` and ``loo_result``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from semistan.bundle.files import atomic_file
from semistan.infer.methods import reservations
from semistan.infer.trees import WHOLE
from semistan.model.formula.patterns import shortened
from semistan.model.orthogonal import in_model, orthogonal_columns
from semistan.posterior.draws import level_columns, table_columns
from semistan.posterior.posterior import shares_of
from semistan.posterior.run import Run
from semistan.version import __version__

NAME = "read.R"


def r_script(run: Run, folder: Path | None = None) -> str:
    """Return the text of the script.

    Parameters
    ----------
    run : Run
        The run, with its ``labels.json``.
    folder : Path, optional
        Where the script will be; the run's own folder by default. It finds the run from there.

    """
    place = run.path if folder is None else folder
    relative = Path(os.path.relpath(run.path.resolve(), place.resolve())).as_posix()
    return _settings(run, relative) + Path(__file__).with_name(NAME).read_text("utf-8")


def write_r_script(run: Run, path: Path | None = None) -> Path:
    """Write the script, by default as ``read.R`` into the run's folder, and return its path."""
    path = run.path / NAME if path is None else path
    with atomic_file(path) as temporary:
        temporary.write_text(r_script(run, path.parent), "utf-8")
    return path


def _settings(run: Run, relative: str) -> str:
    bundle = run.bundle
    table, levels = table_columns(bundle), level_columns(bundle.design)
    per_chain = run.options.per_chain
    shares = shares_of(run.weights or (1.0,) * len(run.members), per_chain)
    kept = ", ".join(str(round(per_chain * share)) for share in shares)
    lines = [
        f"# Reads a run of semistan {__version__} in R; written by 'semistan export --to r'.",
        f"# formula: {shortened(' '.join(run.bundle.config.formula.split()))}",
        f"# family: {run.bundle.family.name}, link: {run.bundle.family.link}",
        *_categories(run),
        "#",
        "# Rscript read.R, or source() it and carry on with `draws`.",
        *_elsewhere(run),
        "",
        f"run_from_here <- {_quoted(relative)}  # the run's folder, from this script's",
        f"subspaces <- {len(run.members)}",
        f"chains <- {run.options.chain_count}{'  # of each subspace' if run.parts else ''}",
        f"kept <- c({kept})  # draws that count, in each of its chains",
        f"method <- {_quoted(run.options.method)}",
        f"reservations <- {_vector(reservations(run.options))}  # none if they are the posterior's",
        f"max_treedepth <- {WHOLE.resolve(run.options).max_treedepth}",
        f"temperature <- {run.options.temperature!r}  # the likelihood to the power 1 / T",
        f"subspace <- {_logical(run.bundle.model.moves != 'all')}  # or are all weights sampled?",
        f"prior_only <- {_logical(run.prior_only)}  # are these draws from the prior?",
        f"whole_numbers <- {_logical(run.bundle.family.integer)}  # are the responses such?",
        f"categories <- {_vector(_counted(run))}  # of counts or shares, if y has such",
        *_named(
            "parameter_names", {column: shown for shown, column in table.items()}, "of the table"
        ),
        *_named("level_names", levels, "effects of the levels of groups"),
        f"uncompleted <- {_vector(_uncompleted(run, table))}  # by the weights outside",
    ]
    return "\n".join(lines) + "\n"


def _categories(run: Run) -> list[str]:
    """Say which number each unordered category has in ``y`` and ``y_rep``."""
    names = enumerate(run.bundle.design.categories, start=1)
    texts = [f"{k} {_quoted(name)}" for k, name in names]
    return [f"# categories: {', '.join(texts)}"] if texts else []


def _counted(run: Run) -> tuple[str, ...]:
    return run.bundle.design.categories if run.bundle.family.counted else ()


def _elsewhere(run: Run) -> list[str]:
    """Say where coefficients are that the program does not write."""
    config, design = run.bundle.config, run.bundle.design
    if in_model(config, design) or not orthogonal_columns(config, design):
        return []
    return ["# The chains have no orthogonalised coefficients: they are in summary.csv."]


def _uncompleted(run: Run, table: Mapping[str, str]) -> tuple[str, ...]:
    """Return what only Python completes by the weights outside the subspace."""
    bundle = run.bundle
    if bundle.completion is None or run.prior_only:
        return ()
    moved = set(bundle.completion.others)
    own = [shown for term in bundle.design.terms for shown in term.reported]
    terms = [shown for shown in own if table[shown].split(".")[0] in moved]
    arrays = [
        elements.name
        for term in bundle.design.terms
        for made, elements in term.elements.items()
        if made in moved and elements.name not in terms
    ]
    return (*terms, *arrays)


def _named(variable: str, names: Mapping[str, str], text: str) -> list[str]:
    """Write a vector down: names here, by those of the chains' columns."""
    if not names:
        return [f"{variable} <- character(0)  # {text}"]
    lines = [f"  {_quoted(_in_r(column))} = {_quoted(shown)}" for column, shown in names.items()]
    return [f"{variable} <- c(  # {text}: names in the chains, and here", ",\n".join(lines), ")"]


def _in_r(column: str) -> str:
    """Return the name in R of a column of the CSV: ``r_1[2,1]`` of ``r_1.2.1``."""
    name, *index = column.split(".")
    return f"{name}[{','.join(index)}]" if index and all(map(str.isdigit, index)) else column


def _vector(names: tuple[str, ...]) -> str:
    return f"c({', '.join(_quoted(name) for name in names)})" if names else "character(0)"


def _logical(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _quoted(text: str) -> str:
    """Quote text for R, in ASCII: R reads a script in the locale's encoding.

    Whatever comes from a file goes through here, names too: nobody vouches for a bundle.
    """
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
