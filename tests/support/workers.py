"""A Dask cluster of processes of this machine, each with a home and a cache of its own."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

TESTS = str(Path(__file__).parents[1])


class Cluster:
    """A scheduler, and workers that can be begun and killed, in a folder."""

    def __init__(self, folder):
        self.folder, self.file, self.processes = folder, folder / "scheduler.json", []
        self._begin("scheduler", "--port", "0", "--dashboard-address", ":0",
                    "--scheduler-file", str(self.file))  # fmt: skip
        until = time.monotonic() + 120
        while not (self.file.is_file() and self.file.stat().st_size):
            assert time.monotonic() < until, "no scheduler"
            time.sleep(0.05)

    def add(self):
        """Begin a worker of one thread, without a nanny that would begin it anew."""
        home = self.folder / f"home-{len(self.processes)}"
        (home / "cache").mkdir(parents=True)
        return self._begin(
            "worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--local-directory", str(home),
            HOME=str(home), SEMISTAN_CACHE=str(home / "cache"),
        )  # fmt: skip

    def _begin(self, kind, *arguments, **environment):
        paths = [TESTS, *sys.path]
        process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + kind, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@contextmanager
def cluster_of(folder, workers):
    cluster = Cluster(folder)
    try:
        cluster.workers = [cluster.add() for _ in range(workers)]
        yield cluster
    finally:
        cluster.close()
