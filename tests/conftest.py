import pytest

from support.toolchain import ready_toolchain, use_own_cache

use_own_cache()


@pytest.fixture(scope="session")
def toolchain():
    return ready_toolchain()


def pytest_collection_modifyitems(items):
    """Mark what needs CmdStan, start it first, and keep tests that share a fixture together."""
    for item in items:
        if "toolchain" in item.fixturenames:
            item.add_marker(pytest.mark.cmdstan)
        definitions = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in definitions):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: "toolchain" not in item.fixturenames)
