"""Fits that are killed in every phase, and the commands that go on: results equal byte for byte.

``make test-faults`` kills a hundred; a few are in ``make test``. A phase is seen from outside.
"""

import os
import random
import signal
import time

import numpy as np
import pandas as pd
import pytest

from support.victims import Victim, results_of

KILLS = int(os.environ.get("SEMISTAN_KILLS", "100"))
SECONDS = 1000.0  # after which no other kill of the hundred is begun
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
FIT = (
    "fit", "y ~ x1 + x2 + nn(u1, u2, u3)", "--data", "data.csv", "--k", "3", "--hidden", "4",
    "--chains", "2", "--warmup", "100", "--draws", "200", "--epochs", "200", "--kernel", "stan",
)  # fmt: skip


def said(words):
    return lambda victim: words in victim.said


def begins_a_file(name):
    return lambda victim: any(victim.folder.glob(f"run/**/{name}")) or said("Rhat")(victim)


PHASES = {
    "start": lambda _: True,
    "compile": said("compil"),
    "train": lambda victim: any(victim.folder.glob(".run.training.npz")),
    "starts": said("trained"),
    "sampling": lambda victim: said("sampling")(victim) and len(victim.living()) > 1,
    "one chain": begins_a_file("chain-*.csv"),
    "writing": begins_a_file("summary.csv"),
}


def work_in(folder):
    """Write the table into a folder of its own."""
    folder.mkdir()
    generator, n = np.random.default_rng(4), 60
    frame = pd.DataFrame({name: generator.normal(size=n) for name in ("x1", "x2", "u1", "u2")})
    frame = frame.assign(u3=frame.u1 - frame.u2**2, y=lambda f: f.x1 + np.sin(f.u1))
    frame["y"] += generator.normal(size=n)
    frame.to_csv(folder / "data.csv", index=False)
    return folder


def go_on(folder):
    """Do what the documentation says after a kill: sample the run, or fit once more."""
    command = ("sample", "run") if (folder / "run").is_dir() else (*FIT, "--out", "run")
    victim = Victim(folder, *command)
    assert victim.wait() in (0, 3), victim.said
    return victim


@pytest.fixture(scope="module")
def reference(toolchain, tmp_path_factory):
    """What an undisturbed fit gives."""
    folder = work_in(tmp_path_factory.mktemp("kills") / "whole")
    go_on(folder)
    return results_of(folder / "run")


def kill_and_go_on(folder, reference, phase, number, *, group=False, later=0.0):
    """Kill a fit, check what is left of it, go on, and compare."""
    victim = Victim(work_in(folder), *FIT, "--out", "run")
    try:
        seen = victim.until(PHASES[phase])
        time.sleep(later)  # anywhere within and after the phase: the outcome is the same
        status = victim.kill(number, group=group)
        if phase != "start":  # where Python itself may still be on its way to the command
            assert "Traceback" not in victim.said, victim.said
        if number != signal.SIGKILL:
            assert not victim.living(), "a child outlives its parent"
            assert status in (130, -number, 0, 3), victim.said  # or it had ended, or just begun
        if not (folder / "run" / "posterior.nc").is_file() or status not in (0, 3):
            go_on(folder)
    finally:
        victim.clean()
    assert results_of(folder / "run") == reference
    left = [path.name for path in folder.rglob(".*")]
    assert not left, f"{left} are left behind"
    return seen


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("phase", "number", "group"),
    [
        ("train", signal.SIGKILL, False),
        ("sampling", signal.SIGINT, False),
        ("writing", signal.SIGTERM, True),
    ],
)
def test_a_killed_fit_goes_on_to_the_same_bytes(phase, number, group, reference, tmp_path):
    kill_and_go_on(tmp_path / "killed", reference, phase, number, group=group)


@pytest.mark.faults
def test_a_hundred_kills(reference, tmp_path):
    random_ = random.Random(16)
    begun, counts = time.monotonic(), dict.fromkeys(PHASES, 0)
    for i in range(KILLS):
        if time.monotonic() > begun + SECONDS:
            break
        phase = list(PHASES)[i % len(PHASES)]
        number, group = random_.choice(SIGNALS), random_.random() < 0.5
        later = random_.choice((0.0, random_.expovariate(5.0)))
        folder = tmp_path / f"{i}"
        kill_and_go_on(folder, reference, phase, number, group=group, later=later)
        counts[phase] += 1
    print(f"\nkills with equal results: {sum(counts.values())} of {KILLS}, {counts}")
    assert sum(counts.values()) > 0
