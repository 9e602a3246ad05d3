import os
import signal
import subprocess
import sys

import pytest

from semistan.bundle.files import temporary_prefix
from semistan.bundle.lock import held
from semistan.errors import SemistanError

HOLD = """
import sys
from pathlib import Path
from semistan.bundle.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a folder until its standard input ends, or it is killed."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_nothing_is_left_of_a_lock(tmp_path):
    for _ in range(2):
        with held(tmp_path):
            assert len(list(tmp_path.iterdir())) == 2
        assert not list(tmp_path.iterdir())


def test_who_holds_a_folder_is_named(holder, tmp_path):
    with pytest.raises(SemistanError, match=f"process {holder.pid} on .*, since 20") as caught:
        held(tmp_path).__enter__()
    assert str(tmp_path) in str(caught.value)
    assert "wait until it ends" in str(caught.value)


def test_death_releases_a_lock(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with held(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_what_the_killed_left_is_removed_and_what_a_live_process_writes_is_kept(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    living = temporary_prefix("chain-1.csv")
    dead = living.replace(f"-{os.getpid()}-", f"-{process.pid}-")
    (tmp_path / "chains").mkdir()
    for name in (living, dead):
        (tmp_path / "chains" / f"{name}abc.csv").write_text("half")
    with held(tmp_path):
        assert [path.name for path in (tmp_path / "chains").iterdir()] == [f"{living}abc.csv"]


def test_a_file_cannot_be_held(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SemistanError, match="file"):
        held(tmp_path / "file").__enter__()
