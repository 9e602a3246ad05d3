"""Group-level effects that are correlated across predictors, ``(1 | ID | g)``."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import multivariate_normal

from semistan.errors import InputError
from semistan.model.design import apply_design, design_from_plain, design_to_plain, learn_design
from semistan.model.formula.formula import parse_formula
from semistan.model.streams import Streams
from semistan.model.terms.group import Group
from semistan.model.terms.group_across import GroupAcross
from semistan.model.terms.term import TensorBlock
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.predictive import posterior_epred
from semistan.program.program import bundle_program
from support.drawn import random_draws
from support.small import small_bundle, small_frame
from support.untrained import random_bundle

FORMULA = "y ~ x + (1 + x | p | g) + nn(u), sigma ~ v + (1 | p | g), nu ~ (0 + z | p | g)"
SPREAD = ("sd_g__Intercept", "sd_g__x", "sd_g__sigma_Intercept", "sd_g__nu_z")
S = 4000


def learnt(text=FORMULA):
    return learn_design(parse_formula(text), small_frame())


def factor(seed=0, size=4):
    A = np.random.default_rng(seed).normal(size=(size, size))
    covariance = A @ A.T + np.eye(size)
    sd = np.sqrt(np.diag(covariance))
    return np.linalg.cholesky(covariance / np.outer(sd, sd))


def values_of(design, seed=0):
    """Standard normal z of every term, L, and standard deviations."""
    generator = np.random.default_rng(seed)
    found = {term.names[0]: generator.normal(size=(3, term.size)) for term in design.terms}
    found |= dict(zip(SPREAD, generator.uniform(0.5, 3, 4), strict=True)) | {"L_1": factor(seed)}
    return {name: torch.as_tensor(value) for name, value in found.items()}


def test_names_are_brmss():
    design, _ = learnt()
    assert all(isinstance(term, GroupAcross) for term in design.terms)
    assert tuple(name for term in design.terms for name in term.spread) == SPREAD
    first, *others = design.terms
    assert first.correlations == (
        "cor_g__Intercept__x",
        "cor_g__Intercept__sigma_Intercept",
        "cor_g__x__sigma_Intercept",
        "cor_g__Intercept__nu_z",
        "cor_g__x__nu_z",
        "cor_g__sigma_Intercept__nu_z",
    )
    assert all(term.correlations == () for term in others)
    assert first.labels()["cor_g__x__nu_z"] == "correlation of x and z of nu by g"
    assert [term.text for term in design.terms] == [
        "(1 + x | p | g)", "(1 | p | g)", "(0 + z | p | g)",
    ]  # fmt: skip
    (elements,) = design.terms[1].elements.values()
    assert elements.name == "r_g__sigma"


def test_effects_are_rows_of_one_normal_vector():
    design, rows = learnt()
    values = values_of(design)
    z = np.hstack([values[term.names[0]] for term in design.terms])
    sd = np.array([values[name] for name in SPREAD])
    expected = np.array([sd * (values["L_1"].numpy() @ level) for level in z])
    made = {name: x for term in design.terms for name, x in term.made(values).items()}
    assert np.hstack(list(made.values())) == pytest.approx(expected)
    found = {name: x for term in design.terms for name, x in term.quantities(values).items()}
    correlation = values["L_1"] @ values["L_1"].T
    assert [float(x) for x in found.values()] == pytest.approx(
        [float(correlation[i, j]) for i in range(4) for j in range(i)]
    )
    frame = small_frame()
    levels = np.array([*"abc"]).searchsorted(frame["g"])
    block = rows.predictors["mu"].blocks[0]
    added = design.terms[0].value(
        values, TensorBlock(*map(torch.as_tensor, (block.Z, block.level)))
    )
    assert added.numpy() == pytest.approx(expected[levels, 0] + expected[levels, 1] * frame["x"])


def test_a_new_level_has_correlated_effects_in_all_predictors():
    design, _ = learnt()
    L, sd = factor(3), np.array([1.0, 2.0, 0.5, 3.0])
    correlation = L @ L.T
    draws = {name: np.full(S, value) for name, value in zip(SPREAD, sd, strict=True)}
    pairs = [(i, j) for i in range(4) for j in range(i)]
    draws |= {
        name: np.full(S, correlation[pair])
        for name, pair in zip(design.terms[0].correlations, pairs, strict=True)
    }
    draws |= {term.names[2]: np.zeros((S, 3, term.size)) for term in design.terms}
    new = small_frame().iloc[:2].assign(g="new", x=[0.0, 1.0], z=1.0)
    rows = apply_design(design, new, response=False, allow_new_levels=True)
    at = {
        name: term.predicted(draws, rows.predictors[name].blocks[0], Streams((1,), 0, 1, S))
        for name, term in zip(("mu", "sigma", "nu"), design.terms, strict=True)
    }
    effects = np.column_stack([
        at["mu"][:, 0], at["mu"][:, 1] - at["mu"][:, 0], at["sigma"][:, 0], at["nu"][:, 0],
    ])  # fmt: skip
    expected = correlation * np.outer(sd, sd)
    error = np.sqrt((np.outer(sd**2, sd**2) + expected**2) / S)
    assert (np.abs(np.cov(effects.T) - expected) < 5 * error).all()


def test_densities_are_those_of_the_joint_normal():
    """The program has z; r is then normal with the covariance of L and the sds."""
    design, _ = learnt()
    values = values_of(design, 5)
    sd = torch.stack([values[name] for name in SPREAD])
    root = sd[:, None] * values["L_1"]
    made = torch.cat([term.coefficients(values) for term in design.terms], dim=1).numpy()
    z = torch.cat([values[term.names[0]] for term in design.terms], dim=1)
    jacobian = 3 * root.diagonal().log().sum()
    expected = multivariate_normal(np.zeros(4), (root @ root.T).numpy()).logpdf(made).sum()
    found = torch.distributions.Normal(0, 1).log_prob(z).sum() - jacobian
    assert float(found) == pytest.approx(expected)


def test_starts_have_the_trained_effects_and_are_uncorrelated():
    design, _ = learnt()
    generator = np.random.default_rng(2)
    x = [generator.normal(size=3 * term.size) for term in design.terms]
    values = {}
    for term, trained in zip(design.terms, x, strict=True):
        values |= term.start(trained, 1.0)
    assert np.array_equal(values["L_1"], np.eye(4))
    tensors = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in values.items()}
    for term, trained in zip(design.terms, x, strict=True):
        assert term.coefficients(tensors).numpy().ravel() == pytest.approx(trained)


def test_new_standard_deviations_keep_the_effects():
    design, _ = learnt()
    generator = np.random.default_rng(4)
    values = {}
    for term in design.terms:
        values |= term.start(generator.normal(size=3 * term.size), 1.0)
    before = {name: torch.as_tensor(x, dtype=torch.float64) for name, x in values.items()}
    kept = [term.coefficients(before) for term in design.terms]
    for term in design.terms:
        n = 3 * term.size
        values |= term.reestimated(values, 0.3 * np.eye(n), set(), 1.0)
    after = {name: torch.as_tensor(x, dtype=torch.float64) for name, x in values.items()}
    for term, expected in zip(design.terms, kept, strict=True):
        assert term.coefficients(after).numpy() == pytest.approx(expected.numpy())
    assert not torch.equal(before["sd_g__sigma_Intercept"], after["sd_g__sigma_Intercept"])
    L = after["L_1"].numpy()
    assert np.diag(L @ L.T) == pytest.approx(np.ones(4))
    assert L[1, 0] != 0
    assert not L[2:, :2].any()


def test_the_state_survives_json():
    design, _ = learnt()
    again = design_from_plain(json.loads(json.dumps(design_to_plain(design), allow_nan=False)))
    assert [term.names for term in again.terms] == [term.names for term in design.terms]
    assert [term.own for term in again.terms] == [slice(0, 2), slice(2, 3), slice(3, 4)]


def test_an_id_of_one_predictor_changes_nothing():
    design, _ = learnt("y ~ x + (1 + x | p | g) + nn(u)")
    (term,) = design.terms
    assert type(term) is Group
    assert term.text == "(1 + x | p | g)"
    again = design_from_plain(design_to_plain(design))
    assert again.terms[0].id == "p"
    (alone,) = learnt("y ~ x + (1 + x | g) + nn(u)")[0].terms
    assert replace(term, id="").to_plain() == alone.to_plain()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ (1 | p | g) + (0 + x | p | g) + nn(u)", "stands twice in one predictor"),
        ("y ~ (1 | p | g) + nn(u), sigma ~ (1 | p | flag)", "ID 'p' stands before 'g' and 'flag'"),
        ("y ~ (1 | p | gr(g, by=flag)) + nn(u)", "an ID stands before a column"),
        ("y ~ (1 | p | mm(g, flag)) + nn(u)", "gr() and mm() have none"),
        ("y ~ (1 || p | g) + nn(u)", "stands by itself in parentheses"),
        ("y ~ (1 | p || g) + nn(u)", "stands by itself in parentheses"),
        ("y ~ (1 | p | g | h) + nn(u)", "stands by itself in parentheses"),
        ("y ~ (1 | p |) + nn(u)", "expected a column here"),
        ("y ~ (1 | 2 + p | g) + nn(u)", "stands by itself in parentheses"),
    ],
)
def test_what_cannot_be_linked_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        learnt(text)


def test_other_formulas_read_as_before():
    formula = parse_formula("y ~ (x|p|g) + (1|g:flag) + nn(u), sigma ~ (1 |p| g)")
    assert [(term.by, term.id) for term in formula.mean.groups] == [
        (("g",), "p"), (("g", "flag"), ""),
    ]  # fmt: skip


def test_one_cholesky_factor_is_declared():
    bundle, _ = random_bundle(
        "gaussian", formula="y ~ x1 + (1 | p | g) + nn(u1, u2, u3), sigma ~ z + (1 | p | g)"
    )
    text = bundle_program(bundle)
    assert text.count("cholesky_factor_corr[2] L_1;") == text.count("cholesky_factor_corr") == 1
    assert text.count("lkj_corr_cholesky_lpdf") == 1


def test_means_over_groups_know_the_correlation():
    """Of zero-inflated counts: both predictors are normal over the levels, and correlated."""
    bundle, rows = random_bundle(
        "zero_inflated_poisson",
        formula="y ~ x1 + (1 + x1 | p | g) + nn(u1, u2, u3), zi ~ z + (1 | p | g)",
    )
    draws = random_draws(bundle, chains=1, iterations=4)
    mean, inflated = bundle.design.terms
    sds = dict(zip((*mean.spread, *inflated.spread), (0.6, 0.1, 0.9), strict=True))
    spread = {name: np.full((1, 4), sd) for name, sd in sds.items()}
    posterior = SubspacePosterior(bundle, replace(draws, spread=draws.spread | spread))
    found = posterior_epred(posterior.with_groups("marginal"), rows)
    centre = posterior.with_groups("none")
    eta, zi = centre.predictor(rows), centre.predictor(rows, name="zi")
    x1, sd = rows.frame["x1"].to_numpy(), np.array([*sds.values()])
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    for s in range(4):
        correlation = np.eye(3)
        for name, (i, j) in zip(mean.correlations, mean.pairs, strict=True):
            correlation[i, j] = correlation[j, i] = draws.spread[name][0, s]
        covariance = correlation * np.outer(sd, sd)
        Z = np.column_stack([np.ones_like(x1), x1])
        variance = np.einsum("ni,ij,nj->n", Z, covariance[:2, :2], Z)
        moved = zi[s] + Z @ covariance[:2, 2]  # the factor exp(eta) tilts the normal distribution
        shares = expit(-moved[:, None] - 0.9 * z) @ weights / weights.sum()
        assert found[s] == pytest.approx(np.exp(eta[s] + variance / 2) * shares, rel=1e-4)
    assert abs(correlation[0, 2]) > 0.1


def test_a_trained_model_has_them():
    bundle, rows = small_bundle("y ~ x + (1 | p | g) + nn(u, v), sigma ~ (1 | p | g)")
    posterior = SubspacePosterior(bundle, random_draws(bundle))
    assert posterior_epred(posterior, rows).shape[1] == len(rows)
