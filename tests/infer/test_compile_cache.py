import re
from dataclasses import replace
from pathlib import Path

import pytest

from semistan.infer.cmdstan import compile as module
from semistan.infer.cmdstan.compile import (
    cache_folder,
    cache_key,
    compile_program,
    is_compiled,
    without_comments,
)
from semistan.infer.cmdstan.toolchain import Toolchain
from semistan.program.program import bundle_program, stan_program
from support.small import small_bundle, small_frame, small_prepared

TOOLCHAIN = Toolchain(Path("/opt/cmdstan-2.36.0"), (2, 36, 0), "g++ (Debian) 12.2.0")
PROGRAM = "// header\nparameters {\n  real x;  // a number\n}\n\nmodel {\n  x ~ std_normal();\n}\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.replace("// header", "// another header\n// of two lines"),
        lambda p: p.replace("  // a number", ""),
        lambda p: p.replace("// header", "/* block\n comment */"),
        lambda p: p.replace("\n\n", "\n \n\n\n"),
        lambda p: p + "\n\n",
        lambda p: p.replace(";\n", ";   \n"),
    ],
)
def test_comments_and_blank_lines_cost_no_compilation(change):
    assert change(PROGRAM) != PROGRAM
    assert cache_key(change(PROGRAM), TOOLCHAIN) == cache_key(PROGRAM, TOOLCHAIN)


@pytest.mark.parametrize(
    ("program", "changes"),
    [
        (PROGRAM.replace("real x", "real y"), {}),
        (PROGRAM.replace("std_normal()", "normal(0, 1)"), {}),
        (PROGRAM, {"cmdstan": Path("/other/cmdstan-2.36.0")}),
        (PROGRAM, {"version": (2, 36, 1)}),
        (PROGRAM, {"compiler": "clang version 16"}),
    ],
)
def test_what_the_binary_depends_on_changes_the_key(program, changes):
    assert cache_key(program, replace(TOOLCHAIN, **changes)) != cache_key(PROGRAM, TOOLCHAIN)


def test_the_options_change_the_key(monkeypatch):
    before = cache_key(PROGRAM, TOOLCHAIN)
    monkeypatch.setattr(module, "CPP_OPTIONS", {"STAN_THREADS": False})
    assert cache_key(PROGRAM, TOOLCHAIN) != before


def test_a_main_program_of_ours_changes_the_key_by_what_it_says(monkeypatch):
    plain, linked = (cache_key(PROGRAM, TOOLCHAIN, main=main) for main in (None, "mclmc"))
    assert plain == cache_key(PROGRAM, TOOLCHAIN) != linked
    monkeypatch.setattr(module, "stan_source", lambda name: f"another {name}")
    assert cache_key(PROGRAM, TOOLCHAIN) == plain
    assert cache_key(PROGRAM, TOOLCHAIN, main="mclmc") != linked


def test_new_data_networks_and_bundles_have_the_same_key():
    one, two = (
        small_bundle(frame=small_frame(seed=seed), train__seed=seed, network__hidden=[seed])[0]
        for seed in (1, 2)
    )
    assert bundle_program(one) != bundle_program(two)
    assert cache_key(bundle_program(one), TOOLCHAIN) == cache_key(bundle_program(two), TOOLCHAIN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("real x; // a\nreal y;\n", "real x;\nreal y;\n"),
        ("real x; /* a\n b */ real y;\n", "real x;  real y;\n"),
        ("// a /* b\nreal x;\n// c */ d\n", "real x;\n"),
        ("real x; // a /* b\nreal y; // c */\n", "real x;\nreal y;\n"),
    ],
)
def test_comments_and_nothing_else_are_dropped(text, expected):
    assert without_comments(text) == expected


def test_column_names_that_look_like_comments_lose_no_code():
    frame = small_frame().rename(columns={"x": "a/*", "z": "b*/"})
    prepared = small_prepared("y ~ `a/*` + `b*/` + nn(u)", frame)
    program = stan_program(prepared.model)
    assert re.findall(r"\bb_\w+ = theta", without_comments(program)) == [
        "b_a = theta",
        "b_b = theta",
    ]


@pytest.mark.parametrize(
    ("console", "first"),
    [
        (
            "compiling\nSemantic error in 'm.stan', line 3\n  x ~ foo();\nother\n",
            "Semantic error in 'm.stan', line 3",
        ),
        (
            "--- C++\nm.hpp:10:5: error: no match\nnote\nmake: *** [m] Error 1\n",
            "m.hpp:10:5: error",
        ),
        ("g++ -c terror.cpp\n/bin/sh: g++: not found\n", "/bin/sh: g++: not found"),
    ],
)
def test_the_first_error_is_found(console, first):
    assert module._first_error(console).startswith(first)


def test_without_an_error_the_end_of_the_console_is_shown():
    console = "\n".join(f"line {i}" for i in range(30))
    assert module._first_error(console).splitlines() == [f"line {i}" for i in range(22, 30)]


def test_at_most_eight_lines_are_shown():
    assert len(module._first_error("error\n" * 50).splitlines()) == 8


def test_the_folder_of_the_cache_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTAN_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "programs"
    monkeypatch.delenv("SEMISTAN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder().name == "programs"
    assert cache_folder() != tmp_path / "programs"


def test_a_program_is_built_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTAN_CACHE", str(tmp_path))
    built = []

    def build(program, folder, toolchain, *_):
        built.append((program, toolchain))
        folder.mkdir()
        module._executable(folder).write_text("binary")

    monkeypatch.setattr(module, "_build", build)
    assert not is_compiled(PROGRAM, TOOLCHAIN)
    first, again = (compile_program(PROGRAM, TOOLCHAIN) for _ in range(2))
    commented = compile_program("// note\n" + PROGRAM, TOOLCHAIN)
    assert (first.cached, again.cached, commented.cached) == (False, True, True)
    assert first.executable == again.executable == commented.executable
    assert built == [(without_comments(PROGRAM), TOOLCHAIN)]
    assert is_compiled(PROGRAM, TOOLCHAIN)


def fake_cmdstan(path, compiled="model_header_threads.hpp.gch"):
    folder = path / "cmdstan" / "stan" / "src" / "stan" / "model"
    folder.mkdir(parents=True)
    (folder / "model_header.hpp").write_text("header")
    if compiled:
        (folder / compiled).write_text("compiled")
    return Toolchain(path / "cmdstan", (2, 27, 0), "g++ 12")


def test_the_header_that_cmdstan_compiled_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXXFLAGS_PROGRAM", "-g")
    own, other = fake_cmdstan(tmp_path / "one"), fake_cmdstan(tmp_path / "other")
    for toolchain in (own, other, own):
        flags = module._environment(toolchain)["CXXFLAGS_PROGRAM"].split()
        assert flags[:2] == ["-g", "-include"]
        header = Path(flags[2])
        assert header.read_text() == "header"
        assert header.with_suffix(".hpp.gch").read_text() == "compiled"
        assert header.resolve().is_relative_to(toolchain.cmdstan)


def test_newer_releases_keep_it_where_the_compiler_looks(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXXFLAGS_PROGRAM", raising=False)
    flags = module._environment(fake_cmdstan(tmp_path, compiled=""))["CXXFLAGS_PROGRAM"]
    assert flags == "-include stan/model/model_header.hpp"
    clang = replace(fake_cmdstan(tmp_path / "c"), compiler="Apple clang version 15")
    assert "CXXFLAGS_PROGRAM" not in module._environment(clang)
