"""The Dask backend over real workers: processes with a home and a cache of their own."""

import json
import os
import re
import signal
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from semistan.errors import InputError, SemistanError
from semistan.infer.backends import dask as backend
from semistan.infer.backends.backend import Report
from semistan.infer.backends.dask import connected, packed, unpacked
from semistan.infer.backends.local import LOCAL
from semistan.infer.content import Content
from semistan.model.config import SampleConfig
from semistan.workflow.fit import fit_model
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample as sample_run
from support.small import small_config, small_frame
from support.tasks import Square
from support.untrained import random_bundle
from support.workers import cluster_of

pytestmark = pytest.mark.lengthy
distributed = pytest.importorskip("distributed")

SLICE = SampleConfig(method="elliptical-slice", chains=3, warmup=10, draws=20, seed=7)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two workers, and a backend over them."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster_of(folder, 2) as cluster, connected(str(cluster.file)) as dask:
        dask.client.wait_for_workers(2, timeout=120)
        yield dask


def test_results_and_reports_come_from_the_workers(two):
    tasks, told = [Square(x, True) for x in range(1, 6)], {}
    found = dict(
        two.map(tasks, report=lambda i: Report(lambda *figures: told.__setitem__(i, figures)))
    )
    assert {i: square for i, (square, _) in found.items()} == {i: (i + 1) ** 2 for i in range(5)}
    processes = {process for _, process in found.values()}
    assert os.getpid() not in processes
    until = time.monotonic() + 60
    while len(told) < 5 and time.monotonic() < until:  # events come when they come
        time.sleep(0.05)
    assert told == {i: (i + 1, 100) for i in range(5)}


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_failure_is_the_tasks_own_and_begins_nothing_else(two, in_thread):
    tasks = [Square(13, in_thread), *(Square(x, in_thread) for x in range(2, 9))]
    found = []
    with pytest.raises(InputError, match="13 brings bad luck"):
        found.extend(index for index, _ in two.map(tasks))
    assert len(found) < 7


def test_all_tasks_are_handed_over_where_the_cluster_grows_with_them(two):
    growing = replace(two, grows=True)
    assert len(dict(growing.map([Square(x, True) for x in range(1, 8)]))) == 7
    with pytest.raises(InputError, match="13 brings bad luck"):
        list(growing.map([Square(13, True), *(Square(x, True, 0.1) for x in range(1, 8))]))


def test_an_interruption_stops_what_runs_on_the_workers(two):
    tasks = [Square(1, False), Square(2, False, 600.0)]
    with pytest.raises(KeyboardInterrupt):
        for index, _ in two.map(tasks):
            assert index == 0
            raise KeyboardInterrupt
    # Had the other task gone on, a worker would be busy for ten minutes.
    again = dict(two.map([Square(x, True, 0.2) for x in range(1, 5)]))
    assert len({process for _, process in again.values()}) == 2


def test_contents_travel_apart_from_tasks_and_once(tmp_path):
    (tmp_path / "data.json").write_bytes(b"x" * backend.SHARED)
    (tmp_path / "small.json").write_bytes(b"{}")
    large, small = (Content(name, tmp_path / name) for name in ("data.json", "small.json"))
    work, shared = packed((large, small, large))
    assert len(work) < 1000
    assert list(shared.values()) == [b"x" * backend.SHARED]
    assert unpacked(work, shared) == tuple(
        Content(item.name, None, item.read()) for item in (large, small, large)
    )


def test_another_version_of_semistan_is_refused(two, monkeypatch):
    monkeypatch.setattr(backend, "__version__", "99.0")
    with pytest.raises(SemistanError, match=r"this machine 99\.0: install the same version"):
        list(two.map([Square(2, True)]))


def test_a_cluster_that_does_not_answer_is_bad_input(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "CONNECT", 0.5)
    with pytest.raises(InputError, match="no Dask scheduler answers at 'tcp://127"):
        connected("tcp://127.0.0.1:9").__enter__()
    with pytest.raises(InputError, match=r"'nowhere\.json' does not exist"):
        connected("nowhere.json").__enter__()
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(InputError, match="pip install dask-jobqueue"):
        connected("slurm").__enter__()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'semistan\[cluster\]'"):
        connected("local").__enter__()


def chains_of(run):
    return [path.read_bytes() for path in sorted((run.path / "chains").glob("*.csv"))]


def test_chains_of_pytorch_have_the_same_bytes(two, tmp_path):
    bundle, rows = random_bundle("gaussian")
    fits = [
        sample_run(new_run(bundle, rows, tmp_path / name, SLICE, None), backend=where)
        for name, where in (("here", LOCAL), ("there", two))
    ]
    assert chains_of(fits[0].run) == chains_of(fits[1].run)


def test_subspaces_are_trained_on_the_cluster(two, tmp_path):
    config = small_config(
        "y ~ x + nn(u, v)", train__epochs=30, subspace__subspaces=2,
        sample=SLICE.model_dump() | {"chains": 1},
    )  # fmt: skip
    fits = [
        fit_model(config, small_frame(24), out=tmp_path / name, backend=where)
        for name, where in (("here", LOCAL), ("there", two))
    ]
    for here, there in zip(*(fit.run.members for fit in fits), strict=True):
        assert here.bundle.sha256 == there.bundle.sha256
        assert chains_of(here) == chains_of(there)


def test_a_lost_worker_costs_its_task_which_another_does_anew(tmp_path):
    with cluster_of(tmp_path, 1) as cluster, connected(str(cluster.file)) as dask:
        dask.client.wait_for_workers(1, timeout=120)
        killed, (first,) = threading.Event(), cluster.workers

        def report(_):
            def step(*_figures):
                if not killed.is_set():  # in the midst of the task
                    killed.set()
                    cluster.add()
                    first.send_signal(signal.SIGKILL)

            return Report(step)

        ((_, (square, process)),) = dask.map([Square(7, True, 2.0)], report=report)
    assert killed.is_set()
    assert square == 49
    assert process not in (first.pid, os.getpid())


@pytest.mark.cmdstan
def test_cmdstan_has_the_same_draws_where_the_worker_compiles(two, toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian")
    options = SampleConfig(chains=2, warmup=50, draws=30, seed=5)
    fits = [
        sample_run(new_run(bundle, rows, tmp_path / name, options, toolchain), backend=where)
        for name, where in (("here", LOCAL), ("there", two))
    ]
    texts = [
        [re.sub(rb"(?m)^#.*\n", b"", content) for content in chains_of(fit.run)] for fit in fits
    ]
    assert texts[0] == texts[1]
    assert np.array_equal(*(fit.posterior.draws.phi for fit in fits))
    assert json.loads((fits[1].run.path / "manifest.json").read_text())


def test_a_slow_worker_holds_up_its_own_task_alone(two):
    slow, other = two.client.run(os.getpid).values()
    found = {}
    os.kill(slow, signal.SIGSTOP)
    try:
        for index, (square, process) in two.map([Square(x, True) for x in range(1, 8)]):
            found[index] = square, process
            if len(found) == 6:
                assert {process for _, process in found.values()} == {other}
                os.kill(slow, signal.SIGCONT)
    finally:
        os.kill(slow, signal.SIGCONT)
    assert {index: square for index, (square, _) in found.items()} == {
        x: (x + 1) ** 2 for x in range(7)
    }
