"""States of unfinished work: what was kept comes back, and damaged ones are set aside."""

import pytest

from semistan.bundle.unfinished import keep_state, kept_state, set_state_aside

STATE = bytes(range(256))


@pytest.fixture
def kept(tmp_path):
    keep_state(tmp_path / "state", STATE)
    return tmp_path / "state"


def test_a_state_comes_back(kept):
    assert kept_state(kept) == STATE
    assert set_state_aside(kept) is None
    keep_state(kept, b"")
    assert kept_state(kept) == b""


def test_there_may_be_none(tmp_path):
    assert kept_state(tmp_path / "state") is None
    assert set_state_aside(tmp_path / "state") is None


def test_every_flip_and_every_truncation_is_noticed(kept):
    whole = kept.read_bytes()
    for place in range(len(whole)):
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert kept_state(kept) is None
        kept.write_bytes(whole[:place])
        assert kept_state(kept) is None


def test_a_damaged_one_is_set_aside_under_a_name_that_is_said(kept):
    damaged = kept.read_bytes()[:-1]
    kept.write_bytes(damaged)
    said = set_state_aside(kept)
    assert said == f"'{kept}' does not match the hash in it: set aside as state.damaged"
    assert not kept.exists()
    assert kept.with_name("state.damaged").read_bytes() == damaged
