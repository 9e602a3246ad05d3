"""What several files of fits share: one process, and tables of images."""

import pytest

from semistan.infer.backends import local


@pytest.fixture(scope="module")
def here():
    """Do every task in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "usable_processors", lambda: [0])
        yield


@pytest.fixture(scope="module")
def data(request, tmp_path_factory):
    """The folder of a table, and what the file's ``image_table`` wrote: the table, the pixels."""
    folder = tmp_path_factory.mktemp("data")
    return folder, *request.module.image_table(folder)


@pytest.fixture(scope="module")
def new(request, tmp_path_factory):
    """Another one, with images that were not seen in training."""
    folder = tmp_path_factory.mktemp("new")
    return folder, *request.module.image_table(folder, n=7, seed=9)
