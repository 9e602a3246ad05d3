"""read.R under real R: posterior, loo and bayesplot find what we find."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from semistan.infer.stan_csv import Origin, stan_csv
from semistan.model.config import SampleConfig
from semistan.posterior.diagnostics import ebfmi
from semistan.posterior.draws import draws_of_columns, level_effects
from semistan.posterior.generated import generate_quantities, read_generated
from semistan.posterior.run import Run
from semistan.posterior.scoring.loo import psis_loo
from semistan.show.export import draws_table
from semistan.show.r_script import r_script, write_r_script
from semistan.show.tables import write_table
from semistan.workflow.new_run import new_run
from semistan.workflow.sample import sample as sample_run
from support.columns import columns_of, states
from support.kinds import MODELS
from support.manifests import manifest
from support.r import plain_r, r_with, run_r
from support.small import category_bundle, family_bundle, small_bundle, small_frame
from support.untrained import DIRICHLET, MULTINOMIAL, completed_bundle, random_bundle

pytestmark = pytest.mark.slow

OPTIONS = SampleConfig(chains=2, warmup=150, draws=150, seed=5)
HELPER = Path(__file__).with_name("read_run.R")
FIGURES = ["coefficients.pdf", "densities.pdf", "ranks.pdf", "trace.pdf"]


@pytest.fixture(scope="module", name="plain_r")
def _plain_r():
    return plain_r()


@pytest.fixture(scope="module")
def rscript():
    return r_with("posterior", "loo", "bayesplot")


class Read:
    """A run, what R printed when it read it, and the tables that R made."""

    def __init__(self, fit, rscript, folder):
        self.fit = fit
        write_table(draws_table(fit.posterior), folder / "draws.csv")
        command = [rscript, HELPER, write_r_script(fit.run), folder, folder / "draws.csv"]
        self.printed = run_r(command, cwd=folder)
        self.tables = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
        self.left_over = {path.suffix for path in folder.iterdir()}


@pytest.fixture(scope="module", params=["gaussian", "poisson"])
def read(request, rscript, toolchain, tmp_path_factory):
    bundle, rows = family_bundle(request.param)
    folder = tmp_path_factory.mktemp("r") / "a run"
    fit = sample_run(new_run(bundle, rows, folder, OPTIONS, toolchain), toolchain)
    generate_quantities(fit.run, toolchain)
    return Read(fit, rscript, tmp_path_factory.mktemp("tables"))


def assert_same_table(by_r, ours):
    for column in ours.columns:
        assert by_r[column].to_numpy() == pytest.approx(ours[column].to_numpy(), rel=1e-8), column


def test_posterior_computes_our_summary(read):
    ours = pd.read_csv(read.fit.run.path / "summary.csv")
    coefficients = read.tables["coefficients"]
    assert list(coefficients["variable"]) == list(ours["variable"])
    assert_same_table(coefficients, ours.drop(columns="variable"))


def test_the_diagnostics_are_ours(read):
    sampler, found = read.fit.posterior.draws.sampler, read.tables["diagnostics"].iloc[0]
    assert found["draws"] == read.fit.posterior.draws.size
    assert found["divergent"] == sampler["diverging"].sum()
    assert found["ebfmi"] == pytest.approx(ebfmi(sampler["energy"]).min(), rel=1e-8)


@pytest.mark.parametrize("name", ["", "heavy_"])
def test_loo_computes_our_psis(read, name):
    by_r = read.tables[f"{name}pointwise"]
    heavy = read.tables["heavy"].to_numpy()
    ours = psis_loo(heavy if name else read_generated(read.fit.run).log_lik)
    if name:
        assert ours.pareto_k.max() > 0.7
    assert ours.elpd == pytest.approx(by_r["elpd_loo"].to_numpy(), rel=1e-8)
    assert ours.lpd - ours.elpd == pytest.approx(by_r["p_loo"].to_numpy(), rel=1e-6, abs=1e-10)
    assert ours.pareto_k == pytest.approx(by_r["pareto_k"].to_numpy(), rel=1e-6, abs=1e-8)


def test_loo_computes_our_totals(read):
    ours = psis_loo(read_generated(read.fit.run).log_lik).table()
    by_r = read.tables["estimates"]
    assert by_r.to_numpy() == pytest.approx(ours[["Estimate", "SE"]].to_numpy(), rel=1e-7)


def test_the_response_is_read_from_the_data(read):
    y = read.tables["responses"]["y"].to_numpy()
    assert y == pytest.approx(read.fit.run.rows().y, rel=1e-14)


def test_that_loo_is_optimistic_is_said_of_a_subspace(read, tmp_path):
    said = "PSIS-LOO, given a subspace trained on all rows: optimistic\n"
    assert said in read.printed
    script = settings_of(read.fit.run.path / "read.R")
    assert "subspace <- TRUE " in script
    bundle, _ = small_bundle("y ~ x + nn(u)", subspace__construction="full")
    run = Run(tmp_path, bundle, manifest())
    assert "subspace <- FALSE " in r_script(run)


def test_posterior_recognises_the_exported_draws(read):
    layout = read.tables["layout"].iloc[0]
    assert (layout["chains"], layout["iterations"]) == (2, 150)
    assert layout["phi_2"] == pytest.approx(read.fit.posterior.draws.phi[..., 1].mean(), rel=1e-9)
    ours = pd.read_csv(read.fit.run.path / "summary.csv")
    assert list(read.tables["exported"]["variable"]) == list(ours["variable"])
    assert_same_table(read.tables["exported"], ours.drop(columns="variable"))


def test_figures_are_written_into_the_run_and_named(read):
    figures = sorted((read.fit.run.path / "figures-r").iterdir())
    assert [path.name for path in figures] == sorted([*FIGURES, "responses.pdf"])
    for path in figures:
        assert path.read_bytes().startswith(b"%PDF")
        assert str(path) in read.printed
    assert read.left_over == {".csv"}  # no Rplots.pdf where R was run


def test_the_draws_are_a_data_frame_too(read):
    size = read.fit.posterior.draws.size
    assert read.tables["frame"].to_dict("records") == [{"rows": size, "iterations": 150}]


SWITCHES = ("save_warmup", "refresh", "engaged", "save_cmdstan_config")


def as_newer_releases_write(path):
    """Rewrite a chain's comments: CmdStan has written false and true for 0 and 1 since 2.33."""
    head, draws = path.read_text().split("lp__", 1)
    for name in SWITCHES:
        head = re.sub(rf"(# +{name} = )0\b", r"\1false", head)
        head = re.sub(rf"(# +{name} = )1\b", r"\1true", head)
    assert "save_warmup = false" in head and "engaged = true" in head
    path.write_text(f"{head}#   save_cmdstan_config = false\nlp__{draws}")


def test_files_of_newer_releases_are_read(read, rscript, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(read.fit.run.path, run)
    for path in (run / "chains").glob("*.csv"):
        as_newer_releases_write(path)
    run_r([rscript, HELPER, run / "read.R", tmp_path], cwd=tmp_path)
    for name in ("coefficients", "diagnostics"):
        found = pd.read_csv(tmp_path / f"{name}.csv")
        pd.testing.assert_frame_equal(found, read.tables[name], rtol=1e-9)


KINDS = {
    **MODELS,
    "multinomial": (MULTINOMIAL, "cbind(bus, car, train) | trials(tries) ~ x1 + nn(u1, u2, u3)"),
    "dirichlet": (DIRICHLET, "cbind(bus, car, train) ~ x1 + nn(u1, u2, u3)"),
    "zero-inflated": ("zero_inflated_poisson", "y ~ x1 + nn(u1), zi ~ z + (1 | g)"),
}


@pytest.mark.parametrize("completed", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_is_read(name, completed, rscript, tmp_path):
    family, formula = KINDS[name]
    bundle, rows = (completed_bundle if completed else random_bundle)(family, formula=formula)
    columns, run = written_chains(bundle, rows, tmp_path / "a run", completed)
    printed = run_r([rscript, HELPER, write_r_script(run), tmp_path], cwd=tmp_path)
    tables = {path.stem: pd.read_csv(path).set_index("variable") for path in tmp_path.glob("*.csv")
              if path.stem in ("coefficients", "levels")}  # fmt: skip
    draws = draws_of_columns(bundle, columns, run.options)
    named = draws.interpreted | level_effects(bundle.design, draws)
    shown = [name for table in tables.values() for name in table.index]
    assert shown == list(named)
    parts = [name for name in shown if uncompleted(printed).isdisjoint({name, name.split("[")[0]})]
    assert len(parts) == len(shown) or completed
    for name, values in named.items():
        table = tables["coefficients" if name in draws.interpreted else "levels"]
        ours = [values.mean(), values.std(ddof=1), *np.quantile(values, [0.025, 0.975])]
        found = table.loc[name, COMPARED].to_numpy(dtype=float)
        assert (found == pytest.approx(ours, rel=1e-6)) == (name in parts), name


COMPARED = ["Estimate", "Est.Error", "l-95% CI", "u-95% CI"]


def written_chains(bundle, rows, folder, completed):
    """Write two chains of 8 states, as CmdStan does; return their columns, and the run."""
    run = Run(folder, bundle, manifest({"chains": 2, "draws": 8}))
    (folder / "chains").mkdir(parents=True)
    found = []
    for chain in (1, 2):
        q = states(bundle, 8 * chain)[-8:]
        normal = np.random.default_rng(chain).normal
        psi = normal(size=(8, bundle.completion.K)) if completed else None
        found.append(columns_of(bundle, rows, q, psi))
        text = stan_csv(found[-1], Origin("states", "Some states.", chain, 1, 0))
        (folder / "chains" / f"chain-{chain}.csv").write_bytes(text)
    return found, run


def uncompleted(printed):
    """Return what R says that only Python completes."""
    found = re.search("the weights outside the subspace add: (.*)\\.\n", printed)
    return set(found[1].split(", ")) if found else set()


def test_a_chain_from_the_prior_with_an_odd_name_read_from_elsewhere(rscript, toolchain, tmp_path):
    name = 'größe "2" \\ 😀'
    bundle, rows = small_bundle(f"y ~ `{name}` + nn(u)", small_frame().rename(columns={"x": name}))
    options = OPTIONS.model_copy(update={"max_treedepth": 2, "chains": 1})
    run = new_run(bundle, rows, tmp_path / "run", options, toolchain, prior_only=True)
    fit = sample_run(run, toolchain)
    script = write_r_script(fit.run, tmp_path / "elsewhere" / "my script.R")
    printed = run_r([rscript, script], cwd=tmp_path, env=os.environ | {"LC_ALL": "C.UTF-8"})
    deep = int((fit.posterior.draws.sampler["tree_depth"] >= 2).sum())
    assert deep > 0
    assert f"limit of the tree depth: {deep} " in printed
    assert "prior draws: 150 \nchains: 1 \n" in printed
    assert all(row.name in printed for row in fit.summary.rows)
    assert f"semistan export '{run.path}' --to generated" in printed
    assert "PSIS-LOO" not in printed
    assert sorted(path.name for path in (run.path / "figures-r").iterdir()) == [
        "coefficients.pdf", "densities.pdf", "trace.pdf",
    ]  # fmt: skip


def test_approximations_are_read_and_marked(rscript, toolchain, tmp_path):
    bundle, rows = family_bundle("gaussian")
    options = OPTIONS.model_copy(update={"method": "meanfield"})
    run = new_run(bundle, rows, tmp_path / "run", options, toolchain)
    fit = sample_run(run, toolchain)
    printed = run_r([rscript, write_r_script(run)], cwd=tmp_path)
    assert "posterior draws: 300 \nchains: 2 \n" in printed
    assert "not the posterior: approximate (mean-field variational inference)" in printed
    assert "divergent" not in printed
    lines = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line.strip()}
    for row in fit.summary.rows:
        found = [float(number) for number in lines[row.name][:4]]
        assert found == pytest.approx(row.values[:4], rel=5e-3), row.name


def test_a_run_that_lacks_a_chain_stops_the_script_with_advice(rscript, tmp_path):
    result = subprocess.run(
        [rscript, written_script(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "chain-2.csv" in result.stderr
    assert "semistan sample" in result.stderr


HOSTILE = (
    'a "b" \\c\nü 😀',
    'a = system("touch pwned"), b_x',
    'b_y" = 1); system("touch pwned"); c("\': \'"); system("touch pwned"); ("\'',
    "`b_z`\nsystem('touch pwned') #\\",
    "TRUE",
    "\u2028",
)
# What the settings of a script consist of, read without the help of what writes them.
TOKENS = re.compile(
    r'(?P<blank>\s+|#[^\n]*)|"(?P<string>(?:[^"\\]|\\.)*)"'
    r"|(?P<name>[A-Za-z.][\w.]*)|(?P<mark>\d+(?:\.\d+)?|<-|[(),=])",
    re.ASCII,
)
ESCAPES = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|([\"\\]))")
SETTINGS = {"run_from_here", "chains", "method", "reservations", "max_treedepth", "prior_only"}
SETTINGS |= {"temperature", "whole_numbers", "parameter_names", "level_names", "uncompleted"}
SETTINGS |= {"TRUE", "FALSE", "subspaces", "kept", "subspace", "categories", "c", "character"}


def settings_of(script):
    """Return the part of a script that varies between runs."""
    return script.read_text("ascii").partition("\nhas <- function")[0]


def tokens_of(text):
    """Read all of the text as tokens of R; return their kinds and what they say."""
    position, found = 0, []
    while position < len(text):
        match = TOKENS.match(text, position)
        assert match, text[position:]
        position = match.end()
        if match.lastgroup != "blank":
            found.append((match.lastgroup, match[match.lastgroup]))
    return found


def unescaped(string):
    return ESCAPES.sub(lambda m: m[3] or chr(int(m[1] or m[2], 16)), string)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The settings of a model whose group has hostile levels."""
    frame = small_frame()
    frame["g"] = np.array(HOSTILE)[np.arange(len(frame)) % len(HOSTILE)]
    bundle, _ = small_bundle("y ~ x + (1 | g) + nn(u)", frame)
    return settings_of(written_script(tmp_path_factory.mktemp("hostile"), bundle))


def test_names_of_a_hostile_file_stay_strings(hostile):
    tokens = tokens_of(hostile)
    assert {text for kind, text in tokens if kind == "name"} <= SETTINGS
    tokens = tokens[tokens.index(("name", "level_names")) : tokens.index(("name", "uncompleted"))]
    marks = [text for kind, text in tokens if kind == "mark"]
    assert marks == ["<-", "(", *(["=", ","] * len(HOSTILE))[:-1], ")"]
    strings = [unescaped(text) for kind, text in tokens if kind == "string"]
    levels = sorted("".join("." if c.isspace() else c for c in text) for text in HOSTILE)
    assert sorted(strings[1::2]) == [f"r_g[{level},Intercept]" for level in levels]


def test_r_runs_nothing_of_a_hostile_file(hostile, plain_r, tmp_path):
    script = tmp_path / "settings.R"
    shown = "\ncat(sprintf('%s\\n', encodeString(level_names)), sep = '')\n"
    script.write_text(hostile + shown)
    printed = run_r([plain_r, script], cwd=tmp_path)
    assert len(printed.splitlines()) == len(HOSTILE)
    assert not (tmp_path / "pwned").exists()


def test_categories_are_named_by_their_numbers(tmp_path):
    run = Run(tmp_path, category_bundle()[0], manifest())
    assert '# categories: 1 "bus", 2 "car", 3 "train trip"\n' in r_script(run)


def test_loo_is_refused_where_the_posterior_is_tempered(tmp_path):
    text = written_script(tmp_path, sample={"temperature": 4.0}).read_text("utf-8")
    assert "\ntemperature <- 4.0 " in text
    refusal, rest = text.split("if (has_generated && !prior_only && temperature != 1) {")[1].split(
        "} else if (has_generated && !prior_only) {"
    )
    assert "No PSIS-LOO" in refusal and "loo::loo(" not in refusal
    assert rest.count("loo::loo(") == text.count("loo::loo(") == 1


def written_script(folder, bundle=None, sample=None):
    """Write the script of a run that has no chains."""
    return write_r_script(Run(folder, bundle or random_bundle("gaussian")[0], manifest(sample)))
