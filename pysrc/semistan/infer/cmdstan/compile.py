"""Compile a program once: the cache is keyed by what the binary depends on.

The key is a hash of the program without its comments, the options, CmdStan's folder and
version, and the compiler, so that a new formula in the header or a new bundle costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from semistan.errors import ToolchainError
from semistan.infer.cmdstan.toolchain import Toolchain, quiet_cmdstanpy
from semistan.program.program import Kernel
from semistan.program.sources import KERNEL_HEADERS, stan_source

MODEL_NAME = "program"  # log_lik.hpp names it too
CPP_OPTIONS = {"STAN_THREADS": True}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled program.

    Attributes
    ----------
    executable : Path
        The binary.
    cached : bool
        Whether it was there already.
    """

    executable: Path
    cached: bool


def cache_folder() -> Path:
    """Return the folder of compiled programs (``SEMISTAN_CACHE`` overrides the default)."""
    from platformdirs import user_cache_path

    override = os.environ.get("SEMISTAN_CACHE")
    return (Path(override) if override else user_cache_path("semistan")) / "programs"


def cache_key(program: str, toolchain: Toolchain, kernel: Kernel = "stan") -> str:
    """Return the hash under which a program's binary is kept."""
    content = {
        "program": without_comments(program),
        "headers": [stan_source(name) for name in _headers(kernel)],
        "options": CPP_OPTIONS,
        "cmdstan": [str(toolchain.cmdstan), toolchain.version_text],
        "compiler": toolchain.compiler,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def without_comments(program: str) -> str:
    """Drop comments, trailing blanks and empty lines from a Stan program."""
    pattern = r'("[^"\n]*")|//[^\n]*|/\*.*?\*/'
    text = re.sub(pattern, lambda match: match[1] or "", program, flags=re.DOTALL)
    lines = (line.rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def is_compiled(program: str, toolchain: Toolchain, kernel: Kernel = "stan") -> bool:
    """Say whether the program's binary is in the cache."""
    return _executable(cache_folder() / cache_key(program, toolchain, kernel)).is_file()


def compile_program(program: str, toolchain: Toolchain, kernel: Kernel = "stan") -> Compiled:
    """Return the program's binary, compiling it if the cache has none.

    Parameters
    ----------
    program : str
        The program's text.
    toolchain : Toolchain
        CmdStan and the compiler.
    kernel : str
        Whether the program declares the C++ kernel (``cpp``), whose headers it then needs.

    Raises
    ------
    ToolchainError
        If stanc or the C++ compiler refuses the program, with the first error.
    """
    from filelock import FileLock

    folder = cache_folder() / cache_key(program, toolchain, kernel)
    executable = _executable(folder)
    if executable.is_file():
        return Compiled(executable, cached=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / _lock_name(folder, toolchain)):
        if not executable.is_file():
            _build(without_comments(program), folder, toolchain, kernel)
    return Compiled(executable, cached=False)


def _build(program: str, folder: Path, toolchain: Toolchain, kernel: Kernel) -> None:
    cmdstanpy = quiet_cmdstanpy()
    cmdstanpy.set_cmdstan_path(str(toolchain.cmdstan))
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
    try:
        source = temporary / f"{MODEL_NAME}.stan"
        source.write_text(program, "utf-8")
        headers = [temporary / name for name in _headers(kernel)]
        for header in headers:
            header.write_text(stan_source(header.name), "utf-8")
        user_header = {"user_header": str(headers[0])} if headers else {}
        cmdstanpy.compile_stan_file(source, cpp_options=dict(CPP_OPTIONS), **user_header)
        (temporary / f"{MODEL_NAME}.hpp").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except ValueError as error:
        raise ToolchainError(
            f"the Stan program does not compile: {_first_error(str(error))}"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _lock_name(folder: Path, toolchain: Toolchain) -> str:
    """Lock one program, or all while CmdStan still lacks what the first compilation builds."""
    root = toolchain.cmdstan
    built = (root.glob("stan/src/stan/model/*threads*.gch*"), root.glob("src/cmdstan/*threads*.o"))
    return f".{folder.name}.lock" if all(any(found) for found in built) else ".lock"


def _headers(kernel: Kernel) -> tuple[str, ...]:
    return KERNEL_HEADERS if kernel == "cpp" else ()


def _executable(folder: Path) -> Path:
    return folder / (MODEL_NAME + (".exe" if os.name == "nt" else ""))


def _first_error(console: str) -> str:
    """Return the first error of stanc or the C++ compiler, with some lines of context."""
    lines = console.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\berror\b|not found", line, flags=re.IGNORECASE):
            return "\n".join(lines[number : number + 8])
    return "\n".join(lines[-8:])
