"""The tutorials run as they stand, and print what they show, up to the digits."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from semistan.model.construction import CONSTRUCTIONS
from support.r import r_with

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
build = sys.modules["docs_build"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build)

TUTORIALS = build.tutorials()
LENGTHY = ("constructions", "gaussian", "images", "poisson", "terms")  # several minutes each


def words(text):
    """Text without its numbers and their alignment: they vary with processor and versions."""
    return re.sub(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?|nan|\s+", " ", text).split()


def lines(text):
    """The words of each line, sorted: tables by rank may have near ties in another order."""
    return sorted(words(line) for line in text.splitlines())


def test_every_tutorial_is_linked_from_the_readme():
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    assert len(TUTORIALS) >= 7
    for path in TUTORIALS:
        assert f"](docs/{path.name})" in readme


def test_the_readme_shows_the_first_lines_of_a_program():
    root = DOCS.parent
    (shown,) = re.findall(r"```stan\n(.*?)```", (root / "README.md").read_text("utf-8"), re.DOTALL)
    assert (root / "models/diabetes/program.stan").read_text("utf-8").startswith(shown)


def test_every_construction_has_its_section_and_picture():
    text = (DOCS / "constructions.md").read_text("utf-8")
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(CONSTRUCTIONS)
    for name in CONSTRUCTIONS:
        assert f"](images/constructions-{name}.png)" in text


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_picture_and_link_is_there(path):
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        page = DOCS / name if name else path
        assert page.exists(), target
        headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE) if anchor else ()
        slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in slugs, target


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.stem,
            marks=pytest.mark.tutorials if path.stem in LENGTHY else pytest.mark.slow,
        )
        for path in TUTORIALS
    ],
)  # fmt: skip
def test_a_tutorial_prints_what_it_shows(path, toolchain, tmp_path):
    text = path.read_text("utf-8")
    if any(block.language == "r" for block in build.blocks(text)):
        r_with("rstan", "posterior", "loo", "bayesplot", "ggplot2")
    printed = build.run(text, tmp_path)
    shown = [block.printed for block in build.blocks(text)]
    assert len(printed) == len(shown)
    for now, then in zip(printed, shown, strict=True):
        assert lines(now) == lines(then)
    for name in re.findall(r"\]\((images/[^)]+)\)", text):
        assert (tmp_path / name).is_file(), name
