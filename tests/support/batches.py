"""Compile the programs of many tests together: most of the time goes to what they have in common.

``pytest --compile`` runs tests up to the first program that they need, and notes it. At the end,
programs are compiled many at a time: one C++ file and one binary, to which each program has a link
in the cache. Which of them it is, the binary reads from its own path.
"""

import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from semistan.errors import ToolchainError
from semistan.infer.cmdstan import compile as module
from semistan.infer.cmdstan.compile import cache_folder
from semistan.infer.cmdstan.toolchain import find_toolchain
from semistan.program.sources import stan_source

SIZE = 10  # programs of a batch
NOTED = "noted"  # the folder in the cache with the programs that tests need
NAMESPACE = "program_model_namespace"
OF_PROGRAM = ("new_model", "stan_model", "get_stan_profile_data")  # names that each program has
LINKS = Path("/proc/self/exe")  # by which a binary finds its own path
WHICH = """
#include <unistd.h>
static bool is(const char* key) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 && std::string(path, size).find(key) != std::string::npos;
}
stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* messages) {
%s  throw std::logic_error("no program of this batch");
}
stan::math::profile_map& get_stan_profile_data() {
%s  throw std::logic_error("no program of this batch");
}
"""


@dataclass(frozen=True)
class Noted:
    """A program without comments, in its folder among those of a test run."""

    folder: Path

    @property
    def key(self):
        return self.folder.name

    @property
    def compiled(self):
        return (cache_folder() / self.key).is_dir()

    @property
    def length(self):
        return (self.folder / "program.stan").stat().st_size

    @property
    def in_cpp(self):
        return (self.folder / "cpp").is_file()


def note_programs():
    """Let tests end at the first program that they need, and keep its text."""
    key_of, headers = module.cache_key, _headers()

    def noted(program, toolchain, kernel="stan", main=None):
        key = key_of(program, toolchain, kernel, main)
        plain = main is None and _headers() == headers  # which some tests change
        place = cache_folder() / NOTED / key
        if plain and not Noted(place).compiled:
            place.mkdir(parents=True, exist_ok=True)
            (place / "program.stan").write_text(module.without_comments(program), "utf-8")
            if kernel == "cpp":
                (place / "cpp").touch()
        pytest.skip("programs are noted")

    module.cache_key = noted


def _headers():
    return [module.stan_source(name) for name in module.KERNEL_HEADERS]


def compile_noted(at_once):
    """Compile what was noted, and return how many programs and seconds that were."""
    begun, folder = time.monotonic(), cache_folder() / NOTED
    found = map(Noted, folder.glob("*")) if LINKS.exists() else ()
    missing = [item for item in found if not item.compiled]  # else, of a run that was interrupted
    noted = sorted(missing, key=lambda item: (item.in_cpp, item.length), reverse=True)
    batches = [noted[first : first + SIZE] for first in range(0, len(noted), SIZE)]
    with ThreadPoolExecutor(at_once) as pool:
        done = sum(pool.map(_compiled, batches))
    shutil.rmtree(folder, ignore_errors=True)
    return done, time.monotonic() - begun


def _compiled(batch):
    """Compile a batch and return how many programs it has; what fails is left to the tests."""
    toolchain = find_toolchain()
    batch = [item for item in batch if _translated(item, toolchain)]
    if not batch:
        return 0
    folder = cache_folder() / f"batch-{batch[0].key}"
    try:
        with module._built(folder) as temporary:
            (temporary / "program.hpp").write_text(_source(batch), "utf-8")
            for name in module.KERNEL_HEADERS:
                (temporary / name).write_text(stan_source(name), "utf-8")
            module._make(temporary, toolchain, (temporary / "program",))
    except ToolchainError as error:
        print(f"a batch of {len(batch)} programs is left to the tests: {error}")
        return 0
    for item in batch:
        (cache_folder() / item.key).mkdir()
        (cache_folder() / item.key / "program").hardlink_to(folder / "program")
    return len(batch)


def _translated(item, toolchain):
    """Let stanc write a program's C++, and say whether it did."""
    flags = ["--allow-undefined"] if item.in_cpp else []
    names = ["--name=program_model", "--filename-in-msg=program.stan"]
    made = [f"--o={item.folder / 'program.hpp'}", item.folder / "program.stan"]
    stanc = toolchain.cmdstan / "bin" / "stanc"
    return subprocess.run([stanc, *flags, *names, *made], capture_output=True).returncode == 0


def _source(batch):
    """Return the C++ of a batch: each program with names of its own, and the choice of one."""
    kernel = stan_source("log_lik.hpp")
    start, end = kernel.index(f"namespace {NAMESPACE} {{"), kernel.rindex("#endif")
    lines = ["#include <stan/model/model_header.hpp>"]
    if any(item.in_cpp for item in batch):
        lines += [kernel[:start], "#endif"]
    for i, item in enumerate(batch):
        own = {name: f"{name}_{i}" for name in (NAMESPACE, *OF_PROGRAM)}
        lines += [f"#define {name} {other}" for name, other in own.items()]
        lines += [kernel[start:end]] if item.in_cpp else []
        lines += [f'#include "{item.folder / "program.hpp"}"']
        lines += [f"#undef {name}" for name in own]
    numbered = list(enumerate(batch))
    call = "new_model_{}(data, seed, messages)"
    models = "".join(f'  if (is("{x.key}")) return {call.format(i)};\n' for i, x in numbered)
    profiles = "".join(
        f'  if (is("{x.key}")) return get_stan_profile_data_{i}();\n' for i, x in numbered
    )
    return "\n".join(lines) + WHICH % (models, profiles)
