"""From a model to chains that run: CmdStan, the compilation, the kernel's check, starts, cores."""

from __future__ import annotations

from dataclasses import replace

from semistan.errors import ToolchainError
from semistan.infer.cmdstan.compile import compile_program, is_compiled
from semistan.infer.cmdstan.kernel import kernel_failure
from semistan.infer.cmdstan.toolchain import Toolchain, find_toolchain
from semistan.infer.methods import check_version, method_of
from semistan.infer.plan import Plan, default_plan, plan_in_torch, timed_plan
from semistan.infer.starts import Starts, find_starts
from semistan.model.bundle import Bundle
from semistan.model.config import SampleConfig, with_overrides
from semistan.model.model import Model
from semistan.model.table.rows import Rows
from semistan.program.integral import in_one_pass
from semistan.program.parts import Kernel, has_kernel, parts_of
from semistan.program.program import bundle_program, stan_program
from semistan.workflow.watch import Say, silent


def toolchain_for(options: SampleConfig) -> Toolchain | None:
    """Find CmdStan if the method needs it.

    Raises
    ------
    ToolchainError
        If it is missing, or too old for the method.
    """
    method = method_of(options)
    if not method.by_stan:
        return None
    toolchain = find_toolchain()
    check_version(method, toolchain.version)
    return toolchain


def compile_model(model: Model, toolchain: Toolchain | None, say: Say) -> Kernel:
    """Compile the program, with the C++ kernel unless it is refused, and return which.

    Without a toolchain nothing is compiled; pure Stan is what is written then.
    """
    if toolchain is None:
        return "stan"
    in_cpp, chosen = has_kernel(model), model.config.sample.kernel
    wanted: Kernel = "cpp" if in_cpp and chosen != "stan" else "stan"
    if not in_cpp and chosen != "stan":
        say(without_kernel(model))
    program, main = stan_program(model, kernel=wanted), method_of(model.config.sample).main
    if not is_compiled(program, toolchain, wanted, main):
        say("compiling the Stan program (about 20 s, and a minute more the first time) ...")
    try:
        compiled = compile_program(program, toolchain, wanted, main)
    except ToolchainError as error:
        if wanted == "stan":
            raise
        say(f"warning: pure Stan is used, because the C++ kernel fails: {error}")
        return compile_model(_in_stan(model), toolchain, say)
    state = "already compiled" if compiled.cached else "compiled"
    with_kernel = " with the C++ kernel" if wanted == "cpp" else ""
    say(f"Stan program{with_kernel} {state} (CmdStan {toolchain.version_text})")
    return wanted


def trusted_kernel(
    kernel: Kernel, bundle: Bundle, rows: Rows, toolchain: Toolchain | None, say: Say
) -> Kernel:
    """Check the kernel on ten rows; fall back on pure Stan if it disagrees with the network."""
    if kernel == "stan" or toolchain is None:
        return kernel
    main = method_of(bundle.config.sample).main
    program = compile_program(bundle_program(bundle, kernel), toolchain, kernel, main)
    failure = kernel_failure(bundle, rows, program.executable)
    if failure is None:
        return kernel
    say(f"warning: pure Stan is used, because the C++ kernel fails its self-check: {failure}")
    return compile_model(_in_stan(bundle.model), toolchain, say)


def without_kernel(model: Model) -> str:
    """Say why a model's program has no C++ kernel."""
    if model.integrates_theta:
        return "pure Stan is used, on one thread for each chain, because theta is integrated out"
    return f"pure Stan is used, because the C++ kernel cannot compute {model.network.text}"


def _in_stan(model: Model) -> Model:
    """Return the model whose program has no C++ kernel."""
    return model.replace(config=with_overrides(model.config, {"sample.kernel": "stan"}))


def starts_of(
    bundle: Bundle,
    rows: Rows,
    options: SampleConfig,
    *,
    prior_only: bool = False,
    say: Say = silent,
) -> Starts:
    """Find the starts that the method's chains need; the bundle is tempered already."""
    method = method_of(options)
    return find_starts(
        bundle, rows, options,
        prior_only=prior_only, from_mode=method.from_mode, hamiltonian=method.hamiltonian, say=say,
    )  # fmt: skip


def plan_of(
    bundle: Bundle, rows: Rows, options: SampleConfig, toolchain: Toolchain | None, kernel: Kernel
) -> Plan:
    """Plan the cores; chains in PyTorch are processes where that pays, and share them."""
    method = method_of(options)
    if toolchain is None:
        activations = len(rows) * bundle.network.widest
        return Plan(plan_in_torch(options, method, activations), 1, len(rows))
    model = bundle.model
    one_thread = model.integral and not in_one_pass(parts_of(model, kernel))
    if not method.samples_program or model.integrates_theta or one_thread:
        return default_plan(options.model_copy(update={"threads": 1}), len(rows))
    if model.integral:  # the kernel has slices of its own
        return replace(default_plan(options, len(rows)), grainsize=len(rows))
    compiled = compile_program(bundle_program(bundle, kernel), toolchain, kernel, method.main)
    return timed_plan(bundle, rows, options, compiled.executable)
