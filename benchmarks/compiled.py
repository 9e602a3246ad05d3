"""semistan's programs with time_gradient.cpp in the place of CmdStan's main program."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import numpy as np
from filelock import FileLock

from semistan.infer.cmdstan.compile import MODEL_NAME, cache_folder, cache_key, without_comments
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.model.arrays import Array
from semistan.model.bundle import Bundle
from semistan.program.parts import Kernel
from semistan.program.program import bundle_program
from semistan.program.sources import KERNEL_HEADERS, stan_source

MAIN = Path(__file__).with_name("time_gradient.cpp")
CONTENDERS: dict[str, Kernel] = {"kernel": "cpp", "pure Stan": "stan"}


class Process:
    """A compiled program that holds its data and evaluates its log density when asked."""

    def __init__(self, executable: Path, data: Path, threads: int) -> None:
        self._process = subprocess.Popen(
            [executable, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"STAN_NUM_THREADS": str(threads)},
        )  # fmt: skip

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def evaluate(self, q: Array) -> tuple[float, Array]:
        """Return the log density and its gradient at an unconstrained state, and keep it."""
        value, *gradient = self._ask("point " + " ".join(f"{x:.17g}" for x in q))
        return value, np.array(gradient)

    def seconds(self, evaluations: int) -> float:
        """Return the seconds that so many evaluations at the kept state take."""
        return self._ask(f"time {evaluations}")[0]

    def peak_memory(self) -> int:
        """Return the largest resident memory so far, in bytes."""
        return peak_memory(str(self._process.pid))

    def _ask(self, request: str) -> list[float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the program ended with exit code {self._process.wait()}")
        return [float(word) for word in answer.split()]


def peak_memory(process: str = "self") -> int:
    """Return a process's largest resident memory, in bytes.

    ``ru_maxrss`` will not do: a new process inherits its parent's.
    """
    for line in Path(f"/proc/{process}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this system does not tell the peak memory of a process")


def forget_peak_memory() -> None:
    """Let this process's peak memory start from what it holds now."""
    Path("/proc/self/clear_refs").write_text("5", "utf-8")


def build(bundle: Bundle, kernel: Kernel, toolchain: Toolchain) -> Path:
    """Return the timing program of a bundle, compiled as semistan compiles it, once."""
    program = bundle_program(bundle, kernel)
    salt = hashlib.sha256(MAIN.read_bytes()).hexdigest()[:16]
    shared = cache_folder() / f"benchmark-{salt}"
    folder = shared / cache_key(program, toolchain, kernel)
    executable = folder / MODEL_NAME
    shared.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_folder() / ".lock"):
        if not executable.is_file():
            main = shared / "main.cpp"
            if not main.is_file():  # its object file, too, is compiled once
                shutil.copy(MAIN, main)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _make(program, kernel, toolchain, main, executable)
    return executable


def _make(program: str, kernel: Kernel, toolchain: Toolchain, main: Path, executable: Path) -> None:
    folder = executable.parent
    (folder / f"{MODEL_NAME}.stan").write_text(without_comments(program), "utf-8")
    command = ["make", "STAN_THREADS=1", f"CMDSTAN_MAIN={main}", str(executable)]
    if kernel == "cpp":
        for name in KERNEL_HEADERS:
            (folder / name).write_text(stan_source(name), "utf-8")
        command += [f"USER_HEADER={folder / KERNEL_HEADERS[0]}", "STANCFLAGS=--allow-undefined"]
    result = subprocess.run(command, cwd=toolchain.cmdstan, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"the timing program does not compile:\n{result.stderr}")
