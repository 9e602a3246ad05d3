"""Tools that are missing or odd, and folders with blanks and other letters in their names."""

import os
import subprocess

import pytest

from semistan.errors import ToolchainError
from semistan.infer.cmdstan.compile import in_plain_path
from semistan.infer.cmdstan.toolchain import _makefile_version, compiler_version, find_make
from support.victims import Victim, results_of

from .test_kills import FIT, work_in


@pytest.mark.parametrize("named", ['g++ "', "'", "nowhere-g++", " "])
def test_an_odd_compiler_is_named(named, monkeypatch):
    monkeypatch.setenv("CXX", named)
    with pytest.raises(ToolchainError, match=r"C\+\+ compiler"):
        compiler_version()


def test_a_missing_make_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="'make' was not found"):
        find_make()


@pytest.mark.parametrize(
    "makefile",
    [None, "", "CMDSTAN_VERSION", "CMDSTAN_VERSION :=", "CMDSTAN_VERSION := new", "\x00\xff"],
)
def test_a_folder_that_is_no_cmdstan_is_named(makefile, tmp_path):
    if makefile is not None:
        (tmp_path / "makefile").write_text(makefile)
    with pytest.raises(ToolchainError, match=r"is it CmdStan\?") as caught:
        _makefile_version(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("text", ["2.27.0", "2.38.0-rc1"])
def test_a_version_is_read(text, tmp_path):
    (tmp_path / "makefile").write_text(f"A := 1\nCMDSTAN_VERSION := {text}\n")
    assert ".".join(map(str, _makefile_version(tmp_path))) == text.partition("-")[0]


def test_make_gets_a_path_without_blanks(tmp_path):
    folder = tmp_path / "größe $(id) 'x'"
    folder.mkdir()
    (folder / "file").write_text("there")
    with in_plain_path(folder) as plain:
        assert " " not in str(plain)
        assert (plain / "file").read_text() == "there"
    assert not plain.exists()
    with in_plain_path(tmp_path) as plain:
        assert plain == tmp_path


@pytest.mark.faults
def test_folders_with_blanks_and_other_letters(toolchain, tmp_path):
    """The program is compiled in such a cache, by CmdStan in such a place, in such a home."""
    plain = work_in(tmp_path / "plain")
    whole = Victim(plain, *FIT, "--out", "run")
    assert whole.wait() in (0, 3), whole.said
    odd = work_in(tmp_path / "rün with 'blanks' 数")
    (odd / "home é").mkdir()
    (odd / "tmp ö").mkdir()
    (odd / "cmd stan").symlink_to(toolchain.cmdstan)
    victim = Victim(
        odd, *FIT, "--out", "a run", HOME=str(odd / "home é"), TMPDIR=str(odd / "tmp ö"),
        SEMISTAN_CACHE=str(odd / "cache ß"), CMDSTAN=str(odd / "cmd stan"),
    )  # fmt: skip
    assert victim.wait() in (0, 3), victim.said
    assert results_of(odd / "a run") == results_of(plain / "run")


@pytest.mark.faults
@pytest.mark.parametrize("missing", ["make", "g++", "CmdStan"])
def test_a_missing_tool_is_said_before_training(missing, tmp_path):
    folder = work_in(tmp_path / "work")
    environment = {
        "make": {"MAKE": "nowhere-make"}, "g++": {"CXX": "nowhere-g++"},
        "CmdStan": {"CMDSTAN": str(tmp_path)},
    }[missing]  # fmt: skip
    victim = Victim(folder, *FIT, "--out", "run", **environment)
    assert victim.wait() == 2, victim.said
    assert "Traceback" not in victim.said
    assert victim.said.count("error:") == 1
    assert not (folder / "run").exists()


@pytest.mark.faults
def test_a_read_only_place_is_said_before_training(tmp_path):
    folder = tmp_path / "read-only"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(folder)],
        capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    if not mounted:
        folder.chmod(0o500)
        if os.geteuid() == 0:
            pytest.skip("root may write anywhere, and nothing can be mounted here")
    try:
        for variable in (None, "SEMISTAN_CACHE"):
            work = work_in(tmp_path / f"work-{variable}")
            out = folder / "run" if variable is None else "run"
            environment = {} if variable is None else {variable: str(folder / "cache")}
            victim = Victim(work, *FIT, "--out", out, **environment)
            assert victim.wait() == 2, victim.said
            assert "Traceback" not in victim.said
            assert "read-only" in victim.said or "permission" in victim.said, victim.said
            assert "trained" not in victim.said
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
