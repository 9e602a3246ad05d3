"""A backend is one file: processes that get pickled tasks, defined here, give the same results."""

import multiprocessing
import os
import pickle
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from semistan.errors import InputError, SemistanError
from semistan.infer.backends.backend import SILENT, Report
from semistan.infer.backends.local import LOCAL, Workers
from semistan.infer.chain_store import chain_tasks
from semistan.infer.content import Content
from semistan.infer.methods import method_named
from semistan.infer.starts import find_starts
from semistan.model.config import SampleConfig
from semistan.workflow.fit import fit_model
from semistan.workflow.kfold import kfold
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample
from semistan.workflow.train import train
from support.chains import draw_chains
from support.small import small_config, small_frame, small_prepared
from support.tasks import Square
from support.untrained import random_bundle

pytestmark = pytest.mark.lengthy

TESTS = str(Path(__file__).parents[1])
SHORT = SampleConfig(method="elliptical-slice", chains=2, warmup=10, draws=20, seed=7)


def do(pickled):
    index, task = pickle.loads(pickled)
    return index, task.run(SILENT)


class Elsewhere:
    """Does tasks in processes that share nothing with this one."""

    def map(self, tasks, *, at_once=None, report=None):
        """See ``Backend``; nobody is told anything."""
        assert report is None or report(0) is not None
        pickles = [pickle.dumps(pair) for pair in enumerate(tasks)]
        with multiprocessing.get_context("spawn").Pool(at_once or 2) as pool:
            yield from pool.imap_unordered(do, pickles)


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let other processes import the tests' own tasks."""
    paths = [TESTS, os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setattr("semistan.infer.backends.local.usable_processors", lambda: [0, 0])


def test_chains_of_pytorch_have_the_same_bytes(tmp_path):
    bundle, rows = random_bundle("gaussian")
    starts = find_starts(bundle, rows, SHORT)
    for name, backend in (("local", LOCAL), ("elsewhere", Elsewhere())):
        (tmp_path / name).mkdir()
        draw_chains(bundle, rows, tmp_path / name, SHORT, starts, backend=backend)
    for chain in (1, 2):
        here, there = (
            tmp_path / name / f"chains/chain-{chain}.csv" for name in ("local", "elsewhere")
        )
        assert here.read_bytes() == there.read_bytes()


def test_chains_of_cmdstan_have_the_same_draws(toolchain, tmp_path):
    bundle, rows = random_bundle("gaussian")
    options = SampleConfig(chains=3, warmup=50, draws=30, seed=5)
    fits = [
        sample(
            new_run(bundle, rows, tmp_path / name, options, toolchain), backend=backend
        )
        for name, backend in (("local", LOCAL), ("elsewhere", Elsewhere()))
    ]  # fmt: skip
    assert np.array_equal(*(fit.posterior.draws.phi for fit in fits))
    assert np.array_equal(*(fit.posterior.draws.theta for fit in fits))


def test_a_subspace_trained_elsewhere_is_the_same():
    prepared = small_prepared("y ~ x + nn(u, v)", train__epochs=30)
    assert train(prepared).sha256 == train(prepared, backend=Elsewhere()).sha256


def test_folds_fitted_elsewhere_are_the_same(tmp_path):
    config = small_config(
        "y ~ x + nn(u, v)", train__epochs=30, sample=SHORT.model_dump() | {"chains": 1}
    )
    run = fit_model(config, small_frame(24), out=tmp_path / "run").run
    here = kfold(run, folds=2, save_fits=True, jobs=1)
    assert (run.path / "kfold" / "fold-2" / "run" / "manifest.json").is_file()
    there = kfold(run, folds=2, overwrite=True, backend=Elsewhere())
    assert not (run.path / "kfold" / "fold-2" / "run").exists()
    assert np.array_equal(here.rows.lpd, there.rows.lpd)


def test_a_task_takes_its_files_along(tmp_path):
    (tmp_path / "data.json").write_text("{}")
    content = pickle.loads(pickle.dumps(Content("data.json", tmp_path / "data.json")))
    assert content == Content("data.json", None, b"{}")
    (tmp_path / "there").mkdir()
    assert content.file(tmp_path / "there").read_text() == "{}"


def test_the_task_of_an_unfinished_run_of_an_earlier_version_starts_at_its_start(tmp_path):
    bundle, rows = random_bundle("gaussian")
    starts = find_starts(bundle, rows, SHORT)
    draw_chains(bundle, rows, tmp_path, replace_draws(SHORT, 1), starts)
    (tmp_path / "chains" / "chain-1.csv").unlink()
    tasks = chain_tasks(tmp_path, method_named("elliptical-slice"), bundle, SHORT, rows=rows)
    (task,) = tasks
    q, mode = task.begin(task.target())
    assert np.array_equal(mode.q, starts.modes[0].q)
    assert np.array_equal(mode.inv_metric, starts.modes[0].inv_metric)
    assert (mode.log_density, mode.steps) == (starts.modes[0].log_density, starts.modes[0].steps)
    old = Content("metric.json", None, b'{"inv_metric": [[1.0]]}')
    assert replace(task, mode=old).begin(task.target())[1].q == pytest.approx(q)
    assert replace(task, mode=None).begin(task.target())[1] is None


def replace_draws(options, draws):
    return options.model_copy(update={"draws": draws})


@pytest.mark.parametrize("in_thread", [True, False])
def test_results_and_reports_come_from_threads_and_processes(in_thread):
    tasks, told, kept = [Square(x, in_thread) for x in range(1, 6)], {}, {}

    def report(index):
        return Report(
            lambda *figures: told.__setitem__(index, figures),
            lambda state: kept.__setitem__(index, state),
        )

    found = dict(LOCAL.map(tasks, at_once=3, report=report))
    assert {i: square for i, (square, _) in found.items()} == {i: (i + 1) ** 2 for i in range(5)}
    assert told == {i: (i + 1, 100) for i in range(5)}
    assert kept == {i: b"%d" % (i + 1) for i in range(5)}
    processes = {process for _, process in found.values()}
    assert (processes == {os.getpid()}) == in_thread
    assert list(LOCAL.map([Square(2, in_thread)])) == [(0, (4, os.getpid()))]


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_failure_waits_for_what_is_running_and_begins_nothing(in_thread):
    tasks = [Square(13, in_thread), Square(2, in_thread, 3.0), Square(3, in_thread)]
    found, begun = {}, []
    with pytest.raises(InputError, match="13 brings bad luck"):
        for index, (square, _) in LOCAL.map(
            tasks, at_once=2, report=lambda _: Report(lambda x, _: begun.append(x))
        ):
            found[index] = square
    assert found[1] == 4
    assert sorted(begun) == [2, 13]


def test_a_process_that_dies_is_an_error():
    with pytest.raises(SemistanError, match="square of 99 failed: its process ended with status 7"):
        list(LOCAL.map([Square(99, False), Square(2, False)], at_once=2))


def test_an_interruption_stops_running_processes_and_keeps_what_is_finished():
    tasks = [Square(1, False), Square(2, False, 60.0)]
    found, started = [], time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        for index, _ in LOCAL.map(tasks, at_once=2):
            found.append(index)
            raise KeyboardInterrupt
    assert found == [0]
    assert time.monotonic() - started < 30


def test_a_process_that_starts_after_the_interruption_is_stopped_too():
    workers = Workers(1)
    workers.interrupt()
    started = time.monotonic()
    with pytest.raises(SemistanError, match="failed"):
        workers.run(Square(2, False, 60.0), SILENT)
    assert time.monotonic() - started < 30
