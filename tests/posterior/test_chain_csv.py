"""Cells of a chain's file that have no number."""

import numpy as np
import pytest

from semistan.errors import InputError
from semistan.posterior.chain_csv import ChainForm, read_chain

FORM = ChainForm(2, lambda columns: columns["sigma"])


def read(tmp_path, text, *, known):
    path = tmp_path / "chain-1.csv"
    path.write_text(f"lp__,stepsize__,sigma\n{text}")
    return read_chain(path, FORM, known=known, remedy="draw it anew")


def test_quantities_that_the_program_could_not_compute_are_no_draws(tmp_path):
    with pytest.raises(
        InputError, match=r"as the sampler wrote it, but column 'sigma' has nan in "
    ):
        read(tmp_path, "1,0.1,2\n1,0.1,nan\n", known=True)


def test_a_sampler_may_have_no_number_for_itself(tmp_path):
    found = read(tmp_path, "1,nan,2\n1,nan,3\n", known=True)
    assert found["sigma"] == pytest.approx(np.array([2.0, 3.0]))


def test_files_that_are_not_known_have_numbers_everywhere(tmp_path):
    with pytest.raises(InputError, match="column 'stepsize__' has nan in draw 1"):
        read(tmp_path, "# id = 1\n1,nan,2\n1,0.1,3\n", known=False)
