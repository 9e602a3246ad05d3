import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from semistan.bundle.bundle import write_bundle
from semistan.command import cli
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.workflow import compiled
from semistan.workflow import fit as workflow
from semistan.workflow import train as training
from semistan.workflow.watch import Watch
from support.small import files, small_bundle, small_frame

FORMULA = "y ~ x + C(g) + nn(u, v)"
TRAIN = "fit --train-only"


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run ``semistan`` in a folder with data.csv, where training is forbidden."""

    def forbidden(*_, **__):
        raise AssertionError("training was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workflow, "train", forbidden)
    monkeypatch.setattr(training, "train", forbidden)
    monkeypatch.setattr(compiled, "compile_program", forbidden)
    monkeypatch.setattr(compiled, "find_toolchain", lambda: Toolchain(tmp_path, (2, 27, 0), ""))
    small_frame().to_csv("data.csv", index=False)

    def run(verb, *arguments):
        before = files(tmp_path)
        monkeypatch.setattr(sys, "argv", ["semistan", *verb.split(), *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert files(tmp_path) == before, "a file was left behind"
        output = capsys.readouterr()
        assert output.out == ""
        assert "Traceback" not in output.err
        return caught.value.code, re.sub(r"\s+", " ", output.err)

    return run


def refused(command, *arguments):
    code, message = command(*arguments)
    assert code == 2, message
    return message


def frame_with(**columns):
    return small_frame().assign(**columns)


def spoilt(column, value):
    return small_frame().assign(**{column: lambda f: f[column].where(f.index != 4, value)})


VERBS = ("fit", TRAIN, "new")
TABLES = {
    "one row": (small_frame(1), FORMULA, [], "at least two rows of data, got 1"),
    "missing column": (
        small_frame().rename(columns={"x": "age"}), "y ~ aeg + nn(u)", [],
        "names column 'aeg', which the data do not have. Did you mean 'age'?",
    ),
    "missing network column": (small_frame(), "y ~ x + nn(uu)", [], "names column 'uu'"),
    "text for a function": (
        small_frame(), "y ~ x + nn(u, log(g))", [], "'g' must be numeric, got 'a'",
    ),
    "text as response": (small_frame(), "g ~ x + nn(u)", [], "column 'g' must be numeric"),
    "NaN": (
        spoilt("x", np.nan), FORMULA, [], "1 of 30 rows have missing or infinite values: x (1)",
    ),
    "infinite": (spoilt("u", np.inf), FORMULA, [], "missing or infinite values: u (1)"),
    "minus infinite response": (spoilt("y", -np.inf), FORMULA, [], "infinite values: y (1)"),
    "nothing left": (frame_with(x=np.nan), FORMULA, ["--drop-missing"], "no row is left"),
    "constant": (frame_with(x=3.0), FORMULA, [], "column 'x' is constant in these data (3)"),
    "constant network input": (frame_with(u=0), FORMULA, [], "column 'u' is constant"),
    "constant response": (frame_with(y=1), FORMULA, [], "response 'y' is constant (1)"),
    "collinear": (
        frame_with(w=lambda f: 2 * f["x"]), "y ~ x + w + nn(u)", [],
        "column 'w' is collinear with x",
    ),
    "negative counts": (
        spoilt("count", -2), "count ~ x + nn(u)", ["--family", "poisson"],
        "family poisson expects counts 0, 1, 2, ..., but response 'count' is -2 in row 5",
    ),
    "fractional counts": (
        spoilt("z", 2), "z ~ x + nn(u)", ["--family", "poisson"], "poisson expects counts",
    ),
    "a two": (
        spoilt("flag", 2), "flag ~ x + nn(u)", ["--family", "bernoulli"],
        "expects 0 or 1, but response 'flag' is 2 in row 5 (1 of 30 rows)",
    ),
    "k equals d": (
        small_frame(), "y ~ x + nn(u)", ["--hidden", "2", "--k", "7"], "d = 7, got k = 7",
    ),
    "duplicate names": (
        small_frame().rename(columns={"x": "sigma_z"}), "y ~ sigma_z + nn(u), sigma ~ z", [],
        "would both be called 'b_sigma_z'",
    ),
    "a wrong logarithm": (small_frame(), "y ~ log(x) + nn(u)", [], "'log(x)' is nan in row 1"),
    "arbitrary Python": (small_frame(), "y ~ I(x.T) + nn(u)", [], "names column 'x.T'"),
    "no nn()": (small_frame(), "y ~ x", [], "needs an nn() term"),
    "a bar without parentheses": (
        small_frame(), "y ~ x | z + nn(u)", [], "^ a group-level term stands by itself in paren",
    ),
    "unknown family": (small_frame(), FORMULA, ["--family", "posson"], "Did you mean 'poisson'?"),
    "unknown activation": (small_frame(), FORMULA, ["--activation", "tan"], "mean 'tanh'?"),
    "unknown density": (small_frame(), FORMULA, ["--prior-b", "norml(0,1)"], "mean 'normal'?"),
    "hidden in words": (small_frame(), FORMULA, ["--hidden", "a"], "--hidden takes numbers"),
    "too many frozen": (small_frame(), FORMULA, ["--frozen", "3"], "frozen must be between 0 and"),
    "no GPU named so": (small_frame(), FORMULA, ["--device", "gpu"], "train.device"),
    "no epochs": (small_frame(), FORMULA, ["--epochs", "0"], "train.epochs"),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", TABLES)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_bad_input_is_refused_before_anything_happens(command, verb, case):
    table, formula, options, message = TABLES[case]
    table.to_csv("data.csv", index=False)
    assert message in refused(command, verb, formula, "--data", "data.csv", *options)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "data file 'other.csv' does not exist"),
        (b"", "data file 'other.csv' is empty"),
        (b"y,x,g,u,v\n", "has a header but no rows"),
        (b"\x00\xff\xfe", "data file 'other.csv'"),
    ],
    ids=["missing", "empty", "header only", "binary"],
)
def test_an_unusable_file_is_refused(command, tmp_path, verb, content, message):
    if content is not None:
        (tmp_path / "other.csv").write_bytes(content)
    assert message in refused(command, verb, FORMULA, "--data", "other.csv")


@pytest.mark.parametrize("verb", VERBS)
def test_the_data_are_needed(command, verb):
    assert "no data: give --data" in refused(command, verb, FORMULA)


@pytest.mark.parametrize("verb", ["fit", TRAIN])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("famly = 'poisson'", "unknown key 'famly'. Did you mean 'family'?"),
        ("[train]\nepoch = 3", "unknown key 'train.epoch'. Did you mean 'epochs'?"),
        ("[sample]\nchains = 0", "sample.chains"),
        ("family = ", "no valid TOML"),
    ],
)
def test_a_wrong_model_is_refused(command, tmp_path, verb, line, message):
    (tmp_path / "model.toml").write_text(f'formula = "{FORMULA}"\ndata = "data.csv"\n{line}\n')
    assert message in refused(command, verb, "model.toml")


def test_a_missing_model_is_named(command):
    assert "'modle.toml' does not exist" in refused(command, "fit", "modle.toml")


OUTPUTS = [("fit", "run", "manifest.json"), (TRAIN, "bundle", "bundle.json")]


@pytest.mark.parametrize(("verb", "name", "marker"), OUTPUTS)
def test_an_existing_output_is_kept(command, tmp_path, verb, name, marker):
    (tmp_path / name).mkdir()
    (tmp_path / name / marker).write_text("{}")
    message = refused(command, verb, FORMULA, "--data", "data.csv")
    assert f"'{name}' exists; replace it with --overwrite" in message


@pytest.mark.parametrize(("verb", "name", "marker"), OUTPUTS)
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_foreign_folder_is_never_touched(command, tmp_path, verb, name, marker, options):
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.tex").write_text("a")
    message = refused(command, verb, FORMULA, "--data", "data.csv", *options)
    assert f"was not written by semistan (it has no {marker})" in message


def test_an_existing_model_is_kept(command, tmp_path):
    (tmp_path / "model.toml").write_text("mine")
    message = refused(command, "new", FORMULA, "--data", "data.csv")
    assert "'model.toml' exists; replace it with --overwrite" in message


@pytest.mark.parametrize("version", [None, "2.20.0"])
def test_cmdstan_is_looked_for_before_training(command, tmp_path, monkeypatch, version):
    from semistan.infer.cmdstan.toolchain import find_toolchain

    folder, home = tmp_path / "cmdstan", tmp_path / "home"
    home.mkdir()
    if version:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "stanc").touch(mode=0o755)
        (folder / "makefile").write_text(f"CMDSTAN_VERSION := {version}\n")
    monkeypatch.setattr(compiled, "find_toolchain", find_toolchain)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CMDSTAN", str(folder))
    message = refused(command, "fit", FORMULA, "--data", "data.csv")
    expected = f"2.27 or newer is needed, '{folder}' is 2.20.0" if version else "no CmdStan folder"
    assert expected in message
    assert "semistan install-cmdstan" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stan", "nothing"], "'nothing' is not a bundle"),
        (["sample", "nothing"], "'nothing' is not a bundle"),
        (["summary", "nothing"], "'nothing' is not a run"),
        (["predict", "nothing", "--newdata", "data.csv"], "'nothing' is not a run"),
    ],
)
def test_a_missing_folder_is_named(command, arguments, message):
    assert message in refused(command, *arguments)


def test_other_training_data_are_noticed(command, tmp_path):
    write_bundle(small_bundle()[0], tmp_path / "bundle")
    small_frame(20).to_csv(tmp_path / "fewer.csv", index=False)
    assert "give --data FILE.csv" in refused(command, "stan", "bundle")
    message = refused(command, "stan", "bundle", "--data", "fewer.csv")
    assert "was trained on 30 rows, 'fewer.csv' has 20" in message


def test_a_run_is_not_replaced_by_a_program(command, tmp_path):
    write_bundle(small_bundle()[0], tmp_path / "bundle")
    (tmp_path / "run").mkdir()
    for name in ("manifest.json", "program.stan"):
        (tmp_path / "run" / name).write_text("{}")
    refused(command, "stan", "bundle", "--data", "data.csv", "--out", "run", "--overwrite")


@pytest.mark.parametrize("arguments", [["fti"], ["fit"], ["fit", FORMULA, "--epoch", "3"],
                                       ["fit", FORMULA, "--epochs", "many"]])  # fmt: skip
def test_wrong_usage_exits_with_2(command, arguments):
    refused(command, *arguments)


@pytest.mark.lengthy
def test_a_process_exits_with_2_and_one_message(tmp_path):
    small_frame(1).to_csv(tmp_path / "data.csv", index=False)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "semistan", "fit", FORMULA, "--data", "data.csv"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "500"},
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: a fit needs at least two rows of data, got 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_table_in_place_of_a_model_is_explained(command):
    assert "give it by --data" in refused(command, "fit", "data.csv")


@pytest.mark.parametrize(
    ("mode", "expected"), [("auto", "reported besides: b_u_orth"), ("off", "warning: nn() sees")]
)
def test_what_is_done_about_a_column_in_both_parts_is_said(mode, expected, command, monkeypatch):
    monkeypatch.setattr(compiled, "find_toolchain", lambda: 1 / 0)
    said = []
    with pytest.raises(ZeroDivisionError):
        workflow.fit_model(
            "y ~ x + u + nn(u, v)", small_frame(), out="run", watch=Watch(said.append),
            overrides={"orthogonalise": mode},
        )  # fmt: skip
    assert [line for line in said if expected in line]


def test_a_cluster_that_is_not_there_is_named_before_any_work(command):
    fit = ("fit", FORMULA, "--data", "data.csv", "--cluster", "nowhere.json")
    assert "'nowhere.json' does not exist" in refused(command, *fit)
    assert "got 'sky'" in refused(command, *fit[:-2], "--backend", "sky")


WAITING = """
import signal, sys, time
from semistan.command import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
@cli.app.command("wait")
def wait() -> None:
    print("here", flush=True)
    time.sleep(60)
sys.argv = ["semistan", "wait"]
cli.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of other systems differ")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_the_status_of_shells(number):
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"here\n"
        process.send_signal(number)
        assert process.wait(60) == 128 + number
