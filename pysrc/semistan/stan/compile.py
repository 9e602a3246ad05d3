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
from semistan.stan.cmdstan import Toolchain, quiet_cmdstanpy

MODEL_NAME = "semistan"
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


def cache_key(program: str, toolchain: Toolchain) -> str:
    """Return the hash under which a program's binary is kept."""
    content = {
        "program": without_comments(program),
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


def is_compiled(program: str, toolchain: Toolchain) -> bool:
    """Say whether the program's binary is in the cache."""
    return _executable(cache_folder() / cache_key(program, toolchain)).is_file()


def compile_program(program: str, toolchain: Toolchain) -> Compiled:
    """Return the program's binary, compiling it if the cache has none.

    Raises
    ------
    ToolchainError
        If stanc or the C++ compiler refuses the program, with the first error.
    """
    from filelock import FileLock

    folder = cache_folder() / cache_key(program, toolchain)
    executable = _executable(folder)
    if executable.is_file():
        return Compiled(executable, cached=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One at a time: the first compilation builds CmdStan's precompiled header.
    with FileLock(folder.parent / ".lock"):
        if not executable.is_file():
            _build(without_comments(program), folder, toolchain)
    return Compiled(executable, cached=False)


def _build(program: str, folder: Path, toolchain: Toolchain) -> None:
    cmdstanpy = quiet_cmdstanpy()
    cmdstanpy.set_cmdstan_path(str(toolchain.cmdstan))
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
    try:
        source = temporary / f"{MODEL_NAME}.stan"
        source.write_text(program, "utf-8")
        cmdstanpy.compile_stan_file(source, cpp_options=CPP_OPTIONS)
        (temporary / f"{MODEL_NAME}.hpp").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except ValueError as error:
        raise ToolchainError(
            f"the Stan program does not compile: {_first_error(str(error))}"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _executable(folder: Path) -> Path:
    return folder / (MODEL_NAME + (".exe" if os.name == "nt" else ""))


def _first_error(console: str) -> str:
    """Return the first error of stanc or the C++ compiler, with some lines of context."""
    lines = console.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\berror\b|not found", line, flags=re.IGNORECASE):
            return "\n".join(lines[number : number + 8])
    return "\n".join(lines[-8:])
