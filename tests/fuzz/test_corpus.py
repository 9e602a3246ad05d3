"""What the fuzzers found, and where they start from: an answer or an error of ours for each."""

import pytest

from fuzz.targets import CORPUS, TARGETS, attempt

CASES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}-{p.name}" for p in CASES])
def test_each_input_is_read_or_refused(path):
    attempt(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_starts_from_something_that_is_read(name):
    answers = [attempt(name, path.read_bytes()) for path in (CORPUS / name).iterdir()]
    assert "" in answers


def test_a_foreign_exception_is_no_answer(monkeypatch):
    def broken(_):
        raise RuntimeError("foreign")

    monkeypatch.setitem(TARGETS, "json", broken)
    with pytest.raises(RuntimeError, match="foreign"):
        attempt("json", b"{}")
