"""The lists of the linter's contracts are whole: what is one of a kind is on its kind's list."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from semistan.model.construction import CONSTRUCTIONS
from semistan.model.terms.kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
}


def imported(module, package):
    """Return the files of a package from which a module imports the records of its table."""
    path = ROOT / "pysrc" / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(package):
            yield node.module, [name.name for name in node.names]


def families():
    found = imported("semistan.model.families.families", "semistan.model.families.")
    return {module for module, names in found if all(name.isupper() for name in names)} - {
        "semistan.model.families.links"
    }


def pictures():
    package = "semistan.show.pictures"
    return {module for module, names in imported(package, f"{package}.")
            if any(name.startswith("draw_") or name.isupper() for name in names)}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("A construction knows no other construction", set(CONSTRUCTIONS.values())),
        ("Kinds of terms know nothing of each other", set(KINDS.values())),
        ("Families know nothing of each other", families()),
        ("One kind of picture knows nothing of another", pictures()),
    ],
    ids=["constructions", "terms", "families", "pictures"],
)
def test_the_list_of_a_contract_is_whole(name, members):
    assert len(members) >= 4
    assert not members - set(CONTRACTS[name]["modules"])


ROOMS = sorted(path.parent for path in (ROOT / "pysrc/semistan").glob("*/__init__.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_each_room_says_what_lives_there(room):
    text = (room / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 16
    named = re.findall(r"`([\w/.]+\.py|[\w]+/)`", text)
    assert named
    for name in named:
        places = (room, ROOT / "pysrc", ROOT / "pysrc/semistan", ROOT)
        assert any((place / name).exists() for place in places), name
