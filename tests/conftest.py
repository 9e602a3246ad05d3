import pytest

from semistan.infer.cmdstan.toolchain import find_toolchain


@pytest.fixture(scope="session")
def toolchain():
    return find_toolchain()


def pytest_collection_modifyitems(items):
    for item in items:
        if "toolchain" in item.fixturenames:
            item.add_marker(pytest.mark.cmdstan)
