"""No Stan text names anything by a word that some release of Stan reserves."""

import re
from pathlib import Path

import pytest

from semistan.infer.cmdstan.compile import without_comments
from semistan.program.program import bundle_program
from support.golden import golden_files
from support.programs import stanc_output
from support.untrained import VARIANTS, tempered

SOURCES = sorted((Path(__file__).parents[2] / "stan").glob("*.stanfunctions"))
OF_BOUNDS = "lower upper offset multiplier"  # keywords since 2.34, but for <lower=0>
OF_TYPES = "array tuple complex complex_vector complex_row_vector complex_matrix"
OTHERS = (
    "repeat until then truncate jacobian fatal_error profile var fvar STAN_MAJOR STAN_MINOR "
    "STAN_MATH_MAJOR STAN_MATH_MINOR auto export extern static struct typedef"
)


def reserved(text):
    """The reserved words that a program uses other than as Stan does."""
    code = re.sub(r'"[^"\n]*"', '""', without_comments(text))
    of_bounds = rf"\b(?:{'|'.join(OF_BOUNDS.split())})\b"
    of_types = rf"\b(?:{'|'.join(OF_TYPES.split())})\b(?!\s*[\[(])"
    others = rf"\b(?:{'|'.join(OTHERS.split())})\b"
    code = re.sub(rf"(?<=[<,])\s*{of_bounds}(?=\s*=[^=])", "", code)
    return re.findall(f"{of_bounds}|{of_types}|{others}", code)


@pytest.mark.parametrize(
    "path", [*SOURCES, *golden_files()], ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_no_stan_file_uses_a_word_that_stan_reserves(path):
    assert reserved(path.read_text()) == []


@pytest.mark.parametrize(("name", "prior", "integral"), VARIANTS)
def test_a_program_without_theta_uses_no_word_that_stan_reserves(name, prior, integral):
    assert reserved(bundle_program(tempered(name, 2.5, "subspace", prior)[0])) == []


@pytest.mark.parametrize(("name", "prior", "integral"), VARIANTS)
def test_stanc_accepts_a_program_without_theta_and_without_a_warning(
    name, prior, integral, toolchain, tmp_path
):
    text = bundle_program(tempered(name, 2.5, "subspace", prior)[0])
    assert stanc_output(text, toolchain, tmp_path) == ""


@pytest.mark.parametrize("word", [*OF_BOUNDS.split(), *OF_TYPES.split(), *OTHERS.split()])
def test_a_reserved_word_is_found_wherever_it_stands(word):
    assert reserved(f"real f(vector {word}, real b) {{ return b; }}") == [word]
    assert reserved(f"real b = 2 * {word};") == [word]
    assert reserved(f"// {word}\nreal<lower=0, upper = 1> b; array[3] int c;") == []
