"""The activations in Stan and in the C++ kernel: a choice by number, made from their records."""

from __future__ import annotations

from collections.abc import Callable

from semistan.model.networks.activations import ACTIVATIONS
from semistan.model.networks.activations.activation import Activation, KernelText


def stan_values() -> str:
    """Return the Stan function of the activations."""
    numbered = ", ".join(f"{code} {name}" for code, name in enumerate(ACTIVATIONS, start=1))
    choice = _stan_choice("activate", lambda record: record.stan)
    return f"// Activation, elementwise:\n// {numbered}.\n{choice}"


def stan_slopes() -> str:
    """Return the Stan function of their slopes."""
    choice = _stan_choice("activation_slope", lambda record: record.stan_slope)
    return f"// Slope of the activation, elementwise.\n{choice}"


def kernel_functions() -> str:
    """Return the C++ functions of those that the kernel has, for ``network_vectors.hpp``."""
    forward = _kernel_choice(
        "int activation, double* values, int size",
        "const Vec z = load(values + i);\n        Vec& a = at(values + i);",
        lambda text: text.value,
    )
    back = _kernel_choice(
        "int activation, const double* value, double* adjoint, int size",
        "const Vec a = load(value + i);\n        Vec& d = at(adjoint + i);",
        lambda text: text.back,
    )
    return (
        "// The activations, by number.\n\n"
        f"SEMISTAN_INLINE void activate{forward}\n"
        "// Multiply by the activation's slope, written in its value a.\n"
        f"SEMISTAN_INLINE void deactivate{back}"
    )


def _stan_choice(function: str, expression: Callable[[Activation], str]) -> str:
    *others, last = map(expression, ACTIVATIONS.values())
    lines = [f"  if (activation == {i}) return {text};" for i, text in enumerate(others, start=1)]
    head = f"matrix {function}(matrix Z, int activation) {{"
    return "\n".join([head, *lines, f"  return {last};", "}", ""])


def _kernel_choice(arguments: str, names: str, statement: Callable[[KernelText], str]) -> str:
    lines = [f"({arguments}) {{", "  switch (activation) {"]
    for code, (name, record) in enumerate(ACTIVATIONS.items(), start=1):
        if record.kernel and (text := statement(record.kernel)):
            lines += [
                f"    case {code}:  // {name}",
                "      for (int i = 0; i < size; i += LANES) {",
                f"        {names}",
                f"        {text}",
                "      }",
                "      break;",
            ]
    return "\n".join([*lines, "  }", "}", ""])
