"""Try the packages that were built: ``python -m support.dist FOLDER``, which ``make dist`` calls.

The wheel is installed beside the newest versions of what it needs, the source distribution beside
the oldest that pyproject.toml allows. PyTorch is that of constraints.txt in both, because other
versions can be gigabytes of GPU packages. Each fits a worked model, predicts by both engines, and
writes the report.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
TYPED = """
from importlib.resources import files
assert (files("semistan") / "py.typed").is_file()
"""
SMALL = ("--chains", "2", "--draws", "100", "--warmup", "100", "--epochs", "50")


def oldest(dependencies):
    """Each dependency at the lowest version that it allows."""
    return [re.sub(r">=([^,]+).*", r"==\1", text) for text in dependencies]


def required():
    """What pyproject.toml asks for, without PyTorch, and PyTorch as constraints.txt has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = [text for text in project["dependencies"] if not text.startswith("torch")]
    (torch,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return others, torch


def attempt(folder, package, requirements):
    """Install a package with these requirements into a fresh environment, and use it."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    call([python, *INSTALL, *requirements, package], folder)
    semistan = [python, "-m", "semistan"]
    newdata = ROOT / "models" / "closed_form" / "data.csv"
    model = newdata.with_name("model.toml")
    call([*semistan, "fit", model, "--out", "run", *SMALL], folder, allowed=(0, 3))
    call([*semistan, "predict", "run", "--newdata", newdata], folder)
    call([*semistan, "predict", "run", "--newdata", newdata, "--engine", "onnx"], folder)
    call([*semistan, "report", "run"], folder)
    call([python, "-c", TYPED], folder)


def call(command, folder, allowed=(0,)):
    """Run a command; end with what it printed where it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode not in allowed:
        sys.exit(f"{' '.join(words)}\n{result.stdout}{result.stderr}")


def main(folder):
    """Try the wheel and the source distribution of a folder."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    others, torch = required()
    for package, name, versions in ((wheel, "newest", others), (source, "oldest", oldest(others))):
        with tempfile.TemporaryDirectory() as place:
            attempt(Path(place), package, [torch, *versions])
        print(f"{package.name}: works with the {name} versions of what it needs")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
