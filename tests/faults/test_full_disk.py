"""A disk that is full, wherever it strikes: one clean error, and going on gives the same bytes.

The limit on a file's size strikes as a full disk does, and anybody may set it. Where the tests may
mount one, a small file system is filled too.
"""

import itertools
import resource
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from support.victims import Victim, results_of

from .test_kills import FIT, go_on, work_in

POINTS = 20


@pytest.fixture(scope="module")
def whole(toolchain, tmp_path_factory):
    """An undisturbed fit."""
    folder = work_in(tmp_path_factory.mktemp("disk") / "whole")
    go_on(folder)
    return folder / "run"


def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def size_of(run, name):
    (path,) = run.rglob(name)
    return path.stat().st_size


def strike_and_go_on(folder, whole, size, *, warm=True):
    """Fit where no file may be larger, expect a clean error, and go on without the limit."""
    limits = partial(limit, size)
    victim = Victim(work_in(folder), *FIT, "--out", "run", limits=limits, warm=warm)
    status = victim.wait()
    victim.clean()
    assert status in (1, 2), (status, victim.said)
    assert victim.said.count("error:") == 1, victim.said
    assert "Traceback" not in victim.said, victim.said
    assert "ulimit -f" in victim.said or "CmdStan failed" in victim.said, victim.said
    go_on(folder)
    assert results_of(folder / "run") == results_of(whole)


@pytest.mark.lengthy
@pytest.mark.parametrize("name", ["training.parquet", "chain-1.csv", "posterior.nc"])
def test_a_file_that_does_not_fit_is_a_clean_error(name, whole, tmp_path):
    strike_and_go_on(tmp_path / "full", whole, size_of(whole, name) - 1, warm=False)


@pytest.mark.faults
def test_files_of_many_sizes_do_not_fit(whole, tmp_path):
    largest = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    sizes = [int(2500 * (largest / 2500) ** (i / POINTS)) for i in range(POINTS)]
    folders = [tmp_path / str(size) for size in sizes]
    with ThreadPoolExecutor(2) as pool:
        struck = list(pool.map(strike_and_go_on, folders, itertools.repeat(whole), sizes))
    assert len(struck) == POINTS
    print(f"\nfull at {POINTS} of {POINTS} points: clean errors, and results equal afterwards")


@pytest.fixture
def small_disk():
    """Return what mounts a file system of so many kilobytes; skipped where that is not allowed."""
    mounted = []

    def mount(kilobytes):
        folder = Path(tempfile.mkdtemp(prefix="semistan-disk-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            folder.rmdir()
            pytest.skip("a file system cannot be mounted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.mark.faults
def test_a_small_disk_is_full_at_many_points(whole, small_disk):
    needed = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file()) // 1024
    table = (whole.parent / "data.csv").stat().st_size // 1024 + 16
    disks = [small_disk(int(table + needed * i / POINTS)) for i in range(POINTS)]
    with ThreadPoolExecutor(2) as pool:
        full = list(pool.map(fill_and_go_on, disks, itertools.repeat(whole)))
    print(f"\na small disk full at {sum(full)} of {POINTS} points: clean errors, results equal")
    assert len(full) == POINTS
    assert sum(full) >= POINTS - 2  # on the last ones all of it may fit


def fill_and_go_on(disk, whole):
    """Fit on a disk, expect a clean error if it is full, go on on a larger one; was it full?"""
    folder = work_in(disk / "work")
    victim = Victim(tempfile.gettempdir(), *FIT[:3], folder / "data.csv", *FIT[4:],
                    "--out", folder / "run", warm=True)  # fmt: skip
    status = victim.wait()
    victim.clean()
    assert status in (0, 1, 2, 3), (status, victim.said)
    assert "Traceback" not in victim.said, victim.said
    assert victim.said.count("error:") == (status in (1, 2)), victim.said
    victim.errors.unlink()
    subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
    go_on(folder)
    assert results_of(folder / "run") == results_of(whole)
    return status in (1, 2)
