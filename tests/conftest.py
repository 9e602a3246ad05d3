import pytest

from support.toolchain import ready_toolchain, use_own_cache

use_own_cache()


@pytest.fixture(scope="session")
def toolchain():
    return ready_toolchain()


def pytest_collection_modifyitems(items):
    for item in items:
        if "toolchain" in item.fixturenames:
            item.add_marker(pytest.mark.cmdstan)
