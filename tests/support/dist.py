"""Try the packages that were built: ``python -m support.dist FOLDER [PYTHON ...]``.

The wheel is installed beside the newest versions of what it needs, the source distribution beside
the oldest that pyproject.toml allows, both with this Python; with each other Python that is named,
the wheel is installed beside the newest versions for that one, as ArviZ 1 for 3.12. PyTorch is that
of constraints.txt in all, because other versions can be gigabytes of GPU packages. Each fits a
worked model, predicts by both engines, hands the fit to ArviZ and writes the report.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
TYPED = """
from importlib.resources import files
assert (files("semistan") / "py.typed").is_file()
"""
TO_ARVIZ = """
import arviz, semistan
data = semistan.read_fit("run").to_inference_data()
read = arviz.from_netcdf("run/posterior.nc")
assert type(data) is type(read)
assert len(arviz.summary(data, var_names=["sigma"])) == 1
print(f"ArviZ {arviz.__version__}: {type(data).__name__}")
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


def attempt(folder, package, requirements, python=sys.executable):
    """Install a package with these requirements into a fresh environment, and use it."""
    call([python, "-m", "venv", "venv"], folder)
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
    return call([python, "-W", "ignore", "-c", TO_ARVIZ], folder).strip()


def call(command, folder, allowed=(0,)):
    """Run a command; end with what it printed where it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode not in allowed:
        sys.exit(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
    return result.stdout


def main(folder, pythons=()):
    """Try the wheel and the source distribution of a folder."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    others, torch = required()
    tried = [(wheel, "newest", others, python) for python in (sys.executable, *pythons)]
    tried.append((source, "oldest", oldest(others), sys.executable))
    for package, name, versions, python in tried:
        with tempfile.TemporaryDirectory() as place:
            found = attempt(Path(place), package, [torch, *versions], python)
        print(f"{package.name}: {name} versions of what it needs, {python}, {found}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
