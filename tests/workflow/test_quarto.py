"""The report in Quarto: its chunks and the numbers in its text are computed from a run in order.

Quarto itself is not called; it runs the same code by Jupyter.
"""

import ast
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml

import semistan

ROOT = Path(__file__).parents[2]
PIECE = re.compile(r"^```\{python\}\n(.*?)^```$|`\{python\} (.+?)`", re.DOTALL | re.MULTILINE)


def value(code, names):
    """Run code as a notebook's cell, and return its last line's value."""
    *body, last = ast.parse(code).body
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    exec(compile(ast.Module([last], []), "cell", "exec"), names)
    return None


@pytest.mark.cmdstan
def test_every_chunk_of_the_report_runs(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "report.qmd").read_text("utf-8")
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["jupyter"] == "python3"
    monkeypatch.chdir(tmp_path)
    semistan.fit(
        "target ~ age + sex + bmi + nn(bp, s1, s2, s3, s4, s5, s6)",
        ROOT / "models" / "diabetes" / "data.csv",
        hidden=(16,), epochs=20, chains=2, warmup=200, draws=100, seed=1, out="runs/diabetes",
        progress=False,
    )  # fmt: skip
    names, shown = {}, []
    for chunk, inline in PIECE.findall(body):
        shown.append(value(chunk or inline, names))
        assert isinstance(shown[-1], str) == bool(inline)
    plt.close("all")
    assert body.count("{python}") == len(shown)
    kinds = [type(one).__name__ for one in shown]
    assert kinds.count("Figure") == body.count("#| label: fig-") == 3
    assert any(isinstance(one, pd.DataFrame) for one in shown)
    assert "nan" not in "".join(one for one in shown if isinstance(one, str))
    assert "y ~ normal(eta, sigma)" in capsys.readouterr().out
