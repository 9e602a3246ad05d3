"""What a compiled program computes at given states, with 17 digits, and what its text says."""

import os
import re
import subprocess
from dataclasses import dataclass

import numpy as np

from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.stan_json import write_stan_json
from semistan.program.program import bundle_program


@dataclass(frozen=True)
class Evaluation:
    """Log densities (S,), gradients (S, n) and all written quantities by name (S,)."""

    lp: np.ndarray
    gradient: np.ndarray
    written: dict

    def vector(self, name, size):
        return np.column_stack([self.written[f"{name}.{i + 1}"] for i in range(size)])


def evaluate(bundle, data, states, toolchain, folder, kernel="stan"):
    """Evaluate a bundle's program at unconstrained states (S, n)."""
    write_stan_json(folder / "data.json", data)
    text = "\n".join(" ".join(f"{value:.17g}" for value in state) for state in states)
    compiled = compile_program(bundle_program(bundle, kernel), toolchain, kernel)
    result = subprocess.run(
        [compiled.executable, "evaluate", folder / "data.json"],
        input=text, capture_output=True, text=True, check=True,
        env=os.environ | {"STAN_NUM_THREADS": "2"},
    )  # fmt: skip
    header, *lines = result.stdout.splitlines()
    values = np.array([[float(word) for word in line.split()] for line in lines])
    n = np.shape(states)[1]
    written = dict(zip(header.split(), values[:, 1 + n :].T, strict=True))
    return Evaluation(values[:, 0], values[:, 1 : 1 + n], written)


def stanc_output(text, toolchain, folder):
    """What stanc says of a program (nothing, if there is nothing to warn of).

    ``STANC`` names the compiler of another release: programs are for 2.27 and all later ones.
    """
    (folder / "program.stan").write_text(text)
    stanc = os.environ.get("STANC", toolchain.cmdstan / "bin" / "stanc")
    result = subprocess.run(
        [stanc, f"--o={folder}/program.hpp", folder / "program.stan"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return result.stdout


DECLARATION = re.compile(
    r"^  (?:array\[([^\]]*)\] )?(int|real|vector|matrix)(?:<[^>]*>)?(?:\[([^\]]*)\])? (\w+);",
    flags=re.MULTILINE,
)


def declared(program):
    """Name -> (whether integer, expressions of its sizes), read from the data block."""
    block = re.search(r"^data \{\n(.*?)^\}", program, flags=re.MULTILINE | re.DOTALL)[1]
    result = {}
    for array, kind, own, name in DECLARATION.findall(block):
        expressions = [size.strip() for sizes in (array, own) if sizes for size in sizes.split(",")]
        result[name] = (kind == "int", expressions)
    assert len(result) == block.count(";")
    return result
