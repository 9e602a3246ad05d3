"""Output that is not UTF-8: names in another script are printed as escapes, and files are UTF-8."""

import io
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from semistan.terminal import screen
from semistan.workflow.fit import fit_model
from support.small import small_config

COMMANDS = [
    ["summary", "run"],
    ["predict", "cities", "--newdata", "d.csv"],
    ["predict", "cities", "--newdata", "d.csv", "--out", "predicted.csv"],
    ["effect", "run", "возраст"],
    ["effect", "run", "нет"],
    ["terms", "run"],
    ["priors", "run"],
    ["check", "run"],
]
# The commands of a user, one after the other in one process: what is imported is imported once.
DRIVER = """
import sys
from semistan.command import cli
for line in open("commands", encoding="utf-8"):
    sys.argv = ["semistan", *line.split()]
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    print(f"exit {code}", flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with d.csv, a run whose columns and levels are Cyrillic, and one of categories."""
    folder = tmp_path_factory.mktemp("script")
    generator, n = np.random.default_rng(0), 30
    table = pd.DataFrame(
        {
            "доход": generator.normal(size=n),
            "возраст": generator.normal(size=n),
            "город": np.array(["Москва", "Київ", "Zürich"])[np.arange(n) % 3],
            "u": generator.normal(size=n),
        }
    )
    table.to_csv(folder / "d.csv", index=False, encoding="utf-8")
    short = {"sample__method": "laplace", "sample__chains": 1, "sample__draws": 100}
    for name, formula, family in (
        ("run", "доход ~ возраст + (1 | город) + nn(u)", "gaussian"),
        ("cities", "город ~ возраст + nn(u)", "categorical"),
    ):
        config = small_config(formula, family=family, **short)
        fit_model(config, table, out=folder / name)
    text = "\n".join("\t".join(command) for command in COMMANDS)
    (folder / "commands").write_text(text, encoding="utf-8")
    return folder


def printed(folder, encoding):
    """Return the text that each command prints to a pipe of this encoding."""
    variables = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER], cwd=folder, env=variables, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode(encoding)
    parts = re.split(r"exit (\d+)\n", done.stdout.decode(encoding))
    codes = [int(code) for code in parts[1::2]]
    refused = COMMANDS.index(["effect", "run", "нет"])
    expected = [2 if number == refused else 0 for number in range(len(COMMANDS))]
    expected[0] = codes[0]  # diagnostics of a fit as short as this
    assert codes == expected
    assert codes[0] in (0, 3)
    return parts[0::2][: len(COMMANDS)]


def unescaped(text):
    return re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)


@pytest.mark.lengthy
def test_names_in_another_script_are_escaped_and_files_are_utf_8(folder):
    escaped = printed(folder, "latin-1")
    assert "b_vozrast: возраст." in unescaped(escaped[0])
    assert not re.search("[а-я]", "".join(escaped))
    whole = pd.read_csv(folder / "predicted.csv", encoding="utf-8")
    assert set(whole["category"]) == {"Москва", "Київ", "Zürich"}
    assert "Zürich" in escaped[1]
    piped = pd.read_csv(io.StringIO(unescaped(escaped[1])))
    pd.testing.assert_frame_equal(piped, whole, rtol=1e-4)


def test_an_error_handler_of_the_users_stays(monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), "ascii", errors="replace") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    screen.escape_what_cannot_be_encoded()
    print("возраст", flush=True)
    assert streams[0].buffer.getvalue() == b"???????\n"
