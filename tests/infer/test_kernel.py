"""The C++ kernel by itself, its self-check, and the way back to pure Stan."""

import subprocess
from pathlib import Path

import pytest

from semistan.infer.cmdstan import compile as compile_module
from semistan.infer.cmdstan.compile import compile_program
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.infer.cmdstan.toolchain import compiler_version
from semistan.program.program import bundle_program
from semistan.program.sources import KERNEL_HEADERS, stan_source
from semistan.workflow import compiled as workflow
from support.small import further_bundle
from support.untrained import random_bundle

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["-std=c++14", "-O3"], id="C++14, best instruction set"),
        pytest.param(
            ["-std=c++17", "-O3", "-DSEMISTAN_RUN=two::run_blocks<4>"], id="C++17, portable"
        ),
        pytest.param(
            ["-std=c++17", "-O1", "-g", "-DSEMISTAN_RUN=four::run_blocks<4>",
             "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
            id="sanitizers", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
@pytest.mark.lengthy
def test_functions_to_4_ulp_and_the_pass_to_a_naive_loop(flags, tmp_path):
    compiler_version()
    for name in KERNEL_HEADERS:
        (tmp_path / name).write_text(stan_source(name), "utf-8")
    command = ["g++", *flags, "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}",
               ROOT / "tests" / "infer" / "kernel.cpp", "-o", tmp_path / "kernel"]  # fmt: skip
    subprocess.run(command, check=True)
    result = subprocess.run([tmp_path / "kernel"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "5900 cases agree" in result.stdout


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_a_right_kernel_passes_its_self_check(family, toolchain):
    bundle, rows = random_bundle(family)
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert kernel_failure(bundle, rows, compiled.executable) is None


def test_the_self_check_knows_further_terms(toolchain):
    bundle, rows = further_bundle("binomial")
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert kernel_failure(bundle, rows, compiled.executable) is None


def spoiled(monkeypatch, old, new):
    """Compile another kernel than the one that is shipped."""
    assert any(old in stan_source(name) for name in KERNEL_HEADERS)

    def source(name):
        return stan_source(name).replace(old, new)

    monkeypatch.setattr(compile_module, "stan_source", source)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("d *= 1.0 - a * a;", "d *= 1.0 - a;", "its gradient is off"),
        ("0.91893853320467274178", "0.9189385", "its log density is off"),
    ],
)
def test_a_wrong_kernel_is_found_and_pure_stan_is_used(monkeypatch, toolchain, old, new, message):
    spoiled(monkeypatch, old, new)
    bundle, rows = random_bundle("gaussian")
    lines = []
    kernel = workflow.compile_model(bundle.model, toolchain, lines.append)
    assert kernel == "cpp"
    assert workflow.trusted_kernel(kernel, bundle, rows, toolchain, lines.append) == "stan"
    assert sum(message in line for line in lines) == 1
    assert "Stan program" in lines[-1]


def test_a_wrong_derivative_by_further_terms_is_found(monkeypatch, toolchain):
    spoiled(monkeypatch, "pass.eta + rows, result.d_extra", "pass.eta + rows / 2, result.d_extra")
    bundle, rows = further_bundle("binomial")  # of which no term is integrated out
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert "its gradient is off" in kernel_failure(bundle, rows, compiled.executable)


def test_a_compiler_that_refuses_the_kernel_leads_to_pure_stan(monkeypatch, toolchain):
    spoiled(
        monkeypatch,
        "namespace semistan {",
        "#error this compiler has no vectors\nnamespace semistan {",
    )
    bundle, _ = random_bundle("gaussian")
    lines = []
    assert workflow.compile_model(bundle.model, toolchain, lines.append) == "stan"
    (said,) = [line for line in lines if "pure Stan is used" in line]
    assert "this compiler has no vectors" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("+ given.log_det +", "+ 0.999 * given.log_det +", "its log density is off"),
        ("= eta_scale * scale_value", "= 1.01 * eta_scale * scale_value", "is off"),
        ("= root.sd[j] * covariance(j, i)", "= covariance(j, i)", "its gradient is off"),
        ("+ leverage.array() - 1;", "+ leverage.array() - 2;", "its gradient is off"),
    ],
    ids=["determinant", "prior scale", "covariance", "derivative by the prior scale"],
)
@pytest.mark.lengthy
def test_a_wrong_integral_is_found(monkeypatch, toolchain, old, new, message):
    spoiled(monkeypatch, old, new)
    bundle, rows = random_bundle(
        "gaussian",
        sample={"integrate": "auto"},
        subspace={"construction": "full"},
        priors={"phi": None, "sd_w": "student_t(4, 0, 1)"},
    )
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert message in kernel_failure(bundle, rows, compiled.executable)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("found.col(column) += x *", "found.col(column) += 0.9 * x *", "is off"),
        ("+= by_element(", "+= 0.9 * by_element(", "its gradient is off"),
    ],
    ids=["root", "derivative by its elements"],
)
@pytest.mark.lengthy
def test_wrong_correlations_within_the_integral_are_found(
    monkeypatch, toolchain, old, new, message
):
    spoiled(monkeypatch, old, new)
    bundle, rows = random_bundle(
        "gaussian", sample={"integrate": "auto"}, formula="y ~ x1 + (1 + x1 | g) + nn(u1, u2)",
        subspace={"construction": "full"}, priors={"phi": None},
    )  # fmt: skip
    compiled = compile_program(bundle_program(bundle, "cpp"), toolchain, "cpp")
    assert message in kernel_failure(bundle, rows, compiled.executable)
