"""Compile a program once: the cache is keyed by what the binary depends on.

The key is a hash of the program without its comments, the options, CmdStan's folder and
version, and the compiler, so that a new formula in the header or a new bundle costs nothing.

A program is linked to CmdStan's main program and, for some methods, to one of ours too, a C++ file
in ``stan/``, which is compiled once for all programs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistan.bundle.files import remove_leftovers, temporary_prefix
from semistan.errors import ToolchainError, file_error
from semistan.infer.children import own_children
from semistan.infer.cmdstan.toolchain import Toolchain, find_make
from semistan.program.parts import Kernel
from semistan.program.sources import KERNEL_HEADERS, stan_source

MODEL_NAME = "program"  # log_lik.hpp names it too
CPP_OPTIONS = {"STAN_THREADS": True}
THREADS = "_threads"  # which CmdStan's make adds to the names of object files then
HEADER = Path("stan", "model", "model_header.hpp")  # of CmdStan, included by every program
OF_PROGRAM = "CXXFLAGS_PROGRAM"  # what CmdStan's make compiles programs with
BUILDING = "building"
PLAIN = re.compile(r"[\w./+@,-]+")  # paths that make can have
NO_SPACE = os.strerror(errno.ENOSPC)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled program.

    Attributes
    ----------
    executable : Path
        The binary with CmdStan's methods.
    cached : bool
        Whether it was there already.
    """

    executable: Path
    cached: bool

    def linked_to(self, main: str) -> Path:
        """Return the binary with a main program of ours that it was compiled with."""
        return _executable(self.executable.parent, main)


def cache_folder() -> Path:
    """Return the folder of compiled programs (``SEMISTAN_CACHE`` overrides the default)."""
    from platformdirs import user_cache_path

    override = os.environ.get("SEMISTAN_CACHE")
    return (Path(override) if override else user_cache_path("semistan")) / "programs"


def cache_key(
    program: str, toolchain: Toolchain, kernel: Kernel = "stan", main: str | None = None
) -> str:
    """Return the hash under which a program's binaries are kept."""
    content: dict[str, Any] = {
        "program": without_comments(program),
        "headers": [stan_source(name) for name in _headers(kernel)],
    }
    if main:
        content["main"] = stan_source(_source(main))
    return _hashed(content, toolchain)


def _hashed(content: dict[str, Any], toolchain: Toolchain) -> str:
    """Hash sources with all else that a compilation depends on."""
    content = content | {
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


def is_compiled(
    program: str, toolchain: Toolchain, kernel: Kernel = "stan", main: str | None = None
) -> bool:
    """Say whether the program's binary is in the cache."""
    return _executable(cache_folder() / cache_key(program, toolchain, kernel, main)).is_file()


def compile_program(
    program: str, toolchain: Toolchain, kernel: Kernel = "stan", main: str | None = None
) -> Compiled:
    """Return the program's binary, compiling it if the cache has none.

    Parameters
    ----------
    program : str
        The program's text.
    toolchain : Toolchain
        CmdStan and the compiler.
    kernel : str
        Whether the program declares the C++ kernel (``cpp``), whose headers it then needs.
    main : str, optional
        A main program of ours, ``stan/<main>.cpp``, that it is linked to as well.

    Raises
    ------
    ToolchainError
        If stanc or the C++ compiler refuses the program, with the first error, or the cache cannot
        be written.
    """
    from filelock import FileLock

    folder = cache_folder() / cache_key(program, toolchain, kernel, main)
    executable = _executable(folder)
    if executable.is_file():
        return Compiled(executable, cached=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / _lock_name(folder, toolchain)):
            if not executable.is_file():
                _build(without_comments(program), folder, toolchain, kernel, main)
    except OSError as error:
        explained = file_error(error, folder.parent)
        hint = "the environment variable SEMISTAN_CACHE names another place for compiled programs"
        raise ToolchainError(f"{explained}; {hint}") from error
    return Compiled(executable, cached=False)


def _build(
    program: str, folder: Path, toolchain: Toolchain, kernel: Kernel, main: str | None
) -> None:
    with _built(folder) as temporary:
        (temporary / f"{MODEL_NAME}.stan").write_text(program, "utf-8")
        for name in _headers(kernel):
            (temporary / name).write_text(stan_source(name), "utf-8")
        own = _own_main(main, toolchain) if main else None
        _make_program(temporary, toolchain, kernel, own)
        (temporary / f"{MODEL_NAME}.hpp").unlink(missing_ok=True)


@contextmanager
def _built(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which takes a folder's place if the block comes to its end."""
    remove_leftovers(folder.parent, BUILDING)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=temporary_prefix(BUILDING)))
    try:
        yield temporary
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _own_main(main: str, toolchain: Toolchain) -> Path:
    """Return the source of a main program of ours, with its object file beside it."""
    from filelock import FileLock

    text = stan_source(_source(main))
    folder = cache_folder() / f"{main}-{_hashed({'main': text}, toolchain)}"
    source = folder / _source(main)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if not source.is_file():
            with _built(folder) as temporary, in_plain_path(temporary) as plain:
                (temporary / source.name).write_text(text, "utf-8")
                made = (f"CMDSTAN_MAIN={plain / source.name}", plain / f"{main}{THREADS}.o")
                _make(temporary, toolchain, made)
    return source


def _make_program(folder: Path, toolchain: Toolchain, kernel: Kernel, own: Path | None) -> None:
    """Compile the program in a folder, and link it to CmdStan's main program and to one of ours.

    For the second link, make keeps the object file that it would remove (``RM``; in newer
    releases, ``KEEP_OBJECT``), and compiles nothing (``COMPILE.cpp``).
    """
    with in_plain_path(folder) as plain:
        headers = [plain / name for name in _headers(kernel)]
        header = headers[0] if headers else None
        executable = _executable(plain)
        if own is None:
            _make(folder, toolchain, (executable,), header)
            return
        _make(folder, toolchain, ("RM=:", "KEEP_OBJECT=true", executable), header)
        first = executable.rename(plain / "by_cmdstan")
        with in_plain_path(own.parent) as place:
            settings = (f"CMDSTAN_MAIN={place / own.name}", "COMPILE.cpp=:")
            _make(folder, toolchain, (*settings, executable), header)
        executable.rename(_executable(plain, own.stem))
        first.rename(executable)


def _make(
    folder: Path, toolchain: Toolchain, made: Sequence[str | Path], user_header: Path | None = None
) -> None:
    """Let CmdStan's make make something; an interruption ends the compiler too."""
    with in_plain_path(toolchain.cmdstan) as tree:
        command = [find_make(), *_settings(user_header), *made]
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as console,
            own_children().process(
                command,
                cwd=tree,
                env=_environment(toolchain),
                stdout=console,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            status = process.wait()
            console.seek(0)
            printed = console.read()
    if status:
        raise ToolchainError(_failure(printed, folder))


def _settings(user_header: Path | None) -> list[str]:
    """Return what CmdStan's make is told of stanc and of the compiler."""
    chosen = [f"STANCFLAGS+=--filename-in-msg={MODEL_NAME}.stan"]
    if user_header:
        chosen += ["STANCFLAGS+=--allow-undefined", f"USER_HEADER={user_header}"]
    return [*chosen, *(f"{name}={value}" for name, value in CPP_OPTIONS.items())]


def _environment(toolchain: Toolchain) -> dict[str, str]:
    """Return an environment in which g++ takes the header that CmdStan has compiled.

    It takes it only as the first include, before the kernel's, and beside a header of the same
    name. CmdStan 2.27 keeps it under another one: links in the cache have both. Where it is not
    there, as for the very first program, the header is read as it is.
    """
    folder = cache_folder() / f"header-{_hashed({}, toolchain)}"
    source = toolchain.cmdstan / "stan" / "src" / HEADER
    if "clang" in toolchain.compiler.lower() or not PLAIN.fullmatch(str(folder)):
        return dict(os.environ)
    compiled, first = source.with_name(f"{HEADER.stem}{THREADS}.hpp.gch"), HEADER
    if compiled.is_file():
        first = folder / HEADER.name
        _link(first, source)
        _link(first.with_suffix(".hpp.gch"), compiled)
    flags = f"{os.environ.get(OF_PROGRAM, '')} -include {first.as_posix()}"
    return dict(os.environ) | {OF_PROGRAM: flags.strip()}


def _link(link: Path, target: Path) -> None:
    """Make a link, unless it is there; another process may make it at the same time."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f"{temporary_prefix(BUILDING)}{os.getpid()}{link.name}")
    temporary.symlink_to(target)
    temporary.replace(link)


@contextmanager
def in_plain_path(path: Path) -> Iterator[Path]:
    """Yield a path without blanks to a folder, by a link if need be: make cannot have others."""
    if PLAIN.fullmatch(str(path)):
        yield path
        return
    place = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix=temporary_prefix("link"), dir=place if PLAIN.fullmatch(place) else "/tmp"
    ) as name:
        link = Path(name, "folder")
        link.symlink_to(path.absolute(), target_is_directory=True)
        yield link


def _failure(console: str, folder: Path) -> str:
    """Say why a program could not be compiled, from what make printed."""
    if NO_SPACE in console:
        return (
            f"the disk is full: the compiler had no space left in '{folder.parent}' or "
            f"'{tempfile.gettempdir()}'; free some, or name other places by the environment "
            "variables SEMISTAN_CACHE and TMPDIR"
        )
    return f"the Stan program does not compile: {_first_error(console)}"


def _lock_name(folder: Path, toolchain: Toolchain) -> str:
    """Lock one program, or all while CmdStan still lacks what the first compilation builds."""
    root = toolchain.cmdstan
    built = (root.glob("stan/src/stan/model/*threads*.gch*"), root.glob("src/cmdstan/*threads*.o"))
    return f".{folder.name}.lock" if all(any(found) for found in built) else ".lock"


def _headers(kernel: Kernel) -> tuple[str, ...]:
    return KERNEL_HEADERS if kernel == "cpp" else ()


def _source(main: str) -> str:
    return f"{main}.cpp"


def _executable(folder: Path, name: str = MODEL_NAME) -> Path:
    return folder / (name + (".exe" if os.name == "nt" else ""))


def _first_error(console: str) -> str:
    """Return the first error of stanc or the C++ compiler, with some lines of context."""
    lines = console.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\berror\b|not found", line, flags=re.IGNORECASE):
            return "\n".join(lines[number : number + 8])
    return "\n".join(lines[-8:])
