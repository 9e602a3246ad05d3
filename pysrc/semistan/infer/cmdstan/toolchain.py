"""Find CmdStan and the C++ compiler, and say what is missing."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistan.errors import ToolchainError, file_error

MINIMUM_VERSION = (2, 27)
TESTED_VERSION = (2, 27, 0)  # with which the tests sample
INSTALL_HINT = "Install CmdStan with 'semistan install-cmdstan'."


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A usable CmdStan with its compiler.

    Attributes
    ----------
    cmdstan : Path
        CmdStan's folder.
    version : tuple of int
        Its version.
    compiler : str
        First line of ``$CXX --version``.
    """

    cmdstan: Path
    version: tuple[int, ...]
    compiler: str

    @property
    def version_text(self) -> str:
        """The version as people write it."""
        return as_text(self.version)


def as_text(version: tuple[int, ...]) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))


def versions_text(version: tuple[int, ...]) -> str:
    """Return which versions are taken and tried, beside the one that was found."""
    taken = f"{as_text(MINIMUM_VERSION)} and later are taken"
    if version == TESTED_VERSION:
        return f"{taken}; the tests sample with this one"
    return f"{taken}; the tests sample with {as_text(TESTED_VERSION)}"


def find_toolchain() -> Toolchain:
    """Find CmdStan through ``CMDSTAN`` or CmdStanPy's own search, and the compiler.

    Raises
    ------
    ToolchainError
        If CmdStan, ``make`` or the compiler is missing, or CmdStan is too old.
    """
    compiler = compiler_version()
    find_make()
    path, version = find_cmdstan()
    return Toolchain(path, version, compiler)


def find_cmdstan() -> tuple[Path, tuple[int, ...]]:
    """Return CmdStan's folder and version.

    Raises
    ------
    ToolchainError
        If there is none, or it is older than ``MINIMUM_VERSION``.
    """
    cmdstanpy = quiet_cmdstanpy()
    try:
        path = Path(cmdstanpy.cmdstan_path())
    except ValueError:
        where = os.environ.get("CMDSTAN")
        looked = f"CMDSTAN is '{where}', which is no CmdStan folder" if where else "none found"
        raise ToolchainError(f"CmdStan is needed to sample: {looked}. {INSTALL_HINT}") from None
    version = _makefile_version(path)
    if version < MINIMUM_VERSION:
        needed, got = as_text(MINIMUM_VERSION), as_text(version)
        raise ToolchainError(
            f"CmdStan {needed} or newer is needed, '{path}' is {got}. {INSTALL_HINT}"
        )
    return path, version


def quiet_cmdstanpy() -> Any:
    """Import CmdStanPy without its log: what goes wrong reaches the user as an error."""
    import cmdstanpy

    logger = logging.getLogger("cmdstanpy")
    if not logger.handlers:  # without one CmdStanPy sets its own, and another level
        logger.addHandler(logging.NullHandler())
    logger.setLevel(logging.CRITICAL)
    return cmdstanpy


def find_make() -> str:
    """Return the path of ``make``.

    Raises
    ------
    ToolchainError
        If there is none.
    """
    path = shutil.which(os.environ.get("MAKE", "make"))
    if path is None:
        raise ToolchainError("'make' was not found; on Debian: apt-get install make")
    return path


def compiler_version() -> str:
    """Return the first line of ``$CXX --version`` (g++, else clang++).

    Raises
    ------
    ToolchainError
        If there is no compiler.
    """
    default = "g++" if shutil.which("g++") else "clang++"
    chosen = os.environ.get("CXX", default)
    try:
        command = shlex.split(chosen)
    except ValueError as error:
        raise ToolchainError(
            f"the environment variable CXX cannot be read: {error}, got '{chosen}'; name the C++ "
            "compiler, as CXX=g++"
        ) from None
    if not command or shutil.which(command[0]) is None:
        raise ToolchainError(
            "a C++ compiler is needed to compile Stan programs, found none; "
            "on Debian: apt-get install g++ make"
        )
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return result.stdout.splitlines()[0] if result.stdout else " ".join(command)


def _makefile_version(path: Path) -> tuple[int, ...]:
    try:
        text = (path / "makefile").read_text("utf-8", errors="replace")
    except OSError as error:
        raise ToolchainError(f"{file_error(error)}; is it CmdStan? {INSTALL_HINT}") from None
    found = re.search(r"^CMDSTAN_VERSION *:?= *(\d+(?:\.\d+)+)", text, re.MULTILINE)
    if found is None:
        raise ToolchainError(f"'{path}/makefile' names no version; is it CmdStan? {INSTALL_HINT}")
    return tuple(int(part) for part in found[1].split("."))
