"""A kind of term is one file: decay whose rate is sampled, so that its basis is, defined here."""
# ruff: noqa: ARG002 - the protocol says which arguments there are

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.bundle.bundle import read_bundle, write_bundle
from semistan.errors import InputError
from semistan.model.formula.formula import parse_formula
from semistan.model.parameter import STANDARD_NORMAL, Parameter
from semistan.model.priors.classes import CLASSES, PriorClass
from semistan.model.priors.lines import priors_as_used
from semistan.model.table.columns import evaluate
from semistan.model.table.rows import Block
from semistan.model.terms.kinds import KINDS, TermKind
from semistan.model.terms.term import Hyperparameter
from semistan.workflow.fit import fit_model
from semistan.workflow.prepare import new_rows
from support.columns import assert_program
from support.small import small_bundle
from support.untrained import random_bundle

N = 300


@dataclass(frozen=True, slots=True, eq=False)
class Decay:
    """a exp(-rate x / scale), where a = sd z."""

    expression: str
    name: str
    scale: float
    key: str

    stored = "decays"

    @property
    def text(self):
        return f"decay({self.expression})"

    @property
    def described(self):
        return "Decay", f"{self.text}, over {self.scale:.3g}"

    @property
    def rate(self):
        return f"rate_{self.name}"

    @property
    def sd(self):
        return f"sddecay_{self.name}"

    @property
    def z(self):
        return f"zd_{self.key}"

    @property
    def amplitude(self):
        return f"a_{self.key}"

    def to_plain(self):
        return {"expression": self.expression, "name": self.name, "scale": self.scale}

    def block(self, table, *, allow_new_levels=False):
        x = evaluate(self.expression, table) / self.scale
        return Block(x[:, None], np.zeros(len(x), dtype=int))

    def parameters(self, priors):
        return (Parameter(self.z, f"size of {self.text}", prior=STANDARD_NORMAL),)

    def hyperparameters(self):
        return (
            Hyperparameter(self.sd, f"standard deviation of {self.text}", "sddecay"),
            Hyperparameter(self.rate, f"rate of {self.text}", "rate"),
        )

    def data_lines(self):
        return [(f"vector[N] xd_{self.key};", f"'{self.expression}' over its unit")]

    def data(self, block):
        return {f"xd_{self.key}": block.Z[:, 0]}

    def arguments(self):
        return [f"data vector xd_{self.key}"], [f"real {self.amplitude}", f"real {self.rate}"]

    def made_lines(self):
        return [(f"real {self.amplitude} = {self.sd} * {self.z};", f"value of {self.text} at 0")]

    def summand(self, rows):
        return f"{self.amplitude} * exp(-{self.rate} * xd_{self.key}{rows})"

    def quantity_lines(self):
        return []

    def value(self, values, block):
        return self.made(values)[self.amplitude] * (-values[self.rate] * block.Z[:, 0]).exp()

    @property
    def made_shapes(self):
        return {self.amplitude: ()}

    def made(self, values):
        return {self.amplitude: values[self.sd] * values[self.z]}

    def quantities(self, values):
        return {}

    def predicted(self, draws, block, streams):
        return draws[self.amplitude][:, None] * np.exp(-np.outer(draws[self.rate], block.Z[:, 0]))

    @property
    def reported(self):
        return (self.sd, self.rate)

    def labels(self):
        return {item.name: item.text for item in self.hyperparameters()}

    @property
    def elements(self):
        return {}

    training_size = 2

    def training_value(self, x, block):
        return x[0] * (-x[1].exp() * block.Z[:, 0]).exp()

    def training_columns(self, block):
        return None

    def training_units(self, scale):
        return np.array([scale, 1.0])

    def start(self, x, scale):
        sd = max(abs(x[0]), 0.1 * scale)
        return {self.z: x[0] / sd, self.sd: sd, self.rate: np.exp(x[1])}


def learn(call, table, name, key):
    x = evaluate(call.expression, table)
    if (x < 0).any():
        raise InputError(f"{call.text} needs values of 0 or more, got {x.min():g}")
    return Decay(call.expression, name, float(x.mean()), key)


def from_plain(plain, key):
    return Decay(plain["expression"], plain["name"], plain["scale"], key)


@pytest.fixture(scope="module", autouse=True)
def registered():
    kind = TermKind(
        takes="one expression, as decay(t)", stored="decays", learn=learn, from_plain=from_plain
    )
    with pytest.MonkeyPatch.context() as context:
        context.setitem(KINDS, "decay", kind)
        for name, prior in (("sddecay", "student_t(3, 0, 2.5)"), ("rate", "lognormal(0, 0.5)")):
            words = f"{name}s of decay()"
            context.setitem(CLASSES, name, PriorClass(words, prior, prefix=(name,)))
        yield


def test_it_is_read_and_what_it_does_not_take_is_refused():
    (call,) = parse_formula("y ~ x + decay(log(z)) + nn(u)").mean.calls
    assert (call.kind, call.expression) == ("decay", "log(z)")
    for wrong in ("decay(z, 3)", "decay(z, k=3)", "decay()"):
        with pytest.raises(InputError, match=r"decay\(\) takes one expression, as decay\(t\)"):
            parse_formula(f"y ~ {wrong} + nn(u)")
    with pytest.raises(InputError, match=r"decay\(\) must be a term of its own"):
        parse_formula("y ~ log(decay(z)) + nn(u)")


def test_its_priors_are_the_users_to_choose():
    chosen = {"sddecay": "normal(0, 1)", "rate_decayz": "lognormal(0, 2)"}
    bundle, _ = small_bundle("y ~ x + decay(z) + nn(u)", priors=chosen)
    lines = {line.parameter: line for line in priors_as_used(bundle)}
    sd, rate = lines["sddecay_decayz"], lines["rate_decayz"]
    assert (sd.written, sd.source) == ("normal(0, 1)", "class")
    assert (rate.written, rate.source) == ("lognormal(0, 2)", "coefficient")
    with pytest.raises(InputError, match=r"the model has no rates of decay\(\)"):
        small_bundle("y ~ x + nn(u)", priors={"rate": "lognormal(0, 1)"})


def test_what_was_learnt_is_stored(tmp_path):
    bundle, rows = small_bundle("y ~ x + decay(z) + nn(u)")
    write_bundle(bundle, tmp_path / "bundle")
    again = read_bundle(tmp_path / "bundle")
    (term,) = again.design.terms
    assert isinstance(term, Decay)
    assert term.scale == pytest.approx(rows.frame.z.mean())


@pytest.mark.cmdstan
@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("gaussian", "y | weights(w) ~ x1 + decay(w) + s(v) + nn(u1, u2)"),
        ("negbinomial", "y ~ x1 + decay(w) + nn(u1, u2), shape ~ decay(w) + (1 | g)"),
    ],
)
def test_its_program_is_pytorchs(name, formula, toolchain, tmp_path):
    bundle, rows = random_bundle(name, formula=formula)
    assert_program(bundle, rows, toolchain, tmp_path)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    generator = np.random.default_rng(5)
    frame = pd.DataFrame({"t": generator.uniform(0, 10, N), "u": generator.normal(size=N)})
    frame["x"] = generator.normal(size=N)
    mean = frame.x + np.sin(frame.u) + 5 * np.exp(-0.5 * frame.t)
    frame["y"] = generator.normal(mean, 0.3)
    overrides = {
        "network.hidden": (4,), "subspace.k": 4, "train.epochs": 500, "train.device": "cpu",
        "sample.chains": 2, "sample.draws": 500,
    }  # fmt: skip
    out = tmp_path_factory.mktemp("decay") / "run"
    return fit_model("y ~ x + decay(t) + nn(u)", frame, out=out, overrides=overrides), frame


@pytest.mark.cmdstan
def test_it_is_fitted_summarised_and_predicted(fitted):
    fit, frame = fitted
    found = {row.name: row for row in fit.summary.rows}
    rate = found["rate_decayt"]
    assert abs(rate.estimate - 0.5 * frame.t.mean()) < 4 * rate.est_error
    assert rate.est_error < 0.5
    rows = fit.run.rows()
    draws = fit.posterior.draws
    flat = {name: draws.flat(x) for name, x in (draws.terms | draws.spread).items()}
    x = frame.t.to_numpy() / frame.t.mean()
    by_hand = flat["a_1"][:, None] * np.exp(-np.outer(flat["rate_decayt"], x))
    found = fit.posterior.predictor(rows, part="penalised")
    assert found == pytest.approx(by_hand, rel=1e-12)
    at_0 = new_rows(fit.run.bundle, frame.assign(t=0.0))
    change = fit.posterior.predictor(rows) - fit.posterior.predictor(at_0)
    assert change == pytest.approx(by_hand - flat["a_1"][:, None], abs=1e-9)


@pytest.mark.cmdstan
def test_it_is_reported(fitted, tmp_path):
    fit, _ = fitted
    text = semistan.report(fit.run, tmp_path / "report.html").read_text("utf-8")
    assert "rate of decay(t)" in text
    assert "Decay" in text
