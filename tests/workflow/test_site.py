"""The documentation site: built without a warning, and read in a browser without a network."""

import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

import semistan
from semistan.command.cli import COMMANDS
from support.browser import chromium

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="no mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, PROJECT / "docs" / "make_site.py", folder]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (
        result.stderr
    )  # strict: a warning, as of a broken link, is an error
    return folder


def text_of(path):
    return re.sub(r"<[^>]*>|\s+", " ", path.read_text("utf-8"))


def test_every_command_and_public_function_is_described(site):
    commands, python = (text_of(site / f"{name}.html") for name in ("commands", "api"))
    for name in COMMANDS:
        assert f"semistan {name}" in commands
    headings = re.findall(r'<h2 id="semistan[\w.]*\.(\w+)"', (site / "api.html").read_text())
    assert set(headings) == {*semistan._PUBLIC, "SemistanClassifier", "SemistanRegressor"}
    assert "Parameters:" in python


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address(site):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_browser_finds_every_page_and_asks_no_other_host(site, address):
    with chromium() as browser:
        page = browser.new_page()
        seen, broken, spoken = set(), [], []
        page.on("request", lambda request: seen.add(urlsplit(request.url).netloc))
        page.on("response", lambda r: broken.append(r.url) if r.status >= 400 else None)
        page.on("pageerror", lambda error: spoken.append(str(error)))
        names = sorted(path.relative_to(site) for path in site.rglob("*.html"))
        for name in names:
            page.goto(f"{address}/{name}")
            assert "semistan" in page.title(), name
    assert len(names) > 25
    assert seen == {urlsplit(address).netloc}
    assert broken == spoken == []
