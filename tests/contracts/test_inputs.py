"""A kind of inputs is one file: counts of words in a column of text, defined here."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import semistan
from semistan.errors import InputError
from semistan.model.formula import syntax
from semistan.model.formula.formula import parse_formula
from semistan.model.table.input_kinds import INPUT_KINDS
from semistan.model.table.inputs import InputKind, Vectors
from semistan.posterior.predictive import posterior_epred
from semistan.posterior.run import read_run
from semistan.workflow.fit import fit_model
from support.small import small_bundle, small_frame

N = 60
FORMULA = "y ~ x + nn(words(note, least=5))"
WORDS = ("cold", "hot", "mild", "rain")


def counted(notes, vocabulary):
    return np.array([[note.split().count(word) for word in vocabulary] for note in notes], float)


@dataclass(frozen=True)
class Words(Vectors):
    """How often each word of the training rows is in a row's text."""

    column: str
    terms: tuple
    vocabulary: tuple
    loc: tuple
    scale: tuple

    @property
    def columns(self):
        return tuple(f"{self.column}[{word}]" for word in self.vocabulary)

    def numbers(self, table):
        return counted(table[self.column], self.vocabulary)

    def to_plain(self):
        return {"words": self.vocabulary, "loc": self.loc, "scale": self.scale}


def column_of(network):
    return re.match(r"words\((\w+)", network.arguments[0])[1]


def learn(network, frame):
    column = column_of(network)
    least = int(re.search(r"least=(\d+)", network.arguments[0])[1])
    words = pd.Series(" ".join(frame[column]).split()).value_counts()
    vocabulary = tuple(sorted(words[words >= least].index))
    if not vocabulary:
        raise InputError(f"no word of '{column}' is there {least} times")
    numbers = counted(frame[column], vocabulary)
    loc, scale = numbers.mean(axis=0).tolist(), numbers.std(axis=0, ddof=1).tolist()
    return Words(column, network.arguments, vocabulary, tuple(loc), tuple(scale)), numbers


def from_plain(content, _, network):
    loc, scale = (tuple(map(float, content[key])) for key in ("loc", "scale"))
    words = tuple(map(str, content["words"]))
    return Words(column_of(network), network.arguments, words, loc, scale)


@pytest.fixture(scope="module", autouse=True)
def registered():
    options = {"least": lambda value: isinstance(value, int)}
    call = syntax.InputCall("texts", "a column of text, as words(note, least=5)", options)
    kind = InputKind(takes=lambda network: network.call == "words", learn=learn,
                     from_plain=from_plain)  # fmt: skip
    with pytest.MonkeyPatch.context() as context:
        context.setitem(syntax.INPUT_CALLS, "words", call)
        context.setitem(INPUT_KINDS, "words", kind)
        yield
    parse_formula.cache_clear()


def frame_of(n, seed):
    generator = np.random.default_rng(seed)
    notes = [" ".join(generator.choice(WORDS, size=6)) for _ in range(n)]
    counts = counted(notes, WORDS)
    x = generator.normal(size=n)
    y = 1 + 0.5 * x + np.where(counts[:, 1] > 1, 1.5, 0) + generator.normal(0, 0.2, n)
    return pd.DataFrame({"x": x, "note": notes, "y": y})


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ x + nn(words(note, most=5))", r"words\(\) takes a column of text"),
        ("y ~ x + nn(words(note, least=5), x)", "texts are inputs of a network of their own"),
        ("y ~ words(note) + nn(x)", r"words\(\) stands in nn\(\)"),
        ("y ~ note + nn(words(note, least=5))", "'note' is a column of texts, which words"),
    ],
)
def test_it_is_written_in_nn_alone(formula, message):
    with pytest.raises(InputError, match=message):
        parse_formula(formula)


def test_a_table_without_its_words_is_refused():
    frame = small_frame().assign(note=[f"word{i}" for i in range(30)])
    with pytest.raises(InputError, match="no word of 'note' is there 5 times"):
        small_bundle(FORMULA, frame)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    overrides = {
        "network.hidden": (4,), "subspace.k": 3, "train.epochs": 300, "train.device": "cpu",
        "sample.chains": 2, "sample.method": "elliptical-slice", "sample.warmup": 200,
        "sample.draws": 200,
    }  # fmt: skip
    out = tmp_path_factory.mktemp("words") / "run"
    return fit_model(FORMULA, frame_of(N, 1), out=out, overrides=overrides)


@pytest.mark.lengthy
def test_it_is_fitted_read_again_and_predicts(fitted):
    run = read_run(fitted.run.path)
    (inputs,) = run.bundle.design.networks
    assert inputs.vocabulary == WORDS
    assert run.bundle.model.leading.text.startswith("4-4-1")
    new = frame_of(30, 2)
    rows = run.rows()
    assert pytest.approx(counted(frame_of(N, 1).note, WORDS)) == rows.U
    predicted = semistan.predict(run, new)
    assert np.corrcoef(predicted["Estimate"], new.y)[0, 1] > 0.8
    mean = posterior_epred(fitted.posterior, rows).mean(axis=0)
    assert np.std(rows.y - mean) < 0.6 * np.std(rows.y)


@pytest.mark.lengthy
def test_it_is_explained_and_reported(fitted, tmp_path):
    shares = semistan.importance(fitted.run, rows=N)
    assert {"x", "note"} <= {*shares.iloc[:, 0], *shares.index}
    with pytest.raises(InputError, match="'note' is a column of texts, which has no effect"):
        semistan.effect(fitted.run, "note")
    effect = semistan.effect(fitted.run, "x")
    assert len(effect.table()) > 1
    report = semistan.report(fitted.run, tmp_path / "report.html")
    assert "words(note, least=5)" in report.read_text("utf-8")
