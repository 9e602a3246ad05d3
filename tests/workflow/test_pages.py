"""The pages' blocks of code: how each is fenced, and that excerpts are right.

Blocks of ``sh``, ``python`` and ``r`` in docs/ are tutorials, which ``test_docs.py`` runs.
A ``py`` block is an excerpt: the blocks of a page run one after the other, after the names of
``GIVEN`` that the page takes for granted, and with trainings and chains that are short.
"""

import contextlib
import io
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import semistan
from semistan.command import cli
from semistan.model.config import parse_config
from support.workers import cluster_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "benchmarks/*.md", "models/*/*.md")
    for path in ROOT.glob(pattern)
)
RUN = ("sh", "python", "r")  # in docs/; in models/ Python is run, and commands are parsed
KNOWN = (*RUN, "py", "text", "toml", "yaml", "stan", "bibtex")
FENCE = re.compile(
    r"^(?P<before>[^`~\n]*?)(?P<mark>`{3,}|~{3,})(?P<info>[^`\n]*)\n(?P<code>.*?)"
    r"^[^`~\n]*?(?P=mark)[`~]*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
SHORT = {"epochs": 3, "method": "laplace", "chains": 1, "warmup": 20, "draws": 20}
DIABETES = """
import pandas as pd
import torch
import semistan
table = pd.read_csv("models/diabetes/data.csv")
new = table.head()
"""
CLUSTER = """
import numpy as np
import pandas as pd
import semistan
frame = pd.DataFrame(np.random.default_rng(1).normal(size=(30, 4)), columns=["y", "x", "u1", "u2"])
"""
GIVEN = {"add-a-family": "", "cluster": CLUSTER, "networks": DIABETES}


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands before the fence, the fence, what it says, and the code."""

    before: str
    mark: str
    info: str
    code: str

    @property
    def fault(self):
        """Why a test would not see it; empty if it would."""
        if self.info not in KNOWN:
            return f"'{self.mark}{self.info}' is none of {', '.join(KNOWN)}"
        return "" if (self.before, self.mark) == ("", "```") else "write ``` at the margin"


def fenced(text):
    return [Block(*found.group("before", "mark", "info", "code")) for found in FENCE.finditer(text)]


def excerpts(name, language):
    return [block.code for block in fenced(name.read_text("utf-8")) if block.info == language]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_is_fenced_so_that_it_is_run_or_read(path):
    text = path.read_text("utf-8")
    faults = [f"{block.fault}: {block.code[:60]}" for block in fenced(text) if block.fault]
    assert not faults
    assert len(re.findall(r"`{3,}|~{3,}", text)) == 2 * len(fenced(text))
    if path.parent == ROOT / "docs":
        assert bool(excerpts(path, "py")) == (path.stem in GIVEN)
    else:
        allowed = {"python", "sh"} if path.parent.parent == ROOT / "models" else set()
        assert not {block.info for block in fenced(text)} & {*RUN, "py"} - allowed


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("```python\nf()\n```\n", True),
        ("```py\nf()\n```\n", True),
        ("``` {.python}\nf()\n```\n", False),
        ("``` python\nf()\n```\n", False),
        ("```Python\nf()\n```\n", False),
        ("```python3\nf()\n```\n", False),
        ("```python title=1\nf()\n```\n", False),
        ("```\nf()\n```\n", False),
        ("````python\nf()\n````\n", False),
        ("~~~python\nf()\n~~~\n", False),
        ("  ```python\n  f()\n  ```\n", False),
        ("- ```python\n  f()\n  ```\n", False),
        ("1. so:\n\n   ~~~ {.py}\n   f()\n   ~~~\n", False),
        ("> ```sh\n> f\n> ```\n", False),
    ],
)
def test_a_fence_that_no_test_would_see_is_a_fault(text, seen):
    (block,) = fenced(text)
    assert bool(block.fault) != seen


@pytest.mark.lengthy
@pytest.mark.parametrize("name", GIVEN)
def test_excerpts_of_python_run(name, tmp_path, monkeypatch):
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    whole = semistan.fit

    def short(*arguments, **named):
        return whole(*arguments, **SHORT | named)

    monkeypatch.setattr(semistan, "fit", short)
    names = {}
    exec(GIVEN[name], names)
    needs_workers = name == "cluster"
    with cluster_of(tmp_path, 1) if needs_workers else contextlib.nullcontext():
        for code in excerpts(ROOT / "docs" / f"{name}.md", "py"):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, names)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("models/*/README.md")), ids=lambda path: path.parent.name
)
def test_the_code_of_a_models_readme_writes_its_data(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in excerpts(path, "python"):
        exec(code, {})
        assert (tmp_path / "data.csv").read_bytes() == (path.parent / "data.csv").read_bytes()


def commands(text):
    """Lines of ``semistan`` in shell blocks, fenced or indented, each whole, with its arguments."""
    shell = "\n".join(block.code for block in fenced(text) if block.info == "sh")
    line = r"""(semistan (?:'[^']*'|"[^"]*"|[^\n\\'"]|\\\n|\\.)*)"""
    indented = re.findall("^    " + line, text, re.MULTILINE)
    in_blocks = re.findall("^" + line, shell, re.MULTILINE)
    for line in [*indented, *in_blocks]:
        words = shlex.split(line.replace("\\\n", " "), comments=True)
        ends = [words.index(sign) for sign in ("|", ">", "2>", "&&", "...") if sign in words]
        yield words[1 : min(ends, default=len(words))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_have_the_flags_that_pages_give_them(path):
    known = typer.main.get_command(cli.app).commands
    for name, *arguments in commands(path.read_text("utf-8")):
        if name in known:
            known[name].make_context(name, arguments)
        else:
            assert name.startswith("-"), name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_excerpts_of_a_model_file_are_keys(path):
    for code in excerpts(path, "toml"):
        parse_config({"formula": "y ~ nn(u)"} | tomllib.loads(code), "test")
