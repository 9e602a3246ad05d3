"""Names of columns and levels reach R, Stan, shell, HTML and pictures as text, whatever they are.

Every writer is run twice: on a table with hostile names, and on its twin, the same table with plain
ones. What is left without comments, strings and names must be the same.
"""

import csv
import json
import re
import xml.etree.ElementTree as XML
from dataclasses import asdict, dataclass, field

import numpy as np
import pytest
import xarray

from semistan.infer.folder import write_program
from semistan.infer.scripts import SHELL, R, write_scripts
from semistan.model.config import SampleConfig
from semistan.posterior.posterior import SubspacePosterior
from semistan.posterior.run import Run
from semistan.posterior.summary import write_summary
from semistan.program.program import bundle_program
from semistan.show.inference_data import inference_data, write_inference_data
from semistan.show.pictures import alt_text, available, draw, memory_material, write_picture
from semistan.show.r_script import r_script
from semistan.show.report.content import report_content
from semistan.show.report.evidence import gather
from semistan.show.report.page import render
from support.drawn import random_draws
from support.manifests import manifest
from support.pages import Page, small_results
from support.small import small_bundle, small_frame

SAMPLE = SampleConfig(chains=2, warmup=100, draws=50, seed=3, metric="diag_e")


@dataclass(frozen=True)
class Names:
    """What the response, columns of each kind and a level are called."""

    y: str
    x: str
    u: str
    g: str
    level: str


PLAIN = Names("pwned_y", "pwned_x", "pwned_u", "pwned_g", "pwned_level")
HOSTILE = {
    "R and Stan": Names(
        'y = system("touch pwned"), z',
        "a\n} real pwned; //",
        "u */ #include pwned.stan\r\nreal pwned;",
        'g"); system("touch pwned"); c("',
        "\\\"), pwned(), c(\"",
    ),
    "shell and paths": Names(
        "../../pwned",
        "$(touch pwned); touch pwned",
        "%s %n {pwned.__class__} ${pwned}",
        "/etc/pwned",
        "-rf pwned && pwned | pwned > pwned",
    ),
    "HTML and pictures": Names(
        "<img src=x onerror=pwned()>",
        "</script><script>pwned()</script>",
        r"$\frac{pwned}{$ ^_{ & <b>pwned</b>",
        "'><svg onload=pwned()>",
        "{{ pwned }} {% pwned %} ]]>",
    ),
    "odd characters": Names(
        "pwned\u2028y",
        "pwned\u202e\u0085x",
        "pwned\t\u00a0u",
        "\U0001f4a5pwned",
        "pwned\u0301\ufeff",
    ),
}  # fmt: skip
hostile = pytest.mark.parametrize("names", HOSTILE.values(), ids=list(HOSTILE))


def table(names):
    frame = small_frame().rename(
        columns={"y": names.y, "x": names.x, "u": names.u, "g": names.g}
    )  # fmt: skip
    frame[names.g] = frame[names.g].replace({"b": names.level})
    return frame


def formula(names):
    return f"`{names.y}` ~ `{names.x}` + `{names.g}` + (1 | `{names.g}`) + nn(`{names.u}`, v)"


@dataclass
class Written:
    """A run's folder without draws on disk, and what it was made from."""

    run: Run
    bundle: object
    rows: object
    program: str = field(default="")


def written(names, folder):
    bundle, rows = small_bundle(formula(names), table(names))
    program = bundle_program(bundle)
    folder.mkdir()
    write_program(bundle.model, program, folder, "stan")
    write_scripts(folder, SAMPLE, keep_metric=False, kernel="stan")
    run = Run(folder, bundle, manifest(SAMPLE.model_dump()))
    return Written(run, bundle, rows, program)


def code_of_stan(program):
    """A program without comments, and without what its names are."""
    lines = (line.split("//")[0].rstrip() for line in program.splitlines())
    return " ".join(re.sub(r"\w*(pwned|system|touch)\w*", "NAME", "\n".join(lines)).split())


def code_of_r(script):
    """A script of R without comments and strings."""
    return re.sub(
        r'"(?:[^"\\]|\\.)*"|#[^\n]*', lambda m: '""' if m[0][0] == '"' else "", script
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return written(PLAIN, tmp_path_factory.mktemp("plain") / "run")


@hostile
def test_the_program_differs_from_its_twin_in_names_alone(names, plain, tmp_path):
    program = written(names, tmp_path / "run").program
    code = code_of_stan(program)
    assert code.isascii()
    if "pwned" in names.x and all("pwned" in name for name in asdict(names).values()):
        assert code == code_of_stan(plain.program)
    assert not [line for line in program.splitlines() if line.lstrip().startswith("#")]


@hostile
def test_the_scripts_of_the_folder_are_those_of_its_twin(names, plain, tmp_path):
    run = written(names, tmp_path / "run").run
    for name in (SHELL, R):
        assert (run.path / name).read_bytes() == (plain.run.path / name).read_bytes()


@hostile
def test_read_r_differs_from_its_twin_in_strings_and_comments_alone(names, plain, tmp_path):
    run = written(names, tmp_path / "run").run
    assert code_of_r(r_script(run)) == code_of_r(r_script(plain.run))


@hostile
def test_labels_are_the_names_as_they_are(names, tmp_path):
    run = written(names, tmp_path / "run").run
    labels = json.loads((run.path / "labels.json").read_text("utf-8"))
    assert names.x in labels.values()
    assert all(re.fullmatch(r"[A-Za-z]\w*(\.\d+)*", name, re.ASCII) for name in labels)


@hostile
def test_inference_data_keeps_the_names(names, tmp_path):
    made = written(names, tmp_path / "run")
    posterior = SubspacePosterior(made.bundle, random_draws(made.bundle, iterations=20))
    path = tmp_path / "posterior.nc"
    write_inference_data(inference_data(made.run, posterior, made.rows), path)
    with xarray.open_datatree(path) as tree:
        assert tree["posterior"].dataset["coef"].values.tolist() == list(
            made.bundle.design.coefficients
        )
        assert [*tree["observed_data"].dataset.data_vars] == [
            *tree["log_likelihood"].dataset.data_vars
        ]
        assert tree.attrs["formula"] == made.bundle.config.formula
    assert [p.name for p in tmp_path.iterdir() if "pwned" in p.name] == []


@hostile
def test_the_summary_table_has_one_line_for_each_coefficient(names, tmp_path):
    results = small_results(formula(names), frame=table(names), iterations=50)
    path = tmp_path / "summary.csv"
    write_summary(results.summary, path)
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert len({len(line) for line in lines}) == 1


def page_of(names, path):
    results = small_results(
        formula(names), frame=table(names), path=path, chains=2, iterations=40
    )  # fmt: skip
    return Page(render(report_content(results, gather(results, np.random.default_rng(0)))))


@pytest.fixture(scope="module")
def plain_page():
    return page_of(PLAIN, "pwned.csv")


@pytest.mark.lengthy
def test_the_report_has_no_element_of_a_name(plain_page):
    page = page_of(HOSTILE["HTML and pictures"], "<b>pwned</b>.csv")
    for parts in (lambda node: {node.tag}, lambda node: node.attributes.keys()):
        assert set().union(*map(parts, page.nodes)) <= set().union(*map(parts, plain_page.nodes))
    assert not [node for node in page.all("script") if "pwned" in node.text]


@hostile
@pytest.mark.lengthy
def test_pictures_show_the_names_as_text(names, tmp_path):
    bundle, rows = small_bundle(formula(names), table(names))
    material = memory_material(SubspacePosterior(bundle, random_draws(bundle)), rows)
    for kind in available(material):
        path = tmp_path / f"{kind}.svg"
        write_picture(draw(material, kind), path)
        tags = {element.tag.rpartition("}")[2] for element in XML.parse(path).iter()}
        assert not tags & {"script", "img", "b", "foreignObject", "a"}, kind
        assert alt_text(material, kind)
