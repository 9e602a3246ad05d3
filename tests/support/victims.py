"""Commands in processes of their own, to be killed in a phase that is seen from outside.

A phase is known by what the command wrote, never by the time that has passed. A warm victim is
forked from a process that has imported the libraries, which costs more than a small fit: it runs
the same command line, in a process, a session and a folder of its own.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

PATIENCE = 300  # seconds after which a command is taken to hang, on a machine with other work
MARK = "SEMISTAN_TEST_VICTIM"  # in the environment of a victim and all that it begins
LIBRARIES = (
    "arviz", "cmdstanpy", "formulaic", "h5netcdf", "onnx", "onnxruntime", "pyarrow.parquet",
    "pytest", "rich.table", "scipy.optimize", "scipy.stats", "torch._dynamo", "torch.func",
    "semistan.command.cli", "semistan.subspace.construction", "semistan.workflow.fit",
)  # fmt: skip
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(list(LIBRARIES))


class Victim:
    """A command that runs in a session of its own, with its output in files.

    ``limits`` is a function that the process calls before it becomes the command, and can be
    pickled where it is warm.
    """

    def __init__(self, folder, *arguments, limits=None, warm=False, **environment):
        self.mark, self.folder = uuid.uuid4().hex, Path(folder)
        self.errors = self.folder / f"{self.mark}.txt"
        self.errors.touch()
        begin = Forked if warm else _begun
        self.process = begin(
            list(map(str, arguments)), self.folder, self.errors,
            {**os.environ, **environment, MARK: self.mark}, limits,
        )  # fmt: skip

    @property
    def begun(self):
        """Whether a warm one has become the command."""
        return self.errors.stat().st_size > 0

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
            time.sleep(0.005)
        return True

    def kill(self, number, *, group=False):
        """Send a signal to the process, or to its group as a terminal does; return its status."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            if self.process.poll() is None:
                (os.killpg if group else os.kill)(self.process.pid, number)
        return self.wait()

    def wait(self):
        """Return its status."""
        return self.process.wait(timeout=PATIENCE)

    def living(self):
        """Return the processes that it began, in whatever session, and that are still there."""
        found, own = [], self.process.pid
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes()
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            ours = f"{MARK}={self.mark}".encode() in environment or int(session) == own
            if ours and state != "Z":
                found.append(int(entry.name))
        return found

    def clean(self):
        """End whatever is left of it."""
        for process in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _begun(arguments, folder, errors, environment, limits):
    """Start Python anew."""

    def become():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background has ignored
        if limits is not None:
            limits()

    with errors.open("w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "semistan", *arguments],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file,
            env=environment, start_new_session=True, preexec_fn=become,
        )  # fmt: skip


class Forked:
    """A process forked from the one that has the libraries, with what is needed of ``Popen``."""

    LOCK = threading.Lock()  # multiprocessing looks at all its processes whenever it starts one

    def __init__(self, *given):
        self._process = FORKING.Process(target=_become, args=given)
        with self.LOCK:
            self._process.start()
        self.pid = self._process.pid

    def poll(self):
        with self.LOCK:
            return self._process.exitcode

    def wait(self, timeout):
        until = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("semistan", timeout)
            time.sleep(0.01)
        return status


def _become(arguments, folder, errors, environment, limits):
    """Become the command that ``python -m semistan`` is."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((0, os.devnull), (1, os.devnull), (2, errors)):
        file = os.open(path, os.O_RDWR | (os.O_TRUNC if number == 2 else 0))
        os.dup2(file, number)
        os.close(file)
    tempfile.tempdir = None  # what TMPDIR says now
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if limits is not None:
        limits()
    from semistan.command.cli import main

    sys.argv = ["semistan", *arguments]
    os.write(2, b"begun\n")
    main()


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
