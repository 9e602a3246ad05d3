"""A kind of picture is one record: a histogram of the linear predictor, defined here."""

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import semistan
from semistan.command.cli import app
from semistan.errors import InputError
from semistan.show.pictures import PICTURES
from semistan.show.pictures.kind import PictureKind
from semistan.workflow.fit import fit_model
from support.small import small_config, small_frame


def draw_histogram(material, *, bins=20):
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.hist(material.posterior.predictor(material.rows).mean(axis=0), bins=bins)
    axes.set_xlabel("linear predictor")
    return figure


HISTOGRAM = PictureKind(
    name="histogram",
    title="histogram of the linear predictor",
    draw=draw_histogram,
    alt=lambda material, bins=20: f"Histogram of {len(material.rows)} rows in {bins} bins.",
    refusal=lambda material: "it has no network" if not material.posterior.design.networks else "",
    place="training rows",
    hint="It should have no gaps.",
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as context:
        context.setitem(PICTURES, HISTOGRAM.name, HISTOGRAM)
        yield


@pytest.fixture(scope="module")
def fit(toolchain, tmp_path_factory):
    config = small_config("y ~ x + nn(u, v)", sample={"chains": 2, "draws": 100})
    return fit_model(config, small_frame(), out=tmp_path_factory.mktemp("picture") / "run")


@pytest.mark.cmdstan
def test_it_is_drawn_by_its_name(fit, tmp_path):
    file = tmp_path / "histogram.svg"
    asked = ["plot", str(fit.run.path), "--kind", "histogram", "--out", str(file)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "linear predictor" in file.read_text("utf-8")
    with pytest.raises(InputError, match=r"'histogram' has no option 'bin'.+'bins'"):
        semistan.plot(fit.run, "histogram", bin=7)


@pytest.mark.cmdstan
def test_a_report_has_it_in_its_place(fit, tmp_path):
    semistan.report(fit.run, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("It should have no gaps.") == 1
    assert "Histogram of 30 rows in 20 bins." in page
    assert page.index("Replicated responses") < page.index("It should have no gaps.")
