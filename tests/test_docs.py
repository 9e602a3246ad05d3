"""The tutorials run as they stand, and print what they show, up to the digits."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
SPEC = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
build = sys.modules["docs_build"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build)

TUTORIALS = build.tutorials()


def words(text):
    """Text without its numbers and their alignment: they vary with processor and versions."""
    return re.sub(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?|nan|\s+", " ", text).split()


def test_there_is_a_tutorial_for_each_family():
    assert {path.stem for path in TUTORIALS} == {"gaussian", "poisson", "bernoulli"}


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_picture_and_link_is_there(path):
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text("utf-8")):
        assert (DOCS / target).exists(), target


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_prints_what_it_shows(path, toolchain, tmp_path):
    text = path.read_text("utf-8")
    printed = build.run(text, tmp_path)
    shown = [block.printed for block in build.blocks(text)]
    assert len(printed) == len(shown)
    for now, then in zip(printed, shown, strict=True):
        assert words(now) == words(then)
    for name in re.findall(r"\]\((images/[^)]+)\)", text):
        assert (tmp_path / name).is_file(), name
