"""Commands in processes of their own, to be killed in a phase that is seen from outside.

A phase is known by what the command wrote, never by the time that has passed.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

PATIENCE = 300  # seconds after which a command is taken to hang, on a machine with other work
MARK = "SEMISTAN_TEST_VICTIM"  # in the environment of a victim and all that it begins


class Victim:
    """A command that runs in a session of its own, with its output in files.

    ``limits`` is a function that the process calls before it becomes the command.
    """

    def __init__(self, folder, *arguments, limits=None, **environment):
        self.mark, self.folder = uuid.uuid4().hex, Path(folder)
        self.errors = self.folder / f"{self.mark}.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "semistan", *map(str, arguments)],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                env={**os.environ, **environment, MARK: self.mark}, start_new_session=True,
                preexec_fn=limits,
            )  # fmt: skip

    @property
    def said(self):
        """What it has written to standard error."""
        return self.errors.read_text(errors="replace")

    def until(self, seen):
        """Wait until something is seen or the command has ended; say whether it was seen."""
        waited = time.monotonic() + PATIENCE
        while not seen(self):
            if self.process.poll() is not None:
                return bool(seen(self))
            assert time.monotonic() < waited, f"nothing was seen: {self.said}"
            time.sleep(0.01)
        return True

    def kill(self, number, *, group=False):
        """Send a signal to the process, or to its group as a terminal does; return its status."""
        if self.process.poll() is None:
            (os.killpg if group else os.kill)(self.process.pid, number)
        return self.wait()

    def wait(self):
        """Return its status."""
        return self.process.wait(timeout=PATIENCE)

    def living(self):
        """Return the processes that it began, in whatever session, and that are still there."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes()
                gone = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environment and not gone:
                found.append(int(entry.name))
        return found

    def clean(self):
        """End whatever is left of it."""
        for process in self.living():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


def draws_of(run):
    """Return the bytes of all chains without comments, which have times and names of files."""
    return {
        str(path.relative_to(run)): b"".join(
            line for line in path.read_bytes().splitlines(True) if not line.startswith(b"#")
        )
        for path in sorted(Path(run).rglob("chain-*.csv"))
    }


def results_of(run):
    """Return what must be the same however often a fit was interrupted: bytes by name."""
    run = Path(run)
    names = ("summary.csv", "program.stan", "data.json", "labels.json", "bundle/arrays.npz")
    files = {name: (run / name).read_bytes() for name in names}
    return files | draws_of(run)
