"""Effects of new levels: independent between terms, levels, chains and subspaces; one per level."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from semistan.infer.methods import method_named
from semistan.model.config import parse_config
from semistan.model.streams import Streams
from semistan.posterior.posterior import Mixture, SubspacePosterior
from semistan.workflow.fit import fit_model
from semistan.workflow.kfold import FoldTask
from semistan.workflow.predict import predict
from semistan.workflow.prepare import new_rows
from semistan.workflow.score import score
from support.assertions import Z
from support.drawn import random_draws
from support.small import small_frame
from support.untrained import random_bundle

S = 1000
TWO_TERMS = {
    "intercept and slope": "(1 | h) + (0 + x1 | h)",
    "slope and intercept by": "(0 + x1 | h) + (1 | gr(h, by=t))",
    "two slopes": "(0 + x1 | h) + (0 + x2 | h)",
    "a smooth of levels": "(0 + x1 | g) + s(g, bs='re')",
    "two groups with the same labels": "(1 | g) + (1 | h)",
    "two predictors": "(1 | h); sigma ~ (1 | h)",
    "uncorrelated": "(1 + x1 || h)",
}


def drawn(terms, seed=0, per_chain=S // 2):
    mean, _, other = terms.partition("; ")
    formula = f"y ~ {mean} + nn(u1, u2, u3)" + f", {other}" * bool(other)
    bundle, rows = random_bundle("gaussian", formula=formula)
    return SubspacePosterior(bundle, random_draws(bundle, iterations=per_chain, seed=seed)), rows


def new_effects(posterior, rows, levels=("new",)):
    """Each effect of new levels (S, levels), over its standard deviation, one term by another."""
    table = rows.frame.iloc[[0] * len(levels)].assign(g=levels, h=levels)
    new = new_rows(posterior.members[0].bundle, table, response=False, allow_new_levels=True)
    found = []
    for predictor in posterior.design.predictors:
        blocks = new.predictors[predictor.name].blocks
        for term, block in zip(predictor.terms, blocks, strict=True):
            for j in range(term.size):
                one = replace(block, Z=np.eye(term.size)[[j] * len(levels)])
                sd = term.spread[block.of_new[0] if block.of_new else j]
                found.append(
                    np.concatenate(
                        [
                            term.predicted(draws.of_terms, one, draws.streams)
                            / draws.of_terms[sd][:, None]
                            for draws in (member.draws for member in posterior.counted)
                        ]
                    )
                )
    return found


def assert_independent(a, b):
    assert abs(np.corrcoef(a, b)[0, 1]) < Z / np.sqrt(len(a))


@pytest.mark.parametrize("terms", TWO_TERMS.values(), ids=TWO_TERMS.keys())
def test_the_effects_of_two_terms_are_independent(terms):
    posterior, rows = drawn(terms)
    one, other = new_effects(posterior, rows)
    assert_independent(one[:, 0], other[:, 0])
    for effect in (one, other):
        assert effect.std() == pytest.approx(1, abs=Z / np.sqrt(2 * S))


def test_separate_terms_have_the_error_of_a_double_bar():
    predictor = {}
    for terms in ("(1 | h) + (0 + x1 | h)", "(1 + x1 || h)"):
        posterior, rows = drawn(terms)
        names = ("sd_h__Intercept", "sd_h__x1")
        sd = {name: np.full_like(posterior.draws.spread[name], 2.0) for name in names}
        posterior = replace(posterior, draws=replace(posterior.draws, spread=sd))
        table = rows.frame.iloc[[0] * 5].assign(x1=[-2.0, -1, 0, 1, 2], h="new")
        new = new_rows(posterior.bundle, table, response=False, allow_new_levels=True)
        predictor[terms] = posterior.predictor(new, part="penalised").std(axis=0)
    expected = 2 * np.sqrt(1 + np.array([-2.0, -1, 0, 1, 2]) ** 2)
    for error in predictor.values():
        assert error == pytest.approx(expected, rel=Z / np.sqrt(2 * S))


def test_levels_chains_and_seeds_are_independent():
    posterior, rows = drawn("(1 | h)")
    (effect,) = new_effects(posterior, rows, ("p", "q"))
    assert_independent(*effect.T)
    first, second = np.split(effect[:, 0], 2)
    assert_independent(first, second)
    (other,) = new_effects(posterior.seeded(2), rows, ("p", "q"))
    assert_independent(effect[:, 0], other[:, 0])
    assert np.array_equal(effect, new_effects(posterior.seeded(1), rows, ("p", "q"))[0])


def test_a_level_has_one_effect_in_any_order_of_rows():
    posterior, rows = drawn("(1 + x1 | h)")
    for there, back in zip(
        new_effects(posterior, rows, ("p", "q", "r")),
        new_effects(posterior, rows, ("r", "q", "p")),
        strict=True,
    ):
        assert there == pytest.approx(back[:, ::-1], rel=1e-14)


def test_subspaces_have_effects_of_their_own():
    posterior, rows = drawn("(1 | h)")
    mixture = Mixture((posterior, posterior))
    (effect,) = new_effects(mixture, rows)
    assert_independent(*np.split(effect[:, 0], 2))
    (weighted,) = new_effects(Mixture((posterior, posterior), (1.0, 0.5)), rows)
    assert_independent(weighted[: S // 2, 0], weighted[S:, 0])
    (again,) = new_effects(mixture.seeded(1), rows)
    assert np.array_equal(effect, again)


def test_chains_with_networks_of_their_own_have_effects_of_their_own():
    posterior, rows = drawn("(1 | h)")
    draws = posterior.draws
    own = replace(draws, around=draws.phi[:, 0], method=method_named("laplace"))
    table = rows.frame.iloc[[0]].assign(h="new")
    new = new_rows(posterior.bundle, table, response=False, allow_new_levels=True)
    whole, apart = (
        SubspacePosterior(posterior.bundle, each).predictor(new, part="penalised")
        for each in (draws, own)
    )
    assert apart == pytest.approx(whole, rel=1e-14)


def test_another_process_draws_the_same():
    code = (
        "from semistan.model.streams import Streams\n"
        "print(Streams((3, 1), 2, 2, 1).normal('sd_g__x', 'Ä', size=1).ravel().tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    here = Streams((3, 1), 2, 2, 1).normal("sd_g__x", "Ä", size=1).ravel().tolist()
    assert printed.strip() == str(here)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    table = small_frame(60).assign(id=lambda t: [f"p{i % 12}" for i in range(len(t))])
    config = parse_config(
        {
            "formula": "y ~ x + (1 | id) + (0 + x | id) + nn(u)",
            "network": {"hidden": [2]},
            "subspace": {"k": 2},
            "train": {"epochs": 3, "device": "cpu"},
            "sample": {"method": "laplace", "chains": 1, "draws": 100},
        },
        "test",
    )
    return fit_model(config, table, out=tmp_path_factory.mktemp("new") / "run").run, table


@pytest.mark.lengthy
def test_the_seed_of_predictions_and_scores_draws_new_levels(run):
    learnt, table = run
    table = table.assign(id="new")
    by_seed = [
        predict(learnt, table, seed=seed, allow_new_levels=True)["Estimate"].to_numpy()
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(by_seed[0], by_seed[1])
    assert not np.isclose(by_seed[0], by_seed[2]).any()
    lppd = [
        score(learnt, table, seed=seed, allow_new_levels=True).set_index("score").Estimate.LPPD
        for seed in (1, 1, 2)
    ]
    assert lppd[0] == lppd[1] != lppd[2]


@pytest.mark.lengthy
def test_folds_that_leave_groups_out_draw_by_their_seed(run):
    learnt, table = run
    inside = (table["id"] == "p3").to_numpy()
    found = [
        FoldTask(1, learnt.config, {}, table, inside, seed, 0.9, False).run(lambda _: None)
        for seed in (1, 1, 2)
    ]
    lpd = [each.judged.lpd for each in found]
    assert np.array_equal(lpd[0], lpd[1])
    assert not np.isclose(lpd[0], lpd[2]).any()
