"""What every program must do, over a catalogue that covers all pairs of its ingredients."""

from itertools import combinations

import numpy as np
import pytest
import torch

from semistan.posterior.prior_draws import prior_draws
from semistan.program.data import stan_data
from semistan.program.program import bundle_program
from semistan.program.quantities import quantities_program
from support.catalogue import PROGRAMS
from support.columns import assert_program, states
from support.programs import declared, stanc_output

TOLERANCE = 1e-9
programs = pytest.mark.parametrize("program", PROGRAMS, ids=str)

# Pairs that no model has: where theta lies in the subspace there is one plain predictor, and
# theta is integrated out of plain predictors of three families, in pure Stan.
IMPOSSIBLE = [
    *(("naive", other) for other in ("subspace", "smooth", "group", "networks", "predictor")),
    *(
        ("subspace", other)
        for other in (
            "cpp", "dispersed", "link", "categories", "offset", "smooth", "group", "predictor",
        )
    ),
]  # fmt: skip


@programs
def test_value_gradient_and_columns_are_pytorchs(program, toolchain, tmp_path):
    assert_program(*program.make(), toolchain, tmp_path, program.kernel)


@programs
def test_stanc_accepts_both_programs_without_a_warning(program, toolchain, tmp_path):
    bundle, _ = program.make()
    assert stanc_output(quantities_program(bundle), toolchain, tmp_path) == ""
    if program.kernel == "stan":  # stanc alone knows no function of C++
        assert stanc_output(bundle_program(bundle), toolchain, tmp_path) == ""


@programs
def test_the_data_are_what_the_program_declares(program):
    bundle, rows = program.make()
    text = bundle_program(bundle, program.kernel)
    assert list(stan_data(bundle, rows)) == list(declared(text))


@programs
def test_parameters_are_packed_and_unpacked(program):
    bundle, _ = program.make()
    for q in states(bundle):
        values = {name: x.numpy() for name, x in bundle.layout.unpack(torch.tensor(q)).items()}
        assert bundle.layout.pack(values) == pytest.approx(q, rel=1e-9, abs=1e-9)


@programs
def test_prior_draws_have_all_columns(program):
    bundle, rows = program.make()
    draws = prior_draws(bundle, rows, (2, 10), np.random.default_rng(1))
    assert {*bundle.design.mean.coefficients, *bundle.model.scalars} <= set(draws.interpreted)
    assert all(np.isfinite(x).all() for x in (draws.lprior, *draws.interpreted.values()))


@programs
def test_lines_are_short(program):
    bundle, _ = program.make()
    for text in (bundle_program(bundle, program.kernel), quantities_program(bundle)):
        assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())


def test_every_pair_of_ingredients_is_in_the_catalogue():
    covered = {frozenset(pair) for program in PROGRAMS for pair in combinations(program.levels, 2)}
    levels = sorted(set().union(*(program.levels for program in PROGRAMS)))
    missing = {
        frozenset({one[1], two[1]})
        for one, two in combinations(levels, 2)
        if (one[0] != two[0] or one[0] == "term") and frozenset({one, two}) not in covered
    }
    assert missing == set(map(frozenset, IMPOSSIBLE))
