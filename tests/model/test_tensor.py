"""Tensor product smooths against mgcv, and what is learnt of them.

The figures are of mgcv 1.8-41 with the data of ``test_smooth_kinds.table``:

    s <- smoothCon(t2(x, z, k=c(5, 4)), data=d, absorb.cons=FALSE)[[1]]
    X <- s$X[, diag(s$S$rr) > 0]; K <- X %*% t(X); K <- K / sum(diag(K))
    c(K[1, 2], K[3, 7], K[20, 20], K[59, 4])
"""

import json

import numpy as np
import pandas as pd
import pytest

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.terms.tensor import _products

MGCV = [0.023744213433928, 0.000463049387029, 0.010597774981027, 0.000305662652686]
N = 60


def table():
    i = np.arange(N)
    frame = pd.DataFrame({"x": (i * 37 % 60) / 6, "z": (i * 23 % 60) / 20 - 1})
    return frame.assign(y=np.sin(frame.x) * frame.z, u=frame.x * frame.z)


def learnt(term="t2(x, z, k=[5, 4])"):
    design, rows = learn_design(parse_formula(f"y ~ {term} + nn(u)"), table())
    return design, design.terms[0], rows


def test_the_covariance_of_what_bends_along_both_is_mgcvs():
    _, surface, _ = learnt()
    both = _products(surface.margins, table())[0][0]
    K = both @ both.T
    K /= np.trace(K)
    assert [K[0, 1], K[2, 6], K[19, 19], K[58, 3]] == pytest.approx(MGCV, rel=1e-9)


def test_columns_are_products_orthogonal_to_the_plane_and_of_variance_1_by_kind():
    _, surface, rows = learnt()
    Z, x = rows.predictors["mu"].blocks[0].Z, table()
    plane = np.column_stack([np.ones(N), x.x, x.z, x.x * x.z])
    assert np.abs(Z.T @ plane).max() < 1e-8
    assert surface.counts == (6, 4, 6)
    for kind in range(3):
        own = Z[:, surface.which == kind]
        assert (own**2).sum(axis=1).mean() == pytest.approx(1)
    (a, a_free), (b, b_free) = (
        margin.columns(x[margin.expression].to_numpy()) for margin in surface.margins
    )
    kinds = [(a, b), (a_free, b), (a, b_free)]
    by_hand = np.array(
        [
            [left[n, i] * right[n, j] / surface.sizes[kind]
             for kind, (left, right) in enumerate(kinds)
             for i in range(left.shape[1]) for j in range(right.shape[1])]
            for n in range(N)
        ]
    )  # fmt: skip
    by_hand -= plane @ np.linalg.lstsq(plane, by_hand, rcond=None)[0]
    assert np.abs(by_hand - Z).max() < 1e-8


def test_names_are_brmss_and_the_plane_is_structured():
    design, surface, _ = learnt()
    assert surface.reported == ("sds_t2xz_1", "sds_t2xz_2", "sds_t2xz_3")
    assert design.coefficients == ("b_x", "b_z", "b_x_z")


def test_the_state_survives_json():
    design, _, rows = learnt()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    new = apply_design(again, table().iloc[[7, 2]], response=False).predictors["mu"].blocks[0]
    assert pytest.approx(rows.predictors["mu"].blocks[0].Z[[7, 2]], abs=1e-12) == new.Z


@pytest.mark.parametrize("term", ["t2(x)", "t2(x, z, u)", "t2(x, z, k=2)", "t2(x, z, k=[5, 4, 3])"])
def test_what_it_does_not_take_is_refused(term):
    with pytest.raises(InputError, match=r"t2\(\) takes two expressions"):
        learnt(term)


def test_too_few_values_are_refused():
    with pytest.raises(InputError, match="'flag' has only 2 distinct values"):
        learn_design(parse_formula("y ~ t2(flag, z) + nn(u)"), table().assign(flag=[0, 1] * 30))


@pytest.mark.parametrize("damage", [{"sizes": [1, 1]}, {"plane": [[1.0]]}, {"margins": []}])
def test_a_damaged_state_is_refused(damage):
    plain = design_to_plain(learnt()[0])
    plain["tensors"][0] |= damage
    with pytest.raises(InputError, match="the design is damaged"):
        design_from_plain(plain)
