import os

import pytest

from semistan.posterior.arviz import arviz_0, has_release_1
from support.batches import compile_noted, note_programs
from support.toolchain import ready_toolchain, use_own_cache

use_own_cache()


def pytest_addoption(parser):
    parser.addoption(
        "--compile", action="store_true",
        help="only compile the programs of the tests, many at a time (support/batches.py)",
    )  # fmt: skip


def pytest_configure(config):
    if config.option.compile:
        note_programs()
    if getattr(config.option, "numprocesses", None) and not has_release_1():
        arviz_0()  # writes a file each day, over which the workers would fall


def pytest_sessionfinish(session):
    """Compile what the tests of all workers need, whatever became of them."""
    if session.config.option.compile and not os.environ.get("PYTEST_XDIST_WORKER"):
        ready_toolchain()
        programs, seconds = compile_noted(session.config.option.numprocesses or 1)
        print(f"\n{programs} programs compiled in {seconds:.0f} s")
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope="session")
def toolchain():
    return ready_toolchain()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Mark what needs CmdStan, start it first, and keep tests that share a fixture together."""
    for item in items:
        if "toolchain" in item.fixturenames:
            item.add_marker(pytest.mark.cmdstan)
        definitions = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in definitions):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: "toolchain" not in item.fixturenames)


def pytest_collection_finish(session):
    """Refuse to go on where pytest-xdist keeps none together: every process would fit its own."""
    if os.environ.get("PYTEST_XDIST_WORKER") and session.config.option.loadgroup:
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                pytest.exit(f"pytest-xdist does not know the group of {item.nodeid}", 2)
