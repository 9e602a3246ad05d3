"""Fits with modules of the user's: beside the same networks, in files, and in other processes."""

import copy
import json
import pickle
import re
import sys
from dataclasses import replace
from html import unescape
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.density.target import log_posteriors, make_target
from semistan.errors import InputError
from semistan.infer.backends import local
from semistan.infer.backends.backend import SILENT
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.module import ModuleNetwork
from semistan.posterior.predictive import posterior_linpred
from semistan.posterior.run import read_run
from semistan.workflow.explain import slopes
from semistan.workflow.fit import fit_model
from semistan.workflow.priors import implied_prior, priors
from semistan.workflow.sample import read_fitted, sample
from semistan.workflow.subspace import subspace_measures
from semistan.workflow.train import train
from semistan.workflow.train_subspaces import resume
from support.command import command_in
from support.small import small_frame, small_prepared
from support.untrained import states

pytestmark = pytest.mark.usefixtures("here")
FORMULA = "y ~ x + nn(u, v, module='f')"
SAME = "y ~ x + nn(u, v)"
SHORT = {
    "train.epochs": 20, "train.device": "cpu", "subspace.k": 3, "sample.chains": 2,
    "sample.method": "elliptical-slice", "sample.warmup": 10, "sample.draws": 20,
}  # fmt: skip
IN_TORCH = {"sample__method": "elliptical-slice"}


class Net(nn.Module):
    """Another process can import it from here."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x))).squeeze(-1)


def module(seed=1):
    torch.manual_seed(seed)
    return Net()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit, its module, and what this was before."""
    net = module()
    before = copy.deepcopy(net)
    out = tmp_path_factory.mktemp("modules") / "run"
    return fit(out, net), net, before


def fit(out, net, formula=FORMULA, frame=None, **overrides):
    frame = small_frame() if frame is None else frame
    return fit_model(formula, frame, out=out, networks={"f": net}, overrides=SHORT | overrides)


# ------------------------------------------------------------ beside the network that there is


def test_the_log_density_is_that_of_the_same_network():
    settings = {"subspace__k": 4, "subspace__free": "output", "priors": {}, **IN_TORCH}
    prepared = small_prepared(SAME, **settings)
    bundle, rows = train(prepared), prepared.rows
    own = small_prepared(FORMULA, networks={"f": module()}, **settings)
    other = replace(bundle, config=own.config, design=own.design, modules=own.modules)
    q = states(bundle, 5)
    found, expected = (log_posteriors(make_target(one, rows), q) for one in (other, bundle))
    assert np.allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize(
    "construction", ["bezier", "low_rank_laplace", "subnetwork", "pca", "full"]
)
def test_training_finds_what_it_finds_with_the_same_network(construction, monkeypatch):
    same = FullyConnected(2, (3,))
    monkeypatch.setattr(ModuleNetwork, "initial", lambda _, generator: same.initial(generator))
    settings = {"subspace__construction": construction, "train__epochs": 20, "priors": {}}
    settings |= {"subspace__k": 3, **IN_TORCH}
    expected = train(small_prepared(SAME, **settings)).trained
    found = train(small_prepared(FORMULA, networks={"f": module()}, **settings)).trained
    for name in ("control_points", "theta", "singular_values"):
        assert np.allclose(getattr(found, name), getattr(expected, name), rtol=1e-7, atol=1e-9)
    phi = np.ones((1, expected.subspace.k))
    assert np.allclose(found.subspace.lift(phi), expected.subspace.lift(phi), rtol=1e-6)


# ----------------------------------------------------------------------------- a fit and its files


def test_a_fit_goes_on_without_being_given_the_module_again(fitted):
    result, _, _ = fitted
    rows, draws = result.run.rows(), result.posterior.draws
    units, bundle = result.run.bundle.units, result.run.bundle
    phi, theta = draws.flat(draws.phi), draws.flat(draws.theta)
    u = torch.tensor((rows.U - units.u_loc) / units.u_scale)
    by_hand = FullyConnected(2, (3,))
    f = by_hand.forward(torch.tensor(bundle.subspace.lift(phi)), u)[..., 0].numpy()
    eta = units.eta_loc + units.eta_scale * f + theta @ (rows.X - units.x_loc).T
    assert np.allclose(posterior_linpred(result.posterior, rows), eta, rtol=1e-11)
    assert len(semistan.predict(result.run, small_frame(5, seed=3))) == 5
    assert "Network: module 'f'; 13 weights in a subspace of k = 3" in repr(result)


def test_the_users_module_is_not_changed(fitted):
    _, net, before = fitted
    state = before.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    assert net.inner.weight.dtype == torch.float32
    assert net.training
    assert all(p.grad is None for p in net.parameters())


def test_no_file_holds_the_module(fitted):
    run = fitted[0].run.path
    assert {path.name for path in (run / "bundle").iterdir()} == {"bundle.json", "arrays.npz"}
    content = json.loads((run / "bundle" / "bundle.json").read_text())
    assert content["modules"]["f"]["parameters"] == [
        ["inner.weight", [3, 2]], ["inner.bias", [3]],
        ["outer.weight", [1, 3]], ["outer.bias", [1]],
    ]  # fmt: skip
    assert content["modules"]["f"]["output"] == "outer"
    assert "module" not in content["config"]["network"]
    with ZipFile(run / "bundle" / "arrays.npz") as arrays:
        assert all(name.endswith(".npy") for name in arrays.namelist())
    for path in run.rglob("*"):
        assert not path.is_file() or b"test_modules" not in path.read_bytes()
    program = (run / "program.stan").read_text()
    assert program.startswith("// The network module 'f' is computed by PyTorch alone")


def test_a_run_is_read_with_the_module_or_looked_at_without(fitted):
    result, net, _ = fitted
    run, frame = result.run.path, small_frame(5, seed=3)
    expected = semistan.predict(result.run, frame)
    again = read_run(run, {"f": net})
    pd.testing.assert_frame_equal(semistan.predict(again, frame), expected)
    assert repr(read_fitted(run, {"f": net})) == repr(result)
    alone = read_run(run)
    assert repr(alone) == repr(result.run)
    assert len(semistan.draws(alone)) == 40
    assert len(priors(alone)) == len(priors(again))
    message = r"a torch.nn.Module that is not in the files; .*read_fit\(path, networks"
    for ask in (lambda: semistan.predict(run, frame), lambda: read_fitted(run)):
        with pytest.raises(InputError, match=message):
            ask()
    with pytest.raises(InputError, match="module 'f' is another one than that of the fit"):
        read_run(run, {"f": nn.Linear(2, 1)})


def test_a_bundle_is_written_and_read_without_graphs(fitted, tmp_path):
    result, net, _ = fitted
    write_bundle(result.run.bundle, tmp_path / "bundle")
    read = read_bundle(tmp_path / "bundle", {"f": net})
    assert read.sha256 == result.run.bundle.sha256
    assert read.modules == result.run.bundle.modules
    with pytest.raises(InputError, match="module 'f' has no ONNX graph; use engine 'torch'"):
        semistan.predict(result.run, small_frame(3), engine="onnx")


@pytest.mark.lengthy
def test_what_asks_for_more_than_predictions(fitted, tmp_path):
    result, _, _ = fitted
    run, frame = result.run, small_frame(20, seed=5)
    assert np.isfinite(semistan.score(run, frame)["Estimate"]).all()
    assert len(slopes(run)) == 3
    assert len(semistan.importance(run, frame)) == 3
    assert "measure" in subspace_measures(run.bundle, run.rows())
    page = semistan.report(run, tmp_path / "report.html").read_text()
    assert "networks={'f': f}" in unescape(re.sub("<[^>]*>", "", page))


def test_priors_before_training():
    options = {"networks": {"f": module()}, "overrides": {"sample.method": "mclmc"}}
    assert "b_x" in set(priors(FORMULA, small_frame(), **options)["parameter"])
    (found,) = implied_prior(FORMULA, small_frame(), **options)
    assert found.sd > 0


def test_the_command_line_says_that_modules_are_for_python(fitted, tmp_path, monkeypatch, capsys):
    run = command_in(tmp_path, monkeypatch, capsys)
    small_frame().to_csv(tmp_path / "table.csv", index=False)
    fitting = ("fit", FORMULA, "--data", "table.csv", "--method", "mclmc", "--out", "run")
    status, _, err = run(*fitting)
    assert status == 2
    assert "Modules are given in Python alone" in " ".join(err.split())
    status, _, err = run("predict", fitted[0].run.path, "--newdata", "table.csv", "--out", "p.csv")
    assert status == 2
    assert "semistan.read_fit(path, networks={'f': module})" in " ".join(err.split())


# ----------------------------------------------------------------------------- more than one fit


@pytest.mark.lengthy
def test_several_subspaces_and_an_interruption(tmp_path):
    net, run = module(), tmp_path / "run"
    result = fit(
        run, net, **{"subspace.subspaces": 2, "sample.chains": 1, "sample.method": "laplace"}
    )
    points = [part.bundle.trained.control_points for part in result.run.parts]
    assert not np.allclose(points[0], points[1])
    expected = semistan.predict(result.run, small_frame(4))
    for path in sorted((run / "subspaces" / "2").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    resumed = sample(resume(run, networks={"f": net}))
    pd.testing.assert_frame_equal(semistan.predict(resumed.run, small_frame(4)), expected)
    with pytest.raises(InputError, match="no module 'f' is given"):
        (run / "subspaces" / "2" / "manifest.json").unlink()
        resume(run)


@pytest.mark.lengthy
def test_kfold_trains_it_anew(tmp_path):
    net, run = module(), tmp_path / "run"
    result = fit(run, net, **{"sample.method": "laplace", "train.epochs": 5})
    folds = semistan.kfold(result.run, folds=2, jobs=1)
    assert np.isfinite(folds.rows.lpd).all()
    assert sorted(set(folds.fold)) == [1, 2]


@pytest.mark.lengthy
@pytest.mark.parametrize("method", ["mclmc", "laplace"])
def test_modules_without_vmap_are_sampled(method, tmp_path):
    class Steps(Net):
        def forward(self, x):
            h = torch.tanh(self.inner(x))
            return self.outer(h if h.detach().sum() > -1e9 else -h)

    net = Steps()
    result = fit(tmp_path / "run", net, **{"sample.method": method})
    assert not result.run.bundle.modules["f"].batches
    assert np.isfinite(semistan.predict(result.run, small_frame(3))["Estimate"]).all()


# ----------------------------------------------------------------------------- images


class Pooled(nn.Module):
    """A convolution, and the mean of its channels."""

    def __init__(self):
        super().__init__()
        self.filters, self.norm, self.out = nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.Linear(3, 1)

    def forward(self, x):
        h = torch.tanh(self.norm(self.filters(x)))
        return self.out(h.mean(dim=(2, 3)))


@pytest.mark.lengthy
def test_it_takes_images(tmp_path):
    generator = np.random.default_rng(0)
    images = generator.normal(3, 2, (24, 2, 5, 6))
    frame = small_frame(24).assign(image=list(images))
    net = Pooled()
    result = fit(tmp_path / "run", net, "y ~ x + nn(image(image), module='f')", frame)
    bundle, posterior = result.run.bundle, result.posterior
    assert bundle.modules["f"].shape == (2, 5, 6)
    assert [layer.m for layer in bundle.network.parts[0].layers()] == [18, 3]
    mean = images.mean(axis=(0, 2, 3))[:, None, None]
    sd = images.std(axis=(0, 2, 3), ddof=1)[:, None, None]
    w = bundle.subspace.lift(posterior.draws.flat(posterior.draws.phi))[7]
    own = copy.deepcopy(net).double()
    torch.nn.utils.vector_to_parameters(torch.tensor(w), own.parameters())
    f = own(torch.tensor((images - mean) / sd))[:, 0].detach().numpy()
    theta = posterior.draws.flat(posterior.draws.theta)[7]
    eta = bundle.units.eta_loc + bundle.units.eta_scale * f
    eta = eta + (result.run.rows().X - bundle.units.x_loc) @ theta
    found = posterior_linpred(posterior, result.run.rows())[7]
    assert np.allclose(found, eta, rtol=1e-10)


# ----------------------------------------------------------------------------- other processes


class Task:
    """Evaluates a module, and says where."""

    name, in_thread = "a task", False

    def __init__(self, net):
        self.net = net

    def run(self, _):
        return sys.argv[0], type(self.net).__name__


@pytest.fixture
def two_processors(monkeypatch):
    monkeypatch.setattr(local, "usable_processors", lambda: [0, 0])


def done(net):
    return sorted(local.LOCAL.map([Task(net), Task(net)], report=lambda _: SILENT))


def test_tasks_with_a_module_of_a_notebook_are_done_here(two_processors, monkeypatch):
    made = type("Made", (Net,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Made", made, raising=False)
    pickle.dumps(made())  # by its name, which another process would not find
    assert done(made()) == [(i, (sys.argv[0], "Made")) for i in range(2)]


def test_tasks_that_cannot_be_pickled_are_done_here(two_processors):
    class Local(Net):
        pass

    with_function = Net()
    with_function.activate = lambda x: x
    assert done(Local()) == [(i, (sys.argv[0], "Local")) for i in range(2)]
    assert done(with_function) == [(i, (sys.argv[0], "Net")) for i in range(2)]


@pytest.mark.lengthy
def test_chains_in_other_processes_are_the_same(two_processors, monkeypatch, tmp_path):
    net = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1))
    elsewhere = fit(tmp_path / "elsewhere", net)
    monkeypatch.setattr(local, "usable_processors", lambda: [0])
    result = fit(tmp_path / "here", net)
    for one, other in zip(result.run.csv_files(), elsewhere.run.csv_files(), strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.lengthy
def test_other_tasks_go_to_processes_that_import_from_the_same_folders(
    two_processors, monkeypatch, tmp_path
):
    (tmp_path / "users_nets.py").write_text(
        "import sys\n"
        "class Task:\n"
        "    name, in_thread = 'a task', False\n"
        "    def run(self, report):\n"
        "        return sys.argv[0]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import users_nets

    tasks = [users_nets.Task(), users_nets.Task()]
    for _, where in local.LOCAL.map(tasks, report=lambda _: SILENT):
        assert where.endswith("worker.py")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_the_table_is_read(tmp_path, monkeypatch, capsys):
    message = "train.device is 'cuda', but PyTorch finds no CUDA device; use 'auto' or 'cpu'"
    for verb in (priors, implied_prior):
        with pytest.raises(InputError, match=message):
            verb(
                FORMULA, small_frame(), networks={"f": module()},
                overrides={"train.device": "cuda"},
            )  # fmt: skip
    with pytest.raises(InputError, match=message):
        fit(tmp_path / "run", module(), **{"train.device": "cuda"})
    assert not (tmp_path / "run").exists()
    run = command_in(tmp_path, monkeypatch, capsys)
    for stage in ([], ["--train-only"]):
        options = ("--data", "no.csv", "--device", "cuda", "--out", "o", *stage)
        status, _, err = run("fit", "y ~ x + nn(u, v)", *options)
        assert status == 2
        assert message in " ".join(err.split())
