"""Build the documentation site: ``python docs/make_site.py FOLDER``, which ``make docs`` calls.

The pages are those of the repository: README, the Markdown files here and of the models, and two
that are written from the code, the commands' ``--help`` and the docstrings of the public functions.
Links between files become links between pages; files that are no pages are copied. Anything that
mkdocs warns of, a broken link or an unknown name, ends the build.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
import typer.cli
import yaml
from build import tutorials
from mkdocs.commands.build import build
from mkdocs.config import load_config

import semistan
from semistan.command.cli import app

DOCS = Path(__file__).resolve().parent
PROJECT = DOCS.parent
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
ESTIMATORS = ("SemistanClassifier", "SemistanRegressor")
REFERENCE = {"constructions"}  # tutorials that stand under Reference


def pages() -> dict[Path, Path]:
    """Return the page of each Markdown file, both as relative paths."""
    top = {Path("README.md"): Path("index.md")}
    top |= {Path(path.name): Path(path.name) for path in PROJECT.glob("*.md")} | top
    docs = {path.relative_to(PROJECT): Path(path.name) for path in DOCS.glob("*.md")}
    folders = [PROJECT / "benchmarks", *sorted((PROJECT / "models").iterdir())]
    others = {
        (folder / "README.md").relative_to(PROJECT): folder.relative_to(PROJECT).with_suffix(".md")
        for folder in folders
        if (folder / "README.md").is_file()
    }
    return top | docs | others


def linked(text: str, source: Path, known: dict[Path, Path], into: Path) -> str:
    """Return a page's text with its links to files as links to pages.

    Parameters
    ----------
    text : str
        Markdown.
    source : Path
        The file that it comes from, relative to the project.
    known : dict
        ``pages()``.
    into : Path
        Where files that are no pages are copied, so that the links to them hold.
    """

    def link(match: re.Match[str]) -> str:
        path = (PROJECT / source.parent / match[1]).resolve()
        if not path.is_relative_to(PROJECT) or not path.exists():
            return match[0]
        target = path.relative_to(PROJECT)
        page = known.get(target / "README.md" if path.is_dir() else target)
        if page is None:
            page = copied(path, into)
        return f"]({os.path.relpath(page, known[source].parent)}{match[2] or ''})"

    return LINK.sub(link, text)


def unescaped(text: str) -> str:
    r"""Return a page with ``|`` as it is in the code of tables, where GitHub wants ``\|``."""
    return "\n".join(
        CODE.sub(lambda code: code[0].replace(r"\|", "|"), line) if line.startswith("|") else line
        for line in text.split("\n")
    )


def copied(path: Path, into: Path) -> Path:
    """Copy a file into the site and return where it is there; a folder is shown by its list."""
    target = path.relative_to(PROJECT)
    place = Path("images", path.name) if path.parent == DOCS / "images" else "files" / target
    if path.is_dir():
        raise SystemExit(f"a link goes to the folder {target}, which has no README.md")
    (into / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, into / place)
    return place


def gather(into: Path) -> dict[Path, Path]:
    """Write all pages into a folder and return where each file's is."""
    known = pages()
    for source, page in known.items():
        (into / page).parent.mkdir(parents=True, exist_ok=True)
        text = (PROJECT / source).read_text("utf-8")
        (into / page).write_text(unescaped(linked(text, source, known, into)), "utf-8")
    (into / "commands.md").write_text(commands(), "utf-8")
    (into / "api.md").write_text(python(), "utf-8")
    return known


def commands() -> str:
    """Return the command reference, from what ``--help`` prints."""
    command = typer.main.get_command(app)
    for each in command.commands.values():  # type: ignore[attr-defined]
        # What click shortens itself ends after 45 letters.
        each.short_help = each.help.partition("\n\n")[0].replace("\n", " ")
    text = typer.cli.get_docs_for_click(
        obj=command, ctx=typer.Context(command), name="semistan", title="Commands"
    )
    return re.sub(r"\[(required|default: [^\]]*)\]", r"\\[\1\\]", text)


def python() -> str:
    """Return the page whose directives mkdocstrings replaces by docstrings."""
    intro = (
        "# Python\n\nWhat `semistan` has, imported at no cost: functions that fit, the class "
        "`Fit`, and functions of a run, which are its verbs. [In Python](python.md) shows them in "
        "use. `semistan.sklearn` has estimators.\n"
    )
    names = (f"::: semistan.{module}.{name}" for module, name in public())
    return "\n\n".join([intro, *names]) + "\n"


def public() -> list[tuple[str, str]]:
    """Return module and name of each public function and class, by name."""
    found = {**semistan._PUBLIC, **dict.fromkeys(ESTIMATORS, "sklearn")}
    return [(found[name], name) for name in sorted(found, key=str.lower)]


def navigation(nav: list[Any], known: dict[Path, Path]) -> list[Any]:
    """Fill the lists of tutorials and models into the navigation of mkdocs.yml."""
    lists = {
        "TUTORIALS": sorted(p.name for p in tutorials() if p.stem not in REFERENCE),
        "MODELS": sorted(str(page) for page in known.values() if page.parent.name == "models"),
    }
    return [
        {name: lists.get(target, target) if isinstance(target, str) else target}
        for entry in nav
        for name, target in entry.items()
    ]


def main(arguments: Iterable[str]) -> None:
    """Build the site into a folder."""
    (site,) = arguments
    with tempfile.TemporaryDirectory() as folder:
        known = gather(Path(folder))
        nav = yaml.safe_load((DOCS / "mkdocs.yml").read_text("utf-8"))["nav"]
        settings = {"docs_dir": folder, "site_dir": str(Path(site).resolve()), "strict": True}
        config = load_config(str(DOCS / "mkdocs.yml"), nav=navigation(nav, known), **settings)
        build(config)


if __name__ == "__main__":
    main(sys.argv[1:])
