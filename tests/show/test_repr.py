"""What a notebook shows of a bundle, a run, its draws and its summary."""

from pathlib import Path

from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.run import Run
from semistan.posterior.summary import summarise
from support.drawn import random_draws
from support.manifests import manifest
from support.small import small_bundle
from support.untrained import random_bundle


def run_in(path, bundle, **known):
    return Run(Path(path), bundle, manifest({"chains": 2, "warmup": 300, "draws": 50}, **known))


def test_a_bundle_says_what_was_trained_on_what():
    bundle, _ = small_bundle()
    assert repr(bundle).splitlines() == [
        " Family: gaussian, link identity",
        "Formula: y ~ x + C(g) + nn(u, v)",
        "   Data: 30 rows",
        "Network: 2-3-1, tanh; 13 weights in a subspace of k = 2 (bezier)",
    ]


def test_a_run_says_how_far_it_is(tmp_path):
    bundle, _ = small_bundle()
    text = repr(run_in(tmp_path, bundle))
    assert "  Draws: 2 chains x 50 after 300 warm-up draws; 2 not sampled yet" in text
    assert f"    Run: {tmp_path}" in text
    assert "PRIOR" in repr(run_in(tmp_path, bundle, prior_only=True))


def test_html_is_escaped(tmp_path):
    bundle, _ = small_bundle()
    html = run_in(tmp_path / "<b>", bundle)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 6
    assert bundle._repr_html_().count("<tr>") == 4


def test_a_summary_is_its_table_with_a_verdict():
    bundle, rows = random_bundle("gaussian")
    summary = summarise(SubspacePosterior(bundle, random_draws(bundle)), rows)
    lines = repr(summary).splitlines()
    assert lines[0].split() == [
        "Estimate", "Est.Error", "l-95%", "CI", "u-95%", "CI", "Rhat", "Bulk_ESS", "Tail_ESS",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:5]] == ["b_Intercept", "b_x1", "b_x2", "sigma"]
    assert lines[-1].startswith("FAILED: Rhat of coefficients (largest Rhat 1.0")
    html = summary._repr_html_()
    assert html.startswith("<table")
    assert "b_x1" in html


def test_draws_say_how_many_there_are():
    bundle, _ = random_bundle("gaussian")
    text = repr(random_draws(bundle, chains=2, iterations=50))
    assert text == "Draws: 2 chains x 50 of b_Intercept, b_x1, b_x2, sigma, phi (3)"
