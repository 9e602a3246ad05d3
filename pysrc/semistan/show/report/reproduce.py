"""Sections 7 and 8: the program, how to cite, and how to do it again."""

from __future__ import annotations

from collections.abc import Iterator

from semistan.model.config import ModelConfig, config_toml
from semistan.posterior.manifest import TRAINING
from semistan.posterior.run import SUBSPACES
from semistan.show.report.blocks import Code, Fact, Facts, Paragraph, Section
from semistan.show.report.results import Results

BUNDLE_ARRAYS = "bundle/arrays.npz"
HASHED = ("program.stan", "data.json", TRAINING)

PAPER = """\
@inproceedings{dold2024semistructured,
  author    = {Dold, Daniel and R{\\"u}gamer, David and Sick, Beate and D{\\"u}rr, Oliver},
  title     = {{Bayesian} Semi-structured Subspace Inference},
  booktitle = {Proceedings of the 27th International Conference on Artificial
               Intelligence and Statistics (AISTATS)},
  series    = {Proceedings of Machine Learning Research},
  volume    = {238},
  publisher = {PMLR},
  year      = {2024}
}"""

SOFTWARE = """\
@software{{semistan,
  author  = {{{{The semistan developers}}}},
  title   = {{semistan: Semi-structured regression in one {{Stan}} program}},
  version = {{{version}}}
}}"""

STAN = """\
@article{{carpenter2017stan,
  author  = {{Carpenter, Bob and Gelman, Andrew and Hoffman, Matthew D. and Lee, Daniel and
             Goodrich, Ben and Betancourt, Michael and Brubaker, Marcus and Guo, Jiqiang and
             Li, Peter and Riddell, Allen}},
  title   = {{{{Stan}}: A Probabilistic Programming Language}},
  journal = {{Journal of Statistical Software}},
  volume  = {{76}},
  number  = {{1}},
  pages   = {{1--32}},
  year    = {{2017}},
  doi     = {{10.18637/jss.v076.i01}},
  note    = {{CmdStan {version}}}
}}"""


def program_section(results: Results) -> Section:
    """Show the generated program, folded."""
    kernel = results.manifest.kernel == "cpp"
    note = (
        " The likelihood is computed by `log_lik.hpp`, a C++ function beside it in the run's "
        "folder; `semistan stan bundle` writes the same model in Stan alone."
    )
    return Section(
        "program",
        "The Stan program",
        (
            Paragraph(
                "The program that was sampled; it is `program.stan` in the run's folder."
                + note * kernel
            ),
            Code("Stan program", results.program, "stan", folded=True),
        ),
    )


def cite_section(results: Results) -> Section:
    """Name the paper, the software and Stan, with BibTeX."""
    entries = (
        PAPER,
        SOFTWARE.format(version=results.manifest.semistan),
        STAN.format(version=results.manifest.cmdstan),
    )
    return Section(
        "cite",
        "How to cite",
        (
            Paragraph(
                "The method is that of D. Dold, D. Rügamer, B. Sick and O. Dürr (2024), Bayesian "
                "Semi-structured Subspace Inference, Proceedings of AISTATS 2024, PMLR 238. "
                "Please cite the paper, semistan and Stan."
            ),
            Code("BibTeX", "\n\n".join(entries) + "\n", "bibtex"),
        ),
    )


def reproduce_section(results: Results) -> Section:
    """Give the model file, the command, seeds and hashes."""
    manifest = results.manifest
    return Section(
        "reproduce",
        "How to reproduce",
        (
            Paragraph(_instructions(results)),
            Code("model.toml", config_toml(_config(results)), "toml"),
            _how(results),
            Paragraph(
                "The same versions and seeds give the same subspace on the same kind of machine; "
                "elsewhere rounding differs. sha256 of the run's files (of the arrays' contents, "
                "for the bundle):"
            ),
            Facts(
                (
                    *(Fact(name, text, code=True) for name, text in _hashes(results)),
                    Fact("Compiler", manifest.compiler),
                    Fact("Versions in training", _versions(results)),
                )
            ),
        ),
    )


def _hashes(results: Results) -> Iterator[tuple[str, str]]:
    """Yield files and their hashes; several subspaces have a bundle each."""
    known, found = results.manifest.hashes, results.manifest.bundle_sha256
    yield from ((name, known[name]) for name in HASHED if name in known)
    if isinstance(found, str):
        yield BUNDLE_ARRAYS, found
    else:
        for i, text in enumerate(found, start=1):
            yield f"{SUBSPACES}/{i}/{BUNDLE_ARRAYS}", text


def _config(results: Results) -> ModelConfig:
    """Return the configuration with the options that sampled, and the data file's bare name."""
    config, number = results.bundle.config, len(results.posterior.members)
    several = {"subspaces": number, "weights": results.weights}
    update = {
        "data": results.data_name, "sample": results.options,
        "subspace": config.subspace.model_copy(update=several),
    }  # fmt: skip
    return config.model_copy(update=update)


def _how(results: Results) -> Code:
    """Give the command, or in Python the call where modules of the user's are networks."""
    modules = results.bundle.modules
    if not modules:
        return Code("Command", "\n".join(_commands(results)) + "\n", "shell")
    table = f", '{results.data_name or 'data.csv'}'"
    networks = ", ".join(f"'{name}': {name}" for name in modules)
    call = f"semistan.fit('model.toml'{table}, out='run', networks={{{networks}}})\n"
    return Code("Python", f"# {', '.join(modules)}: your torch.nn.Module\n{call}", "python")


def _instructions(results: Results) -> str:
    if results.data_name is None:
        return (
            "The table was in memory: write it to a CSV file, save this as `model.toml`, and "
            "name the file in the command."
        )
    return "Save this as `model.toml` beside the data, and run the command there."


def _commands(results: Results) -> Iterator[str]:
    data = "" if results.data_name else " --data data.csv"
    if results.prior_only:
        yield f"semistan fit model.toml{data} --train-only --out bundle"
        yield "semistan sample bundle --prior-only --out run"
    else:
        yield f"semistan fit model.toml{data} --out run"


def _versions(results: Results) -> str:
    return ", ".join(f"{name} {version}" for name, version in results.bundle.versions.items())
