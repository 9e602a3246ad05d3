"""The environment of CmdStan's programs."""

import os
import platform
import subprocess
import sys

import pytest

from semistan.infer.environment import KEEP_MEMORY, environment
from semistan.infer.scripts import r_script, shell_script
from semistan.model.config import SampleConfig


def test_what_the_user_has_set_is_left(monkeypatch):
    name = next(iter(KEEP_MEMORY))
    assert environment().items() >= KEEP_MEMORY.items()
    monkeypatch.setenv(name, "1")
    assert environment()[name] == "1"


def test_exported_scripts_set_it():
    options = SampleConfig(warmup=300, draws=500)
    for write in (shell_script, r_script):
        text = write(options, keep_metric=False, kernel="stan").replace(" = ", "=")
        assert all(f"{name}={value}" in text for name, value in KEEP_MEMORY.items())


PAGE_FAULTS = """
import ctypes, resource
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def once():
    blocks = [c.malloc(1 << 16) for _ in range(16)]
    for block in blocks: ctypes.memset(block, 1, 1 << 16)
    for block in reversed(blocks): c.free(block)
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100): once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_memory_that_is_freed_is_not_asked_for_again():
    def faults(settings):
        found = subprocess.run(
            [sys.executable, "-c", PAGE_FAULTS],
            env=settings, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return int(found.stdout)

    without = {name: value for name, value in os.environ.items() if name not in KEEP_MEMORY}
    assert faults(environment()) < faults(without) / 10
