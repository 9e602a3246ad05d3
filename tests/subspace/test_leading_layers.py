"""Constant layers are trained first, with the rest of their network; then the heads are."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from semistan.density.inputs import Inputs
from semistan.density.problem import Problem, make_problem
from semistan.errors import SemistanError
from semistan.model.config import TrainConfig
from semistan.model.construction import CONSTRUCTIONS
from semistan.model.families.families import FAMILIES
from semistan.model.networks.mlp import FullyConnected
from semistan.model.networks.networks import Networks, initial
from semistan.subspace import connecting_curve, descent, leading_layers, trajectory
from semistan.subspace.construction import training_epochs
from semistan.subspace.descent import batches, held_out_rows, split_rows
from semistan.subspace.leading_layers import batched, train_leading_layers
from semistan.workflow.prepare import prepare
from semistan.workflow.train import train
from support.random_problem import random_problem
from support.small import (
    MORE_RESPONSES,
    RESPONSES,
    category_bundle,
    family_bundle,
    small_bundle,
    small_config,
    small_frame,
    small_prepared,
)

FROZEN = {"network__hidden": [4, 3], "network__frozen": 2}
FORMULA = "y ~ x + nn(u, v)"
SEVERAL = "y ~ x + s(v) + (1 | g) + nn(u, v) + nn(z, hidden=[2, 2, 2]), sigma ~ z + nn(v)"
MANY = pytest.mark.parametrize("name", list(CONSTRUCTIONS))


def prepared_of(formula=FORMULA, frame=None, **settings):
    return small_prepared(formula, frame, **(FROZEN | settings))


def trained_first(prepared, progress=None, seed=1):
    """What comes out of the first stage of training a model."""
    model, options = prepared.model, prepared.config.train
    problem = make_problem(model, prepared.rows, "cpu")
    generator = torch.Generator().manual_seed(seed)
    return train_leading_layers(problem, model.leading, options, generator, progress)


# ----------------------------------------------------------------------------- the first stage


def signal_frame(noise):
    """The small frame, in which the responses depend on u and v but for noise alone."""
    frame = small_frame()
    if noise:
        return frame
    f = (frame["u"] - 3) / 0.1 + np.tanh(frame["v"] / 40)
    return frame.assign(y=50 + 7 * f, count=np.round(np.exp(1 + f / 2)), flag=(f > 0).astype(int))


def module_of(widths, weights):
    """PyTorch's own network in single precision, with the flat weights as its parameters."""
    pairs = [(torch.nn.Linear(m, n), torch.nn.Tanh()) for m, n in pairwise(widths)]
    module = torch.nn.Sequential(*[part for pair in pairs for part in pair][:-1])
    torch.nn.utils.vector_to_parameters(weights.to(torch.float32), module.parameters())
    return module


def adam(parameters, gradients, moments, step, rate):
    """One step of Adam (Kingma and Ba, 2015), algorithm 1."""
    with torch.no_grad():
        for p, g, (m, v) in zip(parameters, gradients, moments, strict=True):
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            p.sub_(rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))


def by_plain_pytorch(prepared, seed=1):
    """Flat weights of least validation loss, those at the start, and both losses on the way."""
    options = prepared.config.train
    epochs, rate, patience = options.epochs, 0.2 * options.rate, options.epochs // 5
    rows, units, family = prepared.rows, prepared.model.units, prepared.model.family.name
    single = partial(torch.tensor, dtype=torch.float32)
    Z, U = single((rows.X - units.x_loc) / units.x_scale), (rows.U - units.u_loc) / units.u_scale
    U, y, n = single(U), single(rows.y), len(rows)
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.randperm(n, generator=generator)[: round(0.2 * n)]
    rest = torch.tensor([i for i in range(n) if i not in held_out.tolist()])
    few = rest[torch.linspace(0, len(rest) - 1, len(held_out)).round().long()]  # recorded
    whole = prepared.model.leading.whole
    start = initial(whole, generator)
    module = module_of(whole.parts[0].widths, start)
    theta, log_sigma = torch.zeros(Z.shape[1], requires_grad=True), torch.zeros(1)
    parameters = [*module.parameters(), theta, log_sigma.requires_grad_()]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    def loss(index):
        f = module(U[index])[:, 0] + Z[index] @ theta
        eta = units.eta_loc + units.eta_scale * f
        distributions = torch.distributions
        log_lik = {
            "gaussian": lambda: distributions.Normal(eta, units.eta_scale * log_sigma.exp()),
            "poisson": lambda: distributions.Poisson(eta.exp()),
            "bernoulli": lambda: distributions.Bernoulli(logits=eta),
        }
        return -log_lik[family]().log_prob(y[index]).mean()

    best, least, kept, losses = None, np.inf, 0, []
    for step in range(1, epochs + 1):
        gradients = torch.autograd.grad(loss(rest), parameters, allow_unused=True)
        used = [torch.zeros(1) if g is None else g for g in gradients]
        adam(parameters, used, moments, step, rate * (1 + np.cos(np.pi * (step - 1) / epochs)) / 2)
        with torch.no_grad():
            losses.append((float(loss(few)), float(loss(held_out))))
        if losses[-1][1] < least:
            flat = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
            best, least, kept = flat.clone(), losses[-1][1], step
        if step - kept > patience:
            break
    return best.to(torch.float64).numpy(), start.numpy(), np.array(losses)


@pytest.mark.parametrize(("rate", "stops"), [(0.05, False), (0.2, True)])
@pytest.mark.parametrize("name", RESPONSES)
def test_constant_weights_are_those_of_plain_pytorch(name, rate, stops):
    settings = {"train__epochs": 60, "train__learning_rate": rate, "train__validation": 0.2}
    formula = FORMULA.replace("y", RESPONSES[name], 1)
    prepared = prepared_of(formula, signal_frame(stops), family=name, **settings)
    found, history = trained_first(prepared)
    weights, start, losses = by_plain_pytorch(prepared)
    assert (len(losses) < 60) == stops
    assert np.array_equal(history["epoch"], np.arange(1, len(losses) + 1))
    recorded = np.column_stack([history["loss"], history["validation_loss"]])
    assert np.allclose(recorded, losses, rtol=1e-3)
    expected = weights[: len(found.w_frozen)]
    moved = np.abs(expected - start[: len(expected)])
    assert (moved > 1e-3).mean() > 0.8
    # rounding in single precision, which steps of a fixed length blow up where gradients vanish
    assert np.abs(found.w_frozen - expected).max() < 1e-3 * moved.max()
    assert np.array_equal(found.w_frozen, found.w_frozen.astype(np.float32))


def test_the_prior_of_the_weights_is_not_that_of_constants():
    one, two = (
        trained_first(prepared_of(priors=priors, train__epochs=10))[0].w_frozen
        for priors in ({"phi": "normal(0, 5)"}, {"w": "normal(0, 0.1)"})
    )
    assert np.array_equal(one, two)


@pytest.mark.parametrize("formula", [FORMULA, SEVERAL])
def test_the_loss_of_the_whole_network_falls(formula):
    prepared = prepared_of(formula, train__epochs=200, train__learning_rate=0.1)
    _, history = trained_first(prepared)
    assert history["loss"][-1] < history["loss"][0] - 0.05


@pytest.mark.parametrize("settings", [{}, {"train__batch_size": 7}], ids=str)
def test_the_seed_decides_everything(settings):
    prepared = prepared_of(SEVERAL, train__epochs=6, **settings)
    torch.manual_seed(0)
    (one, first), (other, _) = trained_first(prepared), trained_first(prepared, seed=2)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    two, second = trained_first(prepared)
    for name in ("w_frozen", "h_loc", "h_scale"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert torch.equal(one.problem.U, two.problem.U)
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert not np.array_equal(one.w_frozen, other.w_frozen)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("formula", [FORMULA, SEVERAL])
def test_what_follows_begins_at_the_features(formula):
    prepared = prepared_of(formula)
    model = prepared.model
    problem = make_problem(model, prepared.rows, "cpu")
    found, _ = trained_first(prepared)
    heads, w_frozen = found.problem, torch.tensor(found.w_frozen)
    assert w_frozen.shape == (sum(model.leading.sizes),)
    assert w_frozen.dtype == heads.U.dtype == heads.y.dtype == torch.float64
    assert heads.network == model.network
    H = model.leading.features(w_frozen, problem.U).numpy()
    assert np.allclose(found.h_loc, H.mean(axis=0), rtol=1e-12)
    assert np.allclose(found.h_scale, H.std(axis=0, ddof=1), rtol=1e-12)
    assert np.allclose(heads.U, (H - found.h_loc) / found.h_scale, rtol=1e-12, atol=1e-13)
    assert torch.equal(heads.y, problem.y)
    assert not heads.U.requires_grad
    assert len(heads.held_out) == 6


@pytest.mark.parametrize("record", FAMILIES, ids=lambda record: record.name)
def test_single_precision_has_the_losses_of_double(record):
    problem, state = random_problem(record.name)
    single = replace(problem, inputs=problem.inputs.single())
    found = single.row_losses(replace(state, w=state.w.to(torch.float32)))
    assert found.dtype == torch.float64  # the network alone is computed in single precision
    expected = problem.row_losses(state).numpy()
    assert found.numpy() == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", [*RESPONSES, *MORE_RESPONSES, "cumulative", "categorical"])
def test_every_family_has_constant_layers(name):
    make = category_bundle if name in ("cumulative", "categorical") else family_bundle
    bundle, _ = make(name, **FROZEN)
    assert np.isfinite(bundle.trained.w_frozen).all()
    assert np.isfinite(bundle.trained.history["loss"]).all()


@pytest.mark.parametrize("validation", [0.0, 0.3])
def test_with_every_kind_of_term(validation):
    formula = "y | weights(z) ~ x + offset(log(z)) + s(u, k=4) + (1 + x | g) + nn(v), sigma ~ nn(u)"
    bundle, _ = small_bundle(formula, **FROZEN, train__validation=validation)
    assert len(bundle.trained.w_frozen) == 2 * (4 + 4 + 4 * 3 + 3)
    assert np.isfinite(bundle.trained.history["loss"]).all()


def test_a_response_far_from_zero_is_trained_on_as_one_near_it():
    frame = small_frame(60)
    near, far = (
        trained_first(prepared_of(FORMULA, frame.assign(y=frame["y"] + shift), train__epochs=30))
        for shift in (0.0, 2.0**20)
    )
    assert np.allclose(near[0].w_frozen, far[0].w_frozen, atol=1e-3)


def test_training_that_diverges_is_an_error():
    config = small_config("count ~ x + nn(u, v)", family="poisson", **FROZEN)
    steep = config.train.model_copy(update={"learning_rate": 1e6})  # no user may ask for it
    prepared = prepare(config.model_copy(update={"train": steep}), small_frame())
    with pytest.raises(SemistanError, match="training diverged"):
        train(prepared)


# ----------------------------------------------------------------------------- rows held out


def held_out_problem(n=20):
    return random_problem(n=n)[0]


@pytest.mark.parametrize(("share", "n", "count"), [(0.2, 20, 4), (0.01, 20, 0), (0.9, 2, 1)])
def test_so_many_rows_are_held_out(share, n, count):
    found = held_out_rows(held_out_problem(n), share, torch.Generator().manual_seed(1))
    assert (0 if found is None else len(set(found.tolist()))) == count


def test_rows_held_out_before_are_held_out_again():
    problem = held_out_problem()
    chosen = torch.tensor([7, 3, 12])
    state = torch.Generator().manual_seed(1)
    before = state.get_state()
    training, validation = split_rows(replace(problem, held_out=chosen), 0.5, state)
    assert torch.equal(validation.y, problem.y[chosen])
    others = [i for i in range(20) if i not in (7, 3, 12)]
    assert torch.equal(training.y, problem.y[others])
    assert torch.equal(state.get_state(), before)
    assert training.held_out is validation.held_out is None


def recorded(monkeypatch):
    """Record the rows on which losses are looked at, and those of each gradient, with inputs."""
    looked_at, taken, found, loss = [], [], descent.recorded_losses, Problem.loss

    def key(problem):
        return frozenset(np.float32(problem.y.numpy()).tolist())

    def spy(rows, parameters):
        looked_at.append(tuple(map(key, rows)))
        return found(rows, parameters)

    def spied_loss(problem, state):
        if torch.is_grad_enabled():
            taken.append((problem.U.shape[1], problem.U.dtype, key(problem)))
        return loss(problem, state)

    for module in (descent, trajectory):
        monkeypatch.setattr(module, "recorded_losses", spy)
    monkeypatch.setattr(Problem, "loss", spied_loss)
    return looked_at, taken


@pytest.mark.parametrize("size", [0, 7])
@MANY
def test_all_stages_hold_out_the_same_rows_and_train_on_no_others(monkeypatch, name, size):
    looked_at, taken = recorded(monkeypatch)
    settings = {"subspace__construction": name, "subspace__snapshots": 4, "train__epochs": 4}
    _, rows = small_bundle(FORMULA, **FROZEN, **settings, train__batch_size=size)
    ((few, held_out), (training, same)) = sorted(set(looked_at), key=lambda pair: len(pair[0]))
    assert (len(training), len(held_out), training & held_out) == (24, 6, frozenset())
    assert (same, len(few), few - training) == (held_out, 6, frozenset())
    assert training | held_out == frozenset(np.float32(rows.y).tolist())
    for stage in ((2, torch.float32), (3, torch.float64)):  # inputs, then features
        seen = [key for *where, key in taken if tuple(where) == stage]
        assert frozenset().union(*seen) == training, stage
    assert len({tuple(where) for *where, _ in taken}) == 2


def test_without_validation_all_rows_are_trained_on(monkeypatch):
    looked_at, taken = recorded(monkeypatch)
    _, rows = small_bundle(FORMULA, **FROZEN, train__validation=0.0)
    every = frozenset(np.float32(rows.y).tolist())
    assert set(looked_at) == {(every, every)}
    assert {key for *_, key in taken} == {every}


def test_rows_held_out_do_not_move_the_constants(monkeypatch):
    """What is held out decides which state is the best, and nothing else."""
    monkeypatch.setattr(descent, "RECORDS", 1)  # only the last is looked at
    prepared = prepared_of(train__epochs=20, train__learning_rate=0.1)
    problem, model = make_problem(prepared.model, prepared.rows, "cpu"), prepared.model
    held_out = held_out_rows(problem, 0.2, torch.Generator().manual_seed(1))
    other = replace(problem, y=problem.y.clone(), inputs=Inputs(problem.U.clone()))
    other.y[held_out] += 1.0
    other.U[held_out] *= -2
    rest = torch.tensor([i for i in range(30) if i not in held_out.tolist()])
    third = replace(problem, y=problem.y.clone())
    third.y[rest] += 1.0
    constants = [
        train_leading_layers(
            each, model.leading, prepared.config.train, torch.Generator().manual_seed(1)
        )[0].w_frozen
        for each in (problem, other, third)
    ]
    assert np.array_equal(constants[0], constants[1])
    assert not np.array_equal(constants[0], constants[2])


def test_all_members_of_a_curve_hold_out_the_rows_of_the_first_stage(monkeypatch):
    given, descend = [], connecting_curve.descend

    def spy(problem, *arguments, **options):
        given.append(problem.held_out.tolist())
        return descend(problem, *arguments, **options)

    monkeypatch.setattr(connecting_curve, "descend", spy)
    small_bundle(FORMULA, **FROZEN, subspace__construction="curve")
    assert len(given) == 3
    assert given[0] == given[1] == given[2]


# ----------------------------------------------------------------------------- epochs and batches


def wide(widest, rows):
    problem, _ = random_problem(n=rows)
    return replace(problem, network=Networks((FullyConnected(3, (widest,)),)))


@pytest.mark.parametrize(
    ("widest", "rows", "given", "size", "epochs"),
    [
        (4, 30, 0, 30, 100),  # one batch: an epoch is a step
        (4, 4096, 0, 4096, 100),
        (4, 5000, 0, 1024, 20),  # five steps an epoch
        (1_000, 3000, 0, 1000, 34),
        (100_000, 100, 0, 32, 25),  # no fewer than 32 rows
        (100_000, 20, 0, 20, 100),
        (4, 30, 7, 7, 20),
        (4, 30, 200, 200, 100),
        (100_000, 100, 50, 50, 50),  # what the user says
        (4, 5000, 1, 1, 1),
    ],
)
def test_as_many_steps_are_taken_as_training_has_epochs(widest, rows, given, size, epochs):
    options = TrainConfig(epochs=100, batch_size=given)
    problem = wide(widest, rows)
    found = batched(problem, options)
    assert (found.batch_size, found.epochs) == (size, epochs)
    steps = sum(1 for _ in batches(problem, found.batch_size, torch.Generator()))
    assert 100 <= steps * epochs < 100 + steps
    assert found.learning_rate == pytest.approx(options.rate / 5)
    same = {name: getattr(options, name) for name in ("batch_size", "epochs", "learning_rate")}
    assert found.model_copy(update=same) == options


def test_rows_held_out_are_in_no_batch():
    problem = replace(wide(4, 40), held_out=torch.arange(10))
    found = batched(problem, TrainConfig(epochs=99, batch_size=15))
    assert (found.batch_size, found.epochs) == (15, 50)
    assert batched(problem, TrainConfig(epochs=99)).batch_size == 30


@pytest.fixture
def until_the_end(monkeypatch):
    """Train the constants for all epochs."""
    monkeypatch.setattr(leading_layers, "PATIENCE", 1.0)


def test_training_that_stops_early_is_counted_as_far_as_it_came():
    seen = []
    prepared = prepared_of(train__epochs=100, train__learning_rate=0.2)
    _, history = trained_first(prepared, lambda *record: seen.append(record))
    last = len(history["epoch"])
    assert last < 100
    assert last - history["epoch"][history["validation_loss"].argmin()] == 21
    assert [epoch for epoch, *_ in seen] == list(range(1, last + 1))
    bundle = train(prepared, lambda *record: seen.append(record))
    assert seen[-1][0] == training_epochs(prepared.config) == 200
    assert bundle.trained.history["epoch"][-1] < 200


@pytest.mark.parametrize(("epochs", "size"), [(1, 0), (3, 7), (100, 0), (100, 7), (130, 5)])
def test_progress_counts_the_epochs_of_training(epochs, size, until_the_end):
    seen = []
    prepared = prepared_of(train__epochs=epochs, train__batch_size=size)
    _, history = trained_first(prepared, lambda *record: seen.append(record))
    counted = [epoch for epoch, *_ in seen]
    assert counted[-1] == epochs
    assert (np.diff(counted) >= 0).all()
    assert all(isinstance(epoch, int) and 0 <= epoch <= epochs for epoch in counted)
    losses = np.array([losses for _, *losses in seen]).T
    assert np.array_equal(losses, [history["loss"], history["validation_loss"]])
    assert len(seen) <= descent.RECORDS


@MANY
@pytest.mark.parametrize("size", [0, 7])
def test_progress_goes_on_over_all_stages(name, size, until_the_end):
    seen = []
    prepared = prepared_of(
        train__epochs=30, train__batch_size=size, subspace__construction=name,
        subspace__snapshots=4,
    )  # fmt: skip
    bundle = train(prepared, lambda *record: seen.append(record))
    counted = [epoch for epoch, *_ in seen]
    assert (np.diff(counted) >= 0).all()
    assert counted[-1] == training_epochs(prepared.config)
    assert 30 in counted
    assert len(seen) == len(bundle.trained.history["loss"])


ONE = "y ~ x + nn(u) + nn(v, hidden=[4, 3], frozen=1)"


@pytest.mark.parametrize(
    ("formula", "frozen", "expected"),
    [
        (ONE, "auto", 60), (ONE.replace("1)", "0)"), "auto", 30), (ONE, 0, 60),
        ("y ~ x + nn(u, frozen=0)", 1, 30), ("y ~ x + nn(u, frozen=0) + nn(v)", 1, 60),
        ("y ~ x + nn(u_*) + nn(v, frozen=0)", 1, 60), ("y ~ x + nn(u_*)", "auto", 30),
    ],
)  # fmt: skip
def test_layers_that_one_network_alone_has_constant_are_counted(
    formula, frozen, expected, until_the_end
):
    counted, frame = [], small_frame().assign(u_1=lambda table: table["u"])
    settings = {"network__hidden": [4, 3], "network__frozen": frozen, "train__epochs": 30}
    config = small_config(formula, **settings)
    train(small_prepared(formula, frame, **settings), lambda epoch, *_: counted.append(epoch))
    assert training_epochs(config) == counted[-1] == expected


def test_convolutions_are_counted_where_an_image_has_them():
    plain = training_epochs(small_config("y ~ nn(u)"))
    for options, more in {"": 3, ", hidden=[3]": 3, ", kind='mlp'": 0, ", frozen=0": 0}.items():
        config = small_config(f"y ~ nn(u) + nn(image(p, size=8){options})")
        assert training_epochs(config) == plain + more, options


def test_constant_layers_take_as_many_epochs_more():
    free = small_prepared(network__hidden=[4, 3], train__epochs=30)
    extra = training_epochs(prepared_of(train__epochs=30).config) - training_epochs(free.config)
    assert extra == 30


@MANY
def test_the_history_has_the_first_stage_before_the_others(name, until_the_end):
    settings = {"subspace__construction": name, "subspace__snapshots": 4, "train__epochs": 9}
    frozen, _ = small_bundle(FORMULA, **FROZEN, **settings)
    plain, _ = small_bundle(FORMULA, network__hidden=[4, 3], **settings)
    history, alone = frozen.trained.history, plain.trained.history
    stages, further = history["stage"], alone.get("stage", np.ones(len(alone["epoch"])))
    assert np.array_equal(stages, np.append(np.ones(9), further + 1))
    assert np.array_equal(history["epoch"][:9], np.arange(1, 10))
    assert np.array_equal(history["epoch"][9:], alone["epoch"] + 9)
    assert (history["arc_length"][:9] == 0).all()
