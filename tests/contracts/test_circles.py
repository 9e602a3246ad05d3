"""No file imports itself through others, for types alone either: what it needs stands above it."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


@pytest.fixture(scope="module")
def imports():
    graph = grimp.build_graph("semistan", cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def test_no_file_is_in_a_circle(imports):
    assert len(list(TopologicalSorter(imports).static_order())) == len(imports)


def test_a_circle_would_be_found(imports):
    closed = imports | {"semistan.errors": {"semistan.model.bundle"}}
    with pytest.raises(CycleError, match=r"semistan\.errors"):
        TopologicalSorter(closed).prepare()
