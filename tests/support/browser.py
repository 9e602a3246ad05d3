"""A real browser; tests without chromium or playwright are skipped."""

import shutil
from contextlib import contextmanager

import pytest


@contextmanager
def chromium():
    """A Chromium without a window."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")
    with playwright.sync_playwright() as driver:
        # Containers run as root, where Chromium's sandbox cannot.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
