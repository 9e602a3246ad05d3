"""The Stan functions of links and of ordered categories: PyTorch's values and gradients."""

import json
import subprocess
from itertools import product

import numpy as np
import pytest
import torch

from semistan.infer.cmdstan.compile import compile_program
from semistan.model.families.families import family
from semistan.model.families.links import LINKS
from semistan.program.program import bundle_program
from semistan.program.quantities import quantities_program
from semistan.program.sources import stan_source
from support.programs import stanc_output
from support.small import small_bundle, small_frame

ETA = np.array([-800.0, -300, -40, -36.5, -30.0, -7, -0.3, 0, 1.2, 5, 8.5, 31, 40, 800])
LOGS = np.array([1.1, -0.4, 0.2])  # of beta's precision, and of two gaps
FILES = (
    "log_Phi", "probit", "cloglog", "cauchit", "beta_logit", "cumulative_probit", "sratio_logit",
    "sratio_probit", "acat_logit",
)  # fmt: skip
PROGRAM = """
data { int which; int y; }
parameters { vector[12] eta; vector[3] logs; }
model {
  vector[3] tau = cumulative_sum([0, exp(logs[2]), exp(logs[3])]');
  vector[3] free = cumulative_sum([0, logs[2], logs[3]]');
  if (which == 1) target += probit_to_logit(eta);
  if (which == 2) target += cloglog_to_logit(eta);
  if (which == 3) target += cauchit_to_logit(eta);
  for (n in 1 : 12) {
    if (which == 4) target += beta_logit_lpdf(0.3 | eta[n], exp(logs[1]));
    if (which == 5) target += cumulative_probit_lpmf(y | eta[n], tau);
    if (which == 6) target += sratio_logit_lpmf(y | eta[n], free);
    if (which == 7) target += sratio_probit_lpmf(y | eta[n], free);
    if (which == 8) target += acat_logit_lpmf(y | eta[n], free);
  }
}
generated quantities {
  real p = beta_logit_rng(800, 5);
}
"""
ORDERED = ("cumulative(probit, 4)", "sratio(logit, 4)", "sratio(probit, 4)", "acat(logit, 4)")
CASES = [*((which, 0) for which in range(1, 5)), *product(range(5, 9), range(1, 5))]
FAMILIES = {
    "bernoulli(probit)": "flag ~ x + nn(u)", "bernoulli(cauchit)": "flag ~ x + nn(u)",
    "binomial(cloglog)": "flag | trials(n) ~ x + nn(u)", "gaussian(log)": "y ~ x + nn(u)",
    "student(log)": "y | weights(z) ~ x + nn(u)", "beta(probit)": "p ~ x + nn(u)",
    "beta(cloglog)": "p | weights(z) ~ x + nn(u)", "cumulative(logit)": "o ~ x + nn(u)",
    "cumulative(probit)": "o | weights(z) ~ nn(u)", "cumulative(logit, 2)": "two ~ x + nn(u)",
    "sratio": "o ~ x + nn(u)", "cratio(probit)": "o | weights(z) ~ nn(u)",
    "sratio(logit, 2)": "two ~ x + nn(u)", "acat": "o ~ x + nn(u)", "acat(2)": "two ~ nn(u)",
}  # fmt: skip


def in_torch(which, y, eta, logs):
    """The sum over eta of what the program adds to its target."""
    if which <= 3:
        (link,) = (
            link for link in LINKS if link.name == ("probit", "cloglog", "cauchit")[which - 1]
        )
        return link.tensor(eta).sum()
    if which == 4:
        y = torch.full_like(eta, 0.3)
        return family("beta").log_lik(y, eta, {"precision": logs[0].exp()}).sum()
    record = family(ORDERED[which - 5])
    gaps = {item.name: item.value(at) for item, at in zip(record.parameters, logs[1:], strict=True)}
    return record.log_lik(torch.full_like(eta, y), eta, gaps).sum()


def evaluated(executable, which, y, q, folder):
    """Return the program's log density and gradient at q."""
    (folder / "data.json").write_text(json.dumps({"which": which, "y": y}))
    result = subprocess.run(
        [executable, "evaluate", folder / "data.json"],
        input=" ".join(f"{value:.17g}" for value in q), capture_output=True, text=True, check=True,
    )  # fmt: skip
    values = [float(word) for word in result.stdout.splitlines()[1].split()]
    return values[0], np.array(values[1 : 1 + len(q)]), values[-1]


def test_values_and_gradients_are_pytorchs(toolchain, tmp_path):
    functions = "\n".join(stan_source(f"{name}.stanfunctions") for name in FILES)
    program = "functions {\n" + functions + "}\n" + PROGRAM
    executable = compile_program(program, toolchain).executable
    for which, y in CASES:
        # each eta by itself, so that small values are not lost beside large ones
        for value in ETA:
            q = np.r_[np.full(12, value), LOGS]
            leaf = torch.tensor(q, requires_grad=True)
            expected = in_torch(which, y, leaf[:12], leaf[12:])
            expected.backward()
            found, gradient, p = evaluated(executable, which, y, q, tmp_path)
            where = f"case {which}, y = {y}, eta = {value}"
            # Stan adds up the categories, beside 1, before it takes their logarithm
            least = 1e-14 if which == 8 else 1e-300
            assert found == pytest.approx(expected.item(), rel=1e-9, abs=least), where
            assert gradient == pytest.approx(leaf.grad.numpy(), rel=1e-9, abs=1e-13), where
            assert p == 1


@pytest.mark.parametrize("text", FAMILIES)
def test_stanc_accepts_both_programs_without_a_warning(text, toolchain, tmp_path):
    n = np.arange(30)
    frame = small_frame().assign(o=n % 4 + 1, two=n % 2 + 1, n=7, p=lambda table: table["z"] / 3)
    bundle, _ = small_bundle(FAMILIES[text], frame, family=text, train__epochs=1)
    for program in (bundle_program(bundle), quantities_program(bundle)):
        assert max(map(len, program.splitlines())) <= 80
        assert stanc_output(program, toolchain, tmp_path) == ""
