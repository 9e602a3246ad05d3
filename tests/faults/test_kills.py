"""Fits that are killed in every phase, and the commands that go on: results equal byte for byte.

``make test-faults`` kills a hundred; a few are in ``make test``. A phase is seen from outside.
"""

import itertools
import os
import random
import shutil
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from semistan.infer.cmdstan.compile import cache_folder, cache_key
from support.victims import Victim, results_of

KILLS = int(os.environ.get("SEMISTAN_KILLS", "100"))
ATTEMPTS = 5  # for one that comes too late: its fit has ended
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
FIT = (
    "fit", "y ~ x1 + x2 + nn(u1, u2, u3)", "--data", "data.csv", "--k", "3", "--hidden", "4",
    "--chains", "2", "--warmup", "100", "--draws", "200", "--epochs", "50", "--kernel", "stan",
)  # fmt: skip
TRAINING = ".run.training.npz"
SCRATCH = "scratch"  # where CmdStan writes


def said(words):
    return lambda victim: words in victim.said


def begins_a_file(name):
    return lambda victim: any(victim.folder.glob(f"run/**/{name}")) or said("Rhat")(victim)


def draws_something(victim):
    """Whether a chain has ended its warm-up: CmdStan writes then what it has adapted."""
    chains = victim.folder.glob(f"{SCRATCH}/*/output/*.csv")
    return any("Adaptation terminated" in contents(path) for path in chains)


def contents(path):
    try:
        return path.read_text()
    except OSError:  # it is gone already
        return ""


PHASES = {
    "start": lambda _: True,  # of Python itself
    "preparation": lambda victim: victim.begun,
    "compiling": lambda victim: len(victim.living()) > 1,  # in a cache that has nothing
    "compiled": said("compiled"),
    "checkpoint": lambda victim: any(victim.folder.glob(f"{TRAINING}*")),
    "train": lambda victim: (victim.folder / TRAINING).is_file(),
    "mode": said("trained"),
    "warm-up": lambda victim: said("sampling")(victim) and len(victim.living()) > 1,
    "sampling": lambda victim: draws_something(victim) or PHASES["one chain"](victim),
    "one chain": begins_a_file("chain-*.csv"),
    "writing": begins_a_file("summary.csv"),
}
COLD = {"compiled", "train", "writing"}  # a quarter of the kills in these begin with Python


@dataclass(frozen=True)
class Kill:
    """One kill: in which phase, by what, and what is done afterwards.

    ``later`` is in seconds, so that it strikes anywhere within and after the phase; ``anew`` fits
    once more in place of what is left, rather than going on from it.
    """

    phase: str
    number: int
    group: bool = False
    later: float = 0.0
    anew: bool = False
    warm: bool = True


def work_in(folder):
    """Write the table into a folder of its own."""
    (folder / SCRATCH).mkdir(parents=True)
    generator, n = np.random.default_rng(4), 200
    frame = pd.DataFrame({name: generator.normal(size=n) for name in ("x1", "x2", "u1", "u2")})
    frame = frame.assign(u3=frame.u1 - frame.u2**2, y=lambda f: f.x1 + np.sin(f.u1))
    frame["y"] += generator.normal(size=n)
    frame.to_csv(folder / "data.csv", index=False)
    return folder


def go_on(folder, *, anew=False, warm=True, **environment):
    """Do what the documentation says after a kill: sample the run, or fit once more."""
    begun = (folder / "run").is_dir() and not anew
    command = ("sample", "run") if begun else (*FIT, "--out", "run", "--overwrite")
    victim = Victim(folder, *command, warm=warm, **environment)
    assert victim.wait() in (0, 3), victim.said
    return victim


@pytest.fixture(scope="module")
def reference(toolchain, tmp_path_factory):
    """What an undisturbed fit gives, and the folder in the cache of its compiled program."""
    folder = work_in(tmp_path_factory.mktemp("kills") / "whole")
    go_on(folder, warm=False)
    program = (folder / "run" / "program.stan").read_text("utf-8")
    return results_of(folder / "run"), cache_folder() / cache_key(program, toolchain)


def kill_and_go_on(folder, reference, kill):
    """Kill a fit, check what is left of it, go on, and compare; say whether it came in time."""
    results, program = reference
    environment = {"TMPDIR": str(folder / SCRATCH)}
    if kill.phase == "compiling":
        environment["SEMISTAN_CACHE"] = str(folder / "cache")
    victim = Victim(work_in(folder), *FIT, "--out", "run", warm=kill.warm, **environment)
    try:
        victim.until(PHASES[kill.phase])
        time.sleep(kill.later)
        status = victim.kill(kill.number, group=kill.group)
        ended = (0, 3, -kill.number)  # or it had ended before
        if kill.phase == "start":  # where Python itself may still be on its way to the command
            ended += (1,) if kill.number == signal.SIGINT else ()
        else:
            assert "Traceback" not in victim.said, victim.said
        if kill.number != signal.SIGKILL:
            assert not victim.living(), "a child outlives its parent"
            ended += (128 + kill.number,)
        assert status in ended, victim.said
    finally:
        victim.clean()
    if kill.phase == "compiling":  # as if another process had compiled it meanwhile
        shutil.copytree(program, folder / "cache" / "programs" / program.name)
    if kill.anew or not (folder / "run" / "posterior.nc").is_file() or status not in (0, 3):
        go_on(folder, anew=kill.anew, **environment)
    assert results_of(folder / "run") == results
    for name in ("cache", SCRATCH):
        shutil.rmtree(folder / name, ignore_errors=True)
    left = [path.name for path in folder.rglob(".*")]
    assert not left, f"{left} are left behind"
    return status not in (0, 3)


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "kill",
    [
        Kill("train", signal.SIGKILL, warm=False),
        Kill("warm-up", signal.SIGINT, warm=False),
        Kill("writing", signal.SIGTERM, group=True),
    ],
    ids=lambda kill: kill.phase,
)
def test_a_killed_fit_goes_on_to_the_same_bytes(kill, reference, tmp_path):
    kill_and_go_on(tmp_path / "killed", reference, kill)


@pytest.mark.faults
def test_what_a_kill_leaves_of_a_compilation_is_cleaned_by_the_next(reference, tmp_path):
    cache = tmp_path / "cache"
    victim = Victim(work_in(tmp_path / "killed"), *FIT, "--out", "run", SEMISTAN_CACHE=str(cache))
    try:
        assert victim.until(PHASES["compiling"])
        victim.kill(signal.SIGKILL)
    finally:
        victim.clean()
    assert any(cache.glob("programs/.building*"))
    go_on(tmp_path / "killed", SEMISTAN_CACHE=str(cache))
    assert results_of(tmp_path / "killed" / "run") == reference[0]
    assert not any(cache.glob("programs/.building*"))


def planned(number):
    """Return so many kills, seeded, over all phases."""
    random_ = random.Random(16)

    def one(i, phase):
        return Kill(
            phase, random_.choice(SIGNALS),
            group=random_.random() < 0.5,
            later=random_.choice((0.0, random_.expovariate(10.0))),
            anew=random_.random() < 0.25,
            warm=phase != "start" and not (phase in COLD and i % 4 == 0),
        )  # fmt: skip

    return [one(i, phase) for i, phase in zip(range(number), itertools.cycle(PHASES))]


def killed_in_time(folder, reference, kill):
    """Kill until a kill comes before the fit ends; say what was wrong, or nothing."""
    try:
        for attempt in range(ATTEMPTS):
            if kill_and_go_on(folder / str(attempt), reference, kill):
                return ""
        return f"{kill}: the fit had ended {ATTEMPTS} times"
    except Exception as error:  # one is enough to fail, and the others go on
        return f"{kill}: {error!r}"


@pytest.mark.faults
def test_a_hundred_kills(reference, tmp_path):
    kills, begun = planned(KILLS), time.monotonic()
    folders = [tmp_path / str(i) for i in range(KILLS)]
    with ThreadPoolExecutor(2) as pool:
        wrong = list(pool.map(killed_in_time, folders, itertools.repeat(reference), kills))
    counts = Counter(kill.phase for kill, text in zip(kills, wrong, strict=True) if not text)
    print(
        f"\nkills with equal results: {counts.total()} of {KILLS} in "
        f"{time.monotonic() - begun:.0f} s, {dict(counts)}"
    )
    assert [text for text in wrong if text] == []
    assert counts.total() == KILLS
