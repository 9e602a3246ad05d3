"""Programs of the tests: a cache of their own, cheap to compile, for sampling and evaluation.

CmdStan's make takes two settings from the environment: another main program, and a lower level of
optimisation. Both are inherited by the processes that tests start, and by pytest's workers.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from semistan.infer.cmdstan.toolchain import find_toolchain

MAIN = Path(__file__).with_name("main.cpp")
LEVEL = "1"  # values and gradients agree to 1e-9 as with 3, and compiling is cheaper
NO_COLLECTIONS = (
    "--param ggc-min-expand=1000 --param ggc-min-heapsize=4000000"  # of garbage, by g++
)
SETTINGS = ("SEMISTAN_CACHE", "CMDSTAN_MAIN", "O", "CXXFLAGS_PROGRAM")
HEADER = Path("stan", "model", "model_header.hpp")


def use_own_cache():
    """Point this process and its children to the tests' cache and its main program."""
    salt = hashlib.sha256(MAIN.read_bytes() + LEVEL.encode()).hexdigest()[:12]
    given = os.environ.get("SEMISTAN_CACHE")
    cache = Path(given) if given else user_cache_path("semistan")
    if not cache.name.startswith("tests-"):
        cache = cache / f"tests-{salt}"
    values = (str(cache), str(cache / "main.cpp"), LEVEL, NO_COLLECTIONS)
    os.environ |= dict(zip(SETTINGS, values, strict=True))


def compile_as_users_do(monkeypatch):
    """Use CmdStan's own level of optimisation and the user's cache: where a program samples for
    minutes, it pays."""
    cache = Path(os.environ["SEMISTAN_CACHE"])
    for name in SETTINGS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SEMISTAN_CACHE", str(cache.parent))


def ready_toolchain():
    """Return CmdStan and the compiler, with the main program compiled once for all workers."""
    toolchain, cache = find_toolchain(), Path(os.environ["SEMISTAN_CACHE"])
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / ".lock"):
        if not (cache / "main_threads.o").is_file():
            shutil.copy(MAIN, cache / "main.cpp")
            _complete(toolchain.cmdstan)
            _make(toolchain.cmdstan, cache / "main_threads.o", os.environ)
    return toolchain


def _complete(cmdstan):
    """Build what CmdStan's first program with threads leaves there, as it does for a user.

    Until it is there, programs are compiled one at a time.
    """
    plain = {key: os.environ[key] for key in os.environ if key not in SETTINGS}
    compiled = (cmdstan / "stan" / "src" / HEADER).with_name("model_header_threads.hpp.gch")
    if not any(cmdstan.glob("stan/src/stan/model/**/*threads*.gch")):
        # newer releases call it after the compiler, and build it with the first program
        _make(cmdstan, compiled.relative_to(cmdstan), plain, check=False)
    if not any(cmdstan.glob("src/cmdstan/*threads*.o")):
        _make(cmdstan, "src/cmdstan/main_threads.o", plain)


def _make(cmdstan, target, env, check=True):
    command = ["make", "STAN_THREADS=1", target]
    subprocess.run(command, cwd=cmdstan, check=check, capture_output=True, env=env)
