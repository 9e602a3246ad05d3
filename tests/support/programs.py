"""The generated programs behind a main program of the tests', for 17 digits and gradients."""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock

from semistan.infer.cmdstan.compile import cache_folder, cache_key, without_comments
from semistan.infer.stan_json import write_stan_json
from semistan.program.networks import network_call
from semistan.program.program import bundle_program
from semistan.program.sources import KERNEL_HEADERS, stan_source

MAIN = Path(__file__).with_name("log_prob.cpp")

ETA = """\
  vector[N] eta = eta_loc
                  + eta_scale
                    * {network}
                  + Xc * theta;
}
"""


@dataclass(frozen=True)
class Evaluation:
    """Log densities (S,), gradients (S, n) and all written quantities by name (S,)."""

    lp: np.ndarray
    gradient: np.ndarray
    written: dict

    def vector(self, name, size):
        return np.column_stack([self.written[f"{name}.{i + 1}"] for i in range(size)])


def evaluate(bundle, data, states, toolchain, folder, kernel="stan"):
    """Evaluate a bundle's program, with eta added, at unconstrained states (S, n)."""
    write_stan_json(folder / "data.json", data)
    text = "\n".join(" ".join(f"{value:.17g}" for value in state) for state in states)
    program = bundle_program(bundle, kernel).removesuffix("}\n")
    program += ETA.replace("{network}", network_call(bundle.design))
    result = subprocess.run(
        [_build(program, toolchain, kernel), str(folder / "data.json")],
        input=text, capture_output=True, text=True, check=True,
        env=os.environ | {"STAN_NUM_THREADS": "2"},
    )  # fmt: skip
    header, *lines = result.stdout.splitlines()
    values = np.array([[float(word) for word in line.split()] for line in lines])
    n = np.shape(states)[1]
    written = dict(zip(header.split(), values[:, 1 + n :].T, strict=True))
    return Evaluation(values[:, 0], values[:, 1 : 1 + n], written)


def stanc_output(text, toolchain, folder):
    """What stanc says of a program (nothing, if there is nothing to warn of)."""
    (folder / "program.stan").write_text(text)
    result = subprocess.run(
        [toolchain.cmdstan / "bin" / "stanc", f"--o={folder}/program.hpp", folder / "program.stan"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return result.stdout


def _build(program, toolchain, kernel):
    """Compile a program with our main in CmdStan's place, once."""
    salt = hashlib.sha256(MAIN.read_bytes()).hexdigest()[:16]
    shared = cache_folder() / f"test-{salt}"
    folder = shared / cache_key(program, toolchain, kernel)
    executable = folder / "evaluate"
    shared.mkdir(parents=True, exist_ok=True)
    # The first one also compiles the main program, which all others use.
    name = f".test-{folder.name}.lock" if any(shared.glob("*/evaluate")) else ".lock"
    with FileLock(cache_folder() / name):
        if not executable.is_file():
            main = shared / "main.cpp"
            if not main.is_file():
                shutil.copy(MAIN, main)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "evaluate.stan").write_text(without_comments(program))
            command = ["make", "STAN_THREADS=1", f"CMDSTAN_MAIN={main}", executable]
            if kernel == "cpp":
                for name in KERNEL_HEADERS:
                    (folder / name).write_text(stan_source(name))
                command += [f"USER_HEADER={folder / KERNEL_HEADERS[0]}",
                            "STANCFLAGS=--allow-undefined --name=program_model"]  # fmt: skip
            subprocess.run(command, cwd=toolchain.cmdstan, check=True, capture_output=True)
    return executable


DECLARATION = re.compile(
    r"^  (int|real|vector|matrix|array\[[^\]]*\] int)(?:<[^>]*>)?(?:\[([^\]]*)\])? (\w+);",
    flags=re.MULTILINE,
)


def declared(program):
    """Name -> (whether integer, expressions of its sizes), read from the data block."""
    block = re.search(r"^data \{\n(.*?)^\}", program, flags=re.MULTILINE | re.DOTALL)[1]
    result = {}
    for kind, sizes, name in DECLARATION.findall(block):
        inner = re.search(r"\[(.*)\]", kind)
        expressions = (inner[1] if inner else sizes).split(",") if inner or sizes else []
        result[name] = (kind.endswith("int"), expressions)
    assert len(result) == block.count(";")
    return result
