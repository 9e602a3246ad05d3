import os

import pytest

from support.toolchain import ready_toolchain, use_own_cache

use_own_cache()


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
