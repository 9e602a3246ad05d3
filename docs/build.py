"""Run the tutorials and write what they print: ``python docs/build.py [NAME ...]``.

A tutorial is Markdown. Its ``sh``, ``python`` and ``r`` blocks are run in order in an empty folder
that holds ``models/``; the ``text`` block after one of them is what it printed. As in a notebook, a
Python block prints the value of its last line, and R prints those of all lines. Pictures that a
block writes to ``images/`` are kept beside the tutorial.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PROJECT = DOCS.parent
BLOCK = re.compile(r"```(sh|python|r)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
MARK = "<<<end of block>>>"


@dataclass(frozen=True)
class Block:
    """A piece of code and what the tutorial says that it prints."""

    language: str
    code: str
    printed: str


def tutorials() -> list[Path]:
    """Return the tutorials: the Markdown files with code to run."""
    return [path for path in sorted(DOCS.glob("*.md")) if blocks(path.read_text("utf-8"))]


def blocks(text: str) -> list[Block]:
    """Return a tutorial's blocks of code in order."""
    return [Block(match[1], match[2], match[3] or "") for match in BLOCK.finditer(text)]


def run(text: str, folder: Path) -> list[str]:
    """Run a tutorial's blocks in a folder and return what each printed."""
    (folder / "models").symlink_to(PROJECT / "models")
    (folder / "images").mkdir()
    result = subprocess.run(
        ["bash", "-eu", "-c", "\n".join(_script(blocks(text)))],
        cwd=folder, env=_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise RuntimeError(f"{result.stdout}\n{result.stderr}")
    return [piece.strip("\n") for piece in result.stdout.split(MARK)[:-1]]


def rewritten(text: str, printed: list[str]) -> str:
    """Return the tutorial with what its blocks printed."""
    outputs = iter(printed)

    def block(match: re.Match[str]) -> str:
        output = next(outputs)
        shown = f"\n```text\n{output}\n```\n" if output else ""
        return f"```{match[1]}\n{match[2]}```\n{shown}"

    return BLOCK.sub(block, text)


def _script(pieces: list[Block]) -> Iterator[str]:
    """Write shell blocks as they are; consecutive blocks of Python, or of R, share one process."""
    for number, piece in enumerate(pieces):
        if piece.language == "sh":
            yield f"{piece.code}\necho '{MARK}'"
            continue
        before, after = (
            i >= 0 and i < len(pieces) and pieces[i].language == piece.language
            for i in (number - 1, number + 1)
        )
        start, code, mark, end = SESSIONS[piece.language](piece.code)
        yield f"{start * (not before)}{code}\n{mark}{end * (not after)}"


def _printing(code: str) -> str:
    """Print the value of the last line, if it has one."""
    tree = ast.parse(code)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.parse(f"_show({ast.unparse(last)})").body[0]
    return ast.unparse(tree)


def _python(code: str) -> tuple[str, str, str, str]:
    """Return how a session begins, a block's code, what ends its output, and the session."""
    start, mark = f"python - <<'END OF PYTHON'\n{SETTING}\n", f"print({MARK!r}, flush=True)"
    return start, _printing(code), mark, "\nEND OF PYTHON"


def _r(code: str) -> tuple[str, str, str, str]:
    """As ``_python``; from a file, because R prints the values of top-level lines there alone."""
    start = f"cat > {R_FILE} <<'END OF R'\noptions(width = 100)\n"
    return start, code, f"cat('{MARK}\\n')", f"\nEND OF R\nRscript {R_FILE}"


SESSIONS = {"python": _python, "r": _r}
R_FILE = ".tutorial.R"
SETTING = """
import pandas as _pandas
_pandas.set_option("display.width", 100, "display.precision", 4)
def _show(value):
    if value is not None:
        print(value, flush=True)
"""


def _environment() -> dict[str, str]:
    """Put this Python and its commands first; ``HOME`` stays, for CmdStan and the cache."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "COLUMNS": "100", "PYTHONWARNINGS": "ignore"}


def main() -> None:
    """Rebuild the named tutorials, or all."""
    names = sys.argv[1:]
    for path in tutorials():
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            text = path.read_text("utf-8")
            path.write_text(rewritten(text, run(text, Path(folder))), "utf-8")
            shutil.copytree(Path(folder) / "images", DOCS / "images", dirs_exist_ok=True)
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
